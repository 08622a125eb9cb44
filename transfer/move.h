/* One transfer: what its public call asked for, the steps of every call, and its record in the
 * ledger, in guards, and in the event file if a recording runs. One step submits a copy to an
 * engine's native stream: its fault flag, the copy, its point. Not here: the order of transfers
 * (queue.h); wire bytes and the number of copies, which the executor reports itself
 * (registry.c). */
#ifndef FERRY_TRANSFER_MOVE_H_
#define FERRY_TRANSFER_MOVE_H_

#include <ferry/ledger.h>
#include <ferry/transfer.h>

#include "runtime/order/stream.h"
#include "runtime/tensor/tensor.h"
#include "runtime/thread/thread.h"

/* What a public call asks for, and what became of it. */
typedef struct fy__move {
    const char *what;   /* the public call */
    const void *caller; /* its return address */
    fy__thread_t *thread;
    int direction; /* FY__UPLOAD, ... */
    fy_path_t path;
    fy_device_t *device, *other; /* other: the second device of a peer transfer */
    fy_tensor_t *dst;            /* NULL: a file, or memory that is not yet a tensor's */
    const fy_tensor_t *src;
    const fy__storage_t *to, *from; /* the memory where there is no tensor; NULL: a file */
    fy_transfer_options_t options;
    fy_dtype_t dtype; /* of the result */
    uint64_t nbytes, blocked_ns;
    fy__point_t point; /* 0: done. The note of an upload into `dst` sets it to dst's last write */
} fy__move_t;

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

/* Records it. */
void fy__move_note(fy__move_t *move);

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
