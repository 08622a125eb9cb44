/* Streams: the table, events, device-side waits and host waits. stream.h explains why numbers are
 * taken after submission. */
#include "runtime/order/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/abi_structs.h"
#include "runtime/base/fail.h"
#include "runtime/record/event.h"
#include "runtime/tensor/storage.h"
#include "runtime/thread/guard.h"
#include "runtime/thread/thread.h"

/* Guards the allocation and release of slots; a slot's pointer is published once and stays. */
pthread_mutex_t fy__stream_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(fy_stream_t *) table[FY__MAX_STREAMS];

fy_stream_t *fy__stream_at(uint32_t index)
{
    return index && index < FY__MAX_STREAMS
               ? atomic_load_explicit(&table[index], memory_order_acquire)
               : NULL;
}

/* ---- events; the stream's lock is held ---- */

/* Removes completed events from the front of the list. */
static fy_status_t advance_by(fy_stream_t *stream, bool peek)
{
    const fy_backend_t *backend = stream->device->backend;
    peek = peek && backend->event_peek;
    while (stream->nevents) {
        fy__stream_event_t *oldest = &stream->events[0];
        int done = 0;
        FY_TRY(fy__device_check(stream->device, (peek ? backend->event_peek : backend->event_query)(
                                                    stream->device->dev, oldest->event, &done)));
        if (!done) break;
        if (atomic_load_explicit(&stream->done, memory_order_relaxed) < oldest->seq)
            atomic_store_explicit(&stream->done, oldest->seq, memory_order_release);
        if (oldest->waiters) break; /* still in use; its number is known to be done */
        stream->free_events[stream->nfree_events++] = oldest->event;
        memmove(&stream->events[0], &stream->events[1],
                --stream->nevents * sizeof stream->events[0]);
    }
    return FY_STATUS_OK;
}

static fy_status_t advance(fy_stream_t *stream) { return advance_by(stream, false); }

/* No further event is available: moves the newest event without waiters to the tail; the event
 * after it then covers its requests. */
static fy_status_t move_newest(fy_stream_t *stream, uint64_t tail, fy__stream_event_t **out_event)
{
    uint32_t i = stream->nevents;
    while (i && stream->events[i - 1].waiters) i--;
    if (!i)
        return FY_FAIL(BUSY, "stream '%s': %u threads wait on its events already", stream->name,
                       stream->nevents);
    void *event = stream->events[i - 1].event;
    FY_TRY(fy__device_check(stream->device, stream->device->backend->event_record(
                                                stream->device->dev, event, stream->native)));
    memmove(&stream->events[i - 1], &stream->events[i],
            (stream->nevents - i) * sizeof stream->events[0]);
    *out_event = &stream->events[stream->nevents - 1];
    **out_event = (fy__stream_event_t){ event, tail, 0 };
    return FY_STATUS_OK;
}

/* The oldest event that covers `seq`; records one at the tail if there is none, and always if the
 * queue is foreign. A stream has at least one event from its opening on, so a wait never fails
 * because the backend has no more events. */
static fy_status_t cover(fy_stream_t *stream, uint64_t seq, fy__stream_event_t **out_event)
{
    const fy_backend_t *backend = stream->device->backend;
    void *dev = stream->device->dev, *event;
    for (uint32_t i = 0; i < stream->nevents && !stream->foreign; i++)
        if (stream->events[i].seq >= seq) {
            *out_event = &stream->events[i];
            return FY_STATUS_OK;
        }
    const uint64_t tail = atomic_load_explicit(&stream->submitted, memory_order_acquire);
    if (stream->nevents == FY__STREAM_EVENTS) return move_newest(stream, tail, out_event);
    if (stream->nfree_events)
        event = stream->free_events[stream->nfree_events - 1];
    else {
        const fy_status_t status =
            fy__device_check(stream->device, backend->event_create(dev, &event));
        if (status == FY_STATUS_OUT_OF_MEMORY && stream->nevents)
            return move_newest(stream, tail, out_event);
        FY_TRY(status);
        stream->free_events[stream->nfree_events++] = event;
    }
    FY_TRY(fy__device_check(stream->device, backend->event_record(dev, event, stream->native)));
    stream->nfree_events--;
    *out_event = &stream->events[stream->nevents++];
    **out_event = (fy__stream_event_t){ event, tail, 0 };
    return FY_STATUS_OK;
}

