/* Packing for convolutions: which of our kernels takes a launch, how a weights' gradient is cut,
 * and the arguments. Axes are not fused: the kernels need N, H, W and C apart. Pure functions.
 * Next: conv.c; kernels/conv.cu, which says what each product multiplies. */
#include "backends/cuda/conv.h"

enum {
    TILED_SIDE = 64, /* conv_tiles.cuh: a tile of results */
    /* conv_depthwise.cu: groups of channels and pixels a block, places of the kernel a thread */
    DEPTHWISE_GROUPS = 8,
    DEPTHWISE_PIXELS = 64,
    DEPTHWISE_PLACES = 9,
    LEAST_PIXELS = 128,     /* a slice sums so many at least */
    BLOCKS_A_PROCESSOR = 2, /* so many blocks keep a device busy */
};
#define MOST_ELEMENTS \
    ((uint64_t)1 << 30) /* the fast kernels count in 32 bits, and round up to tiles */

/* Row-major without gaps, not empty, small. */
static int is_dense(const fy_desc_t *desc)
{
    int64_t stride = 1;
    for (int axis = desc->rank - 1; axis >= 0; axis--) {
        if (desc->dims[axis] != 1 && desc->strides[axis] != stride) return 0;
        stride *= desc->dims[axis];
    }
    return stride > 0 && (uint64_t)stride < MOST_ELEMENTS;
}

/* The descriptors of x, w and y, wherever the launch has them. */
static void find_roles(const fy_launch_t *launch, const fy_desc_t **x, const fy_desc_t **w,
                       const fy_desc_t **y)
{
    const int weight = launch->op == FY_OP_CONV2D_BACKWARD_WEIGHT,
              forward = launch->op == FY_OP_CONV2D;
    *x = forward ? &launch->src[0] : weight ? &launch->src[1] : &launch->dst[0];
    *w = weight ? &launch->dst[0] : &launch->src[1];
    *y = forward ? &launch->dst[0] : &launch->src[0];
}

int fy__cuda_conv_kernel_for(const fy_launch_t *launch, int major)
{
    const fy_desc_t *x, *w, *y;
    const fy_conv2d_attrs_t *attrs = launch->attrs; /* a gradient's begin alike */
    const int64_t groups = attrs->groups;
    const int32_t dtype = launch->dst[0].dtype;
    find_roles(launch, &x, &w, &y);
    if (!is_dense(x) || !is_dense(w) || !is_dense(y) ||
        x->dims[1] + 2 * (int64_t)attrs->padding_h > INT32_MAX ||
        x->dims[2] + 2 * (int64_t)attrs->padding_w > INT32_MAX)
        return FY__CUDA_CONV_PLAIN;
    if (groups == x->dims[3] && groups == y->dims[3]) return FY__CUDA_CONV_DEPTHWISE;
    if (dtype == FY_DTYPE_F32 || dtype == FY_DTYPE_F64) return FY__CUDA_CONV_GEMM;
    return major >= (dtype == FY_DTYPE_F16 ? 7 : 8) ? FY__CUDA_CONV_TENSOR : FY__CUDA_CONV_PLAIN;
}

/* Channels of a block of the depthwise kernel, wherever the operands begin. */
static int64_t depthwise_channels(int64_t channels, int32_t dtype)
{
    const int64_t group = (int64_t)(16 / fy__cuda_dtype_nbytes(dtype));
    return DEPTHWISE_GROUPS * (channels % group == 0 ? group : 1);
}

/* Blocks of one slice of a weights' gradient. */
static uint64_t weight_blocks(const fy_desc_t *w, int kernel, int64_t groups)
{
    const int64_t places = w->dims[1] * w->dims[2];
    if (kernel == FY__CUDA_CONV_DEPTHWISE)
        return fy__cuda_tiles(places, DEPTHWISE_PLACES) *
               fy__cuda_tiles(w->dims[0], depthwise_channels(w->dims[0], w->dtype));
    return (uint64_t)groups * fy__cuda_tiles(w->dims[0] / groups, TILED_SIDE) *
           fy__cuda_tiles(places * w->dims[3], TILED_SIDE);
}

static uint64_t partial_nbytes(const fy_launch_t *launch)
{
    return fy__cuda_nelem(&launch->dst[0]) *
           (launch->dst[0].dtype == FY_DTYPE_F64 ? sizeof(double) : sizeof(float));
}

int fy__cuda_conv_slices(const fy_launch_t *launch, int kernel, unsigned nprocessors,
                         uint64_t limit, uint64_t *out_nbytes)
{
    const fy_desc_t *y = &launch->src[0], *w = &launch->dst[0];
    *out_nbytes = 0;
    if (launch->op != FY_OP_CONV2D_BACKWARD_WEIGHT || kernel == FY__CUDA_CONV_PLAIN) return 1;
    const uint64_t blocks =
        weight_blocks(w, kernel, ((const fy_conv2d_attrs_t *)launch->attrs)->groups);
    const uint64_t most[] = { (uint64_t)y->dims[0],
                              (uint64_t)(y->dims[0] * y->dims[1] * y->dims[2]) / LEAST_PIXELS,
                              limit / partial_nbytes(launch), MOST_ELEMENTS / fy__cuda_nelem(w) };
    uint64_t slices = (uint64_t)nprocessors * BLOCKS_A_PROCESSOR / blocks;
    for (unsigned i = 0; i < sizeof most / sizeof *most; i++)
        if (slices > most[i]) slices = most[i];
    if (slices < 2) return 1;
    *out_nbytes = slices * partial_nbytes(launch);
    return (int)slices;
}

