/* The typed calls that fuse parts of layers and training loops: three steps of each optimizer
 * against a computation by hand in f64, in one request each and without transfers; clipping; linear
 * compared with the ops that it replaces; refusals with their texts.
 * Element by element they are tested in tests/ops/. */
#include <math.h>

#include "tests/support/harness.h"

enum { N = 6, STEPS = 3 };

static const float k_start[N] = { 0.5F, -1.25F, 2.0F, 0.0F, -0.75F, 1.0F };
static const float k_grads[STEPS][N] = { { 0.1F, -0.2F, 0.3F, 1.0F, -0.5F, 0.0F },
                                         { 0.2F, 0.1F, -0.3F, 0.5F, 0.25F, 0.01F },
                                         { -0.4F, 0.3F, 0.1F, -1.0F, 0.5F, 0.02F } };

typedef struct model {
    fy_tensor_t *param, *grad, *a, *b, *step, *lr;
} model_t;

static model_t make(ts_ctx_t *ctx, fy_dtype_t lr_dtype, double lr)
{
    const float zeros[N] = { 0 };
    model_t model;
    model.param = ts_f32(ctx->device, FY_DIMS(N), k_start);
    model.grad = ts_f32(ctx->device, FY_DIMS(N), zeros);
    model.a = ts_f32(ctx->device, FY_DIMS(N), zeros);
    model.b = ts_f32(ctx->device, FY_DIMS(N), zeros);
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_I64, 0, NULL, &model.step));
    ts_ok(fy_full(ctx->device, lr_dtype, 0, NULL, lr, &model.lr));
    return model;
}

static void expect(const fy_tensor_t *tensor, const double *want, const char *what)
{
    float got[N];
    ts_read(tensor, got, sizeof got);
    for (int i = 0; i < N; i++)
        if (fabs(got[i] - want[i]) > 1e-6)
            fail_msg("%s: element %d is %.9g, by hand %.9g", what, i, got[i], want[i]);
}

static void expect_number(const fy_tensor_t *step, int64_t want)
{
    int64_t number;
    ts_read(step, &number, sizeof number);
    assert_int_equal(number, want);
}

/* Runs the request behind `call` and expects one request and no transfer. */
#define ONE_REQUEST(call)                                        \
    do {                                                         \
        const fy_ledger_totals_t before_ = ts_ledger(NULL);      \
        ts_ok(call);                                             \
        fy_ledger_totals_t after_ = ts_ledger(NULL);             \
        assert_int_equal(after_.requests, before_.requests + 1); \
        after_.requests = before_.requests;                      \
        ts_expect_quiet(&before_, &after_, #call);               \
    } while (0)

static void next_gradient(ts_ctx_t *ctx, model_t *model, int step)
{
    fy_tensor_t *fresh = ts_f32(ctx->device, FY_DIMS(N), k_grads[step]);
    ts_ok(fy_copy(model->grad, fresh));
}

TS_DEVICE_TEST(sgd_is_computed_by_hand)
{
    const fy_sgd_attrs_t rows[] = { { 0, 0, 0, 0 },
                                    { 0, 0, 0.1, 0 },
                                    { 0.9, 0, 0, 0 },
                                    { 0.9, 0.3, 0.01, 0 },
                                    { 0.9, 0, 0.01, 1 } };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const fy_sgd_attrs_t *o = &rows[r];
        const double lr = 0.1;
        double p[N], b[N] = { 0 };
        model_t model = make(ctx, r % 2 ? FY_DTYPE_F64 : FY_DTYPE_F32, lr);
        for (int i = 0; i < N; i++) p[i] = k_start[i];
        for (int t = 0; t < STEPS; t++) {
            next_gradient(ctx, &model, t);
            if (o->momentum > 0)
                ONE_REQUEST(fy_sgd_momentum_step(model.param, model.grad, model.a, model.step,
                                                 model.lr, o));
            else
                ONE_REQUEST(fy_sgd_step(model.param, model.grad, model.lr, r ? o : NULL));
            for (int i = 0; i < N; i++) {
                const double g = k_grads[t][i] + o->weight_decay * p[i];
                if (o->momentum == 0) {
                    p[i] -= lr * g;
                    continue;
                }
                b[i] = t == 0 ? g : o->momentum * b[i] + (1 - o->dampening) * g;
                p[i] -= lr * (o->nesterov ? g + o->momentum * b[i] : b[i]);
            }
        }
        expect(model.param, p, "sgd");
        if (o->momentum > 0) expect(model.a, b, "sgd's momentum");
        expect_number(model.step, o->momentum > 0 ? STEPS : 0);
    }
}

