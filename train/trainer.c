/* The training loop: epochs of steps, recorded losses, evaluation on the test set, checkpoints,
 * resuming, stopping.
 * Not here: a step (trainer_step.c), evaluation (trainer_evaluate.c).
 * include/ferry/train/trainer.h documents each call. */
#include "trainer.h"

#include <math.h>

#include "runtime/base/posix.h"
#include "train/abi.h"
#include "train/checkpoint.h"
#include "train/model.h"

/* ---- time and figures ---- */

/* The clock of the steps stops during other work. */
static void clock_stop(fyt_trainer_t *trainer)
{
    if (trainer->begin_ns) trainer->wall_ns += fy__now_ns() - trainer->begin_ns;
    trainer->begin_ns = 0;
}

static void clock_start(fyt_trainer_t *trainer) { trainer->begin_ns = fy__now_ns(); }

static double samples_per_s(const fyt_trainer_t *trainer)
{
    const uint64_t ns = trainer->wall_ns +
                        (trainer->begin_ns ? fy__now_ns() - trainer->begin_ns : 0);
    return ns ? (double)trainer->samples * 1e9 / (double)ns : 0;
}

static uint64_t device_allocs(void)
{
    fy_ledger_totals_t totals = FY_LEDGER_TOTALS_INIT;
    return fy_ledger_query(NULL, &totals) == FY_STATUS_OK ? totals.device_allocs : 0;
}

static fy_status_t tell(fyt_trainer_t *trainer, int is_epoch_end)
{
    fy_optimizer_options_t optimizer = FY_OPTIMIZER_OPTIONS_INIT;
    if (!trainer->options->on_event) return FY_STATUS_OK;
    FY_TRY(fy_optimizer_get(trainer->optimizer, &optimizer));
    const fy_train_event_t event = { .struct_size = sizeof event,
                                     .epoch = trainer->epoch,
                                     .epochs = trainer->options->epochs,
                                     .epoch_step = trainer->epoch_step,
                                     .epoch_steps = trainer->data.steps,
                                     .step = trainer->step,
                                     .loss = trainer->loss,
                                     .loss_step = trainer->loss_step,
                                     .lr = optimizer.lr,
                                     .samples_per_s = samples_per_s(trainer),
                                     .is_epoch_end = is_epoch_end,
                                     .test_loss = is_epoch_end ? trainer->test_loss : (double)NAN,
                                     .test_accuracy = is_epoch_end ? trainer->test_accuracy
                                                                   : (double)NAN };
    return trainer->options->on_event(trainer->options->user, &event);
}

/* ---- checkpoints ---- */

fy_status_t fyt_progress(const fyt_trainer_t *trainer, fy_progress_t *out_progress)
{
    fy_optimizer_options_t optimizer = FY_OPTIMIZER_OPTIONS_INIT;
    FY_TRY(fy_optimizer_get(trainer->optimizer, &optimizer));
    *out_progress = (fy_progress_t){ .struct_size = sizeof *out_progress,
                                     .step = trainer->step,
                                     .epoch = trainer->epoch,
                                     .epoch_step = trainer->epoch_step,
                                     .seed = trainer->data.seed,
                                     .lr = optimizer.lr,
                                     .momentum = optimizer.momentum };
    return FY_STATUS_OK;
}

static fy_status_t save(fyt_trainer_t *trainer)
{
    fy_progress_t progress;
    if (!trainer->options->checkpoint || trainer->saved_step == trainer->step) return FY_STATUS_OK;
    clock_stop(trainer);
    FY_TRY(fyt_replicas_share(trainer));
    const uint64_t allocs = device_allocs();
    FY_TRY(fyt_progress(trainer, &progress));
    fy_scope_t scope = fy_scope_begin("checkpoint");
    fy_status_t status = fyt_loss_save(trainer, &progress);
    if (status == FY_STATUS_OK)
        status = fyt_replicas_save(trainer->options->checkpoint, trainer->model, trainer->optimizer,
                                   trainer->options->replicas, &progress, trainer->options->keep);
    fy_scope_end(scope, 0, NULL);
    if (status == FY_STATUS_OK) trainer->saved_step = trainer->step;
    trainer->allocs_apart += device_allocs() - allocs;
    clock_start(trainer);
    return status;
}

