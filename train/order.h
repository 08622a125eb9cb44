/* The order of samples: drawn by fy_randperm from a seed and an epoch, the same bits on every
 * device. Next: order.c. */
#ifndef FERRY_TRAIN_ORDER_H_
#define FERRY_TRAIN_ORDER_H_

#include <ferry/tensor.h>

/* i64 [count] on `device`, in the current scope: the permutation of the epoch-th fy_randperm (from
 * 0) on fy_rng_create(device, seed), without drawing the earlier ones. Light requests only. Fails:
 * INVALID_ARGUMENT (2^32 samples or more), as requests do. */
fy_status_t fyt_order_make(fy_device_t *device, int64_t seed, int64_t epoch, uint64_t count,
                           fy_tensor_t **out_order);
/* The same numbers in memory of the caller. */
fy_status_t fyt_order_read(int64_t seed, int64_t epoch, uint64_t count, int64_t *out_order);

#endif
