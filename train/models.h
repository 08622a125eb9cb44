/* Inside of the known models and of layers made of others. Not public. Next: models.c. */
#ifndef FERRY_TRAIN_MODELS_INTERNAL_H_
#define FERRY_TRAIN_MODELS_INTERNAL_H_

#include "layer.h"

#define FYT_COUNT(array) (sizeof(array) / sizeof *(array))
/* `children` is an array, not a pointer. */
#define FYT_SEQUENTIAL(children, out_layer) \
    fy_layer_sequential(FYT_COUNT(children), children, out_layer)

/* ---- short ways to write layers down: NULL if a maker fails, which containers refuse ---- */

typedef struct fyt_style {
    fy_activation_t activation;
    fy_init_t weight, bias;
    int no_bias;
} fyt_style_t;

static const fyt_style_t FYT_PLAIN = {
    FY_ACTIVATION_NONE, { FY_INIT_DEFAULT, 0 }, { FY_INIT_DEFAULT, 0 }, 0
};
static const fyt_style_t FYT_RELU = {
    FY_ACTIVATION_RELU, { FY_INIT_DEFAULT, 0 }, { FY_INIT_DEFAULT, 0 }, 0
};

/* The layer of a maker that returned `status`. */
static inline fy_layer_t *fyt_made(fy_status_t status, fy_layer_t *const *layer)
{
    return status == FY_STATUS_OK ? *layer : NULL;
}
fy_layer_t *fyt_linear(int64_t in, int64_t out, fyt_style_t style);
/* A square kernel with padding (kernel - 1) / 2 if `is_padded`, else 0. */
fy_layer_t *fyt_conv(int64_t in, int64_t out, int kernel, int stride, int groups, int is_padded,
                     fyt_style_t style);
/* fy_layer_layer_norm */
fy_layer_t *fyt_norm(int64_t width, double eps);
fy_layer_t *fyt_op(const char *name);
fy_layer_t *fyt_simple(fy_status_t (*make)(fy_layer_t **));
fy_layer_t *fyt_dropout(fy_status_t (*make)(double, fy_layer_t **), double p);
fy_layer_t *fyt_sequence(size_t count, const fy_layer_child_t *children);

/* ---- the makers; `options` are the values of the table's options, in its order ---- */

fy_status_t fyt_make_linear(const int64_t *options, fy_layer_t **out_layer);
fy_status_t fyt_make_mlp(const int64_t *options, fy_layer_t **out_layer);
fy_status_t fyt_make_lenet(const int64_t *options, fy_layer_t **out_layer);
fy_status_t fyt_make_mnist2018(const int64_t *options, fy_layer_t **out_layer);
fy_status_t fyt_make_mnist(const int64_t *options, fy_layer_t **out_layer);
fy_status_t fyt_make_resnet18(const int64_t *options, fy_layer_t **out_layer);
fy_status_t fyt_make_mobilenet_v3_large(const int64_t *options, fy_layer_t **out_layer);
fy_status_t fyt_make_vit_tiny(const int64_t *options, fy_layer_t **out_layer);
fy_status_t fyt_make_gpt(const int64_t *options, fy_layer_t **out_layer);

#endif
