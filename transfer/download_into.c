/* Downloads into host memory that is there. Page-locked memory takes the bytes in one DMA; other memory gets them through the ring: while
 * the host empties one slot the device fills the next ones. What is strided on the device is made dense there first; a strided destination
 * is filled from a dense copy on the host. Not here: downloads as objects (download.c). */
#include <ferry/transfer.h>

#include "runtime/base/fail.h"
#include "runtime/guard.h"
#include "transfer/account.h"
#include "transfer/convert.h"
#include "transfer/options.h"
#include "transfer/ring.h"

typedef unsigned long long ull;

/* A chunk on its way into a slot. */
typedef struct flight {
    fy__slot_t slot;
    fy__point_t point;
    uint64_t at, nbytes;
} flight_t;
enum { MOST_FLIGHTS = 3 }; /* one slot is left for uploads */

/* One call. */
typedef struct into {
    fy_device_t *device;
    fy_stream_t *stream; /* NULL if synchronous */
    uint64_t nbytes, blocked_ns;
    fy__point_t point; /* behind the last copy */
    bool changed;      /* some of dst's bytes are new */
} into_t;

static fy_status_t submit(into_t *into, void *dst, const fy__end_t *src, uint64_t at, uint64_t nbytes)
{
    fy_device_t *device = into->device;
    const fy_copy_t copy = {
        .kind = FY_COPY_DOWNLOAD, .host_pinned = 1, .dst = dst, .src = (const char *)src->desc.data + at, .nbytes = nbytes
    };
    FY_TRY(fy__device_check(device, device->backend->copy(device->dev, into->stream ? into->stream->native : NULL, &copy)));
    if (!into->stream) return FY_STATUS_OK;
    into->point = fy__stream_submitted_anchored(into->stream);
    fy__hazard_read(&src->storage->hazard, into->stream, into->point);
    return FY_STATUS_OK;
}

static fy_status_t wait(into_t *into, fy__point_t point)
{
    const uint64_t start_ns = fy__now_ns();
    const fy_status_t status = fy__point_wait(point, FY_FOREVER, FY__WAIT_DOWNLOAD_INTO);
    into->blocked_ns += fy__now_ns() - start_ns;
    return status;
}

/* Takes a slot, by waiting for one only if none is held, and asks for the next chunk. *out_asked: there was one. */
static fy_status_t ask(into_t *into, const fy__end_t *src, uint64_t at, bool may_wait, flight_t *out_flight, bool *out_asked)
{
    *out_asked = false;
    if (may_wait)
        FY_TRY(fy__ring_take(into->device, &into->blocked_ns, &out_flight->slot));
    else if (!fy__ring_try_take(into->device, &out_flight->slot))
        return FY_STATUS_OK;
    const uint64_t most = fy__ring_chunk(into->device, into->nbytes, out_flight->slot.nbytes);
    out_flight->at = at;
    out_flight->nbytes = into->nbytes - at < most ? into->nbytes - at : most;
    const fy_status_t status = submit(into, out_flight->slot.bytes, src, at, out_flight->nbytes);
    if (status != FY_STATUS_OK) {
        fy__ring_give(into->device, &out_flight->slot, 0);
        return status;
    }
    out_flight->point = into->point;
    *out_asked = true;
    return FY_STATUS_OK;
}

static fy_status_t through_ring(into_t *into, void *dst, const fy__end_t *src)
{
    flight_t flights[MOST_FLIGHTS];
    uint32_t first = 0, n = 0;
    uint64_t asked = 0;
    fy_status_t status = FY_STATUS_OK;
    while (status == FY_STATUS_OK && (n || asked < into->nbytes)) {
        bool more = n < MOST_FLIGHTS && asked < into->nbytes;
        flight_t *flight = &flights[(first + n) % MOST_FLIGHTS];
        if (more) status = ask(into, src, asked, n == 0, flight, &more);
        if (status == FY_STATUS_OK && more) {
            asked += flight->nbytes;
            n++;
        }
        if (status != FY_STATUS_OK || more) continue;
        flight = &flights[first]; /* all that can be asked for is: empty the oldest */
        status = wait(into, flight->point);
        if (status != FY_STATUS_OK) continue;
        fy__staging_copy(into->device, (char *)dst + flight->at, flight->slot.bytes, flight->nbytes);
        into->changed = true;
        fy__ring_give(into->device, &flight->slot, 0);
        first = (first + 1) % MOST_FLIGHTS;
        n--;
    }
    for (; n; n--, first = (first + 1) % MOST_FLIGHTS) fy__ring_give(into->device, &flights[first].slot, flights[first].point);
    return status;
}

