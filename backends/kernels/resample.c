/* resize2d, adaptive_avg_pool2d and their gradients, for any strides and float dtypes. Each task is
 * a row of pixels of the result; each result is summed in f64 by one thread in one order.
 * Not here: which pixels, and their weights (opset/formulas/resample.h). */
#include "opset/formulas/resample.h"
#include "backends/kernels/image.h"

enum {
    CHANNELS = FY__IMAGE_CHANNELS,
    SERIAL = 4608 /* elements that one thread reads in 20 us */
};

typedef struct resample {
    const fy__loops_t *loops;
    const fy_desc_t *src, *dst;
    fy__taps_t rows, columns;
    int accumulate;
} resample_t;

/* sums[i] of a pixel of the result, of channels c .. c + nc - 1. */
static void sum_taps(const resample_t *r, int64_t n, int64_t h, int64_t w, int64_t c, int64_t nc,
                     double *sums)
{
    const fy__span_t rows = fy__taps_span(&r->rows, h), columns = fy__taps_span(&r->columns, w);
    double x[CHANNELS];
    for (int64_t i = 0; i < nc; i++) sums[i] = 0;
    for (int64_t from_h = rows.first; from_h < rows.end; from_h++) {
        const double weight_h = fy__taps_weight(&r->rows, h, from_h);
        for (int64_t from_w = columns.first; from_w < columns.end; from_w++) {
            const double weight = weight_h * fy__taps_weight(&r->columns, w, from_w);
            if (weight == 0) continue; /* the pixel may be infinite */
            fy__image_stage(r->loops, r->src, n, from_h, from_w, c, nc, x);
            for (int64_t i = 0; i < nc; i++) sums[i] += weight * x[i];
        }
    }
}

static void resample_row(const void *context, int64_t task)
{
    const resample_t *r = (const resample_t *)context;
    const int64_t n = task / r->dst->dims[1], h = task % r->dst->dims[1];
    double sums[CHANNELS];
    for (int64_t w = 0; w < r->dst->dims[2]; w++)
        for (int64_t c = 0; c < r->dst->dims[3]; c += CHANNELS) {
            const int64_t left = r->dst->dims[3] - c, nc = left < CHANNELS ? left : CHANNELS;
            sum_taps(r, n, h, w, c, nc, sums);
            fy__image_put(r->loops, r->dst, n, h, w, c, nc, sums, r->accumulate);
        }
}

static fy__taps_t taps_of(const fy_launch_t *launch, int axis)
{
    const int backward = launch->op == FY_OP_RESIZE2D_BACKWARD ||
                         launch->op == FY_OP_ADAPTIVE_AVG_POOL2D_BACKWARD;
    const int64_t src = launch->src->dims[axis], dst = launch->dst->dims[axis];
    return (fy__taps_t){ .in = backward ? dst : src,
                         .out = backward ? src : dst,
                         .pools = launch->op == FY_OP_ADAPTIVE_AVG_POOL2D ||
                                  launch->op == FY_OP_ADAPTIVE_AVG_POOL2D_BACKWARD,
                         .backward = backward };
}

fy_status_t fy__run_resample2d(const fy_host_api_t *host, const fy__loops_t *loops,
                               const fy_launch_t *launch)
{
    const fy_desc_t *dst = launch->dst;
    (void)host;
    if (launch->nelem == 0) return FY_STATUS_OK;
    const resample_t resample = { .loops = loops,
                                  .src = launch->src,
                                  .dst = dst,
                                  .rows = taps_of(launch, 1),
                                  .columns = taps_of(launch, 2),
                                  .accumulate = (launch->accumulate & 1u) != 0 };
    const int64_t reads = 4 * (int64_t)launch->nelem + fy__desc_nelem(launch->src);
    fy__for_each(dst->dims[0] * dst->dims[1], fy__threads_for(reads, SERIAL), resample_row,
                 &resample);
    return FY_STATUS_OK;
}
