/* Typed calls that join, split, reverse or pad tensors, or take elements along an axis: ops, and
 * calls made of others.
 * Views that a call makes for itself are destroyed before it returns.
 * Not here: gather, one_hot, concat (elementwise.c), slices (runtime/tensor/view.c). */
#include <stdlib.h>
#include <string.h>

#include "ops/format.h"
#include "ops/refuse.h"
#include "ops/typed/typed.h"
#include "runtime/tensor/tensor.h"

fy_status_t fy_flip(const fy_tensor_t *src, int naxes, const int *axes, fy_tensor_t **out_dst)
{
    FY__REQUIRE_OUT("flip", out_dst);
    FY__REQUIRE("flip", src);
    fy_flip_attrs_t attrs = { 0 };
    FY_TRY(fy__typed_axes("flip", src, naxes, axes, &attrs.axes));
    return fy__op_new(FY_OP_FLIP, 1, &src, &attrs, out_dst);
}

/* src with `axis` and the last axis exchanged. */
static fy_status_t exchange(fy_tensor_t *src, int axis, fy_tensor_t **out_view)
{
    int axes[FY_MAX_RANK];
    for (int i = 0; i < src->rank; i++) axes[i] = i;
    axes[axis] = src->rank - 1;
    axes[src->rank - 1] = axis;
    return fy_transpose(src, axes, out_view);
}

/* Equal ranks. The op would name the views with their axes exchanged. */
static fy_status_t check_others(const fy_tensor_t *src, const fy_tensor_t *indices, int axis)
{
    fy_desc_t desc[2];
    if (fy__tensor_is_gone(src) || fy__tensor_is_gone(indices))
        return fy__refuse_null("take_along_axis", 2, (const fy_tensor_t *[]){ src, indices });
    FY_TRY(fy_tensor_describe(src, &desc[0]));
    FY_TRY(fy_tensor_describe(indices, &desc[1]));
    if (desc[1].dtype != FY_DTYPE_I32 && desc[1].dtype != FY_DTYPE_I64)
        return FY_FAIL(DTYPE_MISMATCH,
                       "take_along_axis: indices (src1) are %s, they must be i32 or i64: fy_cast "
                       "converts",
                       FY__DESC_TEXT(&desc[1]));
    for (int i = 0; i < src->rank; i++)
        if (i != axis && desc[0].dims[i] != desc[1].dims[i])
            return FY_FAIL(SHAPE_MISMATCH,
                           "take_along_axis: src0 is %s, indices are %s: all dims but that of axis "
                           "%d must be equal",
                           FY__DESC_TEXT(&desc[0]), FY__DESC_TEXT(&desc[1]), axis);
    return FY_STATUS_OK;
}

fy_status_t fy_take_along_axis(fy_tensor_t *src, fy_tensor_t *indices, int axis,
                               fy_tensor_t **out_dst)
{
    FY__REQUIRE_OUT("take_along_axis", out_dst);
    FY__REQUIRE("take_along_axis", src);
    FY__REQUIRE("take_along_axis", indices);
    int32_t along;
    FY_TRY(fy__typed_axis("take_along_axis", src, axis, &along));
    if (along >= src->rank)
        return FY_FAIL(INVALID_ARGUMENT,
                       "take_along_axis: axis %d does not exist in a tensor of rank %d", axis,
                       (int)src->rank);
    if (along == src->rank - 1 || indices->rank != src->rank)
        return fy__op_new(FY_OP_TAKE_ALONG_AXIS, 2, (const fy_tensor_t *[]){ src, indices }, NULL,
                          out_dst);
    FY_TRY(check_others(src, indices, along));
    fy_tensor_t *views[2] = { NULL, NULL }, *taken = NULL;
    fy_status_t status = exchange(src, along, &views[0]);
    if (status == FY_STATUS_OK) status = exchange(indices, along, &views[1]);
    if (status == FY_STATUS_OK)
        status =
            fy__op_new(FY_OP_TAKE_ALONG_AXIS, 2, (const fy_tensor_t *const *)views, NULL, &taken);
    if (status == FY_STATUS_OK) status = exchange(taken, along, out_dst);
    fy_tensor_destroy(views[0]);
    fy_tensor_destroy(views[1]);
    fy_tensor_destroy(taken);
    return fy__fail_in("take_along_axis", status);
}

fy_status_t fy_take_along_axis_backward(const fy_tensor_t *dy, const fy_tensor_t *indices,
                                        int64_t length, fy_tensor_t **out_dx)
{
    const fy_tensor_t *src[2] = { dy, indices };
    const fy_take_along_axis_backward_attrs_t attrs = { length };
    return fy__op_new(FY_OP_TAKE_ALONG_AXIS_BACKWARD, 2, src, &attrs, out_dx);
}

