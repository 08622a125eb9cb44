/* Copies of watched tensors in half precision that their owner keeps current: autocast takes a view
 * of one in the place of a cast.
 * A copy is current while its storage has the version of the tensor's storage. A step that writes
 * both advances both; a write of one alone makes them differ, until the next use casts again.
 * Not here: which sources are cast (autocast.c). */
#include "ops/autocast.h"

#include <ferry/autocast.h>

#include "ops/tape/tape.h"
#include "runtime/base/abi_structs.h"
#include "runtime/record/recording.h"

static uint64_t version_of(const fy__storage_t *storage)
{
    return atomic_load_explicit(&storage->version, memory_order_relaxed);
}

/* A handle on all bytes, in no scope. */
static fy_tensor_t *whole(fy__thread_t *thread, fy__storage_t *storage, fy_dtype_t dtype,
                          uint64_t nelem)
{
    fy_tensor_t *tensor = fy__tape_blank(thread);
    if (!tensor) return NULL;
    fy__storage_retain(storage);
    tensor->storage = storage;
    tensor->data = storage->data;
    tensor->dtype = (uint8_t)dtype;
    tensor->rank = 1;
    tensor->contiguous = true;
    tensor->nelem = nelem;
    tensor->dims[0] = (int64_t)nelem;
    tensor->strides[0] = 1;
    tensor->named = tensor->valued = false;
    return tensor;
}

/* One light request, and the copy is current. */
static fy_status_t refresh(fy__thread_t *thread, const fy__copy_t *copy)
{
    const fy_cast_attrs_t attrs = { copy->dtype };
    const fy_dtype_t outer = thread->autocast;
    fy_tape_t *tape = thread->tape;
    fy_tensor_t *block = whole(thread, copy->block, FY_DTYPE_F32, copy->nelem);
    fy_tensor_t *low = block ? whole(thread, copy->low, copy->dtype, copy->nelem) : NULL;
    fy_status_t status = FY_STATUS_OUT_OF_MEMORY;
    if (low) {
        const fy_tensor_t *src = block;
        thread->autocast = FY_DTYPE_F32;
        thread->tape = NULL; /* both are constants for it */
        status = fy__op_into(FY_OP_CAST, 1, &src, &attrs, low);
        thread->tape = tape;
        thread->autocast = outer;
    }
    if (status == FY_STATUS_OK) {
        thread->autocasts++;
        thread->autocast_nbytes += fy__tensor_nbytes(low);
        atomic_store_explicit(&copy->low->version, version_of(copy->block), memory_order_relaxed);
    }
    if (low) fy__tensor_free(thread, low);
    if (block) fy__tensor_free(thread, block);
    return status;
}

fy_status_t fy__copy_use(fy__thread_t *thread, const fy__copy_t *copy)
{
    return version_of(copy->block) == version_of(copy->low) ? FY_STATUS_OK : refresh(thread, copy);
}

/* The copy of the tensor's bytes in that dtype; NULL: there is none. */
static const fy__copy_t *find(const fy_tape_t *tape, const fy_tensor_t *tensor, fy_dtype_t dtype)
{
    for (uint32_t i = 0; i < tape->ncopies; i++)
        if (tape->copies[i].block == tensor->storage && tape->copies[i].dtype == dtype)
            return &tape->copies[i];
    return NULL;
}

/* Whether the copy can be used here. Inside a recording, writes have not advanced any version: its
 * calls must have written both as often, and each replay looks at the versions first. */
static fy_status_t prepare(fy__thread_t *thread, const fy__copy_t *copy, bool *out_is_ready)
{
    fy__recording_t *recording = fy__recording_of(thread, copy->block->device);
    *out_is_ready = true;
    if (!recording) return fy__copy_use(thread, copy);
    *out_is_ready = fy__recording_writes(recording, copy->block) ==
                    fy__recording_writes(recording, copy->low);
    if (*out_is_ready) *out_is_ready = fy__recording_keep(recording, copy);
    return FY_STATUS_OK;
}

/* The view, on the tape as the result of a cast. */
static fy_status_t record(fy__thread_t *thread, fy_tape_t *tape, uint32_t value, fy_tensor_t *view)
{
    const fy__op_row_t *row = &fy__op_rows[FY_OP_CAST];
    const fy_cast_attrs_t attrs = { view->dtype };
    FY_TRY(fy__tape_make_room(tape, 2, 1, sizeof attrs));
    fy__tape_call_t *call =
        fy__tape_next_call(tape, row->gradient, row->info.name, &attrs, sizeof attrs);
    call->nsrc = call->ndst = 1;
    tape->operands[tape->noperands] = (fy__tape_operand_t){ .value = value };
    tape->operands[tape->noperands + 1] = (fy__tape_operand_t){ 0 };
    tape->given = 0;
    fy__tape_kept(thread, tape, &view);
    return FY_STATUS_OK;
}

