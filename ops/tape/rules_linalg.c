/* Gradient rules of matmul and linear. Leading axes that were broadcast are summed. Next:
 * rules_move.c. */
#include <string.h>

#include "ops/tape/tape.h"

/* The product a op b, transposed as requested, for source i: leading axes are g's, or longer than
 * the source's. */
static fy_status_t give_product(fy__tape_step_t *s, uint32_t i, const fy_tensor_t *a,
                                bool transpose_a, const fy_tensor_t *b, bool transpose_b)
{
    const fy_matmul_attrs_t attrs = { transpose_a, transpose_b };
    const fy_tensor_t *src[2] = { a, b };
    const int64_t *own;
    int64_t dims[FY_MAX_RANK];
    int own_rank;
    const int rank = s->g->rank;
    fy__tape_shape(s, i, &own_rank, &own);
    memcpy(dims, s->g->dims, (size_t)(rank - 2) * sizeof *dims);
    memcpy(dims + rank - 2, own + own_rank - 2, 2 * sizeof *dims);
    return fy__tape_give_reduced(s, i, rank, dims, FY_OP_MATMUL, 2, src, &attrs);
}

/* A B: g B^T, A^T g; with A or B transposed, so are their gradients. */
fy_status_t fy__back_matmul(fy__tape_step_t *s)
{
    const fy_matmul_attrs_t *attrs = s->attrs;
    const bool ta = attrs->transpose_a, tb = attrs->transpose_b;
    const fy_tensor_t *a = fy__tape_src(s, 0), *b = fy__tape_src(s, 1);
    if (fy__tape_wants(s, 0))
        FY_TRY(ta ? give_product(s, 0, b, tb, s->g, true)
                  : give_product(s, 0, s->g, false, b, !tb));
    if (fy__tape_wants(s, 1))
        FY_TRY(tb ? give_product(s, 1, s->g, true, a, ta)
                  : give_product(s, 1, a, !ta, s->g, false));
    return FY_STATUS_OK;
}

/* ---- linear ---- */

/* With respect to what the activation was applied to: from its result where that will do. */
static fy_status_t before_activation(fy__tape_step_t *s, const fy_tensor_t **out_dz)
{
    const fy_linear_attrs_t *attrs = s->attrs, none = { FY_ACTIVATION_NONE };
    const fy_tensor_t *y = fy__tape_dst(s, 0),
                      *src[3] = { fy__tape_src(s, 0), fy__tape_src(s, 1), NULL };
    const fy_affine_attrs_t rest = { -1, 1 };
    fy_tensor_t *dz = s->g, *square, *slope, *z;
    switch (attrs->activation) {
    case FY_ACTIVATION_RELU:
        FY_TRY(
            fy__tape_op(s, FY_OP_RELU_BACKWARD, 2, (const fy_tensor_t *[]){ s->g, y }, NULL, &dz));
        break;
    case FY_ACTIVATION_TANH: /* 1 - y^2 */
        FY_TRY(fy__tape_op(s, FY_OP_MUL, 2, (const fy_tensor_t *[]){ y, y }, NULL, &square));
        FY_TRY(fy__tape_op(s, FY_OP_AFFINE, 1, (const fy_tensor_t *[]){ square }, &rest, &slope));
        FY_TRY(fy__tape_op(s, FY_OP_MUL, 2, (const fy_tensor_t *[]){ s->g, slope }, NULL, &dz));
        break;
    case FY_ACTIVATION_SIGMOID: /* y (1 - y) */
        FY_TRY(fy__tape_op(s, FY_OP_AFFINE, 1, &y, &rest, &square));
        FY_TRY(fy__tape_op(s, FY_OP_MUL, 2, (const fy_tensor_t *[]){ y, square }, NULL, &slope));
        FY_TRY(fy__tape_op(s, FY_OP_MUL, 2, (const fy_tensor_t *[]){ s->g, slope }, NULL, &dz));
        break;
    case FY_ACTIVATION_GELU: /* z once more */
        if (s->call->nsrc == 3) src[2] = fy__tape_src(s, 2);
        FY_TRY(fy__tape_op(s, FY_OP_LINEAR, s->call->nsrc, src, &none, &z));
        FY_TRY(
            fy__tape_op(s, FY_OP_GELU_BACKWARD, 2, (const fy_tensor_t *[]){ s->g, z }, NULL, &dz));
        break;
    default: break;
    }
    *out_dz = dz;
    return FY_STATUS_OK;
}

