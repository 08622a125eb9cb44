/* The known models: small networks that are common in comparisons.
 * Not here: their usual training (the command's table, tools/train/train_recipes.c). */
#include "model.h"
#include "train/abi.h"

#include <stdio.h>
#include <string.h>

/* ---- short ways to write layers down; NULL when a maker fails, which fy_layer_sequential refuses
 * ---- */

typedef struct style {
    fy_activation_t activation;
    fy_init_t weight, bias;
} style_t;

static const style_t plain = { FY_ACTIVATION_NONE, { FY_INIT_DEFAULT, 0 }, { FY_INIT_DEFAULT, 0 } };
static const style_t relu = { FY_ACTIVATION_RELU, { FY_INIT_DEFAULT, 0 }, { FY_INIT_DEFAULT, 0 } };
static const style_t small_plain = { FY_ACTIVATION_NONE,
                                     { FY_INIT_NORMAL, 0.01 },
                                     { FY_INIT_CONSTANT, 0 } };
static const style_t small_relu = { FY_ACTIVATION_RELU,
                                    { FY_INIT_NORMAL, 0.01 },
                                    { FY_INIT_CONSTANT, 0 } };

static fy_layer_t *linear(int64_t in, int64_t out, style_t style)
{
    fy_layer_t *layer;
    const fy_linear_options_t options = { sizeof options, 0, style.activation, style.weight,
                                          style.bias };
    return fy_layer_linear(in, out, &options, &layer) == FY_STATUS_OK ? layer : NULL;
}

static fy_layer_t *conv(int64_t in, int64_t out, int kernel, style_t style)
{
    fy_layer_t *layer;
    fy_conv2d_options_t options = FY_CONV2D_OPTIONS_INIT;
    options.activation = style.activation;
    options.weight = style.weight;
    options.bias = style.bias;
    return fy_layer_conv2d(in, out, kernel, kernel, &options, &layer) == FY_STATUS_OK ? layer
                                                                                      : NULL;
}

/* relu, then windows of 2 x 2, in one pass. The largest element is the same in either order. */
static fy_layer_t *relu_pool(fy_status_t (*make)(const fy_pool2d_attrs_t *, fy_layer_t **))
{
    fy_layer_t *layer;
    const fy_pool2d_attrs_t halves = { 2, 2, 0, 0, 0, 0, FY_ACTIVATION_RELU };
    return make(&halves, &layer) == FY_STATUS_OK ? layer : NULL;
}

static fy_layer_t *dropout(fy_status_t (*make)(double, fy_layer_t **), double p)
{
    fy_layer_t *layer;
    return make(p, &layer) == FY_STATUS_OK ? layer : NULL;
}

static fy_layer_t *simple(fy_status_t (*make)(fy_layer_t **))
{
    fy_layer_t *layer;
    return make(&layer) == FY_STATUS_OK ? layer : NULL;
}

#define SEQUENTIAL(children, out_layer) \
    fy_layer_sequential(sizeof(children) / sizeof *(children), children, out_layer)

/* ---- the models ---- */

static fy_status_t make_linear(fy_layer_t **out_layer)
{
    const fy_layer_child_t children[] = { { "fc", linear(5, 1, small_plain) } };
    return SEQUENTIAL(children, out_layer);
}

static fy_status_t make_mlp(fy_layer_t **out_layer)
{
    const fy_layer_child_t children[] = {
        { "flatten", simple(fy_layer_flatten) },
        { "fc1", linear(784, 128, relu) },
        { "fc2", linear(128, 10, plain) },
    };
    return SEQUENTIAL(children, out_layer);
}

static fy_status_t make_lenet(fy_layer_t **out_layer)
{
    const fy_layer_child_t children[] = {
        { "conv1", conv(1, 20, 3, small_plain) },  { "pool1", relu_pool(fy_layer_avg_pool2d) },
        { "conv2", conv(20, 50, 5, small_plain) }, { "pool2", relu_pool(fy_layer_avg_pool2d) },
        { "flatten", simple(fy_layer_flatten) },   { "fc1", linear(800, 128, small_relu) },
        { "fc2", linear(128, 10, small_plain) },
    };
    return SEQUENTIAL(children, out_layer);
}

static fy_status_t make_mnist2018(fy_layer_t **out_layer)
{
    const fy_layer_child_t children[] = {
        { "conv1", conv(1, 10, 5, plain) },
        { "pool1", relu_pool(fy_layer_max_pool2d) },
        { "conv2", conv(10, 20, 5, plain) },
        { "drop2", dropout(fy_layer_dropout2d, 0.5) },
        { "pool2", relu_pool(fy_layer_max_pool2d) },
        { "flatten", simple(fy_layer_flatten) },
        { "fc1", linear(320, 50, relu) },
        { "drop3", dropout(fy_layer_dropout, 0.5) },
        { "fc2", linear(50, 10, plain) },
        { "log_softmax", simple(fy_layer_log_softmax) },
    };
    return SEQUENTIAL(children, out_layer);
}

static fy_status_t make_mnist(fy_layer_t **out_layer)
{
    const fy_layer_child_t children[] = {
        { "conv1", conv(1, 32, 3, relu) },           { "conv2", conv(32, 64, 3, plain) },
        { "pool", relu_pool(fy_layer_max_pool2d) },  { "drop1", dropout(fy_layer_dropout, 0.25) },
        { "flatten", simple(fy_layer_flatten) },     { "fc1", linear(9216, 128, relu) },
        { "drop2", dropout(fy_layer_dropout, 0.5) }, { "fc2", linear(128, 10, plain) },
    };
    return SEQUENTIAL(children, out_layer);
}

static const struct known {
    const char *name;
    fy_status_t (*make)(fy_layer_t **);
    int rank;
    int64_t dims[3];
} known[] = {
    { "linear", make_linear, 1, { 5 } },       { "mlp", make_mlp, 3, { 28, 28, 1 } },
    { "lenet", make_lenet, 3, { 28, 28, 1 } }, { "mnist2018", make_mnist2018, 3, { 28, 28, 1 } },
    { "mnist", make_mnist, 3, { 28, 28, 1 } },
};
enum { KNOWN = sizeof known / sizeof *known };

const char *fy_model_name_at(size_t index) { return index < KNOWN ? known[index].name : NULL; }

fy_status_t fy_model_open(fy_device_t *device, const char *name, const fy_model_options_t *options,
                          fy_model_t **out_model)
{
    fy_model_options_t own;
    fy_layer_t *layer;
    size_t i = 0;
    if (out_model) *out_model = NULL;
    if (!name) return FYT_FAIL(INVALID_ARGUMENT, "model_open: name is NULL");
    while (i < KNOWN && strcmp(known[i].name, name) != 0) i++;
    if (i == KNOWN)
        return FYT_FAIL(
            INVALID_ARGUMENT,
            "model_open: there is no model '%s'; there are linear, mlp, lenet, mnist2018, mnist",
            name);
    FY_TRY(FY__READ(model_options, "model_open", options, &own));
    if (!own.name) own.name = name;
    FY_TRY(known[i].make(&layer));
    return fy_model_create(device, layer, known[i].rank, known[i].dims, &own, out_model);
}
