/* Gradient rules of reductions, softmax and the losses. Next: rules_linalg.c. */
#include <string.h>

#include "ops/tape/tape.h"

/* A reduction's result, or its gradient, with the axes that were reduced as axes of length 1. */
static fy_status_t with_axes(fy__tape_step_t *s, const fy_tensor_t *reduced, fy_tensor_t **out_temp)
{
    const fy_reduce_attrs_t *attrs = s->attrs;
    const int64_t *dims;
    int64_t kept[FY_MAX_RANK];
    int rank;
    fy__tape_shape(s, 0, &rank, &dims);
    for (int i = 0; i < rank; i++) kept[i] = !attrs->axes || attrs->axes >> i & 1 ? 1 : dims[i];
    return fy__tape_reshape(s, reduced, rank, kept, out_temp);
}

/* Such a tensor repeated along them. */
static fy_status_t spread(fy__tape_step_t *s, fy_tensor_t *kept, fy_tensor_t **out_temp)
{
    const int64_t *dims;
    int rank;
    fy__tape_shape(s, 0, &rank, &dims);
    FY_TRY(fy_broadcast(kept, rank, dims, out_temp));
    fy__tape_temp(s, *out_temp);
    return FY_STATUS_OK;
}

/* g, repeated */
fy_status_t fy__back_sum(fy__tape_step_t *s)
{
    fy_tensor_t *kept, *all;
    FY_TRY(with_axes(s, s->g, &kept));
    FY_TRY(spread(s, kept, &all));
    return fy__tape_give_tensor(s, 0, all);
}

/* g / n, repeated; n elements give one */
fy_status_t fy__back_mean(fy__tape_step_t *s)
{
    const int64_t *dims;
    int rank;
    double n = 1;
    fy_tensor_t *kept, *scaled, *all;
    FY_TRY(with_axes(s, s->g, &kept));
    fy__tape_shape(s, 0, &rank, &dims);
    for (int i = 0; i < rank; i++) n *= kept->dims[i] == 1 ? (double)dims[i] : 1;
    const fy_affine_attrs_t attrs = { n > 0 ? 1 / n : 0, 0 };
    const fy_tensor_t *src = kept;
    FY_TRY(fy__tape_op(s, FY_OP_AFFINE, 1, &src, &attrs, &scaled));
    FY_TRY(spread(s, scaled, &all));
    return fy__tape_give_tensor(s, 0, all);
}

/* g times the product of the other elements: without a zero g y / x; with one zero only that
 * element has a gradient, with more no element. `share`: g times the product of those not 0. */
fy_status_t fy__back_prod(fy__tape_step_t *s)
{
    const fy_reduce_attrs_t keep = { ((const fy_reduce_attrs_t *)s->attrs)->axes, 1 };
    const fy_tensor_t *x;
    FY_TRY(fy__tape_widen(s));
    FY_TRY(fy__tape_wide(s, fy__tape_src(s, 0), &x));
    const fy_cast_attrs_t cast = { s->g->dtype };
    fy_tensor_t *g, *zero, *one, *is_zero, *others, *product, *ones, *count, *share, *quotient,
        *fits;
    FY_TRY(with_axes(s, s->g, &g));
    FY_TRY(fy__tape_scalar(s, 0, &zero));
    FY_TRY(fy__tape_scalar(s, 1, &one));
    FY_TRY(fy__tape_op(s, FY_OP_EQ, 2, (const fy_tensor_t *[]){ x, zero }, NULL, &is_zero));
    FY_TRY(
        fy__tape_op(s, FY_OP_WHERE, 3, (const fy_tensor_t *[]){ is_zero, one, x }, NULL, &others));
    FY_TRY(fy__tape_op(s, FY_OP_PROD, 1, (const fy_tensor_t *[]){ others }, &keep, &product));
    FY_TRY(fy__tape_op(s, FY_OP_CAST, 1, (const fy_tensor_t *[]){ is_zero }, &cast, &ones));
    FY_TRY(fy__tape_op(s, FY_OP_SUM, 1, (const fy_tensor_t *[]){ ones }, &keep, &count));
    FY_TRY(fy__tape_op(s, FY_OP_MUL, 2, (const fy_tensor_t *[]){ g, product }, NULL, &share));
    FY_TRY(fy__tape_op(s, FY_OP_DIV, 2, (const fy_tensor_t *[]){ share, others }, NULL, &quotient));
    FY_TRY(fy__tape_op(s, FY_OP_EQ, 2, (const fy_tensor_t *[]){ ones, count }, NULL, &fits));
    return fy__tape_give(s, 0, FY_OP_WHERE, 3, (const fy_tensor_t *[]){ fits, quotient, zero },
                         NULL);
}

/* g x / y, and 0 where y is 0: there all x are */
fy_status_t fy__back_norm(fy__tape_step_t *s)
{
    const fy_tensor_t *x, *norm;
    fy_tensor_t *y, *g, *zero, *is_zero, *quotient, *share;
    FY_TRY(fy__tape_widen(s));
    FY_TRY(fy__tape_wide(s, fy__tape_src(s, 0), &x));
    FY_TRY(fy__tape_wide(s, fy__tape_dst(s, 0), &norm));
    FY_TRY(with_axes(s, norm, &y));
    FY_TRY(with_axes(s, s->g, &g));
    FY_TRY(fy__tape_scalar(s, 0, &zero));
    FY_TRY(fy__tape_op(s, FY_OP_EQ, 2, (const fy_tensor_t *[]){ y, zero }, NULL, &is_zero));
    FY_TRY(fy__tape_op(s, FY_OP_DIV, 2, (const fy_tensor_t *[]){ g, y }, NULL, &quotient));
    FY_TRY(fy__tape_op(s, FY_OP_WHERE, 3, (const fy_tensor_t *[]){ is_zero, zero, quotient }, NULL,
                       &share));
    return fy__tape_give(s, 0, FY_OP_MUL, 2, (const fy_tensor_t *[]){ x, share }, NULL);
}

