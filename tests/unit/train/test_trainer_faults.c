/* A small training on a simulated device whose N-th allocation, pinned block, event, copy or launch
 * fails, for many N. The failure is reported, nothing leaks, and the same training works on that
 * device afterwards. Not here: trainings without failures (test_trainer.c). */
#include <math.h>

#include "tests/unit/train/fixture.h"

enum { SAMPLES = 12, BATCH = 4, STEPS = 3 };

static fy_status_t train(fy_device_t *device, int is_graph, parts_t *p)
{
    fy_loader_options_t batches = FY_LOADER_OPTIONS_INIT;
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    const fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    fy_optimizer_options_t adam = optimizer_defaults(FY_OPTIMIZER_ADAM);
    fy_train_options_t options = FY_TRAIN_OPTIONS_INIT;
    fy_train_result_t result = FY_TRAIN_RESULT_INIT;
    batches.batch = BATCH;
    FY_TRY(make_batches(device, SAMPLES, batches, p));
    FY_TRY(fy_model_open(device, "mnist2018", NULL, &p->model));
    FY_TRY(fy_model_query(p->model, &info));
    if (is_graph) adam.loss_scaling = &scaling;
    FY_TRY(fy_optimizer_create(&adam, 1, &info.values, &info.grads, &p->optimizer));
    options.loss = FY_LOSS_NLL;
    options.log_every = 2;
    options.graph = is_graph;
    options.clip_norm = 1;
    FY_TRY(fy_train_run(p->model, p->optimizer, p->train, p->test, &options, &result));
    if (result.steps != STEPS || !isfinite(result.train_loss) || !isfinite(result.test_loss))
        return fy_error_set(FY_STATUS_CANCELLED, __FILE__, __LINE__, "%lld steps, losses %g, %g",
                            (long long)result.steps, result.train_loss, result.test_loss);
    return FY_STATUS_OK;
}

static fy_status_t try_once(fy_device_t *device, int is_graph)
{
    parts_t p = { 0 };
    const fy_status_t status = train(device, is_graph, &p);
    if (status == FY_STATUS_CANCELLED) fail_msg("%s", fy_error_get()->text);
    if (status != FY_STATUS_OK) assert_true(fy_error_get()->text[0]);
    drop_parts(&p);
    (void)!fy_device_wait(device, FY_FOREVER); /* reports a failure that was not reported yet */
    assert_int_equal(ts_live(device), 0);
    return status;
}

static const struct {
    const char *item;
    /* every one from the N-th on: Ferry requests memory again, so a single refusal can be
     * absorbed */
    int lasts;
} kinds[] = {
    { "alloc@%d*", 1 }, { "pin@%d*", 1 }, { "event@%d", 0 }, { "copy@%d", 0 }, { "launch@%d", 0 }
};

TS_DEVICE_TEST(every_failing_call_is_reported)
{
    if (!ctx->is_sim) return; /* only sim has a script */
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int is_graph = 0; is_graph < 2; is_graph++) {
            int met = 0;
            /* until no run reaches the N-th */
            for (int n = 1, unmet = 0; unmet < 3 && n < 400; n += n < 8 ? 1 : 13) {
                char script[64] = "sim:1?faults=";
                fy_device_t *device;
                snprintf(script + strlen(script), sizeof script - strlen(script), kinds[k].item, n);
                if (fy_device_open(script, &device) != FY_STATUS_OK) continue;
                const int failed = try_once(device, is_graph) != FY_STATUS_OK;
                if (failed && !kinds[k].lasts) ts_ok(try_once(device, is_graph));
                fy_device_close(device);
                met += failed;
                unmet = failed ? 0 : unmet + 1;
            }
            print_message("%s: %d faults met\n", kinds[k].item, met);
            if (!met && strcmp(kinds[k].item, "event@%d") != 0)
                fail_msg("%s met no fault", kinds[k].item);
        }
}
