/* The table of orders, and what running a request means.
 * Not here: which stream's turn it is (stream.c holds that lock), times. */
#include "backends/sim/order.h"

#include <string.h>

#include "backends/kernels/kernels.h"
#include "backends/sim/scatter.h"
#include "backends/sim/sim.h"

/* An end without bytes reads as zero and forgets what is written to it. */
static void run_copy(void *dst, const void *src, uint64_t nbytes)
{
    if (!dst) return;
    if (src)
        memmove(dst, src, nbytes);
    else
        memset(dst, 0, nbytes);
}

static fy_status_t run_launch(fy__sim_device_t *dev, const fy_launch_t *launch)
{
    if (!dev->numerics) return FY_STATUS_OK;
    if (fy__sim_is_scatter(launch)) return fy__sim_scatter_run(dev, launch);
    return launch->kernel ? launch->kernel(launch, NULL) : fy__kernels_launch(fy__sim_host, launch);
}

static fy_status_t run(fy__sim_device_t *dev, const fy__sim_request_t *request)
{
    switch (request->kind) {
    case FY__SIM_COPY: run_copy(request->copy.dst, request->copy.src, request->copy.nbytes); break;
    case FY__SIM_FILL:
        if (request->fill.dst) memset(request->fill.dst, request->fill.value, request->fill.nbytes);
        break;
    case FY__SIM_LAUNCH: return run_launch(dev, &request->launch);
    }
    return FY_STATUS_OK;
}

/* ---- eager: at once ---- */

static fy_status_t eager_submit(fy__sim_device_t *dev, const fy__sim_request_t *request) { return run(dev, request); }

static const fy__sim_order_t orders[] = { { .name = "eager", .submit = eager_submit } };

const fy__sim_order_t *fy__sim_order_at(size_t index) { return index < sizeof(orders) / sizeof(orders[0]) ? &orders[index] : NULL; }

const fy__sim_order_t *fy__sim_order_find(const char *name)
{
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
        if (strcmp(orders[i].name, name) == 0) return &orders[i];
    return NULL;
}
