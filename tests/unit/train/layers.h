/* Layers for the tests of this folder: NULL if a maker fails, as containers take it. Not a test. */
#ifndef FERRY_TESTS_UNIT_TRAIN_LAYERS_H_
#define FERRY_TESTS_UNIT_TRAIN_LAYERS_H_

#include <ferry/train/layer.h>

/* A layer without options: plain_layer(fy_layer_flatten). */
static inline fy_layer_t *plain_layer(fy_status_t (*make)(fy_layer_t **))
{
    fy_layer_t *layer;
    return make(&layer) == FY_STATUS_OK ? layer : NULL;
}

static inline fy_layer_t *identity(void) { return plain_layer(fy_layer_identity); }

static inline fy_layer_t *dropout(double p)
{
    fy_layer_t *layer;
    return fy_layer_dropout(p, &layer) == FY_STATUS_OK ? layer : NULL;
}

static inline fy_layer_t *op_layer(const char *name)
{
    fy_layer_t *layer;
    return fy_layer_op(name, &layer) == FY_STATUS_OK ? layer : NULL;
}

static inline fy_layer_t *fc(int64_t in, int64_t out)
{
    fy_layer_t *layer;
    const fy_status_t status = fy_layer_linear(in, out, NULL, &layer);
    assert_true(status == FY_STATUS_OK || status == FY_STATUS_OUT_OF_MEMORY);
    return layer;
}

/* The result has the input's height and width. */
static inline fy_layer_t *conv3x3(int64_t in, int64_t out)
{
    fy_conv2d_options_t options = FY_CONV2D_OPTIONS_INIT;
    fy_layer_t *layer;
    options.padding_h = options.padding_w = 1;
    return fy_layer_conv2d(in, out, 3, 3, &options, &layer) == FY_STATUS_OK ? layer : NULL;
}

static inline fy_layer_t *batch_norm(int64_t channels, fy_activation_t activation)
{
    fy_batch_norm_options_t options = FY_BATCH_NORM_OPTIONS_INIT;
    fy_layer_t *layer;
    options.activation = activation;
    return fy_layer_batch_norm(channels, &options, &layer) == FY_STATUS_OK ? layer : NULL;
}

/* Up to eight layers, called "a", "b", ... */
static inline fy_layer_t *sequence(size_t count, fy_layer_t *const *layers)
{
    static const char names[8][2] = { "a", "b", "c", "d", "e", "f", "g", "h" };
    fy_layer_child_t children[8];
    fy_layer_t *layer;
    for (size_t i = 0; i < count; i++) children[i] = (fy_layer_child_t){ names[i], layers[i] };
    return fy_layer_sequential(count, children, &layer) == FY_STATUS_OK ? layer : NULL;
}
#define SEQUENCE(...)                                                        \
    sequence(sizeof((fy_layer_t *[]){ __VA_ARGS__ }) / sizeof(fy_layer_t *), \
             (fy_layer_t *[]){ __VA_ARGS__ })

#endif
