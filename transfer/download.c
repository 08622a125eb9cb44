/* Downloads. The request submits the DMA; the wait makes the host tensor, so no tensor can be read
 * too early. The tensor takes over the page-locked destination: there is no second copy. */
#include "transfer/download.h"

#include <stdlib.h>

#include "runtime/base/fail.h"
#include "runtime/record/event.h"
#include "runtime/record/recording.h"
#include "runtime/thread/guard.h"
#include "transfer/convert.h"
#include "transfer/queue.h"
#include "transfer/move.h"

static void free_download(fy__thread_t *thread, fy_download_t *download)
{
    fy_device_t *device = download->device;
    fy__handle_release(&download->handle);
    if (download->storage) fy__storage_release(thread, download->storage);
    free(download);
    fy__device_unuse(device);
}

/* Dense bytes of `nbytes` at `from`: submitted at once if the engine's window has room, else
 * queued. */
static fy_status_t send(fy__thread_t *thread, fy_download_t *download, const fy__end_t *from,
                        int priority)
{
    fy_device_t *device = download->device;
    fy_stream_t *stream = device->download;
    fy__storage_t *dst = download->storage, *src = from->storage;
    const fy_copy_t copy = { FY_COPY_DOWNLOAD, 1, dst->data, from->desc.data, dst->nbytes, NULL };
    uint64_t request = 0;
    if (!fy__queue_admit(device->downloads, copy.nbytes)) {
        const fy__job_order_t order = {
            .copy = copy, .dst = dst, .src = src, .priority = priority
        };
        return fy__queue_enqueue(thread, device->downloads, &order, &download->point);
    }
    fy_status_t status = fy__hazard_before_read(&src->hazard, stream, FY__WAIT_DOWNLOAD_READ);
    if (status == FY_STATUS_OK)
        status = fy__copy_submit(device, stream, "download", copy, &download->point, &request);
    fy__queue_sent(device->downloads, copy.nbytes, download->point);
    if (status != FY_STATUS_OK) return status;
    fy__hazard_read(&src->hazard, stream, download->point);
    fy__hazard_written(&dst->hazard, download->point);
    fy__storage_late_join(device, dst, src);
    const fy__taint_t taint = { .first = request, .mask = request != 0 };
    fy__storage_late_add(device, dst, &taint);
    return FY_STATUS_OK;
}

/* Submits the copy into download->storage. */
static fy_status_t submit(fy__thread_t *thread, fy_download_t *download, const fy_tensor_t *src,
                          int priority)
{
    fy_device_t *device = download->device;
    fy_stream_t *stream = device->synchronous ? NULL : device->download;
    fy__storage_t *dense = NULL;
    fy__end_t from, packed;
    fy_status_t status = FY_STATUS_OK;
    if (!src->nelem) return status;
    fy__end_of(src, &from);
    /* made dense, and converted, on the device */
    if (!src->contiguous || (fy_dtype_t)src->dtype != download->dtype) {
        FY_CHECK(fy__storage_create_scratch(thread, device, download->storage->nbytes, stream,
                                            FY_CATEGORY_STAGING, &dense));
        fy__end_dense(src, download->dtype, dense, &packed);
        FY_CHECK(fy__convert(device, stream, &packed, &from, src->nelem));
        if (stream) fy__storage_late_join(device, dense, from.storage);
        from = packed;
    }
    if (stream) {
        status = send(thread, download, &from, priority);
    } else {
        const fy_copy_t copy = { FY_COPY_DOWNLOAD,          1,
                                 download->storage->data,   from.desc.data,
                                 download->storage->nbytes, NULL };
        FY_CHECK(device->backend->copy(device->dev, NULL, &copy));
        fy__charge_host(0, 2 * copy.nbytes);
    }
done:
    if (dense) fy__storage_release(thread, dense);
    return status;
}

fy_download_t *fy__download_new(const fy_tensor_t *src, fy_dtype_t dtype)
{
    fy_download_t *download = calloc(1, sizeof *download);
    if (!download) {
        (void)FY_FAIL(OUT_OF_MEMORY, "tensor_download: no host memory for %zu bytes",
                      sizeof *download);
        return NULL;
    }
    download->handle.kind = FY__HANDLE_DOWNLOAD;
    download->device = src->storage->device;
    fy__device_use(download->device);
    download->dtype = dtype;
    download->rank = src->rank;
    for (int i = 0; i < src->rank; i++) download->dims[i] = src->dims[i];
    download->nelem = src->nelem;
    if (src->nelem) download->taint = src->storage->taint; /* no bytes, no fault of theirs */
    return download;
}

