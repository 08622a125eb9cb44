/* Gradient rules of elementwise ops. Above each: the terms that are added to the gradients of its
 * sources;
 * g is the result's gradient, y the result.
 * Where a function has a corner, the gradient there is the one of relu'(0) = |.|'(0) = 0, and of
 * equal operands the first one's.
 * Not here: broadcasting, which fy__tape_give_reduced undoes. Next: rules_reduce.c. */
#include "ops/tape/tape.h"

/* An elementwise op's result, of g's shape, for source i. */
static fy_status_t give1(fy__tape_step_t *s, uint32_t i, fy_op_t op, const fy_tensor_t *a,
                         const void *attrs)
{
    return fy__tape_give_reduced(s, i, s->g->rank, s->g->dims, op, 1, &a, attrs);
}
static fy_status_t give2(fy__tape_step_t *s, uint32_t i, fy_op_t op, const fy_tensor_t *a,
                         const fy_tensor_t *b)
{
    const fy_tensor_t *src[2] = { a, b };
    return fy__tape_give_reduced(s, i, s->g->rank, s->g->dims, op, 2, src, NULL);
}
static fy_status_t give_where(fy__tape_step_t *s, uint32_t i, const fy_tensor_t *cond,
                              const fy_tensor_t *a, const fy_tensor_t *b)
{
    const fy_tensor_t *src[3] = { cond, a, b };
    return fy__tape_give_reduced(s, i, s->g->rank, s->g->dims, FY_OP_WHERE, 3, src, NULL);
}
static fy_status_t temp2(fy__tape_step_t *s, fy_op_t op, const fy_tensor_t *a, const fy_tensor_t *b,
                         fy_tensor_t **out)
{
    const fy_tensor_t *src[2] = { a, b };
    return fy__tape_op(s, op, 2, src, NULL, out);
}
static fy_status_t temp_affine(fy__tape_step_t *s, const fy_tensor_t *a, double scale, double shift,
                               fy_tensor_t **out)
{
    const fy_affine_attrs_t attrs = { scale, shift };
    return fy__tape_op(s, FY_OP_AFFINE, 1, &a, &attrs, out);
}

/* -g */
fy_status_t fy__back_negate(fy__tape_step_t *s) { return give1(s, 0, FY_OP_NEG, s->g, NULL); }

/* x > 0 ? g : x < 0 ? -g : 0 */
fy_status_t fy__back_abs(fy__tape_step_t *s)
{
    const fy_tensor_t *x = fy__tape_src(s, 0);
    fy_tensor_t *zero, *above, *below, *minus, *rest;
    FY_TRY(fy__tape_scalar(s, 0, &zero));
    FY_TRY(temp2(s, FY_OP_GT, x, zero, &above));
    FY_TRY(temp2(s, FY_OP_LT, x, zero, &below));
    FY_TRY(temp_affine(s, s->g, -1, 0, &minus));
    const fy_tensor_t *inner[3] = { below, minus, zero };
    FY_TRY(fy__tape_op(s, FY_OP_WHERE, 3, inner, NULL, &rest));
    return give_where(s, 0, above, s->g, rest);
}

/* g y */
fy_status_t fy__back_exp(fy__tape_step_t *s)
{
    return give2(s, 0, FY_OP_MUL, s->g, fy__tape_dst(s, 0));
}

/* g / x */
fy_status_t fy__back_log(fy__tape_step_t *s)
{
    return give2(s, 0, FY_OP_DIV, s->g, fy__tape_src(s, 0));
}

/* g / (2 y) */
fy_status_t fy__back_sqrt(fy__tape_step_t *s)
{
    fy_tensor_t *twice;
    FY_TRY(temp_affine(s, fy__tape_dst(s, 0), 2, 0, &twice));
    return give2(s, 0, FY_OP_DIV, s->g, twice);
}

/* g cos(x); -g sin(x) */
fy_status_t fy__back_sin(fy__tape_step_t *s)
{
    const fy_tensor_t *x = fy__tape_src(s, 0);
    fy_tensor_t *slope;
    FY_TRY(fy__tape_op(s, FY_OP_COS, 1, &x, NULL, &slope));
    return give2(s, 0, FY_OP_MUL, s->g, slope);
}
fy_status_t fy__back_cos(fy__tape_step_t *s)
{
    const fy_tensor_t *x = fy__tape_src(s, 0);
    fy_tensor_t *sine, *slope;
    FY_TRY(fy__tape_op(s, FY_OP_SIN, 1, &x, NULL, &sine));
    FY_TRY(temp_affine(s, sine, -1, 0, &slope));
    return give2(s, 0, FY_OP_MUL, s->g, slope);
}

