/* Data-parallel training: a model's gradients in buckets, its replicas made equal, and the calls
 * that fy_train_run makes. Next: shard.c. */
#include "dist/ddp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/scope.h>
#include <ferry/transfer.h>

#include "runtime/base/abi.h"

#define DDP_OPTIONS(X) X(ddp_options, DDP_OPTIONS, bucket_nbytes)
#define DDP_FACTS(X)   X(ddp_info, DDP_INFO, reductions)
DDP_OPTIONS(FY__ABI_ROW)
DDP_FACTS(FY__ABI_ROW)
DDP_OPTIONS(FY__ABI_INIT_FUNCTION)
FY__ABI_FOREIGN_ROW(train_replicas, TRAIN_REPLICAS, share_buffers)

/* ---- buckets ---- */

/* Where the gradient of parameter i begins, in elements of the block; behind the last: its end. */
static fy_status_t start_of(const fy_ddp_t *ddp, size_t i, int64_t *out_start)
{
    fy_param_t param = FY_PARAM_INIT;
    fy_tensor_info_t all = FY_TENSOR_INFO_INIT, grad = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(ddp->info.grads, &all));
    *out_start = (int64_t)all.nelem;
    if (i == ddp->info.nparams) return FY_STATUS_OK;
    FY_TRY(fy_model_param(ddp->model, i, &param));
    FY_TRY(fy_tensor_query(param.grad, &grad));
    *out_start = (int64_t)((grad.offset_nbytes - all.offset_nbytes) / fy_dtype_size(all.dtype));
    return FY_STATUS_OK;
}

/* In order of the backward: from the last parameter to the first. */
static fy_status_t cut(fy_ddp_t *ddp)
{
    const fy_ddp_options_t *options = &ddp->options;
    fy_tensor_info_t all = FY_TENSOR_INFO_INIT;
    int64_t start;
    size_t tail = 0; /* parameters of the last bucket; all or none: it is not separate */
    FY_TRY(fy_tensor_query(ddp->info.grads, &all));
    const uint64_t element = fy_dtype_size(all.dtype);
    for (; tail < ddp->info.nparams; tail++) {
        FY_TRY(start_of(ddp, tail + 1, &start));
        if ((uint64_t)start * element > options->last_bucket_nbytes) break;
    }
    ddp->starts[0] = (int64_t)all.nelem;
    for (size_t i = ddp->info.nparams; i-- > 0;) {
        FY_TRY(start_of(ddp, i, &start));
        const uint64_t nbytes = (uint64_t)(ddp->starts[ddp->nbuckets] - start) * element;
        const uint64_t most = ddp->nbuckets ? options->bucket_nbytes : options->first_bucket_nbytes;
        ddp->buckets[ddp->nbuckets].nparams++;
        if (nbytes < most && i > 0 && i != tail) continue;
        ddp->starts[++ddp->nbuckets] = i ? start : 0;
    }
    return FY_STATUS_OK;
}

static fy_status_t reduce_bucket(fy_ddp_t *ddp, size_t b)
{
    fy_tensor_t *part;
    if (fyd_shards(ddp)) return fyd_shard_reduce(ddp, b);
    FY_TRY(fy_slice(ddp->info.grads, 0, ddp->starts[b + 1], ddp->starts[b], &part));
    return fy_group_all_reduce(ddp->group, part, FY_GROUP_SUM);
}

fy_status_t fy_ddp_reduce(fy_ddp_t *ddp)
{
    fy_status_t status = FY_STATUS_OK;
    if (!ddp) return FYD_FAIL(INVALID_ARGUMENT, "ddp_reduce: ddp is NULL");
    fy_scope_t scope = fy_scope_begin("reduce");
    const size_t nstarted = ddp->nstarted; /* during the backward; these are the first calls */
    status = fyd_overlap_finish(ddp);
    for (size_t b = nstarted; status == FY_STATUS_OK && b < ddp->nbuckets; b++)
        status = reduce_bucket(ddp, b);
    fy_scope_end(scope, 0, NULL);
    if (status == FY_STATUS_OK) ddp->reductions++;
    return status;
}

/* ---- equal replicas ---- */

/* {seed, counter}: as rank 0's, with another seed. Once, so the two copies are no matter. */
static fy_status_t share_rng(const fy_ddp_t *ddp)
{
    fy_download_t *download;
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    fy_tensor_t *host;
    fy_ticket_t ticket;
    void *data;
    FY_TRY(fy_group_broadcast(ddp->group, ddp->info.rng, 0));
    if (ddp->group->transport.rank == 0) return FY_STATUS_OK;
    FY_TRY(fy_tensor_download(ddp->info.rng, NULL, &download));
    FY_TRY(fy_download_wait(download, FY_FOREVER, &host));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_READ_WRITE, &data));
    ((int64_t *)data)[0] += ddp->group->transport.rank;
    return fy_tensor_upload_into(ddp->info.rng, host, &options, &ticket);
}

