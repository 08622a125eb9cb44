/* Creates and frees storages. A storage comes from the thread cache (host: thread_cache.h), from a
 * pool, or wraps memory of the program. */
#include "runtime/tensor/storage.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/fail.h"
#include "runtime/device/pin.h"
#include "runtime/order/stream.h"
#include "runtime/record/event.h"
#include "runtime/record/recording.h"
#include "runtime/tensor/slot.h"
#include "runtime/tensor/thread_cache.h"
#include "runtime/thread/guard.h"

fy__storage_t fy__storage_gone; /* its device is NULL, as no other storage's is */

static fy__tag_t tag_of(const fy__thread_t *thread)
{
    return (fy__tag_t){ thread->category, thread->node };
}

/* Sets every field but data, nbytes and user. */
static void init(fy__storage_t *storage, fy_device_t *device)
{
    atomic_store_explicit(&storage->refs, 1, memory_order_relaxed);
    atomic_store_explicit(&storage->cache_class, 0, memory_order_relaxed);
    storage->pinned = storage->pinned_here = storage->leaving = false;
    storage->device = device;
    atomic_store_explicit(&storage->version, 0, memory_order_relaxed);
    atomic_store_explicit(&storage->borrow, 0, memory_order_relaxed);
    storage->taint = (fy__taint_t){ 0, 0, 0 };
    atomic_store_explicit(&storage->event_id, 0, memory_order_relaxed);
    storage->late = (fy__taint_t){ 0, 0, 0 };
    atomic_store_explicit(&storage->has_late, false, memory_order_relaxed);
    storage->block = NULL;
    fy__hazard_clear(&storage->hazard);
    storage->peer = NULL;
    storage->deleter = NULL;
    storage->private_memory = NULL;
    storage->memory = NULL;
    storage->guards = NULL;
}

static FY_COLD fy_status_t create_small_host(fy__thread_t *thread, fy_device_t *host,
                                             uint32_t class, fy__storage_t **out_storage)
{
    fy__storage_t *storage = fy__tensor_slot_alloc(thread);
    if (!storage) return FY_STATUS_OUT_OF_MEMORY;
    init(storage, host);
    /* No tag: later owners in the thread cache have other categories and scopes. */
    const fy_status_t status =
        fy__pool_alloc(host->pool, fy__cache_class_nbytes(class), 0, &storage->block);
    if (status != FY_STATUS_OK) {
        fy__memory_refused(host, status);
        fy__tensor_slot_free(thread, storage);
        return status;
    }
    atomic_store_explicit(&storage->block->users, &storage->refs, memory_order_release);
    atomic_store_explicit(&storage->cache_class, (uint8_t) class, memory_order_relaxed);
    /* The first handle keeps this address: fy__tensor_first. */
    storage->data = fy__tensor_slot_of(storage)->first.data = storage->block->address;
    *out_storage = storage;
    return FY_STATUS_OK;
}

/* The address of empty tensors: aligned, comparable, not to be read. */
static void *empty_address(void)
{
    static _Alignas(64) char nothing[64];
    return nothing;
}

FY_COLD fy_status_t fy__storage_create_from_pool(fy__thread_t *thread, fy_device_t *device,
                                                 uint64_t nbytes, fy_stream_t *stream,
                                                 fy__storage_t **out_storage)
{
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    fy__guard_t *guards = NULL;
    if (!device->is_host) FY_TRY(fy__guard_take_memory(thread, nbytes, device->spec, &guards));
    fy__storage_t *storage = fy__tensor_slot_alloc(thread);
    if (!storage) {
        fy__guard_free_memory(guards, nbytes);
        return FY_STATUS_OUT_OF_MEMORY;
    }
    init(storage, device);
    storage->guards = guards;
    storage->nbytes = nbytes;
    storage->data = empty_address();
    if (nbytes) {
        const fy_status_t status = fy__pool_alloc_tagged(
            device->pool, nbytes, stream ? stream->index : 0, tag_of(thread), &storage->block);
        if (status != FY_STATUS_OK) {
            fy__memory_refused(device, status);
            fy__guard_free_memory(guards, nbytes);
            fy__tensor_slot_free(thread, storage);
            return status;
        }
        storage->data = storage->block->address;
        if (device->is_host && nbytes > FY__CACHE_LARGEST && !device->debug) {
            atomic_store_explicit(&storage->block->users, &storage->refs, memory_order_release);
            atomic_store_explicit(&storage->cache_class, FY__CACHE_LARGE, memory_order_relaxed);
            fy__tensor_slot_of(storage)->first.data = storage->data;
        }
        fy__guard_grow_memory(guards, storage->block->nbytes - nbytes);
        if (!fy__wait_drops(FY__WAIT_BLOCK_INHERITED))
            fy__hazard_copy(&storage->hazard, &storage->block->hazard);
        if (!device->is_host && (storage->memory = fy__node_memory(thread->node, device->index))) {
            fy__node_memory_add(storage->memory, storage->block->nbytes, nbytes);
        }
    }
    fy__device_use(device);
    *out_storage = storage;
    return FY_STATUS_OK;
}

