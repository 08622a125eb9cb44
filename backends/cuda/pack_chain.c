/* Packing for chains: which ones the kernel takes, and its program. The kernel computes in f32, so
 * it takes ops whose operands are f32, f16, bf16 or bool, and no reduction: those add in the order
 * of fy_reduce_float, which has a block or a warp for a row. Graphs submit all else call by call.
 * Next: kernels/chain.cu, which runs it; ops/fuse.c, which makes chains. */
#include <string.h>

#include "backends/cuda/families.h"
#include "opset/formulas/index.h"

_Static_assert(sizeof(fy__cuda_chain_t) <= 4096, "a kernel takes 4 KiB of arguments on every GPU");

static int is_single(int32_t dtype)
{
    return dtype == FY_DTYPE_F32 || dtype == FY_DTYPE_F16 || dtype == FY_DTYPE_BF16;
}

static int is_taken_dtype(int32_t dtype) { return is_single(dtype) || dtype == FY_DTYPE_BOOL; }

/* Ops that move values take bool, too; arithmetic on it is that of integers. */
static int takes_op(const fy_chain_op_t *op)
{
    const fy__cuda_family_t *family = fy__cuda_family_of(op->op);
    const int moves = op->op == FY_OP_CAST || op->op == FY_OP_COPY || op->op == FY_OP_WHERE;
    if (!moves && family->pack != fy__cuda_pack_elementwise) return 0;
    if (op->nsrc < 1 || op->nsrc > 3) return 0;
    if (op->nsrc == 3 && op->op != FY_OP_WHERE) return 0;
    for (int k = 0; k < op->nsrc; k++)
        if (!(moves ? is_taken_dtype(op->src_dtype[k]) : is_single(op->src_dtype[k]))) return 0;
    return is_taken_dtype(op->dst_dtype);
}

static int is_updated(const fy_chain_op_t *op)
{
    return op->accumulate || op->op == FY_OP_AXPY || op->op == FY_OP_CLIP_BY_NORM;
}

/* Does an op from number `k` on read the value before it is set again? */
static int is_read(const fy_chain_op_t *ops, uint32_t nops, uint32_t k, uint16_t value)
{
    for (; k < nops; k++) {
        for (int j = 0; j < ops[k].nsrc; j++)
            if (ops[k].src[j] == value) return 1;
        if (ops[k].dst == value) return is_updated(&ops[k]);
    }
    return 0;
}

/* The next op finds the value in the register, unless it sets another one first. */
static int is_kept(const fy_chain_op_t *ops, uint32_t nops, uint32_t k)
{
    if (k + 1 < nops && ops[k + 1].dst == ops[k].dst) return 0;
    return is_read(ops, nops, k + 2, ops[k].dst);
}

/* An operand in memory has the dtype of the op: no other tensor of the chain had these bytes. */
static int has_dtype(const fy_launch_t *launch, uint16_t number, int32_t dtype)
{
    if (number < launch->ndst) return launch->dst[number].dtype == dtype;
    number = (uint16_t)(number - launch->ndst);
    return number >= launch->nsrc || launch->src[number].dtype == dtype;
}

static int pack_op(const fy_launch_t *launch, uint32_t nops, uint32_t k, fy__cuda_chain_op_t *out)
{
    const fy_chain_op_t *ops = (const fy_chain_op_t *)launch->attrs, *op = &ops[k];
    const int noperands = launch->ndst + launch->nsrc;
    if (!takes_op(op) || !has_dtype(launch, op->dst, op->dst_dtype)) return 0;
    memset(out, 0, sizeof *out);
    out->op = (uint16_t)op->op;
    out->nsrc = (uint8_t)op->nsrc;
    out->accumulate = (uint8_t)op->accumulate;
    out->dst = (uint8_t)op->dst;
    out->dst_dtype = op->dst_dtype;
    for (int j = 0; j < op->nsrc; j++) {
        if (!has_dtype(launch, op->src[j], op->src_dtype[j])) return 0;
        out->src[j] = (uint8_t)op->src[j];
        out->src_dtype[j] = op->src_dtype[j];
    }
    memcpy(out->numbers, op->attrs, op->attrs_nbytes);
    out->is_kept = op->dst >= noperands && is_kept(ops, nops, k);
    return op->dst < FY__CUDA_CHAIN_NONE &&
           (!out->is_kept || op->dst - noperands < FY__CUDA_CHAIN_KEPT);
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

static int pack_operand(const fy_desc_t *desc, fy__cuda_chain_operand_t *out)
{
    const int64_t *strides[1] = { desc->strides };
    fy__index_t index;
    fy__index_make(&index, desc->rank, desc->dims, 1, strides);
    if (index.rank > FY__CUDA_CHAIN_RANK || !is_taken_dtype(desc->dtype)) return 0;
    memset(out, 0, sizeof *out);
    out->data = (uint64_t)(uintptr_t)desc->data;
    out->dtype = desc->dtype;
    out->rank = index.rank;
    for (int axis = 0; axis < index.rank; axis++) {
        out->dims[axis] = index.dims[axis];
        out->strides[axis] = index.strides[0][axis];
    }
    return 1;
}

int fy__cuda_pack_chain(const fy_launch_t *launch, fy__cuda_chain_t *out)
{
    const size_t nops = launch->attrs_nbytes / sizeof(fy_chain_op_t);
    const int noperands = launch->ndst + launch->nsrc;
    if (launch->op != FY_LAUNCH_CHAIN || nops < 1 || nops > FY__CUDA_CHAIN_OPS ||
        launch->ndst < 1 || noperands > FY__CUDA_CHAIN_OPERANDS)
        return 0;
    memset(out, 0, offsetof(fy__cuda_chain_t, ops));
    out->struct_size = sizeof *out;
    out->nops = (uint32_t)nops;
    out->ndst = launch->ndst;
    out->nsrc = launch->nsrc;
    out->nelem = launch->nelem;
    out->flags = FY__CUDA_ALIGNED | (launch->nelem <= INT32_MAX ? FY__CUDA_SMALL : 0u);
    for (uint32_t k = 0; k < nops; k++)
        if (!pack_op(launch, out->nops, k, &out->ops[k])) return 0;
    for (int i = 0; i < noperands; i++) {
        const fy_desc_t *desc = i < launch->ndst ? &launch->dst[i] : &launch->src[i - launch->ndst];
        if (!pack_operand(desc, &out->operands[i])) return 0;
        if (!is_wide(&out->operands[i])) out->flags &= ~(uint32_t)FY__CUDA_ALIGNED;
    }
    return 1;
}
