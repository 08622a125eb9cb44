/* The elements of a call's tensors on the host: in place, or in page-locked memory that is
 * downloaded to and uploaded from by the public calls, so that ledger and guards see both. */
#include "dist/group.h"

#include <ferry/device.h>
#include <ferry/transfer.h>

fy_status_t fyd_operand_open(const char *call, fy_tensor_t *tensor, fy_access_t access,
                             fyd_operand_t *out)
{
    *out = (fyd_operand_t){ .tensor = tensor, .info = FY_TENSOR_INFO_INIT };
    FY_TRY(fy_tensor_query(tensor, &out->info));
    const fy_tensor_info_t *info = &out->info;
    if (!info->is_contiguous)
        return FYD_FAIL(INVALID_ARGUMENT,
                        "%s: the tensor '%s' is not contiguous\n  Copy it first: fy_copy", call,
                        info->name);
    if (info->is_read_only && (access & FY_ACCESS_WRITE))
        return FYD_FAIL(INVALID_ARGUMENT, "%s: the tensor '%s' is read-only", call, info->name);
    /* not fy_device_query, which asks the system for free memory */
    if (info->device == fy_device_host()) return fy_tensor_map(tensor, access, &out->data);
    FY_TRY(
        fy_tensor_create_pinned(info->device, info->dtype, info->rank, info->dims, &out->staging));
    const fy_status_t status = fy_tensor_map(out->staging, FY_ACCESS_READ_WRITE, &out->data);
    if (status != FY_STATUS_OK) fyd_operand_close(out, false);
    return status;
}

fy_status_t fyd_operand_read(fyd_operand_t *operand)
{
    if (!operand->staging) return FY_STATUS_OK;
    return fy_tensor_download_into(operand->staging, operand->tensor, NULL);
}

fy_status_t fyd_operand_write(fyd_operand_t *operand)
{
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    fy_ticket_t ticket;
    options.contract = FY_HOST_BORROW;
    if (!operand->staging) return FY_STATUS_OK;
    return fy_tensor_upload_into(operand->tensor, operand->staging, &options, &ticket);
}

void fyd_operand_close(fyd_operand_t *operand, bool is_used)
{
    if (is_used) { /* this handle is never destroyed, so the bytes stay */
        fy_tensor_t *kept = operand->staging;
        const fy_tensor_info_t *info = &operand->info;
        if (!kept && (!operand->tensor ||
                      fy_reshape(operand->tensor, info->rank, info->dims, &kept) != FY_STATUS_OK))
            return;
        fy_tensor_keep(kept);
    } else {
        fy_tensor_destroy(operand->staging);
    }
    operand->staging = NULL;
}