static fy_status_t share_all(fy_ddp_t *ddp)
{
    FY_TRY(fy_group_broadcast(ddp->group, ddp->info.values, 0));
    FY_TRY(fy_ddp_share_buffers(ddp));
    return share_rng(ddp);
}

static fy_status_t share_model(fy_ddp_t *ddp)
{
    fy_scope_t scope = fy_scope_begin("replicate");
    const fy_status_t status = share_all(ddp);
    fy_scope_end(scope, 0, NULL);
    return status;
}

fy_status_t fy_ddp_share_buffers(fy_ddp_t *ddp)
{
    if (!ddp) return FYD_FAIL(INVALID_ARGUMENT, "ddp_share_buffers: ddp is NULL");
    return ddp->info.buffers ? fy_group_broadcast(ddp->group, ddp->info.buffers, 0) : FY_STATUS_OK;
}

/* With another sync_batch_norm a rank would wait for calls that the others do not make. */
static fy_status_t compare_models(const fy_ddp_t *ddp)
{
    enum { OPTIONS = 32 };
    const size_t size = OPTIONS + fy_model_describe(ddp->model, NULL, 0) + 1;
    char *text = malloc(size);
    if (!text) return FYD_FAIL(OUT_OF_MEMORY, "ddp_create: no host memory for %zu bytes", size);
    const int length =
        snprintf(text, OPTIONS, "sync_batch_norm %d\n", ddp->options.sync_batch_norm != 0);
    fy_model_describe(ddp->model, text + length, size - (size_t)length);
    const fy_status_t status = fy_group_compare(ddp->group, text);
    free(text);
    return status;
}

/* ---- batch norms of all ranks ---- */

static fy_status_t gather_norms(void *user, fy_tensor_t *all, fy_tensor_t *part)
{
    return fy_group_all_gather(((fy_ddp_t *)user)->group, all, part);
}

static fy_status_t on_sum(void *user, fy_tensor_t *tensor)
{
    return fy_group_all_reduce(((fy_ddp_t *)user)->group, tensor, FY_GROUP_SUM);
}

static bool syncs_norms(const fy_ddp_t *ddp)
{
    return ddp->options.sync_batch_norm && ddp->group->transport.size > 1;
}

static fy_status_t sync_norms(fy_ddp_t *ddp)
{
    const fy_norm_exchange_t exchange = { sizeof exchange, ddp->group->transport.size, ddp,
                                          gather_norms, on_sum };
    return syncs_norms(ddp) ? fy_model_sync_norms(ddp->model, &exchange) : FY_STATUS_OK;
}

/* ---- for fy_train_run ---- */

/* A checkpoint may have been read since fy_ddp_create. */
static fy_status_t on_begin(void *user, const char *text)
{
    fy_ddp_t *ddp = user;
    FY_TRY(fy_group_compare(ddp->group, text));
    return share_model(ddp);
}

static fy_status_t on_backward(void *user, fy_tape_t *tape, const fy_tensor_t *loss,
                               const fy_backward_options_t *options)
{
    return fy_ddp_backward(user, tape, loss, options);
}

static fy_status_t on_sum_grads(void *user) { return fy_ddp_reduce(user); }

static fy_status_t on_share_buffers(void *user) { return fy_ddp_share_buffers(user); }

static fy_status_t on_clip_norm(void *user, double max_norm)
{
    return fy_ddp_clip_norm(user, max_norm);
}

static fy_status_t on_share_values(void *user) { return fy_ddp_share_values(user); }

static fy_status_t on_collect(void *user, fy_tensor_t *part, fy_tensor_t *whole)
{
    return fyd_shard_collect(user, part, whole);
}

static int is_lost(void *user, int rank)
{
    const fy_ddp_t *ddp = user;
    return fyd_is_lost(ddp->group, rank);
}

