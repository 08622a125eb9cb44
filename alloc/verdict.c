/* The verdict: the reason of a refusal, with the figures of that moment, and the smallest change
 * that would help. It depends only on the pool. Every hint is true: it is computed from the current
 * segments. Not here: the stages (fallback.c). */
#include "alloc/pool.h"

#include <stdarg.h>
#include <stdio.h>

#include "runtime/base/c_locale.h"
#include "runtime/base/fail.h"

typedef unsigned long long ull; /* for printf */

/* Results of a walk over the segments. */
typedef struct survey {
    uint64_t largest_free; /* largest run of adjacent free and pending spans */
    uint64_t largest_done; /* the same without pending ones */
    /* least live bytes that prevent a run of `nbytes`; UINT64_MAX if no segment is that large */
    uint64_t least_live_window;
    /* least live bytes in one segment of at least `nbytes_back`; UINT64_MAX if there is none */
    uint64_t least_live_segment;
    /* segments without a live block: a sync and a trim would release them */
    uint64_t idle_nbytes;
    uint64_t fixed_nbytes; /* live as long as the pool */
    uint64_t loose_nbytes; /* segments without such a block */
} survey_t;

static inline uint64_t live_of(const fy__span_t *span)
{
    return span->list == FY__SPAN_TAKEN ? span->size.nbytes : 0;
}
static inline bool is_fixed(const fy__span_t *span)
{
    return span->list == FY__SPAN_TAKEN && ((const fy__pool_node_t *)span)->block.is_fixed;
}

/* Least live bytes in a run of adjacent spans of at least nbytes: runs grow to the right and shrink
 * from the left. */
static uint64_t least_live_in_way(const fy__range_t *range, uint64_t nbytes)
{
    uint64_t least = UINT64_MAX, run = 0, live = 0;
    const fy__span_t *first = range->first;
    for (const fy__span_t *span = range->first; span; span = span->next) {
        if (is_fixed(span)) { /* no run contains it */
            run = live = 0;
            first = span->next;
            continue;
        }
        run += span->size.nbytes;
        live += live_of(span);
        for (; first != span && run - first->size.nbytes >= nbytes; first = first->next) {
            if (live < least) least = live;
            run -= first->size.nbytes;
            live -= live_of(first);
        }
        if (run >= nbytes && live < least) least = live;
    }
    return least;
}

static void survey_range(const fy__range_t *range, uint64_t nbytes, uint64_t nbytes_back,
                         survey_t *survey)
{
    uint64_t run = 0, done = 0, live = 0, fixed = 0;
    for (const fy__span_t *span = range->first; span; span = span->next) {
        const uint64_t span_nbytes = span->size.nbytes;
        live += live_of(span);
        if (is_fixed(span)) fixed += span_nbytes;
        run = live_of(span) ? 0 : run + span_nbytes;
        done = span->list == FY__LIST_FREE ? done + span_nbytes : 0;
        if (run > survey->largest_free) survey->largest_free = run;
        if (done > survey->largest_done) survey->largest_done = done;
    }
    if (!live) survey->idle_nbytes += range->nbytes;
    if (!fixed) survey->loose_nbytes += range->nbytes;
    survey->fixed_nbytes += fixed;
    if (range->nbytes >= nbytes) {
        const uint64_t least = least_live_in_way(range, nbytes);
        if (least < survey->least_live_window) survey->least_live_window = least;
    }
    if (!fixed && range->nbytes >= nbytes_back && live < survey->least_live_segment)
        survey->least_live_segment = live;
}

static survey_t survey_pool(const fy__pool_t *pool, uint64_t nbytes, uint64_t nbytes_back)
{
    survey_t survey = { .least_live_window = UINT64_MAX, .least_live_segment = UINT64_MAX };
    for (const fy__range_t *range = pool->offsets.ranges; range; range = range->next)
        survey_range(range, nbytes, nbytes_back, &survey);
    return survey;
}

uint64_t fy__pool_largest_free(const fy__pool_t *pool)
{
    return survey_pool(pool, UINT64_MAX, UINT64_MAX).largest_free;
}

/* Appends to the verdict's text. */
static void append(fy_oom_verdict_t *verdict, size_t *length, const char *format, ...)
    FY_PRINTF(3, 4);
static void append(fy_oom_verdict_t *verdict, size_t *length, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n =
        fy__vsnprintf(verdict->text + *length, sizeof verdict->text - *length, format, args);
    va_end(args);
    if (n > 0) *length += (size_t)n;
    if (*length >= sizeof verdict->text) *length = sizeof verdict->text - 1;
}

