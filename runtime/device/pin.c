/* Registers host memory with a device, and counts the registered bytes. See pin.h for the
 * callers. */
#include "runtime/device/pin.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/fail.h"
#include "runtime/device/hooks.h"
#include "runtime/device/machine.h"
#include "runtime/tensor/storage.h"
#include "runtime/thread/guard.h"

typedef unsigned long long ull; /* for printf */

/* ---- the limit ---- */

static bool take(fy_device_t *device, uint64_t nbytes)
{
    uint64_t registered = atomic_load(&device->registered_nbytes);
    do
        if (nbytes > device->pinned_limit_nbytes ||
            registered > device->pinned_limit_nbytes - nbytes)
            return false;
    while (!atomic_compare_exchange_weak(&device->registered_nbytes, &registered,
                                         registered + nbytes));
    return true;
}

/* Bytes that were taken are locked: bytes that cannot be locked are no peak. */
static void note_peak(fy_device_t *device)
{
    const uint64_t registered = atomic_load(&device->registered_nbytes);
    uint64_t peak = atomic_load(&device->registered_peak_nbytes);
    while (peak < registered &&
           !atomic_compare_exchange_weak(&device->registered_peak_nbytes, &peak, registered)) {}
}

static void give(fy_device_t *device, uint64_t nbytes)
{
    atomic_fetch_sub(&device->registered_nbytes, nbytes);
}

/* ---- the backend ---- */

/* The bytes were taken from the limit; on failure they are returned. */
static fy_status_t lock_pages(fy_device_t *device, void *address, uint64_t nbytes)
{
    const fy_status_t status =
        device->backend->register_host
            ? fy__device_check(device, device->backend->register_host(device->dev, address, nbytes))
            : FY_STATUS_OK;
    if (status == FY_STATUS_OK)
        note_peak(device);
    else
        give(device, nbytes);
    return status;
}

static void unlock_pages(fy_device_t *device, void *address, uint64_t nbytes)
{
    if (device->backend->unregister_host && atomic_load(&device->lost) != FY__LOST_BY_FORK)
        device->backend->unregister_host(device->dev, address, nbytes);
    give(device, nbytes);
}

/* A simulated device without numerics holds no bytes, so a segment has no pages until a program
 * writes to it. */
static bool is_held(const fy_device_t *device)
{
    return !device->info.is_simulated || device->info.numerics;
}

static fy_status_t from_host(fy_device_t *device, uint64_t nbytes, fy__backing_t *backing,
                             void **out_address)
{
    if (device->hooks.alloc_pinned)
        return fy__hook_pinned_alloc(device, nbytes, backing, out_address);
    if (is_held(device)) FY_TRY(fy__machine_take(device->spec, nbytes, backing));
    const fy_status_t status = fy__host_segment_alloc(nbytes, out_address);
    if (status != FY_STATUS_OK && is_held(device)) fy__machine_give(nbytes);
    return status;
}

static void to_host(const fy_device_t *device, void *address, uint64_t nbytes)
{
    if (device->hooks.alloc_pinned) {
        fy__hook_pinned_free(device, address, nbytes);
        return;
    }
    fy__host_segment_free(address, nbytes);
    if (is_held(device)) fy__machine_give(nbytes);
}

/* Ferry's memory, page-locked. The driver would fault its pages one by one, on this thread, so
 * other threads touch them first. A device with computed times locks nothing: there the first write
 * faults the pages. */
static fy_status_t locked_segment(fy_device_t *device, uint64_t nbytes, fy__backing_t *backing,
                                  void **out_address)
{
    *out_address = NULL;
    if (!take(device, nbytes))
        return FY_FAIL(PINNED_LIMIT,
                       "%s: %llu bytes are page-locked for it, and %llu more are past the limit of "
                       "%llu (pinned=); give at least %llu",
                       device->spec, (ull)atomic_load(&device->registered_nbytes), (ull)nbytes,
                       (ull)device->pinned_limit_nbytes,
                       (ull)(atomic_load(&device->registered_nbytes) + nbytes));
    fy_status_t status = from_host(device, nbytes, backing, out_address);
    if (status != FY_STATUS_OK) {
        give(device, nbytes);
        return status;
    }
    if (device->backend->register_host && !device->backend->clock && !device->hooks.alloc_pinned)
        fy__host_segment_touch(*out_address, nbytes);
    status = lock_pages(device, *out_address, nbytes);
    if (status == FY_STATUS_OK) return FY_STATUS_OK;
    to_host(device, *out_address, nbytes);
    *out_address = NULL;
    return status;
}

