/* The table of policies; Ferry's, by fy_pool_*; and rounding up to powers of two without cutting,
 * which is PyTorch's for pinned memory (aten/src/ATen/core/CachingHostAllocator.h: a block is
 * rounded up to a power of two, and kept for requests of that very size). */
#include "tools/replay/replay.h"

#include <inttypes.h>
#include <stdlib.h>

#include "tools/cli/tool.h"

void *pool_refuse(const char *name, uint64_t nbytes, uint64_t reserved, uint64_t limit)
{
    (void)TOOL_FAIL(OUT_OF_MEMORY,
                    "%s: %" PRIu64 " bytes asked for, reserved %" PRIu64 ", limit %" PRIu64, name,
                    nbytes, reserved, limit);
    return NULL;
}

/* ---- ferry ---- */

typedef struct ferry_block {
    fy_pool_block_t block;
    struct ferry_block *next;
} ferry_block_t;

typedef struct ferry_pool {
    fy_pool_t *pool;
    ferry_block_t *spare;
} ferry_pool_t;

static void *ferry_create(const fy_pool_options_t *options)
{
    ferry_pool_t *pool = tool_alloc(sizeof *pool);
    *pool = (ferry_pool_t){ NULL, NULL };
    if (fy_pool_create(options, &pool->pool) == FY_STATUS_OK) return pool;
    free(pool);
    return NULL;
}

static void *ferry_take_on(void *user, uint64_t nbytes, uint32_t stream)
{
    ferry_pool_t *pool = user;
    ferry_block_t *block = pool->spare;
    fy_pool_block_t taken;
    if (fy_pool_alloc_on(pool->pool, nbytes, stream, &taken) != FY_STATUS_OK) return NULL;
    if (block)
        pool->spare = block->next;
    else
        block = tool_alloc(sizeof *block);
    block->block = taken;
    return block;
}

static void *ferry_take(void *user, uint64_t nbytes) { return ferry_take_on(user, nbytes, 0); }

static void ferry_give_after(void *user, void *token, const fy_pool_point_t *points, size_t npoints)
{
    ferry_pool_t *pool = user;
    ferry_block_t *block = token;
    if (fy_pool_free_after(pool->pool, &block->block, points, npoints) != FY_STATUS_OK)
        fy_pool_free(pool->pool, &block->block);
    block->next = pool->spare;
    pool->spare = block;
}

static void ferry_give(void *user, void *token) { ferry_give_after(user, token, NULL, 0); }

static void ferry_reach(void *user, fy_pool_point_t point)
{
    (void)!fy_pool_reached(((ferry_pool_t *)user)->pool, point);
}

static void ferry_query(const void *user, pool_figures_t *out_figures)
{
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    (void)!fy_pool_query(((const ferry_pool_t *)user)->pool, &stats);
    *out_figures = (pool_figures_t){ stats.live, stats.reserved, stats.peak_reserved,
                                     stats.largest_free, stats.device_allocs };
}

static void ferry_destroy(void *user)
{
    ferry_pool_t *pool = user;
    for (ferry_block_t *block = pool->spare, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    fy_pool_destroy(pool->pool);
    free(pool);
}

/* ---- powers of two ---- */

typedef struct power_block {
    int exponent;
    struct power_block *next;
} power_block_t;

typedef struct power_pool {
    power_block_t *cached[64];
    uint64_t live, reserved, peak_reserved, segments, limit;
} power_pool_t;

static void *power_create(const fy_pool_options_t *options)
{
    power_pool_t *pool = tool_alloc(sizeof *pool);
    *pool = (power_pool_t){ .limit = options->limit };
    return pool;
}

static void power_release(power_pool_t *pool)
{
    for (int i = 0; i < 64; i++)
        for (power_block_t *block; (block = pool->cached[i]);) {
            pool->cached[i] = block->next;
            pool->reserved -= UINT64_C(1) << i;
            free(block);
        }
}

static void *power_take(void *user, uint64_t asked)
{
    power_pool_t *pool = user;
    int exponent = 0;
    while (exponent < 62 && UINT64_C(1) << exponent < asked) exponent++;
    const uint64_t nbytes = UINT64_C(1) << exponent;
    power_block_t *block = pool->cached[exponent];
    if (block)
        pool->cached[exponent] = block->next;
    else {
        if (nbytes > pool->limit || pool->reserved > pool->limit - nbytes) power_release(pool);
        if (nbytes < asked || nbytes > pool->limit || pool->reserved > pool->limit - nbytes)
            return pool_refuse("power-of-two", asked, pool->reserved, pool->limit);
        block = tool_alloc(sizeof *block);
        *block = (power_block_t){ exponent, NULL };
        pool->reserved += nbytes;
        pool->segments++;
        if (pool->reserved > pool->peak_reserved) pool->peak_reserved = pool->reserved;
    }
    pool->live += nbytes;
    return block;
}

static void power_give(void *user, void *token)
{
    power_pool_t *pool = user;
    power_block_t *block = token;
    block->next = pool->cached[block->exponent];
    pool->cached[block->exponent] = block;
    pool->live -= UINT64_C(1) << block->exponent;
}

static void power_query(const void *user, pool_figures_t *out_figures)
{
    const power_pool_t *pool = user;
    int largest = 63;
    while (largest >= 0 && !pool->cached[largest]) largest--;
    *out_figures = (pool_figures_t){ pool->live, pool->reserved, pool->peak_reserved,
                                     largest < 0 ? 0 : UINT64_C(1) << largest, pool->segments };
}

static void power_destroy(void *user)
{
    power_release(user);
    free(user);
}

static const pool_policy_t ferry_policy = { "ferry",       ferry_create,     ferry_take,
                                            ferry_give,    ferry_query,      ferry_destroy,
                                            ferry_take_on, ferry_give_after, ferry_reach };
static const pool_policy_t power_policy = { "power-of-two", power_create, power_take,
                                            power_give,     power_query,  power_destroy,
                                            NULL,           NULL,         NULL };
const pool_policy_t *const pool_policies[] = { &ferry_policy,          &power_policy,
                                               &policy_pytorch,        &policy_pytorch_near,
                                               &policy_jemalloc_arena, NULL };
