/* The elements of a call's tensors on the host: in place, or in page-locked memory that is
 * downloaded to and uploaded from by the public calls, so that ledger and guards see both. */
#include "dist/group.h"

#include <ferry/device.h>
#include <ferry/transfer.h>

/* A handle that the caller's scope does not end. */
static fy_status_t own(fyd_operand_t *operand)
{
    fy_tensor_t *view;
    FY_TRY(fy_reshape(operand->tensor, operand->info.rank, operand->info.dims, &view));
    fy_tensor_keep(view);
    operand->tensor = view;
    operand->is_own = true;
    return FY_STATUS_OK;
}

static fy_status_t stage(fyd_operand_t *operand)
{
    const fy_tensor_info_t *info = &operand->info;
    FY_TRY(fy_tensor_create_pinned(info->device, info->dtype, info->rank, info->dims,
                                   &operand->staging));
    fy_tensor_keep(operand->staging);
    return fy_tensor_map(operand->staging, FY_ACCESS_READ_WRITE, &operand->data);
}

fy_status_t fyd_operand_open(const char *call, fyd_operand_t *operand, fy_access_t access,
                             bool is_own)
{
    fy_tensor_info_t *info = &operand->info;
    if (!operand->tensor) return FY_STATUS_OK;
    *info = (fy_tensor_info_t)FY_TENSOR_INFO_INIT;
    operand->access = access;
    FY_TRY(fy_tensor_query(operand->tensor, info));
    if (!info->is_contiguous)
        return FYD_FAIL(INVALID_ARGUMENT,
                        "%s: the tensor '%s' is not contiguous\n  Copy it first: fy_copy", call,
                        info->name);
    if (info->is_read_only && (access & FY_ACCESS_WRITE))
        return FYD_FAIL(INVALID_ARGUMENT, "%s: the tensor '%s' is read-only", call, info->name);
    return is_own ? own(operand) : FY_STATUS_OK;
}

fy_status_t fyd_operand_stage(fyd_operand_t *operand)
{
    if (!operand->tensor) return FY_STATUS_OK;
    /* not fy_device_query, which asks the system for free memory */
    return operand->info.device == fy_device_host()
               ? fy_tensor_map(operand->tensor, operand->access, &operand->data)
               : stage(operand);
}

fy_status_t fyd_operand_read(fyd_operand_t *operand)
{
    if (!operand->staging) return FY_STATUS_OK;
    return fy_tensor_download_into(operand->staging, operand->tensor, NULL);
}

fy_status_t fyd_operand_write(fyd_operand_t *operand, fy_ticket_t *out_ticket)
{
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    *out_ticket = (fy_ticket_t){ 0, 0 };
    options.contract = FY_HOST_BORROW;
    if (!operand->staging) return FY_STATUS_OK;
    return fy_tensor_upload_into(operand->tensor, operand->staging, &options, out_ticket);
}

/* A handle that is never destroyed keeps the bytes. */
static void leave(fyd_operand_t *operand)
{
    if (operand->staging || !operand->tensor) return;
    if (!operand->is_own && own(operand) != FY_STATUS_OK) return;
    operand->tensor = NULL;
}

void fyd_operand_close(fyd_operand_t *operand, bool is_used)
{
    if (is_used)
        leave(operand);
    else
        fy_tensor_destroy(operand->staging);
    if (operand->is_own) fy_tensor_destroy(operand->tensor);
    *operand = (fyd_operand_t){ .info = FY_TENSOR_INFO_INIT };
}
