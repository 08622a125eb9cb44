/* Typed reductions, softmax, losses and their gradients. They turn a list of axes into the mask
 * that the op takes, and count negative axes from the end.
 * Not here: whether an axis exists in the end (shape_reduce.c), the formulas of losses
 * (backends/kernels/class_loss.c). Next: product.c. */
#include "ops/typed/typed.h"

#include "runtime/tensor/tensor.h"

fy_status_t fy__typed_axis(const char *call, const fy_tensor_t *src, int axis, int32_t *out_axis)
{
    *out_axis = axis;
    if (axis >= 0) return FY_STATUS_OK; /* the shape rule knows the rank anyway */
    if (axis < -src->rank)
        return FY_FAIL(INVALID_ARGUMENT, "%s: axis %d does not exist in a tensor of rank %d", call,
                       axis, src->rank);
    *out_axis = axis + src->rank;
    return FY_STATUS_OK;
}

fy_status_t fy__typed_axes(const char *call, const fy_tensor_t *src, int naxes, const int *axes,
                           uint32_t *out_mask)
{
    *out_mask = 0;
    if (naxes < 0 || naxes > FY_MAX_RANK)
        return FY_FAIL(INVALID_ARGUMENT, "%s: naxes %d, legal are 0 .. %d (0: all axes)", call,
                       naxes, FY_MAX_RANK);
    if (naxes > 0 && !axes)
        return FY_FAIL(INVALID_ARGUMENT, "%s: axes is NULL, naxes is %d", call, naxes);
    for (int i = 0; i < naxes; i++) {
        int32_t axis;
        FY_TRY(fy__typed_axis(call, src, axes[i], &axis));
        if (axis >= src->rank)
            return FY_FAIL(INVALID_ARGUMENT, "%s: axis %d does not exist in a tensor of rank %d",
                           call, axes[i], src->rank);
        if (*out_mask & (1u << axis))
            return FY_FAIL(INVALID_ARGUMENT, "%s: axis %d is named twice", call, axes[i]);
        *out_mask |= 1u << axis;
    }
    return FY_STATUS_OK;
}

fy_status_t fy__typed_results(fy_op_t op, size_t nsrc, const fy_tensor_t *const *src,
                              const void *attrs, size_t needed, size_t ndst,
                              fy_tensor_t **const *outs)
{
    const fy_op_info_t *info = &fy__op_rows[op].info;
    fy_tensor_t *dst[3] = { NULL, NULL, NULL };
    for (size_t i = 0; i < ndst; i++)
        if (outs[i]) *outs[i] = NULL;
    for (size_t i = 0; i < needed; i++)
        if (!outs[i])
            return FY_FAIL(INVALID_ARGUMENT, "%s: out_%s is NULL", info->name, info->dst[i].name);
    FY_TRY(fy__dispatch(&fy__op_rows[op], nsrc, src, fy__typed_attrs(op, attrs), 0, ndst, dst));
    for (size_t i = 0; i < ndst; i++) fy__typed_give(outs[i], dst[i]);
    return FY_STATUS_OK;
}

static fy_status_t reduce(fy_op_t op, const fy_tensor_t *src, int naxes, const int *axes,
                          int keepdims, fy_tensor_t **out_dst)
{
    const char *call = fy__op_rows[op].info.name;
    if (!out_dst) return FY_FAIL(INVALID_ARGUMENT, "%s: out_dst is NULL", call);
    *out_dst = NULL;
    if (!src) return FY_FAIL(INVALID_ARGUMENT, "%s: src is NULL", call);
    fy_reduce_attrs_t attrs = { 0, keepdims != 0 };
    FY_TRY(fy__typed_axes(call, src, naxes, axes, &attrs.axes));
    return fy__op_new(op, 1, &src, &attrs, out_dst);
}

