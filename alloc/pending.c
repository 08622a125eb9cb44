/* Pending blocks: freed while a device may still use them. Blocks that wait for one stream are on
 * that stream's list. There adjacent blocks join (the later point covers both), and the stream
 * itself may reuse them without a wait. Other blocks are on the mixed list, one by one. A poll may
 * take a stream's lock and call the backend, so no poll runs under the pool's lock. A freed block
 * that only one stream uses is not polled at all. Next: join.c, fallback.c. */
#include "alloc/debug.h"

#include "runtime/base/fail.h"
#include "runtime/base/posix.h"
#include "runtime/record/event.h"
#include "runtime/thread/wait_site.h"

enum { WORD_COUNT = 1 + FY__READER_COUNT, WAIT_STREAMS = 64 };

static inline void set_point(fy__hazard_t *hazard, fy__point_t point)
{
    fy__hazard_clear(hazard);
    atomic_store_explicit(&hazard->writer, point, memory_order_relaxed);
}

/* The last point that the hazard has on `stream`; 0 if none. */
static fy__point_t last_on(const fy__hazard_t *hazard, uint32_t stream)
{
    fy__point_t last = 0;
    for (int i = 0; i < WORD_COUNT; i++)
        if (fy__hazard_word(hazard, i) > last &&
            FY__POINT_STREAM(fy__hazard_word(hazard, i)) == stream)
            last = fy__hazard_word(hazard, i);
    return last;
}

fy__reuse_t fy__pending_reuse(const fy__pool_t *pool, const fy__hazard_t *hazard)
{
    fy__point_t last = 0;
    bool several = false;
    for (int i = 0; i < WORD_COUNT; i++) {
        fy__point_t point = fy__hazard_word(hazard, i);
        if (!point) continue;
        if (last && FY__POINT_STREAM(point) != FY__POINT_STREAM(last)) several = true;
        if (point > last) last = point;
    }
    if (!last) return (fy__reuse_t){ .is_done = true };
    if (!several) return (fy__reuse_t){ .point = last };
    for (int i = 0; i < WORD_COUNT; i++) {
        fy__point_t point = fy__hazard_word(hazard, i);
        if (point && pool->seams.hazard_only_on(hazard, FY__POINT_STREAM(point)))
            return (fy__reuse_t){ .point = last_on(hazard, FY__POINT_STREAM(point)) };
    }
    return (fy__reuse_t){ .is_mixed = true };
}

uint32_t fy__pending_find(const fy__pool_t *pool, uint32_t stream)
{
    for (uint32_t list_id = FY__LIST_STREAMS; list_id < FY__LIST_MIXED; list_id++)
        if (pool->pending[list_id].count && pool->pending[list_id].stream == stream) return list_id;
    return FY__LIST_FREE;
}

/* The stream's list, or an idle list that becomes the stream's; the mixed list if there is
 * neither. */
static uint32_t list_for(fy__pool_t *pool, uint32_t stream)
{
    uint32_t list_id = fy__pending_find(pool, stream);
    if (list_id != FY__LIST_FREE) return list_id;
    for (list_id = FY__LIST_STREAMS; list_id < FY__LIST_MIXED; list_id++)
        if (!pool->pending[list_id].count && fy__offsets_open_list(&pool->offsets, list_id)) {
            pool->pending[list_id].stream = stream;
            return list_id;
        }
    return FY__LIST_MIXED;
}

void fy__pending_link(fy__pool_t *pool, fy__pool_node_t *node, fy__pool_node_t *newer,
                      uint32_t list_id)
{
    fy__pending_t *list = &pool->pending[list_id];
    node->newer = newer;
    node->older = newer ? newer->older : list->newest;
    *(node->older ? &node->older->newer : &list->oldest) = node;
    *(newer ? &newer->older : &list->newest) = node;
    node->is_pending = true;
    list->count++;
    pool->pending_count++;
    pool->pending_nbytes += node->span.size.nbytes;
}

void fy__pending_unlink(fy__pool_t *pool, fy__pool_node_t *node, uint32_t list_id)
{
    fy__pending_t *list = &pool->pending[list_id];
    *(node->older ? &node->older->newer : &list->oldest) = node->newer;
    *(node->newer ? &node->newer->older : &list->newest) = node->older;
    node->is_pending = false;
    list->count--;
    pool->pending_count--;
    pool->pending_nbytes -= node->span.size.nbytes;
}

void fy__pending_forget(fy__pool_node_t *node)
{
    set_point(&node->block.hazard,
              FY__POINT(FY__POINT_STREAM(fy__hazard_word(&node->block.hazard, 0)), 0));
}

