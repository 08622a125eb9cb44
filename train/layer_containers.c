/* Layers made of layers: sequentials, branches, and what is made of them (residual blocks,
 * squeeze-and-excitation).
 * Not here: running them (model.c runs the leaves that model_layout.c lists). */
#include "layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- owning children ---- */

/* Names are unique but for "". */
static fy_status_t check_name(const char *call, const fy_layer_child_t *children, size_t index)
{
    const char *name = children[index].name;
    if (!name || strchr(name, '.'))
        return FYT_FAIL(INVALID_ARGUMENT, "%s: layer %zu needs a name without '.', or \"\"", call,
                        index);
    for (size_t j = 0; *name && j < index; j++)
        if (strcmp(children[j].name, name) == 0)
            return FYT_FAIL(INVALID_ARGUMENT, "%s: layers %zu and %zu are both called '%s'", call,
                            j, index, name);
    return FY_STATUS_OK;
}

static fy_status_t check_children(const char *call, size_t count, const fy_layer_child_t *children)
{
    for (size_t i = 0; i < count; i++) {
        const fy_layer_child_t *child = &children[i];
        if (!child->layer) {
            char said[256]; /* the text of this failure replaces that of the maker */
            snprintf(said, sizeof said, "%s", fy_error_get()->text);
            return FYT_FAIL(INVALID_ARGUMENT,
                            "%s: layer %zu ('%s') is NULL; the last failure was: %s", call, i,
                            child->name ? child->name : "", said);
        }
        if (child->layer->is_owned)
            return FYT_FAIL(INVALID_ARGUMENT, "%s: layer %zu ('%s') has an owner already", call, i,
                            child->name ? child->name : "");
        FY_TRY(check_name(call, children, i));
        for (size_t j = 0; j < i; j++)
            if (children[j].layer == child->layer)
                return FYT_FAIL(INVALID_ARGUMENT, "%s: '%s' and '%s' are one layer", call,
                                children[j].name, child->name);
    }
    return FY_STATUS_OK;
}

/* Destroys layers without an owner, each once. */
static void give_up_children(size_t count, const fy_layer_child_t *children)
{
    for (size_t i = 0; children && i < count; i++) {
        size_t first = 0;
        while (children[first].layer != children[i].layer) first++;
        if (first == i) fy_layer_destroy(children[i].layer);
    }
}

/* With the names of the children, not yet with the children. NULL: no memory. */
static fy_layer_t *allocate(fyt_layer_kind_t kind, const char *type, size_t count,
                            const fy_layer_child_t *children)
{
    fy_layer_t *layer = calloc(1, sizeof *layer);
    if (!layer) return NULL;
    layer->kind = kind;
    layer->def.type = strdup(type);
    layer->names = calloc(count ? count : 1, sizeof *layer->names);
    layer->children = calloc(count ? count : 1, sizeof(fy_layer_t *));
    int is_whole = layer->def.type && layer->names && layer->children;
    for (size_t i = 0; is_whole && i < count; i++) {
        is_whole = (layer->names[i] = strdup(children[i].name)) != NULL;
        layer->nchildren = i + 1;
    }
    if (is_whole) return layer;
    fyt_layer_free(layer);
    return NULL;
}

/* `status`: the result of the caller's own checks. */
static fy_status_t make(const char *call, fy_status_t status, fyt_layer_kind_t kind,
                        const char *type, size_t count, const fy_layer_child_t *children,
                        fy_layer_t **out_layer)
{
    fy_layer_t *layer = NULL;
    if (out_layer) *out_layer = NULL;
    if (status == FY_STATUS_OK && (!out_layer || (count && !children)))
        status = FYT_FAIL(INVALID_ARGUMENT, "%s: children or out_layer is NULL", call);
    if (status == FY_STATUS_OK) status = check_children(call, count, children);
    if (status == FY_STATUS_OK && !(layer = allocate(kind, type, count, children)))
        status = FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory for %zu layers", call, count);
    if (status != FY_STATUS_OK) {
        give_up_children(count, children);
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        fy_layer_t *child = children[i].layer;
        layer->children[i] = child;
        if (child) child->is_owned = 1;
    }
    *out_layer = layer;
    return FY_STATUS_OK;
}

