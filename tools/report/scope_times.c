/* The step is the repeated path whose last name is "step"; else the repeated path with the most
 * time. */
#include "tools/report/scope_times.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/event_totals.h"
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
    if (out_times->has_step) out_times->step_end_ns = end_of_steps(slices, out_times);
}

void scope_times_free(scope_times_t *times)
{
    free(times->by_text);
    *times = (scope_times_t){ .ntexts = 0 };
}
