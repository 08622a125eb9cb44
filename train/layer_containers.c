/* Layers made of layers: sequentials, checkpoints, branches, and layers made of those (residual
 * blocks, squeeze-and-excitation).
 * Not here: running them (model_run.c runs the leaves that model_layout.c lists). */
#include "models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- owning children ---- */

/* The function that the user called. */
typedef struct call {
    const char *name;
    const char *const *places; /* what it calls its children; NULL: by number and name */
} call_t;

/* "layer 0 ('conv1')", or "body". */
static const char *place_text(char text[FYT_PLACE_TEXT], const call_t *call, size_t index,
                              const fy_layer_child_t *children)
{
    const char *name = children[index].name;
    if (call->places)
        snprintf(text, FYT_PLACE_TEXT, "%s", call->places[index]);
    else
        snprintf(text, FYT_PLACE_TEXT, "layer %zu ('%.40s')", index, name ? name : "");
    return text;
}

/* Names are unique but for "". */
static fy_status_t check_name(const call_t *call, const fy_layer_child_t *children, size_t index)
{
    const char *name = children[index].name;
    if (!name || strchr(name, '.'))
        return FYT_FAIL(INVALID_ARGUMENT,
                        "%s: the name of layer %zu is %.40s; it must be without '.'; \"\" adds "
                        "nothing to names",
                        call->name, index, name ? name : "NULL");
    for (size_t j = 0; *name && j < index; j++)
        if (strcmp(children[j].name, name) == 0)
            return FYT_FAIL(INVALID_ARGUMENT, "%s: layers %zu and %zu are both called '%s'",
                            call->name, j, index, name);
    return FY_STATUS_OK;
}

/* A maker that fails gives NULL, so its text follows: this failure replaces it. A caller that never
 * called a maker gives NULL, too. Without memory no argument is wrong: callers free some and retry.
 */
static fy_status_t refuse_null(const call_t *call, const char *place)
{
    const fy_error_t *last = fy_error_get();
    if (last->status == FY_STATUS_OK)
        return FYT_FAIL(INVALID_ARGUMENT, "%s: %s is NULL; %s", call->name, place, last->text);
    const fy_status_t status = last->status == FY_STATUS_OUT_OF_MEMORY ? last->status
                                                                       : FY_STATUS_INVALID_ARGUMENT;
    return fy_error_set(status, __FILE__, __LINE__,
                        "%s: %s is NULL; the last failure on this thread, maybe of its maker: %s",
                        call->name, place, last->text);
}

static fy_status_t check_children(const call_t *call, size_t count,
                                  const fy_layer_child_t *children)
{
    char place[FYT_PLACE_TEXT], other[FYT_PLACE_TEXT], owner[FYT_OWNER_TEXT];
    for (size_t i = 0; i < count; i++) {
        const fy_layer_child_t *child = &children[i];
        place_text(place, call, i, children);
        if (!child->layer) return refuse_null(call, place);
        if (child->layer->is_owned)
            return FYT_FAIL(INVALID_ARGUMENT, "%s: %s is already %s: make one layer for each place",
                            call->name, place, fyt_owner_text(owner, child->layer));
        for (size_t j = 0; j < i; j++)
            if (children[j].layer == child->layer)
                return FYT_FAIL(INVALID_ARGUMENT,
                                "%s: %s and %s are the same object: make one layer for each place",
                                call->name, place_text(other, call, j, children), place);
        if (child->layer->depth >= FYT_DEPTH_MOST)
            return FYT_FAIL(INVALID_ARGUMENT,
                            "%s: %s has %d containers in one another; a layer may have %d: put "
                            "layers beside one another in one sequential",
                            call->name, place, child->layer->depth, FYT_DEPTH_MOST);
        FY_TRY(check_name(call, children, i));
    }
    return FY_STATUS_OK;
}

/* Destroys layers without an owner, each once. A child can be part of another one, so all owners
 * are read before the first layer is freed. */
static void give_up_children(size_t count, const fy_layer_child_t *children)
{
    fy_layer_t *first = NULL;
    for (size_t i = 0; children && i < count; i++) {
        fy_layer_t *layer = children[i].layer;
        if (!layer || layer->is_owned) continue;
        layer->is_owned = 1;
        layer->next_freed = first;
        first = layer;
    }
    while (first) {
        fy_layer_t *next = first->next_freed;
        fyt_layer_free(first);
        first = next;
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
static fy_status_t make(const call_t *call, fy_status_t status, fyt_layer_kind_t kind,
                        const char *type, size_t count, const fy_layer_child_t *children,
                        fy_layer_t **out_layer)
{
    fy_layer_t *layer = NULL;
    if (out_layer) *out_layer = NULL;
    if (status == FY_STATUS_OK && (!out_layer || (count && !children)))
        status = FYT_FAIL(INVALID_ARGUMENT, "%s: children or out_layer is NULL", call->name);
    if (status == FY_STATUS_OK) status = check_children(call, count, children);
    if (status == FY_STATUS_OK && !(layer = allocate(kind, type, count, children)))
        status = FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory for %zu layers", call->name, count);
    if (status != FY_STATUS_OK) {
        give_up_children(count, children);
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        fy_layer_t *child = children[i].layer;
        layer->children[i] = child;
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): check_children refuses NULL */
        child->is_owned = 1;
        child->owner = layer;
        if (layer->depth <= child->depth) layer->depth = child->depth + 1;
    }
    *out_layer = layer;
    return FY_STATUS_OK;
}

/* ---- containers ---- */

fy_status_t fy_layer_sequential(size_t count, const fy_layer_child_t *children,
                                fy_layer_t **out_layer)
{
    static const call_t call = { "layer_sequential", NULL };
    return make(&call, FY_STATUS_OK, FYT_LAYER_SEQUENTIAL, "sequential", count, children,
                out_layer);
}

fy_status_t fy_layer_checkpoint(fy_layer_t *child, fy_layer_t **out_layer)
{
    static const char *const places[] = { "child" };
    static const call_t call = { "layer_checkpoint", places };
    const fy_layer_child_t children[] = { { "", child } };
    FY_TRY(make(&call, FY_STATUS_OK, FYT_LAYER_SEQUENTIAL, "checkpoint", 1, children, out_layer));
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): make refuses NULL */
    (*out_layer)->is_checkpoint = 1;
    return FY_STATUS_OK;
}

