/* Optimizers: three steps against a computation by hand; one block compared with many pairs; small
 * batches compared with one large batch. A step is one request a pair and replays as a graph. Also
 * clipping, state for checkpoints, refusals. */
#include <math.h>

#include <ferry/train/optimizer.h>

#include "tests/support/harness.h"

enum { N = 5, STEPS = 3 };

static const float k_start[N] = { 0.5F, -1.25F, 2.0F, 0.25F, -0.75F };
static const float k_grads[STEPS][N] = { { 0.1F, -0.2F, 0.3F, 1.0F, -0.5F },
                                         { 0.2F, 0.1F, -0.3F, 0.5F, 0.25F },
                                         { -0.4F, 0.3F, 0.1F, -1.0F, 0.5F } };

/* Element i of one step, computed by hand; s: two states. */
static double by_hand(const fy_optimizer_options_t *o, double p, double g, double *s, int t)
{
    if (o->kind == FY_OPTIMIZER_ADAMW)
        p *= 1 - o->lr * o->weight_decay;
    else
        g += o->weight_decay * p;
    if (o->kind == FY_OPTIMIZER_SGD) {
        if (o->momentum == 0) return p - o->lr * g;
        s[0] = t ? o->momentum * s[0] + (1 - o->dampening) * g : g;
        return p - o->lr * (o->nesterov ? g + o->momentum * s[0] : s[0]);
    }
    if (o->kind == FY_OPTIMIZER_ADADELTA) {
        s[0] = o->rho * s[0] + (1 - o->rho) * g * g;
        const double u = sqrt(s[1] + o->eps) / sqrt(s[0] + o->eps) * g;
        s[1] = o->rho * s[1] + (1 - o->rho) * u * u;
        return p - o->lr * u;
    }
    if (o->kind == FY_OPTIMIZER_RMSPROP) {
        s[0] = o->rho * s[0] + (1 - o->rho) * g * g;
        s[1] = o->momentum * s[1] + g / (sqrt(s[0]) + o->eps);
        return p - o->lr * s[1];
    }
    s[0] = o->beta1 * s[0] + (1 - o->beta1) * g;
    s[1] = o->beta2 * s[1] + (1 - o->beta2) * g * g;
    return p - o->lr * s[0] / (1 - pow(o->beta1, t + 1)) /
                   (sqrt(s[1] / (1 - pow(o->beta2, t + 1))) + o->eps);
}

static void set_grad(ts_ctx_t *ctx, fy_tensor_t *grad, const float *values)
{
    fy_scope_t scope = fy_scope_begin("gradient");
    ts_ok(fy_copy(grad, ts_f32(ctx->device, FY_DIMS(N), values)));
    fy_scope_end(scope, 0, NULL);
}

static fy_optimizer_options_t options_of(int row)
{
    fy_optimizer_options_t o;
    fy_optimizer_defaults((fy_optimizer_kind_t)(row % FY_OPTIMIZER_COUNT), &o, sizeof o);
    if (o.kind != FY_OPTIMIZER_ADADELTA) o.lr = 0.05;
    if (row >= FY_OPTIMIZER_COUNT) o.weight_decay = 0.1, o.momentum = 0.9, o.nesterov = 1;
    if (row >= 2 * FY_OPTIMIZER_COUNT) o.dampening = 0.25, o.nesterov = 0;
    return o;
}

