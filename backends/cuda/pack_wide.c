/* May a kernel access several neighbouring elements at once? On a card a 16-byte access to an
 * address that is no multiple of 16 is a fault, so it is asked for only where addresses and strides
 * of every operand say so. Next: kernels/wide.cuh, which does it. */
#include "backends/cuda/pack.h"

/* `n` neighbours along the operand's last axis, in as few accesses as they need: is each of them
 * aligned, in each row? */
static int has_aligned_rows(const fy__cuda_operand_t *operand, uint64_t n)
{
    const uint64_t size = fy__cuda_dtype_nbytes(operand->dtype),
                   access = n * size < 16 ? n * size : 16;
    const int last = operand->rank - 1;
    uint64_t bits = operand->data;
    if (last < 0) return 0;
    if (operand->strides[last] == 0) return 1; /* one element for all of them */
    if (operand->strides[last] != 1 && operand->dims[last] != 1) return 0;
    for (int axis = 0; axis < last; axis++) bits |= (uint64_t)operand->strides[axis] * size;
    return bits % access == 0;
}

int fy__cuda_set_wide(fy__cuda_args_t *args, unsigned ndst, unsigned first, unsigned end,
                      uint32_t n)
{
    const fy__cuda_operand_t *dst = &args->dst[0];
    if (args->nelem < n || dst->rank < 1 || (dst->rank > 1 && dst->dims[dst->rank - 1] % n != 0))
        return 0;
    for (unsigned i = 0; i < ndst; i++)
        if (args->dst[i].strides[dst->rank - 1] == 0 || !has_aligned_rows(&args->dst[i], n))
            return 0;
    for (unsigned i = first; i < end; i++)
        if (!has_aligned_rows(&args->src[i], n)) return 0;
    args->wide = n;
    args->flags |= FY__CUDA_ALIGNED;
    return 1;
}

int fy__cuda_set_wide_source(fy__cuda_args_t *args, uint32_t n)
{
    const fy__cuda_operand_t *src = &args->src[0];
    const int last = src->rank - 1;
    if (args->nelem < n || last < 0 || (last > 0 && src->dims[last] % n != 0) ||
        src->strides[last] == 0 || !has_aligned_rows(src, n))
        return 0;
    args->wide = n;
    args->flags |= FY__CUDA_ALIGNED;
    return 1;
}

int fy__cuda_set_wide_apart(fy__cuda_args_t *args, unsigned ndst, unsigned first, unsigned end,
                            uint32_t n)
{
    for (unsigned i = first; i < end; i++)
        if (args->src[i].rank > 0 && args->src[i].strides[args->src[i].rank - 1] == 0) return 0;
    return fy__cuda_set_wide(args, ndst, first, end, n);
}

void fy__cuda_set_columns(fy__cuda_args_t *args, int column)
{
    const fy__cuda_operand_t *src = &args->src[0];
    const uint64_t size = fy__cuda_dtype_nbytes(src->dtype);
    uint64_t bits = src->data;
    for (int axis = 0; axis < src->rank; axis++)
        if (axis != column) bits |= (uint64_t)src->strides[axis] * size;
    if (src->strides[column] != 1 || (uint64_t)src->dims[column] * size % 16 != 0 || bits % 16 != 0)
        return;
    args->wide = (uint32_t)(16 / size);
    args->flags |= FY__CUDA_ALIGNED;
}

void fy__cuda_set_rows(fy__cuda_args_t *args, unsigned ndst, unsigned first, unsigned end)
{
    fy__cuda_set_rows_of(args, ndst, (1u << end) - (1u << first));
}

void fy__cuda_set_rows_of(fy__cuda_args_t *args, unsigned ndst, uint32_t srcs)
{
    const fy__cuda_operand_t *operands[FY__CUDA_MAX_DST + FY__CUDA_MAX_SRC] = { &args->src[0] };
    unsigned count = 0;
    int aligned = 1;
    for (unsigned i = 0; i < FY__CUDA_MAX_SRC; i++)
        if (srcs >> i & 1) operands[count++] = &args->src[i];
    const uint32_t n = (uint32_t)(16 / fy__cuda_dtype_nbytes(operands[0]->dtype));
    for (unsigned i = 0; i < ndst; i++) operands[count++] = &args->dst[i];
    for (unsigned i = 0; i < count; i++) {
        const int last = operands[i]->rank - 1;
        if (last < 0 || operands[i]->strides[last] != 1 || operands[i]->dims[last] % n != 0) return;
        aligned &= has_aligned_rows(operands[i], n);
    }
    args->wide = n;
    if (aligned) args->flags |= FY__CUDA_ALIGNED;
}
