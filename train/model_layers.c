/* The layers of a model one by one: facts, and the forward of one of them alone.
 * Not here: the whole forward (model_run.c), the list of layers (model_layout.c). */
#include "model.h"
#include "train/abi.h"

#include <ferry/scope.h>

#include <string.h>

size_t fy_model_layer_count(const fy_model_t *model) { return model ? model->nleaves : 0; }

static size_t number_or_none(size_t leaf) { return leaf == FYT_NO_LEAF ? SIZE_MAX : leaf; }

fy_status_t fy_model_layer(const fy_model_t *model, size_t index, fy_model_layer_info_t *out_info)
{
    if (!model) return FYT_FAIL(INVALID_ARGUMENT, "model_layer: model is NULL");
    FY_TRY(FY__CHECK_OUT(model_layer_info, "model_layer", out_info));
    if (index >= model->nleaves)
        return FYT_FAIL(INVALID_ARGUMENT, "model_layer: layer %zu of model '%s', which has %zu",
                        index, model->name, model->nleaves);
    const fyt_leaf_t *leaf = &model->leaves[index];
    fy_model_layer_info_t info = { .struct_size = sizeof info,
                                   .name = leaf->name,
                                   .type = leaf->layer->def.type,
                                   .first_param = leaf->first_param,
                                   .nparams = leaf->layer->def.nparams,
                                   .tied_param = SIZE_MAX,
                                   .norm = number_or_none(leaf->norm),
                                   .is_fused = leaf->is_fused,
                                   .ninputs = leaf->ninputs,
                                   .macs = leaf->macs,
                                   .out_rank = leaf->rank,
                                   .dropped_bias = leaf->layer->dropped_bias };
    if (leaf->layer->tied)
        info.tied_param = (size_t)(fyt_model_param_named(model, leaf->layer->tied) - model->params);
    for (size_t i = 0; i < leaf->ninputs; i++)
        info.inputs[i] = fyt_model_leaf_input(model, leaf, i);
    memcpy(info.out_dims, leaf->dims, sizeof info.out_dims);
    FY__WRITE(out_info, &info);
    return FY_STATUS_OK;
}

static fy_status_t check_input(const fy_model_t *model, const fyt_leaf_t *leaf, size_t index,
                               const fy_tensor_t *x, int64_t *batch)
{
    const size_t from = fyt_model_leaf_input(model, leaf, index);
    const int is_input = from == FYT_MODEL_INPUT;
    const int rank = is_input ? model->rank : model->leaves[from].rank;
    const int64_t *dims = is_input ? model->dims : model->leaves[from].dims;
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    char got[FYT_SHAPE_TEXT], want[FYT_SHAPE_TEXT];
    int64_t whole[FY_MAX_RANK + 1] = { 0 };
    FY_TRY(fy_tensor_query(x, &info));
    if (index == 0 && info.rank) *batch = info.dims[0];
    if (rank) memcpy(whole + 1, dims, (size_t)rank * sizeof *dims);
    whole[0] = *batch;
    if (info.rank == rank + 1 && memcmp(info.dims, whole, (size_t)info.rank * sizeof *whole) == 0)
        return FY_STATUS_OK;
    return FYT_FAIL(SHAPE_MISMATCH,
                    "model '%s', layer '%s' (%s): input %zu is %s with the same n for all inputs, "
                    "and was given %s",
                    model->name, leaf->name, leaf->layer->def.type, index,
                    fyt_shape_text(want, rank + 1, whole),
                    fyt_shape_text(got, info.rank, info.dims));
}

fy_status_t fy_model_layer_forward(fy_model_t *model, size_t index, fy_tensor_t *const *inputs,
                                   fy_tensor_t **out_y)
{
    int64_t batch = 0;
    fy_tensor_t *y = NULL;
    if (out_y) *out_y = NULL;
    if (!model || !inputs || !out_y)
        return FYT_FAIL(INVALID_ARGUMENT, "model_layer_forward: model, inputs or out_y is NULL");
    if (index >= model->nleaves || model->leaves[index].is_fused)
        return FYT_FAIL(INVALID_ARGUMENT, "model_layer_forward: layer %zu of model '%s' %s", index,
                        model->name,
                        index < model->nleaves ? "is computed by the layer that adds its result"
                                               : "does not exist");
    const fyt_leaf_t *leaf = &model->leaves[index];
    for (size_t i = 0; i < leaf->ninputs; i++) {
        if (!inputs[i])
            return FYT_FAIL(INVALID_ARGUMENT, "model_layer_forward: inputs[%zu] is NULL", i);
        FY_TRY(check_input(model, leaf, i, inputs[i], &batch));
    }
    fy_scope_t scope = fy_scope_begin("forward");
    fy_status_t status = fyt_model_run_leaf(model, index, inputs, batch, &y);
    /* The caller owns the result, and may destroy it beside the input. */
    for (size_t i = 0; status == FY_STATUS_OK && i < leaf->ninputs; i++)
        if (y == inputs[i]) {
            status = fy_slice(inputs[i], 0, 0, batch, &y);
            break;
        }
    fy_scope_end(scope, status == FY_STATUS_OK, &y);
    if (status == FY_STATUS_OK) *out_y = y;
    return status;
}
