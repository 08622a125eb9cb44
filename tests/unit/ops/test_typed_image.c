/* The typed calls over images: defaults, and that a gradient belongs to its op. For what is linear
 * in an operand, <dy, f(x)> = <grad f(dy), x> (max pooling is linear near a point); stride, padding
 * and sizes differ between the axes, so nothing can be swapped unseen.
 * What the ops compute is tested in tests/ops/. */
#include <math.h>

#include "tests/support/harness.h"

static fy_tensor_t *noise(ts_ctx_t *ctx, fy_tensor_t *rng, int rank, const int64_t *dims)
{
    fy_tensor_t *out;
    (void)ctx;
    ts_ok(fy_randn(rng, FY_DTYPE_F64, rank, dims, 0, 1, &out));
    return out;
}

static fy_tensor_t *noise_like(ts_ctx_t *ctx, fy_tensor_t *rng, const fy_tensor_t *like)
{
    const fy_tensor_info_t info = ts_info(like);
    return noise(ctx, rng, info.rank, info.dims);
}

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

static void expect_near(double a, double b) { expect_within(a, b, 1e-9); }

TS_DEVICE_TEST(conv2d_and_its_gradients)
{
    const fy_conv2d_attrs_t attrs = { 2, 1, 1, 2, 1, 2, 2, FY_ACTIVATION_NONE };
    fy_tensor_t *rng, *y, *dx, *dw, *with_bias, *db, *rest;
    ts_ok(fy_rng_create(ctx->device, 5, &rng));
    fy_tensor_t *x = noise(ctx, rng, FY_DIMS(2, 7, 6, 4)),
                *w = noise(ctx, rng, FY_DIMS(6, 3, 2, 2)), *bias = noise(ctx, rng, FY_DIMS(6));
    ts_ok(fy_conv2d(x, w, NULL, &attrs, &y));
    fy_tensor_t *dy = noise_like(ctx, rng, y);
    const double want = inner(dy, y);
    assert_true(fabs(want) > 1e-3);
    ts_ok(fy_conv2d_backward_input(dy, w, &attrs, 7, 6, &dx));
    expect_near(inner(dx, x), want);
    ts_ok(fy_conv2d_backward_weight(dy, x, &attrs, 3, 2, &dw));
    expect_near(inner(dw, w), want);
    ts_ok(fy_conv2d(x, w, bias, &attrs, &with_bias));
    ts_ok(fy_sum(dy, 3, (const int[]){ 0, 1, 2 }, 0, &db));
    expect_near(inner(dy, with_bias), want + inner(db, bias));
    ts_fails(fy_conv2d(NULL, w, NULL, &attrs, &rest), INVALID_ARGUMENT);
    ts_fails(fy_conv2d(x, w, NULL, &attrs, NULL), INVALID_ARGUMENT);
    ts_fails(fy_conv2d_backward_input(dy, w, &attrs, 6, 7, &rest), SHAPE_MISMATCH);
    ts_fails(fy_conv2d_backward_weight(dy, x, &attrs, 2, 3, &rest), SHAPE_MISMATCH);
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

TS_DEVICE_TEST(without_attributes_stride_is_1)
{
    fy_tensor_t *x, *w, *y, *dx, *dw;
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(1, 3, 4, 2), 1, &x));
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(1, 2, 3, 2), 1, &w));
    ts_ok(fy_conv2d(x, w, NULL, NULL, &y));
    ts_expect_f32(y, (const float[]){ 12, 12, 12, 12 }, 4);
    ts_ok(fy_conv2d_backward_weight(y, x, NULL, 2, 3, &dw));
    ts_expect_f32(dw, (const float[]){ 48, 48, 48, 48, 48, 48, 48, 48, 48, 48, 48, 48 }, 12);
    ts_ok(fy_conv2d_backward_input(y, w, NULL, 3, 4, &dx));
    ts_expect_f32(dx, (const float[]){ 12, 12, 24, 24, 24, 24, 12, 12, 24, 24, 48, 48,
                                       48, 48, 24, 24, 12, 12, 24, 24, 24, 24, 12, 12 },
                  24);
}