/* g / (1 + x); g (1 + y) */
fy_status_t fy__back_log1p(fy__tape_step_t *s)
{
    fy_tensor_t *more;
    FY_TRY(temp_affine(s, fy__tape_src(s, 0), 1, 1, &more));
    return give2(s, 0, FY_OP_DIV, s->g, more);
}
fy_status_t fy__back_expm1(fy__tape_step_t *s)
{
    fy_tensor_t *more;
    FY_TRY(temp_affine(s, fy__tape_dst(s, 0), 1, 1, &more));
    return give2(s, 0, FY_OP_MUL, s->g, more);
}

/* -g y^3 / 2; factors in this order overflow only if the product does */
fy_status_t fy__back_rsqrt(fy__tape_step_t *s)
{
    const fy_tensor_t *y = fy__tape_dst(s, 0);
    fy_tensor_t *half, *first, *second;
    FY_TRY(temp_affine(s, s->g, -0.5, 0, &half));
    FY_TRY(temp2(s, FY_OP_MUL, half, y, &first));
    FY_TRY(temp2(s, FY_OP_MUL, first, y, &second));
    return give2(s, 0, FY_OP_MUL, second, y);
}

/* 0, also where g is infinite: floor, ceil, round */
fy_status_t fy__back_steps(fy__tape_step_t *s)
{
    fy_tensor_t *zero, *any;
    FY_TRY(fy__tape_scalar(s, 0, &zero));
    FY_TRY(temp2(s, FY_OP_EQ, s->g, s->g, &any));
    return give_where(s, 0, any, zero, zero);
}

/* g + g y^2 */
fy_status_t fy__back_tan(fy__tape_step_t *s)
{
    const fy_tensor_t *y = fy__tape_dst(s, 0);
    fy_tensor_t *first, *second;
    FY_TRY(temp2(s, FY_OP_MUL, s->g, y, &first));
    FY_TRY(temp2(s, FY_OP_MUL, first, y, &second));
    return give2(s, 0, FY_OP_ADD, s->g, second);
}

