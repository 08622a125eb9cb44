/* Views: another handle on the same storage with other dims, strides or start. Nothing is
 * submitted. */
#include "runtime/base/fail.h"
#include "runtime/record/tape.h"
#include "runtime/tensor/tensor.h"

/* A handle on src's storage with src's shape, to be changed by the caller. */
static fy_status_t begin(const char *what, const fy_tensor_t *src, fy_tensor_t **out_view)
{
    if (!out_view) return FY_FAIL(INVALID_ARGUMENT, "%s: out_view is NULL", what);
    *out_view = NULL;
    if (!src) return FY_FAIL(INVALID_ARGUMENT, "%s: src is NULL", what);
    if (fy__tensor_is_gone(src)) return fy__refuse_gone(what, "src");
    return FY_STATUS_OK;
}

/* `how`: for the tape; NULL where the kind says all. */
static fy_status_t make(const fy_tensor_t *src, int rank, const int64_t *dims,
                        const int64_t *strides, int64_t offset, fy__view_kind_t kind,
                        const fy__view_attrs_t *how, fy_tensor_t **out_view)
{
    static const fy__view_attrs_t nothing;
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    fy_tensor_t *view = fy__tensor_alloc(thread);
    if (!view) return FY_STATUS_OUT_OF_MEMORY;
    fy__storage_retain(src->storage);
    view->storage = src->storage;
    view->data = (char *)src->data + offset * (int64_t)fy__dtype_sizes[src->dtype];
    fy__tensor_set_strided(view, (fy_dtype_t)src->dtype, rank, dims, strides);
    view->read_only = src->read_only;
    /* not the version that the calls of a graph lead to: without a replay, others have it again */
    view->value = thread->tape ? fy__tensor_seen(src)
                               : atomic_load_explicit(&src->storage->version, memory_order_relaxed);
    const fy_status_t status = FY_UNLIKELY(thread->tape != NULL)
                                   ? fy__tape_view(thread, kind, how ? how : &nothing, src, view)
                                   : FY_STATUS_OK;
    if (status == FY_STATUS_OK)
        *out_view = view;
    else
        fy__tensor_free(thread, view);
    return status;
}

/* A negative axis counts from the end of `count`. */
static fy_status_t check_axis(const char *what, int *axis, int count)
{
    const int given = *axis;
    if (*axis < 0) *axis += count;
    if (*axis >= 0 && *axis < count) return FY_STATUS_OK;
    return FY_FAIL(INVALID_ARGUMENT, "%s: axis %d; it must be in [%d, %d)", what, given, -count,
                   count);
}

fy_status_t fy_reshape(fy_tensor_t *src, int rank, const int64_t *dims, fy_tensor_t **out_view)
{
    char text[128];
    int64_t filled[FY_MAX_RANK] = { 0 }, strides[FY_MAX_RANK];
    uint64_t nelem, nbytes, known = 1;
    int unknown = -1;
    FY_TRY(begin("reshape", src, out_view));
    if (rank < 0 || rank > FY_MAX_RANK || (rank && !dims))
        return FY_FAIL(INVALID_ARGUMENT, "reshape: rank %d with dims %s; a tensor has 0 to %d axes",
                       rank, dims ? "given" : "NULL", FY_MAX_RANK);
    for (int i = 0; i < rank; i++) {
        filled[i] = dims[i];
        if (dims[i] != -1) continue;
        if (unknown >= 0)
            return FY_FAIL(INVALID_ARGUMENT,
                           "reshape: dims[%d] and dims[%d] are both -1; one may be", unknown, i);
        unknown = i;
        filled[i] = 1;
    }
    FY_TRY(fy__shape_check("reshape", (fy_dtype_t)src->dtype, rank, filled, &nelem, &nbytes));
    known = nelem;
    if (unknown >= 0 && known && src->nelem % known == 0) {
        filled[unknown] = (int64_t)(src->nelem / known);
        nelem = src->nelem;
    }
    if (nelem != src->nelem || (unknown >= 0 && !known))
        return FY_FAIL(SHAPE_MISMATCH, "reshape: %s has %llu elements; the new shape %s %llu",
                       fy__tensor_format(src, text, sizeof text), (unsigned long long)src->nelem,
                       unknown >= 0 ? "needs a multiple of" : "has", (unsigned long long)known);
    if (!src->contiguous)
        return FY_FAIL(SHAPE_MISMATCH,
                       "reshape: %s is not contiguous (a transposed, sliced or broadcast view)\n  "
                       "Make a dense copy first: fy_empty and "
                       "fy_copy",
                       fy__tensor_format(src, text, sizeof text));
    for (int64_t i = rank - 1, stride = 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= filled[i] ? filled[i] : 1;
    }
    return make(src, rank, filled, strides, 0, FY__VIEW_RESHAPE, NULL, out_view);
}

fy_status_t fy_transpose(fy_tensor_t *src, const int *axes, fy_tensor_t **out_view)
{
    int64_t dims[FY_MAX_RANK], strides[FY_MAX_RANK];
    fy__view_attrs_t how = { { 0 }, 0, 0, 0 };
    unsigned seen = 0;
    FY_TRY(begin("transpose", src, out_view));
    const int rank = src->rank;
    for (int i = 0; i < rank; i++) {
        int axis = axes ? axes[i] : rank - 1 - i;
        FY_TRY(check_axis("transpose", &axis, rank));
        if (seen >> axis & 1)
            return FY_FAIL(INVALID_ARGUMENT,
                           "transpose: axes names axis %d twice; it must be a permutation", axis);
        seen |= 1u << axis;
        dims[i] = src->dims[axis];
        strides[i] = src->strides[axis];
        how.axes[i] = axis;
    }
    return make(src, rank, dims, strides, 0, FY__VIEW_TRANSPOSE, &how, out_view);
}

