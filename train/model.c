/* Models: blocks of parameters, gradients and buffers on a device, gradients by the tape.
 * Not here: the list of layers (model_layout.c), running it (model_run.c), asking about parameters
 * and printing (model_describe.c), the known models (models.c).
 * Next: include/ferry/train/model.h says what each call promises. */
#include "model.h"
#include "train/abi.h"

#include <ferry/autocast.h>
#include <ferry/scope.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

FY__ABI_FOREIGN_ROW(backward_options, BACKWARD_OPTIONS, accumulate)

void fy_model_destroy(fy_model_t *model)
{
    if (!model) return;
    for (size_t i = 0; i < model->nparams; i++) {
        fy_tensor_destroy(model->params[i].value);
        fy_tensor_destroy(model->grad[i]);
        free(model->params[i].name);
    }
    for (size_t i = 0; i < model->nbuffers; i++) {
        fy_tensor_destroy(model->buffers[i].value);
        free(model->buffers[i].name);
    }
    for (size_t i = 0; i < model->nleaves; i++) free(model->leaves[i].name);
    fy_tensor_destroy(model->values);
    fy_tensor_destroy(model->grads);
    fy_tensor_destroy(model->low);
    fy_tensor_destroy(model->buffer_values);
    fy_tensor_destroy(model->rng);
    free(model->leaves);
    free(model->params);
    free(model->buffers);
    free(model->grad);
    free(model->args);
    free(model->inputs);
    free(model->ends);
    free(model->spans);
    free(model->results);
    fyt_layer_free(model->layer);
    free(model->name);
    free(model->note);
    free(model);
}

/* ---- making one ---- */

/* The state of dropout: another seed, so that its draws are not those of the initial values. */
static int64_t dropout_seed(int64_t seed)
{
    return seed ^ INT64_C(0x64726f706f7574); /* the ASCII bytes of "dropout" */
}

/* A zeroed block of `room` elements and of `category`, kept. */
static fy_status_t make_block(const fy_model_t *model, const char *name, fy_category_t category,
                              uint64_t room, fy_dtype_t dtype, fy_tensor_t **out_block)
{
    fy_scope_t scope = fy_scope_begin(name);
    fy_status_t status = fy_scope_memory(category);
    if (status == FY_STATUS_OK)
        status = fy_zeros(model->device, dtype, 1, (int64_t[]){ (int64_t)room }, out_block);
    if (status == FY_STATUS_OK) {
        fy_tensor_keep(*out_block);
        fy_tensor_set_name(*out_block, name);
    }
    fy_scope_end(scope, 0, NULL);
    return status;
}

static fy_status_t make_rng(const fy_model_t *model, int64_t seed, fy_tensor_t **out_rng)
{
    FY_TRY(fy_scope_memory(FY_CATEGORY_WEIGHTS)); /* a model has it as long as its weights */
    return fy_rng_create(model->device, seed, out_rng);
}

/* The view of a parameter or a buffer in `block`, kept. */
static fy_status_t view_param(const fyt_model_param_t *param, fy_tensor_t *block,
                              fy_tensor_t **out_view)
{
    fy_tensor_t *flat;
    FY_TRY(
        fy_slice(block, 0, (int64_t)param->offset, (int64_t)(param->offset + param->nelem), &flat));
    FY_TRY(fy_reshape(flat, param->def->rank, param->def->dims, out_view));
    fy_tensor_keep(*out_view);
    fy_tensor_set_name(*out_view, param->name);
    return FY_STATUS_OK;
}

/* After all views are made. */
static void list_args(fy_model_t *model)
{
    size_t param = 0, buffer = 0;
    for (size_t i = 0; i < model->nleaves; i++) {
        const fy_layer_def_t *def = &model->leaves[i].layer->def;
        fy_tensor_t **arg = model->args + model->leaves[i].first_arg;
        for (size_t p = 0; p < def->nparams; p++) *arg++ = model->params[param++].value;
        for (size_t b = 0; b < def->nbuffers; b++) *arg++ = model->buffers[buffer++].value;
        if (model->leaves[i].layer->tied)
            *arg = fyt_model_param_named(model, model->leaves[i].layer->tied)->value;
    }
}

static fy_status_t version_of(const fy_tensor_t *tensor, uint64_t *out_version)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(tensor, &info));
    *out_version = info.version;
    return FY_STATUS_OK;
}

