/* Packing of take_along_axis, its gradient and topk, all along the last axis. Axes are not fused:
 * rows are all axes but the last. Next: kernels/along.cu. */
#include "backends/cuda/pack.h"

enum { LONG_ROW = 1024 };

static int is_f64(const fy_launch_t *launch)
{
    return fy__cuda_class_of(launch->dst[0].dtype) == FY__CUDA_F64;
}

void fy__cuda_pack_take_along_axis(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    const int gradient = launch->op == FY_OP_TAKE_ALONG_AXIS_BACKWARD;
    fy__cuda_pack_unfused(launch, gradient ? sizeof(fy_take_along_axis_backward_attrs_t) : 0, out);
    out->kernel = !gradient ? FY__CUDA_KERNEL_fy_take_along_axis
                            : FY__CUDA_KERNEL_BY(is_f64(launch), fy_take_along_axis_backward);
}

/* A warp a row, a block a long one. */
void fy__cuda_pack_topk(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    const fy_topk_attrs_t *attrs = launch->attrs;
    fy__cuda_pack_unfused(launch, sizeof *attrs, out);
    out->args.lanes = launch->src[0].dims[launch->src[0].rank - 1] <= LONG_ROW ? 32
                                                                               : FY__CUDA_BLOCK;
    out->kernel = launch->dst[0].dtype > FY_DTYPE_BF16
                      ? FY__CUDA_KERNEL_fy_topk_int
                      : FY__CUDA_KERNEL_BY(is_f64(launch), fy_topk);
    out->threads = launch->nelem / (uint64_t)attrs->k * out->args.lanes;
}
