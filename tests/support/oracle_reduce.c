/* Oracle of reductions, matmul, softmax, losses, gather, flip and concat: one loop over the
 * destination, one over the terms of each element.
 * Sums run in long double, so the oracle's error is far below every bound. scale = the sum of the
 * added magnitudes, times the number of additions: the classical bound for any order of summation
 * (Higham 2002, section 4.2). */
#include <math.h>

#include "tests/support/harness.h"
#include "tests/support/oracle.h"

/* ---- reductions ---- */

static bool is_search(fy_op_t op) { return op == FY_OP_ARGMAX || op == FY_OP_ARGMIN; }

static bool is_reduced(fy_op_t op, const void *attrs, int rank, int axis)
{
    if (is_search(op)) {
        int wanted = ((const fy_axis_attrs_t *)attrs)->axis;
        return axis == (wanted < 0 ? wanted + rank : wanted);
    }
    uint32_t axes = ((const fy_reduce_attrs_t *)attrs)->axes;
    return axes == 0 || (axes >> axis & 1);
}

static bool keeps_dims(fy_op_t op, const void *attrs)
{
    return is_search(op) ? ((const fy_axis_attrs_t *)attrs)->keepdims
                         : ((const fy_reduce_attrs_t *)attrs)->keepdims;
}

typedef struct sum_state {
    long double sum, magnitude, product, square;
    int64_t int_sum, int_product, best_int, best_at, n, not_zero;
    double best;
} sum_state_t;

static void take(fy_op_t op, sum_state_t *state, const ts_array_t *src, uint64_t k, int64_t at)
{
    double x = ts_array_get(src, k);
    int64_t i = src->i ? src->i[k] : 0;
    bool larger = src->f ? x > state->best : i > state->best_int;
    bool smaller = src->f ? x < state->best : i < state->best_int;
    bool better = op == FY_OP_MIN || op == FY_OP_ARGMIN ? smaller : larger;
    if (src->f && isnan(state->best) && state->n) better = false;
    if (src->f && isnan(x) && !isnan(state->best)) better = true;
    if (state->n == 0 || better) {
        state->best = x;
        state->best_int = i;
        state->best_at = at;
    }
    state->product = (state->n ? state->product : 1) * x;
    state->int_product = (int64_t)((uint64_t)(state->n ? state->int_product : 1) * (uint64_t)i);
    state->not_zero += src->f ? x != 0 : i != 0;
    state->sum += x;
    state->magnitude += fabs(x);
    state->square += (long double)x * x;
    state->int_sum = (int64_t)((uint64_t)state->int_sum + (uint64_t)i);
    state->n++;
}

static void reduce(fy_op_t op, const ts_array_t *src, const void *attrs, ts_expected_t *out)
{
    int64_t dims[FY_MAX_RANK], coords[FY_MAX_RANK], full[FY_MAX_RANK];
    bool gone[FY_MAX_RANK];
    int rank = 0;
    for (int axis = 0; axis < src->rank; axis++) {
        gone[axis] = is_reduced(op, attrs, src->rank, axis);
        full[axis] = gone[axis] ? 1 : src->dims[axis];
        if (!gone[axis])
            dims[rank++] = src->dims[axis];
        else if (keeps_dims(op, attrs))
            dims[rank++] = 1;
    }
    bool sums = op == FY_OP_SUM || op == FY_OP_MEAN, asks = op == FY_OP_ANY || op == FY_OP_ALL;
    fy_dtype_t dtype = asks ? FY_DTYPE_BOOL
                       : is_search(op) || ((op == FY_OP_SUM || op == FY_OP_PROD) && src->i)
                           ? FY_DTYPE_I64
                           : src->dtype;
    ts_expected_make(out, dtype, rank, dims);
    sum_state_t *states = calloc(out->value.nelem + 1, sizeof *states);
    assert_non_null(states);
    for (uint64_t k = 0; k < src->nelem; k++) {
        ts_unravel(k, src->rank, src->dims, coords);
        uint64_t to = 0;
        int64_t at = 0;
        for (int axis = 0; axis < src->rank; axis++) {
            to = to * (uint64_t)full[axis] + (uint64_t)(gone[axis] ? 0 : coords[axis]);
            if (gone[axis]) at = at * src->dims[axis] + coords[axis];
        }
        take(op, &states[to], src, k, at);
    }
    for (uint64_t k = 0; k < out->value.nelem; k++) {
        const sum_state_t *s = &states[k];
        if (is_search(op))
            out->value.i[k] = s->best_at;
        else if (asks)
            out->value.i[k] = op == FY_OP_ANY ? s->not_zero > 0 : s->not_zero == s->n;
        else if (op == FY_OP_PROD && out->value.i)
            out->value.i[k] = s->n ? s->int_product : 1;
        else if (op == FY_OP_PROD)
            out->value.f[k] = s->n ? (double)s->product : 1;
        else if (out->value.i)
            out->value.i[k] = sums ? s->int_sum : s->best_int;
        else if (op == FY_OP_SUM)
            out->value.f[k] = (double)s->sum;
        else if (op == FY_OP_MEAN)
            out->value.f[k] = (double)(s->sum / s->n);
        else if (op == FY_OP_NORM)
            out->value.f[k] = (double)sqrtl(s->square);
        else
            out->value.f[k] = s->best;
        double n = (double)s->n;
        if (sums)
            out->scale[k] = (double)s->magnitude * (n + 1) / (op == FY_OP_MEAN && s->n ? n : 1);
        if (op == FY_OP_NORM) out->scale[k] = out->value.f[k] * (n + 4);
        if (op == FY_OP_PROD && out->value.f)
            out->scale[k] = fabs(out->value.f[k]) * n + ts_tiny(src->dtype);
        if (!isfinite(out->scale[k])) out->scale[k] = 0;
    }
    free(states);
}

