/* The learning rate range test (Smith 2017, "Cyclical learning rates for training neural
 * networks", section 3.3): updates with a growing learning rate, from which nothing remains but the
 * losses.
 * Suggestion and stop rule: lr_find of fastai (Howard and Gugger 2020, "fastai: a layered API"),
 * its rule "steep" and its factor of 4.
 * Not here: one step (trainer_step.c), the learning rate of a step (schedule.c). */
#include "trainer.h"

#include <math.h>
#include <stdlib.h>

#include "train/abi.h"

/* Copies of all tensors that a step changes. Handles belong to the scope of the sweep. */
typedef struct saved {
    size_t count;
    fy_tensor_t **tensors, **copies; /* one array of 2 count */
    fy_loader_info_t data;
    double lr;
    int is_training;
} saved_t;

typedef struct sweep {
    fyt_trainer_t trainer;
    const fy_find_lr_options_t *options;
    fy_lr_point_t *points;
    fy_find_lr_result_t result;
    double mean; /* of losses, with the weight of none for those before the first */
} sweep_t;

/* ---- what is restored ---- */

static size_t list(const fyt_trainer_t *trainer, fy_tensor_t **out_tensors)
{
    const fy_model_info_t *info = &trainer->info;
    fy_tensor_t *const own[] = { info->values, info->grads, info->rng, info->buffers };
    fy_tensor_t *tensor;
    const char *name;
    size_t count = 0;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i]) {
            if (out_tensors) out_tensors[count] = own[i];
            count++;
        }
    for (size_t i = 0;; i++) {
        fy_optimizer_state(trainer->optimizer, i, &name, &tensor);
        if (!tensor) return count;
        if (out_tensors) out_tensors[count] = tensor;
        count++;
    }
}

static fy_status_t save(const fyt_trainer_t *trainer, saved_t *saved)
{
    fy_optimizer_options_t optimizer = FY_OPTIMIZER_OPTIONS_INIT;
    FY_TRY(fy_optimizer_get(trainer->optimizer, &optimizer));
    *saved = (saved_t){ .count = list(trainer, NULL),
                        .data = trainer->data,
                        .lr = optimizer.lr,
                        .is_training = trainer->info.is_training };
    saved->tensors = calloc(saved->count, 2 * sizeof *saved->tensors);
    if (!saved->tensors)
        return FYT_FAIL(OUT_OF_MEMORY, "train_find_lr: no host memory for a list of %zu tensors",
                        saved->count);
    saved->copies = saved->tensors + saved->count;
    list(trainer, saved->tensors);
    FY_TRY(fy_tape_begin(NULL));
    for (size_t i = 0; i < saved->count; i++) {
        fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
        FY_TRY(fy_tensor_query(saved->tensors[i], &info));
        FY_TRY(fy_tensor_create(info.device, info.dtype, info.rank, info.dims, &saved->copies[i]));
        FY_TRY(fy_copy(saved->copies[i], saved->tensors[i]));
    }
    return FY_STATUS_OK;
}

static void keep_first(fy_status_t *status, fy_status_t next)
{
    if (*status == FY_STATUS_OK) *status = next;
}

/* Restores as much as it can; returns the first failure. */
static fy_status_t restore(const fyt_trainer_t *trainer, const saved_t *saved)
{
    fy_status_t status = fy_tape_begin(NULL); /* a failed step leaves one recording */
    for (size_t i = 0; i < saved->count; i++)
        keep_first(&status, fy_copy(saved->tensors[i], saved->copies[i]));
    keep_first(&status, fy_optimizer_set_lr(trainer->optimizer, saved->lr));
    keep_first(&status, fy_loader_seek(trainer->train, saved->data.epoch, saved->data.step));
    fy_model_set_training(trainer->model, saved->is_training);
    return status;
}

/* ---- the sweep ---- */

static fy_status_t one_update(fyt_trainer_t *trainer)
{
    const int64_t before = trainer->step;
    while (trainer->step == before) {
        FY_TRY(fyt_step_run(trainer));
        if (trainer->epoch_step < trainer->data.steps) continue;
        fy_tensor_t *x, *y;
        FY_TRY(fy_loader_next(trainer->train, &x, &y)); /* the end of the epoch */
        trainer->epoch_step = 0;
    }
    FY_TRY(fyt_loss_ask(trainer));
    return fyt_loss_take(trainer, 1);
}

static void add_point(sweep_t *sweep, double lr, double loss)
{
    const double beta = sweep->options->smoothing;
    fy_find_lr_result_t *result = &sweep->result;
    sweep->mean = beta * sweep->mean + (1 - beta) * loss;
    const double smoothed = sweep->mean / (1 - pow(beta, (double)(result->steps + 1)));
    sweep->points[result->steps++] = (fy_lr_point_t){ lr, loss, smoothed };
    if (!isfinite(smoothed) || smoothed > sweep->options->diverge * result->lowest_loss)
        result->is_diverged = 1; /* false beside NaN, the first lowest */
    else if (!(smoothed >= result->lowest_loss)) {
        result->lowest_loss = smoothed;
        result->lowest_lr = lr;
    }
}

static fy_status_t run(sweep_t *sweep)
{
    fyt_trainer_t *trainer = &sweep->trainer;
    const fy_find_lr_options_t *options = sweep->options;
    FY_TRY(fy_loader_seek(trainer->train, trainer->data.epoch, 0));
    FY_TRY(fyt_step_prepare(trainer));
    while (sweep->result.steps < options->steps && !sweep->result.is_diverged &&
           !sweep->result.is_stopped) {
        const double lr = fy_schedule_lr(trainer->options->schedule, trainer->step);
        FY_TRY(one_update(trainer));
        add_point(sweep, lr, trainer->loss);
        sweep->result.is_stopped = options->stop && *options->stop;
    }
    return FY_STATUS_OK;
}

