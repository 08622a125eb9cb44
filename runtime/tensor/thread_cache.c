/* The thread cache without its hot path (thread_cache.h): size classes, large blocks, releasing to
 * the pool. */
#include "runtime/tensor/thread_cache.h"

#include "runtime/base/fail.h"
#include "runtime/tensor/slot.h"

/* ---- size classes ---- */

uint64_t fy__cache_class_nbytes(uint32_t class)
{
    if (class <= 16) return class * 64ull;
    const uint32_t doubling = (class - 17) / 8 + 10, step = (class - 17) % 8;
    return (1ull << doubling) + ((step + 1ull) << (doubling - 3));
}

/* About 64 KiB of each class, at most 256 blocks: enough for a step of 100 calls with gradients. */
const uint16_t fy__cache_most[FY__CACHE_CLASSES] = {
    [1 ... 4] = 256, [5 ... 16] = 64, [17 ... 32] = 16,
    [33 ... 40] = 8, [41 ... 48] = 4, [49 ... 57] = 2,
};

_Static_assert(FY__CACHE_LARGE == 17 + 5 * 8 + 1 && FY__CACHE_CLASSES == FY__CACHE_LARGE + 1,
               "one more than the largest class of a small block, and the last of all");

/* ---- large blocks ---- */

/* The most bytes of large blocks that a thread keeps. */
static const uint64_t large_most_nbytes = 64u << 20;

/* Releases the block to the pool and the tensor slot to `thread`. */
static void give_back(fy__thread_t *thread, fy__storage_t *storage)
{
    /* The first handle may still be in the ring of its scope: fy__tensor_free. */
    fy__handle_release(&fy__tensor_slot_of(storage)->first.handle);
    fy__pool_free(storage->block);
    fy__tensor_slot_free(thread, storage);
}

/* Empties a slot of `owner`, on any thread. NULL: it was empty. */
static fy__storage_t *take_slot(fy__thread_t *owner, int slot)
{
    if (!atomic_load_explicit(&owner->large[slot], memory_order_relaxed)) return NULL;
    return atomic_exchange_explicit(&owner->large[slot], NULL, memory_order_acq_rel);
}

/* A block's size is a multiple of 64, so one word holds size and category. */
enum { CATEGORY_MASK = 63 };
_Static_assert((int)FY_CATEGORY_COUNT <= (int)CATEGORY_MASK,
               "a category fits where the size has zeros");

static inline uint64_t key_for(uint64_t nbytes, fy_category_t category)
{
    return nbytes | (uint64_t)category;
}

/* Size and category of the block in a slot; 0 if the slot is empty. */
static uint64_t slot_key(const fy__thread_t *owner, int slot)
{
    if (!atomic_load_explicit(&owner->large[slot], memory_order_relaxed)) return 0;
    return atomic_load_explicit(&owner->large_key[slot], memory_order_relaxed);
}

static inline uint64_t slot_nbytes(const fy__thread_t *owner, int slot)
{
    return slot_key(owner, slot) & ~(uint64_t)CATEGORY_MASK;
}

/* Bytes of the slot's block beyond the request; UINT64_MAX if the block is too small, or has
 * another category or scope. */
static uint64_t surplus_of(const fy__thread_t *thread, int slot, uint64_t nbytes)
{
    const uint64_t key = slot_key(thread, slot), held = key & ~(uint64_t)CATEGORY_MASK;
    if (held < nbytes || key != key_for(held, thread->category) ||
        thread->large_scope[slot] != thread->node)
        return UINT64_MAX;
    return held - nbytes;
}

/* The slot that serves nbytes best, or -1. */
static int find_slot(const fy__thread_t *thread, uint64_t nbytes)
{
    int best = -1;
    uint64_t least = nbytes / 8 + 1;
    for (int slot = 0; slot < FY__CACHE_SLOTS; slot++) {
        const uint64_t surplus = surplus_of(thread, slot, nbytes);
        if (surplus >= least) continue;
        best = slot;
        least = surplus;
    }
    return best;
}

fy__storage_t *fy__cache_take_large(fy__thread_t *thread, uint64_t nbytes)
{
    /* The newest block fits most often; it is taken if it is close to the best fit. */
    int slot = (int)thread->large_last;
    if (surplus_of(thread, slot, nbytes) > nbytes / 64) slot = find_slot(thread, nbytes);
    fy__storage_t *storage = slot < 0 ? NULL : take_slot(thread, slot);
    if (!storage) return NULL;
    thread->large_last = (uint32_t)slot;
    thread->large_total -= storage->block->nbytes;
    return fy__cache_take(thread, storage, nbytes);
}

/* Releases blocks until nbytes fit; returns an empty slot. large_total misses the blocks that other
 * threads took, so each round computes it again. Only this thread fills its slots, so the loop
 * ends. */
static FY_COLD uint32_t make_room(fy__thread_t *thread, uint64_t nbytes)
{
    for (;;) {
        int empty = -1;
        thread->large_total = 0;
        for (int slot = 0; slot < FY__CACHE_SLOTS; slot++) {
            const uint64_t held = slot_nbytes(thread, slot);
            thread->large_total += held;
            if (!held) empty = slot;
        }
        if (empty >= 0 && thread->large_total + nbytes <= large_most_nbytes) return (uint32_t)empty;
        /* about the oldest */
        fy__storage_t *other = take_slot(thread, (int)(thread->large_next++ % FY__CACHE_SLOTS));
        if (other) give_back(thread, other);
    }
}

