/* Activation checkpointing: a function whose record is dropped, and made again in the backward. It
 * is one call on the tape, with the function's inputs as sources and its result. On the way back
 * the function is recorded behind that call, its new result takes over the gradient, and the new
 * calls are gone back through. Not here: the way back itself (backward.c). */
#include <stdlib.h>
#include <string.h>

#include "ops/tape/tape.h"
#include "runtime/base/abi_structs.h"
#include "runtime/thread/scope.h"

/* A constant that the function read and did not make. */
typedef struct read {
    fy_tensor_t *tensor; /* a handle of ours, in no scope */
    uint64_t version;    /* of its bytes when the function read them first */
} read_t;

struct fy__tape_again {
    fy__tape_again_t *outer; /* while the function runs: the one in whose function; or NULL */
    fy_recompute_fn fn;
    void *user;
    void (*destroy)(void *user);
    size_t ninputs, nstates;
    uint32_t depth; /* of the scope in which fn runs */
    fy_dtype_t autocast;
    /* all ours, in no scope: handles on inputs and states, and copies of the states before fn */
    fy_tensor_t **inputs, **states, **before;
    uint64_t *versions; /* of the inputs' bytes */
    read_t *reads;
    uint32_t nreads, reads_room;
    bool has_run;
};

const fy__tape_rule_t fy__tape_again_rule = { .run = NULL };

static void free_tensors(fy__thread_t *thread, size_t count, fy_tensor_t **tensors)
{
    for (size_t i = 0; tensors && i < count; i++)
        if (tensors[i]) fy__tensor_free(thread, tensors[i]);
}

static void free_again(fy__thread_t *thread, fy__tape_again_t *again)
{
    free_tensors(thread, again->ninputs, again->inputs);
    free_tensors(thread, again->nstates, again->states);
    free_tensors(thread, again->nstates, again->before);
    for (uint32_t i = 0; i < again->nreads; i++) fy__tensor_free(thread, again->reads[i].tensor);
    if (again->destroy) again->destroy(again->user);
    free(again->inputs);
    free(again->versions);
    free(again->reads);
    free(again);
}

static fy__tape_again_t **again_of(const fy_tape_t *tape, const fy__tape_call_t *call)
{
    return (fy__tape_again_t **)(void *)(tape->attrs + call->attrs);
}

void fy__tape_again_free(fy__thread_t *thread, fy_tape_t *tape, const fy__tape_call_t *call)
{
    if (call->rule != &fy__tape_again_rule) return;
    fy__tape_again_t **again = again_of(tape, call);
    if (*again) free_again(thread, *again);
    *again = NULL;
}

uint64_t fy__tape_again_saved(const fy_tape_t *tape, const fy__tape_call_t *call)
{
    const fy__tape_again_t *again = call->rule == &fy__tape_again_rule ? *again_of(tape, call)
                                                                       : NULL;
    return again ? again->ninputs + again->nstates + again->nreads : 0;
}

static bool is_state(const fy__tape_again_t *again, const fy_tensor_t *tensor)
{
    for (size_t i = 0; i < again->nstates; i++)
        if (again->states[i]->storage == tensor->storage) return true;
    return false;
}

fy_status_t fy__tape_check_state(const fy__thread_t *thread, const fy_tape_t *tape,
                                 const char *what, const fy_tensor_t *dst)
{
    char text[112];
    const fy__tape_again_t *again = tape->again;
    while (again && (is_state(again, dst) || fy__scope_has(thread, again->depth, &dst->handle)))
        again = again->outer;
    if (!again) return FY_STATUS_OK;
    return FY_FAIL(UNSUPPORTED,
                   "%s: it updates %s inside fy_tape_recompute, whose function runs twice\n  "
                   "Name the tensor in options.states",
                   what, fy__tensor_format(dst, text, sizeof text));
}

/* ---- what the function reads besides its inputs ---- */

/* Another thread may own the scope of `tensor`, so its ring is not read. */
static bool is_made(const fy__thread_t *thread, const fy__tape_again_t *again,
                    const fy_tensor_t *tensor)
{
    for (uint32_t i = again->depth; i <= thread->depth; i++)
        if (fy__handle_is_inside(&thread->frames[i - 1], &tensor->handle)) return true;
    return false;
}