static void three_steps_match_the_formula(ts_ctx_t *ctx)
{
    for (int row = 0; row < 3 * FY_OPTIMIZER_COUNT; row++) {
        const fy_optimizer_options_t o = options_of(row);
        fy_tensor_t *value = ts_f32(ctx->device, FY_DIMS(N), k_start),
                    *grad = ts_f32(ctx->device, FY_DIMS(N), k_start);
        fy_optimizer_t *optimizer;
        double want[N], states[N][2] = { { 0 } };
        float got[N];
        ts_ok(fy_optimizer_create(&o, 1, &value, &grad, &optimizer));
        for (int i = 0; i < N; i++) want[i] = k_start[i];
        for (int t = 0; t < STEPS; t++) {
            set_grad(ctx, grad, k_grads[t]);
            const fy_ledger_totals_t before = ts_ledger(NULL);
            ts_ok(fy_optimizer_step(optimizer));
            fy_ledger_totals_t after = ts_ledger(NULL);
            assert_int_equal(after.requests, before.requests + 1);
            after.requests = before.requests;
            ts_expect_quiet(&before, &after, "a step");
            for (int i = 0; i < N; i++) want[i] = by_hand(&o, want[i], k_grads[t][i], states[i], t);
        }
        ts_read(value, got, sizeof got);
        for (int i = 0; i < N; i++)
            if (fabs(got[i] - want[i]) > 1e-6)
                fail_msg("row %d, %s: element %d is %.9g, by hand %.9g", row,
                         fy_optimizer_name(o.kind), i, got[i], want[i]);
        fy_optimizer_destroy(optimizer);
    }
}

/* One block for all or a pair for each: the same bits. */
static void one_block_equals_many_pairs(ts_ctx_t *ctx)
{
    for (int row = 0; row < 3 * FY_OPTIMIZER_COUNT; row++) {
        const fy_optimizer_options_t o = options_of(row);
        fy_tensor_t *block = ts_f32(ctx->device, FY_DIMS(N), k_start),
                    *block_grad = ts_f32(ctx->device, FY_DIMS(N), k_start);
        fy_tensor_t *apart = ts_f32(ctx->device, FY_DIMS(N), k_start),
                    *apart_grad = ts_f32(ctx->device, FY_DIMS(N), k_start);
        fy_tensor_t *values[2], *grads[2];
        fy_optimizer_t *fused, *unfused;
        float a[N], b[N];
        for (int i = 0; i < 2; i++) {
            ts_ok(fy_slice(apart, 0, i ? 2 : 0, i ? N : 2, &values[i]));
            ts_ok(fy_slice(apart_grad, 0, i ? 2 : 0, i ? N : 2, &grads[i]));
        }
        ts_ok(fy_optimizer_create(&o, 1, &block, &block_grad, &fused));
        ts_ok(fy_optimizer_create(&o, 2, values, grads, &unfused));
        for (int t = 0; t < STEPS; t++) {
            set_grad(ctx, block_grad, k_grads[t]);
            set_grad(ctx, apart_grad, k_grads[t]);
            ts_ok(fy_optimizer_step(fused));
            ts_ok(fy_optimizer_step(unfused));
        }
        ts_read(block, a, sizeof a);
        ts_read(apart, b, sizeof b);
        assert_memory_equal(a, b, sizeof a);
        fy_optimizer_destroy(fused);
        fy_optimizer_destroy(unfused);
    }
}

static void rates_and_momenta_change(ts_ctx_t *ctx)
{
    fy_optimizer_options_t o = options_of(FY_OPTIMIZER_COUNT), now = FY_OPTIMIZER_OPTIONS_INIT;
    fy_tensor_t *value = ts_f32(ctx->device, FY_DIMS(N), k_start),
                *grad = ts_f32(ctx->device, FY_DIMS(N), k_grads[0]);
    fy_optimizer_t *optimizer;
    double want = k_start[0], state[2] = { 0 };
    float got[N];
    ts_ok(fy_optimizer_create(&o, 1, &value, &grad, &optimizer));
    const uint64_t before = ts_ledger(NULL).requests;
    ts_ok(fy_optimizer_set_lr(optimizer, o.lr));
    assert_int_equal(ts_ledger(NULL).requests, before); /* the value is set already */
    for (int t = 0; t < STEPS; t++) {
        o.lr = 0.1 / (t + 1), o.momentum = 0.9 - 0.1 * t;
        ts_ok(fy_optimizer_set_lr(optimizer, o.lr));
        ts_ok(fy_optimizer_set_momentum(optimizer, o.momentum));
        ts_ok(fy_optimizer_step(optimizer));
        want = by_hand(&o, want, k_grads[0][0], state, t);
    }
    assert_int_equal(ts_ledger(NULL).requests, before + 2 * STEPS);
    ts_ok(fy_optimizer_get(optimizer, &now));
    assert_true(now.lr == o.lr && now.momentum == o.momentum && now.kind == FY_OPTIMIZER_SGD);
    ts_read(value, got, sizeof got);
    assert_true(fabs(got[0] - want) < 1e-6);
    ts_fails(fy_optimizer_set_lr(optimizer, NAN), INVALID_ARGUMENT);
    ts_fails(fy_optimizer_set_momentum(optimizer, -1), INVALID_ARGUMENT);
    fy_optimizer_destroy(optimizer);
}

