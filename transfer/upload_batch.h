/* Uploads of one call that read their sources in place (FY_HOST_BORROW, dense, not converted),
 * collected and submitted as one batch. Not here: the caller (coalesce.c), single uploads
 * (upload.c). */
#ifndef FERRY_TRANSFER_UPLOAD_BATCH_H_
#define FERRY_TRANSFER_UPLOAD_BATCH_H_

#include "transfer/upload.h"

enum { FY__UPLOAD_BATCH = 64 };

typedef struct fy__upload_batch {
    fy_device_t *device;
    size_t count;
    fy_tensor_t *dst[FY__UPLOAD_BATCH];
    const fy_tensor_t *src[FY__UPLOAD_BATCH];
    fy_copy_t copies[FY__UPLOAD_BATCH];
} fy__upload_batch_t;

/* Whether this upload can be part of one. Does not poll the device. */
bool fy__upload_batch_fits(const fy_device_t *device, const fy_tensor_t *dst,
                           const fy_tensor_t *src, fy_host_contract_t contract);
/* Adds the upload; first submits the batch if it is full or writes the same bytes. *out_taken
 * false: the engine's window is full, so call fy__upload_run; the batch is then empty. On failure
 * the destinations of the batch hold garbage. */
fy_status_t fy__upload_batch_add(fy__thread_t *thread, fy__upload_batch_t *batch, fy_tensor_t *dst,
                                 const fy_tensor_t *src, bool *out_taken);
/* Submits the batch; it is empty afterwards. On failure each destination may hold garbage. */
fy_status_t fy__upload_batch_send(fy__upload_batch_t *batch);

#endif
