/* Typed activations and their gradients, all elementwise.
 * Not here: the formulas (backends/formulas/activation.h). Next: image.c. */
#include "ops/typed/typed.h"

#define UNARY(ENUM, name)                                                \
    fy_status_t fy_##name(const fy_tensor_t *src, fy_tensor_t **out_dst) \
    {                                                                    \
        return fy__op_new(FY_OP_##ENUM, 1, &src, NULL, out_dst);         \
    }
#define BACKWARD(ENUM, name)                                                      \
    fy_status_t fy_##name##_backward(const fy_tensor_t *dy, const fy_tensor_t *x, \
                                     fy_tensor_t **out_dx)                        \
    {                                                                             \
        const fy_tensor_t *src[2] = { dy, x };                                    \
        return fy__op_new(FY_OP_##ENUM##_BACKWARD, 2, src, NULL, out_dx);         \
    }

UNARY(RELU6, relu6)
UNARY(HARDSIGMOID, hardsigmoid)
UNARY(HARDSWISH, hardswish)
UNARY(SILU, silu)
UNARY(GELU, gelu)
UNARY(ERF, erf)
BACKWARD(RELU, relu)
BACKWARD(RELU6, relu6)
BACKWARD(HARDSIGMOID, hardsigmoid)
BACKWARD(HARDSWISH, hardswish)
BACKWARD(SILU, silu)
BACKWARD(GELU, gelu)

static fy_status_t from_result(fy_op_t op, const fy_tensor_t *dy, const fy_tensor_t *y,
                               fy_tensor_t **out_dx)
{
    const fy_tensor_t *src[2] = { dy, y };
    return fy__op_new(op, 2, src, NULL, out_dx);
}

fy_status_t fy_tanh_backward(const fy_tensor_t *dy, const fy_tensor_t *y, fy_tensor_t **out_dx)
{
    return from_result(FY_OP_TANH_BACKWARD, dy, y, out_dx);
}

fy_status_t fy_sigmoid_backward(const fy_tensor_t *dy, const fy_tensor_t *y, fy_tensor_t **out_dx)
{
    return from_result(FY_OP_SIGMOID_BACKWARD, dy, y, out_dx);
}
