/* Many downloads in one call. A kernel collects small tensors (up to FY__COALESCE_NBYTES, dense,
 * not converted, on the first one's device) on the device into one run of bytes, as many as fit a
 * slot of the ring. The kernel's table of addresses is uploaded through a slot, so it counts in
 * the uploads' wire bytes. The run is downloaded in one copy into page-locked memory that these
 * downloads share: each host tensor is a view of it. The others are downloaded one by one
 * (download.c). */
#include <stdio.h>

#include "runtime/base/fail.h"
#include "runtime/thread/guard.h"
#include "transfer/download.h"
#include "transfer/packed.h"
#include "transfer/move.h"

/* One call. */
typedef struct many {
    fy__move_t move; /* device: the first tensor's */
    size_t count;
    fy_tensor_t *const *src;
    uint64_t largest_nbytes; /* largest packed tensor; 0: none is packed */
    fy_download_t **out;
} many_t;

static bool is_packed(const many_t *many, size_t i)
{
    const fy_tensor_t *src = many->src[i];
    const uint64_t nbytes = fy__tensor_nbytes(src);
    return nbytes && nbytes <= many->largest_nbytes && src->contiguous &&
           src->storage->device == many->move.device &&
           (many->move.options.dtype == FY_DTYPE_SAME ||
            many->move.options.dtype == (fy_dtype_t)src->dtype);
}

static fy_status_t choose(many_t *many)
{
    size_t npacked = 0;
    many->largest_nbytes = 0;
    if (!many->count) return FY_STATUS_OK;
    many->largest_nbytes = fy__run_largest(many->move.device);
    for (size_t i = 0; i < many->count && npacked < 2; i++) npacked += is_packed(many, i);
    return fy__run_limit(many->move.device, npacked, &many->largest_nbytes);
}

/* ---- one run ---- */

typedef struct batch {
    size_t first, next; /* of its tensors: those for which is_packed is true */
    fy__run_t run;
    uint64_t nbytes, table_nbytes; /* of the run without its table; of the table */
    fy__storage_t *table, *scratch, *host;
    fy__point_t point; /* after the copy */
    fy__taint_t taint; /* the fault of the table's upload */
} batch_t;

/* Builds the table in a slot and uploads it. */
static fy_status_t send_table(many_t *many, batch_t *batch)
{
    fy_device_t *device = many->move.device;
    fy__slot_t slot;
    fy__point_t sent = 0;
    FY_TRY(fy__ring_take(device, &many->move.blocked_ns, &slot));
    batch->run = (fy__run_t){ .bytes = slot.bytes, .room = slot.nbytes };
    for (batch->next = batch->first; batch->next < many->count; batch->next++) {
        const fy_tensor_t *src = many->src[batch->next];
        if (!is_packed(many, batch->next)) continue;
        if (!fy__run_fits(&batch->run, fy__tensor_nbytes(src))) break;
        fy__run_add(&batch->run, src->data, fy__tensor_nbytes(src));
    }
    batch->nbytes = batch->run.nbytes;
    slot.bytes = fy__run_close(&batch->run);
    batch->table_nbytes = batch->run.nbytes - batch->nbytes;
    batch->run.packed.table_offset = 0;
    fy_status_t status = fy__stream_throttle(many->move.thread, device->upload);
    if (status == FY_STATUS_OK)
        status = fy__storage_create_scratch(many->move.thread, device, batch->table_nbytes,
                                            device->upload, FY_CATEGORY_STAGING, &batch->table);
    if (status == FY_STATUS_OK)
        status = fy__hazard_before_write(&batch->table->hazard, device->upload,
                                         FY__WAIT_COLLECT_SCRATCH);
    if (status == FY_STATUS_OK)
        status = fy__ring_send(device, &slot, batch->table->data, batch->table_nbytes, &sent,
                               &batch->taint);
    fy__ring_give(device, &slot, sent);
    if (sent) fy__hazard_written(&batch->table->hazard, sent);
    return status;
}

/* Collects the tensors and submits the run's copy, both on the download engine's stream. */
static fy_status_t fetch_run(many_t *many, batch_t *batch)
{
    fy_device_t *device = many->move.device;
    fy_stream_t *stream = device->download;
    FY_TRY(fy__stream_throttle(many->move.thread, stream));
    FY_TRY(fy__storage_create_scratch(many->move.thread, device, batch->nbytes, stream,
                                      FY_CATEGORY_STAGING, &batch->scratch));
    FY_TRY(fy__storage_create_pinned(many->move.thread, device, batch->nbytes, &batch->host));
    FY_TRY(fy__hazard_before_read(&batch->table->hazard, stream, FY__WAIT_COLLECT_TABLE));
    FY_TRY(fy__hazard_before_write(&batch->scratch->hazard, stream, FY__WAIT_COLLECT_SCRATCH));
    for (size_t i = batch->first; i < batch->next; i++)
        if (is_packed(many, i))
            FY_TRY(fy__hazard_before_read(&many->src[i]->storage->hazard, stream,
                                          FY__WAIT_COLLECT_READ));
    FY_TRY(fy__run_launch(device, stream, FY_LAUNCH_GATHER, batch->scratch->data, batch->nbytes,
                          batch->table->data, batch->table_nbytes, &batch->run));
    const fy__point_t collected = fy__stream_submitted_anchored(stream);
    fy__hazard_read(&batch->table->hazard, stream, collected);
    fy__hazard_written(&batch->scratch->hazard, collected);
    for (size_t i = batch->first; i < batch->next; i++)
        if (is_packed(many, i)) fy__hazard_read(&many->src[i]->storage->hazard, stream, collected);
    const fy_copy_t copy = { .kind = FY_COPY_DOWNLOAD,
                             .host_pinned = 1,
                             .dst = batch->host->data,
                             .src = batch->scratch->data,
                             .nbytes = batch->nbytes };
    uint64_t request; /* its point identifies it */
    FY_TRY(fy__copy_submit(device, stream, "download", copy, &batch->point, &request));
    fy__hazard_read(&batch->scratch->hazard, stream, batch->point);
    fy__hazard_written(&batch->host->hazard, batch->point);
    return FY_STATUS_OK;
}

