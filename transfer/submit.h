/* One copy to an engine's native stream: the fault flag it may need, the copy, its point. Not here:
 * who may go when (queue.h). */
#ifndef FERRY_TRANSFER_SUBMIT_H_
#define FERRY_TRANSFER_SUBMIT_H_

#include "runtime/order/stream.h"

/* Submits `copy`; `what` names it in faults ("upload"). *out_point: where it will be done.
 * *out_request: the number of its fault flag, 0 if the device's copies cannot fail alone; whoever
 * depends on the bytes must taint it (fy__storage_late_add). On failure both are 0. */
fy_status_t fy__copy_submit(fy_device_t *device, fy_stream_t *stream, const char *what,
                            fy_copy_t copy, fy__point_t *out_point, uint64_t *out_request);
/* Can copies to this device be submitted many at a time? */
static inline bool fy__copy_many_pays(const fy_device_t *device)
{
    return device->backend->copy_many && !device->synchronous && !device->info.copies_can_fault;
}
/* Submits `count` > 0 copies of one kind that have nothing to do with each other: at once where
 * fy__copy_many_pays. *out_point: where all of them will be done. On failure some may run:
 * *out_point stands behind those, and their destinations hold garbage then. */
fy_status_t fy__copy_submit_many(fy_device_t *device, fy_stream_t *stream, size_t count,
                                 const fy_copy_t *copies, fy__point_t *out_point);

#endif
