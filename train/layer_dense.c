/* Layers with weights: linear and conv2d, each with a bias and an activation that the same op
 * applies.
 * Not here: layers without parameters (layer_plain.c), initial values (init.c). */
#include "layer.h"
#include "train/abi.h"

#include <stdlib.h>
#include <string.h>

fy_status_t fyt_activation_check(const char *call, fy_activation_t activation)
{
    if (activation >= FY_ACTIVATION_NONE && activation <= FY_ACTIVATION_GELU) return FY_STATUS_OK;
    return FYT_FAIL(
        INVALID_ARGUMENT,
        "%s: there is no activation %d; legal are %d (FY_ACTIVATION_NONE) to %d (_GELU)", call,
        (int)activation, FY_ACTIVATION_NONE, FY_ACTIVATION_GELU);
}

fy_status_t fyt_activation_apply(fy_activation_t activation, fy_tensor_t *x, fy_tensor_t **out_y)
{
    switch (activation) {
    case FY_ACTIVATION_RELU: return fy_relu(x, out_y);
    case FY_ACTIVATION_TANH: return fy_tanh(x, out_y);
    case FY_ACTIVATION_SIGMOID: return fy_sigmoid(x, out_y);
    case FY_ACTIVATION_GELU: return fy_gelu(x, out_y);
    case FY_ACTIVATION_NONE: break;
    }
    *out_y = x;
    return FY_STATUS_OK;
}

/* ---- linear ---- */

typedef struct linear {
    int64_t in, out;
    int has_bias;
    fy_activation_t activation;
} linear_t;

static fy_status_t linear_shape(void *user, int rank, const int64_t *dims, int *out_rank,
                                int64_t *out_dims, uint64_t *out_macs)
{
    const linear_t *linear = user;
    char text[FYT_SHAPE_TEXT];
    if (rank < 2 || dims[rank - 1] != linear->in)
        return FYT_FAIL(SHAPE_MISMATCH, "it expects [n, ..., %lld] and would get %s%s",
                        (long long)linear->in, fyt_shape_text(text, rank, dims),
                        rank > 2 ? "; a flatten before it makes one axis of all but the first"
                                 : "");
    uint64_t rows = 1;
    for (int i = 0; i + 1 < rank; i++) {
        out_dims[i] = dims[i];
        rows *= (uint64_t)dims[i];
    }
    out_dims[rank - 1] = linear->out;
    *out_rank = rank;
    *out_macs = rows * (uint64_t)linear->in * (uint64_t)linear->out;
    return FY_STATUS_OK;
}

static fy_status_t linear_forward(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                                  fy_tensor_t *x, fy_tensor_t **out_y)
{
    const linear_t *linear = user;
    (void)pass;
    return fy_linear(x, params[0], linear->has_bias ? params[1] : NULL, linear->activation, out_y);
}

fy_status_t fy_layer_linear(int64_t in, int64_t out, const fy_linear_options_t *options,
                            fy_layer_t **out_layer)
{
    fy_linear_options_t own;
    if (out_layer) *out_layer = NULL;
    FY_TRY(FY__READ(linear_options, "layer_linear", options, &own));
    options = &own;
    if (in < 1 || out < 1)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "layer_linear: %lld inputs and %lld outputs; at least 1 of each",
                        (long long)in, (long long)out);
    FY_TRY(fyt_activation_check("layer_linear", options->activation));
    const linear_t linear = { in, out, !options->no_bias, options->activation };
    const fy_layer_param_t params[2] = { { "weight", 2, { out, in }, in, out, options->weight },
                                         { "bias", 1, { out }, in, out, options->bias } };
    fy_layer_def_t def = { sizeof def,     "linear", options->no_bias ? 1 : 2, params, linear_shape,
                           linear_forward, free };
    return fyt_layer_create(&def, &linear, sizeof linear, out_layer);
}

/* ---- linear with the weight of another layer ---- */

