/* fy_cast, element by element: fy__<to>_from_<from> for every pair that is more than a C
 * conversion.
 * To a narrower float: one rounding to nearest even. Float to integer: truncates, clamps to the
 * range, NaN is 0.
 * Integer to narrower integer: keeps the low bits (integers wrap around). To bool: not equal to 0
 * (NaN is true). bool and u8 hold a byte. */
#ifndef FERRY_OPSET_FORMULAS_CAST_H_
#define FERRY_OPSET_FORMULAS_CAST_H_

#include "opset/formulas/half.h"

/* ---- float to integer ---- */

FY_FORMULA int32_t fy__i32_from_f64(double x)
{
    return x != x ? 0 : x >= 2147483648.0 ? INT32_MAX : x <= -2147483648.0 ? INT32_MIN : (int32_t)x;
}
FY_FORMULA int64_t fy__i64_from_f64(double x)
{
    return x != x                        ? 0
           : x >= 9223372036854775808.0  ? INT64_MAX
           : x <= -9223372036854775808.0 ? INT64_MIN
                                         : (int64_t)x;
}
/* NaN: 0 */
FY_FORMULA uint8_t fy__u8_from_f64(double x)
{
    return (uint8_t)(x >= 255.0 ? 255 : x > 0.0 ? (int32_t)x : 0);
}
FY_FORMULA uint8_t fy__bool_from_f64(double x) { return (uint8_t)(x != 0.0); }

FY_FORMULA int32_t fy__i32_from_f32(float x)
{
    return x != x                ? 0
           : x >= 2147483648.0f  ? INT32_MAX
           : x <= -2147483648.0f ? INT32_MIN
                                 : (int32_t)x;
}
FY_FORMULA int64_t fy__i64_from_f32(float x)
{
    return x != x                         ? 0
           : x >= 9223372036854775808.0f  ? INT64_MAX
           : x <= -9223372036854775808.0f ? INT64_MIN
                                          : (int64_t)x;
}
FY_FORMULA uint8_t fy__u8_from_f32(float x)
{
    return (uint8_t)(x >= 255.0f ? 255 : x > 0.0f ? (int32_t)x : 0);
}
FY_FORMULA uint8_t fy__bool_from_f32(float x) { return (uint8_t)(x != 0.0f); }

/* ---- integer to half: through f64, whose 53 bits are enough after rounding a 64-bit integer to
 * odd ---- */

FY_FORMULA double fy__f64_from_i64_to_odd(int64_t x)
{
    const uint64_t magnitude = x < 0 ? 0u - (uint64_t)x : (uint64_t)x;
    const uint64_t odd = magnitude >> 53 ? (magnitude & ~(uint64_t)0x7ff) |
                                               ((magnitude & 0x7ff) != 0 ? 0x800u : 0u)
                                         : magnitude;
    return x < 0 ? -(double)odd : (double)odd;
}
FY_FORMULA uint16_t fy__f16_from_i64(int64_t x)
{
    return fy__f16_from_f64(fy__f64_from_i64_to_odd(x));
}
FY_FORMULA uint16_t fy__bf16_from_i64(int64_t x)
{
    return fy__bf16_from_f64(fy__f64_from_i64_to_odd(x));
}
FY_FORMULA uint16_t fy__f16_from_i32(int32_t x) { return fy__f16_from_f64((double)x); }
FY_FORMULA uint16_t fy__bf16_from_i32(int32_t x) { return fy__bf16_from_f64((double)x); }

#endif
