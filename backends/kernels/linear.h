/* What the files of linear share: linear.c decides and has the f32 and f64 kernels. */
#ifndef FERRY_BACKENDS_KERNELS_LINEAR_H_
#define FERRY_BACKENDS_KERNELS_LINEAR_H_

#include "backends/kernels/family.h"

/* linear_half.c: its scratch (0: there is none), and the run. UNSUPPORTED without a word: nothing
 * was written. */
uint64_t fy__linear_half_nbytes(const fy_launch_t *launch, uint64_t limit);
fy_status_t fy__linear_half_run(const fy_host_api_t *host, const fy__loops_t *loops,
                                const fy_launch_t *launch);

#endif
