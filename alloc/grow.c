/* Growth: segments are requested from the source, and whole free ones are released. Also
 * fy_memory_reserve, which grows before a request needs it.
 * A release_eagerly pool grows by a share of its reserved bytes, so that few calls serve many
 * blocks and little is wasted. It cuts small requests from large segments as well, and releases
 * idle segments before it grows past its peak plus an eighth. Reasons for these figures:
 * docs/decisions/0023.
 * Not here: when a pool grows (fallback.c). */
#include "alloc/debug.h"

#include "runtime/base/checked.h"
#include "runtime/base/fail.h"
#include "runtime/device/plan.h"
#include "runtime/record/event.h"

/* Dedicated segments are rounded to this, the device's page size, unless that would waste more than
 * an eighth. */
static const uint64_t large_step_nbytes = 2u << 20;

/* For a release_eagerly pool: a step is this share of the reserved bytes, and waste may be this
 * share of the peak. A released segment is smaller than the one that replaces it, or it would have
 * served. So a steady program soon stops growing. */
enum { STEP_SHARE = 32, WASTE_SHARE = 8 };

static uint64_t step_of(const fy__pool_t *pool)
{
    const uint64_t share = pool->options.release_eagerly ? pool->reserved / STEP_SHARE : 0,
                   least = pool->options.segment_nbytes;
    return share <= least ? least
                          : (share + large_step_nbytes - 1) / large_step_nbytes * large_step_nbytes;
}

/* For other pools: growth first releases idle segments of large blocks if the reserved bytes would
 * exceed the peak by more than this share, ... */
enum { SLACK_SHARE = 16 };
/* ... but in total no more than this many times the peak: shapes that keep changing must not make
 * every step call the backend. */
enum { EXCHANGES = 8 };

/* Sizes to request from the source, the preferred one first; returns their number. Never more than
 * `room`. */
static int growth_sizes(const fy__pool_t *pool, uint64_t nbytes, bool is_dedicated, uint64_t room,
                        uint64_t *sizes)
{
    const uint64_t left = pool->options.device_nbytes > pool->reserved
                              ? pool->options.device_nbytes - pool->reserved
                              : 0;
    uint64_t step, most = (room < left ? room : left) & ~(pool->source.alignment - 1);
    int count = 0;
    if (pool->source.resize) { /* the segment can grow in place later */
        if (!fy__round_up_u64(nbytes, pool->source.step_nbytes, &step) || step > most)
            step = nbytes;
    } else if (is_dedicated) {
        if (!fy__round_up_u64(nbytes, large_step_nbytes, &step)) step = nbytes;
        if (step > most || step - nbytes > nbytes / 8) step = nbytes;
    } else {
        if (!fy__round_up_u64(step_of(pool), pool->source.alignment, &step) || step > most)
            step = most;
    }
    if (step > nbytes) sizes[count++] = step;
    sizes[count++] = nbytes;
    return count;
}

fy__growth_t fy__pool_growth(fy__pool_t *pool, fy_status_t status)
{
    if (status == FY_STATUS_REFUSED_BY_GUARD) return FY__GROWTH_FORBIDDEN;
    pthread_mutex_lock(&pool->lock);
    fy__figure_add(&pool->device_allocs, 1);
    pthread_mutex_unlock(&pool->lock);
    if (status == FY_STATUS_OK) return FY__GROWTH_DONE;
    return status == FY_STATUS_OUT_OF_MEMORY || status == pool->options.full_status
               ? FY__GROWTH_REFUSED
               : FY__GROWTH_FAILED;
}

/* One call of the source; source_lock held, lock not. */
static fy__growth_t ask_source(fy__pool_t *pool, uint64_t nbytes, void **out_address,
                               fy_status_t *out_status)
{
    *out_status = pool->source.alloc(pool->source.user, nbytes, out_address);
    return fy__pool_growth(pool, *out_status);
}

/* Adds a segment of one of `sizes`, the first that the source gives; source_lock held, lock not.
 * The request, if there is one, is cut from it and counted in `stage`. `range` has the nodes
 * already, so nothing but the source can fail. */