void fy__pending_joined(void *user, uint32_t list_id, fy__span_t *left_span, fy__span_t *right_span)
{
    if (list_id == FY__LIST_FREE) return;
    fy__pool_t *pool = user;
    fy__pool_node_t *left = fy__node_of(left_span), *right = fy__node_of(right_span);
    if (left->is_pending) fy__pending_unlink(pool, left, list_id);
    if (right->is_pending) fy__pending_unlink(pool, right, list_id);
    fy__point_t point = fy__hazard_word(&right->block.hazard, 0);
    if (point > fy__hazard_word(&left->block.hazard, 0) && !fy__wait_drops(FY__WAIT_PENDING_JOINED))
        set_point(&left->block.hazard, point);
}

void fy__pending_add(fy__pool_t *pool, fy__pool_node_t *node, const fy__reuse_t *reuse)
{
    node->is_pending = false;
    if (reuse->is_done) {
        if (FY_UNLIKELY(pool->debug)) fy__debug_gone(pool, node);
        fy__offsets_put(&pool->offsets, &node->span, FY__LIST_FREE);
        return;
    }
    uint32_t list_id = FY__LIST_MIXED;
    if (!reuse->is_mixed) {
        set_point(&node->block.hazard, reuse->point);
        list_id = list_for(pool, FY__POINT_STREAM(reuse->point));
    }
    fy__pending_link(pool, fy__node_of(fy__offsets_put(&pool->offsets, &node->span, list_id)), NULL,
                     list_id);
}

static bool point_done(const fy__pool_t *pool, fy__point_t point)
{
    fy__hazard_t hazard;
    set_point(&hazard, point);
    return pool->seams.hazard_done(&hazard);
}

/* Frees the blocks of a stream's list up to and including `point`, which is done. */
static uint64_t free_up_to(fy__pool_t *pool, uint32_t list_id, fy__point_t point)
{
    const fy__reuse_t done = { .is_done = true };
    uint64_t count = 0;
    /* the list was reassigned during the poll */
    if (pool->pending[list_id].stream != FY__POINT_STREAM(point)) return 0;
    FY__EVENT(fy__event_blocks_reached(pool->text, point));
    for (fy__pool_node_t *node = pool->pending[list_id].oldest, *newer; node; node = newer) {
        newer = node->newer;
        if (fy__hazard_word(&node->block.hazard, 0) > point) continue;
        fy__span_t *rest;
        /* whole: needs no node */
        (void)fy__offsets_take(&pool->offsets, &node->span, node->span.size.nbytes, &rest);
        fy__pending_unlink(pool, node, list_id);
        fy__pending_add(pool, node, &done);
        count++;
    }
    return count;
}

/* One poll if the stream has finished, else one for each batch that is done and one for a batch
 * that is not. */
static uint64_t reap_stream(fy__pool_t *pool, uint32_t list_id)
{
    uint64_t count = 0;
    for (bool try_newest = true; pool->pending[list_id].count; try_newest = false) {
        const fy__pool_node_t *node = try_newest ? pool->pending[list_id].newest
                                                 : pool->pending[list_id].oldest;
        fy__point_t point = fy__hazard_word(&node->block.hazard, 0);
        pthread_mutex_unlock(&pool->lock);
        bool done = point_done(pool, point);
        pthread_mutex_lock(&pool->lock);
        if (done) count += free_up_to(pool, list_id, point);
        if (!done && !try_newest) break;
    }
    return count;
}

/* Takes the blocks off the mixed list, as a list with the oldest first. */
static fy__pool_node_t *take_mixed(fy__pool_t *pool)
{
    fy__pool_node_t *inspected = NULL, *node;
    while ((node = pool->pending[FY__LIST_MIXED].newest)) {
        fy__span_t *rest;
        /* whole: needs no node */
        (void)fy__offsets_take(&pool->offsets, &node->span, node->span.size.nbytes, &rest);
        fy__pending_unlink(pool, node, FY__LIST_MIXED);
        pool->inspected_nbytes += node->span.size.nbytes;
        node->block.id = 0;      /* for snapshots: taken, but not in use */
        node->newer = inspected; /* the oldest ends up first */
        inspected = node;
    }
    return inspected;
}

