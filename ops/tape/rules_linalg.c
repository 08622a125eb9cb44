/* Gradient rule of matmul. Leading axes that were broadcast are summed. Next: rules_move.c. */
#include <string.h>

#include "ops/tape/tape.h"

/* The product a op b, transposed as asked, for source i: leading axes are g's, or longer than the source's. */
static fy_status_t give_product(fy__tape_step_t *s, uint32_t i, const fy_tensor_t *a, bool transpose_a, const fy_tensor_t *b,
                                bool transpose_b)
{
    const fy_matmul_attrs_t attrs = { transpose_a, transpose_b };
    const fy_tensor_t *src[2] = { a, b };
    const int64_t *own;
    int64_t dims[FY_MAX_RANK];
    int own_rank;
    const int rank = s->g->rank;
    fy__tape_shape(s, i, &own_rank, &own);
    memcpy(dims, s->g->dims, (size_t)(rank - 2) * sizeof *dims);
    memcpy(dims + rank - 2, own + own_rank - 2, 2 * sizeof *dims);
    return fy__tape_give_reduced(s, i, rank, dims, FY_OP_MATMUL, 2, src, &attrs);
}

/* A B: g B^T, A^T g; with A or B transposed, so are their gradients. */
static fy_status_t matmul_back(fy__tape_step_t *s)
{
    const fy_matmul_attrs_t *attrs = s->attrs;
    const bool ta = attrs->transpose_a, tb = attrs->transpose_b;
    const fy_tensor_t *a = fy__tape_src(s, 0), *b = fy__tape_src(s, 1);
    if (fy__tape_wants(s, 0)) FY_TRY(ta ? give_product(s, 0, b, tb, s->g, true) : give_product(s, 0, s->g, false, b, !tb));
    if (fy__tape_wants(s, 1)) FY_TRY(tb ? give_product(s, 1, s->g, true, a, ta) : give_product(s, 1, a, !ta, s->g, false));
    return FY_STATUS_OK;
}
const fy__tape_rule_t fy__tape_rule_matmul = { .run = matmul_back, .src_for = { 2, 1 } };