static fy_status_t check_branches(const call_t *call, fy_join_t join, size_t count,
                                  fy_activation_t activation)
{
    if (join < FY_JOIN_ADD || join > FY_JOIN_CONCAT)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "%s: there is no join %d; legal are %d (FY_JOIN_ADD) to %d (_CONCAT)",
                        call->name, (int)join, FY_JOIN_ADD, FY_JOIN_CONCAT);
    if (count < 1 || count > FYT_MAX_BRANCHES)
        return FYT_FAIL(INVALID_ARGUMENT, "%s: %zu branches; legal are 1 to %d", call->name, count,
                        FYT_MAX_BRANCHES);
    return fyt_activation_check(call->name, activation);
}

static fy_status_t make_branches(const call_t *call, fy_join_t join, size_t count,
                                 const fy_layer_child_t *branches, fy_activation_t activation,
                                 fy_layer_t **out_layer)
{
    static const char *const types[] = { "add", "mul", "concat" };
    const fy_status_t status = check_branches(call, join, count, activation);
    FY_TRY(make(call, status, FYT_LAYER_BRANCHES, status == FY_STATUS_OK ? types[join] : "", count,
                branches, out_layer));
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): make refuses NULL */
    (*out_layer)->join = join;
    (*out_layer)->activation = activation;
    return FY_STATUS_OK;
}

fy_status_t fy_layer_branches(fy_join_t join, size_t count, const fy_layer_child_t *branches,
                              fy_activation_t activation, fy_layer_t **out_layer)
{
    static const call_t call = { "layer_branches", NULL };
    return make_branches(&call, join, count, branches, activation, out_layer);
}

fy_status_t fy_layer_residual(fy_layer_t *body, fy_layer_t *shortcut, fy_activation_t activation,
                              fy_layer_t **out_layer)
{
    static const char *const places[] = { "body", "shortcut" };
    static const call_t call = { "layer_residual", places };
    fy_layer_t *skip = shortcut;
    if (body && !skip && fy_layer_identity(&skip) != FY_STATUS_OK) {
        if (out_layer) *out_layer = NULL;
        fy_layer_destroy(body);
        return FY_STATUS_OUT_OF_MEMORY;
    }
    const fy_layer_child_t branches[] = { { "", body }, { shortcut ? "downsample" : "", skip } };
    return make_branches(&call, FY_JOIN_ADD, 2, branches, activation, out_layer);
}

/* ---- squeeze-and-excitation ---- */

fy_status_t fy_layer_squeeze_excite(int64_t channels, int64_t squeezed, const char *scale_op,
                                    fy_init_t weight, fy_init_t bias, fy_layer_t **out_layer)
{
    static const call_t call = { "layer_squeeze_excite", NULL };
    const fyt_style_t first = { FY_ACTIVATION_RELU, weight, bias, 0 },
                      second = { FY_ACTIVATION_NONE, weight, bias, 0 };
    fy_layer_t *identity, *gate = NULL;
    if (out_layer) *out_layer = NULL;
    if (!scale_op || (strcmp(scale_op, "sigmoid") != 0 && strcmp(scale_op, "hardsigmoid") != 0))
        return FYT_FAIL(INVALID_ARGUMENT,
                        "%s: scale_op '%s'; it is \"sigmoid\" or \"hardsigmoid\", whose results "
                        "are from 0 to 1: fy_layer_branches with FY_JOIN_MUL takes any other layer",
                        call.name, scale_op ? scale_op : "(NULL)");
    FY_TRY(fy_layer_identity(&identity));
    const fy_layer_child_t steps[] = {
        { "avgpool", fyt_simple(fyt_layer_spatial_mean) },
        { "fc1", fyt_conv(channels, squeezed, 1, 1, 1, 0, first) },
        { "fc2", fyt_conv(squeezed, channels, 1, 1, 1, 0, second) },
        { "scale_activation", fyt_op(scale_op) },
    };
    const fy_status_t status = make(&call, FY_STATUS_OK, FYT_LAYER_SEQUENTIAL, "sequential",
                                    sizeof steps / sizeof *steps, steps, &gate);
    if (status != FY_STATUS_OK) {
        fy_layer_destroy(identity);
        return status;
    }
    const fy_layer_child_t branches[] = { { "", identity }, { "", gate } };
    return make_branches(&call, FY_JOIN_MUL, 2, branches, FY_ACTIVATION_NONE, out_layer);
}
