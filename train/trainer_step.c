/* One step of training: a batch, forward, loss, backward, update; recorded as a graph if requested;
 * and the download of the loss.
 * Not here: epochs, checkpoints, events (trainer.c). */
#include "trainer.h"

#include <math.h>
#include <stdbool.h>

#include "train/optimizer.h"

fy_status_t fyt_loss(fy_loss_kind_t kind, fy_tensor_t *result, fy_tensor_t *target,
                     fy_tensor_t **out_loss)
{
    switch (kind) {
    case FY_LOSS_CROSS_ENTROPY:
        return fy_cross_entropy(result, target, FY_REDUCTION_MEAN, out_loss);
    case FY_LOSS_NLL: return fy_nll_loss(result, target, FY_REDUCTION_MEAN, out_loss);
    case FY_LOSS_MSE: return fy_mse_loss(result, target, out_loss);
    }
    return FYT_FAIL(INVALID_ARGUMENT, "train: there is no loss %d", (int)kind);
}

/* A seed for backward: the share of `own` samples in the `all` of an update; made once, so that no
 * step fills one with 1. */
static fy_status_t make_share(fyt_trainer_t *trainer, int64_t own, int64_t all,
                              fy_tensor_t **out_share)
{
    fy_tensor_info_t values = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(trainer->info.values, &values));
    return fy_full(trainer->info.device, values.dtype, 0, NULL, (double)own / (double)all,
                   out_share);
}

/* Batches of an epoch that are before its last group. */
static int64_t before_last_group(const fyt_trainer_t *trainer)
{
    const int64_t group = trainer->options->accumulate, last = trainer->data.steps - 1;
    return last - last % group;
}

static fy_status_t make_shares(fyt_trainer_t *trainer)
{
    const fy_loader_info_t *data = &trainer->data;
    const fyt_rows_t full = fyt_rows_of(data, 0), last = fyt_rows_of(data, data->steps - 1);
    const int64_t others = data->steps - 1 - before_last_group(trainer);
    const int64_t all = others * full.all + last.all; /* of the last group */
    FY_TRY(make_share(trainer, full.own, trainer->options->accumulate * full.all,
                      &trainer->share[0][0]));
    FY_TRY(make_share(trainer, full.own, all, &trainer->share[1][0]));
    return make_share(trainer, last.own, all, &trainer->share[1][1]);
}

fy_status_t fyt_step_prepare(fyt_trainer_t *trainer)
{
    FY_TRY(fy_tape_create(&trainer->tape));
    FY_TRY(fy_model_watch(trainer->model, trainer->tape));
    FY_TRY(fy_full(trainer->info.device, FY_DTYPE_F32, 0, NULL, trainer->resumed_loss,
                   &trainer->loss_sum));
    fy_tensor_set_name(trainer->loss_sum, "loss_sum");
    FY_TRY(fyt_rescue_prepare(trainer));
    return make_shares(trainer);
}

static bool is_sharded(const fyt_trainer_t *trainer)
{
    return trainer->options->replicas && trainer->options->replicas->shards_optimizer;
}

static bool clips(const fyt_trainer_t *trainer)
{
    return trainer->options->clip_value > 0 || trainer->options->clip_norm > 0;
}

static fy_status_t clip(const fyt_trainer_t *trainer)
{
    fy_tensor_t *grads = trainer->info.grads;
    if (trainer->options->clip_value > 0)
        FY_TRY(fy_grads_clip_value(1, &grads, trainer->options->clip_value));
    const double max_norm = trainer->options->clip_norm;
    const fy_train_replicas_t *replicas = trainer->options->replicas;
    if (!(max_norm > 0)) return FY_STATUS_OK;
    return replicas && replicas->shards_optimizer ? replicas->clip_norm(replicas->user, max_norm)
                                                  : fy_grads_clip_norm(1, &grads, max_norm, NULL);
}

static fy_status_t update(fyt_trainer_t *trainer)
{
    const fy_train_replicas_t *replicas = trainer->options->replicas;
    if (replicas) FY_TRY(replicas->sum_grads(replicas->user));
    fy_scope_t scope = fy_scope_begin("update");
    fy_status_t status = clips(trainer) ? fy_optimizer_unscale(trainer->optimizer) : FY_STATUS_OK;
    if (status == FY_STATUS_OK) status = clip(trainer);
    if (status == FY_STATUS_OK) status = fy_optimizer_step(trainer->optimizer);
    fy_scope_end(scope, 0, NULL);
    FY_TRY(status);
    return is_sharded(trainer) ? replicas->share_values(replicas->user) : FY_STATUS_OK;
}

