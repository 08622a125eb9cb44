/* The caching pool: the calls of runtime/device/memory.h and the hot path. A hit takes the lock
 * once, searches one or two lists and cuts; a free takes it once and joins adjacent spans. This
 * file makes no backend call, poll or wait: fallback.c does.
 * Next: pool.h for the parts, fallback.c for the stages after a miss. */
#include "alloc/debug.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/checked.h"
#include "runtime/base/fail.h"
#include "runtime/record/event.h"
#include "runtime/record/text.h"
#include "runtime/thread/wait_site.h"

static bool is_done(const fy__hazard_t *hazard)
{
    return fy__wait_drops(FY__WAIT_PENDING_POLL) || fy__hazard_done(hazard);
}

static bool is_only_on(const fy__hazard_t *hazard, uint32_t stream_index)
{
    return fy__wait_drops(FY__WAIT_PENDING_SEVERAL) || fy__hazard_only_on(hazard, stream_index);
}

/* The runtime's hazards and malloc. */
static const fy__pool_seams_t runtime_seams = {
    is_done, is_only_on, fy__hazard_wait, { NULL, fy__meta_malloc_alloc, fy__meta_malloc_free }
};

static FY_COLD void put_pool_event(const fy__pool_t *pool)
{
    const fy__event_pool_t event = { pool->text,
                                     pool->live,
                                     pool->reserved,
                                     pool->options.segment_nbytes,
                                     pool->source.resize ? pool->source.step_nbytes : 0,
                                     pool->options.keeps_segments };
    fy__event_pool(&event);
}

fy_status_t fy__pool_create(const fy__pool_options_t *options, const fy__segment_source_t *source,
                            fy__pool_t **out_pool)
{
    return fy__pool_create_with(options, source, &runtime_seams, out_pool);
}

fy_status_t fy__pool_create_with(const fy__pool_options_t *options,
                                 const fy__segment_source_t *source, const fy__pool_seams_t *seams,
                                 fy__pool_t **out_pool)
{
    *out_pool = NULL;
    if (source->alignment < 64 || source->alignment & (source->alignment - 1))
        return FY_FAIL(INTERNAL, "%s: alignment %llu is no power of two from 64 up", options->name,
                       (unsigned long long)source->alignment);
    fy__pool_t *pool = seams->meta.alloc(seams->meta.user, sizeof *pool);
    if (!pool)
        return FY_FAIL(OUT_OF_MEMORY, "%s: no host memory for %zu bytes of bookkeeping",
                       options->name, sizeof *pool);
    memset(pool, 0, sizeof *pool);
    pool->options = *options;
    pool->source = *source;
    pool->seams = *seams;
    snprintf(pool->name, sizeof pool->name, "%s", options->name);
    pool->options.name = pool->name;
    pool->text = fy__text(pool->name);
    pool->debug = fy__debug_of(options, source);
    bool ok =
        fy__offsets_init(&pool->offsets, source->alignment, sizeof(fy__pool_node_t), &seams->meta);
    /* Blocks pending on several streams need this list, and a free must not need memory. */
    ok = ok && fy__offsets_open_list(&pool->offsets, FY__LIST_MIXED);
    if (!ok) {
        fy__offsets_fini(&pool->offsets);
        seams->meta.free(seams->meta.user, pool);
        return FY_FAIL(OUT_OF_MEMORY, "%s: no host memory for its bookkeeping", options->name);
    }
    pool->offsets.joined = fy__pending_joined;
    pool->offsets.joined_user = pool;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_mutex_init(&pool->source_lock, NULL);
    FY__EVENT(put_pool_event(pool));
    *out_pool = pool;
    return FY_STATUS_OK;
}

void fy__pool_destroy(fy__pool_t *pool)
{
    if (!pool) return;
    if (pool->pending_count) (void)fy__pending_wait(pool);
    const uint64_t broken = fy__pool_check(pool);
    if (broken)
        fy_log_write(FY_LOG_ERROR, "%s: %llu blocks were written out of their bounds", pool->name,
                     (unsigned long long)broken);
    if (pool->live)
        fy_log_write(FY_LOG_ERROR, "%s: destroyed while %llu bytes are handed out", pool->name,
                     (unsigned long long)pool->live);
    for (const fy__range_t *range = pool->offsets.ranges; range; range = range->next) {
        FY__EVENT(fy__event_segment(pool->text, range->id, range->nbytes, false));
        if (pool->debug) fy__debug_segment(pool, range, false);
        pool->source.free(pool->source.user, (void *)(uintptr_t)range->offset, range->nbytes);
    }
    fy__offsets_fini(&pool->offsets);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->source_lock);
    fy__meta_t meta = pool->seams.meta;
    meta.free(meta.user, pool);
}

