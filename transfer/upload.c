/* Uploads. The path of one: host bytes, packed dense if they are not · through the ring (COPY) or in place (BORROW) · DMA on the upload
 * engine · cast or scatter on the device if dst is of another dtype or layout. A synchronous device copies inside the call.
 * Not here: the ring (ring.c), budgets (runtime/guard.c). */
#include "transfer/upload.h"

#include "runtime/base/fail.h"
#include "runtime/guard.h"
#include "transfer/account.h"
#include "transfer/convert.h"
#include "transfer/options.h"
#include "transfer/record.h"
#include "transfer/ring.h"

typedef unsigned long long ull;

/* The source as one dense run of bytes: its own, or a packed copy that the caller releases. */
static fy_status_t pack(fy__thread_t *thread, const fy_tensor_t *src, fy__storage_t **out_packed)
{
    fy_device_t *host = src->storage->device;
    fy__end_t from, to;
    *out_packed = NULL;
    if (src->contiguous || !src->nelem) return FY_STATUS_OK;
    FY_TRY(fy__storage_create(thread, host, fy__tensor_nbytes(src), NULL, out_packed));
    fy__end_of(src, &from);
    fy__end_dense(src, (fy_dtype_t)src->dtype, *out_packed, &to);
    const fy_status_t status = fy__convert(host, NULL, &to, &from, src->nelem);
    if (status != FY_STATUS_OK) {
        fy__storage_release(thread, *out_packed);
        *out_packed = NULL;
    }
    return status;
}

/* An upload reads these host bytes in place up to `point`. Several threads may upload from one tensor: the later number must win. */
static void borrow(fy__storage_t *storage, fy__point_t point)
{
    fy__point_t held = atomic_load_explicit(&storage->borrow, memory_order_relaxed);
    while (held < point &&
           !atomic_compare_exchange_weak_explicit(&storage->borrow, &held, point, memory_order_release, memory_order_relaxed)) {}
}

/* Sends dense host bytes to `target` on its device. *out_sent: some of them went, so target's bytes changed, or will. */
static fy_status_t send(fy_device_t *device, fy_stream_t *stream, const fy__end_t *target, const fy_tensor_t *src, const void *bytes,
                        fy_host_contract_t contract, uint64_t *blocked_ns, bool *out_sent)
{
    const uint64_t nbytes = fy__tensor_nbytes(src);
    const fy_copy_t copy = { FY_COPY_UPLOAD, contract == FY_HOST_BORROW, target->desc.data, bytes, nbytes };
    fy__point_t point = 0;
    *out_sent = false;
    if (!stream) {
        FY_TRY(device->backend->copy(device->dev, NULL, &copy));
        fy__charge_host(0, 2 * nbytes);
        *out_sent = true;
        return FY_STATUS_OK;
    }
    FY_TRY(fy__hazard_before_write(&target->storage->hazard, stream, FY__WAIT_UPLOAD_WRITE));
    if (contract == FY_HOST_BORROW) {
        FY_TRY(fy__device_check(device, device->backend->copy(device->dev, stream->native, &copy)));
        point = fy__stream_submitted_anchored(stream);
        fy__hazard_read(&src->storage->hazard, stream, point); /* the block goes back to its pool as pending */
        borrow(src->storage, point);
        fy__hazard_written(&target->storage->hazard, point);
        *out_sent = true;
        return FY_STATUS_OK;
    }
    const fy_status_t status = fy__ring_upload(device, target->desc.data, bytes, nbytes, &point, blocked_ns);
    if (point) fy__hazard_written(&target->storage->hazard, point); /* a chunk is on its way even if a later one failed */
    *out_sent = point != 0;
    return status;
}

fy_status_t fy__upload_run(fy__thread_t *thread, fy_device_t *device, fy_tensor_t *dst, const fy_tensor_t *src, fy_host_contract_t contract,
                           uint64_t *blocked_ns, bool *out_changed)
{
    fy_stream_t *stream = device->synchronous ? NULL : device->upload;
    fy__storage_t *packed = NULL, *raw = NULL;
    fy__end_t target, final;
    fy_status_t status;
    bool sent = false;
    *out_changed = false;
    if (!src->nelem) return FY_STATUS_OK;
    if (stream) FY_TRY(fy__stream_throttle(thread, stream));
    fy__end_of(dst, &final);
    const bool direct = dst->contiguous && dst->dtype == src->dtype;
    FY_CHECK(pack(thread, src, &packed));
    if (direct)
        target = final;
    else {
        FY_CHECK(fy__storage_create(thread, device, fy__tensor_nbytes(src), stream, &raw));
        fy__end_dense(dst, (fy_dtype_t)src->dtype, raw, &target);
    }
    status = send(device, stream, &target, src, packed ? packed->data : src->data, contract, blocked_ns, &sent);
    *out_changed = sent && direct && status != FY_STATUS_OK;
    if (status == FY_STATUS_OK && !direct) status = fy__convert(device, stream, &final, &target, src->nelem);
done:
    if (packed) fy__storage_release(thread, packed);
    if (raw) fy__storage_release(thread, raw);
    return status;
}

