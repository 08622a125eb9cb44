/* Going back: from the loss to the sources, one recorded call at a time, each by its rule. Results'
 * gradients and saved tensors go as soon as their call has been dealt with, so the peak is that of
 * the record, not of the record and all gradients.
 * Not here: what the rules compute (rules_*.c). */
#include <string.h>

#include "ops/dispatch.h"
#include "ops/tape/tape.h"
#include "runtime/base/abi_structs.h"

/* ---- what rules ask for ---- */

static fy__tape_slot_t *source(const fy__tape_step_t *step, uint32_t i)
{
    const uint32_t value = step->src[i].value;
    return value ? fy__tape_slot(step->tape, value) : NULL;
}

bool fy__tape_wants(const fy__tape_step_t *step, uint32_t i) { return step->src[i].value != 0; }
const fy_tensor_t *fy__tape_src(const fy__tape_step_t *step, uint32_t i)
{
    return step->src[i].saved;
}
const fy_tensor_t *fy__tape_dst(const fy__tape_step_t *step, uint32_t i)
{
    return step->dst[i].saved;
}

fy_tensor_t *fy__tape_result_grad(const fy__tape_step_t *step, uint32_t i)
{
    const uint32_t value = step->dst[i].value;
    const fy__tape_slot_t *slot = value ? fy__tape_slot(step->tape, value) : NULL;
    return slot && slot->is_present ? slot->grad : NULL;
}

void fy__tape_shape(const fy__tape_step_t *step, uint32_t i, int *out_rank,
                    const int64_t **out_dims)
{
    const fy__tape_slot_t *slot = source(step, i);
    *out_rank = slot->rank;
    *out_dims = slot->dims;
}

fy_tensor_t *fy__tape_temp(fy__tape_step_t *step, fy_tensor_t *tensor)
{
    fy__handle_release(&tensor->handle);
    step->temps[step->ntemps++] = tensor;
    return tensor;
}

fy_status_t fy__tape_op_all(fy__tape_step_t *step, fy_op_t op, size_t nsrc,
                            const fy_tensor_t *const *src, const void *attrs, size_t ndst,
                            fy_tensor_t **out_temps)
{
    if (step->ntemps + ndst > sizeof step->temps / sizeof *step->temps)
        return FY_FAIL(INTERNAL, "gradient of %s: more than %u intermediate tensors",
                       step->call->name, step->ntemps);
    for (size_t i = 0; i < ndst; i++) out_temps[i] = NULL;
    FY_TRY(fy__dispatch(&fy__op_rows[op], nsrc, src, attrs, 0, ndst, out_temps));
    for (size_t i = 0; i < ndst; i++) fy__tape_temp(step, out_temps[i]);
    return FY_STATUS_OK;
}

fy_status_t fy__tape_op(fy__tape_step_t *step, fy_op_t op, size_t nsrc,
                        const fy_tensor_t *const *src, const void *attrs, fy_tensor_t **out_temp)
{
    return fy__tape_op_all(step, op, nsrc, src, attrs, 1, out_temp);
}

fy_status_t fy__tape_scalar(fy__tape_step_t *step, double value, fy_tensor_t **out_temp)
{
    FY_TRY(fy_full(step->g->storage->device, (fy_dtype_t)step->g->dtype, 0, NULL, value, out_temp));
    fy__tape_temp(step, *out_temp);
    return FY_STATUS_OK;
}

fy_status_t fy__tape_reshape(fy__tape_step_t *step, const fy_tensor_t *tensor, int rank,
                             const int64_t *dims, fy_tensor_t **out_temp)
{
    fy_tensor_t *dense = (fy_tensor_t *)tensor; /* only read */
    if (!tensor->contiguous) {
        FY_TRY(fy__tape_copy(step->thread, tensor, &dense));
        fy__tape_temp(step, dense);
    }
    FY_TRY(fy_reshape(dense, rank, dims, out_temp));
    fy__tape_temp(step, *out_temp);
    return FY_STATUS_OK;
}

/* ---- in f32 ---- */

