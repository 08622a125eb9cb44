/* Chunks of tensor slots. A chunk is one huge page if the system has any, so many tensors need few
 * address translations. Masking a slot's address gives the chunk's header. Slots that no thread
 * caches are on the list of their chunk, so a chunk without used slots is found and freed.
 * With AddressSanitizer each slot is a separate allocation, so a use after free is reported. */
#include "runtime/tensor/slot.h"

#include <pthread.h>
#include <stdlib.h>

#include "runtime/base/fail.h"
#include "runtime/device/memory.h"

enum { CHUNK_NBYTES = 2 << 20, HEADER_NBYTES = 64, BATCH = 32, IDLE_MOST = 1 };
enum { SLOTS = (CHUNK_NBYTES - HEADER_NBYTES) / sizeof(fy__tensor_slot_t) };

typedef struct chunk {
    struct chunk *prev, *next; /* in `open` */
    fy__storage_t *free;       /* released slots */
    uint32_t ntouched;         /* slots that were used at least once */
    uint32_t nout;             /* slots in use or cached by threads */
} chunk_t;

_Static_assert(sizeof(chunk_t) <= HEADER_NBYTES, "a chunk's header is one line");

/* Guards the chunks' headers, the lists and the variables below. A leaf: no chunk is allocated or
 * freed while it is held. */
pthread_mutex_t fy__tensor_slot_lock = PTHREAD_MUTEX_INITIALIZER;
/* Ring of the chunks that have a free slot; idle chunks last. */
static chunk_t open = { &open, &open, NULL, 0, 0 };
static uint32_t nchunks, nidle; /* idle: no thread has one of its slots */

static inline chunk_t *chunk_of(const fy__storage_t *storage)
{
    return (chunk_t *)((uintptr_t)storage & ~(uintptr_t)(CHUNK_NBYTES - 1));
}

static void link_after(chunk_t *chunk, chunk_t *prev)
{
    chunk->prev = prev;
    chunk->next = prev->next;
    prev->next->prev = chunk;
    prev->next = chunk;
}

static void unlink_chunk(chunk_t *chunk)
{
    chunk->prev->next = chunk->next;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): in a ring all have neighbours */
    chunk->next->prev = chunk->prev;
}

static fy__storage_t *set_up(fy__tensor_slot_t *slot)
{
    slot->first.handle = (fy__handle_t){ NULL, NULL, FY__HANDLE_TENSOR };
    slot->first.storage = &fy__storage_gone;
    slot->first.rank = 0;
    slot->first.contiguous = true;
    slot->first.read_only = false;
    return &slot->storage;
}

/* The lock is held. */
static void add_chunk(chunk_t *chunk)
{
    *chunk = (chunk_t){ .free = NULL };
    link_after(chunk, open.prev);
    nchunks++;
    nidle++;
}

/* Moves a batch of one chunk's slots to the thread. The lock is held, and a chunk is open. */
static void take_batch(fy__thread_t *thread)
{
    chunk_t *chunk = open.next;
    nidle -= chunk->nout == 0;
    for (int i = 0; i < BATCH && chunk->nout < SLOTS; i++) {
        fy__storage_t *storage = chunk->free;
        if (storage)
            chunk->free = storage->next;
        else
            storage =
                set_up((fy__tensor_slot_t *)((char *)chunk + HEADER_NBYTES) + chunk->ntouched++);
        chunk->nout++;
        storage->next = thread->free_slots;
        thread->free_slots = storage;
        thread->nfree_slots++;
    }
    if (chunk->nout == SLOTS) unlink_chunk(chunk);
}

/* The lock is held. */
static void put(fy__storage_t *storage)
{
    chunk_t *chunk = chunk_of(storage);
    if (chunk->nout == SLOTS) link_after(chunk, &open);
    storage->next = chunk->free;
    chunk->free = storage;
    if (--chunk->nout) return;
    nidle++;
    unlink_chunk(chunk);
    link_after(chunk, open.prev);
}

/* Unlinks idle chunks until `most` are left; the lock is held. Returns a list for `release`. */
static chunk_t *take_idle(uint32_t most)
{
    chunk_t *gone = NULL;
    while (nidle > most) {
        chunk_t *chunk = open.prev;
        unlink_chunk(chunk);
        chunk->next = gone;
        gone = chunk;
        nidle--;
        nchunks--;
    }
    return gone;
}

static void release(chunk_t *gone)
{
    while (gone) {
        chunk_t *chunk = gone;
        gone = chunk->next;
        fy__host_segment_free(chunk, CHUNK_NBYTES);
    }
}

static fy__storage_t *alloc_alone(void)
{
    fy__tensor_slot_t *slot = aligned_alloc(64, sizeof *slot);
    if (slot) return set_up(slot);
    (void)FY_FAIL(OUT_OF_MEMORY, "no host memory for %zu bytes of a tensor's metadata",
                  sizeof *slot);
    return NULL;
}

FY_COLD fy__storage_t *fy__tensor_slot_alloc_slow(fy__thread_t *thread)
{
    if (FY__HAS_ASAN) return alloc_alone();
    pthread_mutex_lock(&fy__tensor_slot_lock);
    while (open.next == &open) {
        void *chunk;
        pthread_mutex_unlock(&fy__tensor_slot_lock);
        if (fy__host_segment_alloc(CHUNK_NBYTES, &chunk) != FY_STATUS_OK) return NULL;
        pthread_mutex_lock(&fy__tensor_slot_lock);
        add_chunk(chunk);
    }
    take_batch(thread);
    pthread_mutex_unlock(&fy__tensor_slot_lock);
    return fy__tensor_slot_alloc(thread);
}

/* Releases the free slots of `owner` until `most` are left. */
static chunk_t *put_all(fy__thread_t *owner, uint32_t most, uint32_t most_idle)
{
    pthread_mutex_lock(&fy__tensor_slot_lock);
    for (; owner->nfree_slots > most; owner->nfree_slots--) {
        fy__storage_t *storage = owner->free_slots;
        owner->free_slots = storage->next;
        put(storage);
    }
    chunk_t *gone = take_idle(most_idle);
    pthread_mutex_unlock(&fy__tensor_slot_lock);
    return gone;
}

FY_COLD void fy__tensor_slot_release_batch(fy__thread_t *thread)
{
    if (FY__HAS_ASAN) {
        fy__storage_t *storage = thread->free_slots;
        thread->free_slots = NULL;
        thread->nfree_slots = 0;
        free(fy__tensor_slot_of(storage));
        return;
    }
    /* Keeps the slots that were released last, which are in the CPU's cache. */
    release(put_all(thread, FY__STRUCT_CACHE / 2, IDLE_MOST));
}

static void release_all(void *user, fy__thread_t *owner)
{
    if (owner == user || !owner->in_use) release(put_all(owner, 0, 0));
}

void fy__tensor_slot_trim(fy__thread_t *thread)
{
    if (!FY__HAS_ASAN) fy__thread_walk(release_all, thread);
}

uint32_t fy__tensor_slot_chunks(void)
{
    pthread_mutex_lock(&fy__tensor_slot_lock);
    const uint32_t count = nchunks;
    pthread_mutex_unlock(&fy__tensor_slot_lock);
    return count;
}
