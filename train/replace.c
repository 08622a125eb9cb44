/* Failures of runtime/base/replace.c as statuses. Not here: how a file is replaced. */
#include "train/replace.h"

#include <errno.h>

#include "train/fail.h"

static fy_status_t status_of(const fyt_replace_t *replace, int error)
{
    if (!error) return FY_STATUS_OK;
    return error == ENOMEM ? FYT_FAIL(OUT_OF_MEMORY, "%s", replace->problem)
                           : FYT_FAIL(IO, "%s", replace->problem);
}

fy_status_t fyt_replace_begin(fyt_replace_t *replace, const char *path)
{
    return status_of(replace, fy__replace_begin(replace, path));
}

fy_status_t fyt_replace_write(fyt_replace_t *replace, const void *data, size_t nbytes)
{
    return status_of(replace, fy__replace_write(replace, data, nbytes));
}

fy_status_t fyt_replace_commit(fyt_replace_t *replace)
{
    return status_of(replace, fy__replace_commit(replace));
}

void fyt_replace_abort(fyt_replace_t *replace) { fy__replace_abort(replace); }
