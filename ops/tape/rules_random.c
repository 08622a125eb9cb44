/* Gradient rules of dropout: the same elements are dropped again, from the state before the draw.
 * Draws themselves are constant. */
#include "ops/tape/tape.h"

static fy_status_t drop_again(fy__tape_step_t *s, fy_op_t op)
{
    return fy__tape_give(s, 0, op, 2, (const fy_tensor_t *[]){ s->g, fy__tape_dst(s, 2) },
                         s->attrs);
}

static fy_status_t dropout_back(fy__tape_step_t *s)
{
    return drop_again(s, FY_OP_DROPOUT_BACKWARD);
}
const fy__tape_rule_t fy__tape_rule_dropout = { .run = dropout_back, .last_for = 1 };
static fy_status_t dropout2d_back(fy__tape_step_t *s)
{
    return drop_again(s, FY_OP_DROPOUT2D_BACKWARD);
}
const fy__tape_rule_t fy__tape_rule_dropout2d = { .run = dropout2d_back, .last_for = 1 };
