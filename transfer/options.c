/* Checking transfer options. */
#include "transfer/options.h"

#include "runtime/base/fail.h"

fy_status_t fy__transfer_options_check(const char *what, const fy_transfer_options_t **options)
{
    static const fy_transfer_options_t defaults = FY_TRANSFER_OPTIONS_INIT;
    if (!*options) {
        *options = &defaults;
        return FY_STATUS_OK;
    }
    FY_TRY(
        fy__check_sized(what, "options", *options, sizeof **options, "FY_TRANSFER_OPTIONS_INIT"));
    if ((*options)->contract != FY_HOST_COPY && (*options)->contract != FY_HOST_BORROW)
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: contract %d is neither FY_HOST_COPY nor FY_HOST_BORROW", what,
                       (int)(*options)->contract);
    if ((unsigned)(*options)->dtype > FY_DTYPE_SAME)
        return FY_FAIL(INVALID_ARGUMENT, "%s: options->dtype %d is no dtype", what,
                       (int)(*options)->dtype);
    return FY_STATUS_OK;
}
