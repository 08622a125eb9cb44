/* A jemalloc arena over slabs of 64 MiB, as applications make it with extent hooks. Size classes:
 * four to a doubling (include/jemalloc/internal/sc.h: classes of a group are spaced by a quarter of
 * its base, from steps of 16 bytes up to 128). Classes below 16 KiB are cut as regions from runs of
 * whole pages (src/sc.c: the shortest run without a rest), larger ones are separate extents.
 * Extents are split and joined inside a slab, never across two. It reserves less than the real one:
 * it has no padding for cache indexing (a page per large block), and joins at once. */
#include <stdlib.h>

#include "tools/cli/tool.h"
#include "tools/replay/peer_heap.h"
#include "tools/replay/replay.h"

static const uint64_t slab_nbytes = 64u << 20, page_nbytes = 4096;
enum { SMALL_MAX = 14336, CLASSES = 64 };

/* Regions of one class in an extent; on its class's list while some are free. */
typedef struct run {
    heap_block_t *extent;
    uint64_t region_nbytes;
    uint32_t count, used;
    int class_index;
    struct run *prev, *next;
} run_t;

typedef struct block {
    heap_block_t *extent; /* NULL: a region of `run` */
    run_t *run;
} block_t;

typedef struct jemalloc {
    heap_t heap;
    uint64_t limit, live;
    run_t *partial[CLASSES];
} jemalloc_t;

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The class's size, and its number. */
static uint64_t class_of(uint64_t nbytes, int *out_index)
{
    uint64_t base = 64;
    int group = 1;
    if (nbytes <= 64) {
        *out_index = (int)((nbytes + 15) / 16 - 1);
        return (nbytes + 15) / 16 * 16;
    }
    for (; 2 * base < nbytes; base *= 2) group++;
    const uint64_t delta = base / 4, steps = (nbytes - base + delta - 1) / delta;
    *out_index = 4 * group + (int)steps - 1;
    return base + steps * delta;
}

static heap_block_t *extent_of(jemalloc_t *pool, uint64_t nbytes)
{
    nbytes = (nbytes + page_nbytes - 1) / page_nbytes * page_nbytes;
    heap_block_t *block = heap_best(&pool->heap, 0, nbytes);
    if (!block) {
        const uint64_t slab = nbytes > slab_nbytes ? nbytes : slab_nbytes;
        block = heap_grow(&pool->heap, 0, slab, pool->limit);
        if (!block) return NULL;
    }
    return heap_take(&pool->heap, block, nbytes);
}

static void link_run(jemalloc_t *pool, run_t *run)
{
    run->prev = NULL;
    run->next = pool->partial[run->class_index];
    if (run->next) run->next->prev = run;
    pool->partial[run->class_index] = run;
}

static void unlink_run(jemalloc_t *pool, run_t *run)
{
    *(run->prev ? &run->prev->next : &pool->partial[run->class_index]) = run->next;
    if (run->next) run->next->prev = run->prev;
}

static run_t *run_for(jemalloc_t *pool, uint64_t region_nbytes, int class_index)
{
    run_t *run = pool->partial[class_index];
    if (run) return run;
    const uint64_t nbytes = region_nbytes / gcd(region_nbytes, page_nbytes) * page_nbytes;
    heap_block_t *extent = extent_of(pool, nbytes);
    if (!extent) return NULL;
    run = tool_alloc(sizeof *run);
    *run = (run_t){ .extent = extent,
                    .region_nbytes = region_nbytes,
                    .count = (uint32_t)(nbytes / region_nbytes),
                    .class_index = class_index };
    link_run(pool, run);
    return run;
}

static void *create(const fy_pool_options_t *options)
{
    jemalloc_t *pool = tool_alloc(sizeof *pool);
    *pool = (jemalloc_t){ .limit = options->limit };
    return pool;
}

static void *take(void *user, uint64_t nbytes)
{
    jemalloc_t *pool = user;
    int index;
    block_t found = { NULL, NULL };
    if (nbytes > (uint64_t)INT64_MAX / 2)
        return pool_refuse("jemalloc-arena", nbytes, pool->heap.reserved, pool->limit);
    const uint64_t size = class_of(nbytes, &index);
    if (size <= SMALL_MAX)
        found.run = run_for(pool, size, index);
    else
        found.extent = extent_of(pool, size);
    if (!found.run && !found.extent)
        return pool_refuse("jemalloc-arena", nbytes, pool->heap.reserved, pool->limit);
    if (found.run && ++found.run->used == found.run->count) unlink_run(pool, found.run);
    pool->live += found.run ? found.run->region_nbytes : found.extent->nbytes;
    block_t *block = tool_alloc(sizeof *block);
    *block = found;
    return block;
}

static void give(void *user, void *token)
{
    jemalloc_t *pool = user;
    block_t *block = token;
    run_t *run = block->run;
    pool->live -= run ? run->region_nbytes : block->extent->nbytes;
    if (!run)
        heap_give(&pool->heap, block->extent);
    else {
        if (run->used-- == run->count) link_run(pool, run);
        if (!run->used) {
            unlink_run(pool, run);
            heap_give(&pool->heap, run->extent);
            free(run);
        }
    }
    free(block);
}

static void query(const void *user, pool_figures_t *out_figures)
{
    const jemalloc_t *pool = user;
    *out_figures = (pool_figures_t){ pool->live, pool->heap.reserved, pool->heap.peak_reserved,
                                     heap_largest(&pool->heap), pool->heap.segments };
}

static void destroy(void *user)
{
    jemalloc_t *pool = user;
    heap_clear(&pool->heap);
    free(pool);
}

const pool_policy_t policy_jemalloc_arena = {
    "jemalloc-arena", create, take, give, query, destroy
};
