/* Packing of attention and of its gradient: one launch, by tiles of 64 rows on tensor cores or a
 * warp a row; the gradient is a warp a row, then a warp a key. Next: kernels/attention_tensor.cu,
 * kernels/attention.cu. */
#include "backends/cuda/families.h"

enum { WARP = 32, TILE = FY__CUDA_ATTENTION_BLOCK / WARP * 16 /* rows of a block */ };

/* Heads whose elements lie side by side, each row at a multiple of 16 bytes. */
static int is_tiled(const fy_desc_t *desc)
{
    int fits = (uintptr_t)desc->data % 16 == 0 && desc->dims[1] < (int64_t)1 << 30;
    for (int axis = 0; axis < 3; axis++)
        fits &= desc->dims[axis] == 1 || desc->strides[axis] % 8 == 0;
    return fits && (desc->dims[3] == 1 || desc->strides[3] == 1);
}

/* The kernel on tensor cores that takes the launch, or -1. */
static int tensor_kernel(const fy_launch_t *launch, int major)
{
    const int is_f16 = launch->src[0].dtype == FY_DTYPE_F16;
    const int64_t width = launch->src[0].dims[3];
    if (!is_f16 && launch->src[0].dtype != FY_DTYPE_BF16) return -1;
    if (major < (is_f16 ? 7 : 8) || width % 8 != 0 || width > 128) return -1;
    for (int i = 0; i < 3; i++)
        if (!is_tiled(&launch->src[i])) return -1;
    if (!is_tiled(&launch->dst[0])) return -1;
    if (width > 64)
        return is_f16 ? FY__CUDA_KERNEL_fy_attention_tensor128_f16
                      : FY__CUDA_KERNEL_fy_attention_tensor128_bf16;
    return is_f16 ? FY__CUDA_KERNEL_fy_attention_tensor64_f16
                  : FY__CUDA_KERNEL_fy_attention_tensor64_bf16;
}

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

fy_status_t fy__cuda_run_attention(fy__cuda_device_t *dev, CUstream stream,
                                   const fy_launch_t *launch)
{
    const fy_desc_t *q = &launch->src[0];
    const int kernel = tensor_kernel(launch, dev->major);
    fy__cuda_request_t request;
    pack(launch, FY__CUDA_KERNEL_BY(q->dtype == FY_DTYPE_F64, fy_attention), q, &request);
    if (kernel >= 0) {
        request.kernel = kernel;
        request.block = FY__CUDA_ATTENTION_BLOCK;
        request.args.count = (uint64_t)(q->dims[0] * q->dims[2] * ((q->dims[1] + TILE - 1) / TILE));
        request.threads = request.args.count * FY__CUDA_ATTENTION_BLOCK;
    }
    return fy__cuda_submit(dev, stream, &request);
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