static fy_status_t slice(const char *what, fy_tensor_t *src, int axis, int64_t begin_index,
                         int64_t end_index, int64_t step, fy_tensor_t **out_view)
{
    int64_t dims[FY_MAX_RANK], strides[FY_MAX_RANK];
    FY_TRY(begin(what, src, out_view));
    FY_TRY(check_axis(what, &axis, src->rank));
    if (step < 1)
        return FY_FAIL(INVALID_ARGUMENT, "%s: step %lld; it must be 1 or more", what,
                       (long long)step);
    const int64_t length = src->dims[axis];
    const int64_t first = begin_index < 0 ? begin_index + length : begin_index,
                  last = end_index < 0 ? end_index + length : end_index;
    if (first < 0 || last > length || first > last)
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: [%lld, %lld) of axis %d, which has length %lld; 0 <= begin <= end "
                       "<= length must hold",
                       what, (long long)begin_index, (long long)end_index, axis, (long long)length);
    for (int i = 0; i < src->rank; i++) {
        dims[i] = src->dims[i];
        strides[i] = src->strides[i];
    }
    dims[axis] = last > first ? (last - first - 1) / step + 1 : 0;
    if (dims[axis] > 1) strides[axis] *= step; /* else step may be too large for a product */
    const fy__view_attrs_t how = { { 0 }, axis, first, step };
    return make(src, src->rank, dims, strides, first * src->strides[axis], FY__VIEW_SLICE, &how,
                out_view);
}

fy_status_t fy_slice(fy_tensor_t *src, int axis, int64_t begin_index, int64_t end_index,
                     fy_tensor_t **out_view)
{
    return slice("slice", src, axis, begin_index, end_index, 1, out_view);
}

fy_status_t fy_slice_step(fy_tensor_t *src, int axis, int64_t begin_index, int64_t end_index,
                          int64_t step, fy_tensor_t **out_view)
{
    return slice("slice_step", src, axis, begin_index, end_index, step, out_view);
}

fy_status_t fy_broadcast(fy_tensor_t *src, int rank, const int64_t *dims, fy_tensor_t **out_view)
{
    char text[128];
    int64_t strides[FY_MAX_RANK];
    uint64_t nelem, nbytes;
    FY_TRY(begin("broadcast", src, out_view));
    FY_TRY(fy__shape_check("broadcast", (fy_dtype_t)src->dtype, rank, dims, &nelem, &nbytes));
    if (rank < src->rank)
        return FY_FAIL(
            SHAPE_MISMATCH,
            "broadcast: %s cannot become rank %d; the new shape has at least as many axes",
            fy__tensor_format(src, text, sizeof text), rank);
    for (int i = 0; i < rank; i++) {
        const int j = i - (rank - src->rank);
        if (j >= 0 && src->dims[j] != 1 && src->dims[j] != dims[i])
            return FY_FAIL(
                SHAPE_MISMATCH,
                "broadcast: axis %d of %s has length %lld; it must be 1 or the %lld asked for", j,
                fy__tensor_format(src, text, sizeof text), (long long)src->dims[j],
                (long long)dims[i]);
        strides[i] = j >= 0 && src->dims[j] == dims[i] ? src->strides[j] : 0;
    }
    return make(src, rank, dims, strides, 0, FY__VIEW_BROADCAST, NULL, out_view);
}

fy_status_t fy_squeeze(fy_tensor_t *src, int axis, fy_tensor_t **out_view)
{
    char text[128];
    int64_t dims[FY_MAX_RANK], strides[FY_MAX_RANK];
    FY_TRY(begin("squeeze", src, out_view));
    FY_TRY(check_axis("squeeze", &axis, src->rank));
    if (src->dims[axis] != 1)
        return FY_FAIL(SHAPE_MISMATCH,
                       "squeeze: axis %d of %s has length %lld; only an axis of length 1 can go",
                       axis, fy__tensor_format(src, text, sizeof text), (long long)src->dims[axis]);
    for (int i = 0, j = 0; i < src->rank; i++) {
        if (i == axis) continue;
        dims[j] = src->dims[i];
        strides[j++] = src->strides[i];
    }
    return make(src, src->rank - 1, dims, strides, 0, FY__VIEW_RESHAPE, NULL, out_view);
}

fy_status_t fy_unsqueeze(fy_tensor_t *src, int axis, fy_tensor_t **out_view)
{
    int64_t dims[FY_MAX_RANK], strides[FY_MAX_RANK];
    FY_TRY(begin("unsqueeze", src, out_view));
    if (src->rank == FY_MAX_RANK)
        return FY_FAIL(INVALID_ARGUMENT, "unsqueeze: src has rank %d, the most there is",
                       FY_MAX_RANK);
    FY_TRY(check_axis("unsqueeze", &axis, src->rank + 1));
    for (int i = 0, j = 0; i <= src->rank; i++) {
        dims[i] = i == axis ? 1 : src->dims[j];
        strides[i] = i == axis ? 1 : src->strides[j++];
    }
    return make(src, src->rank + 1, dims, strides, 0, FY__VIEW_RESHAPE, NULL, out_view);
}
