/* Thread cache: host blocks that this thread freed recently, kept together with their storage
 * objects. A later allocation of the same size class takes one without a lock or a search.
 *   Small (up to 32 KiB): lists by size class. Only their thread uses them.
 *   Large: a few places, each for any size. Only their thread fills them. Any thread may empty one
 *   by an atomic exchange, so a thread whose pool is empty takes the large blocks of the others.
 * Both are bounded. Not here: creating and freeing storages (storage.c), the pool (alloc/). */
#ifndef FERRY_RUNTIME_THREAD_CACHE_H_
#define FERRY_RUNTIME_THREAD_CACHE_H_

#include "runtime/tensor/storage_layout.h"

/* ---- small blocks: the hot path ---- */

/* The most storages of each size class that a thread keeps. */
extern const uint16_t fy__cache_most[FY__CACHE_CLASSES];

static inline void fy__cache_count(_Atomic uint16_t *count, int change)
{
    atomic_store_explicit(count,
                          (uint16_t)(atomic_load_explicit(count, memory_order_relaxed) + change),
                          memory_order_relaxed);
}
/* Counts a request that this thread's cache served. */
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
/* Gives a cached storage its first reference and clears its history. */
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
/* A cached storage for 1 <= nbytes <= FY__CACHE_LARGEST, or NULL. */
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
/* Whether a storage without references can be cached: it has a small class and is not dirty. */
static inline bool fy__cache_accepts(const fy__storage_t *storage)
{
    return atomic_load_explicit(&storage->cache_class, memory_order_relaxed) - 1u <
           FY__CACHE_LARGE - 1;
}
void fy__cache_spill_full(fy__thread_t *thread, fy__storage_t *storage);
/* Caches a storage that fy__cache_accepts and that has no reference.
 * The newest storage is kept in `thread->last`, not on the list of its class: the address of that
 * list depends on `cache_class`, which may not be in the CPU's cache yet. The next request of the
 * class takes `last` by a branch that the CPU predicts. The previous `last` moves to its list, or
 * to the pool if the list is full; this comes last, so the caller keeps no value over the call. */
static inline void fy__cache_push(fy__thread_t *thread, fy__storage_t *storage)
{
    fy__storage_t *other = thread->last;
    const uint32_t class = atomic_load_explicit(&thread->last_class, memory_order_relaxed);
    /* A writer of the three fields did not set the flag. */
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

/* ---- the rest: thread_cache.c ---- */

/* Bytes of a block of size class `class`. */
uint64_t fy__cache_class_nbytes(uint32_t class);

/* A cached storage of more than FY__CACHE_LARGEST bytes with its first reference, or NULL. It is at
 * most an eighth larger than requested, and has the category and scope of a storage that is created
 * now, so the figures stay correct. */
fy__storage_t *fy__cache_take_large(fy__thread_t *thread, uint64_t nbytes);
/* Caches a storage of class FY__CACHE_LARGE that is not dirty and has no reference; false if it
 * cannot be cached. Other cached storages may be released to the pool for it. */
bool fy__cache_keep_large(fy__thread_t *thread, fy__storage_t *storage);

/* Releases to the pool the small blocks of this thread and of ended threads, and the large blocks
 * of all threads; true if there were any. */
bool fy__cache_flush(fy__thread_t *thread);
/* Releases the large blocks of this thread, which ends. */
void fy__cache_flush_large(fy__thread_t *thread);
/* Bytes in the caches of all threads, by category: live for the pool, cached for the user. Returns
 * the sum. */
uint64_t fy__cache_nbytes(uint64_t by_category[FY_CATEGORY_COUNT]);
/* Whether each cached storage has no reference, is clean, and has a slot as fy__tensor_first
 * expects it. Checks the caller's small and large blocks. For tests. */
bool fy__cache_is_valid(const fy__thread_t *thread);
/* Number of requests that the caches of all threads have served. */
uint64_t fy__cache_served(void);

#endif