fy_status_t fy__tape_wide(fy__tape_step_t *step, const fy_tensor_t *tensor,
                          const fy_tensor_t **out_temp)
{
    static const fy_cast_attrs_t to_f32 = { FY_DTYPE_F32 };
    fy_tensor_t *cast;
    *out_temp = tensor;
    if (tensor->dtype != FY_DTYPE_F16 && tensor->dtype != FY_DTYPE_BF16) return FY_STATUS_OK;
    FY_TRY(fy__tape_op(step, FY_OP_CAST, 1, &tensor, &to_f32, &cast));
    *out_temp = cast;
    return FY_STATUS_OK;
}

fy_status_t fy__tape_widen(fy__tape_step_t *step)
{
    const fy_tensor_t *g;
    FY_TRY(fy__tape_wide(step, step->g, &g));
    step->is_wide = g != step->g;
    step->g = (fy_tensor_t *)g;
    return FY_STATUS_OK;
}

/* ---- gradients of sources ---- */

/* The slot has `grad` from now on, whose handle it takes over. */
static void set(fy__thread_t *thread, fy__tape_slot_t *slot, fy_tensor_t *grad, bool is_shared)
{
    if (slot->grad) fy__tensor_free(thread, slot->grad);
    slot->grad = grad;
    slot->is_present = true;
    slot->is_shared = is_shared;
}

/* The handle of a new tensor is in no scope. */
static fy_status_t call_new(fy__tape_step_t *step, const fy__tape_slot_t *slot, fy_op_t op,
                            size_t nsrc, const fy_tensor_t *const *src, const void *attrs,
                            fy_tensor_t **out_dst)
{
    fy__thread_t *thread = step->thread;
    const fy_category_t category = thread->category;
    if (slot->is_leaf) thread->category = FY_CATEGORY_GRADIENTS;
    const fy_status_t status = fy__op_new(op, nsrc, src, attrs, out_dst);
    thread->category = category;
    if (status == FY_STATUS_OK) fy__handle_release(&(*out_dst)->handle);
    return status;
}

static fy_status_t call_into(const fy_tensor_t *dst, uint32_t accumulate, fy_op_t op, size_t nsrc,
                             const fy_tensor_t *const *src, const void *attrs)
{
    fy_tensor_t *given = (fy_tensor_t *)dst;
    return fy__dispatch(&fy__op_rows[op], nsrc, src, attrs, accumulate, 1, &given);
}

/* The first gradient of a slot that has a place is assigned there. */
static fy_status_t hold_place(fy__tape_step_t *step, fy__tape_slot_t *slot)
{
    fy_tensor_t *grad = fy__tape_hold(step->thread, slot->place);
    if (!grad) return FY_STATUS_OUT_OF_MEMORY;
    set(step->thread, slot, grad, false);
    return FY_STATUS_OK;
}

/* Adds `tensor` to the gradient that is there. */
static fy_status_t add(fy__tape_step_t *step, fy__tape_slot_t *slot, const fy_tensor_t *tensor)
{
    const fy_axpy_attrs_t one = { 1 };
    if (!slot->is_shared) return call_into(slot->grad, 0, FY_OP_AXPY, 1, &tensor, &one);
    const fy_tensor_t *both[2] = { slot->grad, tensor };
    fy_tensor_t *sum;
    FY_TRY(call_new(step, slot, FY_OP_ADD, 2, both, NULL, &sum));
    set(step->thread, slot, sum, false);
    return FY_STATUS_OK;
}

static fy_status_t give(fy__tape_step_t *step, fy__tape_slot_t *slot, fy_op_t op, size_t nsrc,
                        const fy_tensor_t *const *src, const void *attrs)
{
    fy_tensor_t *grad;
    if (!slot->is_present && slot->place) {
        FY_TRY(call_into(slot->place, 0, op, nsrc, src, attrs));
        return hold_place(step, slot);
    }
    if (slot->is_present && !slot->is_shared && fy__op_rows[op].info.flags & FY_OP_CAN_ACCUMULATE)
        return call_into(slot->grad, 1, op, nsrc, src, attrs);
    FY_TRY(call_new(step, slot, op, nsrc, src, attrs, &grad));
    if (!slot->is_present) {
        set(step->thread, slot, grad, false);
        return FY_STATUS_OK;
    }
    const fy_status_t status = add(step, slot, grad);
    fy__tensor_free(step->thread, grad);
    return status;
}

