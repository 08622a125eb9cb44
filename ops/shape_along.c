/* Shape rules of ops with indices along the last axis: take_along_axis, its gradient, topk.
 * Not here: gather of whole rows (shape_linalg.c). Next: backends/kernels/along.c. */
#include "ops/shape.h"

#include <inttypes.h>

#include "ops/format.h"
#include "runtime/base/fail.h"

/* src with its last axis of length `n`. */
static void set_result(fy_desc_t *dst, const fy_desc_t *src, int32_t dtype, int64_t n)
{
    fy__shape_like(dst, src);
    dst->dtype = dtype;
    dst->dims[src->rank - 1] = n;
}

static fy_status_t check_rank(const fy_op_info_t *info, const fy_desc_t *src)
{
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, src, info->dtypes));
    if (src->rank >= 1) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH, "%s: src0 is %s, it needs rank 1 or more", info->name,
                   FY__DESC_TEXT(src));
}

/* src0, and indices (src1) with its dims; the last may differ. */
static fy_status_t check_indices(const fy_op_info_t *info, const fy_launch_t *launch)
{
    const fy_desc_t *src = &launch->src[0], *indices = &launch->src[1];
    FY_TRY(check_rank(info, src));
    FY_TRY(fy__check_dtype(info, FY__SRC, 1, indices,
                           FY_DTYPE_BIT(FY_DTYPE_I32) | FY_DTYPE_BIT(FY_DTYPE_I64)));
    bool fits = indices->rank == src->rank;
    for (int axis = 0; fits && axis < src->rank - 1; axis++)
        fits = indices->dims[axis] == src->dims[axis];
    if (fits) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH,
                   "%s: src0 is %s, indices are %s: all dims but the last must be equal",
                   info->name, FY__DESC_TEXT(src), FY__DESC_TEXT(indices));
}

/* Refuses an axis of length 0, unless there is no index. */
static fy_status_t check_length(const fy_op_info_t *info, const fy_desc_t *indices, int64_t length)
{
    if (length > 0 || fy__has_no_element(indices)) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH, "%s: the indices are %s, but the last axis has length 0",
                   info->name, FY__DESC_TEXT(indices));
}

fy_status_t fy__shape_take_along_axis(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *src = &launch->src[0], *indices = &launch->src[1];
    FY_TRY(check_indices(info, launch));
    FY_TRY(check_length(info, indices, src->dims[src->rank - 1]));
    set_result(&launch->dst[0], indices, src->dtype, indices->dims[indices->rank - 1]);
    return FY_STATUS_OK;
}

fy_status_t fy__shape_take_along_axis_backward(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_take_along_axis_backward_attrs_t *attrs = launch->attrs;
    const fy_desc_t *dy = &launch->src[0], *indices = &launch->src[1];
    FY_TRY(check_indices(info, launch));
    if (dy->dims[dy->rank - 1] != indices->dims[dy->rank - 1])
        return FY_FAIL(SHAPE_MISMATCH, "%s: dy (src0) is %s, indices are %s: they must be equal",
                       info->name, FY__DESC_TEXT(dy), FY__DESC_TEXT(indices));
    FY_TRY(check_length(info, indices, attrs->length));
    set_result(&launch->dst[0], dy, dy->dtype, attrs->length);
    return FY_STATUS_OK;
}

fy_status_t fy__shape_topk(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_topk_attrs_t *attrs = launch->attrs;
    const fy_desc_t *src = &launch->src[0];
    FY_TRY(check_rank(info, src));
    if (attrs->k > src->dims[src->rank - 1])
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: k is %" PRId64 ", it is at most the length of the last axis of src0 %s",
                       info->name, attrs->k, FY__DESC_TEXT(src));
    set_result(&launch->dst[0], src, src->dtype, attrs->k);
    set_result(&launch->dst[1], src, FY_DTYPE_I64, attrs->k);
    return FY_STATUS_OK;
}
