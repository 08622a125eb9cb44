/* Rows of `ferry experiment speedups` about one training step: one request for all parameters,
 * gradients that need no zeroing, debug tools that are off, clipping on the device. Not here: the
 * table of rows (exp_speedups.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/experiments/exp_speedups.h"

/* ---- 5: one request for all parameters ---- */

enum { ADAM_STEPS = 3, MOST_PARAMS = 16 };
static const double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, lr = 0.01;

/* A model with made-up gradients, and Adam's state beside each parameter and beside all of them. */
typedef struct adam {
    fy_model_t *model;
    fy_model_info_t info;
    fy_tensor_t *rate, *number[1 + MOST_PARAMS], *first[1 + MOST_PARAMS], *second[1 + MOST_PARAMS];
} adam_t;

static fy_status_t adam_open(fy_device_t *device, adam_t *a)
{
    fy_tensor_t *rng, *noise;
    *a = (adam_t){ .info = FY_MODEL_INFO_INIT };
    FY_TRY(fy_model_open(device, "mnist2018", NULL, &a->model));
    FY_TRY(fy_model_query(a->model, &a->info));
    if (a->info.nparams > MOST_PARAMS)
        return TOOL_FAIL(INTERNAL, "mnist2018 has %zu parameters", a->info.nparams);
    FY_TRY(fy_rng_create(device, 8, &rng));
    for (size_t i = 0; i <= a->info.nparams; i++) {
        fy_param_t param = FY_PARAM_INIT;
        fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
        if (i) FY_TRY(fy_model_param(a->model, i - 1, &param));
        FY_TRY(fy_tensor_query(i ? param.value : a->info.values, &info));
        FY_TRY(fy_zeros(device, info.dtype, info.rank, info.dims, &a->first[i]));
        FY_TRY(fy_zeros(device, info.dtype, info.rank, info.dims, &a->second[i]));
        FY_TRY(fy_zeros(device, FY_DTYPE_I64, 0, NULL, &a->number[i]));
        if (!i) continue;
        FY_TRY(fy_randn(rng, info.dtype, info.rank, info.dims, 0, 1, &noise));
        FY_TRY(fy_copy(param.grad, noise)); /* the gaps between parameters stay 0 */
    }
    return fy_full(device, FY_DTYPE_F64, 0, NULL, lr, &a->rate);
}

static fy_status_t step_fused(adam_t *a, int step)
{
    (void)step;
    return fy_adam_step(a->info.values, a->info.grads, a->first[0], a->second[0], a->number[0],
                        a->rate, NULL);
}

static fy_status_t step_each(adam_t *a, int step)
{
    (void)step;
    for (size_t i = 0; i < a->info.nparams; i++) {
        fy_param_t param = FY_PARAM_INIT;
        FY_TRY(fy_model_param(a->model, i, &param));
        FY_TRY(fy_adam_step(param.value, param.grad, a->first[i + 1], a->second[i + 1],
                            a->number[i + 1], a->rate, NULL));
    }
    return FY_STATUS_OK;
}

/* average = beta average + (1 - beta) x */
static fy_status_t average(fy_tensor_t *into, double beta, const fy_tensor_t *x)
{
    fy_tensor_t *scaled;
    FY_TRY(fy_affine(into, beta, 0, &scaled));
    FY_TRY(fy_axpy(scaled, 1 - beta, x));
    return fy_copy(into, scaled);
}

/* The formula op by op, parameter by parameter, as without a fused op. */
static fy_status_t step_by_hand(adam_t *a, int step)
{
    for (size_t i = 0; i < a->info.nparams; i++) {
        fy_param_t param = FY_PARAM_INIT;
        fy_tensor_t *square, *m, *v, *root, *below, *update;
        const fy_scope_t scope = fy_scope_begin("by-hand");
        FY_TRY(fy_model_param(a->model, i, &param));
        FY_TRY(average(a->first[i + 1], beta1, param.grad));
        FY_TRY(fy_mul(param.grad, param.grad, &square));
        FY_TRY(average(a->second[i + 1], beta2, square));
        FY_TRY(fy_affine(a->first[i + 1], 1 / (1 - pow(beta1, step + 1)), 0, &m));
        FY_TRY(fy_affine(a->second[i + 1], 1 / (1 - pow(beta2, step + 1)), 0, &v));
        FY_TRY(fy_sqrt(v, &root));
        FY_TRY(fy_affine(root, 1, eps, &below));
        FY_TRY(fy_div(m, below, &update));
        FY_TRY(fy_axpy(param.value, -lr, update));
        fy_scope_end(scope, 0, NULL);
    }
    return FY_STATUS_OK;
}

