/* Writes shapes, dtypes, numbers and names of operands for error texts. Bounded by the
 * caller's buffer, no heap. Next: who fails with them, shape.c. */
#include "ops/format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- names of operands; a result that a typed call makes has none ---- */

/* Names that say no more than a number does. */
static bool is_plain_name(const char *name)
{
    return !strcmp(name, "x") || !strcmp(name, "a") || !strcmp(name, "b");
}

/* Sources of ops that have nothing but plain ones, and results that the call makes, are
 * numbered. */
const char *fy__operand_name(const char *op, bool is_dst, size_t index)
{
    const fy_op_info_t *info = fy_op_find(op);
    if (!info || !info->src) return NULL;
    if (is_dst) {
        if (index >= info->ndst) return NULL;
        const fy_op_operand_t *dst = &info->dst[index];
        const bool is_plain = info->ndst == 1 || !strcmp(dst->name, "y");
        return is_plain && !(dst->flags & FY_OPERAND_INOUT) ? NULL : dst->name;
    }
    if (index >= info->nsrc_max || info->nsrc_max == FY_OP_VARIADIC) return NULL;
    for (uint32_t i = 0; i < info->nsrc_max; i++)
        if (info->inout || !is_plain_name(info->src[i].name)) return info->src[index].name;
    return NULL;
}

const char *fy__operand_format(const char *op, bool is_dst, size_t index, char *buf)
{
    const char *name = fy__operand_name(op, is_dst, index), *role = is_dst ? "dst" : "src";
    if (name)
        snprintf(buf, FY__OPERAND_TEXT_NBYTES, "%s (%s%zu)", name, role, index);
    else
        snprintf(buf, FY__OPERAND_TEXT_NBYTES, "%s%zu", role, index);
    return buf;
}