void fy__stream_anchor(fy_stream_t *stream)
{
    fy__stream_event_t *event;
    fy__lock(&stream->lock);
    if (stream->nevents >= FY__STREAM_EVENTS / 2) (void)advance(stream);
    /* Closed meanwhile: it recorded an event. If recording fails, only precision is lost: a wait
     * then records its own event. */
    if (stream->native)
        (void)cover(stream, atomic_load_explicit(&stream->submitted, memory_order_relaxed), &event);
    fy__unlock(&stream->lock);
}

/* ---- opening and closing ---- */

static bool forked(const fy_device_t *device)
{
    return atomic_load_explicit(&device->lost, memory_order_relaxed) == FY__LOST_BY_FORK;
}

static void destroy_native(fy_stream_t *stream)
{
    if (stream->native && !forked(stream->device))
        stream->device->backend->stream_destroy(stream->device->dev, stream->native);
    stream->native = NULL;
    stream->foreign = false;
}

/* A closed stream whose work is done destroys its events; its slot is then free. The table's lock
 * is held. */
static void finish_closing(fy_stream_t *stream)
{
    fy_device_t *device = stream->device;
    fy__lock(&stream->lock); /* a thread with an old ticket may read the events */
    destroy_native(stream);
    /* its tickets keep failing after the slot is reused */
    if (fy__device_is_lost(device)) {
        atomic_store(&stream->lost_first, atomic_load(&stream->done) + 1);
        atomic_store(&stream->lost_last, atomic_load(&stream->submitted));
    }
    for (uint32_t i = 0; i < stream->nevents && !forked(device); i++)
        device->backend->event_destroy(device->dev, stream->events[i].event);
    for (uint32_t i = 0; i < stream->nfree_events && !forked(device); i++)
        device->backend->event_destroy(device->dev, stream->free_events[i]);
    stream->nevents = stream->nfree_events = 0;
    atomic_store_explicit(&stream->timeline, NULL, memory_order_release);
    atomic_store_explicit(&stream->done, atomic_load(&stream->submitted), memory_order_release);
    stream->device = fy_device_host(); /* the device may close now; old tickets still read this */
    fy__unlock(&stream->lock);
    stream->state = FY__STREAM_FREE;
}

static bool closing_is_done(fy_stream_t *stream)
{
    if (fy__wait_drops(FY__WAIT_STREAM_SLOT) || fy__device_is_lost(stream->device)) return true;
    fy__stream_event_t *event;
    fy__lock(&stream->lock);
    const bool covered = !stream->native ||
                         cover(stream, atomic_load(&stream->submitted), &event) == FY_STATUS_OK;
    (void)advance(stream);
    const bool done = (covered && !stream->nevents) || fy__device_is_lost(stream->device);
    fy__unlock(&stream->lock);
    return done;
}

/* A slot that is not visible as a stream before `publish`. */
static fy_stream_t *take_slot(void)
{
    fy_stream_t *taken = NULL;
    fy__lock(&fy__stream_lock);
    for (uint32_t i = 1; i < FY__MAX_STREAMS && !taken; i++) {
        fy_stream_t *stream = atomic_load_explicit(&table[i], memory_order_relaxed);
        if (!stream) {
            stream = calloc(1, sizeof *stream);
            if (!stream) break;
            pthread_mutex_init(&stream->lock, NULL);
            stream->index = i;
            atomic_store_explicit(&table[i], stream, memory_order_release);
        }
        if (stream->state == FY__STREAM_CLOSING && closing_is_done(stream)) finish_closing(stream);
        if (stream->state == FY__STREAM_FREE) taken = stream;
    }
    if (taken) taken->state = FY__STREAM_FILLING;
    fy__unlock(&fy__stream_lock);
    return taken;
}

/* Initializes the members of the new stream; those of the slot stay. */
static void set_up(fy_stream_t *stream, fy_device_t *device, void *native, void *event,
                   uint32_t reader, const char *name)
{
    fy__lock(&stream->lock);
    stream->handle = (fy__handle_t){ NULL, NULL, FY__HANDLE_STREAM };
    stream->device = device;
    stream->native = native;
    stream->free_events[0] = event;
    stream->nfree_events = event != NULL;
    stream->foreign = false;
    stream->reader = reader;
    atomic_store(&stream->begin, atomic_load(&stream->submitted));
    snprintf(stream->name, sizeof stream->name, "%s", name);
    atomic_store(&stream->room, atomic_load(&stream->submitted) + (device->ahead + 3) / 4);
    /* Waits of the slot's last stream do not apply to this one. */
    for (int i = 0; i < FY__MAX_STREAMS; i++)
        atomic_store_explicit(&stream->waited[i], 0, memory_order_relaxed);
    fy__unlock(&stream->lock);
}

