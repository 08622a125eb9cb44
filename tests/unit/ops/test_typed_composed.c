/* The typed calls that are made of several ops: values, gradients, f16, refusals; and that no
 * temporary is left.
 * What the ops compute is tested in tests/ops/. */
#include <math.h>
#include <stdbool.h>

#include "tests/support/harness.h"

enum { N = 8 };

static fy_tensor_t *f64_of(ts_ctx_t *ctx, int rank, const int64_t *dims, const double *values)
{
    return ts_upload(ctx->device, FY_DTYPE_F64, rank, dims, values);
}

static void expect_f64(const fy_tensor_t *tensor, const double *want, size_t n)
{
    double got[32];
    assert_true(n <= 32);
    assert_int_equal(ts_info(tensor).nelem, n);
    ts_read(tensor, got, n * sizeof *got);
    for (size_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-15 + 2e-8 * fabs(want[i])))
            fail_msg("element %zu is %.12g, want %.12g", i, got[i], want[i]);
}

/* ---- losses ---- */

typedef enum loss { BCE, L1, SMOOTH_L1, L1_OF_BETA_0, KL, KL_LOG, LOSSES } loss_t;

static fy_status_t loss_of(loss_t which, const fy_tensor_t *x, const fy_tensor_t *y,
                           fy_reduction_t reduction, fy_tensor_t **out_loss)
{
    switch (which) {
    case BCE: return fy_bce_with_logits(x, y, reduction, out_loss);
    case L1: return fy_l1_loss(x, y, reduction, out_loss);
    case SMOOTH_L1: return fy_smooth_l1_loss(x, y, 0.75, reduction, out_loss);
    case L1_OF_BETA_0: return fy_smooth_l1_loss(x, y, 0, reduction, out_loss);
    case KL: return fy_kl_div(x, y, 0, reduction, out_loss);
    default: return fy_kl_div(x, y, 1, reduction, out_loss);
    }
}

typedef struct value {
    double loss, dx, dy;
} value_t;

/* Of one element. PyTorch has no gradient of a target 0 of kl_div; here it is the limit of the
 * rest, -x. */
static value_t value_at(loss_t which, double x, double y)
{
    const double d = x - y, sign = (d > 0) - (d < 0), below = 1 / (1 + exp(fabs(x)));
    switch (which) {
    case BCE:
        return (value_t){ fmax(x, 0) - x * y + log1p(exp(-fabs(x))),
                          x > 0 ? 1 - y - below : below - y, -x };
    case SMOOTH_L1:
        if (fabs(d) < 0.75) return (value_t){ d * d / 1.5, d / 0.75, -d / 0.75 };
        return (value_t){ fabs(d) - 0.375, sign, -sign };
    case KL:
        if (y == 0) return (value_t){ 0, 0, -x };
        return (value_t){ y * (log(y) - x), -y, log(y) + 1 - x };
    case KL_LOG: return (value_t){ exp(y) * (y - x), -exp(y), exp(y) * (y - x + 1) };
    default: return (value_t){ fabs(d), sign, -sign };
    }
}

TS_DEVICE_TEST(losses_and_their_gradients)
{
    static const double x[N] = { 0, 1, -2, 20, -30, 0.5, 0.25, 3 },
                        y[N] = { 0, 1, 0.25, 1, 0, 0.5, 0, 0.5 };
    fy_tensor_t *a = f64_of(ctx, FY_DIMS(2, 4), x), *b = f64_of(ctx, FY_DIMS(2, 4), y), *loss, *sum;
    fy_tape_t *tape = ts_tape(a, b);
    for (int k = 0; k < 3 * LOSSES; k++) {
        const fy_reduction_t reduction = (fy_reduction_t)(k % 3);
        const bool each = reduction == FY_REDUCTION_NONE;
        const double share = reduction == FY_REDUCTION_MEAN ? 1.0 / N : 1;
        double want[N], dx[N], dy[N], total = 0;
        const fy_scope_t scope = fy_scope_begin("loss");
        for (int i = 0; i < N; i++) {
            const value_t value = value_at((loss_t)(k / 3), x[i], y[i]);
            want[i] = value.loss;
            total += value.loss * share;
            dx[i] = value.dx * share;
            dy[i] = value.dy * share;
        }
        ts_ok(fy_tape_begin(tape));
        ts_ok(loss_of((loss_t)(k / 3), a, b, reduction, &loss));
        assert_int_equal(ts_info(loss).rank, each ? 2 : 0);
        expect_f64(loss, each ? want : &total, each ? N : 1);
        ts_ok(fy_sum(loss, FY_ALL_AXES, 0, &sum));
        ts_ok(fy_tape_backward(tape, sum, NULL));
        expect_f64(ts_grad(tape, a), dx, N);
        expect_f64(ts_grad(tape, b), dy, N);
        fy_scope_end(scope, 0, NULL);
    }
}

