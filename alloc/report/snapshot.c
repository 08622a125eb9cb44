/* fy_memory_snapshot: takes a snapshot and writes it to a file, complete or not at all
 * (runtime/base/replace.h). Not here: the copy (snapshot_device.c), the formats (snapshot_json.c,
 * snapshot_svg.c). */
#include "alloc/report/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/c_locale.h"
#include "runtime/base/fail.h"
#include "runtime/base/replace.h"

static void write_all(const fy__snapshot_t *snapshot, fy_snapshot_format_t format, FILE *file)
{
    if (format == FY_SNAPSHOT_SVG)
        fy__snapshot_write_svg(snapshot, file);
    else
        fy__snapshot_write_json(snapshot, file);
}

/* Writes through a duplicate of the descriptor, because fclose closes it. Returns 0 or errno. */
static int write_to(const fy__snapshot_t *snapshot, fy_snapshot_format_t format, int begun)
{
    const int fd = fcntl(begun, F_DUPFD_CLOEXEC, 0);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file) {
        const int error = errno;
        if (fd >= 0) close(fd);
        return error;
    }
    errno = 0;
    write_all(snapshot, format, file);
    int error = ferror(file) ? (errno ? errno : EIO) : 0;
    if (fclose(file) != 0 && !error) error = errno;
    return error;
}

fy_status_t fy_memory_snapshot(const fy_device_t *device, const char *path,
                               fy_snapshot_format_t format)
{
    fy__snapshot_t snapshot;
    fy__replace_t replace;
    if (!device) return FY_FAIL(INVALID_ARGUMENT, "memory_snapshot: device is NULL");
    if (!path || !*path)
        return FY_FAIL(INVALID_ARGUMENT, "memory_snapshot: path is %s", path ? "empty" : "NULL");
    if ((unsigned)format > FY_SNAPSHOT_SVG)
        return FY_FAIL(INVALID_ARGUMENT,
                       "memory_snapshot: format %d is none of FY_SNAPSHOT_JSON, _SVG", (int)format);
    FY_TRY(fy__snapshot_take(device, &snapshot));
    int error = fy__replace_begin(&replace, path);
    if (!error && (error = write_to(&snapshot, format, replace.fd)))
        fy__replace_abort(&replace);
    else if (!error)
        error = fy__replace_commit(&replace);
    fy__snapshot_free(&snapshot);
    return error
               ? FY_FAIL(IO, "memory_snapshot: cannot write %.300s: %s", path, fy__strerror(error))
               : FY_STATUS_OK;
}
