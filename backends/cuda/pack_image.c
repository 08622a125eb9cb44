/* Packing for pooling. Axes are not fused: the kernels need N, H, W and C apart. Next:
 * kernels/pool.cu; pack_conv.c for convolutions. */
#include "backends/cuda/pack.h"

/* The operands unchanged; the attributes that a gradient shares with its forward op. */
static void pack_images(const fy_launch_t *launch, size_t attrs_nbytes, fy__cuda_request_t *out)
{
    fy__cuda_args_t *args = &out->args;
    uint64_t largest = launch->nelem;
    fy__cuda_args_init(args, launch->op, launch->nelem, launch->nsrc, launch->attrs, attrs_nbytes);
    args->accumulate = launch->accumulate & 1;
    fy__cuda_operand_set(&args->dst[0], &launch->dst[0]);
    for (unsigned i = 0; i < launch->nsrc; i++) {
        uint64_t nelem = 1;
        for (int axis = 0; axis < launch->src[i].rank; axis++)
            nelem *= (uint64_t)launch->src[i].dims[axis];
        if (nelem > largest) largest = nelem;
        fy__cuda_operand_set(&args->src[i], &launch->src[i]);
    }
    fy__cuda_args_size(args, largest);
}

void fy__cuda_pack_pool2d(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    pack_images(launch, sizeof(fy_pool2d_attrs_t), out);
    fy_pool2d_attrs_t *attrs = &out->args.attrs.pool2d;
    if (!attrs->stride_h) attrs->stride_h = attrs->kernel_h;
    if (!attrs->stride_w) attrs->stride_w = attrs->kernel_w;
    (void)fy__cuda_set_wide_apart(&out->args, 1, 0, launch->nsrc,
                                  /* channels */
                                  (uint32_t)(16 / fy__cuda_dtype_nbytes(launch->dst[0].dtype)));
    out->kernel = launch->dst[0].dtype == FY_DTYPE_F64 ? FY__CUDA_KERNEL_fy_pool2d_f64
                                                       : FY__CUDA_KERNEL_fy_pool2d_f32;
    out->threads = out->args.wide ? launch->nelem / out->args.wide : launch->nelem;
    out->square = 0;
}
