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
        FY_TRY(fy__copy_view(thread, tensor, dtype, out_cast));
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
