/* fy_memory_snapshot: takes a snapshot and writes it to a file, whole or not at all: beside its place first, then renamed.
 * Not here: what is taken (snapshot_device.c), what is written (snapshot_json.c, snapshot_svg.c). */
#include "alloc/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/fail.h"

static void write_all(const fy__snapshot_t *snapshot, fy_snapshot_format_t format, FILE *file)
{
    if (format == FY_SNAPSHOT_SVG)
        fy__snapshot_write_svg(snapshot, file);
    else
        fy__snapshot_write_json(snapshot, file);
}

/* Writes to the descriptor, and closes it; returns 0 or errno. */
static int write_to(const fy__snapshot_t *snapshot, fy_snapshot_format_t format, int fd)
{
    FILE *file = fdopen(fd, "w");
    if (!file) {
        const int error = errno;
        close(fd);
        return error;
    }
    errno = 0;
    write_all(snapshot, format, file);
    int error = ferror(file) ? (errno ? errno : EIO) : 0;
    if (fclose(file) != 0 && !error) error = errno;
    return error;
}

/* What is there and no ordinary file (a terminal, a pipe) is written to; it cannot be replaced. */
static int write_in_place(const fy__snapshot_t *snapshot, fy_snapshot_format_t format, const char *path)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 ? errno : write_to(snapshot, format, fd);
}

static int write_beside(const fy__snapshot_t *snapshot, fy_snapshot_format_t format, const char *path)
{
    static _Atomic unsigned serial; /* two threads may write to one path */
    const size_t room = strlen(path) + 48;
    char *beside = malloc(room);
    if (!beside) return ENOMEM;
    snprintf(beside, room, "%s.%ld.%u.tmp", path, (long)getpid(), atomic_fetch_add(&serial, 1));
    const int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int error = fd < 0 ? errno : write_to(snapshot, format, fd);
    if (fd >= 0 && !error && rename(beside, path) != 0) error = errno;
    if (fd >= 0 && error) unlink(beside);
    free(beside);
    return error;
}

fy_status_t fy_memory_snapshot(const fy_device_t *device, const char *path, fy_snapshot_format_t format)
{
    fy__snapshot_t snapshot;
    struct stat found;
    if (!device) return FY_FAIL(INVALID_ARGUMENT, "memory_snapshot: device is NULL");
    if (!path || !*path) return FY_FAIL(INVALID_ARGUMENT, "memory_snapshot: path is %s", path ? "empty" : "NULL");
    if ((unsigned)format > FY_SNAPSHOT_SVG)
        return FY_FAIL(INVALID_ARGUMENT, "memory_snapshot: format %d is none of FY_SNAPSHOT_JSON, _SVG", (int)format);
    FY_TRY(fy__snapshot_take(device, &snapshot));
    char *target = realpath(path, NULL); /* a link stays one; NULL: nothing is there */
    const char *name = target ? target : path;
    const int error = stat(name, &found) == 0 && !S_ISREG(found.st_mode) ? write_in_place(&snapshot, format, name)
                                                                         : write_beside(&snapshot, format, name);
    free(target);
    fy__snapshot_free(&snapshot);
    return error ? FY_FAIL(IO, "memory_snapshot: cannot write %.300s: %s", path, strerror(error)) : FY_STATUS_OK;
}