fy_status_t fy_layer_tied_linear(int64_t in, int64_t out, const char *weight_name,
                                 fy_layer_t **out_layer)
{
    if (out_layer) *out_layer = NULL;
    if (in < 1 || out < 1 || !weight_name || !*weight_name)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "layer_tied_linear: %lld inputs, %lld outputs, weight '%s'; at least 1 of "
                        "each, and the full name of a parameter",
                        (long long)in, (long long)out, weight_name ? weight_name : "(NULL)");
    const linear_t linear = { in, out, 0, FY_ACTIVATION_NONE };
    const fy_layer_def_t def = { sizeof def,   "tied_linear",  0,   NULL,
                                 linear_shape, linear_forward, free };
    char *tied = strdup(weight_name);
    if (!tied) return FYT_FAIL(OUT_OF_MEMORY, "layer_tied_linear: no host memory for a layer");
    const fy_status_t status = fyt_layer_create(&def, &linear, sizeof linear, out_layer);
    if (status != FY_STATUS_OK || !out_layer) {
        free(tied);
        return status;
    }
    (*out_layer)->tied = tied;
    (*out_layer)->tied_dims[0] = out;
    (*out_layer)->tied_dims[1] = in;
    return FY_STATUS_OK;
}

/* ---- conv2d ---- */

typedef struct conv2d {
    int64_t in, out, kernel_h, kernel_w;
    int has_bias;
    fy_activation_t activation;
    fy_conv2d_attrs_t attrs;
} conv2d_t;

/* The op's formula: floor((size + 2 padding - dilation (kernel - 1) - 1) / stride) + 1; below 1 if
 * the kernel does not fit. */
static int64_t out_size(int64_t size, int64_t kernel, int64_t stride, int64_t padding,
                        int64_t dilation)
{
    const int64_t room = size + 2 * padding - dilation * (kernel - 1) - 1;
    return room < 0 ? 0 : room / stride + 1;
}

static fy_status_t conv2d_shape(void *user, int rank, const int64_t *dims, int *out_rank,
                                int64_t *out_dims, uint64_t *out_macs)
{
    const conv2d_t *conv = user;
    const fy_conv2d_attrs_t *a = &conv->attrs;
    char text[FYT_SHAPE_TEXT];
    if (rank != 4 || dims[3] != conv->in)
        return FYT_FAIL(SHAPE_MISMATCH, "it expects [n, H, W, %lld] and would get %s",
                        (long long)conv->in, fyt_shape_text(text, rank, dims));
    const int64_t height =
        out_size(dims[1], conv->kernel_h, a->stride_h, a->padding_h, a->dilation_h);
    const int64_t width =
        out_size(dims[2], conv->kernel_w, a->stride_w, a->padding_w, a->dilation_w);
    if (height < 1 || width < 1)
        return FYT_FAIL(SHAPE_MISMATCH, "its kernel of %lld x %lld does not fit into %s",
                        (long long)conv->kernel_h, (long long)conv->kernel_w,
                        fyt_shape_text(text, rank, dims));
    *out_rank = 4;
    out_dims[0] = dims[0];
    out_dims[1] = height;
    out_dims[2] = width;
    out_dims[3] = conv->out;
    *out_macs = (uint64_t)(dims[0] * height * width * conv->out) *
                (uint64_t)(conv->kernel_h * conv->kernel_w * (conv->in / a->groups));
    return FY_STATUS_OK;
}

static fy_status_t conv2d_forward(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                                  fy_tensor_t *x, fy_tensor_t **out_y)
{
    const conv2d_t *conv = user;
    const int is_relu = conv->activation == FY_ACTIVATION_RELU; /* the one that the op knows */
    fy_conv2d_attrs_t attrs = conv->attrs;
    fy_tensor_t *y;
    (void)pass;
    if (is_relu) attrs.activation = FY_ACTIVATION_RELU;
    FY_TRY(fy_conv2d(x, params[0], conv->has_bias ? params[1] : NULL, &attrs, &y));
    return fyt_activation_apply(is_relu ? FY_ACTIVATION_NONE : conv->activation, y, out_y);
}

