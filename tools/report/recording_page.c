/* Slices are written as columns; a column whose values are all the default is left out. Starts are
 * differences, because they are the longest numbers. */
#include "tools/report/recording.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/event_totals.h"
#include "tools/cli/tool.h"

enum { POINTS_MOST = 4000, OWNERS_MOST = 200 };

/* A list: `put` writes its value number i. */
#define PUT_LIST(page, key, count, put)           \
    do {                                          \
        page_begin(page, key, '[');               \
        for (size_t i = 0; i < (count); i++) put; \
        page_end(page, ']');                      \
    } while (0)

static void put_sums(page_t *page, const char *key, const uint64_t sums[SHARES])
{
    PUT_LIST(page, key, SHARES, page_whole(page, NULL, sums[i]));
}

/* ---- figures ---- */

/* Keys and values, each ended by 0. */
static void put_pairs(page_t *page, const char *key, const char *pairs)
{
    page_begin(page, key, '{');
    for (const char *at = pairs; at && *at;) {
        const char *value = at + strlen(at) + 1;
        page_text(page, at, value);
        at = value + strlen(value) + 1;
    }
    page_end(page, '}');
}

static void put_step(page_t *page, const recording_t *run)
{
    const scope_time_t *step = &run->times.by_text[run->times.step];
    if (!run->times.has_step) return;
    page_begin(page, "step", '{');
    page_text(page, "path", run->slices.texts[run->times.step]);
    page_whole(page, "count", step->count);
    page_whole(page, "first_ns", step->first_ns);
    page_whole(page, "last_ns", run->times.step_end_ns);
    page_end(page, '}');
}

/* Time and shares of each row of "scopes"; count 0: the path has only inner scopes. */
static void put_times(page_t *page, recording_t *run)
{
    size_t count;
    char **paths = event_totals_paths(&run->totals, &count);
    page_begin(page, "times", '[');
    for (size_t i = 0; i < count; i++) {
        const uint32_t text = slices_text(&run->slices, paths[i]);
        scope_time_t time = { .count = 0 };
        if (*paths[i] && text < run->times.ntexts)
            time = run->times.by_text[text];
        else if (!*paths[i]) {
            time.count = 1;
            time.total_ns = run->end_ns;
            shares_add(&run->shares, 0, run->end_ns, time.sums);
        }
        page_begin(page, NULL, '{');
        page_whole(page, "count", time.count);
        page_whole(page, "total_ns", time.total_ns);
        put_sums(page, "shares", time.sums);
        page_end(page, '}');
        free(paths[i]);
    }
    page_end(page, ']');
    free(paths);
}

static void put_tables(page_t *page, recording_t *run)
{
    const fy_ledger_totals_t all = event_totals_of(&run->totals, "");
    sheet_t *const sheets[] = { event_scope_sheet(&run->totals, ""), event_path_sheet(&all),
                                event_site_sheet(&run->totals, SIZE_MAX),
                                event_pool_sheet(&run->totals) };
    static const char *const keys[] = { "scopes", "paths", "sites", "pools" };
    for (int i = 0; i < 4; i++) {
        page_sheet(page, keys[i], sheets[i]);
        sheet_destroy(sheets[i]);
    }
    put_times(page, run);
}

static void put_figures(page_t *page, recording_t *run)
{
    uint64_t sums[SHARES];
    const uint64_t total_ns = recording_shares(run, false, sums);
    page_text(page, "file", run->file);
    page_whole(page, "events", run->info.events);
    page_whole(page, "lost", run->info.lost);
    page_whole(page, "whole", run->info.is_whole);
    page_whole(page, "waits", run->totals.waits);
    page_whole(page, "refusals", run->totals.refusals);
    page_whole(page, "faults", run->totals.faults);
    page_text(page, "clock", run->clock == TRACKS_MODEL ? "model" : "wall");
    page_whole(page, "end_ns", run->end_ns);
    page_whole(page, "wall_ns", run->wall_ns);
    page_whole(page, "part_ns", total_ns);
    put_sums(page, "shares", sums);
    put_sums(page, "busy", run->shares.busy_ns);
    if (run->findings.json) page_json(page, "advice", run->findings.json);
    page_whole(page, "advised", run->findings.nfirst);
    put_pairs(page, "header", run->header);
    put_pairs(page, "devices", run->devices);
    put_step(page, run);
}

/* ---- slices ---- */

#define COLUMN(key, field, fallback)                                                     \
    do {                                                                                 \
        bool differs = false;                                                            \
        for (size_t i = 0; i < lane->count && !differs; i++)                             \
            differs = lane->slices[i].field != (fallback);                               \
        if (!differs) break;                                                             \
        PUT_LIST(page, key, lane->count, page_whole(page, NULL, lane->slices[i].field)); \
    } while (0)

