/* Connects the parts: the one file that may include everything. When a device is opened, its
 * backend's slots become segment sources for pools from alloc/, its streams are made, and transfer/
 * gets its ring. When the device closes, everything is removed in reverse order. Not here: any
 * policy. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <ferry/graph.h>
#include <ferry/prefetch.h>
#include <ferry/tape.h>

#include "backends/builtin.h"
#include "backends/kernels/conv_tune.h"
#include "backends/kernels/threads.h"
#include "runtime/base/environment.h"
#include "runtime/base/fail.h"
#include "runtime/base/spec.h"
#include "runtime/device/device.h"
#include "runtime/device/hooks.h"
#include "runtime/device/machine.h"
#include "runtime/device/pin.h"
#include "runtime/device/pressure.h"
#include "runtime/device/registry.h"
#include "runtime/order/callback.h"
#include "runtime/order/external.h"
#include "runtime/order/stream.h"
#include "runtime/record/event.h"
#include "runtime/record/notes.h"
#include "runtime/record/private.h"
#include "runtime/record/signature.h"
#include "runtime/record/text.h"
#include "runtime/tensor/slot.h"
#include "runtime/tensor/storage.h"
#include "runtime/tensor/tensor.h"
#include "runtime/tensor/thread_cache.h"
#include "runtime/thread/guard.h"
#include "transfer/download.h"
#include "transfer/live.h"
#include "transfer/queue.h"
#include "transfer/ring.h"

const fy__builtin_t *fy__wire_builtins(size_t *out_count)
{
    static const fy__builtin_t builtins[] = { { "host", fy__backend_host_open },
                                              { "sim", fy__backend_sim_open },
                                              { "null", fy__backend_null_open } };
    *out_count = sizeof builtins / sizeof *builtins;
    return builtins;
}

/* ---- environment variables with a set of valid values ---- */

static bool is_strictness(const char *value)
{
    return strcmp(value, "0") == 0 || strcmp(value, "1") == 0;
}

static bool is_threads(const char *value)
{
    int threads;
    return fy__threads_parse(value, &threads) != 0;
}

static bool is_size(const char *value)
{
    uint64_t nbytes;
    return fy__bytes_parse(value, &nbytes) && nbytes;
}

const fy__env_rule_t fy__wire_env_rules[] = {
    { "FERRY_STRICT", "0 or 1", is_strictness },
    { "FERRY_THREADS", "auto, or a number from 1 to 1024", is_threads },
    { "FERRY_HOST_ALLOCATOR", "auto, jemalloc or mmap", fy__host_allocator_is_good },
    { "FERRY_MACHINE_MEMORY", "a size above zero, such as 8GiB", is_size },
    { "FERRY_MEMORY_DEBUG", "poison, guard, poison+guard or none", fy__debug_is_good },
    { "FERRY_FUSE", "on or off", fy__fuse_is_good },
    { "FERRY_WATCH", "1 or 0", fy__live_value_is_good },
    { NULL, NULL, NULL },
};

/* ---- sources of segments ---- */

static bool may_sync(void *user)
{
    (void)user;
    const fy__thread_t *thread = fy__thread();
    return thread && fy__sync_allowed(thread);
}

static void note_sync(void *user, uint64_t blocked_ns)
{
    (void)user;
    fy__thread_t *thread = fy__thread();
    uint64_t start_ns;
    if (thread &&
        fy__sync_begin(thread, "allocation", FY__WAIT_POOL_SYNC, 0, &start_ns) == FY_STATUS_OK)
        fy__sync_ended(thread, blocked_ns);
}

static void top_scopes(void *user, fy_oom_verdict_t *verdict)
{
    const fy_device_t *device = user;
    fy__memory_top_scopes(device->index, verdict);
}

/* The bytes of a simulated device that computes are this machine's memory. */
static bool is_backed_here(const fy_device_t *device)
{
    return device->info.is_simulated && device->info.numerics;
}

