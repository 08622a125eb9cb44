/* Downloads into existing host memory. Page-locked memory gets the bytes in one DMA, other memory
 * through the ring: the host empties one slot while the device fills the next ones. A strided
 * source is made dense on the device first; a strided destination is filled from a dense copy on
 * the host. Not here: downloads as objects (download.c). */
#include "runtime/base/fail.h"
#include "runtime/thread/guard.h"
#include "transfer/fetch.h"
#include "transfer/move.h"

/* One call. */
typedef struct into {
    fy__fetch_t fetch;
    char *bytes;  /* destination: dst's bytes, or a dense copy's */
    bool changed; /* some of dst's bytes have changed */
} into_t;

static fy_status_t take(void *user, const void *bytes, uint64_t at, uint64_t nbytes)
{
    into_t *into = user;
    fy__staging_copy(into->bytes + at, bytes, at, nbytes);
    into->changed = true;
    return FY_STATUS_OK;
}

static bool is_direct(const fy_tensor_t *dst, const fy_device_t *device)
{
    return dst->contiguous && dst->storage->pinned && dst->storage->peer == device;
}

static fy_status_t fetch_all(into_t *into, fy_tensor_t *dst)
{
    fy__fetch_t *fetch = &into->fetch;
    if (fetch->stream && !is_direct(dst, fetch->device))
        return fy__fetch_through_ring(fetch, take, into);
    /* No wait for dst's bytes: while an upload borrows them it is BUSY, and every download into
     * them was waited for. */
    FY_TRY(fy__fetch_submit(fetch, into->bytes, 0, fetch->nbytes));
    into->changed = true;
    if (!fetch->stream) return FY_STATUS_OK;
    fy__hazard_written(&dst->storage->hazard, fetch->point);
    FY_TRY(fy__fetch_wait(fetch, fetch->point));
    fy__hazard_clear(&dst->storage->hazard);
    return FY_STATUS_OK;
}

static fy_status_t run(fy__thread_t *thread, into_t *into, fy_tensor_t *dst, const fy_tensor_t *src)
{
    fy_device_t *host = fy_device_host();
    fy__storage_t *landing = NULL;
    fy__end_t from, to;
    fy_status_t status;
    FY_CHECK(
        fy__fetch_begin(thread, &into->fetch, src, (fy_dtype_t)src->dtype, FY__WAIT_DOWNLOAD_READ));
    if (!into->fetch.nbytes) goto done;
    if (!dst->contiguous)
        FY_CHECK(fy__storage_create_scratch(thread, host, into->fetch.nbytes, NULL,
                                            FY_CATEGORY_STAGING, &landing));
    into->bytes = landing ? landing->data : dst->data;
    status = fetch_all(into, dst);
    if (!landing) goto done;
    into->changed = false;
    if (status != FY_STATUS_OK) goto done;
    fy__end_dense(dst, (fy_dtype_t)dst->dtype, landing, &from);
    fy__end_of(dst, &to);
    status = fy__convert(host, NULL, &to, &from, dst->nelem);
    into->changed = status == FY_STATUS_OK;
done:
    fy__fetch_end(thread, &into->fetch);
    if (landing) fy__storage_release(thread, landing);
    return status;
}

static fy_status_t check(const fy__move_t *move)
{
    const char *what = move->what;
    const fy_tensor_t *dst = move->dst, *src = move->src;
    char texts[2][128];
    if (!dst->storage->device->is_host)
        return FY_FAIL(DEVICE_MISMATCH,
                       "%s: dst %s is on %s; a download ends on the host\n  Within one device use "
                       "fy_copy, between two fy_tensor_send_into",
                       what, fy__tensor_format(dst, texts[0], 128), dst->storage->device->spec);
    FY_TRY(fy__move_check_shapes(what, dst, src));
    FY_TRY(fy__move_check_dtype(what, dst, &move->options));
    if (dst->dtype != src->dtype)
        return FY_FAIL(DTYPE_MISMATCH,
                       "%s: dst is %s, src is %s; the dtypes must be equal\n  Convert on the "
                       "device first: fy_cast",
                       what, fy__tensor_format(dst, texts[0], 128),
                       fy__tensor_format(src, texts[1], 128));
    FY_TRY(fy__tensor_check_writable(dst, what, "dst"));
    if (dst->storage == src->storage)
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: dst and src share their bytes; use fy_copy for moves on one device",
                       what);
    return fy__storage_check_borrow(dst->storage, what);
}

fy_status_t fy_tensor_download_into(fy_tensor_t *dst, const fy_tensor_t *src,
                                    const fy_transfer_options_t *options)
{
    fy__move_t move = { .what = "tensor_download_into",
                        .caller = __builtin_return_address(0),
                        .direction = FY__DOWNLOAD,
                        .dst = dst,
                        .src = src };
    uint64_t start_ns;
    FY_TRY(fy__move_begin(&move, options, src, "src", dst, "dst"));
    FY_TRY(check(&move));
    fy__thread_t *thread = move.thread;
    const char *what = move.what;
    fy_device_t *device = move.device = src->storage->device;
    FY_TRY(fy__move_check_device(&move, device));
    into_t into = { .fetch = { .device = device,
                               .stream = device->synchronous ? NULL : device->download,
                               .site = FY__WAIT_DOWNLOAD_INTO } };
    /* known before anything crosses */
    if (src->nelem && src->storage->taint.poison)
        return fy__poison_fail(src->storage->taint.poison, what);
    FY_TRY(fy__guard_check_transfer(thread, FY__DOWNLOAD, move.nbytes, what));
    FY_TRY(fy__guard_settled(thread,
                             fy__sync_begin(thread, what, FY__WAIT_DOWNLOAD_INTO, 0, &start_ns)));
    fy_status_t status = run(thread, &into, dst, src);
    fy__sync_end(thread, start_ns);
    if (status != FY_STATUS_OK) fy__guard_settle(thread);
    if (status == FY_STATUS_OK) {
        move.path = device->synchronous      ? FY_PATH_HOST
                    : is_direct(dst, device) ? FY_PATH_DIRECT
                                             : FY_PATH_STAGED;
        move.blocked_ns = into.fetch.blocked_ns;
        move.point = into.fetch.point;
        fy__move_note(&move);
        if (dst->contiguous && move.nbytes == dst->storage->nbytes)
            dst->storage->taint = (fy__taint_t){ 0, 0, 0 };
        /* the request that made the bytes is done by now */
        status = fy__taint_resolve(device, &into.fetch.taint, what);
    }
    if (into.changed || status == FY_STATUS_OK) fy__storage_wrote(dst->storage);
    if (status != FY_STATUS_OK && into.changed) /* poisons the partly written bytes */
        fy__storage_poison(
            dst->storage,
            into.fetch.taint.poison
                ? into.fetch.taint.poison
                : fy__poison_record(status, "a download into these bytes failed half way: %.90s",
                                    fy_error_get()->text));
    fy__storage_reap(device);
    return status;
}
