/* Checks the pool's invariants, for tests and debugging: takes both locks and reads every span. Not
 * here: the offset allocator's own (offset.c). */
#include "alloc/pool.h"

#include "runtime/base/fail.h"

/* Sums over all spans, compared with the figures. */
typedef struct sums {
    uint64_t reserved, live, requested, pending, pending_count, by_category[FY_CATEGORY_COUNT];
} sums_t;

static const char *check_node(const fy__pool_t *pool, const fy__pool_node_t *node, sums_t *sums)
{
    const fy__span_t *span = &node->span;
    sums->reserved += span->size.nbytes;
    if (span->list == FY__SPAN_TAKEN) {
        /* after a guard, if there are any */
        const uint64_t at = (uint64_t)(uintptr_t)node->block.address - span->offset;
        if (at != (pool->debug & FY__DEBUG_GUARD ? pool->source.alignment : 0) ||
            node->block.nbytes != span->size.nbytes)
            return "a block and its span differ";
        if (node->counted > span->size.nbytes || node->block.pool != pool)
            return "a block is not what was asked for";
        if ((unsigned)node->block.tag.category >= FY_CATEGORY_COUNT)
            return "a block is of no category";
        sums->live += span->size.nbytes;
        sums->by_category[node->block.tag.category] += span->size.nbytes;
        sums->requested += node->counted;
    } else if (span->list != FY__LIST_FREE) {
        if (!node->is_pending)
            return "a block lies on a stream's list in the index but not in its order";
        const fy__point_t point =
            atomic_load_explicit(&node->block.hazard.writer, memory_order_relaxed);
        if (span->list != FY__LIST_MIXED &&
            FY__POINT_STREAM(point) != pool->pending[span->list].stream)
            return "a block lies on another stream's list";
        sums->pending += span->size.nbytes;
        sums->pending_count++;
    }
    return NULL;
}

static const char *check_lists(const fy__pool_t *pool)
{
    uint64_t all = 0;
    for (int list_id = FY__LIST_STREAMS; list_id < FY__LIST_COUNT; list_id++) {
        const fy__pending_t *list = &pool->pending[list_id];
        const fy__pool_node_t *older = NULL;
        uint64_t count = 0;
        for (const fy__pool_node_t *node = list->oldest; node;
             older = node, node = node->newer, count++)
            if (node->span.list != list_id || node->older != older)
                return "a list of pending blocks is broken";
        if (count != list->count || list->newest != older)
            return "a list of pending blocks does not add up";
        all += count;
    }
    return all == pool->pending_count ? NULL : "the number of pending blocks does not add up";
}

static const char *check_categories(const fy__pool_t *pool, const sums_t *sums)
{
    uint64_t peak = 0;
    for (int i = 0; i < FY_CATEGORY_COUNT; i++) {
        if (sums->by_category[i] != pool->by_category[i])
            return "the bytes of a category do not add up";
        peak += pool->peak_by_category[i];
    }
    return peak == pool->peak_live ? NULL : "the categories at the peak do not add up";
}

static const char *check(const fy__pool_t *pool)
{
    sums_t sums = { 0 };
    const char *wrong = fy__offsets_is_valid(&pool->offsets) ? check_lists(pool)
                                                             : "the offset allocator is broken";
    for (const fy__range_t *range = pool->offsets.ranges; range && !wrong; range = range->next)
        for (fy__span_t *span = range->first; span && !wrong; span = span->next)
            wrong = check_node(pool, fy__node_of(span), &sums);
    if (wrong) return wrong;
    if (sums.reserved != pool->reserved || sums.live != pool->live ||
        sums.requested != pool->requested)
        return "the figures do not add up";
    if (sums.pending != pool->pending_nbytes || sums.pending_count != pool->pending_count)
        return "the pending bytes do not add up";
    if (pool->inspected_nbytes) return "blocks are still under inspection";
    if (pool->reserved > pool->options.limit_nbytes)
        return "more is reserved than the limit allows";
    if (pool->peak_live < pool->live || pool->peak_reserved < pool->reserved)
        return "a peak is below the present";
    return check_categories(pool, &sums);
}

bool fy__pool_is_valid(fy__pool_t *pool)
{
    fy__lock(&pool->source_lock);
    pthread_mutex_lock(&pool->lock);
    const char *wrong = check(pool);
    pthread_mutex_unlock(&pool->lock);
    fy__unlock(&pool->source_lock);
    if (wrong) fy_log_write(FY_LOG_ERROR, "%s: %s", pool->name, wrong);
    return !wrong;
}
