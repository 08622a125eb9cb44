/* Uploads. The path of one: host bytes, packed dense if they are not · through the ring (COPY) or
 * in place (BORROW) · DMA on the upload engine · cast or copy on the device if dst is of another
 * dtype or layout. A synchronous device copies inside the call. At the end: page-locking. Not here:
 * the ring (ring.c), guards (runtime/thread/guard.c). */
#include "transfer/upload.h"

#include "runtime/base/fail.h"
#include "runtime/record/recording.h"
#include "runtime/record/tape.h"
#include "runtime/thread/guard.h"
#include "transfer/convert.h"
#include "transfer/queue.h"
#include "transfer/ring.h"

typedef unsigned long long ull;

/* The source as one dense run of bytes: its own, or a packed copy that the caller releases. */
static fy_status_t pack(fy__thread_t *thread, const fy_tensor_t *src, fy__storage_t **out_packed)
{
    fy_device_t *host = src->storage->device;
    fy__end_t from, to;
    *out_packed = NULL;
    if (src->contiguous || !src->nelem) return FY_STATUS_OK;
    FY_TRY(fy__storage_create_scratch(thread, host, fy__tensor_nbytes(src), NULL,
                                      FY_CATEGORY_STAGING, out_packed));
    fy__end_of(src, &from);
    fy__end_dense(src, (fy_dtype_t)src->dtype, *out_packed, &to);
    const fy_status_t status = fy__convert(host, NULL, &to, &from, src->nelem);
    if (status != FY_STATUS_OK) {
        fy__storage_release(thread, *out_packed);
        *out_packed = NULL;
    }
    return status;
}

/* Stores the current read point of uploads, which covers earlier ones. Several threads may upload
 * from one tensor: a thread repeats this if the point has changed meanwhile. */
void fy__upload_borrow(fy__storage_t *storage)
{
    const _Atomic fy__point_t *reader = &storage->hazard.readers[FY__READER_UPLOAD];
    fy__point_t point;
    do {
        point = atomic_load(reader);
        fy__storage_lend(storage, point);
    } while (atomic_load(reader) != point);
}

/* One upload in progress. */
typedef struct upload {
    fy__move_t *move;
    fy_device_t *device;
    fy_stream_t *stream; /* NULL on synchronous devices */
    fy_tensor_t *dst;
    const fy_tensor_t *src;
    fy__end_t target, final; /* destination of the bytes, and of the result; the same if `direct` */
    bool direct;
    bool sent; /* some bytes were submitted, so target's bytes changed, or will change */
    bool is_job;
    fy__taint_t taint; /* the faults of its copies */
} upload_t;

static bool replaces(const fy_tensor_t *dst)
{
    return dst->contiguous && fy__tensor_nbytes(dst) == dst->storage->nbytes;
}

/* Makes it a job of the engine's queue, with its conversion. */
static fy_status_t make_job(upload_t *upload, const fy_copy_t *copy)
{
    fy__point_t point;
    const fy__job_order_t order = {
        .copy = *copy,
        .dst = upload->dst->storage,
        .src = upload->src->storage,
        .final = upload->direct ? NULL : &upload->final,
        .raw = &upload->target,
        .nelem = upload->src->nelem,
        .priority = upload->move->options.priority,
        .replaces = replaces(upload->dst),
    };
    FY_TRY(fy__queue_enqueue(upload->move->thread, upload->device->uploads, &order, &point));
    fy__upload_borrow(upload->src->storage);
    upload->is_job = true;
    return FY_STATUS_OK;
}

