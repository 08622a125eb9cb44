/* Typed elementwise calls, and those that move elements (gather, one_hot, concat). The calls
 * without attributes are made from the rows of opset/ops.def. The dispatcher checks everything;
 * there is nothing to add here. A tiny add is measured (bench/instructions.sh).
 * Not here: the formulas (opset/formulas/), broadcasting (shape.c), calls that write in place
 * (create.c), views (runtime/). Next: reduce.c. */
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

fy_status_t fy_clamp(const fy_tensor_t *src, double low, double high, fy_tensor_t **out_dst)
{
    const fy_clamp_attrs_t attrs = { low, high };
    return fy__op_new(FY_OP_CLAMP, 1, &src, &attrs, out_dst);
}

/* ---- moving elements ---- */

fy_status_t fy_gather(const fy_tensor_t *table, const fy_tensor_t *indices, fy_tensor_t **out_dst)
{
    const fy_tensor_t *src[2] = { table, indices };
    return fy__op_new(FY_OP_GATHER, 2, src, NULL, out_dst);
}

fy_status_t fy_gather_backward(const fy_tensor_t *dy, const fy_tensor_t *indices, int64_t rows,
                               fy_tensor_t **out_dx)
{
    const fy_gather_backward_attrs_t attrs = { rows };
    const fy_tensor_t *src[2] = { dy, indices };
    return fy__op_new(FY_OP_GATHER_BACKWARD, 2, src, &attrs, out_dx);
}

fy_status_t fy_one_hot(const fy_tensor_t *indices, int64_t classes, fy_dtype_t dtype,
                       fy_tensor_t **out_dst)
{
    const fy_one_hot_attrs_t attrs = { classes, (int32_t)dtype };
    return fy__op_new(FY_OP_ONE_HOT, 1, &indices, &attrs, out_dst);
}

fy_status_t fy_concat(size_t count, fy_tensor_t *const *src, int axis, fy_tensor_t **out_dst)
{
    FY__REQUIRE_OUT("concat", out_dst);
    if (count < 1 || count >= FY_OP_VARIADIC) {
        return FY_FAIL(INVALID_ARGUMENT, "concat: count is %zu, legal are 1 .. %u", count,
                       FY_OP_VARIADIC - 1);
    }
    FY__REQUIRE("concat", src);
    if (!src[0]) return FY_FAIL(INVALID_ARGUMENT, "concat: src0 is NULL");
    fy_axis_attrs_t attrs = { 0, 0 };
    FY_TRY(fy__typed_axis("concat", src[0], axis, &attrs.axis));
    return fy__op_new(FY_OP_CONCAT, count, (const fy_tensor_t *const *)src, &attrs, out_dst);
}
