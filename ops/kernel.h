/* Kernels of registered ops: which one serves a device, what its `supports` hook says about a call, and what becomes of one that fails.
 * Not here: what a definition may have (register.c), built-in kernels (backends/), when a launch is submitted (dispatch.c). */
#ifndef FERRY_OPS_KERNEL_H_
#define FERRY_OPS_KERNEL_H_

#include <stdbool.h>

#include "ops/dispatch.h"
#include "runtime/device.h"

/* Sets launch->kernel and launch->user of a registered op, whose operands are complete, for `device`. What is set is a function of Ferry's,
 * which runs the op's own: if that fails, it writes a poison record's number to *launch->fault and returns OK. Without a flag it hands the
 * failure on. Fails: UNSUPPORTED (no kernel for this device, or its hook refuses). */
fy_status_t fy__kernel_choose(const fy__op_row_t *row, const fy_device_t *device, fy_launch_t *launch);

/* A request of this op needs a flag that outlives the launch: a bad value raises it, or a kernel that runs late and fails. */
static inline bool fy__kernel_needs_flag(const fy__op_row_t *row, const fy_device_t *device)
{
    return (row->info.flags & FY_OP_CAN_FAULT) || (row->nkernels && device->info.kernels_run_late);
}

#endif