/* lr grows by a constant factor: differences of the smoothed loss are its slope over log(lr). */
static double steepest(const sweep_t *sweep)
{
    const fy_find_lr_result_t *result = &sweep->result;
    const fy_lr_point_t *points = sweep->points;
    double lr = (double)NAN, lowest = 0;
    for (int64_t i = sweep->options->steps / 10 + 1; i + 1 < result->steps; i++) {
        const double slope = points[i + 1].smoothed - points[i - 1].smoothed;
        if (points[i].lr > result->lowest_lr) break;
        if (slope < lowest) lowest = slope, lr = points[i].lr;
    }
    return lr;
}

/* ---- what is refused ---- */

static fy_status_t check(const fy_find_lr_options_t *o)
{
    if (!(o->min_lr > 0) || !(o->max_lr > o->min_lr) || !isfinite(o->max_lr))
        return FYT_FAIL(INVALID_ARGUMENT,
                        "train_find_lr: lr from %g to %g; both finite, the first above 0, the "
                        "second above the first",
                        o->min_lr, o->max_lr);
    if (o->steps < 2 || o->accumulate < 1)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "train_find_lr: steps %lld (at least 2), accumulate %lld (at least 1)",
                        (long long)o->steps, (long long)o->accumulate);
    if (!(o->smoothing >= 0) || !(o->smoothing < 1) || !(o->diverge > 1))
        return FYT_FAIL(INVALID_ARGUMENT,
                        "train_find_lr: smoothing %g (0 or more, below 1), diverge %g (above 1)",
                        o->smoothing, o->diverge);
    if (!(o->clip_norm >= 0) || !(o->clip_value >= 0))
        return FYT_FAIL(INVALID_ARGUMENT, "train_find_lr: clip_norm %g, clip_value %g: 0 is none",
                        o->clip_norm, o->clip_value);
    if ((unsigned)o->loss > FY_LOSS_MSE)
        return FYT_FAIL(INVALID_ARGUMENT, "train_find_lr: there is no loss %d", (int)o->loss);
    return FY_STATUS_OK;
}

static fy_status_t look_up(fyt_trainer_t *trainer)
{
    FY_TRY(fy_model_query(trainer->model, &trainer->info));
    FY_TRY(fy_loader_query(trainer->train, &trainer->data));
    if (trainer->data.steps < 1)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "train_find_lr: the loader has no batches: %llu samples in batches of %lld",
                        (unsigned long long)trainer->data.samples, (long long)trainer->data.batch);
    FY_TRY(fyt_optimizer_check("train_find_lr", trainer));
    /* parts of batches or of the state have no full loss */
    FY_TRY(fyt_replicas_check("train_find_lr", trainer));
    return fyt_loader_check("train_find_lr", trainer->model, trainer->train,
                            trainer->options->loss);
}

fy_status_t fy_train_find_lr(fy_model_t *model, fy_optimizer_t *optimizer, fy_loader_t *train,
                             const fy_find_lr_options_t *options, fy_lr_point_t *points,
                             fy_find_lr_result_t *out_result)
{
    fy_find_lr_options_t own;
    fy_schedule_t schedule;
    saved_t saved = { 0 };
    FY_TRY(FY__READ(find_lr_options, "train_find_lr", options, &own));
    FY_TRY(FY__CHECK_OUT(find_lr_result, "train_find_lr", out_result));
    if (!model || !optimizer || !train || !points)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "train_find_lr: model, optimizer, train or points is NULL");
    FY_TRY(check(&own));
    fy_schedule_defaults(FY_SCHEDULE_RANGE, own.max_lr, own.steps, &schedule, sizeof schedule);
    schedule.min_lr = own.min_lr;
    fy_train_options_t step = FY_TRAIN_OPTIONS_INIT;
    step.accumulate = own.accumulate;
    step.loss = own.loss;
    step.schedule = &schedule;
    step.clip_norm = own.clip_norm;
    step.clip_value = own.clip_value;
    sweep_t sweep = { .trainer = { .model = model,
                                   .optimizer = optimizer,
                                   .train = train,
                                   .options = &step,
                                   .info = FY_MODEL_INFO_INIT,
                                   .data = FY_LOADER_INFO_INIT },
                      .options = &own,
                      .points = points,
                      .result = { .struct_size = sizeof sweep.result,
                                  .lowest_lr = (double)NAN,
                                  .lowest_loss = (double)NAN } };
    FY_TRY(look_up(&sweep.trainer));
    fy_scope_t scope = fy_scope_begin("find_lr");
    fy_status_t status = save(&sweep.trainer, &saved);
    if (status == FY_STATUS_OK) {
        fy_model_set_training(model, 1);
        status = run(&sweep);
        const fy_status_t restored = restore(&sweep.trainer, &saved);
        if (restored != FY_STATUS_OK) status = restored;
    }
    fy_download_destroy(sweep.trainer.reply);
    free(saved.tensors);
    fy_scope_end(scope, 0, NULL);
    if (status != FY_STATUS_OK) return status;
    sweep.result.lr = steepest(&sweep);
    FY__WRITE(out_result, &sweep.result);
    return FY_STATUS_OK;
}
