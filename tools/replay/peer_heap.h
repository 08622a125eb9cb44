/* Blocks of plain numbers for peers' policies: segments that are cut and joined again, free blocks
 * in a tree by size. A baseline to compare Ferry with, so it shares no code with Ferry's own
 * allocator. Not here: any policy (replay.h). Next: peer_heap.c. */
#ifndef FERRY_TOOLS_PEER_HEAP_H_
#define FERRY_TOOLS_PEER_HEAP_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct heap_block {
    uint64_t offset, nbytes;
    bool is_free;
    /* which of the heap's trees it belongs to: blocks of a segment are all of one */
    int kind;
    struct heap_block *prev, *next;  /* neighbours in the segment */
    struct heap_block *left, *right; /* in the tree, while free */
    uint32_t priority;
} heap_block_t;

enum { HEAP_KINDS = 2 };

typedef struct heap {
    heap_block_t *trees[HEAP_KINDS];
    heap_block_t *spare;
    uint64_t reserved, peak_reserved, free_nbytes, segments, next_offset, random;
} heap_t;

/* The smallest free block of a kind that is large enough, the lowest among equals; NULL: none. */
heap_block_t *heap_best(const heap_t *heap, int kind, uint64_t nbytes);
/* Takes the left nbytes of a free block; the rest stays free. */
heap_block_t *heap_take(heap_t *heap, heap_block_t *block, uint64_t nbytes);
/* Frees it and joins it with free neighbours. */
void heap_give(heap_t *heap, heap_block_t *block);
/* A new segment: one free block; NULL: above `limit`, also without the segments that are free. */
heap_block_t *heap_grow(heap_t *heap, int kind, uint64_t nbytes, uint64_t limit);
uint64_t heap_largest(const heap_t *heap);
/* Forgets everything. */
void heap_clear(heap_t *heap);

#endif
