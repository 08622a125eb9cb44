/* fy_op_infer and fy_op_supported against real calls: for every op of the table, every row of
 * tests/ops/cases.def and every dtype, the inferred results are those of the call, with the same
 * status, and an op is supported exactly if the call does not fail for its dtypes or its device.
 * Not here: values (test_op_matrix.c). */
#include "tests/support/cases.h"
#include "tests/support/harness.h"
#include "tests/support/own_op.h"

/* The dtype of operand i of a call with main dtype `dtype`: `dtype` if the operand may have it. */
static fy_dtype_t dtype_of(const fy_op_operand_t *operands, size_t i, bool is_variadic,
                           fy_dtype_t dtype)
{
    const uint32_t set = operands[is_variadic ? 0 : i].dtypes;
    return set && !(set & FY_DTYPE_BIT(dtype)) ? (fy_dtype_t)__builtin_ctz(set) : dtype;
}

static void expect_same(const char *what, const fy_tensor_t *tensor, const fy_desc_t *desc)
{
    fy_desc_t real;
    ts_ok(fy_tensor_describe(tensor, &real));
    assert_null(real.data);
    bool same = real.dtype == desc->dtype && real.rank == desc->rank;
    for (int i = 0; same && i < real.rank; i++) same = real.dims[i] == desc->dims[i];
    if (!same) fail_msg("%s: another dtype or shape than the call gives", what);
}

typedef struct counts {
    int supported, refused;
} counts_t;

static void check_row(ts_ctx_t *ctx, const ts_case_t *row, fy_dtype_t dtype, counts_t *counts)
{
    const fy_op_info_t *info = fy_op_get(row->op);
    const ts_plan_t plan = ts_case_plan(row);
    const bool is_variadic = info->nsrc_max == FY_OP_VARIADIC;
    const size_t attrs_nbytes = row->attrs ? info->attrs_nbytes : 0;
    fy_tensor_t *src[TS_MAX_OPERANDS], *dst[8] = { NULL };
    fy_desc_t in[TS_MAX_OPERANDS], out[8];
    fy_dtype_t dtypes[8];
    char what[160], text[512];
    const fy_scope_t scope = fy_scope_begin("row");
    snprintf(what, sizeof what, "%s \"%s\" %s on %s", info->name, row->label, fy_dtype_name(dtype),
             ctx->spec);
    memset(out, 0, sizeof out);
    for (size_t i = 0; i < plan.nsrc; i++) {
        dtypes[i] = ts_operand_dtype(row->op, dtype_of(info->src, i, is_variadic, dtype), i == 0);
        ts_ok(fy_zeros(ctx->device, dtypes[i], plan.src[i].rank, plan.src[i].dims, &src[i]));
        ts_ok(fy_tensor_describe(src[i], &in[i]));
    }
    for (size_t i = 0; i < plan.ngiven; i++) {
        const fy_dtype_t given =
            ts_operand_dtype(row->op, dtype_of(info->dst, i, false, dtype), i == 0);
        if (!info->nsrc_max) dtypes[i] = given;
        ts_ok(fy_zeros(ctx->device, given, plan.given[i].rank, plan.given[i].dims, &dst[i]));
        ts_ok(fy_tensor_describe(dst[i], &out[i]));
    }
    const fy_status_t status =
        fy_op_call(row->op, plan.nsrc, src, row->attrs, attrs_nbytes, ts_ndst(info->op), dst);
    snprintf(text, sizeof text, "%s", fy_error_get()->text);
    const fy_status_t inferred =
        fy_op_infer(row->op, plan.nsrc, in, row->attrs, attrs_nbytes, ts_ndst(info->op), out);
    if (inferred != status && status != FY_STATUS_UNSUPPORTED)
        fail_msg("%s: the call: %s (%s), inferred: %s (%s)", what, fy_status_name(status), text,
                 fy_status_name(inferred), fy_error_get()->text);
    for (int i = 0; status == FY_STATUS_OK && i < (int)ts_ndst(info->op); i++)
        expect_same(what, dst[i], &out[i]);
    const bool is_dst = info->nsrc_max == 0;
    const fy_status_t supported =
        fy_op_supported(ctx->device, row->op, dtypes, is_dst ? ts_ndst(info->op) : plan.nsrc);
    const bool fits = status != FY_STATUS_DTYPE_MISMATCH && status != FY_STATUS_UNSUPPORTED;
    /* a row may be refused before its dtypes are looked at */
    if (supported != (fits ? FY_STATUS_OK : status) && row->status == FY_STATUS_OK)
        fail_msg("%s: the call: %s (%s), supported: %s (%s)", what, fy_status_name(status), text,
                 fy_status_name(supported), fy_error_get()->text);
    counts->supported += supported == FY_STATUS_OK;
    counts->refused += supported != FY_STATUS_OK;
    fy_scope_end(scope, 0, NULL);
}

