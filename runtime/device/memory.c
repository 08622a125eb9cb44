/* The public memory figures: of a device's pools, and by scope path. */
#include "runtime/device/memory.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/abi_structs.h"
#include "runtime/base/environment.h"
#include "runtime/base/fail.h"
#include "runtime/device/device.h"
#include "runtime/device/pin.h"
#include "runtime/record/recording.h"
#include "runtime/tensor/slot.h"
#include "runtime/tensor/thread_cache.h"
#include "runtime/thread/guard.h"

const char *fy_category_name(fy_category_t category)
{
    static const char *const names[] = {
#define X(name, text) #text,
        FY_CATEGORY_LIST(X)
#undef X
    };
    return (unsigned)category < FY_CATEGORY_COUNT ? names[category] : "?";
}

const char *fy__scope_path(const void *scope, char *buffer, size_t size)
{
    buffer[0] = 0;
    return scope ? fy__node_path(scope, buffer, size) : buffer;
}

/* ---- by scope path ---- */

struct sum {
    const char *path;
    uint32_t device_index;
    int64_t live, requested, peak;
};

static void add_thread(void *user, fy__thread_t *thread)
{
    struct sum *sum = user;
    fy__node_t *node = fy__node_find(&thread->root, sum->path);
    fy__node_memory_t *memory = node ? atomic_load_explicit(&node->memory, memory_order_acquire)
                                     : NULL;
    if (!memory) return;
    memory += sum->device_index;
    sum->live += fy__node_memory_live(memory);
    sum->requested += fy__node_memory_requested(memory);
    sum->peak += atomic_load_explicit(&memory->peak, memory_order_relaxed);
}

static void forget_peak(void *user, fy__node_t *node)
{
    const uint32_t index = *(const uint32_t *)user;
    fy__node_memory_t *memory = atomic_load_explicit(&node->memory, memory_order_acquire);
    if (memory) atomic_store_explicit(&memory[index].peak, 0, memory_order_relaxed);
}

static void forget_peaks(void *user, fy__thread_t *thread)
{
    fy__node_walk(&thread->root, forget_peak, user);
}

void fy__memory_forget_peaks(uint32_t device_index)
{
    fy__thread_walk(forget_peaks, &device_index);
}

/* ---- the scopes with most live bytes ---- */

struct ranking {
    fy_oom_verdict_t *verdict;
    uint32_t device_index;
    fy__thread_t *first, *thread; /* the first of all threads, and the current one of the walk */
};

static uint64_t own_live(fy__thread_t *thread, const char *path, uint32_t device_index)
{
    const fy__node_t *node = fy__node_find(&thread->root, path);
    const int64_t live = node ? fy__node_own_live(node, device_index) : 0;
    return live > 0 ? (uint64_t)live : 0;
}

/* A path is ranked once, at its first occurrence, with all threads' bytes. */
static void rank(void *user, fy__node_t *node)
{
    struct ranking *ranking = user;
    const uint32_t index = ranking->device_index;
    char path[FY__MAX_SCOPES * 16];
    uint64_t live = 0;
    if (fy__node_own_live(node, index) <= 0) return;
    fy__node_path(node, path, sizeof path);
    for (fy__thread_t *thread = ranking->first; thread != ranking->thread; thread = thread->next)
        if (own_live(thread, path, index)) return;
    for (fy__thread_t *thread = ranking->thread; thread; thread = thread->next)
        live += own_live(thread, path, index);
    int at = FY_OOM_TOP;
    while (at > 0 && ranking->verdict->top[at - 1].live < live) at--;
    if (at == FY_OOM_TOP) return;
    for (int i = FY_OOM_TOP - 1; i > at; i--)
        ranking->verdict->top[i] = ranking->verdict->top[i - 1];
    const size_t length = strlen(path), room = sizeof ranking->verdict->top[at].path;
    if (length < room)
        memcpy(ranking->verdict->top[at].path, path, length + 1);
    else
        snprintf(ranking->verdict->top[at].path, room, "...%s", path + length + 4 - room);
    ranking->verdict->top[at].live = live;
}

static void rank_thread(void *user, fy__thread_t *thread)
{
    struct ranking *ranking = user;
    if (!ranking->first) ranking->first = thread;
    ranking->thread = thread;
    fy__node_walk(&thread->root, rank, ranking);
}

void fy__memory_top_scopes(uint32_t device_index, fy_oom_verdict_t *verdict)
{
    struct ranking ranking = { .verdict = verdict, .device_index = device_index };
    fy__thread_walk(rank_thread, &ranking);
}

/* ---- the public figures ---- */

static fy_status_t check(const fy_device_t *device, const fy_memory_stats_t *out_stats,
                         const char *what)
{
    FY_TRY(FY__CHECK_OUT(memory_stats, what, out_stats));
    return device ? FY_STATUS_OK : FY_FAIL(INVALID_ARGUMENT, "%s: device is NULL", what);
}

fy_status_t fy_memory_query(const fy_device_t *device, const char *scope_path,
                            fy_memory_stats_t *out_stats)
{
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    FY_TRY(check(device, out_stats, "memory_query"));
    if (scope_path) {
        struct sum sum = { .path = scope_path, .device_index = device->index };
        fy__thread_walk(add_thread, &sum);
        stats.live = sum.live > 0 ? (uint64_t)sum.live : 0;
        stats.requested = sum.requested > 0 ? (uint64_t)sum.requested : 0;
        stats.peak_live = (uint64_t)sum.peak > stats.live ? (uint64_t)sum.peak : stats.live;
        FY__WRITE(out_stats, &stats);
        return FY_STATUS_OK;
    }
    fy__pool_query(device->pool, &stats);
    if (device->is_host) { /* blocks in thread caches are free for the user */
        uint64_t kept = 0, by_category[FY_CATEGORY_COUNT];
        fy__cache_nbytes(by_category);
        for (int i = 0; i < FY_CATEGORY_COUNT; i++) {
            /* other threads changed it meanwhile */
            if (by_category[i] > stats.by_category[i]) by_category[i] = stats.by_category[i];
            stats.by_category[i] -= by_category[i];
            kept += by_category[i];
        }
        stats.live -= kept;
        stats.requested = stats.requested < stats.live ? stats.requested : stats.live;
        stats.cached += kept;
    }
    FY__WRITE(out_stats, &stats);
    return FY_STATUS_OK;
}