bool fy__cache_keep_large(fy__thread_t *thread, fy__storage_t *storage)
{
    const uint64_t nbytes = storage->block->nbytes;
    if (nbytes > large_most_nbytes || !fy__hazard_is_empty(&storage->hazard)) return false;
    /* A writer of the three fields did not set the flag. */
    if (FY__IS_CHECKED && !fy__storage_is_clean(storage)) __builtin_trap();
    uint32_t slot = thread->large_last;
    if (atomic_load_explicit(&thread->large[slot], memory_order_relaxed) ||
        thread->large_total + nbytes > large_most_nbytes)
        slot = make_room(thread, nbytes);
    thread->large_last = slot;
    thread->large_total += nbytes;
    /* Only this thread fills its slots, so this one is still empty. */
    atomic_store_explicit(&storage->refs, 0, memory_order_relaxed); /* seen by snapshots */
    fy__asan_forbid(storage->data, nbytes);
    thread->large_scope[slot] = storage->block->tag.scope;
    atomic_store_explicit(&thread->large_key[slot], key_for(nbytes, storage->block->tag.category),
                          memory_order_relaxed);
    atomic_store_explicit(&thread->large[slot], storage, memory_order_release);
    return true;
}

/* ---- releasing to the pool ---- */

void fy__cache_spill_full(fy__thread_t *thread, fy__storage_t *storage)
{
    give_back(thread, storage);
}

static bool flush_small(fy__thread_t *owner)
{
    bool any = atomic_load_explicit(&owner->last_class, memory_order_relaxed) != 0;
    if (any) {
        atomic_store_explicit(&owner->last_class, 0, memory_order_relaxed);
        give_back(owner, owner->last);
    }
    for (uint32_t class = 0; class < FY__CACHE_CLASSES; class ++) {
        while (owner->cached[class]) {
            fy__storage_t *storage = owner->cached[class];
            owner->cached[class] = storage->next;
            give_back(owner, storage);
            any = true;
        }
        atomic_store_explicit(&owner->ncached[class], 0, memory_order_relaxed);
    }
    return any;
}

static bool flush_large(fy__thread_t *thread, fy__thread_t *owner)
{
    bool any = false;
    for (int slot = 0; slot < FY__CACHE_SLOTS; slot++) {
        fy__storage_t *storage = take_slot(owner, slot);
        if (!storage) continue;
        give_back(thread, storage);
        any = true;
    }
    return any;
}

void fy__cache_flush_large(fy__thread_t *thread) { (void)flush_large(thread, thread); }

struct flush {
    fy__thread_t *thread;
    bool any;
};

static void flush_one(void *user, fy__thread_t *owner)
{
    struct flush *flush = user;
    flush->any |= flush_large(flush->thread, owner);
    if (owner == flush->thread || !owner->in_use) flush->any |= flush_small(owner);
}

bool fy__cache_flush(fy__thread_t *thread)
{
    struct flush flush = { thread, false };
    fy__thread_walk(flush_one, &flush);
    return flush.any;
}

static void add_nbytes(void *user, fy__thread_t *thread)
{
    uint64_t *by_category = user;
    const uint32_t last = atomic_load_explicit(&thread->last_class, memory_order_relaxed);
    if (last) by_category[FY_CATEGORY_ACTIVATIONS] += fy__cache_class_nbytes(last);
    /* Small blocks have no tag (storage.c), so they count as activations. */
    for (uint32_t class = 1; class < FY__CACHE_LARGE; class ++)
        by_category[FY_CATEGORY_ACTIVATIONS] +=
            atomic_load_explicit(&thread->ncached[class], memory_order_relaxed) *
            fy__cache_class_nbytes(class);
    for (int slot = 0; slot < FY__CACHE_SLOTS; slot++) {
        const uint64_t key = slot_key(thread, slot), category = key & CATEGORY_MASK;
        by_category[category] += key - category;
    }
}

uint64_t fy__cache_nbytes(uint64_t by_category[FY_CATEGORY_COUNT])
{
    uint64_t nbytes = 0;
    for (int i = 0; i < FY_CATEGORY_COUNT; i++) by_category[i] = 0;
    fy__thread_walk(add_nbytes, by_category);
    for (int i = 0; i < FY_CATEGORY_COUNT; i++) nbytes += by_category[i];
    return nbytes;
}

static bool is_fit(const fy__storage_t *storage, uint32_t class)
{
    const fy_tensor_t *first = &fy__tensor_slot_of(storage)->first;
    return atomic_load_explicit(&storage->refs, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&storage->cache_class, memory_order_relaxed) == class &&
           fy__storage_is_clean(storage) && storage->data == storage->block->address &&
           fy__tensor_is_gone(first) && first->contiguous && !first->read_only &&
           first->data == storage->data && (!first->rank || first->strides[first->rank - 1] == 1);
}

bool fy__cache_is_valid(const fy__thread_t *thread)
{
    const uint32_t last = atomic_load_explicit(&thread->last_class, memory_order_relaxed);
    bool valid = !last || is_fit(thread->last, last);
    for (uint32_t class = 1; class < FY__CACHE_LARGE; class ++) {
        uint32_t count = 0;
        for (const fy__storage_t *storage = thread->cached[class]; storage && valid;
             storage = storage->next, count++)
            valid = is_fit(storage, class);
        valid = valid &&
                count == atomic_load_explicit(&thread->ncached[class], memory_order_relaxed);
    }
    for (int slot = 0; slot < FY__CACHE_SLOTS; slot++) {
        const fy__storage_t *storage =
            atomic_load_explicit(&thread->large[slot], memory_order_relaxed);
        valid = valid && (!storage || is_fit(storage, FY__CACHE_LARGE));
    }
    return valid;
}

static void add_served(void *user, fy__thread_t *thread)
{
    *(uint64_t *)user += atomic_load_explicit(&thread->cache_hits, memory_order_relaxed);
}

uint64_t fy__cache_served(void)
{
    uint64_t count = 0;
    fy__thread_walk(add_served, &count);
    return count;
}
