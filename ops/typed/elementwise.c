/* Typed elementwise calls: those without attributes are made from the rows of opset/ops.def. The
 * dispatcher checks everything; there is nothing to add here. A tiny add is measured
 * (bench/instructions.sh).
 * Not here: the formulas (opset/formulas/), broadcasting (shape.c), calls that write in place
 * (inplace.c). Next: reduce.c. */
#include "ops/typed/typed.h"

static inline fy_status_t binary(fy_op_t op, const fy_tensor_t *a, const fy_tensor_t *b,
                                 fy_tensor_t **out_dst)
{
    const fy_tensor_t *src[2] = { a, b };
    return fy__op_new(op, 2, src, NULL, out_dst);
}

#define UNARY(number, ENUM, name, ...)                                   \
    fy_status_t fy_##name(const fy_tensor_t *src, fy_tensor_t **out_dst) \
    {                                                                    \
        return fy__op_new(FY_OP_##ENUM, 1, &src, NULL, out_dst);         \
    }
#define TEST(number, ENUM, name, ...) UNARY(number, ENUM, name, )
#define BINARY(number, ENUM, name, ...)                                                      \
    fy_status_t fy_##name(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst) \
    {                                                                                        \
        return binary(FY_OP_##ENUM, a, b, out_dst);                                          \
    }
#define COMPARE(number, ENUM, name, ...) BINARY(number, ENUM, name, )
#define SLOPE(number, ENUM, name, ...)   BINARY(number, ENUM, name, )
#include "opset/ops.def"

fy_status_t fy_affine(const fy_tensor_t *src, double scale, double shift, fy_tensor_t **out_dst)
{
    const fy_affine_attrs_t attrs = { scale, shift };
    return fy__op_new(FY_OP_AFFINE, 1, &src, &attrs, out_dst);
}

fy_status_t fy_softplus(const fy_tensor_t *src, double beta, double threshold,
                        fy_tensor_t **out_dst)
{
    const fy_softplus_attrs_t attrs = { beta, threshold };
    return fy__op_new(FY_OP_SOFTPLUS, 1, &src, &attrs, out_dst);
}

fy_status_t fy_leaky_relu(const fy_tensor_t *src, double slope, fy_tensor_t **out_dst)
{
    const fy_leaky_relu_attrs_t attrs = { slope };
    return fy__op_new(FY_OP_LEAKY_RELU, 1, &src, &attrs, out_dst);
}

fy_status_t fy_elu(const fy_tensor_t *src, double alpha, fy_tensor_t **out_dst)
{
    const fy_elu_attrs_t attrs = { alpha };
    return fy__op_new(FY_OP_ELU, 1, &src, &attrs, out_dst);
}

fy_status_t fy_cast(const fy_tensor_t *src, fy_dtype_t dtype, fy_tensor_t **out_dst)
{
    const fy_cast_attrs_t attrs = { (int32_t)dtype };
    return fy__op_new(FY_OP_CAST, 1, &src, &attrs, out_dst);
}

fy_status_t fy_where(const fy_tensor_t *cond, const fy_tensor_t *a, const fy_tensor_t *b,
                     fy_tensor_t **out_dst)
{
    const fy_tensor_t *src[3] = { cond, a, b };
    return fy__op_new(FY_OP_WHERE, 3, src, NULL, out_dst);
}
