/* Order between Ferry's streams and work of the application that Ferry does not see: events and
 * timeline words of CUDA. With them the application's work stays on queues that Ferry does not
 * know. To submit it to a queue of Ferry's, or to give Ferry a queue of the application: stream.h.
 *
 *   the application writes x, then Ferry reads it:
 *     cuEventRecord(ready, theirs)
 *     fy_native_event_wait(device, NULL, ready)
 *     fy_tensor_begin_native_access(x, FY_ACCESS_WRITE, NULL, &address)
 *     ops on x, on any stream; uploads and downloads
 *   Ferry writes y, then the application reads it:
 *     fy_tensor_begin_native_access(y, FY_ACCESS_READ, NULL, &address)
 *     fy_native_event_record(device, NULL, done)
 *     cuStreamWaitEvent(theirs, done, 0)
 *
 * fy_tensor_begin_native_access also makes the stream wait for Ferry's requests for these bytes on
 * other streams, and later requests for them wait for the stream. To signal a transfer, or another
 * ticket: fy_stream_wait(stream, ticket), then record or signal on that stream.
 *
 * For all four calls: `stream` is one of `device`; NULL is the stream that receives this thread's
 * ops there. The host does not wait. An event or word belongs to the application. An event may be
 * destroyed after the call, a word after the work that uses it is done.
 * They fail with UNSUPPORTED (the host and simulated devices have no native queues; while this
 * thread records a graph), INVALID_ARGUMENT (NULL, a stream of another device, and as below),
 * DEVICE_LOST. */
#ifndef FERRY_NATIVE_H_
#define FERRY_NATIVE_H_

#include <ferry/stream.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Records `event`, a CUevent of the device's primary context, behind everything submitted to
 * `stream` so far. Fails: INVALID_ARGUMENT (an event of another context, or a destroyed one). */
FY_API_STATUS fy_native_event_record(fy_device_t *device, fy_stream_t *stream, void *event);
/* Orders later requests of `stream` behind the work that `event` was recorded behind; an event that
 * was never recorded orders nothing. `event` may be of another CUDA device.
 * Fails: INVALID_ARGUMENT (a destroyed event). */
FY_API_STATUS fy_native_event_wait(fy_device_t *device, fy_stream_t *stream, void *event);

/* A timeline is a 64-bit word whose value only grows: the n-th step sets it to n. `word` is in the
 * device's memory or page-locked for it, at a multiple of 8 bytes. Host code may poll a page-locked
 * word, and another process may share it.
 * UNSUPPORTED: the device or its driver has no 64-bit stream memory operations. */

/* Sets *word to `value` after everything submitted to `stream` so far. */
FY_API_STATUS fy_native_timeline_signal(fy_device_t *device, fy_stream_t *stream, void *word,
                                        uint64_t value);
/* Delays later requests of `stream` until *word is at least `value`. Submit the signal first, or be
 * sure that it does not depend on this stream: else the device waits for ever. */
FY_API_STATUS fy_native_timeline_wait(fy_device_t *device, fy_stream_t *stream, void *word,
                                      uint64_t value);

#ifdef __cplusplus
}
#endif
#endif
