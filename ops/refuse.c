/* Texts and tests of refusals around given operands and devices. All of it is off the straight
 * path. */
#include "ops/refuse.h"

#include <stdio.h>
#include <string.h>

#include "ops/format.h"
#include "runtime/base/fail.h"
#include "runtime/tensor/tensor.h"

typedef unsigned long long ull;

/* Writes the call that moves one operand to `target`, with its bytes. `label`: its name in the text
 * if its tensor has no name. */
static void cure(const fy_tensor_t *tensor, const char *label, const fy_device_t *target,
                 char *buffer, size_t size)
{
    const ull nbytes = fy__tensor_nbytes(tensor);
    const char *name = fy__tensor_name(tensor)[0] ? fy__tensor_name(tensor) : label;
    if (tensor->storage->device->is_host)
        snprintf(buffer, size, "%s: fy_tensor_upload(%s, ...) to %s (%llu bytes)", name, name,
                 target->spec, nbytes);
    else if (target->is_host)
        snprintf(buffer, size, "%s: fy_tensor_download (%llu bytes)", name, nbytes);
    else if (tensor->storage->device->backend == target->backend)
        snprintf(buffer, size, "%s: fy_tensor_send(%s, ...) to %s (%llu bytes)", name, name,
                 target->spec, nbytes);
    else
        snprintf(buffer, size,
                 "%s: fy_tensor_download, then fy_tensor_upload to %s (%llu bytes each way)", name,
                 target->spec, nbytes);
}

FY_COLD fy_status_t fy__refuse_null(const char *name, size_t nsrc, const fy_tensor_t *const *src)
{
    for (size_t i = 0; i < nsrc; i++) {
        if (!src[i])
            return FY_FAIL(INVALID_ARGUMENT, "%s: %s is NULL", name, FY__SRC_TEXT(name, i));
        if (fy__tensor_is_gone(src[i])) return fy__refuse_gone(name, FY__SRC_TEXT(name, i));
    }
    return nsrc ? fy__refuse_gone(name, FY__DST_TEXT(name, 0))
                : FY_FAIL(INVALID_ARGUMENT,
                          "%s: %s is NULL or was destroyed; it writes into a given tensor", name,
                          FY__DST_TEXT(name, 0));
}

FY_COLD fy_status_t fy__refuse_named(fy_status_t status, size_t nsrc, const fy_tensor_t *const *src)
{
    char names[256];
    size_t used = 0;
    for (size_t i = 0; i < nsrc && used < sizeof names; i++)
        if (fy__tensor_name(src[i])[0])
            used += (size_t)snprintf(names + used, sizeof names - used, "%s src%zu is '%s'",
                                     used ? "," : "", i, fy__tensor_name(src[i]));
    if (!used) return status;
    const fy_error_t rule = *fy_error_get();
    return fy_error_set(status, rule.file, rule.line, "%s\n  Here%s", rule.text, names);
}

/* The operands of one call, sources first; NULL: not given. */
typedef struct operands {
    size_t nsrc, ndst;
    const fy_tensor_t *const *src;
    fy_tensor_t *const *dst;
} operands_t;

static const fy_tensor_t *operand_at(const operands_t *all, size_t i)
{
    return i < all->nsrc ? all->src[i] : all->dst[i - all->nsrc];
}

static size_t count_on(const operands_t *all, const fy_device_t *device)
{
    size_t count = 0;
    for (size_t i = 0; i < all->nsrc + all->ndst; i++)
        if (operand_at(all, i) && operand_at(all, i)->storage->device == device) count++;
    return count;
}

/* The device that has more operands than any other; NULL: two have as many. */
static const fy_device_t *find_majority(const operands_t *all)
{
    const fy_device_t *best = NULL;
    size_t most = 0;
    bool is_shared = false;
    for (size_t i = 0; i < all->nsrc + all->ndst; i++) {
        if (!operand_at(all, i)) continue;
        const fy_device_t *device = operand_at(all, i)->storage->device;
        const size_t count = count_on(all, device);
        if (device == best || count < most) continue;
        is_shared = best && count == most;
        best = device;
        most = count;
    }
    return is_shared ? NULL : best;
}

