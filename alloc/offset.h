/* Offset allocator: cuts ranges of plain numbers into spans and joins them again. It touches no
 * memory behind the numbers, so the same code serves devices, page-locked memory, tests and plans.
 * Exact best fit; free neighbours join at once; see size_index.h for the cost.
 *
 * A span is taken, or lies on a list. Shelves are kinds of free: only neighbours of one list
 * join, and best fit looks at one list.
 * With list 0 alone this is an ordinary allocator; the pool keeps a list per stream for bytes a
 * device may still use.
 * A range may be `apart`: while wholly on one list it is found by best_whole only, so that crumbs
 * are not cut from it.
 * Not thread-safe. Not here: hazards, limits, policy (pool.h). */
#ifndef FERRY_ALLOC_OFFSET_H_
#define FERRY_ALLOC_OFFSET_H_

#include "alloc/size_index.h"
#include "alloc/slab.h"

/* Spans on the last list never join. */
enum { FY__LIST_COUNT = 16, FY__LIST_NO_JOIN = FY__LIST_COUNT - 1, FY__SPAN_TAKEN = 0xff };

typedef struct fy__range fy__range_t;

/* Head of a node; the caller may keep more behind it (node_nbytes). A taken span's address is
 * stable until it is put back. */
typedef struct fy__span {
    fy__size_node_t size; /* .nbytes; first, so that the index's nodes are spans */
    uint64_t offset;
    struct fy__span *prev, *next; /* neighbours by offset inside the range */
    fy__range_t *range;
    uint8_t list; /* FY__SPAN_TAKEN, or where it lies */
} fy__span_t;

struct fy__range {
    uint64_t offset, nbytes;
    fy__span_t *first; /* the left of two spans survives a join, so this never changes */
    fy__span_t *last;
    fy__range_t *prev, *next;
    bool is_apart;
};

/* Does the span fill a range that is apart? */
static inline bool fy__span_is_whole_apart(const fy__span_t *span)
{
    return !span->prev && !span->next && span->range->is_apart;
}

typedef struct fy__offsets {
    uint64_t granule;
    uint64_t range_count, span_count;
    fy__range_t *ranges; /* newest first */
    fy__slab_t spans, range_nodes;
    /* [0] spans, [1] whole ranges that are apart; NULL until the list is opened */
    fy__size_index_t *lists[FY__LIST_COUNT];
    /* Called when `right` is about to vanish into `left`, both on `list`. May be NULL. */
    void (*joined)(void *user, uint32_t list, fy__span_t *left, fy__span_t *right);
    void *joined_user;
} fy__offsets_t;

/* granule: power of two that divides every offset and size. Opens list 0. false: no memory. */
bool fy__offsets_init(fy__offsets_t *offsets, uint64_t granule, size_t node_nbytes,
                      const fy__meta_t *meta);
/* Forgets all ranges and spans. */
void fy__offsets_fini(fy__offsets_t *offsets);
/* Makes a list usable; legal again and again. false: no memory. */
bool fy__offsets_open_list(fy__offsets_t *offsets, uint32_t list);

/* Adding a range in two steps, so that the numbers need not be asked for when there is no node for
 * them. NULL: no memory. */
fy__range_t *fy__offsets_prepare_range(fy__offsets_t *offsets, bool is_apart);
void fy__offsets_drop_range(fy__offsets_t *offsets, fy__range_t *prepared);
/* The range becomes one span on list 0. */
fy__span_t *fy__offsets_add_range(fy__offsets_t *offsets, fy__range_t *prepared, uint64_t offset,
                                  uint64_t nbytes);
/* The range must be one span on a list. */
void fy__offsets_remove_range(fy__offsets_t *offsets, fy__range_t *range);

/* Makes a range longer or shorter at its end. Longer: `span` is a node from prepare_span, and what
 * came lies on list 0, joined with what was free before it; returns that. Shorter: the last span
 * is on list 0 and larger than nbytes. */
fy__span_t *fy__offsets_prepare_span(fy__offsets_t *offsets);
void fy__offsets_drop_span(fy__offsets_t *offsets, fy__span_t *prepared);
fy__span_t *fy__offsets_extend_range(fy__offsets_t *offsets, fy__range_t *range,
                                     fy__span_t *prepared, uint64_t nbytes);
void fy__offsets_shorten_range(fy__offsets_t *offsets, fy__range_t *range, uint64_t nbytes);

/* Best fit on a list that is open: among spans that are not whole ranges apart, and among those
 * that are. NULL: none fits. */
fy__span_t *fy__offsets_best(const fy__offsets_t *offsets, uint32_t list, uint64_t nbytes);
fy__span_t *fy__offsets_best_whole(const fy__offsets_t *offsets, uint32_t list, uint64_t nbytes);
/* Takes the left nbytes (a multiple of the granule, at most its size) of a span off its list; what
 * is left over stays there as *out_rest, or NULL. false: no memory for a node, nothing changed. */
bool fy__offsets_take(fy__offsets_t *offsets, fy__span_t *span, uint64_t nbytes,
                      fy__span_t **out_rest);
/* Puts a taken span on an open list and joins it with neighbours there; returns what it is part of
 * now. Needs no memory. */
fy__span_t *fy__offsets_put(fy__offsets_t *offsets, fy__span_t *span, uint32_t list);
/* Joins two taken neighbours. */
void fy__offsets_join_taken(fy__offsets_t *offsets, fy__span_t *left);

/* Size of the largest span on a list; 0 if none. */
uint64_t fy__offsets_largest(const fy__offsets_t *offsets, uint32_t list);
/* Walks every invariant: no gap, no overlap, multiples of the granule, neighbours of a list
 * joined, indexes complete. */
bool fy__offsets_is_valid(const fy__offsets_t *offsets);

#endif