/* Three steps, their time, and the parameters afterwards; `expected` (may be NULL): the same in
 * f64. */
static fy_status_t run_adam(session_t *session, fy_status_t (*step)(adam_t *a, int step),
                            double *out_ns, float **out_values, uint64_t *out_count,
                            float **expected)
{
    adam_t a;
    double begin = 0, end = 0;
    float *values = NULL, *grads = NULL;
    fy_status_t status = adam_open(session->device, &a);
    if (status == FY_STATUS_OK && expected) status = fetch_f32(a.info.values, &values, out_count);
    if (status == FY_STATUS_OK && expected) status = fetch_f32(a.info.grads, &grads, out_count);
    if (status == FY_STATUS_OK) status = clock_ns(session, &begin);
    for (int i = 0; i < ADAM_STEPS && status == FY_STATUS_OK; i++) status = step(&a, i);
    if (status == FY_STATUS_OK) status = clock_ns(session, &end);
    if (status == FY_STATUS_OK) status = fetch_f32(a.info.values, out_values, out_count);
    fy_model_destroy(a.model);
    *out_ns = (end - begin) / ADAM_STEPS;
    for (uint64_t k = 0; values && grads && k < *out_count; k++) {
        double p = values[k], m = 0, v = 0;
        const double g = grads[k];
        for (int t = 1; t <= ADAM_STEPS; t++) {
            m = beta1 * m + (1 - beta1) * g, v = beta2 * v + (1 - beta2) * g * g;
            p -= lr * m / (1 - pow(beta1, t)) / (sqrt(v / (1 - pow(beta2, t))) + eps);
        }
        values[k] = (float)p;
    }
    free(grads);
    if (expected) *expected = values;
    return status;
}

fy_status_t speedup_fused_optimizer(session_t *session, speedup_t *out)
{
    float *fused = NULL, *each = NULL, *by_hand = NULL, *expected = NULL;
    uint64_t count = 0;
    double each_ns;
    fy_status_t status = run_adam(session, step_fused, &out->with, &fused, &count, &expected);
    if (status == FY_STATUS_OK)
        status = run_adam(session, step_each, &each_ns, &each, &count, NULL);
    if (status == FY_STATUS_OK)
        status = run_adam(session, step_by_hand, &out->without, &by_hand, &count, NULL);
    if (status == FY_STATUS_OK) {
        const double distance = relative_distance(expected, fused, count),
                     hand = relative_distance(expected, by_hand, count);
        const bool same = memcmp(fused, each, count * sizeof *fused) == 0;
        out->ok = distance <= 1e-6 && hand <= 1e-5 && same;
        snprintf(out->held, sizeof out->held,
                 "3 steps of Adam are those in f64 to %.1e (1e-6); one request or one a parameter: "
                 "%s bits",
                 distance, same ? "the same" : "other");
    }
    free(fused);
    free(each);
    free(by_hand);
    free(expected);
    return status;
}

/* ---- 11: gradients set to none ---- */

enum { STEPS = 10 };

static fy_status_t run_steps(session_t *session, int zeroes, double *out_ns, float **out_values,
                             uint64_t *out_count)
{
    net_t net;
    double begin = 0, end = 0;
    const fy_backward_options_t adds = { sizeof adds, NULL, 1 };
    fy_status_t status = net_open(session->device, 64, &net);
    for (int i = 0; i < 1 + STEPS && status == FY_STATUS_OK; i++) {
        fy_tensor_t *loss = NULL;
        /* the first one is for warmth, and writes each gradient */
        if (i == 1) status = clock_ns(session, &begin);
        if (status == FY_STATUS_OK && zeroes && i) status = fy_fill(net.grads, 0);
        if (status == FY_STATUS_OK)
            status = net_gradient(&net, 0, net.batch, zeroes && i ? &adds : NULL, &loss);
        if (status == FY_STATUS_OK) status = net_descend(&net, 0.1);
        fy_tensor_destroy(loss);
    }
    if (status == FY_STATUS_OK) status = clock_ns(session, &end);
    *out_ns = (end - begin) / STEPS;
    if (status == FY_STATUS_OK) status = fetch_f32(net.values, out_values, out_count);
    net_close(&net);
    return status;
}

