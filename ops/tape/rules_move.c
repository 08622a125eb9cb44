/* Gradient rules of what moves elements about: gather, concat, and views.
 * A gather's gradient is a product with the matrix of who took which row: as many operations as a
 * dense product, but any order of equal indices gives the same bits. Not here: reductions, which
 * broadcasting's gradient is. */
#include <string.h>

#include "ops/tape/tape.h"

/* table [R, ...] += onehot(indices)^T g */
fy_status_t fy__back_gather(fy__tape_step_t *s)
{
    const fy_tensor_t *indices = fy__tape_src(s, 1);
    const int64_t *dims, n = (int64_t)indices->nelem;
    int rank;
    fy__tape_shape(s, 0, &rank, &dims);
    int64_t width = 1;
    for (int i = 1; i < rank; i++) width *= dims[i];
    const int64_t column[2] = { n, 1 }, table[2] = { n, width };
    fy_tensor_t *rows, *which, *is_it, *onehot, *flat, *product, *shaped;
    const fy_cast_attrs_t cast = { s->g->dtype };
    FY_TRY(fy_arange(s->g->storage->device, (fy_dtype_t)indices->dtype, 0, 1, dims[0], &rows));
    fy__tape_temp(s, rows);
    FY_TRY(fy__tape_reshape(s, indices, 2, column, &which));
    FY_TRY(fy__tape_op(s, FY_OP_EQ, 2, (const fy_tensor_t *[]){ which, rows }, NULL, &is_it));
    FY_TRY(fy__tape_op(s, FY_OP_CAST, 1, (const fy_tensor_t *[]){ is_it }, &cast, &onehot));
    FY_TRY(fy__tape_reshape(s, s->g, 2, table, &flat));
    const fy_matmul_attrs_t transposed = { 1, 0 };
    FY_TRY(fy__tape_op(s, FY_OP_MATMUL, 2, (const fy_tensor_t *[]){ onehot, flat }, &transposed,
                       &product));
    FY_TRY(fy__tape_reshape(s, product, rank, dims, &shaped));
    return fy__tape_give_tensor(s, 0, shaped);
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
    return fy__tape_give_slice(s, 0, attrs->axis, attrs->begin,
                               attrs->begin + s->g->dims[attrs->axis], s->g);
}

/* g, summed over what was repeated */
static fy_status_t broadcast_back(fy__tape_step_t *s) { return fy__tape_give_tensor(s, 0, s->g); }

const fy__tape_rule_t fy__tape_view_rules[FY__VIEW_KINDS] = {
    [FY__VIEW_RESHAPE] = { .run = reshape_back },
    [FY__VIEW_TRANSPOSE] = { .run = transpose_back },
    [FY__VIEW_SLICE] = { .run = slice_back },
    [FY__VIEW_BROADCAST] = { .run = broadcast_back },
};
