/* f16 and bf16 as bits in a uint16_t, to and from f32. Exact one way; round to nearest, ties to
 * even, once, the other way.
 * NaN stays NaN (quiet, sign kept), overflow is infinity, subnormals are kept. Written as selects
 * so that loops over them vectorise.
 * Source: F. Giesen, "float_to_half_fast3_rtne" and "half_to_float" (2012, public domain); bf16 is
 * the upper half of an f32. */
#ifndef FERRY_OPSET_FORMULAS_HALF_H_
#define FERRY_OPSET_FORMULAS_HALF_H_

#include "opset/formulas/formula.h"

FY_FORMULA float fy__f32_from_f16(uint16_t half)
{
    const uint32_t shifted = (uint32_t)(half & 0x7fffu) << 13;
    const uint32_t exponent = shifted & 0x0f800000u;
    const uint32_t normal = shifted + 0x38000000u; /* bias 15 -> 127 */
    /* Infinity and NaN: exponent to 255, a NaN becomes quiet. */
    const uint32_t special = (shifted + 0x70000000u) | (shifted > 0x0f800000u ? 0x00400000u : 0u);
    /* Subnormal: 2^-14 * (1 + m) - 2^-14, exact in f32. */
    const uint32_t subnormal =
        fy__bits_of_f32(fy__f32_of_bits(shifted + 0x38800000u) - fy__f32_of_bits(0x38800000u));
    const uint32_t magnitude = exponent == 0x0f800000u ? special
                               : exponent == 0         ? subnormal
                                                       : normal;
    return fy__f32_of_bits(magnitude | (uint32_t)(half & 0x8000u) << 16);
}

FY_FORMULA uint16_t fy__f16_from_f32(float value)
{
    const uint32_t bits = fy__bits_of_f32(value);
    const uint32_t x = bits & 0x7fffffffu;
    const uint32_t special = x > 0x7f800000u ? 0x7e00u : 0x7c00u;
    /* Below 2^-14: adding 0.5 makes the FPU round at f16's last subnormal bit. */
    const uint32_t subnormal = fy__bits_of_f32(fy__f32_of_bits(x) + 0.5f) - 0x3f000000u;
    /* a carry into the exponent is right, up to infinity */
    const uint32_t normal = (x + 0xc8000fffu + ((x >> 13) & 1u)) >> 13;
    const uint32_t magnitude = x >= 0x47800000u ? special : x < 0x38800000u ? subnormal : normal;
    return (uint16_t)(magnitude | (bits >> 16 & 0x8000u));
}

FY_FORMULA float fy__f32_from_bf16(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    return fy__f32_of_bits((bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x00400000u : bits);
}

FY_FORMULA uint16_t fy__bf16_from_f32(float value)
{
    const uint32_t bits = fy__bits_of_f32(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x0040u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* f64 to f32 by rounding to odd: a value that is then rounded to f16 or bf16 equals one rounded
 * once from f64 (Boldo and Melquiond 2008: f32 has at least two bits more than both). */
FY_FORMULA float fy__f32_from_f64_to_odd(double value)
{
    const float near = (float)value;
    uint32_t bits = fy__bits_of_f32(near);
    if ((double)near == value || value != value) return near;
    /* |near| > |value|: one step toward zero */
    if (((double)near > value) == (value > 0.0)) bits -= 1;
    return fy__f32_of_bits(bits | 1u);
}

FY_FORMULA uint16_t fy__f16_from_f64(double value)
{
    return fy__f16_from_f32(fy__f32_from_f64_to_odd(value));
}
FY_FORMULA uint16_t fy__bf16_from_f64(double value)
{
    return fy__bf16_from_f32(fy__f32_from_f64_to_odd(value));
}

#endif
