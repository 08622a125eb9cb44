/* Calls over images: a convolution's relu and both gradients of its parameters under a tape, sizes
 * of poolings, refusals. What the ops compute is tested in tests/ops/. */
#include <math.h>

#include "tests/support/harness.h"

/* The sum of a * b, whose shapes must be equal. */
static double inner(const fy_tensor_t *a, const fy_tensor_t *b)
{
    const fy_tensor_info_t shape_a = ts_info(a), shape_b = ts_info(b);
    fy_tensor_t *product, *sum;
    assert_int_equal(shape_a.rank, shape_b.rank);
    for (int axis = 0; axis < shape_a.rank; axis++)
        assert_int_equal(shape_a.dims[axis], shape_b.dims[axis]);
    ts_ok(fy_mul(a, b, &product));
    ts_ok(fy_sum(product, 0, NULL, 0, &sum));
    return ts_value(sum);
}

static void expect_within(double a, double b, double relative)
{
    if (!(fabs(a - b) <= relative * (1 + fabs(a)))) fail_msg("%.17g is not %.17g", a, b);
}

/* As three calls, for sizes that run in plain loops and in oneDNN; twice, so that the second
 * gradients are added. */
TS_DEVICE_TEST(relu_and_both_parameters_at_once)
{
    static const int64_t sizes[2][4] = { { 2, 5, 4, 3 }, { 2, 12, 12, 16 } };
    static const fy_dtype_t dtypes[2] = { FY_DTYPE_F64, FY_DTYPE_F32 };
    fy_conv2d_attrs_t attrs = FY_CONV2D_ATTRS_INIT;
    fy_backward_options_t again = FY_BACKWARD_OPTIONS_INIT;
    fy_tensor_t *rng, *y, *z, *dz, *dw, *db, *seed, *grads[2], *wants[2];
    again.accumulate = 1;
    attrs.padding_h = 1;
    ts_ok(fy_rng_create(ctx->device, 8, &rng));
    for (int i = 0; i < 2; i++) {
        const int64_t channels = sizes[i][3];
        fy_tensor_t *x, *w, *bias;
        fy_tape_t *tape;
        ts_ok(fy_randn(rng, dtypes[i], 4, sizes[i], 0, 1, &x));
        ts_ok(fy_randn(rng, dtypes[i], FY_DIMS(channels, 3, 3, channels), 0, 1, &w));
        ts_ok(fy_randn(rng, dtypes[i], FY_DIMS(channels), 0, 1, &bias));
        attrs.activation = FY_ACTIVATION_NONE;
        ts_ok(fy_conv2d(x, w, bias, &attrs, &z));
        ts_ok(fy_randn(rng, dtypes[i], 4, ts_info(z).dims, 0, 1, &seed));
        ts_ok(fy_relu_backward(seed, z, &dz));
        ts_ok(fy_conv2d_backward_weight(dz, x, &attrs, 3, 3, &wants[0]));
        ts_ok(fy_sum(dz, 3, (const int[]){ 0, 1, 2 }, 0, &wants[1]));
        ts_ok(fy_conv2d_backward_params(dz, x, &attrs, 3, 3, &dw, &db));
        expect_within(inner(dw, dw), inner(wants[0], wants[0]), i ? 1e-5 : 1e-9);
        expect_within(inner(db, db), inner(wants[1], wants[1]), i ? 1e-5 : 1e-9);
        ts_fails(fy_conv2d_backward_params(dz, x, &attrs, 3, 3, &dw, NULL), INVALID_ARGUMENT);
        ts_fails(fy_conv2d_backward_params(dz, x, &attrs, 3, 4, &dw, &db), SHAPE_MISMATCH);
        assert_true(!dw && !db);
        attrs.activation = FY_ACTIVATION_RELU;
        tape = ts_tape(w, bias);
        again.seed = seed;
        for (int pass = 1; pass <= 2; pass++) {
            ts_ok(fy_tape_begin(tape));
            ts_ok(fy_conv2d(x, w, bias, &attrs, &y));
            ts_ok(fy_tape_backward(tape, y, &again));
            ts_ok(fy_tape_grad(tape, w, &grads[0]));
            ts_ok(fy_tape_grad(tape, bias, &grads[1]));
            for (int k = 0; k < 2; k++)
                expect_within(inner(grads[k], wants[k]), pass * inner(wants[k], wants[k]),
                              i ? 1e-5 : 1e-9);
        }
    }
}

