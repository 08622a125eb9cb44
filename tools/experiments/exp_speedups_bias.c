/* Row 15 of `ferry experiment speedups`: convolutions before batch norms without a bias.
 * Not here: the table of rows (exp_speedups.c), the rule (train/model_layout.c). */
#include <math.h>

#include "tools/experiments/exp_speedups.h"

enum { STEPS = 10, BATCH = 32, SIZE = 16, CHANNELS = 16, KERNEL = 3 };

/* Two convolutions with norms behind them, pooling, a linear layer. */
static fy_status_t make(fy_device_t *device, int drop_bias, fy_model_t **out_model)
{
    fy_layer_t *layers[6] = { NULL }, *whole;
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    fy_batch_norm_options_t relu = FY_BATCH_NORM_OPTIONS_INIT;
    static const char *const names[] = { "conv1", "bn1", "conv2", "bn2", "pool", "fc" };
    fy_layer_child_t children[6];
    options.drop_bias = drop_bias;
    relu.activation = FY_ACTIVATION_RELU;
    (void)!fy_layer_conv2d(1, CHANNELS, KERNEL, KERNEL, NULL, &layers[0]);
    (void)!fy_layer_batch_norm(CHANNELS, &relu, &layers[1]);
    (void)!fy_layer_conv2d(CHANNELS, CHANNELS, KERNEL, KERNEL, NULL, &layers[2]);
    (void)!fy_layer_batch_norm(CHANNELS, &relu, &layers[3]);
    (void)!fy_layer_global_avg_pool2d(&layers[4]);
    (void)!fy_layer_linear(CHANNELS, 10, NULL, &layers[5]);
    for (int i = 0; i < 6; i++) children[i] = (fy_layer_child_t){ names[i], layers[i] };
    FY_TRY(fy_layer_sequential(6, children, &whole)); /* reports a layer that was not made */
    return fy_model_create(device, whole, FY_DIMS(SIZE, SIZE, 1), &options, out_model);
}

/* Gives `to` the values that `from` has under the same names; adds to the biases of `from` before
 * norms. */
static fy_status_t start(const fy_model_t *to, const fy_model_t *from)
{
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    fy_param_t into = FY_PARAM_INIT, out = FY_PARAM_INIT;
    FY_TRY(fy_model_query(to, &info));
    for (size_t i = 0; i < info.nparams; i++) {
        FY_TRY(fy_model_param(to, i, &into));
        FY_TRY(fy_model_find_param(from, into.name, &out));
        FY_TRY(fy_copy(into.value, out.value));
    }
    FY_TRY(fy_model_find_param(from, "conv1.bias", &out));
    return fy_fill(out.value, 8);
}

static fy_status_t train(session_t *session, fy_model_t *model, double losses[STEPS])
{
    fy_tensor_t *rng, *x, *y, *logits, *all[STEPS];
    fy_tape_t *tape;
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    FY_TRY(fy_model_query(model, &info));
    FY_TRY(fy_rng_create(session->device, 4, &rng));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(BATCH, SIZE, SIZE, 1), -1, 1, &x));
    FY_TRY(fy_full(session->device, FY_DTYPE_I32, FY_DIMS(BATCH), 3, &y));
    FY_TRY(fy_tape_create(&tape));
    FY_TRY(fy_model_watch(model, tape));
    for (int i = 0; i < STEPS; i++) {
        const fy_scope_t step = fy_scope_begin("step");
        FY_TRY(fy_tape_begin(tape));
        FY_TRY(fy_model_forward(model, x, &logits));
        FY_TRY(fy_cross_entropy(logits, y, FY_REDUCTION_MEAN, &all[i]));
        FY_TRY(fy_model_backward(model, tape, all[i], NULL));
        FY_TRY(fy_axpy(info.values, -0.05, info.grads));
        fy_scope_end(step, 1, &all[i]);
    }
    for (int i = 0; i < STEPS; i++) FY_TRY(fetch_f64(all[i], &losses[i]));
    return FY_STATUS_OK;
}

fy_status_t speedup_drop_bias(session_t *session, speedup_t *out)
{
    fy_model_t *with = NULL, *without = NULL;
    fy_model_info_t all = FY_MODEL_INFO_INIT, info = FY_MODEL_INFO_INIT;
    double plain[STEPS], less[STEPS], worst = 0;
    fy_status_t status = make(session->device, 0, &with);
    if (status == FY_STATUS_OK) status = make(session->device, 1, &without);
    if (status == FY_STATUS_OK) status = fy_model_query(without, &info);
    if (status == FY_STATUS_OK) status = fy_model_query(with, &all);
    if (status == FY_STATUS_OK) status = start(without, with);
    if (status == FY_STATUS_OK) status = train(session, with, plain);
    if (status == FY_STATUS_OK) status = train(session, without, less);
    for (int i = 0; i < STEPS && status == FY_STATUS_OK; i++)
        worst = fmax(worst, fabs(plain[i] / less[i] - 1));
    out->without = (double)all.params;
    out->with = (double)info.params;
    out->ok = worst <= 1e-5 && info.dropped_params == 2 * CHANNELS;
    snprintf(out->held, sizeof out->held,
             "%llu parameters fewer; the same losses in %d steps, to %.1e (1e-5)",
             (unsigned long long)info.dropped_params, STEPS, worst);
    fy_model_destroy(with);
    fy_model_destroy(without);
    return status;
}
