/* Packing for chains: the program and the operands of the kernel. Graphs submit call by call what
 * it does not take.
 * Next: chain_rules.c, which says what it takes; kernels/chain.cu, which runs it. */
#include <string.h>

#include "backends/cuda/chain_rules.h"
#include "backends/cuda/pack.h"

_Static_assert(sizeof(fy__cuda_chain_t) <= 4096, "a kernel takes 4 KiB of arguments on every GPU");

static void pack_op(const fy_launch_t *launch, uint32_t k, fy__cuda_chain_op_t *out)
{
    const fy_chain_op_t *op = (const fy_chain_op_t *)launch->attrs + k;
    memset(out, 0, sizeof *out);
    out->op = (uint16_t)op->op;
    out->nsrc = (uint8_t)op->nsrc;
    out->accumulate = (uint8_t)op->accumulate;
    out->dst = (uint8_t)op->dst;
    out->dst_dtype = op->dst_dtype;
    for (int j = 0; j < op->nsrc; j++) {
        out->src[j] = (uint8_t)op->src[j];
        out->src_dtype[j] = op->src_dtype[j];
    }
    memcpy(out->numbers, op->attrs, op->attrs_nbytes);
    out->is_kept = (uint8_t)fy__cuda_chain_is_kept(launch, k);
}

/* Four neighbours lie in one row and may be accessed at once, or are one element. */
static int is_wide(const fy__cuda_chain_operand_t *operand)
{
    const uint64_t size = fy__cuda_dtype_nbytes(operand->dtype), n = FY__CUDA_CHAIN_WIDE;
    const int last = operand->rank - 1;
    uint64_t bits = operand->data;
    if (last > 0 && (uint64_t)operand->dims[last] % n != 0) return 0;
    if (operand->strides[last] == 0) return 1;
    if (operand->strides[last] != 1 && operand->dims[last] != 1) return 0;
    for (int axis = 0; axis < last; axis++) bits |= (uint64_t)operand->strides[axis] * size;
    return bits % (n * size) == 0;
}

static void pack_operand(const fy_desc_t *desc, fy__cuda_chain_operand_t *out)
{
    const int64_t *strides[1] = { desc->strides };
    fy__index_t index;
    fy__index_make(&index, desc->rank, desc->dims, 1, strides);
    memset(out, 0, sizeof *out);
    out->data = (uint64_t)(uintptr_t)desc->data;
    out->dtype = desc->dtype;
    out->rank = index.rank;
    for (int axis = 0; axis < index.rank; axis++) {
        out->dims[axis] = index.dims[axis];
        out->strides[axis] = index.strides[0][axis];
    }
}

int fy__cuda_pack_chain(const fy_launch_t *launch, fy__cuda_chain_t *out)
{
    const size_t nops = launch->attrs_nbytes / sizeof(fy_chain_op_t);
    const int noperands = launch->ndst + launch->nsrc;
    if (fy__cuda_chain_check(launch) != FY_CHAIN_TAKEN) return 0;
    memset(out, 0, offsetof(fy__cuda_chain_t, ops));
    out->struct_size = sizeof *out;
    out->nops = (uint32_t)nops;
    out->ndst = launch->ndst;
    out->nsrc = launch->nsrc;
    out->nelem = launch->nelem;
    out->flags = FY__CUDA_ALIGNED | (launch->nelem <= INT32_MAX ? FY__CUDA_SMALL : 0u);
    for (uint32_t k = 0; k < nops; k++) pack_op(launch, k, &out->ops[k]);
    for (int i = 0; i < noperands; i++) {
        const fy_desc_t *desc = i < launch->ndst ? &launch->dst[i] : &launch->src[i - launch->ndst];
        pack_operand(desc, &out->operands[i]);
        if (!is_wide(&out->operands[i])) out->flags &= ~(uint32_t)FY__CUDA_ALIGNED;
    }
    return 1;
}
