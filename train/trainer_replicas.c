/* A training together with other processes: weights of shards, a stop that all ranks agree on,
 * checkpoints. fy_train_options_t.replicas has the calls; libferry_dist makes them.
 * Not here: the texts that the ranks compare (trainer_text.c). Next: trainer_step.c. */
#include "trainer.h"

#include "train/abi.h"
#include "train/checkpoint.h"

fyt_rows_t fyt_rows_of(const fy_loader_info_t *data, int64_t step)
{
    const int64_t left = (int64_t)data->samples - step * data->batch;
    fyt_rows_t rows = { .all = left < data->batch ? left : data->batch };
    rows.own = rows.all * (data->shard + 1) / data->shards - rows.all * data->shard / data->shards;
    return rows;
}

static fy_status_t check_shard(const char *call, const fy_train_replicas_t *replicas,
                               const fy_loader_info_t *data, const char *what)
{
    const int ranks = replicas ? replicas->ranks : 1, rank = replicas ? replicas->rank : 0;
    if (data->shards == ranks && data->shard == rank) return FY_STATUS_OK;
    return FYT_FAIL(INVALID_ARGUMENT,
                    "%s: the %s loader has shard %d of %d, and this is rank %d of %d: set "
                    "rank and ranks of its options",
                    call, what, data->shard, data->shards, rank, ranks);
}

/* A part of the state is of use only if the other ranks have the others. */
static fy_status_t check_optimizer(const char *call, const fy_train_replicas_t *replicas,
                                   fy_optimizer_t *optimizer)
{
    const int is_shard = fyt_optimizer_is_shard(optimizer);
    const int64_t shards = replicas ? replicas->shards_optimizer : 0;
    if (replicas && shards &&
        (!replicas->clip_norm || !replicas->share_values || !replicas->collect))
        return FYT_FAIL(INVALID_ARGUMENT,
                        "%s: shards_optimizer is %lld, and a call of replicas is NULL", call,
                        (long long)shards);
    if (is_shard && !shards)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "%s: the optimizer updates %llu of the model's %llu elements, and "
                        "no other process updates the rest: set shard_optimizer of "
                        "fy_ddp_options_t and replicas, or use fy_optimizer_create_model",
                        call, (unsigned long long)fyt_optimizer_ranges(optimizer)->nelem,
                        (unsigned long long)fyt_optimizer_ranges(optimizer)->whole);
    if (shards && replicas->ranks > 1 && !is_shard)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "%s: replicas divide the optimizer's state over %d ranks, and this "
                        "optimizer has all of it: make it by fy_ddp_create_optimizer",
                        call, replicas->ranks);
    return FY_STATUS_OK;
}

/* A rank without a sample runs no forward, and the others would wait for its statistics. */
static fy_status_t check_norms(const char *call, const fyt_trainer_t *trainer)
{
    const fy_train_replicas_t *replicas = trainer->options->replicas;
    const fy_loader_info_t *data = &trainer->data;
    const int64_t last = fyt_rows_of(data, data->steps - 1).all;
    if (!replicas || !replicas->syncs_norms || last >= replicas->ranks) return FY_STATUS_OK;
    return FYT_FAIL(INVALID_ARGUMENT,
                    "%s: batch norms of all ranks need a sample on each of %d ranks, and the "
                    "last batch of an epoch has %lld: %llu samples in batches of %lld\n  Use "
                    "another batch, drop_last of fy_loader_options_t, or sync_batch_norm 0",
                    call, replicas->ranks, (long long)last, (unsigned long long)data->samples,
                    (long long)data->batch);
}

fy_status_t fyt_replicas_check(const char *call, const fyt_trainer_t *trainer)
{
    const fy_train_replicas_t *replicas = trainer->options->replicas;
    fy_loader_info_t test = FY_LOADER_INFO_INIT;
    if (replicas &&
        (!replicas->begin || !replicas->sum_grads || !replicas->sum || !replicas->share_buffers))
        return FYT_FAIL(INVALID_ARGUMENT, "%s: a call of replicas is NULL", call);
    FY_TRY(check_optimizer(call, replicas, trainer->optimizer));
    FY_TRY(check_shard(call, replicas, &trainer->data, "training"));
    FY_TRY(check_norms(call, trainer));
    if (trainer->test) {
        FY_TRY(fy_loader_query(trainer->test, &test));
        FY_TRY(check_shard(call, replicas, &test, "test"));
    }
    if (!replicas || !trainer->options->graph) return FY_STATUS_OK;
    return FYT_FAIL(
        INVALID_ARGUMENT,
        "%s: replicas exchange gradients in each step, which a graph cannot replay: set graph to 0",
        call);
}

fy_status_t fyt_replicas_begin(fyt_trainer_t *trainer)
{
    const fy_train_replicas_t *replicas = trainer->options->replicas;
    char text[4096];
    if (!replicas) return FY_STATUS_OK;
    FY_TRY(fyt_replicas_text(trainer, text, sizeof text));
    fy_scope_t scope = fy_scope_begin("replicas");
    const fy_status_t status = replicas->begin(replicas->user, text);
    fy_scope_end(scope, 0, NULL);
    return status;
}

fy_status_t fyt_replicas_draw(fyt_trainer_t *trainer)
{
    const double batch = (double)trainer->epoch * (double)trainer->data.steps +
                         (double)trainer->epoch_step;
    if (!trainer->options->replicas || trainer->options->replicas->ranks == 1) return FY_STATUS_OK;
    if (!trainer->draws) {
        FY_TRY(fy_slice(trainer->info.rng, 0, 1, 2, &trainer->draws));
        fy_tensor_keep(trainer->draws);
    }
    return fy_fill(trainer->draws, batch * 0x1p32);
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

fy_status_t fyt_replicas_save(const char *directory, fy_model_t *model, fy_optimizer_t *optimizer,
                              const fy_train_replicas_t *replicas, const fy_progress_t *progress,
                              int keep)
{
    const fyt_collect_t collect = { .is_writer = replicas && replicas->rank == 0,
                                    .user = replicas ? replicas->user : NULL,
                                    .collect = replicas ? replicas->collect : NULL };
    if (replicas && replicas->rank > 0 && !replicas->shards_optimizer) return FY_STATUS_OK;
    return fyt_checkpoint_save(directory, model, optimizer, progress, keep,
                               replicas && replicas->shards_optimizer ? &collect : NULL);
}

fy_status_t fy_train_save(const char *directory, fy_model_t *model, fy_optimizer_t *optimizer,
                          const fy_train_replicas_t *replicas, const fy_progress_t *progress,
                          int keep)
{
    fy_train_replicas_t own;
    if (replicas) {
        FY_TRY(FY__READ(train_replicas, "train_save", replicas, &own));
        replicas = &own;
        FY_TRY(check_optimizer("train_save", replicas, optimizer));
    }
    return fyt_replicas_save(directory, model, optimizer, replicas, progress, keep);
}
