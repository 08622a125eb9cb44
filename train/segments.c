/* Segments of activation checkpointing that fit a memory limit. Units are the layers between two
 * places where a segment can end. Plans with one unit, and with two neighbours, computed again
 * measure what each keeps and costs. From these a table finds the segments with the fewest
 * operations for a bound of kept bytes; plans find the bounds that fit.
 * Model of the memory: on the way back through a segment, all that is kept before it is there, and
 * all that its layers keep. Not here: running segments (model_run.c). */
#include <ferry/train/segments.h>

#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "train/abi.h"

enum { UNITS = FY_SEGMENTS_CAPACITY, LEVELS = 512, BOUNDS = 32 };

typedef struct search {
    const char *spec;
    fy_model_open_fn open;
    fy_model_step_fn step;
    void *user;
    int64_t batch;
    fy_model_options_t options;
    size_t nunits,
        places[UNITS + 1];  /* unit i: the layers from places[i] to before places[i + 1] */
    uint64_t full[UNITS];   /* bytes that a unit keeps for the backward */
    uint64_t result[UNITS]; /* of these, those of its result */
    uint64_t flops[UNITS];  /* of a second time */
    /* of the plan that runs: live bytes so far, and where the backward last began */
    uint64_t live, kept;
    int is_back;
    fy_segments_t equal; /* the segments of the model that runs, if options.recompute made them */
    /* the best so far */
    fy_segments_t best;
    fy_plan_t plan;
    int has_best;
} search_t;

/* ---- plans ---- */

static void list_places(search_t *search, const fy_model_t *model)
{
    size_t count = 0, next = 0;
    for (size_t end = 1; end <= model->nleaves; end++)
        count += (size_t)fyt_model_is_place(model, end);
    /* of more places than units every so many */
    const size_t units = count < UNITS ? count : UNITS;
    for (size_t end = 1; end <= model->nleaves; end++) {
        if (!fyt_model_is_place(model, end)) continue;
        next++;
        if (next * units / count > search->nunits) search->places[++search->nunits] = end;
    }
}

/* The outermost spans that begin and end at places. */
static void list_spans(fy_segments_t *out, const fy_model_t *model)
{
    *out = (fy_segments_t){ .struct_size = sizeof *out };
    for (size_t i = 0, end = 0; i < model->nspans && out->count < FY_SEGMENTS_CAPACITY; i++) {
        const fyt_span_t *span = &model->spans[i];
        if (span->first < end || !fyt_model_is_place(model, span->first) ||
            !fyt_model_is_place(model, span->end))
            continue;
        out->segments[out->count++] = (fy_segment_t){ span->first, span->end };
        end = span->end;
    }
}

static fy_status_t run(fy_device_t *device, int64_t batch, void *user)
{
    search_t *search = user;
    fy_model_t *model = NULL;
    FY_TRY(search->open(device, &search->options, search->user, &model));
    if (!search->nunits) list_places(search, model);
    if (search->options.recompute) list_spans(&search->equal, model);
    const fy_status_t status = search->step(model, batch, search->user);
    fy_model_destroy(model);
    return status;
}

static void on_point(void *user, const fy_plan_point_t *point)
{
    search_t *search = user;
    const int is_back = strstr(point->scope, "backward") != NULL;
    if (is_back && !search->is_back) search->kept = search->live;
    search->is_back = is_back;
    search->live = point->live;
}

static fy_status_t plan(search_t *search, size_t count, const fy_segment_t *segments,
                        fy_plan_t *out_plan)
{
    fy_plan_options_t options = FY_PLAN_OPTIONS_INIT;
    options.on_point = on_point;
    options.user = search;
    search->options.nsegments = count;
    search->options.segments = segments;
    search->live = search->kept = 0;
    search->is_back = 0;
    *out_plan = (fy_plan_t)FY_PLAN_INIT;
    return fy_plan_step(search->spec, run, search, search->batch, &options, out_plan);
}

/* What `count` units from `first` on save, and cost, when they are one segment. */
static fy_status_t measure(search_t *search, const fy_plan_t *plain, uint64_t plain_kept,
                           size_t first, size_t count, uint64_t *out_saved, uint64_t *out_flops)
{
    const fy_segment_t segment = { search->places[first], search->places[first + count] };
    fy_plan_t with;
    FY_TRY(plan(search, 1, &segment, &with));
    *out_saved = search->kept < plain_kept ? plain_kept - search->kept : 0;
    *out_flops = with.step_flops - plain->step_flops;
    return FY_STATUS_OK;
}

