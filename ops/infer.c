/* Questions about an op that is not called: the dtypes and shapes of its results (fy_op_infer), and
 * whether a device has a kernel for it (fy_op_supported). Both use the rules and slots that a call
 * uses: the row's shape rule, the backend's `supports`.
 * Not here: calls (call.c, dispatch.c). */
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "ops/format.h"
#include "ops/kernel.h"
#include "ops/optable.h"
#include "runtime/base/fail.h"
#include "runtime/tensor/tensor.h"

enum { NEAR = 8 }; /* sources that need no block from the heap */

/* ---- descriptors ---- */

fy_status_t fy_tensor_describe(const fy_tensor_t *tensor, fy_desc_t *out_desc)
{
    if (!out_desc) return FY_FAIL(INVALID_ARGUMENT, "tensor_describe: out_desc is NULL");
    *out_desc = (fy_desc_t){ 0 };
    if (!tensor) return FY_FAIL(INVALID_ARGUMENT, "tensor_describe: tensor is NULL");
    if (fy__tensor_is_gone(tensor)) return fy__refuse_gone("tensor_describe", "tensor");
    fy__tensor_desc(tensor, out_desc);
    out_desc->data = NULL;
    return FY_STATUS_OK;
}

/* Checks a descriptor and gives it dense strides and no data. */
static fy_status_t complete(const char *what, const fy_desc_t *given, fy_desc_t *out)
{
    uint64_t nelem, nbytes;
    FY_TRY(
        fy__shape_check(what, (fy_dtype_t)given->dtype, given->rank, given->dims, &nelem, &nbytes));
    *out = (fy_desc_t){ .dtype = given->dtype, .rank = given->rank };
    int64_t stride = 1;
    for (int i = given->rank - 1; i >= 0; i--) {
        out->dims[i] = given->dims[i];
        out->strides[i] = stride;
        stride *= given->dims[i] ? given->dims[i] : 1;
    }
    return FY_STATUS_OK;
}

/* ---- infer ---- */

static fy_status_t infer(const fy__op_row_t *row, size_t nsrc, const fy_desc_t *src,
                         const void *attrs, size_t ndst, fy_desc_t *dst, fy_desc_t *sources)
{
    const fy_op_info_t *info = &row->info;
    fy_desc_t results[FY__OP_DSTS_MAX], made;
    fy_launch_t launch = { .struct_size = sizeof launch,
                           .op = info->op,
                           .nsrc = (uint16_t)nsrc,
                           .ndst = (uint16_t)ndst,
                           .dst = results,
                           .src = sources,
                           .attrs = attrs,
                           .attrs_nbytes = info->attrs_nbytes };
    memset(results, 0, sizeof results);
    for (size_t i = 0; i < nsrc; i++) FY_TRY(complete(info->name, &src[i], &sources[i]));
    for (size_t i = 0; row->given && i < ndst; i++)
        if (row->given >> i & 1) FY_TRY(complete(info->name, &dst[i], &results[i]));
    FY_TRY(row->shape(info, &launch));
    for (size_t i = 0; i < ndst; i++) {
        FY_TRY(complete(info->name, &results[i], &made));
        results[i] = made;
    }
    memcpy(dst, results, ndst * sizeof *dst);
    return FY_STATUS_OK;
}

fy_status_t fy_op_infer(fy_op_t op, size_t nsrc, const fy_desc_t *src, const void *attrs,
                        size_t attrs_nbytes, size_t ndst, fy_desc_t *dst)
{
    const fy__op_row_t *row;
    FY_TRY(fy__op_find_row(op, &row));
    const fy_op_info_t *info = &row->info;
    FY_TRY(fy__op_check_counts(info, nsrc, ndst));
    if ((nsrc && !src) || !dst)
        return FY_FAIL(INVALID_ARGUMENT, "%s: %s is NULL", info->name, dst ? "src" : "dst");
    _Alignas(max_align_t) unsigned char buf[FY_OP_ATTRS_MAX_NBYTES];
    FY_TRY(fy__op_take_attrs(row, nsrc ? src[0].rank : -1, attrs_nbytes, &attrs, buf));
    fy_desc_t near[NEAR], *sources = nsrc <= NEAR ? near : malloc(nsrc * sizeof *sources);
    if (!sources)
        return FY_FAIL(OUT_OF_MEMORY, "%s: no host memory for the descriptors of %zu sources",
                       info->name, nsrc);
    const fy_status_t status = infer(row, nsrc, src, attrs, ndst, dst, sources);
    if (sources != near) free(sources);
    return status;
}

/* ---- supported ---- */

/* The description of operand i; NULL: a registered op has none. A repeated source is the last. */
static const fy_op_operand_t *operand(const fy_op_info_t *info, bool is_dst, size_t i)
{
    const fy_op_operand_t *operands = is_dst ? info->dst : info->src;
    const size_t last = info->nsrc_max == FY_OP_VARIADIC && info->nsrc_min ? info->nsrc_min - 1u
                                                                           : 0;
    if (!operands) return NULL;
    return &operands[!is_dst && info->nsrc_max == FY_OP_VARIADIC && i > last ? last : i];
}