/* Bytes that may be read until the ticket: submitted at once if the engine's window has room. */
static fy_status_t send_borrowed(upload_t *upload)
{
    fy_device_t *device = upload->device;
    fy__hazard_t *hazard = &upload->target.storage->hazard;
    const uint64_t nbytes = fy__tensor_nbytes(upload->src);
    const fy_copy_t copy = { FY_COPY_UPLOAD,    1,      upload->target.desc.data,
                             upload->src->data, nbytes, NULL };
    fy__point_t point = 0;
    uint64_t request = 0;
    if (!fy__queue_admit(device->uploads, nbytes)) return make_job(upload, &copy);
    fy_status_t status = fy__hazard_before_write(hazard, upload->stream, FY__WAIT_UPLOAD_WRITE);
    if (status == FY_STATUS_OK)
        status = fy__copy_submit(device, upload->stream, "upload", copy, &point, &request);
    fy__queue_sent(device->uploads, nbytes, point);
    if (status != FY_STATUS_OK) return status;
    /* the block is returned to its pool as pending */
    fy__hazard_read(&upload->src->storage->hazard, upload->stream, point);
    fy__upload_borrow(upload->src->storage);
    fy__hazard_written(hazard, point);
    upload->sent = true;
    upload->taint = (fy__taint_t){ .first = request, .mask = request != 0 };
    return FY_STATUS_OK;
}

/* Sends dense host bytes to the target on its device. */
static fy_status_t send(upload_t *upload, const void *bytes)
{
    fy_device_t *device = upload->device;
    const uint64_t nbytes = fy__tensor_nbytes(upload->src);
    const bool is_borrowed = upload->move->options.contract == FY_HOST_BORROW;
    fy__hazard_t *hazard = &upload->target.storage->hazard;
    fy__point_t point = 0;
    if (!upload->stream) {
        const fy_copy_t copy = { FY_COPY_UPLOAD, is_borrowed, upload->target.desc.data,
                                 bytes,          nbytes,      NULL };
        FY_TRY(device->backend->copy(device->dev, NULL, &copy));
        fy__charge_host(0, 2 * nbytes);
        upload->sent = true;
        return FY_STATUS_OK;
    }
    if (is_borrowed) return send_borrowed(upload);
    FY_TRY(fy__hazard_before_write(hazard, upload->stream, FY__WAIT_UPLOAD_WRITE));
    const fy_status_t status = fy__ring_upload(device, upload->target.desc.data, bytes, nbytes,
                                               &point, &upload->move->blocked_ns, &upload->taint);
    /* a chunk was submitted even if a later one failed */
    if (point) fy__hazard_written(hazard, point);
    upload->sent = point != 0;
    return status;
}

fy_status_t fy__upload_run(fy__move_t *move, bool *out_changed, fy__taint_t *taint)
{
    fy__thread_t *thread = move->thread;
    fy_device_t *device = move->device;
    fy_tensor_t *dst = move->dst;
    const fy_tensor_t *src = move->src;
    upload_t upload = { .move = move,
                        .device = device,
                        .stream = device->synchronous ? NULL : device->upload,
                        .dst = dst,
                        .src = src };
    fy__storage_t *packed = NULL, *raw = NULL;
    fy_status_t status;
    *out_changed = false;
    if (!src->nelem) return FY_STATUS_OK;
    if (upload.stream) FY_TRY(fy__stream_throttle(thread, upload.stream));
    fy__end_of(dst, &upload.final);
    upload.direct = dst->contiguous && dst->dtype == src->dtype;
    FY_CHECK(pack(thread, src, &packed));
    if (upload.direct)
        upload.target = upload.final;
    else {
        FY_CHECK(fy__storage_create_scratch(thread, device, fy__tensor_nbytes(src), upload.stream,
                                            FY_CATEGORY_STAGING, &raw));
        fy__end_dense(dst, (fy_dtype_t)src->dtype, raw, &upload.target);
    }
    status = send(&upload, packed ? packed->data : src->data);
    *out_changed = upload.sent && upload.direct && status != FY_STATUS_OK;
    if (status == FY_STATUS_OK && !upload.direct && !upload.is_job)
        status = fy__convert(device, upload.stream, &upload.final, &upload.target, src->nelem);
    if (status == FY_STATUS_OK && upload.stream && !upload.is_job) {
        fy__upload_set_faults(dst, &upload.taint);
        if (taint) fy__taint_join(device, taint, &upload.taint);
    }
done:
    if (packed) fy__storage_release(thread, packed);
    if (raw) fy__storage_release(thread, raw);
    return status;
}

