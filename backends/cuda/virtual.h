/* Device memory that grows where it stands (segments=virtual): addresses for all the device has are
 * reserved for a block, and memory is mapped behind the front part of them, step by step. Not here:
 * when a block grows (alloc/extend.c), other memory (memory.c). */
#ifndef FERRY_BACKENDS_CUDA_VIRTUAL_H_
#define FERRY_BACKENDS_CUDA_VIRTUAL_H_

#include "backends/cuda/device.h"

/* Sets dev->virtual_memory; the context is current. Fails: UNSUPPORTED (the device has no such
 * memory), OUT_OF_MEMORY. */
fy_status_t fy__cuda_virtual_open(fy__cuda_device_t *dev);
/* All blocks are back. NULL is ignored. */
void fy__cuda_virtual_close(fy__cuda_virtual_t *memory);
/* Step of growth; 0 for NULL. */
uint64_t fy__cuda_virtual_step(const fy__cuda_virtual_t *memory);
/* Is a block of this size one that can grow? 0 for NULL. */
int fy__cuda_virtual_takes(const fy__cuda_virtual_t *memory, uint64_t nbytes);
/* Of such a size; the context is current. */
fy_status_t fy__cuda_virtual_alloc(fy__cuda_device_t *dev, uint64_t nbytes,
                                   CUdeviceptr *out_address);
/* 0: it is no block of these. */
int fy__cuda_virtual_free(fy__cuda_device_t *dev, CUdeviceptr address);

#endif
