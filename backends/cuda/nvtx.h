/* Ranges for profilers (NVTX 3, domain "ferry"): scopes of the program, uploads, downloads, copies,
 * replays. NVTX is headers only; without a tool that listens there is nothing but the look at one
 * word. Built without the toolkit's nvtx3/ headers, no tool ever listens. */
#ifndef FERRY_BACKENDS_CUDA_NVTX_H_
#define FERRY_BACKENDS_CUDA_NVTX_H_

#include <ferry/backend.h>

#include "backends/cuda/device.h"

/* Does a tool listen? Set once, when the first device opens. */
extern int fy__cuda_listened;

/* Looks for a tool, once a process: it is what NVTX_INJECTION64_PATH names, as profilers set it. */
void fy__cuda_nvtx_open(void);
/* Describes the attached tool, or that no tool is attached, or why none can be. Static. */
const char *fy__cuda_nvtx_state(void);
/* A range of this thread begins; NULL: the innermost ends. Only if a tool listens. */
void fy__cuda_range(const char *name);

static inline void fy__cuda_range_begin(const char *name)
{
    if (__builtin_expect(fy__cuda_listened, 0)) fy__cuda_range(name);
}
static inline void fy__cuda_range_end(void)
{
    if (__builtin_expect(fy__cuda_listened, 0)) fy__cuda_range(NULL);
}

/* The slot: fy__cuda_range, or NULL if no tool listens. */
fy_range_fn fy__cuda_ranges(void *dev);

/* ---- regions.c: device memory for tools that support NVTX's memory extension (compute-sanitizer).
 * A segment is a heap, in which only allocated blocks may be accessed, each block a region with a
 * name. Without such a tool the cost is one load for each segment. Segments that grow in place
 * (virtual.h) are not heaps, because NVTX's heaps have a constant size: a tool sees them as plain
 * memory ---- */

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
