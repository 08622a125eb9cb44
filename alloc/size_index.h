/* Size index: free blocks by size, for exact best fit. Bins are an eighth of a power of two, found
 * through two bitmaps. In a bin is a bitwise trie over the remaining bits of the size; blocks of
 * one size form a ring (newest first). The scheme is that of the "tree bins" in Doug Lea's malloc,
 * used for all sizes. Insert, remove and find take at most as many steps as a size has bits, for
 * any number of blocks. It accesses no memory but the nodes. Not here: adjacency by address
 * (offset.h). */
#ifndef FERRY_ALLOC_SIZE_INDEX_H_
#define FERRY_ALLOC_SIZE_INDEX_H_

#include <stdbool.h>
#include <stdint.h>

/* Embedded in each indexed object. nbytes is a multiple of the index's granule, and fixed while
 * inside. */
typedef struct fy__size_node {
    uint64_t nbytes;
    /* trie; parent is NULL for a root and for ring members outside the trie */
    struct fy__size_node *child[2], *parent;
    struct fy__size_node *newer, *older; /* ring of equal sizes */
} fy__size_node_t;

enum { FY__SIZE_ROWS = 62, FY__SIZE_COLUMNS = 8 };

typedef struct fy__size_index {
    uint32_t granule_shift;
    uint64_t rows_used;
    uint8_t columns_used[FY__SIZE_ROWS];
    fy__size_node_t *roots[FY__SIZE_ROWS][FY__SIZE_COLUMNS];
} fy__size_index_t;

/* granule: power of two; every size is a multiple of it. */
void fy__size_index_init(fy__size_index_t *index, uint64_t granule);
/* node->nbytes > 0 is set. */
void fy__size_index_insert(fy__size_index_t *index, fy__size_node_t *node);
void fy__size_index_remove(fy__size_index_t *index, fy__size_node_t *node);
/* The smallest node of at least nbytes (the newest of its size), or NULL. It stays inside. */
fy__size_node_t *fy__size_index_best(const fy__size_index_t *index, uint64_t nbytes);
fy__size_node_t *fy__size_index_largest(const fy__size_index_t *index);
/* Walks the structure; false if a link, a bit or an order is wrong. *out_count: nodes inside. */
bool fy__size_index_is_valid(const fy__size_index_t *index, uint64_t *out_count);

#endif
