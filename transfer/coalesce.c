/* Many uploads in one call. Small tensors (up to FY__COALESCE_NBYTES, dense at both ends, not
 * converted) are packed into slots of the ring with a table of their destinations. One DMA for each
 * slot copies them to scratch memory of the device, and a kernel on the upload engine's stream
 * spreads them. The others are sent one by one, as by fy_tensor_upload (upload.c).
 * Wire bytes are the run: payload, the gaps that align it to 16 bytes, and 24 bytes of table for
 * each tensor. */
#include <stdio.h>

#include "runtime/base/fail.h"
#include "runtime/thread/guard.h"
#include "transfer/packed.h"
#include "transfer/queue.h"
#include "transfer/upload.h"

/* One call. */
typedef struct many {
    fy__move_t move; /* of the tensor that is sent or noted */
    size_t count;
    fy_tensor_t *const *dst, *const *src;
    uint64_t largest_nbytes; /* largest packed tensor; 0: none is packed */
    uint64_t packed_nbytes;  /* so far */
    fy__point_t last;        /* of the packed tensors */
    fy__taint_t taint;       /* the faults of all the copies */
} many_t;

static bool is_packed(const many_t *many, size_t i)
{
    const fy_tensor_t *dst = many->dst[i], *src = many->src[i];
    const uint64_t nbytes = fy__tensor_nbytes(src);
    return nbytes && nbytes <= many->largest_nbytes && src->contiguous && dst->contiguous &&
           dst->dtype == src->dtype;
}

static fy_status_t choose(many_t *many)
{
    size_t npacked = 0;
    many->largest_nbytes = fy__run_largest(many->move.device);
    for (size_t i = 0; i < many->count && npacked < 2; i++) npacked += is_packed(many, i);
    return fy__run_limit(many->move.device, npacked, &many->largest_nbytes);
}

/* ---- one slot full ---- */

/* Packs tensors from *next on into `slot`, with the table of their destinations. */
static fy_status_t fill(many_t *many, const fy__slot_t *slot, size_t *next, fy__run_t *out_run)
{
    const size_t first = *next;
    *out_run = (fy__run_t){ .bytes = slot->bytes, .room = slot->nbytes };
    for (; *next < many->count; ++*next) {
        if (!is_packed(many, *next)) continue;
        const fy_tensor_t *src = many->src[*next];
        if (!fy__run_fits(out_run, fy__tensor_nbytes(src))) break;
        fy__run_add(out_run, src->data, fy__tensor_nbytes(src));
    }
    fy_packed_entry_t *table = fy__run_close(out_run);
    /* The same table serves twice: the host collects the tensors with it, and the device spreads
     * them. */
    fy_device_t *host = fy_device_host();
    FY_TRY(fy__run_launch(host, NULL, FY_LAUNCH_GATHER, slot->bytes, slot->nbytes, slot->bytes,
                          slot->nbytes, out_run));
    fy__staging_charge(many->packed_nbytes, out_run->payload_nbytes);
    many->packed_nbytes += out_run->payload_nbytes;
    for (size_t i = first; i < *next; i++)
        if (is_packed(many, i)) (table++)->address = (uint64_t)(uintptr_t)many->dst[i]->data;
    return FY_STATUS_OK;
}

/* Sends the run and spreads it over tensors first .. next-1. */
static fy_status_t spread(many_t *many, const fy__slot_t *slot, const fy__run_t *run, size_t first,
                          size_t next, fy__point_t *out_sent)
{
    fy_device_t *device = many->move.device;
    fy_stream_t *stream = device->upload;
    fy__storage_t *scratch = NULL;
    fy__taint_t taint = { 0, 0, 0 };
    fy__point_t point;
    fy_status_t status;
    FY_CHECK(fy__storage_create_scratch(many->move.thread, device, run->nbytes, stream,
                                        FY_CATEGORY_STAGING, &scratch));
    FY_CHECK(fy__hazard_before_write(&scratch->hazard, stream, FY__WAIT_COALESCE_SCRATCH));
    for (size_t i = first; i < next; i++)
        if (is_packed(many, i))
            FY_CHECK(fy__hazard_before_write(&many->dst[i]->storage->hazard, stream,
                                             FY__WAIT_COALESCE_WRITE));
    FY_CHECK(fy__ring_send(device, slot, scratch->data, run->nbytes, out_sent, &taint));
    fy__hazard_written(&scratch->hazard, *out_sent);
    FY_CHECK(fy__run_launch(device, stream, FY_LAUNCH_SCATTER, NULL, 0, scratch->data, run->nbytes,
                            run));
    point = fy__stream_submitted_anchored(stream);
    fy__hazard_written(&scratch->hazard, point);
    for (size_t i = first; i < next; i++)
        if (is_packed(many, i)) {
            fy__hazard_written(&many->dst[i]->storage->hazard, point);
            fy__upload_set_faults(many->dst[i], &taint);
        }
    fy__taint_join(device, &many->taint, &taint);
    many->last = point;
done:
    if (scratch) fy__storage_release(many->move.thread, scratch);
    return status;
}

