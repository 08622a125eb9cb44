/* Which gradients are complete: that of a parameter is, once the backward has gone through the
 * earliest call that uses the parameter. A function that runs again may use any parameter, so it
 * counts as a use of all. Not here: the backward (backward.c). */
#include <stdlib.h>

#include "ops/tape/tape.h"

/* Lists of leaves by call; entries are 1 + an index, 0 ends a list. */
struct fy__tape_ready {
    const fy_backward_options_t *options;
    uint32_t *next;   /* by leaf */
    uint32_t heads[]; /* by call: the leaves whose earliest use it is */
};

static void use(struct fy__tape_ready *ready, bool *is_used, uint32_t leaf, uint32_t call)
{
    if (is_used[leaf]) return;
    is_used[leaf] = true;
    ready->next[leaf] = ready->heads[call];
    ready->heads[call] = leaf + 1;
}

static void use_all(const fy_tape_t *tape, bool *is_used, uint32_t call)
{
    const fy__tape_call_t *record = &tape->calls[call];
    const fy__tape_operand_t *operands = tape->operands + record->first;
    const bool is_again = record->rule == &fy__tape_again_rule;
    for (uint32_t leaf = 0; leaf < tape->nleaves && is_again; leaf++)
        use(tape->ready, is_used, leaf, call);
    for (uint32_t i = 0; i < record->nsrc; i++)
        if (operands[i].value & FY__TAPE_LEAF)
            use(tape->ready, is_used, (operands[i].value & ~FY__TAPE_LEAF) - 1, call);
}

fy_status_t fy__tape_ready_begin(fy_tape_t *tape, const fy_backward_options_t *options)
{
    const size_t heads = tape->ncalls, leaves = tape->nleaves;
    bool *is_used = calloc(leaves + 1, sizeof *is_used);
    tape->ready = calloc(1, sizeof *tape->ready + (heads + leaves) * sizeof(uint32_t));
    if (!is_used || !tape->ready) {
        free(is_used);
        fy__tape_ready_end(tape);
        return FY_FAIL(OUT_OF_MEMORY,
                       "tape_backward: no host memory for the order of %zu gradients", leaves);
    }
    tape->ready->options = options;
    tape->ready->next = tape->ready->heads + heads;
    for (uint32_t call = 0; call < tape->ncalls; call++) use_all(tape, is_used, call);
    free(is_used);
    return FY_STATUS_OK;
}

fy_status_t fy__tape_ready_after(fy__thread_t *thread, fy_tape_t *tape, uint32_t call,
                                 fy__frame_t *frame)
{
    const struct fy__tape_ready *ready = tape->ready;
    fy_status_t status = FY_STATUS_OK;
    for (uint32_t leaf = ready->heads[call]; leaf && status == FY_STATUS_OK;
         leaf = ready->next[leaf - 1]) {
        const fy__tape_slot_t *slot = &tape->leaves[leaf - 1];
        if (!slot->is_present) continue;
        thread->frame = frame; /* what the function makes is the caller's */
        status = ready->options->on_grad(ready->options->user, slot->tensor, slot->grad);
        thread->frame = NULL;
    }
    return status;
}

void fy__tape_ready_end(fy_tape_t *tape)
{
    free(tape->ready);
    tape->ready = NULL;
}
