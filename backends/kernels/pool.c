/* max_pool2d, avg_pool2d and their gradients, for any strides and float dtypes. Each task is a row
 * of pixels of the result. A gradient finds, for a pixel of x, the windows that contain it. So one
 * thread sums each result in one order, and no two threads write one element. Dense f32 takes
 * vectors of channels. Not here: those vectors (loops_image.h), convolutions (conv.c). */
#include <math.h>
#include <string.h>

#include "opset/formulas/activation.h"
#include "opset/formulas/scalar.h"
#include "backends/kernels/family.h"
#include "backends/kernels/image.h"

enum {
    CHANNELS = FY__IMAGE_CHANNELS,
    SERIAL = 4608,       /* elements of windows that one thread reads in 20 us */
    SERIAL_DENSE = 24576 /* of images */
};

typedef struct pool {
    const fy__loops_t *loops;
    const fy_launch_t *launch;
    /* x NULL: the gradient of an average without relu does not need it; y: of a gradient, dy */
    const fy_desc_t *x, *y;
    int64_t images, h, w, oh, ow, channels;
    int64_t kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w;
    int is_max, is_forward, relu, excludes_padding, accumulate;
} pool_t;

typedef struct range {
    int64_t first, end;
} range_t;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The pixels of a window that are inside the image. */
static range_t window(int64_t at, int64_t stride, int64_t padding, int64_t kernel, int64_t size)
{
    const int64_t first = at * stride - padding;
    return (range_t){ first < 0 ? 0 : first, least(first + kernel, size) };
}

/* How many places of a window along one axis divide its sum: padding counts unless it is excluded,
 * places beyond the padding never do. */
static int64_t counted(int64_t at, int64_t stride, int64_t padding, int64_t kernel, int64_t size,
                       int excludes_padding)
{
    const int64_t first = at * stride - padding, edge = excludes_padding ? 0 : padding;
    return least(first + kernel, size + edge) - (first < -edge ? -edge : first);
}

static double divisor(const pool_t *pool, int64_t oh, int64_t ow)
{
    return (double)(counted(oh, pool->stride_h, pool->padding_h, pool->kernel_h, pool->h,
                            pool->excludes_padding) *
                    counted(ow, pool->stride_w, pool->padding_w, pool->kernel_w, pool->w,
                            pool->excludes_padding));
}

/* The windows that contain a pixel. */
static range_t windows_of(int64_t at, int64_t stride, int64_t padding, int64_t kernel,
                          int64_t count)
{
    /* windows that begin up to `before` end too early */
    const int64_t last = (at + padding) / stride, before = at + padding - kernel;
    return (range_t){ before < 0 ? 0 : before / stride + 1, least(last + 1, count) };
}

/* best = the larger of best and x, NaN above all; where it changed, place = where. */
static void take_larger(int64_t n, const double *x, double *best, int64_t *place, int64_t where)
{
    for (int64_t i = 0; i < n; i++) {
        const int better = x[i] > best[i] || (isnan(x[i]) && !isnan(best[i]));
        best[i] = better ? x[i] : best[i];
        place[i] = better ? where : place[i];
    }
}

/* The largest elements of a window, and the first pixels (row * width + column) that have them. */
static void find_largest(const pool_t *pool, int64_t n, int64_t oh, int64_t ow, int64_t c,
                         int64_t nc, double *best, int64_t *place)
{
    const range_t rows = window(oh, pool->stride_h, pool->padding_h, pool->kernel_h, pool->h),
                  columns = window(ow, pool->stride_w, pool->padding_w, pool->kernel_w, pool->w);
    double x[CHANNELS];
    fy__image_stage(pool->loops, pool->x, n, rows.first, columns.first, c, nc, best);
    for (int64_t i = 0; i < nc; i++) place[i] = rows.first * pool->w + columns.first;
    for (int64_t h = rows.first; h < rows.end; h++)
        for (int64_t w = columns.first; w < columns.end; w++) {
            fy__image_stage(pool->loops, pool->x, n, h, w, c, nc, x);
            take_larger(nc, x, best, place, h * pool->w + w);
        }
}

