/* Traces in memory, and their compact text: see trace.h. Reading is by lines of a file that is read as a whole. */
#include "tools/trace.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/tool.h"

static const char magic[] = "ferry-trace 1";

/* ---- making ---- */

static void *grown(void *list, size_t count, size_t item_nbytes)
{
    if (count & (count - 1)) return list; /* room is a power of two */
    void *more = tool_alloc((count ? 2 * count : 1) * item_nbytes);
    if (list) memcpy(more, list, count * item_nbytes);
    free(list);
    return more;
}

static char *copy_of(const char *text)
{
    const size_t nbytes = strlen(text) + 1;
    return memcpy(tool_alloc(nbytes), text, nbytes);
}

trace_t *traces_add(traces_t *traces, const char *pool)
{
    traces->list = grown(traces->list, traces->count, sizeof *traces->list);
    trace_t *trace = &traces->list[traces->count++];
    *trace = (trace_t){ .pool = copy_of(pool) };
    (void)trace_scope(trace, "");
    return trace;
}

uint32_t trace_scope(trace_t *trace, const char *path)
{
    for (size_t i = trace->nscopes; i-- > 0;)
        if (strcmp(trace->scopes[i], path) == 0) return (uint32_t)i;
    trace->scopes = grown(trace->scopes, trace->nscopes, sizeof *trace->scopes);
    trace->scopes[trace->nscopes] = copy_of(path);
    return (uint32_t)trace->nscopes++;
}

static void add_step(trace_t *trace, trace_step_t step)
{
    trace->steps = grown(trace->steps, trace->nsteps, sizeof *trace->steps);
    trace->steps[trace->nsteps++] = step;
}

uint32_t trace_take(trace_t *trace, uint64_t nbytes, uint32_t scope)
{
    add_step(trace, (trace_step_t){ nbytes, (uint32_t)trace->nblocks, scope });
    return (uint32_t)trace->nblocks++;
}

void trace_give(trace_t *trace, uint32_t block, uint32_t scope) { add_step(trace, (trace_step_t){ 0, block, scope }); }

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
        } else
            live -= nbytes[step->block];
    }
    free(nbytes);
    return is_possible;
}

void traces_free(traces_t *traces)
{
    for (size_t i = 0; i < traces->count; i++) {
        trace_t *trace = &traces->list[i];
        for (size_t k = 0; k < trace->nscopes; k++) free(trace->scopes[k]);
        free(trace->scopes);
        free(trace->steps);
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
    fprintf(file, "%s\n", magic);
    for (const char *at = comment; at && *at;) {
        const size_t length = strcspn(at, "\n");
        fprintf(file, "# %.*s\n", (int)length, at);
        at += length + (at[length] == '\n');
    }
    fprintf(file, "pool %s\n", trace->pool);
    for (size_t i = 0; i < trace->nsteps; i++) {
        const trace_step_t *step = &trace->steps[i];
        if (step->scope != scope) fprintf(file, "@%s\n", trace->scopes[scope = step->scope]);
        if (step->nbytes)
            fprintf(file, "+%" PRIu64 "\n", step->nbytes);
        else
            fprintf(file, "-%" PRIu64 "\n", taken - step->block);
        taken += step->nbytes != 0;
    }
    const bool failed = ferror(file) != 0;
    return fclose(file) != 0 || failed ? TOOL_FAIL(IO, "cannot write %s: %s", path, strerror(errno)) : FY_STATUS_OK;
}

/* ---- reading ---- */

typedef struct reading {
    trace_t *trace;
    uint32_t scope;
    bool *is_out; /* by block, as many as `room` */
    size_t room;
} reading_t;

/* NULL: no number, or something behind it. */
static const char *read_number(const char *s, uint64_t *out_number)
{
    char *end;
    if (!isdigit((unsigned char)*s)) return NULL;
    errno = 0;
    *out_number = strtoull(s, &end, 10);
    return errno || *end ? NULL : end;
}

/* NULL: good; else what is wrong with the line. */
static const char *read_line(reading_t *reading, const char *line)
{
    trace_t *trace = reading->trace;
    uint64_t number;
    if (*line == '#' || !*line) return NULL;
    if (strncmp(line, "pool ", 5) == 0) {
        if (trace->nsteps) return "names the pool too late";
        free(trace->pool);
        trace->pool = copy_of(line + 5);
        return NULL;
    }
    if (*line == '@') {
        reading->scope = trace_scope(trace, line + 1);
        return NULL;
    }
    if (*line != '+' && *line != '-') return "is neither '+BYTES', '-AGE', '@SCOPE' nor 'pool NAME'";
    if (!read_number(line + 1, &number) || !number) return "has no number from 1 up where there must be one";
    if (*line == '+') {
        if (trace->nblocks == UINT32_MAX) return "asks for a block too many";
        const uint32_t block = trace_take(trace, number, reading->scope);
        reading->is_out = grown(reading->is_out, block, sizeof *reading->is_out);
        reading->is_out[block] = true;
        return NULL;
    }
    if (number > trace->nblocks) return "gives back a block that was never asked for";
    const size_t block = trace->nblocks - number;
    if (!reading->is_out || !reading->is_out[block]) return "gives back a block for the second time";
    reading->is_out[block] = false;
    trace_give(trace, (uint32_t)block, reading->scope);
    return NULL;
}

static fy_status_t read_compact(FILE *file, const char *path, traces_t *traces)
{
    reading_t reading = { .trace = traces_add(traces, "device") };
    fy_status_t status = FY_STATUS_OK;
    char *line = NULL;
    size_t room = 0, number = 1; /* the magic is read */
    ssize_t length;
    while (status == FY_STATUS_OK && (length = getline(&line, &room, file)) > 0) {
        number++;
        while (length && (line[length - 1] == '\n' || line[length - 1] == '\r')) line[--length] = 0;
        const char *wrong = strlen(line) != (size_t)length ? "has a zero byte" : read_line(&reading, line);
        if (wrong) status = TOOL_FAIL(CORRUPT_DATA, "%s is no whole trace: line %zu %s", path, number, wrong);
    }
    if (status == FY_STATUS_OK && ferror(file)) status = TOOL_FAIL(IO, "cannot read %s: %s", path, strerror(errno));
    free(line);
    free(reading.is_out);
    return status;
}

fy_status_t traces_read(const char *path, traces_t *out_traces)
{
    char head[sizeof magic + 1] = "";
    *out_traces = (traces_t){ .list = NULL };
    FILE *file = fopen(path, "r");
    if (!file) return TOOL_FAIL(IO, "cannot read %s: %s", path, strerror(errno));
    const bool is_compact = fgets(head, sizeof head, file) && strncmp(head, magic, sizeof magic - 1) == 0 &&
                            (head[sizeof magic - 1] == '\n' || !head[sizeof magic - 1]);
    fy_status_t status = is_compact ? read_compact(file, path, out_traces) : FY_STATUS_OK;
    fclose(file);
    if (!is_compact) status = traces_read_events(path, out_traces);
    for (size_t i = 0; i < out_traces->count && status == FY_STATUS_OK; i++)
        if (!trace_finish(&out_traces->list[i]))
            status =
                TOOL_FAIL(CORRUPT_DATA, "%s: %s has more bytes at once than there can be, 2^63 or more", path, out_traces->list[i].pool);
    if (status != FY_STATUS_OK) traces_free(out_traces);
    return status;
}