/* exp(-10) is kept beside 10, and no exponential of a large logit overflows. */
TS_DEVICE_TEST(logits_lose_no_digits)
{
    static const float x[4] = { 10, -10, 1e30F, -1e4F }, y[4] = { 1, 0, 1, 1 };
    static const float want[4] = { 4.53988992e-5F, 4.53988992e-5F, 0, 1e4F };
    fy_tensor_t *loss;
    float got[4];
    ts_ok(fy_bce_with_logits(ts_f32(ctx->device, FY_DIMS(4), x), ts_f32(ctx->device, FY_DIMS(4), y),
                             FY_REDUCTION_NONE, &loss));
    ts_read(loss, got, sizeof got);
    for (int i = 0; i < 4; i++) assert_true(fabsf(got[i] - want[i]) <= 1e-6F * want[i]);
}

/* 300^2 is no f16, and the sum of 40 losses of 2,000 is none; their mean is. */
TS_DEVICE_TEST(halves_compute_in_f32)
{
    fy_tensor_t *a, *b, *loss;
    ts_ok(fy_full(ctx->device, FY_DTYPE_F16, FY_DIMS(40), 2300, &a));
    ts_ok(fy_full(ctx->device, FY_DTYPE_F16, FY_DIMS(40), 300, &b));
    for (int k = 0; k < 2; k++) {
        ts_ok(k ? fy_smooth_l1_loss(a, b, 1000, FY_REDUCTION_MEAN, &loss)
                : fy_l1_loss(a, b, FY_REDUCTION_MEAN, &loss));
        assert_int_equal(ts_info(loss).dtype, FY_DTYPE_F16);
        assert_true(ts_value(loss) == (k ? 1500 : 2000));
    }
}

TS_DEVICE_TEST(temporaries_are_freed)
{
    fy_tensor_t *x, *y, *loss;
    ts_ok(fy_full(ctx->device, FY_DTYPE_BF16, FY_DIMS(5), -1, &x));
    ts_ok(fy_full(ctx->device, FY_DTYPE_BF16, FY_DIMS(5), 0.5, &y));
    for (int k = 0; k < LOSSES; k++) {
        const uint64_t before = ts_live(ctx->device);
        ts_ok(loss_of((loss_t)k, x, y, FY_REDUCTION_NONE, &loss));
        assert_int_equal(ts_info(loss).nelem, 5);
        fy_tensor_destroy(loss);
        assert_int_equal(ts_live(ctx->device), before);
    }
}

/* Of no elements: the mean is NaN, the sum 0. */
TS_DEVICE_TEST(losses_refuse_what_does_not_fit)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(2, 3), 1),
                *row = ts_iota(ctx->device, FY_DIMS(3), 1), *half, *whole, *none, *y;
    ts_ok(fy_cast(x, FY_DTYPE_F16, &half));
    ts_ok(fy_cast(x, FY_DTYPE_I32, &whole));
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(0, 3), &none));
    for (int k = 0; k < LOSSES; k++) {
        const fy_ledger_totals_t before = ts_ledger(NULL);
        ts_fails_with(loss_of((loss_t)k, x, row, FY_REDUCTION_MEAN, &y), SHAPE_MISMATCH,
                      "[2x3 f32]");
        ts_fails_with(loss_of((loss_t)k, x, half, FY_REDUCTION_MEAN, &y), DTYPE_MISMATCH, "f16");
        ts_fails(loss_of((loss_t)k, whole, whole, FY_REDUCTION_SUM, &y), DTYPE_MISMATCH);
        ts_fails_with(loss_of((loss_t)k, x, x, (fy_reduction_t)3, &y), INVALID_ARGUMENT,
                      "reduction 3");
        ts_fails_with(loss_of((loss_t)k, x, NULL, FY_REDUCTION_SUM, &y), INVALID_ARGUMENT,
                      "src1 is NULL");
        ts_fails(loss_of((loss_t)k, x, x, FY_REDUCTION_SUM, NULL), INVALID_ARGUMENT);
        assert_null(y);
        assert_int_equal(ts_ledger(NULL).requests, before.requests);
        ts_ok(loss_of((loss_t)k, none, none, FY_REDUCTION_SUM, &y));
        assert_true(ts_value(y) == 0);
        ts_ok(loss_of((loss_t)k, none, none, FY_REDUCTION_MEAN, &y));
        assert_true(isnan(ts_value(y)));
    }
    static const double betas[4] = { -1, INFINITY, NAN, 1e-60 };
    for (int i = 0; i < 4; i++) {
        ts_fails_with(fy_smooth_l1_loss(x, x, betas[i], FY_REDUCTION_SUM, &y), INVALID_ARGUMENT,
                      "beta");
    }
}

