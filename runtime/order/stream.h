/* Streams as timelines. fy__stream_submitted takes a request's number after the backend accepted
 * it. A reader of number n therefore knows that all requests up to n are in the queue: an event
 * recorded later covers them, and submission takes no lock. Slots are never freed, and their
 * numbers continue when a new stream reuses a slot. So an old ticket or hazard word reads as done
 * and cannot name a request of the new stream.
 * Not here: which request waits for which (hazard.h and ops/dispatch.c). */
#ifndef FERRY_RUNTIME_STREAM_H_
#define FERRY_RUNTIME_STREAM_H_

#include <ferry/stream.h>

#include "runtime/device/device.h"
#include "runtime/order/hazard.h"
#include "runtime/thread/scope.h"
#include "runtime/thread/wait_site.h"

/* ---- job timelines. A transfer whose engine's window is full becomes a job in the
 * engine's queue. A job has a number on a separate stream without a native queue, so tickets and
 * hazard words can name it before it is submitted. A wait for a job, or an order after it, submits
 * its dependencies and then the job. From then on its point on the engine's stream replaces it.
 * Jobs finish out of order: only `look` knows the state of one.
 * runtime/ calls it; transfer/queue.c implements it, and external.c for work of other libraries,
 * which is submitted when it is finished. Why:
 * docs/decisions/0017-jobs-on-a-virtual-timeline.md. ---- */

enum { FY__JOB_DEPENDENCIES = 12 };

typedef enum fy__job_state {
    FY__JOB_OVER,     /* there is nothing to wait for */
    FY__JOB_STANDING, /* queued, or being submitted */
    /* cancelled or failed, never submitted; others may have to wait for its dependencies */
    FY__JOB_EMPTY,
    FY__JOB_STARTED /* `native` replaces it */
} fy__job_state_t;

typedef struct fy__job_view {
    fy__job_state_t state;
    fy__point_t native;
    uint32_t record;    /* of its failure; 0: none known */
    bool cancelled;     /* it reads nothing; */
    fy__point_t before; /* but an earlier read of its source on the same engine may be running */
    uint32_t ndependencies;
    fy__point_t dependencies[FY__JOB_DEPENDENCIES]; /* if EMPTY */
} fy__job_view_t;

struct fy_stream;
typedef struct fy__timeline {
    /* Only reads: it never submits, waits or releases anything, so it may be called under any lock
     * of the runtime but a stream's. */
    void (*look)(struct fy_stream *jobs, uint64_t seq, fy__job_view_t *out_view);
    /* Submits it if it is queued; *out_native is the point to wait for, or 0. No lock may be
     * held. */
    fy_status_t (*submit)(struct fy_stream *jobs, uint64_t seq, fy__point_t *out_native);
    /* false: too late. No lock may be held. */
    bool (*cancel)(struct fy_stream *jobs, uint64_t seq);
    /* Submits the jobs that fit the window; for a lost device, fails queued jobs. No lock may be
     * held. */
    void (*pump)(struct fy_stream *jobs);
    /* Blocks until no job is queued. OK, TIMEOUT, DEVICE_LOST. */
    fy_status_t (*drain)(struct fy_stream *jobs, uint64_t timeout_ns);
    /* Submits all queued jobs, regardless of the window. */
    void (*flush)(struct fy_stream *jobs);
    /* Blocks until it may be submitted: OK, TIMEOUT, CANCELLED (stream.h). NULL: at any time. */
    fy_status_t (*await)(struct fy_stream *jobs, uint64_t seq, uint64_t timeout_ns,
                         fy__wait_site_t site);
} fy__timeline_t;

/* ---- streams ---- */

enum { FY__MAX_STREAMS = 512, FY__STREAM_EVENTS = 32 };

typedef struct fy__stream_event {
    void *event;
    uint64_t seq;     /* covers every request up to here */
    uint32_t waiters; /* hosts blocked on it: must not be recorded again */
} fy__stream_event_t;

/* FILLING: taken, and not yet complete: for its opener only.
 * CLOSING: the handle is destroyed, the work may still run; its events are polled until the slot is
 * reused. */
typedef enum fy__stream_state {
    FY__STREAM_FREE,
    FY__STREAM_FILLING,
    FY__STREAM_OPEN,
    FY__STREAM_CLOSING
} fy__stream_state_t;

