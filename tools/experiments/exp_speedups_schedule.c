/* Row 1 of `ferry experiment speedups`: a learning rate that rises and falls once, against a
 * constant one; and the test that finds its range.
 * Not here: the table of rows (exp_speedups.c), the schedules (train/schedule.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/experiments/exp_speedups.h"

enum { STEPS = 60, RANGE_STEPS = 50, SAMPLES = 256, BATCH = 64 };

/* `schedule` NULL: the rate stays at `lr`. The last loss. */
static fy_status_t train(session_t *session, double lr, const fy_schedule_t *schedule,
                         double *out_loss)
{
    net_t net;
    fy_tensor_t *loss = NULL;
    fy_status_t status = net_open(session->device, 256, &net);
    for (int step = 0; step < STEPS && status == FY_STATUS_OK; step++) {
        fy_tensor_destroy(loss);
        status = net_gradient(&net, 0, net.batch, NULL, &loss);
        if (status == FY_STATUS_OK)
            status = net_descend(&net, schedule ? fy_schedule_lr(schedule, step) : lr);
    }
    if (status == FY_STATUS_OK) status = fetch_f64(loss, out_loss);
    fy_tensor_destroy(loss);
    net_close(&net);
    return status;
}

/* The suggested rate; *out_restored: the parameters are those from before, bit for bit. */
static fy_status_t test_range(session_t *session, double *out_lr, bool *out_restored)
{
    net_t net;
    fy_dataset_t *digits = NULL;
    fy_loader_t *loader = NULL;
    fy_optimizer_t *sgd = NULL;
    float *before = NULL, *after = NULL;
    uint64_t count = 0;
    fy_lr_point_t points[RANGE_STEPS];
    fy_loader_options_t batches = FY_LOADER_OPTIONS_INIT;
    fy_find_lr_options_t options = FY_FIND_LR_OPTIONS_INIT;
    fy_find_lr_result_t result = FY_FIND_LR_RESULT_INIT;
    const fy_optimizer_options_t settings = FY_OPTIMIZER_OPTIONS_INIT;
    batches.batch = BATCH;
    batches.scale = 1.0 / 255;
    options.min_lr = 1e-4;
    options.steps = RANGE_STEPS;
    options.smoothing = 0.5;
    fy_status_t status = net_open(session->device, 1, &net);
    if (status == FY_STATUS_OK) status = fy_dataset_synthetic_digits(SAMPLES, 3, &digits);
    if (status == FY_STATUS_OK)
        status = fy_loader_create(session->device, digits, &batches, &loader);
    if (status == FY_STATUS_OK) status = fy_optimizer_create_model(&settings, net.model, &sgd);
    if (status == FY_STATUS_OK) status = fetch_f32(net.values, &before, &count);
    if (status == FY_STATUS_OK)
        status = fy_train_find_lr(net.model, sgd, loader, &options, points, &result);
    if (status == FY_STATUS_OK) status = fetch_f32(net.values, &after, &count);
    *out_lr = result.lr;
    *out_restored = after && memcmp(before, after, count * sizeof *before) == 0;
    free(before);
    free(after);
    fy_optimizer_destroy(sgd);
    fy_loader_destroy(loader);
    fy_dataset_destroy(digits);
    net_close(&net);
    return status;
}

fy_status_t speedup_schedule(session_t *session, speedup_t *out)
{
    /* torch.optim.lr_scheduler.OneCycleLR(max_lr=1, total_steps=10), to six places */
    static const double expected[] = { .04,     .52,     1,       .950485, .811746,
                                       .611262, .388742, .188258, .049519, .000004 };
    double worst = 0, found;
    bool restored;
    fy_schedule_t schedule;
    fy_schedule_defaults(FY_SCHEDULE_ONE_CYCLE, 1, 10, &schedule, sizeof schedule);
    for (int i = 0; i < 10; i++)
        worst = fmax(worst, fabs(fy_schedule_lr(&schedule, i) - expected[i]));
    fy_schedule_defaults(FY_SCHEDULE_ONE_CYCLE, 0.1, STEPS, &schedule, sizeof schedule);
    FY_TRY(fy_schedule_check(&schedule));
    FY_TRY(train(session, 0.05, NULL, &out->without));
    FY_TRY(train(session, 0, &schedule, &out->with));
    FY_TRY(test_range(session, &found, &restored));
    out->ok = worst <= 5.1e-7 && isfinite(out->with) && restored && found > 0;
    snprintf(out->held, sizeof out->held,
             "one cycle of 10 steps up to 1 is .04 .52 1 .950485 ... .000004, to %.0e; the range "
             "test suggests %.2g, %s parameters",
             worst, found, restored ? "the same" : "other");
    return FY_STATUS_OK;
}