fy_status_t fy_ddp_replicas(fy_ddp_t *ddp, fy_train_replicas_t *out_replicas)
{
    FY_TRY(FY__CHECK_OUT(train_replicas, "ddp_replicas", out_replicas));
    if (!ddp) return FYD_FAIL(INVALID_ARGUMENT, "ddp_replicas: ddp is NULL");
    const fy_train_replicas_t replicas = { .struct_size = sizeof replicas,
                                           .rank = ddp->group->transport.rank,
                                           .ranks = ddp->group->transport.size,
                                           .user = ddp,
                                           .begin = on_begin,
                                           .sum_grads = on_sum_grads,
                                           .sum = on_sum,
                                           .backward = on_backward,
                                           .share_buffers = on_share_buffers,
                                           .shards_optimizer = fyd_shards(ddp),
                                           .syncs_norms = syncs_norms(ddp),
                                           .clip_norm = on_clip_norm,
                                           .share_values = on_share_values,
                                           .collect = on_collect,
                                           .is_lost = is_lost };
    FY__WRITE(out_replicas, &replicas);
    return FY_STATUS_OK;
}

/* ---- from begin to end ---- */

static fy_status_t prepare(fy_ddp_t *ddp)
{
    fy_tensor_info_t values = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_model_query(ddp->model, &ddp->info));
    FY_TRY(fy_tensor_query(ddp->info.values, &values));
    if (values.dtype != FY_DTYPE_F32 && values.dtype != FY_DTYPE_F64)
        return FYD_FAIL(DTYPE_MISMATCH,
                        "ddp_create: the parameters are %s; sums over ranks take "
                        "f32 and f64",
                        fy_dtype_name(values.dtype));
    ddp->starts = calloc(ddp->info.nparams + 1, sizeof *ddp->starts);
    ddp->buckets = calloc(ddp->info.nparams + 1, sizeof *ddp->buckets);
    if (!ddp->starts || !ddp->buckets)
        return FYD_FAIL(OUT_OF_MEMORY, "ddp_create: no host memory for buckets");
    FY_TRY(cut(ddp));
    FY_TRY(compare_models(ddp));
    if (!ddp->group->device) FY_TRY(fy_group_use_device(ddp->group, values.device));
    FY_TRY(share_model(ddp));
    return sync_norms(ddp);
}

fy_status_t fy_ddp_create(fy_group_t *group, fy_model_t *model, const fy_ddp_options_t *options,
                          fy_ddp_t **out_ddp)
{
    fy_ddp_options_t own;
    if (!out_ddp) return FYD_FAIL(INVALID_ARGUMENT, "ddp_create: out_ddp is NULL");
    *out_ddp = NULL;
    FY_TRY(FY__READ(ddp_options, "ddp_create", options, &own));
    if (!group || !model)
        return FYD_FAIL(INVALID_ARGUMENT, "ddp_create: %s is NULL", group ? "model" : "group");
    fy_ddp_t *ddp = calloc(1, sizeof *ddp);
    if (!ddp) return FYD_FAIL(OUT_OF_MEMORY, "ddp_create: no host memory");
    *ddp = (fy_ddp_t){ .group = group, .model = model, .options = own, .info = FY_MODEL_INFO_INIT };
    const fy_status_t status = prepare(ddp);
    if (status != FY_STATUS_OK) {
        fy_ddp_destroy(ddp);
        return status;
    }
    *out_ddp = ddp;
    return FY_STATUS_OK;
}

void fy_ddp_destroy(fy_ddp_t *ddp)
{
    if (!ddp) return;
    const fy_error_t error = *fy_error_get(); /* it stays: the caller may report it later */
    if (fyd_overlap_finish(ddp) != FY_STATUS_OK && error.status != FY_STATUS_OK)
        (void)!fy_error_set(error.status, error.file, error.line, "%s", error.text);
    if (syncs_norms(ddp)) (void)!fy_model_sync_norms(ddp->model, NULL);
    free(ddp->starts);
    free(ddp->buckets);
    free(ddp);
}

fy_status_t fy_ddp_query(const fy_ddp_t *ddp, fy_ddp_info_t *out_info)
{
    fy_ddp_info_t info = FY_DDP_INFO_INIT;
    fy_tensor_info_t grads = FY_TENSOR_INFO_INIT;
    FY_TRY(FY__CHECK_OUT(ddp_info, "ddp_query", out_info));
    if (!ddp) return FYD_FAIL(INVALID_ARGUMENT, "ddp_query: ddp is NULL");
    FY_TRY(fy_tensor_query(ddp->info.grads, &grads));
    info.buckets = ddp->nbuckets;
    for (size_t b = 0; b < ddp->nbuckets; b++) {
        const uint64_t nbytes = (uint64_t)(ddp->starts[b] - ddp->starts[b + 1]) *
                                fy_dtype_size(grads.dtype);
        if (nbytes > info.largest_bucket_nbytes) info.largest_bucket_nbytes = nbytes;
    }
    info.reductions = ddp->reductions;
    FY__WRITE(out_info, &info);
    return FY_STATUS_OK;
}