bool fy__pool_detach(fy__pool_t *pool, fy__span_t *span, uint64_t nbytes)
{
    uint32_t list = span->list;
    uint64_t had = span->size.nbytes;
    fy__pool_node_t *node = fy__node_of(span);
    fy__span_t *rest_span;
    if (!fy__offsets_take(&pool->offsets, span, nbytes, &rest_span)) return false;
    if (list == FY__LIST_FREE) {
        fy__hazard_clear(&node->block.hazard);
        return true;
    }
    if (rest_span) {
        fy__pool_node_t *rest = fy__node_of(rest_span);
        fy__hazard_copy(&rest->block.hazard, &node->block.hazard);
        if (fy__wait_drops(FY__WAIT_PENDING_SPLIT)) fy__pending_forget(rest);
        fy__pending_link(pool, rest, node, list);
        /* was counted in `node`, and is counted again in `rest` */
        pool->pending_nbytes -= had - nbytes;
    }
    fy__pending_unlink(pool, node, list);
    return true;
}

static FY_COLD void put_alloc_event(const fy__pool_t *pool, const fy__pool_node_t *node,
                                    const fy__request_t *request)
{
    const fy__range_t *range = node->span.range;
    fy__event_block_alloc(pool->text, &node->block, request->asked, request->stream,
                          (fy__event_place_t){ range->id, node->span.offset - range->offset });
}

fy__pool_node_t *fy__pool_hand_out(fy__pool_t *pool, const fy__request_t *request,
                                   fy__pool_node_t *node)
{
    uint64_t nbytes = node->span.size.nbytes;
    node->is_pending = false;
    node->block.is_fixed = false;
    node->block.address = (void *)(uintptr_t)node->span.offset;
    node->block.nbytes = nbytes;
    node->block.requested = node->counted = request->asked;
    node->block.pool = pool;
    node->block.tag = request->tag;
    if (FY_UNLIKELY(pool->debug)) fy__debug_hand_out(pool, node);
    atomic_store_explicit(&node->block.users, NULL, memory_order_relaxed);
    fy__figure_add(&pool->live, nbytes);
    fy__figure_add(&pool->requested, request->asked);
    fy__figure_add(&pool->by_category[request->tag.category], nbytes);
    if (pool->live > pool->peak_live) {
        fy__figure_set(&pool->peak_live, pool->live);
        for (int i = 0; i < FY_CATEGORY_COUNT; i++)
            fy__figure_set(&pool->peak_by_category[i], pool->by_category[i]);
    }
    node->block.id = ++pool->last_block;
    FY__EVENT(put_alloc_event(pool, node, request));
    if (FY_UNLIKELY(pool->plan != NULL)) fy__plan_block(pool, &node->block, true);
    return node;
}

fy__pool_node_t *fy__pool_cut(fy__pool_t *pool, fy__request_t *request, fy__span_t *span)
{
    if (!fy__pool_detach(pool, span, request->nbytes)) {
        request->no_nodes = true;
        return NULL;
    }
    return fy__pool_hand_out(pool, request, fy__node_of(span));
}

static inline fy__span_t *best_on(const fy__pool_t *pool, uint32_t list,
                                  const fy__request_t *request)
{
    fy__span_t *best = fy__offsets_best(&pool->offsets, list, request->nbytes);
    if (!request->most_whole) return best;
    fy__span_t *whole = fy__offsets_best_dedicated(&pool->offsets, list, request->nbytes);
    return whole && whole->size.nbytes <= request->most_whole &&
                   (!best || whole->size.nbytes < best->size.nbytes)
               ? whole
               : best;
}

fy__pool_node_t *fy__pool_cut_ready(fy__pool_t *pool, fy__request_t *request)
{
    fy__span_t *best = best_on(pool, FY__LIST_FREE, request), *same = NULL;
    uint32_t list = request->stream && pool->pending_count ? fy__pending_find(pool, request->stream)
                                                           : FY__LIST_FREE;
    if (list != FY__LIST_FREE) same = best_on(pool, list, request);
    /* The requesting stream can use a block pending on it like a free one; to take it first keeps
     * free ones for others. */
    if (same && (!best || same->size.nbytes <= best->size.nbytes)) {
        fy__pool_node_t *node = fy__pool_cut(pool, request, same);
        pool->stats.same_stream += node != NULL;
        return node;
    }
    if (!best) return NULL;
    fy__pool_node_t *node = fy__pool_cut(pool, request, best);
    pool->stats.ready += node != NULL;
    return node;
}