#define REDUCTION(ENUM, name)                                                               \
    fy_status_t fy_##name(const fy_tensor_t *src, int naxes, const int *axes, int keepdims, \
                          fy_tensor_t **out_dst)                                            \
    {                                                                                       \
        return reduce(FY_OP_##ENUM, src, naxes, axes, keepdims, out_dst);                   \
    }
REDUCTION(SUM, sum)
REDUCTION(PROD, prod)
REDUCTION(ANY, any)
REDUCTION(ALL, all)
REDUCTION(MEAN, mean)
REDUCTION(NORM, norm)
REDUCTION(MAX, max)
REDUCTION(MIN, min)
/* An op along one axis. */
static fy_status_t along(fy_op_t op, const fy_tensor_t *src, int axis, int keepdims,
                         fy_tensor_t **out_dst)
{
    const char *call = fy__op_rows[op].info.name;
    if (!out_dst) return FY_FAIL(INVALID_ARGUMENT, "%s: out_dst is NULL", call);
    *out_dst = NULL;
    if (!src) return FY_FAIL(INVALID_ARGUMENT, "%s: src is NULL", call);
    fy_axis_attrs_t attrs = { 0, keepdims != 0 };
    FY_TRY(fy__typed_axis(call, src, axis, &attrs.axis));
    return fy__op_new(op, 1, &src, &attrs, out_dst);
}

fy_status_t fy_argmax(const fy_tensor_t *src, int axis, int keepdims, fy_tensor_t **out_dst)
{
    return along(FY_OP_ARGMAX, src, axis, keepdims, out_dst);
}

fy_status_t fy_argmin(const fy_tensor_t *src, int axis, int keepdims, fy_tensor_t **out_dst)
{
    return along(FY_OP_ARGMIN, src, axis, keepdims, out_dst);
}

fy_status_t fy_cumsum(const fy_tensor_t *src, int axis, int reverse, fy_tensor_t **out_dst)
{
    FY__REQUIRE_OUT("cumsum", out_dst);
    FY__REQUIRE("cumsum", src);
    fy_cumsum_attrs_t attrs = { 0, reverse != 0 };
    FY_TRY(fy__typed_axis("cumsum", src, axis, &attrs.axis));
    return fy__op_new(FY_OP_CUMSUM, 1, &src, &attrs, out_dst);
}

/* ---- softmax and losses ---- */

fy_status_t fy_softmax(const fy_tensor_t *src, int axis, fy_tensor_t **out_dst)
{
    return along(FY_OP_SOFTMAX, src, axis, 0, out_dst);
}

fy_status_t fy_log_softmax(const fy_tensor_t *src, int axis, fy_tensor_t **out_dst)
{
    return along(FY_OP_LOG_SOFTMAX, src, axis, 0, out_dst);
}

fy_status_t fy_mse_loss(const fy_tensor_t *pred, const fy_tensor_t *target, fy_tensor_t **out_loss)
{
    const fy_tensor_t *src[2] = { pred, target };
    return fy__op_new(FY_OP_MSE_LOSS, 2, src, NULL, out_loss);
}

static const fy_class_loss_attrs_t k_class_loss = FY_CLASS_LOSS_ATTRS_INIT;

static fy_status_t loss(fy_op_t op, const fy_tensor_t *scores, const fy_tensor_t *targets,
                        fy_reduction_t reduction, fy_tensor_t **out_loss)
{
    const fy_tensor_t *src[2] = { scores, targets };
    fy_class_loss_attrs_t attrs = k_class_loss;
    attrs.reduction = (int32_t)reduction;
    return fy__op_new(op, 2, src, &attrs, out_loss);
}

fy_status_t fy_nll_loss_with(const fy_tensor_t *log_probs, const fy_tensor_t *targets,
                             const fy_tensor_t *weight, const fy_class_loss_attrs_t *attrs,
                             fy_tensor_t **out_loss)
{
    const fy_tensor_t *src[3] = { log_probs, targets, weight };
    return fy__op_new(FY_OP_NLL_LOSS, weight ? 3 : 2, src, attrs ? attrs : &k_class_loss, out_loss);
}

fy_status_t fy_cross_entropy_with(const fy_tensor_t *logits, const fy_tensor_t *targets,
                                  const fy_tensor_t *weight, const fy_class_loss_attrs_t *attrs,
                                  fy_tensor_t **out_loss)
{
    const fy_tensor_t *src[3] = { logits, targets, weight };
    return fy__op_new(FY_OP_CROSS_ENTROPY, weight ? 3 : 2, src, attrs ? attrs : &k_class_loss,
                      out_loss);
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
    const fy_class_loss_backward_attrs_t attrs = { (int32_t)reduction, classes,
                                                   k_class_loss.ignore_index };
    return fy__op_new(FY_OP_NLL_LOSS_BACKWARD, 2, src, &attrs, out_dx);
}

fy_status_t fy_cross_entropy_backward(const fy_tensor_t *dy, const fy_tensor_t *logits,
                                      const fy_tensor_t *targets, fy_reduction_t reduction,
                                      fy_tensor_t **out_dx)
{
    const fy_tensor_t *src[3] = { dy, logits, targets };
    fy_class_loss_attrs_t attrs = k_class_loss;
    attrs.reduction = (int32_t)reduction;
    return fy__op_new(FY_OP_CROSS_ENTROPY_BACKWARD, 3, src, &attrs, out_dx);
}

static fy_status_t back_along(fy_op_t op, const fy_tensor_t *dy, const fy_tensor_t *y, int axis,
                              fy_tensor_t **out_dx)
{
    const fy_tensor_t *src[2] = { dy, y };
    const char *call = fy__op_rows[op].info.name;
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
    return back_along(FY_OP_SOFTMAX_BACKWARD, dy, y, axis, out_dx);
}

fy_status_t fy_log_softmax_backward(const fy_tensor_t *dy, const fy_tensor_t *y, int axis,
                                    fy_tensor_t **out_dx)
{
    return back_along(FY_OP_LOG_SOFTMAX_BACKWARD, dy, y, axis, out_dx);
}

fy_status_t fy_mse_loss_backward(const fy_tensor_t *dy, const fy_tensor_t *pred,
                                 const fy_tensor_t *target, fy_tensor_t **out_dx)
{
    const fy_tensor_t *src[3] = { dy, pred, target };
    return fy__op_new(FY_OP_MSE_LOSS_BACKWARD, 3, src, NULL, out_dx);
}