TS_DEVICE_TEST(pooling_and_its_gradients)
{
    const fy_pool2d_attrs_t attrs = { 3, 2, 2, 1, 1, 0, FY_ACTIVATION_NONE, 0, 0 },
                            of_relu = { 3, 2, 2, 1, 1, 0, FY_ACTIVATION_RELU, 0, 0 };
    fy_tensor_t *rng, *y, *dx, *rest;
    ts_ok(fy_rng_create(ctx->device, 6, &rng));
    fy_tensor_t *x = noise(ctx, rng, FY_DIMS(2, 7, 5, 3));
    ts_ok(fy_max_pool2d(x, &attrs, &y));
    fy_tensor_t *dy = noise_like(ctx, rng, y);
    ts_ok(fy_max_pool2d_backward(dy, x, &attrs, &dx));
    expect_near(inner(dx, x), inner(dy, y));
    ts_ok(fy_avg_pool2d(x, &attrs, &y));
    ts_ok(fy_avg_pool2d_backward(dy, NULL, &attrs, 7, 5, &dx));
    expect_near(inner(dx, x), inner(dy, y));
    ts_fails(fy_avg_pool2d_backward(dy, NULL, &attrs, 5, 7, &rest), SHAPE_MISMATCH);
    ts_ok(fy_max_pool2d(x, &of_relu, &y));
    ts_ok(fy_max_pool2d_backward(dy, x, &of_relu, &dx));
    expect_near(inner(dx, x), inner(dy, y));
    ts_ok(fy_avg_pool2d(x, &of_relu, &y));
    ts_ok(fy_avg_pool2d_backward(dy, x, &of_relu, 7, 5, &dx));
    expect_near(inner(dx, x), inner(dy, y));
    ts_fails(fy_avg_pool2d_backward(dy, NULL, &of_relu, 7, 5, &rest), INVALID_ARGUMENT);
    ts_fails(fy_avg_pool2d_backward(dy, x, &attrs, 7, 5, &rest), INVALID_ARGUMENT);
    ts_fails(fy_max_pool2d(x, NULL, &rest), INVALID_ARGUMENT);
    ts_fails(fy_avg_pool2d(x, NULL, &rest), INVALID_ARGUMENT);
    ts_fails(fy_max_pool2d_backward(dy, x, NULL, &rest), INVALID_ARGUMENT);
    ts_fails(fy_avg_pool2d_backward(dy, NULL, NULL, 7, 5, &rest), INVALID_ARGUMENT);
}

TS_DEVICE_TEST(the_first_of_equals_gets_the_gradient)
{
    const fy_pool2d_attrs_t attrs = { .kernel_h = 2, .kernel_w = 2 };
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(1, 2, 4, 1),
                            (const float[]){ 1, 5, 7, 2, 5, 0, 7, 7 }),
                *y, *dx;
    ts_ok(fy_max_pool2d(x, &attrs, &y));
    ts_expect_f32(y, (const float[]){ 5, 7 }, 2);
    ts_ok(fy_max_pool2d_backward(y, x, &attrs, &dx));
    ts_expect_f32(dx, (const float[]){ 0, 5, 7, 0, 0, 0, 0, 0 }, 8);
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

static void expect_values(const fy_tensor_t *tensor, const float *want, size_t n)
{
    float got[30];
    assert_true(n <= sizeof got / sizeof *got);
    assert_int_equal(ts_info(tensor).nelem, n);
    ts_read(tensor, got, n * sizeof *got);
    for (size_t i = 0; i < n; i++) expect_within((double)want[i], (double)got[i], 1e-6);
}

/* Of an image of 6 x 5, kernel 3 x 3, stride 2, padding 1, as torch.nn.functional.avg_pool2d and
 * max_pool2d compute them; dy is 36 times 1, 2, ... */
typedef struct pooled {
    int32_t ceil_mode, count_excludes_padding;
    int64_t rows;
    float mean[12], dx[30];
} pooled_t;