static void forward_row(const void *context, int64_t task)
{
    const pool_t *pool = (const pool_t *)context;
    const int64_t n = task / pool->oh, oh = task % pool->oh;
    const range_t rows = window(oh, pool->stride_h, pool->padding_h, pool->kernel_h, pool->h);
    double sums[CHANNELS], x[CHANNELS];
    int64_t place[CHANNELS];
    for (int64_t ow = 0; ow < pool->ow; ow++) {
        const range_t columns =
            window(ow, pool->stride_w, pool->padding_w, pool->kernel_w, pool->w);
        for (int64_t c = 0; c < pool->channels; c += CHANNELS) {
            const int64_t nc = least(CHANNELS, pool->channels - c);
            if (pool->is_max) {
                find_largest(pool, n, oh, ow, c, nc, sums, place);
                /* relu keeps order, so the largest of relu(x) is relu of the largest */
                if (pool->relu)
                    for (int64_t i = 0; i < nc; i++) sums[i] = fy__relu_f64(sums[i]);
            } else {
                for (int64_t i = 0; i < nc; i++) sums[i] = 0;
                for (int64_t h = rows.first; h < rows.end; h++)
                    for (int64_t w = columns.first; w < columns.end; w++) {
                        fy__image_stage(pool->loops, pool->x, n, h, w, c, nc, x);
                        for (int64_t i = 0; i < nc; i++)
                            sums[i] += pool->relu ? fy__relu_f64(x[i]) : x[i];
                    }
                const double count = divisor(pool, oh, ow);
                for (int64_t i = 0; i < nc; i++) sums[i] /= count;
            }
            fy__image_put(pool->loops, pool->y, n, oh, ow, c, nc, sums, 0);
        }
    }
}

static void add_window(const pool_t *pool, int64_t n, int64_t oh, int64_t ow, int64_t c, int64_t nc,
                       int64_t pixel, double *sums)
{
    double dy[CHANNELS], best[CHANNELS];
    int64_t place[CHANNELS];
    fy__image_stage(pool->loops, pool->y, n, oh, ow, c, nc, dy);
    if (!pool->is_max) {
        const double count = divisor(pool, oh, ow);
        for (int64_t i = 0; i < nc; i++) sums[i] += dy[i] / count;
        return;
    }
    find_largest(pool, n, oh, ow, c, nc, best, place);
    for (int64_t i = 0; i < nc; i++)
        sums[i] += place[i] != pixel ? 0
                   : pool->relu      ? fy__relu_backward_f64(dy[i], best[i])
                                     : dy[i];
}

static void backward_row(const void *context, int64_t task)
{
    const pool_t *pool = (const pool_t *)context;
    const int64_t n = task / pool->h, h = task % pool->h;
    const range_t rows = windows_of(h, pool->stride_h, pool->padding_h, pool->kernel_h, pool->oh);
    double sums[CHANNELS], x[CHANNELS];
    for (int64_t w = 0; w < pool->w; w++) {
        const range_t columns =
            windows_of(w, pool->stride_w, pool->padding_w, pool->kernel_w, pool->ow);
        for (int64_t c = 0; c < pool->channels; c += CHANNELS) {
            const int64_t nc = least(CHANNELS, pool->channels - c);
            for (int64_t i = 0; i < nc; i++) sums[i] = 0;
            for (int64_t oh = rows.first; oh < rows.end; oh++)
                for (int64_t ow = columns.first; ow < columns.end; ow++)
                    add_window(pool, n, oh, ow, c, nc, h * pool->w + w, sums);
            if (!pool->is_max && pool->relu) {
                fy__image_stage(pool->loops, pool->x, n, h, w, c, nc, x);
                for (int64_t i = 0; i < nc; i++) sums[i] = fy__relu_backward_f64(sums[i], x[i]);
            }
            fy__image_put(pool->loops, pool->launch->dst, n, h, w, c, nc, sums, pool->accumulate);
        }
    }
}

/* ---- dense f32 images, channels in vectors, where padding is 0 and all windows lie inside the
 * image: what networks do. Each task is a row of windows; gradients only of windows that do not
 * overlap, so that no two of them write one pixel. Sums of an average are f32 here: few terms, one
 * order. ---- */

