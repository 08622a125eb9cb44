/* The step is the repeated path whose last name is "step"; else the repeated path with the most
 * time. */
#include "tools/report/scope_times.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

enum { REPEATED = 3 };

static void add(scope_time_t *time, const slice_t *slice, const shares_t *shares)
{
    if (!time->count++ || slice->start_ns < time->first_ns) time->first_ns = slice->start_ns;
    if (slice->end_ns > time->last_ns) time->last_ns = slice->end_ns;
    time->total_ns += slice->end_ns - slice->start_ns;
    shares_add(shares, slice->start_ns, slice->end_ns, time->sums);
}

static bool is_named_step(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strcmp(slash ? slash + 1 : path, "step") == 0;
}

static uint32_t find_step(const slices_t *slices, const scope_times_t *times)
{
    uint32_t best = 0;
    bool best_is_named = false;
    for (uint32_t i = 0; i < times->ntexts; i++) {
        const scope_time_t *time = &times->by_text[i];
        if (time->count < REPEATED) continue;
        const bool is_named = is_named_step(slices->texts[i]);
        const scope_time_t *than = &times->by_text[best];
        if (than->count >= REPEATED &&
            (best_is_named > is_named ||
             (best_is_named == is_named && than->total_ns >= time->total_ns)))
            continue;
        best = i;
        best_is_named = is_named;
    }
    return best;
}

static uint64_t median_of_step(const slices_t *slices, uint32_t step, uint64_t count)
{
    double *lengths = tool_alloc(count * sizeof *lengths);
    size_t n = 0;
    for (size_t i = 0; i < slices->nlanes; i++) {
        const lane_t *lane = &slices->lanes[i];
        for (size_t j = 0; lane->depth && j < lane->count; j++)
            if (lane->slices[j].scope == step)
                lengths[n++] = (double)(lane->slices[j].end_ns - lane->slices[j].start_ns);
    }
    const uint64_t middle = (uint64_t)median(lengths, n);
    free(lengths);
    return middle;
}

void scope_times_find(const slices_t *slices, const shares_t *shares, scope_times_t *out_times)
{
    const size_t room = slices->ntexts ? slices->ntexts : 1;
    *out_times = (scope_times_t){ tool_alloc(room * sizeof(scope_time_t)), room, false, 0, 0 };
    memset(out_times->by_text, 0, room * sizeof(scope_time_t));
    for (size_t i = 0; i < slices->nlanes; i++) {
        const lane_t *lane = &slices->lanes[i];
        for (size_t j = 0; lane->depth && j < lane->count; j++)
            add(&out_times->by_text[lane->slices[j].scope], &lane->slices[j], shares);
    }
    if (!slices->ntexts) return;
    out_times->step = find_step(slices, out_times);
    const scope_time_t *step = &out_times->by_text[out_times->step];
    out_times->has_step = step->count >= REPEATED;
    if (out_times->has_step)
        out_times->step_median_ns = median_of_step(slices, out_times->step, step->count);
}

void scope_times_free(scope_times_t *times)
{
    free(times->by_text);
    *times = (scope_times_t){ .ntexts = 0 };
}
