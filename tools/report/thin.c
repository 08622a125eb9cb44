/* Three eighths of the slices may stay before the merged part and as many behind it; the rest is
 * for merged ones. */
#include "tools/report/recording.h"

#include <stdlib.h>

#include "tools/cli/tool.h"

enum { BINS = 1 << 16, LONG = 4, KINDS_AT_ONCE = 3 };

static uint64_t end_of(const slices_t *slices, uint64_t *out_count)
{
    uint64_t end_ns = 0;
    *out_count = 0;
    for (size_t i = 0; i < slices->nlanes; i++) {
        const lane_t *lane = &slices->lanes[i];
        *out_count += lane->count;
        if (lane->count && lane->slices[lane->count - 1].start_ns >= end_ns)
            end_ns = lane->slices[lane->count - 1].start_ns + 1;
    }
    return end_ns;
}

/* The part between the first `most` and the last `most` slices. */
static void find_part(const slices_t *slices, uint64_t end_ns, uint64_t most, thin_t *thin)
{
    const uint64_t width = end_ns / BINS + 1;
    uint64_t *bins = tool_alloc(BINS * sizeof *bins), sum = 0;
    size_t bin = 0;
    for (size_t i = 0; i < slices->nlanes; i++)
        for (size_t j = 0; j < slices->lanes[i].count; j++)
            bins[slices->lanes[i].slices[j].start_ns / width]++;
    while (bin < BINS && sum + bins[bin] <= most) sum += bins[bin++];
    thin->from_ns = bin * width;
    for (sum = 0, bin = BINS; bin && sum + bins[bin - 1] <= most;) sum += bins[--bin];
    thin->until_ns = bin * width;
    if (thin->until_ns < thin->from_ns) thin->until_ns = thin->from_ns;
    free(bins);
}

/* Moves the part's ends to where a step ends or begins, if there is one in the parts in full. */
static void align(const slices_t *slices, uint32_t step, thin_t *thin)
{
    uint64_t from_ns = 0, until_ns = UINT64_MAX;
    for (size_t i = 0; i < slices->nlanes; i++) {
        const lane_t *lane = &slices->lanes[i];
        for (size_t j = 0; lane->depth && j < lane->count; j++) {
            const slice_t *slice = &lane->slices[j];
            if (slice->scope != step) continue;
            if (slice->end_ns <= thin->from_ns && slice->end_ns > from_ns) from_ns = slice->end_ns;
            if (slice->start_ns >= thin->until_ns && slice->start_ns < until_ns)
                until_ns = slice->start_ns;
        }
    }
    if (from_ns) thin->from_ns = from_ns;
    if (until_ns != UINT64_MAX) thin->until_ns = until_ns;
}

static bool can_join(const slice_t *into, const slice_t *slice, uint64_t width, uint64_t origin)
{
    return (into->start_ns - origin) / width == (slice->start_ns - origin) / width &&
           into->busy_ns <= LONG * width && slice->busy_ns <= LONG * width;
}

static void join(slice_t *into, const slice_t *slice, uint32_t several)
{
    if (slice->end_ns > into->end_ns) into->end_ns = slice->end_ns;
    into->busy_ns += slice->busy_ns;
    into->nbytes += slice->nbytes;
    into->flops += slice->flops;
    into->count += slice->count;
    if (into->name != slice->name) into->name = several;
    if (into->scope != slice->scope) into->scope = several;
    if (into->site != slice->site) into->site = several;
    if (into->path != slice->path) into->path = several;
    if (into->tensors != slice->tensors) into->tensors = several;
}

/* The kept slice that `slice` can join, among the last ones; SIZE_MAX: none. Kinds stay apart, so
 * that waits are seen between calls. */
static size_t find_partner(const lane_t *lane, size_t kept, const slice_t *slice,
                           const thin_t *thin, uint64_t width)
{
    for (size_t back = 1; back <= KINDS_AT_ONCE && back <= kept; back++) {
        const slice_t *into = &lane->slices[kept - back];
        if (into->start_ns < thin->from_ns) return SIZE_MAX;
        if (into->kind == slice->kind && can_join(into, slice, width, thin->from_ns))
            return kept - back;
    }
    return SIZE_MAX;
}

/* numbers[old] becomes the new number of each slice. */
static void thin_lane(lane_t *lane, const thin_t *thin, uint64_t width, uint32_t several,
                      uint64_t *numbers)
{
    size_t kept = 0;
    for (size_t i = 0; i < lane->count; i++) {
        const slice_t slice = lane->slices[i];
        const bool is_inside = slice.start_ns >= thin->from_ns && slice.start_ns < thin->until_ns;
        const size_t partner = is_inside ? find_partner(lane, kept, &slice, thin, width) : SIZE_MAX;
        if (partner != SIZE_MAX) {
            join(&lane->slices[partner], &slice, several);
            numbers[i] = partner;
        } else {
            lane->slices[kept] = slice;
            numbers[i] = kept++;
        }
    }
    lane->count = kept;
}

static void renumber(slices_t *slices, uint64_t *const *numbers)
{
    size_t kept = 0;
    for (size_t i = 0; i < slices->narrows; i++) {
        arrow_t arrow = slices->arrows[i];
        arrow.from_slice = numbers[arrow.from_lane][arrow.from_slice];
        arrow.to_slice = numbers[arrow.to_lane][arrow.to_slice];
        if (slices->lanes[arrow.to_lane].slices[arrow.to_slice].count == 1)
            slices->arrows[kept++] = arrow;
    }
    slices->narrows = kept;
}

thin_t thin_slices(slices_t *slices, const scope_times_t *times, size_t most)
{
    thin_t thin = { .before = 0 };
    const uint64_t end_ns = end_of(slices, &thin.before);
    size_t lanes = 0;
    if (thin.before <= most) return thin;
    find_part(slices, end_ns, most * 3 / 8, &thin);
    if (times->has_step) align(slices, times->step, &thin);
    for (size_t i = 0; i < slices->nlanes; i++) lanes += slices->lanes[i].count != 0;
    if (!lanes) return thin;
    const uint64_t width = (thin.until_ns - thin.from_ns) / (most / 4 / lanes + 1) + 1;
    const uint32_t several = slices_text(slices, "(several)");
    uint64_t **numbers = tool_alloc(slices->nlanes * sizeof *numbers);
    for (size_t i = 0; i < slices->nlanes; i++) {
        numbers[i] = tool_alloc((slices->lanes[i].count + 1) * sizeof **numbers);
        thin_lane(&slices->lanes[i], &thin, width, several, numbers[i]);
    }
    renumber(slices, numbers);
    for (size_t i = 0; i < slices->nlanes; i++) free(numbers[i]);
    free(numbers);
    return thin;
}
