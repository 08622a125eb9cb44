/* First and last step of every transfer: the check of its options, and the submission of a copy to
 * an engine's native stream: its fault flag, the copy, its point. Not here: the order of transfers
 * (queue.h). */
#ifndef FERRY_TRANSFER_SUBMIT_H_
#define FERRY_TRANSFER_SUBMIT_H_

#include <ferry/transfer.h>

#include "runtime/order/stream.h"

/* Copies the caller's options; NULL is the defaults. INVALID_ARGUMENT for a field that is out of
 * range. */
fy_status_t fy__transfer_options_read(const char *what, const fy_transfer_options_t *options,
                                      fy_transfer_options_t *out_own);

/* Submits `copy`; `what` names it in faults ("upload"). *out_point: its point. *out_request: the
 * number of its fault flag, 0 if the device's copies cannot fail alone; add it to the taint of
 * bytes that depend on the copy (fy__storage_late_add). On failure both are 0. */
fy_status_t fy__copy_submit(fy_device_t *device, fy_stream_t *stream, const char *what,
                            fy_copy_t copy, fy__point_t *out_point, uint64_t *out_request);
/* Whether several copies to this device can be submitted at once. */
static inline bool fy__copy_many_pays(const fy_device_t *device)
{
    return device->backend->copy_many && !device->synchronous && !device->info.copies_can_fault;
}
/* Submits `count` > 0 independent copies of one kind: at once if fy__copy_many_pays. *out_point:
 * after all of them. On failure some may run: *out_point is after those, and their destinations
 * hold garbage. */
fy_status_t fy__copy_submit_many(fy_device_t *device, fy_stream_t *stream, size_t count,
                                 const fy_copy_t *copies, fy__point_t *out_point);

#endif
