/* A training step on several ranks, by the model clock: gradients are reduced in buckets while the
 * backward goes on; the update waits for the last one. Assumptions: all ranks run at the same
 * speed; sums run one after another beside the kernels, and slow nothing down; a bucket is a view
 * of the block of gradients (no copies); the mean costs nothing.
 * Sharded optimizer state (ZeRO stage 1: Rajbhandari et al., "ZeRO: Memory optimizations toward
 * training trillion parameter models", 2020): each bucket is reduce-scattered, each rank updates
 * its parts, the parameters are gathered after the update. The update's time is that of all
 * parameters: an upper bound.
 * Not here: times of gradients (backward.h), of collectives (network.h). Next: overlap.c. */
#ifndef FERRY_TOOLS_OVERLAP_H_
#define FERRY_TOOLS_OVERLAP_H_

#include "tools/network/backward.h"
#include "tools/network/network.h"

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
