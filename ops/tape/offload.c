/* Offloading: what the calls of a segment saved goes to page-locked memory of the host, and comes
 * back in the backward, one segment ahead. A parcel is the bytes of one storage. A saved operand in
 * a parcel is a handle without a storage, as one whose maker runs again (remake.c).
 * Invariants: a parcel has as many users as operands name it, and is freed with the last; a segment
 * is the calls between two offloads, and `ahead` segments are still to be requested. */
#include <stdlib.h>

#include <ferry/scope.h>
#include <ferry/transfer.h>

#include "ops/tape/tape.h"

enum { SMALLEST = 4096 }; /* bytes of a storage that is worth two requests */

struct fy__tape_parcel {
    fy_download_t *download; /* ours, in no scope; NULL once it was waited for */
    fy_tensor_t *back;       /* the bytes on the device again; ours, in no scope */
    fy_device_t *device;
    fy__storage_t *storage; /* during fy_tape_offload: where the bytes are */
    uint32_t users;
};

static void free_parcel(fy__thread_t *thread, fy__tape_parcel_t *parcel)
{
    fy_download_destroy(parcel->download);
    if (parcel->back) fy__tensor_free(thread, parcel->back);
    parcel->download = NULL;
    parcel->back = NULL;
}

void fy__tape_leave_parcel(fy__thread_t *thread, fy_tape_t *tape, fy__tape_operand_t *operand)
{
    fy__tape_parcel_t *parcel = &tape->parcels[operand->parcel - 1];
    operand->parcel = 0;
    if (--parcel->users == 0) free_parcel(thread, parcel);
}

/* ---- in the forward ---- */

/* Whether a watched tensor, or the cast that the tape keeps of one, has these bytes: they stay. */
static bool is_watched(const fy_tape_t *tape, const fy__storage_t *storage)
{
    for (uint32_t i = 0; i < tape->nleaves; i++) {
        const fy__tape_slot_t *leaf = &tape->leaves[i];
        if ((leaf->tensor && leaf->tensor->storage == storage) ||
            (leaf->low && leaf->low->storage == storage))
            return true;
    }
    return false;
}

/* Results of this record that the tape alone needs from now on. */
static bool can_leave(const fy__thread_t *thread, const fy_tape_t *tape,
                      const fy__tape_call_t *call, uint32_t index)
{
    const fy__tape_operand_t *operand = &tape->operands[call->first + index];
    const fy_tensor_t *saved = operand->saved;
    if (!saved || !saved->storage || operand->parcel) return false;
    if (saved->storage->nbytes < SMALLEST || saved->storage->device->synchronous) return false;
    /* bytes that were written since are refused by the backward */
    if (fy__recording_version(thread, saved->storage) != operand->version) return false;
    if (index >= call->nsrc) return true;
    return operand->value && !(operand->value & FY__TAPE_LEAF) && !is_watched(tape, saved->storage);
}

/* The bytes of a storage, requested. */
static fy_status_t download(fy__thread_t *thread, fy__storage_t *storage,
                            fy_download_t **out_download)
{
    const int64_t dims[1] = { (int64_t)storage->nbytes };
    fy_tensor_t *bytes = fy__tape_blank(thread);
    if (!bytes) return FY_STATUS_OUT_OF_MEMORY;
    fy__storage_retain(storage);
    bytes->storage = storage;
    bytes->data = storage->data;
    fy__tensor_set_dense(bytes, FY_DTYPE_U8, 1, dims, storage->nbytes);
    const fy_status_t status = fy_tensor_download(bytes, NULL, out_download);
    if (status == FY_STATUS_OK) fy_download_keep(*out_download);
    fy__tensor_free(thread, bytes);
    return status;
}

/* The number + 1 of the parcel with the operand's bytes, from this offload or an earlier one. */
static uint32_t find_parcel(const fy_tape_t *tape, const fy__tape_operand_t *operand,
                            uint32_t first)
{
    const uint32_t value = operand->value;
    for (uint32_t i = tape->nparcels; i-- > first;)
        if (tape->parcels[i].storage == operand->saved->storage) return i + 1;
    if (!value || value & FY__TAPE_LEAF) return 0;
    const uint32_t earlier = fy__tape_slot(tape, value)->parcel;
    return earlier && tape->parcels[earlier - 1].users ? earlier : 0;
}

static fy_status_t send(fy__thread_t *thread, fy_tape_t *tape, fy__tape_operand_t *operand,
                        uint32_t first)
{
    fy__storage_t *storage = operand->saved->storage;
    operand->parcel = find_parcel(tape, operand, first);
    if (!operand->parcel) {
        fy__tape_parcel_t parcel = { .device = storage->device, .storage = storage };
        FY_TRY(fy__tape_grow((void **)&tape->parcels, &tape->parcels_room, tape->nparcels, 1,
                             sizeof *tape->parcels));
        FY_TRY(download(thread, storage, &parcel.download));
        tape->parcels[tape->nparcels++] = parcel;
        operand->parcel = tape->nparcels;
    }
    tape->parcels[operand->parcel - 1].users++;
    return FY_STATUS_OK;
}

/* All that a failed offload has begun. */
static void undo(fy__thread_t *thread, fy_tape_t *tape, uint32_t begin, uint32_t first)
{
    for (uint32_t i = begin; i < tape->noperands; i++)
        if (tape->operands[i].parcel && tape->operands[i].saved->storage)
            fy__tape_leave_parcel(thread, tape, &tape->operands[i]);
    tape->nparcels = first;
}