static void unlock_segment(fy_device_t *device, void *address, uint64_t nbytes)
{
    unlock_pages(device, address, nbytes);
    to_host(device, address, nbytes);
}

/* ---- slabs ---- */

fy_status_t fy__pin_segment_alloc(void *user, uint64_t nbytes, void **out_address)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    fy_device_t *device = user;
    FY_TRY(fy__guard_check_device_alloc(thread, nbytes, "the host, page-locked"));
    const fy_status_t status = locked_segment(device, nbytes, &device->pinned_backing, out_address);
    return fy__guard_end_device_alloc(thread, status);
}

void fy__pin_segment_free(void *user, void *address, uint64_t nbytes)
{
    unlock_segment(user, address, nbytes);
}

bool fy__pin_may_grow(void *user)
{
    const fy__thread_t *thread = fy__thread();
    (void)user;
    return thread && fy__device_alloc_allowed(thread);
}

/* ---- released memory ---- */

bool fy__pin_collect(void *user)
{
    fy_device_t *device = user;
    const uint64_t before = atomic_load(&device->pinned_leaving_nbytes);
    if (!before) return false;
    fy__error_copy_t error; /* the deleters of other storages may call Ferry, and fail */
    fy__error_save(&error);
    fy__storage_reap(device);
    fy__error_restore(&error);
    return atomic_load(&device->pinned_leaving_nbytes) < before;
}

void fy__pin_settle(void *user)
{
    fy_device_t *device = user;
    (void)fy__device_drain(device, FY_FOREVER); /* a lost device's points count as reached */
    (void)fy__pin_collect(device);
}

/* ---- memory for the device itself ---- */

fy_status_t fy__pin_own(fy_device_t *device, uint64_t nbytes, void **out_address)
{
    fy__backing_t backing = { 0 };
    FY_TRY(locked_segment(device, nbytes, &backing, out_address));
    memset(*out_address, 0, nbytes);
    atomic_fetch_add(&device->pinned_outside_nbytes, nbytes);
    device->pinned_own_nbytes += nbytes;
    return FY_STATUS_OK;
}

void fy__pin_own_free(fy_device_t *device, void *address, uint64_t nbytes)
{
    atomic_fetch_sub(&device->pinned_outside_nbytes, nbytes);
    unlock_segment(device, address, nbytes);
}

/* ---- figures ---- */

uint64_t fy__pin_add_outside(const fy_device_t *device, fy_memory_stats_t *stats)
{
    const uint64_t outside = atomic_load(&device->pinned_outside_nbytes),
                   own = device->pinned_own_nbytes;
    stats->live += outside;
    stats->by_category[FY_CATEGORY_WORKSPACE] += own;
    stats->by_category[FY_CATEGORY_ACTIVATIONS] += outside - own; /* of fy_tensor_pin */
    stats->requested += outside;
    stats->reserved += outside;
    if (stats->peak_live < stats->live) {
        stats->peak_live = stats->live;
        memcpy(stats->peak_by_category, stats->by_category, sizeof stats->by_category);
    }
    stats->peak_reserved = atomic_load(&device->registered_peak_nbytes);
    return outside;
}

/* ---- existing memory ---- */

/* Whether the bytes would fit after all transfers are over. True only if certain: a block in use
 * keeps its slab. */
static bool fits_when_done(const fy_device_t *peer, uint64_t nbytes, const fy_memory_stats_t *pool)
{
    const uint64_t outside = atomic_load(&peer->pinned_outside_nbytes),
                   leaving = atomic_load(&peer->pinned_leaving_nbytes);
    const uint64_t stays = (outside > leaving ? outside - leaving : 0) +
                           (pool->live ? pool->reserved : 0);
    return stays <= peer->pinned_limit_nbytes && nbytes <= peer->pinned_limit_nbytes - stays;
}