fy_status_t fy__download_ask(const fy_tensor_t *src, const fy_transfer_options_t *options,
                             const void *caller, fy_download_t **out_download)
{
    fy__move_t move = {
        .what = "tensor_download", .caller = caller, .direction = FY__DOWNLOAD, .src = src
    };
    if (!out_download) return FY_FAIL(INVALID_ARGUMENT, "tensor_download: out_download is NULL");
    *out_download = NULL;
    FY_TRY(fy__move_begin(&move, options, src, "src", out_download, NULL));
    fy__thread_t *thread = move.thread;
    fy_device_t *device = move.device = src->storage->device;
    FY_TRY(fy__move_check_device(&move, device));
    FY_TRY(fy__guard_check_transfer(thread, FY__DOWNLOAD, move.nbytes, move.what));
    if (!device->synchronous)
        FY_TRY(fy__guard_settled(thread, fy__stream_throttle(thread, device->download)));
    fy_download_t *download = fy__download_new(src, move.dtype);
    if (!download) {
        fy__guard_settle(thread);
        return FY_STATUS_OUT_OF_MEMORY;
    }
    fy_status_t status = fy__storage_create_pinned(thread, device, move.nbytes, &download->storage);
    if (status == FY_STATUS_OK) status = submit(thread, download, src, move.options.priority);
    if (status != FY_STATUS_OK) {
        fy__error_copy_t first;
        fy__error_save(&first);
        fy__guard_settle(thread);
        free_download(thread, download);
        fy__error_restore(&first);
        return status;
    }
    move.path = device->synchronous ? FY_PATH_HOST : FY_PATH_DIRECT;
    move.to = download->storage;
    move.point = download->point;
    fy__move_note(&move);
    fy__handle_adopt(thread->frame, &download->handle);
    *out_download = download;
    fy__storage_reap(device);
    return FY_STATUS_OK;
}

fy_status_t fy_tensor_download(const fy_tensor_t *src, const fy_transfer_options_t *options,
                               fy_download_t **out_download)
{
    return fy__download_ask(src, options, __builtin_return_address(0), out_download);
}

fy_ticket_t fy_download_ticket(const fy_download_t *download)
{
    return download ? fy__point_ticket(download->point) : (fy_ticket_t){ 0, 0 };
}

void fy_download_destroy(fy_download_t *download)
{
    fy__thread_t *thread = fy__thread();
    if (!download || !thread) return;
    /* else it has started, and the bytes still cross */
    if (download->point) (void)fy__point_cancel(download->point);
    free_download(thread, download);
}

void fy_download_keep(fy_download_t *download)
{
    if (download) fy__handle_release(&download->handle);
}

/* The copy has ended: checks for faults. */
static fy_status_t check_bytes(fy_download_t *download, const char *what)
{
    fy_device_t *device = download->device;
    if (!download->point) return fy__taint_resolve(device, &download->taint, what);
    /* of a job that failed or was cancelled */
    const uint32_t record = fy__point_fault(device, download->point);
    /* the next call reports it again */
    if (record && !download->taint.poison) download->taint.poison = record;
    if (atomic_load_explicit(&download->storage->has_late, memory_order_acquire)) {
        fy__taint_join(device, &download->taint, &download->storage->late);
        fy__storage_late_clear(device, download->storage);
    }
    return fy__taint_resolve(device, &download->taint, what);
}

/* Waits for the bytes. A failure has the reason why they did not arrive, or why they are
 * poisoned. */
static fy_status_t arrive(fy__thread_t *thread, fy_download_t *download, uint64_t timeout_ns,
                          const char *what)
{
    uint64_t start_ns;
    FY_TRY(fy__sync_begin(thread, what, FY__WAIT_DOWNLOAD_ARRIVE, download->point, &start_ns));
    fy_status_t status = FY_STATUS_OK;
    if (download->point) {
        status = fy__point_wait(download->point, timeout_ns, FY__WAIT_DOWNLOAD_ARRIVE);
        fy__device_pump(download->device);
    }
    const uint64_t blocked_ns = fy__now_ns() - start_ns;
    fy__count(&thread->node->traffic[FY__DOWNLOAD].blocked_ns, blocked_ns);
    fy__sync_end(thread, start_ns);
    if (status == FY_STATUS_OK) status = check_bytes(download, what);
    FY__EVENT(fy__event_arrived(thread, download->device, download->point,
                                download->nelem * fy__dtype_sizes[download->dtype], blocked_ns,
                                status));
    return status;
}

