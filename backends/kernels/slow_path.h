/* Convolutions that oneDNN should run and that run in the plain loops instead, ten to a hundred times slower: each is one line of the log, once
 * per shape in a process, and after FY__SLOW_PATH_MOST of them one more line that there are others.
 * What is meant for the plain loops is not noted: dtypes other than f32, and work so small that starting a primitive costs more (conv.c).
 * Products have no such case: f32 is oneDNN's or, if tiny, of loops made for that (gemm_small.c). */
#ifndef FERRY_BACKENDS_KERNELS_SLOW_PATH_H_
#define FERRY_BACKENDS_KERNELS_SLOW_PATH_H_

#include "backends/kernels/conv.h"

enum { FY__SLOW_PATH_MOST = 64 };

/* 1: `shape` has not been noted, and now is: the caller finds the reason and logs it. Any thread. */
int fy__slow_path_is_new(const fy_host_api_t *host, const fy__conv_shape_t *shape);
/* The line: "conv2d 3x3, ... runs in plain loops, ...: `reason`". */
void fy__slow_path_log(const fy_host_api_t *host, const fy__conv_shape_t *shape, const char *reason);
/* Forgets what was noted: for tests. No other thread may be noting. */
void fy__slow_path_forget(void);

#endif
