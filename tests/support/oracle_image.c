/* Oracle of ops that slide a window over images: for each pair of a pixel of y and a position in
 * the kernel, the pixel of x under it. One loop over all such pairs computes x, w or y; it shares
 * nothing with the kernels' index arithmetic.
 * Sums in long double; scale as in oracle_reduce.c. */
#include <math.h>

#include "tests/support/harness.h"
#include "tests/support/oracle.h"

typedef struct term_sums {
    long double *sum, *magnitude;
    int64_t *count;
} term_sums_t;

static void sums_make(term_sums_t *sums, uint64_t n)
{
    sums->sum = calloc(n + 1, sizeof *sums->sum);
    sums->magnitude = calloc(n + 1, sizeof *sums->magnitude);
    sums->count = calloc(n + 1, sizeof *sums->count);
    assert_true(sums->sum && sums->magnitude && sums->count);
}

static void sums_add(term_sums_t *sums, uint64_t k, double a, double b)
{
    sums->sum[k] += (long double)a * b;
    sums->magnitude[k] += fabsl((long double)a * b);
    sums->count[k]++;
}

static void sums_finish(term_sums_t *sums, ts_expected_t *out)
{
    for (uint64_t k = 0; k < out->value.nelem; k++) {
        out->value.f[k] = (double)sums->sum[k];
        out->scale[k] = (double)(sums->magnitude[k] * (sums->count[k] + 1));
    }
    free(sums->sum);
    free(sums->magnitude);
    free(sums->count);
}

static double relu(double x) { return x < 0 ? 0 : x; } /* NaN stays */

static uint64_t at4(const int64_t *dims, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    return (uint64_t)(((i0 * dims[1] + i1) * dims[2] + i2) * dims[3] + i3);
}

static void conv2d(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
                   ts_expected_t *out)
{
    const fy_conv2d_backward_attrs_t *back = attrs;
    const fy_conv2d_attrs_t *a =
        attrs; /* the structs of the gradients begin with the same fields */
    int64_t x[4], w[4], y[4];
    memcpy(op == FY_OP_CONV2D ? x : y, src[0].dims, sizeof x);
    memcpy(op == FY_OP_CONV2D_BACKWARD_WEIGHT ? x : w, src[1].dims, sizeof w);
    if (op == FY_OP_CONV2D) {
        y[0] = x[0], y[3] = w[0];
        y[1] = (x[1] + 2 * a->padding_h - a->dilation_h * (w[1] - 1) - 1) / a->stride_h + 1;
        y[2] = (x[2] + 2 * a->padding_w - a->dilation_w * (w[2] - 1) - 1) / a->stride_w + 1;
    } else if (op == FY_OP_CONV2D_BACKWARD_INPUT) {
        x[0] = y[0], x[1] = back->height, x[2] = back->width, x[3] = w[3] * a->groups;
    } else {
        w[0] = y[3], w[1] = back->height, w[2] = back->width, w[3] = x[3] / a->groups;
    }
    ts_expected_make(out, src[0].dtype, 4,
                     op == FY_OP_CONV2D                  ? y
                     : op == FY_OP_CONV2D_BACKWARD_INPUT ? x
                                                         : w);
    term_sums_t sums;
    sums_make(&sums, out->value.nelem);
    const int64_t npixels = y[0] * y[1] * y[2], nplaces = w[1] * w[2] * w[3], og = y[3] / a->groups;
    for (int64_t pixel = 0; pixel < npixels; pixel++) {
        const int64_t n = pixel / (y[1] * y[2]), oh = pixel / y[2] % y[1], ow = pixel % y[2];
        for (int64_t o = 0; o < y[3]; o++) {
            const uint64_t at_y = at4(y, n, oh, ow, o);
            if (nsrc == 3) sums_add(&sums, at_y, src[2].f[o], 1);
            for (int64_t place = 0; place < nplaces; place++) {
                const int64_t kh = place / (w[2] * w[3]), kw = place / w[3] % w[2],
                              c = place % w[3];
                const int64_t h = oh * a->stride_h + kh * a->dilation_h - a->padding_h,
                              v = ow * a->stride_w + kw * a->dilation_w - a->padding_w;
                if (h < 0 || v < 0 || h >= x[1] || v >= x[2]) continue;
                const uint64_t at_x = at4(x, n, h, v, o / og * w[3] + c),
                               at_w = at4(w, o, kh, kw, c);
                if (op == FY_OP_CONV2D) sums_add(&sums, at_y, src[0].f[at_x], src[1].f[at_w]);
                if (op == FY_OP_CONV2D_BACKWARD_INPUT)
                    sums_add(&sums, at_x, src[0].f[at_y], src[1].f[at_w]);
                if (op == FY_OP_CONV2D_BACKWARD_WEIGHT)
                    sums_add(&sums, at_w, src[0].f[at_y], src[1].f[at_x]);
            }
        }
    }
    sums_finish(&sums, out);
    for (uint64_t k = 0;
         k < out->value.nelem && op == FY_OP_CONV2D && a->activation == FY_ACTIVATION_RELU; k++)
        out->value.f[k] = relu(out->value.f[k]);
}