/* The sum is f32 for every model: the download is 4 bytes. */
static fy_status_t add_loss(fyt_trainer_t *trainer, fy_tensor_t *loss, int64_t samples)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(loss, &info));
    if (info.dtype != FY_DTYPE_F32) FY_TRY(fy_cast(loss, FY_DTYPE_F32, &loss));
    return fy_axpy(trainer->loss_sum, (double)samples, loss);
}

/* The seed for backward: the loss scale times the share of a batch. NULL: 1. */
static fy_status_t make_seed(const fyt_trainer_t *trainer, fy_tensor_t *loss,
                             const fy_tensor_t *share, const fy_tensor_t **out_seed)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    fy_tensor_t *scale;
    *out_seed = share;
    FY_TRY(fy_tensor_query(loss, &info));
    FY_TRY(fy_optimizer_seed(trainer->optimizer, info.dtype, &scale));
    if (!scale) return FY_STATUS_OK;
    if (trainer->options->accumulate > 1 || trainer->options->replicas)
        FY_TRY(fy_mul(scale, share, &scale));
    *out_seed = scale;
    return FY_STATUS_OK;
}

/* `is_last`: the sum over the ranks may begin. */
static fy_status_t go_back(const fyt_trainer_t *trainer, const fy_tensor_t *loss,
                           const fy_backward_options_t *options, int is_last)
{
    const fy_train_replicas_t *replicas = trainer->options->replicas;
    return replicas && replicas->backward && is_last
               ? replicas->backward(replicas->user, trainer->tape, loss, options)
               : fy_model_backward(trainer->model, trainer->tape, loss, options);
}

/* Gradients of a batch, and its loss. `is_first`: gradients start from 0. */
static fy_status_t differentiate(fyt_trainer_t *trainer, fy_tensor_t *x, fy_tensor_t *y,
                                 int64_t samples, const fy_tensor_t *share, int is_first,
                                 int is_last)
{
    fy_tensor_t *result, *loss;
    fy_backward_options_t options = { sizeof options, share, !is_first };
    /* a batch may have fewer samples than there are ranks */
    if (samples == 0) return is_first ? fy_fill(trainer->info.grads, 0) : FY_STATUS_OK;
    FY_TRY(fy_tape_begin(trainer->tape));
    FY_TRY(fy_model_forward(trainer->model, x, &result));
    FY_TRY(fyt_loss(trainer->options->loss, result, y, &loss));
    FY_TRY(make_seed(trainer, loss, share, &options.seed));
    FY_TRY(go_back(trainer, loss, &options, is_last));
    return add_loss(trainer, loss, samples);
}

/* From x and y to an update. `is_last`: of a group of batches. */
static fy_status_t compute(fyt_trainer_t *trainer, fy_tensor_t *x, fy_tensor_t *y, int64_t samples,
                           const fy_tensor_t *share, int is_first, int is_last)
{
    FY_TRY(differentiate(trainer, x, y, samples, share, is_first, is_last));
    return is_last ? update(trainer) : FY_STATUS_OK;
}

/* Outside of a recorded step; a light request each if they differ from the step before. */
static fy_status_t apply_schedule(fyt_trainer_t *trainer)
{
    const fy_schedule_t *schedule = trainer->options->schedule;
    if (!schedule) return FY_STATUS_OK;
    FY_TRY(fy_optimizer_set_lr(trainer->optimizer, fy_schedule_lr(schedule, trainer->step)));
    const double momentum = fy_schedule_momentum(schedule, trainer->step);
    return isnan(momentum) ? FY_STATUS_OK : fy_optimizer_set_momentum(trainer->optimizer, momentum);
}

/* ---- the step as a graph ---- */

static fy_status_t like(const fy_tensor_t *tensor, fy_tensor_t **out_tensor)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(tensor, &info));
    FY_TRY(fy_tensor_create(info.device, info.dtype, info.rank, info.dims, out_tensor));
    fy_tensor_keep(*out_tensor);
    return FY_STATUS_OK;
}