/* ---- variance ---- */

/* PyTorch 2.15: over all, over axis 0, over axis 1. */
TS_DEVICE_TEST(variances_have_the_values_of_pytorch)
{
    static const double x[12] = { 1, 2, 4, 8, 3, 3, 3, 3, -1, 0, 1, 6.5 };
    static const double var[2][3][4] = { { { 5.97743055556 },
                                           { 2.66666666667, 1.55555555556, 1.55555555556,
                                             4.38888888889 },
                                           { 7.1875, 0, 8.421875 } },
                                         { { 6.52083333333 },
                                           { 4, 2.33333333333, 2.33333333333, 6.58333333333 },
                                           { 9.58333333333, 0, 11.2291666667 } } };
    static const size_t counts[3] = { 1, 4, 3 };
    fy_tensor_t *src = f64_of(ctx, FY_DIMS(3, 4), x), *y;
    for (int c = 0; c < 2; c++)
        for (int k = 0; k < 3; k++) {
            double root[4];
            const int axis = k - 1;
            for (size_t i = 0; i < counts[k]; i++) root[i] = sqrt(var[c][k][i]);
            ts_ok(fy_var(src, k > 0, &axis, c, 0, &y));
            assert_int_equal(ts_info(y).rank, k > 0);
            expect_f64(y, var[c][k], counts[k]);
            ts_ok(fy_std(src, k > 0, &axis, c, 1, &y));
            assert_int_equal(ts_info(y).rank, 2);
            expect_f64(y, root, counts[k]);
        }
}

/* The mean of 1e7, 1e7 + 1, 1e7 + 1 is no f32; its rounding must not show. Of 0.1 in f32 the
 * variance is 0, and not below. */
TS_DEVICE_TEST(a_large_mean_costs_no_accuracy)
{
    static const float x[3] = { 1e7F, 1e7F + 1, 1e7F + 1 };
    fy_tensor_t *src = ts_f32(ctx->device, FY_DIMS(3), x), *y;
    ts_ok(fy_var(src, 0, NULL, 0, 0, &y));
    assert_true(fabs(ts_value(y) - 2.0 / 9) < 1e-6);
    ts_ok(fy_std(src, 0, NULL, 1, 0, &y));
    assert_true(fabs(ts_value(y) - sqrt(1.0 / 3)) < 1e-6);
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(1001), 0.1, &src));
    ts_ok(fy_var(src, 0, NULL, 0, 0, &y));
    assert_true(ts_value(y) >= 0 && ts_value(y) < 1e-20);
}

typedef struct spread {
    int naxes, axis, correction, is_std;
} spread_t;

static fy_status_t checked_spread(void *user, size_t count, fy_tensor_t *const *inputs,
                                  fy_tensor_t **out_y)
{
    const spread_t *with = user;
    (void)count;
    return (with->is_std ? fy_std : fy_var)(inputs[0], with->naxes, &with->axis, with->correction,
                                            0, out_y);
}

