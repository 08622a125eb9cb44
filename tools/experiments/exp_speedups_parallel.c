/* Row 10 of `ferry experiment speedups`: data-parallel training on several simulated devices, with
 * gradient accumulation. Gradients are summed over the devices after each part of a batch, or
 * (no_sync) once after the last part; in one call, or in buckets from the last layer to the first.
 * Not here: the table of rows (exp_speedups.c), the sum (train/parallel.c). */
#include <stdlib.h>
#include <string.h>

#include "tools/experiments/exp_speedups.h"
#include "tools/network/overlap.h"

/* DEVICE: the number of the first one, so that the session's own device is none of them. */
enum { DEVICES = 4, DEVICE = 8, BATCH = 256, PARTS = 4, STEPS = 2, MOST_PARAMS = 16 };
/* Small, so that the network's 407 KB of gradients make several. */
enum { FIRST_NBYTES = 4 << 10, BUCKET_MOST_NBYTES = 64 << 10 };

typedef struct replicas {
    fy_device_t *devices[DEVICES];
    net_t nets[DEVICES];
    fy_tensor_t *sums[DEVICES];                   /* of the gradients of all parts of a batch */
    size_t nbuckets;                              /* of the blocks of gradients */
    int64_t begin[MOST_PARAMS], end[MOST_PARAMS]; /* elements of each, in the order of backward */
} replicas_t;

typedef struct way {
    bool buckets, no_sync;
} way_t;

typedef struct trained {
    float *values;
    uint64_t count, peer_nbytes;
    size_t nbuckets;
    bool replicas_are_equal;
} trained_t;

/* Parameters are in the block in the order of the layers: the backward completes them from the end
 * of the block to its begin. */
static fy_status_t cut_block(const net_t *net, replicas_t *r)
{
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    fy_tensor_info_t block = FY_TENSOR_INFO_INIT;
    uint64_t nbytes[MOST_PARAMS], offset[MOST_PARAMS];
    size_t ends[MOST_PARAMS];
    FY_TRY(fy_model_query(net->model, &info));
    FY_TRY(fy_tensor_query(net->grads, &block));
    if (info.nparams > MOST_PARAMS)
        return TOOL_FAIL(INTERNAL, "mlp has %zu parameters", info.nparams);
    for (size_t i = 0; i < info.nparams; i++) {
        const size_t p = info.nparams - 1 - i;
        fy_param_t param = FY_PARAM_INIT;
        fy_tensor_info_t grad = FY_TENSOR_INFO_INIT;
        FY_TRY(fy_model_param(net->model, p, &param));
        FY_TRY(fy_tensor_query(param.grad, &grad));
        nbytes[i] = grad.nbytes;
        offset[i] = grad.offset_nbytes - block.offset_nbytes;
    }
    r->nbuckets = buckets_cut(info.nparams, nbytes, FIRST_NBYTES, BUCKET_MOST_NBYTES, 0, ends);
    for (size_t b = 0; b < r->nbuckets; b++) {
        r->begin[b] = (int64_t)(offset[ends[b] - 1] / sizeof(float));
        r->end[b] = b ? r->begin[b - 1] : (int64_t)block.nelem;
    }
    return FY_STATUS_OK;
}

static fy_status_t open_replicas(replicas_t *r)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    for (int i = 0; i < DEVICES; i++) {
        char spec[16];
        snprintf(spec, sizeof spec, "sim:%d", DEVICE + i);
        FY_TRY(fy_device_open(spec, &r->devices[i]));
        FY_TRY(net_open(r->devices[i], BATCH, &r->nets[i]));
        FY_TRY(fy_tensor_query(r->nets[i].grads, &info));
        FY_TRY(fy_zeros(r->devices[i], info.dtype, info.rank, info.dims, &r->sums[i]));
    }
    return cut_block(&r->nets[0], r);
}

static void close_replicas(replicas_t *r)
{
    for (int i = 0; i < DEVICES; i++) net_close(&r->nets[i]);
    for (int i = 0; i < DEVICES; i++) fy_device_close(r->devices[i]);
}

static fy_status_t all_reduce(replicas_t *r, const way_t *way)
{
    fy_tensor_t *grads[DEVICES];
    for (int i = 0; i < DEVICES; i++) grads[i] = r->nets[i].grads;
    if (!way->buckets) return fy_allreduce_sum(DEVICES, grads);
    for (size_t b = 0; b < r->nbuckets; b++) {
        fy_tensor_t *views[DEVICES];
        for (int i = 0; i < DEVICES; i++)
            FY_TRY(fy_slice(grads[i], 0, r->begin[b], r->end[b], &views[i]));
        FY_TRY(fy_allreduce_sum(DEVICES, views));
    }
    return FY_STATUS_OK;
}

