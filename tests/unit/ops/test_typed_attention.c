/* Attention through the typed calls and the tape: the optional result, refusals. Every dtype,
 * shape and layout, and the gradients, are tested in tests/ops/. */
#include <math.h>

#include "tests/support/harness.h"

enum { T = 2 };

static fy_tensor_t *heads(ts_ctx_t *ctx, const float *values)
{
    return ts_f32(ctx->device, FY_DIMS(1, T, 1, 1), values);
}

static fy_tensor_t *full(ts_ctx_t *ctx, fy_dtype_t dtype, int rank, const int64_t *dims)
{
    fy_tensor_t *tensor;
    ts_ok(fy_full(ctx->device, dtype, rank, dims, 1, &tensor));
    return tensor;
}

TS_DEVICE_TEST(an_unwanted_log_sum_exp_is_freed)
{
    static const float values[T] = { 3, 5 };
    fy_tensor_t *v = heads(ctx, values), *y;
    const uint64_t before = ts_live(ctx->device);
    ts_ok(fy_scaled_dot_product_attention(v, v, v, NULL, NULL, &y, NULL));
    fy_tensor_destroy(y);
    assert_int_equal(ts_live(ctx->device), before);
}

/* The gradient of the log-sum-exp has no rule: alone or beside y, it is refused, not left out. */
TS_DEVICE_TEST(a_loss_of_the_log_sum_exp_is_refused)
{
    static const float values[T] = { 3, 5 };
    fy_tensor_t *q = heads(ctx, values), *y, *lse, *sums[2], *loss, *grad;
    fy_tape_t *tape = ts_tape(q, NULL);
    for (int parts = 1; parts <= 3; parts++) {
        ts_ok(fy_tape_begin(tape));
        ts_ok(fy_scaled_dot_product_attention(q, q, q, NULL, NULL, &y, &lse));
        ts_ok(fy_sum(y, 0, NULL, 0, &sums[0]));
        ts_ok(fy_sum(lse, 0, NULL, 0, &sums[1]));
        loss = sums[parts == 2];
        if (parts == 3) ts_ok(fy_add(sums[0], sums[1], &loss));
        if (parts == 1) {
            ts_ok(fy_tape_backward(tape, loss, NULL));
            ts_ok(fy_tape_grad(tape, q, &grad));
            assert_non_null(grad);
        } else {
            ts_fails_with(fy_tape_backward(tape, loss, NULL), UNSUPPORTED, "log-sum-exp (dst1)");
        }
    }
    fy_tape_destroy(tape);
}

TS_DEVICE_TEST(refusals_have_numbers)
{
    const int64_t dims[4] = { 2, 3, 4, 5 }, keys[4] = { 2, 7, 4, 5 }, wide[4] = { 1, 1, 1, 4097 };
    fy_tensor_t *q = full(ctx, FY_DTYPE_F32, 4, dims), *k = full(ctx, FY_DTYPE_F32, 4, keys),
                *half = full(ctx, FY_DTYPE_F16, 4, keys), *broad = full(ctx, FY_DTYPE_F32, 4, wide),
                *mask = full(ctx, FY_DTYPE_BOOL, FY_DIMS(3, 6)),
                *row = full(ctx, FY_DTYPE_BOOL, FY_DIMS(7)),
                *real = full(ctx, FY_DTYPE_F32, FY_DIMS(3, 7)), *y, *lse, *grads[3];
    const fy_attention_attrs_t endless = { INFINITY, 0 };
    const uint64_t before = ts_ledger(NULL).requests;
#define ATTEND(...) fy_scaled_dot_product_attention(__VA_ARGS__, &y, &lse)
    ts_fails_with(ATTEND(q, k, q, NULL, NULL), SHAPE_MISMATCH,
                  "q (src0) is [2x3x4x5 f32], k is [2x7x4x5 f32], v is [2x3x4x5 f32]");
    ts_fails(ATTEND(q, k, half, NULL, NULL), DTYPE_MISMATCH);
    ts_fails_with(ATTEND(broad, broad, broad, NULL, NULL), SHAPE_MISMATCH,
                  "a head has 1 .. 4096 elements");
    ts_fails_with(ATTEND(q, k, k, mask, NULL), SHAPE_MISMATCH, "the mask (src3) is [3x6 bool]");
    ts_fails(ATTEND(q, k, k, row, NULL), SHAPE_MISMATCH);
    ts_fails(ATTEND(q, k, k, real, NULL), DTYPE_MISMATCH);
    ts_fails_with(ATTEND(q, k, k, NULL, &endless), INVALID_ARGUMENT, "scale is inf");
    ts_fails(ATTEND(NULL, k, k, NULL, NULL), INVALID_ARGUMENT);
    ts_fails_with(fy_scaled_dot_product_attention(q, k, k, NULL, NULL, NULL, &lse),
                  INVALID_ARGUMENT, "out_y is NULL");
    assert_null(y);
    assert_null(lse);
    ts_fails_with(fy_scaled_dot_product_attention_backward(q, q, k, k, k, real, NULL, NULL,
                                                           &grads[0], &grads[1], &grads[2]),
                  SHAPE_MISMATCH, "y (src4) is [2x7x4x5 f32]");
    ts_fails_with(fy_scaled_dot_product_attention_backward(q, q, k, k, q, real, NULL, NULL,
                                                           &grads[0], &grads[1], &grads[2]),
                  SHAPE_MISMATCH, "of q [2x3x4x5 f32] it is [2x4x3 f32]");
    for (int i = 0; i < 3; i++) assert_null(grads[i]);
    assert_int_equal(ts_ledger(NULL).requests, before);
}