typedef struct amount {
    char text[40];
} amount_t;

/* "2.0 MiB"; "" for a number that is readable without a unit. */
static amount_t about(uint64_t nbytes)
{
    static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    amount_t about = { "" };
    int unit = 0;
    double value = (double)nbytes / 1024;
    for (; value >= 1023.95 && unit < 5; unit++) value /= 1024;
    if (nbytes >= 10 * 1024)
        fy__snprintf(about.text, sizeof about.text, "%.1f %s", value, units[unit]);
    return about;
}

static const char *comma_if(const amount_t *amount) { return amount->text[0] ? ", " : ""; }

/* "2097152 (2.0 MiB)": exact and readable. */
static amount_t amount(uint64_t nbytes)
{
    amount_t amount;
    const amount_t readable = about(nbytes);
    snprintf(amount.text, sizeof amount.text, readable.text[0] ? "%llu (%.16s)" : "%llu",
             (ull)nbytes, readable.text);
    return amount;
}

static void append_figures(fy_oom_verdict_t *verdict, size_t *length, const fy__pool_t *pool,
                           uint64_t outside)
{
    const uint64_t cached = verdict->cached;
    if (verdict->limit == FY_UNLIMITED)
        append(verdict, length, "\n  no limit");
    else
        append(verdict, length, "\n  limit %s", amount(verdict->limit).text);
    const amount_t live = about(verdict->live);
    /* as in fy__pin_add_outside */
    const uint64_t peak = pool->peak_live > verdict->live ? pool->peak_live : verdict->live;
    append(verdict, length,
           ", reserved %llu = live %llu (%s%speak %llu) + cached %llu (of it pending %llu)",
           (ull)verdict->reserved, (ull)verdict->live, live.text, comma_if(&live), (ull)peak,
           (ull)cached, (ull)verdict->pending);
    if (cached)
        append(verdict, length, "; largest free block %llu, fragmentation %.0f %%",
               (ull)verdict->largest_free,
               100.0 * (1.0 - (double)verdict->largest_free / (double)cached));
    if (outside)
        append(verdict, length, "; besides, page-locked outside the pool: %llu", (ull)outside);
}

static uint32_t tried_of(const fy__refusal_t *refusal)
{
    return FY_OOM_TRIED_SEARCH | (refusal->growth_off ? 0u : FY_OOM_TRIED_GROW) |
           (refusal->pressed ? FY_OOM_TRIED_PRESSURE : 0u) |
           (refusal->released ? FY_OOM_TRIED_RELEASE : 0u) |
           (refusal->synced ? FY_OOM_TRIED_SYNC : 0u);
}

static void append_tried(fy_oom_verdict_t *verdict, size_t *length, const fy__refusal_t *refusal)
{
    append(verdict, length, "\n  tried: search");
    if (verdict->tried & FY_OOM_TRIED_GROW) append(verdict, length, ", grow");
    if (verdict->tried & FY_OOM_TRIED_PRESSURE) append(verdict, length, ", reclaim callbacks");
    if (verdict->tried & FY_OOM_TRIED_RELEASE)
        append(verdict, length, ", release %llu idle bytes", (ull)refusal->released);
    if (verdict->tried & FY_OOM_TRIED_SYNC)
        append(verdict, length, ", wait for pending blocks and search again");
    if (refusal->sync_forbidden)
        append(verdict, length, "; not tried: a guard forbids to wait for pending blocks");
}

static void append_readable(fy_oom_verdict_t *verdict, size_t *length, const char *what,
                            uint64_t nbytes)
{
    const amount_t readable = about(nbytes);
    append(verdict, length, "%s ", what);
    if (readable.text[0])
        append(verdict, length, "%s", readable.text);
    else
        append(verdict, length, "%llu", (ull)nbytes);
}

