/* Layers: the parts of a network. A layer is a description; a model made from it has the bytes
 * (model.h).
 * A maker returns a layer that you own until you pass it to a container or a model, which then
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
 * for a convolution times the kernel's area, divided by groups: how many products an output adds,
 * and how many a gradient of the input adds. torch.nn.init does not divide fan_out by groups:
 * FAN_OUT gives a depthwise kernel sqrt(groups) times its deviation, and XAVIER a larger one, too.
 * Drawn on the device from the model's seed, without an upload. */
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

typedef struct fy_attention_options {
    size_t struct_size;
    int is_causal; /* 1: a position attends to itself and to earlier ones only */
    int no_bias;
    fy_init_t weight, bias; /* weight: of c_attn; bias: of both projections. DEFAULT */
    fy_init_t proj_weight;  /* of c_proj. DEFAULT */
} fy_attention_options_t;
#define FY_ATTENTION_OPTIONS_INIT FY_ZEROED_(attention_options)
FY_API void fy_attention_options_init(fy_attention_options_t *options, size_t nbytes);

typedef struct fy_transformer_options {
    size_t struct_size;
    int is_causal;
    int is_exact_gelu;      /* 1: fy_gelu; 0: fy_gelu_tanh */
    int64_t hidden;         /* width between the layers of the MLP; 0: 4 width */
    fy_init_t weight, bias; /* weight: of c_attn and c_fc; bias: of all. DEFAULT */
    fy_init_t proj_weight;  /* of both c_proj. DEFAULT */
} fy_transformer_options_t;
#define FY_TRANSFORMER_OPTIONS_INIT FY_ZEROED_(transformer_options)
FY_API void fy_transformer_options_init(fy_transformer_options_t *options, size_t nbytes);

typedef struct fy_embedding_options {
    size_t struct_size;
    fy_init_t weight; /* NORMAL, 1 */
} fy_embedding_options_t;
#define FY_EMBEDDING_OPTIONS_INIT FY_DEFAULTS_(embedding_options, .weight = { FY_INIT_NORMAL, 1 })
FY_API void fy_embedding_options_init(fy_embedding_options_t *options, size_t nbytes);

typedef struct fy_batch_norm_options {
    size_t struct_size;
    double momentum, eps;       /* as in fy_batch_norm_attrs_t */
    fy_activation_t activation; /* relu is fused */
} fy_batch_norm_options_t;
#define FY_BATCH_NORM_OPTIONS_INIT FY_DEFAULTS_(batch_norm_options, .momentum = 0.1, .eps = 1e-5)
FY_API void fy_batch_norm_options_init(fy_batch_norm_options_t *options, size_t nbytes);

typedef struct fy_layer_norm_options {
    size_t struct_size;
    double eps;
    int no_bias;   /* rms_norm has none */
    int no_affine; /* no weight, no bias */
} fy_layer_norm_options_t;
#define FY_LAYER_NORM_OPTIONS_INIT FY_DEFAULTS_(layer_norm_options, .eps = 1e-5)
FY_API void fy_layer_norm_options_init(fy_layer_norm_options_t *options, size_t nbytes);

/* Parameters "weight" [out, in], "bias" [out]: [n, ..., in] -> [n, ..., out]. options may be NULL.
 * Makers fail: INVALID_ARGUMENT, OUT_OF_MEMORY. fy_model_create checks whether layers fit
 * together. */
FY_API_STATUS fy_layer_linear(int64_t in, int64_t out, const fy_linear_options_t *options,
                              fy_layer_t **out_layer);
/* A linear layer without parameters and bias: its weight [out, in] is the parameter `weight_name`
 * of the same model, "wte.weight". Both uses add to one gradient. fy_model_create fails with
 * INVALID_ARGUMENT if that parameter does not exist, with SHAPE_MISMATCH if its shape differs. */
FY_API_STATUS fy_layer_tied_linear(int64_t in, int64_t out, const char *weight_name,
                                   fy_layer_t **out_layer);
/* Attention of `heads` heads of width / heads (Vaswani et al. 2017): [n, T, width] -> the same.
 * Parameters as nanoGPT's: "c_attn.weight" [3 width, width] (queries, keys, values), "c_attn.bias",
 * "c_proj.weight" [width, width], "c_proj.bias". The scores are never stored
 * (fy_scaled_dot_product_attention). options may be NULL. */
FY_API_STATUS fy_layer_attention(int64_t width, int64_t heads,
                                 const fy_attention_options_t *options, fy_layer_t **out_layer);
/* A block of a transformer whose norms come first (Radford et al. 2019): y = x +
 * attention(norm(x)), then y + mlp(norm(y)), [n, T, width] -> the same. The MLP is a linear layer
 * to `hidden`, gelu, and a linear layer back. Children "ln_1", "attn"
 * (fy_layer_attention), "ln_2", "mlp" with "c_fc" and "c_proj". options may be NULL. */