fy_status_t fy__storage_create_private(fy__thread_t *thread, fy__private_t *memory, uint64_t nbytes,
                                       fy__storage_t **out_storage)
{
    if (fy__device_is_lost(memory->device)) return fy__device_lost_error(memory->device);
    fy__storage_t *storage = fy__tensor_slot_alloc(thread);
    if (!storage) return FY_STATUS_OUT_OF_MEMORY;
    init(storage, memory->device);
    const fy_status_t status = fy__private_alloc(memory, nbytes, &storage->block);
    if (status != FY_STATUS_OK) {
        fy__tensor_slot_free(thread, storage);
        return status;
    }
    storage->nbytes = nbytes;
    storage->data = storage->block->address;
    storage->private_memory = memory;
    fy__private_retain(memory);
    fy__device_use(memory->device);
    *out_storage = storage;
    return FY_STATUS_OK;
}

fy_status_t fy__storage_create(fy__thread_t *thread, fy_device_t *device, uint64_t nbytes,
                               fy_stream_t *stream, fy__storage_t **out_storage)
{
    fy__recording_t *recording = fy__recording_of(thread, device);
    if (FY_UNLIKELY(recording != NULL) && nbytes)
        return fy__recording_storage(thread, recording, nbytes, out_storage);
    if (device->is_host && nbytes > FY__CACHE_LARGEST &&
        (*out_storage = fy__cache_take_large(thread, nbytes)))
        return FY_STATUS_OK;
    /* In debug mode blocks are filled and guarded, so none is cached. */
    if (!device->is_host || nbytes > FY__CACHE_LARGEST || !nbytes || device->debug)
        return fy__storage_create_from_pool(thread, device, nbytes, stream, out_storage);
    fy__storage_t *storage = fy__cache_pop(thread, nbytes);
    if (storage) {
        /* The first handle may still be in the ring of a scope; this storage may leave the
         * thread. */
        fy__handle_release(&fy__tensor_slot_of(storage)->first.handle);
    } else {
        FY_TRY(create_small_host(thread, device, fy__cache_class(nbytes), &storage));
        storage->block->requested = storage->nbytes = nbytes;
        fy__asan_forbid(storage->data, storage->block->nbytes);
        fy__asan_allow(storage->data, nbytes);
    }
    *out_storage = storage;
    return FY_STATUS_OK;
}

fy_status_t fy__storage_create_scratch(fy__thread_t *thread, fy_device_t *device, uint64_t nbytes,
                                       fy_stream_t *stream, fy_category_t category,
                                       fy__storage_t **out_storage)
{
    const fy_category_t said = thread->category;
    thread->category = category;
    const fy_status_t status = fy__storage_create(thread, device, nbytes, stream, out_storage);
    thread->category = said;
    return status;
}

fy_status_t fy__storage_create_pinned(fy__thread_t *thread, fy_device_t *peer, uint64_t nbytes,
                                      fy__storage_t **out_storage)
{
    if (peer->is_host || !nbytes)
        return fy__storage_create(thread, fy_device_host(), nbytes, NULL, out_storage);
    if (fy__device_is_lost(peer)) return fy__device_lost_error(peer);
    fy__storage_t *storage = fy__tensor_slot_alloc(thread);
    if (!storage) return FY_STATUS_OUT_OF_MEMORY;
    init(storage, fy_device_host());
    const fy_status_t status =
        fy__pool_alloc_tagged(peer->pinned, nbytes, 0, tag_of(thread), &storage->block);
    if (status != FY_STATUS_OK) {
        fy__memory_refused(peer, status);
        fy__tensor_slot_free(thread, storage);
        return status;
    }
    storage->nbytes = nbytes;
    /* No hazard: a block that is requested for no stream is one that no request uses. */
    storage->data = storage->block->address;
    storage->pinned = true;
    storage->peer = peer;
    fy__device_use(peer);
    *out_storage = storage;
    return FY_STATUS_OK;
}

fy_status_t fy__storage_pin(fy__thread_t *thread, fy__storage_t *storage, fy_device_t *peer)
{
    FY_TRY(fy__pin_here(thread, peer, storage->data, storage->nbytes));
    fy__hazard_clear(&storage->hazard);
    /* The thread cache must not reuse page-locked bytes. */
    atomic_store_explicit(&storage->cache_class, 0, memory_order_relaxed);
    storage->pinned = storage->pinned_here = true;
    storage->peer = peer;
    fy__device_use(peer);
    return FY_STATUS_OK;
}

