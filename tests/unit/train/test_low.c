/* Half precision in training. A copy of f32 parameters (fy_model_options_t.low): the same bits as
 * casts by autocast in every mode, fewer casts, also after parameters are written by others.
 * Parameters in half precision: three steps against float64, and refusals. */
#include "tests/support/value.h"
#include "tests/unit/train/by_hand.h"
#include "tests/unit/train/fixture.h"

enum { MOST = 64, SAMPLES = 40, BATCH = 8, STEPS = SAMPLES / BATCH };

typedef struct run {
    const char *model;
    fy_dtype_t precision, low;
    fy_optimizer_kind_t kind;
    int graph, recompute, writes, is_plain; /* is_plain: an optimizer that knows no model */
    fy_model_t *net;                        /* while it trains */
    uint64_t casts, nbytes, requests;
    double losses[MOST];
    int nlosses;
    bits_t weights;
} run_t;

static fy_autocast_info_t autocast(void)
{
    fy_autocast_info_t info = FY_AUTOCAST_INFO_INIT;
    ts_ok(fy_autocast_query(&info));
    return info;
}

/* After every second step a parameter is written by another request. */
static fy_status_t on_event(void *user, const fy_train_event_t *event)
{
    run_t *r = user;
    fy_param_t param = FY_PARAM_INIT;
    if (event->is_epoch_end || r->nlosses == MOST) return FY_STATUS_OK;
    r->losses[r->nlosses++] = event->loss;
    if (!r->writes || event->step % 2) return FY_STATUS_OK;
    FY_TRY(fy_model_param(r->net, 0, &param));
    return fy_fill(param.value, 0.01);
}

static void train(ts_ctx_t *ctx, run_t *r)
{
    const fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    fy_loader_options_t loader = FY_LOADER_OPTIONS_INIT;
    fy_train_options_t how = FY_TRAIN_OPTIONS_INIT;
    fy_train_result_t result = FY_TRAIN_RESULT_INIT;
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    parts_t parts = { 0 };
    fy_optimizer_t *optimizer;
    options.seed = 7;
    options.low = r->low;
    options.recompute = r->recompute;
    loader.batch = BATCH;
    fy_optimizer_options_t o = optimizer_defaults(r->kind);
    if (r->precision == FY_DTYPE_F16) o.loss_scaling = &scaling;
    how.epochs = 2;
    how.log_every = 1;
    how.precision = r->precision;
    how.graph = r->graph;
    how.on_event = on_event;
    how.user = r;
    ts_ok(make_batches(ctx->device, SAMPLES, loader, &parts));
    ts_ok(fy_model_open(ctx->device, r->model, &options, &r->net));
    ts_ok(fy_model_query(r->net, &info));
    if (r->is_plain)
        ts_ok(fy_optimizer_create(&o, 1, &info.values, &info.grads, &optimizer));
    else
        ts_ok(fy_optimizer_create_model(&o, r->net, &optimizer));
    const fy_autocast_info_t before = autocast();
    const uint64_t requests = ts_ledger(NULL).requests;
    ts_ok(fy_train_run(r->net, optimizer, parts.train, NULL, &how, &result));
    r->requests = ts_ledger(NULL).requests - requests;
    r->casts = autocast().casts - before.casts;
    r->nbytes = autocast().nbytes - before.nbytes;
    assert_int_equal(result.steps, 2 * STEPS);
    add_tensor(&r->weights, info.values);
    fy_optimizer_destroy(optimizer);
    fy_model_destroy(r->net);
    drop_parts(&parts);
}

/* `with` has a copy, `without` casts: the same losses and weights. */
static void expect_same(ts_ctx_t *ctx, run_t *with, run_t *without)
{
    train(ctx, without);
    train(ctx, with);
    assert_int_equal(with->nlosses, without->nlosses);
    assert_true(with->nlosses > STEPS);
    /* the first losses are NaN: none was downloaded yet */
    assert_memory_equal(with->losses, without->losses, sizeof(double) * (size_t)with->nlosses);
    expect_bits(with->weights, &without->weights);
    free(without->weights.bytes);
}

TS_DEVICE_TEST(a_copy_has_the_bits_of_casts)
{
    static const fy_optimizer_kind_t kinds[] = { FY_OPTIMIZER_SGD, FY_OPTIMIZER_ADAM,
                                                 FY_OPTIMIZER_LAMB };
    for (size_t i = 0; i < 3; i++)
        for (int way = 0; way < 4; way++) {
            const fy_dtype_t dtype = way % 2 ? FY_DTYPE_F16 : FY_DTYPE_BF16;
            run_t without = { .model = i ? "mlp" : "lenet",
                              .precision = dtype,
                              .kind = kinds[i],
                              .graph = way > 1,
                              .recompute = way == 1 ? 2 : 0 };
            run_t with = without;
            with.low = dtype;
            expect_same(ctx, &with, &without);
            /* the step writes the copy: no request casts a parameter */
            assert_true(with.casts < without.casts && with.nbytes < without.nbytes);
            assert_true(with.requests < without.requests);
        }
}

/* Also by an optimizer that knows no model: each step writes the parameters alone. */
TS_DEVICE_TEST(other_writes_are_followed)
{
    for (int way = 0; way < 6; way++) {
        run_t without = { .model = "mlp",
                          .precision = FY_DTYPE_BF16,
                          .kind = FY_OPTIMIZER_ADAM,
                          .graph = way % 2,
                          .writes = way<4, .is_plain = way> 1 };
        run_t with = without;
        with.low = FY_DTYPE_BF16;
        expect_same(ctx, &with, &without);
    }
}

