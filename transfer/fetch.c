/* Copies device bytes through the ring to a sink. */
#include "transfer/fetch.h"

#include "runtime/base/fail.h"
#include "runtime/thread/guard.h"
#include "transfer/move.h"

/* A submitted chunk and its slot. */
typedef struct flight {
    fy__slot_t slot;
    fy__point_t point;
    uint64_t at, nbytes;
} flight_t;
enum { MOST_FLIGHTS = 3 }; /* one slot is left for uploads */

fy_status_t fy__fetch_begin(fy__thread_t *thread, fy__fetch_t *fetch, const fy_tensor_t *src,
                            fy_dtype_t dtype, fy__wait_site_t read_site)
{
    fetch->nbytes = src->nelem * fy__dtype_sizes[dtype];
    if (!fetch->nbytes) return FY_STATUS_OK;
    if (fetch->stream) FY_TRY(fy__stream_throttle(thread, fetch->stream));
    fy__end_of(src, &fetch->src);
    if (!src->contiguous || (fy_dtype_t)src->dtype != dtype) {
        fy__end_t packed;
        FY_TRY(fy__storage_create_scratch(thread, fetch->device, fetch->nbytes, fetch->stream,
                                          FY_CATEGORY_STAGING, &fetch->dense));
        fy__end_dense(src, dtype, fetch->dense, &packed);
        FY_TRY(fy__convert(fetch->device, fetch->stream, &packed, &fetch->src, src->nelem));
        fetch->src = packed;
    }
    if (fetch->stream)
        FY_TRY(fy__hazard_before_read(&fetch->src.storage->hazard, fetch->stream, read_site));
    /* ordered after earlier transfers: their faults apply */
    fy__storage_adopt(src->storage);
    fetch->taint = src->storage->taint;
    return FY_STATUS_OK;
}

void fy__fetch_end(fy__thread_t *thread, fy__fetch_t *fetch)
{
    if (fetch->dense) fy__storage_release(thread, fetch->dense);
    fetch->dense = NULL;
}

fy_status_t fy__fetch_submit(fy__fetch_t *fetch, void *dst, uint64_t at, uint64_t nbytes)
{
    fy_device_t *device = fetch->device;
    const fy_copy_t copy = { .kind = FY_COPY_DOWNLOAD,
                             .host_pinned = 1,
                             .dst = dst,
                             .src = (const char *)fetch->src.desc.data + at,
                             .nbytes = nbytes };
    if (!fetch->stream) {
        FY_TRY(fy__device_check(device, device->backend->copy(device->dev, NULL, &copy)));
        fy__charge_host(0, 2 * nbytes);
        return FY_STATUS_OK;
    }
    uint64_t request; /* a wait for the point finds it */
    FY_TRY(fy__copy_submit(device, fetch->stream, "download", copy, &fetch->point, &request));
    fy__hazard_read(&fetch->src.storage->hazard, fetch->stream, fetch->point);
    return FY_STATUS_OK;
}

fy_status_t fy__fetch_wait(fy__fetch_t *fetch, fy__point_t point)
{
    const uint64_t start_ns = fy__now_ns();
    const fy_status_t status = fy__point_wait(point, FY_FOREVER, fetch->site);
    fetch->blocked_ns += fy__now_ns() - start_ns;
    if (status != FY_STATUS_OK || !fetch->device->info.copies_can_fault) return status;
    const uint32_t record = fy__fault_at(fetch->device, point);
    return record ? fy__poison_fail(record, "the transfer") : FY_STATUS_OK;
}

/* Takes a slot, waiting for one only if none is held, and submits the next chunk. *out_asked: there
 * was one. */
static fy_status_t submit_chunk(fy__fetch_t *fetch, uint64_t at, bool may_wait,
                                flight_t *out_flight, bool *out_asked)
{
    *out_asked = false;
    if (may_wait)
        FY_TRY(fy__ring_take(fetch->device, &fetch->blocked_ns, &out_flight->slot));
    else if (!fy__ring_try_take(fetch->device, &out_flight->slot))
        return FY_STATUS_OK;
    const uint64_t most = fy__ring_chunk(fetch->nbytes, out_flight->slot.nbytes);
    out_flight->at = at;
    out_flight->nbytes = fetch->nbytes - at < most ? fetch->nbytes - at : most;
    const fy_status_t status =
        fy__fetch_submit(fetch, out_flight->slot.bytes, at, out_flight->nbytes);
    if (status != FY_STATUS_OK) {
        fy__ring_give(fetch->device, &out_flight->slot, 0);
        return status;
    }
    out_flight->point = fetch->point;
    *out_asked = true;
    return FY_STATUS_OK;
}

fy_status_t fy__fetch_through_ring(fy__fetch_t *fetch, fy__sink_fn sink, void *user)
{
    flight_t flights[MOST_FLIGHTS];
    uint32_t first = 0, n = 0;
    uint64_t asked = 0;
    fy_status_t status = FY_STATUS_OK;
    while (status == FY_STATUS_OK && (n || asked < fetch->nbytes)) {
        bool more = n < MOST_FLIGHTS && asked < fetch->nbytes;
        flight_t *flight = &flights[(first + n) % MOST_FLIGHTS];
        if (more) status = submit_chunk(fetch, asked, n == 0, flight, &more);
        if (status != FY_STATUS_OK) break;
        if (more) {
            asked += flight->nbytes;
            n++;
            continue;
        }
        flight = &flights[first]; /* no further chunk can be submitted: empty the oldest */
        status = fy__fetch_wait(fetch, flight->point);
        if (status == FY_STATUS_OK)
            status = sink(user, flight->slot.bytes, flight->at, flight->nbytes);
        if (status != FY_STATUS_OK) break;
        fy__ring_give(fetch->device, &flight->slot, 0);
        first = (first + 1) % MOST_FLIGHTS;
        n--;
    }
    for (; n; n--, first = (first + 1) % MOST_FLIGHTS)
        fy__ring_give(fetch->device, &flights[first].slot, flights[first].point);
    return status;
}
