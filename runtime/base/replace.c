/* Writes a temporary file, syncs it, renames it. The order matters: the bytes are on the disk
 * before the name refers to them (rename, POSIX.1-2017: a reader sees the old file or the new one),
 * and the folder is synced so that the name survives a crash.
 * Not here: the contents. A process that is killed leaves its PATH.PID-N.tmp, which no code
 * reads. */
#include "runtime/base/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/c_locale.h"

static __attribute__((format(printf, 3, 4))) int fail(fy__replace_t *replace, int error,
                                                      const char *format, ...)
{
    va_list args;
    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start, above */
    fy__vsnprintf(replace->problem, sizeof replace->problem, format, args);
    va_end(args);
    return replace->error = error ? error : EIO;
}

/* The text of the link `path`, from the link's folder if it is relative; NULL with errno: `path` is
 * not a link (EINVAL), or no memory. */
static char *link_target(const char *path)
{
    char text[4096];
    const ssize_t n = readlink(path, text, sizeof text);
    if (n < 0 || n == sizeof text) {
        if (n >= 0) errno = ENAMETOOLONG;
        return NULL;
    }
    const char *slash = text[0] == '/' ? NULL : strrchr(path, '/');
    const size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
    char *target = malloc(folder + (size_t)n + 1);
    if (!target) return NULL;
    memcpy(target, path, folder);
    memcpy(target + folder, text, (size_t)n);
    target[folder + (size_t)n] = 0;
    return target;
}

/* The path after all symbolic links of the last component are resolved; the file need not exist. */
static int resolve(fy__replace_t *replace, const char *path)
{
    enum { MOST_LINKS = 40 }; /* as in Linux */
    char *now = strdup(path);
    for (int i = 0; now; i++) {
        char *next = link_target(now);
        /* not a link, or it does not exist */
        if (!next && (errno == EINVAL || errno == ENOENT)) break;
        const int error = next && i == MOST_LINKS ? ELOOP : next ? 0 : errno;
        free(now);
        now = next;
        if (!error) continue;
        free(now);
        return fail(replace, error, "cannot write %s: %s", path,
                    error == ELOOP ? "its symbolic links form a loop" : fy__strerror(error));
    }
    if (!now) return fail(replace, ENOMEM, "no host memory for the name of the file %s", path);
    replace->path = now;
    return 0;
}

/* Gives the new file the owner, the group and the mode of the old one, as far as the process may.
 * Without the group, the mode gives that of the new file no rights. */
static void copy_rights(int fd, const struct stat *old)
{
    struct stat now;
    if (fchown(fd, old->st_uid, old->st_gid)) (void)!fchown(fd, (uid_t)-1, old->st_gid);
    const bool has_group = fstat(fd, &now) == 0 && now.st_gid == old->st_gid;
    (void)!fchmod(fd, old->st_mode & (has_group ? 0777 : 0707));
}

/* Bytes of the path that the temporary name begins with: its last component stays below 255 bytes,
 * which file systems accept. A character of UTF-8 is not divided. */
static size_t stem_of(const char *path, size_t most_suffix)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t length = strlen(name), most = NAME_MAX - most_suffix;
    if (length <= most) return strlen(path);
    while (most && ((unsigned char)name[most] & 0xc0) == 0x80) most--;
    return (size_t)(name - path) + most;
}

static int open_special(fy__replace_t *replace)
{
    do replace->fd = open(replace->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    while (replace->fd < 0 && errno == EINTR);
    if (replace->fd >= 0) return 0;
    (void)fail(replace, errno, "cannot open %s for writing: %s", replace->path,
               fy__strerror(errno));
    free(replace->path);
    return replace->error;
}

int fy__replace_begin(fy__replace_t *replace, const char *path)
{
    enum { MOST_SUFFIX = 48, TRIES = 1000 };
    *replace = (fy__replace_t){ .fd = -1 };
    if (!*path) return fail(replace, ENOENT, "cannot write a file: its path is \"\"");
    if (resolve(replace, path)) return replace->error;
    struct stat old;
    const bool exists = stat(replace->path, &old) == 0;
    if (exists && S_ISDIR(old.st_mode)) {
        free(replace->path);
        return fail(replace, EISDIR, "cannot write %s: it is a folder", path);
    }
    /* A pipe or a device is opened and written, because a rename would remove it. */
    if (exists && !S_ISREG(old.st_mode)) return open_special(replace);
    const size_t stem = stem_of(replace->path, MOST_SUFFIX);
    const size_t room = strlen(replace->path) + MOST_SUFFIX;
    replace->temp = malloc(room);
    if (!replace->temp) {
        free(replace->path);
        return fail(replace, ENOMEM, "no host memory for the name of a file beside %s", path);
    }
    /* Another thread may write the same path, and a killed process of the same number may have left
     * a file. */
    for (int i = 0; i < TRIES && replace->fd < 0; i++) {
        snprintf(replace->temp, room, "%.*s.%ld-%d.tmp", (int)stem, replace->path, (long)getpid(),
                 i);
        replace->fd =
            open(replace->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, exists ? 0600 : 0666);
        if (replace->fd < 0 && errno != EEXIST && errno != EINTR) break;
    }
    if (replace->fd >= 0 && exists) copy_rights(replace->fd, &old);
    if (replace->fd >= 0) return 0;
    (void)fail(replace, errno, "cannot create %s: %s", replace->temp, fy__strerror(errno));
    free(replace->temp);
    free(replace->path);
    return replace->error;
}

int fy__replace_write(fy__replace_t *replace, const void *data, size_t nbytes)
{
    const char *from = data;
    while (nbytes) {
        const ssize_t n = write(replace->fd, from, nbytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return fail(replace, n ? errno : EIO, "cannot write %s: %s",
                        replace->temp ? replace->temp : replace->path,
                        n ? fy__strerror(errno) : "the system wrote no byte");
        from += n;
        nbytes -= (size_t)n;
    }
    return 0;
}

static int sync_folder(fy__replace_t *replace)
{
    const char *path = replace->path;
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    if (!folder)
        return fail(replace, ENOMEM,
                    "%s is written, but there is no host memory to sync its folder", path);
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Some file systems cannot sync folders and return EINVAL: nothing more can be done there. */
    const int failed = fd < 0 || (fsync(fd) && errno != EINVAL), error = errno;
    if (fd >= 0) close(fd);
    free(folder);
    return failed ? fail(replace, error, "%s is written, but its folder cannot be synced: %s", path,
                         fy__strerror(error))
                  : 0;
}

static int close_special(fy__replace_t *replace)
{
    const int error = close(replace->fd) ? fail(replace, errno, "cannot close %s: %s",
                                                replace->path, fy__strerror(errno))
                                         : 0;
    free(replace->path);
    return error;
}

int fy__replace_commit(fy__replace_t *replace)
{
    const char *step = NULL;
    if (!replace->temp) return close_special(replace);
    if (fsync(replace->fd))
        step = "sync";
    else if (close(replace->fd))
        step = "close", replace->fd = -1;
    else if (replace->fd = -1, rename(replace->temp, replace->path))
        step = "rename";
    if (step) {
        (void)fail(replace, errno, "cannot %s %s: %s; %s is unchanged", step, replace->temp,
                   fy__strerror(errno), replace->path);
        fy__replace_abort(replace);
        return replace->error;
    }
    free(replace->temp);
    const int error = sync_folder(replace);
    free(replace->path);
    return error;
}

void fy__replace_abort(fy__replace_t *replace)
{
    if (replace->fd >= 0) close(replace->fd);
    if (replace->temp) unlink(replace->temp);
    free(replace->temp);
    free(replace->path);
}