/* Recorded on separate inputs, into which each batch is copied. The trainer keeps all three and
 * destroys them in the end. */
static fy_status_t record(fyt_trainer_t *trainer, fy_tensor_t *x, fy_tensor_t *y, int64_t samples)
{
    FY_TRY(like(x, &trainer->graph_x));
    FY_TRY(like(y, &trainer->graph_y));
    FY_TRY(fy_graph_begin(trainer->info.device));
    FY_TRY(
        compute(trainer, trainer->graph_x, trainer->graph_y, samples, trainer->share[0][0], 1, 1));
    FY_TRY(fy_graph_end(&trainer->graph));
    fy_graph_keep(trainer->graph);
    return FY_STATUS_OK;
}

static fy_status_t replay(fyt_trainer_t *trainer, fy_tensor_t *x, fy_tensor_t *y, int64_t samples)
{
    if (!trainer->graph) FY_TRY(record(trainer, x, y, samples));
    FY_TRY(fy_copy(trainer->graph_x, x));
    FY_TRY(fy_copy(trainer->graph_y, y));
    return fy_graph_replay(trainer->graph, NULL);
}

/* ---- the step ---- */

static fy_status_t run(fyt_trainer_t *trainer)
{
    const int64_t group = trainer->options->accumulate, place = trainer->epoch_step % group;
    const int is_last_group = trainer->epoch_step >= before_last_group(trainer);
    const int is_end = trainer->epoch_step == trainer->data.steps - 1;
    const int is_last = place == group - 1 || is_end;
    const fyt_rows_t rows = fyt_rows_of(&trainer->data, trainer->epoch_step);
    fy_tensor_t *x, *y;
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_loader_next(trainer->train, &x, &y));
    if (!x)
        return FYT_FAIL(INTERNAL, "train: the loader ended after %lld of %lld batches",
                        (long long)trainer->epoch_step, (long long)trainer->data.steps);
    FY_TRY(fy_tensor_query(x, &info));
    if (is_last) FY_TRY(apply_schedule(trainer));
    if (place == 0) FY_TRY(fyt_rescue_begin(trainer));
    FY_TRY(fyt_replicas_draw(trainer));
    /* The first batch runs without the graph: objects that are created once (plans of libraries,
     * for example) are created outside of the graph. */
    if (trainer->options->graph && trainer->batches > 0 && info.dims[0] == trainer->data.batch)
        FY_TRY(replay(trainer, x, y, info.dims[0]));
    else
        FY_TRY(compute(trainer, x, y, info.dims[0], trainer->share[is_last_group][is_end],
                       place == 0, is_last));
    trainer->interval_samples += (double)rows.all;
    trainer->samples += (uint64_t)rows.all;
    trainer->batches++;
    trainer->epoch_step++;
    trainer->step += is_last;
    if (is_last) fyt_rescue_end(trainer);
    return FY_STATUS_OK;
}

fy_status_t fyt_optimizer_check(const char *what, const fyt_trainer_t *trainer)
{
    fy_autocast_info_t around = FY_AUTOCAST_INFO_INIT;
    fy_tensor_info_t values = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_autocast_query(&around));
    FY_TRY(fy_tensor_query(trainer->info.values, &values));
    if (!fyt_optimizer_updates(trainer->optimizer, trainer->info.values))
        return FYT_FAIL(INVALID_ARGUMENT,
                        "%s: the optimizer has no parameter of model '%s': make it by "
                        "fy_optimizer_create_model, for this model",
                        what, trainer->info.name);
    const fy_dtype_t own = trainer->options->precision;
    const fy_dtype_t used = own == FY_DTYPE_F32 ? around.dtype : own;
    if ((used != FY_DTYPE_F16 && values.dtype != FY_DTYPE_F16) ||
        fyt_optimizer_scales(trainer->optimizer))
        return FY_STATUS_OK;
    return FYT_FAIL(INVALID_ARGUMENT,
                    "%s: steps compute in f16, where gradients below 6e-8 are 0, and the optimizer "
                    "has no loss_scaling\n  Make it with loss_scaling, or compute in bf16",
                    what);
}

