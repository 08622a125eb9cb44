/* Typed calls of dropout: they make the result and the place where the state before the draw goes,
 * which a tape keeps if it must.
 * Not here: which element takes which random bits (opset/formulas/random.h). */
#include "ops/typed/typed.h"

#include "runtime/tensor/tensor.h"

static fy_status_t drop(fy_op_t op, fy_tensor_t *rng, const fy_tensor_t *src, double p,
                        fy_tensor_t **out_dst)
{
    const fy_dropout_attrs_t attrs = { p };
    fy_tensor_t *dst[3] = { NULL, rng, NULL };
    fy_status_t status = fy__tensor_is_gone(src) ? fy__refuse_gone(fy__op_row(op)->info.name, "src")
                                                 : FY_STATUS_OK;
    if (status != FY_STATUS_OK) return status;
    FY_TRY(fy_tensor_create(src->storage->device, (fy_dtype_t)src->dtype, src->rank, src->dims,
                            &dst[0]));
    status = fy_tensor_create(src->storage->device, FY_DTYPE_I64, FY_DIMS(2), &dst[2]);
    if (status == FY_STATUS_OK) status = fy__dispatch(fy__op_row(op), 1, &src, &attrs, 0, 3, dst);
    fy_tensor_destroy(dst[2]);
    if (status != FY_STATUS_OK) {
        fy_tensor_destroy(dst[0]);
        return status;
    }
    *out_dst = dst[0];
    return FY_STATUS_OK;
}

fy_status_t fy_dropout(fy_tensor_t *rng, const fy_tensor_t *src, double p, fy_tensor_t **out_dst)
{
    FY__REQUIRE_OUT("dropout", out_dst);
    FY__REQUIRE("dropout", rng);
    FY__REQUIRE("dropout", src);
    return drop(FY_OP_DROPOUT, rng, src, p, out_dst);
}

fy_status_t fy_dropout2d(fy_tensor_t *rng, const fy_tensor_t *src, double p, fy_tensor_t **out_dst)
{
    FY__REQUIRE_OUT("dropout2d", out_dst);
    FY__REQUIRE("dropout2d", rng);
    FY__REQUIRE("dropout2d", src);
    return drop(FY_OP_DROPOUT2D, rng, src, p, out_dst);
}

static fy_status_t backward(fy_op_t op, const fy_tensor_t *dy, const fy_tensor_t *state, double p,
                            fy_tensor_t **out_dx)
{
    const fy_tensor_t *src[2] = { dy, state };
    const fy_dropout_attrs_t attrs = { p };
    return fy__op_new(op, 2, src, &attrs, out_dx);
}

fy_status_t fy_dropout_backward(const fy_tensor_t *dy, const fy_tensor_t *state, double p,
                                fy_tensor_t **out_dx)
{
    return backward(FY_OP_DROPOUT_BACKWARD, dy, state, p, out_dx);
}

fy_status_t fy_dropout2d_backward(const fy_tensor_t *dy, const fy_tensor_t *state, double p,
                                  fy_tensor_t **out_dx)
{
    return backward(FY_OP_DROPOUT2D_BACKWARD, dy, state, p, out_dx);
}
