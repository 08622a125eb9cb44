/* Inside of a layer, shared by the files layer*.c and model*.c. Not public. Next: layer.c. */
#ifndef FERRY_TRAIN_LAYER_INTERNAL_H_
#define FERRY_TRAIN_LAYER_INTERNAL_H_

#include <ferry/train/layer.h>

#include "fail.h"

typedef enum fyt_layer_kind {
    FYT_LAYER_LEAF,
    FYT_LAYER_SEQUENTIAL,
    FYT_LAYER_BRANCHES
} fyt_layer_kind_t;

enum { FYT_MAX_BRANCHES = 16 };

struct fy_layer {
    fyt_layer_kind_t kind;
    /* its texts and params are the layer's own copies; a container has a type only */
    fy_layer_def_t def;
    void *user;
    size_t nchildren; /* of a container; a leaf has none and a forward instead */
    int depth;        /* containers in one another, with this one; a leaf: 0 */
    char **names;     /* "": adds nothing to the names of the child's parameters */
    fy_layer_t **children;
    int is_checkpoint;          /* a sequential whose leaves run again in the backward */
    fy_join_t join;             /* of branches */
    fy_activation_t activation; /* of branches, after the join */
    /* the full name of a parameter of the same model, [tied_dims], that forward gets after the
     * buffers; NULL: none */
    char *tied;
    int64_t tied_dims[2];
    int64_t dropped_bias;    /* elements; 0: none was dropped */
    int is_owned;            /* a container or a model has it */
    const fy_layer_t *owner; /* the container; NULL: a model, or none */
    fy_layer_t *next_freed;  /* while a container that failed frees its children */
};

/* Code that visits layers recurses; a thread may have a stack of 512 KiB. */
enum { FYT_DEPTH_MOST = 256 };

enum { FYT_SHAPE_TEXT = 160, FYT_PLACE_TEXT = 80, FYT_OWNER_TEXT = 128 };

/* "[n, 28, 28, 1]": the first of `dims` is the batch. */
const char *fyt_shape_text(char text[FYT_SHAPE_TEXT], int rank, const int64_t *dims);
/* "layer 1 ('fc') of a sequential", or "the layer of a model"; of a layer with an owner. */
const char *fyt_owner_text(char text[FYT_OWNER_TEXT], const fy_layer_t *layer);
/* As fy_layer_destroy, for layers with an owner. */
void fyt_layer_free(fy_layer_t *layer);
/* Draws a parameter's first values into `dst`, a dense view; advances `rng`. One light request, or
 * two. */
fy_status_t fyt_init_fill(fy_tensor_t *dst, fy_tensor_t *rng, const fy_layer_param_t *param);
/* INVALID_ARGUMENT unless `init` is a kind with a value that it can have; `what` names it. */
fy_status_t fyt_init_check(const fy_init_t *init, const char *what);
/* INVALID_ARGUMENT unless it is one of fy_activation_t; `call` begins the text. */
fy_status_t fyt_activation_check(const char *call, fy_activation_t activation);
/* INVALID_ARGUMENT unless `heads` divide `width`; `call` begins the text. */
fy_status_t fyt_heads_check(const char *call, int64_t width, int64_t heads);
/* fy_layer_attention with other names of its projections. `own`: options that were read. */
fy_status_t fyt_attention(int64_t width, int64_t heads, const fy_attention_options_t *own,
                          const char *in_name, const char *out_name, fy_layer_t **out_layer);
/* The names of a transformer block's children, in order, and the eps of its norms. */
typedef struct fyt_block_style {
    const char *norm_1, *attention, *attention_in, *attention_out;
    const char *norm_2, *mlp, *mlp_in, *mlp_out;
    double eps;
} fyt_block_style_t;
/* fy_layer_transformer_block in another style. `own`: options that were read. */
fy_status_t fyt_transformer_block(int64_t width, int64_t heads, fy_transformer_options_t own,
                                  const fyt_block_style_t *style, fy_layer_t **out_layer);
/* fy_layer_position_embedding with one parameter `name` [1, count, width]. */
fy_status_t fyt_position_embedding(const char *name, int64_t count, int64_t width, fy_init_t init,
                                   fy_layer_t **out_layer);
/* A view of number `index` of an axis, without that axis. */
fy_status_t fyt_select(fy_tensor_t *x, int axis, int64_t index, fy_tensor_t **out_view);
/* fy_layer_def_t.shape of a layer whose result has the shape of its input. */
fy_status_t fyt_same_shape(void *user, int rank, const int64_t *dims, int *out_rank,
                           int64_t *out_dims, uint64_t *out_macs);
/* NONE: *out_y is x. */
fy_status_t fyt_activation_apply(fy_activation_t activation, fy_tensor_t *x, fy_tensor_t **out_y);
/* The mean of each channel: [n, H, W, C] -> [n, 1, 1, C]. */
fy_status_t fyt_layer_spatial_mean(fy_layer_t **out_layer);
/* Drops the bias of a linear or conv2d layer without activation; does nothing to other layers. */
void fyt_layer_drop_bias(fy_layer_t *layer);
/* Whether it is a batch norm layer. */
int fyt_is_batch_norm(const fy_layer_t *layer);
/* Whether it is a batch norm layer without an activation. */
int fyt_is_plain_batch_norm(const fy_layer_t *layer);
/* The forward of such a layer with another activation, and maybe with a residual (NULL: none) that
 * is added before it. params: those of the layer, then its buffers. */
fy_status_t fyt_batch_norm_forward(const fy_layer_t *layer, const fy_pass_t *pass,
                                   fy_tensor_t *const *params, fy_tensor_t *x,
                                   fy_tensor_t *residual, fy_activation_t activation,
                                   fy_tensor_t **out_y);
/* fy_batch_norm with the statistics of all ranks. params: those of a batch norm layer, then its
 * buffers; attrs->activation is NONE or RELU; residual may be NULL. */
fy_status_t fyt_batch_norm_sync(const fy_norm_exchange_t *exchange,
                                const fy_batch_norm_attrs_t *attrs, fy_tensor_t *const *params,
                                fy_tensor_t *x, fy_tensor_t *residual, fy_tensor_t **out_y);
/* fy_layer_create with a copy of `settings` (NULL: none) on the heap as `user`. */
fy_status_t fyt_layer_create(const fy_layer_def_t *def, const void *settings, size_t nbytes,
                             fy_layer_t **out_layer);

#endif
