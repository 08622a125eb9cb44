/* Packing of attention and of its gradient: one launch by tiles of 64 rows or keys on tensor cores;
 * else a warp a row; for the gradient then a warp a key. Next: kernels/attention_tensor.cu,
 * kernels/attention_gradient.cu, kernels/attention.cu. */
#include "backends/cuda/families.h"

enum { WARP = 32, TILE = FY__CUDA_ATTENTION_BLOCK / WARP * 16 /* rows of a block */ };

/* Heads whose elements lie side by side, each row at a multiple of 16 bytes. */
static int is_tiled(const fy_desc_t *desc)
{
    int fits = (uintptr_t)desc->data % 16 == 0 && desc->dims[1] < (int64_t)1 << 30;
    for (int axis = 0; axis < 3; axis++) /* addresses of rows behind the last one are made, too */
        fits &= (desc->dims[axis] == 1 && axis != 1) || desc->strides[axis] % 8 == 0;
    return fits && (desc->dims[3] == 1 || desc->strides[3] == 1);
}

/* Which of the four kernels on tensor cores takes the launch: 64 wide f16, bf16, 128 wide, or -1.
 * nsrc, ndst: those that are heads. */
static int tensor_kernel(const fy_launch_t *launch, int major, int nsrc, int ndst)
{
    const int is_bf16 = launch->src[0].dtype == FY_DTYPE_BF16;
    const int64_t width = launch->src[0].dims[3];
    if (!is_bf16 && launch->src[0].dtype != FY_DTYPE_F16) return -1;
    if (major < (is_bf16 ? 8 : 7) || width % 8 != 0 || width > 128) return -1;
    for (int i = 0; i < nsrc + ndst; i++)
        if (!is_tiled(i < nsrc ? &launch->src[i] : &launch->dst[i - nsrc])) return -1;
    return (width > 64) * 2 + is_bf16;
}

/* The rows or keys of all heads, or tiles of them. */
static uint64_t count_of(const fy_desc_t *x, int64_t tile)
{
    return (uint64_t)(x->dims[0] * x->dims[2]) * fy__cuda_tiles(x->dims[1], tile);
}

static fy_status_t submit(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch,
                          int kernel, uint64_t count, unsigned threads)
{
    fy__cuda_request_t request;
    fy__cuda_pack_unfused(launch, sizeof(fy_attention_attrs_t), &request);
    request.kernel = kernel;
    if (threads > WARP) request.block = threads;
    request.threads = count * threads;
    request.args.lanes = WARP;
    request.args.count = count;
    return fy__cuda_submit(dev, stream, &request);
}

fy_status_t fy__cuda_run_attention(fy__cuda_device_t *dev, CUstream stream,
                                   const fy_launch_t *launch)
{
    const fy_desc_t *q = &launch->src[0];
    const int which = tensor_kernel(launch, dev->major, 3, 1);
    if (which >= 0)
        return submit(dev, stream, launch, FY__CUDA_KERNEL_fy_attention_tensor64_f16 + which,
                      count_of(q, TILE), FY__CUDA_ATTENTION_BLOCK);
    return submit(dev, stream, launch, FY__CUDA_KERNEL_BY(q->dtype == FY_DTYPE_F64, fy_attention),
                  count_of(q, 1), WARP);
}

/* One kernel on tensor cores, or two: for dq, if there are rows, and for dk and dv, if there are
 * keys. 128 wide, dk and dv are separate tiles. */
fy_status_t fy__cuda_run_attention_backward(fy__cuda_device_t *dev, CUstream stream,
                                            const fy_launch_t *launch)
{
    const int is_f64 = launch->src[0].dtype == FY_DTYPE_F64,
              which = tensor_kernel(launch, dev->major, 5, 3);
    const fy_desc_t *q = &launch->src[1], *k = &launch->src[2];
    const uint64_t rows = count_of(q, 1), keys = count_of(k, 1);
    if (which >= 0)
        return submit(
            dev, stream, launch, FY__CUDA_KERNEL_fy_attention_tensor_gradient64_f16 + which,
            count_of(q, TILE) + count_of(k, TILE) * (which < 2 ? 1 : 2), FY__CUDA_ATTENTION_BLOCK);
    if (rows)
        FY_TRY(
            submit(dev, stream, launch, FY__CUDA_KERNEL_BY(is_f64, fy_attention_rows), rows, WARP));
    return keys ? submit(dev, stream, launch, FY__CUDA_KERNEL_BY(is_f64, fy_attention_keys), keys,
                         WARP)
                : FY_STATUS_OK;
}
