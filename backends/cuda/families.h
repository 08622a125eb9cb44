/* One row for each op of the table: the dtypes that the plugin supports for it, and the function
 * that turns a launch of it into kernel launches. The rows are in families.c. See launch.c, which
 * looks a launch up and calls the function. */
#ifndef FERRY_BACKENDS_CUDA_FAMILIES_H_
#define FERRY_BACKENDS_CUDA_FAMILIES_H_

#include "backends/cuda/device.h"
#include "backends/cuda/pack.h"

/* Packs the one kernel launch that the op is. */
typedef void (*fy__cuda_pack_fn)(const fy_launch_t *launch, fy__cuda_request_t *out);
/* Submits all that the op is. The device's context is current. */
typedef fy_status_t (*fy__cuda_run_fn)(fy__cuda_device_t *dev, CUstream stream,
                                       const fy_launch_t *launch);
/* Scratch that `run` uses, at most `limit` bytes. */
typedef uint64_t (*fy__cuda_workspace_fn)(fy__cuda_device_t *dev, const fy_launch_t *launch,
                                          uint64_t limit);

typedef struct fy__cuda_family {
    /* FY_DTYPE_BITs of the main operand: the op table's, or fewer, and then `why` says why */
    uint32_t dtypes;
    uint8_t main; /* the main operand is src[main]; dst[0] where there is no source */
    /* there is work though dst[0] has no element: a bias' gradient, a step number, a random
     * state */
    uint8_t when_empty;
    uint8_t uses_lt;       /* cuBLASLt must be there, unless it is switched off */
    fy__cuda_pack_fn pack; /* this, pack_several or run */
    fy__cuda_pack_several_fn pack_several;
    fy__cuda_run_fn run;
    fy__cuda_workspace_fn workspace; /* of run; NULL: none */
    /* what the table promises and the plugin does not do: the reason, for error texts; else NULL */
    const char *why;
} fy__cuda_family_t;

/* The row of an op, of a packed transfer or of a chain. An op that is newer than this plugin has a
 * row without dtypes. Never NULL. */
const fy__cuda_family_t *fy__cuda_family_of(uint32_t op);
/* The main operand's dtype. */
int32_t fy__cuda_main_dtype(const fy__cuda_family_t *family, const fy_launch_t *launch);
/* "add", "a chain" or "a packed transfer". */
const char *fy__cuda_op_name(uint32_t op);

/* ---- launch.c ---- */
fy_status_t fy__cuda_submit(fy__cuda_device_t *dev, CUstream stream, fy__cuda_request_t *request);
fy_status_t fy__cuda_submit_chain(fy__cuda_device_t *dev, CUstream stream, fy__cuda_chain_t *chain);
/* All that `pack` makes of the launch, through the launch's workspace; and how much of it that
 * is. */
fy_status_t fy__cuda_submit_several(fy__cuda_device_t *dev, CUstream stream,
                                    const fy_launch_t *launch, fy__cuda_pack_several_fn pack);
uint64_t fy__cuda_several_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch,
                                    uint64_t limit, fy__cuda_pack_several_fn pack);

/* ---- launch_several.c: families that are not one kernel launch ---- */
fy_status_t fy__cuda_run_copy(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch);
fy_status_t fy__cuda_run_random(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch);
fy_status_t fy__cuda_run_dropout(fy__cuda_device_t *dev, CUstream stream,
                                 const fy_launch_t *launch);
fy_status_t fy__cuda_run_concat(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch);
fy_status_t fy__cuda_run_step(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch);

fy_status_t fy__cuda_run_chain(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch);

/* ---- conv.c: conv2d, its two gradients, and both parameters' gradients in one ---- */
fy_status_t fy__cuda_run_conv2d(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch);
uint64_t fy__cuda_conv2d_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch,
                                   uint64_t limit);

/* ---- pack_attention.c: attention by one of two kernels; its gradient by one, or by two ---- */
fy_status_t fy__cuda_run_attention(fy__cuda_device_t *dev, CUstream stream,
                                   const fy_launch_t *launch);
fy_status_t fy__cuda_run_attention_backward(fy__cuda_device_t *dev, CUstream stream,
                                            const fy_launch_t *launch);

/* ---- launch_product.c: by cuBLASLt, or by the kernel ---- */
fy_status_t fy__cuda_run_matmul(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch);
uint64_t fy__cuda_matmul_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch,
                                   uint64_t limit);
fy_status_t fy__cuda_run_linear(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch);
uint64_t fy__cuda_linear_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch,
                                   uint64_t limit);
fy_status_t fy__cuda_run_linear_params(fy__cuda_device_t *dev, CUstream stream,
                                       const fy_launch_t *launch);
uint64_t fy__cuda_linear_params_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch,
                                          uint64_t limit);

#endif