/* The device's bytes are free once the download has read them. */
static void let_go(fy__thread_t *thread, fy_tape_t *tape, fy__tape_operand_t *operand)
{
    fy_tensor_t *saved = operand->saved;
    fy__storage_t *storage = saved->storage;
    saved->data = (void *)((uintptr_t)saved->data - (uintptr_t)storage->data);
    saved->storage = NULL;
    if (operand->value && !(operand->value & FY__TAPE_LEAF))
        fy__tape_slot(tape, operand->value)->parcel = operand->parcel;
    fy__storage_release(thread, storage);
}

static fy_status_t send_all(fy__thread_t *thread, fy_tape_t *tape, uint32_t call, uint32_t first)
{
    for (uint32_t i = call; i < tape->ncalls; i++) {
        const fy__tape_call_t *sender = &tape->calls[i];
        for (uint32_t k = 0; k < (uint32_t)sender->nsrc + sender->ndst; k++)
            if (can_leave(thread, tape, sender, k))
                FY_TRY(send(thread, tape, &tape->operands[sender->first + k], first));
    }
    return FY_STATUS_OK;
}

fy_status_t fy_tape_offload(void)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    fy_tape_t *tape = thread->tape;
    if (!tape || tape->again) return FY_STATUS_OK;
    if (thread->recording)
        return FY_FAIL(UNSUPPORTED, "tape_offload: this thread records a graph, in which the "
                                    "backward cannot wait for the bytes\n  Call the step, or "
                                    "recompute instead (fy_tape_recompute)");
    const uint32_t call = tape->nsegments ? tape->segments[tape->nsegments - 1] : 0;
    const uint32_t first = tape->nparcels;
    if (call == tape->ncalls) return FY_STATUS_OK;
    FY_TRY(fy__tape_grow((void **)&tape->segments, &tape->segments_room, tape->nsegments, 1,
                         sizeof *tape->segments));
    const uint32_t begin = tape->calls[call].first;
    const fy_scope_t scope = fy_scope_begin("offload");
    const fy_status_t status = send_all(thread, tape, call, first);
    fy_scope_end(scope, 0, NULL);
    if (status != FY_STATUS_OK) {
        undo(thread, tape, begin, first);
        return status;
    }
    for (uint32_t i = begin; i < tape->noperands; i++)
        if (tape->operands[i].parcel && tape->operands[i].saved->storage)
            let_go(thread, tape, &tape->operands[i]);
    for (uint32_t i = first; i < tape->nparcels; i++) tape->parcels[i].storage = NULL;
    tape->segments[tape->nsegments++] = tape->ncalls;
    tape->ahead = tape->nsegments;
    return FY_STATUS_OK;
}

/* ---- in the backward ---- */

/* Waits for the download, which is usually long over, and requests the upload. */
static fy_status_t request(fy__thread_t *thread, fy__tape_parcel_t *parcel)
{
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_HERE;
    fy_tensor_t *host;
    if (parcel->back) return FY_STATUS_OK;
    options.contract = FY_HOST_BORROW;
    FY_TRY(fy_download_wait(parcel->download, FY_FOREVER, &host));
    parcel->download = NULL;
    const fy_status_t status = fy_tensor_upload(host, parcel->device, &options, &parcel->back);
    if (status == FY_STATUS_OK) fy__handle_release(&parcel->back->handle);
    fy__tensor_free(thread, host); /* its memory waits for the upload */
    return status;
}

static fy_status_t request_segment(fy__thread_t *thread, fy_tape_t *tape, uint32_t segment)
{
    const uint32_t first = segment ? tape->segments[segment - 1] : 0, end = tape->segments[segment];
    for (uint32_t i = end; i-- > first;) {
        const fy__tape_call_t *call = &tape->calls[i];
        for (uint32_t k = 0; k < (uint32_t)call->nsrc + call->ndst; k++) {
            const uint32_t parcel = tape->operands[call->first + k].parcel;
            if (parcel) FY_TRY(request(thread, &tape->parcels[parcel - 1]));
        }
    }
    return FY_STATUS_OK;
}

fy_status_t fy__tape_ahead(fy__thread_t *thread, fy_tape_t *tape, uint32_t index,
                           fy__frame_t *frame)
{
    uint32_t now = tape->nsegments; /* the segment of the call, or behind all */
    while (now && tape->segments[now - 1] > index) now--;
    if (!tape->ahead || tape->ahead < now) return FY_STATUS_OK;
    fy_status_t status = FY_STATUS_OK;
    thread->frame = frame;
    const fy_scope_t scope = fy_scope_begin("offload");
    for (; status == FY_STATUS_OK && tape->ahead && tape->ahead >= now; tape->ahead--)
        status = request_segment(thread, tape, tape->ahead - 1);
    fy_scope_end(scope, 0, NULL);
    thread->frame = NULL;
    return status;
}

fy_status_t fy__tape_unpack(fy__thread_t *thread, fy_tape_t *tape,
                            const fy__tape_operand_t *operand, fy__storage_t **out_storage)
{
    fy__tape_parcel_t *parcel = &tape->parcels[operand->parcel - 1];
    FY_TRY(request(thread, parcel));
    *out_storage = parcel->back->storage;
    return FY_STATUS_OK;
}
