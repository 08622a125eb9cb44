/* Losses of classifiers through the typed calls and the tape: known values, large logits, classes
 * out of range.
 * Every shape, dtype and layout is tested in tests/ops/. */
#include <math.h>

#include "tests/support/harness.h"

static fy_tensor_t *classes_of(ts_ctx_t *ctx, int64_t count, const int32_t *values)
{
    fy_tensor_t *host, *targets;
    ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_I32, 1, &count, (void *)(uintptr_t)values, NULL,
                         NULL, &host));
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &targets));
    return targets;
}

static double value_of(const fy_tensor_t *scalar)
{
    float value;
    ts_read(scalar, &value, sizeof value);
    return value;
}

static void expect_near(const fy_tensor_t *tensor, const double *want, size_t n)
{
    float got[16];
    assert_true(n <= 16);
    ts_read(tensor, got, n * sizeof *got);
    for (size_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-6))
            fail_msg("element %zu is %.9g, want %.9g", i, got[i], want[i]);
}

/* -log_softmax of {1, 2, 3}: 2.40760596, 1.40760596, 0.40760596. */
static void losses_have_known_values(ts_ctx_t *ctx)
{
    static const float x[6] = { 1, 2, 3, 3, 2, 1 };
    static const int32_t t[2] = { 0, 1 };
    fy_tensor_t *logits = ts_f32(ctx->device, FY_DIMS(2, 3), x), *targets = classes_of(ctx, 2, t),
                *log_probs, *y;
    const double each[2] = { 2.40760596, 1.40760596 };
    ts_ok(fy_log_softmax(logits, 1, &log_probs));
    ts_ok(fy_cross_entropy(logits, targets, FY_REDUCTION_NONE, &y));
    expect_near(y, each, 2);
    ts_ok(fy_nll_loss(log_probs, targets, FY_REDUCTION_NONE, &y));
    expect_near(y, each, 2);
    ts_ok(fy_cross_entropy(logits, targets, FY_REDUCTION_SUM, &y));
    assert_int_equal(ts_info(y).rank, 0);
    assert_true(fabs(value_of(y) - 3.81521193) < 1e-6);
    ts_ok(fy_nll_loss(log_probs, targets, FY_REDUCTION_MEAN, &y));
    assert_true(fabs(value_of(y) - 1.90760596) < 1e-6);
}

/* exp(1e4) exceeds f32; and the mean loss of zero samples is NaN. */
static void large_logits_are_safe(ts_ctx_t *ctx)
{
    static const float x[4] = { 1e4f, -1e4f, -1e4f, 1e4f };
    static const int32_t t[2] = { 0, 0 };
    fy_tensor_t *logits = ts_f32(ctx->device, FY_DIMS(2, 2), x), *targets = classes_of(ctx, 2, t),
                *none, *nobody, *y, *g, *one;
    ts_ok(fy_cross_entropy(logits, targets, FY_REDUCTION_NONE, &y));
    ts_expect_f32(y, (const float[]){ 0, 2e4f }, 2);
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, 0, NULL, 1, &one));
    ts_ok(fy_cross_entropy_backward(one, logits, targets, FY_REDUCTION_SUM, &g));
    ts_expect_f32(g, (const float[]){ 0, 0, -1, 1 }, 4);
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(0, 2), &none));
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_I64, FY_DIMS(0), &nobody));
    ts_ok(fy_cross_entropy(none, nobody, FY_REDUCTION_MEAN, &y));
    assert_true(isnan(value_of(y)));
    ts_ok(fy_cross_entropy(none, nobody, FY_REDUCTION_SUM, &y));
    assert_true(value_of(y) == 0);
}

/* Both ways to compute the loss have the same gradient: (softmax - 1 at the target) / N. */
static void gradients_agree(ts_ctx_t *ctx)
{
    static const float x[6] = { 1, 2, 3, 3, 2, 1 };
    static const int32_t t[2] = { 0, 1 };
    const double want[6] = { -0.45498471, 0.12236424,  0.33262048,
                             0.33262048,  -0.37763576, 0.04501529 };
    fy_tensor_t *logits = ts_f32(ctx->device, FY_DIMS(2, 3), x), *targets = classes_of(ctx, 2, t),
                *log_probs, *loss, *g;
    fy_tape_t *tape;
    ts_ok(fy_tape_create(&tape));
    ts_ok(fy_tape_watch(tape, logits, NULL));
    for (int fused = 0; fused < 2; fused++) {
        fy_scope_t scope = fy_scope_begin("step");
        ts_ok(fy_tape_begin(tape));
        if (fused) {
            ts_ok(fy_cross_entropy(logits, targets, FY_REDUCTION_MEAN, &loss));
        } else {
            ts_ok(fy_log_softmax(logits, -1, &log_probs));
            ts_ok(fy_nll_loss(log_probs, targets, FY_REDUCTION_MEAN, &loss));
        }
        const uint64_t before = ts_ledger(NULL).requests;
        ts_ok(fy_tape_backward(tape, loss, NULL));
        /* the one that begins, and one gradient */
        if (fused) assert_int_equal(ts_ledger(NULL).requests - before, 2);
        ts_ok(fy_tape_grad(tape, logits, &g));
        expect_near(g, want, 6);
        fy_scope_end(scope, 0, NULL);
    }
    fy_tape_destroy(tape);
}

static void a_class_out_of_range_is_reported(ts_ctx_t *ctx)
{
    static const float x[6] = { 1, 2, 3, 3, 2, 1 };
    static const int32_t wrong[3][2] = { { 0, 3 }, { -1, 1 }, { 0, 1 } };
    fy_tensor_t *logits = ts_f32(ctx->device, FY_DIMS(2, 3), x), *dy;
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, 0, NULL, 1, &dy));
    for (int i = 0; i < 3; i++) {
        fy_tensor_t *targets = classes_of(ctx, 2, wrong[i]), *y[4];
        ts_ok(fy_nll_loss(logits, targets, FY_REDUCTION_MEAN, &y[0]));
        ts_ok(fy_cross_entropy(logits, targets, FY_REDUCTION_NONE, &y[1]));
        ts_ok(fy_nll_loss_backward(dy, targets, 3, FY_REDUCTION_SUM, &y[2]));
        ts_ok(fy_cross_entropy_backward(dy, logits, targets, FY_REDUCTION_MEAN, &y[3]));
        for (int k = 0; k < 4; k++) {
            fy_tensor_t *host;
            fy_download_t *download;
            fy_status_t status = fy_tensor_download(y[k], NULL, &download);
            if (status == FY_STATUS_OK) status = fy_download_wait(download, FY_FOREVER, &host);
            assert_int_equal(status, i < 2 ? FY_STATUS_BAD_VALUE : FY_STATUS_OK);
            if (i < 2) ts_text_has("an index was not in 0 .. 2");
        }
    }
}

static const ts_test_t k_tests[] = { TS_TEST(losses_have_known_values),
                                     TS_TEST(large_logits_are_safe), TS_TEST(gradients_agree),
                                     TS_TEST(a_class_out_of_range_is_reported) };

int main(void) { return TS_RUN("typed losses", k_tests, NULL); }
