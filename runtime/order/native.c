/* Events and timeline words of the application: checks, and the backend's slots. Work of a stream
 * that such a call delays has higher numbers, so hazards need nothing more (<ferry/native.h> says
 * how the application names the bytes). */
#include <ferry/native.h>

#include "runtime/base/fail.h"
#include "runtime/order/stream.h"
#include "runtime/record/recording.h"
#include "runtime/thread/thread.h"

/* The checks of all four calls. `has_slot`: the backend implements the call; `object`: the event or
 * the word. */
static fy_status_t begin(const char *what, fy_device_t *device, fy_stream_t **stream, bool has_slot,
                         const char *name, const void *object)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!device) return FY_FAIL(INVALID_ARGUMENT, "%s: device is NULL", what);
    if (*stream) FY_TRY(fy__stream_check(*stream, what));
    if (*stream && (*stream)->device != device)
        return FY_FAIL(INVALID_ARGUMENT, "%s: stream '%s' is of %s, the device is %s", what,
                       (*stream)->name, (*stream)->device->spec, device->spec);
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    FY_TRY(fy__recording_check(thread, device, what));
    if (device->synchronous || !has_slot)
        return FY_FAIL(UNSUPPORTED,
                       "%s: %s has no native queues, so no event or word of another library orders "
                       "its work\n  Between Ferry's own streams: fy_stream_record, fy_stream_wait",
                       what, device->spec);
    if (!object) return FY_FAIL(INVALID_ARGUMENT, "%s: %s is NULL", what, name);
    if (!*stream) *stream = fy__stream_current(device, thread->streams);
    return FY_STATUS_OK;
}

fy_status_t fy_native_event_record(fy_device_t *device, fy_stream_t *stream, void *event)
{
    const fy_backend_t *backend = device ? device->backend : NULL;
    FY_TRY(begin("native_event_record", device, &stream, backend && backend->native_event_record,
                 "event", event));
    return fy__device_check(device,
                            backend->native_event_record(device->dev, stream->native, event));
}

fy_status_t fy_native_event_wait(fy_device_t *device, fy_stream_t *stream, void *event)
{
    const fy_backend_t *backend = device ? device->backend : NULL;
    FY_TRY(begin("native_event_wait", device, &stream, backend && backend->native_event_wait,
                 "event", event));
    return fy__device_check(device, backend->native_event_wait(device->dev, stream->native, event));
}

static fy_status_t check_word(const char *what, const void *word)
{
    if ((uintptr_t)word % sizeof(uint64_t) == 0) return FY_STATUS_OK;
    return FY_FAIL(INVALID_ARGUMENT, "%s: word is at %p, which is no multiple of 8 bytes", what,
                   word);
}

fy_status_t fy_native_timeline_signal(fy_device_t *device, fy_stream_t *stream, void *word,
                                      uint64_t value)
{
    const fy_backend_t *backend = device ? device->backend : NULL;
    FY_TRY(begin("native_timeline_signal", device, &stream,
                 backend && backend->native_timeline_signal, "word", word));
    FY_TRY(check_word("native_timeline_signal", word));
    return fy__device_check(
        device, backend->native_timeline_signal(device->dev, stream->native, word, value));
}

fy_status_t fy_native_timeline_wait(fy_device_t *device, fy_stream_t *stream, void *word,
                                    uint64_t value)
{
    const fy_backend_t *backend = device ? device->backend : NULL;
    FY_TRY(begin("native_timeline_wait", device, &stream, backend && backend->native_timeline_wait,
                 "word", word));
    FY_TRY(check_word("native_timeline_wait", word));
    return fy__device_check(
        device, backend->native_timeline_wait(device->dev, stream->native, word, value));
}
