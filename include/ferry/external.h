/* Work on tensors that another library does on its own thread: messages between processes, a codec,
 * a camera. It gets a ticket, and Ferry orders requests after it as after a transfer.
 *
 *   your thread      fy_external_begin
 *   another thread   fy_external_enter; downloads, the work, uploads; fy_external_leave
 *                    fy_external_finish
 *
 * The unit is the storage, so the rules hold for all views of the tensors' bytes. */
#ifndef FERRY_EXTERNAL_H_
#define FERRY_EXTERNAL_H_

#include <ferry/stream.h>

#ifdef __cplusplus
extern "C" {
#endif

/* freed by fy_external_finish, never by a scope */
typedef struct fy_external fy_external_t;

/* From now on work named `what` reads `src` and writes `dst`: NULL is none, equal is in place. Both
 * keep their bytes until fy_external_finish, even if they are destroyed. Until then a request that
 * writes src, or uses dst, waits on the host, as a throttle, if the tensor is on an asynchronous
 * device. On the host it is BUSY until you have waited for the ticket or polled it as done; bytes
 * that the work uses were mapped before this call.
 * *out_ticket can be polled, waited for and passed to fy_stream_wait; it cannot be cancelled.
 * Fails: INVALID_ARGUMENT (read-only dst), BUSY (earlier work uses a host tensor, or 1,024 pieces
 * of work are not finished), UNSUPPORTED (this thread records a graph), DEVICE_LOST,
 * OUT_OF_MEMORY, the fault of src's bytes. */
FY_API_STATUS fy_external_begin(const char *what, fy_tensor_t *src, fy_tensor_t *dst,
                                fy_external_t **out_external, fy_ticket_t *out_ticket);
/* Blocks until requests made before fy_external_begin no longer use the tensors; it is no sync.
 * From now on this thread's requests do not wait for the work; they count in the scope of
 * fy_external_begin and obey its guards. Several pieces of work: one after another, finished in the
 * order of fy_external_begin if they read one host tensor (else this thread waits for ever).
 * Fails: INVALID_ARGUMENT (this thread has a scope open, or has entered), DEVICE_LOST. */
FY_API_STATUS fy_external_enter(fy_external_t *external);
/* Ends the scopes that are open on this thread. */
FY_API void fy_external_leave(fy_external_t *external);
/* The work is done, and everything that waits for it goes on. `last`: your last request on dst,
 * such as its upload, which then stands for the work; {0, 0}: none.
 * A status other than OK: the ticket fails with it, dst is poisoned until it is overwritten, and
 * this thread's error is the text. A `last` that is no ticket: INVALID_ARGUMENT, in the same way.
 * NULL is ignored. */
FY_API void fy_external_finish(fy_external_t *external, fy_ticket_t last, fy_status_t status);

#ifdef __cplusplus
}
#endif
#endif