/* How many windows lie along an axis. Window i begins at i stride - padding. Floored, each one ends
 * before the end of the padding. With ceil_mode there are so many that they reach that end, less
 * those that would begin behind the image. */
static int64_t pool_count(int64_t size, int64_t kernel, int64_t stride, int64_t padding, bool ceils)
{
    int64_t count = 0;
    for (int64_t first = -padding;; first += stride, count++) {
        if (!ceils && first + kernel > size + padding) return count;
        if (ceils && (first >= size || first - stride + kernel >= size + padding)) return count;
    }
}

/* One over the number of places of the window from (h, w) on that an average counts. */
static double pool_share(const fy_pool2d_attrs_t *a, const int64_t *x, int64_t h, int64_t w)
{
    const int64_t ph = a->count_excludes_padding ? 0 : a->padding_h,
                  pw = a->count_excludes_padding ? 0 : a->padding_w;
    int64_t count = 0;
    for (int64_t i = h; i < h + a->kernel_h; i++)
        for (int64_t j = w; j < w + a->kernel_w; j++)
            count += i >= -ph && i < x[1] + ph && j >= -pw && j < x[2] + pw;
    return 1.0 / (double)count;
}

/* One loop over windows, one for each element of y, and their positions. */
static void pool2d(fy_op_t op, const ts_array_t *src, const void *attrs, ts_expected_t *out)
{
    const fy_pool2d_attrs_t *a =
        attrs; /* the structs of the gradients begin with the same fields */
    const fy_pool2d_backward_attrs_t *back = attrs;
    const bool is_max = op == FY_OP_MAX_POOL2D || op == FY_OP_MAX_POOL2D_BACKWARD,
               forward = op == FY_OP_MAX_POOL2D || op == FY_OP_AVG_POOL2D;
    const int64_t sh = a->stride_h ? a->stride_h : a->kernel_h,
                  sw = a->stride_w ? a->stride_w : a->kernel_w;
    const bool of_relu = a->activation == FY_ACTIVATION_RELU;
    int64_t x[4], y[4];
    memcpy(x, src[op == FY_OP_MAX_POOL2D_BACKWARD].dims, sizeof x);
    if (op == FY_OP_AVG_POOL2D_BACKWARD) x[1] = back->height, x[2] = back->width;
    memcpy(y, x, sizeof y);
    y[1] = pool_count(x[1], a->kernel_h, sh, a->padding_h, a->ceil_mode);
    y[2] = pool_count(x[2], a->kernel_w, sw, a->padding_w, a->ceil_mode);
    ts_expected_make(out, src[0].dtype, 4, forward ? y : x);
    term_sums_t sums;
    sums_make(&sums, out->value.nelem);
    const uint64_t nwindows = (uint64_t)(y[0] * y[1] * y[2] * y[3]);
    for (uint64_t k = 0; k < nwindows; k++) {
        int64_t at[4];
        ts_unravel(k, 4, y, at);
        bool found = false;
        uint64_t best = 0;
        const double share = pool_share(a, x, at[1] * sh - a->padding_h, at[2] * sw - a->padding_w);
        for (int64_t place = 0; place < (int64_t)a->kernel_h * a->kernel_w; place++) {
            const int64_t h = at[1] * sh - a->padding_h + place / a->kernel_w,
                          w = at[2] * sw - a->padding_w + place % a->kernel_w;
            if (h < 0 || w < 0 || h >= x[1] || w >= x[2]) continue;
            const uint64_t at_x = at4(x, at[0], h, w, at[3]);
            if (op == FY_OP_AVG_POOL2D)
                sums_add(&sums, k, of_relu ? relu(src[0].f[at_x]) : src[0].f[at_x], share);
            /* the slope at NaN is 1 */
            const bool is_flat = of_relu && !forward && src[1].f[at_x] <= 0;
            if (op == FY_OP_AVG_POOL2D_BACKWARD && !is_flat)
                sums_add(&sums, at_x, src[0].f[k], share);
            if (!is_max) continue;
            const double *values = src[!forward].f;
            if (!found || values[at_x] > values[best] ||
                (isnan(values[at_x]) && !isnan(values[best])))
                best = at_x;
            found = true;
        }
        if (op == FY_OP_MAX_POOL2D_BACKWARD && !(of_relu && src[1].f[best] <= 0))
            sums_add(&sums, best, src[0].f[k], 1);
        if (op == FY_OP_MAX_POOL2D) sums.sum[k] = of_relu ? relu(src[0].f[best]) : src[0].f[best];
    }
    sums_finish(&sums, out); /* a maximum has no terms: it is exact */
}

