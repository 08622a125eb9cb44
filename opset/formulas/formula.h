/* What every formula header needs: the qualifier that makes one text serve C, and C++ and CUDA on
 * both sides of the link.
 * Formulas are scalar, branch-light, and know nothing of tensors, threads or errors; no C11-only
 * construct may be used in this folder.
 * Next: half.h and cast.h (dtypes), scalar.h (the elementwise ops), random.h, index.h. */
#ifndef FERRY_OPSET_FORMULAS_FORMULA_H_
#define FERRY_OPSET_FORMULAS_FORMULA_H_

#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define FY_FORMULA static inline __host__ __device__
#elif defined(__GNUC__)
#define FY_FORMULA static inline __attribute__((unused))
#else
#define FY_FORMULA static inline
#endif

/* a * b + c rounded twice on every backend: nvcc contracts to one rounding unless told not to.
 * Kernels in C are built with -ffp-contract=off. */
#if defined(__CUDA_ARCH__)
#define FY_MUL_ADD_F32(a, b, c) __fadd_rn(__fmul_rn((a), (b)), (c))
#define FY_MUL_ADD_F64(a, b, c) __dadd_rn(__dmul_rn((a), (b)), (c))
/* One instruction each, of at most 2 and 1 units in the last place; results below 2^-126 are 0.
 * Source: PTX ISA, ex2.approx, rcp.approx. */
static inline __device__ float fy__exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
static inline __device__ float fy__reciprocal_fast(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#else
#define FY_MUL_ADD_F32(a, b, c) ((a) * (b) + (c))
#define FY_MUL_ADD_F64(a, b, c) ((a) * (b) + (c))
#endif

FY_FORMULA uint32_t fy__bits_of_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

FY_FORMULA float fy__f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

FY_FORMULA uint64_t fy__bits_of_f64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

#endif
