/* From a tree of layers to the list that runs: names, the shape after each layer, the offset of
 * each parameter in the block.
 * Not here: the blocks (model.c). */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void count_leaves(const fy_layer_t *layer, size_t *leaves, size_t *params)
{
    for (size_t i = 0; i < layer->nchildren; i++) count_leaves(layer->children[i], leaves, params);
    if (layer->names) return; /* a sequential, perhaps an empty one */
    *leaves += 1;
    *params += layer->def.nparams;
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

static fy_status_t add_params(fy_model_t *model, const fyt_leaf_t *leaf)
{
    for (size_t i = 0; i < leaf->layer->def.nparams; i++) {
        const fy_layer_param_t *def = &leaf->layer->def.params[i];
        fyt_model_param_t *param = &model->params[model->nparams];
        *param = (fyt_model_param_t){ join(leaf->name, def->name), def, model->room, 1 };
        if (!param->name) return no_memory(model);
        model->nparams++;
        int is_too_large = 0;
        for (int d = 0; d < def->rank; d++)
            is_too_large |=
                __builtin_mul_overflow(param->nelem, (uint64_t)def->dims[d], &param->nelem);
        if (is_too_large || param->nelem > (uint64_t)1 << 58)
            return FYT_FAIL(INVALID_ARGUMENT,
                            "model '%s': '%s' has more elements than a process has addresses for",
                            model->name, param->name);
        model->room += (param->nelem + FYT_PARAM_ALIGN - 1) / FYT_PARAM_ALIGN * FYT_PARAM_ALIGN;
    }
    return FY_STATUS_OK;
}

/* dims: the shape before the layer, with a batch of 1 in front; becomes the one behind it. */
static fy_status_t add_leaf(fy_model_t *model, const fy_layer_t *layer, const char *name, int *rank,
                            int64_t *dims)
{
    fyt_leaf_t *leaf = &model->leaves[model->nleaves];
    int64_t out_dims[FY_MAX_RANK] = { 0 };
    *leaf = (fyt_leaf_t){ .layer = layer, .name = strdup(name), .first_param = model->nparams };
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
    return add_params(model, leaf);
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
    size_t leaves = 0, params = 0;
    int rank = model->rank + 1;
    int64_t dims[FY_MAX_RANK] = { 1 };
    count_leaves(model->layer, &leaves, &params);
    model->leaves = calloc(leaves ? leaves : 1, sizeof *model->leaves);
    model->params = calloc(params ? params : 1, sizeof *model->params);
    model->value = calloc(params ? params : 1, sizeof(fy_tensor_t *));
    model->grad = calloc(params ? params : 1, sizeof(fy_tensor_t *));
    if (!model->leaves || !model->params || !model->value || !model->grad) return no_memory(model);
    memcpy(dims + 1, model->dims, (size_t)model->rank * sizeof *dims);
    return walk(model, model->layer, "", &rank, dims);
}
