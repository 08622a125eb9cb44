/* Adds up the slices of scopes. */
#include "tools/report/shares.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/event_totals.h"
#include "tools/cli/tool.h"

static void add(scope_time_t *time, const slice_t *slice, const shares_t *shares)
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
    memset(out_times->by_text, 0, room * sizeof(scope_time_t));
    for (size_t i = 0; i < slices->nlanes; i++) {
        const lane_t *lane = &slices->lanes[i];
        for (size_t j = 0; lane->depth && j < lane->count; j++)
            add(&out_times->by_text[lane->slices[j].scope], &lane->slices[j], shares);
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