/* The stream is complete. A recording that begins finds it, or is seen here. */
static void publish(fy_stream_t *stream)
{
    fy__lock(&fy__stream_lock);
    stream->state = FY__STREAM_OPEN;
    fy__unlock(&fy__stream_lock);
    FY__EVENT(fy__event_stream(stream));
}

fy_status_t fy__stream_open_timeline(fy_device_t *device, uint32_t reader, const char *name,
                                     const fy__timeline_t *timeline, void *jobs,
                                     fy_stream_t **out_stream)
{
    fy_stream_t *stream = take_slot();
    if (!stream)
        return FY_FAIL(OUT_OF_MEMORY, "%s: %d streams are open; there is none for queued work",
                       name, FY__MAX_STREAMS - 1);
    set_up(stream, device, NULL, NULL, reader, name);
    atomic_store(&stream->jobs, jobs);
    atomic_store_explicit(&stream->timeline, timeline, memory_order_release);
    publish(stream);
    *out_stream = stream;
    return FY_STATUS_OK;
}

fy_status_t fy__stream_open(fy_device_t *device, fy_stream_role_t role,
                            const fy_stream_options_t *options, fy_stream_t **out_stream)
{
    static const char *const names[] = { "compute", "upload", "download" };
    void *native = NULL, *event = NULL;
    const char *name = options && options->name ? options->name : options ? "stream" : names[role];
    FY_TRY(fy__device_check(
        device, device->backend->stream_create(device->dev, role, options ? options->priority : 0,
                                               options ? options->native : NULL, &native)));
    /* see cover */
    const fy_status_t status =
        fy__device_check(device, device->backend->event_create(device->dev, &event));
    if (status != FY_STATUS_OK) {
        device->backend->stream_destroy(device->dev, native);
        return status;
    }
    fy_stream_t *stream = take_slot();
    if (!stream) {
        device->backend->event_destroy(device->dev, event);
        device->backend->stream_destroy(device->dev, native);
        return FY_FAIL(
            OUT_OF_MEMORY,
            "stream_create: %d streams are open, or there is no memory for one more; destroy some",
            FY__MAX_STREAMS - 1);
    }
    set_up(stream, device, native, event,
           options                      ? FY__READER_OTHER
           : role == FY_STREAM_UPLOAD   ? FY__READER_UPLOAD
           : role == FY_STREAM_DOWNLOAD ? FY__READER_DOWNLOAD
                                        : FY__READER_COMPUTE,
           name);
    stream->foreign = options && options->native;
    publish(stream);
    *out_stream = stream;
    return FY_STATUS_OK;
}

void fy__stream_close(fy_stream_t *stream)
{
    fy_device_t *device = stream->device;
    fy__stream_event_t *event;
    fy__lock(&stream->lock);
    /* An event covers the tickets that are left. Without it (out of memory) the queue is kept until
     * a wait gets one: finish_closing. */
    const bool covered = stream->native && !fy__device_is_lost(device) &&
                         cover(stream, atomic_load(&stream->submitted), &event) == FY_STATUS_OK;
    if (covered || fy__device_is_lost(device)) destroy_native(stream);
    fy__unlock(&stream->lock);
    fy__lock(&fy__stream_lock);
    stream->state = FY__STREAM_CLOSING;
    fy__unlock(&fy__stream_lock);
}

void fy__stream_finish_closed(fy_device_t *device)
{
    fy_stream_t *stream;
    for (uint32_t i = 1; (stream = fy__stream_at(i)); i++) {
        fy__lock(&fy__stream_lock);
        if (stream->state == FY__STREAM_CLOSING && stream->device == device) finish_closing(stream);
        fy__unlock(&fy__stream_lock);
    }
}

void fy__stream_tell(void)
{
    for (uint32_t i = 1; i < FY__MAX_STREAMS && fy__stream_at(i); i++) {
        fy__lock(&fy__stream_lock);
        if (fy__stream_at(i)->state == FY__STREAM_OPEN)
            FY__EVENT(fy__event_stream(fy__stream_at(i)));
        fy__unlock(&fy__stream_lock);
    }
}

