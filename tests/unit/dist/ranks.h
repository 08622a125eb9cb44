/* Shared by the programs that test_ranks.sh starts by mpirun. */
#ifndef FERRY_TEST_RANKS_H_
#define FERRY_TEST_RANKS_H_

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <ferry/dist.h>
#include <ferry/ferry.h>

#define HOLDS(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "rank %d: %s:%d: %s (%s)\n", group.rank, __FILE__, __LINE__, \
                    #condition, fy_error_get()->text);                                   \
            exit(1); /* mpirun ends the others */                                        \
        }                                                                                \
    } while (0)
#define OK(call) HOLDS((call) == FY_STATUS_OK)

static fy_group_info_t group = FY_GROUP_INFO_INIT;
static fy_device_t *device;

static const float *fetch(const fy_tensor_t *tensor)
{
    fy_download_t *download;
    fy_tensor_t *host;
    void *data;
    OK(fy_tensor_download(tensor, NULL, &download));
    OK(fy_download_wait(download, FY_FOREVER, &host));
    OK(fy_tensor_map(host, FY_ACCESS_READ, &data));
    return data;
}

/* Of a program's begin: the group, its facts, the device and a scope. */
static inline fy_group_t *begin_rank(const fy_group_options_t *options, const char *spec,
                                     fy_scope_t *out_scope)
{
    fy_group_t *g;
    OK(fy_group_open(options, &g));
    OK(fy_group_query(g, &group));
    OK(fy_device_open(spec, &device));
    *out_scope = fy_scope_begin("test");
    return g;
}

static inline void end_rank(fy_group_t *g, fy_scope_t scope)
{
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    fy_group_close(g);
    printf("rank %d ends well\n", group.rank);
}

static inline int64_t length_of(const fy_tensor_t *tensor)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    OK(fy_tensor_query(tensor, &info));
    return (int64_t)info.nelem;
}

/* All ranks have the same bits. */
static inline void check_replicas(fy_group_t *g, fy_tensor_t *tensor)
{
    const fy_scope_t scope = fy_scope_begin("equal");
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    fy_tensor_t *all;
    OK(fy_tensor_query(tensor, &info));
    OK(fy_tensor_create(device, info.dtype, FY_DIMS((int64_t)info.nelem * group.size), &all));
    OK(fy_group_all_gather(g, all, tensor));
    const char *replicas = (const char *)fetch(all), *own = (const char *)fetch(tensor);
    for (int r = 0; r < group.size; r++)
        HOLDS(memcmp(replicas + (uint64_t)r * info.nbytes, own, info.nbytes) == 0);
    fy_scope_end(scope, 0, NULL);
}

/* |a - b| / |b|, of all elements. */
static inline double difference(const fy_tensor_t *a, const fy_tensor_t *b)
{
    const fy_scope_t scope = fy_scope_begin("difference");
    const int64_t n = length_of(a);
    fy_tensor_t *wide_a, *wide_b;
    double sum = 0, all = 0;
    OK(fy_cast(a, FY_DTYPE_F64, &wide_a));
    OK(fy_cast(b, FY_DTYPE_F64, &wide_b));
    const double *x = (const double *)(const void *)fetch(wide_a),
                 *y = (const double *)(const void *)fetch(wide_b);
    for (int64_t i = 0; i < n; i++) {
        sum += (x[i] - y[i]) * (x[i] - y[i]);
        all += y[i] * y[i];
    }
    HOLDS(all > 0);
    fy_scope_end(scope, 0, NULL);
    return sqrt(sum / all);
}

/* Waits until all ranks but `lost` and this one have reported (leave_together). */
static inline void wait_for_reports(int lost)
{
    enum { TRIES = 9000 }; /* 3 minutes */
    char path[600];
    const struct timespec pause = { .tv_nsec = 20000000 };
    for (int r = 0, tries = 0; r < group.size && tries < TRIES; tries++) {
        snprintf(path, sizeof path, "%s/rank.%d.reported", getenv("TMPDIR"), r);
        if (r == lost || r == group.rank || access(path, F_OK) == 0)
            r++;
        else
            nanosleep(&pause, NULL);
    }
}

/* mpirun ends all ranks when one leaves without MPI_Finalize, or is killed. So each rank stays
 * until all have reported but `lost`, the one that cannot (-1: all can). $TMPDIR is of this mpirun:
 * mpi.inc.sh. */
static inline void leave_together(int lost)
{
    char path[600];
    snprintf(path, sizeof path, "%s/rank.%d.reported", getenv("TMPDIR"), group.rank);
    FILE *file = fopen(path, "w");
    HOLDS(file && fclose(file) == 0);
    wait_for_reports(lost);
}

/* The last failure names this rank. */
static inline void expect_named(int rank)
{
    char want[32];
    snprintf(want, sizeof want, "rank %d (host ", rank);
    HOLDS(strstr(fy_error_get()->text, want));
}

/* And reports its silence, or that another rank did. */
static inline void expect_silent(int rank)
{
    expect_named(rank);
    HOLDS(strstr(fy_error_get()->text, "is silent for") ||
          strstr(fy_error_get()->text, "is lost, as rank"));
}

/* `lost`: the rank that does not report; -1: none. */
static inline void report(int lost)
{
    printf("rank %d: %s\n", group.rank, fy_error_get()->text);
    fflush(stdout);
    leave_together(lost);
}

/* One call of the group. */
static inline pid_t process_of(fy_group_t *g, int rank)
{
    fy_tensor_t *number, *numbers;
    void *data;
    OK(fy_tensor_create(fy_device_host(), FY_DTYPE_I64, FY_DIMS(1), &number));
    OK(fy_tensor_create(fy_device_host(), FY_DTYPE_I64, FY_DIMS(group.size), &numbers));
    OK(fy_tensor_map(number, FY_ACCESS_WRITE, &data));
    *(int64_t *)data = getpid();
    OK(fy_group_all_gather(g, numbers, number));
    OK(fy_tensor_map(numbers, FY_ACCESS_READ, &data));
    return (pid_t)((int64_t *)data)[rank];
}

#endif