/* Learning rate and step number are on the device: a recorded step continues from them. */
static void a_replayed_step_advances_the_step_number(ts_ctx_t *ctx)
{
    const fy_optimizer_options_t o = options_of(FY_OPTIMIZER_ADAM);
    fy_tensor_t *value = ts_f32(ctx->device, FY_DIMS(N), k_start),
                *grad = ts_f32(ctx->device, FY_DIMS(N), k_grads[0]);
    fy_tensor_t *twin = ts_f32(ctx->device, FY_DIMS(N), k_start);
    fy_optimizer_t *optimizer, *other;
    fy_graph_t *graph;
    float a[N], b[N];
    ts_ok(fy_optimizer_create(&o, 1, &value, &grad, &optimizer));
    ts_ok(fy_optimizer_create(&o, 1, &twin, &grad, &other));
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_optimizer_step(optimizer));
    ts_ok(fy_graph_end(&graph));
    for (int t = 0; t < STEPS; t++) {
        const double lr = 0.1 / (t + 1);
        ts_ok(fy_optimizer_set_lr(optimizer, lr));
        ts_ok(fy_optimizer_set_lr(other, lr));
        ts_ok(fy_graph_replay(graph, NULL));
        ts_ok(fy_optimizer_step(other));
    }
    ts_read(value, a, sizeof a);
    ts_read(twin, b, sizeof b);
    assert_memory_equal(a, b, sizeof a);
    fy_graph_destroy(graph);
    fy_optimizer_destroy(optimizer);
    fy_optimizer_destroy(other);
}

/* mean((x w - y)^2) over rows begin .. end, times their share of all rows. */
static void add_gradient(fy_tape_t *tape, fy_tensor_t *w, fy_tensor_t *x, fy_tensor_t *y,
                         int64_t begin, int64_t end, int64_t all, int accumulate)
{
    fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
    fy_tensor_t *rows, *targets, *pred, *loss, *part;
    options.accumulate = accumulate;
    fy_scope_t scope = fy_scope_begin("batch");
    ts_ok(fy_slice(x, 0, begin, end, &rows));
    ts_ok(fy_slice(y, 0, begin, end, &targets));
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_linear(rows, w, NULL, FY_ACTIVATION_NONE, &pred));
    ts_ok(fy_mse_loss(pred, targets, &loss));
    ts_ok(fy_affine(loss, (double)(end - begin) / (double)all, 0, &part));
    ts_ok(fy_tape_backward(tape, part, &options));
    fy_scope_end(scope, 0, NULL);
}

