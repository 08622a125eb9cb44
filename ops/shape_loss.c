/* Shape rules of the losses of classifiers and of their gradients, one class a row (the last axis);
 * of one_hot; and of the gradients of softmax and mse_loss.
 * Not here: whether a class exists, which only the data says (a kernel raises the fault flag).
 * Next: typed/reduce.c. */
#include "ops/shape.h"

#include <inttypes.h>

#include "ops/format.h"
#include "runtime/base/fail.h"

/* log_probs or logits (src `x`) and targets (src `t`) of one another. */
static fy_status_t check_classes(const fy_op_info_t *info, const fy_launch_t *launch, int x, int t)
{
    const fy_desc_t *scores = &launch->src[x], *targets = &launch->src[t];
    bool fits = scores->rank >= 2 && targets->rank == scores->rank - 1;
    FY_TRY(fy__check_dtype(info, FY__SRC, x, scores, info->dtypes));
    FY_TRY(fy__check_dtype(info, FY__SRC, t, targets,
                           FY_DTYPE_BIT(FY_DTYPE_I32) | FY_DTYPE_BIT(FY_DTYPE_I64)));
    for (int i = 0; fits && i < targets->rank; i++) fits = scores->dims[i] == targets->dims[i];
    if (!fits)
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: src%d is %s, the targets (src%d) are %s: it takes [N, ..., C] and "
                       "[N, ...]; fy_transpose puts the classes last",
                       info->name, x, FY__DESC_TEXT(scores), t, FY__DESC_TEXT(targets));
    if (scores->dims[scores->rank - 1] == 0 && !fy__has_no_element(targets))
        return FY_FAIL(SHAPE_MISMATCH, "%s: src%d %s has no class that a target could name",
                       info->name, x, FY__DESC_TEXT(scores));
    return FY_STATUS_OK;
}

/* One weight a class, in the dtype of source 0, if there is a source `w`. */
static fy_status_t check_weight(const fy_op_info_t *info, const fy_launch_t *launch, int w,
                                int64_t classes)
{
    if (launch->nsrc <= w) return FY_STATUS_OK;
    const fy_desc_t *weight = &launch->src[w];
    FY_TRY(fy__check_same_dtype(info, launch, 0, w));
    if (weight->rank == 1 && weight->dims[0] == classes) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH,
                   "%s: the class weights (src%d) are %s, they must be [%" PRId64 "]", info->name,
                   w, FY__DESC_TEXT(weight), classes);
}

/* dy (src0) is what the loss of these targets would be. */
static fy_status_t check_gradient(const fy_op_info_t *info, const fy_launch_t *launch,
                                  int32_t reduction, const fy_desc_t *targets)
{
    const fy_desc_t *dy = &launch->src[0];
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, dy, info->dtypes));
    const bool per_row = reduction == FY_REDUCTION_NONE;
    if (per_row ? fy__same_dims(dy, targets) : dy->rank == 0) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH, "%s: dy (src0) is %s; the loss of targets %s that is %s has %s",
                   info->name, FY__DESC_TEXT(dy), FY__DESC_TEXT(targets),
                   per_row ? "not reduced" : "reduced to one", per_row ? "their shape" : "rank 0");
}

/* dst 0: one row of `classes` a target. */
static fy_status_t rows_of_classes(const fy_op_info_t *info, fy_launch_t *launch,
                                   const fy_desc_t *targets, int64_t classes)
{
    fy_desc_t *dst = &launch->dst[0];
    if (targets->rank == 0 || targets->rank == FY_MAX_RANK)
        return FY_FAIL(SHAPE_MISMATCH, "%s: the targets (src1) are %s, they must have rank 1 .. %d",
                       info->name, FY__DESC_TEXT(targets), FY_MAX_RANK - 1);
    dst->dtype = launch->src[0].dtype;
    dst->rank = targets->rank + 1;
    for (int i = 0; i < targets->rank; i++) dst->dims[i] = targets->dims[i];
    dst->dims[targets->rank] = classes;
    return FY_STATUS_OK;
}