static fy_status_t make_tensors(fy_model_t *model, int64_t seed, fy_dtype_t low)
{
    fy_tensor_t *draws;
    FY_TRY(make_block(model, "weights", FY_CATEGORY_WEIGHTS, model->room, model->dtype,
                      &model->values));
    FY_TRY(make_block(model, "gradients", FY_CATEGORY_GRADIENTS, model->room, model->dtype,
                      &model->grads));
    if (low != FY_DTYPE_F32)
        FY_TRY(make_block(model, "low", FY_CATEGORY_WEIGHTS, model->room, low, &model->low));
    if (model->nbuffers)
        FY_TRY(make_block(model, "buffers", FY_CATEGORY_WEIGHTS, model->buffers_room, model->dtype,
                          &model->buffer_values));
    FY_TRY(make_rng(model, dropout_seed(seed), &model->rng));
    fy_tensor_keep(model->rng);
    FY_TRY(fy_rng_create(model->device, seed, &draws));
    for (size_t i = 0; i < model->nparams; i++) {
        fyt_model_param_t *param = &model->params[i];
        FY_TRY(view_param(param, model->values, &param->value));
        FY_TRY(view_param(param, model->grads, &model->grad[i]));
        FY_TRY(fyt_init_fill(param->value, draws, param->def));
    }
    for (size_t i = 0; i < model->nbuffers; i++) {
        fyt_model_param_t *buffer = &model->buffers[i];
        FY_TRY(view_param(buffer, model->buffer_values, &buffer->value));
        FY_TRY(fyt_init_fill(buffer->value, draws, buffer->def));
    }
    list_args(model);
    model->grads_version = UINT64_MAX; /* the first backward may be recorded in a graph */
    return FY_STATUS_OK;
}

static fy_status_t check_create(fy_device_t *device, const fy_layer_t *layer, int rank,
                                const int64_t *dims, const fy_model_options_t *options,
                                fy_model_t **out_model)
{
    if (!out_model || !device || (rank > 0 && !dims))
        return FYT_FAIL(INVALID_ARGUMENT, "model_create: device, dims or out_model is NULL");
    if (!layer) return FYT_FAIL(INVALID_ARGUMENT, "model_create: layer is NULL: its maker failed");
    if (layer->is_owned)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "model_create: the layer (%s) is already %s: make one layer for each place",
                        layer->def.type, fyt_owner_text((char[FYT_OWNER_TEXT]){ 0 }, layer));
    if (options->dtype != FY_DTYPE_F32 && options->dtype != FY_DTYPE_F64 &&
        options->dtype != FY_DTYPE_F16 && options->dtype != FY_DTYPE_BF16)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "model_create: parameters are f32, f64, f16 or bf16, not %s",
                        fy_dtype_name(options->dtype));
    if (options->low != FY_DTYPE_F32 &&
        (options->dtype != FY_DTYPE_F32 ||
         (options->low != FY_DTYPE_F16 && options->low != FY_DTYPE_BF16)))
        return FYT_FAIL(INVALID_ARGUMENT,
                        "model_create: low is %s with parameters of %s: f16 or bf16, with f32",
                        fy_dtype_name(options->low), fy_dtype_name(options->dtype));
    if (rank < 0 || rank >= FY_MAX_RANK)
        return FYT_FAIL(INVALID_ARGUMENT, "model_create: a sample of rank %d; 0 to %d can be", rank,
                        FY_MAX_RANK - 1);
    int64_t nelem = 1;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 1)
            return FYT_FAIL(INVALID_ARGUMENT, "model_create: dims[%d] of a sample is %lld", i,
                            (long long)dims[i]);
        if (__builtin_mul_overflow(nelem, dims[i], &nelem))
            return FYT_FAIL(INVALID_ARGUMENT,
                            "model_create: a sample has more than 2^63 - 1 elements, with dims[%d] "
                            "= %lld: smaller dims",
                            i, (long long)dims[i]);
    }
    return FY_STATUS_OK;
}

/* Running statistics are sums of many small steps. */
static fy_status_t check_buffers(const fy_model_t *model)
{
    const int is_half = model->dtype == FY_DTYPE_F16 || model->dtype == FY_DTYPE_BF16;
    if (!is_half || !model->nbuffers) return FY_STATUS_OK;
    return FYT_FAIL(UNSUPPORTED,
                    "model_create: '%s' has running statistics (%s), which %s does not hold; make "
                    "it with dtype f32, and options.low for steps in half precision",
                    model->name, model->buffers[0].name, fy_dtype_name(model->dtype));
}