/* ---- containers ---- */

fy_status_t fy_layer_sequential(size_t count, const fy_layer_child_t *children,
                                fy_layer_t **out_layer)
{
    return make("layer_sequential", FY_STATUS_OK, FYT_LAYER_SEQUENTIAL, "sequential", count,
                children, out_layer);
}

static fy_status_t check_branches(fy_join_t join, size_t count, fy_activation_t activation)
{
    if (join < FY_JOIN_ADD || join > FY_JOIN_CONCAT)
        return FYT_FAIL(INVALID_ARGUMENT, "layer_branches: there is no join %d", (int)join);
    if (count < 1 || count > FYT_MAX_BRANCHES)
        return FYT_FAIL(INVALID_ARGUMENT, "layer_branches: %zu branches; 1 to %d can be", count,
                        FYT_MAX_BRANCHES);
    return fyt_activation_check("layer_branches", activation);
}

fy_status_t fy_layer_branches(fy_join_t join, size_t count, const fy_layer_child_t *branches,
                              fy_activation_t activation, fy_layer_t **out_layer)
{
    static const char *const types[] = { "add", "mul", "concat" };
    fy_status_t status = check_branches(join, count, activation);
    status = make("layer_branches", status, FYT_LAYER_BRANCHES,
                  status == FY_STATUS_OK ? types[join] : "", count, branches, out_layer);
    if (status != FY_STATUS_OK || !out_layer) return status;
    (*out_layer)->join = join;
    (*out_layer)->activation = activation;
    return FY_STATUS_OK;
}

fy_status_t fy_layer_residual(fy_layer_t *body, fy_layer_t *shortcut, fy_activation_t activation,
                              fy_layer_t **out_layer)
{
    fy_layer_t *skip = shortcut;
    if (!skip && fy_layer_identity(&skip) != FY_STATUS_OK) {
        if (out_layer) *out_layer = NULL;
        fy_layer_destroy(body);
        return FY_STATUS_OUT_OF_MEMORY;
    }
    const fy_layer_child_t branches[] = { { "", body }, { shortcut ? "downsample" : "", skip } };
    return fy_layer_branches(FY_JOIN_ADD, 2, branches, activation, out_layer);
}

/* ---- squeeze-and-excitation ---- */

/* A convolution of 1 x 1; NULL: it failed. */
static fy_layer_t *pointwise(int64_t in, int64_t out, fy_activation_t activation, fy_init_t weight,
                             fy_init_t bias)
{
    fy_layer_t *layer;
    fy_conv2d_options_t options = FY_CONV2D_OPTIONS_INIT;
    options.activation = activation;
    options.weight = weight;
    options.bias = bias;
    return fy_layer_conv2d(in, out, 1, 1, &options, &layer) == FY_STATUS_OK ? layer : NULL;
}

fy_status_t fy_layer_squeeze_excite(int64_t channels, int64_t squeezed, const char *scale_op,
                                    fy_init_t weight, fy_init_t bias, fy_layer_t **out_layer)
{
    fy_layer_t *identity, *pool, *scale, *gate = NULL;
    if (out_layer) *out_layer = NULL;
    FY_TRY(fy_layer_identity(&identity));
    const fy_layer_child_t steps[] = {
        { "avgpool", fyt_layer_spatial_mean(&pool) == FY_STATUS_OK ? pool : NULL },
        { "fc1", pointwise(channels, squeezed, FY_ACTIVATION_RELU, weight, bias) },
        { "fc2", pointwise(squeezed, channels, FY_ACTIVATION_NONE, weight, bias) },
        { "scale_activation", fy_layer_op(scale_op, &scale) == FY_STATUS_OK ? scale : NULL },
    };
    const fy_status_t status = fy_layer_sequential(sizeof steps / sizeof *steps, steps, &gate);
    if (status != FY_STATUS_OK) {
        fy_layer_destroy(identity);
        return status;
    }
    const fy_layer_child_t branches[] = { { "", identity }, { "", gate } };
    return fy_layer_branches(FY_JOIN_MUL, 2, branches, FY_ACTIVATION_NONE, out_layer);
}
