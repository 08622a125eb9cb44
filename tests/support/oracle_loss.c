/* Oracle of the losses of classifiers and of their gradients, by the textbook formula: log-softmax
 * in long double, one class a row. Also of gradients that start from a result, and of one_hot.
 * scale: the added magnitudes times their number; first, the largest logit is subtracted from each
 * one. */
#include <math.h>

#include "tests/support/harness.h"
#include "tests/support/oracle.h"

/* A row of logits, its largest one, and the log of the sum of exp(logit - largest). */
typedef struct row {
    const double *x;
    uint64_t n;
    long double top, log_sum;
} row_t;

static row_t row_of(const ts_array_t *logits, uint64_t row)
{
    const uint64_t n = (uint64_t)logits->dims[logits->rank - 1];
    row_t r = { .x = logits->f + row * n, .n = n, .top = -INFINITY };
    long double sum = 0;
    for (uint64_t i = 0; i < n; i++) r.top = isnan(r.x[i]) ? NAN : r.x[i] > r.top ? r.x[i] : r.top;
    for (uint64_t i = 0; i < n; i++) sum += expl(r.x[i] - r.top);
    r.log_sum = logl(sum);
    return r;
}

/* log_softmax of the row at `column`; its rounding errors are relative to *out_scale. */
static long double log_softmax_at(const row_t *row, uint64_t column, double *out_scale)
{
    *out_scale = (double)row->n + 2 + fabs(row->x[column]) + (double)fabsl(row->top);
    return row->x[column] - row->top - row->log_sum;
}

/* The attributes of all four ops, and their class weights (NULL: all are 1). */
typedef struct options {
    int reduction;
    int64_t ignored, classes;
    double smoothing;
    const ts_array_t *targets, *weight;
} options_t;

static options_t options_of(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs)
{
    const size_t t = op == FY_OP_CROSS_ENTROPY_BACKWARD ? 2 : 1;
    options_t o = { .targets = &src[t], .weight = nsrc > t + 1 ? &src[t + 1] : NULL };
    if (op == FY_OP_NLL_LOSS_BACKWARD) {
        const fy_class_loss_backward_attrs_t *a = attrs;
        o.reduction = a->reduction;
        o.ignored = a->ignore_index;
        o.classes = a->classes;
        return o;
    }
    const fy_class_loss_attrs_t *a = attrs;
    o.reduction = a->reduction;
    o.ignored = a->ignore_index;
    o.smoothing = a->label_smoothing;
    o.classes = src[t - 1].dims[src[t - 1].rank - 1];
    return o;
}

/* False: the row does not count. */
static bool class_of(const options_t *o, uint64_t row, uint64_t *out_class)
{
    const int64_t asked = o->targets->i[row];
    *out_class = (uint64_t)(asked < 0 ? 0 : asked >= o->classes ? o->classes - 1 : asked);
    return asked != o->ignored;
}

static double weight_of(const options_t *o, uint64_t column)
{
    return o->weight ? o->weight->f[column] : 1;
}

static double divisor_of(const options_t *o)
{
    double divisor = 0;
    uint64_t target;
    for (uint64_t row = 0; row < o->targets->nelem; row++)
        if (class_of(o, row, &target)) divisor += weight_of(o, target);
    return divisor;
}