FY_API_STATUS fy_layer_transformer_block(int64_t width, int64_t heads,
                                         const fy_transformer_options_t *options,
                                         fy_layer_t **out_layer);
/* Parameter "weight" [count, width]: indices i32 or i64 [n, ...] -> their rows [n, ..., width]. An
 * index outside 0 .. count-1: as fy_gather. The gradient adds rows in order: the same bits by any
 * number of threads. options may be NULL. */
FY_API_STATUS fy_layer_embedding(int64_t count, int64_t width,
                                 const fy_embedding_options_t *options, fy_layer_t **out_layer);
/* Learned positions: x [n, T, width] + weight[0:T], T at most count. Parameter as above. */
FY_API_STATUS fy_layer_position_embedding(int64_t count, int64_t width,
                                          const fy_embedding_options_t *options,
                                          fy_layer_t **out_layer);
/* A learned token in front (Devlin et al. 2019, Dosovitskiy et al. 2021): parameter "cls_token"
 * [1, 1, width], [n, ..., width] -> [n, T + 1, width], where T is the product of the axes between:
 * patches [n, H, W, width] become rows. fy_layer_select takes it off. options may be NULL. */
FY_API_STATUS fy_layer_class_token(int64_t width, const fy_embedding_options_t *options,
                                   fy_layer_t **out_layer);
/* Parameters "weight" [out, kernel_h, kernel_w, in / groups], "bias" [out]: [n, H, W, in] -> [n,
 * OH, OW, out]. */
FY_API_STATUS fy_layer_conv2d(int64_t in, int64_t out, int kernel_h, int kernel_w,
                              const fy_conv2d_options_t *options, fy_layer_t **out_layer);
/* Parameters "weight" (1), "bias" (0) [channels], buffers "running_mean" (0), "running_var" (1):
 * [n, ..., channels] -> the same. In training fy_batch_norm, in evaluation fy_batch_norm_inference.
 * With fy_model_sync_norms, statistics are those of all ranks. options may be NULL. */
FY_API_STATUS fy_layer_batch_norm(int64_t channels, const fy_batch_norm_options_t *options,
                                  fy_layer_t **out_layer);
/* Parameters "weight" (1), "bias" (0) [width]: [n, ..., width] -> the same, by fy_layer_norm and
 * fy_rms_norm, which has only a weight. options may be NULL: eps 1e-5. */
FY_API_STATUS fy_layer_layer_norm(int64_t width, const fy_layer_norm_options_t *options,
                                  fy_layer_t **out_layer);
FY_API_STATUS fy_layer_rms_norm(int64_t width, const fy_layer_norm_options_t *options,
                                fy_layer_t **out_layer);
/* The same parameters [channels]: [n, ..., channels] -> the same, by fy_group_norm. */
FY_API_STATUS fy_layer_group_norm(int64_t groups, int64_t channels,
                                  const fy_layer_norm_options_t *options, fy_layer_t **out_layer);
/* In training only; in evaluation the result is the input itself. Draws from the model's random
 * state on the device. */
FY_API_STATUS fy_layer_dropout(double p, fy_layer_t **out_layer);
FY_API_STATUS fy_layer_dropout2d(double p, fy_layer_t **out_layer); /* whole channels */
/* The ops of these names. attrs has at least the size of the kernel. */
FY_API_STATUS fy_layer_max_pool2d(const fy_pool2d_attrs_t *attrs, fy_layer_t **out_layer);
FY_API_STATUS fy_layer_avg_pool2d(const fy_pool2d_attrs_t *attrs, fy_layer_t **out_layer);
/* [n, H, W, C] -> [n, height, width, C] */
FY_API_STATUS fy_layer_adaptive_avg_pool2d(int height, int width, fy_layer_t **out_layer);
FY_API_STATUS fy_layer_global_avg_pool2d(fy_layer_t **out_layer); /* [n, H, W, C] -> [n, C] */
/* [n, ...] -> [n, product]; a view */
FY_API_STATUS fy_layer_flatten(fy_layer_t **out_layer);
/* Number `index` of `axis`, 1 or more: [n, T, width] -> [n, width] if axis is 1; a view */
FY_API_STATUS fy_layer_select(int axis, int64_t index, fy_layer_t **out_layer);
FY_API_STATUS fy_layer_log_softmax(fy_layer_t **out_layer); /* along the last axis */
/* An op with one source, one result of its shape and dtype and no attributes, by name: "relu",
 * "tanh", "gelu", ... Tests such as "isnan", which give bool, are INVALID_ARGUMENT. The gradient of
 * "floor", "ceil" and "round" is 0. A registered op without `backward` cannot train. */
FY_API_STATUS fy_layer_op(const char *op_name, fy_layer_t **out_layer);

/* Returns its input. */
FY_API_STATUS fy_layer_identity(fy_layer_t **out_layer);

/* ---- containers ---- */

