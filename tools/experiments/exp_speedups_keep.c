/* Rows of `ferry experiment speedups` about what a record keeps for the backward: activation
 * checkpointing and offloading, with gradients of the same bits. Bytes are counted, so they are the
 * same in every run. Not here: the table of rows (exp_speedups.c), how (fy_tape_recompute,
 * fy_tape_offload). */
#include <stdlib.h>
#include <string.h>

#include "tools/experiments/exp_speedups.h"

enum { BATCH = 8, SIZE = 16 };

typedef struct kept {
    double nbytes; /* in use after the forward, beyond what was before it */
    float *grads;
    uint64_t count;
    double loss;
} kept_t;

static fy_status_t live(session_t *session, double *out_nbytes)
{
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    FY_TRY(fy_device_wait(session->device, FY_FOREVER));
    FY_TRY(fy_memory_query(session->device, NULL, &stats));
    *out_nbytes = (double)stats.live;
    return FY_STATUS_OK;
}

static fy_status_t run_step(session_t *session, fy_model_t *model, kept_t *out)
{
    fy_tensor_t *rng, *x, *y, *logits, *loss;
    fy_tape_t *tape;
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    double before, after;
    FY_TRY(fy_model_query(model, &info));
    FY_TRY(fy_rng_create(session->device, 5, &rng));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(BATCH, SIZE, SIZE, 1), -1, 1, &x));
    FY_TRY(fy_full(session->device, FY_DTYPE_I32, FY_DIMS(BATCH), 3, &y));
    FY_TRY(fy_tape_create(&tape));
    FY_TRY(fy_model_watch(model, tape));
    FY_TRY(live(session, &before));
    FY_TRY(fy_tape_begin(tape));
    FY_TRY(fy_model_forward(model, x, &logits));
    FY_TRY(fy_cross_entropy(logits, y, FY_REDUCTION_MEAN, &loss));
    FY_TRY(live(session, &after));
    FY_TRY(fy_model_backward(model, tape, loss, NULL));
    FY_TRY(fetch_f32(info.grads, &out->grads, &out->count));
    FY_TRY(fetch_f64(loss, &out->loss));
    out->nbytes = after - before;
    return FY_STATUS_OK;
}

static fy_status_t look(session_t *session, int recompute, int offload, kept_t *out)
{
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    fy_model_t *model;
    options.recompute = recompute;
    options.offload = offload;
    FY_TRY(
        fy_model_open(session->device, "resnet18:channels=1,classes=10,size=16", &options, &model));
    const fy_scope_t scope = fy_scope_begin("step");
    const fy_status_t status = run_step(session, model, out);
    fy_scope_end(scope, 0, NULL);
    fy_model_destroy(model);
    return status;
}

static fy_status_t compare(session_t *session, int recompute, int offload, speedup_t *out)
{
    kept_t plain = { 0 }, less = { 0 };
    fy_status_t status = look(session, 0, 0, &plain);
    if (status == FY_STATUS_OK) status = look(session, recompute, offload, &less);
    if (status == FY_STATUS_OK) {
        out->without = plain.nbytes;
        out->with = less.nbytes;
        out->ok = plain.loss == less.loss && plain.count == less.count &&
                  memcmp(plain.grads, less.grads, plain.count * sizeof *plain.grads) == 0;
        snprintf(out->held, sizeof out->held,
                 "%.0f %% fewer bytes; the loss and %llu gradients have the same bits",
                 100 * (1 - less.nbytes / plain.nbytes), (unsigned long long)plain.count);
    }
    free(plain.grads);
    free(less.grads);
    return status;
}

/* ---- 8: activation checkpointing ---- */

fy_status_t speedup_recompute(session_t *session, speedup_t *out)
{
    FY_TRY(compare(session, FY_RECOMPUTE_SQRT, 0, out));
    out->ok &= out->with <= 0.6 * out->without;
    return FY_STATUS_OK;
}

/* ---- 19: offloading; the host has no other memory to offload to ---- */

fy_status_t speedup_offload(session_t *session, speedup_t *out)
{
    const bool is_host = session->device == fy_device_host();
    FY_TRY(compare(session, 0, 8, out));
    out->ok &= is_host ? out->with == out->without : out->with <= 0.6 * out->without;
    if (is_host)
        snprintf(out->held, sizeof out->held, "nothing is offloaded from the host; same bits");
    return FY_STATUS_OK;
}
