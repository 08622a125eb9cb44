/* Shape rules of normalisation: x [..., C] and operands of one value a channel.
 * Not here: the arithmetic (backends/kernels/batch_norm.c). Next: typed/norm.c. */
#include "ops/shape.h"

#include <inttypes.h>

#include "ops/format.h"
#include "runtime/base/fail.h"

static void vector(fy_desc_t *dst, const fy_desc_t *x)
{
    dst->dtype = x->dtype;
    dst->rank = 1;
    dst->dims[0] = x->dims[x->rank - 1];
}

/* `desc` (operand `index` of that side) has one value for each element of the last axis of x (src
 * `at`). */
static fy_status_t check_vector(const fy_op_info_t *info, fy__side_t side, int index,
                                const fy_desc_t *desc, const fy_desc_t *x, int at)
{
    char text[FY__OPERAND_TEXT_NBYTES];
    const int64_t length = x->dims[x->rank - 1];
    if (desc->rank == 1 && desc->dims[0] == length) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH,
                   "%s: %s is %s, x (src%d) is %s: it must be [%" PRId64 "], the length of x's "
                   "last axis",
                   info->name, fy__operand_format(info->name, side == FY__DST, (size_t)index, text),
                   FY__DESC_TEXT(desc), at, FY__DESC_TEXT(x), length);
}

/* Values of channels have x's dtype, or f32: mixed precision keeps parameters and statistics in f32
 * and x in half precision. `weight`: the source whose dtype the others must have. */
static fy_status_t check_channel_dtype(const fy_op_info_t *info, const fy_launch_t *launch,
                                       int weight, int i)
{
    if (i != weight) return fy__check_same_dtype(info, launch, weight, i);
    return fy__check_dtype(info, FY__SRC, (size_t)i, &launch->src[i],
                           FY_DTYPE_BIT(launch->src[0].dtype) | FY_DTYPE_BIT(FY_DTYPE_F32));
}

/* Sources in bit mask `vectors` are [C], the others have x's dtype and shape. `weight`: the first
 * vector, if vectors may be f32; else 0. */
static fy_status_t check_operands(const fy_op_info_t *info, const fy_launch_t *launch, int at,
                                  uint32_t vectors, int weight)
{
    const fy_desc_t *x = &launch->src[at];
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, &launch->src[0], info->dtypes));
    for (int i = 1; i < launch->nsrc; i++)
        FY_TRY(weight && vectors >> i & 1 ? check_channel_dtype(info, launch, weight, i)
                                          : fy__check_same_dtype(info, launch, 0, i));
    if (x->rank < 2)
        return FY_FAIL(SHAPE_MISMATCH, "%s: %s is %s; it needs rank 2 or more: [..., C]",
                       info->name, FY__SRC_TEXT(info->name, at), FY__DESC_TEXT(x));
    for (int i = 0; i < launch->nsrc; i++) {
        const fy_desc_t *desc = &launch->src[i];
        if (vectors >> i & 1)
            FY_TRY(check_vector(info, FY__SRC, i, desc, x, at));
        else if (!fy__same_dims(desc, x))
            return FY_FAIL(SHAPE_MISMATCH, "%s: %s is %s, x (src%d) is %s: it must have x's shape",
                           info->name, FY__SRC_TEXT(info->name, i), FY__DESC_TEXT(desc), at,
                           FY__DESC_TEXT(x));
    }
    return FY_STATUS_OK;
}

/* The variance of one value is 0, and the divisor of the running variance would be 0. */
static fy_status_t check_count(const fy_op_info_t *info, const fy_desc_t *x, int at)
{
    int64_t count = 1;
    for (int i = 0; i + 1 < x->rank; i++) count *= x->dims[i];
    if (count >= 2 || x->dims[x->rank - 1] == 0) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH,
                   "%s: x (src%d) %s has %" PRId64 " value%s a channel, training needs at least 2"
                   "\n  Pass a larger batch, or call fy_batch_norm_inference",
                   info->name, at, FY__DESC_TEXT(x), count, count == 1 ? "" : "s");
}

