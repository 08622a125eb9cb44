/* Shape rules of the elementwise ops, broadcasting, and the checks that all rules share.
 * The path where all sources have one shape is on the budget of a tiny add: keep it a handful of
 * instructions, failing code out of line.
 * Next: shape_make.c (fill, random), shape_reduce.c, shape_linalg.c (matmul, gather, concat). */
#include "ops/shape.h"

#include <inttypes.h>

#include "ops/format.h"
#include "runtime/base/fail.h"

/* ---- shared checks ---- */

static inline bool same_dims(const fy_desc_t *a, const fy_desc_t *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++) {
        if (a->dims[i] != b->dims[i]) return false;
    }
    return true;
}

bool fy__same_dims(const fy_desc_t *a, const fy_desc_t *b) { return same_dims(a, b); }

bool fy__has_no_element(const fy_desc_t *desc)
{
    for (int i = 0; i < desc->rank; i++)
        if (desc->dims[i] == 0) return true;
    return false;
}

void fy__shape_like(fy_desc_t *dst, const fy_desc_t *src)
{
    dst->dtype = src->dtype;
    dst->rank = src->rank;
    for (int i = 0; i < src->rank; i++) dst->dims[i] = src->dims[i];
}

static FY_COLD fy_status_t fail_dtype(const fy_op_info_t *info, fy__side_t side, int index,
                                      const fy_desc_t *desc, uint32_t dtypes)
{
    return FY_FAIL(DTYPE_MISMATCH, "%s: %s is %s, it takes %s: Ferry promotes nothing; fy_cast it",
                   info->name,
                   fy__operand_format(info->name, side == FY__DST, (size_t)index,
                                      (char[FY__OPERAND_TEXT_NBYTES]){ 0 }),
                   FY__DESC_TEXT(desc), FY__DTYPES_TEXT(dtypes));
}

static FY_COLD fy_status_t fail_mixed(const fy_op_info_t *info, const fy_launch_t *launch,
                                      int first, int second)
{
    return FY_FAIL(DTYPE_MISMATCH,
                   "%s: %s is %s, %s is %s: Ferry promotes nothing; fy_cast one of them",
                   info->name, FY__SRC_TEXT(info->name, first), FY__DESC_TEXT(&launch->src[first]),
                   FY__SRC_TEXT(info->name, second), FY__DESC_TEXT(&launch->src[second]));
}

fy_status_t fy__check_dtype(const fy_op_info_t *info, fy__side_t side, int index,
                            const fy_desc_t *desc, uint32_t dtypes)
{
    if (FY_LIKELY(dtypes & FY_DTYPE_BIT(desc->dtype))) return FY_STATUS_OK;
    return fail_dtype(info, side, index, desc, dtypes);
}

fy_status_t fy__check_same_dtype(const fy_op_info_t *info, const fy_launch_t *launch, int first,
                                 int second)
{
    if (FY_LIKELY(launch->src[first].dtype == launch->src[second].dtype)) return FY_STATUS_OK;
    return fail_mixed(info, launch, first, second);
}

fy_status_t fy__check_axis(const fy_op_info_t *info, const fy_desc_t *src, int32_t axis)
{
    if (FY_LIKELY(axis >= 0 && axis < src->rank)) return FY_STATUS_OK;
    return FY_FAIL(INVALID_ARGUMENT,
                   "%s: axis %" PRId32 " does not exist in %s, whose rank is %" PRId32, info->name,
                   axis, FY__DESC_TEXT(src), src->rank);
}

/* ---- broadcasting ---- */

static void broadcast_one(fy_desc_t *src, const fy_desc_t *dst)
{
    int missing = dst->rank - src->rank;
    /* from the end: reads i - missing before it is overwritten */
    for (int i = dst->rank - 1; i >= 0; i--) {
        int from = i - missing;
        src->strides[i] = from >= 0 && src->dims[from] == dst->dims[i] ? src->strides[from] : 0;
        src->dims[i] = dst->dims[i];
    }
    src->rank = dst->rank;
}

void fy__broadcast_sources(fy_launch_t *launch)
{
    const fy_desc_t *dst = &launch->dst[0];
    for (int i = 0; i < launch->nsrc; i++) {
        if (!same_dims(&launch->src[i], dst)) broadcast_one(&launch->src[i], dst);
    }
}

static FY_COLD fy_status_t fail_broadcast(const fy_op_info_t *info, const fy_launch_t *launch,
                                          int index, int from_end, int64_t have)
{
    const fy_desc_t *src = &launch->src[index];
    if (index == 1) {
        return FY_FAIL(
            SHAPE_MISMATCH,
            "%s: src0 %s and src1 %s do not broadcast: axis %d (from the end) is %" PRId64
            " against %" PRId64 ", they must be equal or one of them 1",
            info->name, FY__DESC_TEXT(&launch->src[0]), FY__DESC_TEXT(src), -from_end, have,
            src->dims[src->rank - from_end]);
    }
    return FY_FAIL(SHAPE_MISMATCH,
                   "%s: src%d %s does not broadcast with the sources before it: axis %d (from the "
                   "end) is %" PRId64 " against %" PRId64 ", they must be equal or one of them 1",
                   info->name, index, FY__DESC_TEXT(src), -from_end,
                   src->dims[src->rank - from_end], have);
}

