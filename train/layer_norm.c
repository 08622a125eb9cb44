/* Layers that normalise: batch norm; layer norm and rms norm, of rows; group norm.
 * Not here: the arithmetic (fy_batch_norm, fy_layer_norm, fy_rms_norm, fy_group_norm), statistics
 * of all ranks (layer_norm_sync.c). */
#include "layer.h"
#include "train/abi.h"

#include <math.h>
#include <stdlib.h>

typedef struct batch_norm {
    int64_t channels;
    double momentum, eps;
    fy_activation_t activation;
} batch_norm_t;

/* The settings of each layer begin with the length of the last axis. */
static fy_status_t row_shape(void *user, int rank, const int64_t *dims, int *out_rank,
                             int64_t *out_dims, uint64_t *out_macs)
{
    const int64_t width = *(const int64_t *)user;
    char text[FYT_SHAPE_TEXT];
    if (rank < 2 || dims[rank - 1] != width)
        return FYT_FAIL(SHAPE_MISMATCH, "it expects [n, ..., %lld] and would get %s",
                        (long long)width, fyt_shape_text(text, rank, dims));
    return fyt_same_shape(user, rank, dims, out_rank, out_dims, out_macs);
}

/* relu is the activation that the op has. */
static fy_status_t normalize(const batch_norm_t *norm, const fy_pass_t *pass,
                             fy_tensor_t *const *params, fy_tensor_t *x, fy_tensor_t *residual,
                             fy_activation_t activation, fy_tensor_t **out_y)
{
    const int is_relu = activation == FY_ACTIVATION_RELU;
    const int32_t fused = is_relu ? FY_ACTIVATION_RELU : FY_ACTIVATION_NONE;
    fy_tensor_t *y;
    if (pass->is_training && pass->norms) {
        const fy_batch_norm_attrs_t attrs = { norm->momentum, norm->eps, fused };
        FY_TRY(fyt_batch_norm_sync(pass->norms, &attrs, params, x, residual, &y));
    } else if (pass->is_training) {
        const fy_batch_norm_attrs_t attrs = { norm->momentum, norm->eps, fused };
        FY_TRY(fy_batch_norm(x, params[0], params[1], residual, params[2], params[3], &attrs, &y,
                             NULL, NULL));
    } else {
        const fy_batch_norm_inference_attrs_t attrs = { norm->eps, fused };
        FY_TRY(fy_batch_norm_inference(x, params[0], params[1], params[2], params[3], residual,
                                       &attrs, &y));
    }
    return fyt_activation_apply(is_relu ? FY_ACTIVATION_NONE : activation, y, out_y);
}

static fy_status_t batch_norm_forward(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                                      fy_tensor_t *x, fy_tensor_t **out_y)
{
    const batch_norm_t *norm = user;
    return normalize(norm, pass, params, x, NULL, norm->activation, out_y);
}

int fyt_is_batch_norm(const fy_layer_t *layer) { return layer->def.forward == batch_norm_forward; }

int fyt_is_plain_batch_norm(const fy_layer_t *layer)
{
    return fyt_is_batch_norm(layer) &&
           ((const batch_norm_t *)layer->user)->activation == FY_ACTIVATION_NONE;
}

fy_status_t fyt_batch_norm_forward(const fy_layer_t *layer, const fy_pass_t *pass,
                                   fy_tensor_t *const *params, fy_tensor_t *x,
                                   fy_tensor_t *residual, fy_activation_t activation,
                                   fy_tensor_t **out_y)
{
    return normalize(layer->user, pass, params, x, residual, activation, out_y);
}

fy_status_t fy_layer_batch_norm(int64_t channels, const fy_batch_norm_options_t *options,
                                fy_layer_t **out_layer)
{
    fy_batch_norm_options_t own;
    if (out_layer) *out_layer = NULL;
    FY_TRY(FY__READ(batch_norm_options, "layer_batch_norm", options, &own));
    if (channels < 1)
        return FYT_FAIL(INVALID_ARGUMENT, "layer_batch_norm: %lld channels; at least 1",
                        (long long)channels);
    if (!(own.momentum >= 0 && own.momentum <= 1) || !(own.eps >= 0 && own.eps < INFINITY))
        return FYT_FAIL(INVALID_ARGUMENT,
                        "layer_batch_norm: momentum %g (0 to 1), eps %g (0 or more): use "
                        "FY_BATCH_NORM_OPTIONS_INIT",
                        own.momentum, own.eps);
    FY_TRY(fyt_activation_check("layer_batch_norm", own.activation));
    const batch_norm_t norm = { channels, own.momentum, own.eps, own.activation };
    const fy_init_t one = { FY_INIT_CONSTANT, 1 }, zero = { FY_INIT_CONSTANT, 0 };
    const fy_layer_param_t params[2] = { { "weight", 1, { channels }, channels, channels, one },
                                         { "bias", 1, { channels }, channels, channels, zero } };
    const fy_layer_param_t buffers[2] = {
        { "running_mean", 1, { channels }, channels, channels, zero },
        { "running_var", 1, { channels }, channels, channels, one }
    };
    const fy_layer_def_t def = { sizeof def,         "batch_norm", 2, params, row_shape,
                                 batch_norm_forward, free,         2, buffers };
    return fyt_layer_create(&def, &norm, sizeof norm, out_layer);
}

