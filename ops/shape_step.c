/* Shape rules of what a training loop does to gradients and parameters: clamp, loss scaling and the
 * steps of optimizers. They check conditions between attributes; ranges are checked before
 * (attrs.c).
 * Not here: the formulas (opset/formulas/step.h). */
#include "ops/shape.h"

#include <inttypes.h>
#include <math.h>

#include "ops/format.h"
#include "opset/dtypes.h"
#include "opset/formulas/step.h"
#include "opset/formulas/step_results.h"
#include "runtime/base/fail.h"

fy_status_t fy__shape_clamp(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_clamp_attrs_t *attrs = launch->attrs;
    if (!(attrs->low <= attrs->high))
        return FY_FAIL(INVALID_ARGUMENT, "%s: low %s is not at or below high %s", info->name,
                       FY__NUMBER_TEXT(attrs->low), FY__NUMBER_TEXT(attrs->high));
    return fy__shape_unary(info, launch);
}

/* ---- loss scaling ---- */

static fy_status_t check_scaling(const fy_op_info_t *info, bool is_dst, int index,
                                 const fy_desc_t *scaling)
{
    FY_TRY(fy__check_dtype(info, is_dst, index, scaling, FY_DTYPE_BIT(FY_DTYPE_F64)));
    if (scaling->rank == 1 && scaling->dims[0] == FY__SCALING_LENGTH) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH,
                   "%s: scaling (%s%d) is %s; it must be [%d f64]: scale, divisor, found, good and "
                   "skipped steps",
                   info->name, is_dst ? "dst" : "src", index, FY__DESC_TEXT(scaling),
                   FY__SCALING_LENGTH);
}

fy_status_t fy__shape_check_finite(const fy_op_info_t *info, fy_launch_t *launch)
{
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, &launch->src[0], info->dtypes));
    return check_scaling(info, FY__DST, 0, &launch->dst[0]);
}

fy_status_t fy__shape_update_scaling(const fy_op_info_t *info, fy_launch_t *launch)
{
    return check_scaling(info, FY__DST, 0, &launch->dst[0]);
}

/* ---- steps ---- */

static fy_status_t check_sgd(const fy_op_info_t *info, const fy_sgd_attrs_t *attrs)
{
    if (!isfinite(attrs->dampening))
        return FY_FAIL(INVALID_ARGUMENT, "%s: dampening %g is not finite", info->name,
                       attrs->dampening);
    if (info->op == FY_OP_SGD_STEP && (attrs->momentum != 0 || attrs->nesterov))
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: momentum %g needs a tensor to be kept in: sgd_momentum_step",
                       info->name, attrs->momentum);
    if (attrs->nesterov && (attrs->momentum == 0 || attrs->dampening != 0))
        return FY_FAIL(
            INVALID_ARGUMENT,
            "%s: nesterov needs a momentum above 0 (it is %g) and dampening 0 (it is %g)",
            info->name, attrs->momentum, attrs->dampening);
    return FY_STATUS_OK;
}

static fy_status_t check_rmsprop(const fy_op_info_t *info, const fy_rmsprop_attrs_t *attrs)
{
    if (info->op == FY_OP_RMSPROP_MOMENTUM_STEP || attrs->momentum == 0) return FY_STATUS_OK;
    return FY_FAIL(INVALID_ARGUMENT,
                   "%s: momentum %g needs a tensor to be kept in: rmsprop_momentum_step",
                   info->name, attrs->momentum);
}

static fy_status_t check_parts(const fy_op_info_t *info, const fy_launch_t *launch)
{
    if (launch->nsrc < 3) return FY_STATUS_OK;
    const fy_desc_t *parts = &launch->src[2];
    FY_TRY(fy__check_dtype(info, FY__SRC, 2, parts, FY_DTYPE_BIT(FY_DTYPE_F64)));
    if (parts->rank == 2 && parts->dims[0] > 0 && parts->dims[1] == 3) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH,
                   "%s: parts (src2) is %s; it has a row of 3 numbers for each part: first "
                   "element, factor of lr, factor of weight_decay",
                   info->name, FY__DESC_TEXT(parts));
}

/* A row for each part: the ratio, then two sums for each run. */
static fy_status_t check_trust(const fy_op_info_t *info, const fy_launch_t *launch, int index)
{
    const fy_desc_t *trust = &launch->dst[index];
    const int64_t nparts = launch->nsrc > 2 ? launch->src[2].dims[0] : 1;
    FY_TRY(fy__check_dtype(info, FY__DST, index, trust, FY_DTYPE_BIT(FY_DTYPE_F64)));
    if (trust->rank == 2 && trust->dims[0] == nparts && trust->dims[1] >= 3 &&
        trust->dims[1] % 2 == 1)
        return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH,
                   "%s: trust (dst%d) is %s; it must be [%" PRId64
                   ", 1 + 2 runs], a row for each part",
                   info->name, index, FY__DESC_TEXT(trust), nparts);
}

