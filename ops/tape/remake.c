/* Results that the tape does not keep, because a cheap op makes them again: those of elementwise
 * ops and norms whose sources it keeps anyway. A saved operand is then a handle without a storage;
 * before its rule runs, the call that made it first runs again, once, and the handle gets the new
 * storage. Calls go back in reverse order, so all rules that need the result have run before that
 * of its call.
 * Not here: whole functions that run again (recompute.c). */
#include "ops/dispatch.h"
#include "ops/tape/tape.h"
#include "runtime/base/abi_structs.h"

/* Results made from results made again: a chain is as deep as the calls that make it nest. */
enum { DEEPEST = 32 };

fy_status_t fy_tape_recompute_cheap(fy_tape_t *tape, int is_on)
{
    if (!tape) return FY_FAIL(INVALID_ARGUMENT, "tape_recompute_cheap: tape is NULL");
    FY_TRY(fy__tape_check_idle(tape, "tape_recompute_cheap"));
    tape->remakes = is_on != 0;
    return FY_STATUS_OK;
}

static bool is_norm(const fy_op_info_t *info)
{
    return info->op == FY_OP_BATCH_NORM || info->op == FY_OP_BATCH_NORM_INFERENCE ||
           info->op == FY_OP_LAYER_NORM || info->op == FY_OP_RMS_NORM;
}

/* Of a result of this record; NULL: of a leaf, or a constant. */
static fy__tape_slot_t *result_slot(const fy_tape_t *tape, uint32_t value)
{
    return value && !(value & FY__TAPE_LEAF) ? fy__tape_slot(tape, value) : NULL;
}

/* A blank that stands for the bytes of `tensor` in the storage that its maker will make. */
static void describe(fy_tensor_t *blank, const fy_tensor_t *tensor)
{
    fy__tape_shape_as(blank, tensor);
    blank->data = (void *)((uintptr_t)tensor->data - (uintptr_t)tensor->storage->data);
}

fy_status_t fy__tape_save(fy__thread_t *thread, fy_tape_t *tape, fy__tape_operand_t *operand,
                          const fy_tensor_t *tensor)
{
    fy__tape_slot_t *slot = result_slot(tape, operand->value);
    if (!(operand->saved = fy__tape_blank(thread))) return FY_STATUS_OUT_OF_MEMORY;
    operand->version = fy__recording_version(thread, tensor->storage);
    operand->maker = slot ? slot->maker : 0;
    if (operand->maker)
        describe(operand->saved, tensor);
    else
        fy__tape_point(operand->saved, tensor);
    if (slot) slot->is_kept = true;
    return FY_STATUS_OK;
}

void fy__tape_save_result(fy__tape_operand_t *result, uint32_t maker, const fy_tensor_t *tensor,
                          uint64_t version)
{
    result->version = version;
    result->maker = maker;
    if (maker)
        describe(result->saved, tensor);
    else
        fy__tape_point(result->saved, tensor);
}

/* How deep the chain is that ends with this call; 0: it is not to run again. Sources count that
 * would be kept for it alone. */
static uint8_t depth_of(const fy_tape_t *tape, size_t nsrc, const fy_tensor_t *const *src,
                        const fy__tape_operand_t *operands)
{
    uint64_t more = 0, largest = 0;
    uint8_t depth = 0;
    for (size_t i = 0; i < nsrc; i++) {
        const uint64_t nbytes = fy__tensor_nbytes(src[i]);
        const uint32_t value = operands[i].value;
        const fy__tape_slot_t *slot = result_slot(tape, value);
        if (largest < nbytes) largest = nbytes;
        if (slot && slot->maker && tape->calls[slot->maker - 1].depth > depth)
            depth = tape->calls[slot->maker - 1].depth;
        if (operands[i].saved || value & FY__TAPE_LEAF) continue;
        if (!slot || (!slot->maker && !slot->is_kept)) more += nbytes;
    }
    return more * 8 > largest || depth >= DEEPEST ? 0 : depth + 1;
}

