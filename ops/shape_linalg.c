/* Shape rules of matmul, linear, and of the ops that move elements about: gather and concat.
 * matmul's sources keep their shapes: kernels broadcast the leading axes, aligned at the end. Next:
 * typed/product.c. */
#include "ops/shape.h"

#include <inttypes.h>

#include "ops/format.h"
#include "runtime/base/fail.h"

static FY_COLD fy_status_t fail_inner(const fy_op_info_t *info, const fy_launch_t *launch,
                                      int64_t k_a, int64_t k_b, int64_t n_b)
{
    return FY_FAIL(SHAPE_MISMATCH,
                   "%s: src0 %s x src1 %s: the inner sizes %" PRId64 " and %" PRId64 " differ%s",
                   info->name, FY__DESC_TEXT(&launch->src[0]), FY__DESC_TEXT(&launch->src[1]), k_a,
                   k_b,
                   k_a == n_b ? "; src1 transposed would fit (fy_transpose copies nothing)" : "");
}

fy_status_t fy__shape_matmul(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_matmul_attrs_t *attrs = launch->attrs;
    const fy_desc_t *a = &launch->src[0], *b = &launch->src[1];
    fy_desc_t *dst = &launch->dst[0];
    FY_TRY(fy__check_same_dtype(info, launch, 0, 1));
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, a, info->dtypes));
    if (a->rank < 2 || b->rank < 2) {
        return FY_FAIL(
            SHAPE_MISMATCH,
            "%s: src0 %s x src1 %s: both need rank 2 or more; fy_unsqueeze makes a vector a matrix",
            info->name, FY__DESC_TEXT(a), FY__DESC_TEXT(b));
    }
    int64_t m = a->dims[a->rank - 2], k_a = a->dims[a->rank - 1], k_b = b->dims[b->rank - 2],
            n = b->dims[b->rank - 1];
    if (attrs->transpose_a) m = a->dims[a->rank - 1], k_a = a->dims[a->rank - 2];
    if (attrs->transpose_b) k_b = b->dims[b->rank - 1], n = b->dims[b->rank - 2];
    if (FY_UNLIKELY(k_a != k_b)) return fail_inner(info, launch, k_a, k_b, n);
    int rank = a->rank > b->rank ? a->rank : b->rank;
    dst->dtype = a->dtype;
    dst->rank = rank;
    dst->dims[rank - 2] = m;
    dst->dims[rank - 1] = n;
    for (int i = 0; i < rank - 2; i++) {
        int in_a = i - (rank - a->rank), in_b = i - (rank - b->rank);
        int64_t dim_a = in_a >= 0 ? a->dims[in_a] : 1, dim_b = in_b >= 0 ? b->dims[in_b] : 1;
        if (dim_a != dim_b && dim_a != 1 && dim_b != 1) {
            return FY_FAIL(SHAPE_MISMATCH,
                           "%s: src0 %s x src1 %s: the leading axes do not broadcast, %" PRId64
                           " against %" PRId64,
                           info->name, FY__DESC_TEXT(a), FY__DESC_TEXT(b), dim_a, dim_b);
        }
        dst->dims[i] = dim_a == 1 ? dim_b : dim_a;
    }
    return FY_STATUS_OK;
}

/* ---- linear: weights [O, I], as everywhere in the field ---- */

fy_status_t fy__shape_linear(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *x = &launch->src[0], *w = &launch->src[1], *bias = &launch->src[2];
    fy_desc_t *dst = &launch->dst[0];
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, x, info->dtypes));
    for (int i = 1; i < launch->nsrc; i++) FY_TRY(fy__check_same_dtype(info, launch, 0, i));
    if (x->rank < 1 || w->rank != 2)
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: x (src0) is %s, w (src1) is %s: it takes x [..., I] and w [O, I]",
                       info->name, FY__DESC_TEXT(x), FY__DESC_TEXT(w));
    if (x->dims[x->rank - 1] != w->dims[1])
        return FY_FAIL(
            SHAPE_MISMATCH,
            "%s: x (src0) %s ends with %" PRId64 " features, w (src1) %s is for %" PRId64 "%s",
            info->name, FY__DESC_TEXT(x), x->dims[x->rank - 1], FY__DESC_TEXT(w), w->dims[1],
            x->dims[x->rank - 1] == w->dims[0]
                ? "; w is [O, I]: transposed it would fit (fy_transpose copies nothing)"
                : "");
    if (launch->nsrc == 3 && (bias->rank != 1 || bias->dims[0] != w->dims[0]))
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: the bias (src2) is %s, it needs one value for each of %" PRId64
                       " results",
                       info->name, FY__DESC_TEXT(bias), w->dims[0]);
    fy__shape_like(dst, x);
    dst->dims[x->rank - 1] = w->dims[0];
    return FY_STATUS_OK;
}

fy_status_t fy__shape_linear_backward_params(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *dy = &launch->src[0], *x = &launch->src[1];
    FY_TRY(fy__check_same_dtype(info, launch, 0, 1));
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, dy, info->dtypes));
    if (dy->rank != 2 || x->rank != 2 || dy->dims[0] != x->dims[0])
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: dy (src0) is %s, x (src1) is %s: it takes dy [N, O] and x [N, I]; "
                       "fy_reshape joins leading axes",
                       info->name, FY__DESC_TEXT(dy), FY__DESC_TEXT(x));
    launch->dst[0].dtype = launch->dst[1].dtype = dy->dtype;
    launch->dst[0].rank = 2;
    launch->dst[0].dims[0] = launch->dst[1].dims[0] = dy->dims[1];
    launch->dst[0].dims[1] = x->dims[1];
    launch->dst[1].rank = 1;
    return FY_STATUS_OK;
}