/* Within a group, the gradients of its first batches are not there. */
static fy_status_t check_place(const fyt_trainer_t *trainer)
{
    const int64_t group = trainer->options->accumulate, place = trainer->epoch_step;
    if (place % group == 0 || place == trainer->data.steps) return FY_STATUS_OK;
    return FYT_FAIL(INVALID_ARGUMENT,
                    "train_run: the next batch is %lld of its epoch, within an update of %lld "
                    "batches\n  Begin at batch %lld (fy_loader_seek), or resume with the former "
                    "accumulate",
                    (long long)place, (long long)group, (long long)(place - place % group));
}

static fy_status_t resume(fyt_trainer_t *trainer)
{
    fy_progress_t progress = FY_PROGRESS_INIT;
    if (!trainer->options->checkpoint) return FY_STATUS_OK;
    /* a folder that cannot be made is reported before an epoch is lost */
    FY_TRY(fyt_folder_make(trainer->options->checkpoint));
    if (!trainer->options->resume) return FY_STATUS_OK;
    fy_scope_t scope = fy_scope_begin("checkpoint");
    fy_status_t status = fy_checkpoint_load(trainer->options->checkpoint, trainer->model,
                                            trainer->optimizer, &progress);
    fy_scope_end(scope, 0, NULL);
    if (status == FY_STATUS_UNAVAILABLE) /* there is none yet: a beginning */
        return check_place(trainer);
    FY_TRY(status);
    if (progress.seed != trainer->data.seed)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "train: the checkpoint was made with seed %lld of the data's order, and "
                        "the loader has %lld",
                        (long long)progress.seed, (long long)trainer->data.seed);
    if (progress.epoch_step >= trainer->data.steps)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "train: the checkpoint stands at batch %lld of an epoch, and this data set "
                        "has %lld: another one, or another batch size",
                        (long long)progress.epoch_step, (long long)trainer->data.steps);
    trainer->step = trainer->saved_step = progress.step;
    trainer->epoch = progress.epoch;
    trainer->epoch_step = progress.epoch_step;
    FY_TRY(check_place(trainer));
    fyt_loss_resume(trainer, &progress);
    return fy_loader_seek(trainer->train, trainer->epoch, trainer->epoch_step);
}

/* ---- the loop ---- */

/* The loader fills the batches that this call will request, and no other: their number is known. */
static fy_status_t limit_loader(const fyt_trainer_t *trainer)
{
    const fy_train_options_t *options = trainer->options;
    /* an epoch */
    const int64_t steps = trainer->data.steps, group = options->accumulate,
                  updates = (steps + group - 1) / group;
    const int64_t place = trainer->epoch * steps + trainer->epoch_step;
    int64_t end = options->epochs > INT64_MAX / steps ? INT64_MAX : options->epochs * steps;
    if (options->max_steps > trainer->step && options->max_steps - trainer->step < (end - place)) {
        const int64_t update = trainer->epoch * updates + trainer->epoch_step / group +
                               options->max_steps - trainer->step;
        const int64_t limit = update / updates * steps + update % updates * group;
        if (limit < end) end = limit;
    }
    return fy_loader_limit(trainer->train, end > place ? end - place : 0);
}

static int limit_reached(const fyt_trainer_t *trainer)
{
    return trainer->options->max_steps > 0 && trainer->step >= trainer->options->max_steps;
}

