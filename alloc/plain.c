/* fy_pool_* of <ferry/plan.h>: the caching pool over a source of plain numbers. The pool is the one
 * of the devices; this file only has the source of its segments, which takes the lowest free range.
 * Not here: any policy. Next: cache.c, fallback.c. */
#include <ferry/plan.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "alloc/pool.h"
#include "runtime/base/abi_structs.h"
#include "runtime/base/fail.h"

enum { STREAM_MOST = 0xffff };
_Static_assert((int)FY_POOL_POINTS_MOST == 1 + FY__READER_COUNT,
               "as many points as a hazard has words");

typedef struct segment {
    uint64_t offset, nbytes;
    struct segment *next; /* by offset */
} segment_t;

struct fy_pool {
    fy__pool_t *blocks;
    segment_t *segments;
    uint64_t alignment;
    bool no_memory; /* the last refusal: there was no host memory for a segment_t */
};

static fy_status_t plain_alloc(void *user, uint64_t nbytes, void **out_address)
{
    fy_pool_t *pool = user;
    segment_t *segment = malloc(sizeof *segment), **at = &pool->segments;
    uint64_t offset = 0;
    pool->no_memory = !segment;
    if (!segment) return FY_STATUS_OUT_OF_MEMORY;
    for (; *at && (*at)->offset - offset < nbytes; at = &(*at)->next)
        offset = (*at)->offset + (*at)->nbytes;
    /* holes in between: the numbers end before the limit is reached */
    if (nbytes > UINT64_MAX - offset) {
        free(segment);
        return FY_STATUS_OUT_OF_MEMORY;
    }
    *segment = (segment_t){ offset, nbytes, *at };
    *at = segment;
    *out_address = (void *)(uintptr_t)offset;
    return FY_STATUS_OK;
}

static void plain_free(void *user, void *address, uint64_t nbytes)
{
    (void)nbytes;
    for (segment_t **at = &((fy_pool_t *)user)->segments; *at; at = &(*at)->next) {
        segment_t *segment = *at;
        if (segment->offset != (uint64_t)(uintptr_t)address) continue;
        *at = segment->next;
        free(segment);
        return;
    }
}

/* Grows into the hole after it, up to the next segment. */
static fy_status_t plain_resize(void *user, void *address, uint64_t nbytes, uint64_t new_nbytes)
{
    (void)nbytes;
    for (segment_t *segment = ((fy_pool_t *)user)->segments; segment; segment = segment->next) {
        if (segment->offset != (uint64_t)(uintptr_t)address) continue;
        const uint64_t end = segment->next ? segment->next->offset : UINT64_MAX;
        if (new_nbytes > end - segment->offset) return FY_STATUS_OUT_OF_MEMORY;
        segment->nbytes = new_nbytes;
    }
    return FY_STATUS_OK;
}

/* Pending blocks become free by fy_pool_reached, never by a poll. */
static bool never_done(const fy__hazard_t *hazard)
{
    (void)hazard;
    return false;
}

static bool never_only_on(const fy__hazard_t *hazard, uint32_t stream_index)
{
    (void)hazard;
    (void)stream_index;
    return false;
}

static fy_status_t no_wait(const fy__hazard_t *hazard, uint64_t timeout_ns)
{
    (void)hazard;
    (void)timeout_ns;
    return FY_STATUS_OK;
}

static const fy__pool_seams_t plain_seams = {
    never_done, never_only_on, no_wait, { NULL, fy__meta_malloc_alloc, fy__meta_malloc_free }
};

/* A wait completes nothing here, so a sync never helps. */
static bool may_sync(void *user)
{
    (void)user;
    return false;
}

static void note_sync(void *user, uint64_t blocked_ns)
{
    (void)user;
    (void)blocked_ns;
}

static fy_status_t check_options(const fy_pool_options_t *options)
{
    if (options->alignment < 64 || options->alignment & (options->alignment - 1))
        return FY_FAIL(INVALID_ARGUMENT,
                       "pool_create: alignment is %llu; it must be a power of two from 64 up",
                       (unsigned long long)options->alignment);
    if (!options->segment_nbytes || options->segment_nbytes > INT64_MAX)
        return FY_FAIL(INVALID_ARGUMENT,
                       "pool_create: segment_nbytes is %llu; it must be from 1 to 2^63 - 1",
                       (unsigned long long)options->segment_nbytes);
    const uint64_t step = options->resize_nbytes;
    if (step && (step < options->alignment || step & (step - 1) || options->release_eagerly))
        return FY_FAIL(INVALID_ARGUMENT,
                       "pool_create: resize_nbytes is %llu; it must be 0 or a power of two from "
                       "the alignment (%llu) up, and "
                       "0 with release_eagerly",
                       (unsigned long long)step, (unsigned long long)options->alignment);
    return FY_STATUS_OK;
}