fy_status_t fy_model_create(fy_device_t *device, fy_layer_t *layer, int rank, const int64_t *dims,
                            const fy_model_options_t *options, fy_model_t **out_model)
{
    fy_model_options_t own;
    if (out_model) *out_model = NULL;
    fy_status_t status = FY__READ(model_options, "model_create", options, &own);
    options = &own;
    if (status == FY_STATUS_OK)
        status = check_create(device, layer, rank, dims, options, out_model);
    fy_model_t *model = status == FY_STATUS_OK ? calloc(1, sizeof *model) : NULL;
    if (!model) {
        fy_layer_destroy(layer); /* does nothing if the layer has an owner */
        return status != FY_STATUS_OK
                   ? status
                   : FYT_FAIL(OUT_OF_MEMORY, "model_create: no host memory for a model");
    }
    *model = (fy_model_t){ .device = device,
                           .dtype = options->dtype,
                           .layer = layer,
                           .rank = rank,
                           .is_training = 1,
                           .is_cheap = options->recompute_cheap };
    layer->is_owned = 1;
    if (rank) memcpy(model->dims, dims, (size_t)rank * sizeof *dims);
    model->name = strdup(options->name ? options->name : "model");
    fy_scope_t scope = fy_scope_begin("model");
    status = model->name ? fyt_model_lay_out(model, options->drop_bias)
                         : FYT_FAIL(OUT_OF_MEMORY, "model_create: no host memory for a name");
    if (status == FY_STATUS_OK) status = check_buffers(model);
    if (status == FY_STATUS_OK) status = fyt_model_cut(model, options);
    if (status == FY_STATUS_OK) status = make_tensors(model, options->seed, options->low);
    fy_scope_end(scope, 0, NULL);
    if (status != FY_STATUS_OK) {
        fy_model_destroy(model);
        return status;
    }
    *out_model = model;
    return FY_STATUS_OK;
}

/* ---- running it ---- */

void fy_model_set_training(fy_model_t *model, int is_training)
{
    if (model) model->is_training = is_training != 0;
}

fy_status_t fy_model_sync_norms(fy_model_t *model, const fy_norm_exchange_t *exchange)
{
    fy_norm_exchange_t own = FY_NORM_EXCHANGE_INIT;
    if (!model) return FYT_FAIL(INVALID_ARGUMENT, "model_sync_norms: model is NULL");
    if (exchange) {
        FY_TRY(FY__READ(norm_exchange, "model_sync_norms", exchange, &own));
        if (own.ranks < 1 || !own.gather || !own.sum)
            return FYT_FAIL(INVALID_ARGUMENT,
                            "model_sync_norms: exchange has %d ranks and %s: at least 1, and both "
                            "functions",
                            own.ranks,
                            own.gather && own.sum ? "both functions" : "a NULL function");
        if (model->dtype != FY_DTYPE_F32 && model->dtype != FY_DTYPE_F64)
            return FYT_FAIL(DTYPE_MISMATCH,
                            "model_sync_norms: the parameters of '%s' are %s; statistics of all "
                            "ranks take f32 and f64: options.low computes in half precision",
                            model->name, fy_dtype_name(model->dtype));
    }
    model->norms = own;
    return FY_STATUS_OK;
}

static fy_status_t check_input(const fy_model_t *model, const fy_tensor_t *x,
                               fy_tensor_info_t *info)
{
    char got[FYT_SHAPE_TEXT], want[FYT_SHAPE_TEXT];
    int64_t dims[FY_MAX_RANK] = { 0 };
    FY_TRY(fy_tensor_query(x, info));
    if (info->rank == model->rank + 1 &&
        memcmp(info->dims + 1, model->dims, (size_t)model->rank * sizeof *dims) == 0)
        return FY_STATUS_OK;
    memcpy(dims + 1, model->dims, (size_t)model->rank * sizeof *dims);
    return FYT_FAIL(SHAPE_MISMATCH, "model '%s' takes x %s and was given %s%s", model->name,
                    fyt_shape_text(want, model->rank + 1, dims),
                    fyt_shape_text(got, info->rank, info->dims),
                    info->rank == model->rank ? ": one sample is a batch of 1 (fy_unsqueeze)" : "");
}

