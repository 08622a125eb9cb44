/* Networks for images with batch norm: ResNet-18 in the form for small images (He et al. 2016) and
 * MobileNetV3-Large (Howard et al. 2019). Parameters are named as in torchvision's state dicts, so
 * that weights can be ported: its [O, I, H, W] are [O, H, W, I] here. */
#include "models.h"

#include <stdio.h>

static fy_layer_t *batch_norm(int64_t channels, double momentum, double eps,
                              fy_activation_t activation)
{
    fy_layer_t *layer;
    fy_batch_norm_options_t options = FY_BATCH_NORM_OPTIONS_INIT;
    options.momentum = momentum;
    options.eps = eps;
    options.activation = activation;
    return fyt_made(fy_layer_batch_norm(channels, &options, &layer), &layer);
}

/* ---- resnet18: convolutions have biases, as in the book's form of it ---- */

static fy_layer_t *resnet_norm(int64_t channels, fy_activation_t activation)
{
    return batch_norm(channels, 0.1, 1e-5, activation);
}

static fy_layer_t *resnet_conv(int64_t in, int64_t out, int kernel, int stride)
{
    return fyt_conv(in, out, kernel, stride, 1, 1, FYT_PLAIN);
}

static fy_layer_t *resnet_block(int64_t in, int64_t out, int stride)
{
    fy_layer_t *layer;
    const fy_layer_child_t body[] = {
        { "conv1", resnet_conv(in, out, 3, stride) },
        { "bn1", resnet_norm(out, FY_ACTIVATION_RELU) },
        { "conv2", resnet_conv(out, out, 3, 1) },
        { "bn2", resnet_norm(out, FY_ACTIVATION_NONE) },
    };
    fy_layer_t *shortcut = in == out ? NULL : resnet_conv(in, out, 1, stride);
    fy_layer_t *whole = fyt_sequence(FYT_COUNT(body), body);
    if (in != out && !shortcut) {
        fy_layer_destroy(whole);
        return NULL;
    }
    return fyt_made(fy_layer_residual(whole, shortcut, FY_ACTIVATION_RELU, &layer), &layer);
}

static fy_layer_t *resnet_stage(int64_t in, int64_t out)
{
    const fy_layer_child_t blocks[] = { { "0", resnet_block(in, out, in == out ? 1 : 2) },
                                        { "1", resnet_block(out, out, 1) } };
    return fyt_sequence(FYT_COUNT(blocks), blocks);
}

/* channels, classes, size */
fy_status_t fyt_make_resnet18(const int64_t *options, fy_layer_t **out_layer)
{
    const fy_layer_child_t children[] = {
        { "conv1", resnet_conv(options[0], 64, 3, 1) },
        { "bn1", resnet_norm(64, FY_ACTIVATION_RELU) },
        { "layer1", resnet_stage(64, 64) },
        { "layer2", resnet_stage(64, 128) },
        { "layer3", resnet_stage(128, 256) },
        { "layer4", resnet_stage(256, 512) },
        { "avgpool", fyt_simple(fy_layer_global_avg_pool2d) },
        { "fc", fyt_linear(512, options[1], FYT_PLAIN) },
    };
    return FYT_SEQUENTIAL(children, out_layer);
}

/* ---- mobilenet_v3_large ---- */

enum { RELU, HARDSWISH };

typedef struct row {
    int in, expanded, out, kernel, stride, squeezed, activation;
} row_t;

/* Table 1 of the paper; squeezed 0: no squeeze-and-excitation. */
static const row_t rows[] = {
    { 16, 16, 16, 3, 1, 0, RELU },           { 16, 64, 24, 3, 2, 0, RELU },
    { 24, 72, 24, 3, 1, 0, RELU },           { 24, 72, 40, 5, 2, 24, RELU },
    { 40, 120, 40, 5, 1, 32, RELU },         { 40, 120, 40, 5, 1, 32, RELU },
    { 40, 240, 80, 3, 2, 0, HARDSWISH },     { 80, 200, 80, 3, 1, 0, HARDSWISH },
    { 80, 184, 80, 3, 1, 0, HARDSWISH },     { 80, 184, 80, 3, 1, 0, HARDSWISH },
    { 80, 480, 112, 3, 1, 120, HARDSWISH },  { 112, 672, 112, 3, 1, 168, HARDSWISH },
    { 112, 672, 160, 5, 2, 168, HARDSWISH }, { 160, 960, 160, 5, 1, 240, HARDSWISH },
    { 160, 960, 160, 5, 1, 240, HARDSWISH },
};
enum { ROWS = FYT_COUNT(rows), HEAD = 960, HIDDEN = 1280 };

