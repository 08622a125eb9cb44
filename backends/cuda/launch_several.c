/* Families that are not one kernel launch and need no scratch: a dense copy by the driver; draws
 * and steps, after which a second launch updates a counter; concat, a launch for each source. All
 * are in stream order; nothing here allocates or waits. Next: pack.h (arguments). */
#include "backends/cuda/families.h"
#include "backends/cuda/flat.h"

/* From so many bytes on, a dense copy is the driver's. A small one is a kernel: a graph's flags go
 * to page-locked memory that way. */
enum { LEAST_DRIVER_COPY = 1 << 20 };

/* The bytes of a copy between two dense pieces of device memory that do not overlap; else 0. */
static uint64_t dense_copy_nbytes(const fy__cuda_args_t *args)
{
    const fy__cuda_operand_t *dst = &args->dst[0], *src = &args->src[0];
    if (args->accumulate || !fy__cuda_is_flat(args) || dst->data == src->data) return 0;
    if (src->rank != 1 || src->strides[0] != 1 || (uint64_t)src->dims[0] != args->nelem) return 0;
    return args->nelem * fy__cuda_dtype_nbytes(dst->dtype);
}

fy_status_t fy__cuda_run_copy(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_request_t request;
    fy__cuda_pack_elementwise(launch, &request);
    const uint64_t nbytes = dense_copy_nbytes(&request.args);
    if (nbytes < LEAST_DRIVER_COPY) return fy__cuda_submit(dev, stream, &request);
    const fy_copy_t copy = { .kind = FY_COPY_LOCAL,
                             .dst = launch->dst[0].data,
                             .src = launch->src[0].data,
                             .nbytes = nbytes };
    return fy__cuda_copy_submit(dev, stream, &copy);
}

fy_status_t fy__cuda_run_chain(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_chain_t chain;
    if (!fy__cuda_pack_chain(launch, &chain))
        return FY__CUDA_FAIL(FY_STATUS_UNSUPPORTED, "the cuda kernel does not take this chain");
    return fy__cuda_submit_chain(dev, stream, &chain);
}

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

fy_status_t fy__cuda_run_concat(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    const fy_axis_attrs_t *attrs = launch->attrs;
    fy__cuda_request_t request;
    int64_t begin = 0;
    for (unsigned i = 0; i < launch->nsrc; i++) {
        if (fy__cuda_pack_concat(launch, i, begin, &request))
            FY_TRY(fy__cuda_submit(dev, stream, &request));
        begin += launch->src[i].dims[attrs->axis];
    }
    return FY_STATUS_OK;
}

fy_status_t fy__cuda_run_step(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_request_t requests[FY__CUDA_STEP_REQUESTS];
    const int n = fy__cuda_pack_step(launch, requests);
    for (int i = 0; i < n; i++) FY_TRY(fy__cuda_submit(dev, stream, &requests[i]));
    return FY_STATUS_OK;
}