/* ---- all tensors ---- */

/* After a failure: packed tensors before npacked, and others before nothers, were sent. Poisons
 * them. */
static void poison_all(const many_t *many, size_t npacked, size_t nothers, fy_status_t status)
{
    for (size_t i = 0; i < many->count; i++)
        if (i < (is_packed(many, i) ? npacked : nothers) && many->src[i]->nelem)
            fy__upload_poison(many->dst[i], status);
}

static fy_status_t send_packed(many_t *many)
{
    for (size_t next = 0; many->largest_nbytes && next < many->count;) {
        const size_t first = next;
        fy__slot_t slot;
        fy__run_t run;
        fy__point_t sent = 0;
        while (next < many->count && !is_packed(many, next)) next++;
        if (next == many->count) break;
        fy_status_t status = fy__stream_throttle(many->move.thread, many->move.device->upload);
        if (status == FY_STATUS_OK)
            status = fy__ring_take(many->move.device, &many->move.blocked_ns, &slot);
        if (status == FY_STATUS_OK) {
            status = fill(many, &slot, &next, &run);
            if (status == FY_STATUS_OK) status = spread(many, &slot, &run, first, next, &sent);
            fy__ring_give(many->move.device, &slot, sent);
        }
        if (status != FY_STATUS_OK) {
            poison_all(many, first, 0, status);
            return status;
        }
    }
    return FY_STATUS_OK;
}

/* ---- uploads that read their sources in place (FY_HOST_BORROW, dense, not converted) are one
 * batch. Bytes are admitted to the engine's window one by one, as without a batch. While some are
 * admitted and not sent, no blocking call is made: other threads may be waiting for them. ---- */

enum { BATCH = 64 };

typedef struct batch {
    fy_device_t *device;
    size_t count;
    fy_tensor_t *dst[BATCH];
    const fy_tensor_t *src[BATCH];
    fy_copy_t copies[BATCH];
} batch_t;

/* Whether this upload can be part of one. Does not poll the device. */
static bool fits_batch(const fy_device_t *device, const fy_tensor_t *dst, const fy_tensor_t *src,
                       fy_host_contract_t contract)
{
    return contract == FY_HOST_BORROW && fy__copy_many_pays(device) && src->nelem &&
           src->contiguous && dst->contiguous && dst->dtype == src->dtype;
}

/* Copies of a batch have no order among each other, so no two may write the same bytes. */
static bool is_written_by(const batch_t *batch, const fy_tensor_t *dst)
{
    const char *begin = dst->data, *end = begin + fy__tensor_nbytes(dst);
    for (size_t i = 0; i < batch->count; i++) {
        const char *other = batch->copies[i].dst;
        if (begin < other + batch->copies[i].nbytes && other < end) return true;
    }
    return false;
}

/* Submits the batch; it is empty afterwards. On failure each destination may hold garbage. */
static fy_status_t send_batch(batch_t *batch)
{
    const size_t count = batch->count;
    fy_stream_t *stream = batch->device->upload;
    fy__point_t point = 0;
    batch->count = 0;
    if (!count) return FY_STATUS_OK;
    const fy_status_t status =
        fy__copy_submit_many(batch->device, stream, count, batch->copies, &point);
    /* after a failure, too: some copies may run; the caller poisons dst */
    for (size_t i = 0; i < count; i++) {
        fy__queue_sent(batch->device->uploads, batch->copies[i].nbytes, point);
        fy__hazard_read(&batch->src[i]->storage->hazard, stream, point);
        fy__upload_borrow(batch->src[i]->storage);
        fy__hazard_written(&batch->dst[i]->storage->hazard, point);
        if (status == FY_STATUS_OK) fy__upload_set_faults(batch->dst[i], &(fy__taint_t){ 0, 0, 0 });
    }
    return status;
}

/* Adds the upload; first submits the batch if it is full or writes the same bytes. *out_taken
 * false: the engine's window is full, so call fy__upload_run; the batch is then empty. On failure
 * the destinations of the batch hold garbage. */