void fy__stream_fork_child(void)
{
    for (uint32_t i = 1; i < FY__MAX_STREAMS && fy__stream_at(i); i++)
        pthread_mutex_init(&fy__stream_at(i)->lock, NULL);
    pthread_mutex_unlock(&fy__stream_lock);
}

/* ---- points ---- */

fy_ticket_t fy__point_ticket(fy__point_t point)
{
    return (fy_ticket_t){ FY__POINT_STREAM(point), FY__POINT_SEQ(point) };
}

static bool reached(fy__point_t point, bool peek);

/* A job that never ran is reached when its dependencies are. */
static bool job_reached(fy_stream_t *stream, const fy__timeline_t *timeline, uint64_t seq,
                        bool peek)
{
    fy__job_view_t view;
    timeline->look(stream, seq, &view);
    if (view.state == FY__JOB_OVER) return true;
    if (view.state == FY__JOB_STARTED) return reached(view.native, peek);
    if (fy__device_is_lost(stream->device)) return true;
    if (view.state == FY__JOB_STANDING) return false;
    for (uint32_t i = 0; i < view.ndependencies; i++)
        if (!reached(view.dependencies[i], peek)) return false;
    return true;
}

bool fy__point_cancel(fy__point_t point)
{
    fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(point));
    const fy__timeline_t *timeline =
        stream ? atomic_load_explicit(&stream->timeline, memory_order_acquire) : NULL;
    return timeline && timeline->cancel(stream, FY__POINT_SEQ(point));
}

fy_status_t fy__point_submit(fy__point_t *point)
{
    fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(*point));
    const fy__timeline_t *timeline =
        stream ? atomic_load_explicit(&stream->timeline, memory_order_acquire) : NULL;
    if (!timeline) return FY_STATUS_OK;
    if (atomic_load_explicit(&stream->done, memory_order_acquire) >= FY__POINT_SEQ(*point)) {
        *point = 0;
        return FY_STATUS_OK;
    }
    return timeline->submit(stream, FY__POINT_SEQ(*point), point);
}

static bool reached(fy__point_t point, bool peek)
{
    fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(point));
    const uint64_t seq = FY__POINT_SEQ(point);
    if (!stream || atomic_load_explicit(&stream->done, memory_order_acquire) >= seq) return true;
    const fy__timeline_t *timeline = atomic_load_explicit(&stream->timeline, memory_order_acquire);
    if (FY_UNLIKELY(timeline != NULL)) return job_reached(stream, timeline, seq, peek);
    if (fy__device_is_lost(stream->device)) return true;
    fy__stream_event_t *event;
    fy__lock(&stream->lock);
    if (seq > atomic_load_explicit(&stream->done, memory_order_relaxed) &&
        advance_by(stream, peek) == FY_STATUS_OK &&
        atomic_load_explicit(&stream->done, memory_order_relaxed) < seq &&
        (!stream->nevents || stream->events[stream->nevents - 1].seq < seq)) {
        if (cover(stream, seq, &event) == FY_STATUS_OK) (void)advance_by(stream, peek);
    }
    fy__unlock(&stream->lock);
    return fy__device_is_lost(stream->device) ||
           atomic_load_explicit(&stream->done, memory_order_acquire) >= seq;
}

bool fy__point_is_lost(fy__point_t point)
{
    const fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(point));
    const uint64_t seq = FY__POINT_SEQ(point);
    if (!stream) return false;
    return fy__stream_took_along(stream, seq) ||
           (fy__device_is_lost(stream->device) &&
            atomic_load_explicit(&stream->done, memory_order_acquire) < seq);
}

bool fy__point_reached(fy__point_t point) { return reached(point, false); }
bool fy__point_peek(fy__point_t point) { return reached(point, true); }

/* Blocks on an event that covers `seq`. */
static fy_status_t sync_to(fy_stream_t *stream, uint64_t seq, uint64_t timeout_ns,
                           fy__wait_site_t site)
{
    fy_device_t *device = stream->device;
    fy__stream_event_t *event = NULL;
    fy__lock(&stream->lock);
    fy_status_t status = FY_STATUS_OK;
    const bool known = fy__stream_is_past(stream, seq);
    if (known || (status = cover(stream, seq, &event)) != FY_STATUS_OK) {
        fy__unlock(&stream->lock);
        return status;
    }
    void *native = event->event;
    const uint64_t covered = event->seq;
    event->waiters++;
    fy__unlock(&stream->lock);
    status = fy__device_check(device, fy__event_block(device, native, timeout_ns, site));
    fy__lock(&stream->lock);
    /* A backend may return one pointer for many events, so the entry is identified by pointer and
     * number. Both stay while the entry has waiters. */
    uint32_t i = 0;
    while (i < stream->nevents && !(stream->events[i].event == native &&
                                    stream->events[i].seq == covered && stream->events[i].waiters))
        i++;
    if (i < stream->nevents) stream->events[i].waiters--;
    if (status == FY_STATUS_OK &&
        atomic_load_explicit(&stream->done, memory_order_relaxed) < covered)
        atomic_store_explicit(&stream->done, covered, memory_order_release);
    fy__unlock(&stream->lock);
    return status;
}

