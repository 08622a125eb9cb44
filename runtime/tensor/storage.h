/* Storage: bytes on one device with a reference count, shared by tensors, views and copies in
 * flight. No other object of Ferry is counted. Small host storages are reused by the thread cache.
 * Not here: the layout and the dirty flag (storage_layout.h), where blocks come from (alloc/),
 * handles (tensor.h). */
#ifndef FERRY_RUNTIME_STORAGE_H_
#define FERRY_RUNTIME_STORAGE_H_

#include "runtime/tensor/storage_layout.h"
#include "runtime/tensor/thread_cache.h"

/* The storage of every destroyed handle. A call with such a handle fails, until the handle's memory
 * is used by a new tensor. */
extern fy__storage_t fy__storage_gone;

/* A storage with one reference; nbytes may be 0. `stream`: where the bytes are used first (NULL on
 * synchronous devices). */
fy_status_t fy__storage_create(fy__thread_t *thread, fy_device_t *device, uint64_t nbytes,
                               fy_stream_t *stream, fy__storage_t **out_storage);
/* The same for temporary bytes of Ferry itself. */
fy_status_t fy__storage_create_scratch(fy__thread_t *thread, fy_device_t *device, uint64_t nbytes,
                                       fy_stream_t *stream, fy_category_t category,
                                       fy__storage_t **out_storage);
/* The same as fy__storage_create, from the device's pool even while this thread records. */
fy_status_t fy__storage_create_from_pool(fy__thread_t *thread, fy_device_t *device, uint64_t nbytes,
                                         fy_stream_t *stream, fy__storage_t **out_storage);
/* The same from a graph's memory; nbytes > 0. */
fy_status_t fy__storage_create_private(fy__thread_t *thread, struct fy__private *memory,
                                       uint64_t nbytes, fy__storage_t **out_storage);
/* Host bytes page-locked for `peer`. */
fy_status_t fy__storage_create_pinned(fy__thread_t *thread, fy_device_t *peer, uint64_t nbytes,
                                      fy__storage_t **out_storage);
/* Page-locks the bytes of a host storage, which are not pinned, until the storage is freed. */
fy_status_t fy__storage_pin(fy__thread_t *thread, fy__storage_t *storage, fy_device_t *peer);
fy_status_t fy__storage_wrap(fy__thread_t *thread, fy_device_t *device, void *data, uint64_t nbytes,
                             fy_deleter_fn deleter, void *user, fy__storage_t **out_storage);

static inline void fy__storage_retain(fy__storage_t *storage)
{
    atomic_fetch_add_explicit(&storage->refs, 1, memory_order_relaxed);
}
void fy__storage_destroy_slow(fy__thread_t *thread, fy__storage_t *storage);
static inline void fy__storage_release(fy__thread_t *thread, fy__storage_t *storage)
{
    /* The only owner needs no read-modify-write: no other thread can take a reference. */
    if (atomic_load_explicit(&storage->refs, memory_order_acquire) != 1 &&
        atomic_fetch_sub_explicit(&storage->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (fy__cache_accepts(storage))
        fy__cache_push(thread, storage);
    else
        fy__storage_destroy_slow(thread, storage);
}

static inline void fy__storage_wrote(fy__storage_t *storage)
{
    atomic_store_explicit(&storage->version,
                          atomic_load_explicit(&storage->version, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}
/* These bytes were to be a copy of others and may not be: their version is that of no other storage
 * until one is assigned. */
static inline void fy__storage_set_apart(fy__storage_t *storage)
{
    atomic_store_explicit(&storage->version,
                          atomic_load_explicit(&storage->version, memory_order_relaxed) | 1ull
                                                                                              << 63,
                          memory_order_relaxed);
}
/* Host bytes that an upload still reads in place must not be written: BUSY with the ticket. `what`
 * names the call. */
fy_status_t fy__storage_check_borrow_slow(fy__storage_t *storage, const char *what);
static inline fy_status_t fy__storage_check_borrow(fy__storage_t *storage, const char *what)
{
    if (__builtin_expect(atomic_load_explicit(&storage->borrow, memory_order_relaxed) == 0, 1))
        return FY_STATUS_OK;
    return fy__storage_check_borrow_slow(storage, what);
}

/* A queued transfer can fail, or become able to fail, when any thread submits it, while the owner
 * of the bytes reads `taint`. So the submitting thread adds the taint to `late`, and the next user
 * of the bytes adopts it: after it has ordered itself behind the transfer, before it reads `taint`.
 * `late` stays until all bytes are overwritten. `device`: the device of the transfer. */
void fy__storage_late_add(fy_device_t *device, fy__storage_t *storage, const fy__taint_t *taint);
/* dst gets the late taint of src as well. */
void fy__storage_late_join(fy_device_t *device, fy__storage_t *dst, fy__storage_t *src);
void fy__storage_late_clear(fy_device_t *device, fy__storage_t *storage);
void fy__storage_adopt_slow(fy_device_t *device, fy__storage_t *storage);
static inline void fy__storage_adopt(fy__storage_t *storage)
{
    if (__builtin_expect(atomic_load_explicit(&storage->has_late, memory_order_acquire), 0))
        fy__storage_adopt_slow(storage->device, storage);
}

/* Releases the deferred storages whose hazard is done. Transfers, waits and polls call it. */
void fy__storage_reap(fy_device_t *device);
/* The same when the last user closes the device: waits for the deferred storages. */
void fy__storage_reap_last(fy_device_t *device);

#endif