/* For recordings: the result of a poll of a block on several streams. */
static FY_COLD void put_mixed_events(const fy__pool_t *pool, const fy__pool_node_t *node,
                                     const fy__reuse_t *reuse)
{
    for (int i = 0; i < WORD_COUNT && !reuse->is_mixed; i++) {
        const fy__point_t point = fy__hazard_word(&node->block.hazard, i);
        if (point && (reuse->is_done || FY__POINT_STREAM(point) != FY__POINT_STREAM(reuse->point)))
            fy__event_blocks_reached(pool->text, point);
    }
}

/* Polls the blocks of the mixed list and moves each to its new list. */
static uint64_t reap_mixed(fy__pool_t *pool)
{
    fy__pool_node_t *inspected = take_mixed(pool), *node;
    uint64_t count = 0;
    while ((node = inspected)) {
        inspected = node->newer;
        pthread_mutex_unlock(&pool->lock);
        fy__reuse_t reuse = { .is_done = pool->seams.hazard_done(&node->block.hazard) };
        if (!reuse.is_done) reuse = fy__pending_reuse(pool, &node->block.hazard);
        fy__debug_reuse(pool, &reuse);
        pthread_mutex_lock(&pool->lock);
        pool->inspected_nbytes -= node->span.size.nbytes;
        FY__EVENT(put_mixed_events(pool, node, &reuse));
        fy__pending_add(pool, node, &reuse);
        count += reuse.is_done;
    }
    return count;
}

uint64_t fy__pending_reap(fy__pool_t *pool)
{
    uint64_t count = pool->pending[FY__LIST_MIXED].count ? reap_mixed(pool) : 0;
    for (uint32_t list_id = FY__LIST_STREAMS; list_id < FY__LIST_MIXED; list_id++)
        count += reap_stream(pool, list_id);
    pool->stats.reaped += count;
    return count;
}

void fy__pending_reached(fy__pool_t *pool, fy__point_t point)
{
    pthread_mutex_lock(&pool->lock);
    const uint32_t list_id = fy__pending_find(pool, FY__POINT_STREAM(point));
    if (list_id != FY__LIST_FREE) (void)free_up_to(pool, list_id, point);
    for (fy__pool_node_t *node = take_mixed(pool), *next; node; node = next) {
        next = node->newer;
        for (int i = 0; i < WORD_COUNT; i++) {
            _Atomic fy__point_t *held = i ? &node->block.hazard.readers[i - 1]
                                          : &node->block.hazard.writer;
            const bool is_reached = FY__POINT_STREAM(*held) == FY__POINT_STREAM(point) &&
                                    *held <= point;
            if (is_reached) atomic_store_explicit(held, 0, memory_order_relaxed);
        }
        const fy__reuse_t reuse = fy__pending_reuse(pool, &node->block.hazard);
        pool->inspected_nbytes -= node->span.size.nbytes;
        fy__pending_add(pool, node, &reuse);
    }
    pthread_mutex_unlock(&pool->lock);
}

/* Adds the points of a hazard, the last one per stream; false if there are too many streams. */
static bool collect(fy__point_t *points, int *count, const fy__hazard_t *hazard)
{
    for (int w = 0; w < WORD_COUNT; w++) {
        fy__point_t point = fy__hazard_word(hazard, w);
        if (!point) continue;
        int i = 0;
        while (i < *count && FY__POINT_STREAM(points[i]) != FY__POINT_STREAM(point)) i++;
        if (i == WAIT_STREAMS) return false;
        if (i == *count) points[(*count)++] = 0;
        if (point > points[i]) points[i] = point;
    }
    return true;
}

uint64_t fy__pending_wait(fy__pool_t *pool)
{
    const uint64_t start_ns = fy__now_ns();
    for (bool all = false; !all;) {
        fy__point_t points[WAIT_STREAMS];
        int count = 0;
        all = true;
        fy__lock(&pool->source_lock);
        pthread_mutex_lock(&pool->lock);
        fy__pending_reap(pool);
        for (int list_id = FY__LIST_STREAMS; list_id < FY__LIST_COUNT && all; list_id++)
            for (const fy__pool_node_t *node = pool->pending[list_id].oldest; node && all;
                 node = node->newer)
                all = collect(points, &count, &node->block.hazard);
        pthread_mutex_unlock(&pool->lock);
        fy__unlock(&pool->source_lock);
        for (int i = 0; i < count; i++) {
            fy__hazard_t hazard;
            set_point(&hazard, points[i]);
            /* A lost device's points count as reached, so a failure here does not end the wait. */
            (void)pool->seams.hazard_wait(&hazard, FY_FOREVER);
        }
    }
    if (fy__pool_leaving(pool)) pool->source.settle(pool->source.user);
    return fy__now_ns() - start_ns;
}
