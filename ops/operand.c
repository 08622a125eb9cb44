/* The names of operands; see operand.h. A result that a typed call makes has no name. */
#include "ops/operand.h"

#include <stdio.h>
#include <string.h>

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
