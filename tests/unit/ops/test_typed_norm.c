/* Normalisation through the typed calls and the tape: a large mean with a tiny spread, equal bits
 * with any number of threads, running statistics without gradients, texts of refusals. Every dtype
 * and layout, element by element, is tested in tests/ops/. */
#include <math.h>

#include "tests/support/harness.h"

enum { ROWS = 4099, CHANNELS = 3 };

/* libgomp is not instrumented: a team would be reported access by access, if only to be suppressed
 * (tests/tsan.supp), which takes many minutes. */
#ifdef __SANITIZE_THREAD__
enum { MANY_THREADS = 1 };
#else
enum { MANY_THREADS = 5 };
#endif

static fy_tensor_t *constant(ts_ctx_t *ctx, fy_dtype_t dtype, int64_t n, double value)
{
    fy_tensor_t *tensor;
    ts_ok(fy_full(ctx->device, dtype, 1, &n, value, &tensor));
    return tensor;
}

/* y is x, `stride` apart, less its mean and over its deviation; returns the sum of the squares. */
static double expect_normalized(const float *x, const float *y, int n, int stride)
{
    double sum = 0, m2 = 0;
    for (int i = 0; i < n; i++) sum += x[i * stride];
    for (int i = 0; i < n; i++) m2 += pow(x[i * stride] - sum / n, 2);
    for (int i = 0; i < n; i++)
        assert_true(fabs(y[i * stride] - (x[i * stride] - sum / n) / sqrt(m2 / n)) < 1e-5);
    return m2;
}

/* 1000 + small steps: a sum of squares less the square of the mean would have no correct digit. */
static float step_at(int i, int j) { return 1000 + (float)((i * 7 + j * 13) % 31) / 4096; }

TS_DEVICE_TEST(a_large_mean_costs_no_digits)
{
    static float x[ROWS][CHANNELS], y[ROWS][CHANNELS];
    float moved[CHANNELS];
    fy_tensor_t *result, *mean, *rstd;
    const fy_batch_norm_attrs_t attrs = { 0.25, 0, FY_ACTIVATION_NONE };
    for (int i = 0; i < ROWS; i++)
        for (int c = 0; c < CHANNELS; c++) x[i][c] = step_at(i, c);
    fy_tensor_t *weight = constant(ctx, FY_DTYPE_F32, CHANNELS, 1),
                *bias = constant(ctx, FY_DTYPE_F32, CHANNELS, 0),
                *running_mean = constant(ctx, FY_DTYPE_F32, CHANNELS, 0),
                *running_var = constant(ctx, FY_DTYPE_F32, CHANNELS, 1);
    ts_ok(fy_batch_norm(ts_f32(ctx->device, FY_DIMS(ROWS, CHANNELS), x[0]), weight, bias, NULL,
                        running_mean, running_var, &attrs, &result, &mean, &rstd));
    ts_read(result, y, sizeof y);
    ts_read(running_var, moved, sizeof moved);
    for (int c = 0; c < CHANNELS; c++) {
        const double m2 = expect_normalized(&x[0][c], &y[0][c], ROWS, CHANNELS);
        assert_true(fabs(moved[c] - (0.75 + 0.25 * m2 / (ROWS - 1))) < 1e-6);
    }
}

/* Rows longer than a segment. */
TS_DEVICE_TEST(a_large_mean_of_long_rows)
{
    enum { LONG = 2500 };
    static float x[2][LONG], y[2][LONG];
    fy_tensor_t *result;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < LONG; j++) x[i][j] = step_at(i, j);
    ts_ok(fy_layer_norm(ts_f32(ctx->device, FY_DIMS(2, LONG), x[0]), NULL, NULL, 0, &result, NULL,
                        NULL));
    ts_read(result, y, sizeof y);
    for (int i = 0; i < 2; i++) expect_normalized(x[i], y[i], LONG, 1);
}

TS_DEVICE_TEST(threads_change_no_bit)
{
    enum { WIDTH = 70, RESULTS = 7 };
    static float got[2][RESULTS][ROWS * WIDTH];
    fy_tensor_t *rng, *x, *dy, *y, *saved[2], *out[RESULTS];
    ts_ok(fy_rng_create(ctx->device, 11, &rng));
    ts_ok(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(ROWS, WIDTH), 3, 2, &x));
    ts_ok(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(ROWS, WIDTH), 0, 1, &dy));
    for (int k = 0; k < 2; k++) {
        fy_tensor_t *weight = constant(ctx, FY_DTYPE_F32, WIDTH, 2),
                    *mean = constant(ctx, FY_DTYPE_F32, WIDTH, 0),
                    *var = constant(ctx, FY_DTYPE_F32, WIDTH, 1);
        memset(got[k], 0, sizeof got[k]);
        ts_ok(fy_host_set_threads(k ? MANY_THREADS : 1));
        ts_ok(
            fy_batch_norm(x, weight, weight, NULL, mean, var, NULL, &out[0], &saved[0], &saved[1]));
        ts_ok(fy_batch_norm_backward(dy, x, weight, saved[0], saved[1], out[0], &out[1], &out[2],
                                     &out[3]));
        ts_ok(fy_layer_norm(x, weight, weight, 1e-5, &y, &saved[0], &saved[1]));
        ts_ok(fy_layer_norm_backward(dy, x, saved[0], saved[1], weight, &out[4], &out[5], &out[6]));
        for (int i = 0; i < RESULTS; i++) ts_read(out[i], got[k][i], ts_info(out[i]).nbytes);
    }
    ts_ok(fy_host_set_threads(0));
    assert_memory_equal(got[0], got[1], sizeof got[0]);
}