/* The owners of the bytes: the scopes with most of them, and their categories. */
static void append_owners(fy_oom_verdict_t *verdict, size_t *length, const fy__pool_t *pool)
{
    bool said[FY_CATEGORY_COUNT] = { false };
    for (int i = 0; i < FY_OOM_TOP && verdict->top[i].live; i++) {
        append(verdict, length, i ? ", " : "\n  live by scope: ");
        append_readable(verdict, length,
                        verdict->top[i].path[0] ? verdict->top[i].path : "(outside any)",
                        verdict->top[i].live);
    }
    for (int n = 0; n < FY_CATEGORY_COUNT; n++) {
        int largest = -1;
        for (int i = 0; i < FY_CATEGORY_COUNT; i++)
            if (!said[i] && pool->by_category[i] &&
                (largest < 0 || pool->by_category[i] > pool->by_category[largest]))
                largest = i;
        if (largest < 0) return;
        said[largest] = true;
        append(verdict, length, n ? ", " : "\n  live by category: ");
        append_readable(verdict, length, fy_category_name((fy_category_t)largest),
                        pool->by_category[largest]);
    }
}

/* Hint: reserving this much more gives one segment that the request fills. */
static bool append_reserve(fy_oom_verdict_t *verdict, size_t *length, const fy__pool_t *pool,
                           uint64_t nbytes)
{
    const uint64_t all = pool->reserved + nbytes;
    if (all > pool->options.limit_nbytes || all > pool->options.device_nbytes) return false;
    append(verdict, length, "%s fy_memory_reserve %llu more (%llu in all)",
           verdict->would_help ? ", or" : "\n  Would help:", (ull)nbytes, (ull)all);
    return true;
}

static void append_reserve_help(fy_oom_verdict_t *verdict, size_t *length, const fy__pool_t *pool,
                                uint64_t nbytes)
{
    if (verdict->reason == FY_OOM_LIMIT)
        append(verdict, length, "\n  Would help: a limit of at least %llu bytes",
               (ull)pool->reserved + nbytes);
    else if (verdict->reason == FY_OOM_TOO_LARGE)
        append(verdict, length, "\n  Freeing memory would not help: reserve less");
}

static void append_machine_help(fy_oom_verdict_t *verdict, size_t *length, const fy__pool_t *pool,
                                const char *which)
{
    const amount_t readable = about(verdict->would_help);
    const char *hint = pool->source.backing->hint;
    append(verdict, length, "\n  Would help: ");
    if (verdict->would_help)
        append(verdict, length, "free %llu live bytes (%s%s%s), or ", (ull)verdict->would_help,
               readable.text, comma_if(&readable), which);
    append(verdict, length, "ask for less%s%s", hint ? ", or " : "", hint ? hint : "");
}

/* The limit with which a segment of nbytes fits beside `held`. A higher limit may enlarge the fixed
 * blocks, which have a dedicated segment in large steps; then the limit must be higher still. */
static uint64_t limit_for(const fy__pool_t *pool, uint64_t held, uint64_t nbytes,
                          const survey_t *survey)
{
    enum { LARGE_STEP = 2 << 20, ROUNDS = 64 };
    const uint64_t fixed = survey->fixed_nbytes;
    uint64_t limit = held + nbytes, need = limit;
    if (!held) limit = need += fy__pool_outside_for_good(pool) + fixed;
    for (int i = 0; i < ROUNDS && fixed && pool->source.fixed_at; i++) {
        const uint64_t then = pool->source.fixed_at(pool->source.user, limit);
        if (then <= fixed || limit >= need + then - fixed + LARGE_STEP) break;
        limit = need + then - fixed + LARGE_STEP;
    }
    return limit;
}

static void append_help(fy_oom_verdict_t *verdict, size_t *length, const fy__pool_t *pool,
                        uint64_t nbytes, const fy__refusal_t *refusal, const survey_t *survey,
                        const char *which)
{
    const ull help = (ull)verdict->would_help;
    if (verdict->reason == FY_OOM_MACHINE) {
        append_machine_help(verdict, length, pool, which);
        return;
    }
    if (refusal->is_reserve) {
        append_reserve_help(verdict, length, pool, nbytes);
        return;
    }
    switch (verdict->reason) {
    case FY_OOM_WOULD_FIT_AFTER_SYNC:
        append(verdict, length, "\n  It would fit after a sync: wait for the device first");
        return;
    case FY_OOM_TOO_LARGE:
        append(verdict, length, "\n  Freeing memory would not help: ask for less");
        return;
    default: break;
    }
    if (nbytes > verdict->limit) {
        append(verdict, length, "\n  Would help: a limit of at least %llu bytes",
               (ull)limit_for(pool, 0, nbytes, survey));
        return;
    }
    const amount_t readable = about(verdict->would_help);
    if (help)
        append(verdict, length, "\n  Would help: free %llu live bytes (%s%s%s)", help,
               readable.text, comma_if(&readable), which);
    if (refusal->growth_off && append_reserve(verdict, length, pool, nbytes)) return;
    /* A limit above the device's memory is no help. */
    const uint64_t limit = limit_for(pool, verdict->reserved, nbytes, survey);
    if ((refusal->limit_refused || fy__pool_is_hopeless(pool, nbytes)) && limit > verdict->limit &&
        limit <= pool->options.device_nbytes)
        append(verdict, length, "%s a limit higher by %llu bytes",
               help ? ", or" : "\n  Would help:", (ull)(limit - verdict->limit));
}

