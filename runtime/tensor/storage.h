/* Storage: counted bytes on one device, shared by tensors, views and copies in flight. The only
 * thing in Ferry with a count.
 * Small host storages come from a per-thread front with their block attached, so a small result
 * costs no lock and no look-up.
 * Large host storages come back the same way, from a few slots: thread_cache.h.
 * Not here: where blocks come from (alloc/), handles (tensor.h). */
#ifndef FERRY_RUNTIME_STORAGE_H_
#define FERRY_RUNTIME_STORAGE_H_

#include <stddef.h>

#include <ferry/tensor.h>

#include "runtime/base/asan.h"
#include "runtime/device/device.h"
#include "runtime/thread/thread.h"

/* Making a small host storage, and giving it back, touches one line of 64 bytes, from `refs` on,
 * and none of the rest. It lies in a slot:
 * tensor.h. */
typedef struct fy__storage {
    fy_deleter_fn deleter;
    void *user;
    /* a graph's, that `block` is from, with a reference; NULL: the device's pool */
    struct fy__private *private_memory;
    fy__node_memory_t *memory; /* where its live bytes are counted; NULL on the host */
    /* ---- the line ---- */
    _Atomic uint32_t refs;
    /* class of the host front it goes back to, 0 is none; and perhaps FY__CACHE_DIRTY */
    _Atomic uint8_t cache_class;
    bool pinned;      /* host bytes page-locked for `peer` */
    bool pinned_here; /* by fy__storage_pin, so unlocked when the bytes go */
    bool leaving;     /* deferred, and pinned_here: counted as leaving */
    void *data;
    /* upload that reads these host bytes in place; 0 is none. By fy__storage_lend only: the mark */
    _Atomic fy__point_t borrow;
    union {
        _Atomic uint64_t version;
        /* nobody refers to it: in a cache, or on the device's deferred list */
        struct fy__storage *next;
    };
    uint64_t nbytes;           /* as asked for */
    _Atomic uint64_t event_id; /* in event files; 0 until one mentions it */
    /* gets something by fy__storage_taint, fy__storage_poison and adoption only: the mark */
    fy__taint_t taint;
    /* ---- its end is inside of `taint` ---- */
    fy_device_t *device; /* where the bytes live */
    fy__block_t *block;  /* NULL: wrapped, or empty */
    fy__hazard_t hazard; /* meaningful on asynchronous devices and for pinned bytes */
    fy_device_t *peer;   /* pinned: the device it is pinned for, kept open by this storage */
    fy__taint_t late;    /* guarded by the fault lock of the device whose transfer found it out */
    _Atomic bool has_late;
    /* who counts its live bytes against a limit, a reference: guard.h; NULL: nobody */
    struct fy__guard *guards;
} fy__storage_t;

/* ---- the mark ---- What goes back to the front is handed out as it is, so nobody may be reading
 * its bytes in place (`borrow`), and nothing may have been found out about them (`taint`,
 * `late`). To look at all that would cost a small tensor's end more than the rest of it, so there
 * is a mark beside the class, which one comparison sees. The invariant:
 *     a storage with a class and without the mark has 0 in `borrow`, `taint` and `has_late`.
 * Set: by whoever writes one of them, within the same call; any thread may, with a reference of its
 * own or by a handle of the user's. Nobody takes it off while anybody has the storage, though the
 * fields become 0 again (a borrow just ends: its point is reached, on whatever thread, and nothing
 * is written before somebody asks). So those who set it need no order between them, nor between
 * mark and field.
 * Seen: by the last owner. What others did with a reference came before they let go of it, which he
 * acquired; what they did by his handle he has ordered himself behind, or he could not destroy it.
 * Taken off: by him, once he has looked closer (fy__storage_destroy_slow) and found all of them 0;
 * and where a storage is made.
 * Builds with a sanitizer, or without optimisation, look at every storage that goes to the front;
 * fy__cache_is_valid at all that lie there. */
enum { FY__CACHE_DIRTY = 0x80 };

static inline void fy__storage_set_dirty(fy__storage_t *storage)
{
    /* two may be here, by one handle */
    if (!(atomic_load_explicit(&storage->cache_class, memory_order_relaxed) & FY__CACHE_DIRTY))
        atomic_fetch_or_explicit(&storage->cache_class, FY__CACHE_DIRTY, memory_order_relaxed);
}
/* These host bytes are read in place until `point`. */
static inline void fy__storage_lend(fy__storage_t *storage, fy__point_t point)
{
    fy__storage_set_dirty(storage);
    atomic_store(&storage->borrow, point);
}
/* The bytes suffer from what `taint` says, too. */
static inline void fy__storage_taint(fy_device_t *device, fy__storage_t *storage,
                                     const fy__taint_t *taint)
{
    if (!fy__taint_any(taint)) return;
    fy__storage_set_dirty(storage);
    fy__taint_join(device, &storage->taint, taint);
}
/* They are no good for what poison record `record` says; nothing else matters any more. */
static inline void fy__storage_poison(fy__storage_t *storage, uint32_t record)
{
    fy__storage_set_dirty(storage);
    storage->taint.poison = record;
}
/* Without the mark's help: nothing was found out about its bytes, and nobody reads them in
 * place. */