static fy_status_t measure_all(search_t *search, const fy_plan_t *plain)
{
    const uint64_t plain_kept = search->kept;
    uint64_t saved[UNITS] = { 0 }, both, flops;
    for (size_t i = 0; i < search->nunits; i++)
        FY_TRY(measure(search, plain, plain_kept, i, 1, &saved[i], &search->flops[i]));
    for (size_t i = 0; i < search->nunits; i++) {
        search->result[i] = 0;
        if (i + 1 < search->nunits) {
            FY_TRY(measure(search, plain, plain_kept, i, 2, &both, &flops));
            if (both > saved[i] + saved[i + 1]) search->result[i] = both - saved[i] - saved[i + 1];
        }
        search->full[i] = saved[i] + search->result[i];
    }
    return FY_STATUS_OK;
}

/* ---- the fewest operations for a bound ---- */

/* Units before which the table is, and about this much kept by them. */
typedef struct cell {
    int is_reached, is_span; /* is_span: the units since the cell before are a segment */
    uint64_t flops, kept;
    size_t unit, level; /* of the cell before */
} cell_t;

static void reach(cell_t *table, uint64_t bound, size_t unit, size_t level, size_t end,
                  uint64_t kept, uint64_t flops, int is_span)
{
    const size_t at = (size_t)((double)kept / (double)bound * (LEVELS - 1));
    cell_t *cell = &table[end * LEVELS + at];
    if (cell->is_reached && (cell->flops < flops || (cell->flops == flops && cell->kept <= kept)))
        return;
    *cell = (cell_t){ 1, is_span, flops, kept, unit, level };
}

static void fill(const search_t *search, cell_t *table, uint64_t bound)
{
    memset(table, 0, (search->nunits + 1) * LEVELS * sizeof *table);
    table[0].is_reached = 1;
    for (size_t i = 0; i < search->nunits; i++)
        for (size_t level = 0; level < LEVELS; level++) {
            const cell_t from = table[i * LEVELS + level];
            uint64_t full = from.kept, flops = from.flops;
            if (!from.is_reached) continue;
            for (size_t end = i; end < search->nunits; end++) {
                full += search->full[end];
                flops += search->flops[end];
                if (full > bound) break;
                if (end == i) reach(table, bound, i, level, i + 1, full, from.flops, 0);
                reach(table, bound, i, level, end + 1, from.kept + search->result[end], flops, 1);
            }
        }
}

/* 0: no segments keep within the bound. */
static int solve(const search_t *search, cell_t *table, uint64_t bound, fy_segments_t *out)
{
    const cell_t *last = &table[search->nunits * LEVELS], *cell = NULL;
    fy_segment_t reversed[UNITS];
    fill(search, table, bound);
    for (size_t level = 0; level < LEVELS; level++)
        if (last[level].is_reached && (!cell || last[level].flops < cell->flops))
            cell = &last[level];
    if (!cell) return 0;
    *out = (fy_segments_t){ .struct_size = sizeof *out };
    for (size_t end = search->nunits; end;) {
        if (cell->is_span)
            reversed[out->count++] =
                (fy_segment_t){ search->places[cell->unit], search->places[end] };
        end = cell->unit;
        cell = &table[cell->unit * LEVELS + cell->level];
    }
    for (size_t i = 0; i < out->count; i++) out->segments[i] = reversed[out->count - 1 - i];
    return 1;
}

/* ---- the search ---- */

/* Notes planned segments if they are better: they fit and cost less, or none fits and they reserve
 * less. */
static void note(search_t *search, const fy_plan_t *plain, const fy_plan_t *with,
                 fy_segments_t *segments)
{
    segments->flops = with->step_flops - plain->step_flops;
    segments->saved_nbytes = with->peak_live < plain->peak_live ? plain->peak_live - with->peak_live
                                                                : 0;
    const int is_better = !search->has_best || with->fits > search->plan.fits ||
                          (with->fits == search->plan.fits &&
                           (with->fits ? segments->flops < search->best.flops
                                       : with->peak_reserved < search->plan.peak_reserved));
    if (!is_better) return;
    search->has_best = 1;
    search->best = *segments;
    search->plan = *with;
}

static fy_status_t consider(search_t *search, const fy_plan_t *plain, fy_segments_t *segments,
                            int *out_fits)
{
    fy_plan_t with;
    FY_TRY(plan(search, segments->count, segments->segments, &with));
    *out_fits = with.fits;
    note(search, plain, &with, segments);
    return FY_STATUS_OK;
}

/* Those of fy_model_options_t.recompute. */
static fy_status_t consider_equal(search_t *search, const fy_plan_t *plain)
{
    fy_status_t status = FY_STATUS_OK;
    for (int count = 2; (size_t)count <= search->nunits && status == FY_STATUS_OK; count++) {
        fy_plan_t with;
        search->options.recompute = count;
        status = plan(search, 0, NULL, &with);
        if (status == FY_STATUS_OK) note(search, plain, &with, &search->equal);
    }
    search->options.recompute = 0;
    return status;
}

