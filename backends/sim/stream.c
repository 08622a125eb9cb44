/* Streams and events. Waiting never blocks the calling thread: the model clock jumps to when the event happens.
 * Because an order may only differ in when bytes change, nothing here may depend on the order. */
#include "backends/sim/stream.h"

#include <inttypes.h>
#include <stdlib.h>

#include "backends/sim/sim.h"

/* The role is not needed: a request's kind names its engine. Priorities do not exist: engines serve in the order of submission. */
fy_status_t fy__sim_stream_create(void *dev_, fy_stream_role_t role, int priority, void *native, void **out_stream)
{
    const fy__sim_device_t *dev = dev_;
    (void)role, (void)priority;
    *out_stream = NULL;
    if (native)
        return FY__SIM_FAIL(FY_STATUS_UNSUPPORTED, "%s has no native streams, so there is nothing to wrap at %p: pass NULL for a new one",
                            dev->name, native);
    fy__sim_stream_t *stream = calloc(1, sizeof(*stream));
    if (!stream) return FY__SIM_FAIL(FY_STATUS_OUT_OF_MEMORY, "%s: no host memory for a stream", dev->name);
    if (pthread_mutex_init(&stream->lock, NULL) != 0) {
        free(stream);
        return FY__SIM_FAIL(FY_STATUS_OUT_OF_MEMORY, "%s: the system gives no lock for a stream", dev->name);
    }
    *out_stream = stream;
    return FY_STATUS_OK;
}

void fy__sim_stream_destroy(void *dev, void *stream_)
{
    fy__sim_stream_t *stream = stream_;
    (void)dev;
    if (!stream) return;
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

fy_status_t fy__sim_event_create(void *dev_, void **out_event)
{
    const fy__sim_device_t *dev = dev_;
    fy__sim_event_t *event = malloc(sizeof(*event));
    *out_event = event;
    if (!event) return FY__SIM_FAIL(FY_STATUS_OUT_OF_MEMORY, "%s: no host memory for an event", dev->name);
    atomic_init(&event->time_ns, 0);
    return FY_STATUS_OK;
}

void fy__sim_event_destroy(void *dev, void *event)
{
    (void)dev;
    free(event);
}

fy_status_t fy__sim_event_record(void *dev, void *event_, void *stream_)
{
    fy__sim_event_t *event = event_;
    fy__sim_stream_t *stream = stream_;
    (void)dev;
    pthread_mutex_lock(&stream->lock);
    atomic_store(&event->time_ns, stream->ready_ns);
    pthread_mutex_unlock(&stream->lock);
    return FY_STATUS_OK;
}

fy_status_t fy__sim_event_wait(void *dev, void *stream_, void *event_)
{
    fy__sim_event_t *event = event_;
    fy__sim_stream_t *stream = stream_;
    (void)dev;
    uint64_t time_ns = atomic_load(&event->time_ns);
    pthread_mutex_lock(&stream->lock);
    if (stream->ready_ns < time_ns) stream->ready_ns = time_ns;
    pthread_mutex_unlock(&stream->lock);
    return FY_STATUS_OK;
}

/* A poll costs host time, so a loop that polls ends. */
fy_status_t fy__sim_event_query(void *dev_, void *event_, int *out_done)
{
    const fy__sim_device_t *dev = dev_;
    fy__sim_event_t *event = event_;
    fy__sim_clock_advance(dev->profile->poll_ns);
    *out_done = atomic_load(&event->time_ns) <= fy__sim_clock_now();
    return FY_STATUS_OK;
}

fy_status_t fy__sim_event_sync(void *dev_, void *event_, uint64_t timeout_ns)
{
    const fy__sim_device_t *dev = dev_;
    fy__sim_event_t *event = event_;
    fy__sim_clock_advance(dev->profile->poll_ns);
    uint64_t time_ns = atomic_load(&event->time_ns);
    if (fy__sim_clock_wait(time_ns, timeout_ns, dev->profile->wake_ns)) return FY_STATUS_OK;
    return FY__SIM_FAIL(FY_STATUS_TIMEOUT, "%s: not done after %" PRIu64 " ns of model time; it will be at %" PRIu64 " ns", dev->name,
                        timeout_ns, time_ns);
}
