/* Traces in memory, and their compact text: see trace.h. Reading is by lines of a file that is read
 * as a whole. */
#include "tools/replay/trace.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

/* Version 2 adds streams, points and the sizes of segments. */
static const char *const magics[] = { "ferry-trace 1", "ferry-trace 2" };

/* ---- making ---- */

trace_t *traces_add(traces_t *traces, const char *pool)
{
    traces->list = tool_grow(traces->list, traces->count, sizeof *traces->list);
    trace_t *trace = &traces->list[traces->count++];
    *trace = (trace_t){ .pool = tool_copy_text(pool) };
    (void)trace_scope(trace, "");
    return trace;
}

uint32_t trace_scope(trace_t *trace, const char *path)
{
    size_t number;
    if (!text_index_number(&trace->scope_index, path, trace->nscopes, &number))
        return (uint32_t)number;
    trace->scopes = tool_grow(trace->scopes, trace->nscopes, sizeof *trace->scopes);
    trace->scopes[trace->nscopes] = text_index_keep(&trace->scope_index, path);
    return (uint32_t)trace->nscopes++;
}

static void add_step(trace_t *trace, trace_step_t step)
{
    trace->steps = tool_grow(trace->steps, trace->nsteps, sizeof *trace->steps);
    trace->steps[trace->nsteps++] = step;
    trace->has_streams |= step.stream || step.npoints;
}

static size_t add_points(trace_t *trace, const fy_pool_point_t *points, size_t npoints)
{
    const size_t first = trace->npoints;
    for (size_t i = 0; i < npoints; i++) {
        trace->points = tool_grow(trace->points, trace->npoints, sizeof *trace->points);
        trace->points[trace->npoints++] = points[i];
    }
    return first;
}

uint32_t trace_take_on(trace_t *trace, uint64_t nbytes, uint32_t stream, uint32_t scope)
{
    add_step(trace, (trace_step_t){ .nbytes = nbytes,
                                    .block = (uint32_t)trace->nblocks,
                                    .scope = scope,
                                    .stream = stream });
    return (uint32_t)trace->nblocks++;
}

uint32_t trace_take(trace_t *trace, uint64_t nbytes, uint32_t scope)
{
    return trace_take_on(trace, nbytes, 0, scope);
}

void trace_give_after(trace_t *trace, uint32_t block, const fy_pool_point_t *points, size_t npoints,
                      uint32_t scope)
{
    const size_t first = add_points(trace, points, npoints);
    add_step(trace,
             (trace_step_t){
                 .block = block, .scope = scope, .npoints = (uint32_t)npoints, .points = first });
}

void trace_give(trace_t *trace, uint32_t block, uint32_t scope)
{
    trace_give_after(trace, block, NULL, 0, scope);
}

void trace_reach(trace_t *trace, fy_pool_point_t point, uint32_t scope)
{
    trace_give_after(trace, TRACE_NO_BLOCK, &point, 1, scope);
}

bool trace_points_are_good(const fy_pool_point_t *points, size_t npoints)
{
    bool is_good = npoints <= FY_POOL_POINTS_MOST;
    for (size_t i = 0; i < npoints && is_good; i++) {
        is_good = points[i].stream >= 1 && points[i].stream <= UINT16_MAX && points[i].seq >= 1 &&
                  points[i].seq < UINT64_C(1) << 48;
        for (size_t k = 0; k < i; k++) is_good = is_good && points[k].stream != points[i].stream;
    }
    return is_good;
}

bool trace_finish(trace_t *trace)
{
    uint64_t *nbytes = tool_alloc((trace->nblocks + 1) * sizeof *nbytes), live = 0;
    bool is_possible = true;
    trace->peak = trace->peak_step = 0;
    for (size_t i = 0; i < trace->nsteps && is_possible; i++) {
        const trace_step_t *step = &trace->steps[i];
        if (step->nbytes) {
            is_possible = step->nbytes <= INT64_MAX - live;
            live += nbytes[step->block] = step->nbytes;
            if (live > trace->peak) {
                trace->peak = live;
                trace->peak_step = i + 1;
            }
        } else if (step->block != TRACE_NO_BLOCK)
            live -= nbytes[step->block];
    }
    free(nbytes);
    return is_possible;
}

