/* Writes shapes, dtypes and numbers for error texts. Bounded by the caller's buffer, no heap. Next:
 * who fails with them, shape.c. */
#include "ops/format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/c_locale.h"

/* Where the next character goes: at most nbytes - 1, so that the terminator always fits. */
static size_t advance(size_t at, int written, size_t nbytes)
{
    size_t next = at + (written > 0 ? (size_t)written : 0);
    return next < nbytes ? next : nbytes - 1;
}

const char *fy__desc_format(const fy_desc_t *desc, char *buf, size_t nbytes)
{
    const char *dtype = fy_dtype_name((fy_dtype_t)desc->dtype);
    if (desc->rank == 0) {
        snprintf(buf, nbytes, "[scalar %s]", dtype);
        return buf;
    }
    size_t at = 0;
    for (int i = 0; i < desc->rank && i < FY_MAX_RANK; i++) {
        at = advance(at,
                     snprintf(buf + at, nbytes - at, "%c%" PRId64, i ? 'x' : '[', desc->dims[i]),
                     nbytes);
    }
    snprintf(buf + at, nbytes - at, " %s]", dtype);
    return buf;
}

const char *fy__dtypes_format(uint32_t dtypes, char *buf, size_t nbytes)
{
    size_t at = 0;
    buf[0] = 0;
    for (int dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        if (!(dtypes & FY_DTYPE_BIT(dtype))) continue;
        at = advance(at,
                     snprintf(buf + at, nbytes - at, "%s%s", at ? " " : "",
                              fy_dtype_name((fy_dtype_t)dtype)),
                     nbytes);
    }
    return buf;
}

const char *fy__number_format(double value, char *buf, size_t nbytes)
{
    int digits = 6;
    if (value == trunc(value) && fabs(value) < 0x1p64) {
        fy__snprintf(buf, nbytes, "%.0f", value);
        return buf;
    }
    do fy__snprintf(buf, nbytes, "%.*g", digits, value);
    while (digits++ < 17 && fy__strtod(buf, NULL) != value);
    return buf;
}
