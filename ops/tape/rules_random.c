/* Gradient rules of dropout: the same elements are dropped again, from the state before the draw.
 * Draws themselves are constant. */
#include "ops/tape/tape.h"

static fy_status_t drop_again(fy__tape_step_t *s, fy_op_t op)
{
    return fy__tape_give(s, 0, op, 2, (const fy_tensor_t *[]){ s->g, fy__tape_dst(s, 2) },
                         s->attrs);
}

fy_status_t fy__back_dropout(fy__tape_step_t *s) { return drop_again(s, FY_OP_DROPOUT_BACKWARD); }
fy_status_t fy__back_dropout2d(fy__tape_step_t *s)
{
    return drop_again(s, FY_OP_DROPOUT2D_BACKWARD);
}
