/* Models: layers with parameters on a device. All parameters are views of one block, and all
 * gradients of another: one request updates them, one upload or download copies them. Buffers
 * (running statistics) are views of a third block, which no optimizer updates. */
#ifndef FERRY_TRAIN_MODEL_H_
#define FERRY_TRAIN_MODEL_H_

#include <ferry/tape.h>
#include <ferry/train/layer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* owned by the caller, never by a scope; used by one thread at a time */
typedef struct fy_model fy_model_t;

/* The layers from `first` to `end` - 1, as fy_model_layer counts them. */
typedef struct fy_segment {
    size_t first, end;
} fy_segment_t;

typedef struct fy_model_options {
    size_t struct_size;
    const char *name; /* "mnist"; copied; NULL: "model" */
    /* of parameters, gradients, buffers and x: F32, F64; F16, BF16 if there are no buffers */
    fy_dtype_t dtype;
    int64_t seed; /* of the initial values and, with another stream, of dropout */
    /* Activation checkpointing (fy_tape_recompute): the layers in so many segments, of about equal
     * results, all but the last of which are computed again in the backward. 0, 1: none;
     * FY_RECOMPUTE_SQRT: the square root of the most that the model can have */
    int recompute;
    /* 1: the tapes of fy_model_watch keep no results of cheap ops (fy_tape_recompute_cheap) */
    int recompute_cheap;
    /* 1: linear and conv2d layers without activation have no bias where a batch norm alone reads
     * their result: the norm subtracts the mean of each channel, and has its own bias (Ioffe and
     * Szegedy 2015, section 3.2). fy_model_info_t.dropped_params counts them; other parameters
     * keep their names */
    int drop_bias;
    /* fy_tape_offload after each of so many segments but the last, as above. 0, 1: no;
     * FY_RECOMPUTE_SQRT: as above. Not with `recompute`; such a step cannot be recorded as a
     * graph */
    int offload;
    /* In place of `recompute`: these layers are computed again in the backward, others are not.
     * Ascending, read during the call. A segment begins and ends where the layers behind read one
     * result only */
    size_t nsegments;
    const fy_segment_t *segments;
    /* F16, BF16: the model has a copy of its f32 parameters for autocast, which tapes of
     * fy_model_watch use in place of casts. Optimizers of fy_optimizer_create_model write it in
     * their step; after another write all parameters are cast at once. F32: none */
    fy_dtype_t low;
} fy_model_options_t;
#define FY_RECOMPUTE_SQRT     (-1)
#define FY_MODEL_OPTIONS_INIT FY_DEFAULTS_(model_options, .dtype = FY_DTYPE_F32, .seed = 1)
FY_API void fy_model_options_init(fy_model_options_t *options, size_t nbytes);

/* Allocates on `device` the parameters, as many bytes of gradients (also for a model that only
 * evaluates: no option leaves them out), the buffers, and a random state of 16 bytes. Draws the
 * initial values there: light requests only. `rank, dims` is the shape of one sample, [28, 28, 1].
 * Takes ownership of `layer`, even when it fails. options may be NULL.
 * Fails: SHAPE_MISMATCH (names the layer, the expected and the given shape), INVALID_ARGUMENT (also
 * more segments than there are: a segment ends where the layers after it read one result only),
 * UNSUPPORTED (buffers in half precision), OUT_OF_MEMORY. */
FY_API_STATUS fy_model_create(fy_device_t *device, fy_layer_t *layer, int rank, const int64_t *dims,
                              const fy_model_options_t *options, fy_model_t **out_model);
/* A known model: "linear" (5 -> 1), "mlp" (784-128-10), "lenet", "mnist2018", "mnist", "resnet18",
 * "mobilenet_v3_large", "vit_tiny", "gpt". The last four have options:
 * "resnet18:channels=3,classes=100" (docs/models.md). fy_model_describe prints the layers.
 * Fails: INVALID_ARGUMENT (unknown name or option: lists the known), as fy_model_create. */
FY_API_STATUS fy_model_open(fy_device_t *device, const char *name,
                            const fy_model_options_t *options, fy_model_t **out_model);
/* The shape of one sample of a known model: [28, 28, 1], or the [context] tokens of "gpt". out_dims
 * has room for FY_MAX_RANK. Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_model_sample_shape(const char *name, int *out_rank, int64_t *out_dims);
/* The i-th known name; NULL past the last. Static. */
FY_API const char *fy_model_name_at(size_t index);
/* NULL is ignored. Memory that a tape or a request still uses is freed after that use. */
FY_API void fy_model_destroy(fy_model_t *model);

/* 1: training: dropout draws, batch norm uses and updates statistics of the batch. 0: evaluation. A
 * new model is in training. */
FY_API void fy_model_set_training(fy_model_t *model, int is_training);
/* y = model(x), x [n, dims...]. Records on the thread's tape, if one is recording. Fails:
 * SHAPE_MISMATCH, DEVICE_MISMATCH, as ops do. */
FY_API_STATUS fy_model_forward(fy_model_t *model, fy_tensor_t *x, fy_tensor_t **out_y);
/* From now on each batch norm in training has the mean and variance of all ranks' values, joined
 * in f64 in the order of the ranks, which may have different numbers of samples. The forward
 * gathers 1 + 2 C values, the backward sums 2 C; on a device the first is a download and an upload,
 * which guards refuse as such. Gradients of x are those of the whole batch; those of weight and
 * bias are sums over this rank's samples, as all gradients of parameters. NULL: no exchange.
 * *exchange is copied; keep what its `user` points to until the last backward. fy_ddp_create
 * (ferry/dist_train.h) calls this.
 * Fails: INVALID_ARGUMENT, DTYPE_MISMATCH (parameters are neither f32 nor f64); the forward:
 * SHAPE_MISMATCH on all ranks (a rank has no values, or all together have one a channel),
 * UNSUPPORTED (a graph is recorded), as the functions. */
