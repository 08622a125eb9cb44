/* From a tree of layers to the list that runs: names, the shape after each layer, the offset of
 * each parameter and buffer in its block.
 * Not here: the blocks (model.c), running the list (model_run.c). */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct counts {
    size_t leaves, params, buffers, tied, inputs, spans;
} counts_t;

static void count_leaves(const fy_layer_t *layer, counts_t *counts)
{
    for (size_t i = 0; i < layer->nchildren; i++) count_leaves(layer->children[i], counts);
    counts->spans += (size_t)layer->is_checkpoint;
    if (layer->kind == FYT_LAYER_SEQUENTIAL) return;
    counts->leaves++;
    counts->params += layer->def.nparams;
    counts->buffers += layer->def.nbuffers;
    counts->tied += layer->tied != NULL;
    counts->inputs += layer->kind == FYT_LAYER_BRANCHES ? layer->nchildren : 1;
}

/* The first leaf or join of `layer`; NULL: it has none. */
static const fy_layer_t *first_of(const fy_layer_t *layer)
{
    const fy_layer_t *first = layer->kind == FYT_LAYER_SEQUENTIAL ? NULL : layer;
    for (size_t i = 0; !first && i < layer->nchildren; i++) first = first_of(layer->children[i]);
    return first;
}

/* `reader`: the only one of the layer's result; NULL: there are others, or none. */
static void drop_biases(fy_layer_t *layer, const fy_layer_t *reader)
{
    if (layer->kind == FYT_LAYER_LEAF && reader && fyt_is_batch_norm(reader))
        fyt_layer_drop_bias(layer);
    for (size_t i = layer->nchildren; i-- > 0;) { /* from the last on: a reader is known then */
        drop_biases(layer->children[i], layer->kind == FYT_LAYER_BRANCHES ? NULL : reader);
        const fy_layer_t *first = first_of(layer->children[i]);
        if (first) reader = first;
    }
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

/* The shape of a leaf's result, or of the input, with a batch of 1. */
static void shape_of(const fy_model_t *model, size_t leaf, int *out_rank, int64_t *dims)
{
    const int is_input = leaf == FYT_MODEL_INPUT;
    const int rank = is_input ? model->rank : model->leaves[leaf].rank;
    dims[0] = 1;
    memcpy(dims + 1, is_input ? model->dims : model->leaves[leaf].dims,
           (size_t)rank * sizeof *dims);
    *out_rank = rank + 1;
}

/* A new leaf without a shape; on OK the last one. */
static fy_status_t append(fy_model_t *model, const fy_layer_t *layer, const char *name,
                          size_t ninputs, const size_t *inputs)
{
    fyt_leaf_t *leaf = &model->leaves[model->nleaves];
    *leaf = (fyt_leaf_t){ .layer = layer,
                          .name = strdup(name),
                          .first_param = model->nparams,
                          .first_arg = model->nargs,
                          .first_input = model->ninputs,
                          .ninputs = ninputs,
                          .norm = FYT_NO_LEAF };
    if (!leaf->name) return no_memory(model);
    model->nleaves++;
    for (size_t i = 0; i < ninputs; i++) {
        model->inputs[model->ninputs++] = inputs[i];
        if (inputs[i] != FYT_MODEL_INPUT) model->leaves[inputs[i]].reads++;
    }
    return FY_STATUS_OK;
}

/* Refuses a result whose elements int64_t cannot count: layers multiply the dims of their input. */
static fy_status_t check_size(const fy_model_t *model, const fyt_leaf_t *leaf)
{
    int64_t nelem = 1;
    for (int i = 0; i < leaf->rank; i++)
        if (leaf->dims[i] < 0 || __builtin_mul_overflow(nelem, leaf->dims[i], &nelem))
            return explain(model, leaf,
                           FYT_FAIL(INVALID_ARGUMENT,
                                    "its result has dims[%d] = %lld; dims must be 0 or more, and a "
                                    "sample has at most 2^63 - 1 elements",
                                    i + 1, (long long)leaf->dims[i]));
    return FY_STATUS_OK;
}

static fy_status_t add_leaf(fy_model_t *model, const fy_layer_t *layer, const char *name,
                            size_t *now)
{
    int rank;
    int64_t dims[FY_MAX_RANK + 1] = { 0 }, out_dims[FY_MAX_RANK] = { 0 };
    shape_of(model, *now, &rank, dims);
    FY_TRY(append(model, layer, name, 1, now));
    *now = model->nleaves - 1;
    fyt_leaf_t *leaf = &model->leaves[*now];
    fy_status_t status = layer->def.shape(layer->user, rank, dims, &rank, out_dims, &leaf->macs);
    if (status == FY_STATUS_OK && (rank < 1 || rank > FY_MAX_RANK || out_dims[0] != dims[0]))
        status = FYT_FAIL(INVALID_ARGUMENT, "its shape gives rank %d and %lld samples for 1", rank,
                          (long long)out_dims[0]);
    if (status != FY_STATUS_OK) return explain(model, leaf, status);
    leaf->rank = rank - 1;
    memcpy(leaf->dims, out_dims + 1, (size_t)leaf->rank * sizeof *dims);
    FY_TRY(check_size(model, leaf));
    const fy_layer_def_t *def = &layer->def;
    model->nargs += def->nparams + def->nbuffers + (layer->tied != NULL);
    FY_TRY(add_params(model, leaf, def->nparams, def->params, model->params, &model->nparams,
                      &model->room));
    return add_params(model, leaf, def->nbuffers, def->buffers, model->buffers, &model->nbuffers,
                      &model->buffers_room);
}

/* Joins one more input's shape to that of a join. */
static fy_status_t join_shape(const fy_model_t *model, fyt_leaf_t *leaf, size_t index)
{
    int rank;
    int64_t dims[FY_MAX_RANK + 1];
    char first[FYT_SHAPE_TEXT], next[FYT_SHAPE_TEXT];
    int64_t old[FY_MAX_RANK + 1] = { 1 };
    memcpy(old + 1, leaf->dims, (size_t)leaf->rank * sizeof *old);
    shape_of(model, model->inputs[leaf->first_input + index], &rank, dims);
    int fits = rank == leaf->rank + 1;
    for (int i = 0; fits && i < leaf->rank; i++) {
        int64_t *mine = &leaf->dims[i];
        const int64_t other = dims[i + 1];
        if (leaf->layer->join == FY_JOIN_CONCAT && i == leaf->rank - 1)
            fits = !__builtin_add_overflow(*mine, other, mine);
        else if (leaf->layer->join != FY_JOIN_CONCAT && *mine == 1)
            *mine = other;
        else
            fits = *mine == other || (leaf->layer->join != FY_JOIN_CONCAT && other == 1);
    }
    fits &= leaf->rank > 0 || leaf->layer->join != FY_JOIN_CONCAT;
    if (fits) return FY_STATUS_OK;
    return explain(model, leaf,
                   FYT_FAIL(SHAPE_MISMATCH,
                            "branch %zu gives %s and the ones before it %s; a sum or product takes "
                            "equal dims or 1, concat equal dims but the last",
                            index, fyt_shape_text(next, rank, dims),
                            fyt_shape_text(first, leaf->rank + 1, old)));
}

/* Spans end before the leaf `norm`, their last: a join behind them computes it. */
static void cut_off(fy_model_t *model, size_t norm)
{
    size_t kept = 0;
    for (size_t i = 0; i < model->nspans; i++) {
        fyt_span_t span = model->spans[i];
        if (span.end == norm + 1) span.end = norm;
        if (span.end != span.first) model->spans[kept++] = span;
    }
    model->nspans = kept;
}

/* Lets a join of two compute the batch norm that only it reads. */
static void fuse_norm(fy_model_t *model, fyt_leaf_t *join)
{
    const fy_layer_t *branches = join->layer;
    if (branches->join != FY_JOIN_ADD || join->ninputs != 2 ||
        (branches->activation != FY_ACTIVATION_NONE && branches->activation != FY_ACTIVATION_RELU))
        return;
    for (size_t i = 0; i < 2; i++) {
        const size_t index = model->inputs[join->first_input + i],
                     other = model->inputs[join->first_input + !i];
        if (index == FYT_MODEL_INPUT || index == other) continue;
        fyt_leaf_t *norm = &model->leaves[index];
        int rank;
        int64_t dims[FY_MAX_RANK + 1];
        shape_of(model, other, &rank, dims);
        if (!fyt_is_plain_batch_norm(norm->layer) || norm->reads != 1 || norm->rank + 1 != rank ||
            memcmp(norm->dims, dims + 1, (size_t)norm->rank * sizeof *dims) != 0)
            continue;
        norm->is_fused = 1;
        cut_off(model, index);
        join->norm = index;
        return;
    }
}

static fy_status_t walk(fy_model_t *model, const fy_layer_t *layer, const char *prefix,
                        size_t *now);

static fy_status_t walk_child(fy_model_t *model, const fy_layer_t *layer, size_t index,
                              const char *prefix, size_t *now)
{
    char *name = join(prefix, layer->names[index]);
    const fy_status_t status = name ? walk(model, layer->children[index], name, now)
                                    : no_memory(model);
    free(name);
    return status;
}

static fy_status_t add_branches(fy_model_t *model, const fy_layer_t *layer, const char *name,
                                size_t *now)
{
    size_t ends[FYT_MAX_BRANCHES] = { *now };
    int rank;
    int64_t dims[FY_MAX_RANK + 1];
    for (size_t i = 0; i < layer->nchildren; i++) {
        ends[i] = *now;
        FY_TRY(walk_child(model, layer, i, name, &ends[i]));
    }
    FY_TRY(append(model, layer, name, layer->nchildren, ends));
    *now = model->nleaves - 1;
    fyt_leaf_t *leaf = &model->leaves[*now];
    shape_of(model, ends[0], &rank, dims);
    leaf->rank = rank - 1;
    memcpy(leaf->dims, dims + 1, (size_t)leaf->rank * sizeof *dims);
    for (size_t i = 1; i < layer->nchildren; i++) FY_TRY(join_shape(model, leaf, i));
    FY_TRY(check_size(model, leaf));
    fuse_norm(model, leaf);
    return FY_STATUS_OK;
}

/* The leaves of `layer` are a span; none: there is no span. */
static fy_status_t walk_checkpoint(fy_model_t *model, const fy_layer_t *layer, const char *prefix,
                                   size_t *now)
{
    const size_t index = model->nspans++;
    model->spans[index] = (fyt_span_t){ model->nleaves, SIZE_MAX, *now };
    FY_TRY(walk_child(model, layer, 0, prefix, now));
    if (model->nleaves == model->spans[index].first)
        model->nspans = index;
    else
        model->spans[index].end = model->nleaves;
    return FY_STATUS_OK;
}

/* *now: the leaf (or FYT_MODEL_INPUT) whose result the layer gets; then the one that it makes. */
static fy_status_t walk(fy_model_t *model, const fy_layer_t *layer, const char *prefix, size_t *now)
{
    if (layer->kind == FYT_LAYER_LEAF) return add_leaf(model, layer, prefix, now);
    if (layer->kind == FYT_LAYER_BRANCHES) return add_branches(model, layer, prefix, now);
    if (layer->is_checkpoint) return walk_checkpoint(model, layer, prefix, now);
    for (size_t i = 0; i < layer->nchildren; i++) FY_TRY(walk_child(model, layer, i, prefix, now));
    return FY_STATUS_OK;
}

/* Names without a layer's own ("") may meet. */
static fy_status_t check_names(const fy_model_t *model)
{
    const size_t count = model->nparams + model->nbuffers;
    for (size_t i = 0; i < count; i++) {
        const char *name = i < model->nparams ? model->params[i].name
                                              : model->buffers[i - model->nparams].name;
        for (size_t j = 0; j < i; j++) {
            const char *other = j < model->nparams ? model->params[j].name
                                                   : model->buffers[j - model->nparams].name;
            if (name && other && strcmp(name, other) == 0)
                return FYT_FAIL(INVALID_ARGUMENT,
                                "model '%s': two parameters or buffers are called '%s': name the "
                                "layers that they belong to",
                                model->name, name);
        }
    }
    return FY_STATUS_OK;
}

static fy_status_t check_tied(const fy_model_t *model, const fyt_leaf_t *leaf)
{
    const fy_layer_t *layer = leaf->layer;
    const fyt_model_param_t *param = fyt_model_param_named(model, layer->tied);
    if (!param)
        return explain(model, leaf,
                       FYT_FAIL(INVALID_ARGUMENT, "the model has no parameter '%s'", layer->tied));
    if (param->def->rank == 2 && param->def->dims[0] == layer->tied_dims[0] &&
        param->def->dims[1] == layer->tied_dims[1])
        return FY_STATUS_OK;
    return explain(model, leaf,
                   FYT_FAIL(SHAPE_MISMATCH, "its weight [%lld, %lld] is not the shape of '%s'",
                            (long long)layer->tied_dims[0], (long long)layer->tied_dims[1],
                            layer->tied));
}

fy_status_t fyt_model_lay_out(fy_model_t *model, int drop_bias)
{
    counts_t counts = { 0 };
    if (drop_bias) drop_biases(model->layer, NULL);
    count_leaves(model->layer, &counts);
    /* one more of each: calloc may return NULL for 0 bytes */
    model->leaves = calloc(counts.leaves + 1, sizeof *model->leaves);
    model->params = calloc(counts.params + 1, sizeof *model->params);
    model->buffers = calloc(counts.buffers + 1, sizeof *model->buffers);
    model->grad = calloc(counts.params + 1, sizeof(fy_tensor_t *));
    model->args = calloc(counts.params + counts.buffers + counts.tied + 1, sizeof(fy_tensor_t *));
    model->inputs = calloc(counts.inputs + 1, sizeof *model->inputs);
    model->results = calloc(counts.leaves + 1, sizeof *model->results);
    model->spans = calloc(counts.spans + 1, sizeof *model->spans);
    if (!model->leaves || !model->params || !model->buffers || !model->grad || !model->args ||
        !model->inputs || !model->results || !model->spans)
        return no_memory(model);
    model->output = FYT_MODEL_INPUT;
    FY_TRY(walk(model, model->layer, "", &model->output));
    if (model->output != FYT_MODEL_INPUT) model->leaves[model->output].reads++;
    FY_TRY(check_names(model));
    for (size_t i = 0; i < model->nleaves; i++) {
        const fyt_leaf_t *leaf = &model->leaves[i];
        if (leaf->layer && leaf->layer->tied) FY_TRY(check_tied(model, leaf));
    }
    return FY_STATUS_OK;
}
