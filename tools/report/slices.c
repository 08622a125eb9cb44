/* Receives slices in the order of events: sorted by time within a thread and, nearly always, within
 * a stream. */
#include "tools/report/slices.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

enum { DEPTH_MOST = 24, PROCESSES_MOST = 1 << 16 };

uint32_t slices_text(slices_t *slices, const char *text)
{
    size_t at;
    if (text_index_number(&slices->text_index, text, slices->ntexts, &at)) {
        slices->texts = tool_grow(slices->texts, slices->ntexts, sizeof *slices->texts);
        slices->texts[slices->ntexts++] = tool_copy_text(text);
    }
    return (uint32_t)at;
}

/* ---- lanes ---- */

static uint64_t key_of(track_t track, uint32_t depth)
{
    return (uint64_t)track.process << 40 | (uint64_t)track.thread << 8 | depth;
}

static lane_t *lane_of(slices_t *slices, track_t track, uint32_t depth)
{
    const place_t *place = place_table_get(&slices->lane_index, key_of(track, depth));
    if (place) return &slices->lanes[place->start_ns];
    const uint32_t name = depth ? lane_of(slices, track, 0)->name : slices_text(slices, "");
    slices->lanes = tool_grow(slices->lanes, slices->nlanes, sizeof *slices->lanes);
    place_table_set(&slices->lane_index, key_of(track, depth),
                    (place_t){ .start_ns = slices->nlanes });
    lane_t *lane = &slices->lanes[slices->nlanes++];
    *lane = (lane_t){ .track = track, .depth = depth, .name = name };
    return lane;
}

static slice_t *add(slices_t *slices, lane_t *lane, slice_t slice)
{
    lane->slices = tool_grow(lane->slices, lane->count, sizeof slice);
    slice.scope = slice.site = slice.path = slice.tensors = slices_text(slices, "");
    slice.count = 1;
    lane->slices[lane->count] = slice;
    return slices->last = &lane->slices[lane->count++];
}

static void take_process(void *user, uint32_t process, const char *name)
{
    slices_t *slices = user;
    while (process < PROCESSES_MOST && slices->nprocesses <= process) {
        slices->processes =
            tool_grow(slices->processes, slices->nprocesses, sizeof *slices->processes);
        slices->processes[slices->nprocesses++] = NULL;
    }
    if (process < PROCESSES_MOST && !slices->processes[process])
        slices->processes[process] = tool_copy_text(name);
}

static void take_track(void *user, track_t track, const char *name)
{
    const uint32_t text = slices_text(user, name);
    lane_of(user, track, 0)->name = text;
}

/* ---- slices ---- */

static slice_kind_t kind_of(const char *name, const char *category)
{
    if (strcmp(category, "op") == 0) return SLICE_OP;
    if (strcmp(category, "wait") == 0) return SLICE_WAIT;
    if (strcmp(category, "transfer") != 0) return SLICE_CALL;
    return strcmp(name, "download") == 0 ? SLICE_DOWNLOAD
           : strcmp(name, "peer") == 0   ? SLICE_PEER
                                         : SLICE_UPLOAD;
}

static void take_slice(void *user, track_t track, uint64_t start_ns, uint64_t duration_ns,
                       const char *name, const char *category)
{
    (void)add(user, lane_of(user, track, 0),
              (slice_t){ .start_ns = start_ns,
                         .end_ns = start_ns + duration_ns,
                         .busy_ns = duration_ns,
                         .name = slices_text(user, name),
                         .kind = kind_of(name, category) });
}

static void take_push(void *user, track_t track, uint64_t at_ns, const char *name)
{
    slices_t *slices = user;
    const uint32_t depth = ++lane_of(slices, track, 0)->nopen;
    slices->last = NULL;
    if (depth <= DEPTH_MOST)
        (void)add(slices, lane_of(slices, track, depth),
                  (slice_t){ .start_ns = at_ns,
                             .end_ns = at_ns,
                             .name = slices_text(slices, name),
                             .kind = SLICE_SCOPE });
}

