/* Steps of every transfer: the first checks, the destination that it makes, and the submission of a
 * copy to an engine's native stream: its fault flag, the copy, its point. Not here: the order of
 * transfers (queue.h), their record (account.h). */
#ifndef FERRY_TRANSFER_SUBMIT_H_
#define FERRY_TRANSFER_SUBMIT_H_

#include "runtime/order/stream.h"
#include "transfer/account.h"

/* Copies the caller's options; NULL is the defaults. INVALID_ARGUMENT for a field that is out of
 * range. */
fy_status_t fy__transfer_options_read(const char *what, const fy_transfer_options_t *options,
                                      fy_transfer_options_t *out_own);

/* The first checks, in one order for all calls: the thread, operands that are NULL (`tensor`, then
 * `other`) or gone, the options. Sets thread, options, dtype, nbytes (of `tensor`). */
fy_status_t fy__move_begin(fy__move_t *move, const fy_transfer_options_t *options,
                           const fy_tensor_t *tensor, const char *name, const void *other,
                           const char *other_name);
/* Checks that `device` is not lost, and that this thread does not record on it. */
fy_status_t fy__move_check_device(const fy__move_t *move, const fy_device_t *device);
/* options->dtype may be dst's only. */
fy_status_t fy__move_check_dtype(const char *what, const fy_tensor_t *dst,
                                 const fy_transfer_options_t *options);
fy_status_t fy__move_check_shapes(const char *what, const fy_tensor_t *dst, const fy_tensor_t *src);
/* Asks the guards, then makes the destination, a tensor like src, for a stream of `to`. */
fy_status_t fy__move_make_dst(fy__move_t *move, fy_device_t *to, fy_stream_t *stream,
                              fy_tensor_t **out_dst);
/* It failed: destroys that tensor. This thread's error stays. */
void fy__move_drop_dst(const fy__move_t *move, fy_tensor_t **out_dst);

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