fy_status_t speedup_set_to_none(session_t *session, speedup_t *out)
{
    float *zeroed = NULL, *assigned = NULL;
    uint64_t count = 0;
    fy_status_t status = run_steps(session, 1, &out->without, &zeroed, &count);
    if (status == FY_STATUS_OK) status = run_steps(session, 0, &out->with, &assigned, &count);
    if (status == FY_STATUS_OK) {
        out->ok = relative_distance(zeroed, assigned, count) == 0;
        snprintf(out->held, sizeof out->held,
                 "the first write assigns: 0 bytes of fill, not %llu a step; the same parameters "
                 "after %d steps",
                 (unsigned long long)count * sizeof(float), STEPS + 1);
    }
    free(zeroed);
    free(assigned);
    return status;
}

/* ---- 13: debug tools off by default ---- */

enum { DEBUG_STEPS = 50 };

static fy_status_t time_steps(session_t *session, double *out_ns, double *out_loss)
{
    net_t net;
    fy_tensor_t *loss = NULL;
    double begin = 0;
    fy_status_t status = net_open(session->device, 16, &net);
    for (int i = 0; i < 5 + DEBUG_STEPS && status == FY_STATUS_OK; i++) {
        if (i == 5) status = session_wait(session);
        if (i == 5) begin = wall_ns();
        fy_tensor_destroy(loss);
        if (status == FY_STATUS_OK) status = net_gradient(&net, 0, net.batch, NULL, &loss);
        if (status == FY_STATUS_OK) status = net_descend(&net, 0.1);
    }
    if (status == FY_STATUS_OK) status = session_wait(session);
    *out_ns = (wall_ns() - begin) / DEBUG_STEPS;
    if (status == FY_STATUS_OK) status = fetch_f64(loss, out_loss);
    fy_tensor_destroy(loss);
    net_close(&net);
    return status;
}

/* A label that is not a class, on a separate device, so that the fault affects no other row: the
 * failure names the op. */
static fy_status_t find_bad_label(bool *out_named)
{
    fy_device_t *device;
    fy_tensor_t *logits, *labels, *loss;
    fy_download_t *download;
    double value;
    *out_named = false;
    FY_TRY(fy_device_open("sim:7", &device));
    fy_status_t status = fy_zeros(device, FY_DTYPE_F32, FY_DIMS(4, 10), &logits);
    if (status == FY_STATUS_OK) status = fy_full(device, FY_DTYPE_I32, FY_DIMS(4), 99, &labels);
    if (status == FY_STATUS_OK) status = fy_cross_entropy(logits, labels, FY_REDUCTION_MEAN, &loss);
    if (status == FY_STATUS_OK) status = fy_tensor_download(loss, NULL, &download);
    if (status == FY_STATUS_OK) {
        *out_named = fy_download_wait_f64(download, FY_FOREVER, &value) == FY_STATUS_BAD_VALUE &&
                     strstr(fy_error_get()->text, "cross_entropy");
    }
    fy_device_close(device);
    return status;
}

fy_status_t speedup_debug_off(session_t *session, speedup_t *out)
{
    char path[] = "/tmp/ferry-events-XXXXXX";
    double off_loss, on_loss = NAN;
    bool named;
    out->without = NAN;
    FY_TRY(time_steps(session, &out->with, &off_loss));
    if (session->common->record) { /* everything is recorded already: nothing to compare with */
        on_loss = off_loss;
    } else {
        const int file = mkstemp(path);
        if (file < 0) return TOOL_FAIL(IO, "cannot make a file for events in /tmp");
        close(file);
        fy_status_t status = fy_ledger_record(path);
        if (status == FY_STATUS_OK) status = time_steps(session, &out->without, &on_loss);
        const fy_status_t ended = fy_ledger_record(NULL);
        unlink(path);
        FY_TRY(status);
        FY_TRY(ended);
    }
    FY_TRY(find_bad_label(&named));
    out->ok = on_loss == off_loss && named;
    snprintf(out->held, sizeof out->held,
             "the same loss, %.6f, with and without a record of all events; a label that is no "
             "class names its op",
             off_loss);
    return FY_STATUS_OK;
}