static bool is_read(const fy__tape_again_t *again, const fy_tensor_t *tensor)
{
    for (uint32_t i = again->nreads; i-- > 0;)
        if (again->reads[i].tensor->storage == tensor->storage) return true;
    return false;
}

fy_status_t fy__tape_read_again(const fy_tape_t *tape, const fy_tensor_t *tensor)
{
    fy__thread_t *thread = fy__thread();
    if (fy__tensor_is_gone(tensor)) return FY_STATUS_OK;
    for (fy__tape_again_t *again = tape->again; again; again = again->outer) {
        if (again->has_run || is_state(again, tensor) || is_read(again, tensor) ||
            is_made(thread, again, tensor))
            continue;
        FY_TRY(fy__tape_grow((void **)&again->reads, &again->reads_room, again->nreads, 1,
                             sizeof *again->reads));
        fy_tensor_t *held = fy__tape_hold(thread, tensor);
        if (!held) return FY_STATUS_OUT_OF_MEMORY;
        again->reads[again->nreads++] =
            (read_t){ held, fy__recording_version(thread, tensor->storage) };
    }
    return FY_STATUS_OK;
}

/* The function has run: keeps constants that it did not make. Bytes without another owner it cannot
 * read again. */
static void end_reads(fy__thread_t *thread, fy__tape_again_t *again, const fy_tensor_t *result)
{
    for (uint32_t i = again->nreads; i-- > 0;) {
        read_t *read = &again->reads[i];
        const fy__storage_t *storage = read->tensor->storage;
        if (atomic_load_explicit(&storage->refs, memory_order_acquire) > 1 &&
            !(result && result->storage == storage))
            continue;
        fy__tensor_free(thread, read->tensor);
        *read = again->reads[--again->nreads];
    }
    again->has_run = true;
}

static fy_status_t copy_states(fy__thread_t *thread, const fy__tape_again_t *again,
                               fy_tensor_t **out_copies)
{
    for (size_t i = 0; i < again->nstates; i++)
        FY_TRY(fy__tape_copy(thread, again->states[i], &out_copies[i]));
    return FY_STATUS_OK;
}

static fy_status_t set_states(const fy__tape_again_t *again, fy_tensor_t *const *values)
{
    fy_status_t status = FY_STATUS_OK;
    for (size_t i = 0; i < again->nstates; i++) {
        const fy_status_t set = fy_copy(again->states[i], values[i]);
        if (status == FY_STATUS_OK) status = set;
    }
    return status;
}

/* A handle that stands for the same value on the tape. */
static fy_tensor_t *hold_valued(fy__thread_t *thread, const fy_tensor_t *tensor)
{
    fy_tensor_t *held = fy__tape_hold(thread, tensor);
    if (!held) return NULL;
    held->valued = tensor->valued;
    held->value = tensor->value;
    return held;
}

static fy_status_t fill_again(fy__thread_t *thread, fy__tape_again_t *again,
                              fy_tensor_t *const *inputs, fy_tensor_t *const *states)
{
    for (size_t i = 0; i < again->ninputs; i++) {
        if (!(again->inputs[i] = hold_valued(thread, inputs[i]))) return FY_STATUS_OUT_OF_MEMORY;
        again->versions[i] = fy__recording_version(thread, inputs[i]->storage);
    }
    for (size_t i = 0; i < again->nstates; i++)
        if (!(again->states[i] = fy__tape_hold(thread, states[i]))) return FY_STATUS_OUT_OF_MEMORY;
    return copy_states(thread, again, again->before);
}

