/* fy_tape_attach: a call on the tape whose result the caller has computed, with the caller's
 * gradient rule. The record is that of a registered op, whose rule lives as long as the call.
 * Not here: how such a rule is called (rules_registered.c). */
#include <stdio.h>
#include <stdlib.h>

#include "ops/dispatch.h"
#include "ops/tape/tape.h"
#include "runtime/base/abi_structs.h"

enum { MOST = 65534 }; /* inputs: as a call counts them */

typedef struct attached {
    fy__tape_user_rule_t user_rule; /* first: a recorded call has its address */
    fy_op_info_t info;
    char name[64];
    void (*destroy)(void *user);
} attached_t;

/* Differs from the rule of registered ops in its address only. */
static fy_status_t back_attached(fy__tape_step_t *step) { return fy__back_registered(step); }

void fy__tape_attached_free(fy__tape_call_t *call)
{
    if (!call->rule || call->rule->run != back_attached) return;
    attached_t *attached = (attached_t *)(void *)call->rule;
    call->rule = NULL; /* a call can be freed twice */
    if (attached->destroy) attached->destroy(attached->user_rule.user);
    free(attached);
}

static fy_status_t check_given(const char *name, fy_backward_fn backward, size_t count,
                               fy_tensor_t *const *inputs, const fy_tensor_t *result)
{
    char text[112];
    if (!backward || (count && !inputs) || !result)
        return FY_FAIL(INVALID_ARGUMENT, "tape_attach: %s: %s is NULL", name,
                       !backward ? "backward"
                       : result  ? "inputs"
                                 : "result");
    if (count > MOST)
        return FY_FAIL(INVALID_ARGUMENT, "tape_attach: %s: %zu inputs; %d at most", name, count,
                       MOST);
    for (size_t i = 0; i < count; i++) {
        if (!inputs[i])
            return FY_FAIL(INVALID_ARGUMENT, "tape_attach: %s: inputs[%zu] is NULL", name, i);
        if (fy__tensor_is_gone(inputs[i])) return fy__refuse_gone("tape_attach", "an input");
    }
    if (fy__tensor_is_gone(result)) return fy__refuse_gone("tape_attach", "the result");
    if (!fy__tape_is_float(result->dtype))
        return FY_FAIL(DTYPE_MISMATCH,
                       "tape_attach: %s: the result %s has no gradient: only "
                       "floats do",
                       name, fy__tensor_format(result, text, sizeof text));
    return FY_STATUS_OK;
}

/* A result that the tape has recorded would have two gradient rules. */
static fy_status_t check_result(const fy_tape_t *tape, const char *name, const fy_tensor_t *result)
{
    char text[112];
    const uint32_t value = fy__tape_find(tape, result);
    if (!value || fy__tape_slot(tape, value)->is_leaf) return FY_STATUS_OK; /* fy__tape_before */
    return FY_FAIL(
        INVALID_ARGUMENT,
        "tape_attach: %s: the tape has recorded the calls that computed %s\n  Compute it "
        "in an inner scope, after fy_tape_begin(NULL)",
        name, fy__tensor_format(result, text, sizeof text));
}

static attached_t *make(const char *name, fy_backward_fn backward, void *user, size_t count,
                        const fy_attach_options_t *options)
{
    attached_t *attached = calloc(1, sizeof *attached);
    if (!attached) return NULL;
    snprintf(attached->name, sizeof attached->name, "%s", name);
    attached->info = (fy_op_info_t){ .struct_size = sizeof attached->info,
                                     .name = attached->name,
                                     .nsrc_min = (uint16_t)count,
                                     .nsrc_max = (uint16_t)count,
                                     .ndst = 1 };
    attached->user_rule = (fy__tape_user_rule_t){ .rule = { .run = back_attached,
                                                            .saved_srcs = options->saved_srcs,
                                                            .saved_dsts = options->saved_dsts },
                                                  .info = &attached->info,
                                                  .backward = backward,
                                                  .user = user };
    return attached;
}

/* *out_is_recorded: the tape has `attached`. */
static fy_status_t record(fy__thread_t *thread, attached_t *attached, size_t count,
                          fy_tensor_t *const *inputs, fy_tensor_t *result, bool *out_is_recorded)
{
    fy_tape_t *tape = thread->tape;
    const uint32_t ncalls = tape->ncalls;
    bool is_noted;
    const fy__op_row_t row = { .info = attached->info, .gradient = &attached->user_rule.rule };
    FY_TRY(fy__tape_before(thread, tape, &row, count, (const fy_tensor_t *const *)inputs, NULL, 1,
                           &result, &is_noted));
    if (is_noted) fy__tape_kept(thread, tape, &result);
    *out_is_recorded = tape->ncalls > ncalls; /* else at most a constant was written */
    return FY_STATUS_OK;
}

fy_status_t fy_tape_attach(fy_backward_fn backward, void *user, size_t count,
                           fy_tensor_t *const *inputs, fy_tensor_t *result,
                           const fy_attach_options_t *options)
{
    fy__thread_t *thread = fy__thread();
    fy_attach_options_t own = FY_ATTACH_OPTIONS_INIT;
    attached_t *attached = NULL;
    bool is_recorded = false;
    fy_status_t status = thread ? FY__READ(attach_options, "tape_attach", options, &own)
                                : FY_STATUS_OUT_OF_MEMORY;
    const char *name = own.name ? own.name : "attached";
    if (status == FY_STATUS_OK) status = check_given(name, backward, count, inputs, result);
    if (status == FY_STATUS_OK && thread->tape) {
        status = check_result(thread->tape, name, result);
        if (status == FY_STATUS_OK && !(attached = make(name, backward, user, count, &own)))
            status = FY_FAIL(OUT_OF_MEMORY, "tape_attach: %s: no host memory for %zu bytes", name,
                             sizeof *attached);
        if (status == FY_STATUS_OK)
            status = record(thread, attached, count, inputs, result, &is_recorded);
    }
    if (status == FY_STATUS_OK && is_recorded) {
        attached->destroy = own.destroy;
        return status;
    }
    free(attached);
    if (own.destroy) own.destroy(user);
    return status;
}