/* The first operand on `device`, or the first that is not; SIZE_MAX: there is none. */
static size_t find_operand(const operands_t *all, const fy_device_t *device, bool is_on)
{
    for (size_t i = 0; i < all->nsrc + all->ndst; i++)
        if (operand_at(all, i) && (operand_at(all, i)->storage->device == device) == is_on)
            return i;
    return SIZE_MAX;
}

FY_COLD fy_status_t fy__refuse_mixed(const char *name, size_t nsrc, const fy_tensor_t *const *src,
                                     size_t ndst, fy_tensor_t *const *dst)
{
    const operands_t all = { nsrc, ndst, src, dst };
    char roles[2][FY__OPERAND_TEXT_NBYTES], shapes[2][112], cures[2][208], more[64] = "";
    for (size_t i = 0; i < nsrc + ndst; i++)
        if (operand_at(&all, i) && fy__tensor_is_gone(operand_at(&all, i)))
            return fy__refuse_gone(
                name, fy__operand_format(name, i >= nsrc, i >= nsrc ? i - nsrc : i, roles[0]));
    size_t first = 0;
    while (first < nsrc + ndst && !operand_at(&all, first)) first++;
    const fy_device_t *majority = find_majority(&all);
    const fy_device_t *home = majority              ? majority
                              : first < nsrc + ndst ? operand_at(&all, first)->storage->device
                                                    : NULL;
    const size_t stays = home ? find_operand(&all, home, true) : SIZE_MAX,
                 moves = home ? find_operand(&all, home, false) : SIZE_MAX;
    if (stays == SIZE_MAX || moves == SIZE_MAX)
        return FY_FAIL(INTERNAL, "%s: operands were reported on several devices, but are on one",
                       name);
    const size_t order[2] = { stays < moves ? stays : moves, stays < moves ? moves : stays };
    for (int i = 0; i < 2; i++) {
        const fy_tensor_t *tensor = operand_at(&all, order[i]),
                          *other = operand_at(&all, order[!i]);
        const bool is_dst = order[i] >= nsrc;
        const size_t index = is_dst ? order[i] - nsrc : order[i];
        const char *given = fy__operand_name(name, is_dst, index);
        fy__operand_format(name, is_dst, index, roles[i]);
        cure(tensor, given ? given : roles[i], other->storage->device, cures[i], sizeof cures[i]);
        (void)fy__tensor_format(tensor, shapes[i], sizeof shapes[i]);
    }
    const fy_device_t *devices[2] = { operand_at(&all, order[0])->storage->device,
                                      operand_at(&all, order[1])->storage->device };
    /* then moving another one does not help */
    const bool is_clear = majority && count_on(&all, majority) > 1;
    size_t given = 0;
    for (size_t i = 0; i < nsrc + ndst; i++) given += operand_at(&all, i) != NULL;
    if (is_clear && given - count_on(&all, majority) > 1)
        snprintf(more, sizeof more, ", and %zu more that are not on %s",
                 given - count_on(&all, majority) - 1, majority->spec);
    return FY_FAIL(
        DEVICE_MISMATCH,
        "%s: %s %s is on %s, %s %s is on %s\n  Ferry moves nothing by itself. Move %s%s%s%s", name,
        roles[0], shapes[0], devices[0]->spec, roles[1], shapes[1], devices[1]->spec,
        cures[is_clear ? order[1] == moves : 0], more, is_clear ? "" : ", or ",
        is_clear ? "" : cures[1]);
}

static FY_COLD fy_status_t unlike(const char *name, unsigned index, const fy_tensor_t *dst,
                                  const fy_desc_t *result)
{
    char given[112];
    if (dst->dtype != result->dtype)
        return FY_FAIL(DTYPE_MISMATCH, "%s: %s is %s, but the result is %s", name,
                       FY__DST_TEXT(name, index), fy__tensor_format(dst, given, sizeof given),
                       FY__DESC_TEXT(result));
    return FY_FAIL(
        SHAPE_MISMATCH,
        "%s: %s is %s, but the result is %s\n  Pass a dst of that shape, or NULL for a new tensor",
        name, FY__DST_TEXT(name, index), fy__tensor_format(dst, given, sizeof given),
        FY__DESC_TEXT(result));
}