struct fy_stream {
    fy__handle_t handle;
    /* the host's once the slot is free: a thread with an old ticket may read it at any time */
    fy_device_t *_Atomic device;
    uint32_t index;  /* in the table; 0 is unused */
    uint32_t reader; /* FY__READER_...: the hazard word of its reads */
    /* the backend's stream; NULL: closed, or a timeline of jobs */
    void *native;
    const fy__timeline_t *_Atomic timeline; /* NULL: an ordinary stream */
    void *_Atomic jobs;                     /* data of the timeline; never freed */
    /* wraps a queue that others submit to: a known event may be too early, so a new one is always
     * recorded */
    _Atomic bool foreign;
    fy__stream_state_t state; /* guarded by the table's lock in stream.c */
    _Atomic uint64_t submitted, done;
    /* requests up to here belong to earlier streams of the slot: all done */
    _Atomic uint64_t begin;
    /* failures up to here are no longer stored (fault.h); written under the faults' lock */
    _Atomic uint64_t forgotten;
    /* requests that were lost with their device, when the slot was released last */
    _Atomic uint64_t lost_first, lost_last;
    /* requests up to here may be submitted without a poll of the stream's progress */
    _Atomic uint64_t room;
    pthread_mutex_t lock;                         /* guards events, free_events and recording */
    fy__stream_event_t events[FY__STREAM_EVENTS]; /* oldest first */
    uint32_t nevents;
    void *free_events[FY__STREAM_EVENTS];
    uint32_t nfree_events;
    /* the last point of each other stream that it already waits for on the device */
    _Atomic uint64_t waited[FY__MAX_STREAMS];
    char name[32];
};

fy_status_t fy__stream_open(fy_device_t *device, fy_stream_role_t role,
                            const fy_stream_options_t *options, fy_stream_t **out_stream);
/* A timeline without a native queue. */
fy_status_t fy__stream_open_timeline(fy_device_t *device, uint32_t reader, const char *name,
                                     const fy__timeline_t *timeline, void *jobs,
                                     fy_stream_t **out_stream);
/* Destroys the native queue; submitted requests still run. */
void fy__stream_close(fy_stream_t *stream);
/* Destroys the events of `device`'s closed streams: after the device was drained (or lost), before
 * it is closed. */
void fy__stream_finish_closed(fy_device_t *device);

/* INVALID_ARGUMENT (NULL, or destroyed), DEVICE_LOST. `what` names the call. */
fy_status_t fy__stream_check(const fy_stream_t *stream, const char *what);
/* The stream that receives this thread's ops on `device`. */
static inline fy_stream_t *fy__stream_current(const fy_device_t *device,
                                              fy_stream_t *const *overrides)
{
    return overrides[device->index] ? overrides[device->index] : device->compute;
}
fy_stream_t *fy__stream_at(uint32_t index);

/* Whether the request is known to be done without an event. On a foreign queue others submit as
 * well, and the awaited work may be theirs. Numbers of earlier streams of this slot are still done,
 * even if they wrapped the same native handle. */
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

/* Back-pressure: the host may be `device->ahead` requests ahead of a stream (plus one for each
 * thread that submits at the same moment). A further request waits here, before it is submitted,
 * until three quarters are left. Each quarter records an event, so this is no drain. Counts as a
 * throttle; no sync, and no guard forbids it. */
fy_status_t fy__stream_throttle_slow(struct fy__thread *thread, fy_stream_t *stream);
static inline fy_status_t fy__stream_throttle(struct fy__thread *thread, fy_stream_t *stream)
{
    if (__builtin_expect(atomic_load_explicit(&stream->submitted, memory_order_relaxed) <
                             atomic_load_explicit(&stream->room, memory_order_relaxed),
                         1))
        return FY_STATUS_OK;
    return fy__stream_throttle_slow(thread, stream);
}

/* Records an event after the last submitted request. Other events are recorded at the first wait,
 * and cover all requests submitted by then; this call keeps such a wait short. For transfers, and
 * for requests that depend on one. */
void fy__stream_anchor(fy_stream_t *stream);
/* As fy__stream_submitted, for a request that others will wait for. */
static inline fy__point_t fy__stream_submitted_anchored(fy_stream_t *stream)
{
    const fy__point_t point = fy__stream_submitted(stream);
    fy__stream_anchor(stream);
    return point;
}

/* Orders later work of `stream` after `point`. Does nothing if it is ordered already. */
fy_status_t fy__stream_wait_point_slow(fy_stream_t *stream, fy__point_t point,
                                       fy__wait_site_t site);
static inline fy_status_t fy__stream_wait_point(fy_stream_t *stream, fy__point_t point,
                                                fy__wait_site_t site)
{
    if (!point || FY__POINT_STREAM(point) == stream->index) return FY_STATUS_OK;
    return fy__stream_wait_point_slow(stream, point, site);
}

/* Whether `point` is on another stream, is not known to be done, and `stream` has not waited for
 * it. Does not poll. */
static inline bool fy__stream_is_ahead(const fy_stream_t *stream, fy__point_t point)
{
    fy_stream_t *other;
    return point && FY__POINT_STREAM(point) != stream->index &&
           (other = fy__stream_at(FY__POINT_STREAM(point))) &&
           atomic_load_explicit(&other->done, memory_order_acquire) < FY__POINT_SEQ(point) &&
           atomic_load_explicit(&stream->waited[other->index], memory_order_relaxed) <
               FY__POINT_SEQ(point);
}