typedef struct task {
    const pool_t *pool;
    fy__pool_row_fn run;
    float *out;
    const float *x, *dy;
} task_t;

static int is_dense_f32(const fy_desc_t *desc)
{
    return desc->dtype == FY_DTYPE_F32 && fy__desc_is_dense(desc);
}

static fy__pool_row_t row_of(const task_t *task, int64_t i)
{
    const pool_t *p = task->pool;
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

static void dense_forward_row(const void *context, int64_t i)
{
    const task_t *task = (const task_t *)context;
    const fy__pool_row_t row = row_of(task, i);
    task->run(&row);
}

/* The rows of pixels up to the next row of windows are this task's. Where no window is, the
 * gradient is 0. */
static void dense_backward_row(const void *context, int64_t i)
{
    const task_t *task = (const task_t *)context;
    const pool_t *p = task->pool;
    const fy__pool_row_t row = row_of(task, i);
    const int64_t oh = i % p->oh, end = oh + 1 == p->oh ? p->h : (oh + 1) * p->stride_h,
                  nrows = end - oh * p->stride_h;
    const int is_covered = nrows == p->kernel_h && p->stride_w == p->kernel_w &&
                           p->ow * p->stride_w == p->w;
    if (!is_covered && !p->accumulate)
        memset(row.out, 0, (size_t)(nrows * row.row) * sizeof(float));
    task->run(&row);
}

/* 0: not dense f32, or windows that reach over the border or (gradients) into each other; nothing
 * was done. */
static int run_dense(const pool_t *pool)
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
                                        pool->is_forward ? SERIAL_DENSE : SERIAL_DENSE / 2);
    fy__for_each(nrows, threads, pool->is_forward ? dense_forward_row : dense_backward_row, &task);
    return 1;
}

fy_status_t fy__run_pool2d(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch)
{
    /* those of a gradient begin alike */
    const fy_pool2d_attrs_t *attrs = (const fy_pool2d_attrs_t *)launch->attrs;
    const int forward = launch->op == FY_OP_MAX_POOL2D || launch->op == FY_OP_AVG_POOL2D;
    const fy_desc_t *image = forward ? launch->src : launch->dst,
                    *y = forward ? launch->dst : launch->src;
    (void)host;
    if (launch->nelem == 0) return FY_STATUS_OK;
    const pool_t pool = { .loops = loops,
                          .launch = launch,
                          .x = forward            ? launch->src
                               : launch->nsrc > 1 ? &launch->src[1]
                                                  : NULL,
                          .y = y,
                          .images = image->dims[0],
                          .h = image->dims[1],
                          .w = image->dims[2],
                          .oh = y->dims[1],
                          .ow = y->dims[2],
                          .channels = y->dims[3],
                          .kernel_h = attrs->kernel_h,
                          .kernel_w = attrs->kernel_w,
                          .stride_h = attrs->stride_h ? attrs->stride_h : attrs->kernel_h,
                          .stride_w = attrs->stride_w ? attrs->stride_w : attrs->kernel_w,
                          .padding_h = attrs->padding_h,
                          .padding_w = attrs->padding_w,
                          .is_max = launch->op == FY_OP_MAX_POOL2D ||
                                    launch->op == FY_OP_MAX_POOL2D_BACKWARD,
                          .is_forward = forward,
                          .relu = attrs->activation == FY_ACTIVATION_RELU,
                          .excludes_padding = attrs->count_excludes_padding,
                          .accumulate = (launch->accumulate & 1u) != 0 };
    if (run_dense(&pool)) return FY_STATUS_OK;
    const int64_t nrows = pool.images * (forward ? pool.oh : pool.h);
    const int64_t row = (fy__desc_nelem(y) / (nrows ? nrows : 1) + 1) * pool.kernel_h *
                        pool.kernel_w;
    fy__for_each(nrows, fy__threads_for(nrows * row, SERIAL), forward ? forward_row : backward_row,
                 &pool);
    return FY_STATUS_OK;
}