static bool is_direct(const fy_tensor_t *dst, const fy_device_t *device)
{
    return dst->contiguous && dst->storage->pinned && dst->storage->peer == device;
}

/* `src` is dense. */
static fy_status_t fetch(into_t *into, fy_tensor_t *dst, void *bytes, const fy__end_t *src)
{
    if (!into->stream) {
        FY_TRY(submit(into, bytes, src, 0, into->nbytes));
        fy__charge_host(0, 2 * into->nbytes);
        into->changed = true;
        return FY_STATUS_OK;
    }
    FY_TRY(fy__hazard_before_read(&src->storage->hazard, into->stream, FY__WAIT_DOWNLOAD_READ));
    if (!is_direct(dst, into->device)) return through_ring(into, bytes, src);
    FY_TRY(fy__hazard_before_write(&dst->storage->hazard, into->stream, FY__WAIT_DOWNLOAD_WRITE));
    FY_TRY(submit(into, bytes, src, 0, into->nbytes));
    fy__hazard_written(&dst->storage->hazard, into->point);
    into->changed = true;
    FY_TRY(wait(into, into->point));
    fy__hazard_clear(&dst->storage->hazard);
    return FY_STATUS_OK;
}

static fy_status_t run(fy__thread_t *thread, into_t *into, fy_tensor_t *dst, const fy_tensor_t *src)
{
    fy_device_t *device = into->device, *host = fy_device_host();
    fy__storage_t *dense = NULL, *landing = NULL;
    fy__end_t from, to;
    fy_status_t status = FY_STATUS_OK;
    if (!into->nbytes) return status;
    if (into->stream) FY_CHECK(fy__stream_throttle(thread, into->stream));
    fy__end_of(src, &from);
    if (!src->contiguous) {
        fy__end_t packed;
        FY_CHECK(fy__storage_create(thread, device, into->nbytes, into->stream, &dense));
        fy__end_dense(src, (fy_dtype_t)src->dtype, dense, &packed);
        FY_CHECK(fy__convert(device, into->stream, &packed, &from, src->nelem));
        from = packed;
    }
    if (!dst->contiguous) FY_CHECK(fy__storage_create(thread, host, into->nbytes, NULL, &landing));
    status = fetch(into, dst, landing ? landing->data : dst->data, &from);
    if (!landing) goto done;
    into->changed = false;
    if (status != FY_STATUS_OK) goto done;
    fy__end_dense(dst, (fy_dtype_t)dst->dtype, landing, &from);
    fy__end_of(dst, &to);
    status = fy__convert(host, NULL, &to, &from, dst->nelem);
    into->changed = status == FY_STATUS_OK;
done:
    if (dense) fy__storage_release(thread, dense);
    if (landing) fy__storage_release(thread, landing);
    return status;
}

