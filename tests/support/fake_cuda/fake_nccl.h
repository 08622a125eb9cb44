/* Shared by the files of the fake's NCCL. The fake's lock is held in all functions. */
#ifndef FERRY_TESTS_FAKE_NCCL_H_
#define FERRY_TESTS_FAKE_NCCL_H_

#include "tests/support/fake_cuda/fake.h"

typedef enum fake_nccl_kind {
    FAKE_NCCL_NONE,
    FAKE_NCCL_ALL_REDUCE,
    FAKE_NCCL_REDUCE_SCATTER,
    FAKE_NCCL_BROADCAST,
    FAKE_NCCL_ALL_GATHER,
    FAKE_NCCL_SEND,
    FAKE_NCCL_RECEIVE
} fake_nccl_kind_t;

typedef struct fake_nccl_call {
    fake_nccl_kind_t kind;
    int op, dtype, peer; /* peer: also the root */
    size_t nelem;        /* as NCCL counts for this kind */
    const void *from;
    void *to;
} fake_nccl_call_t;

struct fake_nccl_set;  /* of one process */
struct fake_nccl_link; /* between processes */
struct ncclComm {
    int device, rank, error;
    struct fake_nccl_set *set;
    struct fake_nccl_link *link; /* NULL: of a set */
};

struct ncclComm *fake_nccl_add(int device, int rank, struct fake_nccl_set *set);
/* The calls of this thread's open group. */
int fake_nccl_depth(void);
/* Moves bytes without waiting; returns 0, or FY__NCCL_IN_PROGRESS. */
int fake_nccl_progress(struct ncclComm *comm);
int fake_nccl_submit(struct ncclComm *comm, CUstream stream, const fake_nccl_call_t *call);
void fake_nccl_unlink(struct ncclComm *comm);

#endif
