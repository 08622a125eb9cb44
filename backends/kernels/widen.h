/* Dense f16 and bf16 as f32 in scratch, for kernels that compute in f32. */
#ifndef FERRY_BACKENDS_KERNELS_WIDEN_H_
#define FERRY_BACKENDS_KERNELS_WIDEN_H_

#include "backends/kernels/family.h"

static inline int fy__is_half(int32_t dtype)
{
    return dtype == FY_DTYPE_F16 || dtype == FY_DTYPE_BF16;
}
/* Bytes of n elements of f32, in whole cache lines. */
static inline uint64_t fy__wide_nbytes(int64_t n)
{
    return ((uint64_t)n * sizeof(float) + 63) / 64 * 64;
}
/* Elements first .. first + n - 1 of a dense operand, to f32 and back; on several threads. */
void fy__widen(const fy__loops_t *loops, const fy_desc_t *half, int64_t first, int64_t n, void *to);
void fy__narrow(const fy__loops_t *loops, const fy_desc_t *half, int64_t first, int64_t n,
                const void *from);

#endif