TS_DEVICE_TEST(variances_have_gradients)
{
    fy_tensor_t *rng, *x, *y, *sum;
    ts_ok(fy_rng_create(ctx->device, 5, &rng));
    ts_ok(fy_rand(rng, FY_DTYPE_F64, FY_DIMS(3, 5), -3, 3, &x));
    for (int k = 0; k < 12; k++) {
        spread_t with = { k / 4 > 0, k / 4 - 2, k & 1, k >> 1 & 1 };
        fy_gradcheck_result_t result = FY_GRADCHECK_RESULT_INIT;
        ts_ok(fy_gradcheck(checked_spread, &with, 1, &x, NULL, &result));
        assert_int_equal(result.checked, 15);
    }
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(4), 2, &x));
    fy_tape_t *tape = ts_record(x, NULL);
    ts_ok(fy_std(x, 0, NULL, 1, 0, &y));
    ts_ok(fy_sum(y, 0, NULL, 0, &sum));
    ts_ok(fy_tape_backward(tape, sum, NULL));
    ts_expect_f32(ts_grad(tape, x), (const float[]){ 0, 0, 0, 0 }, 4);
    fy_tape_destroy(tape);
}

TS_DEVICE_TEST(variances_of_few_and_of_halves)
{
    fy_tensor_t *one, *none, *half, *y;
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(1), 3, &one));
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(0), &none));
    for (int k = 0; k < 4; k++) {
        ts_ok((k & 1 ? fy_std : fy_var)(k < 2 ? one : none, 0, NULL, 1, 0, &y));
        assert_true(isnan(ts_value(y)));
        ts_ok((k & 1 ? fy_std : fy_var)(k < 2 ? one : none, 0, NULL, 0, 0, &y));
        assert_true(k < 2 ? ts_value(y) == 0 : isnan(ts_value(y)));
    }
    ts_ok(fy_cast(ts_f32(ctx->device, FY_DIMS(2), (const float[]){ -400, 400 }), FY_DTYPE_F16,
                  &half));
    const uint64_t before = ts_live(ctx->device);
    ts_ok(fy_std(half, 0, NULL, 0, 0, &y)); /* 400^2 is no f16 */
    assert_int_equal(ts_info(y).dtype, FY_DTYPE_F16);
    assert_true(ts_value(y) == 400);
    fy_tensor_destroy(y);
    assert_int_equal(ts_live(ctx->device), before);
}

TS_DEVICE_TEST(variances_refuse)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(2, 3), 1), *whole, *y;
    ts_ok(fy_cast(x, FY_DTYPE_I32, &whole));
    for (int k = 0; k < 2; k++) {
        fy_status_t (*call)(const fy_tensor_t *, int, const int *, int, int, fy_tensor_t **) =
            k ? fy_std : fy_var;
        ts_fails_with(call(whole, 0, NULL, 0, 0, &y), DTYPE_MISMATCH,
                      k ? "std: src0 is [2x3 i32]" : "var: src0 is [2x3 i32]");
        ts_fails_with(call(x, 0, NULL, 2, 0, &y), INVALID_ARGUMENT, "correction 2");
        ts_fails_with(call(x, 1, (const int[]){ 2 }, 0, 0, &y), INVALID_ARGUMENT,
                      k ? "std: axis 2 does not exist" : "var: axis 2 does not exist");
        ts_fails_with(call(x, 2, (const int[]){ 1, -1 }, 0, 0, &y), INVALID_ARGUMENT,
                      "named twice");
        ts_fails(call(NULL, 0, NULL, 0, 0, &y), INVALID_ARGUMENT);
        ts_fails(call(x, 0, NULL, 0, 0, NULL), INVALID_ARGUMENT);
        assert_null(y);
    }
}

/* ---- group_norm ---- */

enum { SAMPLES = 2, PIXELS = 3, CHANNELS = 4, ELEMENTS = SAMPLES * PIXELS * CHANNELS };

static double pixel(int i) { return i * 7 % 11 - 4 + 0.25 * i; }

