/* The folder of a training's checkpoints: their names, the latest one, and deleting old ones. The
 * step in a name decides, not the clock of a disk. Not here: the content of a checkpoint
 * (checkpoint.c). */
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/c_locale.h"
#include "train/fail.h"

enum { MOST_NAME = 64 };

static void write_name(char name[MOST_NAME], int64_t step)
{
    snprintf(name, MOST_NAME, "step-%08lld.safetensors", (long long)step);
}

/* Accepts a name only if it equals the name that is written for its step. *out_rest is the rest
 * after it. */
static int read_name(const char *name, int64_t *out_step, const char **out_rest)
{
    char want[MOST_NAME];
    char *end;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9') return 0;
    errno = 0;
    *out_step = strtoll(name + 5, &end, 10);
    if (errno) return 0;
    write_name(want, *out_step);
    if (strncmp(name, want, strlen(want)) != 0) return 0;
    *out_rest = name + strlen(want);
    return 1;
}

/* ".4711-0.tmp" (runtime/base/replace.c) */
static int is_left_over(const char *rest)
{
    long process;
    int number, used = 0;
    return sscanf(rest, ".%ld-%d.tmp%n", &process, &number, &used) == 2 && used && !rest[used] &&
           process != (long)getpid();
}

static char *join(const char *directory, const char *name)
{
    const size_t room = strlen(directory) + strlen(name) + 2;
    char *path = malloc(room);
    if (path) snprintf(path, room, "%s/%s", directory, name);
    return path;
}

fy_status_t fyt_folder_path(const char *directory, int64_t step, char **out_path)
{
    char name[MOST_NAME];
    write_name(name, step);
    *out_path = join(directory, name);
    return *out_path ? FY_STATUS_OK
                     : FYT_FAIL(OUT_OF_MEMORY, "no host memory for the path of a checkpoint in %s",
                                directory);
}

fy_status_t fyt_folder_make(const char *directory)
{
    struct stat facts;
    if (mkdir(directory, 0777) == 0) return FY_STATUS_OK;
    if (errno != EEXIST)
        return FYT_FAIL(IO, "cannot make the folder %s: %s", directory, fy__strerror(errno));
    if (stat(directory, &facts) == 0 && S_ISDIR(facts.st_mode)) return FY_STATUS_OK;
    return FYT_FAIL(IO, "%s is there, but is no folder", directory);
}

static int latest_first(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Goes through the folder: lists steps, and deletes left-over files if requested. */
static fy_status_t scan(const char *directory, DIR *folder, int deletes_left_overs, int64_t **steps,
                        size_t *count)
{
    const struct dirent *entry;
    size_t room = 0;
    while (errno = 0, (entry = readdir(folder))) {
        int64_t step;
        const char *rest;
        if (!read_name(entry->d_name, &step, &rest)) continue;
        if (*rest) {
            if (deletes_left_overs && is_left_over(rest))
                unlinkat(dirfd(folder), entry->d_name,
                         0); /* if this fails, the next attempt may succeed */
            continue;
        }
        if (*count == room) {
            int64_t *larger = realloc(*steps, (room = room ? room * 2 : 16) * sizeof **steps);
            if (!larger) return FYT_FAIL(OUT_OF_MEMORY, "no host memory to list %s", directory);
            *steps = larger;
        }
        (*steps)[(*count)++] = step;
    }
    if (errno) return FYT_FAIL(IO, "cannot list %s: %s", directory, fy__strerror(errno));
    if (*count) qsort(*steps, *count, sizeof **steps, latest_first);
    return FY_STATUS_OK;
}

static fy_status_t list(const char *directory, int deletes_left_overs, int64_t **out_steps,
                        size_t *out_count)
{
    *out_steps = NULL;
    *out_count = 0;
    DIR *folder = opendir(directory);
    if (!folder) return FYT_FAIL(IO, "cannot list %s: %s", directory, fy__strerror(errno));
    const fy_status_t status = scan(directory, folder, deletes_left_overs, out_steps, out_count);
    closedir(folder);
    if (status == FY_STATUS_OK) return status;
    free(*out_steps);
    *out_steps = NULL;
    *out_count = 0;
    return status;
}

fy_status_t fyt_folder_list(const char *directory, int64_t **out_steps, size_t *out_count)
{
    return list(directory, 0, out_steps, out_count);
}

fy_status_t fyt_folder_trim(const char *directory, int keep, int64_t written)
{
    int64_t *steps;
    size_t count;
    FY_TRY(list(directory, 1, &steps, &count));
    fy_status_t status = FY_STATUS_OK;
    for (size_t i = (size_t)keep; steps && i < count; i++) {
        char name[MOST_NAME];
        write_name(name, steps[i]);
        if (steps[i] == written) continue;
        char *path = join(directory, name);
        if (!path && status == FY_STATUS_OK)
            status = FYT_FAIL(OUT_OF_MEMORY,
                              "the new checkpoint is written, but there is no host memory to "
                              "delete the old one %s/%s",
                              directory, name);
        if (path && unlink(path) && errno != ENOENT && status == FY_STATUS_OK)
            status = FYT_FAIL(
                IO, "the new checkpoint is written, but the old one %s cannot be deleted: %s", path,
                fy__strerror(errno));
        free(path);
    }
    free(steps);
    return status;
}
