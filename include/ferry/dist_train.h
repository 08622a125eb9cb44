/* Data-parallel training by a group of processes: each rank has a replica of the model and a shard
 * of each batch, and gradients are summed over the ranks. In libferry_dist.
 *
 *   loaders         rank and ranks of fy_loader_options_t: all ranks share one order, and `batch`
 *                   counts the samples of all. Uneven last batches are allowed
 *   fy_ddp_create   compares the models; then every replica has the bytes of rank 0
 *   fy_train_run    with `replicas` from fy_ddp_replicas: as one process with whole batches
 *
 * In your loop: the loss of a rank is the sum over its samples, divided by the samples of all
 * ranks. Behind the backward call fy_ddp_reduce, fy_ddp_clip_norm, fy_optimizer_step and
 * fy_ddp_share_values, and fy_train_save for checkpoints. Parameters then have the same bits on all
 * ranks. With `accumulate` of fy_backward_options_t, call fy_ddp_reduce once behind several
 * backward passes (PyTorch's no_sync). After 4 passes it moves a quarter of the bytes of 4 calls.
 * fy_ddp_backward, for the last pass before fy_ddp_reduce, sums gradients while it goes on. */
#ifndef FERRY_DIST_TRAIN_H_
#define FERRY_DIST_TRAIN_H_

#include <ferry/dist.h>
#include <ferry/train/trainer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* owned by the caller, never by a scope; used by the group's thread. Refers to group and model */
typedef struct fy_ddp fy_ddp_t;

typedef struct fy_ddp_options {
    size_t struct_size;
    /* Gradients are summed in buckets of whole parameters, in the order in which the backward
     * computes them, from the last to the first. A bucket ends with the parameter that brings it
     * to so many bytes. Tensors of a device need as many page-locked bytes as the largest bucket.
     * The size does not change the result */
    uint64_t first_bucket_nbytes, bucket_nbytes;
    /* 1: each rank has the optimizer's state of a part of the parameters, about 1 / ranks of all
     * (ZeRO stage 1: Rajbhandari et al. 2020). Gradients are reduce-scattered, parameters gathered
     * after the update: as many bytes as an all-reduce of the gradients. The result has the bits of
     * whole state; with clip_norm it is equal to rounding, as the norm is summed in another order
     */
    int64_t shard_optimizer;
    /* 1: fy_ddp_backward sums nothing, fy_ddp_reduce all. The result has the same bits */
    int64_t after_backward;
    /* The parameters that the backward reaches last, at most so many bytes, have a separate bucket
     * if there are others. No backward hides its sum, so it is small. 0: no such bucket */
    uint64_t last_bucket_nbytes;
    /* 1: batch norms in training have the statistics of all ranks' samples
     * (fy_model_sync_norms): the same running statistics and gradients as one process with the
     * whole batch, but for rounding. Each norm exchanges 1 + 2 C values in the forward, and 2 C in
     * the backward, where it waits for the buckets that are being summed. Every rank needs a sample
     * of each batch. 0: statistics of this rank's samples */
    int64_t sync_batch_norm;
} fy_ddp_options_t;
/* 1 MiB and 25 MiB as PyTorch's DistributedDataParallel (Li et al. 2020); the last: 256 KiB. */
#define FY_DDP_OPTIONS_INIT                                             \
    FY_DEFAULTS_(ddp_options, .first_bucket_nbytes = (uint64_t)1 << 20, \
                 .bucket_nbytes = (uint64_t)25 << 20, .last_bucket_nbytes = (uint64_t)256 << 10)
FY_API void fy_ddp_options_init(fy_ddp_options_t *options, size_t nbytes);

/* Compares the layers of all ranks' models. Then parameters, buffers and the random state become
 * those of rank 0; rank r adds r to the seed of the random state, so that dropout masks differ.
 * Calls fy_group_use_device with the model's device, unless the program has. options may be NULL.
 * Fails: INVALID_ARGUMENT (names the first line of fy_model_describe that differs), DTYPE_MISMATCH
 * (parameters are neither f32 nor f64), as fy_group_use_device and fy_group_broadcast. */
FY_API_STATUS fy_ddp_create(fy_group_t *group, fy_model_t *model, const fy_ddp_options_t *options,
                            fy_ddp_t **out_ddp);
/* Call it before fy_model_destroy and fy_group_close. Ends sync_batch_norm. NULL is ignored. */
FY_API void fy_ddp_destroy(fy_ddp_t *ddp);
/* fy_model_backward. Each bucket is summed as soon as its gradients are complete, while the
 * backward goes on: fy_group_all_reduce_async, in the order of the buckets. Gradients are undefined
 * until fy_ddp_reduce, which has to follow; on a device each bucket needs a copy until then. With
 * shard_optimizer, or without threads of the group, fy_ddp_reduce sums all of them.
 * Fails: BUSY (fy_ddp_reduce did not follow the last one), as fy_model_backward and the call. */
FY_API_STATUS fy_ddp_backward(fy_ddp_t *ddp, fy_tape_t *tape, const fy_tensor_t *loss,
                              const fy_backward_options_t *options);
/* The model's gradients become their sums over the ranks: fy_group_all_reduce of each bucket.
 * With shard_optimizer only those that this rank's optimizer updates: the others are undefined. */
FY_API_STATUS fy_ddp_reduce(fy_ddp_t *ddp);
/* As fy_grads_clip_norm, of the sums; with shard_optimizer the ranks exchange their norms. */
FY_API_STATUS fy_ddp_clip_norm(fy_ddp_t *ddp, double max_norm);
/* The optimizer of a rank: as fy_optimizer_create_model, or with shard_optimizer as
 * fy_optimizer_create_ranges of a part of each bucket, in multiples of 64 elements. Fails with
 * shard_optimizer: INVALID_ARGUMENT (loss scaling, a model too small for so many ranks),
 * UNSUPPORTED (LARS, LAMB). */
FY_API_STATUS fy_ddp_create_optimizer(fy_ddp_t *ddp, const fy_optimizer_options_t *options,
                                      fy_optimizer_t **out_optimizer);
/* Behind fy_optimizer_step: with shard_optimizer each rank gets the parameters that the others
 * have updated. */
FY_API_STATUS fy_ddp_share_values(fy_ddp_t *ddp);
/* The model's buffers become those of rank 0: without sync_batch_norm, running statistics are those
 * of each rank's shards until then. Call it before an evaluation or a checkpoint. */
FY_API_STATUS fy_ddp_share_buffers(fy_ddp_t *ddp);
/* Fills *out_replicas, which begins as FY_TRAIN_REPLICAS_INIT, for fy_train_options_t.replicas. It
 * is valid as long as `ddp`. Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_ddp_replicas(fy_ddp_t *ddp, fy_train_replicas_t *out_replicas);

typedef struct fy_ddp_info {
    size_t struct_size;
    uint64_t buckets, largest_bucket_nbytes;
    uint64_t reductions; /* calls of fy_ddp_reduce that succeeded */
} fy_ddp_info_t;
#define FY_DDP_INFO_INIT FY_ZEROED_(ddp_info)
/* Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_ddp_query(const fy_ddp_t *ddp, fy_ddp_info_t *out_info);

#ifdef __cplusplus
}
#endif
#endif