fy_status_t fy_topk(const fy_tensor_t *x, int64_t k, fy_tensor_t **out_values,
                    fy_tensor_t **out_indices)
{
    const fy_topk_attrs_t attrs = { k };
    fy_tensor_t **const outs[2] = { out_values, out_indices };
    if (!out_values || !out_indices) return fy__op_no_out(FY_OP_TOPK);
    return fy__typed_results(FY_OP_TOPK, 1, &x, &attrs, 2, 2, outs);
}

/* The concatenation would name views with one more axis. */
static fy_status_t check_stack(size_t count, const fy_tensor_t *const *src, int axis)
{
    fy_desc_t desc[2];
    for (size_t i = 0; i < count; i++)
        if (!src[i] || fy__tensor_is_gone(src[i])) return fy__refuse_null("stack", count, src);
    const int rank = src[0]->rank;
    FY_TRY(fy_tensor_describe(src[0], &desc[0]));
    for (size_t i = 1; i < count; i++) {
        if (src[i]->storage->device != src[0]->storage->device)
            return fy__refuse_mixed("stack", count, src, 0, NULL);
        FY_TRY(fy_tensor_describe(src[i], &desc[1]));
        if (desc[1].dtype != desc[0].dtype)
            return FY_FAIL(DTYPE_MISMATCH,
                           "stack: src0 is %s, src%zu is %s: Ferry promotes nothing; fy_cast one "
                           "of them",
                           FY__DESC_TEXT(&desc[0]), i, FY__DESC_TEXT(&desc[1]));
        if (desc[1].rank != rank ||
            memcmp(desc[0].dims, desc[1].dims, (size_t)rank * sizeof *desc[0].dims) != 0)
            return FY_FAIL(SHAPE_MISMATCH, "stack: src0 is %s, src%zu is %s: shapes must be equal",
                           FY__DESC_TEXT(&desc[0]), i, FY__DESC_TEXT(&desc[1]));
    }
    if (rank == FY_MAX_RANK)
        return FY_FAIL(INVALID_ARGUMENT, "stack: src0 is %s; a tensor has at most %d axes",
                       FY__DESC_TEXT(&desc[0]), FY_MAX_RANK);
    if (axis < -rank - 1 || axis > rank)
        return FY_FAIL(INVALID_ARGUMENT, "stack: axis %d; it must be in [%d, %d)", axis, -rank - 1,
                       rank + 1);
    return FY_STATUS_OK;
}

fy_status_t fy_stack(size_t count, fy_tensor_t *const *src, int axis, fy_tensor_t **out_dst)
{
    FY__REQUIRE_OUT("stack", out_dst);
    if (count < 1 || count >= FY_OP_VARIADIC)
        return FY_FAIL(INVALID_ARGUMENT, "stack: count is %zu, legal are 1 .. %u", count,
                       FY_OP_VARIADIC - 1);
    FY__REQUIRE("stack", src);
    FY_TRY(check_stack(count, (const fy_tensor_t *const *)src, axis));
    fy_tensor_t **views = calloc(count, sizeof *views);
    if (!views) return FY_FAIL(OUT_OF_MEMORY, "stack: no memory for %zu views on the host", count);
    fy_status_t status = FY_STATUS_OK;
    for (size_t i = 0; i < count && status == FY_STATUS_OK; i++)
        status = fy_unsqueeze(src[i], axis, &views[i]);
    if (status == FY_STATUS_OK)
        status = fy_concat(count, views, axis < 0 ? axis + views[0]->rank : axis, out_dst);
    for (size_t i = 0; i < count; i++) fy_tensor_destroy(views[i]);
    free(views);
    return fy__fail_in("stack", status);
}

/* Whether an axis of that length can be split so. sizes NULL: into equal parts. */
static fy_status_t check_sizes(int64_t length, size_t count, const int64_t *sizes)
{
    int64_t left = length;
    if (!sizes && length % (int64_t)count != 0)
        return FY_FAIL(
            SHAPE_MISMATCH,
            "split: an axis of length %lld is not %zu parts of equal lengths; pass sizes",
            (long long)length, count);
    for (size_t i = 0; i < count && sizes; i++) {
        if (sizes[i] < 0 || sizes[i] > left)
            return FY_FAIL(
                SHAPE_MISMATCH,
                "split: sizes[%zu] is %lld, legal are 0 .. %lld: the sizes before it have "
                "%lld of the axis's length %lld",
                i, (long long)sizes[i], (long long)left, (long long)(length - left),
                (long long)length);
        left -= sizes[i];
    }
    if (sizes && left != 0)
        return FY_FAIL(SHAPE_MISMATCH,
                       "split: the sum of the %zu sizes is %lld, the axis has length %lld", count,
                       (long long)(length - left), (long long)length);
    return FY_STATUS_OK;
}

