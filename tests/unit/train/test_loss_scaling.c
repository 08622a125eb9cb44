/* Loss scaling of an optimizer: an infinite gradient skips one step and halves the scale, good
 * steps in a row double it, clipping sees unscaled gradients, a replayed step does the same, a
 * step downloads nothing. Formulas: test_optimizer.c. A resumed training: test_checkpoint.c. */
#include <math.h>

#include "tests/unit/train/fixture.h"

enum { N = 5, STATES = 3 };

static const float k_start[N] = { 0.5F, -1.25F, 2.0F, 0.25F, -0.75F };
static const float k_grads[N] = { 0.1F, -0.2F, 0.3F, 1.0F, -0.5F };

typedef struct subject {
    fy_tensor_t *value, *grad;
    fy_optimizer_t *optimizer;
} subject_t;

static subject_t begin(ts_ctx_t *ctx, fy_optimizer_kind_t kind,
                       const fy_loss_scaling_options_t *scaling)
{
    subject_t s = { ts_f32(ctx->device, FY_DIMS(N), k_start),
                    ts_f32(ctx->device, FY_DIMS(N), k_start), NULL };
    fy_optimizer_options_t o = optimizer_defaults(kind);
    if (kind == FY_OPTIMIZER_SGD || kind == FY_OPTIMIZER_RMSPROP) o.momentum = 0.9;
    o.weight_decay = 0.1;
    o.loss_scaling = scaling;
    ts_ok(fy_optimizer_create(&o, 1, &s.value, &s.grad, &s.optimizer));
    return s;
}

static void set_grad(ts_ctx_t *ctx, const subject_t *s, double scale, int bad)
{
    float values[N];
    for (int i = 0; i < N; i++) values[i] = (float)(k_grads[i] * scale);
    if (bad > 0) values[bad % N] = bad % 2 ? INFINITY : NAN;
    fy_scope_t scope = fy_scope_begin("gradient");
    ts_ok(fy_copy(s->grad, ts_f32(ctx->device, FY_DIMS(N), values)));
    fy_scope_end(scope, 0, NULL);
}

static void expect_scaling(const subject_t *s, double scale, double good, double skipped)
{
    const char *name;
    fy_tensor_t *state;
    double values[5], queried;
    int64_t steps;
    size_t i = 0;
    while (fy_optimizer_state(s->optimizer, i++, &name, &state), strcmp(name, "loss_scaling") != 0)
        assert_non_null(name);
    ts_read(state, values, sizeof values);
    ts_ok(fy_optimizer_query_scale(s->optimizer, &queried));
    ts_ok(fy_optimizer_query_skipped(s->optimizer, &steps));
    const double want[5] = { scale, scale, 0, good, skipped };
    assert_memory_equal(values, want, sizeof want);
    assert_true(queried == scale && (double)steps == skipped);
}

typedef struct copy {
    float value[N], state[2][N];
    int64_t number;
} copy_t;

static copy_t copy_of(const subject_t *s)
{
    copy_t bits = { 0 };
    const char *name;
    fy_tensor_t *state;
    ts_read(s->value, bits.value, sizeof bits.value);
    for (size_t i = 0; fy_optimizer_state(s->optimizer, i, &name, &state), name; i++) {
        if (strcmp(name, "step") == 0)
            ts_read(state, &bits.number, sizeof bits.number);
        else if (strcmp(name, "loss_scaling") != 0)
            ts_read(state, bits.state[i], sizeof bits.state[i]);
    }
    return bits;
}

