/* Failures of files as statuses. Not here: how a file is replaced (runtime/base/replace.c). */
#include "train/fail.h"

#include <errno.h>
#include <unistd.h>

#include "runtime/base/c_locale.h"

static fy_status_t status_of(const fy__replace_t *replace, int error)
{
    if (!error) return FY_STATUS_OK;
    return error == ENOMEM ? FYT_FAIL(OUT_OF_MEMORY, "%s", replace->problem)
                           : FYT_FAIL(IO, "%s", replace->problem);
}

fy_status_t fyt_replace_begin(fy__replace_t *replace, const char *path)
{
    return status_of(replace, fy__replace_begin(replace, path));
}

fy_status_t fyt_replace_write(fy__replace_t *replace, const void *data, size_t nbytes)
{
    return status_of(replace, fy__replace_write(replace, data, nbytes));
}

fy_status_t fyt_replace_commit(fy__replace_t *replace)
{
    return status_of(replace, fy__replace_commit(replace));
}

fy_status_t fyt_read_at(const char *path, int fd, void *to, uint64_t nbytes, uint64_t offset)
{
    char *at = to;
    while (nbytes) {
        const ssize_t n = pread(fd, at, nbytes, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return FYT_FAIL(IO, "cannot read %s: %s", path, fy__strerror(errno));
        if (n == 0)
            return FYT_FAIL(IO, "%s ends at byte %llu: it has been shortened since it was opened",
                            path, (unsigned long long)offset);
        at += n;
        offset += (uint64_t)n;
        nbytes -= (uint64_t)n;
    }
    return FY_STATUS_OK;
}
