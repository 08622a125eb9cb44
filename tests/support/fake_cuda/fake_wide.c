/* Assumptions of kernels about launches with args.wide: a 16-byte access to an unaligned address is
 * a fault on a card, while host memory would allow it. See fake_launch.c for the other assumptions,
 * ptx/ for the same check at each access. */
#include <string.h>

#include "tests/support/fake_cuda/fake.h"

static int is_power_of_two(uint32_t n) { return n > 0 && (n & (n - 1)) == 0; }

/* These kernels support no element that repeats for a whole row. */
static int may_repeat(uint32_t op)
{
    return op != FY_OP_GATHER && op != FY_OP_MAX_POOL2D && op != FY_OP_AVG_POOL2D &&
           op != FY_OP_MAX_POOL2D_BACKWARD && op != FY_OP_AVG_POOL2D_BACKWARD;
}

/* Every row of the operand begins where `n` elements may be accessed at once. */
static int is_aligned(const fy__cuda_operand_t *operand, uint32_t n, uint32_t op)
{
    const uint64_t size = fy_dtype_size((fy_dtype_t)operand->dtype),
                   access = n * size < 16 ? n * size : 16;
    const int last = operand->rank - 1;
    if (operand->strides[last] == 0) return may_repeat(op);
    if (operand->data % access != 0 || (operand->strides[last] != 1 && operand->dims[last] != 1))
        return 0;
    for (int axis = 0; axis < last; axis++)
        if (operand->dims[axis] > 1 &&
            operand->strides[axis] * (int64_t)size % (int64_t)access != 0)
            return 0;
    return 1;
}

/* Operands without the axis of the elements (a bias' state, a loss' targets, lr) are accessed one
 * by one. */
static int is_walked(const fy__cuda_operand_t *operand, const fy__cuda_operand_t *like)
{
    return operand->rank > 0 && like->rank > 0 && operand->rank == like->rank &&
           operand->dims[operand->rank - 1] == like->dims[like->rank - 1];
}

/* Columns: neighbours are along the axis before the reduced ones; every other stride keeps them
 * aligned. */
static int columns_are_right(const fy__cuda_args_t *args)
{
    const fy__cuda_operand_t *src = &args->src[0];
    const int64_t size = (int64_t)fy_dtype_size((fy_dtype_t)src->dtype);
    int column = -1;
    while (column + 1 < src->rank && !(args->attrs.reduce.axes >> (column + 1) & 1)) column++;
    if (column < 0 || args->wide * size != 16 || src->data % 16 != 0 || src->strides[column] != 1 ||
        src->dims[column] % args->wide != 0)
        return 0;
    for (int axis = 0; axis < src->rank; axis++)
        if (axis != column && src->strides[axis] * size % 16 != 0) return 0;
    return 1;
}

int fake_wide_is_right(const char *kernel, const fy__cuda_args_t *args)
{
    const fy__cuda_operand_t *like = args->nsrc > 0 ? &args->src[0] : &args->dst[0];
    if (args->wide == 0) return (args->flags & FY__CUDA_ALIGNED) == 0;
    if (!is_power_of_two(args->wide) || args->wide > 16) return 0;
    if (strncmp(kernel, "fy_reduce_columns", 17) == 0) return columns_are_right(args);
    if (args->op == FY_OP_CROSS_ENTROPY_BACKWARD || args->op == FY_OP_MSE_LOSS_BACKWARD ||
        args->op == FY_OP_AVG_POOL2D_BACKWARD || args->op == FY_OP_MAX_POOL2D_BACKWARD)
        like = &args->dst[0];
    if (like->rank == 0 || (like->rank > 1 && like->dims[like->rank - 1] % args->wide != 0))
        return 0;
    if ((args->flags & FY__CUDA_ALIGNED) == 0) return 1;
    for (unsigned i = 0; i < args->ndst; i++)
        if (is_walked(&args->dst[i], like) && !is_aligned(&args->dst[i], args->wide, args->op))
            return 0;
    for (unsigned i = 0; i < args->nsrc; i++)
        if (is_walked(&args->src[i], like) && !is_aligned(&args->src[i], args->wide, args->op))
            return 0;
    return 1;
}

/* Windows that have one of `side` pixels in a row, at most. */
static int64_t windows_of(int64_t side, int64_t stride, int64_t kernel)
{
    return (side + kernel - 2) / stride + 1;
}

int fake_tiles_fit(const fy__cuda_args_t *args)
{
    const fy_pool2d_attrs_t *a = &args->attrs.pool2d;
    const int64_t side = (int64_t)args->count;
    return args->op == FY_OP_MAX_POOL2D_BACKWARD && (args->flags & FY__CUDA_SMALL) != 0 &&
           side >= 1 && side <= FY__CUDA_POOL_SIDE &&
           (int64_t)a->kernel_h * a->kernel_w <= FY__CUDA_POOL_PLACES &&
           windows_of(side, a->stride_h, a->kernel_h) *
                   windows_of(side, a->stride_w, a->kernel_w) <=
               FY__CUDA_POOL_WINDOWS;
}

int fake_axes_fit(const fy__cuda_args_t *args)
{
    const fy__cuda_operand_t *src = &args->src[0], *dst = &args->dst[0];
    int reduced = 0;
    if (dst->rank != src->rank || args->attrs.reduce.keepdims != 1) return 0;
    for (int axis = 0; axis < src->rank; axis++) {
        int is_reduced = (int)(args->attrs.reduce.axes >> axis & 1);
        if (reduced && !is_reduced) return 0;
        reduced |= is_reduced;
        if (dst->dims[axis] != (is_reduced ? 1 : src->dims[axis])) return 0;
    }
    return reduced &&
           (args->nsrc == 1 || memcmp(args->src[1].dims, src->dims, sizeof src->dims) == 0);
}