void traces_free(traces_t *traces)
{
    for (size_t i = 0; i < traces->count; i++) {
        trace_t *trace = &traces->list[i];
        free(trace->scopes);
        text_index_free(&trace->scope_index);
        free(trace->steps);
        free(trace->points);
        free(trace->pool);
    }
    free(traces->list);
    *traces = (traces_t){ .list = NULL };
}

/* ---- writing ---- */

fy_status_t trace_write(const trace_t *trace, const char *comment, const char *path)
{
    uint32_t scope = 0;
    uint64_t taken = 0;
    FILE *file = fopen(path, "w");
    if (!file) return TOOL_FAIL(IO, "cannot write %s: %s", path, strerror(errno));
    fprintf(file, "%s\n", magics[trace->has_streams || trace->segment_nbytes]);
    for (const char *at = comment; at && *at;) {
        const size_t length = strcspn(at, "\n");
        fprintf(file, "# %.*s\n", (int)length, at);
        at += length + (at[length] == '\n');
    }
    fprintf(file, "pool %s\n", trace->pool);
    if (trace->segment_nbytes)
        fprintf(file, "segment %" PRIu64 " %" PRIu64 "%s\n", trace->segment_nbytes,
                trace->resize_nbytes, trace->keeps_segments ? " kept" : "");
    for (size_t i = 0; i < trace->nsteps; i++) {
        const trace_step_t *step = &trace->steps[i];
        if (step->scope != scope) fprintf(file, "@%s\n", trace->scopes[scope = step->scope]);
        if (step->nbytes)
            fprintf(file, "+%" PRIu64, step->nbytes);
        else if (step->block == TRACE_NO_BLOCK)
            fprintf(file, "!");
        else
            fprintf(file, "-%" PRIu64, taken - step->block);
        if (step->stream) fprintf(file, " %u", step->stream);
        for (uint32_t k = 0; k < step->npoints; k++) {
            const fy_pool_point_t *point = &trace->points[step->points + k];
            fprintf(file, " %u:%" PRIu64, point->stream, point->seq);
        }
        fprintf(file, "\n");
        taken += step->nbytes != 0;
    }
    const bool failed = ferror(file) != 0;
    return fclose(file) != 0 || failed ? TOOL_FAIL(IO, "cannot write %s: %s", path, strerror(errno))
                                       : FY_STATUS_OK;
}

/* ---- reading ---- */

typedef struct reading {
    trace_t *trace;
    uint32_t scope;
    bool *is_out; /* by block, as many as `room` */
    size_t room;
} reading_t;

/* Where the number ends; NULL: there is none. */
static const char *read_number(const char *s, uint64_t *out_number)
{
    char *end;
    if (!isdigit((unsigned char)*s)) return NULL;
    errno = 0;
    *out_number = strtoull(s, &end, 10);
    return errno ? NULL : end;
}

/* Reads any number of " STREAM:SEQ" up to the end; -1: there is something else. */
static int read_points(const char *s, fy_pool_point_t *points)
{
    size_t count = 0;
    while (*s) {
        uint64_t stream, seq;
        if (count == FY_POOL_POINTS_MOST || *s != ' ' || !(s = read_number(s + 1, &stream)) ||
            *s != ':' || stream > UINT32_MAX)
            return -1;
        if (!(s = read_number(s + 1, &seq))) return -1;
        points[count++] = (fy_pool_point_t){ (uint32_t)stream, seq };
    }
    return trace_points_are_good(points, count) ? (int)count : -1;
}

