/* max_pool2d, avg_pool2d and their gradients, for any strides and float dtypes. Each task is a row
 * of pixels of the result. A gradient finds, for a pixel of x, the windows that contain it. So one
 * thread sums each result in one order, and no two threads write one element.
 * Not here: dense f32 (pool_dense.c), convolutions (conv.c). */
#include <math.h>

#include "opset/formulas/activation.h"
#include "opset/formulas/scalar.h"
#include "backends/kernels/image.h"
#include "backends/kernels/pool.h"

enum {
    CHANNELS = FY__IMAGE_CHANNELS,
    SERIAL = 4608 /* elements of windows that one thread reads in 20 us */
};

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

static double divisor(const fy__pool_t *pool, int64_t oh, int64_t ow)
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
static void find_largest(const fy__pool_t *pool, int64_t n, int64_t oh, int64_t ow, int64_t c,
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
    const fy__pool_t *pool = (const fy__pool_t *)context;
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

static void add_window(const fy__pool_t *pool, int64_t n, int64_t oh, int64_t ow, int64_t c,
                       int64_t nc, int64_t pixel, double *sums)
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
    const fy__pool_t *pool = (const fy__pool_t *)context;
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
    const fy__pool_t pool = { .loops = loops,
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
    if (fy__pool_dense(&pool)) return FY_STATUS_OK;
    const int64_t nrows = pool.images * (forward ? pool.oh : pool.h);
    const int64_t row = (fy__desc_nelem(y) / (nrows ? nrows : 1) + 1) * pool.kernel_h *
                        pool.kernel_w;
    fy__for_each(nrows, fy__threads_for(nrows * row, SERIAL), forward ? forward_row : backward_row,
                 &pool);
    return FY_STATUS_OK;
}
