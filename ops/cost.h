/* Cost rules: how many floating-point operations a launch does, and how many bytes it must touch at
 * least. The sim's clock and the MAC counts come from them. They run when the descriptors, nelem
 * and accumulate are final; they saturate, never overflow.
 * Which op has which rule: opset/ops.def. Not here: time (backends/sim). */
#ifndef FERRY_OPS_COST_H_
#define FERRY_OPS_COST_H_

#include <ferry/op.h>

/* An exp, log, tanh or pow counts as so many: about what a vector maths library spends on one. */
#define FY__FLOPS_TRANSCENDENTAL 4
/* A random number: its share of a Philox4x32-10 block, integer arithmetic counted as if it were
 * floating point. */
#define FY__FLOPS_RANDOM 32

static inline uint64_t fy__cost_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* Bytes of the elements that are really there: an axis with stride 0 repeats the same ones. */
uint64_t fy__cost_unique_nbytes(const fy_desc_t *desc);

/* The rules, by the names that opset/ops.def uses: those of elementwise ops say what an element
 * takes. */
#define fy__cost_cheap fy__cost_elementwise
#define fy__cost_exp   fy__cost_transcendental
#define fy__cost_tanh  fy__cost_transcendental
#define fy__cost_pow   fy__cost_transcendental
#define fy__cost_erf   fy__cost_transcendental
#define ROW(number, ENUM, name, flags, dtypes, attrs, shape, cost, ...) \
    void fy__cost_##cost(fy_launch_t *launch);
#include "opset/ops.def"

#endif
