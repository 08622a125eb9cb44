/* Streams and events. Waiting never blocks the calling thread: the model clock jumps to when the
 * event happens.
 * Because an order may only differ in when bytes change, nothing here may depend on the order. */
#include "backends/sim/stream.h"

#include <inttypes.h>
#include <stdlib.h>

#include "backends/sim/sim.h"

/* The role is not needed: a request's kind names its engine. Priorities do not exist: engines serve
 * in the order of submission. */
fy_status_t fy__sim_stream_create(void *dev_, fy_stream_role_t role, int priority, void *native,
                                  void **out_stream)
{
    fy__sim_device_t *dev = dev_;
    (void)role, (void)priority;
    *out_stream = NULL;
    FY_TRY(fy__sim_device_check(dev));
    if (native)
        return FY__SIM_FAIL(
            FY_STATUS_UNSUPPORTED,
            "%s has no native streams, so there is nothing to wrap at %p: pass NULL for a new one",
            dev->name, native);
    FY_TRY(fy__sim_device_refuses(dev, FY__SIM_FAULT_STREAM, "stream"));
    fy__sim_stream_t *stream = calloc(1, sizeof(*stream));
    if (stream && dev->order->is_deferred && !(stream->queue = fy__sim_queue_create(dev))) {
        free(stream);
        stream = NULL;
    }
    if (!stream)
        return FY__SIM_FAIL(FY_STATUS_OUT_OF_MEMORY, "%s: no host memory for a stream", dev->name);
    if (pthread_mutex_init(&stream->lock, NULL) != 0) {
        fy__sim_queue_leave(stream->queue);
        free(stream);
        return FY__SIM_FAIL(FY_STATUS_OUT_OF_MEMORY, "%s: the system gives no lock for a stream",
                            dev->name);
    }
    *out_stream = stream;
    return FY_STATUS_OK;
}

/* The requests in its queue outlive it. */
void fy__sim_stream_destroy(void *dev, void *stream_)
{
    fy__sim_stream_t *stream = stream_;
    (void)dev;
    if (!stream) return;
    fy__sim_queue_leave(stream->queue);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

fy_status_t fy__sim_event_create(void *dev_, void **out_event)
{
    fy__sim_device_t *dev = dev_;
    *out_event = NULL;
    FY_TRY(fy__sim_device_check(dev));
    FY_TRY(fy__sim_device_refuses(dev, FY__SIM_FAULT_EVENT, "event"));
    fy__sim_event_t *event = calloc(1, sizeof(*event));
    *out_event = event;
    if (!event)
        return FY__SIM_FAIL(FY_STATUS_OUT_OF_MEMORY, "%s: no host memory for an event", dev->name);
    return FY_STATUS_OK;
}

void fy__sim_event_destroy(void *dev_, void *event_)
{
    const fy__sim_device_t *dev = dev_;
    fy__sim_event_t *event = event_;
    if (!event) return;
    if (dev->order->is_deferred) fy__sim_point_set(&event->point, NULL);
    free(event);
}

fy_status_t fy__sim_event_record(void *dev, void *event_, void *stream_)
{
    fy__sim_event_t *event = event_;
    fy__sim_stream_t *stream = stream_;
    FY_TRY(fy__sim_device_check(dev));
    pthread_mutex_lock(&stream->lock);
    atomic_store(&event->time_ns, stream->ready_ns);
    if (stream->queue) fy__sim_point_set(&event->point, stream->queue);
    pthread_mutex_unlock(&stream->lock);
    return FY_STATUS_OK;
}

/* The event may belong to another device. An eager stream cannot store a wait, so the awaited work
 * runs now. */
fy_status_t fy__sim_event_wait(void *dev_, void *stream_, void *event_)
{
    fy__sim_device_t *dev = dev_;
    fy__sim_event_t *event = event_;
    fy__sim_stream_t *stream = stream_;
    FY_TRY(fy__sim_device_check(dev));
    uint64_t time_ns = atomic_load(&event->time_ns);
    bool kept = true;
    pthread_mutex_lock(&stream->lock);
    if (stream->queue)
        kept = fy__sim_queue_wait(stream->queue, &event->point);
    else
        fy__sim_point_run(&event->point);
    if (kept && stream->ready_ns < time_ns) stream->ready_ns = time_ns;
    pthread_mutex_unlock(&stream->lock);
    if (!kept)
        return FY__SIM_FAIL(FY_STATUS_OUT_OF_MEMORY, "%s: no host memory to note a wait",
                            dev->name);
    return FY_STATUS_OK;
}

/* It has happened by the clock: now the bytes must have changed, too. */
static fy_status_t happen(fy__sim_device_t *dev, fy__sim_event_t *event)
{
    if (dev->order->is_deferred) fy__sim_point_run(&event->point);
    return fy__sim_device_check(dev);
}

fy_status_t fy__sim_event_peek(void *dev_, void *event_, int *out_done)
{
    fy__sim_device_t *dev = dev_;
    fy__sim_event_t *event = event_;
    *out_done = 0;
    FY_TRY(fy__sim_device_check(dev));
    if (atomic_load(&event->time_ns) > fy__sim_clock_now()) return FY_STATUS_OK;
    FY_TRY(happen(dev, event));
    *out_done = 1;
    return FY_STATUS_OK;
}

/* A poll costs host time, so a loop that polls ends. */
fy_status_t fy__sim_event_query(void *dev_, void *event, int *out_done)
{
    fy__sim_device_t *dev = dev_;
    *out_done = 0;
    FY_TRY(fy__sim_device_check(dev));
    fy__sim_queue_visit(dev);
    fy__sim_clock_advance(dev->profile->poll_ns);
    return fy__sim_event_peek(dev, event, out_done);
}

fy_status_t fy__sim_event_sync(void *dev_, void *event_, uint64_t timeout_ns)
{
    fy__sim_device_t *dev = dev_;
    fy__sim_event_t *event = event_;
    FY_TRY(fy__sim_device_check(dev));
    fy__sim_queue_visit(dev);
    fy__sim_clock_advance(dev->profile->poll_ns);
    uint64_t time_ns = atomic_load(&event->time_ns);
    if (fy__sim_clock_wait(time_ns, timeout_ns, dev->profile->wake_ns)) return happen(dev, event);
    return FY__SIM_FAIL(FY_STATUS_TIMEOUT,
                        "%s: not done after %" PRIu64 " ns of model time; it will be at %" PRIu64
                        " ns",
                        dev->name, timeout_ns, time_ns);
}
