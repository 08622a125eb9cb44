/* Shape rules of the ops that make values out of nothing: fill, arange, random draws, and of
 * dropout. Their dst is given, so they only check.
 * Not here: creating the tensor (typed/create.c). */
#include "ops/shape.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>

#include "ops/format.h"
#include "runtime/base/fail.h"

/* What an integer dtype holds; both ends are exact in f64. i64's upper end is excluded (2^63). */
static void integer_range(int32_t dtype, double *out_low, double *out_high)
{
    switch (dtype) {
    case FY_DTYPE_I32: *out_low = INT32_MIN, *out_high = INT32_MAX; return;
    case FY_DTYPE_I64: *out_low = -0x1p63, *out_high = 0x1.fffffffffffffp62; return;
    case FY_DTYPE_U8: *out_low = 0, *out_high = UINT8_MAX; return;
    default: *out_low = 0, *out_high = 1; return; /* bool */
    }
}

static bool is_integer(int32_t dtype)
{
    return dtype == FY_DTYPE_I32 || dtype == FY_DTYPE_I64 || dtype == FY_DTYPE_U8 ||
           dtype == FY_DTYPE_BOOL;
}

bool fy__integer_holds(int32_t dtype, double value)
{
    if (!is_integer(dtype)) return true;
    double low, high;
    integer_range(dtype, &low, &high);
    return value >= low && value <= high && value == trunc(value); /* false for NaN */
}

fy_status_t fy__shape_fill(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_fill_attrs_t *attrs = launch->attrs;
    const fy_desc_t *dst = &launch->dst[0];
    FY_TRY(fy__check_dtype(info, FY__DST, 0, dst, info->dtypes));
    if (!is_integer(dst->dtype) || dst->dtype == FY_DTYPE_I64) return FY_STATUS_OK;
    double low, high;
    integer_range(dst->dtype, &low, &high);
    if (attrs->int_value < (int64_t)low || attrs->int_value > (int64_t)high) {
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: int_value %" PRId64 " does not fit dst %s, which holds %.0f .. %.0f",
                       info->name, attrs->int_value, FY__DESC_TEXT(dst), low, high);
    }
    return FY_STATUS_OK;
}

fy_status_t fy__shape_arange(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_arange_attrs_t *attrs = launch->attrs;
    const fy_desc_t *dst = &launch->dst[0];
    FY_TRY(fy__check_dtype(info, FY__DST, 0, dst, info->dtypes));
    if (dst->rank != 1)
        return FY_FAIL(SHAPE_MISMATCH, "%s: dst is %s, it must have rank 1", info->name,
                       FY__DESC_TEXT(dst));
    if (!is_integer(dst->dtype) || dst->dims[0] == 0) return FY_STATUS_OK;
    double low, high, last = attrs->start + (double)(dst->dims[0] - 1) * attrs->step;
    integer_range(dst->dtype, &low, &high);
    if (!(fmin(attrs->start, last) >= low && fmax(attrs->start, last) <= high) || isnan(last)) {
        return FY_FAIL(INVALID_ARGUMENT, "%s: %s .. %s does not fit dst %s, which holds %s .. %s",
                       info->name, FY__NUMBER_TEXT(attrs->start), FY__NUMBER_TEXT(last),
                       FY__DESC_TEXT(dst), FY__NUMBER_TEXT(low), FY__NUMBER_TEXT(high));
    }
    if (attrs->start != trunc(attrs->start) || attrs->step != trunc(attrs->step) ||
        fmax(fabs(attrs->start), fabs(last)) >= 0x1p53)
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: start %s, step %s, last %s: dst %s takes whole numbers below 2^53\n"
                       "  Use f64, or add a tensor of i64",
                       info->name, FY__NUMBER_TEXT(attrs->start), FY__NUMBER_TEXT(attrs->step),
                       FY__NUMBER_TEXT(last), FY__DESC_TEXT(dst));
    return FY_STATUS_OK;
}

/* dst[1] is the random state. */
static fy_status_t check_rng(const fy_op_info_t *info, const fy_launch_t *launch)
{
    const fy_desc_t *rng = &launch->dst[1];
    if (rng->dtype != FY_DTYPE_I64) {
        return FY_FAIL(DTYPE_MISMATCH,
                       "%s: rng (dst1) is %s, it must be [2 i64]: fy_rng_create makes one",
                       info->name, FY__DESC_TEXT(rng));
    }
    if (rng->rank != 1 || rng->dims[0] != 2 || rng->strides[0] != 1) {
        return FY_FAIL(
            SHAPE_MISMATCH,
            "%s: rng (dst1) is %s, it must be a contiguous [2 i64]: fy_rng_create makes one",
            info->name, FY__DESC_TEXT(rng));
    }
    return FY_STATUS_OK;
}

