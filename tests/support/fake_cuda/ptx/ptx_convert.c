/* cvt: between integers and floating-point numbers. Compiled with -frounding-math. */
#include <math.h>
#include <string.h>

#include "opset/formulas/half.h"
#include "tests/support/fake_cuda/ptx/machine.h"

static int is_float(unsigned type)
{
    return type == PTX_F16 || type == PTX_BF16 || type == PTX_F32 || type == PTX_F64;
}

static int64_t integer_of(unsigned type, uint64_t bits)
{
    switch (type) {
    case PTX_S8: return (int8_t)bits;
    case PTX_U8: return (uint8_t)bits;
    case PTX_S16: return (int16_t)bits;
    case PTX_U16: return (uint16_t)bits;
    case PTX_S32: return (int32_t)bits;
    case PTX_U32: return (uint32_t)bits;
    default: return (int64_t)bits;
    }
}

static double float_of(unsigned type, uint64_t bits)
{
    double wide;
    switch (type) {
    case PTX_F16: return (double)fy__f32_from_f16((uint16_t)bits);
    case PTX_BF16: return (double)fy__f32_from_bf16((uint16_t)bits);
    case PTX_F32: return (double)fy__f32_of_bits((uint32_t)bits);
    default: memcpy(&wide, &bits, sizeof wide); return wide;
    }
}

static uint64_t bits_of_float(unsigned type, double value)
{
    uint64_t wide;
    switch (type) {
    case PTX_F16: return value != value ? 0x7fff : fy__f16_from_f64(value);
    case PTX_BF16: return value != value ? 0x7fff : fy__bf16_from_f64(value);
    case PTX_F32: return value != value ? 0x7fffffff : fy__bits_of_f32((float)value);
    default: memcpy(&wide, &value, sizeof wide); return wide;
    }
}

/* Saturates; NaN is 0, or the lowest number of 64 bits. */
static uint64_t saturated(unsigned from, unsigned to, double x)
{
    const unsigned nbits = ptx_type_nbytes(to) * 8;
    const int is_signed = ptx_type_is_signed(to);
    const double most = ldexp(1.0, (int)nbits - is_signed), least = is_signed ? -most : 0.0;
    if (x != x) return from == PTX_F64 || nbits == 64 ? 1ull << (nbits - 1) : 0;
    if (x >= most) return is_signed ? (1ull << (nbits - 1)) - 1 : UINT64_MAX;
    if (x <= least) return is_signed ? 1ull << (nbits - 1) : 0;
    return is_signed ? (uint64_t)(int64_t)x : (uint64_t)x;
}

static double rounded(unsigned rounding, double x)
{
    return rounding == PTX_RZ   ? trunc(x)
           : rounding == PTX_RM ? floor(x)
           : rounding == PTX_RP ? ceil(x)
                                : nearbyint(x);
}

static uint64_t convert(const ptx_instruction_t *i, uint64_t bits)
{
    const unsigned to = i->type, from = i->from;
    if (is_float(from)) {
        double x = float_of(from, bits);
        if ((i->flags & PTX_INTEGRAL) != 0) x = rounded(i->rounding, x);
        if (!is_float(to)) return saturated(from, to, x);
        if ((i->flags & PTX_SAT) != 0) x = x > 0.0 ? (x < 1.0 ? x : 1.0) : 0.0;
        return bits_of_float(to, x);
    }
    const int64_t value = integer_of(from, bits);
    if (!is_float(to)) return (uint64_t)integer_of(to, (uint64_t)value);
    if (to == PTX_F32) /* rounds once */
        return fy__bits_of_f32(from == PTX_U64 ? (float)(uint64_t)value : (float)value);
    return bits_of_float(to, from == PTX_U64 ? (double)(uint64_t)value : (double)value);
}

void ptx_convert(const ptx_instruction_t *i, uint32_t mask, uint64_t *d, const uint64_t *a,
                 const uint64_t *b)
{
    if ((i->flags & PTX_PAIR) != 0) {
        for (int l = 0; l < PTX_LANES; l++)
            if (mask >> l & 1) d[l] = convert(i, a[l]) << 16 | convert(i, b[l]);
        return;
    }
    const int rounds = i->rounding != PTX_RN && (i->flags & PTX_INTEGRAL) == 0;
    if (i->type > PTX_B8 && i->type <= PTX_B64 && i->from <= PTX_B64 && mask == PTX_ALL_LANES) {
        if (i->from == PTX_U32)
            for (int l = 0; l < PTX_LANES; l++) d[l] = (uint32_t)a[l];
        else if (i->from == PTX_S32)
            for (int l = 0; l < PTX_LANES; l++) d[l] = (uint64_t)(int32_t)a[l];
        else
            for (int l = 0; l < PTX_LANES; l++) d[l] = (uint64_t)integer_of(i->from, a[l]);
        return;
    }
    if (rounds) ptx_set_rounding(i->rounding);
    for (int l = 0; l < PTX_LANES; l++)
        if (mask >> l & 1) d[l] = convert(i, a[l]);
    if (rounds) ptx_set_rounding(PTX_RN);
}
