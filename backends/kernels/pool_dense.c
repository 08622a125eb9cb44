/* Pooling of dense f32 images, channels in vectors, where padding is 0 and all windows lie inside
 * the image: what networks do. Each task is a row of windows; gradients only of windows that do not
 * overlap, so that no two of them write one pixel. Sums of an average are f32 here: few terms, one
 * order.
 * Not here: the vectors (loops_image.h), everything else (pool.c). */
#include <string.h>

#include "backends/kernels/pool.h"

enum { SERIAL = 24576 }; /* elements of images that one thread reads in 20 us */

typedef struct task {
    const fy__pool_t *pool;
    fy__pool_row_fn run;
    float *out;
    const float *x, *dy;
} task_t;

/* Row-major without gaps; the stride of an axis of length 1 says nothing. */
static int is_dense_f32(const fy_desc_t *desc)
{
    int64_t stride = 1;
    if (desc->dtype != FY_DTYPE_F32) return 0;
    for (int axis = desc->rank - 1; axis >= 0; axis--) {
        if (desc->dims[axis] != 1 && desc->strides[axis] != stride) return 0;
        stride *= desc->dims[axis];
    }
    return 1;
}

static fy__pool_row_t row_of(const task_t *task, int64_t i)
{
    const fy__pool_t *p = task->pool;
    const int64_t n = i / p->oh, oh = i % p->oh, row = p->w * p->channels;
    const int64_t image = (n * p->h + oh * p->stride_h) * row, windows = i * p->ow * p->channels;
    return (fy__pool_row_t){ .x = task->x ? task->x + image : NULL,
                             .dy = task->dy ? task->dy + windows : NULL,
                             .out = task->out + (p->is_forward ? windows : image),
                             .count = p->ow,
                             .channels = p->channels,
                             .kernel_h = p->kernel_h,
                             .kernel_w = p->kernel_w,
                             .row = row,
                             .step = p->stride_w * p->channels,
                             .relu = p->relu,
                             .accumulate = p->accumulate };
}

static void forward_row(const void *context, int64_t i)
{
    const task_t *task = (const task_t *)context;
    const fy__pool_row_t row = row_of(task, i);
    task->run(&row);
}

/* The rows of pixels up to the next row of windows are this task's. Where no window is, the
 * gradient is 0. */
static void backward_row(const void *context, int64_t i)
{
    const task_t *task = (const task_t *)context;
    const fy__pool_t *p = task->pool;
    const fy__pool_row_t row = row_of(task, i);
    const int64_t oh = i % p->oh, end = oh + 1 == p->oh ? p->h : (oh + 1) * p->stride_h,
                  nrows = end - oh * p->stride_h;
    const int is_covered = nrows == p->kernel_h && p->stride_w == p->kernel_w &&
                           p->ow * p->stride_w == p->w;
    if (!is_covered && !p->accumulate)
        memset(row.out, 0, (size_t)(nrows * row.row) * sizeof(float));
    task->run(&row);
}

int fy__pool_dense(const fy__pool_t *pool)
{
    const fy__loops_t *loops = pool->loops;
    const fy_desc_t *dst = pool->launch->dst;
    const int overlaps = pool->stride_h < pool->kernel_h || pool->stride_w < pool->kernel_w;
    const int64_t height = (pool->oh - 1) * pool->stride_h + pool->kernel_h,
                  width = (pool->ow - 1) * pool->stride_w + pool->kernel_w;
    const int reaches_out = height > pool->h || width > pool->w; /* ceil_mode */
    if (pool->padding_h || pool->padding_w || reaches_out || (!pool->is_forward && overlaps) ||
        pool->kernel_h * pool->kernel_w > INT32_MAX)
        return 0;
    if ((pool->x && !is_dense_f32(pool->x)) || !is_dense_f32(pool->y) || !is_dense_f32(dst))
        return 0;
    const task_t task = { .pool = pool,
                          .run = pool->is_forward
                                     ? (pool->is_max ? loops->max_pool_f32 : loops->avg_pool_f32)
                                 : pool->is_max ? loops->max_pool_backward_f32
                                                : loops->avg_pool_backward_f32,
                          .out = (float *)dst->data,
                          .x = pool->x ? (const float *)pool->x->data : NULL,
                          .dy = pool->is_forward ? NULL : (const float *)pool->y->data };
    const int64_t nrows = pool->images * pool->oh;
    const int threads = fy__threads_for(pool->images * pool->h * pool->w * pool->channels,
                                        pool->is_forward ? SERIAL : SERIAL / 2);
    fy__for_each(nrows, threads, pool->is_forward ? forward_row : backward_row, &task);
    return 1;
}