/* As [N, columns]. */
static fy_status_t as_matrix(fy__tape_step_t *s, const fy_tensor_t *tensor,
                             const fy_tensor_t **out_matrix)
{
    const int64_t columns = tensor->dims[tensor->rank - 1];
    int64_t dims[2] = { 1, columns };
    fy_tensor_t *matrix;
    *out_matrix = tensor;
    if (tensor->rank == 2) return FY_STATUS_OK;
    for (int axis = 0; axis < tensor->rank - 1; axis++) dims[0] *= tensor->dims[axis];
    FY_TRY(fy__tape_reshape(s, tensor, 2, dims, &matrix));
    *out_matrix = matrix;
    return FY_STATUS_OK;
}

/* dz w */
static fy_status_t give_input(fy__tape_step_t *s, const fy_tensor_t *dz)
{
    const fy_matmul_attrs_t plain = { 0, 0 };
    const fy_tensor_t *src[2] = { dz, fy__tape_src(s, 1) };
    const int64_t *dims;
    int rank;
    fy_tensor_t *row, *dx;
    fy__tape_shape(s, 0, &rank, &dims);
    if (rank > 1) return fy__tape_give(s, 0, FY_OP_MATMUL, 2, src, &plain);
    FY_TRY(as_matrix(s, dz, &src[0]));
    FY_TRY(fy__tape_op(s, FY_OP_MATMUL, 2, src, &plain, &row));
    FY_TRY(fy__tape_reshape(s, row, 1, dims, &dx));
    return fy__tape_give_tensor(s, 0, dx);
}

/* x: dz w; w: dz^T x; bias: dz summed over all but the last axis. Both parameters in one request */
fy_status_t fy__back_linear(fy__tape_step_t *s)
{
    const fy_matmul_attrs_t transposed = { 1, 0 };
    const fy_reduce_attrs_t over_rows = { 1, 0 };
    const bool wants_bias = s->call->nsrc == 3 && fy__tape_wants(s, 2);
    const fy_tensor_t *dz, *src[2];
    FY_TRY(before_activation(s, &dz));
    if (fy__tape_wants(s, 1) || wants_bias) FY_TRY(as_matrix(s, dz, &src[0]));
    if (fy__tape_wants(s, 1)) FY_TRY(as_matrix(s, fy__tape_src(s, 0), &src[1]));
    if (fy__tape_wants(s, 1) && wants_bias)
        FY_TRY(fy__tape_give2(s, 1, 2, FY_OP_LINEAR_BACKWARD_PARAMS, 2, src, NULL));
    else if (fy__tape_wants(s, 1))
        FY_TRY(fy__tape_give(s, 1, FY_OP_MATMUL, 2, src, &transposed));
    else if (wants_bias)
        FY_TRY(fy__tape_give(s, 2, FY_OP_SUM, 1, src, &over_rows));
    return fy__tape_wants(s, 0) ? give_input(s, dz) : FY_STATUS_OK;
}
bool fy__linear_keeps_result(const void *attrs)
{
    const int32_t activation = ((const fy_linear_attrs_t *)attrs)->activation;
    return activation != FY_ACTIVATION_NONE && activation != FY_ACTIVATION_GELU;
}
/* gelu's gradient computes the product again, from x and bias. */

/* One op makes all three gradients, from the log-sum-exp that the call saved. */
fy_status_t fy__back_attention(fy__tape_step_t *s)
{
    const fy_tensor_t *src[7] = { s->g };
    const bool has_mask = s->call->nsrc > 3;
    fy_tensor_t *grads[3];
    if (fy__tape_result_grad(s, 1))
        return FY_FAIL(UNSUPPORTED,
                       "%s: its log-sum-exp (dst1) has a gradient, for which there is no rule; "
                       "compute the loss from y only",
                       s->call->name);
    for (uint32_t i = 0; i < 3; i++) src[1 + i] = fy__tape_src(s, i);
    src[4] = fy__tape_dst(s, 0);
    src[5] = fy__tape_dst(s, 1);
    if (has_mask) src[6] = fy__tape_src(s, 3);
    FY_TRY(fy__tape_op_all(s, FY_OP_SCALED_DOT_PRODUCT_ATTENTION_BACKWARD, 6 + has_mask, src,
                           s->attrs, 3, grads));
    for (uint32_t i = 0; i < 3; i++) FY_TRY(fy__tape_give_tensor(s, i, grads[i]));
    return FY_STATUS_OK;
}
