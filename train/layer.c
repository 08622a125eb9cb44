/* Layers: making one from its definition, destroying it.
 * Not here: the layers of the library (layer_containers.c, layer_dense.c, layer_plain.c), initial
 * values (init.c), running them (model_run.c). */
#include "layer.h"
#include "train/abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *fyt_shape_text(char text[FYT_SHAPE_TEXT], int rank, const int64_t *dims)
{
    size_t used = (size_t)snprintf(text, FYT_SHAPE_TEXT, rank > 0 ? "[n" : "[");
    for (int i = 1; i < rank && used < FYT_SHAPE_TEXT; i++)
        used += (size_t)snprintf(text + used, FYT_SHAPE_TEXT - used, ", %lld", (long long)dims[i]);
    if (used < FYT_SHAPE_TEXT) snprintf(text + used, FYT_SHAPE_TEXT - used, "]");
    return text;
}

const char *fyt_owner_text(char text[FYT_OWNER_TEXT], const fy_layer_t *layer)
{
    const fy_layer_t *owner = layer->owner;
    size_t i = 0;
    while (owner && i < owner->nchildren && owner->children[i] != layer) i++;
    if (owner)
        snprintf(text, FYT_OWNER_TEXT, "layer %zu ('%.40s') of a %.40s", i, owner->names[i],
                 owner->def.type);
    else
        snprintf(text, FYT_OWNER_TEXT, "the layer of a model");
    return text;
}

static void free_params(size_t count, fy_layer_param_t *params)
{
    for (size_t i = 0; params && i < count; i++) free((char *)params[i].name);
    free(params);
}

void fyt_layer_free(fy_layer_t *layer)
{
    if (!layer) return;
    for (size_t i = 0; i < layer->nchildren; i++) {
        if (layer->children) fyt_layer_free(layer->children[i]);
        if (layer->names) free(layer->names[i]);
    }
    free(layer->children);
    free(layer->names);
    free_params(layer->def.nparams, (fy_layer_param_t *)layer->def.params);
    free_params(layer->def.nbuffers, (fy_layer_param_t *)layer->def.buffers);
    free((char *)layer->def.type);
    free(layer->tied);
    if (layer->def.destroy) layer->def.destroy(layer->user);
    free(layer);
}

void fy_layer_destroy(fy_layer_t *layer)
{
    if (layer && !layer->is_owned) fyt_layer_free(layer);
}

/* The parameters, then the buffers. */
static const fy_layer_param_t *param_at(const fy_layer_def_t *def, size_t index)
{
    return index < def->nparams ? &def->params[index] : &def->buffers[index - def->nparams];
}

static fy_status_t check_param(const fy_layer_def_t *def, size_t index)
{
    const fy_layer_param_t *param = param_at(def, index);
    char what[96];
    if (!param->name || !*param->name || strchr(param->name, '.'))
        return FYT_FAIL(INVALID_ARGUMENT, "layer_create: %s %zu of '%s' needs a name without '.'",
                        index < def->nparams ? "parameter" : "buffer",
                        index < def->nparams ? index : index - def->nparams, def->type);
    if (param->rank < 0 || param->rank > FY_MAX_RANK)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "layer_create: parameter '%s' of '%s' has rank %d; 0 to %d can be",
                        param->name, def->type, param->rank, FY_MAX_RANK);
    for (int i = 0; i < param->rank; i++)
        if (param->dims[i] < 1)
            return FYT_FAIL(INVALID_ARGUMENT,
                            "layer_create: dims[%d] of parameter '%s' of '%s' is %lld", i,
                            param->name, def->type, (long long)param->dims[i]);
    for (size_t i = 0; i < index; i++)
        if (strcmp(param_at(def, i)->name, param->name) == 0)
            return FYT_FAIL(INVALID_ARGUMENT,
                            "layer_create: '%s' has two parameters or buffers '%s'", def->type,
                            param->name);
    snprintf(what, sizeof what, "%.40s's %.40s", def->type, param->name);
    return fyt_init_check(&param->init, what);
}

