/* Row 4 of `ferry experiment speedups`: mixed precision.
 * Not here: the table of rows (exp_speedups.c), the classes of ops (ferry/autocast.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/plan_models.h"
#include "tools/experiments/exp_speedups.h"

enum { STEPS = 200, BATCH = 64, PLANNED = 256, SCALED = 4 };

/* The loss after so many steps. */
static fy_status_t train(session_t *session, fy_dtype_t precision, double *out_loss)
{
    net_t net;
    fy_tensor_t *loss = NULL;
    const fy_scope_t scope = fy_scope_begin("train");
    fy_status_t status = net_open(session->device, BATCH, &net);
    for (int i = 0; i < STEPS && status == FY_STATUS_OK; i++) {
        const fy_scope_t step = fy_scope_begin("step");
        status = fy_autocast_set(precision);
        if (status == FY_STATUS_OK) status = net_gradient(&net, 0, BATCH, NULL, &loss);
        if (status == FY_STATUS_OK) status = net_descend(&net, 0.1);
        fy_scope_end(step, i == STEPS - 1, &loss);
    }
    if (status == FY_STATUS_OK) status = fetch_f64(loss, out_loss);
    net_close(&net);
    fy_scope_end(scope, 0, NULL);
    return status;
}

static fy_status_t peak_of(int precision, double *out_nbytes)
{
    plan_request_t request = { .model = "lenet", .params = -1, .precision = precision };
    fy_plan_t plan = FY_PLAN_INIT;
    FY_TRY(fy_plan_step("sim:0", model_plan_step, &request, PLANNED, NULL, &plan));
    *out_nbytes = (double)plan.peak_live;
    return FY_STATUS_OK;
}

/* Steps in f16 of which the second has an infinite gradient. *out_skipped: how many changed no
 * parameter. *out_scale: the loss scale after them, of that before. */
static fy_status_t step_with_inf(net_t *net, fy_optimizer_t *optimizer, int *out_skipped,
                                 double *out_scale)
{
    double first, last;
    fy_param_t first_param = FY_PARAM_INIT; /* not the block, whose gaps no backward writes again */
    *out_skipped = 0;
    FY_TRY(fy_model_param(net->model, 0, &first_param));
    FY_TRY(fy_optimizer_query_scale(optimizer, &first));
    for (int i = 0; i < SCALED; i++) {
        float *before = NULL, *after = NULL;
        uint64_t count = 0;
        fy_tensor_t *loss, *seed;
        fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
        const fy_scope_t step = fy_scope_begin("scaled");
        FY_TRY(fy_autocast_set(FY_DTYPE_F16));
        FY_TRY(fetch_f32(net->values, &before, &count));
        fy_status_t status = fy_optimizer_seed(optimizer, FY_DTYPE_F32, &seed);
        options.seed = status == FY_STATUS_OK ? seed : NULL;
        if (status == FY_STATUS_OK) status = net_gradient(net, 0, BATCH, &options, &loss);
        if (status == FY_STATUS_OK && i == 1) status = fy_fill(first_param.grad, INFINITY);
        if (status == FY_STATUS_OK) status = fy_optimizer_step(optimizer);
        if (status == FY_STATUS_OK) status = fetch_f32(net->values, &after, &count);
        *out_skipped += after && memcmp(before, after, count * sizeof *before) == 0;
        free(before);
        free(after);
        FY_TRY(status);
        fy_scope_end(step, 0, NULL);
    }
    FY_TRY(fy_optimizer_query_scale(optimizer, &last));
    *out_scale = last / first;
    return FY_STATUS_OK;
}

static fy_status_t inject_inf(session_t *session, int *out_skipped, double *out_scale)
{
    net_t net;
    fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    fy_optimizer_options_t options;
    fy_optimizer_t *optimizer = NULL;
    const fy_scope_t scope = fy_scope_begin("inf");
    scaling.init_scale = 1024; /* which skips none */
    fy_optimizer_defaults(FY_OPTIMIZER_SGD, &options, sizeof options);
    options.lr = 0.1;
    options.loss_scaling = &scaling;
    fy_status_t status = net_open(session->device, BATCH, &net);
    if (status == FY_STATUS_OK) status = fy_optimizer_create_model(&options, net.model, &optimizer);
    if (status == FY_STATUS_OK) status = step_with_inf(&net, optimizer, out_skipped, out_scale);
    fy_optimizer_destroy(optimizer);
    net_close(&net);
    fy_scope_end(scope, 0, NULL);
    return status;
}

fy_status_t speedup_precision(session_t *session, speedup_t *out)
{
    double full, low, scale = 0;
    int skipped = 0;
    FY_TRY(peak_of(0, &out->without));
    FY_TRY(peak_of(1, &out->with));
    FY_TRY(train(session, FY_DTYPE_F32, &full));
    FY_TRY(train(session, FY_DTYPE_BF16, &low));
    FY_TRY(inject_inf(session, &skipped, &scale));
    out->ok = fabs(low - full) <= 0.02 * full && out->with < out->without && skipped == 1 &&
              scale == 0.5;
    (void)snprintf(
        out->held, sizeof out->held,
        "loss of mlp after %d steps %.6f in bf16, %.6f in f32; infinite gradients skip %d "
        "of %d steps, scale times %g",
        STEPS, low, full, skipped, SCALED, scale);
    return FY_STATUS_OK;
}
