/* Streams and events: order on the device, and the host's waiting for it. Handles are small
 * records: a wrapped stream of the application must never be destroyed by us, and an event knows
 * how far it says its stream has come (recent.h). */
#include "backends/cuda/dnn.h"
#include "backends/cuda/nccl.h"

#include <stdlib.h>
#include <time.h>

#include "runtime/base/posix.h"

/* ---- streams ---- */

/* Ferry: higher goes first, 0 is ordinary. CUDA: smaller goes first, and `least` (0) is
 * ordinary. */
static int cuda_priority(const fy__cuda_device_t *dev, int priority)
{
    int wanted = priority > 0 ? (priority > 1024 ? -1024 : -priority) : 0;
    if (wanted < dev->greatest_priority) return dev->greatest_priority;
    return wanted > dev->least_priority ? dev->least_priority : wanted;
}

/* A stream of another context would fail later, at an event, with a code that explains nothing. */
static fy_status_t check_foreign(fy__cuda_device_t *dev, CUstream stream)
{
    CUcontext context = NULL;
    FY_TRY(FY__CUDA_CALL(dev, cuStreamGetCtx, (stream, &context), "wrapping a CUstream on cuda:%d",
                         dev->index));
    if (context == dev->context) return FY_STATUS_OK;
    return FY__CUDA_FAIL(FY_STATUS_INVALID_ARGUMENT,
                         "wrapping a CUstream: it belongs to another context than cuda:%d's "
                         "primary one\n  Create it with the runtime API on "
                         "that device, or under cuDevicePrimaryCtxRetain's context",
                         dev->index);
}

fy_status_t fy__cuda_stream_create(void *handle, fy_stream_role_t role, int priority, void *native,
                                   void **out_stream)
{
    fy__cuda_device_t *dev = handle;
    fy__cuda_frame_t frame;
    *out_stream = NULL;
    fy__cuda_stream_t *stream = calloc(1, sizeof *stream);
    /* copies have separate engines, not roles */
    if (stream != NULL) stream->trail = fy__cuda_trail_open(&dev->trails, (int)role);
    if (stream == NULL || stream->trail == NULL) {
        free(stream);
        return FY__CUDA_FAIL(FY_STATUS_OUT_OF_MEMORY, "no host memory for a stream of cuda:%d",
                             dev->index);
    }
    fy_status_t status = fy__cuda_enter(dev, &frame);
    if (status != FY_STATUS_OK) goto done;
    if (native != NULL) {
        stream->handle = native;
        status = check_foreign(dev, native);
    } else {
        stream->owned = 1;
        status =
            FY__CUDA_CALL(dev, cuStreamCreateWithPriority,
                          (&stream->handle, CU_STREAM_NON_BLOCKING, cuda_priority(dev, priority)),
                          "creating a stream of priority %d on cuda:%d", priority, dev->index);
    }
    fy__cuda_leave(&frame);
done:
    if (status == FY_STATUS_OK) {
        *out_stream = stream;
    } else {
        fy__cuda_trail_close(&dev->trails, stream->trail);
        free(stream);
    }
    return status;
}

void *fy__cuda_stream_native(void *handle, void *stream_handle)
{
    (void)handle;
    return ((const fy__cuda_stream_t *)stream_handle)->handle;
}

void fy__cuda_stream_destroy(void *handle, void *stream_handle)
{
    fy__cuda_device_t *dev = handle;
    fy__cuda_stream_t *stream = stream_handle;
    fy__cuda_frame_t frame;
    if (stream->owned && fy__cuda_enter_to_release(dev, &frame)) {
        fy__cuda_dnn_leave_stream(dev, stream->handle);
        /* the driver lets submitted work finish */
        fy__cuda_note(dev, fy__cuda.cuStreamDestroy(stream->handle));
        fy__cuda_leave(&frame);
    }
    fy__cuda_trail_close(&dev->trails, stream->trail);
    free(stream);
}

/* ---- events ---- */

fy_status_t fy__cuda_event_create(void *handle, void **out_event)
{
    fy__cuda_device_t *dev = handle;
    fy__cuda_frame_t frame;
    *out_event = NULL;
    fy__cuda_event_t *event = calloc(1, sizeof *event);
    if (event == NULL)
        return FY__CUDA_FAIL(FY_STATUS_OUT_OF_MEMORY, "no host memory for an event of cuda:%d",
                             dev->index);
    fy_status_t status = fy__cuda_enter(dev, &frame);
    if (status == FY_STATUS_OK) {
        status = FY__CUDA_CALL(dev, cuEventCreate, (&event->handle, CU_EVENT_DISABLE_TIMING),
                               "creating an event on cuda:%d", dev->index);
        fy__cuda_leave(&frame);
    }
    if (status == FY_STATUS_OK)
        *out_event = event;
    else
        free(event);
    return status;
}