static void accumulated_small_batches_equal_one_large_batch(ts_ctx_t *ctx)
{
    enum { ROWS = 12, SMALL = 4 };
    fy_tensor_t *rng, *x, *y, *w[2], *grads[2];
    float got[2][N];
    ts_ok(fy_rng_create(ctx->device, 5, &rng));
    ts_ok(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(ROWS, N), 0, 1, &x));
    ts_ok(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(ROWS, 1), 0, 1, &y));
    for (int k = 0; k < 2; k++) {
        fy_optimizer_options_t o = options_of(FY_OPTIMIZER_COUNT);
        fy_optimizer_t *optimizer;
        fy_tape_t *tape;
        w[k] = ts_f32(ctx->device, FY_DIMS(1, N), k_start);
        ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(1, N), &grads[k]));
        ts_ok(fy_tape_create(&tape));
        ts_ok(fy_tape_watch(tape, w[k], grads[k]));
        ts_ok(fy_optimizer_create(&o, 1, &w[k], &grads[k], &optimizer));
        for (int t = 0; t < STEPS; t++) {
            const int64_t size = k ? SMALL : ROWS;
            for (int64_t begin = 0; begin < ROWS; begin += size)
                add_gradient(tape, w[k], x, y, begin, begin + size, ROWS, begin > 0);
            ts_ok(fy_optimizer_step(optimizer));
        }
        ts_read(w[k], got[k], sizeof got[k]);
        fy_optimizer_destroy(optimizer);
        fy_tape_destroy(tape);
    }
    for (int i = 0; i < N; i++) assert_true(fabsf(got[0][i] - got[1][i]) <= 1e-5F);
}

static void gradients_are_clipped(ts_ctx_t *ctx)
{
    fy_tensor_t *grads[2] = { ts_f32(ctx->device, FY_DIMS(N), k_start),
                              ts_f32(ctx->device, FY_DIMS(N), k_grads[0]) },
                *norm, *again;
    double sum = 0;
    float got, values[N];
    for (int i = 0; i < N; i++)
        sum += (double)k_start[i] * k_start[i] + (double)k_grads[0][i] * k_grads[0][i];
    const fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_grads_clip_norm(2, grads, 0.5, &norm));
    fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.requests - before.requests, 2 + 2 + 2);
    after.requests = before.requests;
    after.device_allocs = before.device_allocs;
    ts_expect_quiet(&before, &after, "clipping");
    ts_read(norm, &got, sizeof got);
    assert_true(fabs(got - sqrt(sum)) < 1e-5);
    ts_ok(fy_grads_clip_norm(2, grads, INFINITY, &again)); /* only computes the norm */
    ts_read(again, &got, sizeof got);
    assert_true(fabs(got - 0.5) < 1e-5);
    const uint64_t requests = ts_ledger(NULL).requests;
    ts_ok(fy_grads_clip_norm(1, grads, 0.1, NULL));
    assert_int_equal(ts_ledger(NULL).requests, requests + 2); /* a flat block */
    ts_ok(fy_norm(grads[0], 0, NULL, 0, &again));
    ts_read(again, &got, sizeof got);
    assert_true(fabs(got - 0.1) < 1e-5);
    ts_ok(fy_copy(grads[0], ts_f32(ctx->device, FY_DIMS(N), k_start)));
    ts_ok(fy_grads_clip_value(2, grads, 0.75));
    ts_read(grads[0], values, sizeof values);
    for (int i = 0; i < N; i++)
        assert_true(values[i] == (k_start[i] > 0.75F    ? 0.75F
                                  : k_start[i] < -0.75F ? -0.75F
                                                        : k_start[i]));
    ts_fails(fy_grads_clip_norm(2, grads, 0, &norm), INVALID_ARGUMENT);
    assert_null(norm);
    ts_fails(fy_grads_clip_norm(0, grads, 1, NULL), INVALID_ARGUMENT);
    ts_fails(fy_grads_clip_value(2, grads, NAN), INVALID_ARGUMENT);
}

