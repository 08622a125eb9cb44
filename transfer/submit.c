/* Checks options, submits copies. */
#include "transfer/submit.h"

#include "runtime/base/abi_structs.h"
#include "runtime/base/fail.h"

fy_status_t fy__transfer_options_read(const char *what, const fy_transfer_options_t *options,
                                      fy_transfer_options_t *out_own)
{
    FY_TRY(FY__READ(transfer_options, what, options, out_own));
    if (out_own->contract != FY_HOST_COPY && out_own->contract != FY_HOST_BORROW)
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: contract %d is neither FY_HOST_COPY nor FY_HOST_BORROW", what,
                       (int)out_own->contract);
    if ((unsigned)out_own->dtype >= FY_DTYPE_COUNT && out_own->dtype != FY_DTYPE_SAME)
        return FY_FAIL(INVALID_ARGUMENT, "%s: options->dtype %d is no dtype", what,
                       (int)out_own->dtype);
    return FY_STATUS_OK;
}

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
