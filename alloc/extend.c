/* Segments that grow and shrink in place, for sources that can resize (virtual memory). A request
 * that no free block serves extends the segment with the largest free end by the missing bytes. So
 * the free bytes at that end serve it as well, and adjacent free bytes are never split by a segment
 * border. Shrinking releases free ends.
 * Not here: when a pool grows (fallback.c), new segments (grow.c), how a device resizes (its
 * backend). */
#include "alloc/pool.h"

#include "runtime/base/checked.h"
#include "runtime/record/event.h"

/* A segment whose size is no multiple of the step keeps its size. */
static bool can_resize(const fy__pool_t *pool, const fy__range_t *range)
{
    return !(range->nbytes & (pool->source.step_nbytes - 1));
}

static uint64_t free_end(const fy__range_t *range)
{
    return range->last->list == FY__LIST_FREE ? range->last->size.nbytes : 0;
}

/* The range with the largest free end. The lock is held. */
static fy__range_t *choose(const fy__pool_t *pool)
{
    fy__range_t *best = NULL;
    for (fy__range_t *range = pool->offsets.ranges; range; range = range->next)
        if (can_resize(pool, range) && (!best || free_end(range) > free_end(best))) best = range;
    return best;
}

/* The bytes were added; the lock is held. Another thread may have taken the free end meanwhile:
 * *out_node is then NULL, although there are nodes. */
static fy__growth_t add(fy__pool_t *pool, fy__range_t *range, fy__span_t *prepared, uint64_t nbytes,
                        fy__request_t *request, uint64_t *stage, fy__pool_node_t **out_node)
{
    fy__span_t *span = fy__offsets_extend_range(&pool->offsets, range, prepared, nbytes);
    fy__figure_add(&pool->reserved, nbytes);
    if (pool->reserved > pool->peak_reserved) fy__figure_set(&pool->peak_reserved, pool->reserved);
    FY__EVENT(fy__event_segment(pool->text, range->id, nbytes, true));
    if (!request || span->size.nbytes < request->nbytes) return FY__GROWTH_DONE;
    if ((*out_node = fy__pool_cut(pool, request, span))) ++*stage;
    return *out_node ? FY__GROWTH_DONE : FY__GROWTH_NO_NODES;
}

/* Extends a range by `missing` bytes, minus its free end if `counts_end`, and at least by one
 * step. */
static fy__growth_t extend(fy__pool_t *pool, fy__request_t *request, uint64_t missing,
                           bool counts_end, uint64_t *stage, fy__pool_node_t **out_node,
                           fy_status_t *out_status)
{
    uint64_t more = missing;
    pthread_mutex_lock(&pool->lock);
    /* stays valid: only the holder of source_lock adds or removes ranges */
    fy__range_t *range = choose(pool);
    if (range && counts_end) more -= free_end(range) < missing ? free_end(range) : missing - 1;
    const bool fits = range && fy__round_up_u64(more, pool->source.step_nbytes, &more) &&
                      more <= fy__pool_room(pool);
    fy__span_t *prepared = fits ? fy__offsets_prepare_span(&pool->offsets) : NULL;
    const uint64_t before = fits ? range->nbytes : 0;
    pthread_mutex_unlock(&pool->lock);
    if (!fits) return FY__GROWTH_PAST_LIMIT;
    if (!prepared) {
        if (request) request->no_nodes = true;
        return FY__GROWTH_NO_NODES;
    }
    *out_status = pool->source.resize(pool->source.user, (void *)(uintptr_t)range->offset, before,
                                      before + more);
    fy__growth_t growth = fy__pool_growth(pool, *out_status);
    pthread_mutex_lock(&pool->lock);
    if (growth == FY__GROWTH_DONE)
        growth = add(pool, range, prepared, more, request, stage, out_node);
    else {
        fy__offsets_drop_span(&pool->offsets, prepared);
        if (growth == FY__GROWTH_FORBIDDEN) pool->stats.guard_refusals++;
    }
    pthread_mutex_unlock(&pool->lock);
    return growth;
}

fy__growth_t fy__pool_extend(fy__pool_t *pool, fy__request_t *request, uint64_t nbytes,
                             uint64_t *stage, fy__pool_node_t **out_node, fy_status_t *out_status)
{
    if (!request) return extend(pool, NULL, nbytes, false, NULL, NULL, out_status);
    const fy__growth_t growth =
        extend(pool, request, request->nbytes, true, stage, out_node, out_status);
    if (growth != FY__GROWTH_DONE || *out_node) return growth;
    /* the whole size: no other thread can take it */
    return extend(pool, request, request->nbytes, false, stage, out_node, out_status);
}

uint64_t fy__pool_shorten(fy__pool_t *pool, fy__range_t *range, uint64_t keep_nbytes)
{
    const uint64_t step = pool->source.step_nbytes,
                   over = pool->reserved > keep_nbytes ? pool->reserved - keep_nbytes : 0;
    uint64_t less = free_end(range) & ~(step - 1), wanted;
    if (fy__round_up_u64(over, step, &wanted) && less > wanted) less = wanted;
    if (!less || !can_resize(pool, range) || less == range->nbytes) return 0;
    const uint64_t before = range->nbytes;
    fy__offsets_shorten_range(&pool->offsets, range, less);
    fy__figure_sub(&pool->reserved, less);
    FY__EVENT(fy__event_segment(pool->text, range->id, less, false));
    pool->stats.released++;
    pthread_mutex_unlock(&pool->lock);
    (void)pool->source.resize(pool->source.user, (void *)(uintptr_t)range->offset, before,
                              before - less);
    pthread_mutex_lock(&pool->lock);
    return less;
}