/* ---- rows ---- */

typedef struct row_norm {
    int64_t width;
    double eps;
    int nparams;
    int64_t groups; /* of group norm */
} row_norm_t;

static fy_status_t layer_norm_forward(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                                      fy_tensor_t *x, fy_tensor_t **out_y)
{
    const row_norm_t *norm = user;
    (void)pass;
    return fy_layer_norm(x, norm->nparams > 0 ? params[0] : NULL,
                         norm->nparams > 1 ? params[1] : NULL, norm->eps, out_y, NULL, NULL);
}

static fy_status_t rms_norm_forward(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                                    fy_tensor_t *x, fy_tensor_t **out_y)
{
    const row_norm_t *norm = user;
    (void)pass;
    return fy_rms_norm(x, norm->nparams > 0 ? params[0] : NULL, norm->eps, out_y, NULL);
}

static fy_status_t group_norm_forward(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                                      fy_tensor_t *x, fy_tensor_t **out_y)
{
    const row_norm_t *norm = user;
    (void)pass;
    return fy_group_norm(x, norm->groups, norm->nparams > 0 ? params[0] : NULL,
                         norm->nparams > 1 ? params[1] : NULL, norm->eps, out_y);
}

static fy_status_t make_row_norm(const char *call, const char *type, int64_t width, int64_t groups,
                                 const fy_layer_norm_options_t *options, int most,
                                 fy_status_t (*forward)(void *, const fy_pass_t *,
                                                        fy_tensor_t *const *, fy_tensor_t *,
                                                        fy_tensor_t **),
                                 fy_layer_t **out_layer)
{
    fy_layer_norm_options_t own;
    if (out_layer) *out_layer = NULL;
    FY_TRY(FY__READ(layer_norm_options, call, options, &own));
    if (width < 1 || !(own.eps >= 0 && own.eps < INFINITY))
        return FYT_FAIL(INVALID_ARGUMENT, "%s: width %lld (at least 1), eps %g (0 or more)", call,
                        (long long)width, own.eps);
    const int nparams = own.no_affine ? 0 : own.no_bias ? 1 : most;
    const row_norm_t norm = { width, own.eps, nparams, groups };
    const fy_layer_param_t params[2] = {
        { "weight", 1, { width }, width, width, { FY_INIT_CONSTANT, 1 } },
        { "bias", 1, { width }, width, width, { FY_INIT_CONSTANT, 0 } }
    };
    const fy_layer_def_t def = {
        sizeof def, type, (size_t)nparams, params, row_shape, forward, free
    };
    return fyt_layer_create(&def, &norm, sizeof norm, out_layer);
}

fy_status_t fy_layer_layer_norm(int64_t width, const fy_layer_norm_options_t *options,
                                fy_layer_t **out_layer)
{
    return make_row_norm("layer_layer_norm", "layer_norm", width, 1, options, 2, layer_norm_forward,
                         out_layer);
}

fy_status_t fy_layer_rms_norm(int64_t width, const fy_layer_norm_options_t *options,
                              fy_layer_t **out_layer)
{
    return make_row_norm("layer_rms_norm", "rms_norm", width, 1, options, 1, rms_norm_forward,
                         out_layer);
}

fy_status_t fy_layer_group_norm(int64_t groups, int64_t channels,
                                const fy_layer_norm_options_t *options, fy_layer_t **out_layer)
{
    if (out_layer) *out_layer = NULL;
    if (groups < 1 || channels % groups != 0)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "layer_group_norm: %lld groups do not divide %lld channels",
                        (long long)groups, (long long)channels);
    return make_row_norm("layer_group_norm", "group_norm", channels, groups, options, 2,
                         group_norm_forward, out_layer);
}