fy_status_t fy__copy_view(fy__thread_t *thread, const fy_tensor_t *tensor, fy_dtype_t dtype,
                          fy_tensor_t **out_view)
{
    fy_tape_t *tape = thread->tape;
    const fy__copy_t *copy = find(tape, tensor, dtype);
    bool is_ready;
    *out_view = NULL;
    if (!copy) return FY_STATUS_OK;
    FY_TRY(fy__tape_check_unwritten(thread, tape, "cast", tensor, fy__tape_find(tape, tensor)));
    FY_TRY(prepare(thread, copy, &is_ready));
    if (!is_ready) return FY_STATUS_OK;
    fy_tensor_t *view = fy__tape_hold(thread, tensor);
    if (!view) return FY_STATUS_OUT_OF_MEMORY;
    const uint64_t first = (uint64_t)((char *)tensor->data - (char *)copy->block->data) /
                           sizeof(float);
    fy__storage_retain(copy->low);
    fy__storage_release(thread, view->storage);
    view->storage = copy->low;
    view->data = (char *)copy->low->data + first * 2;
    view->dtype = (uint8_t)dtype;
    const fy_status_t status = record(thread, tape, fy__tape_find(tape, tensor), view);
    if (status != FY_STATUS_OK) {
        fy__tensor_free(thread, view);
        return status;
    }
    *out_view = view;
    return FY_STATUS_OK;
}

/* ---- public ---- */

static fy_status_t check(const fy_tape_t *tape, const fy_tensor_t *block, const fy_tensor_t *low)
{
    char of[112], into[112];
    if (fy__tensor_is_gone(block)) return fy__refuse_gone("autocast_keep", "block");
    if (fy__tensor_is_gone(low)) return fy__refuse_gone("autocast_keep", "low");
    if (low->storage->device != block->storage->device)
        return FY_FAIL(DEVICE_MISMATCH, "autocast_keep: block is on %s, low on %s",
                       block->storage->device->spec, low->storage->device->spec);
    if (block->dtype != FY_DTYPE_F32 || (low->dtype != FY_DTYPE_F16 && low->dtype != FY_DTYPE_BF16))
        return FY_FAIL(
            DTYPE_MISMATCH, "autocast_keep: block %s must be f32, and low %s must be f16 or bf16",
            fy__tensor_format(block, of, sizeof of), fy__tensor_format(low, into, sizeof into));
    if (!block->contiguous || !low->contiguous || low->nelem != block->nelem ||
        fy__tensor_nbytes(block) != block->storage->nbytes ||
        fy__tensor_nbytes(low) != low->storage->nbytes)
        return FY_FAIL(SHAPE_MISMATCH,
                       "autocast_keep: block %s and low %s must be whole tensors of one size, "
                       "not views of a part",
                       fy__tensor_format(block, of, sizeof of),
                       fy__tensor_format(low, into, sizeof into));
    if (tape->ncopies < FY__COPIES || find(tape, block, (fy_dtype_t)low->dtype))
        return FY_STATUS_OK;
    return FY_FAIL(INVALID_ARGUMENT, "autocast_keep: the tape has %d copies; it takes no more",
                   FY__COPIES);
}

fy_status_t fy_autocast_keep(fy_tape_t *tape, fy_tensor_t *block, fy_tensor_t *low)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!tape || !block || !low)
        return FY_FAIL(INVALID_ARGUMENT, "autocast_keep: %s is NULL",
                       !tape    ? "tape"
                       : !block ? "block"
                                : "low");
    FY_TRY(fy__tape_check_idle(tape, "autocast_keep"));
    FY_TRY(check(tape, block, low));
    FY_TRY(fy__recording_check(thread, block->storage->device, "autocast_keep"));
    const fy__copy_t copy = { block->storage, low->storage, (fy_dtype_t)low->dtype, block->nelem };
    FY_TRY(refresh(thread, &copy));
    fy__copy_t *known = (fy__copy_t *)find(tape, block, copy.dtype);
    fy__copy_hold(&copy);
    if (known) fy__copy_drop(thread, known);
    *(known ? known : &tape->copies[tape->ncopies++]) = copy;
    return FY_STATUS_OK;
}
