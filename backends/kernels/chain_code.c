/* Instructions for runs of ops in a chain whose values stay in registers: each op reads the result
 * of the op before it. A value is stored only if an op outside the run reads it. Not here: their
 * loop (loops_chain.h), the other ops (chain.c). */
#include "backends/kernels/chain.h"

enum { NONE = FY__CHAIN_END };

static const uint8_t kinds[FY_OP_BUILTIN_COUNT] = {
#define ONE(ENUM, ...) [FY_OP_##ENUM] = FY__CHAIN_##ENUM,
#define SCALED         ONE
#define TWO            ONE
#include "backends/kernels/chain.def"
};
/* its second source is on registers */
static const uint8_t kinds_from[FY_OP_BUILTIN_COUNT] = {
#define FROM(ENUM, ...) [FY_OP_##ENUM] = FY__CHAIN_FROM_##ENUM,
#include "backends/kernels/chain.def"
};

static int is_f32(const fy_chain_op_t *op)
{
    int is = op->dst_dtype == FY_DTYPE_F32 && !op->accumulate && kinds[op->op] != NONE;
    for (int j = 0; j < op->nsrc; j++) is &= op->src_dtype[j] == FY_DTYPE_F32;
    return is;
}

/* The instruction of an op whose source `held` is on registers, and its other source; NONE: it
 * needs two of them, or there is no such instruction. */
static int join(const fy_chain_op_t *op, uint16_t held, uint16_t *out_other)
{
    *out_other = op->nsrc > 1 ? op->src[1] : held;
    if (op->src[0] == held) return op->nsrc > 1 && op->src[1] == held ? NONE : kinds[op->op];
    *out_other = op->src[0];
    return op->nsrc > 1 && op->src[1] == held ? kinds_from[op->op] : NONE;
}

/* Does an op from number `k` on read the value before it is set again? */
static int is_read(const fy_chain_op_t *ops, int nops, int k, uint16_t value)
{
    for (; k < nops; k++) {
        for (int j = 0; j < ops[k].nsrc; j++)
            if (ops[k].src[j] == value) return 1;
        if (ops[k].dst == value)
            return ops[k].accumulate || ops[k].op == FY_OP_AXPY || ops[k].op == FY_OP_CLIP_BY_NORM;
    }
    return 0;
}

static void add(fy__chain_run_t *run, int kind, uint16_t operand, const fy_chain_op_t *op)
{
    fy__chain_code_t *code = &run->code[run->ncodes];
    *code = (fy__chain_code_t){ .kind = kind };
    if (op && op->attrs_nbytes) code->p = (float)op->attrs[0];
    if (op && op->attrs_nbytes > sizeof(double)) code->q = (float)op->attrs[1];
    run->operand[run->ncodes++] = operand;
}

int fy__chain_encode(const fy_chain_op_t *ops, int nops, int first, int noperands,
                     fy__chain_run_t *run)
{
    uint16_t other;
    int last = first;
    run->ncodes = 0;
    if (!is_f32(&ops[first])) return 0;
    while (last + 1 < nops && last + 1 - first < FY__CHAIN_RUN && is_f32(&ops[last + 1]) &&
           join(&ops[last + 1], ops[last].dst, &other) != NONE)
        last++;
    if (last == first) return 0;
    for (int k = first; k <= last; k++) {
        const fy_chain_op_t *op = &ops[k];
        if (k == first) add(run, FY__CHAIN_LOAD, op->src[0], NULL);
        other = op->nsrc > 1 ? op->src[1] : op->src[0];
        const int kind = k == first ? kinds[op->op] : join(op, ops[k - 1].dst, &other);
        add(run, kind, other, op);
        const int is_set_next = k < last && ops[k + 1].dst == op->dst;
        const int is_kept = op->dst < noperands ? !is_set_next
                            : k < last          ? !is_set_next && is_read(ops, nops, k + 2, op->dst)
                                                : is_read(ops, nops, k + 1, op->dst);
        if (is_kept) add(run, FY__CHAIN_STORE, op->dst, NULL);
    }
    add(run, FY__CHAIN_END, 0, NULL);
    return last + 1 - first;
}