fy_status_t fy__point_wait(fy__point_t point, uint64_t timeout_ns, fy__wait_site_t site)
{
    if (fy__wait_drops(site)) return FY_STATUS_OK;
    fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(point));
    const fy__timeline_t *timeline = stream ? atomic_load(&stream->timeline) : NULL;
    if (timeline && timeline->await) {
        const uint64_t start_ns = fy__now_ns();
        FY_TRY(timeline->await(stream, FY__POINT_SEQ(point), timeout_ns, site));
        if (timeout_ns != FY_FOREVER) {
            const uint64_t spent_ns = fy__now_ns() - start_ns;
            timeout_ns = spent_ns < timeout_ns ? timeout_ns - spent_ns : 0;
        }
    }
    FY_TRY(fy__point_submit(&point));
    stream = fy__stream_at(FY__POINT_STREAM(point));
    const uint64_t seq = FY__POINT_SEQ(point);
    if (!stream) return FY_STATUS_OK;
    if (fy__stream_is_past(stream, seq)) return FY_STATUS_OK;
    if (fy__device_is_lost(stream->device)) return fy__device_lost_error(stream->device);
    return sync_to(stream, seq, timeout_ns, site);
}

fy_status_t fy__stream_wait_point_slow(fy_stream_t *stream, fy__point_t point, fy__wait_site_t site)
{
    FY_TRY(fy__point_submit(&point));
    /* a job of this engine */
    if (FY__POINT_STREAM(point) == stream->index) return FY_STATUS_OK;
    fy_stream_t *other = fy__stream_at(FY__POINT_STREAM(point));
    const uint64_t seq = FY__POINT_SEQ(point);
    fy__stream_event_t *event;
    if (!other) return FY_STATUS_OK;
    if (FY_UNLIKELY(fy__stream_took_along(other, seq)))
        return FY_FAIL(DEVICE_LOST, "these bytes were to come from a device that was lost and has "
                                    "been closed since\n  Write them again");
    if (fy__stream_is_past(other, seq) ||
        (!other->foreign &&
         atomic_load_explicit(&stream->waited[other->index], memory_order_relaxed) >= seq))
        return FY_STATUS_OK;
    if (other->device->backend != stream->device->backend) /* no common events: the host waits */
        return fy__point_wait(point, FY_FOREVER, FY__WAIT_NONE);
    if (FY_UNLIKELY(fy__device_is_lost(other->device)) && other->device != stream->device)
        /* a recorded event of the lost device would be ignored */
        return fy__device_lost_error(other->device);
    /* the event must not move between the two calls */
    fy__lock(&other->lock);
    if (fy__stream_is_past(other, seq)) { /* the slot may belong to another device by now */
        fy__unlock(&other->lock);
        return FY_STATUS_OK;
    }
    fy_status_t status = cover(other, seq, &event);
    if (status == FY_STATUS_OK)
        status = fy__device_check(
            stream->device,
            stream->device->backend->event_wait(stream->device->dev, stream->native, event->event));
    if (status == FY_STATUS_OK)
        atomic_store_explicit(&stream->waited[other->index], event->seq, memory_order_relaxed);
    fy__unlock(&other->lock);
    if (status == FY_STATUS_OK) FY__EVENT(fy__event_wait(stream, point, site));
    return status;
}

/* ---- back-pressure ---- */

