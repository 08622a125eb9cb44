/* Gradient rules of what moves elements about: gather, index_add, concat, and views.
 * Not here: reductions, which broadcasting's gradient is. */
#include <string.h>

#include "ops/tape/tape.h"

/* The rows of g, added to those that they come from. Half precision is added in f32. */
fy_status_t fy__back_gather(fy__tape_step_t *s)
{
    const int64_t *dims;
    int rank;
    fy__tape_shape(s, 0, &rank, &dims);
    const fy_gather_backward_attrs_t attrs = { dims[0] };
    const fy_cast_attrs_t to_f32 = { FY_DTYPE_F32 }, back = { s->g->dtype };
    const fy_tensor_t *src[2] = { s->g, fy__tape_src(s, 1) };
    fy_tensor_t *wide, *sums;
    if (s->g->dtype == FY_DTYPE_F32 || s->g->dtype == FY_DTYPE_F64)
        return fy__tape_give(s, 0, FY_OP_GATHER_BACKWARD, 2, src, &attrs);
    FY_TRY(fy__tape_op(s, FY_OP_CAST, 1, src, &to_f32, &wide));
    src[0] = wide;
    FY_TRY(fy__tape_op(s, FY_OP_GATHER_BACKWARD, 2, src, &attrs, &sums));
    return fy__tape_give(s, 0, FY_OP_CAST, 1, (const fy_tensor_t *[]){ sums }, &back);
}

/* x: alpha times the rows of g at the indices; the old value: g */
fy_status_t fy__back_index_add(fy__tape_step_t *s)
{
    const fy_affine_attrs_t scale = { ((const fy_axpy_attrs_t *)s->attrs)->alpha, 0 };
    if (fy__tape_wants(s, 0)) {
        fy_tensor_t *rows;
        FY_TRY(fy__tape_op(s, FY_OP_GATHER, 2, (const fy_tensor_t *[]){ s->g, fy__tape_src(s, 1) },
                           NULL, &rows));
        FY_TRY(fy__tape_give(s, 0, FY_OP_AFFINE, 1, (const fy_tensor_t *[]){ rows }, &scale));
    }
    return fy__tape_give_tensor(s, 2, s->g);
}

/* To each source its part of g. */
fy_status_t fy__back_concat(fy__tape_step_t *s)
{
    const int axis = ((const fy_axis_attrs_t *)s->attrs)->axis;
    int64_t begin = 0;
    for (uint32_t i = 0; i < s->call->nsrc; i++) {
        const int64_t end = begin + s->src[i].extent;
        if (fy__tape_wants(s, i)) {
            fy_tensor_t *part;
            FY_TRY(fy_slice(s->g, axis, begin, end, &part));
            fy__handle_release(&part->handle);
            const fy_status_t status = fy__tape_give_tensor(s, i, part);
            fy__tensor_free(s->thread, part);
            FY_TRY(status);
        }
        begin = end;
    }
    return FY_STATUS_OK;
}

/* g at the indices that were taken */
static fy_status_t put_along(fy__tape_step_t *s, const fy_tensor_t *indices)
{
    const int64_t *dims;
    int rank;
    fy__tape_shape(s, 0, &rank, &dims);
    const fy_take_along_axis_backward_attrs_t attrs = { dims[rank - 1] };
    return fy__tape_give(s, 0, FY_OP_TAKE_ALONG_AXIS_BACKWARD, 2,
                         (const fy_tensor_t *[]){ s->g, indices }, &attrs);
}

fy_status_t fy__back_take_along_axis(fy__tape_step_t *s)
{
    return put_along(s, fy__tape_src(s, 1));
}

fy_status_t fy__back_topk(fy__tape_step_t *s) { return put_along(s, fy__tape_dst(s, 1)); }

/* g with the same axes reversed again */
fy_status_t fy__back_flip(fy__tape_step_t *s)
{
    return fy__tape_give(s, 0, FY_OP_FLIP, 1, (const fy_tensor_t *[]){ s->g }, s->attrs);
}

/* ---- views ---- */

/* g in the source's shape */
static fy_status_t reshape_back(fy__tape_step_t *s)
{
    const int64_t *dims;
    fy_tensor_t *shaped;
    int rank;
    fy__tape_shape(s, 0, &rank, &dims);
    FY_TRY(fy__tape_reshape(s, s->g, rank, dims, &shaped));
    return fy__tape_give_tensor(s, 0, shaped);
}

/* g with its axes put back */
static fy_status_t transpose_back(fy__tape_step_t *s)
{
    const fy__view_attrs_t *attrs = s->attrs;
    int back[FY_MAX_RANK];
    fy_tensor_t *view;
    for (int i = 0; i < s->g->rank; i++) back[attrs->axes[i]] = i;
    FY_TRY(fy_transpose(s->g, back, &view));
    return fy__tape_give_tensor(s, 0, fy__tape_temp(s, view));
}

/* g where the slice is */
static fy_status_t slice_back(fy__tape_step_t *s)
{
    const fy__view_attrs_t *attrs = s->attrs;
    return fy__tape_give_slice(s, 0, attrs->axis, attrs->begin, attrs->step, s->g);
}

/* g, summed over what was repeated */
static fy_status_t broadcast_back(fy__tape_step_t *s) { return fy__tape_give_tensor(s, 0, s->g); }

const fy__tape_rule_t fy__tape_view_rules[FY__VIEW_KINDS] = {
    [FY__VIEW_RESHAPE] = { .run = reshape_back },
    [FY__VIEW_TRANSPOSE] = { .run = transpose_back },
    [FY__VIEW_SLICE] = { .run = slice_back },
    [FY__VIEW_BROADCAST] = { .run = broadcast_back },
};