static double largest(int32_t dtype)
{
    return dtype == FY_DTYPE_F64 ? DBL_MAX : dtype == FY_DTYPE_F16 ? 65504 : (double)FLT_MAX;
}

fy_status_t fy__shape_random(const fy_op_info_t *info, fy_launch_t *launch)
{
    FY_TRY(fy__check_dtype(info, FY__DST, 0, &launch->dst[0], info->dtypes));
    FY_TRY(check_rng(info, launch));
    const double *range = launch->attrs; /* low, high or mean, std */
    if (!isfinite(range[0]) || !isfinite(range[1])) {
        return FY_FAIL(INVALID_ARGUMENT, "%s: %s %g and %s %g must be finite", info->name,
                       info->fields[0].name, range[0], info->fields[1].name, range[1]);
    }
    if (info->op != FY_OP_RAND) return FY_STATUS_OK;
    if (range[0] > range[1]) {
        return FY_FAIL(INVALID_ARGUMENT, "%s: low %s is above high %s", info->name,
                       FY__NUMBER_TEXT(range[0]), FY__NUMBER_TEXT(range[1]));
    }
    const double most = largest(launch->dst[0].dtype);
    if (range[0] < -most || range[1] > most || range[1] / 2 - range[0] / 2 > most / 2) {
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: low %g and high %g: they and their difference must be within %g, the "
                       "largest %s",
                       info->name, range[0], range[1], most, fy_dtype_name(launch->dst[0].dtype));
    }
    return FY_STATUS_OK;
}
_Static_assert(sizeof(fy_rand_attrs_t) == 2 * sizeof(double) &&
                   sizeof(fy_randn_attrs_t) == 2 * sizeof(double),
               "fy__shape_random reads both as two doubles");

fy_status_t fy__shape_randperm(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *dst = &launch->dst[0];
    FY_TRY(fy__check_dtype(info, FY__DST, 0, dst, info->dtypes));
    FY_TRY(check_rng(info, launch));
    if (dst->rank != 1 || dst->dims[0] > UINT32_MAX) {
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: dst is %s, it must be of rank 1 with fewer than 2^32 elements",
                       info->name, FY__DESC_TEXT(dst));
    }
    return FY_STATUS_OK;
}

/* ---- dropout ---- */

static fy_status_t check_dropout(const fy_op_info_t *info, const fy_launch_t *launch)
{
    const fy_desc_t *src = &launch->src[0];
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, src, info->dtypes));
    if ((info->op == FY_OP_DROPOUT2D || info->op == FY_OP_DROPOUT2D_BACKWARD) && src->rank != 4)
        return FY_FAIL(SHAPE_MISMATCH, "%s: src0 is %s, it must be images [N, H, W, C]", info->name,
                       FY__DESC_TEXT(src));
    return FY_STATUS_OK;
}

/* A state that was kept: i64 [2]. */
static fy_status_t check_state(const fy_op_info_t *info, fy__side_t side, int index,
                               const fy_desc_t *state)
{
    FY_TRY(fy__check_dtype(info, side, index, state, FY_DTYPE_BIT(FY_DTYPE_I64)));
    if (state->rank == 1 && state->dims[0] == 2) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH, "%s: %s, a random state, is %s, it must be [2 i64]", info->name,
                   fy__operand_format(info->name, side == FY__DST, (size_t)index,
                                      (char[FY__OPERAND_TEXT_NBYTES]){ 0 }),
                   FY__DESC_TEXT(state));
}

fy_status_t fy__shape_dropout(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *src = &launch->src[0], *dst = &launch->dst[0];
    FY_TRY(check_dropout(info, launch));
    if (dst->dtype != src->dtype)
        return FY_FAIL(DTYPE_MISMATCH, "%s: dst0 is %s, src0 is %s: Ferry promotes nothing",
                       info->name, FY__DESC_TEXT(dst), FY__DESC_TEXT(src));
    if (!fy__same_dims(dst, src))
        return FY_FAIL(SHAPE_MISMATCH, "%s: dst0 is %s, src0 is %s: they must be alike", info->name,
                       FY__DESC_TEXT(dst), FY__DESC_TEXT(src));
    FY_TRY(check_rng(info, launch));
    return check_state(info, FY__DST, 2, &launch->dst[2]);
}

fy_status_t fy__shape_dropout_backward(const fy_op_info_t *info, fy_launch_t *launch)
{
    FY_TRY(check_dropout(info, launch));
    FY_TRY(check_state(info, FY__SRC, 1, &launch->src[1]));
    fy__shape_like(&launch->dst[0], &launch->src[0]);
    return FY_STATUS_OK;
}
