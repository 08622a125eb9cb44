/* Inside of a model, shared by the files model*.c. Not public. Next: model.c. */
#ifndef FERRY_TRAIN_MODEL_INTERNAL_H_
#define FERRY_TRAIN_MODEL_INTERNAL_H_

#include <ferry/train/model.h>

#include "layer.h"

/* The input of a model, where the number of a leaf stands for its result. */
#define FYT_MODEL_INPUT ((size_t)-1)
#define FYT_NO_LEAF     ((size_t)-1)

/* A layer that computes, or the join of branches, in the order in which they run; sequentials are
 * not listed. */
typedef struct fyt_leaf {
    const fy_layer_t *layer; /* of a join: the branches */
    char *name;              /* "conv1", "block.conv2"; "" if the model is one layer */
    size_t first_param;      /* of the model's params */
    size_t first_arg;        /* of the model's args: its parameters, buffers, tied parameter */
    size_t first_input;      /* of the model's inputs */
    size_t ninputs;          /* 1 but for a join */
    size_t reads;            /* the number of inputs, of all leaves, that are its result; and 1 for
                              * the model's result */
    /* A join that adds the result of a batch norm: that leaf, which the join computes with the sum;
     * else FYT_NO_LEAF. */
    size_t norm;
    int is_fused; /* a batch norm that a join computes */
    int rank;     /* of its output for one sample, without the batch */
    int64_t dims[FY_MAX_RANK];
    uint64_t macs; /* of one sample */
} fyt_leaf_t;

/* A leaf's result during a forward. */
typedef struct fyt_result {
    fy_tensor_t *tensor;
    size_t root;  /* the leaf whose result has the same handle: another one, if a layer returned its
                   * input */
    size_t reads; /* of a root: those to come */
} fyt_result_t;

/* Leaves that run again in the backward: from `first` to before `end`. They read each other and
 * `origin` only, a leaf or FYT_MODEL_INPUT; of them, the last alone is read by others. */
typedef struct fyt_span {
    size_t first, end, origin;
} fyt_span_t;

/* A parameter or a buffer. */
typedef struct fyt_model_param {
    char *name; /* "conv1.weight" */
    const fy_layer_param_t *def;
    uint64_t offset, nelem; /* in the blocks, elements */
    fy_tensor_t *value;     /* the view of its block */
} fyt_model_param_t;

struct fy_model {
    char *name;
    fy_device_t *device;
    fy_dtype_t dtype;
    fy_layer_t *layer;
    int rank; /* of one sample */
    int64_t dims[FY_MAX_RANK];
    size_t nleaves, nparams, nbuffers, nargs, ninputs;
    fyt_leaf_t *leaves;
    size_t *inputs; /* of the leaves: numbers of leaves or FYT_MODEL_INPUT */
    size_t nspans;
    fyt_span_t *spans;     /* by first leaf; a span is before those inside it */
    size_t nends, *ends;   /* the last leaves of the segments that are offloaded */
    size_t output;         /* the leaf whose result is the model's, or FYT_MODEL_INPUT */
    fyt_result_t *results; /* one a leaf */
    fyt_model_param_t *params, *buffers;
    fy_tensor_t **grad; /* views of the gradients, one a parameter */
    fy_tensor_t **args; /* what the leaves' forward functions get, in the order of the leaves */
    fy_tensor_t *values, *grads, *rng;
    fy_tensor_t *low;            /* of `values`, in half precision; NULL: there is none */
    fy_tensor_t *buffer_values;  /* NULL: there are no buffers */
    uint64_t room, buffers_room; /* elements: of `values` and of `grads`; of `buffer_values` */
    int is_training;
    int is_cheap;             /* options: recompute_cheap */
    char *note;               /* of the last loaded checkpoint; NULL: none */
    int has_grads;            /* after the first backward: each gradient is written */
    uint64_t grads_version;   /* of the block's bytes after the last one */
    fy_norm_exchange_t norms; /* ranks 0: none */
};

enum { FYT_PARAM_ALIGN = 16 }; /* elements: 64 bytes of f32, a cache line */

/* The parameter of that full name; NULL: none. */
fyt_model_param_t *fyt_model_param_named(const fy_model_t *model, const char *name);
/* As fy_model_forward's, from the input to the result. */
fy_status_t fyt_model_run(const fy_model_t *model, fy_tensor_t *x, int64_t batch,
                          fy_tensor_t **out_y);

/* The number of the leaf whose result is input `index` of `leaf`, or FYT_MODEL_INPUT. A join that
 * computes a batch norm reads that norm's input in place of its result. */
size_t fyt_model_leaf_input(const fy_model_t *model, const fyt_leaf_t *leaf, size_t index);
/* The result of one leaf from its inputs, of these shapes. */
fy_status_t fyt_model_run_leaf(const fy_model_t *model, size_t index, fy_tensor_t *const *inputs,
                               int64_t batch, fy_tensor_t **out_y);

/* Leaves and params of model->layer for its sample shape: names, shapes, offsets; `drop_bias` as in
 * fy_model_options_t. After a failure fy_model_destroy frees them. */
fy_status_t fyt_model_lay_out(fy_model_t *model, int drop_bias);
/* Then the segments of fy_model_options_t.recompute, as spans, or where those of .offload end. */
fy_status_t fyt_model_cut(fy_model_t *model, const fy_model_options_t *options);
/* Whether a segment can end before the leaf `end`, or begin with it. */
int fyt_model_is_place(const fy_model_t *model, size_t end);

#endif