static fy_status_t take_from_machine(fy_device_t *device, uint64_t nbytes)
{
    return is_backed_here(device) ? fy__machine_take(device->spec, nbytes, &device->backing)
                                  : FY_STATUS_OK;
}

static void return_to_machine(const fy_device_t *device, uint64_t nbytes)
{
    if (is_backed_here(device)) fy__machine_give(nbytes);
}

static fy_status_t alloc_from_backend(fy_device_t *device, uint64_t nbytes, void **out_address)
{
    *out_address = NULL;
    if (device->hooks.alloc_device) return fy__hook_device_alloc(device, nbytes, out_address);
    FY_TRY(take_from_machine(device, nbytes));
    const fy_status_t status =
        fy__device_check(device, device->backend->alloc(device->dev, nbytes, out_address));
    if (status != FY_STATUS_OK) return_to_machine(device, nbytes);
    return status;
}

static fy_status_t resize_in_backend(fy_device_t *device, void *address, uint64_t nbytes,
                                     uint64_t new_nbytes)
{
    FY_TRY(take_from_machine(device, new_nbytes - nbytes));
    const fy_status_t status =
        fy__device_check(device, device->backend->resize(device->dev, address, nbytes, new_nbytes));
    if (status != FY_STATUS_OK) return_to_machine(device, new_nbytes - nbytes);
    return status;
}

static fy_status_t device_segment_alloc(void *user, uint64_t nbytes, void **out_address)
{
    fy_device_t *device = user;
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    FY_TRY(fy__guard_check_device_alloc(thread, nbytes, device->spec));
    const fy_status_t status = alloc_from_backend(device, nbytes, out_address);
    return fy__guard_end_device_alloc(thread, status);
}

static void device_segment_free(void *user, void *address, uint64_t nbytes)
{
    fy_device_t *device = user;
    const bool is_forked = atomic_load(&device->lost) == FY__LOST_BY_FORK;
    if (device->hooks.alloc_device) {
        if (!is_forked) fy__hook_device_free(device, address, nbytes);
        return;
    }
    if (!is_forked) device->backend->free(device->dev, address, nbytes);
    return_to_machine(device, nbytes);
}

/* Growth counts as an allocation, for guards as well. */
static fy_status_t device_segment_resize(void *user, void *address, uint64_t nbytes,
                                         uint64_t new_nbytes)
{
    fy_device_t *device = user;
    fy__thread_t *thread = fy__thread();
    if (new_nbytes < nbytes) {
        if (atomic_load(&device->lost) != FY__LOST_BY_FORK)
            (void)device->backend->resize(device->dev, address, nbytes, new_nbytes);
        return_to_machine(device, nbytes - new_nbytes);
        return FY_STATUS_OK;
    }
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    FY_TRY(fy__guard_check_device_alloc(thread, new_nbytes - nbytes, device->spec));
    const fy_status_t status = resize_in_backend(device, address, nbytes, new_nbytes);
    return fy__guard_end_device_alloc(thread, status);
}

static fy_status_t host_segment_alloc(void *user, uint64_t nbytes, void **out_address)
{
    fy_device_t *host = user;
    *out_address = NULL;
    FY_TRY(fy__machine_take(host->spec, nbytes, &host->backing));
    const fy_status_t status = fy__host_segment_alloc(nbytes, out_address);
    if (status != FY_STATUS_OK) fy__machine_give(nbytes);
    return status;
}

static void host_segment_free(void *user, void *address, uint64_t nbytes)
{
    (void)user;
    fy__host_segment_free(address, nbytes);
    fy__machine_give(nbytes);
}

static bool host_collect(void *user)
{
    (void)user;
    fy__thread_t *thread = fy__thread();
    return thread && fy__cache_flush(thread);
}

/* ---- opening ---- */

enum { SEGMENT_LEAST = 4096 };