/* Takes over user, but not after a failure. */
static fy_status_t make_again(fy__thread_t *thread, fy_recompute_fn fn, void *user, size_t count,
                              fy_tensor_t *const *inputs, const fy_recompute_options_t *options,
                              fy__tape_again_t **out_again)
{
    const size_t room = count + 2 * options->nstates;
    fy__tape_again_t *again = calloc(1, sizeof *again);
    fy_tensor_t **tensors = calloc(room ? room : 1, sizeof *tensors);
    uint64_t *versions = calloc(count ? count : 1, sizeof *versions);
    if (!again || !tensors || !versions) {
        free(again);
        free(tensors);
        free(versions);
        return FY_FAIL(OUT_OF_MEMORY, "tape_recompute: no host memory for %zu inputs and states",
                       count + options->nstates);
    }
    *again = (fy__tape_again_t){ .fn = fn,
                                 .user = user,
                                 .ninputs = count,
                                 .nstates = options->nstates,
                                 .autocast = thread->autocast,
                                 .inputs = tensors,
                                 .states = tensors + count,
                                 .before = tensors + count + options->nstates,
                                 .versions = versions };
    const fy_status_t status = fill_again(thread, again, inputs, options->states);
    if (status != FY_STATUS_OK) {
        free_again(thread, again);
        return status;
    }
    again->destroy = options->destroy;
    *out_again = again;
    return FY_STATUS_OK;
}

/* ---- calling the function ---- */

/* A result that the function did not make gets a new handle: a view. */
static fy_status_t own_result(const fy__thread_t *thread, uint32_t depth, fy_tensor_t **result)
{
    fy_tensor_t *y = *result;
    if (!y) return FY_FAIL(INVALID_ARGUMENT, "tape_recompute: the function gave no result");
    if (fy__tensor_is_gone(y)) return fy__refuse_gone("tape_recompute", "the function's result");
    return fy__scope_has(thread, depth, &y->handle) ? FY_STATUS_OK
                                                    : fy_reshape(y, y->rank, y->dims, result);
}

/* In a separate scope. With `tape` recording, what it records stays on the tape; *out_value is
 * that of the result. `keeps`: the result goes to the scope around; else it is destroyed. */
static fy_status_t call(fy__thread_t *thread, fy_tape_t *tape, fy__tape_again_t *again,
                        fy_tensor_t *const *inputs, bool keeps, fy_tensor_t **out_result,
                        uint32_t *out_value)
{
    fy_tensor_t *result = NULL;
    const fy_scope_t scope = fy_scope_begin("recompute");
    fy__tape_again_t *outer = tape ? tape->again : NULL;
    const uint32_t record = tape ? tape->record : 0;
    again->depth = scope.depth;
    again->outer = outer;
    if (tape) tape->again = again;
    fy_status_t status = again->fn(again->user, again->ninputs, inputs, &result);
    if (tape) {
        fy__tape_forget_lows(thread, tape, again);
        tape->again = outer;
    }
    if (status == FY_STATUS_OK && (thread->tape != tape || (tape && tape->record != record)))
        status = FY_FAIL(INVALID_ARGUMENT, "tape_recompute: the function began or ended a record");
    if (status == FY_STATUS_OK) status = own_result(thread, again->depth, &result);
    if (status == FY_STATUS_OK && tape) *out_value = fy__tape_find(tape, result);
    if (status == FY_STATUS_OK) *out_result = result;
    fy_scope_end(scope, status == FY_STATUS_OK && keeps, &result);
    return status;
}

static fy_status_t run_unrecorded(fy__thread_t *thread, fy_recompute_fn fn, void *user,
                                  size_t count, fy_tensor_t *const *inputs,
                                  fy_tensor_t **out_result)
{
    fy__tape_again_t once = { .fn = fn, .user = user, .ninputs = count };
    return call(thread, NULL, &once, inputs, true, out_result, NULL);
}

/* Drops the calls from `first` on; the values from `values` on, which they made, have no maker. */
static void forget(fy__thread_t *thread, fy_tape_t *tape, uint32_t first, uint32_t values)
{
    fy__tape_forget_calls(thread, tape, first);
    for (uint32_t i = values; i < tape->nvalues; i++)
        tape->values[i].maker = 0, tape->values[i].is_kept = false;
}

