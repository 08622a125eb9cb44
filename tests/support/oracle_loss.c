/* Oracle of the losses of classifiers and of their gradients, by the textbook formula: log-softmax
 * in long double, one class a row. Also of gradients that start from a result, and of one_hot.
 * scale: the added magnitudes times their number; first, the largest logit is subtracted from each
 * one. */
#include <math.h>

#include "tests/support/harness.h"
#include "tests/support/oracle.h"

/* Row `row` of log_softmax(logits) at `column`; its rounding errors are relative to *out_scale. */
static long double log_softmax_at(const ts_array_t *logits, uint64_t row, uint64_t column,
                                  double *out_scale)
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

static void class_loss(fy_op_t op, const ts_array_t *scores, const ts_array_t *targets,
                       const void *attrs, ts_expected_t *out)
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

/* `logits` NULL: for nll_loss. */
static void class_loss_backward(const ts_array_t *dy, const ts_array_t *logits,
                                const ts_array_t *targets, int reduction, int64_t classes,
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

/* y (dy - sum(dy y)), or dy - exp(y) sum(dy), sums along the axis. */
static void softmax_backward(fy_op_t op, const ts_array_t *dy, const ts_array_t *y,
                             const void *attrs, ts_expected_t *out)
{
    const bool is_log = op == FY_OP_LOG_SOFTMAX_BACKWARD;
    int axis = ((const fy_axis_attrs_t *)attrs)->axis;
    if (axis < 0) axis += dy->rank;
    ts_expected_make(out, dy->dtype, dy->rank, dy->dims);
    uint64_t n = (uint64_t)dy->dims[axis], inner = 1;
    for (int a = axis + 1; a < dy->rank; a++) inner *= (uint64_t)dy->dims[a];
    for (uint64_t k = 0; k < dy->nelem; k++) {
        const uint64_t first = k / (inner * n) * inner * n + k % inner;
        long double sum = 0, magnitude = 0;
        for (uint64_t i = 0; i < n; i++) {
            const long double term = dy->f[first + i * inner] *
                                     (is_log ? 1 : (long double)y->f[first + i * inner]);
            sum += term;
            magnitude += fabsl(term);
        }
        const long double factor = is_log ? expl(y->f[k]) : y->f[k];
        out->value.f[k] = (double)(is_log ? dy->f[k] - factor * sum : factor * (dy->f[k] - sum));
        const long double parts = fabsl(factor) * magnitude * (n + 2) +
                                  fabs(dy->f[k]) * (is_log ? 1 : fabsl(factor));
        out->scale[k] = (double)parts;
    }
}

static void mse_loss_backward(const ts_array_t *dy, const ts_array_t *pred,
                              const ts_array_t *target, ts_expected_t *out)
{
    ts_expected_make(out, pred->dtype, pred->rank, pred->dims);
    for (uint64_t k = 0; k < pred->nelem; k++) {
        const double factor = 2 * dy->f[0] / (double)pred->nelem;
        out->value.f[k] = (pred->f[k] - target->f[k]) * factor;
        out->scale[k] = (fabs(pred->f[k]) + fabs(target->f[k])) * fabs(factor);
    }
}

static void one_hot(const ts_array_t *indices, const void *attrs, ts_expected_t *out)
{
    const fy_one_hot_attrs_t *a = attrs;
    int64_t dims[FY_MAX_RANK + 1];
    memcpy(dims, indices->dims, sizeof indices->dims);
    dims[indices->rank] = a->classes;
    ts_expected_make(out, (fy_dtype_t)a->dtype, indices->rank + 1, dims);
    for (uint64_t k = 0; k < out->value.nelem; k++) {
        const bool is_it = indices->i[k / (uint64_t)a->classes] ==
                           (int64_t)(k % (uint64_t)a->classes);
        if (out->value.f) out->value.f[k] = is_it;
        if (out->value.i) out->value.i[k] = is_it;
    }
}

static void from_result(fy_op_t op, const ts_array_t *dy, const ts_array_t *y, ts_expected_t *out)
{
    int64_t dims[FY_MAX_RANK], coords[FY_MAX_RANK];
    const int rank = dy->rank > y->rank ? dy->rank : y->rank;
    for (int axis = 0; axis < rank; axis++) {
        const int i = axis - (rank - dy->rank), j = axis - (rank - y->rank);
        const int64_t a = i >= 0 ? dy->dims[i] : 1, b = j >= 0 ? y->dims[j] : 1;
        dims[axis] = a == 1 ? b : a;
    }
    ts_expected_make(out, dy->dtype, rank, dims);
    for (uint64_t k = 0; k < out->value.nelem; k++) {
        ts_unravel(k, rank, dims, coords);
        const double g = dy->f[ts_broadcast_index(dy, rank, coords)],
                     r = y->f[ts_broadcast_index(y, rank, coords)];
        const double slope = op == FY_OP_TANH_BACKWARD ? (1 - r) * (1 + r) : r * (1 - r);
        out->value.f[k] = g * slope;
        out->scale[k] = fabs(out->value.f[k]) + 0x1p-102;
    }
}

bool ts_oracle_loss(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
                    ts_expected_t *out)
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
        class_loss_backward(&src[0], &src[1], &src[2], ((const fy_loss_attrs_t *)attrs)->reduction,
                            src[1].dims[1], out);
        return true;
    case FY_OP_SOFTMAX_BACKWARD:
    case FY_OP_LOG_SOFTMAX_BACKWARD:
        softmax_backward(op, &src[0], &src[1], attrs, out);
        return true;
    case FY_OP_MSE_LOSS_BACKWARD: mse_loss_backward(&src[0], &src[1], &src[2], out); return true;
    case FY_OP_ONE_HOT: one_hot(&src[0], attrs, out); return true;
    case FY_OP_TANH_BACKWARD:
    case FY_OP_SIGMOID_BACKWARD: from_result(op, &src[0], &src[1], out); return true;
    default: return false;
    }
}
