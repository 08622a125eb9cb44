/* Encoding, decoding and rounding of all eight dtypes by arithmetic on doubles, and the generator
 * of test values.
 * Deliberately slow and direct: it must share no method, and no mistake, with the code under test.
 * See oracle_elementwise.c, which computes on these arrays. */
#include "tests/support/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/harness.h"

typedef struct float_format {
    /* stored bits; exponents of the smallest and the largest normal number */
    int mantissa, min_exponent, max_exponent;
} float_format_t;

static const float_format_t k_formats[FY_DTYPE_COUNT] = {
    [FY_DTYPE_F32] = { 23, -126, 127 },
    [FY_DTYPE_F64] = { 52, -1022, 1023 },
    [FY_DTYPE_F16] = { 10, -14, 15 },
    [FY_DTYPE_BF16] = { 7, -126, 127 },
};

bool ts_is_float(fy_dtype_t dtype)
{
    return dtype == FY_DTYPE_F32 || dtype == FY_DTYPE_F64 || dtype == FY_DTYPE_F16 ||
           dtype == FY_DTYPE_BF16;
}

/* 2^n for |n| <= 1074, remembered: ldexp would take a tenth of the tests' time.
 * For one thread. */
static double power_of_2(int n)
{
    enum { MOST = 1074 };
    static double powers[2 * MOST + 1];
    double *power = &powers[n + MOST];
    if (*power == 0) *power = ldexp(1.0, n);
    return *power;
}

double ts_unit(fy_dtype_t dtype)
{
    return ts_is_float(dtype) ? power_of_2(-k_formats[dtype].mantissa - 1) : 0.0;
}
double ts_unit_compute(fy_dtype_t dtype)
{
    return ts_unit(dtype == FY_DTYPE_F64 ? FY_DTYPE_F64 : FY_DTYPE_F32);
}
double ts_tiny(fy_dtype_t dtype)
{
    return ts_is_float(dtype)
               ? power_of_2(k_formats[dtype].min_exponent - k_formats[dtype].mantissa)
               : 0.0;
}

double ts_round(fy_dtype_t dtype, double x)
{
    if (!ts_is_float(dtype) || dtype == FY_DTYPE_F64 || x == 0.0 || !isfinite(x)) return x;
    const float_format_t *format = &k_formats[dtype];
    int exponent = ilogb(x);
    if (exponent < format->min_exponent) exponent = format->min_exponent;
    if (exponent > format->max_exponent) return copysign(INFINITY, x);
    double step = power_of_2(exponent - format->mantissa);
    double rounded = nearbyint(x / step) * step; /* to nearest even; both steps are exact */
    return fabs(rounded) >= power_of_2(format->max_exponent + 1) ? copysign(INFINITY, x) : rounded;
}

int64_t ts_int_min(fy_dtype_t dtype)
{
    return dtype == FY_DTYPE_I32 ? INT32_MIN : dtype == FY_DTYPE_I64 ? INT64_MIN : 0;
}
int64_t ts_int_max(fy_dtype_t dtype)
{
    return dtype == FY_DTYPE_I32   ? INT32_MAX
           : dtype == FY_DTYPE_I64 ? INT64_MAX
           : dtype == FY_DTYPE_U8  ? 255
                                   : 1;
}

int64_t ts_wrap(fy_dtype_t dtype, uint64_t x)
{
    switch (dtype) {
    case FY_DTYPE_I32: return (int32_t)(uint32_t)x;
    case FY_DTYPE_U8: return (int64_t)(x & 255);
    case FY_DTYPE_BOOL: return x != 0;
    default: return (int64_t)x;
    }
}

/* ---- arrays ---- */

void ts_array_make(ts_array_t *array, fy_dtype_t dtype, int rank, const int64_t *dims)
{
    memset(array, 0, sizeof *array);
    array->dtype = dtype;
    array->rank = rank;
    array->nelem = 1;
    for (int i = 0; i < rank; i++) {
        array->dims[i] = dims[i];
        array->nelem *= (uint64_t)dims[i];
    }
    void *values = calloc(array->nelem + 1, 8);
    assert_non_null(values);
    if (ts_is_float(dtype)) {
        array->f = values;
    } else {
        array->i = values;
    }
}

void ts_array_free(ts_array_t *array)
{
    free(array->f);
    free(array->i);
    array->f = NULL;
    array->i = NULL;
}

void ts_array_move(ts_array_t *dst, uint64_t to, const ts_array_t *src, uint64_t from)
{
    if (dst->f) dst->f[to] = src->f[from];
    if (dst->i) dst->i[to] = src->i[from];
}

double ts_array_get(const ts_array_t *array, uint64_t index)
{
    return array->f ? array->f[index] : (double)array->i[index];
}

