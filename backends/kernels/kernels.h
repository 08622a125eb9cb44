/* Portable kernels for every op of the table, used by the host backend directly and by sim on its
 * shadow memory.
 * Not here: which op may be called how (the dispatcher has checked all of that), and any
 * allocation: scratch comes in launch->workspace.
 * Start with dispatch.c (table from op to family), then the family you need. */
#ifndef FERRY_BACKENDS_KERNELS_H_
#define FERRY_BACKENDS_KERNELS_H_

#include <ferry/backend.h>

/* Runs `launch` to completion on the calling thread (and OpenMP's team when it is large). Every
 * pointer in it is host memory.
 * UNSUPPORTED, through host->fail, if there is no kernel; nothing was written then. */
fy_status_t fy__kernels_launch(const fy_host_api_t *host, const fy_launch_t *launch);
int fy__kernels_supports(const fy_launch_t *launch);
uint64_t fy__kernels_workspace(const fy_launch_t *launch, uint64_t limit);
/* Facts for `ferry info`: "onednn" (the version that is loaded), "onednn_threads", "onednn_isa";
 * "last_product" (last_product.h) if there was one. */
void fy__kernels_describe(fy_fact_fn say, void *user);

#endif
