/* Submits copies. */
#include "transfer/submit.h"

#include "runtime/base/fail.h"

fy_status_t fy__copy_submit(fy_device_t *device, fy_stream_t *stream, const char *what,
                            fy_copy_t copy, fy__point_t *out_point, uint64_t *out_request)
{
    *out_point = 0;
    *out_request = 0;
    if (FY_UNLIKELY(device->info.copies_can_fault))
        FY_TRY(fy__fault_begin(device, (fy__fault_cause_t){ what, FY__FAULT_OF_COPY }, out_request,
                               &copy.fault));
    const fy_status_t status =
        fy__device_check(device, device->backend->copy(device->dev, stream->native, &copy));
    if (status == FY_STATUS_OK) *out_point = fy__stream_submitted_anchored(stream);
    if (*out_request) fy__fault_end(device, *out_request, *out_point);
    if (status != FY_STATUS_OK) *out_request = 0;
    return status;
}

fy_status_t fy__copy_submit_many(fy_device_t *device, fy_stream_t *stream, size_t count,
                                 const fy_copy_t *copies, fy__point_t *out_point)
{
    const fy_status_t status = fy__device_check(
        device, device->backend->copy_many(device->dev, stream->native, count, copies));
    *out_point = fy__stream_submitted_anchored(stream);
    return status;
}
