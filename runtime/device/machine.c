/* Reads the available memory of the machine and counts the bytes that this process has reserved.
 * A segment's bytes are part of MemAvailable until they are written. So a new segment may have:
 * available bytes - (bytes reserved - bytes written). Bytes written are estimated by the process's
 * resident bytes, at most the bytes reserved. */
#include "runtime/device/machine.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/environment.h"
#include "runtime/base/fail.h"
#include "runtime/base/spec.h"

enum { FILE_ROOM = 8192, PATH_ROOM = 1024 };

/* Between two readings small segments together may have 1/CREDIT_SHARE of the bytes that were free,
 * and at most most_credit_nbytes. */
enum { CREDIT_SHARE = 64 };
static const uint64_t most_credit_nbytes = 64ull << 20;

static const char *root = "";
static _Atomic uint64_t reserved_nbytes; /* by take, and not yet returned */
static _Atomic uint64_t credit_nbytes;   /* may be taken without reading a file */

/* ---- $FERRY_MACHINE_MEMORY ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t said_nbytes; /* 0: use the system's figures. Written once, under `once` */
static char complaint[160];
static _Atomic bool has_complaint;

static void read_environment(void)
{
    const char *text = fy__env_value("FERRY_MACHINE_MEMORY");
    if (!text || (fy__bytes_parse(text, &said_nbytes) && said_nbytes)) return;
    said_nbytes = 0;
    snprintf(complaint, sizeof complaint,
             "FERRY_MACHINE_MEMORY=%.40s is ignored; it may be a size above zero, such as 8GiB",
             text);
    atomic_store(&has_complaint, true);
}

/* ---- files ---- */

/* The text of a small file below `root`; "" if it cannot be read. */
static void read_text(const char *path, char *text)
{
    char whole[PATH_ROOM + 64];
    size_t length = 0;
    snprintf(whole, sizeof whole, "%s%s", root, path);
    const int fd = open(whole, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        for (ssize_t n = 1; n > 0 && length<FILE_ROOM - 1; length += n> 0 ? (size_t)n : 0)
            n = read(fd, text + length, FILE_ROOM - 1 - length);
        (void)close(fd);
    }
    text[length] = 0;
}

/* The number after `key` at the beginning of a line; false if there is none. */
static bool number_of(const char *text, const char *key, uint64_t *out_value)
{
    const size_t length = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line ? 1 : 0)
        if (strncmp(line, key, length) == 0 && sscanf(line + length, "%" SCNu64, out_value) == 1)
            return true;
    return false;
}

static bool number_in(const char *folder, const char *name, char *text, uint64_t *out_value)
{
    char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    read_text(path, text);
    return sscanf(text, "%" SCNu64, out_value) == 1; /* "max" is not a number */
}

/* ---- control groups ---- */

typedef struct group_files {
    const char *limit, *usage, *inactive, *active;
} group_files_t;
static const group_files_t version_1 = { "memory.limit_in_bytes", "memory.usage_in_bytes",
                                         "total_inactive_file ", "total_active_file " };
static const group_files_t version_2 = { "memory.max", "memory.current", "inactive_file ",
                                         "active_file " };

/* The rest of one group: its limit minus its usage. Pages of files count as free, because the
 * kernel can drop them. */
static uint64_t left_in(const char *folder, const group_files_t *files, char *text)
{
    uint64_t limit, usage, inactive = 0, active = 0;
    char path[PATH_ROOM];
    if (!number_in(folder, files->limit, text, &limit) ||
        !number_in(folder, files->usage, text, &usage))
        return UINT64_MAX;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    read_text(path, text);
    (void)number_of(text, files->inactive, &inactive);
    (void)number_of(text, files->active, &active);
    const uint64_t kept = usage > inactive + active ? usage - inactive - active : 0;
    return limit > kept ? limit - kept : 0;
}

/* The smallest rest of the group at `path` below `mount` and of the groups that contain it. In a
 * container `path` may be outside the container: then only `mount` itself exists, and it is the
 * group of the container. */
