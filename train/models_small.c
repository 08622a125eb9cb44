/* Small networks that are common in comparisons, and the short ways to write layers down. */
#include "models.h"

fy_layer_t *fyt_linear(int64_t in, int64_t out, fyt_style_t style)
{
    fy_layer_t *layer;
    const fy_linear_options_t options = { sizeof options, style.no_bias, style.activation,
                                          style.weight, style.bias };
    return fyt_made(fy_layer_linear(in, out, &options, &layer), &layer);
}

fy_layer_t *fyt_conv(int64_t in, int64_t out, int kernel, int stride, int groups, int is_padded,
                     fyt_style_t style)
{
    fy_layer_t *layer;
    fy_conv2d_options_t options = FY_CONV2D_OPTIONS_INIT;
    options.stride_h = options.stride_w = stride;
    options.padding_h = options.padding_w = is_padded ? (kernel - 1) / 2 : 0;
    options.groups = groups;
    options.no_bias = style.no_bias;
    options.activation = style.activation;
    options.weight = style.weight;
    options.bias = style.bias;
    return fyt_made(fy_layer_conv2d(in, out, kernel, kernel, &options, &layer), &layer);
}

fy_layer_t *fyt_norm(int64_t width, double eps)
{
    fy_layer_t *layer;
    fy_layer_norm_options_t options = FY_LAYER_NORM_OPTIONS_INIT;
    options.eps = eps;
    return fyt_made(fy_layer_layer_norm(width, &options, &layer), &layer);
}

fy_layer_t *fyt_op(const char *name)
{
    fy_layer_t *layer;
    return fyt_made(fy_layer_op(name, &layer), &layer);
}

fy_layer_t *fyt_simple(fy_status_t (*make)(fy_layer_t **))
{
    fy_layer_t *layer;
    return fyt_made(make(&layer), &layer);
}

fy_layer_t *fyt_dropout(fy_status_t (*make)(double, fy_layer_t **), double p)
{
    fy_layer_t *layer;
    return fyt_made(make(p, &layer), &layer);
}

fy_layer_t *fyt_sequence(size_t count, const fy_layer_child_t *children)
{
    fy_layer_t *layer;
    return fyt_made(fy_layer_sequential(count, children, &layer), &layer);
}

static const fyt_style_t small_plain = {
    FY_ACTIVATION_NONE, { FY_INIT_NORMAL, 0.01 }, { FY_INIT_CONSTANT, 0 }, 0
};
static const fyt_style_t small_relu = {
    FY_ACTIVATION_RELU, { FY_INIT_NORMAL, 0.01 }, { FY_INIT_CONSTANT, 0 }, 0
};

static fy_layer_t *conv(int64_t in, int64_t out, int kernel, fyt_style_t style)
{
    return fyt_conv(in, out, kernel, 1, 1, 0, style);
}

/* relu, then windows of 2 x 2, in one pass. The largest element is the same in either order. */
static fy_layer_t *relu_pool(fy_status_t (*make)(const fy_pool2d_attrs_t *, fy_layer_t **))
{
    fy_layer_t *layer;
    const fy_pool2d_attrs_t halves = { .kernel_h = 2,
                                       .kernel_w = 2,
                                       .activation = FY_ACTIVATION_RELU };
    return fyt_made(make(&halves, &layer), &layer);
}

fy_status_t fyt_make_linear(const int64_t *options, fy_layer_t **out_layer)
{
    const fy_layer_child_t children[] = { { "fc", fyt_linear(5, 1, small_plain) } };
    (void)options;
    return FYT_SEQUENTIAL(children, out_layer);
}

fy_status_t fyt_make_mlp(const int64_t *options, fy_layer_t **out_layer)
{
    const fy_layer_child_t children[] = {
        { "flatten", fyt_simple(fy_layer_flatten) },
        { "fc1", fyt_linear(784, 128, FYT_RELU) },
        { "fc2", fyt_linear(128, 10, FYT_PLAIN) },
    };
    (void)options;
    return FYT_SEQUENTIAL(children, out_layer);
}

fy_status_t fyt_make_lenet(const int64_t *options, fy_layer_t **out_layer)
{
    const fy_layer_child_t children[] = {
        { "conv1", conv(1, 20, 3, small_plain) },    { "pool1", relu_pool(fy_layer_avg_pool2d) },
        { "conv2", conv(20, 50, 5, small_plain) },   { "pool2", relu_pool(fy_layer_avg_pool2d) },
        { "flatten", fyt_simple(fy_layer_flatten) }, { "fc1", fyt_linear(800, 128, small_relu) },
        { "fc2", fyt_linear(128, 10, small_plain) },
    };
    (void)options;
    return FYT_SEQUENTIAL(children, out_layer);
}

fy_status_t fyt_make_mnist2018(const int64_t *options, fy_layer_t **out_layer)
{
    const fy_layer_child_t children[] = {
        { "conv1", conv(1, 10, 5, FYT_PLAIN) },
        { "pool1", relu_pool(fy_layer_max_pool2d) },
        { "conv2", conv(10, 20, 5, FYT_PLAIN) },
        { "drop2", fyt_dropout(fy_layer_dropout2d, 0.5) },
        { "pool2", relu_pool(fy_layer_max_pool2d) },
        { "flatten", fyt_simple(fy_layer_flatten) },
        { "fc1", fyt_linear(320, 50, FYT_RELU) },
        { "drop3", fyt_dropout(fy_layer_dropout, 0.5) },
        { "fc2", fyt_linear(50, 10, FYT_PLAIN) },
        { "log_softmax", fyt_simple(fy_layer_log_softmax) },
    };
    (void)options;
    return FYT_SEQUENTIAL(children, out_layer);
}

fy_status_t fyt_make_mnist(const int64_t *options, fy_layer_t **out_layer)
{
    const fy_layer_child_t children[] = {
        { "conv1", conv(1, 32, 3, FYT_RELU) },
        { "conv2", conv(32, 64, 3, FYT_PLAIN) },
        { "pool", relu_pool(fy_layer_max_pool2d) },
        { "drop1", fyt_dropout(fy_layer_dropout, 0.25) },
        { "flatten", fyt_simple(fy_layer_flatten) },
        { "fc1", fyt_linear(9216, 128, FYT_RELU) },
        { "drop2", fyt_dropout(fy_layer_dropout, 0.5) },
        { "fc2", fyt_linear(128, 10, FYT_PLAIN) },
    };
    (void)options;
    return FYT_SEQUENTIAL(children, out_layer);
}
