/* Losses of classifiers through the typed calls and the tape: older attributes, gradients with
 * weights, classes out of range.
 * Every shape, dtype and layout is tested in tests/ops/. */
#include <math.h>

#include "tests/support/harness.h"

static fy_tensor_t *classes_of(ts_ctx_t *ctx, int64_t count, const int32_t *values)
{
    return ts_upload(ctx->device, FY_DTYPE_I32, 1, &count, values);
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

/* A program of an older header: its attributes end behind the reduction, and -100 is ignored. */
TS_DEVICE_TEST(older_attributes_are_completed)
{
    static const float x[6] = { 1, 2, 3, 3, 2, 1 };
    static const int32_t t[2] = { -100, 0 };
    const double want[2] = { 0, 0.40760596 };
    const fy_loss_attrs_t older = { FY_REDUCTION_NONE };
    fy_tensor_t *src[2] = { ts_f32(ctx->device, FY_DIMS(2, 3), x), classes_of(ctx, 2, t) },
                *y = NULL;
    ts_ok(fy_op_call(FY_OP_CROSS_ENTROPY, 2, src, &older, sizeof older, 1, &y));
    expect_near(y, want, 2);
    fy_tensor_t *one, *g = NULL;
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, 0, NULL, 1, &one));
    const fy_nll_loss_backward_attrs_t older_back = { FY_REDUCTION_MEAN, 3 };
    ts_ok(fy_op_call(FY_OP_NLL_LOSS_BACKWARD, 2, (fy_tensor_t *[]){ one, src[1] }, &older_back,
                     sizeof older_back, 1, &g));
    ts_expect_f32(g, (const float[]){ 0, 0, 0, -1, 0, 0 }, 6);
}

/* Ignored rows have no gradient, and only the others divide a mean; central differences agree. */
static fy_tensor_t *k_targets, *k_weight;
static fy_status_t with_options(void *user, size_t count, fy_tensor_t *const *inputs,
                                fy_tensor_t **out_loss)
{
    fy_class_loss_attrs_t attrs = FY_CLASS_LOSS_ATTRS_INIT;
    const int which = *(const int *)user;
    (void)count;
    attrs.ignore_index = 1;
    if (which & 1) return fy_nll_loss_with(inputs[0], k_targets, k_weight, &attrs, out_loss);
    attrs.label_smoothing = which & 2 ? 0.2 : 0;
    return fy_cross_entropy_with(inputs[0], k_targets, k_weight, &attrs, out_loss);
}

TS_DEVICE_TEST(options_have_gradients)
{
    static const float w[3] = { 1, 2, 4 };
    static const int32_t t[6] = { 0, 1, 2, 2, 1, 0 };
    fy_tensor_t *rng, *x, *y, *weight = ts_f32(ctx->device, FY_DIMS(3), w);
    ts_ok(fy_rng_create(ctx->device, 3, &rng));
    ts_ok(fy_rand(rng, FY_DTYPE_F64, FY_DIMS(2, 3, 3), -2, 2, &x));
    ts_ok(fy_cast(weight, FY_DTYPE_F64, &k_weight));
    ts_ok(fy_reshape(classes_of(ctx, 6, t), 2, (const int64_t[]){ 2, 3 }, &k_targets));
    for (int which = 0; which < 3; which++) {
        fy_gradcheck_result_t result = FY_GRADCHECK_RESULT_INIT;
        ts_ok(fy_gradcheck(with_options, &which, 1, &x, NULL, &result));
        assert_int_equal(result.checked, 18);
    }
    fy_tape_t *tape = ts_tape(k_weight, NULL);
    fy_scope_t scope = fy_scope_begin("step");
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_cross_entropy_with(x, k_targets, k_weight, NULL, &y));
    ts_fails_with(fy_tape_backward(tape, y, NULL), UNSUPPORTED, "class weights");
    fy_scope_end(scope, 0, NULL);
    fy_tape_destroy(tape);
}

TS_DEVICE_TEST(a_fused_loss_goes_back_in_two_requests)
{
    static const float x[6] = { 1, 2, 3, 3, 2, 1 };
    static const int32_t t[2] = { 0, 1 };
    fy_tensor_t *logits = ts_f32(ctx->device, FY_DIMS(2, 3), x), *targets = classes_of(ctx, 2, t),
                *loss;
    fy_tape_t *tape = ts_record(logits, NULL);
    ts_ok(fy_cross_entropy(logits, targets, FY_REDUCTION_MEAN, &loss));
    const uint64_t before = ts_ledger(NULL).requests;
    ts_ok(fy_tape_backward(tape, loss, NULL)); /* the first gradient, and that of the logits */
    assert_int_equal(ts_ledger(NULL).requests - before, 2);
    fy_tape_destroy(tape);
}

TS_DEVICE_TEST(a_class_out_of_range_is_reported)
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
            fy_status_t status = ts_try_download(y[k]);
            assert_int_equal(status, i < 2 ? FY_STATUS_BAD_VALUE : FY_STATUS_OK);
            if (i < 2) ts_text_has("an index was not in 0 .. 2");
        }
    }
}
