/* Typed calls that make tensors on a device (empty, zeros, full, arange, the random state, its
 * draws, dropout) or write into one that is given (fill, copy, axpy). Nothing crosses.
 * Not here: fy_tensor_create (runtime/), what the ops compute (backends/), uploads into a tensor
 * (transfer/), optimizer steps (step.c). */
#include "ops/typed/typed.h"

#include <inttypes.h>

#include "ops/format.h"
#include "ops/shape.h"
#include "runtime/tensor/tensor.h"

/* Creates a tensor and runs an IN_PLACE op into it, with `rng` (may be NULL) as its second result.
 * On failure there is no tensor. */
static fy_status_t make(const char *call, fy_op_t op, const void *attrs, fy_device_t *device,
                        fy_dtype_t dtype, int rank, const int64_t *dims, fy_tensor_t *rng,
                        fy_tensor_t **out_dst)
{
    fy_tensor_t *dst[2] = { NULL, rng };
    fy_status_t status = fy_tensor_create(device, dtype, rank, dims, &dst[0]);
    if (status == FY_STATUS_OK)
        status = fy__dispatch(fy__op_row(op), 0, NULL, attrs, 0, rng ? 2 : 1, dst);
    if (FY_UNLIKELY(status != FY_STATUS_OK)) {
        fy_tensor_destroy(dst[0]);
        return fy__fail_in(call, status);
    }
    *out_dst = dst[0];
    return FY_STATUS_OK;
}

fy_status_t fy_empty(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims,
                     fy_tensor_t **out_dst)
{
    const fy_status_t status = fy_tensor_create(device, dtype, rank, dims, out_dst);
    return FY_LIKELY(status == FY_STATUS_OK) ? status : fy__fail_in("empty", status);
}

fy_status_t fy_zeros(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims,
                     fy_tensor_t **out_dst)
{
    FY__REQUIRE_OUT("zeros", out_dst);
    const fy_fill_attrs_t attrs = { 0, 0 };
    return make("zeros", FY_OP_FILL, &attrs, device, dtype, rank, dims, NULL, out_dst);
}

fy_status_t fy_full(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims,
                    double value, fy_tensor_t **out_dst)
{
    FY__REQUIRE_OUT("full", out_dst);
    fy_fill_attrs_t attrs;
    FY_TRY(fy__typed_fill_attrs("full", dtype, value, &attrs));
    return make("full", FY_OP_FILL, &attrs, device, dtype, rank, dims, NULL, out_dst);
}

fy_status_t fy_arange(fy_device_t *device, fy_dtype_t dtype, double start, double step,
                      int64_t count, fy_tensor_t **out_dst)
{
    FY__REQUIRE_OUT("arange", out_dst);
    if (count < 0) return FY_FAIL(INVALID_ARGUMENT, "arange: count %" PRId64 " is negative", count);
    const fy_arange_attrs_t attrs = { start, step };
    return make("arange", FY_OP_ARANGE, &attrs, device, dtype, 1, &count, NULL, out_dst);
}

/* ---- random ---- */

/* {seed, 0}, written on the device by two fills: a seed is not worth an upload. */
static fy_status_t seed_state(fy_tensor_t *rng, int64_t seed)
{
    fy_tensor_t *first = NULL;
    const fy_fill_attrs_t zero = { 0, 0 }, value = { (double)seed, seed };
    FY_TRY(fy__op_into(FY_OP_FILL, 0, NULL, &zero, rng));
    FY_TRY(fy_slice(rng, 0, 0, 1, &first));
    fy_status_t status = fy__op_into(FY_OP_FILL, 0, NULL, &value, first);
    fy_tensor_destroy(first);
    return status;
}

