/* Size arithmetic that detects overflow. All sizes from callers and files use these functions. */
#ifndef FERRY_RUNTIME_BASE_CHECKED_H_
#define FERRY_RUNTIME_BASE_CHECKED_H_

#include <stdbool.h>
#include <stdint.h>

/* false on overflow; *out is then undefined. */
static inline bool fy__mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool fy__add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
/* Smallest multiple of `alignment` (a power of two) that is >= n; false on overflow. */
static inline bool fy__round_up_u64(uint64_t n, uint64_t alignment, uint64_t *out)
{
    if (!fy__add_u64(n, alignment - 1, out)) return false;
    *out &= ~(alignment - 1);
    return true;
}

#endif