fy_status_t fy__tape_save_for_maker(fy__thread_t *thread, fy_tape_t *tape, const fy__op_row_t *row,
                                    size_t nsrc, const fy_tensor_t *const *src, size_t ndst,
                                    fy_tensor_t *const *dst)
{
    fy__tape_call_t *call = &tape->calls[tape->ncalls];
    fy__tape_operand_t *operands = tape->operands + call->first;
    if (!(row->info.flags & FY_OP_ELEMENTWISE) && !is_norm(&row->info)) return FY_STATUS_OK;
    if (row->nkernels || row->info.flags & (FY_OP_IN_PLACE | FY_OP_CAN_FAULT) || dst[0] ||
        nsrc != call->nsrc || nsrc > FY__TAPE_SAVED || ndst > FY__TAPE_SAVED)
        return FY_STATUS_OK;
    call->depth = depth_of(tape, nsrc, src, operands);
    if (!call->depth) return FY_STATUS_OK;
    call->row = row;
    for (size_t i = 0; i < nsrc; i++) {
        if (operands[i].saved) continue;
        operands[i].is_for_maker = true;
        FY_TRY(fy__tape_save(thread, tape, &operands[i], src[i]));
    }
    return FY_STATUS_OK;
}

/* ---- going back ---- */

/* Batch norm updates running statistics, on which its other results do not depend: these tensors
 * get those of this run, and are dropped. */
static fy_status_t make_statistics(const fy__tape_operand_t *src, fy_tensor_t **dst)
{
    const fy_tensor_t *weight = src[1].saved;
    for (int j = 3; j < 5; j++)
        FY_TRY(fy_empty(weight->storage->device, (fy_dtype_t)weight->dtype, weight->rank,
                        weight->dims, &dst[j]));
    return FY_STATUS_OK;
}

static fy_status_t make(fy__thread_t *thread, fy_tape_t *tape, fy__tape_call_t *call)
{
    const fy_tensor_t *src[FY__TAPE_SAVED];
    fy_tensor_t *dst[FY__TAPE_SAVED] = { NULL };
    fy__tape_operand_t *operands = tape->operands + call->first;
    for (uint32_t i = 0; i < call->nsrc; i++) {
        FY_TRY(fy__tape_bring(thread, tape, &operands[i]));
        src[i] = operands[i].saved;
    }
    FY_TRY(fy__tape_check_saved(thread, call, operands));
    fy_status_t status = call->row->info.op == FY_OP_BATCH_NORM ? make_statistics(operands, dst)
                                                                : FY_STATUS_OK;
    if (status == FY_STATUS_OK)
        status =
            fy__dispatch(call->row, call->nsrc, src, tape->attrs + call->attrs, 0, call->ndst, dst);
    for (uint32_t j = 0; j < call->ndst; j++) {
        if (!dst[j]) continue;
        fy__handle_release(&dst[j]->handle);
        if (j == 0 && status == FY_STATUS_OK)
            call->made = dst[0];
        else
            fy__tensor_free(thread, dst[j]);
    }
    return status;
}

fy_status_t fy__tape_bring(fy__thread_t *thread, fy_tape_t *tape, fy__tape_operand_t *operand)
{
    fy_tensor_t *saved = operand->saved;
    if (!saved || saved->storage) return FY_STATUS_OK;
    fy__storage_t *storage = NULL;
    if (operand->parcel) {
        FY_TRY(fy__tape_unpack(thread, tape, operand, &storage));
    } else {
        fy__tape_call_t *maker = &tape->calls[operand->maker - 1];
        if (!maker->made) FY_TRY(make(thread, tape, maker));
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): make sets it, or fails */
        storage = maker->made->storage;
    }
    fy__storage_retain(storage);
    saved->storage = storage;
    saved->data = (char *)saved->storage->data + (uintptr_t)saved->data;
    operand->version = fy__recording_version(thread, saved->storage);
    return FY_STATUS_OK;
}

void fy__tape_free_made(fy__thread_t *thread, fy__tape_call_t *call)
{
    if (call->made) fy__tensor_free(thread, call->made);
    call->made = NULL;
}
