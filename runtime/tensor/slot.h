/* Tensor slots: 448 bytes with a storage and the handle of its first tensor (tensor.h). They are
 * cut from chunks of one huge page. Each thread caches free slots without a lock and exchanges them
 * with the chunks in batches. A thread may release a slot that another thread took.
 * Not here: storages (storage.h), blocks of memory (alloc/). */
#ifndef FERRY_RUNTIME_SLOT_H_
#define FERRY_RUNTIME_SLOT_H_

#include "runtime/base/fail.h"
#include "runtime/tensor/tensor.h"

/* The storage of a free slot, with undefined contents; NULL with the error set: OUT_OF_MEMORY. */
fy__storage_t *fy__tensor_slot_alloc_slow(fy__thread_t *thread);
static inline fy__storage_t *fy__tensor_slot_alloc(fy__thread_t *thread)
{
    fy__storage_t *storage = thread->free_slots;
    if (FY_UNLIKELY(!storage)) return fy__tensor_slot_alloc_slow(thread);
    thread->free_slots = storage->next;
    thread->nfree_slots--;
    return storage;
}
/* The storage has no reference and no block. */
void fy__tensor_slot_release_batch(fy__thread_t *thread);
static inline void fy__tensor_slot_free(fy__thread_t *thread, fy__storage_t *storage)
{
    storage->next = thread->free_slots;
    thread->free_slots = storage;
    if (FY_UNLIKELY(++thread->nfree_slots > FY__STRUCT_CACHE))
        fy__tensor_slot_release_batch(thread);
}

/* Releases the free slots of this thread and of ended threads, and frees each chunk without a used
 * slot. */
void fy__tensor_slot_trim(fy__thread_t *thread);
/* Number of chunks. For tests. */
uint32_t fy__tensor_slot_chunks(void);
/* Held during a fork, so the child's chunks are consistent. */
extern pthread_mutex_t fy__tensor_slot_lock;

#endif
