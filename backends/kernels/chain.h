/* Chains of elementwise ops in one pass; see chain.c and FY_LAUNCH_CHAIN in backend.h. */
#ifndef FERRY_BACKENDS_KERNELS_CHAIN_H_
#define FERRY_BACKENDS_KERNELS_CHAIN_H_

#include "backends/kernels/family.h"

/* 1: it is a chain that fy__run_chain takes. */
int fy__chain_supports(const fy_launch_t *launch);
fy_status_t fy__run_chain(const fy_host_api_t *host, const fy__loops_t *loops,
                          const fy_launch_t *launch);

#endif