fy_status_t fy__shape_gather(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *table = &launch->src[0], *indices = &launch->src[1];
    fy_desc_t *dst = &launch->dst[0];
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, table, info->dtypes));
    FY_TRY(fy__check_dtype(info, FY__SRC, 1, indices,
                           FY_DTYPE_BIT(FY_DTYPE_I32) | FY_DTYPE_BIT(FY_DTYPE_I64)));
    if (table->rank < 1)
        return FY_FAIL(SHAPE_MISMATCH, "%s: the table (src0) is %s, it needs rank 1 or more",
                       info->name, FY__DESC_TEXT(table));
    int rank = indices->rank + table->rank - 1;
    if (rank > FY_MAX_RANK) {
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: table %s and indices %s would give rank %d, the most is %d", info->name,
                       FY__DESC_TEXT(table), FY__DESC_TEXT(indices), rank, FY_MAX_RANK);
    }
    bool is_empty = false;
    for (int i = 0; i < indices->rank; i++) is_empty |= indices->dims[i] == 0;
    if (table->dims[0] == 0 && !is_empty) {
        return FY_FAIL(SHAPE_MISMATCH, "%s: table %s has no row that indices %s could name",
                       info->name, FY__DESC_TEXT(table), FY__DESC_TEXT(indices));
    }
    dst->dtype = table->dtype;
    dst->rank = rank;
    for (int i = 0; i < indices->rank; i++) dst->dims[i] = indices->dims[i];
    for (int i = 1; i < table->rank; i++) dst->dims[indices->rank + i - 1] = table->dims[i];
    return FY_STATUS_OK;
}

/* x (src0) must be [indices' dims, ...]. */
static fy_status_t check_rows(const fy_op_info_t *info, const fy_launch_t *launch)
{
    const fy_desc_t *x = &launch->src[0], *indices = &launch->src[1];
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, x, info->dtypes));
    FY_TRY(fy__check_dtype(info, FY__SRC, 1, indices,
                           FY_DTYPE_BIT(FY_DTYPE_I32) | FY_DTYPE_BIT(FY_DTYPE_I64)));
    int fits = x->rank >= indices->rank;
    for (int i = 0; fits && i < indices->rank; i++) fits = x->dims[i] == indices->dims[i];
    if (fits) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH,
                   "%s: src0 is %s, the indices (src1) are %s: src0 must begin with the dims of "
                   "the indices",
                   info->name, FY__DESC_TEXT(x), FY__DESC_TEXT(indices));
}

fy_status_t fy__shape_gather_backward(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *dy = &launch->src[0], *indices = &launch->src[1];
    fy_desc_t *dst = &launch->dst[0];
    FY_TRY(check_rows(info, launch));
    dst->dtype = dy->dtype;
    dst->rank = dy->rank - indices->rank + 1;
    if (dst->rank > FY_MAX_RANK)
        return FY_FAIL(SHAPE_MISMATCH, "%s: dy (src0) %s would give rank %d, the most is %d",
                       info->name, FY__DESC_TEXT(dy), dst->rank, FY_MAX_RANK);
    dst->dims[0] = ((const fy_gather_backward_attrs_t *)launch->attrs)->rows;
    for (int i = 1; i < dst->rank; i++) dst->dims[i] = dy->dims[indices->rank + i - 1];
    return FY_STATUS_OK;
}

fy_status_t fy__shape_index_add(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *x = &launch->src[0], *indices = &launch->src[1], *dst = &launch->dst[0];
    FY_TRY(check_rows(info, launch));
    if (dst->dtype != x->dtype)
        return FY_FAIL(DTYPE_MISMATCH,
                       "%s: x (src0) is %s, y (dst0) is %s: they must have one dtype", info->name,
                       FY__DESC_TEXT(x), FY__DESC_TEXT(dst));
    int fits = dst->rank == x->rank - indices->rank + 1;
    for (int i = 1; fits && i < dst->rank; i++)
        fits = dst->dims[i] == x->dims[indices->rank + i - 1];
    if (fits) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH,
                   "%s: x (src0) is %s, the indices (src1) are %s, y (dst0) is %s: x must have the "
                   "dims of the indices, then those of y without the first",
                   info->name, FY__DESC_TEXT(x), FY__DESC_TEXT(indices), FY__DESC_TEXT(dst));
}

fy_status_t fy__shape_concat(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_axis_attrs_t *attrs = launch->attrs;
    const fy_desc_t *first = &launch->src[0];
    fy_desc_t *dst = &launch->dst[0];
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, first, info->dtypes));
    FY_TRY(fy__check_axis(info, first, attrs->axis));
    int64_t length = 0;
    for (int i = 0; i < launch->nsrc; i++) {
        const fy_desc_t *src = &launch->src[i];
        FY_TRY(fy__check_same_dtype(info, launch, 0, i));
        bool fits = src->rank == first->rank;
        for (int axis = 0; fits && axis < first->rank; axis++)
            fits = axis == attrs->axis || src->dims[axis] == first->dims[axis];
        if (!fits) {
            return FY_FAIL(SHAPE_MISMATCH,
                           "%s: src0 is %s, src%d is %s: all but axis %" PRId32 " must be equal",
                           info->name, FY__DESC_TEXT(first), i, FY__DESC_TEXT(src), attrs->axis);
        }
        if (__builtin_add_overflow(length, src->dims[attrs->axis], &length)) {
            return FY_FAIL(SHAPE_MISMATCH,
                           "%s: axis %" PRId32 " of the result would be longer than 2^63",
                           info->name, attrs->axis);
        }
    }
    fy__shape_like(dst, first);
    dst->dims[attrs->axis] = length;
    return FY_STATUS_OK;
}