TS_DEVICE_TEST(every_row_in_every_dtype)
{
    counts_t counts = { 0, 0 };
    bool seen[FY_OP_BUILTIN_COUNT] = { false };
    for (size_t i = 0; i < ts_case_count(); i++) {
        const ts_case_t *row = ts_case_get(i);
        seen[row->op] = true;
        for (int dtype = 0; dtype < FY_DTYPE_COUNT; dtype++)
            check_row(ctx, row, (fy_dtype_t)dtype, &counts);
    }
    for (fy_op_t op = 0; op < FY_OP_BUILTIN_COUNT; op++)
        if (!seen[op]) fail_msg("%s has no row", fy_op_get(op)->name);
    print_message("%s: %d supported, %d refused\n", ctx->spec, counts.supported, counts.refused);
    assert_true(counts.supported > 300 && counts.refused > 100);
}

static fy_desc_t f32(int rank, int64_t rows, int64_t columns)
{
    return (fy_desc_t){ .dtype = FY_DTYPE_F32, .rank = rank, .dims = { rows, columns } };
}

TS_DEVICE_TEST(infer_refuses)
{
    fy_desc_t src[2] = { f32(2, 2, 3), f32(2, 4, 5) }, dst = f32(1, 7, 0);
    const fy_desc_t before = dst;
    const fy_axis_attrs_t attrs = { .axis = -3 };
#define REFUSED(call, code, part)                       \
    do {                                                \
        ts_fails_with(call, code, part);                \
        assert_memory_equal(&dst, &before, sizeof dst); \
    } while (0)
    REFUSED(fy_op_infer(FY_OP_MATMUL, 2, src, NULL, 0, 1, &dst), SHAPE_MISMATCH, "matmul");
    REFUSED(fy_op_infer(FY_OP_MATMUL, 1, src, NULL, 0, 1, &dst), INVALID_ARGUMENT, "2 sources");
    REFUSED(fy_op_infer(FY_OP_MATMUL, 2, src, NULL, 0, 2, &dst), INVALID_ARGUMENT, "1 result");
    REFUSED(fy_op_infer(FY_OP_MATMUL, 2, NULL, NULL, 0, 1, &dst), INVALID_ARGUMENT, "src is NULL");
    REFUSED(fy_op_infer(FY_OP_SOFTMAX, 1, src, &attrs, sizeof attrs, 1, &dst), INVALID_ARGUMENT,
            "axis -3");
    REFUSED(fy_op_infer(FY_OP_SOFTMAX, 1, src, &attrs, 3, 1, &dst), INVALID_ARGUMENT, "inside");
    REFUSED(fy_op_infer(9999, 1, src, NULL, 0, 1, &dst), INVALID_ARGUMENT, "does not exist");
    ts_fails(fy_op_infer(FY_OP_NEG, 1, src, NULL, 0, 1, NULL), INVALID_ARGUMENT);
    src[0].rank = 9;
    REFUSED(fy_op_infer(FY_OP_NEG, 1, src, NULL, 0, 1, &dst), INVALID_ARGUMENT, "rank 9");
    src[0] = f32(2, 2, -3);
    REFUSED(fy_op_infer(FY_OP_NEG, 1, src, NULL, 0, 1, &dst), INVALID_ARGUMENT, "-3");
    src[0].dtype = 77;
    REFUSED(fy_op_infer(FY_OP_NEG, 1, src, NULL, 0, 1, &dst), INVALID_ARGUMENT, "dtype");
    /* each source fits 63 bits, the result does not */
    src[0] = f32(2, (int64_t)1 << 40, 1);
    src[1] = f32(2, 1, (int64_t)1 << 40);
    REFUSED(fy_op_infer(FY_OP_ADD, 2, src, NULL, 0, 1, &dst), INVALID_ARGUMENT, "add");
#undef REFUSED
}

