/* Optimizers: three steps against a computation by hand, of a block and of pairs. A step is one
 * request a pair. Also clipping, state for checkpoints, refusals. Not here: recorded steps
 * and accumulated gradients (test_trainer.c). */
#include "tests/unit/train/by_hand.h"
#include "tests/unit/train/fixture.h"

enum { N = 5, STEPS = 3 };

static const float k_start[N] = { 0.5F, -1.25F, 2.0F, 0.25F, -0.75F };
static const float k_grads[STEPS][N] = { { 0.1F, -0.2F, 0.3F, 1.0F, -0.5F },
                                         { 0.2F, 0.1F, -0.3F, 0.5F, 0.25F },
                                         { -0.4F, 0.3F, 0.1F, -1.0F, 0.5F } };

static void set_grad(ts_ctx_t *ctx, fy_tensor_t *grad, const float *given, double scale)
{
    float values[N];
    for (int i = 0; i < N; i++) values[i] = (float)(given[i] * scale);
    fy_scope_t scope = fy_scope_begin("gradient");
    ts_ok(fy_copy(grad, ts_f32(ctx->device, FY_DIMS(N), values)));
    fy_scope_end(scope, 0, NULL);
}

static fy_optimizer_options_t options_of(int row)
{
    fy_optimizer_options_t o = optimizer_defaults((fy_optimizer_kind_t)(row % FY_OPTIMIZER_COUNT));
    if (o.kind != FY_OPTIMIZER_ADADELTA) o.lr = 0.05;
    if (row >= FY_OPTIMIZER_COUNT) o.weight_decay = 0.1, o.momentum = 0.9, o.nesterov = 1;
    if (row >= 2 * FY_OPTIMIZER_COUNT) o.dampening = 0.25, o.nesterov = 0;
    if (o.kind == FY_OPTIMIZER_RMSPROP && row >= 2 * FY_OPTIMIZER_COUNT)
        o.centered = 1, o.momentum = 0;
    return o;
}

/* One block for all, and a pair for each part of it: the same bits. */
TS_DEVICE_TEST(three_steps_match_the_formula)
{
    const fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    for (int round = 0; round < 6 * FY_OPTIMIZER_COUNT; round++) {
        const int row = round / 2, is_scaled = round % 2;
        fy_optimizer_options_t o = options_of(row);
        if (is_scaled) o.loss_scaling = &scaling;
        if (has_trust(&o)) continue; /* a block has one ratio, pairs have several */
        fy_tensor_t *value = ts_f32(ctx->device, FY_DIMS(N), k_start),
                    *grad = ts_f32(ctx->device, FY_DIMS(N), k_start),
                    *apart = ts_f32(ctx->device, FY_DIMS(N), k_start), *parts[2], *part_grads[2];
        fy_optimizer_t *optimizer, *of_parts;
        double want[N], grads[N], states[2][N] = { { 0 } };
        float got[N];
        for (int i = 0; i < 2; i++) {
            ts_ok(fy_slice(apart, 0, i ? 2 : 0, i ? N : 2, &parts[i]));
            ts_ok(fy_slice(grad, 0, i ? 2 : 0, i ? N : 2, &part_grads[i]));
        }
        ts_ok(fy_optimizer_create(&o, 1, &value, &grad, &optimizer));
        ts_ok(fy_optimizer_create(&o, 2, parts, part_grads, &of_parts));
        for (int i = 0; i < N; i++) want[i] = k_start[i];
        for (int t = 0; t < STEPS; t++) {
            set_grad(ctx, grad, k_grads[t], is_scaled ? 65536 : 1);
            const fy_ledger_totals_t before = ts_ledger(NULL);
            ts_ok(fy_optimizer_step(optimizer));
            fy_ledger_totals_t after = ts_ledger(NULL);
            assert_int_equal(after.requests, before.requests + (is_scaled ? 3 : 1));
            after.requests = before.requests;
            ts_expect_quiet(&before, &after, "a step");
            ts_ok(fy_optimizer_step(of_parts));
            for (int i = 0; i < N; i++) grads[i] = k_grads[t][i];
            step_by_hand(&o, N, want, grads, states[0], states[1], t);
        }
        ts_read(value, got, sizeof got);
        for (int i = 0; i < N; i++)
            if (fabs(got[i] - want[i]) > 1e-6)
                fail_msg("row %d, %s: element %d is %.9g, by hand %.9g", row,
                         fy_optimizer_name(o.kind), i, got[i], want[i]);
        ts_expect_f32(apart, got, N);
        fy_optimizer_destroy(optimizer);
        fy_optimizer_destroy(of_parts);
    }
}

