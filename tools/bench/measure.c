/* Time, order statistics, progress, and allocation that ends the command if memory runs out. Not
 * here: the measured functions. */
#include "tools/cli/tool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

double median(double *values, size_t count)
{
    if (!count) return NAN;
    qsort(values, count, sizeof *values, compare_reals);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

double worst(const double *values, size_t count)
{
    double most = count ? values[0] : NAN;
    for (size_t i = 1; i < count; i++)
        if (values[i] > most) most = values[i];
    return most;
}

void progress(const char *what, int64_t done, int64_t total)
{
    if (!isatty(STDERR_FILENO)) return;
    if (done < total)
        fprintf(stderr, "\r\033[K%s %lld/%lld", what, (long long)done, (long long)total);
    else
        fprintf(stderr, "\r\033[K");
}

void *tool_alloc(size_t nbytes)
{
    void *memory = calloc(1, nbytes ? nbytes : 1);
    if (memory) return memory;
    fprintf(stderr, "ferry: no host memory for %zu bytes of results\n", nbytes);
    exit(STATUS_OUT_OF_MEMORY);
}

char *tool_copy_text(const char *text)
{
    const size_t nbytes = strlen(text) + 1;
    return memcpy(tool_alloc(nbytes), text, nbytes);
}

void *tool_grow(void *items, size_t count, size_t size)
{
    if (count & (count - 1)) return items;
    void *grown = tool_alloc((count ? 2 * count : 1) * size);
    if (count) memcpy(grown, items, count * size);
    free(items);
    return grown;
}

int status_to_exit(fy_status_t status)
{
    switch (status) {
    case FY_STATUS_OK: return STATUS_OK;
    case FY_STATUS_DEVICE_LOST: return STATUS_DEVICE_LOST;
    case FY_STATUS_OUT_OF_MEMORY:
    case FY_STATUS_PINNED_LIMIT: return STATUS_OUT_OF_MEMORY;
    case FY_STATUS_RANK_LOST: return STATUS_RANK_LOST;
    default: return STATUS_FAILED;
    }
}

int tool_end(fy_status_t status)
{
    if (status != FY_STATUS_OK)
        fprintf(stderr, "ferry: %s: %s\n", fy_status_name(status), fy_error_get()->text);
    return status_to_exit(status);
}