/* Sign, exponent and mantissa of a value that the format holds exactly. */
static uint64_t float_bits(const float_format_t *format, double x)
{
    int exponent_bits = format->max_exponent == 15 ? 5 : 8;
    uint64_t sign = signbit(x) ? 1ull << (exponent_bits + format->mantissa) : 0;
    uint64_t top = ((1ull << exponent_bits) - 1) << format->mantissa;
    if (isnan(x)) return top | 1ull << (format->mantissa - 1);
    if (isinf(x)) return sign | top;
    if (x == 0.0) return sign;
    int exponent = ilogb(x);
    if (exponent < format->min_exponent) { /* subnormal: a multiple of the smallest step */
        return sign | (uint64_t)(fabs(x) * power_of_2(format->mantissa - format->min_exponent));
    }
    uint64_t mantissa = (uint64_t)(fabs(x) * power_of_2(format->mantissa - exponent)) -
                        (1ull << format->mantissa);
    return sign | (uint64_t)(exponent - format->min_exponent + 1) << format->mantissa | mantissa;
}

static double float_value(const float_format_t *format, uint64_t bits)
{
    int exponent_bits = format->max_exponent == 15 ? 5 : 8;
    double sign = bits >> (exponent_bits + format->mantissa) & 1 ? -1.0 : 1.0;
    int exponent = (int)(bits >> format->mantissa & ((1u << exponent_bits) - 1));
    double mantissa = (double)(bits & ((1ull << format->mantissa) - 1));
    if (exponent == (1 << exponent_bits) - 1) return mantissa != 0 ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * mantissa * power_of_2(format->min_exponent - format->mantissa);
    return sign * (mantissa + power_of_2(format->mantissa)) *
           power_of_2(exponent - 1 + format->min_exponent - format->mantissa);
}

void ts_encode(const ts_array_t *array, uint64_t index, void *bytes, uint64_t at)
{
    switch (array->dtype) {
    case FY_DTYPE_F64: memcpy((double *)bytes + at, &array->f[index], 8); break;
    case FY_DTYPE_F32: {
        float value = (float)array->f[index];
        memcpy((char *)bytes + 4 * at, &value, 4);
        break;
    }
    case FY_DTYPE_F16:
    case FY_DTYPE_BF16: {
        uint16_t bits =
            (uint16_t)float_bits(&k_formats[array->dtype], ts_round(array->dtype, array->f[index]));
        memcpy((char *)bytes + 2 * at, &bits, 2);
        break;
    }
    case FY_DTYPE_I32: {
        int32_t value = (int32_t)array->i[index];
        memcpy((char *)bytes + 4 * at, &value, 4);
        break;
    }
    case FY_DTYPE_I64: memcpy((char *)bytes + 8 * at, &array->i[index], 8); break;
    default: ((unsigned char *)bytes)[at] = (unsigned char)array->i[index]; break;
    }
}

void ts_decode(ts_array_t *array, uint64_t index, const void *bytes, uint64_t at)
{
    switch (array->dtype) {
    case FY_DTYPE_F64: memcpy(&array->f[index], (const char *)bytes + 8 * at, 8); break;
    case FY_DTYPE_F32: {
        float value;
        memcpy(&value, (const char *)bytes + 4 * at, 4);
        array->f[index] = value;
        break;
    }
    case FY_DTYPE_F16:
    case FY_DTYPE_BF16: {
        uint16_t bits;
        memcpy(&bits, (const char *)bytes + 2 * at, 2);
        array->f[index] = float_value(&k_formats[array->dtype], bits);
        break;
    }
    case FY_DTYPE_I32: {
        int32_t value;
        memcpy(&value, (const char *)bytes + 4 * at, 4);
        array->i[index] = value;
        break;
    }
    case FY_DTYPE_I64: memcpy(&array->i[index], (const char *)bytes + 8 * at, 8); break;
    default: array->i[index] = ((const unsigned char *)bytes)[at]; break;
    }
}

/* ---- values ---- */

