/* The front: host blocks that a thread has just given back, kept with their storage, so that a
 * small result, and a large one of the same size again, costs no lock and no look-up.
 *   Small (up to 32 KiB): lists by size class, which only their thread touches.
 *   Large: a few slots, each with any size. Only their thread puts something in; whoever exchanges
 *   it out owns it, so a thread that finds
 *   the pool empty takes what the others keep.
 * Both are bounded. Not here: making and freeing storages (storage.c), the pool (alloc/). */
#ifndef FERRY_RUNTIME_THREAD_CACHE_H_
#define FERRY_RUNTIME_THREAD_CACHE_H_

#include "runtime/tensor/storage.h"

/* What the blocks of a size class have. */
uint64_t fy__cache_class_nbytes(uint32_t class);

/* A storage with more than FY__CACHE_LARGEST bytes that this thread has at hand, made new, or NULL.
 * At most an eighth larger than asked; made under the same scope and for the same category as what
 * is made now, so figures stay what they are. */
fy__storage_t *fy__cache_take_large(fy__thread_t *thread, uint64_t nbytes);
/* Keeps a storage of class FY__CACHE_LARGE, without the mark, that nobody else refers to; false if
 * it is not fit for it. Others may go back to the pool for it. */
bool fy__cache_keep_large(fy__thread_t *thread, fy__storage_t *storage);

/* Gives back to the pool what this thread and those that ended have at hand, and what all have of
 * large ones; true if that was anything. */
bool fy__cache_flush(fy__thread_t *thread);
/* This thread ends: its large ones go back. */
void fy__cache_flush_large(fy__thread_t *thread);
/* Bytes at hand in all threads, by category: live for the pool, cached for the user. Returns the
 * sum. */
uint64_t fy__cache_nbytes(uint64_t by_category[FY_CATEGORY_COUNT]);
/* What is at hand is nobody's, has nothing that stands against handing it out, and its slot is what
 * fy__tensor_first relies on. `thread` is the caller's: its small ones and its large ones. For
 * tests. */
bool fy__cache_is_valid(const fy__thread_t *thread);
/* How often some thread was served so. */
uint64_t fy__cache_served(void);

#endif
