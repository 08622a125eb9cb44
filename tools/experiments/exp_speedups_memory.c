/* Rows of `ferry experiment speedups` about memory: the largest batch, batches in parts, validation
 * without gradients. Bytes are planned or counted, so they are the same in every run. Not here: the
 * table of rows (exp_speedups.c). */
#include <math.h>
#include <stdlib.h>

#include "tools/experiments/exp_speedups.h"

/* A training step of the small network over `batch` samples, in parts of at most `user` (int64_t *;
 * NULL: in one). */
static fy_status_t plan_step(fy_device_t *device, int64_t batch, void *user)
{
    net_t net;
    const int64_t part = user ? *(const int64_t *)user : batch;
    const fy_scope_t scope = fy_scope_begin("net");
    fy_status_t status = net_open(device, batch, &net);
    for (int64_t begin = 0; begin < batch && status == FY_STATUS_OK; begin += part) {
        fy_tensor_t *loss;
        const fy_backward_options_t options = { sizeof options, NULL, begin > 0 };
        const fy_scope_t step = fy_scope_begin("step");
        status =
            net_gradient(&net, begin, begin + part < batch ? begin + part : batch, &options, &loss);
        fy_scope_end(step, 0, NULL);
    }
    if (status == FY_STATUS_OK) status = net_descend(&net, 0.1);
    fy_scope_end(scope, 0, NULL);
    net_close(&net);
    return status;
}

/* ---- 3: the largest batch ---- */

fy_status_t speedup_largest_batch(session_t *session, speedup_t *out)
{
    static const char spec[] = "sim?limit=32MiB";
    (void)session;
    int64_t most, power = 1;
    fy_plan_t fits = FY_PLAN_INIT, too_large = FY_PLAN_INIT;
    FY_TRY(fy_plan_fit(spec, plan_step, NULL, 1 << 16, &most, NULL));
    while (power * 2 <= most) power *= 2;
    FY_TRY(fy_plan_step(spec, plan_step, NULL, most, NULL, &fits));
    FY_TRY(fy_plan_step(spec, plan_step, NULL, most + 1, NULL, &too_large));
    out->without = (double)power;
    out->with = (double)most;
    out->ok = fits.fits && !too_large.fits && most < 1 << 16;
    snprintf(out->held, sizeof out->held,
             "in 32 MiB %lld fit and %lld do not; lr scales by %.3f with it; planned, nothing ran "
             "out of memory",
             (long long)most, (long long)most + 1, (double)most / (double)power);
    return FY_STATUS_OK;
}

/* ---- 9: a batch in parts ---- */

enum { WHOLE = 512, PARTS = 8 };

static fy_status_t gradient_in_parts(session_t *session, int64_t part, float **out_grads,
                                     uint64_t *out_count)
{
    net_t net;
    fy_status_t status = net_open(session->device, WHOLE, &net);
    for (int64_t begin = 0; begin < WHOLE && status == FY_STATUS_OK; begin += part) {
        fy_tensor_t *loss;
        const fy_backward_options_t options = { sizeof options, NULL, begin > 0 };
        status = net_gradient(&net, begin, begin + part, &options, &loss);
    }
    if (status == FY_STATUS_OK) status = fetch_f32(net.grads, out_grads, out_count);
    net_close(&net);
    return status;
}

fy_status_t speedup_accumulate(session_t *session, speedup_t *out)
{
    float *whole = NULL, *parts = NULL;
    uint64_t count;
    int64_t part = WHOLE / PARTS;
    fy_plan_t plans[2] = { FY_PLAN_INIT, FY_PLAN_INIT };
    FY_TRY(fy_plan_step("sim", plan_step, NULL, WHOLE, NULL, &plans[0]));
    FY_TRY(fy_plan_step("sim", plan_step, &part, WHOLE, NULL, &plans[1]));
    const double batch_nbytes = WHOLE * 784 * sizeof(float);
    out->without = (double)plans[0].peak_by_category[FY_CATEGORY_ACTIVATIONS] - batch_nbytes;
    out->with = (double)plans[1].peak_by_category[FY_CATEGORY_ACTIVATIONS] - batch_nbytes;
    fy_status_t status = gradient_in_parts(session, WHOLE, &whole, &count);
    if (status == FY_STATUS_OK) status = gradient_in_parts(session, part, &parts, &count);
    if (status == FY_STATUS_OK) {
        const double distance = relative_distance(whole, parts, count);
        out->ok = distance <= 1e-5;
        snprintf(out->held, sizeof out->held,
                 "gradients of %d x %d samples are those of %d to %.1e (1e-5)", PARTS,
                 WHOLE / PARTS, WHOLE, distance);
    }
    free(whole);
    free(parts);
    return status;
}

/* ---- 16: no gradient in validation ---- */

/* Live bytes that a forward leaves behind while its result is held, and what the tape has saved. */
static fy_status_t look_forward(net_t *net, int records, double *out_nbytes, uint64_t *out_saved,
                                float **out_logits, uint64_t *out_count)
{
    fy_memory_stats_t before = FY_MEMORY_STATS_INIT, after = FY_MEMORY_STATS_INIT;
    fy_tape_info_t info = FY_TAPE_INFO_INIT;
    fy_tensor_t *logits;
    const fy_scope_t scope = fy_scope_begin("look");
    FY_TRY(fy_memory_query(net->device, NULL, &before));
    FY_TRY(fy_tape_begin(records ? net->tape : NULL));
    FY_TRY(fy_model_forward(net->model, net->x, &logits));
    FY_TRY(fy_device_wait(net->device, FY_FOREVER));
    FY_TRY(fy_memory_query(net->device, NULL, &after));
    FY_TRY(fy_tape_query(net->tape, &info));
    FY_TRY(fetch_f32(logits, out_logits, out_count));
    fy_scope_end(scope, 0, NULL);
    *out_nbytes = (double)after.live - (double)before.live;
    *out_saved = info.saved;
    return FY_STATUS_OK;
}

fy_status_t speedup_no_grad(session_t *session, speedup_t *out)
{
    net_t net;
    float *logits[2] = { NULL, NULL };
    uint64_t saved[2], count = 0;
    fy_status_t status = net_open(session->device, 256, &net);
    if (status == FY_STATUS_OK) fy_model_set_training(net.model, 0);
    if (status == FY_STATUS_OK)
        status = look_forward(&net, 0, &out->with, &saved[0], &logits[0], &count);
    if (status == FY_STATUS_OK)
        status = look_forward(&net, 1, &out->without, &saved[1], &logits[1], &count);
    if (status == FY_STATUS_OK) {
        out->ok = saved[0] == 0 && saved[1] > 0 &&
                  relative_distance(logits[1], logits[0], count) == 0;
        snprintf(out->held, sizeof out->held, "%llu tensors saved, not %llu; the same %llu results",
                 (unsigned long long)saved[0], (unsigned long long)saved[1],
                 (unsigned long long)count);
    }
    free(logits[0]);
    free(logits[1]);
    net_close(&net);
    return status;
}