static void class_loss(fy_op_t op, const ts_array_t *scores, const options_t *o, ts_expected_t *out)
{
    const uint64_t rows = o->targets->nelem, classes = (uint64_t)o->classes;
    long double total = 0;
    double magnitude = 0;
    const bool each = o->reduction == FY_REDUCTION_NONE;
    ts_expected_make(out, scores->dtype, each ? o->targets->rank : 0, o->targets->dims);
    for (uint64_t row = 0; row < rows; row++) {
        uint64_t target;
        long double loss = 0, smooth = 0;
        double scale = 0;
        if (class_of(o, row, &target)) {
            const row_t logits = row_of(scores, row);
            const double weight = weight_of(o, target), part = o->smoothing / (double)classes;
            loss = -scores->f[row * classes + target];
            scale = (double)fabsl(loss);
            if (op == FY_OP_CROSS_ENTROPY) loss = -log_softmax_at(&logits, target, &scale);
            loss *= weight;
            scale *= weight;
            for (uint64_t c = 0; o->smoothing != 0 && c < classes; c++) {
                double s;
                smooth -= weight_of(o, c) * log_softmax_at(&logits, c, &s);
                scale += part * weight_of(o, c) * s;
            }
            loss = (1 - o->smoothing) * loss + part * smooth;
        }
        if (each) {
            out->value.f[row] = (double)loss;
            out->scale[row] = isfinite(scale) ? scale : 0;
        }
        total += loss;
        magnitude += scale;
    }
    if (each) return;
    const double n = o->reduction == FY_REDUCTION_MEAN ? divisor_of(o) : 1;
    out->value.f[0] = (double)(total / n);
    /* Thousands of terms, added up one by one, err more; those of f64 have no wider sum, and equal
     * terms round in one direction. */
    magnitude *= 1 + (double)rows / (scores->dtype == FY_DTYPE_F64 ? 16 : 1024);
    out->scale[0] = n != 0 && isfinite(magnitude) ? magnitude / n : 0;
}

/* `logits` NULL: for nll_loss. */
static void class_loss_backward(const ts_array_t *dy, const ts_array_t *logits, const options_t *o,
                                ts_expected_t *out)
{
    const uint64_t classes = (uint64_t)o->classes;
    const double n = o->reduction == FY_REDUCTION_MEAN ? divisor_of(o) : 1,
                 part = o->smoothing / (double)o->classes;
    double all = 0;
    row_t scores = { .n = 0 };
    int64_t dims[FY_MAX_RANK];
    memcpy(dims, o->targets->dims, sizeof dims);
    dims[o->targets->rank] = o->classes;
    ts_expected_make(out, dy->dtype, o->targets->rank + 1, dims);
    for (uint64_t c = 0; c < classes; c++) all += weight_of(o, c);
    for (uint64_t k = 0; k < out->value.nelem; k++) {
        const uint64_t row = k / classes, column = k % classes;
        uint64_t target;
        long double g = dy->f[o->reduction == FY_REDUCTION_NONE ? row : 0] / n, slope = 0;
        double scale = 0;
        if (logits && column == 0) scores = row_of(logits, row);
        if (!class_of(o, row, &target)) continue;
        const double own = (1 - o->smoothing) * weight_of(o, target);
        if (logits) slope = expl(log_softmax_at(&scores, column, &scale)) * (own + part * all);
        scale = (double)slope * (scale + 2 + (o->smoothing != 0 ? (double)classes : 0));
        slope -= part * weight_of(o, column);
        scale += part * weight_of(o, column) * 4;
        if (column == target) {
            slope -= own;
            scale += own;
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

bool ts_oracle_loss(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
                    ts_expected_t *out)
{
    options_t o;
    switch (op) {
    case FY_OP_NLL_LOSS:
    case FY_OP_CROSS_ENTROPY:
        o = options_of(op, nsrc, src, attrs);
        class_loss(op, &src[0], &o, out);
        return true;
    case FY_OP_NLL_LOSS_BACKWARD:
    case FY_OP_CROSS_ENTROPY_BACKWARD:
        o = options_of(op, nsrc, src, attrs);
        class_loss_backward(&src[0], op == FY_OP_NLL_LOSS_BACKWARD ? NULL : &src[1], &o, out);
        return true;
    case FY_OP_SOFTMAX_BACKWARD:
    case FY_OP_LOG_SOFTMAX_BACKWARD:
        softmax_backward(op, &src[0], &src[1], attrs, out);
        return true;
    case FY_OP_MSE_LOSS_BACKWARD: mse_loss_backward(&src[0], &src[1], &src[2], out); return true;
    case FY_OP_ONE_HOT: one_hot(&src[0], attrs, out); return true;
    default: return false;
    }
}
