/* PyTorch's caching allocator for device memory with default settings, as
 * c10/cuda/CUDACachingAllocator.cpp describes it: sizes in steps of 512 bytes; requests up to 1 MiB
 * are cut from segments of 2 MiB, those below 10 MiB from segments of 20 MiB, larger ones get a
 * segment rounded up to 2 MiB; small and large blocks live apart; best fit; the rest of a block is
 * split off if it is at least 512 bytes (small) or more than 1 MiB (large). At the limit every
 * segment that is wholly free goes back.
 * The rule that a large cached block serves only requests less than 20 MiB smaller is, by default,
 * for blocks above a split limit that is not set: `pytorch` leaves it out, `pytorch-near` holds to
 * it. */
#include <stdlib.h>

#include "tools/cli/tool.h"
#include "tools/replay/peer_heap.h"
#include "tools/replay/replay.h"

static const uint64_t mib = 1u << 20, step_nbytes = 512, small_nbytes = 1u << 20,
                      near_nbytes = 20u << 20;
enum { SMALL, LARGE };

typedef struct pytorch {
    heap_t heap;
    uint64_t limit;
    bool near_only;
} pytorch_t;

static void *create(const fy_pool_options_t *options)
{
    pytorch_t *pool = tool_alloc(sizeof *pool);
    *pool = (pytorch_t){ .limit = options->limit };
    return pool;
}

static void *create_near(const fy_pool_options_t *options)
{
    pytorch_t *pool = create(options);
    pool->near_only = true;
    return pool;
}

static uint64_t segment_for(uint64_t nbytes)
{
    if (nbytes <= small_nbytes) return 2 * mib;
    return nbytes < 10 * mib ? 20 * mib : (nbytes + 2 * mib - 1) / (2 * mib) * (2 * mib);
}

static void *take(void *user, uint64_t asked)
{
    pytorch_t *pool = user;
    if (asked > INT64_MAX) return pool_refuse("pytorch", asked, pool->heap.reserved, pool->limit);
    const uint64_t nbytes = (asked + step_nbytes - 1) / step_nbytes * step_nbytes,
                   segment = segment_for(nbytes);
    const int kind = nbytes <= small_nbytes ? SMALL : LARGE;
    heap_block_t *block = heap_best(&pool->heap, kind, nbytes);
    if (block && kind == LARGE && pool->near_only && block->nbytes >= nbytes + near_nbytes)
        block = NULL;
    if (!block) {
        block = heap_grow(&pool->heap, kind, segment, pool->limit);
        if (!block) return pool_refuse("pytorch", asked, pool->heap.reserved, pool->limit);
    }
    const uint64_t rest = block->nbytes - nbytes;
    return heap_take(&pool->heap, block,
                     (kind == SMALL ? rest >= step_nbytes : rest > small_nbytes) ? nbytes
                                                                                 : block->nbytes);
}

static void give(void *user, void *block) { heap_give(&((pytorch_t *)user)->heap, block); }
static void query(const void *user, pool_figures_t *out_figures)
{
    const heap_t *heap = &((const pytorch_t *)user)->heap;
    *out_figures = (pool_figures_t){ heap->reserved - heap->free_nbytes, heap->reserved,
                                     heap->peak_reserved, heap_largest(heap), heap->segments };
}

static void destroy(void *user)
{
    pytorch_t *pool = user;
    heap_clear(&pool->heap);
    free(pool);
}

const pool_policy_t policy_pytorch = { "pytorch", create, take, give, query, destroy };
const pool_policy_t policy_pytorch_near = {
    "pytorch-near", create_near, take, give, query, destroy
};