/* After a miss: first calls the source's `collect`, which returns cached, unused blocks
 * (fy__segment_source_t), then the fallback. If that fails, other threads may have cached blocks
 * since, so it collects again. */
static FY_COLD fy_status_t miss(fy__pool_t *pool, const fy__request_t *request,
                                fy__pool_node_t **out_node)
{
    const fy__segment_source_t *source = &pool->source;
    for (bool again = false;; again = true) {
        fy__request_t mine = *request;
        const bool collected = source->collect && source->collect(source->user);
        if (again && !collected) return pool->options.full_status;
        if (collected) {
            pthread_mutex_lock(&pool->lock);
            *out_node = fy__pool_cut_ready(pool, &mine);
            pthread_mutex_unlock(&pool->lock);
            if (*out_node) return FY_STATUS_OK;
        }
        const fy_status_t status = fy__pool_fall_back(pool, &mine, out_node);
        if (status != pool->options.full_status || !source->collect) return status;
    }
}

fy_status_t fy__pool_alloc_tagged(fy__pool_t *pool, uint64_t nbytes, uint32_t stream_index,
                                  fy__tag_t tag, fy__block_t **out_block)
{
    *out_block = NULL;
    fy__request_t request = { .asked = nbytes, .tag = tag, .stream = stream_index };
    if (!nbytes)
        return FY_FAIL(INVALID_ARGUMENT, "%s: 0 bytes asked for; the least is 1", pool->name);
    /* too large in any case */
    if (!fy__round_up_u64(nbytes, pool->source.alignment, &request.nbytes)) request.nbytes = nbytes;
    if (FY_UNLIKELY(pool->debug)) fy__debug_ask(pool, &request);
    if (pool->options.release_eagerly)
        request.most_whole = UINT64_MAX;
    else if (request.nbytes > pool->options.segment_nbytes / 2)
        request.most_whole = FY__WHOLE_PER_BLOCK * request.nbytes;
    pthread_mutex_lock(&pool->lock);
    fy__pool_node_t *node = fy__pool_cut_ready(pool, &request);
    pthread_mutex_unlock(&pool->lock);
    if (FY_UNLIKELY(!node)) FY_TRY(miss(pool, &request, &node));
    *out_block = &node->block;
    return FY_STATUS_OK;
}

void fy__pool_fix(fy__block_t *block)
{
    pthread_mutex_lock(&block->pool->lock);
    block->is_fixed = true;
    pthread_mutex_unlock(&block->pool->lock);
}

static FY_COLD void put_free_event(const fy__pool_t *pool, const fy__pool_node_t *node,
                                   const fy__reuse_t *reuse)
{
    const fy__hazard_t single = { .writer = reuse->point };
    fy__event_block_free(pool->text, &node->block, node->counted,
                         reuse->is_done    ? NULL
                         : reuse->is_mixed ? &node->block.hazard
                                           : &single);
}

static void put_back(fy__pool_t *pool, fy__pool_node_t *node, const fy__reuse_t *reuse)
{
    pthread_mutex_lock(&pool->lock);
    fy__figure_sub(&pool->live, node->span.size.nbytes);
    fy__figure_sub(&pool->requested, node->counted);
    fy__figure_sub(&pool->by_category[node->block.tag.category], node->span.size.nbytes);
    FY__EVENT(put_free_event(pool, node, reuse));
    if (FY_UNLIKELY(pool->plan != NULL)) fy__plan_block(pool, &node->block, false);
    fy__pending_add(pool, node, reuse);
    pthread_mutex_unlock(&pool->lock);
}

void fy__pool_free(fy__block_t *block)
{
    if (!block) return;
    fy__pool_node_t *node = (fy__pool_node_t *)((char *)block - offsetof(fy__pool_node_t, block));
    fy__pool_t *pool = block->pool;
    fy__reuse_t reuse = fy__pending_reuse(pool, &block->hazard);
    if (FY_UNLIKELY(pool->debug)) {
        fy__debug_check(pool, node);
        fy__debug_reuse(pool, &reuse);
    }
    put_back(pool, node, &reuse);
}

