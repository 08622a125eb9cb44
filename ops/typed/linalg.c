/* Typed calls of linear algebra and losses: matmul, softmax, log_softmax, mse_loss.
 * Not here: GEMM (the host uses oneDNN, cuda uses cuBLASLt). Next: index.c. */
#include "ops/typed/typed.h"

fy_status_t fy_matmul(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst)
{
    const fy_tensor_t *src[2] = { a, b };
    const fy_matmul_attrs_t attrs = { 0, 0 };
    return fy__op_new(FY_OP_MATMUL, 2, src, &attrs, out_dst);
}

fy_status_t fy_softmax(const fy_tensor_t *src, int axis, fy_tensor_t **out_dst)
{
    FY__REQUIRE_OUT("softmax", out_dst);
    FY__REQUIRE("softmax", src);
    fy_axis_attrs_t attrs = { 0, 0 };
    FY_TRY(fy__typed_axis("softmax", src, axis, &attrs.axis));
    return fy__op_new(FY_OP_SOFTMAX, 1, &src, &attrs, out_dst);
}

fy_status_t fy_log_softmax(const fy_tensor_t *src, int axis, fy_tensor_t **out_dst)
{
    FY__REQUIRE_OUT("log_softmax", out_dst);
    FY__REQUIRE("log_softmax", src);
    fy_axis_attrs_t attrs = { 0, 0 };
    FY_TRY(fy__typed_axis("log_softmax", src, axis, &attrs.axis));
    return fy__op_new(FY_OP_LOG_SOFTMAX, 1, &src, &attrs, out_dst);
}

fy_status_t fy_mse_loss(const fy_tensor_t *pred, const fy_tensor_t *target, fy_tensor_t **out_loss)
{
    const fy_tensor_t *src[2] = { pred, target };
    return fy__op_new(FY_OP_MSE_LOSS, 2, src, NULL, out_loss);
}
