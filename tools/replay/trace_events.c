/* Traces from event files: the lines pool, block_alloc and block_free. A block has a number of its
 * pool's there, which rises and is never given twice; here the numbers are dense. A pool that is
 * made again (its device was closed and opened) is another trace: "sim:0 (2)".
 * What no recording holds is refused with the line's number, so that figures are never those of a
 * broken file. */
#include <stdlib.h>
#include <string.h>

#include "tools/cli/event_file.h"
#include "tools/cli/tool.h"
#include "tools/replay/trace.h"

/* Beside each trace. Numbers in the file and in the trace rise together, so a list in order and a
 * search by halves will do. */
typedef struct names {
    bool is_over;
    unsigned life;   /* the how manieth pool of that name, from 1 */
    uint64_t *known; /* number in the file, by number in the trace */
    bool *is_out;    /* by the same index */
} names_t;

typedef struct reading {
    traces_t *traces;
    names_t *names;      /* by trace */
    text_index_t pools;  /* the last trace of each */
    uint64_t wrong_line; /* the first; 0: none */
    char wrong[256];
} reading_t;

/* The trace of the pool that the file names now. */
static size_t trace_of(reading_t *reading, const char *pool)
{
    bool is_new;
    char name[256];
    traces_t *traces = reading->traces;
    size_t *last = text_index_at(&reading->pools, pool, &is_new);
    if (!is_new && !reading->names[*last].is_over) return *last;
    const unsigned life = is_new ? 1 : reading->names[*last].life + 1;
    *last = traces->count;
    reading->names = tool_grow(reading->names, traces->count, sizeof *reading->names);
    reading->names[traces->count].life = life;
    snprintf(name, sizeof name, "%s (%u)", pool, life);
    (void)traces_add(traces, life > 1 ? name : pool);
    return traces->count - 1;
}

/* A whole number that is there; false: it is not, and the line is wrong. */
static bool whole_of(const event_t *event, const char *key, uint64_t *out_number)
{
    for (size_t i = 0; i < event->count; i++) {
        const event_field_t *field = &event->field[i];
        if (strcmp(field->key, key) != 0) continue;
        *out_number = field->whole;
        return !field->text && field->number == (double)field->whole && field->number < 0x1p63;
    }
    return false;
}

static const char *take(trace_t *trace, names_t *names, uint64_t name, uint64_t nbytes,
                        uint32_t stream, uint32_t scope)
{
    const size_t count = trace->nblocks;
    if (count && names->known && name <= names->known[count - 1])
        return "asks for a block with a number that does not rise";
    if (count == TRACE_NO_BLOCK) return "asks for a block too many";
    names->known = tool_grow(names->known, count, sizeof *names->known);
    names->is_out = tool_grow(names->is_out, count, sizeof *names->is_out);
    names->known[count] = name;
    names->is_out[count] = true;
    (void)trace_take_on(trace, nbytes ? nbytes : 1, stream, scope);
    return NULL;
}

static const char no_points[] = "has points (\"after\", \"stream\", \"seq\") that cannot be";

/* Reads the pairs in "after". Returns their number; more than FY_POOL_POINTS_MOST are invalid. */
static size_t points_of(const event_t *event, fy_pool_point_t *points)
{
    uint64_t pairs[FY_POOL_POINTS_MOST][2];
    const size_t count = event_pairs(event, "after", pairs, FY_POOL_POINTS_MOST);
    for (size_t i = 0; i < count && i < FY_POOL_POINTS_MOST; i++)
        points[i] =
            (fy_pool_point_t){ pairs[i][0] > UINT32_MAX ? 0 : (uint32_t)pairs[i][0], pairs[i][1] };
    return count;
}

static const char *give(trace_t *trace, const names_t *names, uint64_t name, const event_t *event,
                        uint32_t scope)
{
    fy_pool_point_t points[FY_POOL_POINTS_MOST];
    size_t from = 0, to = trace->nblocks;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (names->known[middle] < name)
            from = middle + 1;
        else
            to = middle;
    }
    if (from == trace->nblocks || names->known[from] != name) {
        trace->unknown++; /* of before the recording */
        return NULL;
    }
    if (!names->is_out[from]) return "frees a block for the second time";
    const size_t npoints = points_of(event, points);
    if (!trace_points_are_good(points, npoints)) return no_points;
    names->is_out[from] = false;
    trace_give_after(trace, (uint32_t)from, points, npoints, scope);
    return NULL;
}

static void add(void *user, const event_t *event)
{
    reading_t *reading = user;
    const bool is_take = event_is(event, "block_alloc"), is_pool = event_is(event, "pool"),
               is_reached = event_is(event, "blocks_reached");
    const char *pool = event_text(event, "pool"), *path = event_text(event, "scope"), *wrong;
    uint64_t name, nbytes = 0, stream = event_whole(event, "stream");
    if (reading->wrong_line ||
        (!is_take && !is_pool && !is_reached && !event_is(event, "block_free")))
        return;
    const size_t at = trace_of(reading, pool);
    trace_t *trace = &reading->traces->list[at];
    names_t *names = &reading->names[at];
    if (is_pool) {
        /* else the recording begins */
        names->is_over = trace->nblocks > 0 && !event_whole(event, "reserved_bytes");
        if (names->is_over) {
            const size_t next = trace_of(reading, pool); /* may move the list */
            trace = &reading->traces->list[next];
        }
        trace->segment_nbytes = event_whole(event, "segment_bytes");
        trace->resize_nbytes = event_whole(event, "resize_bytes");
        trace->keeps_segments = event_whole(event, "keeps_segments") != 0;
        return;
    }
    const uint32_t scope = trace_scope(trace, path);
    const fy_pool_point_t point = { stream > UINT16_MAX ? 0 : (uint32_t)stream,
                                    event_whole(event, "seq") };
    if (is_reached) {
        wrong = trace_points_are_good(&point, 1) ? NULL : no_points;
        if (!wrong) trace_reach(trace, point, scope);
    } else if (!*pool || !whole_of(event, "block", &name) ||
               (is_take && !whole_of(event, "requested_bytes", &nbytes)))
        wrong = "has no \"pool\", \"block\" or \"requested_bytes\" that can be";
    else if (stream > UINT16_MAX)
        wrong = no_points;
    else
        wrong = is_take ? take(trace, names, name, nbytes, (uint32_t)stream, scope)
                        : give(trace, names, name, event, scope);
    if (!wrong) return;
    reading->wrong_line = event->line;
    snprintf(reading->wrong, sizeof reading->wrong, "%s", wrong);
}

fy_status_t traces_read_events(text_lines_t *lines, traces_t *traces)
{
    const char *path = lines->input.path;
    reading_t reading = { .traces = traces };
    event_file_info_t info;
    fy_status_t status = event_lines_read(lines, add, &reading, &info);
    if (status == FY_STATUS_OK && info.lost)
        status = TOOL_FAIL(CORRUPT_DATA,
                           "%s lost %llu events while it was recorded, so it cannot be replayed; "
                           "record a shorter run",
                           path, (unsigned long long)info.lost);
    else if (status == FY_STATUS_OK && reading.wrong_line)
        status = TOOL_FAIL(CORRUPT_DATA, "%s is no whole event file: line %llu %s", path,
                           (unsigned long long)reading.wrong_line, reading.wrong);
    for (size_t i = 0; i < traces->count; i++) {
        free(reading.names[i].known);
        free(reading.names[i].is_out);
    }
    free(reading.names);
    text_index_free(&reading.pools);
    traces->is_cut_off = !info.is_whole;
    return status;
}
