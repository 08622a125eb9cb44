/* Offset allocator: splits ranges of plain numbers into spans and joins them again. It accesses no
 * memory, so the same code serves devices, page-locked memory, tests and plans. Exact best fit;
 * adjacent free spans join immediately. The size index has the cost.
 * A span is taken, or is on a list. Lists are kinds of free: only adjacent spans of one list join,
 * and best fit searches one list. The pool has a list for each stream, for bytes that a device may
 * still use.
 * A range may be dedicated: while it is one free span, only best_dedicated finds it, so that
 * small blocks are not cut from it. Not thread-safe. Not here: hazards, limits, policy (pool.h). */
#ifndef FERRY_ALLOC_OFFSET_H_
#define FERRY_ALLOC_OFFSET_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- size_index.c: free blocks by size, for exact best fit. Bins are an eighth of a power of two,
 * found through two bitmaps. In a bin is a bitwise trie over the remaining bits of the size; blocks
 * of one size form a ring (newest first). The scheme is that of the "tree bins" in Doug Lea's
 * malloc, used for all sizes. Insert, remove and find take at most as many steps as a size has
 * bits, for any number of blocks. It accesses no memory but the nodes. ---- */

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

/* ---- offset.c ---- */

/* The source of bookkeeping memory. Tests use their own to fail the N-th request. */
typedef struct fy__meta {
    void *user;
    void *(*alloc)(void *user, size_t nbytes); /* NULL: none left */
    void (*free)(void *user, void *memory);
} fy__meta_t;

/* malloc and free, for a fy__meta_t; `user` is ignored. */
void *fy__meta_malloc_alloc(void *user, size_t nbytes);
void fy__meta_malloc_free(void *user, void *memory);

/* Nodes of one size on a free list. Grows by malloc and frees all its chunks together. */
typedef struct fy__slab {
    fy__meta_t meta;
    size_t node_nbytes;
    size_t next_count; /* nodes in the next chunk */
    void *chunks;      /* list of chunks, for fini */
    void *nodes;       /* free nodes; the first word of each is the next one */
} fy__slab_t;

/* Spans on the last list never join. */
enum { FY__LIST_COUNT = 16, FY__LIST_NO_JOIN = FY__LIST_COUNT - 1, FY__SPAN_TAKEN = 0xff };

typedef struct fy__range fy__range_t;

/* Head of a node; the caller may store more after it (node_nbytes). A taken span's address is
 * stable until it is freed. */
typedef struct fy__span {
    fy__size_node_t size; /* .nbytes; first, so that the index's nodes are spans */
    uint64_t offset;
    struct fy__span *prev, *next; /* adjacent spans by offset inside the range */
    fy__range_t *range;
    uint8_t list; /* FY__SPAN_TAKEN, or its list */
} fy__span_t;

struct fy__range {
    uint64_t offset, nbytes;
    uint64_t id;       /* 1, 2, ...: never used again */
    fy__span_t *first; /* a join keeps the left span, so this never changes */
    fy__span_t *last;
    fy__range_t *prev, *next;
    bool is_dedicated;
};

/* Whether the span fills a dedicated range. */
static inline bool fy__span_is_whole_apart(const fy__span_t *span)
{
    return !span->prev && !span->next && span->range->is_dedicated;
}

typedef struct fy__offsets {
    uint64_t granule;
    uint64_t range_count, span_count;
    uint64_t last_range; /* the id given last */
    fy__range_t *ranges; /* newest first */
    fy__slab_t spans, range_nodes;
    /* [0] spans, [1] free whole dedicated ranges; NULL until the list is opened */
    fy__size_index_t *lists[FY__LIST_COUNT];
    /* Called before `right` is merged into `left`, both on `list`. May be NULL. */
    void (*joined)(void *user, uint32_t list, fy__span_t *left, fy__span_t *right);
    void *joined_user;
} fy__offsets_t;

/* granule: power of two that divides every offset and size. Opens list 0. false: no memory. */
bool fy__offsets_init(fy__offsets_t *offsets, uint64_t granule, size_t node_nbytes,
                      const fy__meta_t *meta);
/* Frees all ranges and spans. */
void fy__offsets_fini(fy__offsets_t *offsets);
/* Makes a list usable; may be called repeatedly. false: no memory. */
bool fy__offsets_open_list(fy__offsets_t *offsets, uint32_t list);

/* A range is added in two steps, so that no segment is requested without a node for it. NULL: no
 * memory. */
fy__range_t *fy__offsets_prepare_range(fy__offsets_t *offsets, bool is_dedicated);
void fy__offsets_drop_range(fy__offsets_t *offsets, fy__range_t *prepared);
/* The range becomes one span on list 0. */
fy__span_t *fy__offsets_add_range(fy__offsets_t *offsets, fy__range_t *prepared, uint64_t offset,
                                  uint64_t nbytes);
/* The range must be one span on a list. */
void fy__offsets_remove_range(fy__offsets_t *offsets, fy__range_t *range);

/* Grows or shrinks a range at its end. Grow: `span` is a node from prepare_span; the new bytes go
 * to list 0, joined with a free span before them; returns that span. Shrink: the last span is on
 * list 0 and larger than nbytes. */
fy__span_t *fy__offsets_prepare_span(fy__offsets_t *offsets);
void fy__offsets_drop_span(fy__offsets_t *offsets, fy__span_t *prepared);
fy__span_t *fy__offsets_extend_range(fy__offsets_t *offsets, fy__range_t *range,
                                     fy__span_t *prepared, uint64_t nbytes);
void fy__offsets_shorten_range(fy__offsets_t *offsets, fy__range_t *range, uint64_t nbytes);

/* Best fit on an open list: among spans that are not whole dedicated ranges, and among those that
 * are. NULL: none fits. */
fy__span_t *fy__offsets_best(const fy__offsets_t *offsets, uint32_t list, uint64_t nbytes);
fy__span_t *fy__offsets_best_dedicated(const fy__offsets_t *offsets, uint32_t list,
                                       uint64_t nbytes);
/* Takes the left nbytes (a multiple of the granule, at most its size) of a span off its list; the
 * rest stays there as *out_rest, or NULL. false: no memory for a node, and nothing has changed. */
bool fy__offsets_take(fy__offsets_t *offsets, fy__span_t *span, uint64_t nbytes,
                      fy__span_t **out_rest);
/* Puts a taken span on an open list and joins it with adjacent spans there; returns the joined
 * span. Needs no memory. */
fy__span_t *fy__offsets_put(fy__offsets_t *offsets, fy__span_t *span, uint32_t list);
/* Joins two adjacent taken spans. */
void fy__offsets_join_taken(fy__offsets_t *offsets, fy__span_t *left);

/* Size of the largest span on a list; 0 if none. */
uint64_t fy__offsets_largest(const fy__offsets_t *offsets, uint32_t list);
/* Checks every invariant: no gap, no overlap, multiples of the granule, adjacent spans of a list
 * joined, indexes complete. */
bool fy__offsets_is_valid(const fy__offsets_t *offsets);

#endif