static const fy_init_t fan_out = { FY_INIT_KAIMING_NORMAL_FAN_OUT, 0 },
                       zero = { FY_INIT_CONSTANT, 0 };

/* Convolution, batch norm, activation: "0", "1", "2". activation -1: none. */
static fy_layer_t *conv_norm(int in, int out, int kernel, int stride, int groups, int activation)
{
    const fyt_style_t style = { FY_ACTIVATION_NONE, fan_out, zero, 1 };
    const fy_layer_child_t children[] = {
        { "0", fyt_conv(in, out, kernel, stride, groups, 1, style) },
        { "1", batch_norm(out, 0.01, 1e-3,
                          activation == RELU ? FY_ACTIVATION_RELU : FY_ACTIVATION_NONE) },
        { "2", activation == HARDSWISH ? fyt_op("hardswish") : NULL },
    };
    return fyt_sequence(activation == HARDSWISH ? 3 : 2, children);
}

static fy_layer_t *squeeze_excite(int channels, int squeezed)
{
    fy_layer_t *layer;
    return fyt_made(
        fy_layer_squeeze_excite(channels, squeezed, "hardsigmoid", fan_out, zero, &layer), &layer);
}

/* "block.0", ...: expansion (if there is one), depthwise, squeeze-and-excitation (the same),
 * projection; the input is added if it has the shape of the result. */
static fy_layer_t *inverted_residual(const row_t *row)
{
    static const char *const names[] = { "0", "1", "2", "3" };
    fy_layer_child_t steps[4];
    size_t count = 0;
    fy_layer_t *layer;
    if (row->expanded != row->in)
        steps[count++].layer = conv_norm(row->in, row->expanded, 1, 1, 1, row->activation);
    steps[count++].layer = conv_norm(row->expanded, row->expanded, row->kernel, row->stride,
                                     row->expanded, row->activation);
    if (row->squeezed) steps[count++].layer = squeeze_excite(row->expanded, row->squeezed);
    steps[count++].layer = conv_norm(row->expanded, row->out, 1, 1, 1, -1);
    for (size_t i = 0; i < count; i++) steps[i].name = names[i];
    const fy_layer_child_t block[] = { { "block", fyt_sequence(count, steps) } };
    layer = fyt_sequence(1, block);
    if (!layer || row->stride != 1 || row->in != row->out) return layer;
    return fyt_made(fy_layer_residual(layer, NULL, FY_ACTIVATION_NONE, &layer), &layer);
}

/* channels, classes, size, dropout in percent */
fy_status_t fyt_make_mobilenet_v3_large(const int64_t *options, fy_layer_t **out_layer)
{
    static const fyt_style_t style = {
        FY_ACTIVATION_NONE, { FY_INIT_NORMAL, 0.01 }, { FY_INIT_CONSTANT, 0 }, 0
    };
    char names[ROWS + 2][4];
    fy_layer_child_t features[ROWS + 2];
    for (int i = 0; i < ROWS + 2; i++) {
        snprintf(names[i], sizeof names[i], "%d", i);
        features[i].name = names[i];
    }
    features[0].layer = conv_norm((int)options[0], 16, 3, 2, 1, HARDSWISH);
    for (int i = 0; i < ROWS; i++) features[i + 1].layer = inverted_residual(&rows[i]);
    features[ROWS + 1].layer = conv_norm(rows[ROWS - 1].out, HEAD, 1, 1, 1, HARDSWISH);
    const fy_layer_child_t classifier[] = {
        { "0", fyt_linear(HEAD, HIDDEN, style) },
        { "1", fyt_op("hardswish") },
        { "2", fyt_dropout(fy_layer_dropout, (double)options[3] / 100) },
        { "3", fyt_linear(HIDDEN, options[1], style) },
    };
    const fy_layer_child_t children[] = {
        { "features", fyt_sequence(FYT_COUNT(features), features) },
        { "avgpool", fyt_simple(fy_layer_global_avg_pool2d) },
        { "classifier", fyt_sequence(FYT_COUNT(classifier), classifier) },
    };
    return FYT_SEQUENTIAL(children, out_layer);
}