/* The size of the pool's requests; the spec can set it. */
static fy_status_t choose_segment(const fy_device_t *device, uint64_t *out_nbytes)
{
    const uint64_t nbytes = device->segment_nbytes, most = device->info.memory_nbytes,
                   share = most / 16;
    *out_nbytes = nbytes             ? nbytes
                  : device->is_host  ? 4u << 20
                  : share < 2u << 20 ? share
                                     : 2u << 20;
    if (!nbytes || (nbytes >= SEGMENT_LEAST && nbytes <= most)) return FY_STATUS_OK;
    return FY_FAIL(INVALID_ARGUMENT,
                   "device_open: segment=%llu: it may be from %d to the %llu bytes that %s has",
                   (unsigned long long)nbytes, SEGMENT_LEAST, (unsigned long long)most,
                   device->spec);
}

enum { FAULT_PAGE = 4096, WORKSPACE_LEAST = 32 << 20 };

/* Without workspace= in the spec. Scratch of convolutions grows with the batch, and large cards run
 * large batches. */
static uint64_t default_workspace(const fy_device_t *device)
{
    const fy_backend_info_t *info = &device->info;
    const bool is_real = info->numerics && !info->is_simulated && !info->unified;
    const uint64_t most = info->memory_nbytes < device->limit_nbytes ? info->memory_nbytes
                                                                     : device->limit_nbytes;
    const uint64_t part = most / 100 >> 20 << 20;
    return is_real && part > WORKSPACE_LEAST ? part : WORKSPACE_LEAST;
}

static uint64_t ring_at(void *user, uint64_t limit_nbytes)
{
    return fy__ring_nbytes_at(user, limit_nbytes);
}

static fy_status_t open_pools(fy_device_t *device)
{
    uint64_t segment_nbytes;
    FY_TRY(choose_segment(device, &segment_nbytes));
    const fy__pool_options_t own = {
        .name = device->spec,
        .limit_nbytes = device->limit_nbytes,
        .device_nbytes = device->info.memory_nbytes,
        .segment_nbytes = segment_nbytes,
        .full_status = FY_STATUS_OUT_OF_MEMORY,
        .growth_off = device->growth_off,
        .host_reaches = device->is_host,
        .debug = device->debug,
    };
    const fy__segment_source_t own_source = {
        .user = device,
        .alignment = device->is_host ? 64 : device->info.alignment,
        .alloc = device->is_host ? host_segment_alloc : device_segment_alloc,
        .free = device->is_host ? host_segment_free : device_segment_free,
        .resize = !device->is_host && device->backend->resize && device->info.resize_nbytes &&
                          !device->hooks.alloc_device
                      ? device_segment_resize
                      : NULL,
        .step_nbytes = device->info.resize_nbytes,
        .collect = device->is_host ? host_collect : NULL,
        .may_sync = may_sync,
        .note_sync = note_sync,
        .top_scopes = device->is_host ? NULL : top_scopes, /* the host has no figures by path */
        .reclaim = fy__pressure_next,
        .may_grow = device->is_host ? NULL : fy__pin_may_grow,
        .region = !device->is_host && device->backend->regions
                      ? device->backend->regions(device->dev)
                      : NULL,
        .region_dev = device->dev,
        .backing = &device->backing,
    };
    if (is_backed_here(device) && !device->hooks.alloc_device)
        device->backing.hint =
            "open it with numerics=off, which computes nothing and holds no bytes";
    FY_TRY(fy__pool_create(&own, &own_source, &device->pool));
    if (device->is_host) return FY_STATUS_OK;
    char name[96];
    snprintf(name, sizeof name, "pinned memory of %s", device->spec);
    const fy__pool_options_t pinned = {
        .name = name,
        .host_reaches = true,
        .debug = device->debug,
        .limit_nbytes = device->pinned_limit_nbytes,
        .device_nbytes = FY_UNLIMITED,
        .segment_nbytes = 2u << 20,
        .full_status = FY_STATUS_PINNED_LIMIT,
        .release_eagerly = true,
        .outside_nbytes = &device->pinned_outside_nbytes,
        .outside_least_nbytes = FAULT_PAGE,
        .leaving_nbytes = &device->pinned_leaving_nbytes,
    };
    const fy__segment_source_t pinned_source = {
        .user = device,
        .alignment = 64,
        .alloc = fy__pin_segment_alloc,
        .free = fy__pin_segment_free,
        .may_sync = may_sync,
        .note_sync = note_sync,
        .collect = fy__pin_collect,
        .settle = fy__pin_settle,
        .may_grow = fy__pin_may_grow,
        .fixed_at = ring_at,
        .backing = &device->pinned_backing,
    };
    return fy__pool_create(&pinned, &pinned_source, &device->pinned);
}