/* The largest bound that fits has the fewest operations, if the model of the memory is right. Else
 * any bound may fit. */
static fy_status_t search_bounds(search_t *search, const fy_plan_t *plain, cell_t *table)
{
    uint64_t least = 0, most = 0;
    fy_segments_t segments;
    for (size_t i = 0; i < search->nunits; i++) most += search->full[i];
    const uint64_t step = most / BOUNDS + 1;
    for (uint64_t bound = step; bound < most; bound += step) {
        int fits = 0;
        if (solve(search, table, bound, &segments))
            FY_TRY(consider(search, plain, &segments, &fits));
        if (fits) least = bound;
    }
    most = least + step;
    while (least && most - least > step / BOUNDS + 1) {
        const uint64_t bound = least + (most - least) / 2;
        int fits = 1;
        if (solve(search, table, bound, &segments))
            FY_TRY(consider(search, plain, &segments, &fits));
        if (fits)
            least = bound;
        else
            most = bound;
    }
    return FY_STATUS_OK;
}

/* The place before or behind one, which may be none of the search's. */
static size_t place_before(const search_t *search, size_t place)
{
    size_t i = 0;
    while (i < search->nunits && search->places[i + 1] < place) i++;
    return search->places[i];
}
static size_t place_behind(const search_t *search, size_t place)
{
    size_t i = 0;
    while (search->places[i] <= place) i++;
    return search->places[i];
}

/* Segments that lose a unit at an end and still fit cost less: the model of the memory knows
 * neither gradients nor workspace. */
static fy_status_t shorten(search_t *search, const fy_plan_t *plain)
{
    for (size_t i = 0; search->plan.fits && i < 2 * search->best.count;) {
        const uint64_t before = search->best.flops;
        fy_segments_t segments = search->best;
        fy_segment_t *segment = &segments.segments[i / 2];
        int fits;
        if (i % 2)
            segment->end = place_before(search, segment->end);
        else
            segment->first = place_behind(search, segment->first);
        if (segment->first >= segment->end) {
            memmove(segment, segment + 1, (segments.count - i / 2 - 1) * sizeof *segment);
            segments.count--;
        }
        FY_TRY(consider(search, plain, &segments, &fits));
        if (search->best.flops == before) i++;
    }
    return FY_STATUS_OK;
}

static fy_status_t find(search_t *search)
{
    fy_plan_t plain;
    fy_segments_t none = { .struct_size = sizeof none };
    int fits;
    FY_TRY(plan(search, 0, NULL, &plain));
    FY_TRY(consider(search, &plain, &none, &fits));
    if (fits || search->nunits < 2) return FY_STATUS_OK;
    cell_t *table = malloc((search->nunits + 1) * LEVELS * sizeof *table);
    if (!table)
        return FYT_FAIL(OUT_OF_MEMORY, "segments_fit: no host memory for %zu places",
                        search->nunits);
    fy_status_t status = measure_all(search, &plain);
    if (status == FY_STATUS_OK) status = consider_equal(search, &plain);
    if (status == FY_STATUS_OK) status = search_bounds(search, &plain, table);
    if (status == FY_STATUS_OK) status = shorten(search, &plain);
    free(table);
    return status;
}

fy_status_t fy_segments_fit(const char *spec, fy_model_open_fn open, fy_model_step_fn step,
                            void *user, int64_t batch, const fy_model_options_t *options,
                            fy_segments_t *out_segments, fy_plan_t *out_plan)
{
    search_t search = { .spec = spec, .open = open, .step = step, .user = user, .batch = batch };
    if (!spec || !open || !step || !out_segments)
        return FYT_FAIL(INVALID_ARGUMENT, "segments_fit: spec, open, step or out_segments is NULL");
    FY_TRY(FY__CHECK_OUT(segments, "segments_fit", out_segments));
    FY_TRY(FY__READ(model_options, "segments_fit", options, &search.options));
    if (search.options.recompute || search.options.offload || search.options.nsegments)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "segments_fit: it chooses the segments: set recompute, offload and "
                        "nsegments to 0");
    FY_TRY(find(&search));
    FY__WRITE(out_segments, &search.best);
    if (!out_plan) return FY_STATUS_OK;
    /* filled by the library that knows its size */
    fy_plan_options_t none = FY_PLAN_OPTIONS_INIT;
    search.options.nsegments = search.best.count;
    search.options.segments = search.best.segments;
    return fy_plan_step(spec, run, &search, batch, &none, out_plan);
}
