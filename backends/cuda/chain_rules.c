/* The rules of chain_rules.h. The kernel computes in f32, so it takes ops whose operands are f32,
 * f16, bf16 or bool. It takes no reduction: fy_reduce_float adds in another order, with a block or
 * a warp for a row. It draws no numbers. Values between ops are in a few registers.
 * Not here: which calls are neighbours (ops/fuse.c). */
#include "backends/cuda/chain_rules.h"

#include <ferry/op.h>

#include "backends/cuda/args.h"
#include "opset/formulas/index.h"

static int is_single(int32_t dtype)
{
    return dtype == FY_DTYPE_F32 || dtype == FY_DTYPE_F16 || dtype == FY_DTYPE_BF16;
}

static int is_taken_dtype(int32_t dtype) { return is_single(dtype) || dtype == FY_DTYPE_BOOL; }

/* The ops of chains that are not elementwise, and those that are newer than this source. */
static int check_op(uint32_t op)
{
    switch (op) {
    case FY_OP_SUM:
    case FY_OP_MEAN:
    case FY_OP_PROD:
    case FY_OP_NORM:
    case FY_OP_MAX:
    case FY_OP_MIN:
    case FY_OP_ANY:
    case FY_OP_ALL: return FY_CHAIN_NO_REDUCTION;
    case FY_OP_DROPOUT:
    case FY_OP_DROPOUT_BACKWARD: return FY_CHAIN_NO_OP;
    default: return op < FY_OP_BUILTIN_COUNT ? FY_CHAIN_TAKEN : FY_CHAIN_NO_OP;
    }
}

/* Ops that move values take bool, too; arithmetic on it is that of integers. */
static int check_dtypes(const fy_chain_op_t *op)
{
    const int moves = op->op == FY_OP_CAST || op->op == FY_OP_COPY || op->op == FY_OP_WHERE;
    for (int k = 0; k < op->nsrc; k++)
        if (!(moves ? is_taken_dtype(op->src_dtype[k]) : is_single(op->src_dtype[k])))
            return FY_CHAIN_NO_DTYPE;
    return is_taken_dtype(op->dst_dtype) ? FY_CHAIN_TAKEN : FY_CHAIN_NO_DTYPE;
}

static int is_updated(const fy_chain_op_t *op)
{
    return op->accumulate || op->op == FY_OP_AXPY || op->op == FY_OP_CLIP_BY_NORM;
}

static uint32_t count(const fy_launch_t *launch)
{
    return (uint32_t)(launch->attrs_nbytes / sizeof(fy_chain_op_t));
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
int fy__cuda_chain_is_kept(const fy_launch_t *launch, uint32_t k)
{
    const fy_chain_op_t *ops = (const fy_chain_op_t *)launch->attrs;
    const uint32_t nops = count(launch);
    if (ops[k].dst < launch->ndst + launch->nsrc) return 0;
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

static int check_one(const fy_launch_t *launch, uint32_t k)
{
    const fy_chain_op_t *op = (const fy_chain_op_t *)launch->attrs + k;
    const int noperands = launch->ndst + launch->nsrc;
    int answer = check_op(op->op);
    if (answer == FY_CHAIN_TAKEN) answer = check_dtypes(op);
    if (answer != FY_CHAIN_TAKEN) return answer;
    if (op->nsrc < 1 || op->nsrc > (op->op == FY_OP_WHERE ? 3 : 2)) return FY_CHAIN_NO_OP;
    if (!has_dtype(launch, op->dst, op->dst_dtype)) return FY_CHAIN_NO_DTYPE;
    for (int j = 0; j < op->nsrc; j++)
        if (!has_dtype(launch, op->src[j], op->src_dtype[j])) return FY_CHAIN_NO_DTYPE;
    if (op->dst >= FY__CUDA_CHAIN_NONE) return FY_CHAIN_TOO_LARGE;
    return fy__cuda_chain_is_kept(launch, k) && op->dst - noperands >= FY__CUDA_CHAIN_KEPT
               ? FY_CHAIN_TOO_LARGE
               : FY_CHAIN_TAKEN;
}

static int check_operand(const fy_desc_t *desc)
{
    const int64_t *strides[1] = { desc->strides };
    fy__index_t index;
    fy__index_make(&index, desc->rank, desc->dims, 1, strides);
    if (index.rank > FY__CUDA_CHAIN_RANK) return FY_CHAIN_TOO_LARGE;
    return is_taken_dtype(desc->dtype) ? FY_CHAIN_TAKEN : FY_CHAIN_NO_DTYPE;
}

int fy__cuda_chain_check(const fy_launch_t *launch)
{
    const uint32_t nops = count(launch);
    const int noperands = launch->ndst + launch->nsrc;
    int answer = FY_CHAIN_TAKEN;
    if (launch->op != FY_LAUNCH_CHAIN || nops < 1 || launch->ndst < 1) return FY_CHAIN_NO_OP;
    if (nops > FY__CUDA_CHAIN_OPS || noperands > FY__CUDA_CHAIN_OPERANDS) return FY_CHAIN_TOO_LARGE;
    for (uint32_t k = 0; k < nops && answer == FY_CHAIN_TAKEN; k++) answer = check_one(launch, k);
    for (int i = 0; i < noperands && answer == FY_CHAIN_TAKEN; i++)
        answer = check_operand(i < launch->ndst ? &launch->dst[i] : &launch->src[i - launch->ndst]);
    return answer;
}