/* ---- a model's parameters: factors and trust ratios, by hand in f64 ---- */

enum { MOST = 1 << 17 };
static double g_values[MOST], g_grads[MOST], g_states[2][MOST];

static const fy_optimizer_group_t k_groups[] = { { "fc2", 0.5, 2 }, { "fc1.bias", 3, 1 } };

/* Three steps of a model in f64, as options and groups say. */
static void expect_model_steps(ts_ctx_t *ctx, const char *name, const fy_optimizer_options_t *o)
{
    fy_model_options_t model_options = FY_MODEL_OPTIONS_INIT;
    fy_optimizer_t *optimizer;
    model_options.dtype = FY_DTYPE_F64;
    fy_model_t *model = known_model(ctx->device, name, &model_options);
    const fy_model_info_t info = model_info(model);
    ts_ok(fy_optimizer_create_model(o, model, &optimizer));
    const size_t room = ts_info(info.values).nelem;
    assert_true(room <= MOST);
    static double got[MOST];
    ts_read(info.values, g_values, room * sizeof(double));
    memset(g_states, 0, sizeof g_states);
    for (int t = 0; t < STEPS; t++) {
        memset(g_grads, 0, sizeof g_grads);
        size_t begin = 0;
        for (size_t i = 0; i < info.nparams; i++) {
            fy_param_t param = nth_param(model, i);
            const fy_tensor_info_t value = ts_info(param.value);
            const size_t n = value.nelem;
            fy_optimizer_options_t own = *o;
            for (size_t k = o->ngroups; k-- > 0;)
                if (strncmp(param.name, o->groups[k].prefix, strlen(o->groups[k].prefix)) == 0)
                    own.lr = o->lr * o->groups[k].lr_scale,
                    own.weight_decay = o->weight_decay * o->groups[k].weight_decay_scale;
            if (value.rank < o->decay_min_rank) own.weight_decay = 0;
            for (size_t k = 0; k < n; k++) g_grads[begin + k] = sin((double)(k + 7 * i) + t);
            step_by_hand(&own, n, g_values + begin, g_grads + begin, g_states[0] + begin,
                         g_states[1] + begin, t);
            begin = (begin + n + 15) / 16 * 16;
        }
        for (size_t i = 0; o->loss_scaling && i < room; i++) g_grads[i] *= 65536;
        fy_scope_t scope = fy_scope_begin("gradient");
        fy_tensor_t *host, *fresh;
        ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F64, FY_DIMS((int64_t)room), g_grads, NULL,
                             NULL, &host));
        ts_ok(fy_tensor_upload(host, ctx->device, NULL, &fresh));
        ts_ok(fy_copy(info.grads, fresh));
        fy_scope_end(scope, 0, NULL);
        const fy_ledger_totals_t before = ts_ledger(NULL);
        ts_ok(fy_optimizer_step(optimizer));
        fy_ledger_totals_t after = ts_ledger(NULL);
        assert_int_equal(after.requests, before.requests + (o->loss_scaling ? 3 : 1));
        after.requests = before.requests;
        ts_expect_quiet(&before, &after, "a step of a model"); /* no allocation, copy or wait */
    }
    ts_read(info.values, got, room * sizeof(double));
    for (size_t i = 0; i < room; i++)
        if (fabs(got[i] - g_values[i]) > 1e-6 * (1 + fabs(g_values[i])))
            fail_msg("%s of %s: element %zu is %.12g, by hand %.12g", fy_optimizer_name(o->kind),
                     name, i, got[i], g_values[i]);
    fy_optimizer_destroy(optimizer);
    fy_model_destroy(model);
}

