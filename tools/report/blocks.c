/* Keeps every allocation and free, because the moment of the peak is known only at the end. */
#include "tools/report/recording.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

static size_t pool_of(blocks_t *blocks, const char *name)
{
    size_t number;
    if (!text_index_number(&blocks->pool_index, name, blocks->npools, &number)) return number;
    blocks->pools = tool_grow(blocks->pools, blocks->npools, sizeof *blocks->pools);
    blocks->pools[blocks->npools].name = tool_copy_text(name);
    return blocks->npools++;
}

static uint32_t block_of(blocks_t *blocks, size_t pool, uint64_t number)
{
    uint32_t *block = pair_table_at(&blocks->numbers, (uint32_t)pool, number);
    if (*block == NUMBER_TABLE_NONE) {
        *block = (uint32_t)blocks->nblocks++;
        blocks->open = tool_grow(blocks->open, *block, sizeof *blocks->open);
        blocks->open[*block] = (block_open_t){ UINT64_MAX, (uint32_t)pool };
    }
    return *block;
}

/* Ferry's categories have the same numbers in every run. The last number takes the others. */
static uint32_t category_of(blocks_t *blocks, const char *name)
{
    if (!*name) name = "other";
    for (size_t i = blocks->ncategories; i < FY_CATEGORY_COUNT; i++)
        blocks->categories[blocks->ncategories++] =
            tool_copy_text(fy_category_name((fy_category_t)i));
    for (size_t i = 0; i < blocks->ncategories; i++)
        if (strcmp(blocks->categories[i], name) == 0) return (uint32_t)i;
    if (blocks->ncategories == BLOCK_CATEGORIES) return BLOCK_CATEGORIES - 1;
    blocks->categories[blocks->ncategories] = tool_copy_text(name);
    return (uint32_t)blocks->ncategories++;
}

static void add_step(const blocks_t *blocks, block_pool_t *pool, block_step_t step)
{
    memcpy(step.at_ns, blocks->last_ns, sizeof step.at_ns);
    pool->steps = tool_grow(pool->steps, pool->count, sizeof step);
    pool->steps[pool->count] = step;
    pool->live += (uint64_t)step.nbytes;
    if (pool->live > pool->peak) {
        pool->peak = pool->live;
        pool->peak_at = pool->count + 1;
    }
    pool->count++;
}

static void set_time(blocks_t *blocks, const event_t *event)
{
    static const char *const keys[TRACKS_CLOCKS] = { "model_ns", "t_ns" };
    for (int clock = 0; clock < TRACKS_CLOCKS; clock++) {
        const uint64_t at_ns = event_whole(event, keys[clock]);
        if (at_ns > blocks->last_ns[clock]) blocks->last_ns[clock] = at_ns;
    }
}

/* A storage has a block of its device's pool; those in page-locked and graph memory have no name
 * here. */
static void add_storage(blocks_t *blocks, const event_t *event)
{
    if (!event_has(event, "block") || event_has(event, "pinned")) return;
    *number_table_at(&blocks->storages, event_whole(event, "storage")) =
        block_of(blocks, pool_of(blocks, event_text(event, "device")), event_whole(event, "block"));
}

static void add_name(blocks_t *blocks, slices_t *slices, const event_t *event)
{
    const uint64_t nbytes = event_whole(event, "bytes");
    const uint32_t block = number_table_find(&blocks->storages, event_whole(event, "storage"));
    if (block == NUMBER_TABLE_NONE) return;
    const block_open_t *open = &blocks->open[block];
    const block_pool_t *pool = &blocks->pools[open->pool];
    block_step_t *step = open->step < pool->count ? &pool->steps[open->step] : NULL;
    if (!step || step->ends != UINT64_MAX || nbytes < step->named_nbytes) return;
    step->name = slices_text(slices, event_text(event, "name"));
    step->named_nbytes = nbytes;
}