fy_status_t fy__storage_wrap(fy__thread_t *thread, fy_device_t *device, void *data, uint64_t nbytes,
                             fy_deleter_fn deleter, void *user, fy__storage_t **out_storage)
{
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    fy__storage_t *storage = fy__tensor_slot_alloc(thread);
    if (!storage) return FY_STATUS_OUT_OF_MEMORY;
    init(storage, device);
    storage->nbytes = nbytes;
    storage->data = data ? data : empty_address();
    storage->deleter = deleter;
    storage->user = user;
    fy__device_use(device);
    *out_storage = storage;
    return FY_STATUS_OK;
}

/* ---- freeing ---- */

/* No request uses the bytes, or they are a pool's block and the pool waits for its hazard. */
static void free_now(fy__thread_t *thread, fy__storage_t *storage)
{
    fy_device_t *device = storage->device;
    if (storage->memory && storage->block)
        fy__node_memory_sub(thread, storage->memory, storage->block->nbytes, storage->nbytes);
    if (storage->guards)
        fy__guard_free_memory(storage->guards, storage->block ? storage->block->nbytes : 0);
    if (storage->pinned_here) fy__pin_here_end(storage->peer, storage->data, storage->nbytes);
    if (storage->leaving) atomic_fetch_sub(&storage->peer->pinned_leaving_nbytes, storage->nbytes);
    /* The graph's memory has taken over this hazard's points, or they are reached. */
    if (storage->private_memory) {
        fy__hazard_clear(&storage->block->hazard);
        fy__pool_free(storage->block);
        fy__private_release(thread, storage->private_memory);
    } else if (storage->block) {
        fy__hazard_copy(&storage->block->hazard, &storage->hazard);
        if (fy__wait_drops(FY__WAIT_BLOCK_GIVEN_BACK)) fy__hazard_clear(&storage->block->hazard);
        fy__pool_free(storage->block);
    }
    if (storage->deleter)
        storage->deleter(storage->user, storage->data == empty_address() ? NULL : storage->data);
    fy_device_t *peer = storage->peer;
    fy__tensor_slot_free(thread, storage);
    fy__device_unuse(device);
    if (peer) fy__device_unuse(peer);
}

/* Caches the storage if borrow, taint and has_late are 0 again, or a large one; false if it cannot
 * be cached. */
static bool keep(fy__thread_t *thread, fy__storage_t *storage)
{
    const uint8_t class = atomic_load_explicit(&storage->cache_class, memory_order_relaxed) &
                          (uint8_t)~FY__CACHE_DIRTY;
    if (!class || !fy__storage_is_clean(storage)) return false;
    /* The caller dropped the last reference, so no other thread can set the flag. */
    atomic_store_explicit(&storage->cache_class, class, memory_order_relaxed);
    if (class == FY__CACHE_LARGE) return fy__cache_keep_large(thread, storage);
    fy__cache_push(thread, storage);
    return true;
}

/* Takes over the caller's reference and releases it when the storage's hazard is done. */
static void defer(fy_device_t *device, fy__storage_t *storage)
{
    fy__lock(&device->deferred_lock);
    storage->next = device->deferred;
    /* before `opens` is read: fy__storage_reap_last */
    __atomic_store_n(&device->deferred, storage, __ATOMIC_SEQ_CST);
    fy__unlock(&device->deferred_lock);
}

FY_COLD void fy__storage_destroy_slow(fy__thread_t *thread, fy__storage_t *storage)
{
    if (keep(thread, storage)) return;
    /* the device whose requests use the bytes */
    fy_device_t *device = storage->pinned_here ? storage->peer : storage->device;
    fy__hazard_settle(&storage->hazard);
    if (!device->synchronous) fy__hazard_cover_foreign(&storage->hazard);
    /* Deferred until the last use is over: memory with a deleter, memory that was page-locked in
     * place, and a graph's memory that cannot take over this hazard. */
    if ((storage->pinned_here && !fy__wait_drops(FY__WAIT_UNPIN) &&
         !fy__hazard_done(&storage->hazard)) ||
        (storage->deleter && !fy__wait_drops(FY__WAIT_DELETER) &&
         !fy__hazard_done(&storage->hazard)) ||
        (storage->private_memory &&
         !fy__private_take_over(storage->private_memory, &storage->hazard))) {
        fy__device_use(device);
        if ((storage->leaving = storage->pinned_here))
            atomic_fetch_add(&storage->peer->pinned_leaving_nbytes, storage->nbytes);
        defer(device, storage);
        fy__storage_reap_last(device);
        fy__device_unuse(device);
        return;
    }
    free_now(thread, storage);
}