static void state_has_names(ts_ctx_t *ctx)
{
    static const char *const want[FY_OPTIMIZER_COUNT][4] = { { "momentum", "step" },
                                                             { "exp_avg", "exp_avg_sq", "step" },
                                                             { "exp_avg", "exp_avg_sq", "step" },
                                                             { "square_avg", "acc_delta" },
                                                             { "square_avg", "momentum" } };
    for (int row = 0; row < 2 * FY_OPTIMIZER_COUNT; row++) {
        const fy_optimizer_options_t o = options_of(row);
        fy_tensor_t *values[2], *grads[2], *tensor;
        fy_optimizer_t *optimizer;
        const char *name;
        size_t n = 0;
        for (int i = 0; i < 2; i++) {
            values[i] = ts_f32(ctx->device, FY_DIMS(N), k_start);
            grads[i] = ts_f32(ctx->device, FY_DIMS(N), k_start);
        }
        const uint64_t live = ts_live(ctx->device);
        ts_ok(fy_optimizer_create(&o, 1 + (size_t)(row >= FY_OPTIMIZER_COUNT), values, grads,
                                  &optimizer));
        fy_optimizer_state(optimizer, 0, &name, &tensor);
        if (row == FY_OPTIMIZER_SGD) assert_null(name); /* no momentum, no state */
        const size_t all = row == FY_OPTIMIZER_SGD ? 0 : want[o.kind][2] ? 3 : 2;
        const size_t each = row == FY_OPTIMIZER_RMSPROP ? 1 : all; /* no momentum */
        for (; name; fy_optimizer_state(optimizer, ++n, &name, &tensor)) {
            char expected[40];
            snprintf(expected, sizeof expected, row >= FY_OPTIMIZER_COUNT ? "%s.%zu" : "%s",
                     want[o.kind][n % each], n / each);
            assert_string_equal(name, expected);
            assert_int_equal(ts_info(tensor).nelem, strncmp(name, "step", 4) == 0 ? 1 : N);
        }
        assert_null(tensor);
        assert_int_equal(n, each * (row >= FY_OPTIMIZER_COUNT ? 2 : 1));
        fy_optimizer_destroy(optimizer);
        assert_int_equal(ts_live(ctx->device), live);
    }
}

static void invalid_arguments_are_refused(ts_ctx_t *ctx)
{
    fy_tensor_t *value = ts_f32(ctx->device, FY_DIMS(N), k_start),
                *grad = ts_f32(ctx->device, FY_DIMS(N), k_start), *other, *ints;
    fy_optimizer_t *optimizer;
    fy_optimizer_options_t o;
    ts_ok(fy_reshape(grad, FY_DIMS(1, N), &other));
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_I64, FY_DIMS(N), &ints));
#define REFUSES(the_kind, change, text)                                                    \
    do {                                                                                   \
        fy_optimizer_defaults(FY_OPTIMIZER_##the_kind, &o, sizeof o);                      \
        change;                                                                            \
        ts_fails(fy_optimizer_create(&o, 1, &value, &grad, &optimizer), INVALID_ARGUMENT); \
        ts_text_has(text);                                                                 \
        assert_null(optimizer);                                                            \
    } while (0)
    REFUSES(SGD, o.struct_size = 0, "FY_OPTIMIZER_OPTIONS_INIT");
    REFUSES(SGD, o.kind = FY_OPTIMIZER_COUNT, "kind");
    REFUSES(SGD, o.lr = -1, "lr");
    REFUSES(SGD, o.momentum = NAN, "momentum");
    REFUSES(SGD, o.nesterov = 1, "nesterov");
    REFUSES(ADAM, o.beta1 = 1, "beta1");
    REFUSES(ADAMW, o.beta2 = -0.1, "beta2");
    REFUSES(ADAM, o.eps = -1, "eps");
    REFUSES(ADADELTA, o.rho = 1, "rho");
    REFUSES(ADADELTA, o.weight_decay = INFINITY, "weight_decay");
    REFUSES(RMSPROP, o.rho = 1, "rho");
    REFUSES(RMSPROP, o.momentum = -1, "momentum");
    o = (fy_optimizer_options_t)FY_OPTIMIZER_OPTIONS_INIT;
    ts_fails(fy_optimizer_create(&o, 0, &value, &grad, &optimizer), INVALID_ARGUMENT);
    ts_fails(fy_optimizer_create(&o, 1, &value, &other, &optimizer), SHAPE_MISMATCH);
    ts_fails(fy_optimizer_create(&o, 1, &value, &ints, &optimizer), DTYPE_MISMATCH);
    ts_ok(fy_optimizer_create(&o, 1, &value, &grad, &optimizer));
    ts_fails(fy_optimizer_set_momentum(optimizer, 0.9), INVALID_ARGUMENT);
    ts_text_has("no state");
    fy_optimizer_destroy(optimizer);
    fy_optimizer_defaults(FY_OPTIMIZER_RMSPROP, &o, sizeof o);
    ts_ok(fy_optimizer_create(&o, 1, &value, &grad, &optimizer));
    ts_fails(fy_optimizer_set_momentum(optimizer, 0.9), INVALID_ARGUMENT);
    ts_text_has("rmsprop: it was made with momentum 0");
    fy_optimizer_destroy(optimizer);
    fy_optimizer_destroy(NULL);
}