TS_DEVICE_TEST(factors_and_trust_ratios_match_the_formulas)
{
    const fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    for (int kind = 0; kind < FY_OPTIMIZER_COUNT; kind++) {
        fy_optimizer_options_t o = optimizer_defaults((fy_optimizer_kind_t)kind);
        o.weight_decay = 0.1;
        expect_model_steps(ctx, "linear", &o);
        o.decay_min_rank = 2;
        expect_model_steps(ctx, "mlp", &o);
        o.ngroups = 2;
        o.groups = k_groups;
        expect_model_steps(ctx, "mlp", &o);
        o.loss_scaling = &scaling;
        expect_model_steps(ctx, "mlp", &o);
        o.ngroups = 0;
        o.decay_min_rank = 0;
        expect_model_steps(ctx, "linear", &o);
    }
}

TS_DEVICE_TEST(rates_and_momenta_change)
{
    fy_optimizer_options_t o = options_of(FY_OPTIMIZER_COUNT), now = FY_OPTIMIZER_OPTIONS_INIT;
    fy_tensor_t *value = ts_f32(ctx->device, FY_DIMS(N), k_start),
                *grad = ts_f32(ctx->device, FY_DIMS(N), k_grads[0]);
    fy_optimizer_t *optimizer;
    double want = k_start[0], state[2] = { 0 };
    const double gradient = k_grads[0][0];
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
        step_by_hand(&o, 1, &want, &gradient, &state[0], &state[1], t);
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

TS_DEVICE_TEST(gradients_are_clipped)
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

/* A call on several tensors that is refused for the last one has changed none. */
TS_DEVICE_TEST(a_refused_call_changes_no_tensor_of_several)
{
    fy_tensor_t *value = ts_f32(ctx->device, FY_DIMS(N), k_start), *wide, *only;
    fy_tensor_t *grads[2] = { ts_f32(ctx->device, FY_DIMS(N), k_start) }, *bad[3] = { NULL };
    DLManagedTensorVersioned *managed;
    float got[N];
    ts_ok(fy_slice(value, 0, 0, 1, &wide));
    ts_ok(fy_broadcast(wide, FY_DIMS(N), &bad[0]));
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_I32, FY_DIMS(N), &bad[1]));
    if (ctx->is_host) {
        ts_ok(fy_tensor_to_dlpack(value, FY_ACCESS_READ, NULL, &managed));
        ts_ok(fy_tensor_from_dlpack(ctx->device, managed, &bad[2]));
    }
    for (int i = 0; i < 3; i++) {
        const fy_status_t want = i == 1 ? FY_STATUS_DTYPE_MISMATCH : FY_STATUS_INVALID_ARGUMENT;
        if (!(grads[1] = bad[i])) continue;
        assert_int_equal(fy_grads_clip_value(2, grads, 0.5), want);
        assert_non_null(strstr(fy_error_get()->text, "grads_clip_value: grads[1]"));
        assert_int_equal(fy_grads_clip_norm(2, grads, 0.5, NULL), want);
        ts_read(grads[0], got, sizeof got);
        for (int k = 0; k < N; k++) assert_true(got[k] == k_start[k]);
    }
    if (!(only = bad[2])) return;
    const fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    fy_optimizer_options_t o = FY_OPTIMIZER_OPTIONS_INIT;
    fy_optimizer_t *optimizer;
    o.loss_scaling = &scaling;
    fy_tensor_t *pairs[2] = { ts_f32(ctx->device, FY_DIMS(N), k_start),
                              ts_f32(ctx->device, FY_DIMS(N), k_start) };
    ts_ok(fy_optimizer_create(&o, 2, pairs, grads, &optimizer));
    ts_fails_with(fy_optimizer_unscale(optimizer), INVALID_ARGUMENT, "grads[1] is read-only");
    ts_read(grads[0], got, sizeof got);
    for (int k = 0; k < N; k++) assert_true(got[k] == k_start[k]);
    fy_optimizer_destroy(optimizer);
    pairs[1] = only, grads[1] = value;
    ts_fails_with(fy_optimizer_create(&o, 2, pairs, grads, &optimizer), INVALID_ARGUMENT,
                  "values[1] is read-only");
}