fy_status_t fy_split(fy_tensor_t *src, int axis, size_t count, const int64_t *sizes,
                     fy_tensor_t **out_views)
{
    FY__REQUIRE("split", out_views);
    if (count < 1 || count > INT32_MAX)
        return FY_FAIL(INVALID_ARGUMENT, "split: count is %zu, legal are 1 .. %d", count,
                       INT32_MAX);
    for (size_t i = 0; i < count; i++) out_views[i] = NULL;
    FY__REQUIRE("split", src);
    int32_t along;
    FY_TRY(fy__typed_axis("split", src, axis, &along));
    if (along >= src->rank)
        return FY_FAIL(INVALID_ARGUMENT, "split: axis %d does not exist in a tensor of rank %d",
                       axis, src->rank);
    FY_TRY(check_sizes(src->dims[along], count, sizes));
    fy_status_t status = FY_STATUS_OK;
    int64_t begin = 0;
    for (size_t i = 0; i < count && status == FY_STATUS_OK; i++) {
        const int64_t end = begin + (sizes ? sizes[i] : src->dims[along] / (int64_t)count);
        status = fy_slice(src, along, begin, end, &out_views[i]);
        begin = end;
    }
    for (size_t i = 0; i < count && status != FY_STATUS_OK; i++) {
        fy_tensor_destroy(out_views[i]);
        out_views[i] = NULL;
    }
    return fy__fail_in("split", status);
}

/* `count` elements along `axis` in src's shape, each the scalar `fill`; NULL if count is 0. */
static fy_status_t edge(const fy_tensor_t *src, fy_tensor_t *fill, int axis, int64_t count,
                        fy_tensor_t **out_view)
{
    int64_t dims[FY_MAX_RANK];
    *out_view = NULL;
    if (count == 0) return FY_STATUS_OK;
    for (int i = 0; i < src->rank; i++) dims[i] = src->dims[i];
    dims[axis] = count;
    return fy_broadcast(fill, src->rank, dims, out_view);
}

/* src between two edges along one axis. */
static fy_status_t pad_axis(const fy_tensor_t *src, fy_tensor_t *fill, int axis, int64_t before,
                            int64_t behind, fy_tensor_t **out_dst)
{
    fy_tensor_t *edges[2] = { NULL, NULL };
    fy_status_t status = edge(src, fill, axis, before, &edges[0]);
    if (status == FY_STATUS_OK) status = edge(src, fill, axis, behind, &edges[1]);
    if (status == FY_STATUS_OK) {
        const fy_tensor_t *parts[3];
        const fy_axis_attrs_t attrs = { axis, 0 };
        size_t n = 0;
        if (edges[0]) parts[n++] = edges[0];
        parts[n++] = src;
        if (edges[1]) parts[n++] = edges[1];
        status = fy__op_new(FY_OP_CONCAT, n, parts, &attrs, out_dst);
    }
    fy_tensor_destroy(edges[0]);
    fy_tensor_destroy(edges[1]);
    return status;
}

fy_status_t fy_pad(const fy_tensor_t *src, const int64_t *begin, const int64_t *end, double value,
                   fy_tensor_t **out_dst)
{
    FY__REQUIRE_OUT("pad", out_dst);
    FY__REQUIRE("pad", src);
    FY__REQUIRE("pad", begin);
    FY__REQUIRE("pad", end);
    if (fy__tensor_is_gone(src)) return fy__refuse_gone("pad", "src");
    int last = -1;
    for (int axis = 0; axis < src->rank; axis++) {
        if (begin[axis] < 0 || end[axis] < 0)
            return FY_FAIL(INVALID_ARGUMENT,
                           "pad: %lld before and %lld behind axis %d; both must be 0 or more",
                           (long long)begin[axis], (long long)end[axis], axis);
        if (begin[axis] > 0 || end[axis] > 0) last = axis;
    }
    if (last < 0)
        return FY_FAIL(INVALID_ARGUMENT,
                       "pad: no axis of the %d grows; one entry of begin or end must be above 0",
                       (int)src->rank);
    fy_fill_attrs_t fits;
    FY_TRY(fy__typed_fill_attrs("pad", (fy_dtype_t)src->dtype, value, &fits));
    fy_tensor_t *fill, *padded = NULL;
    fy_status_t status =
        fy_full(src->storage->device, (fy_dtype_t)src->dtype, 0, NULL, value, &fill);
    for (int axis = 0; axis <= last && status == FY_STATUS_OK; axis++) {
        fy_tensor_t *next = NULL;
        if (begin[axis] == 0 && end[axis] == 0) continue;
        status = pad_axis(padded ? padded : src, fill, axis, begin[axis], end[axis], &next);
        fy_tensor_destroy(padded);
        padded = next;
    }
    fy_tensor_destroy(fill);
    if (status != FY_STATUS_OK) return fy__fail_in("pad", status);
    *out_dst = padded;
    return FY_STATUS_OK;
}