static fy_status_t check_def(const fy_layer_def_t *def)
{
    if (!def->type || !*def->type || !def->shape || !def->forward ||
        (def->nparams && !def->params) || (def->nbuffers && !def->buffers))
        return FYT_FAIL(INVALID_ARGUMENT,
                        "layer_create: a layer needs a type, shape and forward, params if nparams "
                        "is not 0, and buffers if nbuffers is not 0");
    for (size_t i = 0; i < def->nparams + def->nbuffers; i++) FY_TRY(check_param(def, i));
    return FY_STATUS_OK;
}

/* NULL: no memory. */
static fy_layer_param_t *copy_params(size_t count, const fy_layer_param_t *params)
{
    int is_whole = 1;
    fy_layer_param_t *copies = calloc(count ? count : 1, sizeof *copies);
    if (!copies) return NULL;
    for (size_t i = 0; i < count; i++) {
        copies[i] = params[i];
        copies[i].name = strdup(params[i].name);
        is_whole &= copies[i].name != NULL;
    }
    if (is_whole) return copies;
    free_params(count, copies);
    return NULL;
}

/* Copies texts, params and buffers; after a failure fyt_layer_free frees the copies. */
static int copy_def(fy_layer_t *layer, const fy_layer_def_t *def)
{
    layer->def = *def;
    layer->def.destroy = NULL; /* set at the end: until then the caller destroys `user` */
    layer->def.type = strdup(def->type);
    layer->def.params = copy_params(def->nparams, def->params);
    layer->def.buffers = copy_params(def->nbuffers, def->buffers);
    return layer->def.type && layer->def.params && layer->def.buffers;
}

fy_status_t fy_layer_create(const fy_layer_def_t *def, void *user, fy_layer_t **out_layer)
{
    if (out_layer) *out_layer = NULL;
    fy_layer_t *layer = NULL;
    fy_layer_def_t own = FY_LAYER_DEF_INIT;
    fy_status_t status = FY__READ_GIVEN(layer_def, "layer_create", def, &own);
    def = &own;
    if (!out_layer) status = FYT_FAIL(INVALID_ARGUMENT, "layer_create: out_layer is NULL");
    if (status == FY_STATUS_OK) status = check_def(def);
    if (status == FY_STATUS_OK && (!(layer = calloc(1, sizeof *layer)) || !copy_def(layer, def)))
        status =
            FYT_FAIL(OUT_OF_MEMORY, "layer_create: no host memory for a layer '%s'", def->type);
    if (status != FY_STATUS_OK) {
        fyt_layer_free(layer);
        if (def->destroy) def->destroy(user);
        return status;
    }
    layer->def.destroy = def->destroy;
    layer->user = user;
    *out_layer = layer;
    return FY_STATUS_OK;
}

fy_status_t fyt_select(fy_tensor_t *x, int axis, int64_t index, fy_tensor_t **out_view)
{
    fy_tensor_t *slice;
    FY_TRY(fy_slice(x, axis, index, index + 1, &slice));
    return fy_squeeze(slice, axis, out_view);
}

fy_status_t fyt_same_shape(void *user, int rank, const int64_t *dims, int *out_rank,
                           int64_t *out_dims, uint64_t *out_macs)
{
    (void)user;
    *out_rank = rank;
    memcpy(out_dims, dims, (size_t)rank * sizeof *dims);
    *out_macs = 0;
    return FY_STATUS_OK;
}

fy_status_t fyt_layer_create(const fy_layer_def_t *def, const void *settings, size_t nbytes,
                             fy_layer_t **out_layer)
{
    void *copy = settings ? malloc(nbytes) : NULL;
    if (out_layer) *out_layer = NULL;
    if (settings && !copy)
        return FYT_FAIL(OUT_OF_MEMORY, "layer: no host memory for %zu bytes", nbytes);
    if (copy) memcpy(copy, settings, nbytes);
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): def->destroy frees it */
    return fy_layer_create(def, copy, out_layer);
}
