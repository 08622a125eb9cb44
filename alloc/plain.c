/* fy_pool_* of <ferry/plan.h>: the caching pool over a source of plain numbers. The pool is the one that serves devices; all that is here is
 * where its segments come from: the lowest place among those in use.
 * Not here: any policy. Next: cache.c, ladder.c. */
#include <ferry/plan.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "alloc/pool.h"
#include "runtime/base/fail.h"

typedef struct segment {
    uint64_t offset, nbytes;
    struct segment *next; /* by offset */
} segment_t;

struct fy_pool {
    fy__pool_t *blocks;
    segment_t *segments;
    uint64_t alignment;
    bool no_memory; /* the last refusal was the host's, who had none for a segment_t */
};

static fy_status_t plain_alloc(void *user, uint64_t nbytes, void **out_address)
{
    fy_pool_t *pool = user;
    segment_t *segment = malloc(sizeof *segment), **at = &pool->segments;
    uint64_t offset = 0;
    pool->no_memory = !segment;
    if (!segment) return FY_STATUS_OUT_OF_MEMORY;
    for (; *at && (*at)->offset - offset < nbytes; at = &(*at)->next) offset = (*at)->offset + (*at)->nbytes;
    if (nbytes > UINT64_MAX - offset) { /* holes in between: the numbers end before the limit does */
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

/* Into the hole behind it, as far as that goes. */
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

/* Nothing is ever pending here. */
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
    FY_TRY(fy__check_sized("pool_create", "options", options, sizeof *options, "FY_POOL_OPTIONS_INIT"));
    if (options->alignment < 64 || options->alignment & (options->alignment - 1))
        return FY_FAIL(INVALID_ARGUMENT, "pool_create: alignment is %llu; it must be a power of two from 64 up",
                       (unsigned long long)options->alignment);
    if (!options->segment_nbytes || options->segment_nbytes > INT64_MAX)
        return FY_FAIL(INVALID_ARGUMENT, "pool_create: segment_nbytes is %llu; it must be from 1 to 2^63 - 1",
                       (unsigned long long)options->segment_nbytes);
    const uint64_t step = options->resize_nbytes;
    if (step && (step < options->alignment || step & (step - 1) || options->thrifty))
        return FY_FAIL(INVALID_ARGUMENT,
                       "pool_create: resize_nbytes is %llu; it must be 0 or a power of two from the alignment (%llu) up, and "
                       "0 with thrifty",
                       (unsigned long long)step, (unsigned long long)options->alignment);
    return FY_STATUS_OK;
}

fy_status_t fy_pool_create(const fy_pool_options_t *options, fy_pool_t **out_pool)
{
    static atomic_uint_fast64_t last_number;
    const fy_pool_options_t defaults = FY_POOL_OPTIONS_INIT;
    char name[32];
    if (!out_pool) return FY_FAIL(INVALID_ARGUMENT, "pool_create: out_pool is NULL");
    *out_pool = NULL;
    if (!options) options = &defaults;
    FY_TRY(check_options(options));
    fy_pool_t *pool = calloc(1, sizeof *pool);
    if (!pool) return FY_FAIL(OUT_OF_MEMORY, "pool_create: no host memory for %zu bytes of bookkeeping", sizeof *pool);
    pool->alignment = options->alignment;
    snprintf(name, sizeof name, "plain pool %llu", (unsigned long long)atomic_fetch_add(&last_number, 1) + 1);
    const fy__pool_options_t plain = {
        .name = name,
        .limit_nbytes = options->limit,
        .device_nbytes = FY_UNLIMITED,
        .segment_nbytes = options->segment_nbytes,
        .full_status = FY_STATUS_OUT_OF_MEMORY,
        .thrifty = options->thrifty != 0,
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
    const fy_status_t status = fy__pool_create(&plain, &source, &pool->blocks);
    if (status != FY_STATUS_OK) {
        free(pool);
        return status;
    }
    *out_pool = pool;
    return FY_STATUS_OK;
}

/* Blocks may still be out: their numbers mean nothing any more. */
void fy_pool_destroy(fy_pool_t *pool)
{
    if (!pool) return;
    for (const fy__range_t *range = pool->blocks->offsets.ranges; range; range = range->next)
        for (fy__span_t *span = range->first; span;) {
            fy__node_t *node = fy__node_of(span);
            span = span->next; /* the left of two survives a join: this one may be gone, or joined with the one on its right */
            if (node->span.shelf != FY__SPAN_TAKEN) continue;
            if (span && span->shelf == FY__SHELF_FREE) span = span->next;
            fy__pool_free(&node->block);
        }
    fy__pool_destroy(pool->blocks);
    free(pool);
}

fy_status_t fy_pool_alloc(fy_pool_t *pool, uint64_t nbytes, fy_pool_block_t *out_block)
{
    fy__block_t *block;
    if (!out_block) return FY_FAIL(INVALID_ARGUMENT, "pool_alloc: out_block is NULL");
    *out_block = (fy_pool_block_t){ 0, 0, NULL };
    if (!pool) return FY_FAIL(INVALID_ARGUMENT, "pool_alloc: pool is NULL");
    pool->no_memory = false;
    const fy_status_t status = fy__pool_alloc(pool->blocks, nbytes, 0, &block);
    if (status == FY_STATUS_OUT_OF_MEMORY && pool->no_memory)
        return FY_FAIL(OUT_OF_MEMORY, "pool_alloc: no host memory for %zu bytes of bookkeeping", sizeof(segment_t));
    if (status != FY_STATUS_OK) return status;
    *out_block = (fy_pool_block_t){ (uint64_t)(uintptr_t)block->address, block->nbytes, block };
    return FY_STATUS_OK;
}

void fy_pool_free(fy_pool_t *pool, const fy_pool_block_t *block)
{
    if (!pool || !block || !block->token) return;
    fy__block_t *taken = block->token;
    const fy__node_t *node = (const fy__node_t *)((const char *)taken - offsetof(fy__node_t, block));
    /* Nodes are kept until the pool is destroyed, so this may be looked at even if the block is not out. */
    if (node->span.shelf != FY__SPAN_TAKEN || node->span.offset != block->offset || taken->pool != pool->blocks) {
        fy__log(FY_LOG_ERROR, "pool_free: the block at %llu is not out; it was given back twice, or is another pool's",
                (unsigned long long)block->offset);
        return;
    }
    fy__pool_free(taken);
}

fy_status_t fy_pool_query(const fy_pool_t *pool, fy_memory_stats_t *out_stats)
{
    FY_TRY(fy__check_sized("pool_query", "out_stats", out_stats, sizeof *out_stats, "FY_MEMORY_STATS_INIT"));
    if (!pool) return FY_FAIL(INVALID_ARGUMENT, "pool_query: pool is NULL");
    fy__pool_query(pool->blocks, out_stats);
    out_stats->struct_size = sizeof *out_stats;
    /* What nobody said anything about. */
    out_stats->by_category[FY_CATEGORY_ACTIVATIONS] = out_stats->live;
    out_stats->peak_by_category[FY_CATEGORY_ACTIVATIONS] = out_stats->peak_live;
    return FY_STATUS_OK;
}

uint64_t fy_pool_trim(fy_pool_t *pool, uint64_t keep_nbytes) { return pool ? fy__pool_trim(pool->blocks, keep_nbytes) : 0; }