void fy__upload_set_faults(fy_tensor_t *dst, const fy__taint_t *taint)
{
    fy_device_t *device = dst->storage->device;
    if (replaces(dst)) fy__storage_late_clear(device, dst->storage);
    if (!fy__taint_any(taint)) return;
    fy__storage_late_add(device, dst->storage, taint);
    fy__fault_belongs(device, taint, atomic_load(&dst->storage->hazard.writer),
                      FY__FAULT_ALSO_TRANSFER);
}

fy_status_t fy__upload_check_source(const char *what, const fy_tensor_t *src,
                                    const fy_device_t *device, fy_host_contract_t contract)
{
    char text[128];
    const fy__thread_t *thread = fy__thread();
    if (thread) FY_TRY(fy__tape_check_leaving(thread, src, what));
    if (!src->storage->device->is_host)
        return FY_FAIL(DEVICE_MISMATCH,
                       "%s: src %s is on %s; an upload starts on the host\n  Fetch it first: "
                       "fy_tensor_download (%llu bytes)",
                       what, fy__tensor_format(src, text, sizeof text), src->storage->device->spec,
                       (ull)fy__tensor_nbytes(src));
    if (contract == FY_HOST_BORROW && !device->synchronous && src->nelem) {
        if (!src->storage->pinned || src->storage->peer != device)
            return FY_FAIL(
                INVALID_ARGUMENT,
                "%s: FY_HOST_BORROW needs memory that is pinned for %s; src %s is not\n "
                " Make it with fy_tensor_create_pinned, lock its memory with fy_tensor_pin, "
                "or use FY_HOST_COPY",
                what, device->spec, fy__tensor_format(src, text, sizeof text));
        if (!src->contiguous)
            return FY_FAIL(INVALID_ARGUMENT,
                           "%s: FY_HOST_BORROW needs a contiguous source; %s is a strided view\n  "
                           "Use FY_HOST_COPY",
                           what, fy__tensor_format(src, text, sizeof text));
    }
    return fy__taint_resolve(src->storage->device, &((fy_tensor_t *)src)->storage->taint, what);
}

fy_path_t fy__upload_path(const fy_device_t *device, fy_host_contract_t contract)
{
    return device->synchronous          ? FY_PATH_HOST
           : contract == FY_HOST_BORROW ? FY_PATH_DIRECT
                                        : FY_PATH_STAGED;
}

fy_status_t fy_tensor_upload(const fy_tensor_t *src, fy_device_t *device,
                             const fy_transfer_options_t *options, fy_tensor_t **out_dst)
{
    fy__move_t move = { .what = "tensor_upload",
                        .caller = __builtin_return_address(0),
                        .direction = FY__UPLOAD,
                        .device = device,
                        .src = src };
    bool changed;
    if (!out_dst) return FY_FAIL(INVALID_ARGUMENT, "tensor_upload: out_dst is NULL");
    *out_dst = NULL;
    FY_TRY(fy__move_begin(&move, options, src, "src", device, "device"));
    FY_TRY(fy__move_check_device(&move, device));
    FY_TRY(fy__upload_check_source(move.what, src, device, move.options.contract));
    FY_TRY(fy__move_make_dst(&move, device, device->upload, out_dst));
    const fy_status_t status =
        fy__guard_settled(move.thread, fy__upload_run(&move, &changed, NULL));
    if (status != FY_STATUS_OK) {
        fy__move_drop_dst(&move, out_dst);
        return status;
    }
    move.path = fy__upload_path(device, move.options.contract);
    fy__move_note(&move);
    fy__storage_reap(device);
    return FY_STATUS_OK;
}