/* Puts the one call in the place of those that the function recorded. */
static fy_status_t record(fy__thread_t *thread, fy_tape_t *tape, fy__tape_again_t *again,
                          uint32_t first, uint32_t values, uint32_t value)
{
    const uint32_t nsrc = (uint32_t)again->ninputs;
    forget(thread, tape, first, values);
    FY_TRY(fy__tape_make_room(tape, nsrc + 1, 0, sizeof again));
    fy__tape_call_t *made =
        fy__tape_next_call(tape, &fy__tape_again_rule, "tape_recompute", &again, sizeof again);
    made->nsrc = (uint16_t)nsrc;
    made->ndst = 1;
    fy__tape_operand_t *operands = tape->operands + tape->noperands;
    for (uint32_t i = 0; i < nsrc; i++)
        operands[i] = (fy__tape_operand_t){ .value = fy__tape_find(tape, again->inputs[i]) };
    operands[nsrc] = (fy__tape_operand_t){ .value = value };
    tape->noperands += nsrc + 1;
    tape->ncalls++;
    return FY_STATUS_OK;
}

static fy_status_t run_recorded(fy__thread_t *thread, fy_tape_t *tape, fy__tape_again_t *again,
                                fy_tensor_t *const *inputs, bool *out_is_kept,
                                fy_tensor_t **out_result)
{
    const uint32_t first = tape->ncalls, values = tape->nvalues;
    uint32_t value = 0;
    fy_status_t status = call(thread, tape, again, inputs, true, out_result, &value);
    /* only a value that fn made: its result is new, or a view that was made here */
    const bool depends = value && !(value & FY__TAPE_LEAF) && value > values;
    if (status == FY_STATUS_OK && depends)
        status = record(thread, tape, again, first, values, value);
    else
        forget(thread, tape, first, values);
    *out_is_kept = status == FY_STATUS_OK && depends;
    if (*out_is_kept) end_reads(thread, again, *out_result);
    if (status == FY_STATUS_OK) return FY_STATUS_OK;
    if (*out_result) fy_tensor_destroy(*out_result);
    *out_result = NULL;
    return status;
}

static fy_status_t check_given(size_t count, fy_tensor_t *const *inputs,
                               const fy_recompute_options_t *options)
{
    enum { MOST = 65534 };
    if (count > MOST || options->nstates > MOST)
        return FY_FAIL(INVALID_ARGUMENT, "tape_recompute: %zu inputs and %zu states; %d at most",
                       count, options->nstates, MOST);
    if ((count && !inputs) || (options->nstates && !options->states))
        return FY_FAIL(INVALID_ARGUMENT, "tape_recompute: %s is NULL",
                       count && !inputs ? "inputs" : "options->states");
    for (size_t i = 0; i < count + options->nstates; i++) {
        const fy_tensor_t *tensor = i < count ? inputs[i] : options->states[i - count];
        const char *list = i < count ? "inputs" : "options->states";
        if (!tensor)
            return FY_FAIL(INVALID_ARGUMENT, "tape_recompute: %s[%zu] is NULL", list,
                           i < count ? i : i - count);
        if (fy__tensor_is_gone(tensor)) return fy__refuse_gone("tape_recompute", list);
    }
    return FY_STATUS_OK;
}

fy_status_t fy_tape_recompute(fy_recompute_fn fn, void *user, size_t count,
                              fy_tensor_t *const *inputs, const fy_recompute_options_t *options,
                              fy_tensor_t **out_result)
{
    fy__thread_t *thread = fy__thread();
    fy_recompute_options_t own = FY_RECOMPUTE_OPTIONS_INIT;
    fy__tape_again_t *again = NULL;
    fy_tensor_t *result = NULL;
    bool is_kept = false;
    if (out_result) *out_result = NULL;
    fy_status_t status = thread ? FY__READ(recompute_options, "tape_recompute", options, &own)
                                : FY_STATUS_OUT_OF_MEMORY;
    if (status == FY_STATUS_OK && (!fn || !out_result))
        status = FY_FAIL(INVALID_ARGUMENT, "tape_recompute: %s is NULL", fn ? "out_result" : "fn");
    if (status == FY_STATUS_OK) status = check_given(count, inputs, &own);
    if (status == FY_STATUS_OK && !thread->tape)
        status = run_unrecorded(thread, fn, user, count, inputs, &result);
    else if (status == FY_STATUS_OK)
        status = make_again(thread, fn, user, count, inputs, &own, &again);
    if (again) status = run_recorded(thread, thread->tape, again, inputs, &is_kept, &result);
    if (status == FY_STATUS_OK) *out_result = result;
    if (again && !is_kept)
        free_again(thread, again);
    else if (!again && own.destroy)
        own.destroy(user);
    return status;
}

