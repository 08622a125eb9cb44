/* Shared by the programs that test_ranks.sh starts by mpirun. */
#ifndef FERRY_TEST_RANKS_H_
#define FERRY_TEST_RANKS_H_

#include <stdio.h>
#include <stdlib.h>
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
