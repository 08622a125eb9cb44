/* Row 4 of `ferry experiment speedups`: mixed precision.
 * Not here: the table of rows (exp_speedups.c), the classes of ops (ferry/autocast.h). */
#include <math.h>
#include <stdio.h>

#include "tools/cli/plan_models.h"
#include "tools/experiments/exp_speedups.h"

enum { STEPS = 200, BATCH = 64, PLANNED = 256 };

/* The loss after so many steps. */
static fy_status_t train(session_t *session, fy_dtype_t precision, double *out_loss)
{
    net_t net;
    fy_tensor_t *loss = NULL;
    fy_download_t *reply;
    const fy_scope_t scope = fy_scope_begin("train");
    fy_status_t status = net_open(session->device, BATCH, &net);
    for (int i = 0; i < STEPS && status == FY_STATUS_OK; i++) {
        const fy_scope_t step = fy_scope_begin("step");
        status = fy_autocast_set(precision);
        if (status == FY_STATUS_OK) status = net_gradient(&net, 0, BATCH, NULL, &loss);
        if (status == FY_STATUS_OK) status = net_descend(&net, 0.1);
        fy_scope_end(step, i == STEPS - 1, &loss);
    }
    if (status == FY_STATUS_OK)
        status = fy_tensor_download(loss, &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE, &reply);
    if (status == FY_STATUS_OK) status = fy_download_wait_f64(reply, FY_FOREVER, out_loss);
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

fy_status_t speedup_precision(session_t *session, speedup_t *out)
{
    double full, low;
    FY_TRY(peak_of(0, &out->without));
    FY_TRY(peak_of(1, &out->with));
    FY_TRY(train(session, FY_DTYPE_F32, &full));
    FY_TRY(train(session, FY_DTYPE_BF16, &low));
    out->ok = fabs(low - full) <= 0.02 * full && out->with < out->without;
    (void)snprintf(out->held, sizeof out->held,
                   "loss of mlp after %d steps %.6f in bf16, %.6f in f32", STEPS, low, full);
    return FY_STATUS_OK;
}
