/* The forward of a model: its leaves in order, each with the results of earlier ones. A result is
 * destroyed as soon as no later leaf reads it; the tape holds the ones that it needs.
 * Not here: the list of leaves (model_layout.c). */
#include "model.h"

#include <ferry/ops.h>

#include <stdlib.h>
#include <string.h>

/* Has a leaf's result the shape that its shape function computed? */
static fy_status_t check_result(const fy_model_t *model, const fyt_leaf_t *leaf,
                                const fy_tensor_t *y, int64_t batch)
{
    char got[FYT_SHAPE_TEXT], want[FYT_SHAPE_TEXT];
    int64_t dims[FY_MAX_RANK] = { batch };
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(y, &info));
    if (leaf->rank) memcpy(dims + 1, leaf->dims, (size_t)leaf->rank * sizeof *dims);
    if (info.rank == leaf->rank + 1 &&
        memcmp(info.dims, dims, (size_t)info.rank * sizeof *dims) == 0)
        return FY_STATUS_OK;
    return FYT_FAIL(
        SHAPE_MISMATCH, "model '%s', layer '%s' (%s): its shape function gives %s, its forward %s",
        model->name, leaf->name, leaf->layer->def.type, fyt_shape_text(want, leaf->rank + 1, dims),
        fyt_shape_text(got, info.rank, info.dims));
}

/* The leaves from `first` to `end`, which read one result of earlier ones: that of `origin`. */
typedef struct run {
    const fy_model_t *model;
    fy_pass_t pass;
    size_t first, end, origin; /* origin: a leaf or FYT_MODEL_INPUT */
    size_t span;               /* the first one that may be inside */
    fy_tensor_t *x;            /* the result of `origin` */
    int64_t batch;
    fy_tensor_t *const *inputs; /* of a leaf that runs alone; NULL: the whole model runs */
} run_t;

static fy_tensor_t *input_of(const run_t *run, const fyt_leaf_t *leaf, size_t index)
{
    if (run->inputs) return run->inputs[index];
    const size_t from = run->model->inputs[leaf->first_input + index];
    return from == run->origin ? run->x : run->model->results[from].tensor;
}

static fy_status_t join_all(const run_t *run, const fyt_leaf_t *leaf, fy_tensor_t **out_y)
{
    fy_tensor_t *inputs[FYT_MAX_BRANCHES] = { NULL }, *sum;
    for (size_t i = 0; i < leaf->ninputs; i++) inputs[i] = input_of(run, leaf, i);
    if (leaf->layer->join == FY_JOIN_CONCAT) return fy_concat(leaf->ninputs, inputs, -1, out_y);
    sum = inputs[0];
    for (size_t i = 1; i < leaf->ninputs; i++) {
        fy_tensor_t *next;
        FY_TRY(leaf->layer->join == FY_JOIN_ADD ? fy_add(sum, inputs[i], &next)
                                                : fy_mul(sum, inputs[i], &next));
        if (i > 1) fy_tensor_destroy(sum);
        sum = next;
    }
    *out_y = sum;
    return FY_STATUS_OK;
}

static fy_status_t run_join(const run_t *run, const fyt_leaf_t *leaf, fy_tensor_t **out_y)
{
    const fy_model_t *model = run->model;
    fy_tensor_t *joined = NULL;
    if (leaf->norm != FYT_NO_LEAF) {
        const fyt_leaf_t *norm = &model->leaves[leaf->norm];
        const size_t other = model->inputs[leaf->first_input] == leaf->norm;
        return fyt_batch_norm_forward(norm->layer, &run->pass, model->args + norm->first_arg,
                                      run->inputs ? run->inputs[!other] : input_of(run, norm, 0),
                                      input_of(run, leaf, other), leaf->layer->activation, out_y);
    }
    FY_TRY(join_all(run, leaf, &joined));
    FY_TRY(fyt_activation_apply(leaf->layer->activation, joined, out_y));
    if (*out_y != joined && leaf->ninputs > 1) fy_tensor_destroy(joined);
    return FY_STATUS_OK;
}