/* Computed here, for each number of groups, of a dense and of a transposed source. */
TS_DEVICE_TEST(groups_are_normalized)
{
    static const double w[CHANNELS] = { 1, 2, -1, 0.5 }, b[CHANNELS] = { 0, 1, 2, 3 };
    fy_tensor_t *weight = f64_of(ctx, FY_DIMS(CHANNELS), w),
                *bias = f64_of(ctx, FY_DIMS(CHANNELS), b);
    for (int groups = 1; groups <= CHANNELS; groups *= 2) {
        const int width = CHANNELS / groups, n = PIXELS * width;
        double x[ELEMENTS], want[ELEMENTS];
        for (int i = 0; i < ELEMENTS; i++) x[i] = pixel(i);
        for (int s = 0; s < SAMPLES; s++)
            for (int g = 0; g < groups; g++) {
                double mean = 0, square = 0;
                for (int k = 0; k < n; k++)
                    mean += x[(s * PIXELS + k / width) * CHANNELS + g * width + k % width] / n;
                for (int k = 0; k < n; k++) {
                    const int i = (s * PIXELS + k / width) * CHANNELS + g * width + k % width;
                    want[i] = x[i] - mean;
                    square += want[i] * want[i] / n;
                }
                for (int k = 0; k < n; k++)
                    want[(s * PIXELS + k / width) * CHANNELS + g * width + k % width] /=
                        sqrt(square + 0.5);
            }
        fy_tensor_t *src = f64_of(ctx, FY_DIMS(SAMPLES, PIXELS, CHANNELS), x), *turned, *copy, *y;
        ts_ok(fy_group_norm(src, groups, NULL, NULL, 0.5, &y));
        expect_f64(y, want, ELEMENTS);
        /* the same elements, stored channel by channel */
        ts_ok(fy_transpose(src, NULL, &turned));
        ts_ok(fy_empty(ctx->device, FY_DTYPE_F64, FY_DIMS(CHANNELS, PIXELS, SAMPLES), &copy));
        ts_ok(fy_copy(copy, turned));
        ts_ok(fy_transpose(copy, NULL, &turned));
        ts_ok(fy_group_norm(turned, groups, NULL, NULL, 0.5, &y));
        assert_int_equal(ts_info(y).rank, 3);
        assert_true(ts_info(y).is_contiguous);
        expect_f64(y, want, ELEMENTS);
        for (int i = 0; i < ELEMENTS; i++) want[i] = want[i] * w[i % CHANNELS] + b[i % CHANNELS];
        ts_ok(fy_group_norm(src, groups, weight, bias, 0.5, &y));
        expect_f64(y, want, ELEMENTS);
    }
}

static fy_status_t checked_groups(void *user, size_t count, fy_tensor_t *const *inputs,
                                  fy_tensor_t **out_y)
{
    return fy_group_norm(inputs[0], *(const int *)user, count > 1 ? inputs[1] : NULL,
                         count > 2 ? inputs[2] : NULL, 1e-2, out_y);
}

TS_DEVICE_TEST(group_norm_has_gradients)
{
    fy_tensor_t *rng, *inputs[3];
    ts_ok(fy_rng_create(ctx->device, 5, &rng));
    ts_ok(fy_rand(rng, FY_DTYPE_F64, FY_DIMS(2, 2, 3, 4), -3, 3, &inputs[0]));
    for (int i = 1; i < 3; i++)
        ts_ok(fy_rand(rng, FY_DTYPE_F64, FY_DIMS(CHANNELS), -2, 2, &inputs[i]));
    for (int groups = 1; groups <= CHANNELS; groups *= 2)
        for (size_t count = 1; count <= 3; count++) {
            fy_gradcheck_result_t result = FY_GRADCHECK_RESULT_INIT;
            ts_ok(fy_gradcheck(checked_groups, &groups, count, inputs, NULL, &result));
            assert_int_equal(result.checked, 48 + (count - 1) * CHANNELS);
        }
}

/* The results in f16 are those in f32, rounded once; and no temporary is left. */
TS_DEVICE_TEST(groups_of_halves)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(2, 3, 4), 1), *w, *half, *half_w, *y, *z, *same;
    uint8_t equal[ELEMENTS];
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(CHANNELS), 0.375, &w));
    ts_ok(fy_cast(x, FY_DTYPE_F16, &half));
    ts_ok(fy_cast(w, FY_DTYPE_F16, &half_w));
    const uint64_t before = ts_live(ctx->device);
    ts_ok(fy_group_norm(half, 2, half_w, half_w, 1e-5, &y));
    assert_int_equal(ts_info(y).dtype, FY_DTYPE_F16);
    fy_tensor_destroy(y);
    assert_int_equal(ts_live(ctx->device), before);
    ts_ok(fy_group_norm(half, 2, half_w, half_w, 1e-5, &y));
    ts_ok(fy_group_norm(x, 2, w, w, 1e-5, &z));
    ts_ok(fy_cast(z, FY_DTYPE_F16, &z));
    ts_ok(fy_eq(y, z, &same));
    ts_read(same, equal, sizeof equal);
    for (int i = 0; i < ELEMENTS; i++) assert_true(equal[i]);
}