/* The general case: shapes differ, or there are none to compare. */
static __attribute__((noinline)) fy_status_t broadcast_shapes(const fy_op_info_t *info,
                                                              fy_launch_t *launch)
{
    fy_desc_t *dst = &launch->dst[0];
    int rank = 0;
    for (int i = 0; i < launch->nsrc; i++)
        rank = launch->src[i].rank > rank ? launch->src[i].rank : rank;
    int64_t dims[FY_MAX_RANK] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    for (int i = 0; i < launch->nsrc; i++) {
        const fy_desc_t *src = &launch->src[i];
        for (int from_end = 1; from_end <= src->rank; from_end++) {
            int64_t *have = &dims[rank - from_end], want = src->dims[src->rank - from_end];
            if (want == *have || want == 1) continue;
            if (*have != 1) return fail_broadcast(info, launch, i, from_end, *have);
            *have = want;
        }
    }
    dst->rank = rank;
    for (int i = 0; i < rank; i++) dst->dims[i] = dims[i];
    fy__broadcast_sources(launch);
    return FY_STATUS_OK;
}

/* dst[0] gets the shape that the `nsrc` sources broadcast to, and they get it too. nsrc > 0; where
 * it is a constant, the compiler needs no loop. */
static inline __attribute__((always_inline)) fy_status_t
elementwise_shape(const fy_op_info_t *info, fy_launch_t *launch, int nsrc)
{
    const fy_desc_t *first = &launch->src[0];
    for (int i = 1; i < nsrc; i++) {
        if (FY_UNLIKELY(!same_dims(first, &launch->src[i]))) return broadcast_shapes(info, launch);
    }
    fy_desc_t *dst = &launch->dst[0];
    dst->rank = first->rank;
    for (int i = 0; i < first->rank; i++) dst->dims[i] = first->dims[i];
    return FY_STATUS_OK;
}

/* ---- rules ---- */

fy_status_t fy__shape_unary(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *src = &launch->src[0];
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, src, info->dtypes));
    launch->dst[0].dtype = src->dtype;
    return elementwise_shape(info, launch, 1);
}

fy_status_t fy__shape_binary(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *a = &launch->src[0], *b = &launch->src[1];
    if (FY_UNLIKELY(a->dtype != b->dtype)) return fail_mixed(info, launch, 0, 1);
    if (FY_UNLIKELY(!(info->dtypes & FY_DTYPE_BIT(a->dtype))))
        return fail_dtype(info, FY__SRC, 0, a, info->dtypes);
    launch->dst[0].dtype = a->dtype;
    return elementwise_shape(info, launch, 2);
}

fy_status_t fy__shape_test(const fy_op_info_t *info, fy_launch_t *launch)
{
    FY_TRY(fy__shape_unary(info, launch));
    launch->dst[0].dtype = FY_DTYPE_BOOL;
    return FY_STATUS_OK;
}

fy_status_t fy__shape_compare(const fy_op_info_t *info, fy_launch_t *launch)
{
    FY_TRY(fy__shape_binary(info, launch));
    launch->dst[0].dtype = FY_DTYPE_BOOL;
    return FY_STATUS_OK;
}

fy_status_t fy__shape_where(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *cond = &launch->src[0];
    if (cond->dtype != FY_DTYPE_BOOL) {
        return FY_FAIL(
            DTYPE_MISMATCH,
            "%s: src0, the condition, is %s and must be bool: compare it (fy_ne) or fy_cast it",
            info->name, FY__DESC_TEXT(cond));
    }
    FY_TRY(fy__check_same_dtype(info, launch, 1, 2));
    FY_TRY(fy__check_dtype(info, FY__SRC, 1, &launch->src[1], info->dtypes));
    launch->dst[0].dtype = launch->src[1].dtype;
    return elementwise_shape(info, launch, 3);
}

fy_status_t fy__shape_cast(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_cast_attrs_t *attrs = launch->attrs;
    FY_TRY(fy__shape_unary(info, launch));
    launch->dst[0].dtype = attrs->dtype;
    return FY_STATUS_OK;
}

bool fy__broadcasts_to(const fy_desc_t *src, const fy_desc_t *dst)
{
    bool fits = src->rank <= dst->rank;
    for (int from_end = 1; fits && from_end <= src->rank; from_end++) {
        int64_t dim = src->dims[src->rank - from_end];
        fits = dim == 1 || dim == dst->dims[dst->rank - from_end];
    }
    return fits;
}

/* Every source must broadcast to the given dst. */
static fy_status_t check_into(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *dst = &launch->dst[0];
    for (int i = 0; i < launch->nsrc; i++) {
        const fy_desc_t *src = &launch->src[i];
        if (FY_LIKELY(same_dims(src, dst))) continue;
        if (!fy__broadcasts_to(src, dst)) {
            return FY_FAIL(SHAPE_MISMATCH,
                           "%s: src%d %s does not broadcast to dst %s, which keeps its shape",
                           info->name, i, FY__DESC_TEXT(src), FY__DESC_TEXT(dst));
        }
    }
    fy__broadcast_sources(launch);
    return FY_STATUS_OK;
}

fy_status_t fy__shape_into(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *dst = &launch->dst[0];
    FY_TRY(fy__check_dtype(info, FY__DST, 0, dst, info->dtypes));
    for (int i = 0; i < launch->nsrc; i++) {
        if (launch->src[i].dtype != dst->dtype) {
            return FY_FAIL(DTYPE_MISMATCH,
                           "%s: src%d is %s, dst is %s: Ferry promotes nothing; fy_cast the source",
                           info->name, i, FY__DESC_TEXT(&launch->src[i]), FY__DESC_TEXT(dst));
        }
    }
    return check_into(info, launch);
}

fy_status_t fy__shape_elementwise(const fy_op_info_t *info, fy_launch_t *launch)
{
    if (info->flags & FY_OP_IN_PLACE) return fy__shape_into(info, launch);
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, &launch->src[0], info->dtypes));
    for (int i = 1; i < launch->nsrc; i++) FY_TRY(fy__check_same_dtype(info, launch, 0, i));
    launch->dst[0].dtype = launch->src[0].dtype;
    return elementwise_shape(info, launch, launch->nsrc);
}