/* One read less of the result of `from`. */
static void release(const run_t *run, size_t from)
{
    const fy_model_t *model = run->model;
    if (from == run->origin || model->leaves[from].is_fused) return;
    const size_t root = model->results[from].root;
    if (root != run->origin && --model->results[root].reads == 0)
        fy_tensor_destroy(model->results[root].tensor);
}

/* Of each input of a leaf that has run. */
static void release_inputs(const run_t *run, const fyt_leaf_t *leaf)
{
    for (size_t i = 0; i < leaf->ninputs; i++)
        release(run, run->model->inputs[leaf->first_input + i]);
}

/* The leaf whose result `tensor` already is; `index` itself: it is a new one. A layer may return
 * its input. */
static size_t root_of(const run_t *run, const fyt_leaf_t *leaf, size_t index,
                      const fy_tensor_t *tensor)
{
    if (tensor == run->x) return run->origin;
    for (size_t i = 0; i < leaf->ninputs; i++) {
        const size_t from = run->model->inputs[leaf->first_input + i];
        if (from != run->origin && !run->model->leaves[from].is_fused &&
            run->model->results[from].tensor == tensor)
            return run->model->results[from].root;
    }
    return index;
}

/* The leaf's own result. */
static fy_status_t compute(const run_t *run, const fyt_leaf_t *leaf, fy_tensor_t **out_y)
{
    const fy_model_t *model = run->model;
    fy_tensor_t *y = NULL;
    if (leaf->layer->kind == FYT_LAYER_BRANCHES)
        FY_TRY(run_join(run, leaf, &y));
    else
        FY_TRY(leaf->layer->def.forward(leaf->layer->user, &run->pass,
                                        model->args + leaf->first_arg, input_of(run, leaf, 0), &y));
    if (!y)
        return FYT_FAIL(INVALID_ARGUMENT, "model '%s', layer '%s' (%s): its forward gave no result",
                        model->name, leaf->name, leaf->layer->def.type);
    *out_y = y;
    return check_result(model, leaf, y, run->batch);
}

static fy_status_t run_leaf(const run_t *run, size_t index)
{
    const fy_model_t *model = run->model;
    const fyt_leaf_t *leaf = &model->leaves[index];
    fyt_result_t *result = &model->results[index];
    fy_tensor_t *y;
    FY_TRY(compute(run, leaf, &y));
    *result = (fyt_result_t){ y, root_of(run, leaf, index, y), 0 };
    if (result->root != run->origin) model->results[result->root].reads += leaf->reads;
    release_inputs(run, leaf);
    if (leaf->norm != FYT_NO_LEAF) release_inputs(run, &model->leaves[leaf->norm]);
    return FY_STATUS_OK;
}

/* ---- spans: leaves that run again in the backward ---- */

static fy_status_t run_range(const run_t *run, fy_tensor_t **out_y);

static fy_status_t run_again(void *user, size_t count, fy_tensor_t *const *inputs,
                             fy_tensor_t **out_y)
{
    run_t run = *(const run_t *)user;
    (void)count;
    run.x = inputs[0];
    return run_range(&run, out_y);
}

/* A view of the buffers that the leaves of a run update; NULL: they have none. */
static fy_status_t view_buffers(const run_t *run, fy_tensor_t **out_view)
{
    const fy_model_t *model = run->model;
    size_t first = 0, end = 0;
    *out_view = NULL;
    for (size_t i = 0; i < run->end; i++) {
        if (i == run->first) first = end;
        end += model->leaves[i].layer->def.nbuffers;
    }
    if (first == end) return FY_STATUS_OK;
    const fyt_model_param_t *last = &model->buffers[end - 1];
    return fy_slice(model->buffer_values, 0, (int64_t)model->buffers[first].offset,
                    (int64_t)(last->offset + last->nelem), out_view);
}