/* ---- 14: clipping ---- */

enum { CLIPS = 20 };

static fy_status_t clip_on_host(net_t *net, double most)
{
    fy_tensor_t *norm, *scaled;
    double value;
    FY_TRY(fy_norm(net->grads, FY_ALL_AXES, 0, &norm));
    FY_TRY(fetch_f64(norm, &value));
    if (value <= most) return FY_STATUS_OK;
    FY_TRY(fy_affine(net->grads, most / (value + 1e-6), 0, &scaled));
    return fy_copy(net->grads, scaled);
}

static fy_status_t clip_on_device(net_t *net, double most)
{
    fy_tensor_t *norm;
    FY_TRY(fy_scope_guard(&(fy_guard_options_t)FY_GUARD_LIGHT_ONLY));
    FY_TRY(fy_norm(net->grads, FY_ALL_AXES, 0, &norm));
    return fy_clip_by_norm(net->grads, norm, most);
}

static double norm_of(const float *values, uint64_t n)
{
    double squares = 0;
    for (uint64_t i = 0; i < n; i++) squares += (double)values[i] * (double)values[i];
    return sqrt(squares);
}

static fy_status_t run_clips(session_t *session, net_t *net, double most,
                             fy_status_t (*clip)(net_t *net, double most), double *out_ns,
                             float **out_grads, uint64_t *out_count)
{
    double sum = 0;
    for (int i = 0; i < CLIPS; i++) {
        fy_tensor_t *loss;
        double begin, end;
        const fy_scope_t scope = fy_scope_begin("clip");
        FY_TRY(net_gradient(net, 0, net->batch, NULL, &loss));
        FY_TRY(clock_ns(session, &begin));
        const fy_scope_t inner = fy_scope_begin("way");
        FY_TRY(clip(net, most));
        fy_scope_end(inner, 0, NULL);
        FY_TRY(clock_ns(session, &end));
        sum += end - begin;
        fy_scope_end(scope, 0, NULL);
    }
    *out_ns = sum / CLIPS;
    return fetch_f32(net->grads, out_grads, out_count);
}

static fy_status_t clip_both_ways(session_t *session, net_t *net, speedup_t *out, float *grads[4])
{
    uint64_t count;
    fy_tensor_t *loss, *clamped;
    FY_TRY(net_gradient(net, 0, net->batch, NULL, &loss));
    FY_TRY(fetch_f32(net->grads, &grads[0], &count));
    const double norm = norm_of(grads[0], count), most = norm / 2;
    FY_TRY(run_clips(session, net, most, clip_on_host, &out->without, &grads[1], &count));
    FY_TRY(run_clips(session, net, most, clip_on_device, &out->with, &grads[2], &count));
    FY_TRY(fy_clamp(net->grads, -most / 100, most / 100, &clamped));
    FY_TRY(fetch_f32(clamped, &grads[3], &count));
    double largest = 0;
    for (uint64_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)grads[3][i]));
    const double after = norm_of(grads[2], count);
    out->ok = fabs(after / most - 1) <= 1e-5 &&
              relative_distance(grads[1], grads[2], count) <= 1e-6 &&
              largest <= most / 100 * (1 + 1e-6);
    snprintf(out->held, sizeof out->held,
             "norm %.6f -> %.6f (at most %.6f), 0 downloads; by value: largest %.2e of %.2e", norm,
             after, most, largest, most / 100);
    return FY_STATUS_OK;
}

fy_status_t speedup_clip(session_t *session, speedup_t *out)
{
    net_t net;
    float *grads[4] = { NULL };
    fy_status_t status = net_open(session->device, 64, &net);
    if (status == FY_STATUS_OK) status = clip_both_ways(session, &net, out, grads);
    for (int i = 0; i < 4; i++) free(grads[i]);
    net_close(&net);
    return status;
}