fy_status_t fy_model_forward(fy_model_t *model, fy_tensor_t *x, fy_tensor_t **out_y)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    fy_tensor_t *y = NULL;
    if (out_y) *out_y = NULL;
    if (!model || !x || !out_y)
        return FYT_FAIL(INVALID_ARGUMENT, "model_forward: model, x or out_y is NULL");
    FY_TRY(check_input(model, x, &info));
    fy_scope_t scope = fy_scope_begin("forward");
    fy_status_t status = fyt_model_run(model, x, info.dims[0], &y);
    /* No layer changed x: returns a separate result all the same. */
    if (status == FY_STATUS_OK && y == x) status = fy_slice(x, 0, 0, info.dims[0], &y);
    fy_scope_end(scope, status == FY_STATUS_OK, &y);
    if (status == FY_STATUS_OK) *out_y = y;
    return status;
}

fy_status_t fy_model_watch(fy_model_t *model, fy_tape_t *tape)
{
    if (!model || !tape) return FYT_FAIL(INVALID_ARGUMENT, "model_watch: model or tape is NULL");
    for (size_t i = 0; i < model->nparams; i++)
        FY_TRY(fy_tape_watch(tape, model->params[i].value, model->grad[i]));
    if (model->low) FY_TRY(fy_autocast_keep(tape, model->values, model->low));
    return model->is_cheap ? fy_tape_recompute_cheap(tape, 1) : FY_STATUS_OK;
}

/* The gaps between gradients are 0: what an op on the whole block left there, such as NaN, no later
 * backward would replace. */
static bool has_gaps(const fy_model_t *model)
{
    uint64_t elements = 0;
    for (size_t i = 0; i < model->nparams; i++) elements += model->params[i].nelem;
    return elements != model->room;
}

/* Whether the tape has gradients of the model. Where it has none, it assigns. */
static fy_status_t find_gradient(const fy_model_t *model, const fy_tape_t *tape, bool *out_is_there)
{
    fy_tensor_t *grad = NULL;
    for (size_t i = 0; !grad && i < model->nparams; i++)
        FY_TRY(fy_tape_grad(tape, model->params[i].value, &grad));
    *out_is_there = grad != NULL;
    fy_tensor_destroy(grad);
    return FY_STATUS_OK;
}

/* The backward of a tape that has none: it replaces the block, to which `*out_before` is added. */
static fy_status_t set_aside(const fy_model_t *model, fy_backward_options_t *options,
                             fy_tensor_t **out_before)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    if (options->on_grad)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "model_backward: accumulate and on_grad, and this tape has no gradient of "
                        "model '%s' since it was watched\n  Go back through all batches of an "
                        "update with one tape",
                        model->name);
    FY_TRY(fy_tensor_query(model->grads, &info));
    FY_TRY(fy_empty(info.device, info.dtype, info.rank, info.dims, out_before));
    options->clear = model->grads;
    return fy_copy(*out_before, model->grads);
}

fy_status_t fy_model_backward(fy_model_t *model, fy_tape_t *tape, const fy_tensor_t *loss,
                              const fy_backward_options_t *options)
{
    fy_backward_options_t own;
    uint64_t version;
    if (!model || !tape || !loss)
        return FYT_FAIL(INVALID_ARGUMENT, "model_backward: model, tape or loss is NULL");
    FY_TRY(FY__READ(backward_options, "model_backward", options, &own));
    FY_TRY(version_of(model->grads, &version));
    /* Gradients that earlier backward passes accumulated stay where this one adds nothing. */
    const bool keeps = own.accumulate && model->has_grads;
    fy_tensor_t *before = NULL;
    bool is_known = true;
    if (keeps) FY_TRY(find_gradient(model, tape, &is_known));
    const bool is_written = version != model->grads_version; /* by others, since the last one */
    own.clear = is_written && !keeps && has_gaps(model) ? model->grads : NULL;
    fy_scope_t scope = fy_scope_begin("backward");
    fy_status_t status = is_known ? FY_STATUS_OK : set_aside(model, &own, &before);
    if (status == FY_STATUS_OK) status = fy_tape_backward(tape, loss, &own);
    if (status == FY_STATUS_OK && before) status = fy_axpy(model->grads, 1, before);
    for (size_t i = 0; status == FY_STATUS_OK && !keeps && i < model->nparams; i++) {
        fy_tensor_t *grad = NULL;
        status = fy_tape_grad(tape, model->params[i].value, &grad);
        if (status == FY_STATUS_OK && !grad) status = fy_fill(model->grad[i], 0);
        fy_tensor_destroy(grad);
    }
    if (status == FY_STATUS_OK && !(is_written && keeps))
        status = version_of(model->grads, &model->grads_version);
    if (status == FY_STATUS_OK) model->has_grads = 1;
    fy_scope_end(scope, 0, NULL);
    return status;
}