static fy_status_t give_cast(fy__tape_step_t *step, fy__tape_slot_t *slot, const fy_tensor_t *wide)
{
    const fy_cast_attrs_t attrs = { slot->dtype };
    return give(step, slot, FY_OP_CAST, 1, &wide, &attrs);
}

fy_status_t fy__tape_give(fy__tape_step_t *step, uint32_t i, fy_op_t op, size_t nsrc,
                          const fy_tensor_t *const *src, const void *attrs)
{
    fy__tape_slot_t *slot = source(step, i);
    fy_tensor_t *wide;
    if (!slot) return FY_STATUS_OK;
    if (FY_LIKELY(!step->is_wide)) return give(step, slot, op, nsrc, src, attrs);
    FY_TRY(fy__tape_op(step, op, nsrc, src, attrs, &wide));
    return give_cast(step, slot, wide);
}

/* Where a result for the slot goes: *out_dst NULL means to a new tensor. Returns whether it is
 * added there. */
static bool target_of(const fy__tape_slot_t *slot, fy_tensor_t **out_dst)
{
    const bool adds = slot->is_present && !slot->is_shared;
    *out_dst = adds ? slot->grad : slot->is_present ? NULL : slot->place;
    return adds;
}

/* The result has been computed there. Takes over the handle of a new one. */
static fy_status_t received(fy__tape_step_t *step, fy__tape_slot_t *slot, fy_tensor_t *result)
{
    if (slot->is_present && !slot->is_shared) return FY_STATUS_OK; /* it was added */
    if (!slot->is_present && slot->place) return hold_place(step, slot);
    if (!slot->is_present) {
        set(step->thread, slot, result, false);
        return FY_STATUS_OK;
    }
    const fy_status_t status = add(step, slot, result);
    fy__tensor_free(step->thread, result);
    return status;
}

/* If two results are for one slot, the second goes to a new tensor, which is added to the slot. */
fy_status_t fy__tape_give_many(fy__tape_step_t *step, uint32_t count, const uint32_t *sources,
                               fy_op_t op, size_t nsrc, const fy_tensor_t *const *src,
                               const void *attrs)
{
    fy__tape_slot_t *slots[4];
    fy_tensor_t *dst[4] = { NULL };
    bool is_new[4], is_leaf = false;
    uint32_t accumulate = 0;
    fy__thread_t *thread = step->thread;
    const fy_category_t category = thread->category;
    for (uint32_t k = 0; k < count; k++) {
        bool is_second = false;
        slots[k] = sources[k] < step->call->nsrc ? source(step, sources[k]) : NULL;
        for (uint32_t i = 0; i < k; i++) is_second |= slots[k] && slots[i] == slots[k];
        if (slots[k] && !is_second) accumulate |= (uint32_t)target_of(slots[k], &dst[k]) << k;
        is_leaf |= slots[k] && slots[k]->is_leaf;
        is_new[k] = !dst[k];
    }
    if (is_leaf) thread->category = FY_CATEGORY_GRADIENTS;
    fy_status_t status = fy__dispatch(&fy__op_rows[op], nsrc, src, attrs, accumulate, count, dst);
    thread->category = category;
    FY_TRY(status);
    for (uint32_t k = 0; k < count; k++)
        if (is_new[k]) fy__handle_release(&dst[k]->handle);
    for (uint32_t k = 0; k < count; k++) {
        const bool is_second = slots[k] && is_new[k] && slots[k]->is_present &&
                               !slots[k]->is_shared;
        if (status != FY_STATUS_OK || !slots[k] || is_second) {
            if (is_second && status == FY_STATUS_OK) status = add(step, slots[k], dst[k]);
            if (is_new[k]) fy__tensor_free(thread, dst[k]);
        } else {
            status = received(step, slots[k], dst[k]);
        }
    }
    return status;
}

fy_status_t fy__tape_give2(fy__tape_step_t *step, uint32_t i, uint32_t j, fy_op_t op, size_t nsrc,
                           const fy_tensor_t *const *src, const void *attrs)
{
    return fy__tape_give_many(step, 2, (const uint32_t[]){ i, j }, op, nsrc, src, attrs);
}

