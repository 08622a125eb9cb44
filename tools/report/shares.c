/* Counts the open slices of each share while it walks over their sorted ends. */
#include "tools/report/shares.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/event_totals.h"
#include "tools/cli/tool.h"
#include "tools/timeline/tracks.h"

enum { RANKS_BESIDE = SHARES, OPEN }; /* a call between ranks, of another thread */

typedef struct edge {
    uint64_t at_ns;
    int32_t step; /* 1: a slice begins; -1: it ends */
    int share;    /* or RANKS_BESIDE */
} edge_t;

static int compare_edges(const void *a, const void *b)
{
    const edge_t *x = a, *y = b;
    return x->at_ns < y->at_ns ? -1 : x->at_ns > y->at_ns;
}

/* SHARE_HOST: none. */
static share_t share_of(const slices_t *slices, const slice_t *slice, bool is_host, bool is_ranks,
                        bool is_model)
{
    const char *name = slices->texts[slice->name];
    const share_t transfer = strcmp(name, "upload") == 0        ? SHARE_UPLOAD
                             : strstr(name, "download") != NULL ? SHARE_DOWNLOAD
                             : strcmp(name, "peer") == 0        ? SHARE_PEER
                                                                : SHARE_HOST;
    if (is_ranks) return SHARE_RANKS;
    if (slice->kind == SLICE_OP) return is_host ? SHARE_HOST_OP : SHARE_COMPUTE;
    if (!is_host || (!is_model && transfer != SHARE_HOST)) return transfer;
    if (slice->kind == SLICE_WAIT) return is_model ? SHARE_HOST : SHARE_WAIT;
    return is_model && transfer != SHARE_HOST ? SHARE_CALL : SHARE_HOST;
}

/* The host's thread that the shares of the wall clock are of; NULL: there is none. */
static const lane_t *first_thread(const slices_t *slices)
{
    const lane_t *first = NULL;
    for (size_t i = 0; i < slices->nlanes; i++) {
        const lane_t *lane = &slices->lanes[i];
        if (lane->depth == 1 && (!first || lane->track.thread < first->track.thread)) first = lane;
    }
    return first;
}

static size_t list_edges(const slices_t *slices, bool is_model, edge_t *edges)
{
    const lane_t *thread = first_thread(slices);
    size_t count = 0;
    for (size_t i = 0; i < slices->nlanes; i++) {
        const lane_t *lane = &slices->lanes[i];
        const bool is_host = lane->track.process <= TRACKS_HOST_PROCESS + TRACKS_WALL;
        const bool is_ranks = is_host && lane->track.thread > TRACKS_RANKS;
        const uint32_t number = lane->track.thread - (is_ranks ? TRACKS_RANKS : 0);
        const bool is_beside = !is_model && thread && number != thread->track.thread;
        if (lane->depth || (is_beside && !is_ranks)) continue;
        for (size_t j = 0; j < lane->count; j++) {
            const slice_t *slice = &lane->slices[j];
            const int share = is_beside ? RANKS_BESIDE
                                        : (int)share_of(slices, slice, is_host, is_ranks, is_model);
            if (share == SHARE_HOST || slice->end_ns == slice->start_ns) continue;
            edges[count++] = (edge_t){ slice->start_ns, 1, share };
            edges[count++] = (edge_t){ slice->end_ns, -1, share };
        }
    }
    qsort(edges, count, sizeof *edges, compare_edges);
    return count;
}

static share_t first_open(const int64_t open[OPEN])
{
    int share = 0;
    while (share < SHARE_HOST && !open[share]) share++;
    return share == SHARE_WAIT && open[RANKS_BESIDE] ? SHARE_RANKS : (share_t)share;
}

static void change(shares_t *shares, uint64_t at_ns, share_t share)
{
    share_change_t *last = shares->count ? &shares->changes[shares->count - 1] : NULL;
    if (last && last->share == share) return;
    if (last && last->at_ns == at_ns) { /* the share before had no length */
        last->share = share;
        return;
    }
    shares->changes = tool_grow(shares->changes, shares->count, sizeof *last);
    shares->changes[shares->count++] = (share_change_t){ at_ns, share };
}

/* Adds the shares between two changes, times `sign`. */
static void add_between(const shares_t *shares, size_t from, size_t until, int64_t sign,
                        uint64_t sums[SHARES])
{
    const share_change_t *change = shares->changes;
    for (size_t i = from; i < until; i++)
        sums[change[i].share] += (uint64_t)sign * (change[i + 1].at_ns - change[i].at_ns);
}

static void sum_changes(shares_t *shares)
{
    const size_t count = (shares->count - 1) / SHARES_EACH + 1;
    shares->before = tool_alloc(count * sizeof *shares->before);
    for (size_t i = 1; i < count; i++) {
        memcpy(shares->before[i], shares->before[i - 1], sizeof shares->before[i]);
        add_between(shares, (i - 1) * SHARES_EACH, i * SHARES_EACH, 1, shares->before[i]);
    }
}

