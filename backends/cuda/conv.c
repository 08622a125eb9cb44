/* Convolutions: one of Ferry's kernels, chosen by layout and dtype. The gradients of both parameters are two ops, one after the other.
 * Not here: arguments and cutting (pack_conv.c). Nothing here allocates or waits. */
#include "backends/cuda/conv.h"

#include "backends/cuda/families.h"

static const char *const kernel_names[FY__CUDA_CONV_KERNELS] = { "plain", "gemm", "tensor", "depthwise" };

/* A slow path is said, once a device. */
static void tell_slow(fy__cuda_device_t *dev)
{
    if (atomic_exchange(&dev->told_slow_conv, 1)) return;
    fy__cuda.host->log(
        FY_LOG_WARNING,
        "cuda:%d: the '%s' kernel runs a convolution, slowly: an operand is not row-major without gaps (fy_contiguous makes a "
        "copy that is), has 2^30 elements or more, or is bf16 on a card older than 8.0 (said once)",
        dev->index, kernel_names[FY__CUDA_CONV_PLAIN]);
}

/* conv2d or one of its two gradients. */
static fy_status_t launch_one(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_request_t requests[4];
    uint64_t nbytes, limit = launch->workspace != NULL ? launch->workspace_nbytes : 0;
    const int kernel = fy__cuda_conv_kernel_for(launch, dev->major);
    const int slices = fy__cuda_conv_slices(launch, kernel, (unsigned)dev->nprocessors, limit, &nbytes);
    if (kernel == FY__CUDA_CONV_PLAIN) tell_slow(dev);
    const int n = fy__cuda_pack_conv2d(launch, kernel, slices, launch->workspace, requests);
    for (int i = 0; i < n; i++) FY_TRY(fy__cuda_submit(dev, stream, &requests[i]));
    return FY_STATUS_OK;
}

/* The two gradients of a convolution's parameters, as the two ops that they are. */
static void split_params(const fy_launch_t *launch, fy_launch_t *weight, fy_launch_t *bias)
{
    static const fy_reduce_attrs_t all_but_channels = { 7, 0 };
    *weight = *bias = *launch;
    weight->op = FY_OP_CONV2D_BACKWARD_WEIGHT;
    weight->ndst = bias->ndst = 1;
    weight->accumulate &= 1u;
    bias->op = FY_OP_SUM;
    bias->nsrc = 1;
    bias->dst = &launch->dst[1];
    bias->accumulate >>= 1;
    bias->attrs = &all_but_channels;
    bias->attrs_nbytes = sizeof all_but_channels;
    bias->nelem = (uint64_t)launch->dst[1].dims[0];
}

fy_status_t fy__cuda_run_conv2d(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy_launch_t weight, bias;
    if (launch->op != FY_OP_CONV2D_BACKWARD_PARAMS) return launch_one(dev, stream, launch);
    split_params(launch, &weight, &bias);
    if (weight.nelem > 0) FY_TRY(launch_one(dev, stream, &weight));
    return bias.nelem > 0 ? fy__cuda_run_reduce(dev, stream, &bias) : FY_STATUS_OK;
}

uint64_t fy__cuda_conv2d_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch, uint64_t limit)
{
    fy_launch_t weight = *launch, bias;
    uint64_t of_weight = 0, of_bias = 0;
    if (launch->op == FY_OP_CONV2D_BACKWARD_PARAMS) {
        split_params(launch, &weight, &bias);
        of_bias = fy__cuda_reduce_workspace(dev, &bias, limit);
    }
    fy__cuda_conv_slices(&weight, fy__cuda_conv_kernel_for(&weight, dev->major), (unsigned)dev->nprocessors, limit, &of_weight);
    return of_weight > of_bias ? of_weight : of_bias; /* one after the other: the same bytes serve both */
}
