/* Sums over the open CUDA devices of this process, and calls with other processes, by NCCL. Not
 * here: finding it (nccl_library.h), sums by copies (train/parallel.c). */
#ifndef FERRY_BACKENDS_CUDA_NCCL_H_
#define FERRY_BACKENDS_CUDA_NCCL_H_

#include "backends/cuda/device.h"

/* The slot; see backend.h. */
fy_status_t fy__cuda_all_reduce(size_t count, void *const *devs, void *const *streams,
                                void *const *buffers, int32_t dtype, uint64_t nelem);
/* The communicator slots (nccl_ranks.c). */
fy_status_t fy__cuda_communicator_id(void *dev, void *id);
fy_status_t fy__cuda_communicator_open(void *dev, const void *id, int rank, int size,
                                       void **out_communicator);
fy_status_t fy__cuda_communicator_test(void *communicator, int *out_done);
fy_status_t fy__cuda_communicator_call(void *communicator, void *stream,
                                       const fy_backend_collective_t *call);
void fy__cuda_communicator_close(void *communicator, fy_backend_closing_t closing);
/* Checks whether NCCL has detected since the last call that a sum with `dev` will not end (a link
 * or a device is lost). If so, it aborts those sums, so that no call waits forever, marks their
 * devices as lost, and fails. Never blocks. Costs one load before the first sum. */
fy_status_t fy__cuda_nccl_check(fy__cuda_device_t *dev);
/* Fails: DEVICE_LOST. `code`: NCCL's, for which fy__cuda_device_t's `lost` is -code. */
fy_status_t fy__cuda_nccl_lost(const fy__cuda_device_t *dev, int code);
/* Is there any set of devices that `dev` is in? Then waits must look at it from time to time. */
int fy__cuda_nccl_is_used(const fy__cuda_device_t *dev);
/* The device is being closed; its work is done, or lost. */
void fy__cuda_nccl_forget(fy__cuda_device_t *dev);

#endif