void shares_find(const slices_t *slices, bool is_model, shares_t *out_shares)
{
    int64_t open[OPEN] = { 0 };
    size_t room = 1;
    for (size_t i = 0; i < slices->nlanes; i++) room += 2 * slices->lanes[i].count;
    edge_t *edges = tool_alloc(room * sizeof *edges);
    const size_t count = list_edges(slices, is_model, edges);
    *out_shares = (shares_t){ .count = 0 };
    change(out_shares, 0, SHARE_HOST);
    for (size_t i = 0; i < count; i++) {
        const uint64_t at_ns = edges[i].at_ns;
        open[edges[i].share] += edges[i].step;
        if (i + 1 < count && edges[i + 1].at_ns == at_ns) continue;
        change(out_shares, at_ns, first_open(open));
        for (int share = 0; share < SHARES && i + 1 < count; share++)
            if (open[share] || (share == SHARE_RANKS && open[RANKS_BESIDE]))
                out_shares->busy_ns[share] += edges[i + 1].at_ns - at_ns;
    }
    free(edges);
    sum_changes(out_shares);
}

/* Adds the shares before `at_ns`, or subtracts them. */
static void add_before(const shares_t *shares, uint64_t at_ns, int64_t sign, uint64_t sums[SHARES])
{
    size_t low = 0, high = shares->count;
    while (low < high) { /* the last change at at_ns or before; the first one is at 0 */
        const size_t middle = low + (high - low) / 2;
        if (shares->changes[middle].at_ns <= at_ns)
            low = middle + 1;
        else
            high = middle;
    }
    const size_t kept = (low - 1) / SHARES_EACH;
    const share_change_t *last = &shares->changes[low - 1];
    for (int share = 0; share < SHARES; share++)
        sums[share] += (uint64_t)sign * shares->before[kept][share];
    add_between(shares, kept * SHARES_EACH, low - 1, sign, sums);
    sums[last->share] += (uint64_t)sign * (at_ns - last->at_ns);
}

void shares_add(const shares_t *shares, uint64_t begin_ns, uint64_t end_ns, uint64_t sums[SHARES])
{
    add_before(shares, end_ns, 1, sums);
    add_before(shares, begin_ns, -1, sums);
}

void shares_free(shares_t *shares)
{
    free(shares->changes);
    free(shares->before);
    *shares = (shares_t){ .count = 0 };
}

/* ---- scopes ---- */

static void add_slice(scope_time_t *time, const slice_t *slice, const shares_t *shares)
{
    if (!time->count++ || slice->start_ns < time->first_ns) time->first_ns = slice->start_ns;
    if (slice->end_ns > time->last_ns) time->last_ns = slice->end_ns;
    time->total_ns += slice->end_ns - slice->start_ns;
    shares_add(shares, slice->start_ns, slice->end_ns, time->sums);
}

/* The last step's end, or the end of the last request that a step made. */
static uint64_t end_of_steps(const slices_t *slices, const scope_times_t *times)
{
    const char *step = slices->texts[times->step];
    uint64_t end_ns = times->by_text[times->step].last_ns;
    bool *is_inside = tool_alloc(times->ntexts * sizeof *is_inside);
    for (size_t i = 0; i < times->ntexts; i++)
        is_inside[i] = event_is_inside(slices->texts[i], step);
    for (size_t i = 0; i < slices->nlanes; i++) {
        const lane_t *lane = &slices->lanes[i];
        for (size_t j = 0; !lane->depth && j < lane->count; j++)
            if (lane->slices[j].end_ns > end_ns && is_inside[lane->slices[j].scope])
                end_ns = lane->slices[j].end_ns;
    }
    free(is_inside);
    return end_ns;
}

void scope_times_find(const slices_t *slices, const shares_t *shares, const char *step_path,
                      scope_times_t *out_times)
{
    const size_t room = slices->ntexts ? slices->ntexts : 1;
    *out_times = (scope_times_t){ tool_alloc(room * sizeof(scope_time_t)), room, false, 0, 0 };
    for (size_t i = 0; i < slices->nlanes; i++) {
        const lane_t *lane = &slices->lanes[i];
        for (size_t j = 0; lane->depth && j < lane->count; j++)
            add_slice(&out_times->by_text[lane->slices[j].scope], &lane->slices[j], shares);
    }
    for (uint32_t i = 0; *step_path && i < slices->ntexts && !out_times->has_step; i++) {
        out_times->has_step = strcmp(slices->texts[i], step_path) == 0 &&
                              out_times->by_text[i].count;
        out_times->step = i;
    }
    if (out_times->has_step) out_times->step_end_ns = end_of_steps(slices, out_times);
}

void scope_times_free(scope_times_t *times)
{
    free(times->by_text);
    *times = (scope_times_t){ .ntexts = 0 };
}
