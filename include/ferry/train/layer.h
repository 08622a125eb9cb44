/* Layers: the parts of a network. A layer is a description; a model made from it has the bytes
 * (model.h).
 * A maker returns a layer that you own until you pass it to a sequential or a model, which then
 * owns it. Activations are NHWC. Names follow PyTorch's. Formulas: the ops of the same name
 * (ferry/ops.h). */
#ifndef FERRY_TRAIN_LAYER_H_
#define FERRY_TRAIN_LAYER_H_

#include <ferry/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fy_layer fy_layer_t;

/* The initial values of a parameter. fan_in and fan_out are a linear layer's inputs and outputs;
 * for a convolution times the kernel's area, divided by groups. Drawn on the device from the
 * model's seed, without an upload. */
typedef enum fy_init_kind {
    /* weights and biases uniform in +-1/sqrt(fan_in), as in PyTorch's linear and conv2d */
    FY_INIT_DEFAULT,
    FY_INIT_CONSTANT,               /* value */
    FY_INIT_UNIFORM,                /* in [-value, value) */
    FY_INIT_NORMAL,                 /* mean 0, std value */
    FY_INIT_KAIMING_UNIFORM,        /* +-sqrt(6 / fan_in) (He et al. 2015, for relu) */
    FY_INIT_KAIMING_NORMAL,         /* std sqrt(2 / fan_in) */
    FY_INIT_KAIMING_NORMAL_FAN_OUT, /* std sqrt(2 / fan_out) */
    FY_INIT_XAVIER_UNIFORM,         /* +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010) */
    FY_INIT_XAVIER_NORMAL           /* std sqrt(2 / (fan_in + fan_out)) */
} fy_init_kind_t;
typedef struct fy_init {
    fy_init_kind_t kind;
    double value;
} fy_init_t;

typedef struct fy_linear_options {
    size_t struct_size;
    int no_bias;
    fy_activation_t activation; /* fused */
    fy_init_t weight, bias;     /* DEFAULT */
} fy_linear_options_t;
#define FY_LINEAR_OPTIONS_INIT FY_ZEROED_(linear_options)
FY_API void fy_linear_options_init(fy_linear_options_t *options, size_t nbytes);

typedef struct fy_conv2d_options {
    size_t struct_size;
    /* as in fy_conv2d_attrs_t */
    int32_t stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups;
    int no_bias;
    fy_activation_t activation;
    fy_init_t weight, bias;
} fy_conv2d_options_t;
#define FY_CONV2D_OPTIONS_INIT                                                                   \
    FY_DEFAULTS_(conv2d_options, .stride_h = 1, .stride_w = 1, .dilation_h = 1, .dilation_w = 1, \
                 .groups = 1)
FY_API void fy_conv2d_options_init(fy_conv2d_options_t *options, size_t nbytes);

/* Parameters "weight" [out, in], "bias" [out]: [n, ..., in] -> [n, ..., out]. options may be NULL.
 * Makers fail: INVALID_ARGUMENT, OUT_OF_MEMORY. fy_model_create checks whether layers fit
 * together. */
FY_API_STATUS fy_layer_linear(int64_t in, int64_t out, const fy_linear_options_t *options,
                              fy_layer_t **out_layer);
/* Parameters "weight" [out, kernel_h, kernel_w, in / groups], "bias" [out]: [n, H, W, in] -> [n,
 * OH, OW, out]. */
FY_API_STATUS fy_layer_conv2d(int64_t in, int64_t out, int kernel_h, int kernel_w,
                              const fy_conv2d_options_t *options, fy_layer_t **out_layer);
/* In training only; in evaluation the result is the input itself. Draws from the model's random
 * state on the device. */
FY_API_STATUS fy_layer_dropout(double p, fy_layer_t **out_layer);
FY_API_STATUS fy_layer_dropout2d(double p, fy_layer_t **out_layer); /* whole channels */
FY_API_STATUS fy_layer_max_pool2d(const fy_pool2d_attrs_t *attrs, fy_layer_t **out_layer);
FY_API_STATUS fy_layer_avg_pool2d(const fy_pool2d_attrs_t *attrs, fy_layer_t **out_layer);
FY_API_STATUS fy_layer_global_avg_pool2d(fy_layer_t **out_layer); /* [n, H, W, C] -> [n, C] */
/* [n, ...] -> [n, product]; a view */
FY_API_STATUS fy_layer_flatten(fy_layer_t **out_layer);
FY_API_STATUS fy_layer_log_softmax(fy_layer_t **out_layer); /* along the last axis */
/* An op with one source, one result of its shape and no attributes, by name: "relu", "tanh",
 * "gelu", ... */
FY_API_STATUS fy_layer_op(const char *op_name, fy_layer_t **out_layer);

typedef struct fy_layer_child {
    /* copied; its parameters are named "name.weight"; without '.', unique in its sequential */
    const char *name;
    fy_layer_t *layer;
} fy_layer_child_t;
/* Layers applied in order. Takes ownership of the children, even when it fails, so that calls of
 * makers can be nested. A NULL child (a maker that failed) is INVALID_ARGUMENT. */
FY_API_STATUS fy_layer_sequential(size_t count, const fy_layer_child_t *children,
                                  fy_layer_t **out_layer);

/* ---- custom layers ---- */

typedef struct fy_layer_param {
    const char *name;
    int rank;
    int64_t dims[FY_MAX_RANK];
    int64_t fan_in, fan_out; /* for the init */
    fy_init_t init;
} fy_layer_param_t;

/* The arguments of a forward. */
typedef struct fy_pass {
    size_t struct_size;
    int is_training;
    fy_tensor_t *rng; /* the model's random state, for fy_rand, fy_dropout, ... */
} fy_pass_t;

typedef struct fy_layer_def {
    size_t struct_size;
    const char *type; /* "linear": what a description prints; copied */
    size_t nparams;
    const fy_layer_param_t *params; /* copied */
    /* Both fail by returning fy_error_set(...).
     * Computes the output's shape and the multiply-accumulates from the input's shape. dims[0] is
     * the batch (fy_model_create passes 1): copy it to out_dims[0]. */
    fy_status_t (*shape)(void *user, int rank, const int64_t *dims, int *out_rank,
                         int64_t *out_dims, uint64_t *out_macs);
    /* Makes *out_y, of the shape that `shape` computes, by calls that have gradients. It may return
     * x itself. The scope of fy_model_forward owns all tensors that it makes. `params` are the
     * nparams parameters, then the nbuffers buffers. */
    fy_status_t (*forward)(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                           fy_tensor_t *x, fy_tensor_t **out_y);
    void (*destroy)(void *user); /* may be NULL */
    /* Buffers: tensors that belong to the model and are not trained, such as running statistics.
     * Saved, loaded and replicated with the parameters. `forward` writes them in place in an inner
     * scope, after fy_tape_begin(NULL): else the tape records the write, and gradients pass through
     * the buffer. Write a buffer before the result reads it, or read a copy. Copied; names must
     * differ from those of the parameters. */
    size_t nbuffers;
    const fy_layer_param_t *buffers;
} fy_layer_def_t;
#define FY_LAYER_DEF_INIT FY_ZEROED_(layer_def)
/* Takes ownership of `user`, even when it fails (`user` is then destroyed). All layers above are
 * made with this function. */
FY_API_STATUS fy_layer_create(const fy_layer_def_t *def, void *user, fy_layer_t **out_layer);

/* Not for layers inside a sequential or a model. NULL is ignored. */
FY_API void fy_layer_destroy(fy_layer_t *layer);

#ifdef __cplusplus
}
#endif
#endif
