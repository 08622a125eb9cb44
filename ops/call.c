/* fy_op_call: the generic door. Checks arity and attributes, turns negative axes round, and hands
 * over to the dispatcher.
 * Not here: devices, shapes, memory (dispatch.c, shape.c). Typed calls do not come through here. */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "ops/operand.h"
#include "ops/optable.h"
#include "runtime/base/fail.h"
#include "runtime/tensor/tensor.h"

static fy_status_t check_arity(const fy_op_info_t *info, size_t nsrc, fy_tensor_t *const *src,
                               size_t ndst, fy_tensor_t **dst)
{
    bool variadic = info->nsrc_max == FY_OP_VARIADIC;
    if (nsrc < info->nsrc_min || (!variadic && nsrc > info->nsrc_max) || nsrc >= FY_OP_VARIADIC) {
        if (variadic) {
            return FY_FAIL(INVALID_ARGUMENT, "%s: takes %u to %u sources, got %zu", info->name,
                           info->nsrc_min, FY_OP_VARIADIC - 1, nsrc);
        }
        if (info->nsrc_min == info->nsrc_max)
            return FY_FAIL(INVALID_ARGUMENT, "%s: takes %u sources, got %zu", info->name,
                           info->nsrc_min, nsrc);
        return FY_FAIL(INVALID_ARGUMENT, "%s: takes %u to %u sources, got %zu", info->name,
                       info->nsrc_min, info->nsrc_max, nsrc);
    }
    if (ndst != info->ndst)
        return FY_FAIL(INVALID_ARGUMENT, "%s: gives %u results, there is room for %zu (ndst)",
                       info->name, info->ndst, ndst);
    if (nsrc > 0 && !src)
        return FY_FAIL(INVALID_ARGUMENT, "%s: src is NULL, nsrc is %zu", info->name, nsrc);
    if (!dst) return FY_FAIL(INVALID_ARGUMENT, "%s: dst is NULL, ndst is %zu", info->name, ndst);
    for (size_t i = 0; i < nsrc; i++) {
        if (!src[i])
            return FY_FAIL(INVALID_ARGUMENT, "%s: %s is NULL", info->name,
                           FY__SRC_TEXT(info->name, i));
    }
    for (size_t i = 0; (info->flags & FY_OP_IN_PLACE) && i < ndst; i++) {
        if (!dst[i])
            return FY_FAIL(INVALID_ARGUMENT,
                           "%s: %s is NULL: it writes in place, so every dst must be given",
                           info->name, FY__DST_TEXT(info->name, i));
    }
    return FY_STATUS_OK;
}

/* Turns a negative axis into one counted from the front, in a copy of the attributes in `buf`.
 * *attrs is left alone if there is nothing to do. */
static fy_status_t normalise_axis(const fy__op_row_t *row, const fy_tensor_t *src0,
                                  const void **attrs, unsigned char *buf)
{
    const size_t offset = row->axis_field - 1;
    int32_t axis;
    memcpy(&axis, (const unsigned char *)*attrs + offset, sizeof axis);
    if (axis >= 0 || !src0) return FY_STATUS_OK;
    if (axis < -src0->rank) {
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: axis %" PRId32 " does not exist in src0, whose rank is %d",
                       row->info.name, axis, src0->rank);
    }
    axis += src0->rank;
    memcpy(buf, *attrs, row->info.attrs_nbytes);
    memcpy(buf + offset, &axis, sizeof axis);
    *attrs = buf;
    return FY_STATUS_OK;
}

fy_status_t fy_op_call(fy_op_t op, size_t nsrc, fy_tensor_t *const *src, const void *attrs,
                       size_t ndst, fy_tensor_t **dst)
{
    const fy__op_row_t *row = fy__op_row(op);
    if (!row) {
        return FY_FAIL(INVALID_ARGUMENT,
                       "op %" PRIu32 " does not exist: they are numbered 0 .. %" PRIu32
                       "; fy_op_find looks one up by name",
                       op, fy_op_count() - 1);
    }
    const fy_op_info_t *info = &row->info;
    FY_TRY(check_arity(info, nsrc, src, ndst, dst));
    if (attrs && info->attrs_nbytes == 0)
        return FY_FAIL(INVALID_ARGUMENT, "%s: takes no attributes: pass NULL", info->name);
    if (!attrs) attrs = row->default_attrs;
    _Alignas(max_align_t) unsigned char buf[FY_OP_ATTRS_MAX_NBYTES];
    if (row->axis_field) FY_TRY(normalise_axis(row, nsrc ? src[0] : NULL, &attrs, buf));
    return fy__dispatch(row, nsrc, (const fy_tensor_t *const *)src, attrs, 0, ndst, dst);
}
