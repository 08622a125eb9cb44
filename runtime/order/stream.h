/* Streams as timelines. A request's number is taken after it was submitted, so whoever reads number
 * n knows that everything up to n is in the queue: an event recorded afterwards covers it, and
 * submitting takes no lock. Slots are never freed and their numbers go on when a stream takes over
 * a slot, so an old ticket or hazard word reads as done instead of naming somebody else's request.
 * Not here: which request waits for which (hazard.h and ops/dispatch.c). */
#ifndef FERRY_RUNTIME_STREAM_H_
#define FERRY_RUNTIME_STREAM_H_

#include <ferry/stream.h>

#include "runtime/device/device.h"
#include "runtime/order/timeline.h"
#include "runtime/thread/scope.h"
#include "runtime/thread/wait_site.h"

enum { FY__MAX_STREAMS = 512, FY__STREAM_EVENTS = 32 };

typedef struct fy__stream_event {
    void *event;
    uint64_t seq;     /* covers every request up to here */
    uint32_t waiters; /* hosts blocked on it: not to be recorded again */
} fy__stream_event_t;

/* CLOSING: the handle is gone, the work may still run; its events answer for it until the slot is
 * taken over. */
typedef enum fy__stream_state {
    FY__STREAM_FREE,
    FY__STREAM_OPEN,
    FY__STREAM_CLOSING
} fy__stream_state_t;

struct fy_stream {
    fy__handle_t handle;
    /* the host's once the slot is free: who holds an old ticket may look at any time */
    fy_device_t *_Atomic device;
    uint32_t index;  /* in the table; 0 is nobody's */
    uint32_t reader; /* FY__READER_...: which hazard word its reads go to */
    /* the backend's stream; NULL: closed, or a timeline of jobs */
    void *native;
    const fy__timeline_t *_Atomic timeline; /* NULL: an ordinary stream */
    void *_Atomic jobs;                     /* the timeline's own; never freed */
    /* wraps a queue that others submit to: a known event may be too early, always record anew */
    _Atomic bool foreign;
    fy__stream_state_t state; /* guarded by the table's lock in stream.c */
    _Atomic uint64_t submitted, done;
    /* requests up to here were those of the slot's earlier streams: done, whoever has it now */
    _Atomic uint64_t begin;
    /* up to here a failure is no longer known (fault.h); written under the faults' lock */
    _Atomic uint64_t forgotten;
    /* requests that a lost device took with it, when the slot was given up last */
    _Atomic uint64_t lost_first, lost_last;
    /* up to here requests may be submitted without asking how far the stream has come */
    _Atomic uint64_t room;
    pthread_mutex_t lock;                         /* guards events, free_events and recording */
    fy__stream_event_t events[FY__STREAM_EVENTS]; /* oldest first */
    uint32_t nevents;
    void *free_events[FY__STREAM_EVENTS];
    uint32_t nfree_events;
    /* what it already waits for on the device, per other stream */
    _Atomic uint64_t waited[FY__MAX_STREAMS];
    char name[32];
};

fy_status_t fy__stream_open(fy_device_t *device, fy_stream_role_t role,
                            const fy_stream_options_t *options, fy_stream_t **out_stream);
/* A timeline of jobs for the engine whose requests go to `native`. */
fy_status_t fy__stream_open_timeline(fy_stream_t *native, const fy__timeline_t *timeline,
                                     void *jobs, fy_stream_t **out_stream);
/* Gives the native queue back; what was submitted still runs. */
void fy__stream_close(fy_stream_t *stream);
/* Gives the events of `device`'s closed streams back: after it was drained (or lost), before the
 * device itself goes. */
void fy__stream_finish_closed(fy_device_t *device);

/* The stream that this thread's ops on `device` go to. */
static inline fy_stream_t *fy__stream_current(const fy_device_t *device,
                                              fy_stream_t *const *overrides)
{
    return overrides[device->index] ? overrides[device->index] : device->compute;
}
fy_stream_t *fy__stream_at(uint32_t index);

/* Is the request known to be done, and no event needed to say so? On a foreign queue others submit,
 * too, and what is to be waited for may be theirs; but not in the time of an earlier stream of this
 * slot, even one of the same native handle. */
static inline bool fy__stream_is_past(const fy_stream_t *stream, uint64_t seq)
{
    return atomic_load_explicit(&stream->done, memory_order_acquire) >= seq &&
           (!stream->foreign || seq <= atomic_load_explicit(&stream->begin, memory_order_relaxed));
}

/* Call after a request was submitted; returns its point. */
static inline fy__point_t fy__stream_submitted(fy_stream_t *stream)
{
    return FY__POINT(stream->index,
                     atomic_fetch_add_explicit(&stream->submitted, 1, memory_order_release) + 1);
}

/* Back-pressure: the host may be `device->ahead` requests ahead of a stream (and one more per
 * thread that submits at the same moment). A request that would be further ahead waits here, before
 * it is submitted, until the stream has come down to three quarters. Every quarter leaves an event
 * behind, so that this is no drain. Counted as a throttle; no sync, and no guard forbids it. */
fy_status_t fy__stream_throttle_slow(struct fy__thread *thread, fy_stream_t *stream);
static inline fy_status_t fy__stream_throttle(struct fy__thread *thread, fy_stream_t *stream)
{
    if (__builtin_expect(atomic_load_explicit(&stream->submitted, memory_order_relaxed) <
                             atomic_load_explicit(&stream->room, memory_order_relaxed),
                         1))
        return FY_STATUS_OK;
    return fy__stream_throttle_slow(thread, stream);
}