/* g times the slope at the result or at the source, by one op */
#define SLOPE_RULE(name, ENUM, saved)                                              \
    fy_status_t fy__back_##name(fy__tape_step_t *s)                                \
    {                                                                              \
        return give2(s, 0, FY_OP_##ENUM##_BACKWARD, s->g, fy__tape_##saved(s, 0)); \
    }
SLOPE_RULE(tanh, TANH, dst)
SLOPE_RULE(sigmoid, SIGMOID, dst)
SLOPE_RULE(relu, RELU, dst) /* the slope at y is the one at x, so x is not saved */
SLOPE_RULE(relu6, RELU6, src)
SLOPE_RULE(hardsigmoid, HARDSIGMOID, src)
SLOPE_RULE(hardswish, HARDSWISH, src)
SLOPE_RULE(silu, SILU, src)
SLOPE_RULE(gelu, GELU, src)
SLOPE_RULE(gelu_tanh, GELU_TANH, src)
#undef SLOPE_RULE

/* g sigmoid(beta x); g where beta x > threshold */
fy_status_t fy__back_softplus(fy__tape_step_t *s)
{
    const fy_softplus_attrs_t *attrs = s->attrs;
    fy_tensor_t *u, *threshold, *above, *slope, *below;
    FY_TRY(temp_affine(s, fy__tape_src(s, 0), attrs->beta, 0, &u));
    FY_TRY(fy__tape_scalar(s, attrs->threshold, &threshold));
    FY_TRY(temp2(s, FY_OP_GT, u, threshold, &above));
    FY_TRY(fy__tape_op(s, FY_OP_SIGMOID, 1, (const fy_tensor_t *[]){ u }, NULL, &slope));
    FY_TRY(temp2(s, FY_OP_MUL, s->g, slope, &below));
    return give_where(s, 0, above, s->g, below);
}

/* g where x > 0, else `below` */
static fy_status_t give_above_0(fy__tape_step_t *s, const fy_tensor_t *below)
{
    fy_tensor_t *zero, *above;
    FY_TRY(fy__tape_scalar(s, 0, &zero));
    FY_TRY(temp2(s, FY_OP_GT, fy__tape_src(s, 0), zero, &above));
    return give_where(s, 0, above, s->g, below);
}

/* g where x > 0, else slope g */
fy_status_t fy__back_leaky_relu(fy__tape_step_t *s)
{
    fy_tensor_t *below;
    FY_TRY(temp_affine(s, s->g, ((const fy_leaky_relu_attrs_t *)s->attrs)->slope, 0, &below));
    return give_above_0(s, below);
}

/* g where x > 0, else g alpha exp(x) */
fy_status_t fy__back_elu(fy__tape_step_t *s)
{
    const fy_tensor_t *x = fy__tape_src(s, 0);
    fy_tensor_t *power, *slope, *below;
    FY_TRY(fy__tape_op(s, FY_OP_EXP, 1, &x, NULL, &power));
    FY_TRY(temp_affine(s, power, ((const fy_elu_attrs_t *)s->attrs)->alpha, 0, &slope));
    FY_TRY(temp2(s, FY_OP_MUL, s->g, slope, &below));
    return give_above_0(s, below);
}

/* g 2 / sqrt(pi) exp(-x^2) */
fy_status_t fy__back_erf(fy__tape_step_t *s)
{
    const fy_tensor_t *x = fy__tape_src(s, 0);
    fy_tensor_t *square, *minus, *bell, *slope;
    FY_TRY(temp2(s, FY_OP_MUL, x, x, &square));
    FY_TRY(temp_affine(s, square, -1, 0, &minus));
    FY_TRY(fy__tape_op(s, FY_OP_EXP, 1, (const fy_tensor_t *[]){ minus }, NULL, &bell));
    FY_TRY(temp_affine(s, bell, 1.1283791670955126, 0, &slope));
    return give2(s, 0, FY_OP_MUL, s->g, slope);
}

/* scale g */
fy_status_t fy__back_affine(fy__tape_step_t *s)
{
    const fy_affine_attrs_t attrs = { ((const fy_affine_attrs_t *)s->attrs)->scale, 0 };
    return give1(s, 0, FY_OP_AFFINE, s->g, &attrs);
}

/* g where x is within the bounds, which is where y is x */
fy_status_t fy__back_clamp(fy__tape_step_t *s)
{
    fy_tensor_t *zero, *within;
    FY_TRY(fy__tape_scalar(s, 0, &zero));
    FY_TRY(temp2(s, FY_OP_EQ, fy__tape_src(s, 0), fy__tape_dst(s, 0), &within));
    return give_where(s, 0, within, s->g, zero);
}

/* g, in the source's dtype */
fy_status_t fy__back_cast(fy__tape_step_t *s)
{
    const fy_cast_attrs_t attrs = { fy__tape_slot(s->tape, s->src[0].value)->dtype };
    if (attrs.dtype == s->g->dtype) return fy__tape_give_tensor(s, 0, s->g);
    return give1(s, 0, FY_OP_CAST, s->g, &attrs);
}

/* g: what is written over has none */
fy_status_t fy__back_copy(fy__tape_step_t *s) { return fy__tape_give_tensor(s, 0, s->g); }

/* alpha g to x; g to what y was */
fy_status_t fy__back_axpy(fy__tape_step_t *s)
{
    const fy_affine_attrs_t attrs = { ((const fy_axpy_attrs_t *)s->attrs)->alpha, 0 };
    FY_TRY(give1(s, 0, FY_OP_AFFINE, s->g, &attrs));
    return fy__tape_give_tensor(s, 1, s->g);
}

/* g, g */
fy_status_t fy__back_add(fy__tape_step_t *s)
{
    FY_TRY(fy__tape_give_tensor(s, 0, s->g));
    return fy__tape_give_tensor(s, 1, s->g);
}

/* g, -g */
fy_status_t fy__back_sub(fy__tape_step_t *s)
{
    FY_TRY(fy__tape_give_tensor(s, 0, s->g));
    return give1(s, 1, FY_OP_NEG, s->g, NULL);
}

/* g b, g a */
fy_status_t fy__back_mul(fy__tape_step_t *s)
{
    if (fy__tape_wants(s, 0)) FY_TRY(give2(s, 0, FY_OP_MUL, s->g, fy__tape_src(s, 1)));
    return fy__tape_wants(s, 1) ? give2(s, 1, FY_OP_MUL, s->g, fy__tape_src(s, 0)) : FY_STATUS_OK;
}

/* g / b, -g y / b */
fy_status_t fy__back_div(fy__tape_step_t *s)
{
    const fy_tensor_t *b = fy__tape_src(s, 1), *y;
    fy_tensor_t *quotient, *minus;
    if (!fy__tape_wants(s, 1)) return give2(s, 0, FY_OP_DIV, s->g, b);
    FY_TRY(fy__tape_widen(s));
    FY_TRY(fy__tape_wide(s, b, &b));
    FY_TRY(fy__tape_wide(s, fy__tape_dst(s, 0), &y));
    FY_TRY(temp2(s, FY_OP_DIV, s->g, b, &quotient));
    if (fy__tape_wants(s, 0)) FY_TRY(fy__tape_give_tensor(s, 0, quotient));
    FY_TRY(temp_affine(s, quotient, -1, 0, &minus));
    return give2(s, 1, FY_OP_MUL, minus, y);
}

/* g where the first operand is taken, g where the second is */
static fy_status_t choose_back(fy__tape_step_t *s, fy_op_t first_is_taken)
{
    fy_tensor_t *zero, *taken;
    FY_TRY(fy__tape_scalar(s, 0, &zero));
    FY_TRY(temp2(s, first_is_taken, fy__tape_src(s, 0), fy__tape_src(s, 1), &taken));
    FY_TRY(give_where(s, 0, taken, s->g, zero));
    return give_where(s, 1, taken, zero, s->g);
}
fy_status_t fy__back_maximum(fy__tape_step_t *s) { return choose_back(s, FY_OP_GE); }
fy_status_t fy__back_minimum(fy__tape_step_t *s) { return choose_back(s, FY_OP_LE); }

/* g b a^(b - 1), but 0 where b is 0; g y log a, but 0 where a is 0 */
fy_status_t fy__back_pow(fy__tape_step_t *s)
{
    const fy_tensor_t *a, *b, *y;
    fy_tensor_t *zero, *at_zero, *less, *power, *slope, *all;
    FY_TRY(fy__tape_widen(s));
    FY_TRY(fy__tape_wide(s, fy__tape_src(s, 0), &a));
    FY_TRY(fy__tape_scalar(s, 0, &zero));
    if (fy__tape_wants(s, 0)) { /* otherwise b is not kept */
        FY_TRY(fy__tape_wide(s, fy__tape_src(s, 1), &b));
        FY_TRY(temp_affine(s, b, 1, -1, &less));
        FY_TRY(temp2(s, FY_OP_POW, a, less, &power));
        FY_TRY(temp2(s, FY_OP_MUL, b, power, &slope));
        FY_TRY(temp2(s, FY_OP_MUL, s->g, slope, &all));
        FY_TRY(temp2(s, FY_OP_EQ, b, zero, &at_zero));
        FY_TRY(give_where(s, 0, at_zero, zero, all));
    }
    if (!fy__tape_wants(s, 1)) return FY_STATUS_OK;
    FY_TRY(fy__tape_op(s, FY_OP_LOG, 1, &a, NULL, &power));
    FY_TRY(fy__tape_wide(s, fy__tape_dst(s, 0), &y));
    FY_TRY(temp2(s, FY_OP_MUL, y, power, &slope));
    FY_TRY(temp2(s, FY_OP_MUL, s->g, slope, &all));
    FY_TRY(temp2(s, FY_OP_EQ, a, zero, &at_zero));
    return give_where(s, 1, at_zero, zero, all);
}

/* cond ? g : 0, cond ? 0 : g */
fy_status_t fy__back_where(fy__tape_step_t *s)
{
    fy_tensor_t *zero;
    FY_TRY(fy__tape_scalar(s, 0, &zero));
    FY_TRY(give_where(s, 1, fy__tape_src(s, 0), s->g, zero));
    return give_where(s, 2, fy__tape_src(s, 0), zero, s->g);
}

/* ---- dropout: the same elements are dropped again, from the state before the draw ---- */

static fy_status_t drop_again(fy__tape_step_t *s, fy_op_t op)
{
    return fy__tape_give(s, 0, op, 2, (const fy_tensor_t *[]){ s->g, fy__tape_dst(s, 2) },
                         s->attrs);
}

fy_status_t fy__back_dropout(fy__tape_step_t *s) { return drop_again(s, FY_OP_DROPOUT_BACKWARD); }
fy_status_t fy__back_dropout2d(fy__tape_step_t *s)
{
    return drop_again(s, FY_OP_DROPOUT2D_BACKWARD);
}
