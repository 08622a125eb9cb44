/* Copies pools into a snapshot. Next: snapshot.h for its form, snapshot_device.c for the callers
 * and their order. */
#include "alloc/report/snapshot_take.h"

#include <stdlib.h>
#include <string.h>

#include "alloc/pool.h"

void fy__pool_hold(fy__pool_t *pool)
{
    if (pool) pthread_mutex_lock(&pool->lock);
}

void fy__pool_let_go(fy__pool_t *pool)
{
    if (pool) pthread_mutex_unlock(&pool->lock);
}

void fy__taking_count(fy__taking_t *taking, const fy__pool_t *pool)
{
    if (!pool) return;
    taking->npools++;
    taking->nsegments += pool->offsets.range_count;
    taking->nblocks += pool->offsets.span_count;
}

bool fy__taking_fits(const fy__taking_t *taking)
{
    return taking->npools <= taking->room_pools && taking->nsegments <= taking->room_segments &&
           taking->nblocks <= taking->room_blocks;
}

bool fy__taking_make_room(fy__taking_t *taking)
{
    fy__snapshot_t *to = taking->to;
    fy__snapshot_free(to);
    free(taking->scopes);
    taking->room_pools = taking->npools + 4;
    taking->room_segments = taking->nsegments + taking->nsegments / 8 + 64;
    taking->room_blocks = taking->nblocks + taking->nblocks / 8 + 256;
    to->pools = calloc(taking->room_pools, sizeof *to->pools);
    to->segments = calloc(taking->room_segments, sizeof *to->segments);
    to->blocks = calloc(taking->room_blocks, sizeof *to->blocks);
    taking->scopes = calloc(taking->room_blocks, sizeof *taking->scopes);
    return to->pools && to->segments && to->blocks && taking->scopes;
}

static void copy_streams(const fy__hazard_t *hazard, fy__snapshot_block_t *block)
{
    _Static_assert(FY__SNAPSHOT_STREAMS >= 1 + FY__READER_COUNT,
                   "a block may be pending on as many streams as a hazard has words");
    for (int i = 0; i < 1 + FY__READER_COUNT; i++) {
        const fy__point_t point = atomic_load_explicit(
            i ? &hazard->readers[i - 1] : &hazard->writer, memory_order_relaxed);
        const uint16_t stream = (uint16_t)FY__POINT_STREAM(point);
        int k = 0;
        while (k < block->nstreams && block->streams[k] != stream) k++;
        if (stream && k == block->nstreams) block->streams[block->nstreams++] = stream;
    }
}

/* The owner frees the block under the pool's lock before it releases the object of `users`. */
static bool is_thread_cached(const fy__block_t *block)
{
    const _Atomic uint32_t *users = atomic_load_explicit(&block->users, memory_order_acquire);
    return users && atomic_load_explicit(users, memory_order_relaxed) == 0;
}

/* A taken span has an id, unless it is off its list while its last use is polled: then it is
 * pending. */
static void copy_block(fy__snapshot_pool_t *pool, const fy__node_t *node,
                       fy__snapshot_block_t *block, const void **scope)
{
    *block = (fy__snapshot_block_t){ .offset = node->span.offset - node->span.range->offset,
                                     .nbytes = node->span.size.nbytes };
    block->category = FY__SNAPSHOT_NO_CATEGORY;
    *scope = NULL;
    if (node->span.list == FY__LIST_FREE) {
        block->state = FY__SNAPSHOT_FREE;
    } else if (node->span.list != FY__SPAN_TAKEN || !node->block.id) {
        block->state = FY__SNAPSHOT_PENDING;
        copy_streams(&node->block.hazard, block);
    } else if (is_thread_cached(&node->block)) {
        block->state = FY__SNAPSHOT_THREAD_CACHED;
        pool->stats.live -= block->nbytes;
        pool->stats.requested -= node->counted;
        pool->stats.cached += block->nbytes;
        pool->stats.by_category[node->block.tag.category] -= block->nbytes;
    } else {
        block->state = FY__SNAPSHOT_LIVE;
        block->requested = node->counted;
        block->id = node->block.id;
        block->category = (uint8_t)node->block.tag.category;
        *scope = node->block.tag.scope;
    }
}

static void copy_figures(fy__snapshot_pool_t *to, const fy__pool_t *pool)
{
    to->stats = fy__pool_figures(pool);
    to->alloc_stats = pool->stats;
    to->alloc_stats.struct_size = sizeof to->alloc_stats;
}

void fy__taking_copy(fy__taking_t *taking, const fy__pool_t *pool, fy__snapshot_kind_t kind)
{
    fy__snapshot_t *to = taking->to;
    if (!pool) return;
    fy__snapshot_pool_t *copy = &to->pools[to->npools++];
    *copy = (fy__snapshot_pool_t){ .kind = kind, .first_segment = to->nsegments };
    memcpy(copy->name, pool->name, sizeof pool->name);
    copy_figures(copy, pool);
    for (const fy__range_t *range = pool->offsets.ranges; range; range = range->next) {
        fy__snapshot_segment_t *segment = &to->segments[to->nsegments++];
        copy->nsegments++;
        *segment = (fy__snapshot_segment_t){ range->offset, range->nbytes, to->nblocks, 0 };
        for (const fy__span_t *span = range->first; span;
             span = span->next, to->nblocks++, segment->nblocks++)
            copy_block(copy, (const fy__node_t *)span, &to->blocks[to->nblocks],
                       &taking->scopes[to->nblocks]);
    }
}

static int by_address(const void *a, const void *b)
{
    const fy__snapshot_segment_t *left = a, *right = b;
    return left->address < right->address ? -1 : left->address > right->address;
}

void fy__taking_sort(fy__taking_t *taking)
{
    for (size_t i = 0; i < taking->to->npools; i++)
        qsort(taking->to->segments + taking->to->pools[i].first_segment,
              taking->to->pools[i].nsegments, sizeof *taking->to->segments, by_address);
}