fy_status_t fyt_step_run(fyt_trainer_t *trainer)
{
    const fy_dtype_t precision = trainer->options->precision;
    fy_scope_t scope = fy_scope_begin("step");
    fy_status_t status = precision == FY_DTYPE_F32 ? FY_STATUS_OK : fy_autocast_set(precision);
    if (status == FY_STATUS_OK) status = run(trainer);
    fy_scope_end(scope, 0, NULL);
    return status;
}

/* ---- the loss on its way ---- */

/* A failure leaves the download with the trainer, which destroys it when it ends. */
static fy_status_t take(fyt_trainer_t *trainer, int waits)
{
    double sum = 0;
    int is_done = 1;
    FY_TRY(fy_download_try_f64(trainer->reply, &is_done, &sum)); /* no sync, if it is there */
    if (!is_done && !waits) return FY_STATUS_OK;
    if (!is_done) FY_TRY(fy_download_wait_f64(trainer->reply, FY_FOREVER, &sum));
    trainer->reply = NULL;
    trainer->loss = sum / trainer->reply_samples;
    trainer->loss_step = trainer->reply_step;
    trainer->epoch_loss += sum;
    trainer->epoch_samples += trainer->reply_samples;
    return FY_STATUS_OK;
}

fy_status_t fyt_loss_take(fyt_trainer_t *trainer, int waits)
{
    if (!trainer->reply) return FY_STATUS_OK;
    fy_scope_t scope = fy_scope_begin("loss");
    fy_status_t status = take(trainer, waits);
    fy_scope_end(scope, 0, NULL);
    return status;
}

fy_status_t fyt_loss_ask(fyt_trainer_t *trainer)
{
    if (trainer->interval_samples == 0) return FY_STATUS_OK;
    FY_TRY(fyt_loss_take(trainer, 1));
    const fy_train_replicas_t *replicas = trainer->options->replicas;
    fy_scope_t scope = fy_scope_begin("loss");
    fy_status_t status = FY_STATUS_OK;
    if (replicas) status = replicas->sum(replicas->user, trainer->loss_sum);
    if (status == FY_STATUS_OK)
        status = fy_tensor_download(trainer->loss_sum, NULL, &trainer->reply);
    if (status == FY_STATUS_OK) {
        fy_download_keep(trainer->reply); /* it outlives the scope, and perhaps the epoch */
        trainer->reply_samples = trainer->interval_samples;
        trainer->reply_step = trainer->step;
        trainer->interval_samples = 0;
        status = fy_fill(trainer->loss_sum, 0);
    }
    fy_scope_end(scope, 0, NULL);
    return status;
}

/* loss_sum keeps its value, so that a checkpoint changes no later loss. With replicas, rank 0's has
 * those of all ranks from then on, as after a resume. */
fy_status_t fyt_loss_save(fyt_trainer_t *trainer, fy_progress_t *progress)
{
    const fy_train_replicas_t *replicas = trainer->options->replicas;
    fy_tensor_t *sum = trainer->loss_sum;
    fy_download_t *reply;
    FY_TRY(fyt_loss_take(trainer, 1));
    progress->loss_sum = trainer->epoch_loss;
    progress->loss_samples = trainer->epoch_samples;
    progress->interval_samples = trainer->interval_samples;
    if (trainer->interval_samples == 0) return FY_STATUS_OK;
    if (replicas) FY_TRY(replicas->sum(replicas->user, sum));
    FY_TRY(fy_tensor_download(sum, NULL, &reply));
    FY_TRY(fy_download_wait_f64(reply, FY_FOREVER, &progress->interval_loss_sum));
    return replicas && replicas->rank > 0 ? fy_fill(sum, 0) : FY_STATUS_OK;
}

void fyt_loss_resume(fyt_trainer_t *trainer, const fy_progress_t *progress)
{
    const fy_train_replicas_t *replicas = trainer->options->replicas;
    const int is_known = progress->loss_samples + progress->interval_samples > 0;
    trainer->epoch_loss = is_known ? progress->loss_sum : (double)NAN;
    trainer->epoch_samples = progress->loss_samples;
    trainer->interval_samples = progress->interval_samples;
    if (!replicas || replicas->rank == 0) trainer->resumed_loss = progress->interval_loss_sum;
}
