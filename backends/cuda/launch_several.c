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

fy_status_t fy__cuda_run_softmax(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_request_t requests[2];
    uint64_t nbytes, limit = launch->workspace != NULL ? launch->workspace_nbytes : 0;
    int n = fy__cuda_pack_softmax(launch, (unsigned)dev->nprocessors, launch->workspace, limit, requests, &nbytes);
    for (int i = 0; i < n; i++) FY_TRY(fy__cuda_submit(dev, stream, &requests[i]));
    return FY_STATUS_OK;
}

uint64_t fy__cuda_softmax_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch, uint64_t limit)
{
    uint64_t nbytes;
    fy__cuda_pack_softmax(launch, (unsigned)dev->nprocessors, NULL, limit, NULL, &nbytes);
    return nbytes;
}

fy_status_t fy__cuda_run_argmax(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_request_t requests[2];
    uint64_t nbytes, limit = launch->workspace != NULL ? launch->workspace_nbytes : 0;
    int n = fy__cuda_pack_argmax(launch, (unsigned)dev->nprocessors, launch->workspace, limit, requests, &nbytes);
    for (int i = 0; i < n; i++) FY_TRY(fy__cuda_submit(dev, stream, &requests[i]));
    return FY_STATUS_OK;
}

uint64_t fy__cuda_argmax_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch, uint64_t limit)
{
    uint64_t nbytes;
    fy__cuda_pack_argmax(launch, (unsigned)dev->nprocessors, NULL, limit, NULL, &nbytes);
    return nbytes;
}

fy_status_t fy__cuda_run_class_loss(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_request_t requests[4];
    uint64_t nbytes, limit = launch->workspace != NULL ? launch->workspace_nbytes : 0;
    int n = fy__cuda_pack_class_loss(launch, (unsigned)dev->nprocessors, launch->workspace, limit, requests, &nbytes);
    for (int i = 0; i < n; i++) FY_TRY(fy__cuda_submit(dev, stream, &requests[i]));
    return FY_STATUS_OK;
}

uint64_t fy__cuda_class_loss_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch, uint64_t limit)
{
    uint64_t nbytes;
    fy__cuda_pack_class_loss(launch, (unsigned)dev->nprocessors, NULL, limit, NULL, &nbytes);
    return nbytes;
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