static inline bool fy__storage_is_clean(const fy__storage_t *storage)
{
    return !(atomic_load_explicit(&storage->borrow, memory_order_relaxed) | storage->taint.mask |
             storage->taint.poison |
             atomic_load_explicit(&storage->has_late, memory_order_acquire));
}

/* ---- the front: host blocks at hand, without a lock; the rest of it: thread_cache.h ---- */

/* How many a thread keeps of each size class. */
extern const uint16_t fy__cache_most[FY__CACHE_CLASSES];

static inline void fy__cache_count(_Atomic uint16_t *count, int change)
{
    atomic_store_explicit(count,
                          (uint16_t)(atomic_load_explicit(count, memory_order_relaxed) + change),
                          memory_order_relaxed);
}
/* This thread was served from what it had at hand. */
static inline void fy__cache_served_one(fy__thread_t *thread)
{
    atomic_store_explicit(&thread->cache_hits,
                          atomic_load_explicit(&thread->cache_hits, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}
enum { FY__CACHE_LARGEST = 32768 }; /* bytes of a small block */
/* Size class of 1 <= nbytes <= FY__CACHE_LARGEST: 64-byte steps up to 1 KiB, then eight a doubling
 * (rounding <= 12.5 %). */
static inline uint32_t fy__cache_class(uint64_t nbytes)
{
    if (nbytes <= 1024) return (uint32_t)(nbytes + 63) / 64;
    /* 2^doubling < nbytes <= 2^(doubling+1) */
    const uint32_t doubling = 63u - (uint32_t)__builtin_clzll(nbytes - 1);
    const uint32_t step = (uint32_t)((nbytes - 1 - (1ull << doubling)) >> (doubling - 3));
    return 17 + (doubling - 10) * 8 + step;
}
/* Makes a storage that was at hand somebody's. */
static inline fy__storage_t *fy__cache_take(fy__thread_t *thread, fy__storage_t *storage,
                                            uint64_t nbytes)
{
    fy__cache_served_one(thread);
    atomic_store_explicit(&storage->refs, 1, memory_order_relaxed);
    atomic_store_explicit(&storage->version, 0, memory_order_relaxed);
    atomic_store_explicit(&storage->event_id, 0, memory_order_relaxed);
    storage->nbytes = nbytes;
    fy__asan_allow(storage->data, nbytes);
    return storage;
}
/* A storage for 1 <= nbytes <= FY__CACHE_LARGEST that is at hand, or NULL. */
static inline fy__storage_t *fy__cache_pop(fy__thread_t *thread, uint64_t nbytes)
{
    if (nbytes - 1 >= FY__CACHE_LARGEST) return NULL;
    const uint32_t class = fy__cache_class(nbytes);
    fy__storage_t *storage;
    if (atomic_load_explicit(&thread->last_class, memory_order_relaxed) == class) {
        storage = thread->last;
        atomic_store_explicit(&thread->last_class, 0, memory_order_relaxed);
    } else {
        storage = thread->cached[class];
        if (!storage) return NULL;
        thread->cached[class] = storage->next;
        fy__cache_count(&thread->ncached[class], -1);
    }
    return fy__cache_take(thread, storage, nbytes);
}
/* Of a storage that nobody but the caller refers to: is it a small one, fit for being handed out as
 * it is? No if it has the mark. */
static inline bool fy__cache_accepts(const fy__storage_t *storage)
{
    return atomic_load_explicit(&storage->cache_class, memory_order_relaxed) - 1u <
           FY__CACHE_LARGE - 1;
}
void fy__cache_spill_full(fy__thread_t *thread, fy__storage_t *storage);
/* Gives one that the front wants, and nobody refers to, back to it.
 * It waits in a place of its own, because the address of its class's list is not known before its
 * line has come: whoever wants one of that class next takes it from there by a branch that is
 * foreseen, where it would wait for the line to know which list to look at. The one before goes to
 * the list of its class, or to the pool if that is full: last, so that a caller has nothing to
 * remember over the call. */
static inline void fy__cache_push(fy__thread_t *thread, fy__storage_t *storage)
{
    fy__storage_t *other = thread->last;
    const uint32_t class = atomic_load_explicit(&thread->last_class, memory_order_relaxed);
    /* somebody forgot the mark */
    if (FY__IS_CHECKED && !fy__storage_is_clean(storage)) __builtin_trap();
    atomic_store_explicit(&storage->refs, 0, memory_order_relaxed); /* seen by snapshots */
    fy__asan_forbid(storage->data, storage->block->nbytes);
    thread->last = storage;
    atomic_store_explicit(&thread->last_class,
                          atomic_load_explicit(&storage->cache_class, memory_order_relaxed),
                          memory_order_relaxed);
    if (!class) return;
    if (__builtin_expect(atomic_load_explicit(&thread->ncached[class], memory_order_relaxed) >=
                             fy__cache_most[class],
                         0)) {
        fy__cache_spill_full(thread, other);
        return;
    }
    other->next = thread->cached[class];
    thread->cached[class] = other;
    fy__cache_count(&thread->ncached[class], 1);
}

_Static_assert(offsetof(fy__storage_t, taint.first) == offsetof(fy__storage_t, refs) + 64,
               "what the front looks at fills one line");

/* What a handle that was given back refers to, so that using it again is noticed as long as the
 * handle is not in new hands. */
extern fy__storage_t fy__storage_gone;

/* nbytes may be 0. `stream`: where the bytes will be used first (NULL on synchronous devices). One
 * reference. */
fy_status_t fy__storage_create(fy__thread_t *thread, fy_device_t *device, uint64_t nbytes,
                               fy_stream_t *stream, fy__storage_t **out_storage);
/* The same for bytes that Ferry itself needs for a while. */
fy_status_t fy__storage_create_scratch(fy__thread_t *thread, fy_device_t *device, uint64_t nbytes,
                                       fy_stream_t *stream, fy_category_t category,
                                       fy__storage_t **out_storage);
/* The same as fy__storage_create from the device's pool even while this thread records. */
fy_status_t fy__storage_create_large(fy__thread_t *thread, fy_device_t *device, uint64_t nbytes,
                                     fy_stream_t *stream, fy__storage_t **out_storage);
/* The same from a graph's memory; nbytes > 0. */
fy_status_t fy__storage_create_private(fy__thread_t *thread, struct fy__private *memory,
                                       uint64_t nbytes, fy__storage_t **out_storage);
/* Host bytes page-locked for `peer`. */
fy_status_t fy__storage_create_pinned(fy__thread_t *thread, fy_device_t *peer, uint64_t nbytes,
                                      fy__storage_t **out_storage);
/* Page-locks the bytes that a host storage has, until it goes. They are not pinned. */
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
    /* A sole owner needs no read-modify-write: nobody else can have the storage. */
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
/* Host bytes that an upload still reads in place must not be written: BUSY with the ticket. `what`
 * names the call. */
fy_status_t fy__storage_check_borrow_slow(fy__storage_t *storage, const char *what);
static inline fy_status_t fy__storage_check_borrow(fy__storage_t *storage, const char *what)
{
    if (__builtin_expect(atomic_load_explicit(&storage->borrow, memory_order_relaxed) == 0, 1))
        return FY_STATUS_OK;
    return fy__storage_check_borrow_slow(storage, what);
}

/* A transfer that stood in a queue fails, or turns out to be able to, when it is submitted, by any
 * thread, while the owner of the bytes may be looking at `taint`. So it is written down beside
 * it, and whoever uses the bytes adopts it: after he ordered himself behind the transfer, before he
 * looks. It stays until the bytes are overwritten as a whole. `device`: whose transfer it was. */
void fy__storage_late_add(fy_device_t *device, fy__storage_t *storage, const fy__taint_t *taint);
/* dst suffers from what was found out about src, too. */
void fy__storage_late_join(fy_device_t *device, fy__storage_t *dst, fy__storage_t *src);
void fy__storage_late_clear(fy_device_t *device, fy__storage_t *storage);
void fy__storage_adopt_slow(fy_device_t *device, fy__storage_t *storage);
static inline void fy__storage_adopt(fy__storage_t *storage)
{
    if (__builtin_expect(atomic_load_explicit(&storage->has_late, memory_order_acquire), 0))
        fy__storage_adopt_slow(storage->device, storage);
}

/* Keeps `storage` (a reference that the caller hands over) until its hazard is done, then lets
 * go. */
void fy__storage_defer(fy_device_t *device, fy__storage_t *storage);
/* Lets go of deferred storages whose use is over; called wherever a transfer, a wait or a poll
 * passes by. */
void fy__storage_reap(fy_device_t *device);
/* If nobody has the device open, nobody may ever pass by again: waits for the deferred ones and
 * lets go of them. */
void fy__storage_reap_last(fy_device_t *device);

#endif