TS_DEVICE_TEST(pooling_as_pytorch)
{
    static const pooled_t cases[] = {
        { 1,
          0,
          4,
          { 32, 36, 16, 32, 52, 52, -4, 20, 16, 0, 24, -12 },
          { 4,  12, 8,  20,  12, 20, 48, 28, 64, 36, 16, 36,  20, 44,  24,
            44, 96, 52, 112, 60, 28, 60, 32, 68, 36, 88, 186, 98, 206, 108 } },
        { 1,
          1,
          4,
          { 72, 54, 36, 48, 52, 78, -6, 20, 24, 0, 48, -36 },
          { 9,  21,  12, 39,  27, 33, 65, 32, 95, 63, 24,  44,  20,  56,  36,
            66, 118, 52, 142, 90, 42, 74, 32, 86, 54, 222, 386, 164, 434, 270 } },
        { 0, 1, 3, { 72, 54, 36, 48, 52, 78, -6, 20, 24 }, { 9,   21, 12,  39, 27, 33, 65, 32,
                                                             95,  63, 24,  44, 20, 56, 36, 66,
                                                             118, 52, 142, 90, 42, 74, 32, 86,
                                                             54,  42, 74,  32, 86, 54 } },
    };
    static const float max[] = { 180, 216, 144, 180, 216, 216, 180, 180, 216, 72, 180, 36 },
                       max_dx[] = { 0, 0,   72, 0, 0, 180, 0, 0, 108, 0,   0,   0, 0,   396, 0,
                                    0, 540, 0,  0, 0, 0,   0, 0, 0,   324, 360, 0, 396, 432, 0 };
    float image[30], seeds[12];
    fy_tensor_t *y, *dx;
    for (int i = 0; i < 30; i++) image[i] = (float)(36 * ((i + 1) * 7 % 11 - 4));
    for (int i = 0; i < 12; i++) seeds[i] = (float)(36 * (i + 1));
    const fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(1, 6, 5, 1), image), *dy;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const pooled_t *want = &cases[i];
        fy_pool2d_attrs_t attrs = { .kernel_h = 3,
                                    .kernel_w = 3,
                                    .stride_h = 2,
                                    .stride_w = 2,
                                    .padding_h = 1,
                                    .padding_w = 1,
                                    .ceil_mode = want->ceil_mode,
                                    .count_excludes_padding = want->count_excludes_padding };
        dy = ts_f32(ctx->device, FY_DIMS(1, want->rows, 3, 1), seeds);
        ts_ok(fy_avg_pool2d(x, &attrs, &y));
        expect_values(y, want->mean, (size_t)want->rows * 3);
        ts_ok(fy_avg_pool2d_backward(dy, NULL, &attrs, 6, 5, &dx));
        expect_values(dx, want->dx, 30);
        attrs.count_excludes_padding = 0;
        ts_ok(fy_max_pool2d(x, &attrs, &y));
        expect_values(y, max, (size_t)want->rows * 3);
        if (!want->ceil_mode) continue;
        ts_ok(fy_max_pool2d_backward(dy, x, &attrs, &dx));
        expect_values(dx, max_dx, 30);
    }
}

/* Values of torch.nn.functional.interpolate and adaptive_avg_pool2d. */
TS_DEVICE_TEST(resizing_and_adaptive_pooling)
{
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(1, 2, 2, 1), (const float[]){ 1, 2, 3, 4 }), *y,
                *rng, *dx;
    ts_ok(fy_resize2d(x, 4, 4, &y));
    ts_expect_f32(y,
                  (const float[]){ 1, 1.25f, 1.75f, 2, 1.5f, 1.75f, 2.25f, 2.5f, 2.5f, 2.75f, 3.25f,
                                   3.5f, 3, 3.25f, 3.75f, 4 },
                  16);
    x = ts_f32(ctx->device, FY_DIMS(1, 1, 5, 1), (const float[]){ 2, 4, 6, 8, 14 });
    ts_ok(fy_adaptive_avg_pool2d(x, 1, 3, &y));
    ts_expect_f32(y, (const float[]){ 3, 6, 11 }, 3);
    ts_fails(fy_resize2d(x, 0, 4, &y), INVALID_ARGUMENT);
    ts_fails(fy_resize2d(NULL, 4, 4, &y), INVALID_ARGUMENT);
    assert_null(y);
    ts_ok(fy_rng_create(ctx->device, 7, &rng));
    x = noise(ctx, rng, FY_DIMS(2, 7, 5, 3));
    ts_ok(fy_resize2d(x, 4, 9, &y));
    fy_tensor_t *dy = noise_like(ctx, rng, y);
    ts_ok(fy_resize2d_backward(dy, 7, 5, &dx));
    expect_near(inner(dx, x), inner(dy, y));
    ts_ok(fy_adaptive_avg_pool2d(x, 4, 9, &y));
    ts_ok(fy_adaptive_avg_pool2d_backward(dy, 7, 5, &dx));
    expect_near(inner(dx, x), inner(dy, y));
}
