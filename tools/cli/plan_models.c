/* The table of models, and the step of those that are layers: forward, loss, backward, update; or
 * forward alone.
 * Not here: planning (cmd_plan.c), how each is trained (train_recipes.c). */
#include "tools/cli/plan_models.h"

#include <string.h>

enum { STEPS = 2 }; /* the second is a steady one */

static const plan_model_t models[] = {
    { "linear", "samples", model_plan_step, -1 },
    { "mlp", "images", model_plan_step, -1 },
    { "lenet", "images", model_plan_step, -1 },
    { "mnist2018", "images", model_plan_step, -1 },
    { "mnist", "images", model_plan_step, -1 },
    { "resnet18", "images", model_plan_step, -1 },
    { "mobilenet_v3_large", "images", model_plan_step, -1 },
    { "vit_tiny", "images", model_plan_step, -1 },
    { "gpt", "pieces of text", model_plan_step, -1 },
    { "roundtrip", "rows and columns", roundtrip_plan_step, -1 },
    { "vectorize", "rows and columns", vectorize_plan_step, -1 },
    { "minibatch", "rows of data", minibatch_plan_step, 6 },
};

const plan_model_t *plan_model_at(size_t index)
{
    return index < sizeof models / sizeof *models ? &models[index] : NULL;
}

/* A batch as a loader gives it: f32 samples or tokens, and labels or targets. */
static fy_status_t make_batch(fy_device_t *device, const plan_request_t *request, int64_t batch,
                              fy_tensor_t **out_x, fy_tensor_t **out_y)
{
    const train_recipe_t *recipe = train_recipe_find(request->model);
    const int is_text = strcmp(recipe->dataset, "text") == 0;
    int64_t sample[FY_MAX_RANK], dims[FY_MAX_RANK + 1] = { batch };
    int rank;
    FY_TRY(fy_model_sample_shape(train_recipe_spec(recipe, request->model), &rank, sample));
    for (int i = 0; i < rank; i++) dims[i + 1] = sample[i];
    FY_TRY(fy_zeros(device, is_text ? FY_DTYPE_I32 : FY_DTYPE_F32, rank + 1, dims, out_x));
    if (is_text) return fy_zeros(device, FY_DTYPE_I32, rank + 1, dims, out_y);
    if (recipe->loss == FY_LOSS_MSE)
        return fy_zeros(device, FY_DTYPE_F32, FY_DIMS(batch, 1), out_y);
    return fy_zeros(device, FY_DTYPE_I32, FY_DIMS(batch), out_y);
}

static fy_status_t compute_loss(fy_loss_kind_t kind, fy_tensor_t *result, fy_tensor_t *y,
                                fy_tensor_t **out_loss)
{
    if (kind == FY_LOSS_MSE) return fy_mse_loss(result, y, out_loss);
    if (kind == FY_LOSS_NLL) return fy_nll_loss(result, y, FY_REDUCTION_MEAN, out_loss);
    return fy_cross_entropy(result, y, FY_REDUCTION_MEAN, out_loss);
}

static fy_status_t step(fy_model_t *model, fy_optimizer_t *optimizer, fy_tape_t *tape,
                        const plan_request_t *request, fy_tensor_t *x, fy_tensor_t *y)
{
    const fy_loss_kind_t kind = train_recipe_find(request->model)->loss;
    fy_tensor_t *result, *loss, *seed;
    fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
    fy_scope_t scope = fy_scope_begin("step");
    FY_TRY(fy_autocast_set(train_precision(request->precision)));
    FY_TRY(fy_tape_begin(tape));
    FY_TRY(fy_model_forward(model, x, &result));
    FY_TRY(compute_loss(kind, result, y, &loss));
    FY_TRY(fy_optimizer_seed(optimizer, FY_DTYPE_F32, &seed));
    options.seed = seed;
    FY_TRY(fy_model_backward(model, tape, loss, &options));
    FY_TRY(fy_optimizer_step(optimizer));
    fy_scope_end(scope, 0, NULL);
    return FY_STATUS_OK;
}

static fy_status_t infer(fy_model_t *model, const plan_request_t *request, int64_t batch)
{
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    fy_tensor_t *x, *y, *result;
    fy_model_set_training(model, 0);
    FY_TRY(fy_model_query(model, &info));
    FY_TRY(make_batch(info.device, request, batch, &x, &y));
    for (int i = 0; i < STEPS; i++) {
        fy_scope_t scope = fy_scope_begin("step");
        FY_TRY(fy_autocast_set(train_precision(request->precision)));
        FY_TRY(fy_model_forward(model, x, &result));
        fy_scope_end(scope, 0, NULL);
    }
    return FY_STATUS_OK;
}

static fy_status_t explain(fy_device_t *device, fy_model_t *model, fy_optimizer_t *optimizer,
                           fy_tape_t *tape, const plan_request_t *request, fy_tensor_t *x,
                           fy_tensor_t *y)
{
    fy_graph_t *graph;
    FY_TRY(fy_graph_begin(device));
    FY_TRY(step(model, optimizer, tape, request, x, y));
    FY_TRY(fy_graph_end(&graph));
    return fy_graph_explain(graph, request->say, request->say_user);
}

static fy_status_t run(fy_model_t *model, fy_optimizer_t *optimizer, const plan_request_t *request,
                       int64_t batch)
{
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    fy_tensor_t *x, *y;
    fy_tape_t *tape;
    FY_TRY(fy_model_query(model, &info));
    FY_TRY(fy_tape_create(&tape));
    FY_TRY(fy_model_watch(model, tape));
    FY_TRY(make_batch(info.device, request, batch, &x, &y));
    for (int i = 0; i < STEPS; i++) FY_TRY(step(model, optimizer, tape, request, x, y));
    return request->say ? explain(info.device, model, optimizer, tape, request, x, y)
                        : FY_STATUS_OK;
}

fy_status_t model_plan_open(fy_device_t *device, const fy_model_options_t *options, void *user,
                            fy_model_t **out_model)
{
    const plan_request_t *request = user;
    const train_recipe_t *recipe = train_recipe_find(request->model);
    fy_model_options_t own = FY_MODEL_OPTIONS_INIT;
    if (options) own = *options;
    if (!request->inference) own.low = train_precision(request->precision);
    return fy_model_open(device, train_recipe_spec(recipe, request->model), &own, out_model);
}

fy_status_t model_plan_run(fy_model_t *model, int64_t batch, void *user)
{
    plan_request_t *request = user;
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    fy_optimizer_options_t options;
    fy_optimizer_t *optimizer = NULL;
    const train_recipe_t *recipe = train_recipe_find(request->model);
    train_optimizer(recipe, request->optimizer, &options);
    train_scale_loss(request->precision, &options);
    fy_status_t status = fy_model_query(model, &info);
    request->params = (int64_t)info.params;
    if (status == FY_STATUS_OK && !request->inference)
        status = fy_optimizer_create_model(&options, model, &optimizer);
    fy_scope_t scope = fy_scope_begin("run");
    if (status == FY_STATUS_OK)
        status = request->inference ? infer(model, request, batch)
                                    : run(model, optimizer, request, batch);
    fy_scope_end(scope, 0, NULL);
    fy_optimizer_destroy(optimizer);
    return status;
}

fy_status_t model_plan_step(fy_device_t *device, int64_t batch, void *user)
{
    const plan_request_t *request = user;
    fy_model_t *model;
    FY_TRY(model_plan_open(device, request->options, user, &model));
    const fy_status_t status = model_plan_run(model, batch, user);
    fy_model_destroy(model);
    return status;
}
