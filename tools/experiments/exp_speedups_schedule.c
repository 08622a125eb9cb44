/* Row 1 of `ferry experiment speedups`: a learning rate that rises and falls once, against a
 * constant one.
 * Not here: the table of rows (exp_speedups.c), the schedules (train/schedule.c). */
#include <math.h>

#include "tools/experiments/exp_speedups.h"

enum { STEPS = 60 };

/* `schedule` NULL: the rate stays at `lr`. The last loss. */
static fy_status_t train(session_t *session, double lr, const fy_schedule_t *schedule,
                         double *out_loss)
{
    net_t net;
    fy_tensor_t *loss = NULL;
    fy_download_t *download;
    fy_status_t status = net_open(session->device, 256, &net);
    for (int step = 0; step < STEPS && status == FY_STATUS_OK; step++) {
        fy_tensor_destroy(loss);
        status = net_gradient(&net, 0, net.batch, NULL, &loss);
        if (status == FY_STATUS_OK)
            status = net_descend(&net, schedule ? fy_schedule_lr(schedule, step) : lr);
    }
    if (status == FY_STATUS_OK)
        status =
            fy_tensor_download(loss, &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE, &download);
    if (status == FY_STATUS_OK) status = fy_download_wait_f64(download, FY_FOREVER, out_loss);
    fy_tensor_destroy(loss);
    net_close(&net);
    return status;
}

fy_status_t speedup_schedule(session_t *session, speedup_t *out)
{
    /* torch.optim.lr_scheduler.OneCycleLR(max_lr=1, total_steps=10), to six places */
    static const double expected[] = { .04,     .52,     1,       .950485, .811746,
                                       .611262, .388742, .188258, .049519, .000004 };
    double worst = 0;
    fy_schedule_t schedule;
    fy_schedule_defaults(FY_SCHEDULE_ONE_CYCLE, 1, 10, &schedule, sizeof schedule);
    for (int i = 0; i < 10; i++)
        worst = fmax(worst, fabs(fy_schedule_lr(&schedule, i) - expected[i]));
    fy_schedule_defaults(FY_SCHEDULE_ONE_CYCLE, 0.1, STEPS, &schedule, sizeof schedule);
    FY_TRY(fy_schedule_check(&schedule));
    FY_TRY(train(session, 0.05, NULL, &out->without));
    FY_TRY(train(session, 0, &schedule, &out->with));
    out->ok = worst <= 5.1e-7 && isfinite(out->with);
    snprintf(out->held, sizeof out->held,
             "one cycle of 10 steps up to 1 is .04 .52 1 .950485 ... .000004, to %.0e", worst);
    return FY_STATUS_OK;
}