/* g / m where x is the extremum, which m elements are; 0 elsewhere */
fy_status_t fy__back_extremum(fy__tape_step_t *s)
{
    const fy_reduce_attrs_t *attrs = s->attrs, keep = { attrs->axes, 1 };
    fy_tensor_t *extremum, *g, *is_it, *ones, *count, *share;
    FY_TRY(with_axes(s, fy__tape_dst(s, 0), &extremum)); /* of x's dtype */
    FY_TRY(fy__tape_widen(s));
    FY_TRY(with_axes(s, s->g, &g));
    const fy_cast_attrs_t cast = { s->g->dtype };
    FY_TRY(fy__tape_op(s, FY_OP_EQ, 2, (const fy_tensor_t *[]){ fy__tape_src(s, 0), extremum },
                       NULL, &is_it));
    FY_TRY(fy__tape_op(s, FY_OP_CAST, 1, (const fy_tensor_t *[]){ is_it }, &cast, &ones));
    FY_TRY(fy__tape_op(s, FY_OP_SUM, 1, (const fy_tensor_t *[]){ ones }, &keep, &count));
    FY_TRY(fy__tape_op(s, FY_OP_DIV, 2, (const fy_tensor_t *[]){ g, count }, NULL, &share));
    return fy__tape_give(s, 0, FY_OP_MUL, 2, (const fy_tensor_t *[]){ ones, share }, NULL);
}

/* the sums of g in the other direction */
fy_status_t fy__back_cumsum(fy__tape_step_t *s)
{
    const fy_cumsum_attrs_t *attrs = s->attrs, back = { attrs->axis, !attrs->reverse };
    return fy__tape_give(s, 0, FY_OP_CUMSUM, 1, (const fy_tensor_t *[]){ s->g }, &back);
}

/* y (g - sum(g y)); g - exp(y) sum(g); each by one op */
fy_status_t fy__back_softmax(fy__tape_step_t *s)
{
    return fy__tape_give(s, 0, FY_OP_SOFTMAX_BACKWARD, 2,
                         (const fy_tensor_t *[]){ s->g, fy__tape_dst(s, 0) }, s->attrs);
}
fy_status_t fy__back_log_softmax(fy__tape_step_t *s)
{
    return fy__tape_give(s, 0, FY_OP_LOG_SOFTMAX_BACKWARD, 2,
                         (const fy_tensor_t *[]){ s->g, fy__tape_dst(s, 0) }, s->attrs);
}

/* Appends the class weights of a loss, its source 2, to the sources of its gradient. */
static fy_status_t take_weight(fy__tape_step_t *s, const fy_tensor_t **src, size_t *nsrc)
{
    if (s->call->nsrc < 3) return FY_STATUS_OK;
    if (fy__tape_wants(s, 2))
        return FY_FAIL(UNSUPPORTED,
                       "%s: the class weights (src2) have a gradient, for which there is no rule; "
                       "make them outside of the tape, or do not watch them",
                       s->call->name);
    src[(*nsrc)++] = fy__tape_src(s, 2);
    return FY_STATUS_OK;
}

/* -g at the targets, by one op, which needs the number of classes */
fy_status_t fy__back_nll_loss(fy__tape_step_t *s)
{
    const int64_t *dims;
    int rank;
    fy__tape_shape(s, 0, &rank, &dims);
    const fy_class_loss_attrs_t *loss = s->attrs;
    const fy_class_loss_backward_attrs_t attrs = { loss->reduction, (int32_t)dims[rank - 1],
                                                   loss->ignore_index };
    const fy_tensor_t *src[3] = { s->g, fy__tape_src(s, 1) };
    size_t nsrc = 2;
    FY_TRY(take_weight(s, src, &nsrc));
    return fy__tape_give(s, 0, FY_OP_NLL_LOSS_BACKWARD, nsrc, src, &attrs);
}

/* g (softmax(x) - 1 at the targets) */
fy_status_t fy__back_cross_entropy(fy__tape_step_t *s)
{
    const fy_tensor_t *src[4] = { s->g, fy__tape_src(s, 0), fy__tape_src(s, 1) };
    size_t nsrc = 3;
    FY_TRY(take_weight(s, src, &nsrc));
    return fy__tape_give(s, 0, FY_OP_CROSS_ENTROPY_BACKWARD, nsrc, src, s->attrs);
}

/* g 2 (p - t) / n, and its negative: the same with both exchanged */
fy_status_t fy__back_mse_loss(fy__tape_step_t *s)
{
    const fy_tensor_t *p = fy__tape_src(s, 0), *t = fy__tape_src(s, 1);
    FY_TRY(fy__tape_give(s, 0, FY_OP_MSE_LOSS_BACKWARD, 3, (const fy_tensor_t *[]){ s->g, p, t },
                         NULL));
    return fy__tape_give(s, 1, FY_OP_MSE_LOSS_BACKWARD, 3, (const fy_tensor_t *[]){ s->g, t, p },
                         NULL);
}
