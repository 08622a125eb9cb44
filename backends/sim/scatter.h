/* The two launches that are no ops: packed runs are spread or collected. */
#ifndef FERRY_BACKENDS_SIM_SCATTER_H_
#define FERRY_BACKENDS_SIM_SCATTER_H_

#include <stdbool.h>

#include <ferry/backend.h>

struct fy__sim_device;

static inline bool fy__sim_is_scatter(const fy_launch_t *launch)
{
    return !launch->kernel && (launch->op == FY_LAUNCH_SCATTER || launch->op == FY_LAUNCH_GATHER);
}
/* `launch`: the request's own, its descriptors point at bytes. */
fy_status_t fy__sim_scatter_run(struct fy__sim_device *dev, const fy_launch_t *launch);

#endif
