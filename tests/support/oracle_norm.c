/* Oracle of normalisation: all results, from the formulas in long double. The variance is the mean
 * of squared differences from the mean, in two passes. */
#include <math.h>

#include "tests/support/harness.h"
#include "tests/support/oracle.h"

/* Rounding errors of a sum of a block of 32 rows, and a few more. */
#define SUMMED 40

typedef struct channel {
    long double mean, m2, magnitude; /* magnitude: the mean of |x| */
} channel_t;

static uint64_t columns_of(const ts_array_t *x) { return (uint64_t)x->dims[x->rank - 1]; }

static channel_t statistics(const ts_array_t *x, uint64_t c)
{
    const uint64_t columns = columns_of(x), n = x->nelem / columns;
    channel_t s = { 0 };
    for (uint64_t i = 0; i < n; i++) {
        s.mean += x->f[i * columns + c];
        s.magnitude += fabs(x->f[i * columns + c]);
    }
    s.mean /= n;
    s.magnitude /= n;
    for (uint64_t i = 0; i < n; i++) {
        const long double d = x->f[i * columns + c] - s.mean;
        s.m2 += d * d;
    }
    return s;
}

/* y of one channel. `error`: of the mean, in rounding errors. */
static void apply(const ts_array_t *x, uint64_t c, long double mean, long double rstd,
                  double weight, double bias, const ts_array_t *residual, int32_t activation,
                  double error, ts_expected_t *out)
{
    const uint64_t columns = columns_of(x);
    for (uint64_t k = c; k < x->nelem; k += columns) {
        const long double z = (x->f[k] - mean) * rstd;
        const double added = residual ? residual->f[k] : 0,
                     value = (double)(z * weight + bias + added);
        out->value.f[k] = activation == FY_ACTIVATION_RELU && value < 0 ? 0 : value;
        out->scale[k] = SUMMED * fabs((double)z * weight) + fabs(bias) + fabs(added) +
                        error * (double)rstd * fabs(weight);
        if (!isfinite(out->scale[k])) out->scale[k] = 0;
    }
}

static void batch_norm(size_t nsrc, const ts_array_t *src, const fy_batch_norm_attrs_t *attrs,
                       const ts_array_t *given, ts_expected_t *out)
{
    const ts_array_t *x = &src[0];
    const uint64_t columns = columns_of(x);
    const double n = columns ? (double)(x->nelem / columns) : 0, m = attrs->momentum;
    for (int i = 0; i < 5; i++)
        ts_expected_make(&out[i], i ? src[1].dtype : x->dtype, i ? 1 : x->rank,
                         i ? &x->dims[x->rank - 1] : x->dims);
    for (uint64_t c = 0; c < columns; c++) {
        const channel_t s = statistics(x, c);
        const long double variance = s.m2 / n, rstd = 1 / sqrtl(variance + attrs->eps);
        const double results[5] = { 0, (double)s.mean, (double)rstd,
                                    (double)((1 - m) * given[3].f[c] + m * s.mean),
                                    (double)((1 - m) * given[4].f[c] + m * s.m2 / (n - 1)) };
        const double scales[5] = { 0, SUMMED * (double)s.magnitude, SUMMED * (double)rstd,
                                   fabs((1 - m) * given[3].f[c]) + m * (double)s.magnitude,
                                   fabs((1 - m) * given[4].f[c]) +
                                       SUMMED * m * (double)s.m2 / (n - 1) };
        for (int i = 1; i < 5; i++) {
            out[i].value.f[c] = results[i];
            out[i].scale[c] = scales[i];
        }
        apply(x, c, s.mean, rstd, src[1].f[c], src[2].f[c], nsrc == 4 ? &src[3] : NULL,
              attrs->activation, (double)s.magnitude, &out[0]);
    }
}

static void batch_norm_inference(size_t nsrc, const ts_array_t *src,
                                 const fy_batch_norm_inference_attrs_t *attrs, ts_expected_t *out)
{
    const ts_array_t *x = &src[0];
    ts_expected_make(out, x->dtype, x->rank, x->dims);
    for (uint64_t c = 0; c < columns_of(x); c++)
        apply(x, c, src[3].f[c], 1 / sqrtl(src[4].f[c] + (long double)attrs->eps), src[1].f[c],
              src[2].f[c], nsrc == 6 ? &src[5] : NULL, attrs->activation, fabs(src[3].f[c]), out);
}

static void batch_norm_backward(size_t nsrc, const ts_array_t *src, ts_expected_t *out)
{
    const ts_array_t *dy = &src[0], *x = &src[1], *y = nsrc == 6 ? &src[5] : NULL;
    const uint64_t columns = columns_of(x);
    const double n = columns ? (double)(x->nelem / columns) : 0;
    for (int i = 0; i < 3; i++)
        ts_expected_make(&out[i], i ? src[2].dtype : x->dtype, i ? 1 : x->rank,
                         i ? &x->dims[x->rank - 1] : x->dims);
    for (uint64_t c = 0; c < columns; c++) {
        const double weight = src[2].f[c], mean = src[3].f[c], rstd = src[4].f[c];
        long double sum = 0, product = 0, sum_scale = 0, product_scale = 0;
        for (uint64_t k = c; k < x->nelem; k += columns) {
            const double g = y && y->f[k] <= 0 ? 0 : dy->f[k];
            sum += g;
            sum_scale += fabs(g);
            product += (long double)g * (x->f[k] - mean) * rstd;
            product_scale += fabsl((long double)g * (x->f[k] - mean) * rstd);
        }
        out[1].value.f[c] = (double)product;
        out[1].scale[c] = SUMMED * (double)product_scale;
        out[2].value.f[c] = (double)sum;
        out[2].scale[c] = SUMMED * (double)sum_scale;
        for (uint64_t k = c; k < x->nelem; k += columns) {
            const double g = y && y->f[k] <= 0 ? 0 : dy->f[k], z = (x->f[k] - mean) * rstd;
            out[0].value.f[k] = (double)(weight * rstd * (g - sum / n - z * product / n));
            out[0].scale[k] =
                fabs(weight * rstd) *
                (4 * fabs(g) + SUMMED * (double)(sum_scale + fabs(z) * product_scale) / n);
        }
    }
}

