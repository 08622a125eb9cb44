/* Gradient rules of normalisation. In training one op has the three gradients, from the saved
 * statistics; by running statistics they are compositions. */
#include "ops/tape/tape.h"

bool fy__batch_norm_keeps_result(const void *attrs)
{
    return ((const fy_batch_norm_attrs_t *)attrs)->activation != FY_ACTIVATION_NONE;
}

bool fy__batch_norm_inference_keeps_result(const void *attrs)
{
    return ((const fy_batch_norm_inference_attrs_t *)attrs)->activation != FY_ACTIVATION_NONE;
}

/* The gradient before relu. */
static fy_status_t before_relu(fy__tape_step_t *s, fy_tensor_t **out_dz)
{
    return fy__tape_op(s, FY_OP_RELU_BACKWARD, 2,
                       (const fy_tensor_t *[]){ s->g, fy__tape_dst(s, 0) }, NULL, out_dz);
}

/* The residual gets the gradient before relu; then the others need no mask. */
fy_status_t fy__back_batch_norm(fy__tape_step_t *s)
{
    const bool has_relu = fy__batch_norm_keeps_result(s->attrs),
               wants_residual = s->call->nsrc == 4 && fy__tape_wants(s, 3);
    fy_tensor_t *dz = s->g;
    if (wants_residual) {
        if (has_relu) FY_TRY(before_relu(s, &dz));
        FY_TRY(fy__tape_give_tensor(s, 3, dz));
    }
    if (!fy__tape_wants(s, 0) && !fy__tape_wants(s, 1) && !fy__tape_wants(s, 2))
        return FY_STATUS_OK;
    const bool masks = has_relu && !wants_residual;
    const fy_tensor_t *src[6] = { dz,
                                  fy__tape_src(s, 0),
                                  fy__tape_src(s, 1),
                                  fy__tape_dst(s, 1),
                                  fy__tape_dst(s, 2),
                                  masks ? fy__tape_dst(s, 0) : NULL };
    return fy__tape_give_many(s, 3, (const uint32_t[]){ 0, 1, 2 }, FY_OP_BATCH_NORM_BACKWARD,
                              masks ? 6 : 5, src, NULL);
}

/* With inv = 1 / sqrt(var + eps), z = (x - mean) inv and w the weight: x: g w inv; weight: sum(g
 * z); bias: sum(g); mean: -sum(g) w inv; var: -sum(g z) w inv^2 / 2. Sums are over all axes but the
 * last. */
fy_status_t fy__back_batch_norm_inference(fy__tape_step_t *s)
{
    const fy_affine_attrs_t plus_eps = { 1,
                                         ((const fy_batch_norm_inference_attrs_t *)s->attrs)->eps };
    const fy_affine_attrs_t minus = { -1, 0 }, minus_half = { -0.5, 0 };
    const fy_reduce_attrs_t over_rows = { (1u << (s->g->rank - 1)) - 1, 0 };
    const bool wants_var = fy__tape_wants(s, 4), wants_mean = fy__tape_wants(s, 3);
    const bool needs_inv = fy__tape_wants(s, 0) || fy__tape_wants(s, 1) || wants_mean || wants_var;
    fy_tensor_t *g = s->g, *inv = NULL, *scale = NULL, *z, *sum, *product;
    if (fy__batch_norm_inference_keeps_result(s->attrs)) FY_TRY(before_relu(s, &g));
    if (s->call->nsrc == 6) FY_TRY(fy__tape_give_tensor(s, 5, g));
    FY_TRY(fy__tape_give(s, 2, FY_OP_SUM, 1, (const fy_tensor_t *[]){ g }, &over_rows));
    if (!needs_inv) return FY_STATUS_OK;
    const fy_tensor_t *var = fy__tape_src(s, 4);
    FY_TRY(fy__tape_op(s, FY_OP_AFFINE, 1, &var, &plus_eps, &inv));
    FY_TRY(fy__tape_op(s, FY_OP_RSQRT, 1, (const fy_tensor_t *[]){ inv }, NULL, &inv));
    if (fy__tape_wants(s, 0) || wants_mean || wants_var)
        FY_TRY(fy__tape_op(s, FY_OP_MUL, 2, (const fy_tensor_t *[]){ inv, fy__tape_src(s, 1) },
                           NULL, &scale));
    FY_TRY(fy__tape_give(s, 0, FY_OP_MUL, 2, (const fy_tensor_t *[]){ g, scale }, NULL));
    if (wants_mean) {
        FY_TRY(fy__tape_op(s, FY_OP_SUM, 1, (const fy_tensor_t *[]){ g }, &over_rows, &sum));
        FY_TRY(fy__tape_op(s, FY_OP_MUL, 2, (const fy_tensor_t *[]){ sum, scale }, NULL, &product));
        FY_TRY(fy__tape_give(s, 3, FY_OP_AFFINE, 1, (const fy_tensor_t *[]){ product }, &minus));
    }
    if (!fy__tape_wants(s, 1) && !wants_var) return FY_STATUS_OK;
    FY_TRY(fy__tape_op(s, FY_OP_SUB, 2,
                       (const fy_tensor_t *[]){ fy__tape_src(s, 0), fy__tape_src(s, 3) }, NULL,
                       &z));
    FY_TRY(fy__tape_op(s, FY_OP_MUL, 2, (const fy_tensor_t *[]){ z, inv }, NULL, &z));
    FY_TRY(fy__tape_op(s, FY_OP_MUL, 2, (const fy_tensor_t *[]){ g, z }, NULL, &z));
    FY_TRY(fy__tape_give(s, 1, FY_OP_SUM, 1, (const fy_tensor_t *[]){ z }, &over_rows));
    if (!wants_var) return FY_STATUS_OK;
    FY_TRY(fy__tape_op(s, FY_OP_SUM, 1, (const fy_tensor_t *[]){ z }, &over_rows, &sum));
    FY_TRY(fy__tape_op(s, FY_OP_MUL, 2, (const fy_tensor_t *[]){ sum, scale }, NULL, &product));
    FY_TRY(fy__tape_op(s, FY_OP_MUL, 2, (const fy_tensor_t *[]){ product, inv }, NULL, &product));
    return fy__tape_give(s, 4, FY_OP_AFFINE, 1, (const fy_tensor_t *[]){ product }, &minus_half);
}

/* ---- rows: one op has all gradients ---- */

fy_status_t fy__back_layer_norm(fy__tape_step_t *s)
{
    const bool has_weight = s->call->nsrc > 1;
    const fy_tensor_t *src[5] = { s->g, fy__tape_src(s, 0), fy__tape_dst(s, 1), fy__tape_dst(s, 2),
                                  has_weight ? fy__tape_src(s, 1) : NULL };
    return fy__tape_give_many(s, 3, (const uint32_t[]){ 0, 1, 2 }, FY_OP_LAYER_NORM_BACKWARD,
                              has_weight ? 5 : 4, src, NULL);
}

fy_status_t fy__back_rms_norm(fy__tape_step_t *s)
{
    const bool has_weight = s->call->nsrc > 1;
    const fy_tensor_t *src[4] = { s->g, fy__tape_src(s, 0), fy__tape_dst(s, 1),
                                  has_weight ? fy__tape_src(s, 1) : NULL };
    return fy__tape_give_many(s, 2, (const uint32_t[]){ 0, 1 }, FY_OP_RMS_NORM_BACKWARD,
                              has_weight ? 4 : 3, src, NULL);
}
