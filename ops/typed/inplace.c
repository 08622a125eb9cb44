/* Typed calls that write into a tensor they are given: fill, copy, axpy. The only ones, besides
 * draws that advance a random state.
 * Not here: uploads into a tensor (transfer/). Next: elementwise.c. */
#include "ops/typed/typed.h"

#include "ops/shape.h"
#include "runtime/tensor/tensor.h"

fy_status_t fy__typed_fill_attrs(const char *call, fy_dtype_t dtype, double value,
                                 fy_fill_attrs_t *out_attrs)
{
    *out_attrs = (fy_fill_attrs_t){ value, 0 };
    bool is_integer = dtype == FY_DTYPE_I32 || dtype == FY_DTYPE_I64 || dtype == FY_DTYPE_U8 ||
                      dtype == FY_DTYPE_BOOL;
    if (!is_integer) return FY_STATUS_OK;
    if (!fy__integer_holds((int32_t)dtype, value)) {
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: %s cannot hold %.17g: it is not integral, or out of range", call,
                       fy_dtype_name(dtype), value);
    }
    out_attrs->int_value = (int64_t)value;
    return FY_STATUS_OK;
}

fy_status_t fy_fill(fy_tensor_t *dst, double value)
{
    FY__REQUIRE("fill", dst);
    fy_fill_attrs_t attrs;
    FY_TRY(fy__typed_fill_attrs("fill", (fy_dtype_t)dst->dtype, value, &attrs));
    return fy__op_into(FY_OP_FILL, 0, NULL, &attrs, dst);
}

fy_status_t fy_copy(fy_tensor_t *dst, const fy_tensor_t *src)
{
    FY__REQUIRE("copy", dst);
    return fy__op_into(FY_OP_COPY, 1, &src, NULL, dst);
}

fy_status_t fy_axpy(fy_tensor_t *y, double alpha, const fy_tensor_t *x)
{
    FY__REQUIRE("axpy", y);
    const fy_axpy_attrs_t attrs = { alpha };
    return fy__op_into(FY_OP_AXPY, 1, &x, &attrs, y);
}
