/* Families of more than one kernel launch: reductions in two steps, draws and steps that move a number behind them, what is put together of
 * several ops. Always in stream order; nothing here allocates or waits. Next: pack.h for the arguments. */
#include "backends/cuda/families.h"

fy_status_t fy__cuda_run_random(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_request_t requests[2];
    fy__cuda_pack_random(launch, requests);
    FY_TRY(fy__cuda_submit(dev, stream, &requests[0]));
    return fy__cuda_submit(dev, stream, &requests[1]);
}

fy_status_t fy__cuda_run_dropout(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_request_t request;
    if (launch->op == FY_OP_DROPOUT || launch->op == FY_OP_DROPOUT2D) {
        fy__cuda_pack_dropout_begin(launch, &request);
        FY_TRY(fy__cuda_submit(dev, stream, &request));
    }
    if (launch->nelem == 0) return FY_STATUS_OK;
    fy__cuda_pack_dropout(launch, &request);
    return fy__cuda_submit(dev, stream, &request);
}

fy_status_t fy__cuda_run_reduce(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_request_t requests[3];
    uint64_t nbytes, limit = launch->workspace != NULL ? launch->workspace_nbytes : 0;
    int n = fy__cuda_pack_reduce(launch, (unsigned)dev->nprocessors, launch->workspace, limit, requests, &nbytes);
    for (int i = 0; i < n; i++) FY_TRY(fy__cuda_submit(dev, stream, &requests[i]));
    return FY_STATUS_OK;
}

uint64_t fy__cuda_reduce_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch, uint64_t limit)
{
    uint64_t nbytes;
    fy__cuda_pack_reduce(launch, (unsigned)dev->nprocessors, NULL, limit, NULL, &nbytes);
    return nbytes;
}

fy_status_t fy__cuda_run_class_loss(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_request_t requests[4];
    uint64_t nbytes, limit = launch->workspace != NULL ? launch->workspace_nbytes : 0;
    int n = fy__cuda_pack_class_loss(launch, launch->workspace, limit, requests, &nbytes);
    for (int i = 0; i < n; i++) FY_TRY(fy__cuda_submit(dev, stream, &requests[i]));
    return FY_STATUS_OK;
}

uint64_t fy__cuda_class_loss_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch, uint64_t limit)
{
    uint64_t nbytes;
    (void)dev;
    fy__cuda_pack_class_loss(launch, NULL, limit, NULL, &nbytes);
    return nbytes;
}

/* The two gradients of a convolution's parameters, as the two ops that they are. */
static void split_conv2d_params(const fy_launch_t *launch, fy_launch_t *weight, fy_launch_t *bias)
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

fy_status_t fy__cuda_run_conv2d_params(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy_launch_t weight, bias;
    fy__cuda_request_t request;
    split_conv2d_params(launch, &weight, &bias);
    if (weight.nelem > 0) {
        fy__cuda_pack_conv2d(&weight, &request);
        FY_TRY(fy__cuda_submit(dev, stream, &request));
    }
    return bias.nelem > 0 ? fy__cuda_run_reduce(dev, stream, &bias) : FY_STATUS_OK;
}

uint64_t fy__cuda_conv2d_params_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch, uint64_t limit)
{
    fy_launch_t weight, bias;
    split_conv2d_params(launch, &weight, &bias);
    return fy__cuda_reduce_workspace(dev, &bias, limit);
}

fy_status_t fy__cuda_run_concat(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    const fy_axis_attrs_t *attrs = launch->attrs;
    fy__cuda_request_t request;
    int64_t begin = 0;
    for (unsigned i = 0; i < launch->nsrc; i++) {
        if (fy__cuda_pack_concat(launch, i, begin, &request)) FY_TRY(fy__cuda_submit(dev, stream, &request));
        begin += launch->src[i].dims[attrs->axis];
    }
    return FY_STATUS_OK;
}

fy_status_t fy__cuda_run_step(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_request_t requests[2];
    const int n = fy__cuda_pack_step(launch, requests);
    for (int i = 0; i < n; i++) FY_TRY(fy__cuda_submit(dev, stream, &requests[i]));
    return FY_STATUS_OK;
}
