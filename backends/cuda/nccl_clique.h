/* Cliques: an ordered set of devices of this process with one communicator of NCCL for each
 * (nccl.c); or one device that is a rank among those of several processes (nccl_ranks.c). */
#ifndef FERRY_BACKENDS_CUDA_NCCL_CLIQUE_H_
#define FERRY_BACKENDS_CUDA_NCCL_CLIQUE_H_

#include "backends/cuda/nccl.h"
#include "backends/cuda/nccl_library.h"

typedef struct fy__cuda_clique {
    size_t count;
    uint64_t nsums; /* that were submitted; they may be on their way */
    fy__cuda_device_t *devs[FY__CUDA_PEERS];
    fy__nccl_comm_t comms[FY__CUDA_PEERS];
    /* of a device among other processes: the pointer to this clique; set to NULL at its end */
    struct fy__cuda_clique **owner;
    struct fy__cuda_clique *next;
} fy__cuda_clique_t;

/* Guards the list, and is held over the calls of NCCL: two groups over the same devices from two
 * threads could wait for each other. It is held for all functions below. */
extern pthread_mutex_t fy__cuda_clique_lock;

void fy__cuda_clique_add(fy__cuda_clique_t *clique);
/* *out_done: nothing is in progress. After an error of NCCL as give_up. */
fy_status_t fy__cuda_clique_test(fy__cuda_clique_t *clique, int *out_done);
/* After a failure. Marks its devices as lost first, if it had sums, so that an aborted sum never
 * counts as done; then aborts and frees it. Fails. */
fy_status_t fy__cuda_clique_give_up(fy__cuda_clique_t *clique, int code, const char *call,
                                    int line);
void fy__cuda_clique_lose(fy__cuda_clique_t *clique, int code);
/* Takes it out of the list, ends its communicators and frees it. */
void fy__cuda_clique_end(fy__cuda_clique_t *clique, int abort);

/* The number that NCCL has for a dtype of a sum; -1: none. */
int fy__nccl_dtype(int32_t dtype);

#endif