static fy__growth_t add_segment(fy__pool_t *pool, fy__range_t *range, const uint64_t *sizes,
                                int count, fy__request_t *request, uint64_t *stage,
                                fy__pool_node_t **out_node, fy_status_t *out_status)
{
    fy__growth_t growth = FY__GROWTH_FAILED;
    void *address = NULL;
    int i;
    for (i = 0; i < count; i++)
        if ((growth = ask_source(pool, sizes[i], &address, out_status)) != FY__GROWTH_REFUSED)
            break;
    pthread_mutex_lock(&pool->lock);
    if (growth == FY__GROWTH_DONE) {
        fy__span_t *span =
            fy__offsets_add_range(&pool->offsets, range, (uint64_t)(uintptr_t)address, sizes[i]);
        if (FY_UNLIKELY(pool->debug)) fy__debug_segment(pool, span->range, true);
        fy__figure_add(&pool->reserved, sizes[i]);
        if (pool->reserved > pool->peak_reserved)
            fy__figure_set(&pool->peak_reserved, pool->reserved);
        FY__EVENT(fy__event_segment(pool->text, range->id, sizes[i], true));
        if (request && (*out_node = fy__pool_cut(pool, request, span))) ++*stage;
        if (request && !*out_node) growth = FY__GROWTH_NO_NODES; /* the segment stays, cached */
    } else {
        fy__offsets_drop_range(&pool->offsets, range);
        if (growth == FY__GROWTH_FORBIDDEN) pool->stats.guard_refusals++;
    }
    pthread_mutex_unlock(&pool->lock);
    return growth;
}

/* Before a release_eagerly pool grows for a request: releases idle segments if the pool would
 * otherwise hold more than the peak and some waste. */
static void save(fy__pool_t *pool, uint64_t nbytes)
{
    pthread_mutex_lock(&pool->lock);
    const uint64_t step = step_of(pool), want = nbytes > step / 2 ? nbytes : step;
    uint64_t peak = pool->live + nbytes;
    if (peak < pool->peak_live) peak = pool->peak_live;
    const uint64_t most = peak + peak / WASTE_SHARE;
    const bool is_due = pool->reserved > most || want > most - pool->reserved;
    pthread_mutex_unlock(&pool->lock);
    if (!is_due || (pool->source.may_grow && !pool->source.may_grow(pool->source.user))) return;
    (void)fy__pool_release(pool, want < most ? most - want : 0);
}

static uint64_t release(fy__pool_t *pool, uint64_t keep_nbytes, bool only_dedicated);

/* When the shape of the work changes (a larger batch, a longer sequence), segments for the old
 * blocks serve no request. This releases them before the new ones are added. source_lock held, lock
 * not. */
static void exchange(fy__pool_t *pool, uint64_t nbytes)
{
    pthread_mutex_lock(&pool->lock);
    const uint64_t live = pool->live + nbytes,
                   peak = live > pool->peak_live ? live : pool->peak_live,
                   most = peak + peak / SLACK_SHARE;
    /* the fallback handles that */
    const bool is_past_limit = nbytes > pool->options.limit_nbytes - pool->reserved;
    const bool is_over = pool->reserved + nbytes > most &&
                         pool->exchanged_nbytes / EXCHANGES < peak && !is_past_limit;
    pthread_mutex_unlock(&pool->lock);
    if (!is_over || (pool->source.may_grow && !pool->source.may_grow(pool->source.user))) return;
    pool->exchanged_nbytes += release(pool, most - nbytes, true);
}

fy__growth_t fy__pool_grow(fy__pool_t *pool, fy__request_t *request, uint64_t *stage,
                           fy__pool_node_t **out_node, fy_status_t *out_status)
{
    uint64_t sizes[2];
    if (pool->options.growth_off) return FY__GROWTH_OFF;
    if (pool->options.release_eagerly)
        save(pool, request->nbytes);
    else if (pool->source.resize) {
        const fy__growth_t growth = fy__pool_extend(pool, request, 0, stage, out_node, out_status);
        if (growth != FY__GROWTH_PAST_LIMIT && growth != FY__GROWTH_REFUSED) return growth;
    } else if (request->nbytes > step_of(pool) / 2)
        exchange(pool, request->nbytes);
    pthread_mutex_lock(&pool->lock);
    const bool is_dedicated = request->nbytes > step_of(pool) / 2 && !pool->source.resize;
    const uint64_t room = fy__pool_room(pool);
    fy__range_t *range =
        request->nbytes <= room ? fy__offsets_prepare_range(&pool->offsets, is_dedicated) : NULL;
    pthread_mutex_unlock(&pool->lock);
    if (request->nbytes > room) return FY__GROWTH_PAST_LIMIT;
    if (!range) {
        request->no_nodes = true;
        return FY__GROWTH_NO_NODES;
    }
    const int count = growth_sizes(pool, request->nbytes, is_dedicated, room, sizes);
    return add_segment(pool, range, sizes, count, request, stage, out_node, out_status);
}

