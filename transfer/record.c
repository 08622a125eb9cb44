/* Records uploads: the copy, and the conversion after it if dst is of another dtype or layout, as
 * upload.c would submit them. */
#include "transfer/record.h"

#include "runtime/base/fail.h"
#include "transfer/convert.h"
#include "transfer/upload.h"

static fy_status_t append(fy__recording_t *recording, const fy__end_t *target,
                          const fy_tensor_t *src, const fy_transfer_options_t *options,
                          const void *caller)
{
    const uint64_t nbytes = fy__tensor_nbytes(src);
    const fy_copy_t copy = { .kind = FY_COPY_UPLOAD,
                             .host_pinned = 1,
                             .dst = target->desc.data,
                             .src = src->data,
                             .nbytes = nbytes };
    uint32_t *slots;
    FY_TRY(fy__recording_slots(recording, 2, &slots));
    FY_TRY(fy__recording_slot(recording, target->storage, true, &slots[0]));
    FY_TRY(fy__recording_slot(recording, src->storage, false, &slots[1]));
    return fy__recording_upload(recording, &copy, slots, nbytes == target->storage->nbytes,
                                options->site, caller, options->priority);
}

static fy_status_t record(fy__thread_t *thread, fy__recording_t *recording, fy_tensor_t *dst,
                          const fy_tensor_t *src, const fy_transfer_options_t *options,
                          const void *caller)
{
    fy_device_t *device = recording->device;
    fy__storage_t *raw;
    fy__end_t target, final;
    char text[128];
    if (options->contract != FY_HOST_BORROW)
        return fy__recording_refuse(recording, "tensor_upload_into with FY_HOST_COPY");
    FY_TRY(fy__upload_check_source("tensor_upload_into", src, device, FY_HOST_BORROW));
    FY_TRY(fy__upload_check_into("tensor_upload_into", dst, src));
    if (!src->contiguous)
        return FY_FAIL(INVALID_ARGUMENT,
                       "tensor_upload_into: a graph reads its sources in place, so they must be "
                       "contiguous; %s is not",
                       fy__tensor_format(src, text, sizeof text));
    if (!src->nelem) return FY_STATUS_OK;
    fy__end_of(dst, &final);
    if (dst->contiguous && dst->dtype == src->dtype)
        return append(recording, &final, src, options, caller);
    FY_TRY(fy__storage_create_scratch(thread, device, fy__tensor_nbytes(src), NULL,
                                      FY_CATEGORY_STAGING, &raw));
    fy__end_dense(dst, (fy_dtype_t)src->dtype, raw, &target);
    fy_status_t status = append(recording, &target, src, options, caller);
    if (status == FY_STATUS_OK) status = fy__convert(device, NULL, &final, &target, src->nelem);
    fy__storage_release(thread, raw);
    return status;
}

fy_status_t fy__upload_record(fy__thread_t *thread, fy__recording_t *recording, fy_tensor_t *dst,
                              const fy_tensor_t *src, const fy_transfer_options_t *options,
                              const void *caller)
{
    return fy__recording_failed(recording, record(thread, recording, dst, src, options, caller));
}