fy_status_t fy__upload_check_source(const char *what, const fy_tensor_t *src, const fy_device_t *device, fy_host_contract_t contract)
{
    char text[128];
    if (!src->storage->device->is_host)
        return FY_FAIL(DEVICE_MISMATCH,
                       "%s: src %s is on %s; an upload starts on the host\n  Fetch it first: fy_tensor_download (%llu bytes)", what,
                       fy__tensor_format(src, text, sizeof text), src->storage->device->spec, (ull)fy__tensor_nbytes(src));
    if (contract == FY_HOST_BORROW && !device->synchronous && src->nelem) {
        if (!src->storage->pinned || src->storage->peer != device)
            return FY_FAIL(
                INVALID_ARGUMENT,
                "%s: FY_HOST_BORROW needs memory that is pinned for %s; src %s is not\n  Make it with fy_tensor_create_pinned, or use "
                "FY_HOST_COPY",
                what, device->spec, fy__tensor_format(src, text, sizeof text));
        if (!src->contiguous)
            return FY_FAIL(INVALID_ARGUMENT, "%s: FY_HOST_BORROW needs a contiguous source; %s is a strided view\n  Use FY_HOST_COPY", what,
                           fy__tensor_format(src, text, sizeof text));
    }
    return fy__suspect_resolve(src->storage->device, &((fy_tensor_t *)src)->storage->suspect, what);
}

void fy__upload_note(fy__thread_t *thread, const fy_tensor_t *dst, const fy_tensor_t *src, const fy_transfer_options_t *options,
                     fy_path_t path, uint64_t blocked_ns, const void *caller)
{
    fy__transfer_note(thread, &(fy__transfer_record_t){
                                  .direction = FY__UPLOAD,
                                  .path = path,
                                  .device = dst->storage->device,
                                  .dst = dst->storage,
                                  .src = src->storage,
                                  .nbytes = fy__tensor_nbytes(src),
                                  .blocked_ns = blocked_ns,
                                  .point = atomic_load_explicit(&dst->storage->hazard.writer, memory_order_relaxed),
                                  .site = options->site,
                                  .caller = caller,
                                  .contract = options->contract,
                                  .priority = options->priority,
                              });
}

fy_path_t fy__upload_path(const fy_device_t *device, fy_host_contract_t contract)
{
    return device->synchronous ? FY_PATH_HOST : contract == FY_HOST_BORROW ? FY_PATH_DIRECT : FY_PATH_STAGED;
}

fy_status_t fy_tensor_upload(const fy_tensor_t *src, fy_device_t *device, const fy_transfer_options_t *options, fy_tensor_t **out_dst)
{
    fy__thread_t *thread = fy__thread();
    uint64_t blocked_ns = 0;
    bool changed;
    if (!out_dst) return FY_FAIL(INVALID_ARGUMENT, "tensor_upload: out_dst is NULL");
    *out_dst = NULL;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!src || !device) return FY_FAIL(INVALID_ARGUMENT, "tensor_upload: %s is NULL", src ? "device" : "src");
    if (fy__tensor_is_gone(src)) return fy__refuse_gone("tensor_upload", "src");
    FY_TRY(fy__transfer_options_check("tensor_upload", &options));
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    FY_TRY(fy__recording_check(thread, device, "tensor_upload"));
    FY_TRY(fy__upload_check_source("tensor_upload", src, device, options->contract));
    const uint64_t nbytes = fy__tensor_nbytes(src);
    const fy_dtype_t dtype = options->dtype == FY_DTYPE_SAME ? (fy_dtype_t)src->dtype : options->dtype;
    FY_TRY(fy__guard_check_transfer(thread, FY__UPLOAD, nbytes, "tensor_upload"));
    FY_TRY(fy__guard_settled(thread, fy__tensor_new(thread, device, dtype, src->rank, src->dims, src->nelem, device->upload, out_dst)));
    const fy_status_t status =
        fy__guard_settled(thread, fy__upload_run(thread, device, *out_dst, src, options->contract, &blocked_ns, &changed));
    if (status != FY_STATUS_OK) {
        fy__error_copy_t first;
        fy__error_save(&first);
        fy__tensor_free(thread, *out_dst);
        *out_dst = NULL;
        fy__error_restore(&first);
        return status;
    }
    fy__upload_note(thread, *out_dst, src, options, fy__upload_path(device, options->contract), blocked_ns, __builtin_return_address(0));
    fy__storage_reap(device);
    return FY_STATUS_OK;
}

