/* Typed calls that move elements about on one device: gather, one_hot, concat.
 * Not here: views (runtime/), which move nothing. Next: docs/ops.md. */
#include "ops/typed/typed.h"

fy_status_t fy_gather(const fy_tensor_t *table, const fy_tensor_t *indices, fy_tensor_t **out_dst)
{
    const fy_tensor_t *src[2] = { table, indices };
    return fy__op_new(FY_OP_GATHER, 2, src, NULL, out_dst);
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
