/* What watching costs the calling thread: the same light request (an add of four floats, a new
 * result) plain, in a scope with a guard, and while every event is written to a file; interleaved
 * rounds in one process, medians, and the ratio to the plain one.
 * Not here: instructions (instructions.sh), other requests (`ferry bench dispatch`). */
#include <ferry/ferry.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 31, PLAIN = 0, GUARDED, RECORDED, WAYS };
static const char *const names[WAYS] = { "plain", "in a guarded scope", "recorded" };

/* The CPU's time for this thread: another program on the same processor does not add to it. */
static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static fy_status_t work(fy_tensor_t *a, fy_tensor_t *b, long count)
{
    for (long i = 0; i < count; i++) {
        fy_tensor_t *sum;
        FY_TRY(fy_add(a, b, &sum));
        fy_tensor_destroy(sum);
    }
    return FY_STATUS_OK;
}

/* One round: `count` requests, the device's work waited for outside the time. */
static fy_status_t once(fy_device_t *device, fy_tensor_t *a, fy_tensor_t *b, int way, long count,
                        const char *path, double *out_ns)
{
    const fy_guard_options_t guard = FY_GUARD_LIGHT_ONLY;
    fy_scope_t scope = fy_scope_begin("round");
    fy_status_t status = FY_STATUS_OK;
    if (way == GUARDED) status = fy_scope_guard(&guard);
    if (way == RECORDED) status = fy_ledger_record(path);
    const double begin = now_ns();
    if (status == FY_STATUS_OK) status = work(a, b, count);
    *out_ns = (now_ns() - begin) / (double)count;
    fy_scope_end(scope, 0, NULL);
    if (way == RECORDED && status == FY_STATUS_OK) status = fy_ledger_record(NULL);
    if (status == FY_STATUS_OK) status = fy_device_wait(device, FY_FOREVER);
    return status;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static fy_status_t run(const char *spec, long count, const char *path)
{
    static double ns[WAYS][ROUNDS];
    fy_device_t *device;
    fy_tensor_t *a, *b;
    FY_TRY(fy_device_open(spec, &device));
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(4), 1, &a));
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(4), 2, &b));
    FY_TRY(work(a, b, count));
    for (int r = 0; r < ROUNDS; r++)
        for (int way = 0; way < WAYS; way++)
            FY_TRY(once(device, a, b, way, count, path, &ns[way][r]));
    for (int way = 0; way < WAYS; way++) {
        qsort(ns[way], ROUNDS, sizeof ns[way][0], compare);
        printf("%-20s %8.1f ns   worst %8.1f   x %.3f\n", names[way], ns[way][ROUNDS / 2],
               ns[way][ROUNDS - 1], ns[way][ROUNDS / 2] / ns[PLAIN][ROUNDS / 2]);
    }
    fy_tensor_destroy(a);
    fy_tensor_destroy(b);
    fy_device_close(device);
    return FY_STATUS_OK;
}

int main(int argc, char **argv)
{
    const char *spec = argc > 1 ? argv[1] : "host", *path = argc > 3 ? argv[3] : "/dev/null";
    const long count = argc > 2 ? strtol(argv[2], NULL, 10) : 10000;
    if (argc > 4 || count < 1) {
        fprintf(stderr, "usage: %s [DEVICE [REQUESTS A ROUND [EVENT FILE]]]\n", argv[0]);
        return 2;
    }
    const fy_status_t status = run(spec, count, path);
    if (status != FY_STATUS_OK)
        fprintf(stderr, "%s: %s\n", fy_status_name(status), fy_error_get()->text);
    return status != FY_STATUS_OK;
}