uint64_t ts_random_next(ts_random_t *random)
{
    uint64_t z = random->state += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

double ts_random_unit(ts_random_t *random)
{
    return (double)(ts_random_next(random) >> 11) * 0x1p-53;
}
int64_t ts_random_below(ts_random_t *random, int64_t n)
{
    return (int64_t)(ts_random_next(random) % (uint64_t)n);
}

uint64_t ts_seed(uint64_t fallback)
{
    const char *text = getenv("FERRY_SEED");
    if (!text || !*text) text = getenv("FERRY_FIRST");
    return text && *text ? strtoull(text, NULL, 0) : fallback;
}

fy_dtype_t ts_domain_dtype(ts_domain_t domain, fy_dtype_t main_dtype)
{
    switch (domain) {
    case TS_COND: return FY_DTYPE_BOOL;
    case TS_INDEX:
    case TS_RNG: return FY_DTYPE_I64;
    case TS_INDEX32: return FY_DTYPE_I32;
    case TS_PARTS:
    case TS_SCALING: return FY_DTYPE_F64;
    case TS_FULL:
    case TS_FULL_POS: return main_dtype == FY_DTYPE_F64 ? FY_DTYPE_F64 : FY_DTYPE_F32;
    default: return main_dtype;
    }
}

static double draw_float(ts_domain_t domain, int64_t limit, fy_dtype_t dtype, ts_random_t *random)
{
    double unit = ts_random_unit(random);
    switch (domain) {
    case TS_BELOW: return (double)(int64_t)(unit * (double)limit);
    case TS_POS:
    case TS_FULL_POS: return 0.1 + 3.9 * unit;
    case TS_UNIT: return 2 * unit - 1;
    case TS_BIG: return 2000 * unit - 1000;
    case TS_WIDE: return 200 * unit - 100;
    case TS_TIES: return (double)(int)(3 * unit) - 1;
    case TS_NANS: return ts_random_below(random, 5) == 0 ? NAN : 8 * unit - 4;
    case TS_SPECIAL: {
        double tiny = ts_tiny(dtype), normal = ldexp(1.0, k_formats[dtype].min_exponent);
        double top = ldexp(2.0 - 2 * ts_unit(dtype), k_formats[dtype].max_exponent);
        const double values[] = { NAN,    INFINITY, -INFINITY, 0.0, -0.0, tiny, -tiny, 3 * tiny,
                                  normal, top,      -top,      1.0, -1.0, 0.5,  -2.0,  3.0 };
        return values[ts_random_below(random, (int64_t)(sizeof values / sizeof values[0]))];
    }
    case TS_ENDS: {
        const float_format_t *format = &k_formats[dtype];
        const int least = format->min_exponent - format->mantissa;
        const double power =
            ldexp(1.0, least + (int)ts_random_below(random, format->max_exponent - least + 1));
        return (ts_random_below(random, 2) ? -1 - unit : 1 + unit) * power;
    }
    default: return 8 * unit - 4;
    }
}

static int64_t draw_int(ts_domain_t domain, int64_t limit, fy_dtype_t dtype, ts_random_t *random)
{
    if (dtype == FY_DTYPE_BOOL) return ts_random_below(random, 2);
    switch (domain) {
    case TS_INDEX:
    case TS_INDEX32:
    case TS_BELOW: return ts_random_below(random, limit);
    case TS_POS: return 1 + ts_random_below(random, 9);
    case TS_UNIT:
    case TS_TIES:
        return dtype == FY_DTYPE_U8 ? ts_random_below(random, 3) : ts_random_below(random, 3) - 1;
    case TS_ENDS:
    case TS_WIDE: return ts_wrap(dtype, ts_random_next(random));
    case TS_SPECIAL: {
        const int64_t values[] = { 0,
                                   1,
                                   ts_wrap(dtype, UINT64_MAX),
                                   ts_int_min(dtype),
                                   ts_int_max(dtype),
                                   ts_int_max(dtype) - 1,
                                   2,
                                   7 };
        return values[ts_random_below(random, 8)];
    }
    default:
        return dtype == FY_DTYPE_U8 ? ts_random_below(random, 19) : ts_random_below(random, 19) - 9;
    }
}

void ts_array_fill(ts_array_t *array, ts_domain_t domain, int64_t limit, int repeat_axis,
                   ts_random_t *random)
{
    if (domain == TS_RNG) {
        if (array->nelem != 2) return; /* only rows that are refused */
        array->i[0] = 20240607;
        array->i[1] = repeat_axis < 0 ? 0 : array->i[0];
        return;
    }
    if (domain == TS_PARTS) {
        for (uint64_t k = 0; array->f && k < array->nelem; k++) {
            const uint64_t row = repeat_axis < 0 ? k / 3 : 0, column = k % 3;
            array->f[k] = repeat_axis == 1 || column == 0 ? (double)row * (double)limit
                          : column == 1                   ? 0.5 + 0.5 * (double)(row % 3)
                                                          : 0.5 * (double)(row % 3);
        }
        return;
    }
    if (domain == TS_SCALING) {
        const double scale = fabs((double)limit), values[5] = { scale, scale, limit < 0, 3 };
        for (uint64_t k = 0; array->f && k < array->nelem; k++)
            array->f[k] = values[repeat_axis < 0 ? k % 5 : 0];
        return;
    }
    uint64_t inner = 1;
    for (int axis = array->rank - 1; axis > repeat_axis; axis--)
        inner *= (uint64_t)array->dims[axis];
    for (uint64_t k = 0; k < array->nelem; k++) {
        /* equal to the element before it on that axis */
        if (repeat_axis >= 0 && k / inner % (uint64_t)array->dims[repeat_axis] != 0) {
            if (array->f) array->f[k] = array->f[k - inner];
            if (array->i) array->i[k] = array->i[k - inner];
        } else if (array->f) {
            array->f[k] = ts_round(array->dtype, draw_float(domain, limit, array->dtype, random));
        } else {
            array->i[k] = draw_int(domain, limit, array->dtype, random);
        }
    }
}
