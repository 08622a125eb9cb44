/* Shared by the programs that test_ranks.sh starts by mpirun. */
#ifndef FERRY_TEST_RANKS_H_
#define FERRY_TEST_RANKS_H_

#include <stdio.h>
#include <stdlib.h>

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

#endif
