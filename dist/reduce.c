/* Sums over ranks, element by element in the order of the ranks: the bits do not depend on which
 * rank sums, nor on where a piece begins. */
#include <math.h>
#include <string.h>

#include "dist/group.h"

enum { BLOCK = 512 };

#define MAX_FLOAT(a, b) ((a) > (b) || isnan(a) ? (a) : (b))
#define MAX_INT(a, b)   ((a) > (b) ? (a) : (b))

/* Integers add modulo 2^N, as ops do: `wide` is the unsigned type. */
#define REDUCE(name, type, wide, MAX, MEAN)                                                     \
    static void name(fy_group_reduce_t reduce, type *out, const type *const *sources, int size, \
                     uint64_t nelem)                                                            \
    {                                                                                           \
        type sum[BLOCK];                                                                        \
        for (uint64_t at = 0; at < nelem; at += BLOCK) {                                        \
            const uint64_t n = nelem - at < BLOCK ? nelem - at : BLOCK;                         \
            memcpy(sum, sources[0] + at, n * sizeof *sum);                                      \
            for (int r = 1; r < size; r++) {                                                    \
                const type *next = sources[r] + at;                                             \
                if (reduce == FY_GROUP_MAX)                                                     \
                    for (uint64_t i = 0; i < n; i++) sum[i] = MAX(sum[i], next[i]);             \
                else                                                                            \
                    for (uint64_t i = 0; i < n; i++)                                            \
                        sum[i] = (type)((wide)sum[i] + (wide)next[i]);                          \
            }                                                                                   \
            if (MEAN && reduce == FY_GROUP_MEAN)                                                \
                for (uint64_t i = 0; i < n; i++) sum[i] = sum[i] / (type)size;                  \
            memcpy(out + at, sum, n * sizeof *sum);                                             \
        }                                                                                       \
    }
REDUCE(reduce_f32, float, float, MAX_FLOAT, 1)
REDUCE(reduce_f64, double, double, MAX_FLOAT, 1)
REDUCE(reduce_i32, int32_t, uint32_t, MAX_INT, 0)
REDUCE(reduce_i64, int64_t, uint64_t, MAX_INT, 0)

void fyd_reduce(fy_dtype_t dtype, fy_group_reduce_t reduce, void *out, const void *const *sources,
                int size, uint64_t nelem)
{
    if (dtype == FY_DTYPE_F32)
        reduce_f32(reduce, out, (const float *const *)sources, size, nelem);
    else if (dtype == FY_DTYPE_F64)
        reduce_f64(reduce, out, (const double *const *)sources, size, nelem);
    else if (dtype == FY_DTYPE_I32)
        reduce_i32(reduce, out, (const int32_t *const *)sources, size, nelem);
    else
        reduce_i64(reduce, out, (const int64_t *const *)sources, size, nelem);
}
