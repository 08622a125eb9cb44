/* The elementwise ops as scalar functions: fy__<op>_<type>, where type is what is computed in: f32
 * (also for f16 and bf16, which are rounded once afterwards), f64, i32, i64, u8. NaN propagates
 * through all of them; integers wrap around. maximum and minimum of equal operands, 0 and -0 among
 * them, are the second.
 * Which dtypes an op takes is the op table's business, not decided here. Comparisons and where are
 * the C operators. */
#ifndef FERRY_OPSET_FORMULAS_SCALAR_H_
#define FERRY_OPSET_FORMULAS_SCALAR_H_

#include <math.h>

#include "opset/formulas/formula.h"

/* ---- float: X(suffix, type, the suffix of libm's functions) ---- */

#define FY_FLOAT_FORMULAS(sfx, T, m)                                                             \
    FY_FORMULA T fy__neg_##sfx(T x) { return -x; }                                               \
    FY_FORMULA T fy__abs_##sfx(T x) { return fabs##m(x); }                                       \
    FY_FORMULA T fy__exp_##sfx(T x) { return exp##m(x); }                                        \
    FY_FORMULA T fy__log_##sfx(T x) { return log##m(x); }                                        \
    FY_FORMULA T fy__sqrt_##sfx(T x) { return sqrt##m(x); }                                      \
    FY_FORMULA T fy__tan_##sfx(T x) { return tan##m(x); }                                        \
    FY_FORMULA T fy__sin_##sfx(T x) { return sin##m(x); }                                        \
    FY_FORMULA T fy__cos_##sfx(T x) { return cos##m(x); }                                        \
    FY_FORMULA T fy__log1p_##sfx(T x) { return log1p##m(x); }                                    \
    FY_FORMULA T fy__expm1_##sfx(T x) { return expm1##m(x); }                                    \
    FY_FORMULA T fy__rsqrt_##sfx(T x) { return (T)1 / sqrt##m(x); }                              \
    FY_FORMULA T fy__floor_##sfx(T x) { return floor##m(x); }                                    \
    FY_FORMULA T fy__ceil_##sfx(T x) { return ceil##m(x); }                                      \
    FY_FORMULA T fy__round_##sfx(T x) { return rint##m(x); } /* to even */                       \
    FY_FORMULA T fy__tanh_##sfx(T x) { return tanh##m(x); }                                      \
    FY_FORMULA T fy__sigmoid_##sfx(                                                              \
        T x) /* exp of a non-positive value: small results keep their digits */                  \
    {                                                                                            \
        const T e = exp##m(-fabs##m(x));                                                         \
        return (x < (T)0 ? e : (T)1) / ((T)1 + e);                                               \
    }                                                                                            \
    FY_FORMULA T fy__relu_##sfx(T x) { return x < (T)0 ? (T)0 : x; } /* NaN is not < 0: stays */ \
    FY_FORMULA T fy__affine_##sfx(T x, T scale, T shift) { return scale * x + shift; }           \
    FY_FORMULA T fy__axpy_##sfx(T y, T alpha, T x) { return y + alpha * x; }                     \
    FY_FORMULA T fy__clamp_##sfx(T x, T low, T high)                                             \
    {                                                                                            \
        return x < low ? low : x > high ? high : x;                                              \
    }                                                                                            \
    FY_FORMULA T fy__clip_##sfx(T x, T norm, T most) /* a NaN for a norm spreads */              \
    {                                                                                            \
        const T share = most / (norm + (T)1e-6);                                                 \
        return share >= (T)1 ? x : x * share;                                                    \
    }                                                                                            \
    FY_FORMULA T fy__add_##sfx(T a, T b) { return a + b; }                                       \
    FY_FORMULA T fy__sub_##sfx(T a, T b) { return a - b; }                                       \
    FY_FORMULA T fy__mul_##sfx(T a, T b) { return a * b; }                                       \
    FY_FORMULA T fy__div_##sfx(T a, T b) { return a / b; }                                       \
    FY_FORMULA T fy__pow_##sfx(T a, T b) { return pow##m(a, b); }                                \
    FY_FORMULA T fy__maximum_##sfx(T a, T b) { return ((a > b) | (a != a)) ? a : b; }            \
    FY_FORMULA T fy__minimum_##sfx(T a, T b) { return ((a < b) | (a != a)) ? a : b; }

FY_FLOAT_FORMULAS(f32, float, f)
FY_FLOAT_FORMULAS(f64, double, )
#undef FY_FLOAT_FORMULAS

/* ---- integers: arithmetic in the unsigned type, where overflow is defined ---- */

#define FY_INT_FORMULAS(sfx, T, U)                                              \
    FY_FORMULA T fy__neg_##sfx(T x) { return (T)((U)0 - (U)x); }                \
    FY_FORMULA T fy__abs_##sfx(T x) { return x < (T)1 ? (T)((U)0 - (U)x) : x; } \
    FY_FORMULA T fy__add_##sfx(T a, T b) { return (T)((U)a + (U)b); }           \
    FY_FORMULA T fy__sub_##sfx(T a, T b) { return (T)((U)a - (U)b); }           \
    FY_FORMULA T fy__mul_##sfx(T a, T b) { return (T)((U)a * (U)b); }           \
    FY_FORMULA T fy__maximum_##sfx(T a, T b) { return a > b ? a : b; }          \
    FY_FORMULA T fy__minimum_##sfx(T a, T b) { return a < b ? a : b; }

FY_INT_FORMULAS(i32, int32_t, uint32_t)
FY_INT_FORMULAS(i64, int64_t, uint64_t)
FY_INT_FORMULAS(u8, uint8_t, uint32_t)
#undef FY_INT_FORMULAS

/* Division rounds down, as in Python. A quotient and a remainder by 0 are 0; the least number / -1
 * wraps around. Neither is computed by the machine, which would trap. */
#define FY_SIGNED_DIVISION(sfx, T, U)                                        \
    FY_FORMULA T fy__floor_divide_##sfx(T a, T b)                            \
    {                                                                        \
        if (b == 0) return 0;                                                \
        if (b == -1) return (T)((U)0 - (U)a);                                \
        return (T)(a / b - ((a % b != 0) & ((a < 0) != (b < 0))));           \
    }                                                                        \
    FY_FORMULA T fy__remainder_##sfx(T a, T b)                               \
    {                                                                        \
        if (b == 0 || b == -1) return 0;                                     \
        return (T)(a % b + (((a % b != 0) & ((a < 0) != (b < 0))) ? b : 0)); \
    }
FY_SIGNED_DIVISION(i32, int32_t, uint32_t)
FY_SIGNED_DIVISION(i64, int64_t, uint64_t)
#undef FY_SIGNED_DIVISION
FY_FORMULA uint8_t fy__floor_divide_u8(uint8_t a, uint8_t b)
{
    return (uint8_t)(b == 0 ? 0 : a / b);
}
FY_FORMULA uint8_t fy__remainder_u8(uint8_t a, uint8_t b) { return (uint8_t)(b == 0 ? 0 : a % b); }

#endif