TS_DEVICE_TEST(group_norm_refuses)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(2, 3, 4), 1),
                *three = ts_iota(ctx->device, FY_DIMS(3), 1), *row, *whole, *half, *y;
    ts_ok(fy_cast(x, FY_DTYPE_I32, &whole));
    ts_ok(fy_full(ctx->device, FY_DTYPE_F16, FY_DIMS(4), 1, &half));
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(4), &row));
    const uint64_t before = ts_ledger(NULL).requests;
    ts_fails_with(fy_group_norm(x, 3, NULL, NULL, 1e-5, &y), SHAPE_MISMATCH,
                  "[2x3x4 f32]; 3 groups do not divide its last axis, 4 channels");
    ts_fails_with(fy_group_norm(row, 2, NULL, NULL, 1e-5, &y), SHAPE_MISMATCH,
                  "group_norm: x is [4 f32], of rank 1; it must be [N, ..., C]");
    ts_fails(fy_group_norm(x, 0, NULL, NULL, 1e-5, &y), INVALID_ARGUMENT);
    assert_string_equal(fy_error_get()->text, "group_norm: groups is 0; it must be 1 or more");
    ts_fails(fy_group_norm(x, 2, NULL, NULL, -1, &y), INVALID_ARGUMENT);
    assert_string_equal(fy_error_get()->text,
                        "group_norm: eps is -1; it must be finite, 0 or more");
    ts_fails(fy_group_norm(whole, 2, NULL, NULL, 1e-5, &y), DTYPE_MISMATCH);
    ts_fails_with(fy_group_norm(x, 2, half, NULL, 1e-5, &y), DTYPE_MISMATCH, "weight is [4 f16]");
    ts_fails_with(fy_group_norm(x, 2, row, three, 1e-5, &y), SHAPE_MISMATCH,
                  "bias is [3 f32]; it must be [4]");
    ts_fails(fy_group_norm(NULL, 2, row, row, 1e-5, &y), INVALID_ARGUMENT);
    ts_fails(fy_group_norm(x, 2, NULL, NULL, 1e-5, NULL), INVALID_ARGUMENT);
    assert_null(y);
    assert_int_equal(ts_ledger(NULL).requests, before);
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(0, 3, 4), &x));
    ts_ok(fy_group_norm(x, 2, row, row, 1e-5, &y));
    assert_int_equal(ts_info(y).nelem, 0);
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(2, 0, 4), &x));
    ts_fails(fy_group_norm(x, 2, row, row, 1e-5, &y), SHAPE_MISMATCH);
}

/* ---- failures ---- */

static fy_status_t composed(int which, fy_tensor_t *x, fy_tensor_t *y, fy_tensor_t **out)
{
    if (which < LOSSES) return loss_of((loss_t)which, x, y, FY_REDUCTION_NONE, out);
    if (which == LOSSES) return fy_var(x, 1, (const int[]){ 0 }, 1, 0, out);
    return fy_group_norm(x, 2, NULL, NULL, 1e-5, out);
}

/* On a device with room for ever more temporaries, each step fails once. A failure leaves none and
 * no result. */
TS_DEVICE_TEST(a_step_without_memory_leaves_nothing)
{
    const int64_t mib = 1 << 20;
    if (ctx->is_host) return;
    fy_device_t *device = ts_open_with(ctx, "limit=24MiB");
    for (int which = 0; which < LOSSES + 2; which++) {
        int failures = 0;
        fy_status_t status = FY_STATUS_OUT_OF_MEMORY;
        for (int64_t room = 0; status != FY_STATUS_OK && room < 20; room++) {
            fy_scope_t scope = fy_scope_begin("room");
            fy_tensor_t *x, *y, *filler, *out;
            ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(8, mib / 128, 4), 0.5, &x));
            ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(8, mib / 128, 4), 0.5, &y));
            ts_ok(fy_full(device, FY_DTYPE_U8, FY_DIMS((22 - room) * mib), 0, &filler));
            const uint64_t before = ts_live(device);
            status = composed(which, x, y, &out);
            if (status != FY_STATUS_OK) {
                assert_int_equal(status, FY_STATUS_OUT_OF_MEMORY);
                assert_null(out);
                assert_int_equal(ts_live(device), before);
                failures++;
            }
            fy_scope_end(scope, 0, NULL);
        }
        assert_int_equal(status, FY_STATUS_OK);
        assert_true(failures >= 2);
    }
    ts_reopen(ctx, device);
}
