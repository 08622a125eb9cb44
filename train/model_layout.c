/* From a tree of layers to the list that runs: names, the shape after each layer, the offset of
 * each parameter and buffer in its block.
 * Not here: the blocks (model.c). */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct counts {
    size_t leaves, params, buffers;
} counts_t;

static void count_leaves(const fy_layer_t *layer, counts_t *counts)
{
    for (size_t i = 0; i < layer->nchildren; i++) count_leaves(layer->children[i], counts);
    if (layer->names) return; /* a sequential, perhaps an empty one */
    counts->leaves++;
    counts->params += layer->def.nparams;
    counts->buffers += layer->def.nbuffers;
}

static char *join(const char *prefix, const char *name)
{
    char *text;
    if (!*prefix || !*name) return strdup(*prefix ? prefix : name);
    return asprintf(&text, "%s.%s", prefix, name) < 0 ? NULL : text;
}

static fy_status_t no_memory(const fy_model_t *model)
{
    return FYT_FAIL(OUT_OF_MEMORY, "model '%s': no host memory for the list of its layers",
                    model->name);
}

/* The error text of the layer, with its position before it. */
static fy_status_t explain(const fy_model_t *model, const fyt_leaf_t *leaf, fy_status_t status)
{
    char said[512];
    snprintf(said, sizeof said, "%s", fy_error_get()->text);
    return fy_error_set(status, __FILE__, __LINE__, "model '%s', layer '%s' (%s): %s", model->name,
                        leaf->name, leaf->layer->def.type, said);
}

/* Appends `count` parameters or buffers of a leaf to a list; *room: elements of their block. */
static fy_status_t add_params(const fy_model_t *model, const fyt_leaf_t *leaf, size_t count,
                              const fy_layer_param_t *defs, fyt_model_param_t *list,
                              size_t *list_count, uint64_t *room)
{
    for (size_t i = 0; i < count; i++) {
        const fy_layer_param_t *def = &defs[i];
        fyt_model_param_t *param = &list[*list_count];
        *param = (fyt_model_param_t){ join(leaf->name, def->name), def, *room, 1, NULL };
        if (!param->name) return no_memory(model);
        ++*list_count;
        int is_too_large = 0;
        for (int d = 0; d < def->rank; d++)
            is_too_large |=
                __builtin_mul_overflow(param->nelem, (uint64_t)def->dims[d], &param->nelem);
        if (is_too_large || param->nelem > (uint64_t)1 << 58)
            return FYT_FAIL(INVALID_ARGUMENT,
                            "model '%s': '%s' has more elements than a process has addresses for",
                            model->name, param->name);
        *room += (param->nelem + FYT_PARAM_ALIGN - 1) / FYT_PARAM_ALIGN * FYT_PARAM_ALIGN;
    }
    return FY_STATUS_OK;
}

/* dims: the shape before the layer, with a batch of 1 in front; becomes the one behind it. */
static fy_status_t add_leaf(fy_model_t *model, const fy_layer_t *layer, const char *name, int *rank,
                            int64_t *dims)
{
    fyt_leaf_t *leaf = &model->leaves[model->nleaves];
    int64_t out_dims[FY_MAX_RANK] = { 0 };
    *leaf = (fyt_leaf_t){ .layer = layer,
                          .name = strdup(name),
                          .first_param = model->nparams,
                          .first_arg = model->nparams + model->nbuffers };
    if (!leaf->name) return no_memory(model);
    model->nleaves++;
    fy_status_t status = layer->def.shape(layer->user, *rank, dims, rank, out_dims, &leaf->macs);
    if (status == FY_STATUS_OK && (*rank < 1 || *rank > FY_MAX_RANK || out_dims[0] != dims[0]))
        status = FYT_FAIL(INVALID_ARGUMENT, "its shape gives rank %d and %lld samples for 1", *rank,
                          (long long)out_dims[0]);
    if (status != FY_STATUS_OK) return explain(model, leaf, status);
    memcpy(dims, out_dims, sizeof out_dims);
    leaf->rank = *rank - 1;
    memcpy(leaf->dims, dims + 1, (size_t)leaf->rank * sizeof *dims);
    const fy_layer_def_t *def = &layer->def;
    FY_TRY(add_params(model, leaf, def->nparams, def->params, model->params, &model->nparams,
                      &model->room));
    return add_params(model, leaf, def->nbuffers, def->buffers, model->buffers, &model->nbuffers,
                      &model->buffers_room);
}

static fy_status_t walk(fy_model_t *model, const fy_layer_t *layer, const char *prefix, int *rank,
                        int64_t *dims)
{
    if (!layer->names) return add_leaf(model, layer, prefix, rank, dims);
    for (size_t i = 0; i < layer->nchildren; i++) {
        char *name = join(prefix, layer->names[i]);
        const fy_status_t status = name ? walk(model, layer->children[i], name, rank, dims)
                                        : no_memory(model);
        free(name);
        FY_TRY(status);
    }
    return FY_STATUS_OK;
}

fy_status_t fyt_model_lay_out(fy_model_t *model)
{
    counts_t counts = { 0, 0, 0 };
    int rank = model->rank + 1;
    int64_t dims[FY_MAX_RANK] = { 1 };
    count_leaves(model->layer, &counts);
    /* one more of each: calloc may return NULL for 0 bytes */
    model->leaves = calloc(counts.leaves + 1, sizeof *model->leaves);
    model->params = calloc(counts.params + 1, sizeof *model->params);
    model->buffers = calloc(counts.buffers + 1, sizeof *model->buffers);
    model->grad = calloc(counts.params + 1, sizeof(fy_tensor_t *));
    model->args = calloc(counts.params + counts.buffers + 1, sizeof(fy_tensor_t *));
    if (!model->leaves || !model->params || !model->buffers || !model->grad || !model->args)
        return no_memory(model);
    memcpy(dims + 1, model->dims, (size_t)model->rank * sizeof *dims);
    return walk(model, model->layer, "", &rank, dims);
}