fy_status_t fy_pool_create(const fy_pool_options_t *options, fy_pool_t **out_pool)
{
    static atomic_uint_fast64_t last_number;
    fy_pool_options_t own;
    char name[32];
    if (!out_pool) return FY_FAIL(INVALID_ARGUMENT, "pool_create: out_pool is NULL");
    *out_pool = NULL;
    FY_TRY(FY__READ(pool_options, "pool_create", options, &own));
    options = &own;
    FY_TRY(check_options(options));
    fy_pool_t *pool = calloc(1, sizeof *pool);
    if (!pool)
        return FY_FAIL(OUT_OF_MEMORY, "pool_create: no host memory for %zu bytes of bookkeeping",
                       sizeof *pool);
    pool->alignment = options->alignment;
    snprintf(name, sizeof name, "plain pool %llu",
             (unsigned long long)atomic_fetch_add(&last_number, 1) + 1);
    const fy__pool_options_t plain = {
        .name = name,
        .limit_nbytes = options->limit,
        .device_nbytes = FY_UNLIMITED,
        .segment_nbytes = options->segment_nbytes,
        .full_status = FY_STATUS_OUT_OF_MEMORY,
        .release_eagerly = options->release_eagerly != 0,
        .keeps_segments = options->keeps_segments != 0,
    };
    const fy__segment_source_t source = {
        .user = pool,
        .alignment = options->alignment,
        .alloc = plain_alloc,
        .free = plain_free,
        .may_sync = may_sync,
        .note_sync = note_sync,
        .resize = options->resize_nbytes ? plain_resize : NULL,
        .step_nbytes = options->resize_nbytes,
    };
    const fy_status_t status = fy__pool_create_with(&plain, &source, &plain_seams, &pool->blocks);
    if (status != FY_STATUS_OK) {
        free(pool);
        return status;
    }
    *out_pool = pool;
    return FY_STATUS_OK;
}

/* Marks every queue of a hazard as past all its points. */
static void reach_all(fy_pool_t *pool, const fy__hazard_t *hazard)
{
    uint32_t streams[1 + FY__READER_COUNT] = { FY__POINT_STREAM(hazard->writer) };
    for (int i = 0; i < FY__READER_COUNT; i++)
        streams[i + 1] = FY__POINT_STREAM(hazard->readers[i]);
    for (int i = 0; i <= FY__READER_COUNT; i++) /* the hazard's node may be reused by now */
        if (streams[i])
            fy__pending_reached(pool->blocks, FY__POINT(streams[i], FY__POINT_SEQ(UINT64_MAX)));
}

/* Blocks that are still allocated are freed with the pool. */
void fy_pool_destroy(fy_pool_t *pool)
{
    if (!pool) return;
    for (const fy__range_t *range = pool->blocks->offsets.ranges; range; range = range->next)
        for (fy__span_t *span = range->first; span;) {
            fy__pool_node_t *node = fy__node_of(span);
            /* a join keeps the left span: this one may be gone, or joined with its right
             * neighbour */
            span = span->next;
            if (node->span.list != FY__SPAN_TAKEN) continue;
            if (span && span->list == FY__LIST_FREE) span = span->next;
            fy__pool_free_after(&node->block, NULL, 0);
        }
    for (uint32_t list = FY__LIST_STREAMS; list < FY__LIST_COUNT; list++)
        for (const fy__pool_node_t *node; (node = pool->blocks->pending[list].oldest);)
            reach_all(pool, &node->block.hazard);
    fy__pool_destroy(pool->blocks);
    free(pool);
}

static fy_status_t alloc_on(const char *call, fy_pool_t *pool, uint64_t nbytes, uint32_t stream,
                            fy_pool_block_t *out_block)
{
    fy__block_t *block;
    if (!out_block) return FY_FAIL(INVALID_ARGUMENT, "%s: out_block is NULL", call);
    *out_block = (fy_pool_block_t){ 0, 0, NULL };
    if (!pool) return FY_FAIL(INVALID_ARGUMENT, "%s: pool is NULL", call);
    if (stream > STREAM_MOST)
        return FY_FAIL(INVALID_ARGUMENT, "%s: stream is %u; it must be from 0 to %d", call, stream,
                       STREAM_MOST);
    pool->no_memory = false;
    const fy_status_t status = fy__pool_alloc(pool->blocks, nbytes, stream, &block);
    if (status == FY_STATUS_OUT_OF_MEMORY && pool->no_memory)
        return FY_FAIL(OUT_OF_MEMORY, "%s: no host memory for %zu bytes of bookkeeping", call,
                       sizeof(segment_t));
    if (status != FY_STATUS_OK) return status;
    *out_block = (fy_pool_block_t){ (uint64_t)(uintptr_t)block->address, block->nbytes, block };
    return FY_STATUS_OK;
}

