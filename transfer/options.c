/* Reads and checks transfer options. */
#include "transfer/options.h"

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
