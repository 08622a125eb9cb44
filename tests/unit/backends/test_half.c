/* f16 and bf16 <-> f32 and f64: every half value, and values around every rounding boundary between
 * two of them. */
#include "tests/unit/backends/kernel_fixture.h"

static float next(float x, float to) { return nextafterf(x, to); }

/* The slow, direct definition of sixteen bits. */
static double meaning(unsigned bits, int mantissa_bits, int bias)
{
    const int exponent_bits = 15 - mantissa_bits, top = (1 << exponent_bits) - 1;
    const int exponent = (int)(bits >> mantissa_bits) & top,
              mantissa = (int)bits & ((1 << mantissa_bits) - 1);
    const double sign = bits & 0x8000u ? -1.0 : 1.0;
    if (exponent == top) return mantissa ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0) return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

static void check_widening(const char *name, int mantissa_bits, int bias, float (*widen)(uint16_t),
                           uint16_t (*narrow)(float))
{
    for (unsigned h = 0; h < 65536; h++) {
        const double want = meaning(h, mantissa_bits, bias), got = (double)widen((uint16_t)h);
        if (isnan(want) ? !isnan(got) : got != want)
            fail_msg("%s %04x is %g, want %g", name, h, got, want);
        assert_int_equal(!!signbit(got), h >> 15);
        if (!isnan(want)) assert_int_equal(narrow((float)want), h);
    }
}

TS_TEST(every_f16_widens_exactly)
{
    check_widening("f16", 10, 15, fy__f32_from_f16, fy__f16_from_f32);
}

TS_TEST(every_bf16_widens_exactly)
{
    check_widening("bf16", 7, 127, fy__f32_from_bf16, fy__bf16_from_f32);
}

/* Between neighbours h and h + 1: a value below the middle becomes h, one above becomes h + 1, the
 * middle becomes the even one. */
TS_TEST(f16_rounds_to_nearest_even)
{
    for (unsigned h = 0; h < 0x7c00u; h++) {
        const double low = meaning(h, 10, 15),
                     high = h == 0x7bffu ? 65536.0 : meaning(h + 1, 10, 15),
                     middle = (low + high) / 2;
        const unsigned even = h % 2 ? h + 1 : h;
        for (unsigned sign = 0; sign <= 0x8000u; sign += 0x8000u) {
            const double s = sign ? -1.0 : 1.0;
            const float m = (float)(s * middle);
            assert_int_equal(fy__f16_from_f32(m), even | sign);
            assert_int_equal(fy__f16_from_f32(next(m, 0.0f)), h | sign);
            assert_int_equal(fy__f16_from_f32(next(m, (float)(s * INFINITY))), (h + 1) | sign);
            /* From f64, a hair beside the middle: rounding twice would get these wrong. */
            assert_int_equal(fy__f16_from_f64(s * middle), even | sign);
            assert_int_equal(fy__f16_from_f64(s * nextafter(middle, 0.0)), h | sign);
            assert_int_equal(fy__f16_from_f64(s * nextafter(middle, 1e9)), (h + 1) | sign);
        }
    }
}

TS_TEST(bf16_rounds_to_nearest_even)
{
    for (unsigned h = 0; h < 0x7f80u; h++) {
        for (unsigned sign = 0; sign <= 0x8000u; sign += 0x8000u) {
            const uint32_t base = (uint32_t)(h | sign) << 16;
            const unsigned even = (h % 2 ? h + 1 : h) | sign;
            assert_int_equal(fy__bf16_from_f32(fy__f32_of_bits(base | 0x7fffu)), h | sign);
            assert_int_equal(fy__bf16_from_f32(fy__f32_of_bits(base | 0x8000u)), even);
            assert_int_equal(fy__bf16_from_f32(fy__f32_of_bits(base | 0x8001u)), (h + 1) | sign);
            const double middle = (double)fy__f32_of_bits(base | 0x8000u);
            assert_int_equal(fy__bf16_from_f64(middle), even);
            assert_int_equal(fy__bf16_from_f64(nextafter(middle, 0.0)), h | sign);
            assert_int_equal(fy__bf16_from_f64(nextafter(middle, middle * 2)), (h + 1) | sign);
        }
    }
}

TS_TEST(nan_and_infinity_stay)
{
    const uint32_t nans[] = { 0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu };
    for (size_t i = 0; i < COUNT_OF(nans); i++) {
        const float x = fy__f32_of_bits(nans[i]);
        assert_true(isnan(fy__f32_from_f16(fy__f16_from_f32(x))));
        assert_true(isnan(fy__f32_from_bf16(fy__bf16_from_f32(x))));
        assert_int_equal(fy__f16_from_f32(x) >> 15, nans[i] >> 31);
        assert_int_equal(fy__bf16_from_f32(x) >> 15, nans[i] >> 31);
    }
    assert_int_equal(fy__f16_from_f32(INFINITY), 0x7c00);
    assert_int_equal(fy__bf16_from_f32(-INFINITY), 0xff80);
    assert_int_equal(fy__f16_from_f64(1e300), 0x7c00);
    assert_int_equal(fy__bf16_from_f64(-1e300), 0xff80);
    assert_int_equal(fy__f16_from_f64(1e-300), 0);
    assert_true(isnan(fy__f32_from_f16(fy__f16_from_f64((double)NAN))));
}

#if defined(__FLT16_MANT_DIG__)
TS_TEST(agrees_with_the_compiler)
{
    for (uint64_t bits = 0; bits < (1ull << 32); bits += 4099) {
        const float x = fy__f32_of_bits((uint32_t)bits);
        const _Float16 reference = (_Float16)x;
        uint16_t want;
        memcpy(&want, &reference, sizeof want);
        if (!isnan(x)) assert_int_equal(fy__f16_from_f32(x), want);
    }
}
#endif

TS_TEST(integers_round_once)
{
    /* 2^24 + 2^16 + 1 is just above the middle of two bf16; as an f32 it would be the middle. */
    assert_int_equal(fy__bf16_from_i32((1 << 24) + (1 << 16) + 1), 0x4b81);
    assert_int_equal(fy__bf16_from_i32((1 << 24) + (1 << 16)), 0x4b80);
    /* 2^62 + 2^54 + 1: an f64 does not hold the 1 */
    assert_int_equal(fy__bf16_from_i64((1ll << 62) + (1ll << 54) + 1), 0x5e81);
    assert_int_equal(fy__bf16_from_i64((1ll << 62) + (1ll << 54)), 0x5e80);
    assert_int_equal(fy__bf16_from_i64(INT64_MIN), 0xdf00);
    assert_int_equal(fy__f16_from_i64(2049), 0x6800);
    assert_int_equal(fy__f16_from_i64(2051), 0x6802);
    assert_int_equal(fy__f16_from_i32(-70000), 0xfc00);
}
