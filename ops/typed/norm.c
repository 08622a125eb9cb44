/* Typed calls of normalisation.
 * Not here: whether shapes fit (shape_norm.c), the loops (backends/kernels/batch_norm.c). */
#include "ops/typed/typed.h"

fy_status_t fy_batch_norm(const fy_tensor_t *x, const fy_tensor_t *weight, const fy_tensor_t *bias,
                          const fy_tensor_t *residual, fy_tensor_t *running_mean,
                          fy_tensor_t *running_var, const fy_batch_norm_attrs_t *attrs,
                          fy_tensor_t **out_y, fy_tensor_t **out_mean, fy_tensor_t **out_rstd)
{
    const fy_tensor_t *src[4] = { x, weight, bias, residual };
    fy_tensor_t *dst[5] = { NULL, NULL, NULL, running_mean, running_var };
    if (out_mean) *out_mean = NULL;
    if (out_rstd) *out_rstd = NULL;
    FY__REQUIRE_OUT("batch_norm", out_y);
    FY__REQUIRE("batch_norm", running_mean);
    FY__REQUIRE("batch_norm", running_var);
    FY_TRY(fy__dispatch(&fy__op_rows[FY_OP_BATCH_NORM], residual ? 4 : 3, src,
                        fy__typed_attrs(FY_OP_BATCH_NORM, attrs), 0, 5, dst));
    *out_y = dst[0];
    fy__typed_give(out_mean, dst[1]);
    fy__typed_give(out_rstd, dst[2]);
    return FY_STATUS_OK;
}

fy_status_t fy_batch_norm_backward(const fy_tensor_t *dy, const fy_tensor_t *x,
                                   const fy_tensor_t *weight, const fy_tensor_t *mean,
                                   const fy_tensor_t *rstd, const fy_tensor_t *y,
                                   fy_tensor_t **out_dx, fy_tensor_t **out_dweight,
                                   fy_tensor_t **out_dbias)
{
    const fy_tensor_t *src[6] = { dy, x, weight, mean, rstd, y };
    fy_tensor_t **const outs[3] = { out_dx, out_dweight, out_dbias };
    return fy__typed_results(FY_OP_BATCH_NORM_BACKWARD, y ? 6 : 5, src, NULL, 3, 3, outs);
}

fy_status_t fy_batch_norm_inference(const fy_tensor_t *x, const fy_tensor_t *weight,
                                    const fy_tensor_t *bias, const fy_tensor_t *running_mean,
                                    const fy_tensor_t *running_var, const fy_tensor_t *residual,
                                    const fy_batch_norm_inference_attrs_t *attrs,
                                    fy_tensor_t **out_y)
{
    const fy_tensor_t *src[6] = { x, weight, bias, running_mean, running_var, residual };
    return fy__op_new(FY_OP_BATCH_NORM_INFERENCE, residual ? 6 : 5, src,
                      fy__typed_attrs(FY_OP_BATCH_NORM_INFERENCE, attrs), out_y);
}

/* ---- rows ---- */

fy_status_t fy_layer_norm(const fy_tensor_t *x, const fy_tensor_t *weight, const fy_tensor_t *bias,
                          double eps, fy_tensor_t **out_y, fy_tensor_t **out_mean,
                          fy_tensor_t **out_rstd)
{
    const fy_norm_attrs_t attrs = { eps };
    const fy_tensor_t *src[3] = { x, weight, bias };
    fy_tensor_t **const outs[3] = { out_y, out_mean, out_rstd };
    const size_t nsrc = bias ? 3 : weight ? 2 : 1;
    return fy__typed_results(FY_OP_LAYER_NORM, nsrc, src, &attrs, 1, 3, outs);
}

fy_status_t fy_layer_norm_backward(const fy_tensor_t *dy, const fy_tensor_t *x,
                                   const fy_tensor_t *mean, const fy_tensor_t *rstd,
                                   const fy_tensor_t *weight, fy_tensor_t **out_dx,
                                   fy_tensor_t **out_dweight, fy_tensor_t **out_dbias)
{
    const fy_tensor_t *src[5] = { dy, x, mean, rstd, weight };
    fy_tensor_t **const outs[3] = { out_dx, out_dweight, out_dbias };
    return fy__typed_results(FY_OP_LAYER_NORM_BACKWARD, weight ? 5 : 4, src, NULL, 3, 3, outs);
}

fy_status_t fy_rms_norm(const fy_tensor_t *x, const fy_tensor_t *weight, double eps,
                        fy_tensor_t **out_y, fy_tensor_t **out_rstd)
{
    const fy_norm_attrs_t attrs = { eps };
    const fy_tensor_t *src[2] = { x, weight };
    fy_tensor_t **const outs[2] = { out_y, out_rstd };
    return fy__typed_results(FY_OP_RMS_NORM, weight ? 2 : 1, src, &attrs, 1, 2, outs);
}

fy_status_t fy_rms_norm_backward(const fy_tensor_t *dy, const fy_tensor_t *x,
                                 const fy_tensor_t *rstd, const fy_tensor_t *weight,
                                 fy_tensor_t **out_dx, fy_tensor_t **out_dweight)
{
    const fy_tensor_t *src[4] = { dy, x, rstd, weight };
    fy_tensor_t **const outs[2] = { out_dx, out_dweight };
    return fy__typed_results(FY_OP_RMS_NORM_BACKWARD, weight ? 4 : 3, src, NULL, 2, 2, outs);
}
