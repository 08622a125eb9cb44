/* Typed calls of the losses of classifiers, and of their gradients.
 * Not here: mse_loss (linalg.c), the formulas (backends/kernels/class_loss.c). */
#include "ops/typed/typed.h"

static fy_status_t loss(fy_op_t op, const fy_tensor_t *scores, const fy_tensor_t *targets, fy_reduction_t reduction, fy_tensor_t **out_loss)
{
    const fy_tensor_t *src[2] = { scores, targets };
    const fy_loss_attrs_t attrs = { (int32_t)reduction };
    return fy__op_new(op, 2, src, &attrs, out_loss);
}

fy_status_t fy_nll_loss(const fy_tensor_t *log_probs, const fy_tensor_t *targets, fy_reduction_t reduction, fy_tensor_t **out_loss)
{
    return loss(FY_OP_NLL_LOSS, log_probs, targets, reduction, out_loss);
}

fy_status_t fy_cross_entropy(const fy_tensor_t *logits, const fy_tensor_t *targets, fy_reduction_t reduction, fy_tensor_t **out_loss)
{
    return loss(FY_OP_CROSS_ENTROPY, logits, targets, reduction, out_loss);
}

fy_status_t fy_nll_loss_backward(const fy_tensor_t *dy, const fy_tensor_t *targets, int classes, fy_reduction_t reduction,
                                 fy_tensor_t **out_dx)
{
    const fy_tensor_t *src[2] = { dy, targets };
    const fy_nll_loss_backward_attrs_t attrs = { (int32_t)reduction, classes };
    return fy__op_new(FY_OP_NLL_LOSS_BACKWARD, 2, src, &attrs, out_dx);
}

fy_status_t fy_cross_entropy_backward(const fy_tensor_t *dy, const fy_tensor_t *logits, const fy_tensor_t *targets,
                                      fy_reduction_t reduction, fy_tensor_t **out_dx)
{
    const fy_tensor_t *src[3] = { dy, logits, targets };
    const fy_loss_attrs_t attrs = { (int32_t)reduction };
    return fy__op_new(FY_OP_CROSS_ENTROPY_BACKWARD, 3, src, &attrs, out_dx);
}
