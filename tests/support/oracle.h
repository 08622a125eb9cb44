/* Expected values of every op, by plain loops over decoded values, and the error that the op's
 * model allows for each element.
 * A result is value +- bound, where bound = unit(dst) * |value| (the final rounding) + slack *
 * unit(compute) * scale. The rounding errors are relative to `scale` (for example the sum of the
 * magnitudes that were added), which each element has.
 * oracle_elementwise.c, oracle_reduce.c, oracle_loss.c, oracle_image.c and oracle_training.c
 * compute, oracle.c selects and compares.
 * Cases and models: tests/ops/cases.def. */
#ifndef FERRY_TESTS_SUPPORT_ORACLE_H_
#define FERRY_TESTS_SUPPORT_ORACLE_H_

#include <ferry/op.h>

#include "tests/support/value.h"

/* The number of results without one that may be left out, as all cases do. */
static inline size_t ts_ndst(fy_op_t op)
{
    const fy_op_info_t *info = fy_op_get(op);
    const bool is_optional = info->dst && info->dst[info->ndst - 1].flags & FY_OPERAND_OPTIONAL;
    return info->ndst - (is_optional ? 1u : 0u);
}
/* `own`, but f32 for the rate and the states of a step of half precision. is_main: of the gradient
 * or the parameter. */
static inline fy_dtype_t ts_operand_dtype(fy_op_t op, fy_dtype_t own, bool is_main)
{
    const bool is_half = own == FY_DTYPE_F16 || own == FY_DTYPE_BF16;
    return is_half && !is_main && ts_ndst(op) < fy_op_get(op)->ndst ? FY_DTYPE_F32 : own;
}

/* The number of roundings that the error of a product of n terms counts (docs/ops.md). */
static inline double ts_product_steps(fy_dtype_t dtype, int64_t n)
{
    const double most = 4096 + (double)n / 1024;
    return dtype == FY_DTYPE_F64 || (double)n + 1 < most ? (double)n + 1 : most;
}

typedef struct ts_expected {
    ts_array_t value;
    double *scale; /* one for each element of `value`; 0: exact except for the final rounding */
} ts_expected_t;

void ts_expected_make(ts_expected_t *expected, fy_dtype_t dtype, int rank, const int64_t *dims);
void ts_expected_free(ts_expected_t *expected);

/* Computes dst[0] of `op`. `before`: contents of a given dst[0] (axpy reads it), or NULL. False:
 * this op has no oracle per element (random draws). `out` is allocated here. */
bool ts_oracle(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
               const ts_array_t *before, ts_expected_t *out);

/* Parts of ts_oracle; false: the op belongs to another part. */
bool ts_oracle_elementwise(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
                           const ts_array_t *before, ts_expected_t *out);
bool ts_oracle_reduce(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
                      ts_expected_t *out);
bool ts_oracle_loss(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
                    ts_expected_t *out);
bool ts_oracle_image(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
                     ts_expected_t *out);

bool ts_oracle_index(fy_op_t op, const ts_array_t *src, const void *attrs, const ts_array_t *before,
                     ts_expected_t *out);

/* Ops of training loops: all results; `given` has the updated tensors. False: the op is not one of
 * those. */
bool ts_oracle_training(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
                        const ts_array_t *given, ts_expected_t *out);

/* Ops along the last axis: all results. False: the op is not one of them. */
bool ts_oracle_along(fy_op_t op, const ts_array_t *src, const void *attrs, ts_expected_t *out);
/* Normalisation: all results; `given` as above. False: the op is not one of those. */
bool ts_oracle_norm(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
                    const ts_array_t *given, ts_expected_t *out);
bool ts_oracle_attention(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
                         ts_expected_t *out);

/* Results of ops that draw, from the state {seed, counter} in `rng`: dst[0] of rand, randn, dropout
 * and similar ops (src: the input of dropout; draws: a dst with the same dims). False: not one of
 * them, or randperm. */
bool ts_oracle_random(fy_op_t op, const ts_array_t *src, const ts_array_t *rng, const void *attrs,
                      ts_expected_t *out);
/* the values that they leave in dst[index] */
bool ts_oracle_state(fy_op_t op, size_t index, const ts_array_t *given, ts_expected_t *out);
/* Philox4x32-10: block {low, high} under `key`. */
void ts_philox(uint64_t key, uint64_t low, uint64_t high, uint32_t out[4]);

/* Returns whether `got` agrees with `expected` within `slack` rounding errors. Prints the worst
 * element: op, dtype, index, got, want, bound. */
bool ts_compare(const ts_expected_t *expected, const ts_array_t *got, double slack,
                const char *what);
/* Same bits, NaN equal to NaN. Prints the first difference. */
bool ts_same(const ts_array_t *a, const ts_array_t *b, const char *what);

/* Index helpers: coordinates of element `k` of dense `dims`; the element of `array` that broadcasts
 * to `coords` of rank `rank`. */
void ts_unravel(uint64_t k, int rank, const int64_t *dims, int64_t *coords);
/* The shape that the sources broadcast to; returns its rank. */
int ts_broadcast_dims(size_t nsrc, const ts_array_t *src, int64_t *dims);
uint64_t ts_broadcast_index(const ts_array_t *array, int rank, const int64_t *coords);

#endif
