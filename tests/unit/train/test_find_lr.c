/* The learning rate range test: it measures, suggests, stops, refuses, and leaves the training as
 * if it had not run, also after a failure. */
#include "tests/unit/train/fixture.h"
#include "tests/unit/train/layers.h"

#include <math.h>

#include "backends/sim/script.h"
#include "runtime/device/device.h"

enum { WIDTH = 320, SAMPLES = 36, BATCH = 8, STEPS = 40 };

/* A network with everything that a step changes: parameters, running statistics, draws. */
static fy_layer_t *make_layers(void)
{
    return SEQUENCE(plain_layer(fy_layer_flatten), fc(784, WIDTH),
                    batch_norm(WIDTH, FY_ACTIVATION_NONE), dropout(0.2), fc(WIDTH, 10));
}

static fy_status_t make(fy_device_t *device, int is_resident, parts_t *p)
{
    fy_loader_options_t batches = FY_LOADER_OPTIONS_INIT;
    batches.batch = BATCH;
    batches.resident = is_resident;
    batches.workers = is_resident ? 0 : 1;
    FY_TRY(make_batches(device, SAMPLES, batches, p));
    FY_TRY(fy_model_create(device, make_layers(), FY_DIMS(28, 28, 1), NULL, &p->model));
    fy_optimizer_options_t adam = optimizer_defaults(FY_OPTIMIZER_ADAM);
    return fy_optimizer_create_model(&adam, p->model, &p->optimizer);
}

static fy_status_t train(const parts_t *p, int64_t max_steps)
{
    fy_train_options_t options = FY_TRAIN_OPTIONS_INIT;
    options.epochs = 3;
    options.max_steps = max_steps;
    return fy_train_run(p->model, p->optimizer, p->train, NULL, &options, NULL);
}

/* Everything that the sweep must restore. */
static bits_t look(const parts_t *p)
{
    fy_optimizer_options_t optimizer = FY_OPTIMIZER_OPTIONS_INIT;
    fy_loader_info_t loader = FY_LOADER_INFO_INIT;
    const fy_model_info_t info = model_info(p->model);
    bits_t bits = bits_of(p->model, p->optimizer);
    ts_ok(fy_loader_query(p->train, &loader));
    ts_ok(fy_optimizer_get(p->optimizer, &optimizer));
    add_tensor(&bits, info.grads);
    add_bytes(&bits, &optimizer.lr, sizeof optimizer.lr);
    add_bytes(&bits, &info.is_training, sizeof info.is_training);
    add_bytes(&bits, &loader.epoch, sizeof loader.epoch);
    add_bytes(&bits, &loader.step, sizeof loader.step);
    return bits;
}

static fy_find_lr_options_t sweep_options(void)
{
    fy_find_lr_options_t options = FY_FIND_LR_OPTIONS_INIT;
    options.steps = STEPS;
    options.min_lr = 1e-6;
    return options;
}

/* The sweep, between two looks: nothing has changed. */
static void sweep(const parts_t *p, const fy_find_lr_options_t *options, fy_lr_point_t *points,
                  fy_find_lr_result_t *result)
{
    const bits_t before = look(p);
    ts_ok(fy_train_find_lr(p->model, p->optimizer, p->train, options, points, result));
    expect_bits(look(p), &before);
    free(before.bytes);
}

/* A training that is continued after a sweep has the bits of one without. */
TS_DEVICE_TEST(the_training_goes_on_as_before)
{
    for (int is_resident = 0; is_resident < 2; is_resident++) {
        parts_t swept = { 0 }, plain = { 0 };
        fy_lr_point_t points[STEPS];
        fy_find_lr_result_t result = FY_FIND_LR_RESULT_INIT;
        fy_find_lr_options_t options = sweep_options();
        ts_ok(make(ctx->device, is_resident, &swept));
        ts_ok(make(ctx->device, is_resident, &plain));
        ts_ok(train(&swept, 7)); /* the second batch of the second epoch */
        ts_ok(train(&plain, 7));
        options.accumulate = 2;
        options.clip_norm = 1;
        sweep(&swept, &options, points, &result);
        assert_true(result.steps > 10);
        ts_ok(train(&swept, 4));
        ts_ok(train(&plain, 4));
        const bits_t want = look(&plain);
        expect_bits(look(&swept), &want);
        free(want.bytes);
        drop_parts(&swept), drop_parts(&plain);
    }
}

