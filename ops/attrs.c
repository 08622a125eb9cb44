/* Attributes against the ranges of their fields: for built-in ops those of opset/attrs.def, for
 * registered ops those of the definition.
 * Not here: conditions between fields, or between a field and a shape (the shape rules). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/format.h"
#include "ops/optable.h"
#include "runtime/base/fail.h"

bool fy__attr_has_range(const fy_attr_field_t *field)
{
    return field->nchoices || field->low != 0 || field->high != 0;
}

/* Of a field that is not F64. */
static int64_t read_integer(const void *attrs, const fy_attr_field_t *field)
{
    const unsigned char *at = (const unsigned char *)attrs + field->offset;
    int64_t i64;
    int32_t i32;
    uint32_t u32;
    switch (field->type) {
    case FY_ATTR_I64: return memcpy(&i64, at, sizeof i64), i64;
    case FY_ATTR_AXES32: return memcpy(&u32, at, sizeof u32), u32;
    default: return memcpy(&i32, at, sizeof i32), i32;
    }
}

static double read_field(const void *attrs, const fy_attr_field_t *field)
{
    double real;
    if (field->type != FY_ATTR_F64) return (double)read_integer(attrs, field);
    return memcpy(&real, (const unsigned char *)attrs + field->offset, sizeof real), real;
}

/* "0 .. 7", "numbers from 1 on", or the choices. */
static void write_range(const fy_attr_field_t *field, char *text, size_t size)
{
    size_t n = 0;
    if (field->nchoices) {
        for (uint32_t i = 0; i < field->nchoices && n < size; i++)
            n += (size_t)snprintf(text + n, size - n, "%s%u (%s)", i ? ", " : "", (unsigned)i,
                                  field->choices[i]);
    } else if (isinf(field->high)) {
        snprintf(text, size, "%s %s%s", field->excludes & 1 ? "numbers above" : "numbers from",
                 FY__NUMBER_TEXT(field->low),
                 field->excludes & 1   ? ""
                 : field->excludes & 2 ? " on, and finite"
                                       : " on");
    } else {
        snprintf(text, size, "%s .. %s%s", FY__NUMBER_TEXT(field->low),
                 FY__NUMBER_TEXT(field->high), field->excludes & 2 ? ", without the last" : "");
    }
}

static FY_COLD fy_status_t refuse(const fy_op_info_t *info, const fy_attr_field_t *field,
                                  const void *attrs)
{
    char range[128], given[FY__NUMBER_TEXT_NBYTES];
    const double value = read_field(attrs, field);
    write_range(field, range, sizeof range);
    if (field->type == FY_ATTR_F64)
        fy__number_format(value, given, sizeof given);
    else
        snprintf(given, sizeof given, "%" PRId64, read_integer(attrs, field));
    return FY_FAIL(INVALID_ARGUMENT, "%s: %s is %s, legal are %s%s", info->name, field->name, given,
                   range,
                   value == field->fallback ? "; there is no default: pass one of these" : "");
}

fy_status_t fy__attrs_check(const fy_op_info_t *info, const void *attrs)
{
    for (uint32_t i = 0; i < info->nfields; i++) {
        const fy_attr_field_t *field = &info->fields[i];
        if (!fy__attr_has_range(field)) continue;
        const double value = read_field(attrs, field), low = field->low,
                     high = field->nchoices ? field->nchoices - 1 : field->high;
        const bool is_above = field->excludes & 1 ? value > low : value >= low,
                   is_below = field->excludes & 2 ? value < high : value <= high;
        if (FY_UNLIKELY(!(is_above & is_below))) return refuse(info, field, attrs);
    }
    return FY_STATUS_OK;
}

fy_status_t fy__attrs_then_rule(const fy_op_info_t *info, fy_launch_t *launch)
{
    FY_TRY(fy__attrs_check(info, launch->attrs));
    return ((const fy__op_row_t *)(const void *)info)->rule(info, launch);
}