static fy_status_t open_faults(fy_device_t *device)
{
    void *page;
    FY_TRY(fy__pin_own(device, FAULT_PAGE, &page));
    device->faults.words = page;
    return FY_STATUS_OK;
}

static void close_parts(fy_device_t *device)
{
    if (!device->synchronous) {
        if (!fy__device_is_lost(device) && !fy__wait_drops(FY__WAIT_TEARDOWN))
            (void)fy__device_drain(device, FY_FOREVER);
        if (device->ring) fy__ring_destroy(device);
        if (device->downloads) fy__queue_close(device->downloads);
        if (device->uploads) fy__queue_close(device->uploads);
        if (device->download) fy__stream_close(device->download);
        if (device->upload) fy__stream_close(device->upload);
        if (device->compute) fy__stream_close(device->compute);
        fy__stream_finish_closed(device);
    }
    if (device->faults.words) fy__pin_own_free(device, device->faults.words, FAULT_PAGE);
    fy__pressure_forget(device);
    if (device->pinned) fy__pool_destroy(device->pinned);
    if (device->pool) fy__pool_destroy(device->pool);
}

fy_status_t fy__wire_open(fy_device_t *device)
{
    fy_status_t status = device->backend->device_query(device->dev, &device->info);
    if (status != FY_STATUS_OK) return status;
    if (device->workspace_nbytes == FY_UNLIMITED)
        device->workspace_nbytes = default_workspace(device);
    fy__memory_forget_peaks(device->index);
    const fy_range_fn ranges = device->backend->ranges ? device->backend->ranges(device->dev)
                                                       : NULL;
    if (ranges) atomic_store_explicit(&fy__ranges, ranges, memory_order_release);
    if (device->backend->host_clock)
        atomic_store_explicit(&fy__event_clock, device->backend->host_clock, memory_order_release);
    FY__EVENT(fy__event_device(device));
    FY_CHECK(open_pools(device));
    if (!device->synchronous) {
        FY_CHECK(open_faults(device));
        FY_CHECK(fy__stream_open(device, FY_STREAM_COMPUTE, NULL, &device->compute));
        FY_CHECK(fy__stream_open(device, FY_STREAM_UPLOAD, NULL, &device->upload));
        FY_CHECK(fy__stream_open(device, FY_STREAM_DOWNLOAD, NULL, &device->download));
        FY_CHECK(fy__queue_open(device->upload, &device->uploads));
        FY_CHECK(fy__queue_open(device->download, &device->downloads));
    }
done:
    if (status != FY_STATUS_OK) {
        fy__error_copy_t first;
        fy__error_save(&first);
        close_parts(device);
        fy__error_restore(&first);
    }
    if (status == FY_STATUS_OK) fy__live_from_environment();
    return status;
}

void fy__wire_close(fy_device_t *device)
{
    const bool forked = atomic_load(&device->lost) == FY__LOST_BY_FORK;
    close_parts(device);
    if (!forked) device->backend->device_close(device->dev);
}

const char *fy_memory_host_allocator(void) { return fy__host_allocator_name(); }

/* ---- once per process ---- */

static void destroy_tensor(fy__handle_t *handle) { fy_tensor_destroy((fy_tensor_t *)handle); }
static void destroy_download(fy__handle_t *handle) { fy_download_destroy((fy_download_t *)handle); }
static void destroy_stream(fy__handle_t *handle) { fy_stream_destroy((fy_stream_t *)handle); }
static void destroy_graph(fy__handle_t *handle) { fy_graph_destroy((fy_graph_t *)handle); }
static void destroy_tape(fy__handle_t *handle) { fy_tape_destroy((fy_tape_t *)handle); }
static void destroy_prefetch(fy__handle_t *handle) { fy_prefetch_destroy((fy_prefetch_t *)handle); }