FY_API_STATUS fy_model_sync_norms(fy_model_t *model, const fy_norm_exchange_t *exchange);
/* Watches all parameters; their gradients are in the model's block. Once for each tape. Calls
 * fy_tape_recompute_cheap if options.recompute_cheap was 1. */
FY_API_STATUS fy_model_watch(fy_model_t *model, fy_tape_t *tape);
/* fy_tape_backward. Then zeroes the gradients on which the loss did not depend (a light request
 * each; none in most models). A refused call leaves all gradients as they were. With
 * `accumulate`, a tape without gradients since the model was watched adds to those that are there,
 * too: a copy of the block and two requests more; not with on_grad (INVALID_ARGUMENT). */
FY_API_STATUS fy_model_backward(fy_model_t *model, fy_tape_t *tape, const fy_tensor_t *loss,
                                const fy_backward_options_t *options);

typedef struct fy_param {
    size_t struct_size;
    const char *name;          /* "conv1.weight"; valid as long as the model */
    fy_tensor_t *value, *grad; /* the model's own handles: do not destroy. A buffer has no grad */
} fy_param_t;
#define FY_PARAM_INIT FY_ZEROED_(param)
/* In the order of the layers. Fails: INVALID_ARGUMENT (out of range). */
FY_API_STATUS fy_model_param(const fy_model_t *model, size_t index, fy_param_t *out_param);
/* The buffers, as fy_model_param the parameters. */
FY_API_STATUS fy_model_buffer(const fy_model_t *model, size_t index, fy_param_t *out_buffer);
/* A parameter or a buffer. Fails: INVALID_ARGUMENT (no such name: lists similar names). */
FY_API_STATUS fy_model_find_param(const fy_model_t *model, const char *name, fy_param_t *out_param);

typedef struct fy_model_info {
    size_t struct_size;
    const char *name;
    fy_device_t *device;
    /* [elements], all parameters in order, each at a multiple of 16 elements; the gaps are 0, those
     * of `grads` again with each fy_model_backward. The model's own handles */
    fy_tensor_t *values, *grads;
    fy_tensor_t *rng; /* i64 [2], of dropout */
    uint64_t params;  /* elements, without gaps */
    size_t nparams;   /* tensors */
    uint64_t nbytes;  /* of the parameters, without gaps */
    uint64_t macs;    /* multiply-accumulates of one sample's forward */
    int out_rank;     /* of one sample's result */
    int64_t out_dims[FY_MAX_RANK];
    int is_training;
    fy_tensor_t *buffers;    /* [elements], as `values`; NULL: no layer has a buffer */
    uint64_t buffers_nbytes; /* without gaps */
    size_t nbuffers;         /* tensors */
    uint64_t dropped_params; /* elements of biases that drop_bias left out; not in `params` */
} fy_model_info_t;
#define FY_MODEL_INFO_INIT FY_ZEROED_(model_info)
FY_API_STATUS fy_model_query(const fy_model_t *model, fy_model_info_t *out_info);
/* ---- layers one by one, to measure or inspect them ---- */

/* Layers that compute, and the joins of branches, in the order in which they run. */
FY_API size_t fy_model_layer_count(const fy_model_t *model);
typedef struct fy_model_layer_info {
    size_t struct_size;
    const char *name, *type;     /* "layer1.0.conv1", "conv2d"; valid as long as the model */
    size_t first_param, nparams; /* its parameters: numbers for fy_model_param */
    size_t tied_param;           /* that of another layer which it uses; SIZE_MAX: none */
    /* of a sum that also computes the batch norm before it: that layer; SIZE_MAX: none */
    size_t norm;
    int is_fused; /* 1: such a batch norm, which has no separate forward */
    /* The layers whose results it reads; SIZE_MAX: the model's input. A sum with a batch norm reads
     * that norm's input */
    size_t ninputs, inputs[16];
    uint64_t macs; /* of one sample's forward */
    int out_rank;  /* of one sample's result */
    int64_t out_dims[FY_MAX_RANK];
    int64_t dropped_bias; /* elements; 0: it has the bias that it was made with, if any */
} fy_model_layer_info_t;
#define FY_MODEL_LAYER_INFO_INIT FY_ZEROED_(model_layer_info)
/* Fails: INVALID_ARGUMENT (out of range). */
FY_API_STATUS fy_model_layer(const fy_model_t *model, size_t index,
                             fy_model_layer_info_t *out_info);
/* The forward of one layer alone: `inputs` are its ninputs tensors [n, ...]. Otherwise as
 * fy_model_forward. Fails: INVALID_ARGUMENT (out of range, or is_fused), SHAPE_MISMATCH. */
FY_API_STATUS fy_model_layer_forward(fy_model_t *model, size_t index, fy_tensor_t *const *inputs,
                                     fy_tensor_t **out_y);
/* A table, one line a layer: name, type, output shape, parameters, MACs, bytes; one for all
 * buffers, if there are any; and the sums of the parameters.
 * Writes at most `size` bytes with a final 0, and returns the length of the whole text, as
 * snprintf. */
FY_API size_t fy_model_describe(const fy_model_t *model, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