fy_status_t fy__shape_batch_norm(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *x = &launch->src[0];
    const fy_desc_t *weight = &launch->src[1];
    FY_TRY(check_operands(info, launch, 0, 6, 1));
    FY_TRY(check_count(info, x, 0));
    for (int i = 3; i < 5; i++) {
        const fy_desc_t *running = &launch->dst[i];
        if (running->dtype != weight->dtype)
            return FY_FAIL(DTYPE_MISMATCH,
                           "%s: %s is %s, weight (src1) is %s: they must have one dtype",
                           info->name, FY__DST_TEXT(info->name, i), FY__DESC_TEXT(running),
                           FY__DESC_TEXT(weight));
        FY_TRY(check_vector(info, FY__DST, i, running, x, 0));
    }
    fy__shape_like(&launch->dst[0], x);
    for (int i = 1; i < 3; i++) fy__shape_like(&launch->dst[i], weight);
    return FY_STATUS_OK;
}

fy_status_t fy__shape_batch_norm_backward(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *x = &launch->src[1];
    FY_TRY(check_operands(info, launch, 1, 28, 2));
    FY_TRY(check_count(info, x, 1));
    fy__shape_like(&launch->dst[0], x);
    for (int i = 1; i < launch->ndst; i++) fy__shape_like(&launch->dst[i], &launch->src[2]);
    return FY_STATUS_OK;
}

fy_status_t fy__shape_batch_norm_inference(const fy_op_info_t *info, fy_launch_t *launch)
{
    FY_TRY(check_operands(info, launch, 0, 30, 0));
    fy__shape_like(&launch->dst[0], &launch->src[0]);
    return FY_STATUS_OK;
}

/* ---- rows ---- */

/* One value a row of x: x's dims but the last. */
static void rows_of(fy_desc_t *dst, const fy_desc_t *x)
{
    fy__shape_like(dst, x);
    dst->rank--;
}

/* Weight and bias: sources `first` and after. */
static fy_status_t check_rows(const fy_op_info_t *info, const fy_launch_t *launch, int at,
                              int first)
{
    const fy_desc_t *x = &launch->src[at];
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, &launch->src[0], info->dtypes));
    for (int i = 1; i < launch->nsrc; i++) FY_TRY(fy__check_same_dtype(info, launch, 0, i));
    if (x->rank == 0)
        return FY_FAIL(SHAPE_MISMATCH, "%s: %s is a scalar, it needs a row: [..., C]", info->name,
                       FY__SRC_TEXT(info->name, at));
    for (int i = first; i < launch->nsrc; i++)
        FY_TRY(check_vector(info, FY__SRC, i, &launch->src[i], x, at));
    return FY_STATUS_OK;
}

fy_status_t fy__shape_layer_norm(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *x = &launch->src[0];
    int64_t count = 1;
    FY_TRY(check_rows(info, launch, 0, 1));
    for (int i = 0; i + 1 < x->rank; i++) count *= x->dims[i];
    if (x->dims[x->rank - 1] == 0 && count > 0)
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: x (src0) is %s; its last axis must have at least one element",
                       info->name, FY__DESC_TEXT(x));
    fy__shape_like(&launch->dst[0], x);
    for (int i = 1; i < launch->ndst; i++) rows_of(&launch->dst[i], x);
    return FY_STATUS_OK;
}

fy_status_t fy__shape_layer_norm_backward(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *x = &launch->src[1];
    const int weight = launch->op == FY_OP_RMS_NORM_BACKWARD ? 3 : 4;
    fy_desc_t row;
    FY_TRY(check_rows(info, launch, 1, weight));
    rows_of(&row, x);
    for (int i = 0; i < weight; i++) {
        const fy_desc_t *desc = &launch->src[i], *want = i < 2 ? x : &row;
        if (fy__same_dims(desc, want)) continue;
        return FY_FAIL(SHAPE_MISMATCH, "%s: %s is %s, x (src1) is %s: it must have %s", info->name,
                       FY__SRC_TEXT(info->name, i), FY__DESC_TEXT(desc), FY__DESC_TEXT(x),
                       i < 2 ? "x's shape" : "x's dims without the last");
    }
    fy__shape_like(&launch->dst[0], x);
    for (int i = 1; i < launch->ndst; i++) vector(&launch->dst[i], x);
    return FY_STATUS_OK;
}