static void put_lane(page_t *page, const lane_t *lane)
{
    uint64_t last_ns = 0;
    page_begin(page, NULL, '{');
    page_whole(page, "process", lane->track.process);
    page_whole(page, "thread", lane->track.thread);
    page_whole(page, "depth", lane->depth);
    page_whole(page, "name", lane->name);
    page_whole(page, "count", lane->count);
    page_begin(page, "start", '[');
    for (size_t i = 0; i < lane->count; i++) {
        page_whole(page, NULL, lane->slices[i].start_ns - last_ns);
        last_ns = lane->slices[i].start_ns;
    }
    page_end(page, ']');
    PUT_LIST(page, "length", lane->count,
             page_whole(page, NULL, lane->slices[i].end_ns - lane->slices[i].start_ns));
    COLUMN("text", name, 0);
    COLUMN("kind", kind, 0);
    COLUMN("scope", scope, 0);
    COLUMN("bytes", nbytes, 0);
    COLUMN("flops", flops, 0);
    COLUMN("site", site, 0);
    COLUMN("path", path, 0);
    COLUMN("tensors", tensors, 0);
    COLUMN("merged", count, 1);
    bool is_merged = false;
    for (size_t i = 0; i < lane->count && !is_merged; i++) is_merged = lane->slices[i].count > 1;
    if (is_merged) COLUMN("busy", busy_ns, UINT64_MAX);
    page_end(page, '}');
}

static int compare_arrows(const void *a, const void *b)
{
    const arrow_t *x = a, *y = b;
    if (x->to_lane != y->to_lane) return x->to_lane < y->to_lane ? -1 : 1;
    return x->to_slice < y->to_slice ? -1 : x->to_slice > y->to_slice;
}

/* Five numbers an arrow: lane and slice that it begins in, lane and slice that it ends in, name. */
static void put_arrows(page_t *page, const slices_t *slices)
{
    if (slices->narrows)
        qsort(slices->arrows, slices->narrows, sizeof *slices->arrows, compare_arrows);
    page_begin(page, "arrows", '[');
    for (size_t i = 0; i < slices->narrows; i++) {
        page_whole(page, NULL, slices->arrows[i].from_lane);
        page_whole(page, NULL, slices->arrows[i].from_slice);
        page_whole(page, NULL, slices->arrows[i].to_lane);
        page_whole(page, NULL, slices->arrows[i].to_slice);
        page_whole(page, NULL, slices->arrows[i].name);
    }
    page_end(page, ']');
}

static void put_slices(page_t *page, const recording_t *run)
{
    const slices_t *slices = &run->slices;
    page_begin(page, "thin", '{');
    page_whole(page, "before", run->thin.before);
    page_whole(page, "from_ns", run->thin.from_ns);
    page_whole(page, "until_ns", run->thin.until_ns);
    page_end(page, '}');
    PUT_LIST(page, "processes", slices->nprocesses,
             page_text(page, NULL, slices->processes[i] ? slices->processes[i] : ""));
    PUT_LIST(page, "lanes", slices->nlanes, put_lane(page, &slices->lanes[i]));
    put_arrows(page, slices);
}

/* ---- memory ---- */

static void put_points(page_t *page, const recording_t *run, const block_pool_t *pool)
{
    size_t count;
    block_point_t *points = blocks_points(pool, run->clock, POINTS_MOST, &count);
    PUT_LIST(page, "at", count,
             page_whole(page, NULL, points[i].at_ns - (i ? points[i - 1].at_ns : 0)));
    PUT_LIST(page, "total", count, page_whole(page, NULL, points[i].total));
    page_begin(page, "by_category", '[');
    for (size_t category = 0; category < run->blocks.ncategories; category++)
        PUT_LIST(page, NULL, count, page_whole(page, NULL, points[i].by_category[category]));
    page_end(page, ']');
    free(points);
}

/* Five numbers an owner: scope, category, bytes, blocks, name. */
static void put_owners(page_t *page, const block_pool_t *pool)
{
    size_t count;
    block_owner_t *owners = blocks_owners(pool, &count);
    page_begin(page, "owners", '[');
    for (size_t i = 0; i < count && i < OWNERS_MOST; i++) {
        page_whole(page, NULL, owners[i].scope);
        page_whole(page, NULL, owners[i].category);
        page_whole(page, NULL, owners[i].nbytes);
        page_whole(page, NULL, owners[i].count);
        page_whole(page, NULL, owners[i].name);
    }
    page_end(page, ']');
    page_whole(page, "owners_in_all", count);
    free(owners);
}

static void put_memory(page_t *page, const recording_t *run)
{
    PUT_LIST(page, "categories", run->blocks.ncategories,
             page_text(page, NULL, run->blocks.categories[i]));
    page_begin(page, "memory", '[');
    for (size_t i = 0; i < run->blocks.npools; i++) {
        const block_pool_t *pool = &run->blocks.pools[i];
        const block_step_t *peak = pool->peak_at ? &pool->steps[pool->peak_at - 1] : NULL;
        page_begin(page, NULL, '{');
        page_text(page, "pool", pool->name);
        page_whole(page, "peak", pool->peak);
        page_whole(page, "peak_ns", peak ? peak->at_ns[run->clock] : 0);
        page_whole(page, "before", pool->before);
        put_points(page, run, pool);
        put_owners(page, pool);
        page_end(page, '}');
    }
    page_end(page, ']');
}

void recording_page_write(page_t *page, recording_t *run)
{
    page_begin(page, NULL, '{');
    put_figures(page, run);
    put_tables(page, run);
    put_memory(page, run);
    put_slices(page, run);
    PUT_LIST(page, "texts", run->slices.ntexts, page_text(page, NULL, run->slices.texts[i]));
    page_end(page, '}');
}