TS_DEVICE_TEST(a_bad_gradient_skips_one_step)
{
    const fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    const fy_guard_options_t light_only = FY_GUARD_LIGHT_ONLY;
    for (int kind = 0; kind < FY_OPTIMIZER_COUNT; kind++)
        for (int bad = 1; bad < 3; bad++) {
            subject_t s = begin(ctx, (fy_optimizer_kind_t)kind, &scaling),
                      plain = begin(ctx, (fy_optimizer_kind_t)kind, NULL);
            for (int t = 0; t < 4; t++) {
                const int is_bad = t == 2;
                set_grad(ctx, &s, t > 2 ? 32768 : 65536, is_bad ? bad : 0);
                set_grad(ctx, &plain, 1, 0);
                const copy_t before = copy_of(&s);
                fy_scope_t scope = fy_scope_begin("step");
                ts_ok(fy_scope_guard(&light_only));
                ts_ok(fy_optimizer_step(s.optimizer));
                if (!is_bad) ts_ok(fy_optimizer_step(plain.optimizer));
                fy_scope_end(scope, 0, NULL);
                const copy_t after = copy_of(&s), want = is_bad ? before : copy_of(&plain);
                assert_memory_equal(&after, &want, sizeof after);
                expect_scaling(&s, t < 2 ? 65536 : 32768, t == 2 ? 0 : t == 3 ? 1 : t + 1, t >= 2);
            }
            fy_optimizer_destroy(s.optimizer);
            fy_optimizer_destroy(plain.optimizer);
        }
}

TS_DEVICE_TEST(good_steps_in_a_row_double_the_scale)
{
    fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    scaling.init_scale = 8;
    scaling.growth_interval = 3;
    subject_t s = begin(ctx, FY_OPTIMIZER_ADAM, &scaling);
    int skipped = 0;
    /* of each step: is it bad; the scale and the good steps after it */
    static const int steps[][3] = { { 0, 8, 1 },  { 0, 8, 2 }, { 1, 4, 0 }, { 0, 4, 1 },
                                    { 0, 4, 2 },  { 0, 8, 0 }, { 0, 8, 1 }, { 0, 8, 2 },
                                    { 0, 16, 0 }, { 1, 8, 0 } };
    for (size_t t = 0; t < sizeof steps / sizeof *steps; t++) {
        set_grad(ctx, &s, 1, steps[t][0]);
        ts_ok(fy_optimizer_step(s.optimizer));
        skipped += steps[t][0];
        expect_scaling(&s, steps[t][1], steps[t][2], skipped);
    }
    fy_optimizer_destroy(s.optimizer);
}

/* As clipping the gradients of an optimizer without scaling. */
TS_DEVICE_TEST(clipping_sees_unscaled_gradients)
{
    const fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    subject_t s = begin(ctx, FY_OPTIMIZER_LAMB, &scaling),
              plain = begin(ctx, FY_OPTIMIZER_LAMB, NULL);
    for (int t = 0; t < 4; t++) {
        const int is_bad = t == 1;
        set_grad(ctx, &s, t > 1 ? 32768 : 65536, is_bad);
        set_grad(ctx, &plain, 1, 0);
        ts_ok(fy_optimizer_unscale(s.optimizer));
        ts_ok(fy_optimizer_unscale(s.optimizer)); /* divides once */
        ts_ok(fy_grads_clip_norm(1, &s.grad, 0.25, NULL));
        const copy_t before = copy_of(&s);
        ts_ok(fy_optimizer_step(s.optimizer));
        if (!is_bad) {
            ts_ok(fy_grads_clip_norm(1, &plain.grad, 0.25, NULL));
            ts_ok(fy_optimizer_step(plain.optimizer));
        }
        const copy_t after = copy_of(&s), want = is_bad ? before : copy_of(&plain);
        assert_memory_equal(&after, &want, sizeof after);
    }
    expect_scaling(&s, 32768, 2, 1);
    fy_optimizer_destroy(s.optimizer);
    fy_optimizer_destroy(plain.optimizer);
}

/* An unscale that no step follows, of good gradients and of bad ones, then a new backward. */
TS_DEVICE_TEST(a_new_seed_forgets_an_unscale)
{
    const fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    for (int bad = 0; bad < 2; bad++) {
        subject_t s = begin(ctx, FY_OPTIMIZER_ADAM, &scaling),
                  plain = begin(ctx, FY_OPTIMIZER_ADAM, NULL);
        fy_tensor_t *seed;
        set_grad(ctx, &s, 65536, bad);
        ts_ok(fy_optimizer_unscale(s.optimizer));
        ts_ok(fy_optimizer_seed(s.optimizer, FY_DTYPE_F32, &seed));
        ts_expect_f32(seed, (const float[]){ 65536 }, 1);
        set_grad(ctx, &s, 65536, 0);
        set_grad(ctx, &plain, 1, 0);
        ts_ok(fy_optimizer_step(s.optimizer));
        ts_ok(fy_optimizer_step(plain.optimizer));
        const copy_t got = copy_of(&s), want = copy_of(&plain);
        assert_memory_equal(&got, &want, sizeof got);
        expect_scaling(&s, 65536, 1, 0);
        fy_optimizer_destroy(s.optimizer);
        fy_optimizer_destroy(plain.optimizer);
    }
}