/* Takes over `inner`. */
static fy_status_t recompute(run_t *inner, fy_tensor_t *x, fy_tensor_t **out_y)
{
    fy_recompute_options_t options = FY_RECOMPUTE_OPTIONS_INIT;
    fy_tensor_t *states[2] = { inner->model->rng, NULL };
    if (inner->pass.is_training) {
        const fy_status_t status = view_buffers(inner, &states[1]);
        if (status != FY_STATUS_OK) {
            free(inner);
            return status;
        }
        options.nstates = states[1] ? 2 : 1;
    }
    options.states = states;
    options.destroy = free;
    const fy_status_t status = fy_tape_recompute(run_again, inner, 1, &x, &options, out_y);
    fy_tensor_destroy(states[1]);
    return status;
}

static fy_status_t run_span(const run_t *run, size_t index)
{
    const fy_model_t *model = run->model;
    const fyt_span_t *span = &model->spans[index];
    const size_t last = span->end - 1;
    fy_tensor_t *x = span->origin == run->origin ? run->x : model->results[span->origin].tensor, *y;
    run_t *inner = malloc(sizeof *inner);
    if (!inner)
        return FYT_FAIL(OUT_OF_MEMORY, "model '%s': no host memory for leaves that run again",
                        model->name);
    *inner = (run_t){ .model = model,
                      .pass = run->pass,
                      .first = span->first,
                      .end = span->end,
                      .origin = span->origin,
                      .span = index + 1,
                      .batch = run->batch };
    FY_TRY(recompute(inner, x, &y));
    model->results[last] = (fyt_result_t){ y, last, model->leaves[last].reads };
    for (size_t i = span->first; i < span->end; i++) {
        const fyt_leaf_t *leaf = &model->leaves[i];
        for (size_t k = 0; k < leaf->ninputs; k++)
            if (model->inputs[leaf->first_input + k] == span->origin) release(run, span->origin);
    }
    return FY_STATUS_OK;
}

/* ---- the whole ---- */

static fy_status_t run_range(const run_t *run, fy_tensor_t **out_y)
{
    const fy_model_t *model = run->model;
    const size_t last = run->end == model->nleaves ? model->output : run->end - 1;
    size_t span = run->span, ends = 0; /* ends: of offloaded segments that are over */
    for (size_t i = run->first; i < run->end; i++) {
        while (span < model->nspans && model->spans[span].first < i) span++;
        if (span < model->nspans && model->spans[span].first == i) {
            FY_TRY(run_span(run, span));
            i = model->spans[span].end - 1;
        } else if (!model->leaves[i].is_fused) {
            FY_TRY(run_leaf(run, i));
        }
        if (ends == model->nends || model->ends[ends] != i) continue;
        FY_TRY(fy_tape_offload());
        ends++;
    }
    *out_y = last == run->origin ? run->x : model->results[last].tensor;
    return FY_STATUS_OK;
}

static fy_pass_t make_pass(const fy_model_t *model)
{
    return (fy_pass_t){ .struct_size = sizeof(fy_pass_t),
                        .is_training = model->is_training,
                        .rng = model->rng,
                        .norms = model->norms.ranks ? &model->norms : NULL };
}

fy_status_t fyt_model_run(const fy_model_t *model, fy_tensor_t *x, int64_t batch,
                          fy_tensor_t **out_y)
{
    const run_t run = { .model = model,
                        .pass = make_pass(model),
                        .end = model->nleaves,
                        .origin = FYT_MODEL_INPUT,
                        .x = x,
                        .batch = batch };
    return run_range(&run, out_y);
}

size_t fyt_model_leaf_input(const fy_model_t *model, const fyt_leaf_t *leaf, size_t index)
{
    const size_t from = model->inputs[leaf->first_input + index];
    return leaf->norm != FYT_NO_LEAF && from == leaf->norm
               ? model->inputs[model->leaves[from].first_input]
               : from;
}

fy_status_t fyt_model_run_leaf(const fy_model_t *model, size_t index, fy_tensor_t *const *inputs,
                               int64_t batch, fy_tensor_t **out_y)
{
    const run_t run = {
        .model = model, .pass = make_pass(model), .batch = batch, .inputs = inputs
    };
    return compute(&run, &model->leaves[index], out_y);
}