/* A fork takes every lock of the library, so that the child finds each structure consistent. The
 * rows are in lock order: before the fork they are walked forward, after it backward. In the child,
 * which has no other thread, `child` also removes the state of the other threads, and unlocks.
 * NULL: it only unlocks. */
typedef struct fork_row {
    pthread_mutex_t *mutex; /* NULL: `lock` and `unlock` take and release several */
    void (*child)(void);
    void (*lock)(void), (*unlock)(void);
} fork_row_t;

static const fork_row_t fork_rows[] = {
    { .mutex = &fy__live_lock, .child = fy__live_fork_child },
    { .mutex = &fy__event_lock, .child = fy__event_fork_child },
    { .mutex = &fy__registry_lock, .child = fy__registry_fork_child },
    { .mutex = &fy__thread_lock, .child = fy__thread_fork_child },
    { .mutex = &fy__tensor_slot_lock },
    { .lock = fy__private_fork_lock, .unlock = fy__private_fork_unlock },
    { .lock = fy__registry_fork_lock_pools, .unlock = fy__registry_fork_unlock_pools },
    { .mutex = &fy__host_segments_lock, .child = fy__host_segments_fork_child },
    { .mutex = &fy__queue_lock, .child = fy__queue_fork_child },
    { .mutex = &fy__external_lock, .child = fy__external_fork_child },
    { .mutex = &fy__stream_lock, .child = fy__stream_fork_child },
    { .mutex = &fy__callback_lock, .child = fy__callback_fork_child },
    { .mutex = &fy__pressure_lock, .child = fy__pressure_fork_child },
    { .mutex = &fy__guard_lock },
    { .mutex = &fy__sim_queue_lock },
    { .mutex = &fy__sim_memory_lock },
    { .mutex = &fy__sim_clock_lock },
    /* after sim's: kernels that fail late write records while its queues are locked */
    { .mutex = &fy__poison_lock },
    /* under the registry's lock when a host is opened, under sim's when a kernel runs */
    { .lock = fy__conv_tune_fork_lock, .unlock = fy__conv_tune_fork_unlock },
    { .mutex = &fy__notes_lock },
    /* under any of the others, when an event mentions a text for the first time */
    { .mutex = &fy__text_lock },
    { .mutex = &fy__signature_lock },
};
enum { FORK_ROWS = sizeof fork_rows / sizeof *fork_rows };

static void unlock_row(const fork_row_t *row)
{
    if (row->mutex)
        pthread_mutex_unlock(row->mutex);
    else
        row->unlock();
}

static void before_fork(void)
{
    for (const fork_row_t *row = fork_rows; row < fork_rows + FORK_ROWS; row++)
        if (row->mutex)
            pthread_mutex_lock(row->mutex);
        else
            row->lock();
}

static void after_fork_in_parent(void)
{
    for (int i = FORK_ROWS; i-- > 0;) unlock_row(&fork_rows[i]);
}

static void after_fork_in_child(void)
{
    for (int i = FORK_ROWS; i-- > 0;)
        if (fork_rows[i].child)
            fork_rows[i].child();
        else
            unlock_row(&fork_rows[i]);
}

void fy__wire_process(void)
{
    fy__handle_destroyers[FY__HANDLE_TENSOR] = destroy_tensor;
    fy__handle_destroyers[FY__HANDLE_DOWNLOAD] = destroy_download;
    fy__handle_destroyers[FY__HANDLE_STREAM] = destroy_stream;
    fy__handle_destroyers[FY__HANDLE_GRAPH] = destroy_graph;
    fy__handle_destroyers[FY__HANDLE_PREFETCH] = destroy_prefetch;
    fy__handle_destroyers[FY__HANDLE_TAPE] = destroy_tape;
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}
