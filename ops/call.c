/* fy_op_call: the generic door. Checks arity and attributes, turns negative axes round, and hands
 * over to the dispatcher.
 * Not here: devices, shapes, memory (dispatch.c, shape.c). Typed calls do not use it. */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "ops/format.h"
#include "ops/optable.h"
#include "runtime/base/abi.h"
#include "runtime/base/fail.h"
#include "runtime/tensor/tensor.h"

fy_status_t fy__op_find_row(fy_op_t op, const fy__op_row_t **out_row)
{
    *out_row = fy__op_row(op);
    if (*out_row) return FY_STATUS_OK;
    return FY_FAIL(INVALID_ARGUMENT,
                   "op %" PRIu32 " does not exist: they are numbered 0 .. %" PRIu32
                   "; fy_op_find looks one up by name",
                   op, fy_op_count() - 1);
}

fy_status_t fy__op_check_counts(const fy_op_info_t *info, size_t nsrc, size_t ndst)
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
    const bool is_optional = info->dst &&
                             (info->dst[info->ndst - 1].flags & FY_OPERAND_OPTIONAL) != 0;
    if (ndst != info->ndst && !(is_optional && ndst + 1 == info->ndst))
        return FY_FAIL(INVALID_ARGUMENT, "%s: gives %u results, there is room for %zu (ndst)",
                       info->name, info->ndst, ndst);
    return FY_STATUS_OK;
}

static fy_status_t check_operands(const fy__op_row_t *row, size_t nsrc, fy_tensor_t *const *src,
                                  size_t ndst, fy_tensor_t **dst)
{
    const fy_op_info_t *info = &row->info;
    if (nsrc > 0 && !src)
        return FY_FAIL(INVALID_ARGUMENT, "%s: src is NULL, nsrc is %zu", info->name, nsrc);
    if (!dst) return FY_FAIL(INVALID_ARGUMENT, "%s: dst is NULL, ndst is %zu", info->name, ndst);
    for (size_t i = 0; i < nsrc; i++) {
        if (!src[i])
            return FY_FAIL(INVALID_ARGUMENT, "%s: %s is NULL", info->name,
                           FY__SRC_TEXT(info->name, i));
    }
    for (size_t i = 0; row->given && i < ndst; i++) {
        if (!dst[i] && (row->given >> i & 1))
            return FY_FAIL(INVALID_ARGUMENT,
                           "%s: %s is NULL: the op writes into it, so it must be given", info->name,
                           FY__DST_TEXT(info->name, i));
    }
    return FY_STATUS_OK;
}

/* Turns a negative axis into one counted from the front, in a copy of the attributes in `buf`.
 * *attrs is unchanged if the axis is not negative. */
static fy_status_t normalise_axis(const fy__op_row_t *row, int rank, const void **attrs,
                                  unsigned char *buf)
{
    const size_t offset = row->axis_field - 1;
    int32_t axis;
    memcpy(&axis, (const unsigned char *)*attrs + offset, sizeof axis);
    if (axis >= 0 || rank < 0) return FY_STATUS_OK;
    if (axis < -rank) {
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: axis %" PRId32 " does not exist in src0, whose rank is %d",
                       row->info.name, axis, rank);
    }
    axis += rank;
    if (*attrs != buf) memcpy(buf, *attrs, row->info.attrs_nbytes);
    memcpy(buf + offset, &axis, sizeof axis);
    *attrs = buf;
    return FY_STATUS_OK;
}

/* Attributes of a caller whose header has another version of the struct, by the rules of
 * runtime/base/abi.c: those of a newer one are used as they are, those of an older one are copied
 * to `buf` and completed. */
static FY_COLD fy_status_t read_other(const fy__op_row_t *row, const void **attrs, size_t nbytes,
                                      unsigned char *buf)
{
    const fy_op_info_t *info = &row->info;
    const size_t own = info->attrs_nbytes;
    const unsigned char *bytes = *attrs;
    if (nbytes == 0 || nbytes > FY__ABI_MOST)
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: attrs_nbytes is %zu; give sizeof your attribute struct, which has %zu "
                       "bytes here",
                       info->name, nbytes, own);
    for (size_t i = own; i < nbytes; i++)
        if (bytes[i])
            return FY_FAIL(INVALID_ARGUMENT,
                           "%s: attrs_nbytes is %zu and byte %zu is not 0; this library, Ferry %s, "
                           "knows the first %zu bytes\n  The program was built for a newer Ferry: "
                           "leave its new fields at 0, or install that version",
                           info->name, nbytes, i, FERRY_VERSION, own);
    if (nbytes > own) return FY_STATUS_OK;
    for (uint32_t i = 0; i < info->nfields; i++) {
        const fy_attr_field_t *field = &info->fields[i];
        if (field->offset < nbytes && nbytes < field->offset + fy__attr_nbytes(field->type))
            return FY_FAIL(INVALID_ARGUMENT,
                           "%s: attrs_nbytes is %zu, which ends inside '%s'; give sizeof your "
                           "attribute struct, which has %zu bytes here",
                           info->name, nbytes, field->name, own);
    }
    memcpy(buf, row->default_attrs, own);
    memcpy(buf, bytes, nbytes);
    *attrs = buf;
    return FY_STATUS_OK;
}

fy_status_t fy__op_take_attrs(const fy__op_row_t *row, int rank, size_t nbytes, const void **attrs,
                              unsigned char *buf)
{
    const fy_op_info_t *info = &row->info;
    if (*attrs && info->attrs_nbytes == 0)
        return FY_FAIL(INVALID_ARGUMENT, "%s: takes no attributes: pass NULL", info->name);
    if (!*attrs && nbytes)
        return FY_FAIL(INVALID_ARGUMENT, "%s: attrs is NULL, attrs_nbytes is %zu: pass NULL and 0",
                       info->name, nbytes);
    if (!*attrs)
        *attrs = row->default_attrs;
    else if (FY_UNLIKELY(nbytes != info->attrs_nbytes))
        FY_TRY(read_other(row, attrs, nbytes, buf));
    return row->axis_field ? normalise_axis(row, rank, attrs, buf) : FY_STATUS_OK;
}

fy_status_t fy_op_call(fy_op_t op, size_t nsrc, fy_tensor_t *const *src, const void *attrs,
                       size_t attrs_nbytes, size_t ndst, fy_tensor_t **dst)
{
    const fy__op_row_t *row;
    FY_TRY(fy__op_find_row(op, &row));
    FY_TRY(fy__op_check_counts(&row->info, nsrc, ndst));
    FY_TRY(check_operands(row, nsrc, src, ndst, dst));
    _Alignas(max_align_t) unsigned char buf[FY_OP_ATTRS_MAX_NBYTES];
    FY_TRY(fy__op_take_attrs(row, nsrc ? src[0]->rank : -1, attrs_nbytes, &attrs, buf));
    return fy__dispatch(row, nsrc, (const fy_tensor_t *const *)src, attrs, 0, ndst, dst);
}