fy_status_t fy__shape_nll_loss(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_class_loss_attrs_t *attrs = launch->attrs;
    const fy_desc_t *scores = &launch->src[0];
    fy_desc_t *dst = &launch->dst[0];
    FY_TRY(check_classes(info, launch, 0, 1));
    FY_TRY(check_weight(info, launch, 2, scores->dims[scores->rank - 1]));
    if (attrs->label_smoothing != 0 && info->op == FY_OP_NLL_LOSS)
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: label_smoothing is %g; only cross_entropy smooths labels, leave it 0",
                       info->name, attrs->label_smoothing);
    dst->dtype = scores->dtype;
    dst->rank = attrs->reduction == FY_REDUCTION_NONE ? scores->rank - 1 : 0;
    for (int i = 0; i < dst->rank; i++) dst->dims[i] = scores->dims[i];
    return FY_STATUS_OK;
}

fy_status_t fy__shape_nll_loss_backward(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_class_loss_backward_attrs_t *attrs = launch->attrs;
    const fy_desc_t *targets = &launch->src[1];
    FY_TRY(fy__check_dtype(info, FY__SRC, 1, targets,
                           FY_DTYPE_BIT(FY_DTYPE_I32) | FY_DTYPE_BIT(FY_DTYPE_I64)));
    FY_TRY(rows_of_classes(info, launch, targets, attrs->classes));
    if (attrs->classes == 0 && !fy__has_no_element(targets)) {
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: classes is %" PRId32 "; pass how many columns log_probs had",
                       info->name, attrs->classes);
    }
    FY_TRY(check_weight(info, launch, 2, attrs->classes));
    return check_gradient(info, launch, attrs->reduction, targets);
}

fy_status_t fy__shape_cross_entropy_backward(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_class_loss_attrs_t *attrs = launch->attrs;
    const fy_desc_t *logits = &launch->src[1];
    FY_TRY(check_classes(info, launch, 1, 2));
    const int64_t classes = logits->dims[logits->rank - 1];
    FY_TRY(check_weight(info, launch, 3, classes));
    FY_TRY(check_gradient(info, launch, attrs->reduction, &launch->src[2]));
    FY_TRY(fy__check_same_dtype(info, launch, 0, 1));
    return rows_of_classes(info, launch, &launch->src[2], classes);
}

fy_status_t fy__shape_one_hot(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_one_hot_attrs_t *attrs = launch->attrs;
    const fy_desc_t *indices = &launch->src[0];
    fy_desc_t *dst = &launch->dst[0];
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, indices, info->dtypes));
    if (attrs->classes == 0 && !fy__has_no_element(indices))
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: classes is %" PRId64 ", it must be above every index of %s", info->name,
                       attrs->classes, FY__DESC_TEXT(indices));
    if (indices->rank == FY_MAX_RANK)
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: src0 %s leaves no room for one more axis; %d is the most", info->name,
                       FY__DESC_TEXT(indices), FY_MAX_RANK);
    dst->dtype = attrs->dtype;
    dst->rank = indices->rank + 1;
    for (int i = 0; i < indices->rank; i++) dst->dims[i] = indices->dims[i];
    dst->dims[indices->rank] = attrs->classes;
    return FY_STATUS_OK;
}

/* Sources `first` and `second` are of one shape and dtype, which the result has, too. */
static fy_status_t alike(const fy_op_info_t *info, fy_launch_t *launch, int first, int second)
{
    const fy_desc_t *a = &launch->src[first];
    FY_TRY(fy__check_same_dtype(info, launch, 0, second));
    FY_TRY(fy__check_dtype(info, FY__SRC, first, a, info->dtypes));
    if (!fy__same_dims(a, &launch->src[second]))
        return FY_FAIL(SHAPE_MISMATCH, "%s: %s is %s, %s is %s: they must be equal", info->name,
                       FY__SRC_TEXT(info->name, first), FY__DESC_TEXT(a),
                       FY__SRC_TEXT(info->name, second), FY__DESC_TEXT(&launch->src[second]));
    fy__shape_like(&launch->dst[0], a);
    return FY_STATUS_OK;
}

fy_status_t fy__shape_softmax_backward(const fy_op_info_t *info, fy_launch_t *launch)
{
    FY_TRY(alike(info, launch, 0, 1));
    return fy__check_axis(info, &launch->src[0], ((const fy_axis_attrs_t *)launch->attrs)->axis);
}

fy_status_t fy__shape_mse_loss_backward(const fy_op_info_t *info, fy_launch_t *launch)
{
    FY_TRY(fy__check_same_dtype(info, launch, 0, 1));
    FY_TRY(alike(info, launch, 1, 2));
    if (launch->src[0].rank == 0) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH, "%s: dy (src0) is %s, the loss is a scalar", info->name,
                   FY__DESC_TEXT(&launch->src[0]));
}