/* The upload that reads at `point`; if it was cancelled, the one before it. */
static fy__point_t reader_at(fy__point_t point)
{
    fy__job_view_t view;
    while (fy__point_job_view(point, &view) && view.cancelled) point = view.before;
    return point;
}

FY_COLD fy_status_t fy__storage_check_borrow_slow(fy__storage_t *storage, const char *what)
{
    fy__point_t borrow = reader_at(atomic_load_explicit(&storage->borrow, memory_order_acquire));
    /* `borrow` covers the last upload only. Replays on other streams may still read the bytes. */
    for (int i = 0; i < FY__READER_COUNT && fy__point_reached(borrow); i++)
        borrow = reader_at(atomic_load_explicit(&storage->hazard.readers[i], memory_order_acquire));
    if (fy__wait_drops(FY__WAIT_BORROWED) || fy__point_reached(borrow)) {
        atomic_store_explicit(&storage->borrow, 0, memory_order_relaxed);
        return FY_STATUS_OK;
    }
    const fy_ticket_t ticket = fy__point_ticket(borrow);
    const fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(borrow));
    const bool is_upload = !stream->device->is_host; /* external.c: its timeline is the host's */
    const fy_status_t status = FY_FAIL(
        BUSY,
        "%s: these %llu bytes are borrowed by %s%s that is not done (ticket {%llu, %llu})\n"
        "  Wait for it with fy_ticket_wait%s",
        what, (unsigned long long)storage->nbytes, is_upload ? "an upload to " : "external work",
        is_upload ? stream->device->spec : "", (unsigned long long)ticket.stream,
        (unsigned long long)ticket.seq, is_upload ? ", or upload with FY_HOST_COPY" : "");
    if (fy__tls) FY__EVENT(fy__event_refusal(fy__tls, status));
    return status;
}

/* ---- faults of transfers that another thread submitted ---- */

void fy__storage_late_add(fy_device_t *device, fy__storage_t *storage, const fy__taint_t *taint)
{
    if (!fy__taint_any(taint)) return;
    fy__storage_set_dirty(storage);
    fy__taint_join(device, &storage->late, taint);
    atomic_store_explicit(&storage->has_late, true, memory_order_release);
}

void fy__storage_late_join(fy_device_t *device, fy__storage_t *dst, fy__storage_t *src)
{
    if (!atomic_load_explicit(&src->has_late, memory_order_acquire)) return;
    fy__lock(&device->faults.lock);
    const fy__taint_t taint = src->late;
    fy__unlock(&device->faults.lock);
    fy__storage_late_add(device, dst, &taint);
}

void fy__storage_late_clear(fy_device_t *device, fy__storage_t *storage)
{
    if (!atomic_load_explicit(&storage->has_late, memory_order_acquire)) return;
    fy__lock(&device->faults.lock);
    storage->late = (fy__taint_t){ 0, 0, 0 };
    fy__unlock(&device->faults.lock);
    atomic_store_explicit(&storage->has_late, false, memory_order_release);
}

FY_COLD void fy__storage_adopt_slow(fy_device_t *device, fy__storage_t *storage)
{
    /* fy__storage_late_add has set the dirty flag. */
    fy__taint_join(device, &storage->taint, &storage->late);
}

/* ---- storages that are used after their last reference ---- */

void fy__storage_reap(fy_device_t *device)
{
    fy__thread_t *thread = fy__thread();
    if (!thread || !__atomic_load_n(&device->deferred, __ATOMIC_RELAXED)) return;
    fy__storage_t *ready = NULL;
    fy__lock(&device->deferred_lock);
    for (fy__storage_t **link = &device->deferred; *link;) {
        fy__storage_t *storage = *link;
        if (!fy__wait_drops(FY__WAIT_DELETER_LATER) && !fy__hazard_done(&storage->hazard)) {
            link = &storage->next;
            continue;
        }
        *link = storage->next;
        storage->next = ready;
        ready = storage;
    }
    fy__unlock(&device->deferred_lock);
    while (ready) {
        fy__storage_t *storage = ready;
        ready = storage->next;
        free_now(thread, storage);
    }
}

void fy__storage_reap_last(fy_device_t *device)
{
    if (atomic_load(&device->opens) || !__atomic_load_n(&device->deferred, __ATOMIC_SEQ_CST))
        return;
    if (!fy__wait_drops(FY__WAIT_DELETER_LAST)) (void)fy__device_drain(device, FY_FOREVER);
    fy__storage_reap(device);
}
