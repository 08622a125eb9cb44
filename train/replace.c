/* Writing beside, syncing, renaming over. The order is the point: the bytes are on the disk before the name says so (rename, POSIX.1-2017:
 * a reader sees the old file or the new one), and the folder is synced so that the name is there after a crash, too.
 * Not here: what is written. A process that is killed leaves its PATH.PID-N.tmp, which nobody reads. */
#include "train/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/fail.h"

fy_status_t fyt_replace_begin(fyt_replace_t *replace, const char *path)
{
    enum { MOST_SUFFIX = 48, TRIES = 1000 };
    const size_t room = strlen(path) + MOST_SUFFIX;
    *replace = (fyt_replace_t){ path, malloc(room), -1 };
    if (!replace->temp) return FYT_FAIL(OUT_OF_MEMORY, "no host memory for the name of a file beside %s", path);
    /* Another thread may write the same path, and a killed process of the same number may have left a file. */
    for (int i = 0; i < TRIES && replace->fd < 0; i++) {
        snprintf(replace->temp, room, "%s.%ld-%d.tmp", path, (long)getpid(), i);
        replace->fd = open(replace->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (replace->fd < 0 && errno != EEXIST && errno != EINTR) break;
    }
    if (replace->fd >= 0) return FY_STATUS_OK;
    const fy_status_t status = FYT_FAIL(IO, "cannot create %s: %s", replace->temp, strerror(errno));
    free(replace->temp);
    return status;
}

fy_status_t fyt_replace_write(fyt_replace_t *replace, const void *data, size_t nbytes)
{
    const char *from = data;
    while (nbytes) {
        const ssize_t n = write(replace->fd, from, nbytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return FYT_FAIL(IO, "cannot write %s: %s", replace->temp, n ? strerror(errno) : "the system took no byte");
        from += n;
        nbytes -= (size_t)n;
    }
    return FY_STATUS_OK;
}

static fy_status_t sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    if (!folder) return FYT_FAIL(OUT_OF_MEMORY, "%s is written, but there is no host memory to sync its folder", path);
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Some file systems have folders that cannot be synced, and say EINVAL: there is nothing more to do there. */
    const int failed = fd < 0 || (fsync(fd) && errno != EINVAL), error = errno;
    if (fd >= 0) close(fd);
    free(folder);
    return failed ? FYT_FAIL(IO, "%s is written, but its folder cannot be synced: %s", path, strerror(error)) : FY_STATUS_OK;
}

fy_status_t fyt_replace_commit(fyt_replace_t *replace)
{
    const char *step = NULL;
    if (fsync(replace->fd))
        step = "sync";
    else if (close(replace->fd))
        step = "close", replace->fd = -1;
    else if (replace->fd = -1, rename(replace->temp, replace->path))
        step = "rename";
    if (step) {
        const fy_status_t status = FYT_FAIL(IO, "cannot %s %s: %s; %s is as it was", step, replace->temp, strerror(errno), replace->path);
        fyt_replace_abort(replace);
        return status;
    }
    free(replace->temp);
    return sync_folder(replace->path);
}

void fyt_replace_abort(fyt_replace_t *replace)
{
    if (replace->fd >= 0) close(replace->fd);
    unlink(replace->temp);
    free(replace->temp);
}