fy_status_t fy_pool_alloc(fy_pool_t *pool, uint64_t nbytes, fy_pool_block_t *out_block)
{
    return alloc_on("pool_alloc", pool, nbytes, 0, out_block);
}

fy_status_t fy_pool_alloc_on(fy_pool_t *pool, uint64_t nbytes, uint32_t stream,
                             fy_pool_block_t *out_block)
{
    return alloc_on("pool_alloc_on", pool, nbytes, stream, out_block);
}

/* The pool's block that `block` describes; NULL if there is none, or if it is not allocated, which
 * is logged. */
static fy__block_t *block_out(const char *call, const fy_pool_t *pool, const fy_pool_block_t *block)
{
    if (!pool || !block || !block->token) return NULL;
    fy__block_t *taken = block->token;
    const fy__pool_node_t *node =
        (const fy__pool_node_t *)((const char *)taken - offsetof(fy__pool_node_t, block));
    /* Nodes are kept until the pool is destroyed, so this is safe even if the block was freed. */
    if (node->span.list == FY__SPAN_TAKEN && node->span.offset == block->offset &&
        taken->pool == pool->blocks)
        return taken;
    fy_log_write(FY_LOG_ERROR,
                 "%s: the block at %llu is not allocated from this pool: it was freed twice, or it "
                 "belongs to another pool",
                 call, (unsigned long long)block->offset);
    return NULL;
}

void fy_pool_free(fy_pool_t *pool, const fy_pool_block_t *block)
{
    fy__block_t *taken = block_out("pool_free", pool, block);
    if (taken) fy__pool_free_after(taken, NULL, 0);
}

static fy_status_t check_point(const char *call, const fy_pool_point_t *point)
{
    if (point->stream && point->stream <= STREAM_MOST && point->seq &&
        point->seq == FY__POINT_SEQ(point->seq))
        return FY_STATUS_OK;
    return FY_FAIL(INVALID_ARGUMENT,
                   "%s: stream %u, seq %llu is not a valid point; stream must be from 1 to %d, seq "
                   "from 1 to 2^48 - 1",
                   call, point->stream, (unsigned long long)point->seq, STREAM_MOST);
}

fy_status_t fy_pool_free_after(fy_pool_t *pool, const fy_pool_block_t *block,
                               const fy_pool_point_t *points, size_t npoints)
{
    fy__point_t list[FY_POOL_POINTS_MOST];
    if (npoints > FY_POOL_POINTS_MOST || (npoints && !points))
        return FY_FAIL(INVALID_ARGUMENT, "pool_free_after: %zu points at %p; there may be 0 to %d",
                       npoints, (const void *)points, FY_POOL_POINTS_MOST);
    for (size_t i = 0; i < npoints; i++) {
        FY_TRY(check_point("pool_free_after", &points[i]));
        list[i] = FY__POINT(points[i].stream, points[i].seq);
        for (size_t k = 0; k < i; k++)
            if (points[k].stream == points[i].stream)
                return FY_FAIL(
                    INVALID_ARGUMENT,
                    "pool_free_after: two points are on stream %u; pass only the later one",
                    points[i].stream);
    }
    fy__block_t *taken = block_out("pool_free_after", pool, block);
    if (taken) fy__pool_free_after(taken, list, npoints);
    return FY_STATUS_OK;
}

fy_status_t fy_pool_reached(fy_pool_t *pool, fy_pool_point_t point)
{
    if (!pool) return FY_FAIL(INVALID_ARGUMENT, "pool_reached: pool is NULL");
    FY_TRY(check_point("pool_reached", &point));
    fy__lock(&pool->blocks->source_lock);
    fy__pending_reached(pool->blocks, FY__POINT(point.stream, point.seq));
    fy__unlock(&pool->blocks->source_lock);
    return FY_STATUS_OK;
}

fy_status_t fy_pool_query(const fy_pool_t *pool, fy_memory_stats_t *out_stats)
{
    fy_memory_stats_t stats;
    FY_TRY(FY__CHECK_OUT(memory_stats, "pool_query", out_stats));
    if (!pool) return FY_FAIL(INVALID_ARGUMENT, "pool_query: pool is NULL");
    fy__pool_query(pool->blocks, &stats);
    /* No caller named a category. */
    stats.by_category[FY_CATEGORY_ACTIVATIONS] = stats.live;
    stats.peak_by_category[FY_CATEGORY_ACTIVATIONS] = stats.peak_live;
    FY__WRITE(out_stats, &stats);
    return FY_STATUS_OK;
}

uint64_t fy_pool_trim(fy_pool_t *pool, uint64_t keep_nbytes)
{
    return pool ? fy__pool_trim(pool->blocks, keep_nbytes) : 0;
}