/* The bytes that must be released to the source before a segment of nbytes fits: the excess over
 * the limit, or the bytes that the source refused. */
static uint64_t back_for(const fy__pool_t *pool, uint64_t nbytes, const fy__refusal_t *refusal)
{
    if (refusal->machine_refused)
        return nbytes > refusal->machine_nbytes ? nbytes - refusal->machine_nbytes : 0;
    if (!refusal->limit_refused) return nbytes;
    const uint64_t room = fy__pool_limit_beside(pool, fy__pool_outside_for_good(pool)) - nbytes;
    return pool->reserved > room ? pool->reserved - room : 0;
}

static fy_oom_reason_t reason_of(const fy__pool_t *pool, const fy__request_t *request,
                                 const fy__refusal_t *refusal, const survey_t *survey,
                                 uint64_t back)
{
    const uint64_t nbytes = request->nbytes;
    if (fy__pool_is_too_large(pool, nbytes)) return FY_OOM_TOO_LARGE;
    if (refusal->is_reserve && !request->no_nodes &&
        nbytes + pool->reserved > pool->options.device_nbytes)
        return FY_OOM_TOO_LARGE;
    if (refusal->is_reserve && refusal->machine_refused) return FY_OOM_MACHINE;
    if (refusal->is_reserve) return refusal->limit_refused ? FY_OOM_LIMIT : FY_OOM_DEVICE_FULL;
    if (fy__pool_is_hopeless(pool, nbytes)) return FY_OOM_LIMIT;
    if (request->no_nodes) return FY_OOM_DEVICE_FULL;
    /* released segments make room for one that fits */
    const bool may_swap = !refusal->growth_off && survey->idle_nbytes >= back;
    if (refusal->sync_forbidden && (survey->largest_free >= nbytes || may_swap))
        return FY_OOM_WOULD_FIT_AFTER_SYNC;
    if (refusal->growth_off) return FY_OOM_GROWTH_OFF;
    if (pool->reserved - pool->live >= nbytes) return FY_OOM_FRAGMENTED;
    if (refusal->machine_refused) return FY_OOM_MACHINE;
    return refusal->limit_refused ? FY_OOM_LIMIT : FY_OOM_DEVICE_FULL;
}

/* Releasing everything in the pool is not enough: memory outside the pool, under the same limit,
 * must be released as well. */
static uint64_t help_of_outside(const fy__pool_t *pool, uint64_t nbytes, const survey_t *survey,
                                const char **out_which)
{
    const uint64_t limit = pool->options.limit_nbytes, outside = fy__pool_outside_for_good(pool),
                   loose = pool->live - survey->fixed_nbytes;
    const uint64_t stays = pool->reserved - survey->loose_nbytes + nbytes;
    if (!outside || stays > limit || limit - stays < pool->options.outside_least_nbytes) return 0;
    *out_which = loose ? "all in the pool, and some page-locked outside of it"
                       : "page-locked outside the pool";
    return loose + (outside + stays > limit ? outside + stays - limit : 0);
}

/* Live bytes to free so that a segment has room, or can be released; at worst all of them, if that
 * releases enough. */
static uint64_t help_of(const fy__pool_t *pool, uint64_t nbytes, const fy__refusal_t *refusal,
                        const survey_t *survey, uint64_t back, const char **out_which)
{
    if (refusal->growth_off) { /* released segments cannot be requested again */
        *out_which = "adjacent, in one segment";
        return survey->least_live_window != UINT64_MAX ? survey->least_live_window : 0;
    }
    if (survey->least_live_window <= survey->least_live_segment &&
        survey->least_live_window != UINT64_MAX) {
        *out_which = "adjacent, in one segment";
        return survey->least_live_window;
    }
    if (survey->least_live_segment != UINT64_MAX) {
        *out_which = "all those of one segment";
        return survey->least_live_segment;
    }
    *out_which = "all there are";
    if (survey->loose_nbytes >= back && !fy__pool_is_hopeless(pool, nbytes))
        return pool->live - survey->fixed_nbytes;
    return help_of_outside(pool, nbytes, survey, out_which);
}

