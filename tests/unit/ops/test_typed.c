/* Typed calls and fy_op_call: argument errors name the argument, results are as the header
 * documents, a failed call leaves no tensor.
 * The values of the ops are tested in tests/ops/. */
#include <math.h>

#include "tests/support/harness.h"

static void check_info(const fy_tensor_t *tensor, const char *want)
{
    fy_tensor_info_t info = ts_info(tensor);
    char text[128];
    int at = 0;
    for (int i = 0; i < info.rank; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%lld", i ? "x" : "",
                       (long long)info.dims[i]);
    snprintf(text + at, sizeof text - (size_t)at, "%s%s", info.rank ? " " : "scalar ",
             fy_dtype_name(info.dtype));
    assert_string_equal(text, want);
    assert_true(info.is_contiguous);
}

static double element(fy_tensor_t *tensor, int64_t index)
{
    fy_tensor_t *flat, *one;
    ts_ok(fy_reshape(tensor, 1, (const int64_t[]){ -1 }, &flat));
    ts_ok(fy_slice(flat, 0, index, index + 1, &one));
    return ts_value(one);
}

#define NULL_OUT(call, part) ts_fails_with((call), INVALID_ARGUMENT, part)

TS_DEVICE_TEST(null_arguments_are_named)
{
    fy_tensor_t *x, *out = (fy_tensor_t *)1, *rng;
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(2, 3), &x));
    ts_ok(fy_rng_create(ctx->device, 1, &rng));
    NULL_OUT(fy_zeros(ctx->device, FY_DTYPE_F32, 0, NULL, NULL), "zeros: out_dst is NULL");
    NULL_OUT(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(-1), &out), "zeros: tensor_create: dims");
    NULL_OUT(fy_empty(NULL, FY_DTYPE_F32, 0, NULL, &out), "empty: tensor_create: device is NULL");
    NULL_OUT(fy_rng_create(NULL, 1, &out), "rng_create: tensor_create: device is NULL");
    NULL_OUT(fy_full(ctx->device, FY_DTYPE_F32, 0, NULL, 1, NULL), "full: out_dst");
    NULL_OUT(fy_arange(ctx->device, FY_DTYPE_F32, 0, 1, 3, NULL), "arange: out_dst");
    NULL_OUT(fy_rng_create(ctx->device, 1, NULL), "rng_create: out_rng");
    NULL_OUT(fy_rand(rng, FY_DTYPE_F32, 0, NULL, 0, 1, NULL), "rand: out_dst");
    NULL_OUT(fy_rand(NULL, FY_DTYPE_F32, 0, NULL, 0, 1, &out), "rand: rng is NULL");
    assert_null(out);
    NULL_OUT(fy_randn(NULL, FY_DTYPE_F32, 0, NULL, 0, 1, &out), "randn: rng is NULL");
    NULL_OUT(fy_randperm(NULL, 3, &out), "randperm: rng is NULL");
    NULL_OUT(fy_fill(NULL, 1), "fill: dst is NULL");
    NULL_OUT(fy_copy(NULL, x), "copy: dst is NULL");
    NULL_OUT(fy_copy(x, NULL), "copy: src0 is NULL");
    NULL_OUT(fy_axpy(NULL, 1, x), "axpy: y is NULL");
    out = (fy_tensor_t *)1;
    NULL_OUT(fy_add(x, NULL, &out), "add: src1 is NULL");
    assert_null(out);
    NULL_OUT(fy_add(x, x, NULL), "add: ");
    out = (fy_tensor_t *)1;
    NULL_OUT(fy_sum(NULL, 0, NULL, 0, &out), "sum: src is NULL");
    assert_null(out);
    NULL_OUT(fy_sum(x, 0, NULL, 0, NULL), "sum: out_dst is NULL");
    NULL_OUT(fy_sum(x, 1, NULL, 0, &out), "sum: axes is NULL");
    NULL_OUT(fy_softmax(NULL, 0, &out), "softmax: src is NULL");
    NULL_OUT(fy_argmax(x, 0, 0, NULL), "argmax: out_dst");
    NULL_OUT(fy_concat(0, &x, 0, &out), "count is 0");
    NULL_OUT(fy_concat(1, NULL, 0, &out), "concat: src is NULL");
    NULL_OUT(fy_concat(2, (fy_tensor_t *[]){ x, NULL }, 0, &out), "concat: src1 is NULL");
    NULL_OUT(fy_concat(2, (fy_tensor_t *[]){ NULL, x }, 0, &out), "concat: src0 is NULL");
}