fy_status_t fy_memory_peek(const fy_device_t *device, fy_memory_stats_t *out_stats)
{
    fy_memory_stats_t stats;
    FY_TRY(check(device, out_stats, "memory_peek"));
    fy__pool_peek(device->pool, &stats);
    FY__WRITE(out_stats, &stats);
    return FY_STATUS_OK;
}

fy_status_t fy_memory_query_alloc_stats(const fy_device_t *device,
                                        fy_memory_alloc_stats_t *out_stats)
{
    fy_memory_alloc_stats_t stats;
    FY_TRY(FY__CHECK_OUT(memory_alloc_stats, "memory_query_alloc_stats", out_stats));
    if (!device) return FY_FAIL(INVALID_ARGUMENT, "memory_query_alloc_stats: device is NULL");
    fy__pool_alloc_stats(device->pool, &stats);
    if (device->is_host) stats.thread_cached = fy__cache_served();
    FY__WRITE(out_stats, &stats);
    return FY_STATUS_OK;
}

fy_status_t fy_memory_query_pinned(const fy_device_t *device, fy_memory_stats_t *out_stats)
{
    FY_TRY(check(device, out_stats, "memory_query_pinned"));
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    if (device->pinned) {
        fy__pool_query(device->pinned, &stats);
        (void)fy__pin_add_outside(device, &stats);
    }
    FY__WRITE(out_stats, &stats);
    return FY_STATUS_OK;
}

/* Segments that pools of host memory have released stay mapped for a while; a trim of the host
 * unmaps them. */
static void trim_warm(const fy_device_t *host, uint64_t keep_nbytes)
{
    fy_memory_stats_t stats;
    fy__pool_query(host->pool, &stats);
    fy__host_segments_trim(stats.reserved < keep_nbytes ? keep_nbytes - stats.reserved : 0);
}

fy_status_t fy_memory_trim(fy_device_t *device, uint64_t keep_nbytes, uint64_t *out_released)
{
    uint64_t released = 0;
    fy__thread_t *thread = fy__thread();
    if (out_released) *out_released = 0;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!device) return FY_FAIL(INVALID_ARGUMENT, "memory_trim: device is NULL");
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    FY_TRY(fy__recording_check(thread, device, "memory_trim"));
    if (device->is_host) (void)fy__cache_flush(thread);
    released = fy__pool_trim(device->pool, keep_nbytes);
    if (device->is_host) {
        fy__tensor_slot_trim(thread); /* its chunks are among those segments then */
        trim_warm(device, keep_nbytes);
    }
    if (device->pinned) released += fy__pool_trim(device->pinned, keep_nbytes);
    if (out_released) *out_released = released;
    return FY_STATUS_OK;
}

fy_status_t fy_memory_check(const fy_device_t *device, uint64_t *out_broken)
{
    if (out_broken) *out_broken = 0;
    if (!device || !out_broken)
        return FY_FAIL(INVALID_ARGUMENT, "memory_check: %s is NULL",
                       device ? "out_broken" : "device");
    *out_broken = fy__pool_check(device->pool) +
                  (device->pinned ? fy__pool_check(device->pinned) : 0);
    return FY_STATUS_OK;
}

fy_status_t fy_memory_reserve(fy_device_t *device, uint64_t nbytes)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!device) return FY_FAIL(INVALID_ARGUMENT, "memory_reserve: device is NULL");
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    FY_TRY(fy__recording_check(thread, device, "memory_reserve"));
    return fy__guard_settled(thread, fy__pool_reserve(device->pool, nbytes));
}

/* $FERRY_SNAPSHOT_ON_OOM: a snapshot of the device at the moment of the refusal, without a change
 * of the program. */
FY_COLD void fy__memory_refused(const fy_device_t *device, fy_status_t status)
{
    const char *path = fy__env_file("FERRY_SNAPSHOT_ON_OOM");
    char name[4096];
    fy__error_copy_t verdict;
    if (!path || (status != FY_STATUS_OUT_OF_MEMORY && status != FY_STATUS_PINNED_LIMIT)) return;
    fy__error_save(&verdict); /* the caller receives the verdict, even if the file fails */
    if (!fy__path_expand(path, name, sizeof name)) {
        fy_log_write(FY_LOG_WARNING,
                     "FERRY_SNAPSHOT_ON_OOM: the path has %zu bytes; %zu is the most", strlen(path),
                     sizeof name - 1);
    } else {
        const size_t length = strlen(name);
        const bool is_svg = length > 4 && strcmp(name + length - 4, ".svg") == 0;
        if (fy_memory_snapshot(device, name, is_svg ? FY_SNAPSHOT_SVG : FY_SNAPSHOT_JSON) !=
            FY_STATUS_OK)
            fy_log_write(FY_LOG_WARNING, "FERRY_SNAPSHOT_ON_OOM=%.200s: %s", path,
                         fy_error_get()->text);
    }
    fy__error_restore(&verdict);
}