fy_status_t fy__upload_check_dtypes(const char *what, const fy_tensor_t *dst,
                                    const fy_tensor_t *src, const fy_transfer_options_t *options)
{
    char texts[2][128];
    FY_TRY(fy__move_check_dtype(what, dst, options));
    if (src->dtype != dst->dtype && !options->convert)
        return FY_FAIL(DTYPE_MISMATCH,
                       "%s: src is %s, dst is %s\n  Set options->convert to 1 to convert on the "
                       "device, or fy_cast one of them",
                       what, fy__tensor_format(src, texts[0], 128),
                       fy__tensor_format(dst, texts[1], 128));
    return FY_STATUS_OK;
}

fy_status_t fy__upload_check_into(const char *what, const fy_tensor_t *dst, const fy_tensor_t *src)
{
    FY_TRY(fy__move_check_shapes(what, dst, src));
    FY_TRY(fy__tensor_check_writable(dst, what, "dst"));
    if (dst->storage->device->is_host && dst->storage == src->storage)
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: dst and src share their bytes; use fy_copy for moves on one device",
                       what);
    return fy__storage_check_borrow(dst->storage, what);
}

void fy__upload_poison(fy_tensor_t *dst, fy_status_t status)
{
    fy__storage_poison(
        dst->storage, fy__poison_record(status, "an upload into these bytes failed half way: %.90s",
                                        fy_error_get()->text));
    fy__storage_wrote(dst->storage);
}

void fy__upload_done(fy_tensor_t *dst)
{
    /* All of it is new. No store without a fault: the owner may read this while external work
     * uploads (external.h). */
    if (replaces(dst) && fy__taint_any(&dst->storage->taint))
        dst->storage->taint = (fy__taint_t){ 0, 0, 0 };
    fy__storage_wrote(dst->storage);
}

/* ---- inside a recording: the copy, and the conversion after it if dst is of another dtype or
 * layout ---- */

static fy_status_t append_copy(const fy__move_t *move, fy__recording_t *recording,
                               const fy__end_t *target)
{
    const fy_tensor_t *src = move->src;
    const fy_copy_t copy = { .kind = FY_COPY_UPLOAD,
                             .host_pinned = 1,
                             .dst = target->desc.data,
                             .src = src->data,
                             .nbytes = move->nbytes };
    uint32_t *slots;
    FY_TRY(fy__recording_slots(recording, 2, &slots));
    FY_TRY(fy__recording_slot(recording, target->storage, true, &slots[0]));
    FY_TRY(fy__recording_slot(recording, src->storage, false, &slots[1]));
    return fy__recording_upload(recording, &copy, slots, move->nbytes == target->storage->nbytes,
                                move->options.site, move->caller, move->options.priority);
}

/* fy_tensor_upload_into on the device that this thread records on: each replay copies src's bytes
 * at that time. */
static fy_status_t record_upload(const fy__move_t *move, fy__recording_t *recording)
{
    const fy_tensor_t *dst = move->dst, *src = move->src;
    fy_device_t *device = recording->device;
    fy__storage_t *raw;
    fy__end_t target, final;
    char text[128];
    if (move->options.contract != FY_HOST_BORROW)
        return fy__recording_refuse(recording, "tensor_upload_into with FY_HOST_COPY");
    FY_TRY(fy__upload_check_source(move->what, src, device, FY_HOST_BORROW));
    FY_TRY(fy__upload_check_into(move->what, dst, src));
    if (!src->contiguous)
        return FY_FAIL(INVALID_ARGUMENT,
                       "tensor_upload_into: a graph reads its sources in place, so they must be "
                       "contiguous; %s is not",
                       fy__tensor_format(src, text, sizeof text));
    if (!src->nelem) return FY_STATUS_OK;
    fy__end_of(dst, &final);
    if (dst->contiguous && dst->dtype == src->dtype) return append_copy(move, recording, &final);
    FY_TRY(fy__storage_create_scratch(move->thread, device, move->nbytes, NULL, FY_CATEGORY_STAGING,
                                      &raw));
    fy__end_dense(dst, (fy_dtype_t)src->dtype, raw, &target);
    fy_status_t status = append_copy(move, recording, &target);
    if (status == FY_STATUS_OK) status = fy__convert(device, NULL, &final, &target, src->nelem);
    fy__storage_release(move->thread, raw);
    return status;
}