/* The downloads of the batch, in no scope yet. */
static fy_status_t make_downloads(many_t *many, const batch_t *batch)
{
    uint64_t offset = 0;
    for (size_t i = batch->first; i < batch->next; i++) {
        if (!is_packed(many, i)) continue;
        /* ordered after earlier transfers: their faults apply */
        fy__storage_adopt(many->src[i]->storage);
        fy_download_t *download = fy__download_new(many->src[i], (fy_dtype_t)many->src[i]->dtype);
        if (!download) return FY_STATUS_OUT_OF_MEMORY;
        many->out[i] = download;
        fy__taint_join(many->move.device, &download->taint, &batch->taint);
        fy__storage_retain(batch->host);
        download->storage = batch->host;
        download->offset = offset;
        download->is_packed = true;
        download->point = batch->point;
        offset += fy__run_rounded(fy__tensor_nbytes(many->src[i]));
    }
    return FY_STATUS_OK;
}

static fy_status_t request_packed(many_t *many)
{
    for (size_t next = 0; many->largest_nbytes && next < many->count;) {
        batch_t batch = { .first = next };
        while (batch.first < many->count && !is_packed(many, batch.first)) batch.first++;
        if (batch.first == many->count) break;
        fy_status_t status = send_table(many, &batch);
        if (status == FY_STATUS_OK) status = fetch_run(many, &batch);
        if (status == FY_STATUS_OK) status = make_downloads(many, &batch);
        if (batch.table) fy__storage_release(many->move.thread, batch.table);
        if (batch.scratch) fy__storage_release(many->move.thread, batch.scratch);
        if (batch.host) fy__storage_release(many->move.thread, batch.host);
        if (status != FY_STATUS_OK) return status;
        next = batch.next;
    }
    return FY_STATUS_OK;
}

/* ---- all tensors ---- */

/* Requests the other tensors one by one; then records the packed ones and adds them to the
 * scope. */
static fy_status_t request_others(many_t *many)
{
    for (size_t i = 0; i < many->count; i++)
        if (!is_packed(many, i))
            FY_TRY(fy__download_ask(many->src[i], &many->move.options, many->move.caller,
                                    &many->out[i]));
    for (size_t i = 0; i < many->count; i++) {
        if (!is_packed(many, i)) continue;
        fy__move_t *move = &many->move;
        move->src = many->src[i];
        move->to = many->out[i]->storage;
        move->nbytes = fy__tensor_nbytes(move->src);
        move->point = many->out[i]->point;
        fy__move_note(move);
        move->blocked_ns = 0;
        fy__handle_adopt(many->move.thread->frame, &many->out[i]->handle);
    }
    return FY_STATUS_OK;
}

/* All refusals, before the first request. */
static fy_status_t check(const many_t *many)
{
    uint64_t nbytes = 0;
    char what[64];
    for (size_t i = 0; i < many->count; i++) {
        const fy_tensor_t *src = many->src[i];
        snprintf(what, sizeof what, "tensor_download_many[%zu]", i);
        if (!src) return FY_FAIL(INVALID_ARGUMENT, "%s: src is NULL", what);
        if (fy__tensor_is_gone(src)) return fy__refuse_gone(what, "src");
        FY_TRY(fy__move_check_device(&many->move, src->storage->device));
        const fy_dtype_t dtype = many->move.options.dtype == FY_DTYPE_SAME
                                     ? (fy_dtype_t)src->dtype
                                     : many->move.options.dtype;
        nbytes += src->nelem * fy__dtype_sizes[dtype];
    }
    return fy__guard_check_transfer(many->move.thread, FY__DOWNLOAD, nbytes, many->move.what);
}

fy_status_t fy_tensor_download_many(size_t count, fy_tensor_t *const *src,
                                    const fy_transfer_options_t *options,
                                    fy_download_t **out_downloads)
{
    many_t many = { .move = { .what = "tensor_download_many",
                              .caller = __builtin_return_address(0),
                              .thread = fy__thread(),
                              .direction = FY__DOWNLOAD,
                              .path = FY_PATH_COALESCED },
                    .count = count,
                    .src = src,
                    .out = out_downloads };
    if (count && !out_downloads)
        return FY_FAIL(INVALID_ARGUMENT, "tensor_download_many: out_downloads is NULL");
    for (size_t i = 0; i < count; i++) out_downloads[i] = NULL;
    if (!many.move.thread) return FY_STATUS_OUT_OF_MEMORY;
    if (count && !src) return FY_FAIL(INVALID_ARGUMENT, "tensor_download_many: src is NULL");
    FY_TRY(fy__transfer_options_read(many.move.what, options, &many.move.options));
    FY_TRY(check(&many));
    if (!count) return FY_STATUS_OK;
    many.move.device = src[0]->storage->device;
    fy_status_t status = choose(&many);
    if (status == FY_STATUS_OK) status = request_packed(&many);
    if (status == FY_STATUS_OK) status = request_others(&many);
    if (status != FY_STATUS_OK) {
        fy__error_copy_t first;
        fy__error_save(&first);
        fy__guard_settle(many.move.thread);
        for (size_t i = 0; i < count; i++) {
            fy_download_destroy(out_downloads[i]);
            out_downloads[i] = NULL;
        }
        fy__error_restore(&first);
        return status;
    }
    fy__storage_reap(many.move.device);
    return FY_STATUS_OK;
}
