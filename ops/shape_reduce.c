/* Shape rules of the reductions, of what works along one axis (softmax, argmax), and of the losses.
 * Negative axes are gone by now: typed calls and fy_op_call turn them round. Next:
 * typed/reduce.c. */
#include "ops/shape.h"

#include <inttypes.h>
#include <stddef.h>

#include "ops/format.h"
#include "runtime/base/fail.h"

/* dst = src without the axes in `axes` (bit i: axis i), or with length 1 there. Says how long what
 * is reduced is, and whether there is a result at all. */
static void reduced_shape(const fy_desc_t *src, uint32_t axes, bool keepdims, fy_desc_t *dst,
                          bool *out_of_nothing)
{
    bool reduces_nothing = false, is_empty = false;
    int rank = 0;
    for (int i = 0; i < src->rank; i++) {
        if (axes & (1u << i)) {
            reduces_nothing |= src->dims[i] == 0;
            if (keepdims) dst->dims[rank++] = 1;
        } else {
            is_empty |= src->dims[i] == 0;
            dst->dims[rank++] = src->dims[i];
        }
    }
    dst->rank = rank;
    *out_of_nothing = reduces_nothing && !is_empty;
}

static fy_status_t check_axes(const fy_op_info_t *info, const fy_desc_t *src, uint32_t axes)
{
    if ((axes & ~((1u << src->rank) - 1)) == 0) return FY_STATUS_OK;
    return FY_FAIL(INVALID_ARGUMENT,
                   "%s: axes 0x%" PRIx32 " has bits beyond the %" PRId32
                   " axes of %s (bit i is axis i)",
                   info->name, axes, src->rank, FY__DESC_TEXT(src));
}

/* dst's shape by fy_reduce_attrs; `needs_one`: a result of no elements is refused. */
static fy_status_t reduce(const fy_op_info_t *info, fy_launch_t *launch, bool needs_one)
{
    const fy_reduce_attrs_t *attrs = launch->attrs;
    const fy_desc_t *src = &launch->src[0];
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, src, info->dtypes));
    FY_TRY(check_axes(info, src, attrs->axes));
    const uint32_t all = (1u << src->rank) - 1;
    bool of_nothing;
    launch->dst[0].dtype = src->dtype;
    reduced_shape(src, attrs->axes ? attrs->axes : all, attrs->keepdims, &launch->dst[0],
                  &of_nothing);
    if (of_nothing && needs_one) {
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: of no elements there is none: src0 is %s, axes 0x%" PRIx32, info->name,
                       FY__DESC_TEXT(src), attrs->axes ? attrs->axes : all);
    }
    return FY_STATUS_OK;
}

/* Sums and products of integers and bool are i64. */
static void widen_integers(fy_launch_t *launch)
{
    switch (launch->src[0].dtype) {
    case FY_DTYPE_I32:
    case FY_DTYPE_I64:
    case FY_DTYPE_U8:
    case FY_DTYPE_BOOL: launch->dst[0].dtype = FY_DTYPE_I64; break;
    default: break;
    }
}

fy_status_t fy__shape_sum(const fy_op_info_t *info, fy_launch_t *launch)
{
    FY_TRY(reduce(info, launch, false));
    widen_integers(launch);
    return FY_STATUS_OK;
}

fy_status_t fy__shape_any(const fy_op_info_t *info, fy_launch_t *launch)
{
    FY_TRY(reduce(info, launch, false));
    launch->dst[0].dtype = FY_DTYPE_BOOL;
    return FY_STATUS_OK;
}

fy_status_t fy__shape_mean(const fy_op_info_t *info, fy_launch_t *launch)
{
    return reduce(info, launch, false);
}

fy_status_t fy__shape_extremum(const fy_op_info_t *info, fy_launch_t *launch)
{
    return reduce(info, launch, true);
}

fy_status_t fy__shape_argmax(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_axis_attrs_t *attrs = launch->attrs;
    const fy_desc_t *src = &launch->src[0];
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, src, info->dtypes));
    FY_TRY(fy__check_axis(info, src, attrs->axis));
    bool of_nothing;
    launch->dst[0].dtype = FY_DTYPE_I64;
    reduced_shape(src, 1u << attrs->axis, attrs->keepdims, &launch->dst[0], &of_nothing);
    if (of_nothing) {
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: of no elements there is none: src0 is %s, axis %" PRId32, info->name,
                       FY__DESC_TEXT(src), attrs->axis);
    }
    return FY_STATUS_OK;
}

fy_status_t fy__shape_along_axis(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_axis_attrs_t *attrs = launch->attrs;
    const fy_desc_t *src = &launch->src[0];
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, src, info->dtypes));
    FY_TRY(fy__check_axis(info, src, attrs->axis));
    fy__shape_like(&launch->dst[0], &launch->src[0]);
    return FY_STATUS_OK;
}

fy_status_t fy__shape_flip(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_flip_attrs_t *attrs = launch->attrs;
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, &launch->src[0], info->dtypes));
    FY_TRY(check_axes(info, &launch->src[0], attrs->axes));
    fy__shape_like(&launch->dst[0], &launch->src[0]);
    return FY_STATUS_OK;
}

fy_status_t fy__shape_cumsum(const fy_op_info_t *info, fy_launch_t *launch)
{
    FY_TRY(fy__shape_along_axis(info, launch));
    widen_integers(launch);
    return FY_STATUS_OK;
}
_Static_assert(offsetof(fy_cumsum_attrs_t, axis) == offsetof(fy_axis_attrs_t, axis),
               "fy__shape_along_axis reads the axis of both");

fy_status_t fy__shape_mse_loss(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *pred = &launch->src[0], *target = &launch->src[1];
    FY_TRY(fy__check_same_dtype(info, launch, 0, 1));
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, pred, info->dtypes));
    if (!fy__same_dims(pred, target)) {
        return FY_FAIL(
            SHAPE_MISMATCH,
            "%s: pred is %s, target is %s: they must be equal, a loss does not broadcast",
            info->name, FY__DESC_TEXT(pred), FY__DESC_TEXT(target));
    }
    launch->dst[0].dtype = pred->dtype;
    launch->dst[0].rank = 0;
    return FY_STATUS_OK;
}