/* Their norm, 120000, is no f16; of one dtype and of two. */
TS_DEVICE_TEST(half_gradients_are_clipped)
{
    static const fy_dtype_t dtypes[][2] = { { FY_DTYPE_F16, FY_DTYPE_F16 },
                                            { FY_DTYPE_BF16, FY_DTYPE_BF16 },
                                            { FY_DTYPE_F16, FY_DTYPE_F32 },
                                            { FY_DTYPE_BF16, FY_DTYPE_F64 } };
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (size_t count = 1; count <= 2; count++) {
            fy_tensor_t *grads[2], *norm, *wide;
            double values[4], got;
            for (size_t k = 0; k < count; k++)
                ts_ok(fy_full(ctx->device, dtypes[i][k], FY_DIMS(4 / (int64_t)count), 60000,
                              &grads[k]));
            ts_ok(fy_grads_clip_norm(count, grads, 1, &norm));
            const fy_dtype_t want = count == 2 && dtypes[i][1] == FY_DTYPE_F64 ? FY_DTYPE_F64
                                                                               : FY_DTYPE_F32;
            assert_int_equal(ts_info(norm).dtype, want);
            ts_ok(fy_cast(norm, FY_DTYPE_F64, &norm));
            ts_read(norm, &got, sizeof got);
            assert_true(fabs(got / 120000 - 1) < 2e-3); /* bf16: 60000 is rounded */
            for (size_t k = 0; k < count; k++) {
                ts_ok(fy_cast(grads[k], FY_DTYPE_F64, &wide));
                ts_read(wide, values, 4 / count * sizeof *values);
                for (size_t n = 0; n < 4 / count; n++) assert_true(fabs(values[n] - 0.5) < 1e-3);
            }
        }
}

TS_DEVICE_TEST(state_has_names)
{
    static const char *const want[FY_OPTIMIZER_COUNT][4] = { { "momentum", "step" },
                                                             { "exp_avg", "exp_avg_sq", "step" },
                                                             { "exp_avg", "exp_avg_sq", "step" },
                                                             { "square_avg", "acc_delta" },
                                                             { "square_avg", "momentum" },
                                                             { "momentum" },
                                                             { "exp_avg", "exp_avg_sq", "step" } };
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
        size_t each = row == FY_OPTIMIZER_SGD ? 0 : 1;
        while (each > 0 && want[o.kind][each]) each++;
        if (row == FY_OPTIMIZER_RMSPROP) each = 1; /* no momentum */
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

/* One tensor twice, or overlapping views, would be updated or clipped twice. Neighbours and empty
 * tensors are not refused. */
TS_DEVICE_TEST(shared_bytes_are_refused)
{
    fy_tensor_t *value = ts_f32(ctx->device, FY_DIMS(N), k_start),
                *grad = ts_f32(ctx->device, FY_DIMS(N), k_start), *v[3], *g[3];
    for (int i = 0; i < 3; i++) { /* [0, 2), [2, 4), none */
        ts_ok(fy_slice(value, 0, 2 * i, i == 2 ? 4 : 2 * i + 2, &v[i]));
        ts_ok(fy_slice(grad, 0, 2 * i, i == 2 ? 4 : 2 * i + 2, &g[i]));
    }
    fy_optimizer_options_t o = FY_OPTIMIZER_OPTIONS_INIT;
    fy_optimizer_t *optimizer;
    ts_ok(fy_optimizer_create(&o, 3, v, g, &optimizer));
    ts_ok(fy_grads_clip_norm(3, g, 1, NULL));
    fy_optimizer_destroy(optimizer);
    fy_tensor_t *across_v, *across_g, *wide,
        *column, *const three[] = { g[0], g[1], ts_f32(ctx->device, FY_DIMS(2), k_start) };
    ts_ok(fy_slice(value, 0, 3, N, &across_v));
    ts_ok(fy_slice(grad, 0, 3, N, &across_g));
    fy_tensor_t *const twice[] = { v[0], v[1], v[0] }, *const across[] = { v[0], across_v, v[1] },
                       *const apart[] = { g[0], g[1], across_g }, *const same[] = { g[0], g[0] };
#define REFUSES(count, values, grads, text) \
    ts_fails_with(fy_optimizer_create(&o, count, values, grads, &optimizer), INVALID_ARGUMENT, text)
    REFUSES(3, twice, three, "values[0] and values[2] share 8 bytes");
    REFUSES(3, across, three, "values[2] and values[1] share 4 bytes");
    REFUSES(2, v, same, "grads[0] and grads[1] share 8 bytes");
    REFUSES(2, v, v, "values[0] and grads[0]");
#undef REFUSES
    ts_fails_with(fy_grads_clip_norm(2, same, 1, NULL), INVALID_ARGUMENT, "grads[0] and grads[1]");
    ts_fails_with(fy_grads_clip_norm(3, apart, 1, NULL), INVALID_ARGUMENT, "grads[1] and grads[2]");
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(3, 2), &wide));
    ts_ok(fy_slice(wide, 1, 0, 1, &column));
    ts_fails_with(fy_optimizer_create(&o, 1, &column, &column, &optimizer), INVALID_ARGUMENT,
                  "values[0] is not dense");
    fy_tensor_t *columns[] = { column, NULL };
    ts_ok(fy_slice(wide, 1, 1, 2, &columns[1]));
    ts_ok(fy_grads_clip_norm(2, columns, 1, NULL));
}

