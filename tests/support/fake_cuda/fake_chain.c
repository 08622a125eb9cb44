/* Chains of the fake: the launch record is rebuilt from the program of fy_chain_f32 and run by the
 * portable kernels, or the kernel's PTX runs. Before, the program is checked: each operand that it
 * reads is set, and each value that a later op reads is kept. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/fake_cuda/fake.h"

/* A result is dense; operands allow accesses to four neighbours if the chain says so. */
static int operands_fit(const fy__cuda_chain_t *chain)
{
    for (int i = 0; i < chain->ndst + chain->nsrc; i++) {
        const fy__cuda_chain_operand_t *o = &chain->operands[i];
        uint64_t n = 1;
        if (o->rank < 1 || o->rank > FY__CUDA_CHAIN_RANK) return 0;
        for (int axis = 0; axis < o->rank; axis++) n *= (uint64_t)o->dims[axis];
        if (n != chain->nelem) return 0;
        if (i < chain->ndst && (o->rank != 1 || (n > 1 && o->strides[0] != 1))) return 0;
        if ((chain->flags & FY__CUDA_ALIGNED) != 0 && o->rank > 1 &&
            o->dims[o->rank - 1] % FY__CUDA_CHAIN_WIDE != 0)
            return 0;
    }
    return (chain->flags & FY__CUDA_SMALL) == 0 || chain->nelem <= INT32_MAX;
}

/* Is operand `number` known to a thread before op k? */
static int is_known(const fy__cuda_chain_t *chain, uint32_t k, int number, const uint8_t *is_kept)
{
    const int noperands = chain->ndst + chain->nsrc;
    if (number < noperands || (k > 0 && chain->ops[k - 1].dst == number)) return 1;
    return number - noperands < FY__CUDA_CHAIN_KEPT && is_kept[number - noperands];
}

static int program_fits(const fy__cuda_chain_t *chain)
{
    uint8_t is_kept[FY__CUDA_CHAIN_KEPT] = { 0 };
    const int noperands = chain->ndst + chain->nsrc;
    for (uint32_t k = 0; k < chain->nops; k++) {
        const fy__cuda_chain_op_t *op = &chain->ops[k];
        const int updates = op->accumulate || op->op == FY_OP_AXPY || op->op == FY_OP_CLIP_BY_NORM;
        for (int j = 0; j < op->nsrc; j++)
            if (!is_known(chain, k, op->src[j], is_kept)) return 0;
        if (updates && !is_known(chain, k, op->dst, is_kept)) return 0;
        if (op->dst >= chain->ndst && op->dst < noperands) return 0; /* a source */
        const int value = op->dst - noperands;
        if (value >= 0 && value < FY__CUDA_CHAIN_KEPT) is_kept[value] = op->is_kept;
        if (value >= FY__CUDA_CHAIN_KEPT && op->is_kept) return 0;
    }
    return 1;
}

static int rebuild_operand(int device, const fy__cuda_chain_operand_t *operand, fy_desc_t *out)
{
    fy__cuda_operand_t plain = { .data = operand->data,
                                 .dtype = operand->dtype,
                                 .rank = operand->rank };
    memcpy(plain.dims, operand->dims, sizeof operand->dims);
    memcpy(plain.strides, operand->strides, sizeof operand->strides);
    return fake_rebuild(device, &plain, out);
}

static CUresult interpret(const fy__cuda_chain_t *chain, fy_desc_t *operands)
{
    fy_chain_op_t ops[FY__CUDA_CHAIN_OPS];
    for (uint32_t k = 0; k < chain->nops; k++) {
        const fy__cuda_chain_op_t *op = &chain->ops[k];
        ops[k] = (fy_chain_op_t){ .op = op->op,
                                  .accumulate = op->accumulate,
                                  .nsrc = op->nsrc,
                                  .dst = op->dst,
                                  .src = { op->src[0], op->src[1], op->src[2] },
                                  .dst_dtype = op->dst_dtype,
                                  .attrs_nbytes = sizeof op->numbers,
                                  .attrs = { op->numbers[0], op->numbers[1] } };
        memcpy(ops[k].src_dtype, op->src_dtype, sizeof ops[k].src_dtype);
    }
    fy_launch_t launch = { .struct_size = sizeof launch,
                           .op = FY_LAUNCH_CHAIN,
                           .nsrc = chain->nsrc,
                           .ndst = chain->ndst,
                           .dst = operands,
                           .src = operands + chain->ndst,
                           .attrs = ops,
                           .attrs_nbytes = chain->nops * sizeof *ops,
                           .nelem = chain->nelem };
    return fake_run_launch(&launch) == FY_STATUS_OK ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fake_run_chain(int device, const fy__cuda_chain_t *chain, unsigned grid, unsigned block_x)
{
    fy_desc_t operands[FY__CUDA_CHAIN_OPERANDS];
    if (chain->nops > FY__CUDA_CHAIN_OPS || chain->ndst + chain->nsrc > FY__CUDA_CHAIN_OPERANDS ||
        !operands_fit(chain) || !program_fits(chain))
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < chain->ndst + chain->nsrc; i++)
        if (!rebuild_operand(device, &chain->operands[i], &operands[i]))
            return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (fake_kernels_are_ptx())
        return fake_run_ptx(device, "fy_chain_f32", chain, sizeof *chain, grid, block_x, 1);
    return interpret(chain, operands);
}
