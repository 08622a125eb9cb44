/* A training together with other processes: weights of shards, texts that the ranks compare, a stop
 * that all ranks agree on. fy_train_options_t.replicas has the calls; libferry_dist makes them.
 * Next: trainer_step.c. */
#include "trainer.h"

#include <stdio.h>

fyt_rows_t fyt_rows_of(const fy_loader_info_t *data, int64_t step)
{
    const int64_t left = (int64_t)data->samples - step * data->batch;
    fyt_rows_t rows = { .all = left < data->batch ? left : data->batch };
    rows.own = rows.all * (data->shard + 1) / data->shards - rows.all * data->shard / data->shards;
    return rows;
}

static fy_status_t check_shard(const fy_train_replicas_t *replicas, const fy_loader_info_t *data,
                               const char *what)
{
    const int ranks = replicas ? replicas->ranks : 1, rank = replicas ? replicas->rank : 0;
    if (data->shards == ranks && data->shard == rank) return FY_STATUS_OK;
    return FYT_FAIL(INVALID_ARGUMENT,
                    "train_run: the %s loader has shard %d of %d, and this is rank %d of %d: set "
                    "rank and ranks of its options",
                    what, data->shard, data->shards, rank, ranks);
}

fy_status_t fyt_replicas_check(const fyt_trainer_t *trainer)
{
    const fy_train_replicas_t *replicas = trainer->options->replicas;
    fy_loader_info_t test = FY_LOADER_INFO_INIT;
    if (replicas &&
        (!replicas->begin || !replicas->sum_grads || !replicas->sum || !replicas->share_buffers))
        return FYT_FAIL(INVALID_ARGUMENT, "train_run: a call of replicas is NULL");
    FY_TRY(check_shard(replicas, &trainer->data, "training"));
    if (trainer->test) {
        FY_TRY(fy_loader_query(trainer->test, &test));
        FY_TRY(check_shard(replicas, &test, "test"));
    }
    if (!replicas || !trainer->options->graph) return FY_STATUS_OK;
    return FYT_FAIL(INVALID_ARGUMENT, "train_run: replicas exchange gradients in each step, which "
                                      "a graph cannot replay: set graph to 0");
}

/* The optimizer's options, the schedule and the position, a line each. */
static void write_text(const fyt_trainer_t *trainer, const fy_optimizer_options_t *o, char *text,
                       size_t size)
{
    const fy_train_options_t *t = trainer->options;
    const fy_loader_info_t *data = &trainer->data;
    const fy_schedule_t *s = t->schedule;
    int at = snprintf(
        text, size,
        "position: epoch %lld, batch %lld, update %lld\n"
        "data: %llu samples in batches of %lld, %lld an epoch, seed %lld\n"
        "training: epochs %lld, max_steps %lld, accumulate %lld, loss %d, precision %s\n"
        "clipping: clip_norm %.17g, clip_value %.17g\n"
        "rhythm: log_every %lld, checkpoint_every %lld, checkpoint %d, test %d, stop %d\n"
        "optimizer: %s, lr %.17g, weight_decay %.17g, momentum %.17g, dampening %.17g, "
        "nesterov %d, beta1 %.17g, beta2 %.17g, rho %.17g, eps %.17g, decay_min_rank %lld\n",
        (long long)trainer->epoch, (long long)trainer->epoch_step, (long long)trainer->step,
        (unsigned long long)data->samples, (long long)data->batch, (long long)data->steps,
        (long long)data->seed, (long long)t->epochs, (long long)t->max_steps,
        (long long)t->accumulate, (int)t->loss, fy_dtype_name(t->precision), t->clip_norm,
        t->clip_value, (long long)t->log_every, (long long)t->checkpoint_every, !!t->checkpoint,
        !!trainer->test, !!t->stop, fy_optimizer_name(o->kind), o->lr, o->weight_decay, o->momentum,
        o->dampening, o->nesterov, o->beta1, o->beta2, o->rho, o->eps,
        (long long)o->decay_min_rank);
    if (s && at > 0 && (size_t)at < size)
        snprintf(text + at, size - (size_t)at,
                 "schedule: %s, rate %.17g at updates 0, %.17g at 100, %.17g at 10000\n",
                 fy_schedule_name(s->kind), fy_schedule_lr(s, 0), fy_schedule_lr(s, 100),
                 fy_schedule_lr(s, 10000));
}

fy_status_t fyt_replicas_begin(fyt_trainer_t *trainer)
{
    const fy_train_replicas_t *replicas = trainer->options->replicas;
    fy_optimizer_options_t optimizer = FY_OPTIMIZER_OPTIONS_INIT;
    char text[2048];
    if (!replicas) return FY_STATUS_OK;
    FY_TRY(fy_optimizer_get(trainer->optimizer, &optimizer));
    write_text(trainer, &optimizer, text, sizeof text);
    fy_scope_t scope = fy_scope_begin("replicas");
    const fy_status_t status = replicas->begin(replicas->user, text);
    fy_scope_end(scope, 0, NULL);
    return status;
}

static fy_status_t sum_flag(const fy_train_replicas_t *replicas, int *flag)
{
    fy_tensor_t *host;
    void *data;
    FY_TRY(fy_tensor_create(fy_device_host(), FY_DTYPE_I32, 0, NULL, &host));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_READ_WRITE, &data));
    *(int32_t *)data = *flag;
    FY_TRY(replicas->sum(replicas->user, host));
    *flag = *(int32_t *)data != 0;
    return FY_STATUS_OK;
}

fy_status_t fyt_replicas_agree(const fyt_trainer_t *trainer, int *flag)
{
    const fy_train_replicas_t *replicas = trainer->options->replicas;
    if (!replicas) return FY_STATUS_OK;
    fy_scope_t scope = fy_scope_begin("stop");
    const fy_status_t status = sum_flag(replicas, flag);
    fy_scope_end(scope, 0, NULL);
    return status;
}

fy_status_t fyt_replicas_share(const fyt_trainer_t *trainer)
{
    const fy_train_replicas_t *replicas = trainer->options->replicas;
    return replicas ? replicas->share_buffers(replicas->user) : FY_STATUS_OK;
}