/* The largest values that <ferry/ops.h> states: rows longer than a segment, channels of many
 * rows. */
TS_DEVICE_TEST(the_stated_range_is_normalized)
{
    enum { LONG = 2500 };
    static float values[LONG], got[LONG];
    for (int j = 0; j < LONG; j++) values[j] = j & 1 ? 5e17f : -5e17f;
    for (int k = 0; k < 2; k++) {
        const fy_dtype_t dtype = k ? FY_DTYPE_F64 : FY_DTYPE_F32;
        fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(LONG), values), *row, *column, *y[3], *result;
        ts_ok(fy_cast(x, dtype, &x));
        if (k) ts_ok(fy_affine(x, 2e132, 0, &x));
        ts_ok(fy_reshape(x, FY_DIMS(1, LONG), &row));
        ts_ok(fy_reshape(x, FY_DIMS(LONG, 1), &column));
        ts_ok(fy_layer_norm(row, NULL, NULL, 1e-5, &y[0], NULL, NULL));
        ts_ok(fy_rms_norm(row, NULL, 1e-5, &y[1], NULL));
        ts_ok(fy_batch_norm(column, constant(ctx, dtype, 1, 1), constant(ctx, dtype, 1, 0), NULL,
                            constant(ctx, dtype, 1, 0), constant(ctx, dtype, 1, 1), NULL, &y[2],
                            NULL, NULL));
        for (int i = 0; i < 3; i++) {
            ts_ok(fy_cast(y[i], FY_DTYPE_F32, &result));
            ts_read(result, got, sizeof got);
            for (int j = 0; j < LONG; j++)
                assert_true(fabsf(got[j] - (j & 1 ? 1.0f : -1.0f)) < 1e-5f);
        }
    }
}

/* Both statistics are views of one tensor, as a model's buffers are: evaluation reads them after
 * the training pass wrote them, under the same tape. */
TS_DEVICE_TEST(running_statistics_are_constants)
{
    static const float values[4][2] = { { 1, 2 }, { 3, -1 }, { 0, 5 }, { -2, 4 } };
    float trained[2], dx[8];
    fy_tensor_t *both, *mean, *var, *y, *z, *sum, *grad;
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(4, 2), values[0]),
                *weight = constant(ctx, FY_DTYPE_F32, 2, 1.5);
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(4), 1, &both));
    ts_ok(fy_slice(both, 0, 0, 2, &mean));
    ts_ok(fy_slice(both, 0, 2, 4, &var));
    fy_tape_t *tape = ts_record(weight, x);
    /* one tensor is weight and bias: its gradient is the sum of both */
    ts_ok(fy_batch_norm(x, weight, weight, NULL, mean, var, NULL, &y, NULL, NULL));
    ts_ok(fy_batch_norm_inference(y, weight, weight, mean, var, NULL, NULL, &z));
    ts_ok(fy_sum(z, 0, NULL, 0, &sum));
    ts_ok(fy_tape_backward(tape, sum, NULL));
    ts_ok(fy_tape_grad(tape, weight, &grad));
    ts_read(mean, trained, sizeof trained);
    assert_true(fabsf(trained[0] - (0.9F + 0.1F * 0.5F)) < 1e-6F);
    /* the sum of a normalised channel does not depend on x */
    ts_read(ts_grad(tape, x), dx, sizeof dx);
    for (int i = 0; i < 8; i++) assert_true(fabsf(dx[i]) < 1e-5F);
    fy_tape_destroy(tape);
}

TS_DEVICE_TEST(refusals_have_numbers)
{
    static const float values[4] = { 1, 2, 3, 4 };
    fy_tensor_t *y, *dweight, *four = constant(ctx, FY_DTYPE_F32, 4, 1),
                              *mean = constant(ctx, FY_DTYPE_F32, 4, 0),
                              *three = constant(ctx, FY_DTYPE_F32, 3, 1);
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(1, 4), values);
    ts_fails_with(fy_batch_norm(x, four, four, NULL, mean, four, NULL, &y, NULL, NULL),
                  SHAPE_MISMATCH, "[1x4 f32] has 1 value a channel, training needs at least 2");
    x = ts_f32(ctx->device, FY_DIMS(4, 1), values);
    ts_fails_with(fy_batch_norm(x, three, four, NULL, mean, four, NULL, &y, NULL, NULL),
                  SHAPE_MISMATCH, "weight (src1) is [3 f32]");
    ts_fails_with(fy_batch_norm(x, four, four, NULL, NULL, four, NULL, &y, NULL, NULL),
                  INVALID_ARGUMENT, "running_mean is NULL");
    ts_fails_with(fy_rms_norm_backward(x, x, four, three, &y, &dweight), SHAPE_MISMATCH,
                  "weight (src3) is [3 f32]");
}
