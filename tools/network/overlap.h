/* A training step on several ranks, by the model clock: gradients are reduced in buckets while the
 * backward goes on; the update waits for the last one. Assumptions: all ranks run at the same
 * speed; sums run one after another beside the kernels, and slow nothing down; a bucket is a view
 * of the block of gradients (no copies); the mean costs nothing.
 * Sharded optimizer state (ZeRO stage 1: Rajbhandari et al., "ZeRO: Memory optimizations toward
 * training trillion parameter models", 2020): each bucket is reduce-scattered, each rank updates
 * its parts, the parameters are gathered after the update. The update's time is that of all
 * parameters: an upper bound.
 * Next: overlap.c. */
#ifndef FERRY_TOOLS_OVERLAP_H_
#define FERRY_TOOLS_OVERLAP_H_

#include <stddef.h>
#include <stdint.h>

#include "backends/sim/network.h"
#include "tools/cli/plan_models.h"

/* ---- network.c: what collectives cost on networks between ranks (backends/sim/network.h), by the
 * model clock: formulas of ring and tree, collectives of several nodes. Times are lower bounds:
 * full line rate, no other traffic, no cost of adding ---- */

/* clang-format off */
#define NETWORK_COLLECTIVES(X)                                                        \
    X(BROADCAST, "broadcast") X(ALL_REDUCE, "all_reduce")                             \
    X(REDUCE_SCATTER, "reduce_scatter") X(ALL_GATHER, "all_gather")
/* clang-format on */
typedef enum collective {
#define X(NAME, text) COLLECTIVE_##NAME,
    NETWORK_COLLECTIVES(X)
#undef X
        COLLECTIVE_COUNT
} collective_t;

#define ALGORITHMS "auto|ring|tree"
typedef enum algorithm { ALGORITHM_AUTO, ALGORITHM_RING, ALGORITHM_TREE } algorithm_t;

/* ranks is a multiple of nodes. */
typedef struct cluster {
    int64_t ranks, nodes;
    fy__sim_network_t inside, between; /* of one node; between nodes */
    algorithm_t algorithm;             /* AUTO: the faster one, in each phase */
} cluster_t;

typedef struct cost {
    uint64_t ns;
    /* that a rank sends: the mean of all ranks, rounded up in each phase */
    uint64_t inside_nbytes, between_nbytes;
} cost_t;

/* `nbytes`: of the whole tensor, as each rank has it before an all_reduce. */
cost_t network_cost(const cluster_t *cluster, collective_t collective, uint64_t nbytes);

/* ---- backward.c: when a training step completes each gradient, on the model clock of its plan:
 * read from the events of the planned step ---- */

/* A gradient. nbytes: in the model's block, with the gap behind it. */
typedef struct arrival {
    uint64_t ns, nbytes; /* ns: from the begin of the step */
} arrival_t;

typedef struct backward {
    arrival_t *arrivals; /* in the order of the backward */
    size_t count;
    uint64_t backward_ns, step_ns;   /* from the begin of the step to the end of each */
    uint64_t nbytes, element_nbytes; /* of all gradients; of one element */
    /* Optimizer state that has an element for each element of the gradients: tensors, their bytes
     * as allocated, and the sum of their element sizes */
    size_t nstates;
    uint64_t state_nbytes, state_element_nbytes;
} backward_t;

/* Plans the training step of a model, as fy_plan_step does, and records it in a file in /tmp, which
 * it removes. `options` may be NULL. Free *out_backward, also after a failure.
 * Fails: as fy_plan_step, BUSY (a recording is running), IO. */
fy_status_t backward_plan(const char *device, plan_request_t *request, int64_t batch,
                          const fy_plan_options_t *options, fy_plan_t *out_plan,
                          backward_t *out_backward);
void backward_free(backward_t *backward);

/* ---- gradient buckets, as of PyTorch's DistributedDataParallel (Li et al., "PyTorch Distributed",
 * VLDB 2020): the first is small, so that its sum starts early; so is the last one, whose sum
 * nothing can hide ---- */

#define BUCKET_FIRST_NBYTES (1ull << 20)
#define BUCKET_NBYTES       (25ull << 20)
#define BUCKET_LAST_NBYTES  (256ull << 10)

/* `nbytes` are the sizes of `count` gradients, in the order in which they are complete. A bucket
 * ends with the gradient that brings it to `first` bytes (the first bucket) or `most` bytes; the
 * last one with the last gradient. The last gradients of together at most `last` bytes have a
 * separate bucket, if there are others. out_end[b]: the number of gradients up to the end of bucket
 * b; it has room for `count`. Returns the number of buckets. */
size_t buckets_cut(size_t count, const uint64_t *nbytes, uint64_t first, uint64_t most,
                   uint64_t last, size_t *out_end);

/* ---- overlap.c ---- */

/* Elements: parts of a bucket, one for each rank, are multiples; the last ones may be shorter. */
enum { OVERLAP_PART = 32 };

typedef struct bucket {
    size_t gradients;
    uint64_t nbytes, ready_ns, begin_ns, end_ns; /* from the begin of the step */
} bucket_t;

typedef struct overlap {
    bucket_t *buckets;
    size_t count;
    uint64_t communication_ns; /* sum of all collectives */
    uint64_t step_ns;
    uint64_t exposed_ns;                    /* step_ns without the step of one rank */
    uint64_t inside_nbytes, between_nbytes; /* sent by a rank */
    /* Optimizer state of a rank as allocated, for each element of the gradients: whole, and with
     * shards */
    uint64_t state_nbytes, shard_nbytes;
} overlap_t;

/* bucket_nbytes: of a full bucket; the first one has BUCKET_FIRST_NBYTES at most,
 * the last one BUCKET_LAST_NBYTES. Free
 * *out_overlap. */
void overlap_run(const cluster_t *cluster, const backward_t *backward, uint64_t bucket_nbytes,
                 bool shard, overlap_t *out_overlap);
void overlap_free(overlap_t *overlap);
/* Percent of the communication that is not exposed; NaN without communication. */
double overlap_hidden(const overlap_t *overlap);

#endif
