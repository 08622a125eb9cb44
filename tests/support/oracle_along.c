/* Oracle of take_along_axis, its gradient, and topk. */
#include <math.h>
#include <string.h>

#include "tests/support/oracle.h"

/* Row-major position of element k of a row, in an array whose rows have n elements. */
static uint64_t at_row(const ts_array_t *array, uint64_t row, int64_t k)
{
    return row * (uint64_t)array->dims[array->rank - 1] + (uint64_t)k;
}

static void take(const ts_array_t *src, const ts_array_t *indices, ts_expected_t *out)
{
    const int64_t last = src->dims[src->rank - 1] - 1, n = indices->dims[indices->rank - 1];
    ts_expected_make(out, src->dtype, indices->rank, indices->dims);
    for (uint64_t k = 0; k < indices->nelem; k++) {
        const int64_t asked = indices->i[k], at = asked < 0 ? 0 : asked > last ? last : asked;
        ts_array_move(&out->value, k, src, at_row(src, k / (uint64_t)n, at));
    }
}

static void put(const ts_array_t *dy, const ts_array_t *indices, int64_t length, ts_expected_t *out)
{
    int64_t dims[FY_MAX_RANK];
    const int64_t n = dy->dims[dy->rank - 1];
    memcpy(dims, dy->dims, sizeof dims);
    dims[dy->rank - 1] = length;
    ts_expected_make(out, dy->dtype, dy->rank, dims);
    for (uint64_t k = 0; k < dy->nelem; k++) {
        const uint64_t at = at_row(&out->value, k / (uint64_t)n, indices->i[k]);
        out->value.f[at] += dy->f[k];
        out->scale[at] += fabs(dy->f[k]) * (double)n; /* an error of each addition */
    }
}

/* By selection: the first element that is not taken and that no other one comes before. */
static void topk(const ts_array_t *x, int64_t k, ts_expected_t *out)
{
    int64_t dims[FY_MAX_RANK];
    const int64_t n = x->dims[x->rank - 1];
    memcpy(dims, x->dims, sizeof dims);
    dims[x->rank - 1] = k;
    ts_expected_make(out, x->dtype, x->rank, dims);
    ts_expected_make(&out[1], FY_DTYPE_I64, x->rank, dims);
    for (uint64_t j = 0; j < out->value.nelem; j++) {
        const uint64_t row = j / (uint64_t)k;
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++) {
            bool is_taken = false;
            for (uint64_t t = row * (uint64_t)k; t < j; t++) is_taken |= out[1].value.i[t] == i;
            if (is_taken) continue;
            const uint64_t a = at_row(x, row, i), b = at_row(x, row, best < 0 ? i : best);
            const bool larger = x->f ? x->f[a] > x->f[b] || (isnan(x->f[a]) && !isnan(x->f[b]))
                                     : x->i[a] > x->i[b];
            if (best < 0 || larger) best = i;
        }
        out[1].value.i[j] = best;
        ts_array_move(&out->value, j, x, at_row(x, row, best));
    }
}

bool ts_oracle_along(fy_op_t op, const ts_array_t *src, const void *attrs, ts_expected_t *out)
{
    switch (op) {
    case FY_OP_TAKE_ALONG_AXIS: take(&src[0], &src[1], out); return true;
    case FY_OP_TAKE_ALONG_AXIS_BACKWARD:
        put(&src[0], &src[1], ((const fy_take_along_axis_backward_attrs_t *)attrs)->length, out);
        return true;
    case FY_OP_TOPK: topk(&src[0], ((const fy_topk_attrs_t *)attrs)->k, out); return true;
    default: return false;
    }
}