static FY_COLD fy_status_t past_limit(const fy_device_t *peer, uint64_t nbytes,
                                      bool is_sync_forbidden)
{
    fy_memory_stats_t pool = FY_MEMORY_STATS_INIT;
    fy__pool_query(peer->pinned, &pool);
    const uint64_t outside = atomic_load(&peer->pinned_outside_nbytes);
    fy_oom_verdict_t verdict = {
        .struct_size = sizeof verdict,
        .status = FY_STATUS_PINNED_LIMIT,
        .reason = FY_OOM_LIMIT,
        .asked = nbytes,
        .limit = peer->pinned_limit_nbytes,
        .live = pool.live + outside,
        .cached = pool.cached,
        .pending = pool.pending,
        .reserved = pool.reserved + outside,
        .largest_free = pool.largest_free,
    };
    const uint64_t held = verdict.reserved,
                   over = held + nbytes > verdict.limit ? held + nbytes - verdict.limit : 0;
    char help[160];
    snprintf(help, sizeof help,
             "Would help: free or trim %llu bytes of it, or a limit higher by as much (pinned=)",
             (ull)over);
    if (is_sync_forbidden && fits_when_done(peer, nbytes, &pool)) {
        verdict.reason = FY_OOM_WOULD_FIT_AFTER_SYNC;
        snprintf(help, sizeof help, "It would fit after a sync: wait for the device first");
    } else if (nbytes <= verdict.limit)
        verdict.would_help = over;
    snprintf(verdict.text, sizeof verdict.text,
             "pinned memory of %s: %llu bytes to be page-locked in place\n  limit %llu, "
             "reserved %llu, of it %llu outside the pool\n  %s",
             peer->spec, (ull)nbytes, (ull)verdict.limit, (ull)verdict.reserved, (ull)outside,
             help);
    return fy__fail_with_verdict(__FILE__, __LINE__, &verdict);
}

/* Waits for transfers if only they still use memory that exceeds the limit. */
static fy_status_t wait_for_uses(fy__thread_t *thread, fy_device_t *peer, uint64_t nbytes)
{
    fy_memory_stats_t pool = FY_MEMORY_STATS_INIT;
    uint64_t start_ns;
    fy__pool_query(peer->pinned, &pool);
    if (!pool.pending && !atomic_load(&peer->pinned_leaving_nbytes))
        return past_limit(peer, nbytes, false);
    if (!fy__sync_allowed(thread)) return past_limit(peer, nbytes, true);
    FY_TRY(fy__sync_begin(thread, "tensor_pin", FY__WAIT_UNPIN, 0, &start_ns));
    fy__pin_settle(peer);
    fy__sync_end(thread, start_ns);
    return FY_STATUS_OK;
}

/* Takes bytes from the limit; releases the pool's idle slabs and released memory if needed. */
static fy_status_t take_in_place(fy__thread_t *thread, fy_device_t *peer, uint64_t nbytes)
{
    const uint64_t limit = peer->pinned_limit_nbytes;
    for (bool waited = false; !take(peer, nbytes);) {
        const uint64_t outside = atomic_load(&peer->pinned_outside_nbytes);
        if (nbytes > limit) return past_limit(peer, nbytes, false);
        if (fy__pin_collect(peer)) continue;
        if (outside <= limit - nbytes && fy__pool_trim(peer->pinned, limit - nbytes - outside))
            continue;
        if (waited) return past_limit(peer, nbytes, false);
        FY_TRY(wait_for_uses(thread, peer, nbytes));
        waited = true;
    }
    return FY_STATUS_OK;
}

fy_status_t fy__pin_here(fy__thread_t *thread, fy_device_t *peer, void *data, uint64_t nbytes)
{
    FY_TRY(fy__guard_check_device_alloc(thread, nbytes, "the host, page-locked"));
    FY_TRY(fy__guard_settled(thread, take_in_place(thread, peer, nbytes)));
    FY_TRY(fy__guard_settled(thread, lock_pages(peer, data, nbytes)));
    (void)fy__guard_end_device_alloc(thread, FY_STATUS_OK);
    atomic_fetch_add(&peer->pinned_outside_nbytes, nbytes);
    return FY_STATUS_OK;
}

void fy__pin_here_end(fy_device_t *peer, void *data, uint64_t nbytes)
{
    atomic_fetch_sub(&peer->pinned_outside_nbytes, nbytes);
    unlock_pages(peer, data, nbytes);
}
