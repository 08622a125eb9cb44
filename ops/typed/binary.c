/* Typed elementwise calls with two sources, and where. The shortest way from the caller to
 * fy__dispatch: a tiny add is measured.
 * Not here: the formulas (backends/formulas/), broadcasting (shape.c). Next: reduce.c. */
#include "ops/typed/typed.h"

static inline fy_status_t binary(fy_op_t op, const fy_tensor_t *a, const fy_tensor_t *b,
                                 fy_tensor_t **out_dst)
{
    const fy_tensor_t *src[2] = { a, b };
    return fy__op_new(op, 2, src, NULL, out_dst);
}

fy_status_t fy_add(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst)
{
    return binary(FY_OP_ADD, a, b, out_dst);
}
fy_status_t fy_sub(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst)
{
    return binary(FY_OP_SUB, a, b, out_dst);
}
fy_status_t fy_mul(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst)
{
    return binary(FY_OP_MUL, a, b, out_dst);
}
fy_status_t fy_div(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst)
{
    return binary(FY_OP_DIV, a, b, out_dst);
}
fy_status_t fy_maximum(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst)
{
    return binary(FY_OP_MAXIMUM, a, b, out_dst);
}
fy_status_t fy_minimum(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst)
{
    return binary(FY_OP_MINIMUM, a, b, out_dst);
}
fy_status_t fy_pow(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst)
{
    return binary(FY_OP_POW, a, b, out_dst);
}
fy_status_t fy_eq(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst)
{
    return binary(FY_OP_EQ, a, b, out_dst);
}
fy_status_t fy_ne(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst)
{
    return binary(FY_OP_NE, a, b, out_dst);
}
fy_status_t fy_lt(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst)
{
    return binary(FY_OP_LT, a, b, out_dst);
}
fy_status_t fy_le(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst)
{
    return binary(FY_OP_LE, a, b, out_dst);
}
fy_status_t fy_gt(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst)
{
    return binary(FY_OP_GT, a, b, out_dst);
}
fy_status_t fy_ge(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst)
{
    return binary(FY_OP_GE, a, b, out_dst);
}

fy_status_t fy_where(const fy_tensor_t *cond, const fy_tensor_t *a, const fy_tensor_t *b,
                     fy_tensor_t **out_dst)
{
    const fy_tensor_t *src[3] = { cond, a, b };
    return fy__op_new(FY_OP_WHERE, 3, src, NULL, out_dst);
}