/* One dtype that the set has. */
static int32_t any_of(uint32_t dtypes) { return (int32_t)__builtin_ctz(dtypes); }

/* Checks each dtype against its operand's set, and that operands of dtype T agree. *out_main is T;
 * -1 if no operand given has it. */
static fy_status_t check_dtypes(const fy_op_info_t *info, bool is_dst, size_t count,
                                const fy_dtype_t *dtypes, int32_t *out_main)
{
    *out_main = -1;
    for (size_t i = 0; i < count; i++) {
        const fy_op_operand_t *described = operand(info, is_dst, i);
        const bool is_main = !described || !described->dtypes;
        const uint32_t set = is_main ? info->dtypes : described->dtypes;
        char buf[FY__OPERAND_TEXT_NBYTES];
        if ((unsigned)dtypes[i] >= FY_DTYPE_COUNT || !(set & FY_DTYPE_BIT(dtypes[i])))
            return FY_FAIL(DTYPE_MISMATCH, "%s: %s is %s, it takes %s: Ferry promotes nothing",
                           info->name, fy__operand_format(info->name, is_dst, i, buf),
                           fy_dtype_name(dtypes[i]), FY__DTYPES_TEXT(set));
        if (!is_main || !described) continue;
        if (*out_main >= 0 && *out_main != (int32_t)dtypes[i])
            return FY_FAIL(DTYPE_MISMATCH, "%s: %s is %s, an operand before it %s: fy_cast one",
                           info->name, fy__operand_format(info->name, is_dst, i, buf),
                           fy_dtype_name(dtypes[i]), fy_dtype_name((fy_dtype_t)*out_main));
        *out_main = (int32_t)dtypes[i];
    }
    return FY_STATUS_OK;
}

/* Asks the backend with a launch of scalars. */
static fy_status_t ask(const fy_device_t *device, const fy__op_row_t *row, size_t count,
                       const fy_dtype_t *dtypes, int32_t main, fy_desc_t *sources)
{
    const fy_op_info_t *info = &row->info;
    const fy_backend_t *backend = device->backend;
    fy_desc_t results[FY__OP_DSTS_MAX];
    const size_t nsrc = info->nsrc_max ? count : 0;
    const fy_launch_t launch = { .struct_size = sizeof launch,
                                 .op = info->op,
                                 .nsrc = (uint16_t)nsrc,
                                 .ndst = info->ndst,
                                 .flags = info->flags & FY_OP_ELEMENTWISE ? FY_LAUNCH_DENSE
                                                                          : FY_LAUNCH_CONTIGUOUS,
                                 .dst = results,
                                 .src = sources,
                                 .attrs = row->default_attrs,
                                 .attrs_nbytes = info->attrs_nbytes,
                                 .nelem = 1 };
    for (size_t i = 0; i < nsrc; i++) sources[i] = (fy_desc_t){ .dtype = (int32_t)dtypes[i] };
    for (size_t i = 0; i < info->ndst; i++) {
        const uint32_t set = operand(info, true, i)->dtypes;
        results[i] = (fy_desc_t){ .dtype = !nsrc && i < count ? (int32_t)dtypes[i]
                                           : set              ? any_of(set)
                                           : main >= 0        ? main
                                                              : any_of(info->dtypes) };
    }
    if (!backend->supports || backend->supports(device->dev, &launch)) return FY_STATUS_OK;
    return FY_FAIL(UNSUPPORTED, "%s: %s has no kernel for %s", info->name, device->spec,
                   count ? fy_dtype_name(dtypes[0]) : "it");
}

fy_status_t fy_op_supported(const fy_device_t *device, fy_op_t op, const fy_dtype_t *dtypes,
                            size_t count)
{
    const fy__op_row_t *row;
    int32_t main;
    if (!device) return FY_FAIL(INVALID_ARGUMENT, "op_supported: device is NULL");
    FY_TRY(fy__op_find_row(op, &row));
    const fy_op_info_t *info = &row->info;
    const bool is_dst = info->nsrc_max == 0;
    FY_TRY(fy__op_check_counts(info, is_dst ? 0 : count, is_dst ? count : info->ndst));
    if (count && !dtypes) return FY_FAIL(INVALID_ARGUMENT, "%s: dtypes is NULL", info->name);
    FY_TRY(check_dtypes(info, is_dst, count, dtypes, &main));
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    if (row->nkernels) {
        const fy_op_kernel_t *kernel;
        return fy__kernel_find(row, device, &kernel);
    }
    fy_desc_t near[NEAR], *sources = count <= NEAR ? near : malloc(count * sizeof *sources);
    if (!sources)
        return FY_FAIL(OUT_OF_MEMORY, "%s: no host memory for the descriptors of %zu sources",
                       info->name, count);
    const fy_status_t status = ask(device, row, count, dtypes, main, sources);
    if (sources != near) free(sources);
    return status;
}