typedef struct fy_layer_child {
    /* Copied. Its parameters are named "name.weight"; "": "weight". Without '.'; names other than
     * "" are unique in their container */
    const char *name;
    fy_layer_t *layer;
} fy_layer_child_t;
/* Layers applied in order. Takes ownership of the children, even when it fails, so that calls of
 * makers can be nested. Fails: INVALID_ARGUMENT: a child is NULL (the text ends with this thread's
 * last failure, which is that of its maker, if one was called), or is given twice (names both
 * places), or has 256 containers in one another. OUT_OF_MEMORY, also if a child is NULL and that
 * last failure is OUT_OF_MEMORY. */
FY_API_STATUS fy_layer_sequential(size_t count, const fy_layer_child_t *children,
                                  fy_layer_t **out_layer);

/* Activation checkpointing: the child, whose results are not kept for the backward; it runs again
 * there (fy_tape_recompute), with the random numbers and buffers of the first time. Same bits,
 * running statistics are updated once. Parameters are named as the child's. They can be nested. A
 * batch norm at its end that a sum computes (fy_layer_branches) is not part of it.
 * Ownership and failures as fy_layer_sequential. A custom layer inside that writes to other tensors
 * than its buffers and the model's random state is UNSUPPORTED while a tape records. */
FY_API_STATUS fy_layer_checkpoint(fy_layer_t *child, fy_layer_t **out_layer);

typedef enum fy_join {
    FY_JOIN_ADD,   /* in the order of the branches; dims of 1 broadcast */
    FY_JOIN_MUL,   /* the same */
    FY_JOIN_CONCAT /* along the last axis */
} fy_join_t;
/* 1 to 16 layers that take the same input, each with its own result. The output is `activation` of
 * the joined results. Ownership as fy_layer_sequential. If a branch of two that are added ends in a
 * batch norm without activation, and `activation` is NONE or RELU, one op computes norm, sum and
 * relu. */
FY_API_STATUS fy_layer_branches(fy_join_t join, size_t count, const fy_layer_child_t *branches,
                                fy_activation_t activation, fy_layer_t **out_layer);
/* activation(body(x) + shortcut(x)): branches named "" and "downsample". shortcut NULL: x, also if
 * its maker failed: check that first. Ownership and failures as fy_layer_sequential: a NULL body is
 * INVALID_ARGUMENT. */
FY_API_STATUS fy_layer_residual(fy_layer_t *body, fy_layer_t *shortcut, fy_activation_t activation,
                                fy_layer_t **out_layer);
/* Squeeze-and-excitation (Hu et al. 2018): x [n, H, W, channels] times
 * scale_op(fc2(relu(fc1(mean of x over H and W)))), scale_op "sigmoid" or "hardsigmoid": the
 * results, from 0 to 1, are shares. Any other op is INVALID_ARGUMENT. fc1 and fc2 are convolutions
 * of 1 x 1 with `squeezed` channels between them. */
FY_API_STATUS fy_layer_squeeze_excite(int64_t channels, int64_t squeezed, const char *scale_op,
                                      fy_init_t weight, fy_init_t bias, fy_layer_t **out_layer);

/* ---- custom layers ---- */

typedef struct fy_layer_param {
    const char *name;
    int rank;
    int64_t dims[FY_MAX_RANK];
    int64_t fan_in, fan_out; /* for the init */
    fy_init_t init;
} fy_layer_param_t;

/* How the batch norms of several processes' replicas of a model join their statistics:
 * fy_model_sync_norms. All ranks make the same calls in the same order. */
typedef struct fy_norm_exchange {
    size_t struct_size;
    int ranks;
    void *user;
    /* Both return when the result can be read; a failure is that of the forward or the backward.
     * `all` [ranks * k] becomes the `part` [k] of all ranks, in their order: f64, on the host */
    fy_status_t (*gather)(void *user, fy_tensor_t *all, fy_tensor_t *part);
    /* `tensor` becomes its sum over all ranks, with the same bits on each of them: the parameters'
     * dtype, on the model's device */
    fy_status_t (*sum)(void *user, fy_tensor_t *tensor);
} fy_norm_exchange_t;
#define FY_NORM_EXCHANGE_INIT FY_ZEROED_(norm_exchange)

/* The arguments of a forward. */
typedef struct fy_pass {
    size_t struct_size;
    int is_training;
    fy_tensor_t *rng;                /* the model's random state, for fy_rand, fy_dropout, ... */
    const fy_norm_exchange_t *norms; /* of fy_model_sync_norms; NULL: statistics of this batch */
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
/* Takes ownership of `user`, even when it fails (`user` is then destroyed). All layers above
 * but containers are made with this function. */
FY_API_STATUS fy_layer_create(const fy_layer_def_t *def, void *user, fy_layer_t **out_layer);

/* Not for layers inside a container or a model. NULL is ignored. */
FY_API void fy_layer_destroy(fy_layer_t *layer);

#ifdef __cplusplus
}
#endif
#endif