/* The weight of pixel i of `in` in pixel o of `out`, of axes of these lengths. */
static double resample_weight(bool pools, int64_t i, int64_t in, int64_t o, int64_t out)
{
    if (pools) {
        const int64_t first = o * in / out, end = ((o + 1) * in + out - 1) / out;
        return i >= first && i < end ? 1.0 / (double)(end - first) : 0;
    }
    const long double at = fmaxl((o + 0.5L) * in / out - 0.5L, 0), rest = at - floorl(at);
    const int64_t first = (int64_t)at, second = first + 1 < in ? first + 1 : first;
    return (double)((i == first ? 1 - rest : 0) + (i == second ? rest : 0));
}

/* One loop over pairs of a pixel of x and a pixel of y. */
static void resample2d(fy_op_t op, const ts_array_t *src, const void *attrs, ts_expected_t *out)
{
    const fy_image_size_attrs_t *size = attrs;
    const bool pools = op == FY_OP_ADAPTIVE_AVG_POOL2D || op == FY_OP_ADAPTIVE_AVG_POOL2D_BACKWARD,
               forward = op == FY_OP_RESIZE2D || op == FY_OP_ADAPTIVE_AVG_POOL2D;
    const int64_t dims[4] = { src->dims[0], size->height, size->width, src->dims[3] };
    const int64_t *x = forward ? src->dims : dims, *y = forward ? dims : src->dims;
    ts_expected_make(out, src->dtype, 4, dims);
    term_sums_t sums;
    sums_make(&sums, out->value.nelem);
    for (int64_t pair = 0; pair < x[1] * x[2] * y[1] * y[2]; pair++) {
        const int64_t h = pair / (y[1] * y[2]) / x[2], w = pair / (y[1] * y[2]) % x[2],
                      oh = pair / y[2] % y[1], ow = pair % y[2];
        const double weight = resample_weight(pools, h, x[1], oh, y[1]) *
                              resample_weight(pools, w, x[2], ow, y[2]);
        for (int64_t k = 0; k < dims[0] * dims[3] && weight != 0; k++) {
            const int64_t n = k / dims[3], c = k % dims[3];
            const uint64_t at_x = at4(x, n, h, w, c), at_y = at4(y, n, oh, ow, c);
            sums_add(&sums, forward ? at_y : at_x, src->f[forward ? at_x : at_y], weight);
        }
    }
    sums_finish(&sums, out);
}

bool ts_oracle_image(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
                     ts_expected_t *out)
{
    switch (op) {
    case FY_OP_CONV2D:
    case FY_OP_CONV2D_BACKWARD_INPUT:
    case FY_OP_CONV2D_BACKWARD_WEIGHT: conv2d(op, nsrc, src, attrs, out); return true;
    case FY_OP_CONV2D_BACKWARD_PARAMS:
        conv2d(FY_OP_CONV2D_BACKWARD_WEIGHT, nsrc, src, attrs, out);
        return true;
    case FY_OP_MAX_POOL2D:
    case FY_OP_MAX_POOL2D_BACKWARD:
    case FY_OP_AVG_POOL2D:
    case FY_OP_AVG_POOL2D_BACKWARD: pool2d(op, src, attrs, out); return true;
    case FY_OP_RESIZE2D:
    case FY_OP_RESIZE2D_BACKWARD:
    case FY_OP_ADAPTIVE_AVG_POOL2D:
    case FY_OP_ADAPTIVE_AVG_POOL2D_BACKWARD: resample2d(op, src, attrs, out); return true;
    default: return false;
    }
}