/* ---- cumsum ---- */

static void cumsum(const ts_array_t *src, const fy_cumsum_attrs_t *attrs, ts_expected_t *out)
{
    const int axis = attrs->axis < 0 ? attrs->axis + src->rank : attrs->axis;
    const int64_t n = src->dims[axis];
    uint64_t step = 1;
    for (int i = axis + 1; i < src->rank; i++) step *= (uint64_t)src->dims[i];
    ts_expected_make(out, src->i ? FY_DTYPE_I64 : src->dtype, src->rank, src->dims);
    for (uint64_t k = 0; k < src->nelem; k++) {
        const int64_t at = (int64_t)(k / step) % n, first = attrs->reverse ? at : 0,
                      last = attrs->reverse ? n - 1 : at;
        long double sum = 0, magnitude = 0;
        uint64_t whole = 0;
        for (int64_t i = first; i <= last; i++) {
            const uint64_t from = k + (uint64_t)(i - at) * step;
            sum += ts_array_get(src, from);
            magnitude += fabs(ts_array_get(src, from));
            if (src->i) whole += (uint64_t)src->i[from];
        }
        if (src->i) {
            out->value.i[k] = (int64_t)whole;
            continue;
        }
        out->value.f[k] = (double)sum;
        out->scale[k] = (double)magnitude * (double)(last - first + 2);
        if (!isfinite(out->scale[k])) out->scale[k] = 0;
    }
}

/* ---- matmul ---- */

static double matrix_at(const ts_array_t *m, uint64_t base, bool transposed, int64_t row,
                        int64_t column)
{
    int64_t last = m->dims[m->rank - 1];
    return m->f[base + (uint64_t)(transposed ? column * last + row : row * last + column)];
}

static void matmul(const ts_array_t *a, const ts_array_t *b, const void *attrs, ts_expected_t *out)
{
    const fy_matmul_attrs_t *attr = attrs;
    bool ta = attr && attr->transpose_a, tb = attr && attr->transpose_b;
    const int64_t *da = a->dims + a->rank - 2, *db = b->dims + b->rank - 2;
    int64_t m = ta ? da[1] : da[0], depth = ta ? da[0] : da[1], n = tb ? db[0] : db[1];
    /* the leading axes as separate arrays, for broadcasting */
    ts_array_t leads[2] = { *a, *b };
    for (int i = 0; i < 2; i++) leads[i].rank -= 2;
    int64_t dims[FY_MAX_RANK];
    const int lead = ts_broadcast_dims(2, leads, dims);
    dims[lead] = m;
    dims[lead + 1] = n;
    ts_expected_make(out, a->dtype, lead + 2, dims);
    for (uint64_t k = 0; k < out->value.nelem; k++) {
        int64_t coords[FY_MAX_RANK];
        ts_unravel(k, lead + 2, dims, coords);
        uint64_t base_a = ts_broadcast_index(&leads[0], lead, coords) * (uint64_t)(da[0] * da[1]);
        uint64_t base_b = ts_broadcast_index(&leads[1], lead, coords) * (uint64_t)(db[0] * db[1]);
        long double sum = 0, magnitude = 0;
        for (int64_t d = 0; d < depth; d++) {
            double x = matrix_at(a, base_a, ta, coords[lead], d),
                   y = matrix_at(b, base_b, tb, d, coords[lead + 1]);
            sum += (long double)x * y;
            magnitude += fabs(x * y);
        }
        out->value.f[k] = (double)sum;
        out->scale[k] = (double)magnitude * ts_product_steps(a->dtype, depth);
    }
}

/* ---- softmax ---- */

static void softmax(fy_op_t op, const ts_array_t *src, const void *attrs, ts_expected_t *out)
{
    int axis = ((const fy_axis_attrs_t *)attrs)->axis;
    if (axis < 0) axis += src->rank;
    ts_expected_make(out, src->dtype, src->rank, src->dims);
    uint64_t n = (uint64_t)src->dims[axis], inner = 1;
    for (int a = axis + 1; a < src->rank; a++) inner *= (uint64_t)src->dims[a];
    for (uint64_t lane = 0; lane < src->nelem / (n ? n : 1); lane++) {
        const uint64_t first = lane / inner * inner * n + lane % inner;
        double top = -INFINITY;
        for (uint64_t i = 0; i < n; i++) top = fmax(top, src->f[first + i * inner]);
        long double sum = 0;
        for (uint64_t i = 0; i < n; i++) sum += exp(src->f[first + i * inner] - top);
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t k = first + i * inner;
            const double shifted = src->f[k] - top, terms = (double)n + 2;
            out->value.f[k] = op == FY_OP_SOFTMAX ? (double)(exp(shifted) / sum)
                                                  : (double)(shifted - logl(sum));
            out->scale[k] = op == FY_OP_SOFTMAX ? out->value.f[k] * (terms + fabs(shifted))
                                                : terms + fabs(src->f[k]) + fabs(top);
            if (out->scale[k] == 0) out->scale[k] = ts_tiny(src->dtype);
        }
    }
}

