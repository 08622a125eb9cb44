/* Device memory for tools that support NVTX's memory extension (compute-sanitizer): a segment is a
 * heap, in which only allocated blocks may be accessed, each block a region with a name. Without
 * such a tool the cost is one load for each segment.
 * Segments that grow in place (virtual.h) are not heaps, because NVTX's heaps have a constant size:
 * a tool sees them as plain memory. */
#ifndef FERRY_BACKENDS_CUDA_REGIONS_H_
#define FERRY_BACKENDS_CUDA_REGIONS_H_

#include "backends/cuda/device.h"

/* Does a tool listen to heaps and regions? Set once, when the first device opens. */
extern int fy__cuda_regions_on;

/* Looks for a tool; `domain` is NVTX's, NULL the default one. Once a process. */
void fy__cuda_regions_open(void *domain);

/* A segment was allocated, or will be freed now. Only if a tool is attached; a segment for which
 * host memory runs out is not a heap. */
void fy__cuda_heap_begin(const fy__cuda_device_t *dev, void *address, uint64_t nbytes);
void fy__cuda_heap_end(void *address);

/* The slot: the function that reports a block, or NULL if no tool is attached. */
fy_region_fn fy__cuda_regions(void *dev);

#endif
