/* Device memory as tools see it that know NVTX's memory extension (compute-sanitizer): a segment is
 * a heap, in which only what was handed out may be touched, each block a region with a name.
 * Without such a tool there is nothing but the look at one word for each segment.
 * Segments that grow where they stand (virtual.h) are no heaps, because NVTX's heaps keep their
 * size: they are plain memory to a tool. */
#ifndef FERRY_BACKENDS_CUDA_REGIONS_H_
#define FERRY_BACKENDS_CUDA_REGIONS_H_

#include "backends/cuda/device.h"

/* Does a tool listen to heaps and regions? Set once, when the first device opens. */
extern int fy__cuda_regions_on;

/* Looks for a tool; `domain` is NVTX's, NULL the default one. Once a process. */
void fy__cuda_regions_open(void *domain);

/* A segment has come, or goes now. Only if a tool listens; a segment that there is no host memory
 * to note is no heap. */
void fy__cuda_heap_begin(const fy__cuda_device_t *dev, void *address, uint64_t nbytes);
void fy__cuda_heap_end(void *address);

/* The slot: what tells a block, or NULL if nobody listens. */
fy_region_fn fy__cuda_regions(void *dev);

#endif
