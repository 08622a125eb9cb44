/* Oracle of the losses of classifiers and of their gradients, by the textbook: log-softmax in long double, one class a row.
 * scale: magnitudes that are added, times how many; a logit is subtracted from the largest one before anything else happens to it. */
#include <math.h>

#include "tests/support/harness.h"
#include "tests/support/oracle.h"

/* Row `row` of log_softmax(logits) at `column`; *out_scale: what its rounding errors are relative to. */
static long double log_softmax_at(const ts_array_t *logits, uint64_t row, uint64_t column, double *out_scale)
{
    const uint64_t n = (uint64_t)logits->dims[1];
    const double *x = logits->f + row * n;
    long double top = -INFINITY, sum = 0;
    for (uint64_t i = 0; i < n; i++) top = isnan(x[i]) ? NAN : x[i] > top ? x[i] : top;
    for (uint64_t i = 0; i < n; i++) sum += expl(x[i] - top);
    *out_scale = (double)n + 2 + fabs(x[column]) + (double)fabsl(top);
    return x[column] - top - logl(sum);
}

static uint64_t class_of(const ts_array_t *targets, uint64_t row, int64_t classes)
{
    const int64_t asked = targets->i[row];
    return (uint64_t)(asked < 0 ? 0 : asked >= classes ? classes - 1 : asked);
}

static void class_loss(fy_op_t op, const ts_array_t *scores, const ts_array_t *targets, const void *attrs, ts_expected_t *out)
{
    const int reduction = ((const fy_loss_attrs_t *)attrs)->reduction;
    const uint64_t rows = (uint64_t)scores->dims[0];
    long double total = 0;
    double magnitude = 0;
    ts_expected_make(out, scores->dtype, reduction == FY_REDUCTION_NONE, scores->dims);
    for (uint64_t row = 0; row < rows; row++) {
        const uint64_t target = class_of(targets, row, scores->dims[1]);
        long double loss = -scores->f[row * (uint64_t)scores->dims[1] + target];
        double scale = (double)fabsl(loss);
        if (op == FY_OP_CROSS_ENTROPY) loss = -log_softmax_at(scores, row, target, &scale);
        if (reduction == FY_REDUCTION_NONE) {
            out->value.f[row] = (double)loss;
            out->scale[row] = isfinite(scale) ? scale : 0;
        }
        total += loss;
        magnitude += scale;
    }
    if (reduction == FY_REDUCTION_NONE) return;
    const double n = reduction == FY_REDUCTION_MEAN ? (double)rows : 1;
    out->value.f[0] = (double)(total / n);
    out->scale[0] = rows && isfinite(magnitude) ? magnitude / n : 0;
}

/* `logits` NULL: nll_loss's. */
static void class_loss_backward(const ts_array_t *dy, const ts_array_t *logits, const ts_array_t *targets, int reduction, int64_t classes,
                                ts_expected_t *out)
{
    const int64_t dims[2] = { targets->dims[0], classes };
    ts_expected_make(out, dy->dtype, 2, dims);
    for (uint64_t k = 0; k < out->value.nelem; k++) {
        const uint64_t row = k / (uint64_t)classes, column = k % (uint64_t)classes;
        long double g = dy->f[reduction == FY_REDUCTION_NONE ? row : 0], slope = 0;
        double scale = 0;
        if (reduction == FY_REDUCTION_MEAN) g /= dims[0];
        if (logits) slope = expl(log_softmax_at(logits, row, column, &scale));
        scale = (double)slope * (scale + 2);
        if (column == class_of(targets, row, classes)) {
            slope -= 1;
            scale += 1;
        }
        out->value.f[k] = (double)(g * slope);
        out->scale[k] = scale * (double)fabsl(g) + (logits ? ts_tiny(dy->dtype) : 0);
    }
}

bool ts_oracle_loss(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs, ts_expected_t *out)
{
    (void)nsrc;
    switch (op) {
    case FY_OP_NLL_LOSS:
    case FY_OP_CROSS_ENTROPY: class_loss(op, &src[0], &src[1], attrs, out); return true;
    case FY_OP_NLL_LOSS_BACKWARD: {
        const fy_nll_loss_backward_attrs_t *a = attrs;
        class_loss_backward(&src[0], NULL, &src[1], a->reduction, a->classes, out);
        return true;
    }
    case FY_OP_CROSS_ENTROPY_BACKWARD:
        class_loss_backward(&src[0], &src[1], &src[2], ((const fy_loss_attrs_t *)attrs)->reduction, src[1].dims[1], out);
        return true;
    default: return false;
    }
}