/* ---- rows ---- */

/* rms_norm has no mean and no bias. */
static void row_norm(fy_op_t op, size_t nsrc, const ts_array_t *src, const fy_norm_attrs_t *attrs,
                     ts_expected_t *out)
{
    const ts_array_t *x = &src[0];
    const bool is_rms = op == FY_OP_RMS_NORM;
    const uint64_t columns = columns_of(x);
    ts_expected_t *means = is_rms ? NULL : &out[1], *rstds = &out[is_rms ? 1 : 2];
    ts_expected_make(&out[0], x->dtype, x->rank, x->dims);
    if (means) ts_expected_make(means, x->dtype, x->rank - 1, x->dims);
    ts_expected_make(rstds, x->dtype, x->rank - 1, x->dims);
    for (uint64_t row = 0; row < rstds->value.nelem; row++) {
        const double *at = x->f + row * columns;
        long double mean = 0, m2 = 0, magnitude = 0;
        for (uint64_t j = 0; j < columns && !is_rms; j++) {
            mean += at[j] / (long double)columns;
            magnitude += fabs(at[j]) / (long double)columns;
        }
        for (uint64_t j = 0; j < columns; j++) m2 += (at[j] - mean) * (at[j] - mean);
        const long double rstd = 1 / sqrtl(m2 / columns + attrs->eps);
        rstds->value.f[row] = (double)rstd;
        rstds->scale[row] = SUMMED * (double)rstd;
        if (means) {
            means->value.f[row] = (double)mean;
            means->scale[row] = SUMMED * (double)magnitude;
        }
        for (uint64_t j = 0; j < columns; j++) {
            const double weight = nsrc > 1 ? src[1].f[j] : 1, bias = nsrc > 2 ? src[2].f[j] : 0;
            const double z = (double)((at[j] - mean) * rstd);
            out[0].value.f[row * columns + j] = z * weight + bias;
            out[0].scale[row * columns + j] = SUMMED * fabs(z * weight) + fabs(bias) +
                                              2 * fabs((double)(magnitude * rstd) * weight);
        }
    }
}

static void row_norm_backward(fy_op_t op, size_t nsrc, const ts_array_t *src, ts_expected_t *out)
{
    const ts_array_t *dy = &src[0], *x = &src[1];
    const bool is_rms = op == FY_OP_RMS_NORM_BACKWARD;
    const size_t weight_at = is_rms ? 3 : 4;
    const double *w = nsrc > weight_at ? src[weight_at].f : NULL;
    const uint64_t columns = columns_of(x), rows = columns ? x->nelem / columns : 0;
    for (int i = 0; i < (is_rms ? 2 : 3); i++)
        ts_expected_make(&out[i], x->dtype, i ? 1 : x->rank, i ? &x->dims[x->rank - 1] : x->dims);
    for (uint64_t row = 0; row < rows; row++) {
        const double mean = is_rms ? 0 : src[2].f[row], rstd = src[is_rms ? 2 : 3].f[row];
        const double n = (double)columns;
        long double sum = 0, product = 0, sum_scale = 0, product_scale = 0;
        for (uint64_t j = 0; j < columns; j++) {
            const uint64_t k = row * columns + j;
            const double g = dy->f[k] * (w ? w[j] : 1), z = (x->f[k] - mean) * rstd;
            sum += is_rms ? 0 : g;
            sum_scale += is_rms ? 0 : fabs(g);
            product += (long double)g * z;
            product_scale += fabsl((long double)g * z);
            out[1].value.f[j] += dy->f[k] * z;
            out[1].scale[j] += SUMMED * fabs(dy->f[k] * z);
            if (is_rms) continue;
            out[2].value.f[j] += dy->f[k];
            out[2].scale[j] += SUMMED * fabs(dy->f[k]);
        }
        for (uint64_t j = 0; j < columns; j++) {
            const uint64_t k = row * columns + j;
            const double g = dy->f[k] * (w ? w[j] : 1), z = (x->f[k] - mean) * rstd;
            out[0].value.f[k] = (double)(rstd * (g - sum / n - z * product / n));
            out[0].scale[k] =
                rstd * (4 * fabs(g) + SUMMED * (double)(sum_scale + fabs(z) * product_scale) / n);
        }
    }
}

bool ts_oracle_norm(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
                    const ts_array_t *given, ts_expected_t *out)
{
    switch (op) {
    case FY_OP_BATCH_NORM: batch_norm(nsrc, src, attrs, given, out); return true;
    case FY_OP_BATCH_NORM_BACKWARD: batch_norm_backward(nsrc, src, out); return true;
    case FY_OP_BATCH_NORM_INFERENCE: batch_norm_inference(nsrc, src, attrs, out); return true;
    case FY_OP_LAYER_NORM:
    case FY_OP_RMS_NORM: row_norm(op, nsrc, src, attrs, out); return true;
    case FY_OP_LAYER_NORM_BACKWARD:
    case FY_OP_RMS_NORM_BACKWARD: row_norm_backward(op, nsrc, src, out); return true;
    default: return false;
    }
}