/* ---- going back ---- */

static fy_status_t check_bytes(const fy__thread_t *thread, const fy_tensor_t *tensor,
                               uint64_t version)
{
    char text[112];
    const uint64_t now = fy__recording_version(thread, tensor->storage);
    if (now == version) return FY_STATUS_OK;
    return FY_FAIL(BUSY,
                   "tape_backward: tape_recompute runs its function again on %s, whose bytes were "
                   "written after it was recorded (version %llu, now %llu)\n"
                   "  Write after backward, or compute a new tensor",
                   fy__tensor_format(tensor, text, sizeof text), (unsigned long long)version,
                   (unsigned long long)now);
}

static fy_status_t check_unchanged(const fy__thread_t *thread, const fy__tape_again_t *again)
{
    for (size_t i = 0; i < again->ninputs; i++)
        FY_TRY(check_bytes(thread, again->inputs[i], again->versions[i]));
    for (uint32_t i = 0; i < again->nreads; i++)
        FY_TRY(check_bytes(thread, again->reads[i].tensor, again->reads[i].version));
    return FY_STATUS_OK;
}

/* Calls the function as it was called first: with the states of that time, recording. */
static fy_status_t record_again(fy__thread_t *thread, fy_tape_t *tape, fy__tape_again_t *again,
                                fy__frame_t *frame, uint32_t *out_value)
{
    fy_tensor_t *result;
    fy_tensor_t **now = calloc(again->nstates ? again->nstates : 1, sizeof *now);
    if (!now)
        return FY_FAIL(OUT_OF_MEMORY, "tape_backward: no host memory for %zu states",
                       again->nstates);
    fy_status_t status = copy_states(thread, again, now);
    if (status == FY_STATUS_OK) {
        status = set_states(again, again->before);
        if (status == FY_STATUS_OK) {
            thread->frame = frame;
            thread->tape = tape;
            thread->autocast = again->autocast;
            status = call(thread, tape, again, again->inputs, false, &result, out_value);
            thread->autocast = FY_DTYPE_F32;
            thread->tape = NULL;
            thread->frame = NULL;
        }
        const fy_status_t restored = set_states(again, now);
        if (status == FY_STATUS_OK) status = restored;
    }
    free_tensors(thread, again->nstates, now);
    free(now);
    return status;
}

/* The new result has the gradient that the old one had. */
static fy_status_t move_gradient(fy_tape_t *tape, uint32_t old, uint32_t value, uint32_t values)
{
    fy__tape_slot_t *from = fy__tape_slot(tape, old), *to = NULL;
    if (value && !(value & FY__TAPE_LEAF) && value > values) to = fy__tape_slot(tape, value);
    if (!to || to->dtype != from->dtype || to->rank != from->rank ||
        memcmp(to->dims, from->dims, (size_t)from->rank * sizeof *from->dims) != 0)
        return FY_FAIL(INVALID_ARGUMENT,
                       "tape_backward: the function of tape_recompute gave another result than the "
                       "first time (%s): it must do the same each time",
                       to ? "another dtype or shape" : "one without a gradient");
    to->grad = from->grad;
    to->is_present = true;
    to->is_shared = from->is_shared;
    from->grad = NULL;
    from->is_present = false;
    return FY_STATUS_OK;
}

fy_status_t fy__tape_run_again(fy__thread_t *thread, fy_tape_t *tape, uint32_t index,
                               fy__frame_t *frame)
{
    const fy__tape_call_t *call = &tape->calls[index];
    const uint32_t old = tape->operands[call->first + call->nsrc].value, values = tape->nvalues;
    fy__tape_again_t *again = *again_of(tape, call);
    uint32_t value = 0;
    if (!fy__tape_slot(tape, old)->is_present) return FY_STATUS_OK; /* no gradient reaches it */
    FY_TRY(check_unchanged(thread, again));
    fy__tape_forget_calls(thread, tape, index + 1);
    fy_status_t status = record_again(thread, tape, again, frame, &value);
    if (status == FY_STATUS_OK) status = move_gradient(tape, old, value, values);
    return fy__tape_go_back(thread, tape, index + 1, frame, status);
}
