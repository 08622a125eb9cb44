/* Streams order requests; tickets name points on a stream's timeline. A program rarely needs a
 * stream: every device has a compute stream, an upload engine and a download engine. Ferry orders
 * their requests by the tensors that the requests use. */
#ifndef FERRY_STREAM_H_
#define FERRY_STREAM_H_

#include <ferry/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A point on a stream's timeline: a plain value, nothing to free. {0, 0} is done. */
typedef struct fy_ticket {
    uint64_t stream, seq;
} fy_ticket_t;

typedef enum fy_poll { FY_POLL_PENDING, FY_POLL_DONE, FY_POLL_FAILED } fy_poll_t;

typedef struct fy_stream_options {
    size_t struct_size;
    const char *name; /* copied; shown in errors; NULL: "stream" */
    int priority;     /* the highest runs first, where the device has priorities; default 0 */
    /* a native queue to wrap, such as a CUstream; borrowed until the stream is destroyed. NULL
     * makes a new queue. To wrap CUDA's default stream, pass CU_STREAM_LEGACY or
     * CU_STREAM_PER_THREAD */
    void *native;
} fy_stream_options_t;
#define FY_STREAM_OPTIONS_INIT FY_ZEROED_(stream_options)
FY_API void fy_stream_options_init(fy_stream_options_t *options, size_t nbytes);

/* Makes a stream on `device`; options may be NULL. Fails: INVALID_ARGUMENT, UNSUPPORTED (the host
 * has one), OUT_OF_MEMORY. */
FY_API_STATUS fy_stream_create(fy_device_t *device, const fy_stream_options_t *options,
                               fy_stream_t **out_stream);
/* Destroys the handle. Submitted requests still run; their tickets stay valid. No thread may use
 * the stream (fy_stream_set_current) any more. NULL is ignored. */
FY_API void fy_stream_destroy(fy_stream_t *stream);
/* Takes the handle out of its scope: it is yours to destroy. */
FY_API void fy_stream_keep(fy_stream_t *stream);
/* Sends this thread's ops on the stream's device to `stream` instead of the compute stream, until
 * the innermost scope ends. With no scope open: until the next call. */
FY_API_STATUS fy_stream_set_current(fy_stream_t *stream);
/* The point after everything submitted to `stream` so far, including your own work on a wrapped
 * native queue. */
FY_API_STATUS fy_stream_record(fy_stream_t *stream, fy_ticket_t *out_ticket);

/* The native queue of `stream`, a CUstream on cuda: for work of yours between requests of Ferry
 * (fy_tensor_begin_native_access orders them). NULL is the stream that receives this thread's ops
 * on `device`. *out_native is NULL, and the status OK, on a device without native queues (the host,
 * a simulated device).
 * Ownership: borrowed until the stream, or the device, is closed. Cost: from this call on, each
 * wait for the stream records an event, because work of yours may have followed the last one.
 * Fails: INVALID_ARGUMENT (NULL, or a stream of another device), DEVICE_LOST. */
FY_API_STATUS fy_stream_native(fy_device_t *device, fy_stream_t *stream, void **out_native);

/* Orders work that is submitted to `stream` after this call behind the ticket's request. The host
 * does not wait, unless the two devices have different backends: such devices share no events.
 * Ferry orders its own requests by the tensors they touch; use this for work of yours on native
 * queues, or to delay a stream.
 * Fails: INVALID_ARGUMENT (a destroyed stream, a value that is no ticket, the ticket of a transfer
 * recorded in a graph), UNSUPPORTED (while this thread records a graph), DEVICE_LOST. */
FY_API_STATUS fy_stream_wait(fy_stream_t *stream, fy_ticket_t ticket);

/* Reports the state of the ticket's request without a wait. FAILED also for an invalid ticket, and
 * for the ticket of a transfer recorded in a graph. */
FY_API fy_poll_t fy_ticket_poll(fy_ticket_t ticket);
/* Blocks. Returns the request's own status; TIMEOUT leaves the request running. Fails: TIMEOUT,
 * INVALID_ARGUMENT (an invalid ticket; the ticket of a transfer recorded in a graph: wait for the
 * ticket of a replay). */
FY_API_STATUS fy_ticket_wait(fy_ticket_t ticket, uint64_t timeout_ns);
/* Calls `fn` once, on Ferry's callback thread, with the request's own status and no lock held, also
 * if the request is already done. `fn` may call Ferry but must not wait for another callback. When
 * the process exits, pending callbacks do not run.
 * Fails: INVALID_ARGUMENT, OUT_OF_MEMORY. */
typedef void (*fy_done_fn)(void *user, fy_status_t status);
FY_API_STATUS fy_ticket_on_done(fy_ticket_t ticket, fy_done_fn fn, void *user);
/* From now on fy_ticket_wait, fy_download_wait... and fy_device_wait on this thread call `fn` about
 * 20 times a second while they block. If it returns other than 0, the wait fails with CANCELLED.
 * The request goes on, as after TIMEOUT. It is for runtimes that handle signals between calls, such
 * as Ctrl-C in Python. NULL removes it. `fn` runs with no lock held and must not call Ferry.
 * Other calls that block do not call it. Waits for simulated devices do not block. */
typedef int (*fy_interrupt_fn)(void *user);
FY_API void fy_interrupt_set(fy_interrupt_fn fn, void *user);
/* Cancels a transfer that is still in its engine's queue: its ticket fails with CANCELLED, an
 * upload's destination is poisoned, its memory is freed.
 * Fails: BUSY (it has started, is done, or another request was already ordered after it),
 * INVALID_ARGUMENT. */
FY_API_STATUS fy_ticket_cancel(fy_ticket_t ticket);

#ifdef __cplusplus
}
#endif
#endif