static fy_status_t add_to_batch(fy__thread_t *thread, batch_t *batch, fy_tensor_t *dst,
                                const fy_tensor_t *src, bool *out_taken)
{
    const uint64_t nbytes = fy__tensor_nbytes(src);
    fy_stream_t *stream = batch->device->upload;
    *out_taken = false;
    if (batch->count == BATCH || is_written_by(batch, dst)) FY_TRY(send_batch(batch));
    if (!batch->count) FY_TRY(fy__stream_throttle(thread, stream));
    const fy_status_t status =
        fy__hazard_before_write(&dst->storage->hazard, stream, FY__WAIT_UPLOAD_WRITE);
    if (status != FY_STATUS_OK || !fy__queue_admit(batch->device->uploads, nbytes)) {
        const fy_status_t sent = send_batch(batch);
        return status != FY_STATUS_OK ? status : sent;
    }
    batch->dst[batch->count] = dst;
    batch->src[batch->count] = src;
    batch->copies[batch->count++] = (fy_copy_t){ .kind = FY_COPY_UPLOAD,
                                                 .host_pinned = 1,
                                                 .dst = dst->data,
                                                 .src = src->data,
                                                 .nbytes = nbytes };
    *out_taken = true;
    return FY_STATUS_OK;
}

/* Tensor i, in the batch or, if that is impossible, after it. *out_changed: it failed, but tensor i
 * may have changed. */
static fy_status_t send_one(many_t *many, batch_t *batch, size_t i, bool *out_changed)
{
    bool taken = false;
    *out_changed = false;
    if (fits_batch(many->move.device, many->dst[i], many->src[i], many->move.options.contract))
        FY_TRY(add_to_batch(many->move.thread, batch, many->dst[i], many->src[i], &taken));
    else
        FY_TRY(send_batch(batch));
    if (taken) return FY_STATUS_OK;
    many->move.dst = many->dst[i];
    many->move.src = many->src[i];
    return fy__upload_run(&many->move, out_changed, &many->taint);
}

static fy_status_t send_others(many_t *many)
{
    batch_t batch;
    batch.device = many->move.device;
    batch.count = 0;
    for (size_t i = 0; i < many->count; i++) {
        bool changed;
        if (is_packed(many, i)) continue;
        const fy_status_t status = send_one(many, &batch, i, &changed);
        if (status != FY_STATUS_OK) {
            poison_all(many, many->count, i + changed, status);
            return status;
        }
    }
    const fy_status_t status = send_batch(&batch);
    if (status != FY_STATUS_OK) poison_all(many, many->count, many->count, status);
    return status;
}

static fy_status_t run_all(many_t *many)
{
    fy__move_t *move = &many->move;
    FY_TRY(choose(many));
    FY_TRY(send_packed(many));
    FY_TRY(send_others(many));
    for (size_t i = 0; i < many->count; i++) {
        move->dst = many->dst[i];
        move->src = many->src[i];
        move->nbytes = fy__tensor_nbytes(move->src);
        move->path = is_packed(many, i) ? FY_PATH_COALESCED
                                        : fy__upload_path(move->device, move->options.contract);
        fy__move_note(move);
        move->blocked_ns = 0;
    }
    return FY_STATUS_OK;
}

/* ---- public ---- */

/* Refusals by the sources, and by guards of their bytes. */
static fy_status_t check_sources(const many_t *many)
{
    char what[64];
    uint64_t nbytes = 0;
    for (size_t i = 0; i < many->count; i++) {
        snprintf(what, sizeof what, "%s[%zu]", many->move.what, i);
        if (!many->src[i]) return FY_FAIL(INVALID_ARGUMENT, "%s: src is NULL", what);
        if (fy__tensor_is_gone(many->src[i])) return fy__refuse_gone(what, "src");
        FY_TRY(fy__upload_check_source(what, many->src[i], many->move.device,
                                       many->move.options.contract));
        nbytes += fy__tensor_nbytes(many->src[i]);
    }
    return fy__guard_check_transfer(many->move.thread, FY__UPLOAD, nbytes, many->move.what);
}