/* ---- the defaults are those of opset/attrs.def; the header repeats them ---- */

static double fallback_of(fy_op_t op, const char *name)
{
    const fy_op_info_t *info = fy_op_get(op);
    for (uint32_t i = 0; i < info->nfields; i++)
        if (!strcmp(info->fields[i].name, name)) return info->fields[i].fallback;
    fail_msg("%s has no attribute %s", info->name, name);
    return NAN;
}

static void defaults_are_those_of_the_ops(ts_ctx_t *ctx)
{
    const fy_optimizer_options_t init = FY_OPTIMIZER_OPTIONS_INIT;
    (void)ctx;
    for (int kind = 0; kind < FY_OPTIMIZER_COUNT; kind++) {
        const int is_adadelta = kind == FY_OPTIMIZER_ADADELTA;
        fy_optimizer_options_t o;
        fy_optimizer_defaults((fy_optimizer_kind_t)kind, &o, sizeof o);
        assert_true(o.beta1 == fallback_of(FY_OP_ADAM_STEP, "beta1") && init.beta1 == o.beta1);
        assert_true(o.beta2 == fallback_of(FY_OP_ADAM_STEP, "beta2") && init.beta2 == o.beta2);
        if (kind == FY_OPTIMIZER_RMSPROP)
            assert_true(o.rho == fallback_of(FY_OP_RMSPROP_STEP, "alpha") &&
                        o.eps == fallback_of(FY_OP_RMSPROP_STEP, "eps"));
        else
            assert_true(o.rho == fallback_of(FY_OP_ADADELTA_STEP, "rho") && init.rho == o.rho);
        assert_true(o.eps ==
                    fallback_of(is_adadelta ? FY_OP_ADADELTA_STEP : FY_OP_ADAM_STEP, "eps"));
        assert_true(o.momentum == fallback_of(FY_OP_SGD_MOMENTUM_STEP, "momentum"));
        assert_true(o.dampening == fallback_of(FY_OP_SGD_MOMENTUM_STEP, "dampening"));
        assert_int_equal(o.nesterov, (int)fallback_of(FY_OP_SGD_MOMENTUM_STEP, "nesterov"));
        if (kind == FY_OPTIMIZER_SGD)
            assert_true(init.lr == o.lr && init.eps == o.eps && init.kind == o.kind &&
                        init.weight_decay == o.weight_decay && init.momentum == o.momentum);
    }
}

static const ts_test_t k_tests[] = {
    TS_TEST(three_steps_match_the_formula),
    TS_TEST(one_block_equals_many_pairs),
    TS_TEST(rates_and_momenta_change),
    TS_TEST(a_replayed_step_advances_the_step_number),
    TS_TEST(accumulated_small_batches_equal_one_large_batch),
    TS_TEST(gradients_are_clipped),
    TS_TEST(state_has_names),
    TS_TEST(defaults_are_those_of_the_ops),
    TS_TEST(invalid_arguments_are_refused),
};

int main(void) { return TS_RUN("optimizers", k_tests, NULL); }