fy_status_t fy__refuse_unlike(const char *name, unsigned index, const fy_tensor_t *dst,
                              const fy_desc_t *result)
{
    bool same = dst->dtype == result->dtype && dst->rank == result->rank;
    for (int i = 0; same && i < dst->rank; i++) same = dst->dims[i] == result->dims[i];
    return FY_LIKELY(same) ? FY_STATUS_OK : unlike(name, index, dst, result);
}

fy_status_t fy__refuse_unwritable(const char *name, unsigned index, const fy_tensor_t *dst)
{
    return FY_LIKELY(dst->contiguous && !dst->read_only)
               ? FY_STATUS_OK
               : fy__tensor_check_writable(dst, name, FY__DST_TEXT(name, index));
}

static bool same_window(const fy_tensor_t *a, const fy_tensor_t *b)
{
    if (a->data != b->data || a->dtype != b->dtype || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i] || (a->strides[i] != b->strides[i] && a->dims[i] > 1))
            return false;
    return true;
}

/* `role`: what `other` is called. */
static FY_COLD fy_status_t overlapping(const char *name, unsigned index, const fy_tensor_t *dst,
                                       const char *role, const fy_tensor_t *other, bool exactly)
{
    char texts[2][112];
    return FY_FAIL(INVALID_ARGUMENT, "%s: %s %s overlaps %s %s\n  Pass a separate tensor as dst%s",
                   name, FY__DST_TEXT(name, index),
                   fy__tensor_format(dst, texts[0], sizeof texts[0]), role,
                   fy__tensor_format(other, texts[1], sizeof texts[1]),
                   exactly ? ", or into exactly the operand itself" : "");
}

fy_status_t fy__refuse_overlap(const char *name, unsigned index, fy_tensor_t *const *dst,
                               size_t nsrc, const fy_tensor_t *const *src, bool exactly)
{
    for (size_t i = 0; i < nsrc; i++) {
        if (!fy__tensor_overlaps(dst[index], src[i]) ||
            (exactly && same_window(dst[index], src[i])))
            continue;
        return overlapping(name, index, dst[index], FY__SRC_TEXT(name, i), src[i], exactly);
    }
    for (size_t i = 0; i < index; i++) {
        if (dst[i] && fy__tensor_overlaps(dst[index], dst[i]))
            return overlapping(name, index, dst[index], FY__DST_TEXT(name, i), dst[i], false);
    }
    return FY_STATUS_OK;
}

fy_status_t fy__refuse_accumulate(const fy_op_info_t *info, uint32_t accumulate, size_t ndst,
                                  fy_tensor_t *const *dst)
{
    const uint32_t floats = FY_DTYPE_BIT(FY_DTYPE_F32) | FY_DTYPE_BIT(FY_DTYPE_F64) |
                            FY_DTYPE_BIT(FY_DTYPE_F16) | FY_DTYPE_BIT(FY_DTYPE_BF16);
    if (!(info->flags & FY_OP_CAN_ACCUMULATE))
        return FY_FAIL(UNSUPPORTED, "%s cannot add to its result", info->name);
    for (uint32_t rest = accumulate; rest; rest &= rest - 1) {
        const size_t i = (size_t)__builtin_ctz(rest);
        if (i >= ndst || !dst[i])
            return FY_FAIL(INVALID_ARGUMENT, "%s: accumulate asks to add to %s, which is not given",
                           info->name, FY__DST_TEXT(info->name, i));
        if (!(floats & FY_DTYPE_BIT(dst[i]->dtype)))
            return FY_FAIL(DTYPE_MISMATCH, "%s: %s is %s; only floats are added to", info->name,
                           FY__DST_TEXT(info->name, i), fy_dtype_name((fy_dtype_t)dst[i]->dtype));
    }
    return FY_STATUS_OK;
}