/* ---- losses and moving ---- */

static void mse_loss(const ts_array_t *pred, const ts_array_t *target, ts_expected_t *out)
{
    ts_expected_make(out, pred->dtype, 0, NULL);
    long double sum = 0;
    for (uint64_t k = 0; k < pred->nelem; k++) {
        long double d = (long double)pred->f[k] - target->f[k];
        sum += d * d;
    }
    out->value.f[0] = (double)(sum / pred->nelem);
    out->scale[0] = out->value.f[0] * ((double)pred->nelem + 4);
    if (!isfinite(out->scale[0])) out->scale[0] = 0;
}

static void gather(const ts_array_t *table, const ts_array_t *indices, ts_expected_t *out)
{
    int64_t dims[2 * FY_MAX_RANK];
    memcpy(dims, indices->dims, sizeof indices->dims);
    memcpy(dims + indices->rank, table->dims + 1, sizeof(int64_t) * (size_t)(table->rank - 1));
    ts_expected_make(out, table->dtype, indices->rank + table->rank - 1, dims);
    uint64_t row = 1;
    for (int axis = 1; axis < table->rank; axis++) row *= (uint64_t)table->dims[axis];
    for (uint64_t k = 0; k < out->value.nelem; k++) {
        int64_t index = indices->i[k / row], last = table->dims[0] - 1;
        index = index < 0 ? 0 : index > last ? last : index;
        ts_array_move(&out->value, k, table, (uint64_t)index * row + k % row);
    }
}

static void concat(size_t nsrc, const ts_array_t *src, const void *attrs, ts_expected_t *out)
{
    int axis = ((const fy_axis_attrs_t *)attrs)->axis;
    if (axis < 0) axis += src[0].rank;
    int64_t dims[FY_MAX_RANK], coords[FY_MAX_RANK];
    memcpy(dims, src[0].dims, sizeof dims);
    for (size_t s = 1; s < nsrc; s++) dims[axis] += src[s].dims[axis];
    ts_expected_make(out, src[0].dtype, src[0].rank, dims);
    for (uint64_t k = 0; k < out->value.nelem; k++) {
        ts_unravel(k, src[0].rank, dims, coords);
        size_t s = 0;
        while (coords[axis] >= src[s].dims[axis]) coords[axis] -= src[s++].dims[axis];
        uint64_t from = 0;
        for (int a = 0; a < src[s].rank; a++)
            from = from * (uint64_t)src[s].dims[a] + (uint64_t)coords[a];
        ts_array_move(&out->value, k, &src[s], from);
    }
}

static void flip(const ts_array_t *src, const void *attrs, ts_expected_t *out)
{
    const uint32_t axes = ((const fy_flip_attrs_t *)attrs)->axes;
    int64_t coords[FY_MAX_RANK];
    ts_expected_make(out, src->dtype, src->rank, src->dims);
    for (uint64_t k = 0; k < src->nelem; k++) {
        uint64_t from = 0;
        ts_unravel(k, src->rank, src->dims, coords);
        for (int a = 0; a < src->rank; a++) {
            const int64_t i = coords[a], last = src->dims[a] - 1;
            from = from * (uint64_t)src->dims[a] +
                   (uint64_t)(axes == 0 || (axes >> a & 1) ? last - i : i);
        }
        ts_array_move(&out->value, k, src, from);
    }
}

bool ts_oracle_reduce(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
                      ts_expected_t *out)
{
    switch (op) {
    case FY_OP_SUM:
    case FY_OP_MEAN:
    case FY_OP_MAX:
    case FY_OP_MIN:
    case FY_OP_NORM:
    case FY_OP_PROD:
    case FY_OP_ANY:
    case FY_OP_ALL:
    case FY_OP_ARGMAX:
    case FY_OP_ARGMIN: reduce(op, &src[0], attrs, out); return true;
    case FY_OP_CUMSUM: cumsum(&src[0], attrs, out); return true;
    case FY_OP_MATMUL: matmul(&src[0], &src[1], attrs, out); return true;
    case FY_OP_SOFTMAX:
    case FY_OP_LOG_SOFTMAX: softmax(op, &src[0], attrs, out); return true;
    case FY_OP_MSE_LOSS: mse_loss(&src[0], &src[1], out); return true;
    case FY_OP_GATHER: gather(&src[0], &src[1], out); return true;
    case FY_OP_FLIP: flip(&src[0], attrs, out); return true;
    case FY_OP_CONCAT: concat(nsrc, src, attrs, out); return true;
    default: return false;
    }
}