static inline bool has_shape(const fy__tape_slot_t *slot, int rank, const int64_t *dims)
{
    if (slot->rank != rank) return false;
    for (int i = 0; i < rank; i++)
        if (slot->dims[i] != dims[i]) return false;
    return true;
}

/* Sums `tensor` over what source i was repeated along: axes it did not have, and those of length
 * 1. */
static fy_status_t give_sum(fy__tape_step_t *step, uint32_t i, const fy_tensor_t *tensor)
{
    const fy__tape_slot_t *slot = source(step, i);
    const int extra = tensor->rank - slot->rank;
    fy_reduce_attrs_t leading = { (1u << extra) - 1, 0 }, repeated = { 0, 1 };
    for (int axis = 0; axis < slot->rank; axis++)
        if (slot->dims[axis] == 1 && tensor->dims[axis + extra] != 1) repeated.axes |= 1u << axis;
    if (!repeated.axes) return fy__tape_give(step, i, FY_OP_SUM, 1, &tensor, &leading);
    fy_tensor_t *less = NULL;
    if (extra) FY_TRY(fy__tape_op(step, FY_OP_SUM, 1, &tensor, &leading, &less));
    const fy_tensor_t *src = extra ? less : tensor;
    return fy__tape_give(step, i, FY_OP_SUM, 1, &src, &repeated);
}

fy_status_t fy__tape_give_reduced(fy__tape_step_t *step, uint32_t i, int rank, const int64_t *dims,
                                  fy_op_t op, size_t nsrc, const fy_tensor_t *const *src,
                                  const void *attrs)
{
    const fy__tape_slot_t *slot = source(step, i);
    fy_tensor_t *temp;
    if (!slot) return FY_STATUS_OK;
    if (has_shape(slot, rank, dims)) return fy__tape_give(step, i, op, nsrc, src, attrs);
    FY_TRY(fy__tape_op(step, op, nsrc, src, attrs, &temp));
    return give_sum(step, i, temp);
}

fy_status_t fy__tape_give_tensor(fy__tape_step_t *step, uint32_t i, const fy_tensor_t *tensor)
{
    fy__tape_slot_t *slot = source(step, i);
    if (!slot) return FY_STATUS_OK;
    if (!has_shape(slot, tensor->rank, tensor->dims)) return give_sum(step, i, tensor);
    if (step->is_wide) return give_cast(step, slot, tensor);
    if (slot->is_present) return add(step, slot, tensor);
    if (slot->place) {
        FY_TRY(call_into(slot->place, 0, FY_OP_COPY, 1, &tensor, NULL));
        return hold_place(step, slot);
    }
    fy_tensor_t *grad;
    if (slot->is_leaf) { /* it becomes the user's: a separate storage */
        const fy_category_t category = step->thread->category;
        step->thread->category = FY_CATEGORY_GRADIENTS;
        const fy_status_t status = fy__tape_copy(step->thread, tensor, &grad);
        step->thread->category = category;
        FY_TRY(status);
    } else if (!(grad = fy__tape_hold(step->thread, tensor))) {
        return FY_STATUS_OUT_OF_MEMORY;
    }
    set(step->thread, slot, grad, !slot->is_leaf);
    return FY_STATUS_OK;
}

/* Gives the slot's gradient a separate storage: zeros if there was no gradient. */
static fy_status_t own(fy__tape_step_t *step, fy__tape_slot_t *slot)
{
    fy_tensor_t *grad;
    if (slot->is_present && !slot->is_shared) return FY_STATUS_OK;
    if (slot->is_present) {
        FY_TRY(fy__tape_copy(step->thread, slot->grad, &grad));
    } else if (slot->place) {
        FY_TRY(fy_fill(slot->place, 0));
        return hold_place(step, slot);
    } else {
        const fy_category_t category = step->thread->category;
        if (slot->is_leaf) step->thread->category = FY_CATEGORY_GRADIENTS;
        const fy_status_t status =
            fy_zeros(slot->device, (fy_dtype_t)slot->dtype, slot->rank, slot->dims, &grad);
        step->thread->category = category;
        FY_TRY(status);
        fy__handle_release(&grad->handle);
    }
    set(step->thread, slot, grad, false);
    return FY_STATUS_OK;
}