fy_status_t fy__stream_throttle_slow(fy__thread_t *thread, fy_stream_t *stream)
{
    const uint64_t ahead = stream->device->ahead, quarter = (ahead + 3) / 4;
    const uint64_t submitted = atomic_load_explicit(&stream->submitted, memory_order_acquire);
    uint64_t done = atomic_load_explicit(&stream->done, memory_order_acquire);
    fy__stream_anchor(stream);       /* a later request waits for it, three quarters from here */
    if (submitted - done >= ahead) { /* as far as known: there may have been no poll for long */
        (void)fy__point_reached(FY__POINT(stream->index, submitted - ahead + 1));
        done = atomic_load_explicit(&stream->done, memory_order_acquire);
    }
    if (submitted - done >= ahead) {
        const uint64_t start_ns = fy__now_ns();
        /* No wait site: it orders nothing, so no byte depends on it. */
        FY_TRY(fy__point_wait(FY__POINT(stream->index, submitted - ahead + quarter), FY_FOREVER,
                              FY__WAIT_NONE));
        fy__throttled(thread, "run_ahead", start_ns);
        done = atomic_load_explicit(&stream->done, memory_order_acquire);
    }
    const uint64_t most = done + ahead, step = submitted + quarter;
    atomic_store_explicit(&stream->room, most < step ? most : step, memory_order_relaxed);
    return FY_STATUS_OK;
}

/* ---- public ---- */

fy_status_t fy__stream_check(const fy_stream_t *stream, const char *what)
{
    if (!stream || stream->state != FY__STREAM_OPEN)
        return FY_FAIL(INVALID_ARGUMENT, "%s: stream is NULL or was destroyed", what);
    if (fy__device_is_lost(stream->device)) return fy__device_lost_error(stream->device);
    return FY_STATUS_OK;
}

fy_status_t fy_stream_create(fy_device_t *device, const fy_stream_options_t *options,
                             fy_stream_t **out_stream)
{
    fy_stream_options_t own;
    fy__thread_t *thread = fy__thread();
    if (!out_stream) return FY_FAIL(INVALID_ARGUMENT, "stream_create: out_stream is NULL");
    *out_stream = NULL;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!device) return FY_FAIL(INVALID_ARGUMENT, "stream_create: device is NULL");
    FY_TRY(FY__READ(stream_options, "stream_create", options, &own));
    if (device->synchronous)
        return FY_FAIL(UNSUPPORTED,
                       "stream_create: %s runs each request inside the call; it has one stream and "
                       "needs no other",
                       device->spec);
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    FY_TRY(fy__stream_open(device, FY_STREAM_COMPUTE, &own, out_stream));
    fy__device_use(device);
    fy__handle_adopt(thread->frame, &(*out_stream)->handle);
    return FY_STATUS_OK;
}

/* Removes `stream` from this thread's current streams, also from those that ending scopes
 * restore. */
static void forget_override(fy__thread_t *thread, const fy_stream_t *stream)
{
    const uint32_t index = stream->device->index;
    if (thread->streams[index] == stream) thread->streams[index] = NULL;
    for (uint32_t depth = 0; depth < thread->depth; depth++) {
        fy__frame_t *frame = &thread->frames[depth];
        if ((frame->streams_saved >> index & 1) && frame->outer_streams[index] == stream)
            frame->outer_streams[index] = NULL;
    }
}

void fy_stream_destroy(fy_stream_t *stream)
{
    fy__thread_t *thread = fy__thread();
    if (!stream || !thread || stream->state != FY__STREAM_OPEN) return;
    fy_device_t *device = stream->device;
    fy__handle_release(&stream->handle);
    forget_override(thread, stream);
    fy__stream_close(stream);
    fy__device_unuse(device);
}

void fy_stream_keep(fy_stream_t *stream)
{
    if (stream) fy__handle_release(&stream->handle);
}

fy_status_t fy_stream_set_current(fy_stream_t *stream)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    FY_TRY(fy__stream_check(stream, "stream_set_current"));
    const uint32_t index = stream->device->index;
    fy__frame_t *frame = fy__thread_scope(thread);
    if (frame && !(frame->streams_saved >> index & 1)) {
        frame->streams_saved |= 1ull << index;
        frame->outer_streams[index] = thread->streams[index];
    }
    thread->streams[index] = stream;
    return FY_STATUS_OK;
}

fy_status_t fy_stream_record(fy_stream_t *stream, fy_ticket_t *out_ticket)
{
    if (!out_ticket) return FY_FAIL(INVALID_ARGUMENT, "stream_record: out_ticket is NULL");
    *out_ticket = (fy_ticket_t){ 0, 0 };
    FY_TRY(fy__stream_check(stream, "stream_record"));
    /* A separate number, so that no event recorded before this call covers it. */
    *out_ticket = fy__point_ticket(fy__stream_submitted(stream));
    return FY_STATUS_OK;
}