static fy_status_t check_conv2d(int64_t in, int64_t out, int kernel_h, int kernel_w,
                                const fy_conv2d_options_t *options)
{
    const fy_conv2d_options_t *a = options;
    if (in < 1 || out < 1 || kernel_h < 1 || kernel_w < 1)
        return FYT_FAIL(
            INVALID_ARGUMENT,
            "layer_conv2d: %lld to %lld channels by a kernel of %d x %d; at least 1 of each",
            (long long)in, (long long)out, kernel_h, kernel_w);
    if (a->stride_h < 1 || a->stride_w < 1 || a->dilation_h < 1 || a->dilation_w < 1 ||
        a->padding_h < 0 || a->padding_w < 0)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "layer_conv2d: stride %d, %d, dilation %d, %d (at least 1), padding %d, %d "
                        "(at least 0): use FY_CONV2D_OPTIONS_INIT",
                        a->stride_h, a->stride_w, a->dilation_h, a->dilation_w, a->padding_h,
                        a->padding_w);
    if (a->groups < 1 || in % a->groups || out % a->groups)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "layer_conv2d: %d groups do not divide %lld inputs and %lld outputs",
                        a->groups, (long long)in, (long long)out);
    return fyt_activation_check("layer_conv2d", options->activation);
}

fy_status_t fy_layer_conv2d(int64_t in, int64_t out, int kernel_h, int kernel_w,
                            const fy_conv2d_options_t *options, fy_layer_t **out_layer)
{
    fy_conv2d_options_t own;
    if (out_layer) *out_layer = NULL;
    FY_TRY(FY__READ(conv2d_options, "layer_conv2d", options, &own));
    options = &own;
    FY_TRY(check_conv2d(in, out, kernel_h, kernel_w, options));
    const conv2d_t conv = { in,
                            out,
                            kernel_h,
                            kernel_w,
                            !options->no_bias,
                            options->activation,
                            { .stride_h = options->stride_h,
                              .stride_w = options->stride_w,
                              .padding_h = options->padding_h,
                              .padding_w = options->padding_w,
                              .dilation_h = options->dilation_h,
                              .dilation_w = options->dilation_w,
                              .groups = options->groups } };
    const int64_t groups = options->groups, area = (int64_t)kernel_h * kernel_w;
    const int64_t fan_in = in / groups * area, fan_out = out / groups * area;
    const fy_layer_param_t params[2] = {
        { "weight", 4, { out, kernel_h, kernel_w, in / groups }, fan_in, fan_out, options->weight },
        { "bias", 1, { out }, fan_in, fan_out, options->bias }
    };
    fy_layer_def_t def = { sizeof def,     "conv2d", options->no_bias ? 1 : 2, params, conv2d_shape,
                           conv2d_forward, free };
    return fyt_layer_create(&def, &conv, sizeof conv, out_layer);
}

/* ---- without a bias ---- */

void fyt_layer_drop_bias(fy_layer_t *layer)
{
    linear_t *linear = layer->def.forward == linear_forward ? layer->user : NULL;
    conv2d_t *conv = layer->def.forward == conv2d_forward ? layer->user : NULL;
    const fy_activation_t activation = linear ? linear->activation
                                       : conv ? conv->activation
                                              : FY_ACTIVATION_NONE;
    if (layer->def.nparams < 2 || (!linear && !conv) || activation != FY_ACTIVATION_NONE) return;
    if (linear) linear->has_bias = 0;
    if (conv) conv->has_bias = 0;
    layer->dropped_bias = layer->def.params[1].dims[0];
    free((char *)layer->def.params[1].name);
    layer->def.nparams = 1;
}
