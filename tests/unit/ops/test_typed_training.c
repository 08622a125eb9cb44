/* Linear under a tape and of repeated rows; clipping that leaves a small norm; refusals of steps
 * and of other calls that layers and training loops make. Element by element the ops are tested in
 * tests/ops/. */
#include "tests/support/harness.h"

enum { N = 6 };

/* A norm below the limit changes no bit. */
TS_DEVICE_TEST(a_small_norm_is_left_alone)
{
    float before[N], after[N];
    fy_tensor_t *grad = ts_iota(ctx->device, FY_DIMS(N), -2), *norm;
    ts_ok(fy_norm(grad, FY_ALL_AXES, 0, &norm));
    ts_read(grad, before, sizeof before);
    ts_ok(fy_clip_by_norm(grad, norm, 100));
    ts_read(grad, after, sizeof after);
    assert_memory_equal(after, before, sizeof before);
}

TS_DEVICE_TEST(clamp_writes_in_place)
{
    const fy_clamp_attrs_t attrs = { -1, 1 };
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(N), -2), *same[1] = { x };
    ts_ok(fy_op_call(FY_OP_CLAMP, 1, &x, &attrs, sizeof attrs, 1, same));
    ts_expect_f32(x, (const float[]){ -1, -1, 0, 1, 1, 1 }, N);
}

/* x with repeated rows in the middle: [2, 1, 4] as [2, 3, 4], so that row (i, j) is row i. */
TS_DEVICE_TEST(linear_of_repeated_rows)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(2, 1, 4), -5),
                *w = ts_iota(ctx->device, FY_DIMS(2, 4), -3), *once, *repeated, *y;
    float want[4], got[12];
    ts_ok(fy_linear(x, w, NULL, FY_ACTIVATION_NONE, &once));
    ts_read(once, want, sizeof want);
    ts_ok(fy_broadcast(x, FY_DIMS(2, 3, 4), &repeated));
    ts_ok(fy_linear(repeated, w, NULL, FY_ACTIVATION_NONE, &y));
    ts_read(y, got, sizeof got);
    for (int i = 0; i < 12; i++) assert_true(got[i] == want[i / 6 * 2 + i % 2]);
}

/* Forward and backward with a relu: three products and the slope; the parameters' gradients in one
 * request, if requested. */
TS_DEVICE_TEST(linear_goes_back_in_few_requests)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(3, 4), -5),
                *w = ts_iota(ctx->device, FY_DIMS(2, 4), -3), *loss, *y, *grads, *dw, *db;
    fy_tensor_t *bias = ts_iota(ctx->device, FY_DIMS(2), 1), *w_place, *flat;
    fy_tape_t *tape;
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(10), &grads));
    ts_ok(fy_slice(grads, 0, 0, 8, &flat));
    ts_ok(fy_reshape(flat, FY_DIMS(2, 4), &w_place));
    ts_ok(fy_slice(grads, 0, 8, 10, &flat));
    ts_ok(fy_tape_create(&tape));
    ts_ok(fy_tape_watch(tape, w, w_place));
    ts_ok(fy_tape_watch(tape, bias, flat));
    for (int pass = 0; pass < 2; pass++) {
        fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
        options.accumulate = pass;
        ts_ok(fy_tape_begin(tape));
        ts_ok(fy_linear(x, w, bias, FY_ACTIVATION_RELU, &y));
        ts_ok(fy_sum(y, 0, NULL, 0, &loss));
        const uint64_t before = ts_ledger(NULL).requests;
        ts_ok(fy_tape_backward(tape, loss, &options));
        assert_true(ts_ledger(NULL).requests - before <= 3); /* the seed, relu, both parameters */
    }
    ts_ok(fy_tape_grad(tape, w, &dw));
    ts_ok(fy_tape_grad(tape, bias, &db));
    float values[6], all[10], want_w[8] = { 0 }, want_b[2] = { 0 };
    ts_read(y, values, sizeof values);
    for (int i = 0; i < 6; i++) {
        const int row = i / 2;
        if (values[i] <= 0) continue;
        want_b[i % 2] += 2; /* two passes */
        for (int k = 0; k < 4; k++) want_w[i % 2 * 4 + k] += 2 * (float)(row * 4 + k - 5);
    }
    ts_expect_f32(dw, want_w, 8);
    ts_expect_f32(db, want_b, 2);
    ts_read(grads, all, sizeof all);
    assert_memory_equal(all, want_w, sizeof want_w);
    fy_tape_destroy(tape);
}

TS_DEVICE_TEST(invalid_arguments_are_refused)
{
    const fy_sgd_attrs_t sgd = { .momentum = 0.5 };
    fy_tensor_t *grad = ts_iota(ctx->device, FY_DIMS(N), 0), *out,
                *param = ts_iota(ctx->device, FY_DIMS(N), 0),
                *a = ts_iota(ctx->device, FY_DIMS(N), 0), *b = ts_iota(ctx->device, FY_DIMS(N), 0),
                *other = ts_iota(ctx->device, FY_DIMS(N + 1), 0), *step, *lr;
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_I64, 0, NULL, &step));
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, 0, NULL, 0.1, &lr));
    ts_fails_with(fy_sgd_step(param, grad, lr, &sgd), INVALID_ARGUMENT, "sgd_momentum_step");
    ts_fails_with(fy_sgd_momentum_step(param, grad, a, NULL, lr, &sgd), INVALID_ARGUMENT, "dst2");
    ts_fails(fy_adam_step(param, grad, a, NULL, step, lr, NULL), INVALID_ARGUMENT);
    ts_fails_with(fy_adam_step(param, other, a, b, step, lr, NULL), SHAPE_MISMATCH,
                  "they must be alike");
    ts_fails(fy_adam_step(param, grad, a, param, step, lr, NULL), INVALID_ARGUMENT);
    ts_fails(fy_clip_by_norm(grad, lr, -1), INVALID_ARGUMENT);
    ts_fails(fy_clamp(grad, 1, 0, &out), INVALID_ARGUMENT);
    ts_fails(fy_linear(grad, grad, NULL, FY_ACTIVATION_NONE, &out), SHAPE_MISMATCH);
    assert_null(out);
}