TS_DEVICE_TEST(axes_count_from_the_end)
{
    fy_tensor_t *x, *out;
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(2, 3, 4), &x));
    ts_ok(fy_sum(x, 2, (const int[]){ -1, 0 }, 0, &out));
    check_info(out, "3 f32");
    ts_ok(fy_mean(x, 1, (const int[]){ -3 }, 1, &out));
    check_info(out, "1x3x4 f32");
    ts_ok(fy_max(x, 0, NULL, 0, &out));
    check_info(out, "scalar f32");
    ts_ok(fy_argmax(x, -2, 0, &out));
    check_info(out, "2x4 i64");
    ts_ok(fy_log_softmax(x, -1, &out));
    check_info(out, "2x3x4 f32");
    ts_ok(fy_concat(2, (fy_tensor_t *[]){ x, x }, -1, &out));
    check_info(out, "2x3x8 f32");
    ts_fails_with(fy_sum(x, 1, (const int[]){ -4 }, 0, &out), INVALID_ARGUMENT, "axis -4");
    ts_fails(fy_sum(x, 1, (const int[]){ 3 }, 0, &out), INVALID_ARGUMENT);
    ts_fails_with(fy_sum(x, 1, (const int[]){ 40 }, 0, &out), INVALID_ARGUMENT, "axis 40");
    ts_fails_with(fy_min(x, 2, (const int[]){ 1, -2 }, 0, &out), INVALID_ARGUMENT, "twice");
    ts_fails(fy_sum(x, -1, (const int[]){ 0 }, 0, &out), INVALID_ARGUMENT);
    ts_fails(fy_sum(x, 9, (const int[]){ 0 }, 0, &out), INVALID_ARGUMENT);
    ts_fails(fy_softmax(x, 3, &out), INVALID_ARGUMENT);
    ts_fails(fy_concat(1, &x, -4, &out), INVALID_ARGUMENT);
    assert_null(out);
}

TS_DEVICE_TEST(integer_attributes_are_range_checked)
{
    static const struct {
        fy_dtype_t dtype;
        double value;
        int fits;
    } rows[] = {
        { FY_DTYPE_U8, 255, 1 },          { FY_DTYPE_U8, 256, 0 },
        { FY_DTYPE_U8, -1, 0 },           { FY_DTYPE_U8, 1.5, 0 },
        { FY_DTYPE_I32, INT32_MIN, 1 },   { FY_DTYPE_I32, 0x1p31, 0 },
        { FY_DTYPE_I64, -0x1p63, 1 },     { FY_DTYPE_I64, 0x1p63, 0 },
        { FY_DTYPE_BOOL, 1, 1 },          { FY_DTYPE_BOOL, 2, 0 },
        { FY_DTYPE_F32, 1.5, 1 },         { FY_DTYPE_F32, 1e300, 1 },
        { FY_DTYPE_I32, (double)NAN, 0 }, { FY_DTYPE_F16, (double)NAN, 1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fy_tensor_t *out;
        fy_status_t status = fy_full(ctx->device, rows[i].dtype, FY_DIMS(3), rows[i].value, &out);
        if ((status == FY_STATUS_OK) != rows[i].fits)
            fail_msg("row %zu: %s", i, fy_status_name(status));
        if (status != FY_STATUS_OK) assert_null(out);
        if (status == FY_STATUS_OK && rows[i].value == rows[i].value && rows[i].value < 1e10) {
            assert_true(element(out, 2) == rows[i].value);
            ts_ok(fy_fill(out, 1));
            assert_true(element(out, 0) == 1);
        }
    }
    fy_tensor_t *x;
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_U8, FY_DIMS(3), &x));
    uint64_t version = ts_version(x);
    ts_fails_with(fy_fill(x, 300), INVALID_ARGUMENT, "u8 cannot hold 300");
    assert_int_equal(ts_version(x), version);
}

TS_DEVICE_TEST(made_tensors_have_the_shape_asked_for)
{
    fy_tensor_t *out, *rng;
    ts_ok(fy_arange(ctx->device, FY_DTYPE_I32, 5, -2, 4, &out));
    check_info(out, "4 i32");
    assert_true(element(out, 3) == -1);
    ts_ok(fy_arange(ctx->device, FY_DTYPE_F32, 5, 1, 0, &out));
    check_info(out, "0 f32");
    ts_fails(fy_arange(ctx->device, FY_DTYPE_F32, 0, 1, -1, &out), INVALID_ARGUMENT);
    ts_fails(fy_arange(ctx->device, FY_DTYPE_U8, 0, 1, 300, &out), INVALID_ARGUMENT);
    ts_fails(fy_arange(ctx->device, FY_DTYPE_BOOL, 0, 1, 2, &out), DTYPE_MISMATCH);
    assert_null(out);
    const int64_t seed = INT64_C(0x7FEDCBA987654321); /* more than f64 can hold */
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_rng_create(ctx->device, seed, &rng));
    assert_int_equal(ts_ledger(NULL).upload.count, before.upload.count);
    void *bytes;
    fy_tensor_t *host = ts_download(rng);
    ts_ok(fy_tensor_map(host, FY_ACCESS_READ, &bytes));
    assert_int_equal(((const int64_t *)bytes)[0], seed);
    assert_int_equal(((const int64_t *)bytes)[1], 0);
    ts_ok(fy_randperm(rng, 5, &out));
    check_info(out, "5 i64");
    assert_true(element(rng, 1) > 0); /* the counter advanced, on the device */
    ts_ok(fy_randn(rng, FY_DTYPE_F16, FY_DIMS(2, 2), 0, 1, &out));
    check_info(out, "2x2 f16");
    ts_fails(fy_randperm(rng, -1, &out), INVALID_ARGUMENT);
    ts_fails(fy_randperm(rng, INT64_C(1) << 32, &out), INVALID_ARGUMENT);
    ts_fails(fy_rand(rng, FY_DTYPE_I32, FY_DIMS(2), 0, 1, &out), DTYPE_MISMATCH);
    ts_fails(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(2), 0, HUGE_VAL, &out), INVALID_ARGUMENT);
    ts_fails(fy_rand(out, FY_DTYPE_F32, FY_DIMS(2), 0, 1, &out), INVALID_ARGUMENT);
    assert_null(out);
}

