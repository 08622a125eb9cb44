/* Transfers from device to device, without the host: one copy on the source's download engine,
 * directly into the other device's memory. A strided or converted source is made dense on its
 * device first, so that only the result's bytes cross; a strided destination is filled from a dense
 * copy beside it. Not here: a backend's copy between two devices (its copy slot, FY_COPY_PEER). */
#include "runtime/base/fail.h"
#include "runtime/record/recording.h"
#include "runtime/record/tape.h"
#include "runtime/thread/guard.h"
#include "transfer/fetch.h"
#include "transfer/upload.h"

typedef unsigned long long ull;

static fy_status_t check_pair(const char *what, const fy_tensor_t *src, fy_device_t *to)
{
    fy_device_t *from = src->storage->device;
    char text[128];
    fy__tensor_format(src, text, sizeof text);
    if (from == to)
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: src %s is on %s already\n  Within one device use fy_copy", what, text,
                       to->spec);
    if (from->is_host)
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: src %s is on the host\n  Upload it with fy_tensor_upload", what, text);
    if (to->is_host)
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: the destination of src %s is the host\n  Call fy_tensor_download", what,
                       text);
    if (from->backend != to->backend || from->synchronous)
        return FY_FAIL(UNSUPPORTED,
                       "%s: src %s is on %s, which cannot copy to %s\n  Transfer through the host: "
                       "fy_tensor_download, then fy_tensor_upload (%llu "
                       "bytes each way)",
                       what, text, from->spec, to->spec, (ull)fy__tensor_nbytes(src));
    if (fy__device_is_lost(from)) return fy__device_lost_error(from);
    return fy__device_is_lost(to) ? fy__device_lost_error(to) : FY_STATUS_OK;
}

/* Faults are numbered by device, so dst cannot store an unresolved fault of src: it is resolved
 * before src is sent. The host waits here only if src depends on one of the last FY__FAULT_WINDOW
 * requests that can fail. */
fy_status_t fy__peer_resolve(const char *what, const fy_tensor_t *src, uint64_t *blocked_ns)
{
    fy__storage_t *storage = src->storage;
    fy__point_t writer = atomic_load_explicit(&storage->hazard.writer, memory_order_acquire);
    /* a queued transfer: once it is submitted, its fault is known */
    FY_TRY(fy__point_submit(&writer));
    fy__storage_adopt(storage);
    if (!fy__taint_any(&storage->taint)) return FY_STATUS_OK;
    if (writer && !storage->taint.poison && !fy__point_reached(writer)) {
        const uint64_t start_ns = fy__now_ns();
        FY_TRY(fy__point_wait(writer, FY_FOREVER, FY__WAIT_PEER_FAULT));
        *blocked_ns += fy__now_ns() - start_ns;
    }
    return fy__taint_resolve(storage->device, &storage->taint, what);
}

/* A failed copy is a fault of its source device, which dst cannot store. So if copies can fail, the
 * fault is resolved before the call returns. Only simulated devices with such a script have
 * them. */
static uint32_t find_fault(fy__fetch_t *fetch, uint64_t request)
{
    if (!request) return 0;
    const uint64_t start_ns = fy__now_ns();
    const fy_status_t status = fy__point_wait(fetch->point, FY_FOREVER, FY__WAIT_PEER_FAULT);
    fetch->blocked_ns += fy__now_ns() - start_ns;
    return status == FY_STATUS_OK ? fy__fault_at(fetch->device, fetch->point) : 0;
}

static fy_status_t copy_to(fy__fetch_t *fetch, const fy__end_t *target, uint64_t *out_request)
{
    fy_device_t *from = fetch->device;
    const fy_copy_t copy = { .kind = FY_COPY_PEER,
                             .dst = target->desc.data,
                             .src = fetch->src.desc.data,
                             .nbytes = fetch->nbytes,
                             .peer = target->storage->device->dev };
    FY_TRY(fy__hazard_before_write(&target->storage->hazard, fetch->stream, FY__WAIT_PEER_WRITE));
    FY_TRY(fy__copy_submit(from, fetch->stream, "send", copy, &fetch->point, out_request));
    fy__hazard_read(&fetch->src.storage->hazard, fetch->stream, fetch->point);
    fy__hazard_written(&target->storage->hazard, fetch->point);
    return FY_STATUS_OK;
}

