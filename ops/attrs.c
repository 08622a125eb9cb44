/* Attributes against the ranges of their fields: for built-in ops those of opset/attrs.def, for
 * registered ops those of the definition.
 * Not here: conditions between fields, or between a field and a shape (the shape rules). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/optable.h"
#include "runtime/base/fail.h"

bool fy__attr_has_range(const fy_attr_field_t *field)
{
    return field->nchoices || field->low != 0 || field->high != 0;
}

static double read_field(const void *attrs, const fy_attr_field_t *field)
{
    const unsigned char *at = (const unsigned char *)attrs + field->offset;
    double real;
    int64_t i64;
    int32_t i32;
    uint32_t u32;
    switch (field->type) {
    case FY_ATTR_F64: return memcpy(&real, at, sizeof real), real;
    case FY_ATTR_I64: return memcpy(&i64, at, sizeof i64), (double)i64;
    case FY_ATTR_AXES32: return memcpy(&u32, at, sizeof u32), (double)u32;
    default: return memcpy(&i32, at, sizeof i32), (double)i32;
    }
}

static FY_COLD fy_status_t refuse(const fy_op_info_t *info, const fy_attr_field_t *field,
                                  double value)
{
    char text[128];
    size_t n = 0;
    if (field->nchoices) {
        for (uint32_t i = 0; i < field->nchoices && n < sizeof text; i++)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%u (%s)", i ? ", " : "",
                                  (unsigned)i, field->choices[i]);
    } else if (isinf(field->high)) {
        snprintf(text, sizeof text, "%s %g%s",
                 field->excludes & 1 ? "numbers above" : "numbers from", field->low,
                 field->excludes & 1   ? ""
                 : field->excludes & 2 ? " on, and finite"
                                       : " on");
    } else {
        snprintf(text, sizeof text, "%g .. %g%s", field->low, field->high,
                 field->excludes & 2 ? ", without the last" : "");
    }
    return FY_FAIL(INVALID_ARGUMENT, "%s: %s is %g, legal are %s%s", info->name, field->name, value,
                   text, value == field->fallback ? "; it has no default" : "");
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
        if (FY_UNLIKELY(!(is_above & is_below))) return refuse(info, field, value);
    }
    return FY_STATUS_OK;
}

fy_status_t fy__attrs_then_rule(const fy_op_info_t *info, fy_launch_t *launch)
{
    FY_TRY(fy__attrs_check(info, launch->attrs));
    return ((const fy__op_row_t *)(const void *)info)->rule(info, launch);
}