fy_status_t fy__tape_give_slice(fy__tape_step_t *step, uint32_t i, int axis, int64_t begin,
                                int64_t stride, const fy_tensor_t *tensor)
{
    const int64_t n = tensor->dims[axis], end = n > 0 ? begin + (n - 1) * stride + 1 : begin;
    fy__tape_slot_t *slot = source(step, i);
    fy_tensor_t *part;
    if (!slot) return FY_STATUS_OK;
    const bool was_present = slot->is_present;
    FY_TRY(own(step, slot));
    FY_TRY(fy_slice_step(slot->grad, axis, begin, end, stride, &part));
    fy__handle_release(&part->handle);
    const fy_status_t status = was_present ? fy_axpy(part, 1, tensor) : fy_copy(part, tensor);
    fy__tensor_free(step->thread, part);
    return status;
}

/* ---- the way back ---- */

static FY_COLD fy_status_t refuse_written(const fy__tape_call_t *call,
                                          const fy__tape_operand_t *operand, uint64_t version)
{
    char text[112];
    return FY_FAIL(BUSY,
                   "tape_backward: %s needs %s, whose bytes were written after it was recorded "
                   "(version %llu, now %llu)\n  Write after backward, or "
                   "compute a new tensor",
                   call->name, fy__tensor_format(operand->saved, text, sizeof text),
                   (unsigned long long)operand->version, (unsigned long long)version);
}

fy_status_t fy__tape_check_saved(const fy__thread_t *thread, const fy__tape_call_t *call,
                                 const fy__tape_operand_t *operands)
{
    for (uint32_t i = 0; i < (uint32_t)call->nsrc + call->ndst; i++) {
        if (!operands[i].saved || !operands[i].saved->storage) continue;
        const uint64_t version = fy__recording_version(thread, operands[i].saved->storage);
        if (version != operands[i].version) return refuse_written(call, &operands[i], version);
    }
    return FY_STATUS_OK;
}

/* What the rule reads: made again if it was not kept. */
static fy_status_t bring_saved(fy__thread_t *thread, fy_tape_t *tape, const fy__tape_call_t *call)
{
    fy__tape_operand_t *operands = tape->operands + call->first;
    for (uint32_t i = 0; i < (uint32_t)call->nsrc + call->ndst; i++)
        if (!operands[i].is_for_maker) FY_TRY(fy__tape_bring(thread, tape, &operands[i]));
    return FY_STATUS_OK;
}

static fy_status_t run_rule(fy__thread_t *thread, fy_tape_t *tape, uint32_t index)
{
    const fy__tape_call_t *call = &tape->calls[index];
    const fy__tape_operand_t *operands = tape->operands + call->first;
    fy__tape_step_t step; /* temps are set as they come */
    step.thread = thread;
    step.tape = tape;
    step.call = call;
    step.src = operands;
    step.dst = operands + call->nsrc;
    step.attrs = tape->attrs + call->attrs;
    step.ntemps = 0;
    step.is_wide = false;
    step.g = fy__tape_result_grad(&step, 0);
    bool is_needed = step.g != NULL;
    for (uint32_t i = 1; call->rule->any_result && i < call->ndst && !is_needed; i++)
        is_needed = fy__tape_result_grad(&step, i) != NULL;
    if (!is_needed) return FY_STATUS_OK; /* the loss does not depend on it */
    fy_status_t status = bring_saved(thread, tape, call);
    if (status == FY_STATUS_OK) status = fy__tape_check_saved(thread, call, operands);
    if (status == FY_STATUS_OK) status = call->rule->run(&step);
    for (uint32_t i = 0; i < step.ntemps; i++) fy__tensor_free(thread, step.temps[i]);
    return status;
}

/* What the call had is not needed any more. */
static void free_call(fy__thread_t *thread, fy_tape_t *tape, uint32_t index)
{
    fy__tape_call_t *call = &tape->calls[index];
    fy__tape_again_free(thread, tape, call);
    fy__tape_attached_free(call);
    fy__tape_free_made(thread, call);
    fy__tape_operand_t *operands = tape->operands + call->first;
    for (uint32_t i = 0; i < (uint32_t)call->nsrc + call->ndst; i++) {
        fy__tape_free_saved(thread, tape, &operands[i]);
        if (i < call->nsrc || !operands[i].value) continue;
        fy__tape_slot_t *slot = fy__tape_slot(tape, operands[i].value);
        if (slot->grad) fy__tensor_free(thread, slot->grad);
        slot->grad = NULL;
        slot->is_present = false;
    }
}