static uint64_t release(fy__pool_t *pool, uint64_t keep_nbytes, bool only_dedicated)
{
    uint64_t released = 0;
    const bool keeps = pool->options.keeps_segments;
    if (keeps && !pool->source.may_release) return 0;
    pthread_mutex_lock(&pool->lock);
    fy__range_t *range = pool->offsets.ranges;
    while (range && pool->reserved > keep_nbytes) {
        /* only this thread adds or removes ranges: it holds source_lock */
        fy__range_t *next = range->next;
        if (!range->first->next && range->first->list == FY__LIST_FREE &&
            (range->is_dedicated || !only_dedicated) &&
            (!keeps ||
             pool->source.may_release(pool->source.user, (const void *)(uintptr_t)range->offset,
                                      range->nbytes))) {
            void *address = (void *)(uintptr_t)range->offset;
            const uint64_t nbytes = range->nbytes, id = range->id;
            if (FY_UNLIKELY(pool->debug)) fy__debug_segment(pool, range, false);
            fy__offsets_remove_range(&pool->offsets, range);
            fy__figure_sub(&pool->reserved, nbytes);
            FY__EVENT(fy__event_segment(pool->text, id, nbytes, false));
            pool->stats.released++;
            released += nbytes;
            pthread_mutex_unlock(&pool->lock);
            pool->source.free(pool->source.user, address, nbytes);
            pthread_mutex_lock(&pool->lock);
        } else if (pool->source.resize)
            released += fy__pool_shorten(pool, range, keep_nbytes);
        range = next;
    }
    pthread_mutex_unlock(&pool->lock);
    return released;
}

uint64_t fy__pool_release(fy__pool_t *pool, uint64_t keep_nbytes)
{
    return release(pool, keep_nbytes, false);
}

static fy_status_t reserve(fy__pool_t *pool, uint64_t nbytes)
{
    fy__request_t request = { 0 };
    fy__refusal_t refusal = { .is_reserve = true, .limit_refused = true };
    fy__growth_t growth = FY__GROWTH_PAST_LIMIT;
    fy_status_t status = FY_STATUS_OK;
    fy__lock(&pool->source_lock);
    pthread_mutex_lock(&pool->lock);
    const uint64_t room = fy__pool_room(pool);
    request.asked = nbytes > pool->reserved ? nbytes - pool->reserved : 0;
    const bool fits = fy__round_up_u64(request.asked, pool->source.alignment, &request.nbytes) &&
                      request.nbytes <= room && !fy__pool_is_too_large(pool, request.nbytes) &&
                      request.nbytes + pool->reserved <= pool->options.device_nbytes;
    fy__range_t *range = fits && request.nbytes ? fy__offsets_prepare_range(&pool->offsets, false)
                                                : NULL;
    pthread_mutex_unlock(&pool->lock);
    if (range && pool->source.resize)
        growth = fy__pool_extend(pool, NULL, request.nbytes, NULL, NULL, &status);
    if (range && growth != FY__GROWTH_PAST_LIMIT && growth != FY__GROWTH_REFUSED) {
        pthread_mutex_lock(&pool->lock);
        fy__offsets_drop_range(&pool->offsets, range);
        pthread_mutex_unlock(&pool->lock);
    } else if (range)
        growth = add_segment(pool, range, &request.nbytes, 1, NULL, NULL, NULL, &status);
    fy__refusal_note_machine(&refusal, pool, growth);
    fy__unlock(&pool->source_lock);
    if (!request.asked || growth == FY__GROWTH_DONE) return FY_STATUS_OK;
    if (growth == FY__GROWTH_FORBIDDEN || growth == FY__GROWTH_FAILED) return status;
    request.no_nodes = fits && !range;
    refusal.limit_refused = growth == FY__GROWTH_PAST_LIMIT;
    return fy__pool_verdict(pool, &request, &refusal);
}

fy_status_t fy__pool_reserve(fy__pool_t *pool, uint64_t nbytes)
{
    const fy_status_t status = reserve(pool, nbytes);
    return status != FY_STATUS_OK && pool->plan && fy__plan_lift(pool) ? reserve(pool, nbytes)
                                                                       : status;
}
