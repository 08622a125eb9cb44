/* Packing of attention and of its gradient: one launch, a warp a row; of the gradient a second one,
 * a warp a key. Next: kernels/attention.cu. */
#include "backends/cuda/families.h"

enum { WARP = 32 };

static void pack(const fy_launch_t *launch, int kernel, const fy_desc_t *items,
                 fy__cuda_request_t *out)
{
    fy__cuda_args_t *args = &out->args;
    fy__cuda_pack_unfused(launch, sizeof(fy_attention_attrs_t), out);
    args->lanes = WARP;
    args->count = (uint64_t)(items->dims[0] * items->dims[1] * items->dims[2]);
    out->kernel = kernel;
    out->threads = args->count * WARP;
}

void fy__cuda_pack_attention(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    const int is_f64 = launch->src[0].dtype == FY_DTYPE_F64;
    pack(launch, FY__CUDA_KERNEL_BY(is_f64, fy_attention), &launch->src[0], out);
}

/* Two kernels: one for dq, if there are rows, and one for dk and dv, if there are keys. */
fy_status_t fy__cuda_run_attention_backward(fy__cuda_device_t *dev, CUstream stream,
                                            const fy_launch_t *launch)
{
    const int is_f64 = launch->src[0].dtype == FY_DTYPE_F64;
    fy__cuda_request_t rows, keys;
    pack(launch, FY__CUDA_KERNEL_BY(is_f64, fy_attention_rows), &launch->src[1], &rows);
    pack(launch, FY__CUDA_KERNEL_BY(is_f64, fy_attention_keys), &launch->src[2], &keys);
    if (rows.args.count) FY_TRY(fy__cuda_submit(dev, stream, &rows));
    return keys.args.count ? fy__cuda_submit(dev, stream, &keys) : FY_STATUS_OK;
}