/* If `point` is a job's: fills *out_view and returns true. */
static inline bool fy__point_job_view(fy__point_t point, fy__job_view_t *out_view)
{
    fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(point));
    const fy__timeline_t *timeline =
        stream ? atomic_load_explicit(&stream->timeline, memory_order_acquire) : NULL;
    if (!timeline) return false;
    timeline->look(stream, FY__POINT_SEQ(point), out_view);
    return true;
}
/* Cancels a queued job; false: it is not a job, or has started. */
bool fy__point_cancel(fy__point_t point);
/* The poison record of the request at `point`, which is reached; 0: it did not fail. */
uint32_t fy__point_fault(fy_device_t *device, fy__point_t point);
/* For ordering: an ordinary point is unchanged; a job is submitted if it is queued, and is replaced
 * by its native point. */
fy_status_t fy__point_submit(fy__point_t *point);

/* Whether the request was lost with its device, which has been closed since. */
static inline bool fy__stream_took_along(const fy_stream_t *stream, uint64_t seq)
{
    return seq >= atomic_load(&stream->lost_first) && seq <= atomic_load(&stream->lost_last);
}
/* Whether it will never be reached, because its device is lost. */
bool fy__point_is_lost(fy__point_t point);

/* Whether it has been reached. Polls the backend if needed. True if the device is lost: there is
 * nothing to wait for. */
bool fy__point_reached(fy__point_t point);
/* The same for Ferry's threads: costs no model time. */
bool fy__point_peek(fy__point_t point);
/* The point of a ticket, {0, 0} included. false: it cannot be waited for: an invalid ticket, or one
 * of FY__TICKET_RECORDED, and fy__ticket_refuse says which. */
bool fy__ticket_point(fy_ticket_t ticket, fy__point_t *out_point);
fy_status_t fy__ticket_refuse(const char *what, fy_ticket_t ticket);
/* Status of the request at `point`, which is reached; `what` names it in the text. */
fy_status_t fy__point_status(fy__point_t point, const char *what);
/* Blocks the host. OK, TIMEOUT, or DEVICE_LOST. */
fy_status_t fy__point_wait(fy__point_t point, uint64_t timeout_ns, fy__wait_site_t site);
/* Value of a ticket's `stream` for a transfer that was recorded in a graph; `seq` is its number
 * there. Above every stream's index. */
#define FY__TICKET_RECORDED (UINT64_C(1) << 32)
fy_ticket_t fy__point_ticket(fy__point_t point);

/* The words that are not known to be done, for a job that will wait for them; returns their number
 * (at most 1 + FY__READER_COUNT). */
uint32_t fy__hazard_points(const fy__hazard_t *hazard, fy__point_t *out_points);
/* Records a read by the job at `point`: replaces the word and returns the old point. The job must
 * wait for it, because its word now covers both. */
fy__point_t fy__hazard_read_job(fy__hazard_t *hazard, uint32_t reader, fy__point_t point);
/* Replaces jobs by the native points at which they were submitted, before the words move from a
 * storage to a pool, which compares numbers. */
void fy__hazard_settle(fy__hazard_t *hazard);

/* Before a request on `stream` writes (reads) bytes with this hazard: device-side waits where they
 * are needed. */
fy_status_t fy__hazard_before_write(fy__hazard_t *hazard, fy_stream_t *stream,
                                    fy__wait_site_t site);
fy_status_t fy__hazard_before_read(fy__hazard_t *hazard, fy_stream_t *stream, fy__wait_site_t site);
/* Called after the request was submitted at `point`. */
void fy__hazard_written(fy__hazard_t *hazard, fy__point_t point);
void fy__hazard_read(fy__hazard_t *hazard, fy_stream_t *stream, fy__point_t point);

/* ---- blocking (ticket.c) ---- */

/* As the backend's event_sync; CANCELLED if the function of fy_interrupt_set ends the wait. */
fy_status_t fy__event_block(fy_device_t *device, void *event, uint64_t timeout_ns,
                            fy__wait_site_t site);

/* For waits without an event: whether this thread has a function that may end the wait, and a call
 * of it every FY__INTERRUPT_NS: CANCELLED if it ends the wait. No lock may be held. */
enum { FY__INTERRUPT_NS = 50000000 };
bool fy__interrupt_may_end(const fy_device_t *device, fy__wait_site_t site);
fy_status_t fy__interrupt_ask(const fy_device_t *device);

/* Writes the open streams to the event file. */
void fy__stream_tell(void);

/* Of the table; held over a fork. The child's streams get new locks. */
extern pthread_mutex_t fy__stream_lock;
void fy__stream_fork_child(void);

#endif