TS_DEVICE_TEST(adam_is_computed_by_hand)
{
    const fy_adam_attrs_t rows[] = { FY_ADAM_ATTRS_INIT,
                                     { 0.8, 0.99, 1e-3, 0.1, 0 },
                                     { 0.9, 0.999, 1e-8, 0.1, 1 } };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const fy_adam_attrs_t *o = &rows[r];
        const double lr = 0.05;
        double p[N], m[N] = { 0 }, v[N] = { 0 };
        model_t model = make(ctx, FY_DTYPE_F64, lr);
        for (int i = 0; i < N; i++) p[i] = k_start[i];
        for (int t = 0; t < STEPS; t++) {
            next_gradient(ctx, &model, t);
            ONE_REQUEST(fy_adam_step(model.param, model.grad, model.a, model.b, model.step,
                                     model.lr, r ? o : NULL));
            for (int i = 0; i < N; i++) {
                const double g = k_grads[t][i] + (o->decoupled ? 0 : o->weight_decay * p[i]);
                if (o->decoupled) p[i] *= 1 - lr * o->weight_decay;
                m[i] = o->beta1 * m[i] + (1 - o->beta1) * g;
                v[i] = o->beta2 * v[i] + (1 - o->beta2) * g * g;
                p[i] -= lr * (m[i] / (1 - pow(o->beta1, t + 1))) /
                        (sqrt(v[i] / (1 - pow(o->beta2, t + 1))) + o->eps);
            }
        }
        expect(model.param, p, "adam");
        expect(model.a, m, "adam's first moment");
        expect(model.b, v, "adam's second moment");
        expect_number(model.step, STEPS);
    }
}

TS_DEVICE_TEST(adadelta_is_computed_by_hand)
{
    const fy_adadelta_attrs_t rows[] = { FY_ADADELTA_ATTRS_INIT, { 0.8, 1e-3, 0.1 } };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const fy_adadelta_attrs_t *o = &rows[r];
        double p[N], s[N] = { 0 }, a[N] = { 0 };
        model_t model = make(ctx, FY_DTYPE_F32, 1);
        for (int i = 0; i < N; i++) p[i] = k_start[i];
        for (int t = 0; t < STEPS; t++) {
            next_gradient(ctx, &model, t);
            ONE_REQUEST(fy_adadelta_step(model.param, model.grad, model.a, model.b, model.lr,
                                         r ? o : NULL));
            for (int i = 0; i < N; i++) {
                const double g = k_grads[t][i] + o->weight_decay * p[i];
                s[i] = o->rho * s[i] + (1 - o->rho) * g * g;
                const double u = sqrt(a[i] + o->eps) / sqrt(s[i] + o->eps) * g;
                a[i] = o->rho * a[i] + (1 - o->rho) * u * u;
                p[i] -= u;
            }
        }
        expect(model.param, p, "adadelta");
        expect(model.a, s, "adadelta's squares");
        expect(model.b, a, "adadelta's changes");
    }
}

TS_DEVICE_TEST(rmsprop_is_computed_by_hand)
{
    const fy_rmsprop_attrs_t rows[] = { FY_RMSPROP_ATTRS_INIT,
                                        { 0.8, 1e-3, 0.1, 0 },
                                        { 0.9, 1e-8, 0.01, 0.9 } };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const fy_rmsprop_attrs_t *o = &rows[r];
        const double lr = 0.01;
        double p[N], s[N] = { 0 }, b[N] = { 0 };
        model_t model = make(ctx, r % 2 ? FY_DTYPE_F32 : FY_DTYPE_F64, lr);
        for (int i = 0; i < N; i++) p[i] = k_start[i];
        for (int t = 0; t < STEPS; t++) {
            next_gradient(ctx, &model, t);
            if (o->momentum > 0)
                ONE_REQUEST(fy_rmsprop_momentum_step(model.param, model.grad, model.a, model.b,
                                                     model.lr, o));
            else
                ONE_REQUEST(
                    fy_rmsprop_step(model.param, model.grad, model.a, model.lr, r ? o : NULL));
            for (int i = 0; i < N; i++) {
                const double g = k_grads[t][i] + o->weight_decay * p[i];
                s[i] = o->alpha * s[i] + (1 - o->alpha) * g * g;
                b[i] = o->momentum * b[i] + g / (sqrt(s[i]) + o->eps);
                p[i] -= lr * b[i];
            }
        }
        expect(model.param, p, "rmsprop");
        expect(model.a, s, "rmsprop's squares");
        if (o->momentum > 0) expect(model.b, b, "rmsprop's momentum");
    }
}

/* After clipping the norm is the limit, or its previous value; two requests, and the norm stays on
 * the device. */
