/* Typed calls that a training loop applies to gradients and parameters, in place: clipping, loss
 * scaling and the steps of optimizers.
 * Not here: whether shapes and numbers fit (shape_step.c), schedules and parameter blocks
 * (train/). */
#include "ops/typed/typed.h"

#include "ops/format.h"
#include "runtime/tensor/tensor.h"

fy_status_t fy_clip_by_norm(fy_tensor_t *dst, const fy_tensor_t *norm, double max_norm)
{
    FY__REQUIRE("clip_by_norm", dst);
    const fy_clip_attrs_t attrs = { max_norm };
    return fy__op_into(FY_OP_CLIP_BY_NORM, 1, &norm, &attrs, dst);
}

/* ---- loss scaling ---- */

fy_status_t fy_check_finite(fy_tensor_t *scaling, const fy_tensor_t *x)
{
    FY__REQUIRE("check_finite", scaling);
    return fy__op_into(FY_OP_CHECK_FINITE, 1, &x, NULL, scaling);
}

fy_status_t fy_update_scaling(fy_tensor_t *scaling, const fy_update_scaling_attrs_t *attrs)
{
    FY__REQUIRE("update_scaling", scaling);
    return fy__op_into(FY_OP_UPDATE_SCALING, 0, NULL, fy__typed_attrs(FY_OP_UPDATE_SCALING, attrs),
                       scaling);
}

/* ---- steps ---- */

/* dst has the parameter and the state that is updated with it; none is NULL. */
static fy_status_t step_parts(fy_op_t op, const fy_tensor_t *grad, const fy_tensor_t *lr,
                              const fy_tensor_t *parts, const void *attrs, size_t ndst,
                              fy_tensor_t **dst)
{
    const fy_tensor_t *src[3] = { grad, lr, parts };
    const char *name = fy__op_rows[op].info.name;
    for (size_t i = 0; i < ndst; i++) {
        if (!dst[i])
            return FY_FAIL(INVALID_ARGUMENT, "%s: %s, which is updated in place, is NULL", name,
                           FY__DST_TEXT(name, i));
    }
    return fy__dispatch(&fy__op_rows[op], parts ? 3 : 2, src, fy__typed_attrs(op, attrs), 0, ndst,
                        dst);
}

static fy_status_t step(fy_op_t op, const fy_tensor_t *grad, const fy_tensor_t *lr,
                        const void *attrs, size_t ndst, fy_tensor_t **dst)
{
    return step_parts(op, grad, lr, NULL, attrs, ndst, dst);
}

fy_status_t fy_sgd_step(fy_tensor_t *param, const fy_tensor_t *grad, const fy_tensor_t *lr,
                        const fy_sgd_attrs_t *attrs)
{
    return step(FY_OP_SGD_STEP, grad, lr, attrs, 1, &param);
}

fy_status_t fy_sgd_momentum_step(fy_tensor_t *param, const fy_tensor_t *grad, fy_tensor_t *momentum,
                                 fy_tensor_t *step_number, const fy_tensor_t *lr,
                                 const fy_sgd_attrs_t *attrs)
{
    fy_tensor_t *dst[3] = { param, momentum, step_number };
    return step(FY_OP_SGD_MOMENTUM_STEP, grad, lr, attrs, 3, dst);
}

fy_status_t fy_adam_step(fy_tensor_t *param, const fy_tensor_t *grad, fy_tensor_t *exp_avg,
                         fy_tensor_t *exp_avg_sq, fy_tensor_t *step_number, const fy_tensor_t *lr,
                         const fy_adam_attrs_t *attrs)
{
    fy_tensor_t *dst[4] = { param, exp_avg, exp_avg_sq, step_number };
    return step(FY_OP_ADAM_STEP, grad, lr, attrs, 4, dst);
}

fy_status_t fy_adadelta_step(fy_tensor_t *param, const fy_tensor_t *grad, fy_tensor_t *square_avg,
                             fy_tensor_t *acc_delta, const fy_tensor_t *lr,
                             const fy_adadelta_attrs_t *attrs)
{
    fy_tensor_t *dst[3] = { param, square_avg, acc_delta };
    return step(FY_OP_ADADELTA_STEP, grad, lr, attrs, 3, dst);
}

fy_status_t fy_rmsprop_step(fy_tensor_t *param, const fy_tensor_t *grad, fy_tensor_t *square_avg,
                            const fy_tensor_t *lr, const fy_rmsprop_attrs_t *attrs)
{
    fy_tensor_t *dst[2] = { param, square_avg };
    return step(FY_OP_RMSPROP_STEP, grad, lr, attrs, 2, dst);
}

fy_status_t fy_rmsprop_momentum_step(fy_tensor_t *param, const fy_tensor_t *grad,
                                     fy_tensor_t *square_avg, fy_tensor_t *momentum,
                                     const fy_tensor_t *lr, const fy_rmsprop_attrs_t *attrs)
{
    fy_tensor_t *dst[3] = { param, square_avg, momentum };
    return step(FY_OP_RMSPROP_MOMENTUM_STEP, grad, lr, attrs, 3, dst);
}

fy_status_t fy_rmsprop_centered_step(fy_tensor_t *param, const fy_tensor_t *grad,
                                     fy_tensor_t *square_avg, fy_tensor_t *grad_avg,
                                     const fy_tensor_t *lr, const fy_rmsprop_attrs_t *attrs)
{
    fy_tensor_t *dst[3] = { param, square_avg, grad_avg };
    return step(FY_OP_RMSPROP_CENTERED_STEP, grad, lr, attrs, 3, dst);
}

fy_status_t fy_lars_step(fy_tensor_t *param, const fy_tensor_t *grad, fy_tensor_t *momentum,
                         fy_tensor_t *trust, const fy_tensor_t *parts, const fy_tensor_t *lr,
                         const fy_lars_attrs_t *attrs)
{
    fy_tensor_t *dst[3] = { param, momentum, trust };
    return step_parts(FY_OP_LARS_STEP, grad, lr, parts, attrs, 3, dst);
}

fy_status_t fy_lamb_step(fy_tensor_t *param, const fy_tensor_t *grad, fy_tensor_t *exp_avg,
                         fy_tensor_t *exp_avg_sq, fy_tensor_t *trust, fy_tensor_t *step_number,
                         const fy_tensor_t *parts, const fy_tensor_t *lr,
                         const fy_lamb_attrs_t *attrs)
{
    fy_tensor_t *dst[5] = { param, exp_avg, exp_avg_sq, trust, step_number };
    return step_parts(FY_OP_LAMB_STEP, grad, lr, parts, attrs, 5, dst);
}