TS_DEVICE_TEST(a_rate_is_suggested)
{
    parts_t p = { 0 };
    fy_lr_point_t points[STEPS];
    fy_find_lr_result_t result = FY_FIND_LR_RESULT_INIT;
    fy_find_lr_options_t options = sweep_options();
    ts_ok(make(ctx->device, 1, &p));
    options.max_lr = 1000;
    options.smoothing = 0.5;
    sweep(&p, &options, points, &result);
    print_message("%lld steps, suggested %g, lowest %g at %g%s\n", (long long)result.steps,
                  result.lr, result.lowest_loss, result.lowest_lr,
                  result.is_diverged ? ", diverged" : "");
    assert_true(result.is_diverged && !result.is_stopped && result.steps < STEPS);
    assert_true(result.lr > 1e-5 && result.lr < result.lowest_lr && result.lowest_lr < 100);
    double mean = 0;
    for (int i = 0; i < result.steps; i++) {
        assert_true(fabs(points[i].lr / (1e-6 * pow(1e9, i / (STEPS - 1.0))) - 1) < 1e-9);
        mean = 0.5 * mean + 0.5 * points[i].loss;
        assert_true(fabs(points[i].smoothed - mean / (1 - pow(0.5, i + 1))) < 1e-9);
        assert_true(points[i].smoothed >= result.lowest_loss);
    }
    /* the last point alone is above 4 times the lowest */
    assert_true(points[result.steps - 1].smoothed > 4 * result.lowest_loss);
    assert_true(!(points[result.steps - 2].smoothed > 4 * result.lowest_loss));
    options.max_lr = 1e-5; /* too small to diverge */
    sweep(&p, &options, points, &result);
    assert_true(result.steps == STEPS && !result.is_diverged && points[STEPS - 1].lr == 1e-5);
    drop_parts(&p);
}

TS_DEVICE_TEST(a_loss_that_is_no_number_ends_it_at_once)
{
    parts_t p = { 0 };
    fy_lr_point_t points[STEPS];
    fy_find_lr_result_t result = FY_FIND_LR_RESULT_INIT;
    const fy_find_lr_options_t options = sweep_options();
    ts_ok(make(ctx->device, 1, &p));
    const fy_model_info_t info = model_info(p.model);
    ts_ok(fy_fill(info.values, NAN));
    sweep(&p, &options, points, &result);
    assert_true(result.steps == 1 && result.is_diverged);
    assert_true(isnan(points[0].loss) && isnan(result.lr) && isnan(result.lowest_lr));
    drop_parts(&p);
}

TS_DEVICE_TEST(it_stops_on_request)
{
    parts_t p = { 0 };
    volatile int stop = 1;
    fy_lr_point_t points[STEPS];
    fy_find_lr_result_t result = FY_FIND_LR_RESULT_INIT;
    fy_find_lr_options_t options = sweep_options();
    options.stop = &stop;
    ts_ok(make(ctx->device, 1, &p));
    fy_model_set_training(p.model, 0);
    sweep(&p, &options, points, &result);
    assert_true(result.steps == 1 && result.is_stopped && isnan(result.lr));
    drop_parts(&p);
}

