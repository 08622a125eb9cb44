/* Data-parallel training by one thread over several devices: each has a copy of the model, gets a
 * shard of each batch, and the gradients are added up over all of them. */
#ifndef FERRY_TRAIN_PARALLEL_H_
#define FERRY_TRAIN_PARALLEL_H_

#include <ferry/train/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In place: each of the `count` tensors, one a device, all of one dense shape and float dtype,
 * becomes the sum of all: [1, 1], [2, 2] -> [3, 3] on both. Bits are the same everywhere: each
 * element is summed once, in the order of `tensors`, by the device that has its piece
 * (reduce-scatter and all-gather in pieces, by peer transfers: Patarasuk and Yuan 2009); where the
 * devices have a library for that (cuda: NCCL, fy_tensor_all_reduce), by it: the same bits of two
 * devices, and of more its own order and no scratch. Moves 2 (count - 1) / count of a tensor's
 * bytes out of each device, counted as peer traffic; scratch of (count - 1) / count of them on
 * each. Light on the host: waits for nothing. count 1: nothing.
 * Fails: DEVICE_MISMATCH (two on one device), SHAPE_MISMATCH, DTYPE_MISMATCH, INVALID_ARGUMENT (not
 * dense), OUT_OF_MEMORY, as fy_tensor_send:
 * nothing has changed then, but for a guard that allows the first half of the traffic and not the
 * second. */
FY_API_STATUS fy_allreduce_sum(size_t count, fy_tensor_t *const *tensors);
/* Parameters of models[0] to all others, by peer transfers: replicas are bit-identical afterwards.
 * Light on the host.
 * Fails: SHAPE_MISMATCH (not the same form), DEVICE_MISMATCH (on one device), as
 * fy_tensor_send_into. */
FY_API_STATUS fy_models_replicate(size_t count, fy_model_t *const *models);
/* Rows of x [n, ...] (on the host) cut into `count` shards as equal as can be, the first ones
 * larger, each uploaded to devices[i].
 * All or nothing. Fails: SHAPE_MISMATCH (fewer rows than devices), as fy_tensor_upload. */
FY_API_STATUS fy_batch_split(const fy_tensor_t *x, size_t count, fy_device_t *const *devices,
                             fy_tensor_t **out_shards);

#ifdef __cplusplus
}
#endif
#endif