static void take_pop(void *user, track_t track, uint64_t at_ns)
{
    const uint32_t depth = lane_of(user, track, 0)->nopen--;
    if (depth > DEPTH_MOST) return;
    const lane_t *lane = lane_of(user, track, depth);
    if (!lane->count) return;
    slice_t *slice = &lane->slices[lane->count - 1];
    if (at_ns > slice->start_ns) slice->end_ns = at_ns;
    slice->busy_ns = slice->end_ns - slice->start_ns;
}

static void take_arg_text(void *user, const char *key, const char *value)
{
    slices_t *slices = user;
    if (!slices->last) return;
    if (strcmp(key, "scope") == 0)
        slices->last->scope = slices_text(slices, value);
    else if (strcmp(key, "site") == 0)
        slices->last->site = slices_text(slices, value);
    else if (strcmp(key, "tensors") == 0)
        slices->last->tensors = slices_text(slices, value);
    else if (strcmp(key, "path") == 0 || strcmp(key, "shapes") == 0)
        slices->last->path = slices_text(slices, value);
}

static void take_arg(void *user, const char *key, uint64_t value)
{
    slices_t *slices = user;
    if (!slices->last) return;
    if (strcmp(key, "bytes") == 0)
        slices->last->nbytes = value;
    else if (strcmp(key, "flops") == 0)
        slices->last->flops = value;
}

/* ---- arrows ---- */

static void take_flow(void *user, track_t from, uint64_t from_ns, track_t to, uint64_t to_ns,
                      const char *name)
{
    slices_t *slices = user;
    const arrow_t arrow = { .from_slice = from_ns,
                            .to_slice = to_ns,
                            .from_lane = (uint32_t)(lane_of(slices, from, 0) - slices->lanes),
                            .to_lane = (uint32_t)(lane_of(slices, to, 0) - slices->lanes),
                            .name = slices_text(slices, name) };
    slices->arrows = tool_grow(slices->arrows, slices->narrows, sizeof arrow);
    slices->arrows[slices->narrows++] = arrow;
}

const trace_sink_t slices_sink = { take_process, take_track,    take_slice, take_push,
                                   take_pop,     take_arg_text, take_arg,   take_flow };

static int compare_slices(const void *a, const void *b)
{
    const slice_t *x = a, *y = b;
    if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
    return x->end_ns < y->end_ns ? -1 : x->end_ns > y->end_ns;
}

static void sort_lane(lane_t *lane)
{
    for (size_t i = 1; i < lane->count; i++)
        if (compare_slices(&lane->slices[i - 1], &lane->slices[i]) > 0) {
            qsort(lane->slices, lane->count, sizeof *lane->slices, compare_slices);
            return;
        }
}

/* The last slice that begins at that moment or before; SIZE_MAX: there is none. */
static size_t slice_at(const lane_t *lane, uint64_t at_ns)
{
    size_t low = 0, high = lane->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (lane->slices[middle].start_ns <= at_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

void slices_finish(slices_t *slices)
{
    size_t kept = 0;
    for (size_t i = 0; i < slices->nlanes; i++) sort_lane(&slices->lanes[i]);
    for (size_t i = 0; i < slices->narrows; i++) {
        arrow_t arrow = slices->arrows[i];
        arrow.from_slice = slice_at(&slices->lanes[arrow.from_lane], arrow.from_slice);
        arrow.to_slice = slice_at(&slices->lanes[arrow.to_lane], arrow.to_slice);
        if (arrow.from_slice != SIZE_MAX && arrow.to_slice != SIZE_MAX)
            slices->arrows[kept++] = arrow;
    }
    slices->narrows = kept;
    slices->last = NULL;
}

void slices_free(slices_t *slices)
{
    for (size_t i = 0; i < slices->nlanes; i++) free(slices->lanes[i].slices);
    for (size_t i = 0; i < slices->ntexts; i++) free(slices->texts[i]);
    for (size_t i = 0; i < slices->nprocesses; i++) free(slices->processes[i]);
    free(slices->lanes);
    free(slices->arrows);
    free(slices->texts);
    free(slices->processes);
    text_index_free(&slices->text_index);
    place_table_free(&slices->lane_index);
    *slices = (slices_t){ .nlanes = 0 };
}