fy_status_t fy__upload_check_into(const char *what, const fy_tensor_t *dst, const fy_tensor_t *src)
{
    char texts[2][128];
    bool same = dst->rank == src->rank;
    for (int i = 0; same && i < dst->rank; i++) same = dst->dims[i] == src->dims[i];
    if (!same)
        return FY_FAIL(SHAPE_MISMATCH, "%s: dst is %s, src is %s; the shapes must be equal", what, fy__tensor_format(dst, texts[0], 128),
                       fy__tensor_format(src, texts[1], 128));
    FY_TRY(fy__tensor_check_writable(dst, what, "dst"));
    if (dst->storage->device->is_host && dst->storage == src->storage)
        return FY_FAIL(INVALID_ARGUMENT, "%s: dst and src share their bytes; use fy_copy for moves on one device", what);
    return fy__storage_check_borrow(dst->storage, what);
}

void fy__upload_spoilt(fy_tensor_t *dst, fy_status_t status)
{
    dst->storage->suspect.poison = fy__poison_record(status, "an upload into these bytes failed half way: %.90s", fy_error_get()->text);
    fy__storage_wrote(dst->storage);
}

void fy__upload_done(fy_tensor_t *dst)
{
    if (dst->contiguous && fy__tensor_nbytes(dst) == dst->storage->nbytes)
        dst->storage->suspect = (fy__suspect_t){ 0, 0, 0 }; /* all of it is new */
    fy__storage_wrote(dst->storage);
}

fy_status_t fy_tensor_upload_into(fy_tensor_t *dst, const fy_tensor_t *src, const fy_transfer_options_t *options, fy_ticket_t *out_ticket)
{
    fy__thread_t *thread = fy__thread();
    uint64_t blocked_ns = 0;
    bool changed;
    if (out_ticket) *out_ticket = (fy_ticket_t){ 0, 0 };
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!src || !dst) return FY_FAIL(INVALID_ARGUMENT, "tensor_upload_into: %s is NULL", src ? "dst" : "src");
    if (fy__tensor_is_gone(src) || fy__tensor_is_gone(dst))
        return fy__refuse_gone("tensor_upload_into", fy__tensor_is_gone(src) ? "src" : "dst");
    FY_TRY(fy__transfer_options_check("tensor_upload_into", &options));
    if (options->dtype != FY_DTYPE_SAME && options->dtype != (fy_dtype_t)dst->dtype)
        return FY_FAIL(INVALID_ARGUMENT, "tensor_upload_into: options->dtype is %s but dst is %s; leave it at FY_DTYPE_SAME",
                       fy_dtype_name(options->dtype), fy_dtype_name((fy_dtype_t)dst->dtype));
    if (options->contract == FY_HOST_BORROW && !out_ticket)
        return FY_FAIL(INVALID_ARGUMENT, "tensor_upload_into: out_ticket is NULL; with FY_HOST_BORROW it says when src is yours again");
    fy_device_t *device = dst->storage->device;
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    fy__recording_t *recording = fy__recording_of(thread, device);
    if (FY_UNLIKELY(recording != NULL)) return fy__upload_record(thread, recording, dst, src, options, __builtin_return_address(0));
    FY_TRY(fy__upload_check_source("tensor_upload_into", src, device, options->contract));
    FY_TRY(fy__upload_check_into("tensor_upload_into", dst, src));
    const uint64_t nbytes = fy__tensor_nbytes(src);
    FY_TRY(fy__guard_check_transfer(thread, FY__UPLOAD, nbytes, "tensor_upload_into"));
    const fy_status_t status =
        fy__guard_settled(thread, fy__upload_run(thread, device, dst, src, options->contract, &blocked_ns, &changed));
    if (status != FY_STATUS_OK) {
        if (changed) fy__upload_spoilt(dst, status);
        return status;
    }
    fy__upload_done(dst);
    fy__upload_note(thread, dst, src, options, fy__upload_path(device, options->contract), blocked_ns, __builtin_return_address(0));
    if (out_ticket) *out_ticket = fy__point_ticket(atomic_load_explicit(&dst->storage->hazard.writer, memory_order_relaxed));
    fy__storage_reap(device);
    return FY_STATUS_OK;
}

fy_ticket_t fy_tensor_ticket(const fy_tensor_t *tensor)
{
    if (!tensor || fy__tensor_is_gone(tensor) || tensor->storage->device->synchronous) return (fy_ticket_t){ 0, 0 };
    return fy__point_ticket(atomic_load_explicit(&tensor->storage->hazard.writer, memory_order_acquire));
}
