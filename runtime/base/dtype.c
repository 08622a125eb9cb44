/* Names and sizes of dtypes, from the list in types.h, and single values read as doubles. */
#include "runtime/base/dtype.h"

#include <string.h>

const char *fy_dtype_name(fy_dtype_t dtype)
{
    static const char *const names[] = {
#define X(name, text, nbytes, is_float) text,
        FY_DTYPE_LIST(X)
#undef X
    };
    return (unsigned)dtype < FY_DTYPE_COUNT ? names[dtype] : "?";
}

size_t fy_dtype_size(fy_dtype_t dtype)
{
    return (unsigned)dtype < FY_DTYPE_COUNT ? fy__dtype_sizes[dtype] : 0;
}

const uint8_t fy__dtype_sizes[FY_DTYPE_COUNT] = {
#define X(name, text, nbytes, is_float) nbytes,
    FY_DTYPE_LIST(X)
#undef X
};

static double half_value(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits >> 15) << 31, exponent = (bits >> 10) & 31u,
                   mantissa = bits & 1023u;
    uint32_t word;
    float value;
    if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24 */
        value = (float)mantissa * 0x1p-24f;
        return sign ? -(double)value : (double)value;
    }
    word = sign | (exponent == 31 ? 0x7F800000u : (exponent + 112u) << 23) | mantissa << 13;
    memcpy(&value, &word, sizeof value);
    return (double)value;
}

#define READ(type)                             \
    {                                          \
        type value;                            \
        memcpy(&value, element, sizeof value); \
        return (double)value;                  \
    }

double fy__dtype_read_f64(fy_dtype_t dtype, const void *element)
{
    switch (dtype) {
    case FY_DTYPE_F32: READ(float)
    case FY_DTYPE_F64: READ(double)
    case FY_DTYPE_I32: READ(int32_t)
    case FY_DTYPE_I64: READ(int64_t)
    case FY_DTYPE_U8:
    case FY_DTYPE_BOOL: READ(uint8_t)
    case FY_DTYPE_F16: {
        uint16_t bits;
        memcpy(&bits, element, sizeof bits);
        return half_value(bits);
    }
    case FY_DTYPE_BF16: {
        uint16_t upper;
        float value;
        memcpy(&upper, element, sizeof upper);
        const uint32_t word = (uint32_t)upper << 16;
        memcpy(&value, &word, sizeof value);
        return (double)value;
    }
    case FY_DTYPE_COUNT:
    case FY_DTYPE_SAME: break;
    }
    return 0;
}