/* Sizes that torch.nn.functional.max_pool2d gives; 0: it refuses. */
TS_DEVICE_TEST(sizes_of_poolings)
{
    static const struct {
        int32_t size, kernel, stride, padding, floored, ceiled;
    } rows[] = { { 6, 3, 2, 0, 2, 3 },     { 7, 3, 2, 0, 3, 3 },    { 6, 2, 2, 0, 3, 3 },
                 { 5, 2, 2, 1, 3, 3 },     { 4, 2, 3, 1, 2, 2 },    { 5, 3, 4, 1, 2, 2 },
                 { 7, 2, 3, 0, 2, 3 },     { 6, 2, 3, 1, 3, 3 },    { 3, 2, 5, 0, 1, 1 },
                 { 2, 3, 2, 0, 0, 1 },     { 1, 3, 3, 0, 0, 1 },    { 1, 3, 2, 0, 0, 0 },
                 { 112, 3, 2, 0, 55, 56 }, { 112, 3, 2, 1, 56, 57 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fy_pool2d_attrs_t attrs = { .kernel_h = rows[i].kernel,
                                    .kernel_w = 1,
                                    .stride_h = rows[i].stride,
                                    .padding_h = rows[i].padding };
        fy_tensor_t *x, *y;
        ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(1, rows[i].size, 1, 1), &x));
        for (attrs.ceil_mode = 0; attrs.ceil_mode < 2; attrs.ceil_mode++) {
            const int64_t want = attrs.ceil_mode ? rows[i].ceiled : rows[i].floored;
            if (!want) {
                ts_fails(fy_max_pool2d(x, &attrs, &y), SHAPE_MISMATCH);
                continue;
            }
            ts_ok(fy_max_pool2d(x, &attrs, &y));
            assert_int_equal(ts_info(y).dims[1], want);
        }
    }
}

TS_DEVICE_TEST(invalid_arguments_are_refused)
{
    const fy_conv2d_attrs_t conv = { 2, 1, 1, 2, 1, 2, 2, FY_ACTIVATION_NONE };
    const fy_pool2d_attrs_t pool = { 3, 2, 2, 1, 1, 0, FY_ACTIVATION_NONE, 0, 0 },
                            of_relu = { 3, 2, 2, 1, 1, 0, FY_ACTIVATION_RELU, 0, 0 };
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(2, 7, 6, 4), 0),
                *w = ts_iota(ctx->device, FY_DIMS(6, 3, 2, 2), 0),
                *dy = ts_iota(ctx->device, FY_DIMS(2, 4, 8, 6), 0),
                *pooled = ts_iota(ctx->device, FY_DIMS(2, 4, 5, 4), 0), *rest;
    ts_fails(fy_conv2d(NULL, w, NULL, &conv, &rest), INVALID_ARGUMENT);
    ts_fails(fy_conv2d(x, w, NULL, &conv, NULL), INVALID_ARGUMENT);
    ts_fails(fy_conv2d_backward_input(dy, w, &conv, 6, 7, &rest), SHAPE_MISMATCH);
    ts_fails(fy_conv2d_backward_weight(dy, x, &conv, 2, 3, &rest), SHAPE_MISMATCH);
    ts_fails(fy_avg_pool2d_backward(pooled, NULL, &pool, 6, 7, &rest), SHAPE_MISMATCH);
    ts_fails(fy_avg_pool2d_backward(pooled, NULL, &of_relu, 7, 6, &rest), INVALID_ARGUMENT);
    ts_fails(fy_avg_pool2d_backward(pooled, x, &pool, 7, 6, &rest), INVALID_ARGUMENT);
    ts_fails(fy_max_pool2d(x, NULL, &rest), INVALID_ARGUMENT);
    const fy_pool2d_attrs_t large = { .kernel_h = 1,
                                      .kernel_w = INT32_MAX,
                                      .padding_w = INT32_MAX - 3 };
    ts_fails_with(fy_max_pool2d(x, &large, &rest), SHAPE_MISMATCH, "is too large", "2147483647");
    ts_fails_with(fy_avg_pool2d_backward(pooled, NULL, &large, 7, 6, &rest), SHAPE_MISMATCH,
                  "is too large", "2147483647");
    ts_fails(fy_avg_pool2d(x, NULL, &rest), INVALID_ARGUMENT);
    ts_fails(fy_max_pool2d_backward(pooled, x, NULL, &rest), INVALID_ARGUMENT);
    ts_fails(fy_avg_pool2d_backward(pooled, NULL, NULL, 7, 6, &rest), INVALID_ARGUMENT);
    ts_fails(fy_resize2d(x, 0, 4, &rest), INVALID_ARGUMENT);
    ts_fails(fy_resize2d(NULL, 4, 4, &rest), INVALID_ARGUMENT);
    assert_null(rest);
}