TS_DEVICE_TEST(invalid_arguments_are_refused)
{
    fy_tensor_t *value = ts_f32(ctx->device, FY_DIMS(N), k_start),
                *grad = ts_f32(ctx->device, FY_DIMS(N), k_start), *other, *ints;
    fy_optimizer_t *optimizer;
    fy_optimizer_options_t o;
    ts_ok(fy_reshape(grad, FY_DIMS(1, N), &other));
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_I64, FY_DIMS(N), &ints));
#define REFUSES(the_kind, change, text)                                                        \
    do {                                                                                       \
        fy_optimizer_defaults(FY_OPTIMIZER_##the_kind, &o, sizeof o);                          \
        change;                                                                                \
        ts_fails_with(fy_optimizer_create(&o, 1, &value, &grad, &optimizer), INVALID_ARGUMENT, \
                      text);                                                                   \
        assert_null(optimizer);                                                                \
    } while (0)
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
    REFUSES(RMSPROP, (o.centered = 1, o.momentum = 0.5), "0 with centered");
    REFUSES(LARS, o.trust_coefficient = -1, "trust_coefficient");
    REFUSES(LARS, o.momentum = NAN, "momentum");
    REFUSES(LAMB, o.beta1 = 1, "beta1");
    REFUSES(ADAMW, o.decay_min_rank = -1, "decay_min_rank");
    REFUSES(ADAMW, o.decay_min_rank = FY_MAX_RANK + 1, "decay_min_rank");
    REFUSES(ADAMW, o.ngroups = 1, "groups is NULL");
    const fy_optimizer_group_t bad = { "fc", -1, 1 };
    REFUSES(ADAMW, (o.ngroups = 1, o.groups = &bad), "'fc'");
    const fy_optimizer_group_t all = { "", 1, 1 };
    REFUSES(ADAMW, (o.ngroups = 2, o.groups = k_groups), "'fc2', counts for none of the 1 par");
    fy_tensor_set_name(value, "fc1.bias");
    REFUSES(ADAMW, (o.ngroups = 2, o.groups = k_groups), "Names: 'fc1.bias'");
    const fy_optimizer_group_t hidden[] = { k_groups[1], all };
    REFUSES(SGD, (o.ngroups = 2, o.groups = hidden), "group 1, ''");
    ts_ok((o.ngroups = 1, fy_optimizer_create(&o, 1, &value, &grad, &optimizer)));
    fy_optimizer_destroy(optimizer);
    fy_model_t *model = known_model(ctx->device, "mlp", NULL);
    o.groups = k_groups + 1, o.ngroups = 1;
    ts_ok(fy_optimizer_create_model(&o, model, &optimizer));
    fy_optimizer_destroy(optimizer);
    const fy_optimizer_group_t typed = { "fc1.wieght", 0, 1 };
    o.groups = &typed;
    ts_fails_with(fy_optimizer_create_model(&o, model, &optimizer), INVALID_ARGUMENT,
                  "'fc1.wieght'", "'fc1.weight' 'fc1.bias'");
    assert_null(optimizer);
    fy_model_destroy(model);
    ts_fails(fy_optimizer_create_model(&o, NULL, &optimizer), INVALID_ARGUMENT);
    o = (fy_optimizer_options_t)FY_OPTIMIZER_OPTIONS_INIT;
    ts_fails(fy_optimizer_create(&o, 0, &value, &grad, &optimizer), INVALID_ARGUMENT);
    ts_fails(fy_optimizer_create(&o, 1, &value, &other, &optimizer), SHAPE_MISMATCH);
    ts_fails(fy_optimizer_create(&o, 1, &value, &ints, &optimizer), DTYPE_MISMATCH);
    ts_ok(fy_optimizer_create(&o, 1, &value, &grad, &optimizer));
    ts_fails_with(fy_optimizer_set_momentum(optimizer, 0.9), INVALID_ARGUMENT, "no state");
    fy_optimizer_destroy(optimizer);
    fy_optimizer_defaults(FY_OPTIMIZER_RMSPROP, &o, sizeof o);
    ts_ok(fy_optimizer_create(&o, 1, &value, &grad, &optimizer));
    ts_fails_with(fy_optimizer_set_momentum(optimizer, 0.9), INVALID_ARGUMENT,
                  "rmsprop: it was made with momentum 0");
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

TS_DEVICE_TEST(defaults_are_those_of_the_ops)
{
    const fy_optimizer_options_t init = FY_OPTIMIZER_OPTIONS_INIT;
    for (int kind = 0; kind < FY_OPTIMIZER_COUNT; kind++) {
        const int is_adadelta = kind == FY_OPTIMIZER_ADADELTA;
        fy_optimizer_options_t o = optimizer_defaults((fy_optimizer_kind_t)kind);
        assert_true(o.beta1 == fallback_of(FY_OP_ADAM_STEP, "beta1") && init.beta1 == o.beta1);
        assert_true(o.beta2 == fallback_of(FY_OP_ADAM_STEP, "beta2") && init.beta2 == o.beta2);
        if (kind == FY_OPTIMIZER_RMSPROP)
            assert_true(o.rho == fallback_of(FY_OP_RMSPROP_STEP, "alpha") &&
                        o.eps == fallback_of(FY_OP_RMSPROP_STEP, "eps"));
        else
            assert_true(o.rho == fallback_of(FY_OP_ADADELTA_STEP, "rho") && init.rho == o.rho);
        assert_true(o.eps == fallback_of(is_adadelta                 ? FY_OP_ADADELTA_STEP
                                         : kind == FY_OPTIMIZER_LARS ? FY_OP_LARS_STEP
                                         : kind == FY_OPTIMIZER_LAMB ? FY_OP_LAMB_STEP
                                                                     : FY_OP_ADAM_STEP,
                                         "eps"));
        assert_true(o.momentum == fallback_of(kind == FY_OPTIMIZER_LARS ? FY_OP_LARS_STEP
                                                                        : FY_OP_SGD_MOMENTUM_STEP,
                                              "momentum"));
        assert_true(o.dampening == fallback_of(FY_OP_SGD_MOMENTUM_STEP, "dampening"));
        assert_int_equal(o.nesterov, (int)fallback_of(FY_OP_SGD_MOMENTUM_STEP, "nesterov"));
        if (kind == FY_OPTIMIZER_SGD)
            assert_true(init.lr == o.lr && init.eps == o.eps && init.kind == o.kind &&
                        init.weight_decay == o.weight_decay && init.momentum == o.momentum);
    }
}