/* ---- parameters in half precision ---- */

enum { N = 6, ROUNDS = 3 };

static const double k_start[N] = { 0.5, -1.25, 2, 0.25, -0.75, 1.5 };
static const double k_grads[N] = { 0.5, -0.25, 0.375, 1, -0.5, 0.125 };

static fy_tensor_t *vector(fy_device_t *device, fy_dtype_t dtype, const double *values)
{
    float floats[N];
    fy_tensor_t *x;
    for (int i = 0; i < N; i++) floats[i] = (float)values[i];
    ts_ok(fy_cast(ts_f32(device, FY_DIMS(N), floats), dtype, &x));
    return x;
}

TS_DEVICE_TEST(three_steps_match_float64)
{
    for (int round = 0; round < 2 * FY_OPTIMIZER_COUNT; round++) {
        const fy_dtype_t dtype = round % 2 ? FY_DTYPE_F16 : FY_DTYPE_BF16;
        const double unit = dtype == FY_DTYPE_F16 ? 0x1p-11 : 0x1p-8;
        fy_tensor_t *value = vector(ctx->device, dtype, k_start), *wide,
                    *grad = vector(ctx->device, dtype, k_grads);
        double want[N], exact[N], states[2][N] = { { 0 } };
        fy_optimizer_t *optimizer;
        float got[N];
        const char *name;
        fy_tensor_t *state;
        fy_optimizer_options_t o = optimizer_defaults((fy_optimizer_kind_t)(round / 2));
        o.momentum = o.kind == FY_OPTIMIZER_SGD || o.kind == FY_OPTIMIZER_RMSPROP ? 0.9
                                                                                  : o.momentum;
        o.weight_decay = 0.1;
        o.lr = 0.125;
        ts_ok(fy_optimizer_create(&o, 1, &value, &grad, &optimizer));
        for (size_t i = 0; fy_optimizer_state(optimizer, i, &name, &state), name; i++)
            assert_int_equal(ts_info(state).dtype,
                             strcmp(name, "step") == 0 ? FY_DTYPE_I64 : FY_DTYPE_F32);
        memcpy(want, k_start, sizeof want);
        for (int t = 0; t < ROUNDS; t++) {
            memcpy(exact, want, sizeof exact);
            step_by_hand(&o, N, exact, k_grads, states[0], states[1], t);
            ts_ok(fy_optimizer_step(optimizer));
            ts_ok(fy_cast(value, FY_DTYPE_F32, &wide));
            ts_read(wide, got, sizeof got);
            for (int i = 0; i < N; i++) {
                /* the parameter goes on from the stored value; a tie may round either way */
                if (fabs(got[i] - exact[i]) > 1.001 * unit * fabs(exact[i]) + 1e-6)
                    fail_msg("%s %s: element %d after step %d is %.9g, by hand %.9g",
                             fy_optimizer_name(o.kind), fy_dtype_name(dtype), i, t, got[i],
                             exact[i]);
                assert_true((double)got[i] == ts_round(dtype, got[i]));
                want[i] = got[i];
            }
        }
        fy_optimizer_destroy(optimizer);
    }
}

/* mlp, all of it in half precision: the loss falls. Norms with running statistics are refused. */
TS_DEVICE_TEST(a_model_in_half_precision_learns)
{
    for (int is_f16 = 0; is_f16 < 2; is_f16++) {
        const fy_dtype_t dtype = is_f16 ? FY_DTYPE_F16 : FY_DTYPE_BF16;
        fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
        fy_optimizer_t *optimizer;
        fy_model_t *model;
        fy_tensor_t *x, *targets;
        double first = 0, last = 0;
        options.dtype = dtype;
        ts_fails_with(fy_model_open(ctx->device, "resnet18", &options, &model), UNSUPPORTED,
                      "running statistics");
        options.low = FY_DTYPE_BF16;
        ts_fails(fy_model_open(ctx->device, "mlp", &options, &model), INVALID_ARGUMENT);
        options.low = FY_DTYPE_F32;
        ts_ok(fy_model_open(ctx->device, "mlp", &options, &model));
        fy_optimizer_options_t o = optimizer_defaults(FY_OPTIMIZER_ADAM);
        o.lr = 0.01;
        ts_ok(fy_optimizer_create_model(&o, model, &optimizer));
        ts_ok(fy_full(ctx->device, dtype, FY_DIMS(4, 28, 28, 1), 0.5, &x));
        ts_ok(fy_zeros(ctx->device, FY_DTYPE_I64, FY_DIMS(4), &targets));
        fy_tape_t *tape = watch(model);
        for (int t = 0; t < 5; t++) {
            fy_tensor_t *y, *loss;
            fy_download_t *download;
            ts_ok(fy_tape_begin(tape));
            ts_ok(fy_model_forward(model, x, &y));
            ts_ok(fy_cross_entropy(y, targets, FY_REDUCTION_MEAN, &loss));
            ts_ok(fy_model_backward(model, tape, loss, NULL));
            ts_ok(fy_optimizer_step(optimizer));
            ts_ok(fy_cast(loss, FY_DTYPE_F32, &loss));
            ts_ok(fy_tensor_download(loss, NULL, &download));
            ts_ok(fy_download_wait_f64(download, FY_FOREVER, &last));
            if (t == 0) first = last;
        }
        assert_true(last < first / 2);
        fy_tape_destroy(tape);
        fy_optimizer_destroy(optimizer);
        fy_model_destroy(model);
    }
}