void blocks_add(blocks_t *blocks, slices_t *slices, const event_t *event)
{
    if (event_is(event, "storage")) add_storage(blocks, event);
    if (event_is(event, "named")) add_name(blocks, slices, event);
    const bool is_alloc = event_is(event, "block_alloc"), is_free = event_is(event, "block_free");
    if (!is_alloc && !is_free && !event_is(event, "pool")) return;
    const size_t number = pool_of(blocks, event_text(event, "pool"));
    block_pool_t *pool = &blocks->pools[number];
    const uint32_t block = block_of(blocks, number, event_whole(event, "block"));
    set_time(blocks, event);
    if (is_alloc) {
        blocks->open[block].step = pool->count;
        add_step(blocks, pool,
                 (block_step_t){ .nbytes = (int64_t)event_whole(event, "bytes"),
                                 .scope = slices_text(slices, event_text(event, "scope")),
                                 .category = category_of(blocks, event_text(event, "category")),
                                 .name = slices_text(slices, ""),
                                 .ends = UINT64_MAX });
    } else if (is_free) {
        const uint64_t nbytes = event_whole(event, "bytes"), step = blocks->open[block].step;
        if (step >= pool->count || nbytes > pool->live) return;
        block_step_t *from = &pool->steps[step];
        from->ends = pool->count;
        add_step(blocks, pool,
                 (block_step_t){ .nbytes = -(int64_t)nbytes, .category = from->category });
    } else if (!pool->count)
        pool->live = pool->before = pool->peak = event_whole(event, "live_bytes");
}

/* ---- points ---- */

static void put_point(block_point_t *points, size_t *count, const block_point_t *point)
{
    points[(*count)++] = *point;
}

block_point_t *blocks_points(const block_pool_t *pool, tracks_clock_t clock, size_t most,
                             size_t *out_count)
{
    const size_t group = pool->count <= most ? 1 : 3 * pool->count / most + 1;
    block_point_t *points = tool_alloc((3 * (pool->count / group + 1) + 1) * sizeof *points);
    block_point_t now = { .total = pool->before }, low = now, high = now;
    *out_count = 0;
    put_point(points, out_count, &now);
    for (size_t i = 0; i < pool->count; i++) {
        const block_step_t *step = &pool->steps[i];
        now.at_ns = step->at_ns[clock];
        now.total += (uint64_t)step->nbytes;
        now.by_category[step->category] += (uint64_t)step->nbytes;
        if (i % group == 0) low = high = now;
        if (now.total < low.total) low = now;
        if (now.total > high.total) high = now;
        if ((i + 1) % group && i + 1 < pool->count) continue;
        if (group > 1) {
            put_point(points, out_count, low.at_ns < high.at_ns ? &low : &high);
            put_point(points, out_count, low.at_ns < high.at_ns ? &high : &low);
        }
        put_point(points, out_count, &now);
    }
    return points;
}

/* ---- owners ---- */

static int compare_keys(const void *a, const void *b)
{
    const block_owner_t *x = a, *y = b;
    if (x->scope != y->scope) return x->scope < y->scope ? -1 : 1;
    if (x->name != y->name) return x->name < y->name ? -1 : 1;
    return x->category < y->category ? -1 : x->category > y->category;
}

static int compare_sizes(const void *a, const void *b)
{
    const block_owner_t *x = a, *y = b;
    if (x->nbytes != y->nbytes) return x->nbytes < y->nbytes ? 1 : -1;
    return compare_keys(a, b);
}

block_owner_t *blocks_owners(const block_pool_t *pool, size_t *out_count)
{
    block_owner_t *owners = tool_alloc((pool->peak_at + 1) * sizeof *owners);
    size_t live = 0, count = 0;
    for (size_t i = 0; i < pool->peak_at; i++) {
        const block_step_t *step = &pool->steps[i];
        if (step->nbytes > 0 && step->ends >= pool->peak_at)
            owners[live++] = (block_owner_t){ step->scope, step->category, step->name,
                                              (uint64_t)step->nbytes, 1 };
    }
    if (live) qsort(owners, live, sizeof *owners, compare_keys);
    for (size_t i = 0; i < live; i++) {
        if (count && compare_keys(&owners[count - 1], &owners[i]) == 0) {
            owners[count - 1].nbytes += owners[i].nbytes;
            owners[count - 1].count++;
        } else
            owners[count++] = owners[i];
    }
    if (count) qsort(owners, count, sizeof *owners, compare_sizes);
    *out_count = count;
    return owners;
}

void blocks_free(blocks_t *blocks)
{
    for (size_t i = 0; i < blocks->npools; i++) {
        free(blocks->pools[i].name);
        free(blocks->pools[i].steps);
    }
    for (size_t i = 0; i < blocks->ncategories; i++) free(blocks->categories[i]);
    free(blocks->pools);
    text_index_free(&blocks->pool_index);
    pair_table_free(&blocks->numbers);
    free(blocks->open);
    number_table_free(&blocks->storages);
    *blocks = (blocks_t){ .npools = 0 };
}