fy_status_t fy__tape_go_back(fy__thread_t *thread, fy_tape_t *tape, uint32_t first,
                             fy__frame_t *frame, fy_status_t status)
{
    for (uint32_t i = tape->ncalls; i-- > first;) {
        const bool is_again = tape->calls[i].rule == &fy__tape_again_rule;
        if (tape->ahead && status == FY_STATUS_OK) status = fy__tape_ahead(thread, tape, i, frame);
        if (status == FY_STATUS_OK)
            status = is_again ? fy__tape_run_again(thread, tape, i, frame)
                              : run_rule(thread, tape, i);
        if (tape->ready && !first && status == FY_STATUS_OK)
            status = fy__tape_ready_after(thread, tape, i, frame);
        free_call(thread, tape, i);
    }
    fy__tape_forget_calls(thread, tape, first);
    return status;
}

/* Watched tensors have no gradient yet, unless this backward adds to what they have. */
static void begin_leaves(fy__thread_t *thread, fy__tape_slot_t *slots, uint32_t count,
                         bool accumulate)
{
    for (uint32_t i = 0; i < count && !accumulate; i++) {
        if (!slots[i].is_leaf) continue;
        if (slots[i].grad) fy__tensor_free(thread, slots[i].grad);
        slots[i].grad = NULL;
        slots[i].is_present = false;
    }
}

static fy_status_t check_seed(const fy_tensor_t *loss, const fy_tensor_t *seed)
{
    char of[112], is[112];
    if (!seed && loss->nelem != 1)
        return FY_FAIL(SHAPE_MISMATCH,
                       "tape_backward: loss %s has %llu elements; it must have one, or the options "
                       "a seed of its shape",
                       fy__tensor_format(loss, of, sizeof of), (unsigned long long)loss->nelem);
    if (!seed) return FY_STATUS_OK;
    if (fy__tensor_is_gone(seed)) return fy__refuse_gone("tape_backward", "options->seed");
    if (seed->storage->device != loss->storage->device)
        return FY_FAIL(DEVICE_MISMATCH, "tape_backward: the seed is on %s, the loss on %s",
                       seed->storage->device->spec, loss->storage->device->spec);
    if (seed->dtype == loss->dtype && seed->rank == loss->rank &&
        memcmp(seed->dims, loss->dims, (size_t)loss->rank * sizeof *loss->dims) == 0)
        return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH, "tape_backward: the seed is %s, the loss %s; they must be alike",
                   fy__tensor_format(seed, is, sizeof is), fy__tensor_format(loss, of, sizeof of));
}

/* d loss / d loss. */
static fy_status_t set_seed_gradient(fy__thread_t *thread, fy_tape_t *tape, uint32_t value,
                                     const fy_tensor_t *loss, const fy_tensor_t *seed)
{
    const fy__tape_operand_t operand = { .value = value };
    fy__tape_step_t step = { .thread = thread, .tape = tape, .src = &operand };
    fy_tensor_t *one = NULL;
    if (!seed) {
        FY_TRY(fy_full(loss->storage->device, (fy_dtype_t)loss->dtype, loss->rank, loss->dims, 1,
                       &one));
        fy__handle_release(&one->handle);
    }
    const fy_status_t status = fy__tape_give_tensor(&step, 0, seed ? seed : one);
    if (one) fy__tensor_free(thread, one);
    return status;
}

