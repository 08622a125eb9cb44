/* Data-parallel training by one thread over several devices. Each device has a copy of the model
 * and gets a shard of each batch. The gradients are summed over all devices. */
#ifndef FERRY_TRAIN_PARALLEL_H_
#define FERRY_TRAIN_PARALLEL_H_

#include <ferry/train/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In place: each of the `count` tensors becomes the sum of all, with the same bits on all devices.
 * One tensor a device, of one dense shape and float dtype. By the devices' library
 * (fy_tensor_all_reduce), else by peer copies in the order of `tensors` (reduce-scatter,
 * all-gather: Patarasuk and Yuan 2009).
 * Peer traffic: 2 (count - 1) / count of a tensor's bytes out of each device; copies need half as
 * much scratch. Waits for nothing. Fails: DEVICE_MISMATCH (two on one device), SHAPE_MISMATCH,
 * DTYPE_MISMATCH, INVALID_ARGUMENT (not dense), OUT_OF_MEMORY, as fy_tensor_send. Nothing has
 * changed then, except if a guard allows only half of the traffic. */
FY_API_STATUS fy_allreduce_sum(size_t count, fy_tensor_t *const *tensors);
/* Copies the parameters and buffers of models[0] to all others, by peer transfers: the replicas
 * then have the same bits. Light on the host.
 * Fails: SHAPE_MISMATCH (another form), DEVICE_MISMATCH (two on one device), as
 * fy_tensor_send_into. */
FY_API_STATUS fy_models_replicate(size_t count, fy_model_t *const *models);
/* Copies the buffers alone: each replica computes the running statistics of its own shards, and
 * this makes them equal before an evaluation or a checkpoint. As fy_models_replicate. */
FY_API_STATUS fy_models_replicate_buffers(size_t count, fy_model_t *const *models);
/* Splits the rows of x [n, ...] (on the host) into `count` shards of equal length, the first ones
 * one row longer, and uploads shard i to devices[i]. All or nothing.
 * Fails: SHAPE_MISMATCH (fewer rows than devices), as fy_tensor_upload. */
FY_API_STATUS fy_batch_split(const fy_tensor_t *x, size_t count, fy_device_t *const *devices,
                             fy_tensor_t **out_shards);

#ifdef __cplusplus
}
#endif
#endif