void fy__cuda_event_destroy(void *handle, void *event_handle)
{
    fy__cuda_device_t *dev = handle;
    fy__cuda_event_t *event = event_handle;
    fy__cuda_frame_t frame;
    if (fy__cuda_enter_to_release(dev, &frame)) {
        fy__cuda_note(dev, fy__cuda.cuEventDestroy(event->handle));
        fy__cuda_leave(&frame);
    }
    free(event);
}

fy_status_t fy__cuda_event_record(void *handle, void *event_handle, void *stream_handle)
{
    fy__cuda_device_t *dev = handle;
    fy__cuda_event_t *event = event_handle;
    fy__cuda_stream_t *stream = stream_handle;
    fy__cuda_frame_t frame;
    FY_TRY(fy__cuda_enter(dev, &frame));
    fy__cuda_mark_set(&event->mark, stream->trail);
    fy_status_t status = FY__CUDA_CALL(dev, cuEventRecord, (event->handle, stream->handle),
                                       "recording an event on cuda:%d", dev->index);
    fy__cuda_leave(&frame);
    return status;
}

fy_status_t fy__cuda_event_wait(void *handle, void *stream, void *event)
{
    fy__cuda_device_t *dev = handle;
    fy__cuda_frame_t frame;
    FY_TRY(fy__cuda_enter(dev, &frame));
    fy_status_t status = FY__CUDA_CALL(dev, cuStreamWaitEvent,
                                       (((fy__cuda_stream_t *)stream)->handle,
                                        ((fy__cuda_event_t *)event)->handle, CU_EVENT_WAIT_DEFAULT),
                                       "making a stream of cuda:%d wait for an event", dev->index);
    fy__cuda_leave(&frame);
    return status;
}

/* The context is current. NCCL is asked even if the work is done: it may be done because NCCL gave
 * up. */
static fy_status_t query(fy__cuda_device_t *dev, fy__cuda_event_t *event, int *out_done)
{
    CUresult code = fy__cuda_checked(dev, fy__cuda.cuEventQuery(event->handle));
    *out_done = 0;
    if (code != CUDA_SUCCESS && code != CUDA_ERROR_NOT_READY)
        return fy__cuda_failed(code, __FILE__, __LINE__, "cuEventQuery",
                               "asking whether work on cuda:%d is done", dev->index);
    FY_TRY(fy__cuda_nccl_check(dev));
    /* another thread may have aborted it meanwhile; such work may also never end */
    FY_TRY(fy__cuda_is_usable(dev));
    if (code != CUDA_SUCCESS) return FY_STATUS_OK;
    fy__cuda_mark_reached(&event->mark);
    *out_done = 1;
    return FY_STATUS_OK;
}

fy_status_t fy__cuda_event_query(void *handle, void *event, int *out_done)
{
    fy__cuda_device_t *dev = handle;
    fy__cuda_frame_t frame;
    *out_done = 0;
    FY_TRY(fy__cuda_enter(dev, &frame));
    fy_status_t status = query(dev, event, out_done);
    fy__cuda_leave(&frame);
    return status;
}

/* Asks again after 1, 2, 4, ... 256 us: the driver has no wait with a time limit. The context is
 * current. */
static fy_status_t poll_until(fy__cuda_device_t *dev, fy__cuda_event_t *event, uint64_t timeout_ns)
{
    uint64_t began = fy__now_ns(), pause_ns = 1000;
    int done;
    for (;;) {
        FY_TRY(query(dev, event, &done));
        if (done) return FY_STATUS_OK;
        uint64_t waited = fy__now_ns() - began;
        if (waited >= timeout_ns)
            return FY__CUDA_FAIL(FY_STATUS_TIMEOUT,
                                 "work on cuda:%d is not done after %llu ns; it goes on",
                                 dev->index, (unsigned long long)waited);
        uint64_t left = timeout_ns - waited, nap = pause_ns < left ? pause_ns : left;
        nanosleep(&(struct timespec){ .tv_nsec = (long)nap }, NULL);
        if (pause_ns < 256000) pause_ns *= 2;
    }
}

fy_status_t fy__cuda_event_sync(void *handle, void *event_handle, uint64_t timeout_ns)
{
    fy__cuda_device_t *dev = handle;
    fy__cuda_event_t *event = event_handle;
    fy__cuda_frame_t frame;
    FY_TRY(fy__cuda_enter(dev, &frame));
    /* what NCCL waits for may never come */
    fy_status_t status = timeout_ns == FY_FOREVER && !fy__cuda_nccl_is_used(dev)
                             ? FY__CUDA_CALL(dev, cuEventSynchronize, (event->handle),
                                             "waiting for work on cuda:%d", dev->index)
                             : poll_until(dev, event, timeout_ns);
    if (status == FY_STATUS_OK) fy__cuda_mark_reached(&event->mark);
    fy__cuda_leave(&frame);
    return status;
}
