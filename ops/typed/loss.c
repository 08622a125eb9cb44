/* Typed calls of the losses of classifiers, and of their gradients; of the gradients of softmax,
 * log_softmax and mse_loss.
 * Not here: those themselves (linalg.c), the formulas (backends/kernels/class_loss.c). */
#include "ops/typed/typed.h"

static fy_status_t loss(fy_op_t op, const fy_tensor_t *scores, const fy_tensor_t *targets,
                        fy_reduction_t reduction, fy_tensor_t **out_loss)
{
    const fy_tensor_t *src[2] = { scores, targets };
    const fy_loss_attrs_t attrs = { (int32_t)reduction };
    return fy__op_new(op, 2, src, &attrs, out_loss);
}

fy_status_t fy_nll_loss(const fy_tensor_t *log_probs, const fy_tensor_t *targets,
                        fy_reduction_t reduction, fy_tensor_t **out_loss)
{
    return loss(FY_OP_NLL_LOSS, log_probs, targets, reduction, out_loss);
}

fy_status_t fy_cross_entropy(const fy_tensor_t *logits, const fy_tensor_t *targets,
                             fy_reduction_t reduction, fy_tensor_t **out_loss)
{
    return loss(FY_OP_CROSS_ENTROPY, logits, targets, reduction, out_loss);
}

fy_status_t fy_nll_loss_backward(const fy_tensor_t *dy, const fy_tensor_t *targets, int classes,
                                 fy_reduction_t reduction, fy_tensor_t **out_dx)
{
    const fy_tensor_t *src[2] = { dy, targets };
    const fy_nll_loss_backward_attrs_t attrs = { (int32_t)reduction, classes };
    return fy__op_new(FY_OP_NLL_LOSS_BACKWARD, 2, src, &attrs, out_dx);
}

fy_status_t fy_cross_entropy_backward(const fy_tensor_t *dy, const fy_tensor_t *logits,
                                      const fy_tensor_t *targets, fy_reduction_t reduction,
                                      fy_tensor_t **out_dx)
{
    const fy_tensor_t *src[3] = { dy, logits, targets };
    const fy_loss_attrs_t attrs = { (int32_t)reduction };
    return fy__op_new(FY_OP_CROSS_ENTROPY_BACKWARD, 3, src, &attrs, out_dx);
}

static fy_status_t along(fy_op_t op, const char *call, const fy_tensor_t *dy, const fy_tensor_t *y,
                         int axis, fy_tensor_t **out_dx)
{
    const fy_tensor_t *src[2] = { dy, y };
    fy_axis_attrs_t attrs = { 0, 0 };
    if (!out_dx) return fy__op_no_out(op);
    *out_dx = NULL;
    if (!dy) return FY_FAIL(INVALID_ARGUMENT, "%s: dy is NULL", call);
    FY_TRY(fy__typed_axis(call, dy, axis, &attrs.axis));
    return fy__op_new(op, 2, src, &attrs, out_dx);
}

fy_status_t fy_softmax_backward(const fy_tensor_t *dy, const fy_tensor_t *y, int axis,
                                fy_tensor_t **out_dx)
{
    return along(FY_OP_SOFTMAX_BACKWARD, "softmax_backward", dy, y, axis, out_dx);
}

fy_status_t fy_log_softmax_backward(const fy_tensor_t *dy, const fy_tensor_t *y, int axis,
                                    fy_tensor_t **out_dx)
{
    return along(FY_OP_LOG_SOFTMAX_BACKWARD, "log_softmax_backward", dy, y, axis, out_dx);
}

fy_status_t fy_mse_loss_backward(const fy_tensor_t *dy, const fy_tensor_t *pred,
                                 const fy_tensor_t *target, fy_tensor_t **out_dx)
{
    const fy_tensor_t *src[3] = { dy, pred, target };
    return fy__op_new(FY_OP_MSE_LOSS_BACKWARD, 3, src, NULL, out_dx);
}
