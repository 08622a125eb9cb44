/* Packing for pooling and resizing. Axes are not fused: the kernels need N, H, W and C apart. Next:
 * kernels/pool.cu; pack_conv.c for convolutions. */
#include "backends/cuda/pack.h"

void fy__cuda_pack_unfused(const fy_launch_t *launch, size_t attrs_nbytes, fy__cuda_request_t *out)
{
    fy__cuda_args_t *args = &out->args;
    uint64_t largest = launch->nelem;
    fy__cuda_request_init(out, launch->op, launch->nelem, launch->nsrc, launch->attrs,
                          attrs_nbytes);
    args->ndst = launch->ndst;
    args->accumulate = launch->accumulate & 1;
    args->fault = (uint64_t)(uintptr_t)launch->fault;
    for (unsigned i = 0; i < launch->ndst; i++)
        fy__cuda_operand_set(&args->dst[i], &launch->dst[i]);
    for (unsigned i = 0; i < launch->nsrc; i++) {
        const uint64_t nelem = fy__cuda_nelem(&launch->src[i]);
        if (nelem > largest) largest = nelem;
        fy__cuda_operand_set(&args->src[i], &launch->src[i]);
    }
    fy__cuda_args_size(args, largest);
}

/* The kernel for dst's dtype: each thread writes one element, or neighbouring channels. */
static void set_kernel(const fy_launch_t *launch, int kernel_f32, int kernel_f64,
                       fy__cuda_request_t *out)
{
    (void)fy__cuda_set_wide_apart(&out->args, 1, 0, launch->nsrc,
                                  /* channels */
                                  (uint32_t)(16 / fy__cuda_dtype_nbytes(launch->dst[0].dtype)));
    out->kernel = launch->dst[0].dtype == FY_DTYPE_F64 ? kernel_f64 : kernel_f32;
    out->threads = out->args.wide ? launch->nelem / out->args.wide : launch->nelem;
}

/* The most windows that have one of `side` pixels in a row. */
static int64_t windows_of(int64_t side, int64_t stride, int64_t kernel)
{
    return (side + kernel - 2) / stride + 1;
}

/* Tiles of x that a block can keep the windows' winners of. */
static void set_tiles(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    fy__cuda_args_t *args = &out->args;
    const fy_pool2d_attrs_t *a = &args->attrs.pool2d;
    const fy_desc_t *dx = &launch->dst[0];
    int64_t side = FY__CUDA_POOL_SIDE;
    while (windows_of(side, a->stride_h, a->kernel_h) * windows_of(side, a->stride_w, a->kernel_w) >
           FY__CUDA_POOL_WINDOWS)
        side--; /* one pixel has at most as many windows as a window has places */
    args->count = (uint64_t)side;
    out->kernel = FY__CUDA_KERNEL_BY(dx->dtype == FY_DTYPE_F64, fy_pool2d_tiles);
    out->threads =
        (uint64_t)dx->dims[0] * fy__cuda_tiles(dx->dims[1], side) *
        fy__cuda_tiles(dx->dims[2], side) *
        fy__cuda_tiles(dx->dims[3], FY__CUDA_POOL_GROUPS * (args->wide ? args->wide : 1)) *
        FY__CUDA_BLOCK;
}

void fy__cuda_pack_pool2d(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    fy__cuda_pack_unfused(launch, sizeof(fy_pool2d_attrs_t), out);
    fy_pool2d_attrs_t *attrs = &out->args.attrs.pool2d;
    if (!attrs->stride_h) attrs->stride_h = attrs->kernel_h;
    if (!attrs->stride_w) attrs->stride_w = attrs->kernel_w;
    set_kernel(launch, FY__CUDA_KERNEL_fy_pool2d_f32, FY__CUDA_KERNEL_fy_pool2d_f64, out);
    if (launch->op == FY_OP_MAX_POOL2D_BACKWARD && (out->args.flags & FY__CUDA_SMALL) &&
        (int64_t)attrs->kernel_h * attrs->kernel_w <= FY__CUDA_POOL_PLACES)
        set_tiles(launch, out);
}

void fy__cuda_pack_resample2d(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    fy__cuda_pack_unfused(launch, sizeof(fy_image_size_attrs_t), out);
    set_kernel(launch, FY__CUDA_KERNEL_fy_resample2d_f32, FY__CUDA_KERNEL_fy_resample2d_f64, out);
}
