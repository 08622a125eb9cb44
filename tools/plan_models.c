/* The table of models, and the one that is no experiment: a perceptron 784-128-10 with its backward pass by hand.
 * Not here: planning (cmd_plan.c). */
#include "tools/plan_models.h"

enum { INPUTS = 784, HIDDEN = 128, CLASSES = 10, NPARAMS = 4, STEPS = 2 };

static const plan_model_t models[] = {
    { "mlp", "images", mlp_plan_step, (INPUTS + 1) * HIDDEN + (HIDDEN + 1) * CLASSES },
    { "roundtrip", "rows and columns", roundtrip_plan_step, -1 },
    { "vectorize", "rows and columns", vectorize_plan_step, -1 },
    { "minibatch", "rows of data", minibatch_plan_step, 6 },
};

const plan_model_t *plan_model_at(size_t index) { return index < sizeof models / sizeof *models ? &models[index] : NULL; }

typedef struct mlp {
    fy_tensor_t *param[NPARAMS], *velocity[NPARAMS]; /* w1 [784, 128], b1 [1, 128], w2 [128, 10], b2 [1, 10] */
    fy_tensor_t *x, *y, *zero;                       /* [batch, 784], [batch, 10], [1, 1] */
    int64_t batch;
    optimizer_t optimizer;
} mlp_t;

static const int64_t shapes[NPARAMS][2] = { { INPUTS, HIDDEN }, { 1, HIDDEN }, { HIDDEN, CLASSES }, { 1, CLASSES } };

static fy_status_t make_params(fy_device_t *device, mlp_t *mlp)
{
    fy_tensor_t *rng;
    fy_scope_t scope = fy_scope_begin("model");
    FY_TRY(fy_rng_create(device, 1, &rng));
    FY_TRY(fy_scope_memory(FY_CATEGORY_WEIGHTS));
    for (int i = 0; i < NPARAMS; i++) FY_TRY(fy_randn(rng, FY_DTYPE_F32, 2, shapes[i], 0, 0.05, &mlp->param[i]));
    fy_scope_end(scope, NPARAMS, mlp->param);
    if (mlp->optimizer == OPTIMIZER_SGD) return FY_STATUS_OK;
    scope = fy_scope_begin("optimizer");
    FY_TRY(fy_scope_memory(FY_CATEGORY_OPTIMIZER_STATE));
    for (int i = 0; i < NPARAMS; i++) FY_TRY(fy_zeros(device, FY_DTYPE_F32, 2, shapes[i], &mlp->velocity[i]));
    fy_scope_end(scope, NPARAMS, mlp->velocity);
    return FY_STATUS_OK;
}

/* p = p - lr v with v = 0.9 v + g, or p = p - lr g. */
static fy_status_t update(mlp_t *mlp, fy_tensor_t *const gradient[NPARAMS])
{
    fy_tensor_t *next;
    fy_scope_t scope = fy_scope_begin("update");
    for (int i = 0; i < NPARAMS; i++) {
        if (mlp->optimizer == OPTIMIZER_SGD) {
            FY_TRY(fy_axpy(mlp->param[i], -0.1, gradient[i]));
            continue;
        }
        FY_TRY(fy_affine(mlp->velocity[i], 0.9, 0, &next));
        FY_TRY(fy_axpy(next, 1, gradient[i]));
        FY_TRY(fy_copy(mlp->velocity[i], next));
        FY_TRY(fy_axpy(mlp->param[i], -0.1, next));
        fy_tensor_destroy(next);
    }
    fy_scope_end(scope, 0, NULL);
    return FY_STATUS_OK;
}

/* h = relu(x w1 + b1), error = (softmax(h w2 + b2) - y) / batch: the gradient of the mean cross entropy by the logits. */
static fy_status_t forward(const mlp_t *mlp, fy_tensor_t **out_hidden, fy_tensor_t **out_error)
{
    fy_tensor_t *sum, *logits, *share, *difference, *results[2];
    fy_scope_t scope = fy_scope_begin("forward");
    FY_TRY(fy_matmul(mlp->x, mlp->param[0], &sum));
    FY_TRY(fy_add(sum, mlp->param[1], &sum));
    FY_TRY(fy_relu(sum, &results[0]));
    FY_TRY(fy_matmul(results[0], mlp->param[2], &logits));
    FY_TRY(fy_add(logits, mlp->param[3], &logits));
    FY_TRY(fy_softmax(logits, 1, &share));
    FY_TRY(fy_sub(share, mlp->y, &difference));
    FY_TRY(fy_affine(difference, 1.0 / (double)mlp->batch, 0, &results[1]));
    fy_scope_end(scope, 2, results);
    *out_hidden = results[0];
    *out_error = results[1];
    return FY_STATUS_OK;
}

static fy_status_t backward(const mlp_t *mlp, fy_tensor_t *hidden, fy_tensor_t *error, fy_tensor_t *gradient[NPARAMS])
{
    fy_tensor_t *turned, *flow, *is_on, *through;
    fy_scope_t scope = fy_scope_begin("backward");
    FY_TRY(fy_scope_memory(FY_CATEGORY_GRADIENTS));
    FY_TRY(fy_transpose(hidden, NULL, &turned));
    FY_TRY(fy_matmul(turned, error, &gradient[2]));
    FY_TRY(fy_sum(error, FY_AXES(0), 1, &gradient[3]));
    FY_TRY(fy_transpose(mlp->param[2], NULL, &turned));
    FY_TRY(fy_matmul(error, turned, &flow));
    FY_TRY(fy_gt(hidden, mlp->zero, &is_on));
    FY_TRY(fy_where(is_on, flow, mlp->zero, &through));
    FY_TRY(fy_transpose(mlp->x, NULL, &turned));
    FY_TRY(fy_matmul(turned, through, &gradient[0]));
    FY_TRY(fy_sum(through, FY_AXES(0), 1, &gradient[1]));
    fy_scope_end(scope, NPARAMS, gradient);
    return FY_STATUS_OK;
}

fy_status_t mlp_plan_step(fy_device_t *device, int64_t batch, void *user)
{
    mlp_t mlp = { .batch = batch, .optimizer = user ? ((const plan_request_t *)user)->optimizer : OPTIMIZER_SGD };
    FY_TRY(make_params(device, &mlp));
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(1, 1), &mlp.zero));
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(batch, INPUTS), &mlp.x));
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(batch, CLASSES), &mlp.y));
    for (int i = 0; i < STEPS; i++) { /* the second is a steady one */
        fy_tensor_t *hidden, *error, *gradient[NPARAMS];
        fy_scope_t scope = fy_scope_begin("step");
        FY_TRY(forward(&mlp, &hidden, &error));
        FY_TRY(backward(&mlp, hidden, error, gradient));
        FY_TRY(update(&mlp, gradient));
        fy_scope_end(scope, 0, NULL);
    }
    return FY_STATUS_OK;
}
