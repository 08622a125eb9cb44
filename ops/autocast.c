/* Autocast: which sources of a call are cast, and to which dtype; the casts that a tape keeps.
 * A cast is a dispatched call, so the tape records it like any other.
 * Not here: which op has which class (opset/ops.def). */
#include "ops/autocast.h"

#include <stdlib.h>
#include <string.h>

#include <ferry/autocast.h>

#include "ops/tape/tape.h"
#include "runtime/base/abi_structs.h"
#include "runtime/record/recording.h"

enum {
    NEAR = 8, /* sources that need no block from the heap */
    CLASSES = FY_OP_AUTOCAST_LOW | FY_OP_AUTOCAST_FULL | FY_OP_AUTOCAST_WIDEST,
    HALVES = FY_DTYPE_BIT(FY_DTYPE_F16) | FY_DTYPE_BIT(FY_DTYPE_BF16),
    CASTABLE = HALVES | FY_DTYPE_BIT(FY_DTYPE_F32)
};

/* ---- which ---- */

/* Whether source i has the op's main dtype: neither a mask nor indices. */
static bool is_main(const fy_op_info_t *info, size_t i)
{
    if (!info->src) return true;
    const bool repeats = info->nsrc_max == FY_OP_VARIADIC;
    const size_t count = repeats ? info->nsrc_min : info->nsrc_max;
    return i < count ? !info->src[i].dtypes : repeats && count && !info->src[count - 1].dtypes;
}

/* The dtype to which main sources are cast. False: none is cast. */
static bool find_target(const fy__op_row_t *row, fy_dtype_t low, size_t nsrc,
                        const fy_tensor_t *const *src, uint32_t accumulate, size_t ndst,
                        fy_tensor_t *const *dst, fy_dtype_t *out_target)
{
    const fy_op_info_t *info = &row->info;
    uint32_t seen = 0;
    if (!(info->flags & CLASSES) || accumulate) return false;
    for (size_t i = 0; i < ndst; i++)
        if (dst[i] && !(info->inout >> (i < 31 ? i : 31) & 1)) return false;
    for (size_t i = 0; i < nsrc; i++) {
        /* the dispatcher refuses these */
        if (!src[i] || fy__tensor_is_gone(src[i]) ||
            src[i]->storage->device != src[0]->storage->device)
            return false;
        if (is_main(info, i)) seen |= FY_DTYPE_BIT(src[i]->dtype);
    }
    *out_target = info->flags & FY_OP_AUTOCAST_LOW ? low : FY_DTYPE_F32;
    if ((info->flags & FY_OP_AUTOCAST_WIDEST) && !(seen & (seen - 1))) return false;
    return !(seen & ~(uint32_t)CASTABLE) && seen != FY_DTYPE_BIT(*out_target);
}

/* ---- copies in half precision that their owner keeps current: autocast takes a view of one in the
 * place of a cast. A copy is current while its storage has the version of the tensor's storage. A
 * step that writes both advances both; a write of one alone makes them differ, until the next use
 * casts again. ---- */

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
    tensor->valued = tensor->named = false;
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

/* A view of the copy of a watched tensor, in no scope, which the tape has as its cast. NULL: there
 * is no such copy, so cast. */
