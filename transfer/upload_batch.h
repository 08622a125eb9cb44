/* Uploads that go in place (FY_HOST_BORROW, dense, not converted) and were asked for in one call,
 * gathered until they are submitted as one batch. Not here: which call makes them (coalesce.c), who
 * goes one by one (upload.c). */
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

/* May this upload be part of one? Never asks the device. */
bool fy__upload_batch_fits(const fy_device_t *device, const fy_tensor_t *dst,
                           const fy_tensor_t *src, fy_host_contract_t contract);
/* Takes the upload in, and sends what was gathered first where it is full or writes the same bytes.
 * *out_taken false: the engine's window has no room, so it is for fy__upload_run; nothing is
 * gathered then. On failure what was gathered before is spoilt. */
fy_status_t fy__upload_batch_add(fy__thread_t *thread, fy__upload_batch_t *batch, fy_tensor_t *dst,
                                 const fy_tensor_t *src, bool *out_taken);
/* Submits what was gathered; empty afterwards. On failure each destination may hold garbage. */
fy_status_t fy__upload_batch_send(fy__upload_batch_t *batch);

#endif