/* The bytes have arrived without fault: makes the tensor and frees the download. On failure the
 * download is unchanged. */
static fy_status_t conclude(fy__thread_t *thread, fy_download_t *download, fy_tensor_t **out_host)
{
    fy__storage_t *storage = download->storage;
    fy__storage_retain(storage);
    /* another view of it may be in use already */
    if (!download->is_packed) fy__hazard_clear(&storage->hazard);
    FY_TRY(fy__tensor_on(thread, storage, download->dtype, download->rank, download->dims,
                         download->nelem, out_host));
    (*out_host)->data = (char *)storage->data + download->offset;
    fy__storage_reap(download->device);
    free_download(thread, download);
    return FY_STATUS_OK;
}

fy_status_t fy_download_wait(fy_download_t *download, uint64_t timeout_ns, fy_tensor_t **out_host)
{
    fy__thread_t *thread = fy__thread();
    if (!out_host) return FY_FAIL(INVALID_ARGUMENT, "download_wait: out_host is NULL");
    *out_host = NULL;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!download) return FY_FAIL(INVALID_ARGUMENT, "download_wait: download is NULL");
    FY_TRY(fy__recording_check(thread, download->device, "download_wait"));
    FY_TRY(arrive(thread, download, timeout_ns, "download_wait"));
    return conclude(thread, download, out_host);
}

fy_status_t fy_download_try(fy_download_t *download, fy_tensor_t **out_host)
{
    fy__thread_t *thread = fy__thread();
    if (!out_host) return FY_FAIL(INVALID_ARGUMENT, "download_try: out_host is NULL");
    *out_host = NULL;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!download) return FY_FAIL(INVALID_ARGUMENT, "download_try: download is NULL");
    fy_status_t status = FY_STATUS_OK;
    if (download->point) {
        fy__device_pump(download->device);
        if (!fy__wait_drops(FY__WAIT_DOWNLOAD_TRY) && !fy__point_reached(download->point))
            return FY_STATUS_OK;
        /* does not wait: OK, or the device is lost */
        status = fy__point_wait(download->point, 0, FY__WAIT_DOWNLOAD_TRY);
    }
    if (status == FY_STATUS_OK) status = check_bytes(download, "download_try");
    FY__EVENT(fy__event_arrived(thread, download->device, download->point,
                                download->nelem * fy__dtype_sizes[download->dtype], 0, status));
    FY_TRY(status);
    return conclude(thread, download, out_host);
}

static fy_status_t check_one(const fy_download_t *download, const char *what, const char *instead)
{
    if (!download) return FY_FAIL(INVALID_ARGUMENT, "%s: download is NULL", what);
    if (download->nelem == 1) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH,
                   "%s: the download has %llu elements; this call is for one. Use %s", what,
                   (unsigned long long)download->nelem, instead);
}

static void take_value(fy_tensor_t *host, const void *caller, double *out_value)
{
    FY__EVENT(fy__event_map(host->storage, FY_ACCESS_READ, fy__tensor_nbytes(host), caller));
    *out_value = fy__dtype_read_f64((fy_dtype_t)host->dtype, host->data);
    fy_tensor_destroy(host);
}

fy_status_t fy_download_try_f64(fy_download_t *download, int *out_done, double *out_value)
{
    fy_tensor_t *host;
    if (out_done) *out_done = 0;
    if (out_value) *out_value = 0;
    if (!out_done || !out_value)
        return FY_FAIL(INVALID_ARGUMENT, "download_try_f64: %s is NULL",
                       out_done ? "out_value" : "out_done");
    FY_TRY(check_one(download, "download_try_f64", "fy_download_try"));
    FY_TRY(fy_download_try(download, &host));
    if (!host) return FY_STATUS_OK;
    *out_done = 1;
    take_value(host, __builtin_return_address(0), out_value);
    return FY_STATUS_OK;
}

fy_status_t fy_download_wait_f64(fy_download_t *download, uint64_t timeout_ns, double *out_value)
{
    fy_tensor_t *host;
    if (!out_value) return FY_FAIL(INVALID_ARGUMENT, "download_wait_f64: out_value is NULL");
    *out_value = 0;
    FY_TRY(check_one(download, "download_wait_f64", "fy_download_wait"));
    FY_TRY(fy_download_wait(download, timeout_ns, &host));
    take_value(host, __builtin_return_address(0), out_value);
    return FY_STATUS_OK;
}
