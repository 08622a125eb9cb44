/* The layout of a storage, and its dirty flag. Include storage.h instead of this header.
 * Not here: creating and releasing (storage.h), reusing small host storages (thread_cache.h). */
#ifndef FERRY_RUNTIME_STORAGE_LAYOUT_H_
#define FERRY_RUNTIME_STORAGE_LAYOUT_H_

#include <stddef.h>

#include <ferry/tensor.h>

#include "runtime/base/asan.h"
#include "runtime/device/device.h"
#include "runtime/thread/thread.h"

/* Bytes on one device with a reference count; tensors, views and copies in flight share it.
 * Creating and releasing a small host storage touches only the 64 bytes from `refs` on. A storage
 * is part of a tensor slot: tensor.h. */
typedef struct fy__storage {
    fy_deleter_fn deleter;
    void *user;
    /* The graph memory that `block` comes from, with a reference; NULL: the device's pool. */
    struct fy__private *private_memory;
    fy__node_memory_t *memory; /* where its live bytes are counted; NULL on the host */
    /* ---- the cache line of the hot path begins here ---- */
    _Atomic uint32_t refs;
    /* Size class in the thread cache (0: it is never cached), perhaps with FY__CACHE_DIRTY. */
    _Atomic uint8_t cache_class;
    bool pinned;      /* host bytes page-locked for `peer` */
    bool pinned_here; /* page-locked by fy__storage_pin; unlocked when the storage is freed */
    bool leaving;     /* deferred, and pinned_here: counted as leaving */
    void *data;
    /* The last upload, or external work, that reads these host bytes in place; 0: none. Written by
     * fy__storage_lend. */
    _Atomic fy__point_t borrow;
    union {
        _Atomic uint64_t version;
        /* While it has no reference: the next in a cache, or on the device's deferred list. */
        struct fy__storage *next;
    };
    uint64_t nbytes;           /* as requested */
    _Atomic uint64_t event_id; /* in event files; 0 until one mentions it */
    /* Written by fy__storage_taint, fy__storage_poison and adoption. */
    fy__taint_t taint;
    /* ---- the cache line ends inside `taint` ---- */
    fy_device_t *device; /* where the bytes are */
    fy__block_t *block;  /* NULL: wrapped, or empty */
    /* used on asynchronous devices, for pinned bytes and for host bytes that external work reads;
     * a reused host storage may hold points that are reached */
    fy__hazard_t hazard;
    fy_device_t *peer; /* pinned: the device it is pinned for, kept open by this storage */
    fy__taint_t late;  /* guarded by the fault lock of the device whose transfer failed */
    _Atomic bool has_late;
    /* The guard that counts its live bytes against a limit, with a reference; NULL: none. */
    struct fy__guard *guards;
} fy__storage_t;

_Static_assert(offsetof(fy__storage_t, taint.first) == offsetof(fy__storage_t, refs) + 64,
               "the fields of the hot path fill one cache line");

/* ---- the dirty flag ----
 * The thread cache reuses a storage without looking at `borrow`, `taint` and `has_late`, because
 * reading them would cost more than the rest of a small tensor's release. The flag is a bit of
 * `cache_class`, so one comparison tests both.
 * 1. Invariant: a storage with a class and without the flag has 0 in all three fields.
 * 2. Set: by the function that writes one of the fields, in the same call, on any thread that has
 *    a reference or a handle. It stays set until the last reference is released.
 * 3. Read: by the thread that drops the last reference. Its acquire of the count orders the read
 *    after every write that another reference made.
 * 4. Cleared: by that thread, after it has found all three fields 0 (fy__storage_destroy_slow),
 *    and when the storage is created.
 * Setters need no order among themselves, because no thread clears the flag before step 3. Builds
 * with a sanitizer, or without optimisation, check 1 for each storage that enters the cache. */
enum { FY__CACHE_DIRTY = 0x80 };

static inline void fy__storage_set_dirty(fy__storage_t *storage)
{
    /* Two threads that use one handle may set it at the same time. */
    if (!(atomic_load_explicit(&storage->cache_class, memory_order_relaxed) & FY__CACHE_DIRTY))
        atomic_fetch_or_explicit(&storage->cache_class, FY__CACHE_DIRTY, memory_order_relaxed);
}
/* These host bytes are read in place until `point`. */
static inline void fy__storage_lend(fy__storage_t *storage, fy__point_t point)
{
    fy__storage_set_dirty(storage);
    atomic_store(&storage->borrow, point);
}
/* The bytes are poisoned if a request in `taint` fails. */
static inline void fy__storage_taint(fy_device_t *device, fy__storage_t *storage,
                                     const fy__taint_t *taint)
{
    if (!fy__taint_any(taint)) return;
    fy__storage_set_dirty(storage);
    fy__taint_join(device, &storage->taint, taint);
}
/* The bytes are poisoned for the reason in poison record `record`. */
static inline void fy__storage_poison(fy__storage_t *storage, uint32_t record)
{
    fy__storage_set_dirty(storage);
    storage->taint.poison = record;
}
/* Reads the three fields, not the flag: no taint, and no upload reads the bytes in place. */
static inline bool fy__storage_is_clean(const fy__storage_t *storage)
{
    return !(atomic_load_explicit(&storage->borrow, memory_order_relaxed) | storage->taint.mask |
             storage->taint.poison |
             atomic_load_explicit(&storage->has_late, memory_order_acquire));
}

#endif