TS_DEVICE_TEST(the_seed_is_the_scale)
{
    const fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    subject_t s = begin(ctx, FY_OPTIMIZER_SGD, &scaling),
              plain = begin(ctx, FY_OPTIMIZER_SGD, NULL);
    fy_tensor_t *seed;
    double scale;
    int64_t skipped;
    ts_ok(fy_optimizer_seed(s.optimizer, FY_DTYPE_F32, &seed));
    ts_expect_f32(seed, (const float[]){ 65536 }, 1);
    ts_ok(fy_optimizer_seed(plain.optimizer, FY_DTYPE_F32, &seed));
    assert_null(seed);
    ts_ok(fy_optimizer_unscale(plain.optimizer));
    ts_ok(fy_optimizer_query_scale(plain.optimizer, &scale));
    ts_ok(fy_optimizer_query_skipped(plain.optimizer, &skipped));
    assert_true(scale == 1 && skipped == 0);
    fy_optimizer_destroy(s.optimizer);
    fy_optimizer_destroy(plain.optimizer);
}

/* Recorded with clipping; the third replay has a bad gradient. */
TS_DEVICE_TEST(a_replayed_step_does_the_same)
{
    fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    scaling.growth_interval = 2;
    subject_t recorded = begin(ctx, FY_OPTIMIZER_ADAM, &scaling),
              twin = begin(ctx, FY_OPTIMIZER_ADAM, &scaling);
    fy_graph_t *graph;
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_optimizer_unscale(recorded.optimizer));
    ts_ok(fy_grads_clip_norm(1, &recorded.grad, 0.5, NULL));
    ts_ok(fy_optimizer_step(recorded.optimizer));
    ts_ok(fy_graph_end(&graph));
    for (int t = 0; t < 5; t++) {
        set_grad(ctx, &recorded, 65536, t == 2);
        set_grad(ctx, &twin, 65536, t == 2);
        ts_ok(fy_graph_replay(graph, NULL));
        ts_ok(fy_optimizer_unscale(twin.optimizer));
        ts_ok(fy_grads_clip_norm(1, &twin.grad, 0.5, NULL));
        ts_ok(fy_optimizer_step(twin.optimizer));
        const copy_t got = copy_of(&recorded), want = copy_of(&twin);
        assert_memory_equal(&got, &want, sizeof got);
    }
    expect_scaling(&recorded, 131072, 0, 1);
    expect_scaling(&twin, 131072, 0, 1);
    fy_graph_destroy(graph);
    fy_optimizer_destroy(recorded.optimizer);
    fy_optimizer_destroy(twin.optimizer);
}

TS_DEVICE_TEST(invalid_numbers_are_refused)
{
    const fy_loss_scaling_options_t good = FY_LOSS_SCALING_OPTIONS_INIT;
    fy_tensor_t *value = ts_f32(ctx->device, FY_DIMS(N), k_start);
    fy_optimizer_t *optimizer;
    fy_optimizer_options_t o = FY_OPTIMIZER_OPTIONS_INIT;
    for (int i = 0; i < 7; i++) {
        fy_loss_scaling_options_t bad = good;
        if (i == 0) bad.init_scale = 0;
        if (i == 1) bad.init_scale = INFINITY;
        if (i == 2) bad.growth_factor = 1;
        if (i == 3) bad.growth_factor = NAN;
        if (i == 4) bad.backoff_factor = 1;
        if (i == 5) bad.backoff_factor = 0;
        if (i == 6) bad.growth_interval = 0;
        o.loss_scaling = &bad;
        ts_fails(fy_optimizer_create(&o, 1, &value, &value, &optimizer), INVALID_ARGUMENT);
        assert_null(optimizer);
    }
}
