/* Typed elementwise calls with one source. The dispatcher checks everything; there is nothing to
 * add here.
 * Not here: the formulas (backends/formulas/). Next: binary.c. */
#include "ops/typed/typed.h"

fy_status_t fy_neg(const fy_tensor_t *src, fy_tensor_t **out_dst)
{
    return fy__op_new(FY_OP_NEG, 1, &src, NULL, out_dst);
}
fy_status_t fy_abs(const fy_tensor_t *src, fy_tensor_t **out_dst)
{
    return fy__op_new(FY_OP_ABS, 1, &src, NULL, out_dst);
}
fy_status_t fy_exp(const fy_tensor_t *src, fy_tensor_t **out_dst)
{
    return fy__op_new(FY_OP_EXP, 1, &src, NULL, out_dst);
}
fy_status_t fy_log(const fy_tensor_t *src, fy_tensor_t **out_dst)
{
    return fy__op_new(FY_OP_LOG, 1, &src, NULL, out_dst);
}
fy_status_t fy_sqrt(const fy_tensor_t *src, fy_tensor_t **out_dst)
{
    return fy__op_new(FY_OP_SQRT, 1, &src, NULL, out_dst);
}
fy_status_t fy_tanh(const fy_tensor_t *src, fy_tensor_t **out_dst)
{
    return fy__op_new(FY_OP_TANH, 1, &src, NULL, out_dst);
}
fy_status_t fy_sigmoid(const fy_tensor_t *src, fy_tensor_t **out_dst)
{
    return fy__op_new(FY_OP_SIGMOID, 1, &src, NULL, out_dst);
}
fy_status_t fy_relu(const fy_tensor_t *src, fy_tensor_t **out_dst)
{
    return fy__op_new(FY_OP_RELU, 1, &src, NULL, out_dst);
}

fy_status_t fy_affine(const fy_tensor_t *src, double scale, double shift, fy_tensor_t **out_dst)
{
    const fy_affine_attrs_t attrs = { scale, shift };
    return fy__op_new(FY_OP_AFFINE, 1, &src, &attrs, out_dst);
}

fy_status_t fy_cast(const fy_tensor_t *src, fy_dtype_t dtype, fy_tensor_t **out_dst)
{
    const fy_cast_attrs_t attrs = { (int32_t)dtype };
    return fy__op_new(FY_OP_CAST, 1, &src, &attrs, out_dst);
}