/* Has the seed its own bytes? */
static fy_status_t check_seed_apart(const fy_tape_t *tape, const fy_backward_options_t *options)
{
    char text[112];
    if (options->seed && options->clear && fy__tensor_overlaps(options->clear, options->seed))
        return FY_FAIL(INVALID_ARGUMENT, "tape_backward: the seed has bytes of options->clear");
    for (uint32_t i = 0; options->seed && i < tape->nleaves + tape->nvalues; i++) {
        const fy__tape_slot_t *slot = fy__tape_slot_at(tape, i);
        const fy_tensor_t *grad = slot->is_leaf && options->accumulate ? slot->grad : NULL;
        if (slot->place) grad = slot->place;
        if (grad && fy__tensor_overlaps(grad, options->seed))
            return FY_FAIL(INVALID_ARGUMENT,
                           "tape_backward: the seed has bytes of the gradient of %s\n  Use a copy",
                           fy__tensor_format(slot->tensor, text, sizeof text));
    }
    return FY_STATUS_OK;
}

/* Has each tensor that the record used other bytes for its gradient? */
static fy_status_t check_places(const fy_tape_t *tape)
{
    char one[112], two[112];
    const uint32_t count = tape->nleaves + tape->nvalues;
    for (uint32_t i = 0; i < count; i++) {
        const fy__tape_slot_t *a = fy__tape_slot_at(tape, i);
        if (!a->place || a->version == FY__TAPE_UNUSED) continue;
        for (uint32_t k = i + 1; k < count; k++) {
            const fy__tape_slot_t *b = fy__tape_slot_at(tape, k);
            if (!b->place || b->version == FY__TAPE_UNUSED) continue;
            if (fy__tensor_overlaps(a->place, b->place))
                return FY_FAIL(INVALID_ARGUMENT,
                               "tape_backward: %s and %s have their gradients in the same bytes: "
                               "one would replace the other\n  Give fy_tape_watch a grad of its "
                               "own for each",
                               fy__tensor_format(a->tensor, one, sizeof one),
                               fy__tensor_format(b->tensor, two, sizeof two));
        }
    }
    return FY_STATUS_OK;
}

fy_status_t fy_tape_backward(fy_tape_t *tape, const fy_tensor_t *loss,
                             const fy_backward_options_t *options)
{
    fy_backward_options_t own;
    char text[112];
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!tape || !loss)
        return FY_FAIL(INVALID_ARGUMENT, "tape_backward: %s is NULL", tape ? "loss" : "tape");
    FY_TRY(fy__tape_check_idle(tape, "tape_backward"));
    FY_TRY(FY__READ(backward_options, "tape_backward", options, &own));
    options = &own;
    if (fy__tensor_is_gone(loss)) return fy__refuse_gone("tape_backward", "loss");
    const uint32_t value = fy__tape_find(tape, loss);
    if (!value || (tape->is_spent && !fy__tape_slot(tape, value)->is_leaf))
        return FY_FAIL(INVALID_ARGUMENT,
                       "tape_backward: loss %s depends on no recorded call\n  "
                       "fy_tape_watch parameters, fy_tape_begin, then compute it "
                       "from them; a record serves one backward",
                       fy__tensor_format(loss, text, sizeof text));
    FY_TRY(check_seed(loss, options->seed));
    FY_TRY(check_seed_apart(tape, options));
    if (tape->shares_places) FY_TRY(check_places(tape));
    if (options->clear) FY_TRY(fy_fill(options->clear, 0));
    tape->is_running = true;
    fy__tape_stop(thread, tape);
    fy_tape_t *interrupted = thread->tape; /* gradients are not recorded, on whichever tape */
    fy__frame_t *frame = thread->frame;    /* tensors made here are the tape's */
    const fy_dtype_t autocast = thread->autocast; /* gradients have the dtypes of the record */
    thread->tape = NULL;
    thread->frame = NULL;
    thread->autocast = FY_DTYPE_F32;
    fy__tape_forget_lows(thread, tape, NULL);
    fy__tape_forget_written(thread, tape);
    begin_leaves(thread, tape->leaves, tape->nleaves, options->accumulate);
    begin_leaves(thread, tape->values, tape->nvalues, options->accumulate);
    fy_status_t status = set_seed_gradient(thread, tape, value, loss, options->seed);
    if (status == FY_STATUS_OK && options->on_grad) status = fy__tape_ready_begin(tape, options);
    status = fy__tape_go_back(thread, tape, 0, frame, status);
    fy__tape_ready_end(tape);
    tape->is_spent = true;
    tape->is_running = false;
    thread->tape = interrupted;
    thread->frame = frame;
    thread->autocast = autocast;
    return status;
}