/* The copy of an f32 parameter in half precision. */
static fy_status_t check_low(const fy_op_info_t *info, const fy_launch_t *launch, int index)
{
    const fy_desc_t *low = &launch->dst[index], *param = &launch->dst[0];
    FY_TRY(fy__check_dtype(info, FY__DST, index, low, FY__SET_HALF));
    if (param->dtype != FY_DTYPE_F32)
        return FY_FAIL(DTYPE_MISMATCH,
                       "%s: low (dst%d) copies a parameter of f32, and this one (dst0) is %s",
                       info->name, index, FY__DESC_TEXT(param));
    if (fy__same_dims(low, param)) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH, "%s: low (dst%d) is %s, the parameter (dst0) %s", info->name,
                   index, FY__DESC_TEXT(low), FY__DESC_TEXT(param));
}

/* The state of a step has the parameter's shape, and its dtype or f32 if that is half. */
static fy_status_t check_state(const fy_op_info_t *info, const fy_launch_t *launch)
{
    const fy__step_results_t results = fy__step_results(info->op, launch->ndst);
    const fy_desc_t *param = &launch->dst[0];
    const bool is_half = FY__SET_HALF >> param->dtype & 1;
    const int number = results.number;
    for (int i = 1; i < results.nalike; i++) {
        const fy_desc_t *state = &launch->dst[i];
        if (state->dtype != (is_half ? FY_DTYPE_F32 : param->dtype))
            return FY_FAIL(DTYPE_MISMATCH, "%s: %s is %s, the parameter (dst0) %s%s", info->name,
                           FY__DST_TEXT(info->name, i), FY__DESC_TEXT(state), FY__DESC_TEXT(param),
                           is_half ? "; states of f16 and bf16 are f32" : "");
        if (!fy__same_dims(state, param))
            return FY_FAIL(SHAPE_MISMATCH, "%s: %s is %s, the parameter (dst0) %s", info->name,
                           FY__DST_TEXT(info->name, i), FY__DESC_TEXT(state), FY__DESC_TEXT(param));
    }
    if (results.trust >= 0) FY_TRY(check_trust(info, launch, results.trust));
    if (results.low >= 0) FY_TRY(check_low(info, launch, results.low));
    if (number < 0) return FY_STATUS_OK;
    FY_TRY(
        fy__check_dtype(info, FY__DST, number, &launch->dst[number], FY_DTYPE_BIT(FY_DTYPE_I64)));
    if (launch->dst[number].rank == 0) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH, "%s: the step number (dst%d) is %s, it must be a scalar",
                   info->name, number, FY__DESC_TEXT(&launch->dst[number]));
}

fy_status_t fy__shape_step(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *grad = &launch->src[0], *lr = &launch->src[1], *param = &launch->dst[0];
    FY_TRY(fy__check_dtype(info, FY__DST, 0, param, info->dtypes));
    if (grad->dtype != param->dtype)
        return FY_FAIL(DTYPE_MISMATCH, "%s: the gradient (src0) is %s, the parameter (dst0) %s",
                       info->name, FY__DESC_TEXT(grad), FY__DESC_TEXT(param));
    FY_TRY(fy__check_dtype(info, FY__SRC, 1, lr, FY__SET_REAL));
    if (!fy__same_dims(grad, param))
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: the gradient (src0) is %s, the parameter (dst0) %s: they must be alike",
                       info->name, FY__DESC_TEXT(grad), FY__DESC_TEXT(param));
    if (lr->rank != 0)
        return FY_FAIL(SHAPE_MISMATCH, "%s: the learning rate (src1) is %s, it must be a scalar",
                       info->name, FY__DESC_TEXT(lr));
    FY_TRY(check_parts(info, launch));
    if (launch->nsrc > 3) FY_TRY(check_scaling(info, FY__SRC, 3, &launch->src[3]));
    FY_TRY(check_state(info, launch));
    switch (info->op) {
    case FY_OP_SGD_STEP:
    case FY_OP_SGD_MOMENTUM_STEP: return check_sgd(info, launch->attrs);
    case FY_OP_RMSPROP_STEP:
    case FY_OP_RMSPROP_CENTERED_STEP:
    case FY_OP_RMSPROP_MOMENTUM_STEP: return check_rmsprop(info, launch->attrs);
    default: return FY_STATUS_OK;
    }
}