fy_status_t fy_tensor_upload_many(size_t count, fy_tensor_t *const *src, fy_device_t *device,
                                  const fy_transfer_options_t *options, fy_tensor_t **out_dst)
{
    many_t many = { .move = { .what = "tensor_upload_many",
                              .caller = __builtin_return_address(0),
                              .thread = fy__thread(),
                              .direction = FY__UPLOAD,
                              .device = device },
                    .count = count,
                    .dst = out_dst,
                    .src = src };
    const fy__move_t *move = &many.move;
    size_t made = 0;
    fy_status_t status = FY_STATUS_OK;
    if (count && !out_dst) return FY_FAIL(INVALID_ARGUMENT, "tensor_upload_many: out_dst is NULL");
    for (size_t i = 0; i < count; i++) out_dst[i] = NULL;
    if (!move->thread) return FY_STATUS_OUT_OF_MEMORY;
    if ((count && !src) || !device)
        return FY_FAIL(INVALID_ARGUMENT, "tensor_upload_many: %s is NULL",
                       device ? "src" : "device");
    FY_TRY(fy__transfer_options_read(move->what, options, &many.move.options));
    FY_TRY(fy__move_check_device(move, device));
    FY_TRY(check_sources(&many));
    for (; made < count && status == FY_STATUS_OK; made += status == FY_STATUS_OK) {
        const fy_dtype_t dtype = move->options.dtype == FY_DTYPE_SAME ? (fy_dtype_t)src[made]->dtype
                                                                      : move->options.dtype;
        status = fy__tensor_new(move->thread, device, dtype, src[made]->rank, src[made]->dims,
                                src[made]->nelem, device->upload, &out_dst[made]);
    }
    if (status == FY_STATUS_OK) status = run_all(&many);
    if (status != FY_STATUS_OK) {
        fy__guard_settle(move->thread);
        for (size_t i = 0; i < made; i++) fy__move_drop_dst(move, &out_dst[i]);
        return status;
    }
    fy__storage_reap(device);
    return FY_STATUS_OK;
}

/* Checks that all of them are writable and on one device. */
static fy_status_t check_destinations(const many_t *many)
{
    char what[64], text[128];
    for (size_t i = 0; i < many->count; i++) {
        fy_tensor_t *dst = many->dst[i];
        snprintf(what, sizeof what, "%s[%zu]", many->move.what, i);
        if (!dst || !many->src[i])
            return FY_FAIL(INVALID_ARGUMENT, "%s: %s is NULL", what, dst ? "src" : "dst");
        if (fy__tensor_is_gone(dst)) return fy__refuse_gone(what, "dst");
        if (fy__tensor_is_gone(many->src[i])) return fy__refuse_gone(what, "src");
        const fy_device_t *first = many->dst[0]->storage->device;
        if (dst->storage->device != first)
            return FY_FAIL(DEVICE_MISMATCH,
                           "%s: dst %s is on %s, the first one is on %s\n  One call fills tensors "
                           "of one device",
                           what, fy__tensor_format(dst, text, sizeof text),
                           dst->storage->device->spec, first->spec);
        FY_TRY(fy__upload_check_dtypes(what, dst, many->src[i], &many->move.options));
        FY_TRY(fy__upload_check_into(what, dst, many->src[i]));
    }
    return FY_STATUS_OK;
}

fy_status_t fy_tensor_upload_many_into(size_t count, fy_tensor_t *const *dst,
                                       fy_tensor_t *const *src,
                                       const fy_transfer_options_t *options,
                                       fy_ticket_t *out_ticket)
{
    many_t many = { .move = { .what = "tensor_upload_many_into",
                              .caller = __builtin_return_address(0),
                              .thread = fy__thread(),
                              .direction = FY__UPLOAD },
                    .count = count,
                    .dst = dst,
                    .src = src };
    fy__move_t *move = &many.move;
    if (out_ticket) *out_ticket = (fy_ticket_t){ 0, 0 };
    if (!move->thread) return FY_STATUS_OUT_OF_MEMORY;
    if (count && (!dst || !src))
        return FY_FAIL(INVALID_ARGUMENT, "tensor_upload_many_into: %s is NULL",
                       dst ? "src" : "dst");
    FY_TRY(fy__transfer_options_read(move->what, options, &move->options));
    if (move->options.contract == FY_HOST_BORROW && !out_ticket)
        return FY_FAIL(INVALID_ARGUMENT,
                       "tensor_upload_many_into: out_ticket is NULL; with "
                       "FY_HOST_BORROW it reports when the sources are yours again");
    if (!count) return FY_STATUS_OK;
    FY_TRY(check_destinations(&many));
    move->device = dst[0]->storage->device;
    FY_TRY(fy__move_check_device(move, move->device));
    FY_TRY(check_sources(&many));
    FY_TRY(fy__guard_settled(move->thread, run_all(&many)));
    fy__point_t last = many.last;
    for (size_t i = 0; i < count; i++) {
        fy__upload_done(dst[i]);
        fy__point_t writer =
            atomic_load_explicit(&dst[i]->storage->hazard.writer, memory_order_relaxed);
        /* a queued transfer has no place in the order yet */
        if (out_ticket) FY_TRY(fy__point_submit(&writer));
        if (src[i]->nelem && FY__POINT_STREAM(writer) == FY__POINT_STREAM(last ? last : writer) &&
            writer > last)
            last = writer;
    }
    fy__fault_belongs(move->device, &many.taint, last, FY__FAULT_ALSO_CALL);
    if (out_ticket) *out_ticket = fy__point_ticket(last);
    fy__storage_reap(move->device);
    return FY_STATUS_OK;
}
