/* The log of convolutions that oneDNN should run and that run in plain loops instead, 10 to 100
 * times slower. Each shape is one line per process; after FY__SLOW_PATH_MOST shapes one last line
 * says that there are others.
 * Convolutions that are meant for plain loops are not logged: dtypes other than f32, and work so
 * small that starting a primitive costs more (conv.c). Products have no such case: oneDNN runs f32,
 * or, if it is tiny, dedicated loops (gemm_small.c). */
#ifndef FERRY_BACKENDS_KERNELS_SLOW_PATH_H_
#define FERRY_BACKENDS_KERNELS_SLOW_PATH_H_

#include "backends/kernels/conv.h"

enum { FY__SLOW_PATH_MOST = 64 };

/* Notes `shape`. 1: it was not noted before, and the caller logs it with the reason. Any thread. */
int fy__slow_path_is_new(const fy_host_api_t *host, const fy__conv_shape_t *shape);
/* The line: "conv2d 3x3, ... runs in plain loops, ...: `reason`". */
void fy__slow_path_log(const fy_host_api_t *host, const fy__conv_shape_t *shape,
                       const char *reason);
/* Forgets all noted shapes, for tests. No other thread may call fy__slow_path_is_new meanwhile. */
void fy__slow_path_forget(void);

#endif
