/* Offset allocator: spans in offset order, doubly linked, and indexed by size on their list.
 * offset.h defines the terms. Every function either finishes or changes nothing: it allocates nodes
 * first. Next: size_index.c. */
#include "alloc/offset.h"

#include <stdlib.h>
#include <string.h>

/* ---- slabs: nodes of one size on a free list. A chunk is one allocation: a word that links
 * chunks, padding to a cache line, then the nodes. ---- */

enum { LINE_NBYTES = 64, FIRST_COUNT = 16, MOST_COUNT = 1024 };

void *fy__meta_malloc_alloc(void *user, size_t nbytes)
{
    (void)user;
    return malloc(nbytes);
}

void fy__meta_malloc_free(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static void slab_init(fy__slab_t *slab, size_t node_nbytes, const fy__meta_t *meta)
{
    *slab = (fy__slab_t){ .meta = *meta, .next_count = FIRST_COUNT };
    slab->node_nbytes = (node_nbytes + LINE_NBYTES - 1) & ~(size_t)(LINE_NBYTES - 1);
}

static void slab_fini(fy__slab_t *slab)
{
    while (slab->chunks) {
        void *next = *(void **)slab->chunks;
        slab->meta.free(slab->meta.user, slab->chunks);
        slab->chunks = next;
    }
    slab->nodes = NULL;
}

static void slab_put(fy__slab_t *slab, void *node)
{
    *(void **)node = slab->nodes;
    slab->nodes = node;
}

/* Adds a chunk. Without memory nothing changes. */
static void slab_grow(fy__slab_t *slab)
{
    size_t count = slab->next_count;
    char *chunk = slab->meta.alloc(slab->meta.user, 2 * LINE_NBYTES + count * slab->node_nbytes);
    if (!chunk) return;
    *(void **)chunk = slab->chunks;
    slab->chunks = chunk;
    char *first = chunk + LINE_NBYTES;
    first += -(uintptr_t)first & (LINE_NBYTES - 1);
    for (size_t i = count; i-- > 0;) slab_put(slab, first + i * slab->node_nbytes);
    if (count < MOST_COUNT) slab->next_count = count * 2;
}

/* An uninitialized node, or NULL. */
static void *slab_get(fy__slab_t *slab)
{
    if (!slab->nodes) slab_grow(slab);
    void *node = slab->nodes;
    if (node) slab->nodes = *(void **)node;
    return node;
}

/* ---- spans ---- */

bool fy__offsets_init(fy__offsets_t *offsets, uint64_t granule, size_t node_nbytes,
                      const fy__meta_t *meta)
{
    memset(offsets, 0, sizeof *offsets);
    offsets->granule = granule;
    slab_init(&offsets->spans, node_nbytes, meta);
    slab_init(&offsets->range_nodes, sizeof(fy__range_t), meta);
    return fy__offsets_open_list(offsets, 0);
}

void fy__offsets_fini(fy__offsets_t *offsets)
{
    const fy__meta_t *meta = &offsets->spans.meta;
    for (int i = 0; i < FY__LIST_COUNT; i++)
        if (offsets->lists[i]) meta->free(meta->user, offsets->lists[i]);
    slab_fini(&offsets->spans);
    slab_fini(&offsets->range_nodes);
}

bool fy__offsets_open_list(fy__offsets_t *offsets, uint32_t list)
{
    if (offsets->lists[list]) return true;
    const fy__meta_t *meta = &offsets->spans.meta;
    fy__size_index_t *pair = meta->alloc(meta->user, 2 * sizeof *pair);
    if (!pair) return false;
    fy__size_index_init(&pair[0], offsets->granule);
    fy__size_index_init(&pair[1], offsets->granule);
    offsets->lists[list] = pair;
    return true;
}

static inline void link_span(fy__offsets_t *offsets, fy__span_t *span, uint32_t list)
{
    span->list = (uint8_t)list;
    fy__size_index_insert(&offsets->lists[list][fy__span_is_whole_apart(span)], &span->size);
}

static inline void unlink_span(fy__offsets_t *offsets, fy__span_t *span)
{
    fy__size_index_remove(&offsets->lists[span->list][fy__span_is_whole_apart(span)], &span->size);
}

/* Merges `right` into `left`; both are off the lists. */
static inline void absorb_next(fy__offsets_t *offsets, fy__span_t *left, fy__span_t *right)
{
    left->size.nbytes += right->size.nbytes;
    left->next = right->next;
    if (right->next)
        right->next->prev = left;
    else
        left->range->last = left;
    offsets->span_count--;
    slab_put(&offsets->spans, right);
}

fy__range_t *fy__offsets_prepare_range(fy__offsets_t *offsets, bool is_dedicated)
{
    fy__range_t *range = slab_get(&offsets->range_nodes);
    if (!range) return NULL;
    fy__span_t *span = slab_get(&offsets->spans);
    if (!span) {
        slab_put(&offsets->range_nodes, range);
        return NULL;
    }
    *range = (fy__range_t){ .first = span, .is_dedicated = is_dedicated };
    return range;
}

void fy__offsets_drop_range(fy__offsets_t *offsets, fy__range_t *prepared)
{
    slab_put(&offsets->spans, prepared->first);
    slab_put(&offsets->range_nodes, prepared);
}

fy__span_t *fy__offsets_add_range(fy__offsets_t *offsets, fy__range_t *prepared, uint64_t offset,
                                  uint64_t nbytes)
{
    fy__range_t *range = prepared;
    range->offset = offset;
    range->nbytes = nbytes;
    range->id = ++offsets->last_range;
    range->prev = NULL;
    range->next = offsets->ranges;
    if (range->next) range->next->prev = range;
    offsets->ranges = range;
    offsets->range_count++;
    offsets->span_count++;
    fy__span_t *span = range->first;
    range->last = span;
    memset(span, 0, sizeof *span);
    span->size.nbytes = nbytes;
    span->offset = offset;
    span->range = range;
    link_span(offsets, span, 0);
    return span;
}

void fy__offsets_remove_range(fy__offsets_t *offsets, fy__range_t *range)
{
    unlink_span(offsets, range->first);
    if (range->prev)
        range->prev->next = range->next;
    else
        offsets->ranges = range->next;
    if (range->next) range->next->prev = range->prev;
    offsets->range_count--;
    offsets->span_count--;
    fy__offsets_drop_range(offsets, range);
}

fy__span_t *fy__offsets_prepare_span(fy__offsets_t *offsets) { return slab_get(&offsets->spans); }

void fy__offsets_drop_span(fy__offsets_t *offsets, fy__span_t *prepared)
{
    slab_put(&offsets->spans, prepared);
}

fy__span_t *fy__offsets_extend_range(fy__offsets_t *offsets, fy__range_t *range,
                                     fy__span_t *prepared, uint64_t nbytes)
{
    fy__span_t *span = prepared, *left = range->last;
    memset(span, 0, sizeof *span);
    span->size.nbytes = nbytes;
    span->offset = range->offset + range->nbytes;
    span->range = range;
    span->list = FY__SPAN_TAKEN;
    span->prev = left;
    left->next = span;
    range->last = span;
    range->nbytes += nbytes;
    offsets->span_count++;
    return fy__offsets_put(offsets, span, 0);
}

void fy__offsets_shorten_range(fy__offsets_t *offsets, fy__range_t *range, uint64_t nbytes)
{
    fy__span_t *span = range->last;
    unlink_span(offsets, span);
    range->nbytes -= nbytes;
    span->size.nbytes -= nbytes;
    if (span->size.nbytes) {
        link_span(offsets, span, 0);
        return;
    }
    range->last = span->prev; /* it exists: a range that is all free is removed as a whole */
    range->last->next = NULL;
    offsets->span_count--;
    slab_put(&offsets->spans, span);
}

fy__span_t *fy__offsets_best(const fy__offsets_t *offsets, uint32_t list, uint64_t nbytes)
{
    return (fy__span_t *)fy__size_index_best(&offsets->lists[list][0], nbytes);
}

fy__span_t *fy__offsets_best_dedicated(const fy__offsets_t *offsets, uint32_t list, uint64_t nbytes)
{
    return (fy__span_t *)fy__size_index_best(&offsets->lists[list][1], nbytes);
}

bool fy__offsets_take(fy__offsets_t *offsets, fy__span_t *span, uint64_t nbytes,
                      fy__span_t **out_rest)
{
    *out_rest = NULL;
    if (span->size.nbytes == nbytes) {
        unlink_span(offsets, span);
        span->list = FY__SPAN_TAKEN;
        return true;
    }
    fy__span_t *rest = slab_get(&offsets->spans);
    if (!rest) return false;
    unlink_span(offsets, span);
    uint32_t list = span->list;
    span->list = FY__SPAN_TAKEN;
    rest->size.nbytes = span->size.nbytes - nbytes;
    rest->offset = span->offset + nbytes;
    rest->prev = span;
    rest->next = span->next;
    rest->range = span->range;
    if (rest->next)
        rest->next->prev = rest;
    else
        rest->range->last = rest;
    span->next = rest;
    span->size.nbytes = nbytes;
    offsets->span_count++;
    link_span(offsets, rest, list);
    *out_rest = rest;
    return true;
}

fy__span_t *fy__offsets_put(fy__offsets_t *offsets, fy__span_t *span, uint32_t list)
{
    fy__span_t *left = span->prev, *right = span->next;
    if (list == FY__LIST_NO_JOIN) left = right = NULL;
    if (right && right->list == list) {
        unlink_span(offsets, right);
        if (offsets->joined) offsets->joined(offsets->joined_user, list, span, right);
        absorb_next(offsets, span, right);
    }
    if (left && left->list == list) {
        unlink_span(offsets, left);
        if (offsets->joined) offsets->joined(offsets->joined_user, list, left, span);
        absorb_next(offsets, left, span);
        span = left;
    }
    link_span(offsets, span, list);
    return span;
}

void fy__offsets_join_taken(fy__offsets_t *offsets, fy__span_t *left)
{
    absorb_next(offsets, left, left->next);
}

uint64_t fy__offsets_largest(const fy__offsets_t *offsets, uint32_t list)
{
    uint64_t largest = 0;
    for (int whole = 0; whole < 2 && offsets->lists[list]; whole++) {
        const fy__size_node_t *node = fy__size_index_largest(&offsets->lists[list][whole]);
        if (node && node->nbytes > largest) largest = node->nbytes;
    }
    return largest;
}

/* *counts: spans per list. */
static bool range_is_valid(const fy__offsets_t *offsets, const fy__range_t *range, uint64_t *counts)
{
    uint64_t at = range->offset;
    const fy__span_t *before = NULL;
    for (const fy__span_t *span = range->first; span; before = span, span = span->next) {
        if (span->prev != before || span->range != range || span->offset != at ||
            !span->size.nbytes)
            return false;
        if ((span->offset | span->size.nbytes) & (offsets->granule - 1)) return false;
        if (span->list != FY__SPAN_TAKEN) {
            if (span->list >= FY__LIST_COUNT || !offsets->lists[span->list]) return false;
            if (before && before->list == span->list && span->list != FY__LIST_NO_JOIN)
                return false;
            counts[span->list]++;
        }
        counts[FY__LIST_COUNT]++;
        at += span->size.nbytes;
    }
    return at == range->offset + range->nbytes && range->last == before;
}

bool fy__offsets_is_valid(const fy__offsets_t *offsets)
{
    uint64_t counts[FY__LIST_COUNT + 1] = { 0 }, range_count = 0;
    const fy__range_t *before = NULL;
    for (const fy__range_t *range = offsets->ranges; range;
         before = range, range = range->next, range_count++)
        if (range->prev != before || !range_is_valid(offsets, range, counts)) return false;
    if (range_count != offsets->range_count || counts[FY__LIST_COUNT] != offsets->span_count)
        return false;
    for (int list = 0; list < FY__LIST_COUNT; list++) {
        if (!offsets->lists[list]) continue;
        uint64_t spans, wholes;
        if (!fy__size_index_is_valid(&offsets->lists[list][0], &spans)) return false;
        if (!fy__size_index_is_valid(&offsets->lists[list][1], &wholes)) return false;
        if (spans + wholes != counts[list]) return false;
    }
    return true;
}
