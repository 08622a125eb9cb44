/* Inside of a data-parallel training: ddp.c has buckets and replicas, shard.c a part of the
 * optimizer's state for each rank, overlap.c sums during the backward. Next: ddp.c. */
#ifndef FERRY_DIST_DDP_H_
#define FERRY_DIST_DDP_H_

#include <ferry/dist_train.h>

#include "dist/group.h"

typedef struct fyd_bucket {
    size_t nparams;
    size_t missing;    /* gradients that this backward has not completed */
    fy_tensor_t *part; /* its elements while their sum runs; NULL: none does */
    fy_tensor_t *held; /* host: a view that keeps the block; it stays if MPI may use the bytes */
    fy_ticket_t ticket;
} fyd_bucket_t;

struct fy_ddp {
    fy_group_t *group;
    fy_model_t *model;
    fy_ddp_options_t options;
    fy_model_info_t info;
    int64_t *starts; /* bucket b is the gradients' elements [starts[b + 1], starts[b]) */
    fyd_bucket_t *buckets;
    size_t nbuckets, nstarted; /* the first ones: their sums run */
    uint64_t reductions;
};

/* Is the state divided? One rank has all of it. */
static inline bool fyd_shards(const fy_ddp_t *ddp)
{
    return ddp->options.shard_optimizer && ddp->group->transport.size > 1;
}

/* Waits for the sums that run. Gradients are complete in these buckets, and no sum runs. */
fy_status_t fyd_overlap_finish(fy_ddp_t *ddp);

/* The gradients of a bucket: this rank's elements become their sums over the ranks, the others
 * are undefined. */
fy_status_t fyd_shard_reduce(fy_ddp_t *ddp, size_t bucket);
/* Sends `part`, this rank's elements of a state on the host, to rank 0, whose `whole` gets all. */
fy_status_t fyd_shard_collect(fy_ddp_t *ddp, fy_tensor_t *part, fy_tensor_t *whole);

#endif
