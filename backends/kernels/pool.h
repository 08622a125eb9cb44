/* A pooling, or its gradient, as the two files that run it see it. pool.c decides and has loops for
 * any strides and dtypes, pool_dense.c vectors for dense f32. */
#ifndef FERRY_BACKENDS_KERNELS_POOL_H_
#define FERRY_BACKENDS_KERNELS_POOL_H_

#include "backends/kernels/family.h"

typedef struct fy__pool {
    const fy__loops_t *loops;
    const fy_launch_t *launch;
    /* x NULL: the gradient of an average without relu does not need it; y: of a gradient, dy */
    const fy_desc_t *x, *y;
    int64_t images, h, w, oh, ow, channels;
    int64_t kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w;
    int is_max, is_forward, relu, excludes_padding, accumulate;
} fy__pool_t;

/* pool_dense.c. 0: not dense f32, or windows that reach over the border or (gradients) into each
 * other; nothing was done. */
int fy__pool_dense(const fy__pool_t *pool);

#endif