TS_DEVICE_TEST(gradients_are_clipped_by_norm)
{
    float values[N], got;
    double sum = 0;
    fy_tensor_t *grad = ts_f32(ctx->device, FY_DIMS(N), k_start), *norm, *after;
    for (int i = 0; i < N; i++) sum += (double)k_start[i] * k_start[i];
    ONE_REQUEST(fy_norm(grad, 0, NULL, 0, &norm));
    ts_read(norm, &got, sizeof got);
    assert_true(fabs(got - sqrt(sum)) < 1e-6);
    ONE_REQUEST(fy_clip_by_norm(grad, norm, 1.5));
    ts_ok(fy_norm(grad, 0, NULL, 0, &after));
    ts_read(after, &got, sizeof got);
    assert_true(fabs(got - 1.5) < 1e-5);
    ts_read(grad, values, sizeof values);
    for (int i = 0; i < N; i++)
        assert_true(fabs(values[i] - k_start[i] * 1.5 / (sqrt(sum) + 1e-6)) < 1e-6);
    ts_ok(fy_clip_by_norm(grad, after, 100));
    float again[N];
    ts_read(grad, again, sizeof again);
    assert_memory_equal(again, values, sizeof values);
}

TS_DEVICE_TEST(clamp_keeps_to_its_bounds)
{
    const float want[N] = { 0.5F, -1, 1, 0, -0.75F, 1 };
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(N), k_start), *y;
    ts_ok(fy_clamp(x, -1, 1, &y));
    ts_expect_f32(y, want, N);
    const fy_clamp_attrs_t attrs = { -1, 1 };
    fy_tensor_t *same[1] = { x };
    ts_ok(fy_op_call(FY_OP_CLAMP, 1, &x, &attrs, sizeof attrs, 1, same)); /* in place */
    ts_expect_f32(x, want, N);
}

TS_DEVICE_TEST(linear_equals_the_ops_it_replaces)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(3, 4), -5),
                *w = ts_iota(ctx->device, FY_DIMS(2, 4), -3), *y, *dw, *db;
    fy_tensor_t *bias = ts_iota(ctx->device, FY_DIMS(2), 1);
    float want[6], relu[6];
    for (int i = 0; i < 3; i++)
        for (int o = 0; o < 2; o++) {
            want[i * 2 + o] = (float)(1 + o);
            for (int k = 0; k < 4; k++)
                want[i * 2 + o] += (float)((i * 4 + k - 5) * (o * 4 + k - 3));
            relu[i * 2 + o] = want[i * 2 + o] > 0 ? want[i * 2 + o] : 0;
        }
    ONE_REQUEST(fy_linear(x, w, bias, FY_ACTIVATION_NONE, &y));
    ts_expect_f32(y, want, 6);
    ts_ok(fy_linear(x, w, bias, FY_ACTIVATION_RELU, &y));
    ts_expect_f32(y, relu, 6);
    ONE_REQUEST(fy_linear_backward_params(y, x, &dw, &db));
    float sums[2] = { 0 };
    for (int i = 0; i < 6; i++) sums[i % 2] += relu[i];
    ts_expect_f32(db, sums, 2);
    assert_int_equal(ts_info(dw).dims[1], 4);
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
    model_t model = make(ctx, FY_DTYPE_F32, 0.1);
    fy_sgd_attrs_t sgd = { .momentum = 0.5 };
    fy_tensor_t *out, *other = ts_iota(ctx->device, FY_DIMS(N + 1), 0);
    ts_fails_with(fy_sgd_step(model.param, model.grad, model.lr, &sgd), INVALID_ARGUMENT,
                  "sgd_momentum_step");
    ts_fails_with(fy_sgd_momentum_step(model.param, model.grad, model.a, NULL, model.lr, &sgd),
                  INVALID_ARGUMENT, "dst2");
    ts_fails(fy_adam_step(model.param, model.grad, model.a, NULL, model.step, model.lr, NULL),
             INVALID_ARGUMENT);
    ts_fails_with(fy_adam_step(model.param, other, model.a, model.b, model.step, model.lr, NULL),
                  SHAPE_MISMATCH, "they must be alike");
    ts_fails(
        fy_adam_step(model.param, model.grad, model.a, model.param, model.step, model.lr, NULL),
        INVALID_ARGUMENT);
    ts_fails(fy_clip_by_norm(model.grad, model.lr, -1), INVALID_ARGUMENT);
    ts_fails(fy_clamp(model.grad, 1, 0, &out), INVALID_ARGUMENT);
    ts_fails(fy_linear(model.grad, model.grad, NULL, FY_ACTIVATION_NONE, &out), SHAPE_MISMATCH);
    assert_null(out);
}