static int kernel_number(int kernel, int32_t dtype)
{
    const int wide = dtype == FY_DTYPE_F64;
    switch (kernel) {
    case FY__CUDA_CONV_GEMM: return FY__CUDA_KERNEL_BY(wide, fy_conv2d_gemm);
    case FY__CUDA_CONV_TENSOR:
        return dtype == FY_DTYPE_F16 ? FY__CUDA_KERNEL_fy_conv2d_tensor_f16
                                     : FY__CUDA_KERNEL_fy_conv2d_tensor_bf16;
    case FY__CUDA_CONV_DEPTHWISE: return FY__CUDA_KERNEL_BY(wide, fy_conv2d_depthwise);
    default: return FY__CUDA_KERNEL_BY(wide, fy_conv2d);
    }
}

/* Blocks of TILE x TILE threads that the work could use. */
static uint64_t blocks_of(const fy_launch_t *launch, int kernel, int slices)
{
    const fy_desc_t *dst = &launch->dst[0];
    const int64_t groups = ((const fy_conv2d_attrs_t *)launch->attrs)->groups,
                  pixels = dst->dims[0] * dst->dims[1] * dst->dims[2];
    const int64_t side = kernel == FY__CUDA_CONV_PLAIN ? FY__CUDA_TILE : TILED_SIDE;
    if (launch->op != FY_OP_CONV2D_BACKWARD_WEIGHT) {
        if (kernel == FY__CUDA_CONV_DEPTHWISE)
            return fy__cuda_tiles(pixels, DEPTHWISE_PIXELS) *
                   fy__cuda_tiles(dst->dims[3], depthwise_channels(dst->dims[3], dst->dtype));
        return (uint64_t)groups * fy__cuda_tiles(pixels, side) *
               fy__cuda_tiles(dst->dims[3] / groups, side);
    }
    if (kernel == FY__CUDA_CONV_PLAIN)
        return (uint64_t)groups * fy__cuda_tiles(dst->dims[0] / groups, side) *
               fy__cuda_tiles(dst->dims[1] * dst->dims[2] * dst->dims[3], side);
    return (uint64_t)slices * weight_blocks(dst, kernel, groups);
}

/* The final sum of the slices: an ordinary reduction. */
static void pack_join(const fy_launch_t *launch, int slices, void *workspace,
                      fy__cuda_request_t out[3])
{
    static const fy_reduce_attrs_t first_axis = { 1, 0 };
    const fy_desc_t *w = &launch->dst[0];
    fy_desc_t partial = { .data = workspace,
                          .dtype = w->dtype == FY_DTYPE_F64 ? FY_DTYPE_F64 : FY_DTYPE_F32,
                          .rank = 2 };
    fy_desc_t flat = { .data = w->data,
                       .dtype = w->dtype,
                       .rank = 1,
                       .dims = { (int64_t)launch->nelem },
                       .strides = { 1 } };
    partial.dims[0] = slices;
    partial.dims[1] = partial.strides[0] = (int64_t)launch->nelem;
    partial.strides[1] = 1;
    fy_launch_t sum = *launch;
    uint64_t nbytes;
    sum.op = FY_OP_SUM;
    sum.nsrc = 1;
    sum.src = &partial;
    sum.dst = &flat;
    sum.attrs = &first_axis;
    sum.attrs_nbytes = sizeof first_axis;
    fy__cuda_pack_reduce(&sum, 1, NULL, 0, out, &nbytes); /* no scratch: one launch */
}

int fy__cuda_pack_conv2d(const fy_launch_t *launch, int kernel, int slices, void *workspace,
                         fy__cuda_request_t out[4])
{
    const fy_conv2d_attrs_t *attrs = launch->attrs; /* those of a gradient begin alike */
    fy__cuda_args_t *args = &out->args;
    uint64_t largest = launch->nelem * (uint64_t)slices;
    fy__cuda_request_init(out, launch->op, largest, launch->nsrc, launch->attrs,
                          offsetof(fy_conv2d_attrs_t, activation));
    if (launch->op == FY_OP_CONV2D) args->attrs.conv2d.activation = attrs->activation;
    fy__cuda_operand_set(&args->dst[0], &launch->dst[0]);
    for (unsigned i = 0; i < launch->nsrc; i++) {
        if (fy__cuda_nelem(&launch->src[i]) > largest) largest = fy__cuda_nelem(&launch->src[i]);
        fy__cuda_operand_set(&args->src[i], &launch->src[i]);
    }
    fy__cuda_args_size(args, largest);
    out->kernel = kernel_number(kernel, launch->dst[0].dtype);
    out->threads = blocks_of(launch, kernel, slices);
    out->square = 1;
    if (kernel == FY__CUDA_CONV_DEPTHWISE) {
        const int weight = launch->op == FY_OP_CONV2D_BACKWARD_WEIGHT;
        if ((weight ? args->src[1].data : args->dst[0].data) % 16 == 0)
            (void)fy__cuda_set_wide_source(
                args, (uint32_t)(16 / fy__cuda_dtype_nbytes(launch->dst[0].dtype)));
    }
    if (slices == 1) {
        args->accumulate = launch->accumulate & 1;
        return 1;
    }
    const fy_desc_t *w = &launch->dst[0];
    fy__cuda_operand_t *partial = &args->dst[0];
    *partial =
        (fy__cuda_operand_t){ .data = (uint64_t)(uintptr_t)workspace,
                              .dtype = w->dtype == FY_DTYPE_F64 ? FY_DTYPE_F64 : FY_DTYPE_F32 };
    fy__cuda_operand_add(partial, slices, (int64_t)launch->nelem);
    for (int axis = 0; axis < w->rank; axis++)
        fy__cuda_operand_add(partial, w->dims[axis], w->strides[axis]);
    pack_join(launch, slices, workspace, out + 1);
    return 2;
}