static fy_status_t look_at_test(fyt_trainer_t *trainer)
{
    if (!trainer->test) return FY_STATUS_OK;
    clock_stop(trainer);
    const uint64_t allocs = device_allocs();
    FY_TRY(fyt_replicas_share(trainer));
    fy_status_t status = fyt_evaluate(trainer->model, trainer->test, trainer->options->loss,
                                      trainer->options->replicas, &trainer->test_loss,
                                      &trainer->test_accuracy);
    if (status == FY_STATUS_OK) status = limit_loader(trainer); /* `test` may be `train` */
    trainer->allocs_apart += device_allocs() - allocs;
    clock_start(trainer);
    return status;
}

/* The first loss may need page-locked memory, and that is no step's. */
static fy_status_t ask_for_loss(fyt_trainer_t *trainer)
{
    const uint64_t allocs = device_allocs();
    FY_TRY(fyt_loss_ask(trainer));
    trainer->allocs_apart += device_allocs() - allocs;
    return FY_STATUS_OK;
}

/* Batches until a pool has all segments: small blocks lie elsewhere in the first steps, so that
 * large ones need other places. The most that was seen is 6 (resnet18, batches of 8, AVX-512). */
enum { SETTLING = 8 };

/* What follows a step: the loss, an event, a checkpoint, the end. In a group of batches all but the
 * event wait for its last. */
static fy_status_t after_step(fyt_trainer_t *trainer)
{
    const fy_train_options_t *options = trainer->options;
    const int is_update = trainer->epoch_step % options->accumulate == 0 ||
                          trainer->epoch_step == trainer->data.steps;
    if (trainer->batches == SETTLING) {
        trainer->allocs_before = device_allocs();
        trainer->allocs_apart = 0;
    }
    if (is_update && options->log_every > 0 && trainer->step % options->log_every == 0)
        FY_TRY(ask_for_loss(trainer));
    FY_TRY(fyt_loss_take(trainer, 0));
    FY_TRY(tell(trainer, 0));
    if (is_update && options->stop) {
        int stops = *options->stop != 0;
        FY_TRY(fyt_replicas_agree(trainer, &stops));
        trainer->is_stopped |= stops;
    }
    trainer->is_done |= trainer->is_stopped || (is_update && limit_reached(trainer));
    if (is_update && !trainer->is_done && trainer->epoch_step < trainer->data.steps &&
        options->checkpoint_every > 0 && trainer->step % options->checkpoint_every == 0)
        FY_TRY(save(trainer));
    return FY_STATUS_OK;
}

static fy_status_t epoch_end(fyt_trainer_t *trainer)
{
    fy_tensor_t *x, *y;
    FY_TRY(ask_for_loss(trainer));
    /* the device is done with the epoch's steps then, and the clock has all of them */
    FY_TRY(fyt_loss_take(trainer, 1));
    /* the end, which is said once */
    if (trainer->epoch_step == trainer->data.steps) FY_TRY(fy_loader_next(trainer->train, &x, &y));
    return FY_STATUS_OK;
}

static fy_status_t run_epoch(fyt_trainer_t *trainer)
{
    if (trainer->epoch_step == 0) trainer->epoch_loss = trainer->epoch_samples = 0;
    while (!trainer->is_done && trainer->epoch_step < trainer->data.steps) {
        FY_TRY(fyt_step_run(trainer));
        FY_TRY(after_step(trainer));
    }
    return epoch_end(trainer);
}

/* One download, of 8 bytes, for a training with loss scaling. */
static fy_status_t count_skipped(fyt_trainer_t *trainer)
{
    fy_scope_t scope = fy_scope_begin("loss_scaling");
    const fy_status_t status = fy_optimizer_query_skipped(trainer->optimizer, &trainer->skipped);
    fy_scope_end(scope, 0, NULL);
    return status;
}