static fy_status_t run(fy__thread_t *thread, fy__fetch_t *fetch, fy_tensor_t *dst,
                       const fy_tensor_t *src)
{
    fy_device_t *to = dst->storage->device;
    fy__storage_t *landing = NULL;
    fy__end_t final, target;
    uint64_t request;
    fy_status_t status;
    FY_CHECK(fy__fetch_begin(thread, fetch, src, (fy_dtype_t)dst->dtype, FY__WAIT_PEER_READ));
    if (!fetch->nbytes) goto done;
    fy__end_of(dst, &final);
    target = final;
    if (!dst->contiguous) {
        FY_CHECK(fy__storage_create_scratch(thread, to, fetch->nbytes, fetch->stream,
                                            FY_CATEGORY_STAGING, &landing));
        fy__end_dense(dst, (fy_dtype_t)dst->dtype, landing, &target);
    }
    FY_CHECK(copy_to(fetch, &target, &request));
    if (landing) FY_CHECK(fy__convert(to, to->upload, &final, &target, dst->nelem));
    const uint32_t record = find_fault(fetch, request);
    fy__upload_set_faults(dst, &(fy__taint_t){ .poison = record });
    if (landing && record) fy__fault_keep(to, atomic_load(&final.storage->hazard.writer), record);
done:
    fy__fetch_end(thread, fetch);
    if (landing) fy__storage_release(thread, landing);
    return status;
}

static fy_status_t send(fy__move_t *move)
{
    fy__fetch_t fetch = { .device = move->device, .stream = move->device->download };
    FY_TRY(fy__guard_settled(move->thread,
                             fy__peer_resolve(move->what, move->src, &fetch.blocked_ns)));
    FY_TRY(fy__guard_settled(move->thread, run(move->thread, &fetch, move->dst, move->src)));
    move->path = FY_PATH_PEER;
    move->nbytes = fetch.nbytes;
    move->blocked_ns = fetch.blocked_ns;
    move->point = fetch.point;
    fy__move_note(move);
    return FY_STATUS_OK;
}

static fy_status_t check_devices(fy__move_t *move, fy_device_t *to)
{
    move->device = move->src->storage->device;
    move->other = to;
    FY_TRY(check_pair(move->what, move->src, to));
    FY_TRY(fy__recording_check(move->thread, move->device, move->what));
    FY_TRY(fy__recording_check(move->thread, to, move->what));
    return fy__tape_check_leaving(move->thread, move->src, move->what);
}

fy_status_t fy_tensor_send(const fy_tensor_t *src, fy_device_t *device,
                           const fy_transfer_options_t *options, fy_tensor_t **out_dst)
{
    fy__move_t move = { .what = "tensor_send",
                        .caller = __builtin_return_address(0),
                        .direction = FY__PEER,
                        .src = src };
    if (!out_dst) return FY_FAIL(INVALID_ARGUMENT, "%s: out_dst is NULL", move.what);
    *out_dst = NULL;
    FY_TRY(fy__move_begin(&move, options, src, "src", device, "device"));
    FY_TRY(check_devices(&move, device));
    FY_TRY(fy__move_make_dst(&move, device, move.device->download, out_dst));
    const fy_status_t status = send(&move);
    if (status != FY_STATUS_OK) {
        fy__move_drop_dst(&move, out_dst);
        return status;
    }
    fy__storage_reap(move.device);
    return FY_STATUS_OK;
}

fy_status_t fy_tensor_send_into(fy_tensor_t *dst, const fy_tensor_t *src,
                                const fy_transfer_options_t *options, fy_ticket_t *out_ticket)
{
    fy__move_t move = { .what = "tensor_send_into",
                        .caller = __builtin_return_address(0),
                        .direction = FY__PEER,
                        .dst = dst,
                        .src = src };
    if (out_ticket) *out_ticket = (fy_ticket_t){ 0, 0 };
    FY_TRY(fy__move_begin(&move, options, src, "src", dst, "dst"));
    FY_TRY(fy__upload_check_dtypes(move.what, dst, src, &move.options));
    FY_TRY(check_devices(&move, dst->storage->device));
    FY_TRY(fy__upload_check_into(move.what, dst, src));
    FY_TRY(fy__guard_check_transfer(move.thread, FY__PEER, fy__tensor_nbytes(dst), move.what));
    FY_TRY(send(&move));
    fy__upload_done(dst);
    if (out_ticket && dst->nelem)
        *out_ticket = fy__point_ticket(
            atomic_load_explicit(&dst->storage->hazard.writer, memory_order_relaxed));
    fy__storage_reap(move.device);
    return FY_STATUS_OK;
}