static fy_status_t check(const fy_tensor_t *dst, const fy_tensor_t *src, const fy_transfer_options_t *options)
{
    static const char what[] = "tensor_download_into";
    char texts[2][128];
    bool same = dst->rank == src->rank;
    for (int i = 0; same && i < dst->rank; i++) same = dst->dims[i] == src->dims[i];
    if (!dst->storage->device->is_host)
        return FY_FAIL(DEVICE_MISMATCH,
                       "%s: dst %s is on %s; a download ends on the host\n  Within one device use fy_copy, between two fy_tensor_send_into",
                       what, fy__tensor_format(dst, texts[0], 128), dst->storage->device->spec);
    if (!same)
        return FY_FAIL(SHAPE_MISMATCH, "%s: dst is %s, src is %s; the shapes must be equal", what, fy__tensor_format(dst, texts[0], 128),
                       fy__tensor_format(src, texts[1], 128));
    if (options->dtype != FY_DTYPE_SAME && options->dtype != (fy_dtype_t)dst->dtype)
        return FY_FAIL(INVALID_ARGUMENT, "%s: options->dtype is %s but dst is %s; leave it at FY_DTYPE_SAME", what,
                       fy_dtype_name(options->dtype), fy_dtype_name((fy_dtype_t)dst->dtype));
    if (dst->dtype != src->dtype)
        return FY_FAIL(DTYPE_MISMATCH, "%s: dst is %s, src is %s; the dtypes must be equal\n  Convert on the device first: fy_cast", what,
                       fy__tensor_format(dst, texts[0], 128), fy__tensor_format(src, texts[1], 128));
    FY_TRY(fy__tensor_check_writable(dst, what, "dst"));
    if (dst->storage == src->storage)
        return FY_FAIL(INVALID_ARGUMENT, "%s: dst and src share their bytes; use fy_copy for moves on one device", what);
    return fy__storage_check_borrow(dst->storage, what);
}

fy_status_t fy_tensor_download_into(fy_tensor_t *dst, const fy_tensor_t *src, const fy_transfer_options_t *options)
{
    static const char what[] = "tensor_download_into";
    fy__thread_t *thread = fy__thread();
    uint64_t start_ns;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!src || !dst) return FY_FAIL(INVALID_ARGUMENT, "%s: %s is NULL", what, src ? "dst" : "src");
    if (fy__tensor_is_gone(src) || fy__tensor_is_gone(dst)) return fy__refuse_gone(what, fy__tensor_is_gone(src) ? "src" : "dst");
    FY_TRY(fy__transfer_options_check(what, &options));
    FY_TRY(check(dst, src, options));
    fy_device_t *device = src->storage->device;
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    into_t into = { .device = device, .stream = device->synchronous ? NULL : device->download, .nbytes = fy__tensor_nbytes(src) };
    fy__suspect_t suspect = src->storage->suspect;
    if (suspect.poison) return fy__poison_fail(suspect.poison, what); /* known before anything crosses */
    FY_TRY(fy__guard_check_transfer(thread, FY__DOWNLOAD, into.nbytes, what));
    FY_TRY(fy__sync_begin(thread, what, &start_ns));
    fy_status_t status = run(thread, &into, dst, src);
    fy__sync_end(thread, start_ns);
    if (status == FY_STATUS_OK) {
        fy__transfer_note(thread, &(fy__transfer_record_t){
                                      .direction = FY__DOWNLOAD,
                                      .path = device->synchronous      ? FY_PATH_HOST
                                              : is_direct(dst, device) ? FY_PATH_DIRECT
                                                                       : FY_PATH_STAGED,
                                      .device = device,
                                      .dst = dst->storage,
                                      .src = src->storage,
                                      .nbytes = into.nbytes,
                                      .blocked_ns = into.blocked_ns,
                                      .point = into.point,
                                      .site = options->site,
                                      .caller = __builtin_return_address(0),
                                      .priority = options->priority,
                                  });
        if (dst->contiguous && into.nbytes == dst->storage->nbytes) dst->storage->suspect = (fy__suspect_t){ 0, 0, 0 };
        status = fy__suspect_resolve(device, &suspect, what); /* what made the bytes is done by now */
    }
    if (into.changed || status == FY_STATUS_OK) fy__storage_wrote(dst->storage);
    if (status != FY_STATUS_OK && into.changed) /* nobody may take the bytes for good */
        dst->storage->suspect.poison =
            suspect.poison ? suspect.poison
                           : fy__poison_record(status, "a download into these bytes failed half way: %.90s", fy_error_get()->text);
    fy__storage_reap(device);
    return status;
}