static fy_status_t run(fyt_trainer_t *trainer)
{
    FY_TRY(resume(trainer));
    FY_TRY(limit_loader(trainer));
    FY_TRY(fyt_replicas_begin(trainer));
    FY_TRY(fyt_step_prepare(trainer));
    clock_start(trainer);
    trainer->is_done = limit_reached(trainer);
    while (!trainer->is_done && trainer->epoch < trainer->options->epochs) {
        fy_scope_t scope = fy_scope_begin("epoch");
        fy_status_t status = run_epoch(trainer);
        fy_scope_end(scope, 0, NULL);
        FY_TRY(status);
        if (trainer->epoch_step == trainer->data.steps) {
            trainer->epoch++;
            trainer->epoch_step = 0;
        }
        if (!trainer->is_stopped) FY_TRY(look_at_test(trainer));
        FY_TRY(tell(trainer, 1));
        const int64_t every = trainer->options->checkpoint_every;
        if (trainer->is_done || every == 0 || trainer->step % every == 0 ||
            trainer->epoch == trainer->options->epochs)
            FY_TRY(save(trainer));
    }
    clock_stop(trainer);
    return count_skipped(trainer);
}

static void fill_result(const fyt_trainer_t *trainer, fy_train_result_t *out)
{
    fy_train_result_t own = { .struct_size = sizeof own,
                              .steps = trainer->step,
                              .epochs = trainer->epoch,
                              .train_loss = trainer->epoch_samples > 0
                                                ? trainer->epoch_loss / trainer->epoch_samples
                                                : (double)NAN,
                              .test_loss = trainer->test_loss,
                              .test_accuracy = trainer->test_accuracy,
                              .wall_ns = trainer->wall_ns,
                              .samples_per_s = samples_per_s(trainer),
                              .is_stopped = trainer->is_stopped,
                              .skipped_steps = trainer->skipped };
    fy_graph_info_t graph = FY_GRAPH_INFO_INIT;
    if (trainer->graph && fy_graph_query(trainer->graph, &graph) == FY_STATUS_OK) {
        own.graph_requests = graph.requests;
        own.graph_replays = graph.replays;
        own.graph_path = graph.path;
    }
    if (trainer->batches > SETTLING)
        own.device_allocs_steady = device_allocs() - trainer->allocs_before - trainer->allocs_apart;
    FY__WRITE(out, &own);
}

/* ---- what is refused ---- */

static fy_status_t check_graph(const fy_train_options_t *options)
{
    if (!options->graph) return FY_STATUS_OK;
    if (options->accumulate > 1)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "train_run: a graph is one whole step; accumulate is %lld",
                        (long long)options->accumulate);
    if (options->schedule && !isnan(fy_schedule_momentum(options->schedule, 0)))
        return FYT_FAIL(INVALID_ARGUMENT,
                        "train_run: a graph keeps the momentum that it was recorded with, and "
                        "schedule '%s' changes it: set "
                        "base_momentum and max_momentum to 0",
                        fy_schedule_name(options->schedule->kind));
    return FY_STATUS_OK;
}

static fy_status_t check(const fyt_trainer_t *trainer, const fy_train_options_t *options,
                         const fy_train_result_t *out_result)
{
    if (out_result) FY_TRY(FY__CHECK_OUT(train_result, "train_run", out_result));
    if (!trainer->model || !trainer->optimizer || !trainer->train)
        return FYT_FAIL(INVALID_ARGUMENT, "train_run: model, optimizer or train is NULL");
    if (options->epochs < 1 || options->accumulate < 1 || options->keep < 1 ||
        options->max_steps < 0 || options->log_every < 0 || options->checkpoint_every < 0)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "train_run: epochs %lld, accumulate %lld, keep %d (at least 1), max_steps "
                        "%lld, log_every %lld, checkpoint_every "
                        "%lld (at least 0)",
                        (long long)options->epochs, (long long)options->accumulate, options->keep,
                        (long long)options->max_steps, (long long)options->log_every,
                        (long long)options->checkpoint_every);
    if (!options->checkpoint && (options->resume || options->checkpoint_every > 0))
        return FYT_FAIL(INVALID_ARGUMENT,
                        "train_run: resume %d, checkpoint_every %lld, and checkpoint is NULL: name "
                        "the folder of the checkpoints",
                        options->resume, (long long)options->checkpoint_every);
    if (!(options->clip_norm >= 0) || !(options->clip_value >= 0))
        return FYT_FAIL(INVALID_ARGUMENT, "train_run: clip_norm %g, clip_value %g: 0 is none",
                        options->clip_norm, options->clip_value);
    if ((unsigned)options->loss > FY_LOSS_MSE)
        return FYT_FAIL(INVALID_ARGUMENT, "train_run: there is no loss %d", (int)options->loss);
    if (options->precision != FY_DTYPE_F32 && options->precision != FY_DTYPE_BF16 &&
        options->precision != FY_DTYPE_F16)
        return FYT_FAIL(INVALID_ARGUMENT, "train_run: precision is %s; f32, bf16 or f16",
                        fy_dtype_name(options->precision));
    if (options->schedule) FY_TRY(fy_schedule_check(options->schedule));
    return check_graph(options);
}