/* More sources than the call keeps on the stack, and strides of the result. */
TS_DEVICE_TEST(infer_many_sources)
{
    fy_desc_t src[40], dst;
    const fy_axis_attrs_t attrs = { .axis = 1 };
    for (int i = 0; i < 40; i++) src[i] = f32(2, 3, i);
    ts_ok(fy_op_infer(FY_OP_CONCAT, 40, src, &attrs, sizeof attrs, 1, &dst));
    assert_true(dst.rank == 2 && dst.dims[0] == 3 && dst.dims[1] == 40 * 39 / 2);
    assert_true(dst.strides[0] == 40 * 39 / 2 && dst.strides[1] == 1 && !dst.data);
}

TS_DEVICE_TEST(supported_refuses)
{
    const fy_dtype_t f[2] = { FY_DTYPE_F32, FY_DTYPE_F32 },
                     mixed[2] = { FY_DTYPE_F32, FY_DTYPE_F64 };
    const fy_dtype_t none = (fy_dtype_t)FY_DTYPE_I8;
    ts_ok(fy_op_supported(ctx->device, FY_OP_ADD, f, 2));
    ts_fails(fy_op_supported(NULL, FY_OP_ADD, f, 2), INVALID_ARGUMENT);
    ts_fails(fy_op_supported(ctx->device, 9999, f, 2), INVALID_ARGUMENT);
    ts_fails(fy_op_supported(ctx->device, FY_OP_ADD, f, 1), INVALID_ARGUMENT);
    ts_fails(fy_op_supported(ctx->device, FY_OP_ADD, NULL, 2), INVALID_ARGUMENT);
    ts_fails_with(fy_op_supported(ctx->device, FY_OP_ADD, mixed, 2), DTYPE_MISMATCH,
                  "is f64, an operand before it f32");
    ts_fails(fy_op_supported(ctx->device, FY_OP_NEG, &none, 1), DTYPE_MISMATCH);
}

static fy_status_t no_kernel(const fy_launch_t *launch, void *stream)
{
    return (void)launch, (void)stream, FY_STATUS_OK;
}
static fy_status_t a_column(const fy_op_info_t *info, fy_launch_t *launch)
{
    if (launch->src[0].rank != 2)
        return fy_error_set(FY_STATUS_SHAPE_MISMATCH, __FILE__, __LINE__, "%s: a matrix, please",
                            info->name);
    launch->dst[0] =
        (fy_desc_t){ .dtype = FY_DTYPE_I64, .rank = 1, .dims = { launch->src[0].dims[0] } };
    return FY_STATUS_OK;
}

TS_DEVICE_TEST(registered_ops)
{
    static fy_op_t op = FY_OP_NONE;
    ts_own_op_t own;
    ts_own_op(&own, "test.column", 1, no_kernel);
    own.info.flags = 0;
    own.def.shape = a_column;
    if (op == FY_OP_NONE) ts_ok(fy_op_register(&own.def, &op));
    fy_desc_t src = f32(2, 5, 3), dst;
    ts_ok(fy_op_infer(op, 1, &src, NULL, 0, 1, &dst));
    assert_true(dst.dtype == FY_DTYPE_I64 && dst.rank == 1 && dst.dims[0] == 5);
    src.rank = 1;
    ts_fails(fy_op_infer(op, 1, &src, NULL, 0, 1, &dst), SHAPE_MISMATCH);
    const fy_dtype_t dtypes[2] = { FY_DTYPE_F32, FY_DTYPE_F64 };
    if (ctx->is_host || ctx->is_sim)
        ts_ok(fy_op_supported(ctx->device, op, dtypes, 1));
    else
        ts_fails(fy_op_supported(ctx->device, op, dtypes, 1), UNSUPPORTED);
    ts_fails(fy_op_supported(ctx->device, op, dtypes + 1, 1), DTYPE_MISMATCH);
}

TS_DEVICE_TEST(describe_refuses)
{
    fy_desc_t desc;
    fy_tensor_t *x, *turned;
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(2, 3), &x));
    ts_ok(fy_transpose(x, NULL, &turned));
    ts_ok(fy_tensor_describe(turned, &desc));
    assert_true(desc.dims[0] == 3 && desc.strides[0] == 1 && desc.strides[1] == 3);
    ts_fails(fy_tensor_describe(NULL, &desc), INVALID_ARGUMENT);
    ts_fails(fy_tensor_describe(x, NULL), INVALID_ARGUMENT);
}