fy_status_t fy_rng_create(fy_device_t *device, int64_t seed, fy_tensor_t **out_rng)
{
    FY__REQUIRE_OUT("rng_create", out_rng);
    fy_tensor_t *rng;
    fy_status_t status = fy_tensor_create(device, FY_DTYPE_I64, FY_DIMS(2), &rng);
    if (status == FY_STATUS_OK) status = seed_state(rng, seed);
    if (status != FY_STATUS_OK) {
        fy_tensor_destroy(rng);
        return fy__fail_in("rng_create", status);
    }
    *out_rng = rng;
    return FY_STATUS_OK;
}

/* A draw lives where its random state lives. */
static fy_status_t draw(fy_op_t op, const void *attrs, fy_tensor_t *rng, fy_dtype_t dtype, int rank,
                        const int64_t *dims, fy_tensor_t **out_dst)
{
    const char *call = fy__op_row(op)->info.name;
    if (fy__tensor_is_gone(rng)) return fy__refuse_gone(call, "rng");
    return make(call, op, attrs, rng->storage->device, dtype, rank, dims, rng, out_dst);
}

fy_status_t fy_rand(fy_tensor_t *rng, fy_dtype_t dtype, int rank, const int64_t *dims, double low,
                    double high, fy_tensor_t **out_dst)
{
    FY__REQUIRE_OUT("rand", out_dst);
    FY__REQUIRE("rand", rng);
    const fy_rand_attrs_t attrs = { low, high };
    return draw(FY_OP_RAND, &attrs, rng, dtype, rank, dims, out_dst);
}

fy_status_t fy_randn(fy_tensor_t *rng, fy_dtype_t dtype, int rank, const int64_t *dims, double mean,
                     double std, fy_tensor_t **out_dst)
{
    FY__REQUIRE_OUT("randn", out_dst);
    FY__REQUIRE("randn", rng);
    const fy_randn_attrs_t attrs = { mean, std };
    return draw(FY_OP_RANDN, &attrs, rng, dtype, rank, dims, out_dst);
}

fy_status_t fy_randperm(fy_tensor_t *rng, int64_t count, fy_tensor_t **out_dst)
{
    FY__REQUIRE_OUT("randperm", out_dst);
    FY__REQUIRE("randperm", rng);
    if (count < 0 || count > UINT32_MAX)
        return FY_FAIL(INVALID_ARGUMENT, "randperm: count %" PRId64 ", legal are 0 .. 2^32 - 1",
                       count);
    return draw(FY_OP_RANDPERM, NULL, rng, FY_DTYPE_I64, 1, &count, out_dst);
}

/* ---- into a given tensor ---- */

fy_status_t fy__typed_fill_attrs(const char *call, fy_dtype_t dtype, double value,
                                 fy_fill_attrs_t *out_attrs)
{
    *out_attrs = (fy_fill_attrs_t){ value, 0 };
    bool is_integer = dtype == FY_DTYPE_I32 || dtype == FY_DTYPE_I64 || dtype == FY_DTYPE_U8 ||
                      dtype == FY_DTYPE_BOOL;
    if (!is_integer) return FY_STATUS_OK;
    if (!fy__integer_holds((int32_t)dtype, value)) {
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: %s cannot hold %s: it is not integral, or out of range", call,
                       fy_dtype_name(dtype), FY__NUMBER_TEXT(value));
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

fy_status_t fy_index_add(fy_tensor_t *y, const fy_tensor_t *indices, double alpha,
                         const fy_tensor_t *x)
{
    FY__REQUIRE("index_add", y);
    const fy_axpy_attrs_t attrs = { alpha };
    const fy_tensor_t *src[2] = { x, indices };
    return fy__op_into(FY_OP_INDEX_ADD, 2, src, &attrs, y);
}

fy_status_t fy_axpy(fy_tensor_t *y, double alpha, const fy_tensor_t *x)
{
    FY__REQUIRE("axpy", y);
    const fy_axpy_attrs_t attrs = { alpha };
    return fy__op_into(FY_OP_AXPY, 1, &x, &attrs, y);
}

/* ---- dropout: the result, and the state before the draw, which a tape keeps if it must ---- */

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
