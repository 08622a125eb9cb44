/* Inside of a layer, shared by the files layer*.c and model*.c. Not public. Next: layer.c. */
#ifndef FERRY_TRAIN_LAYER_INTERNAL_H_
#define FERRY_TRAIN_LAYER_INTERNAL_H_

#include <ferry/train/layer.h>

#include "fail.h"

struct fy_layer {
    /* its texts and params are the layer's own copies; a sequential has a type only */
    fy_layer_def_t def;
    void *user;
    size_t nchildren; /* a sequential's; a leaf has none and a forward instead */
    char **names;
    fy_layer_t **children;
    int is_owned; /* a sequential or a model has it */
};

enum { FYT_SHAPE_TEXT = 160 };

/* "[n, 28, 28, 1]": the first of `dims` is the batch. */
const char *fyt_shape_text(char text[FYT_SHAPE_TEXT], int rank, const int64_t *dims);
/* As fy_layer_destroy, for layers with an owner. */
void fyt_layer_free(fy_layer_t *layer);
/* Draws a parameter's first values into `dst`, a dense view; advances `rng`. One light request, or
 * two. */
fy_status_t fyt_init_fill(fy_tensor_t *dst, fy_tensor_t *rng, const fy_layer_param_t *param);
/* INVALID_ARGUMENT unless `init` is a kind with a value that it can have; `what` names it. */
fy_status_t fyt_init_check(const fy_init_t *init, const char *what);
/* A def's struct of settings, copied to the heap; NULL: no memory (the error is set). */
void *fyt_settings(const void *settings, size_t nbytes);

#endif