/* Each device computes PARTS parts of its shard. */
static fy_status_t step(replicas_t *r, const way_t *way)
{
    enum { SHARD = BATCH / DEVICES, PART = SHARD / PARTS };
    for (int part = 0; part < PARTS; part++) {
        const fy_backward_options_t options = { sizeof options, NULL, way->no_sync && part > 0 };
        for (int i = 0; i < DEVICES; i++) {
            fy_tensor_t *loss;
            const int64_t begin = i * SHARD + part * PART;
            FY_TRY(net_gradient(&r->nets[i], begin, begin + PART, &options, &loss));
        }
        if (way->no_sync) continue;
        FY_TRY(all_reduce(r, way));
        for (int i = 0; i < DEVICES; i++) {
            if (!part) FY_TRY(fy_fill(r->sums[i], 0));
            FY_TRY(fy_axpy(r->sums[i], 1, r->nets[i].grads));
        }
    }
    if (way->no_sync) FY_TRY(all_reduce(r, way));
    for (int i = 0; i < DEVICES; i++)
        FY_TRY(fy_axpy(r->nets[i].values, -0.1, way->no_sync ? r->nets[i].grads : r->sums[i]));
    return FY_STATUS_OK;
}

static fy_status_t compare(const replicas_t *r, trained_t *out)
{
    out->replicas_are_equal = true;
    FY_TRY(fetch_f32(r->nets[0].values, &out->values, &out->count));
    for (int i = 1; i < DEVICES; i++) {
        float *other = NULL;
        uint64_t count;
        FY_TRY(fetch_f32(r->nets[i].values, &other, &count));
        out->replicas_are_equal &= memcmp(out->values, other, out->count * sizeof *other) == 0;
        free(other);
    }
    return FY_STATUS_OK;
}

static fy_status_t train(const way_t *way, trained_t *out)
{
    replicas_t r = { 0 };
    const fy_scope_t scope = fy_scope_begin("replicas");
    fy_status_t status = open_replicas(&r);
    const uint64_t before = ledger_read(NULL).peer.nbytes;
    for (int i = 0; i < STEPS && status == FY_STATUS_OK; i++) {
        const fy_scope_t inner = fy_scope_begin("step");
        status = step(&r, way);
        fy_scope_end(inner, 0, NULL);
    }
    out->peer_nbytes = (ledger_read(NULL).peer.nbytes - before) / STEPS;
    out->nbuckets = r.nbuckets;
    if (status == FY_STATUS_OK) status = compare(&r, out);
    fy_scope_end(scope, 0, NULL);
    close_replicas(&r);
    return status;
}

fy_status_t speedup_parallel(session_t *session, speedup_t *out)
{
    enum { PLAIN, PLAIN_ONCE, BUCKETS, BUCKETS_ONCE, WAYS };
    static const way_t ways[WAYS] = {
        { false, false }, { false, true }, { true, false }, { true, true }
    };
    trained_t all[WAYS] = { 0 };
    bool replicas_are_equal = true;
    fy_status_t status = FY_STATUS_OK;
    (void)session;
    for (int i = 0; i < WAYS && status == FY_STATUS_OK; i++) {
        status = train(&ways[i], &all[i]);
        replicas_are_equal &= all[i].replicas_are_equal;
    }
    if (status == FY_STATUS_OK) {
        const size_t nbytes = all[PLAIN].count * sizeof(float);
        const bool is_same = memcmp(all[PLAIN].values, all[BUCKETS].values, nbytes) == 0 &&
                             memcmp(all[PLAIN_ONCE].values, all[BUCKETS_ONCE].values, nbytes) == 0;
        const double distance =
            relative_distance(all[PLAIN].values, all[BUCKETS_ONCE].values, all[PLAIN].count);
        out->without = (double)all[BUCKETS].peer_nbytes;
        out->with = (double)all[BUCKETS_ONCE].peer_nbytes;
        out->ok = is_same && replicas_are_equal && distance <= 1e-5 && out->with > 0 &&
                  out->without == PARTS * out->with &&
                  all[PLAIN].peer_nbytes == all[BUCKETS].peer_nbytes &&
                  all[PLAIN_ONCE].peer_nbytes == all[BUCKETS_ONCE].peer_nbytes;
        snprintf(out->held, sizeof out->held,
                 "%d devices: %zu buckets or one call: %s bits; replicas %s; no_sync moves 1/%d of "
                 "the bytes, parameters to %.1e (1e-5)",
                 DEVICES, all[BUCKETS].nbuckets, is_same ? "the same" : "other",
                 replicas_are_equal ? "equal" : "differ", PARTS, distance);
    }
    for (int i = 0; i < WAYS; i++) free(all[i].values);
    return status;
}
