/* Where slots come from: pieces of 448 bytes, each a storage with the handle of its first tensor
 * (tensor.h). Cut from chunks of one huge page, kept at hand by each thread without a lock,
 * exchanged with the others by the batch. A thread may give back what another one took.
 * Not here: what a storage is (storage.h), blocks of memory (alloc/). */
#ifndef FERRY_RUNTIME_SLOT_H_
#define FERRY_RUNTIME_SLOT_H_

#include "runtime/base/fail.h"
#include "runtime/tensor/tensor.h"

/* The storage of a slot with anything in it, its handle nobody's; NULL if there is no memory (the
 * record is written). */
fy__storage_t *fy__tensor_slot_alloc_slow(fy__thread_t *thread);
static inline fy__storage_t *fy__tensor_slot_alloc(fy__thread_t *thread)
{
    fy__storage_t *storage = thread->free_slots;
    if (FY_UNLIKELY(!storage)) return fy__tensor_slot_alloc_slow(thread);
    thread->free_slots = storage->next;
    thread->nfree_slots--;
    return storage;
}
/* Nobody refers to the storage, and its block is gone. */
void fy__tensor_slot_release_batch(fy__thread_t *thread);
static inline void fy__tensor_slot_free(fy__thread_t *thread, fy__storage_t *storage)
{
    storage->next = thread->free_slots;
    thread->free_slots = storage;
    if (FY_UNLIKELY(++thread->nfree_slots > FY__STRUCT_CACHE))
        fy__tensor_slot_release_batch(thread);
}

/* Gives back what this thread and those that ended have at hand, and every chunk that nobody has a
 * slot of. */
void fy__tensor_slot_trim(fy__thread_t *thread);
/* Chunks that there are. For tests. */
uint32_t fy__tensor_slot_chunks(void);
/* Held over a fork, so that the child finds the chunks whole. */
void fy__tensor_slot_fork_lock(void);
void fy__tensor_slot_fork_unlock(void);

#endif