fy_status_t fy_tensor_upload_into(fy_tensor_t *dst, const fy_tensor_t *src,
                                  const fy_transfer_options_t *options, fy_ticket_t *out_ticket)
{
    fy__move_t move = { .what = "tensor_upload_into",
                        .caller = __builtin_return_address(0),
                        .direction = FY__UPLOAD,
                        .dst = dst,
                        .src = src };
    bool changed;
    if (out_ticket) *out_ticket = (fy_ticket_t){ 0, 0 };
    FY_TRY(fy__move_begin(&move, options, src, "src", dst, "dst"));
    FY_TRY(fy__upload_check_dtypes(move.what, dst, src, &move.options));
    if (move.options.contract == FY_HOST_BORROW && !out_ticket)
        return FY_FAIL(INVALID_ARGUMENT, "tensor_upload_into: out_ticket is NULL; with "
                                         "FY_HOST_BORROW it reports when src is yours again");
    fy_device_t *device = move.device = dst->storage->device;
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    fy__recording_t *recording = fy__recording_of(move.thread, device);
    if (FY_UNLIKELY(recording != NULL)) {
        FY_TRY(fy__recording_failed(recording, record_upload(&move, recording)));
        if (out_ticket) *out_ticket = (fy_ticket_t){ FY__TICKET_RECORDED, recording->uploads };
        return FY_STATUS_OK;
    }
    FY_TRY(fy__upload_check_source(move.what, src, device, move.options.contract));
    FY_TRY(fy__upload_check_into(move.what, dst, src));
    FY_TRY(fy__guard_check_transfer(move.thread, FY__UPLOAD, move.nbytes, move.what));
    const fy_status_t status =
        fy__guard_settled(move.thread, fy__upload_run(&move, &changed, NULL));
    if (status != FY_STATUS_OK) {
        if (changed) fy__upload_poison(dst, status);
        return status;
    }
    fy__upload_done(dst);
    move.path = fy__upload_path(device, move.options.contract);
    fy__move_note(&move);
    if (out_ticket) *out_ticket = fy__point_ticket(move.point);
    fy__storage_reap(device);
    return FY_STATUS_OK;
}

fy_ticket_t fy_tensor_ticket(const fy_tensor_t *tensor)
{
    if (!tensor || fy__tensor_is_gone(tensor) || tensor->storage->device->synchronous)
        return (fy_ticket_t){ 0, 0 };
    return fy__point_ticket(
        atomic_load_explicit(&tensor->storage->hazard.writer, memory_order_acquire));
}

/* Page-locks memory in place, so that it can be uploaded and downloaded without the ring. */
fy_status_t fy_tensor_pin(fy_tensor_t *tensor, fy_device_t *device)
{
    fy__thread_t *thread = fy__thread();
    char text[128];
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!tensor || !device)
        return FY_FAIL(INVALID_ARGUMENT, "tensor_pin: %s is NULL", tensor ? "device" : "tensor");
    if (fy__tensor_is_gone(tensor)) return fy__refuse_gone("tensor_pin", "tensor");
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    fy__storage_t *storage = tensor->storage;
    if (!storage->device->is_host)
        return FY_FAIL(DEVICE_MISMATCH,
                       "tensor_pin: %s is on %s; only host memory can be page-locked",
                       fy__tensor_format(tensor, text, sizeof text), storage->device->spec);
    /* nothing to lock, or no device that needs it */
    if (device->synchronous || !storage->nbytes) return FY_STATUS_OK;
    if (storage->pinned && storage->peer == device) return FY_STATUS_OK;
    if (storage->pinned)
        return FY_FAIL(BUSY,
                       "tensor_pin: %s is page-locked for %s already; memory serves one device\n  "
                       "Make a separate tensor for %s",
                       fy__tensor_format(tensor, text, sizeof text), storage->peer->spec,
                       device->spec);
    return fy__storage_pin(thread, storage, device);
}