TS_DEVICE_TEST(generic_calls_check_arity_and_attributes)
{
    fy_tensor_t *x, *dst[2] = { NULL, NULL };
    const fy_axis_attrs_t last = { -1, 0 }, far_off = { -3, 0 };
    const fy_fill_attrs_t three = { 3, 3 };
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(2, 3), &x));
    fy_tensor_t *two[2] = { x, x }, *hole[2] = { x, NULL };
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_fails_with(fy_op_call(FY_OP_NONE, 1, &x, NULL, 0, 1, dst), INVALID_ARGUMENT,
                  "does not exist");
    ts_fails_with(fy_op_call(FY_OP_ADD, 1, &x, NULL, 0, 1, dst), INVALID_ARGUMENT,
                  "add: takes 2 sources, got 1");
    ts_fails_with(fy_op_call(FY_OP_CONCAT, 0, NULL, NULL, 0, 1, dst), INVALID_ARGUMENT,
                  "takes 1 to 65534 sources, got 0");
    ts_fails_with(fy_op_call(FY_OP_ADD, 2, two, NULL, 0, 2, dst), INVALID_ARGUMENT,
                  "gives 1 results");
    ts_fails(fy_op_call(FY_OP_ADD, 2, NULL, NULL, 0, 1, dst), INVALID_ARGUMENT);
    ts_fails_with(fy_op_call(FY_OP_ADD, 2, hole, NULL, 0, 1, dst), INVALID_ARGUMENT,
                  "src1 is NULL");
    ts_fails(fy_op_call(FY_OP_ADD, 2, two, NULL, 0, 1, NULL), INVALID_ARGUMENT);
    ts_fails_with(fy_op_call(FY_OP_ADD, 2, two, &last, sizeof last, 1, dst), INVALID_ARGUMENT,
                  "takes no attributes");
    ts_fails_with(fy_op_call(FY_OP_FILL, 0, NULL, &three, sizeof three, 1, dst), INVALID_ARGUMENT,
                  "fill: dst0 is NULL");
    ts_fails_with(fy_op_call(FY_OP_SOFTMAX, 1, &x, &far_off, sizeof far_off, 1, dst),
                  INVALID_ARGUMENT, "axis -3");
    ts_fails(fy_op_call(FY_OP_CAST, 1, &x, NULL, 0, 1, dst), INVALID_ARGUMENT);
    ts_expect_quiet_since(&before, "refused generic calls");
    assert_null(dst[0]);

    ts_ok(fy_op_call(FY_OP_SOFTMAX, 1, &x, &last, sizeof last, 1, dst));
    check_info(dst[0], "2x3 f32");
    ts_ok(fy_op_call(FY_OP_FILL, 0, NULL, &three, sizeof three, 1, dst));
    assert_true(element(dst[0], 5) == 3);
    ts_ok(fy_op_call(FY_OP_ADD, 2, two, NULL, 0, 1, dst)); /* into a given dst */
    assert_true(element(dst[0], 5) == 0);
    dst[0] = NULL;
    ts_ok(fy_op_call(FY_OP_MATMUL, 2, two, &(const fy_matmul_attrs_t){ 1, 0 },
                     sizeof(fy_matmul_attrs_t), 1, dst));
    check_info(dst[0], "3x3 f32");
}

TS_DEVICE_TEST(a_variable_may_be_source_and_result)
{
    fy_tensor_t *x, *t;
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(4), 2, &x));
    t = x;
    ts_ok(fy_mul(t, x, &t));
    ts_ok(fy_affine(t, 2, 1, &t));
    ts_ok(fy_sum(t, 0, NULL, 0, &t));
    assert_true(element(t, 0) == 4 * 9);
    assert_true(element(x, 0) == 2);
}
