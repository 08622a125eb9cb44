/* Collects and submits a batch of uploads. Bytes are admitted to the engine's window one by one, as
 * without a batch. While some are admitted and not sent, no blocking call is made: other threads
 * may be waiting for them. Next: submit.c. */
#include "transfer/upload_batch.h"

#include "transfer/queue.h"
#include "transfer/submit.h"

bool fy__upload_batch_fits(const fy_device_t *device, const fy_tensor_t *dst,
                           const fy_tensor_t *src, fy_host_contract_t contract)
{
    return contract == FY_HOST_BORROW && fy__copy_many_pays(device) && src->nelem &&
           src->contiguous && dst->contiguous && dst->dtype == src->dtype;
}

/* Copies of a batch have no order among each other, so no two may write the same bytes. */
static bool is_written_by(const fy__upload_batch_t *batch, const fy_tensor_t *dst)
{
    const char *begin = dst->data, *end = begin + fy__tensor_nbytes(dst);
    for (size_t i = 0; i < batch->count; i++) {
        const char *other = batch->copies[i].dst;
        if (begin < other + batch->copies[i].nbytes && other < end) return true;
    }
    return false;
}

fy_status_t fy__upload_batch_send(fy__upload_batch_t *batch)
{
    const size_t count = batch->count;
    fy_stream_t *stream = batch->device->upload;
    fy__point_t point = 0;
    batch->count = 0;
    if (!count) return FY_STATUS_OK;
    const fy_status_t status =
        fy__copy_submit_many(batch->device, stream, count, batch->copies, &point);
    /* after a failure, too: some copies may run; the caller poisons dst */
    for (size_t i = 0; i < count; i++) {
        fy__queue_sent(batch->device->uploads, batch->copies[i].nbytes, point);
        fy__hazard_read(&batch->src[i]->storage->hazard, stream, point);
        fy__upload_borrow(batch->src[i]->storage);
        fy__hazard_written(&batch->dst[i]->storage->hazard, point);
        if (status == FY_STATUS_OK) fy__upload_set_faults(batch->dst[i], &(fy__taint_t){ 0, 0, 0 });
    }
    return status;
}

fy_status_t fy__upload_batch_add(fy__thread_t *thread, fy__upload_batch_t *batch, fy_tensor_t *dst,
                                 const fy_tensor_t *src, bool *out_taken)
{
    const uint64_t nbytes = fy__tensor_nbytes(src);
    fy_stream_t *stream = batch->device->upload;
    *out_taken = false;
    if (batch->count == FY__UPLOAD_BATCH || is_written_by(batch, dst))
        FY_TRY(fy__upload_batch_send(batch));
    if (!batch->count) FY_TRY(fy__stream_throttle(thread, stream));
    const fy_status_t status =
        fy__hazard_before_write(&dst->storage->hazard, stream, FY__WAIT_UPLOAD_WRITE);
    if (status != FY_STATUS_OK || !fy__queue_admit(batch->device->uploads, nbytes)) {
        const fy_status_t sent = fy__upload_batch_send(batch);
        return status != FY_STATUS_OK ? status : sent;
    }
    batch->dst[batch->count] = dst;
    batch->src[batch->count] = src;
    batch->copies[batch->count++] = (fy_copy_t){ .kind = FY_COPY_UPLOAD,
                                                 .host_pinned = 1,
                                                 .dst = dst->data,
                                                 .src = src->data,
                                                 .nbytes = nbytes };
    *out_taken = true;
    return FY_STATUS_OK;
}