static void append_request(fy_oom_verdict_t *verdict, size_t *length, const fy__pool_t *pool,
                           const fy__request_t *request, const fy__refusal_t *refusal)
{
    append(verdict, length, "%s: %llu bytes asked for", pool->name, (ull)request->asked);
    if (refusal->is_reserve)
        append(verdict, length, " besides the %llu that are reserved", (ull)verdict->reserved);
    const amount_t readable = about(request->asked);
    if (request->nbytes != request->asked)
        append(verdict, length, " (%s%s%llu as rounded)", readable.text, comma_if(&readable),
               (ull)request->nbytes);
    else if (readable.text[0])
        append(verdict, length, " (%s)", readable.text);
    if (request->no_nodes)
        append(verdict, length, ": the host has no memory for the pool's own bookkeeping");
    else if (request->nbytes > pool->options.device_nbytes ||
             (refusal->is_reserve && verdict->reason == FY_OOM_TOO_LARGE))
        append(verdict, length, ": more than the %llu bytes the device has",
               (ull)pool->options.device_nbytes);
    else if (verdict->reason == FY_OOM_TOO_LARGE)
        append(verdict, length, ": more than an address space has");
    else if (verdict->reason == FY_OOM_LIMIT)
        append(verdict, length, ": more than the limit leaves");
    else if (verdict->reason == FY_OOM_GROWTH_OFF)
        append(verdict, length, ": the cache has no such block, and growth=off");
    else if (verdict->reason == FY_OOM_FRAGMENTED)
        append(verdict, length, ": enough is free, but not in one piece");
    else if (verdict->reason == FY_OOM_MACHINE)
        append(verdict, length, ": more than the %s that this machine has available",
               amount(refusal->machine_nbytes).text);
    else if (verdict->reason == FY_OOM_DEVICE_FULL)
        append(verdict, length,
               refusal->hook_refused ? ": the program's allocator (fy_device_options_t) has no more"
                                     : ": the device has no more");
}

FY_COLD fy_status_t fy__pool_verdict(fy__pool_t *pool, const fy__request_t *request,
                                     const fy__refusal_t *refusal)
{
    const char *which = "";
    size_t length = 0;
    fy_oom_verdict_t verdict = { .struct_size = sizeof verdict,
                                 .status = pool->options.full_status };
    if (pool->source.top_scopes) pool->source.top_scopes(pool->source.user, &verdict);
    pthread_mutex_lock(&pool->lock);
    /* freeing memory does not help */
    const bool hopeless = refusal->is_reserve || fy__pool_is_hopeless(pool, request->nbytes);
    const uint64_t outside = fy__pool_outside(pool);
    const uint64_t back = hopeless ? 0 : back_for(pool, request->nbytes, refusal);
    const survey_t survey = survey_pool(pool, request->nbytes, back);
    verdict.reason = reason_of(pool, request, refusal, &survey, back);
    verdict.asked = request->asked;
    verdict.limit = pool->options.limit_nbytes;
    verdict.live = pool->live + outside;
    verdict.cached = pool->reserved - pool->live;
    verdict.pending = pool->pending_nbytes + pool->inspected_nbytes;
    verdict.reserved = pool->reserved + outside;
    verdict.largest_free = survey.largest_free;
    if (!hopeless && !request->no_nodes) verdict.tried = tried_of(refusal);
    if (!hopeless && !request->no_nodes && verdict.reason != FY_OOM_WOULD_FIT_AFTER_SYNC)
        verdict.would_help = help_of(pool, request->nbytes, refusal, &survey, back, &which);
    if (!refusal->is_reserve && hopeless)
        verdict.would_help = help_of_outside(pool, request->nbytes, &survey, &which);
    /* The important parts come first: the error record holds half as much. */
    append_request(&verdict, &length, pool, request, refusal);
    append_figures(&verdict, &length, pool, outside);
    if (!request->no_nodes)
        append_help(&verdict, &length, pool, request->nbytes, refusal, &survey, which);
    if (verdict.tried) append_tried(&verdict, &length, refusal);
    if (!request->no_nodes) append_owners(&verdict, &length, pool);
    pool->stats.verdicts++;
    pthread_mutex_unlock(&pool->lock);
    return fy__fail_with_verdict(__FILE__, __LINE__, &verdict);
}
