/* Events and timeline words of the application. A word is waited for and written by the driver's
 * stream memory operations (docs/decisions/0055). Next: stream.c for Ferry's own events. */
#include "backends/cuda/device.h"

/* The driver calls a handle invalid that is destroyed or of another context: the application's
 * mistake here, and not one of Ferry. */
static fy_status_t event_status(fy__cuda_device_t *dev, CUresult code, const char *call,
                                const void *event)
{
    if (fy__cuda_checked(dev, code) == CUDA_SUCCESS) return FY_STATUS_OK;
    if (code == CUDA_ERROR_INVALID_HANDLE)
        return FY__CUDA_FAIL(FY_STATUS_INVALID_ARGUMENT,
                             "%s: the event %p is destroyed, or not of cuda:%d's primary context\n"
                             "  Create it with the runtime API on that device, or under "
                             "cuDevicePrimaryCtxRetain's context",
                             call, event, dev->index);
    return fy__cuda_failed(code, __FILE__, __LINE__, call, "ordering cuda:%d by the event %p",
                           dev->index, event);
}

fy_status_t fy__cuda_native_event_record(void *handle, void *stream_handle, void *event)
{
    fy__cuda_device_t *dev = handle;
    const fy__cuda_stream_t *stream = stream_handle;
    fy__cuda_frame_t frame;
    FY_TRY(fy__cuda_enter(dev, &frame));
    const fy_status_t status =
        event_status(dev, fy__cuda.cuEventRecord(event, stream->handle), "cuEventRecord", event);
    fy__cuda_leave(&frame);
    return status;
}

fy_status_t fy__cuda_native_event_wait(void *handle, void *stream_handle, void *event)
{
    fy__cuda_device_t *dev = handle;
    const fy__cuda_stream_t *stream = stream_handle;
    fy__cuda_frame_t frame;
    FY_TRY(fy__cuda_enter(dev, &frame));
    const fy_status_t status =
        event_status(dev, fy__cuda.cuStreamWaitEvent(stream->handle, event, CU_EVENT_WAIT_DEFAULT),
                     "cuStreamWaitEvent", event);
    fy__cuda_leave(&frame);
    return status;
}

/* ---- timelines ---- */

static fy_status_t check_words(fy__cuda_device_t *dev)
{
    int has = 0;
    FY_TRY(FY__CUDA_CALL(dev, cuDeviceGetAttribute,
                         (&has, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, dev->handle),
                         "asking whether cuda:%d has stream memory operations", dev->index));
    if (has && fy__cuda.cuStreamWaitValue64 && fy__cuda.cuStreamWriteValue64) return FY_STATUS_OK;
    return FY__CUDA_FAIL(FY_STATUS_UNSUPPORTED,
                         "cuda:%d or its driver has no 64-bit stream memory operations\n  Use "
                         "events: fy_native_event_record, fy_native_event_wait",
                         dev->index);
}

static fy_status_t word_status(fy__cuda_device_t *dev, CUresult code, const char *call,
                               const void *word)
{
    if (fy__cuda_checked(dev, code) == CUDA_SUCCESS) return FY_STATUS_OK;
    if (code == CUDA_ERROR_INVALID_VALUE)
        return FY__CUDA_FAIL(FY_STATUS_INVALID_ARGUMENT,
                             "%s: the word at %p is neither in cuda:%d's memory nor page-locked\n"
                             "  Take it from cuMemAlloc, cuMemHostAlloc or cuMemHostRegister",
                             call, word, dev->index);
    return fy__cuda_failed(code, __FILE__, __LINE__, call, "ordering cuda:%d by the word at %p",
                           dev->index, word);
}

static fy_status_t order_by_word(fy__cuda_device_t *dev, const fy__cuda_stream_t *stream,
                                 void *word, uint64_t value, int is_wait)
{
    const CUdeviceptr at = (CUdeviceptr)word;
    fy__cuda_frame_t frame;
    FY_TRY(fy__cuda_enter(dev, &frame));
    fy_status_t status = check_words(dev);
    if (status == FY_STATUS_OK && is_wait)
        status = word_status(
            dev, fy__cuda.cuStreamWaitValue64(stream->handle, at, value, CU_STREAM_WAIT_VALUE_GEQ),
            "cuStreamWaitValue64", word);
    else if (status == FY_STATUS_OK)
        status = word_status(
            dev,
            fy__cuda.cuStreamWriteValue64(stream->handle, at, value, CU_STREAM_WRITE_VALUE_DEFAULT),
            "cuStreamWriteValue64", word);
    fy__cuda_leave(&frame);
    return status;
}

fy_status_t fy__cuda_native_timeline_signal(void *handle, void *stream_handle, void *word,
                                            uint64_t value)
{
    return order_by_word(handle, stream_handle, word, value, 0);
}

fy_status_t fy__cuda_native_timeline_wait(void *handle, void *stream_handle, void *word,
                                          uint64_t value)
{
    return order_by_word(handle, stream_handle, word, value, 1);
}