static uint64_t left_in_groups(const char *mount, const char *path, const group_files_t *files,
                               char *text)
{
    char folder[PATH_ROOM / 2];
    uint64_t least = UINT64_MAX;
    const size_t base = strlen(mount);
    if (snprintf(folder, sizeof folder, "%s%s", mount, path) >= (int)sizeof folder)
        folder[base] = 0;
    for (;;) {
        const uint64_t left = left_in(folder, files, text);
        if (left < least) least = left;
        char *slash = strrchr(folder + base, '/');
        if (!slash) return least;
        *slash = 0;
    }
}

/* A line of /proc/self/cgroup: "0::/path" (version 2) or "4:memory:/path" (version 1); other lines
 * do not concern memory. */
static uint64_t left_by_line(char *line, char *text)
{
    char *controllers = strchr(line, ':'),
         *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path) return UINT64_MAX;
    *path++ = 0;
    if (!*++controllers) return left_in_groups("/sys/fs/cgroup", path, &version_2, text);
    for (char *rest, *name = strtok_r(controllers, ",", &rest); name;
         name = strtok_r(NULL, ",", &rest))
        if (strcmp(name, "memory") == 0)
            return left_in_groups("/sys/fs/cgroup/memory", path, &version_1, text);
    return UINT64_MAX;
}

uint64_t fy__machine_available(void)
{
    char text[FILE_ROOM], groups[FILE_ROOM];
    uint64_t least = UINT64_MAX, kib;
    read_text("/proc/meminfo", text);
    if (number_of(text, "MemAvailable:", &kib)) least = kib * 1024;
    read_text("/proc/self/cgroup", groups);
    for (char *rest, *line = strtok_r(groups, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        const uint64_t left = left_by_line(line, text);
        if (left < least) least = left;
    }
    return least;
}

static uint64_t resident_nbytes(void)
{
    char text[FILE_ROOM];
    uint64_t pages = 0;
    read_text("/proc/self/statm", text);
    return sscanf(text, "%*u %" SCNu64, &pages) == 1 ? pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

/* ---- accounting ---- */

/* The bytes that a new segment may have if `held` bytes are reserved already. */
static uint64_t backed_beside(uint64_t held)
{
    uint64_t available, touched;
    if (said_nbytes) return said_nbytes > held ? said_nbytes - held : 0;
    available = fy__machine_available();
    if (available == UINT64_MAX) return available;
    touched = resident_nbytes();
    const uint64_t untouched = held > touched ? held - touched : 0;
    return available > untouched ? available - untouched : 0;
}

static bool draw_credit(uint64_t nbytes)
{
    uint64_t credit = atomic_load_explicit(&credit_nbytes, memory_order_relaxed);
    do {
        if (credit < nbytes) return false;
    } while (!atomic_compare_exchange_weak_explicit(&credit_nbytes, &credit, credit - nbytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

fy_status_t fy__machine_take(const char *who, uint64_t nbytes, fy__backing_t *backing)
{
    pthread_once(&once, read_environment);
    if (FY_UNLIKELY(atomic_load_explicit(&has_complaint, memory_order_relaxed)) &&
        atomic_exchange(&has_complaint, false))
        fy_log_write(FY_LOG_WARNING, "%s", complaint);
    backing->is_refused = false;
    const uint64_t held = atomic_fetch_add(&reserved_nbytes, nbytes);
    if (draw_credit(nbytes)) return FY_STATUS_OK;
    backing->nbytes = backed_beside(held);
    if (nbytes <= backing->nbytes) {
        const uint64_t credit = said_nbytes ? 0 : (backing->nbytes - nbytes) / CREDIT_SHARE;
        atomic_store(&credit_nbytes, credit < most_credit_nbytes ? credit : most_credit_nbytes);
        return FY_STATUS_OK;
    }
    atomic_fetch_sub(&reserved_nbytes, nbytes);
    backing->is_refused = true;
    return FY_FAIL(OUT_OF_MEMORY,
                   "%s: %llu bytes asked for: more than the %llu that this machine has available\n "
                   " Ask for less%s%s",
                   who, (unsigned long long)nbytes, (unsigned long long)backing->nbytes,
                   backing->hint ? ", or " : "", backing->hint ? backing->hint : "");
}

void fy__machine_give(uint64_t nbytes) { atomic_fetch_sub(&reserved_nbytes, nbytes); }

void fy__machine_set_root(const char *new_root)
{
    root = new_root;
    atomic_store(&credit_nbytes, 0);
}