static fy_status_t view_copy(fy__thread_t *thread, const fy_tensor_t *tensor, fy_dtype_t dtype,
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

/* ---- casts that a tape keeps ---- */

/* The leaf that `tensor` is on the tape that records; NULL: none. */
static fy__tape_slot_t *leaf_of(const fy__thread_t *thread, const fy_tensor_t *tensor)
{
    const uint32_t value = thread->tape ? fy__tape_find(thread->tape, tensor) : 0;
    fy__tape_slot_t *slot = value ? fy__tape_slot(thread->tape, value) : NULL;
    return slot && slot->is_leaf ? slot : NULL;
}

/* Whether the leaf's cast has the tensor's current values, in every replay, too, if a graph is
 * recorded. */
static bool is_current(const fy__thread_t *thread, const fy__tape_slot_t *slot,
                       const fy_tensor_t *tensor, fy_dtype_t dtype)
{
    const fy__recording_t *recording = fy__recording_of(thread, slot->device);
    return slot->low->dtype == dtype && slot->low_again == thread->tape->again &&
           slot->version == fy__recording_version(thread, tensor->storage) &&
           (slot->low_is_copy
                ? slot->low_recording == recording
                : slot->low->storage->private_memory == (recording ? recording->memory : NULL));
}

/* Keeps the cast, unless one of an outer function is there: that outlives the record of this. */
static bool keep(fy__thread_t *thread, fy__tape_slot_t *slot, fy_tensor_t *cast)
{
    fy_tape_t *tape = thread->tape;
    if (slot->low && slot->low_again != tape->again) return false;
    fy__handle_release(&cast->handle);
    if (slot->low)
        fy__tensor_free(thread, slot->low);
    else
        tape->nlows++;
    slot->low = cast;
    slot->low_is_copy = false;
    slot->low_again = tape->again;
    return true;
}

/* ---- casts ---- */

/* *out_is_ours: the caller destroys the cast. */
static fy_status_t cast(fy__thread_t *thread, const fy_tensor_t *tensor, fy_dtype_t dtype,
                        fy_tensor_t **out_cast, bool *out_is_ours)
{
    const fy_cast_attrs_t attrs = { .dtype = (int32_t)dtype };
    const fy__tape_slot_t *known = leaf_of(thread, tensor);
    if (known && known->low && is_current(thread, known, tensor, dtype)) {
        *out_cast = known->low;
        *out_is_ours = false;
        thread->autocasts_reused++;
        return FY_STATUS_OK;
    }
    if (known) {
        FY_TRY(view_copy(thread, tensor, dtype, out_cast));
        if (*out_cast) {
            fy__tape_slot_t *leaf = leaf_of(thread, tensor);
            thread->autocasts_reused++;
            *out_is_ours = !keep(thread, leaf, *out_cast);
            if (!*out_is_ours) {
                leaf->low_is_copy = true;
                leaf->low_recording = fy__recording_of(thread, leaf->device);
            }
            return FY_STATUS_OK;
        }
    }
    FY_TRY(fy__op_new(FY_OP_CAST, 1, &tensor, &attrs, out_cast));
    thread->autocasts++;
    thread->autocast_nbytes += fy__tensor_nbytes(*out_cast);
    (*out_cast)->named = tensor->named;
    atomic_init(&(*out_cast)->name_number, 0);
    if (tensor->named) memcpy((*out_cast)->name, tensor->name, sizeof tensor->name);
    fy__tape_slot_t *slot = leaf_of(thread, tensor); /* the record has grown */
    *out_is_ours = !slot || !keep(thread, slot, *out_cast);
    return FY_STATUS_OK;
}

/* Calls with casts in the place of sources. `cast_src` has room for them. */
static fy_status_t call(fy__thread_t *thread, const fy__op_row_t *row, fy_dtype_t target,
                        size_t nsrc, const fy_tensor_t *const *src, const void *attrs, size_t ndst,
                        fy_tensor_t **dst, fy_tensor_t **cast_src, bool *is_ours)
{
    fy_status_t status = FY_STATUS_OK;
    size_t count = 0;
    for (; count < nsrc && status == FY_STATUS_OK; count++) {
        cast_src[count] = (fy_tensor_t *)src[count]; /* only read */
        is_ours[count] = false;
        if (src[count]->dtype == (uint8_t)target || !is_main(&row->info, count)) continue;
        /* a source that is given twice is cast once */
        size_t same = 0;
        while (same < count && src[same] != src[count]) same++;
        if (same < count)
            cast_src[count] = cast_src[same];
        else
            status = cast(thread, src[count], target, &cast_src[count], &is_ours[count]);
    }
    if (status == FY_STATUS_OK)
        status = fy__dispatch(row, nsrc, (const fy_tensor_t *const *)cast_src, attrs, 0, ndst, dst);
    for (size_t i = 0; i < count; i++)
        if (is_ours[i]) fy__tensor_free(thread, cast_src[i]);
    return status;
}

FY_COLD fy_status_t fy__autocast_dispatch(fy__thread_t *thread, const fy__op_row_t *row,
                                          size_t nsrc, const fy_tensor_t *const *src,
                                          const void *attrs, uint32_t accumulate, size_t ndst,
                                          fy_tensor_t **dst)
{
    const fy_dtype_t low = thread->autocast;
    fy_dtype_t target;
    fy_tensor_t *near[NEAR], **cast_src = near;
    bool near_is_ours[NEAR], *is_ours = near_is_ours;
    fy_status_t status;
    thread->autocast = FY_DTYPE_F32; /* the calls of casts, kernels and rules are not cast */
    if (!find_target(row, low, nsrc, src, accumulate, ndst, dst, &target)) {
        status = fy__dispatch(row, nsrc, src, attrs, accumulate, ndst, dst);
    } else {
        if (nsrc > NEAR) {
            cast_src = malloc(nsrc * (sizeof *cast_src + sizeof *is_ours));
            is_ours = (bool *)(cast_src + nsrc);
        }
        status = cast_src
                     ? call(thread, row, target, nsrc, src, attrs, ndst, dst, cast_src, is_ours)
                     : FY_FAIL(OUT_OF_MEMORY, "%s: no host memory for the casts of %zu sources",
                               row->info.name, nsrc);
        if (!cast_src && thread->recording)
            status = fy__recording_failed(thread->recording, status);
        if (cast_src != near) free(cast_src);
    }
    thread->autocast = low;
    return status;
}

/* ---- public ---- */

fy_status_t fy_autocast_set(fy_dtype_t dtype)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if ((unsigned)dtype >= FY_DTYPE_COUNT || !(FY_DTYPE_BIT(dtype) & CASTABLE))
        return FY_FAIL(INVALID_ARGUMENT,
                       "autocast_set: dtype %d is neither f16 nor bf16, nor f32, which switches it "
                       "off",
                       (int)dtype);
    FY_TRY(fy__scope_check_innermost(thread, "autocast_set", "autocast"));
    thread->autocast = dtype;
    return FY_STATUS_OK;
}

fy_status_t fy_autocast_query(fy_autocast_info_t *out_info)
{
    const fy__thread_t *thread = fy__thread();
    FY_TRY(FY__CHECK_OUT(autocast_info, "autocast_query", out_info));
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    const fy_autocast_info_t info = { .struct_size = sizeof info,
                                      .dtype = thread->autocast,
                                      .casts = thread->autocasts,
                                      .nbytes = thread->autocast_nbytes,
                                      .reused = thread->autocasts_reused };
    FY__WRITE(out_info, &info);
    return FY_STATUS_OK;
}
