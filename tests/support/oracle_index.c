/* Oracle of ops that add rows at indices: index_add and the gradient of gather. */
#include <math.h>
#include <string.h>

#include "tests/support/oracle.h"

/* rows [R, row] of `before` (NULL: zeros) plus alpha times those of x; the error is relative to the
 * sum of the magnitudes, once for each addition. */
static void add_rows(const ts_array_t *x, const ts_array_t *indices, double alpha, int64_t rows,
                     const ts_array_t *before, ts_expected_t *out)
{
    int64_t dims[FY_MAX_RANK] = { rows };
    const int rank = x->rank - indices->rank + 1;
    uint64_t width = 1;
    memcpy(dims + 1, x->dims + indices->rank, (size_t)(rank - 1) * sizeof *dims);
    for (int i = 1; i < rank; i++) width *= (uint64_t)dims[i];
    ts_expected_make(out, x->dtype, rank, dims);
    for (uint64_t k = 0; k < out->value.nelem; k++) {
        out->value.f[k] = before ? before->f[k] : 0;
        out->scale[k] = fabs(out->value.f[k]);
    }
    for (uint64_t k = 0; k < x->nelem; k++) {
        const int64_t row = indices->i[k / width];
        if (row < 0 || row >= rows) continue;
        const uint64_t at = (uint64_t)row * width + k % width;
        out->value.f[at] += alpha * x->f[k];
        out->scale[at] += fabs(alpha * x->f[k]);
    }
    for (uint64_t k = 0; k < out->value.nelem; k++) {
        /* an error of each addition */
        double terms = 1;
        for (uint64_t i = 0; i < indices->nelem; i++)
            terms += indices->i[i] == (int64_t)(k / width);
        out->scale[k] *= terms;
        if (!isfinite(out->scale[k])) out->scale[k] = 0;
    }
}

bool ts_oracle_index(fy_op_t op, const ts_array_t *src, const void *attrs, const ts_array_t *before,
                     ts_expected_t *out)
{
    switch (op) {
    case FY_OP_GATHER_BACKWARD:
        add_rows(&src[0], &src[1], 1, ((const fy_gather_backward_attrs_t *)attrs)->rows, NULL, out);
        return true;
    case FY_OP_INDEX_ADD:
        if (!before) return false;
        add_rows(&src[0], &src[1], ((const fy_axpy_attrs_t *)attrs)->alpha, before->dims[0], before,
                 out);
        return true;
    default: return false;
    }
}
