/* Kernels of registered ops: the choice by device, the `supports` hook, and the failure of a
 * kernel.
 * Not here: what a definition may have (register.c), built-in kernels (backends/), when a launch is
 * submitted (dispatch.c). */
#ifndef FERRY_OPS_KERNEL_H_
#define FERRY_OPS_KERNEL_H_

#include <stdbool.h>

#include "ops/dispatch.h"
#include "runtime/device/device.h"

/* Sets launch->kernel and launch->user of a registered op, whose operands are complete, for
 * `device`. launch->kernel becomes a function of Ferry's that calls the op's kernel. If the op's
 * kernel fails, that function writes the number of a poison record to *launch->fault and returns
 * OK; if launch->fault is NULL, it returns the failure. Fails: UNSUPPORTED (no kernel for this
 * device, or its hook refuses). */
fy_status_t fy__kernel_choose(const fy__op_row_t *row, const fy_device_t *device,
                              fy_launch_t *launch);

/* The registered op's kernel for `device`. Fails: UNSUPPORTED (there is none). */
fy_status_t fy__kernel_find(const fy__op_row_t *row, const fy_device_t *device,
                            const fy_op_kernel_t **out_kernel);

/* Does a request of this op need a flag that outlives the launch? A bad value raises it, or a
 * kernel that fails after the launch returned. */
static inline bool fy__kernel_needs_flag(const fy__op_row_t *row, const fy_device_t *device)
{
    return (row->info.flags & FY_OP_CAN_FAULT) || (row->nkernels && device->info.kernels_run_late);
}

#endif