/* Returns NULL on success, else the error in the line. */
static const char *read_line(reading_t *reading, const char *line)
{
    trace_t *trace = reading->trace;
    uint64_t number;
    if (*line == '#' || !*line) return NULL;
    if (strncmp(line, "pool ", 5) == 0) {
        if (trace->nsteps) return "names the pool too late";
        free(trace->pool);
        trace->pool = tool_copy_text(line + 5);
        return NULL;
    }
    if (strncmp(line, "segment ", 8) == 0) {
        const char *end = read_number(line + 8, &trace->segment_nbytes);
        if (end && *end == ' ') end = read_number(end + 1, &trace->resize_nbytes);
        trace->keeps_segments = end && strcmp(end, " kept") == 0;
        return end && (!*end || trace->keeps_segments)
                   ? NULL
                   : "has no sizes of segments where there must be some";
    }
    if (*line == '@') {
        reading->scope = trace_scope(trace, line + 1);
        return NULL;
    }
    fy_pool_point_t points[FY_POOL_POINTS_MOST];
    static const char no_points[] = "has no points where there must be some";
    if (*line == '!') {
        if (read_points(line + 1, points) != 1) return no_points;
        trace_reach(trace, points[0], reading->scope);
        return NULL;
    }
    if (*line != '+' && *line != '-')
        return "is neither '+BYTES', '-AGE', '!STREAM:SEQ', '@SCOPE', 'pool NAME' nor 'segment "
               "BYTES BYTES'";
    const char *end = read_number(line + 1, &number);
    if (!end || !number || (*end && *end != ' '))
        return "has no number from 1 up where there must be one";
    if (*line == '+') {
        uint64_t stream = 0;
        if (*end &&
            (!(end = read_number(end + 1, &stream)) || *end || !stream || stream > UINT16_MAX))
            return "has no stream from 1 to 65535 where there must be one";
        if (trace->nblocks == TRACE_NO_BLOCK) return "asks for a block too many";
        const uint32_t block = trace_take_on(trace, number, (uint32_t)stream, reading->scope);
        reading->is_out = tool_grow(reading->is_out, block, sizeof *reading->is_out);
        reading->is_out[block] = true;
        return NULL;
    }
    if (number > trace->nblocks) return "frees a block that was never allocated";
    const size_t block = trace->nblocks - number;
    if (!reading->is_out || !reading->is_out[block]) return "frees a block for the second time";
    const int npoints = read_points(end, points);
    if (npoints < 0) return no_points;
    reading->is_out[block] = false;
    trace_give_after(trace, (uint32_t)block, points, (size_t)npoints, reading->scope);
    return NULL;
}

static fy_status_t read_compact(text_lines_t *lines, traces_t *traces)
{
    reading_t reading = { .trace = traces_add(traces, "device") };
    char *line;
    fy_status_t status = text_lines_next(lines, &line); /* the magic */
    while (status == FY_STATUS_OK && (status = text_lines_next(lines, &line)) == FY_STATUS_OK &&
           line) {
        const char *wrong = read_line(&reading, line);
        if (wrong)
            status = TOOL_FAIL(CORRUPT_DATA, "%s is no whole trace: line %llu %s",
                               lines->input.path, (unsigned long long)lines->number, wrong);
    }
    free(reading.is_out);
    return status;
}

fy_status_t traces_read(const char *path, traces_t *out_traces)
{
    text_lines_t lines;
    char *line;
    bool is_compact = false;
    *out_traces = (traces_t){ .list = NULL };
    FY_TRY(text_lines_open(&lines, path, "trace or event file"));
    fy_status_t status = text_lines_next(&lines, &line);
    for (int i = 0; i < 2 && line; i++) is_compact |= strcmp(line, magics[i]) == 0;
    if (line) text_lines_back(&lines);
    if (status == FY_STATUS_OK)
        status = is_compact ? read_compact(&lines, out_traces)
                            : traces_read_events(&lines, out_traces);
    text_lines_close(&lines);
    for (size_t i = 0; i < out_traces->count && status == FY_STATUS_OK; i++)
        if (!trace_finish(&out_traces->list[i]))
            status = TOOL_FAIL(CORRUPT_DATA,
                               "%s: %s has more bytes at once than there can be, 2^63 or more",
                               path, out_traces->list[i].pool);
    if (status != FY_STATUS_OK) traces_free(out_traces);
    return status;
}