static fy_status_t look_up(fyt_trainer_t *trainer)
{
    FY_TRY(fy_model_query(trainer->model, &trainer->info));
    FY_TRY(fy_loader_query(trainer->train, &trainer->data));
    if (trainer->data.steps < 1)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "train_run: the loader has no batches: %llu samples in batches of %lld",
                        (unsigned long long)trainer->data.samples, (long long)trainer->data.batch);
    FY_TRY(fyt_optimizer_check("train_run", trainer));
    FY_TRY(fyt_loader_check("train_run", trainer->model, trainer->train, trainer->options->loss));
    if (trainer->test)
        FY_TRY(fyt_loader_check("train_run, test set", trainer->model, trainer->test,
                                trainer->options->loss));
    if (trainer->options->graph && trainer->model->nends)
        return FYT_FAIL(INVALID_ARGUMENT, "train_run: the model offloads what its backward needs, "
                                          "and waits for it: such a step cannot be a graph");
    FY_TRY(fyt_replicas_check("train_run", trainer));
    trainer->epoch = trainer->data.epoch;
    trainer->epoch_step = trainer->data.step;
    return trainer->options->resume ? FY_STATUS_OK : check_place(trainer);
}

fy_status_t fy_train_run(fy_model_t *model, fy_optimizer_t *optimizer, fy_loader_t *train,
                         fy_loader_t *test, const fy_train_options_t *options,
                         fy_train_result_t *out_result)
{
    fy_train_options_t own;
    fy_train_replicas_t replicas;
    FY_TRY(FY__READ(train_options, "train_run", options, &own));
    if (own.replicas) {
        FY_TRY(FY__READ(train_replicas, "train_run", own.replicas, &replicas));
        own.replicas = &replicas;
    }
    fyt_trainer_t trainer = { .model = model,
                              .optimizer = optimizer,
                              .train = train,
                              .test = test,
                              .options = &own,
                              .info = FY_MODEL_INFO_INIT,
                              .data = FY_LOADER_INFO_INIT,
                              .loss = (double)NAN,
                              .loss_step = -1,
                              .saved_step = -1,
                              .test_loss = (double)NAN,
                              .test_accuracy = (double)NAN };
    FY_TRY(check(&trainer, trainer.options, out_result));
    FY_TRY(look_up(&trainer));
    fy_model_set_training(model, 1);
    fy_scope_t scope = fy_scope_begin("train");
    fy_status_t status = run(&trainer);
    if (status != FY_STATUS_OK) status = fyt_rescue_save(&trainer, status);
    fy_scope_end(scope, 0, NULL);
    const fy_status_t unlimited = fy_loader_limit(train, 0);
    if (status == FY_STATUS_OK) status = unlimited;
    if (status == FY_STATUS_OK && out_result) fill_result(&trainer, out_result);
    fy_download_destroy(trainer.reply);
    fy_graph_destroy(trainer.graph);
    fy_tensor_destroy(trainer.graph_x);
    fy_tensor_destroy(trainer.graph_y);
    fy_tensor_destroy(trainer.draws);
    fy_model_set_training(model, 0);
    return status;
}