TS_DEVICE_TEST(impossible_sweeps_are_refused)
{
    parts_t p = { 0 };
    fy_lr_point_t points[STEPS];
    fy_find_lr_result_t result = FY_FIND_LR_RESULT_INIT;
    ts_ok(make(ctx->device, 1, &p));
    const bits_t before = look(&p);
#define REFUSES(change, text)                                                               \
    do {                                                                                    \
        fy_find_lr_options_t o = sweep_options();                                           \
        change;                                                                             \
        ts_fails_with(fy_train_find_lr(p.model, p.optimizer, p.train, &o, points, &result), \
                      INVALID_ARGUMENT, text);                                              \
    } while (0)
    REFUSES(o.min_lr = 0, "lr from 0 to 10");
    REFUSES(o.max_lr = o.min_lr, "the second above the first");
    REFUSES(o.max_lr = INFINITY, "both finite");
    REFUSES(o.min_lr = NAN, "lr from");
    REFUSES(o.steps = 1, "steps 1 (at least 2)");
    REFUSES(o.accumulate = 0, "accumulate 0");
    REFUSES(o.smoothing = 1, "smoothing 1");
    REFUSES(o.diverge = 1, "diverge 1 (above 1)");
    REFUSES(o.clip_norm = -1, "clip_norm -1");
    REFUSES(o.loss = (fy_loss_kind_t)9, "no loss 9");
    const fy_find_lr_options_t options = sweep_options();
    ts_fails(fy_train_find_lr(NULL, p.optimizer, p.train, &options, points, &result),
             INVALID_ARGUMENT);
    ts_fails(fy_train_find_lr(p.model, p.optimizer, p.train, &options, NULL, &result),
             INVALID_ARGUMENT);
    ts_fails(fy_train_find_lr(p.model, p.optimizer, p.train, &options, points, NULL),
             INVALID_ARGUMENT);
    /* a loader and an optimizer with a part, which one process alone cannot use */
    const fy_optimizer_range_t part = { 0, 64 };
    const fy_optimizer_options_t adam = optimizer_defaults(FY_OPTIMIZER_ADAM);
    fy_optimizer_t *of_part;
    ts_ok(fy_optimizer_create_ranges(&adam, p.model, 1, &part, &of_part));
    ts_fails_with(fy_train_find_lr(p.model, of_part, p.train, &options, points, &result),
                  INVALID_ARGUMENT, "train_find_lr: the optimizer updates 64 of the model's");
    const fy_train_replicas_t alone = { .struct_size = sizeof alone, .ranks = 1 };
    const fy_progress_t progress = FY_PROGRESS_INIT;
    ts_fails_with(fy_train_save("none", p.model, of_part, &alone, &progress, 1), INVALID_ARGUMENT,
                  "train_save: the optimizer updates 64 of the model's");
    fy_optimizer_destroy(of_part);
    parts_t shard = { 0 };
    fy_loader_options_t batches = FY_LOADER_OPTIONS_INIT;
    batches.ranks = 2;
    ts_ok(make_batches(ctx->device, SAMPLES, batches, &shard));
    ts_fails_with(fy_train_find_lr(p.model, p.optimizer, shard.train, &options, points, &result),
                  INVALID_ARGUMENT, "train_find_lr: the training loader has shard 0 of 2");
    drop_parts(&shard);
    expect_bits(look(&p), &before);
    free(before.bytes);
    drop_parts(&p);
}

/* Each N-th allocation, pinned block, copy and launch of a sweep fails. Everything is restored,
 * unless the failed request is one of those that restore. */
TS_DEVICE_TEST(a_failed_sweep_restores)
{
    static const char *const kinds[] = { "alloc@%d*", "pin@%d*", "copy@%d", "launch@%d" };
    if (!ctx->is_sim) return; /* only sim has a script */
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int failed = 0, changed = 0;
        for (int n = 1, met = 1; met && n < 300; n += n < 16 ? 1 : 5) {
            char script[32];
            parts_t p = { 0 };
            fy_device_t *device;
            fy_lr_point_t points[STEPS];
            fy_find_lr_result_t result = FY_FIND_LR_RESULT_INIT;
            fy_find_lr_options_t options = sweep_options();
            options.steps = 2;
            ts_ok(fy_device_open("sim:1?faults=copy@1000000", &device));
            ts_ok(make(device, 1, &p));
            const bits_t before = look(&p);
            snprintf(script, sizeof script, kinds[k], n);
            ts_ok(fy__sim_set_faults(device->dev, script));
            met = fy_train_find_lr(p.model, p.optimizer, p.train, &options, points, &result) !=
                  FY_STATUS_OK;
            if (met) assert_true(fy_error_get()->text[0]);
            ts_ok(fy__sim_set_faults(device->dev, ""));
            const bits_t after = look(&p);
            failed += met;
            changed += !has_same_bits(&before, &after);
            free(before.bytes);
            free(after.bytes);
            drop_parts(&p);
            (void)!fy_device_wait(device, FY_FOREVER); /* reports what was not reported yet */
            assert_int_equal(ts_live(device), 0);
            fy_device_close(device);
        }
        print_message("%s: %d sweeps failed, %d of them while restoring\n", kinds[k], failed,
                      changed);
        assert_true(changed == 0 || k == 3);
        assert_true(changed <= 12);
    }
}