/* Records an event behind what was just submitted. Events are otherwise recorded when somebody
 * asks, and then cover whatever was submitted since; this keeps a later wait from being longer than
 * it must. For transfers, and for what runs behind one. */
void fy__stream_anchor(fy_stream_t *stream);
/* As fy__stream_submitted, for a request that others will wait for. */
static inline fy__point_t fy__stream_submitted_anchored(fy_stream_t *stream)
{
    const fy__point_t point = fy__stream_submitted(stream);
    fy__stream_anchor(stream);
    return point;
}

/* Work submitted to `stream` from now on runs after `point`. Nothing happens if it would anyway. */
fy_status_t fy__stream_wait_point_slow(fy_stream_t *stream, fy__point_t point,
                                       fy__wait_site_t site);
static inline fy_status_t fy__stream_wait_point(fy_stream_t *stream, fy__point_t point,
                                                fy__wait_site_t site)
{
    if (!point || FY__POINT_STREAM(point) == stream->index) return FY_STATUS_OK;
    return fy__stream_wait_point_slow(stream, point, site);
}

/* Does `point` lie on another stream, not known to be done, and has `stream` not waited for it
 * before? Asks nobody. */
static inline bool fy__stream_is_ahead(const fy_stream_t *stream, fy__point_t point)
{
    fy_stream_t *other;
    return point && FY__POINT_STREAM(point) != stream->index &&
           (other = fy__stream_at(FY__POINT_STREAM(point))) &&
           atomic_load_explicit(&other->done, memory_order_acquire) < FY__POINT_SEQ(point) &&
           atomic_load_explicit(&stream->waited[other->index], memory_order_relaxed) <
               FY__POINT_SEQ(point);
}

/* If `point` is a job's: looks at it; true. */
static inline bool fy__point_look(fy__point_t point, fy__job_view_t *out_view)
{
    fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(point));
    const fy__timeline_t *timeline =
        stream ? atomic_load_explicit(&stream->timeline, memory_order_acquire) : NULL;
    if (!timeline) return false;
    timeline->look(stream, FY__POINT_SEQ(point), out_view);
    return true;
}
/* Takes back a job that stands; false: it is none, or too late. */
bool fy__point_cancel(fy__point_t point);
/* The record of what became of the request at `point`, which is reached; 0: nothing went wrong. */
uint32_t fy__point_fault(fy_device_t *device, fy__point_t point);
/* For ordering: an ordinary point stays what it is, a job is submitted if it stands and becomes its
 * native point. */
fy_status_t fy__point_submit(fy__point_t *point);

/* Did the request go with its device, which was lost and has been closed since? */
static inline bool fy__stream_took_along(const fy_stream_t *stream, uint64_t seq)
{
    return seq >= atomic_load(&stream->lost_first) && seq <= atomic_load(&stream->lost_last);
}
/* Will it never be reached, because it went with its device or stands on one that is lost? */
bool fy__point_is_lost(fy__point_t point);

/* Has it been reached? Polls the backend if needed. True if the device is lost: nothing is left to
 * wait for. */
bool fy__point_reached(fy__point_t point);
/* The same for Ferry's own thread: costs no model time. */
bool fy__point_peek(fy__point_t point);
/* What became of the request at `point`, which is reached: its own status; `what` names it in the
 * text. */
fy_status_t fy__point_status(fy__point_t point, const char *what);
/* Blocks the host. OK, TIMEOUT, or DEVICE_LOST. */
fy_status_t fy__point_wait(fy__point_t point, uint64_t timeout_ns, fy__wait_site_t site);
/* In `stream` of a ticket: a transfer that was recorded in a graph, `seq` its number there. Above
 * every stream's index. */
#define FY__TICKET_RECORDED (UINT64_C(1) << 32)
fy_ticket_t fy__point_ticket(fy__point_t point);

/* The words that are not known to be done, for a job that will wait for them; returns how many (at
 * most 1 + FY__READER_COUNT). */
uint32_t fy__hazard_points(const fy__hazard_t *hazard, fy__point_t *out_points);
/* A job at `point` reads: it takes the word and returns the point that stood there, which it must
 * wait for, so as to stand for both. */
fy__point_t fy__hazard_read_job(fy__hazard_t *hazard, uint32_t reader, fy__point_t point);
/* Jobs become the native points they were submitted at: before words leave their storage for a
 * pool, which compares numbers. */
void fy__hazard_settle(fy__hazard_t *hazard);

/* Before a request on `stream` writes (reads) bytes with this hazard: device-side waits where they
 * are needed. */
fy_status_t fy__hazard_before_write(fy__hazard_t *hazard, fy_stream_t *stream,
                                    fy__wait_site_t site);
fy_status_t fy__hazard_before_read(fy__hazard_t *hazard, fy_stream_t *stream, fy__wait_site_t site);
/* After it was submitted at `point`. */
void fy__hazard_written(fy__hazard_t *hazard, fy__point_t point);
void fy__hazard_read(fy__hazard_t *hazard, fy_stream_t *stream, fy__point_t point);

/* Tells the event file which streams are open. */
void fy__stream_tell(void);

/* The table is held over a fork; the child's streams get new locks. */
void fy__stream_fork_lock(void);
void fy__stream_fork_unlock(void);
void fy__stream_fork_child(void);

#endif