void fy__pool_free_after(fy__block_t *block, const fy__point_t *points, size_t npoints)
{
    fy__pool_node_t *node = (fy__pool_node_t *)((char *)block - offsetof(fy__pool_node_t, block));
    fy__reuse_t reuse = { .is_done = !npoints, .is_mixed = npoints > 1 };
    fy__hazard_clear(&block->hazard);
    for (size_t i = 0; i < npoints; i++)
        atomic_store_explicit(i ? &block->hazard.readers[i - 1] : &block->hazard.writer, points[i],
                              memory_order_relaxed);
    if (npoints == 1) reuse.point = points[0];
    put_back(block->pool, node, &reuse);
}

void fy__pool_write_event(fy__pool_t *pool)
{
    if (!pool) return;
    pthread_mutex_lock(&pool->lock);
    FY__EVENT(put_pool_event(pool));
    pthread_mutex_unlock(&pool->lock);
}

fy_memory_stats_t fy__pool_figures(const fy__pool_t *pool)
{
    fy_memory_stats_t stats = {
        .struct_size = sizeof stats,
        .live = pool->live,
        .requested = pool->requested,
        .cached = pool->reserved - pool->live,
        .pending = pool->pending_nbytes + pool->inspected_nbytes,
        .reserved = pool->reserved,
        .peak_live = pool->peak_live,
        .peak_reserved = pool->peak_reserved,
        .largest_free = fy__pool_largest_free(pool),
        .device_allocs = pool->device_allocs,
        .limit = pool->options.limit_nbytes,
    };
    memcpy(stats.by_category, pool->by_category, sizeof pool->by_category);
    memcpy(stats.peak_by_category, pool->peak_by_category, sizeof pool->peak_by_category);
    return stats;
}

void fy__pool_query(fy__pool_t *pool, fy_memory_stats_t *out_stats)
{
    /* Pending blocks become free without a call; poll them, unless the slow path is busy. */
    const bool look = fy__trylock(&pool->source_lock);
    pthread_mutex_lock(&pool->lock);
    if (look) fy__pending_reap(pool);
    *out_stats = fy__pool_figures(pool);
    pthread_mutex_unlock(&pool->lock);
    if (look) fy__unlock(&pool->source_lock);
}

uint64_t fy__pool_trim(fy__pool_t *pool, uint64_t keep_nbytes)
{
    fy__lock(&pool->source_lock);
    pthread_mutex_lock(&pool->lock);
    fy__pending_reap(pool);
    pthread_mutex_unlock(&pool->lock);
    uint64_t released = fy__pool_release(pool, keep_nbytes);
    fy__unlock(&pool->source_lock);
    return released;
}

static inline uint64_t look_at(const uint64_t *figure)
{
    return __atomic_load_n(figure, __ATOMIC_RELAXED);
}

void fy__pool_peek(const fy__pool_t *pool, fy_memory_stats_t *out_stats)
{
    *out_stats = (fy_memory_stats_t){
        .struct_size = sizeof *out_stats,
        .live = look_at(&pool->live),
        .requested = look_at(&pool->requested),
        .reserved = look_at(&pool->reserved),
        .peak_live = look_at(&pool->peak_live),
        .peak_reserved = look_at(&pool->peak_reserved),
        .device_allocs = look_at(&pool->device_allocs),
        .limit = pool->options.limit_nbytes,
    };
    out_stats->cached =
        out_stats->reserved > out_stats->live ? out_stats->reserved - out_stats->live : 0;
    for (int i = 0; i < FY_CATEGORY_COUNT; i++) {
        out_stats->by_category[i] = look_at(&pool->by_category[i]);
        out_stats->peak_by_category[i] = look_at(&pool->peak_by_category[i]);
    }
}

void fy__pool_alloc_stats(fy__pool_t *pool, fy_memory_alloc_stats_t *out_stats)
{
    pthread_mutex_lock(&pool->lock);
    *out_stats = pool->stats;
    out_stats->struct_size = sizeof *out_stats;
    pthread_mutex_unlock(&pool->lock);
}

void fy__pool_fork_lock(fy__pool_t *pool)
{
    if (!pool) return;
    pthread_mutex_lock(&pool->source_lock);
    pthread_mutex_lock(&pool->lock);
}

void fy__pool_fork_unlock(fy__pool_t *pool)
{
    if (!pool) return;
    pthread_mutex_unlock(&pool->lock);
    pthread_mutex_unlock(&pool->source_lock);
}
