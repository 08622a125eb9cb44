/* Traces from event files: the lines block_alloc and block_free, by pool. A block has a number of its pool's there, which is never given
 * twice and rises; here the numbers are dense. */
#include <stdlib.h>
#include <string.h>

#include "tools/event_file.h"
#include "tools/tool.h"
#include "tools/trace.h"

/* Number of a block in the file -> its number in the trace. They rise together, so a list in order and a search by halves will do. */
typedef struct names {
    uint64_t *known;
    size_t room;
} names_t;

typedef struct reading {
    traces_t *traces;
    names_t *names; /* by trace */
    size_t last;    /* the trace of the last event */
    uint32_t last_scope;
} reading_t;

static size_t trace_of(reading_t *reading, const char *pool)
{
    traces_t *traces = reading->traces;
    if (reading->last < traces->count && strcmp(traces->list[reading->last].pool, pool) == 0) return reading->last;
    for (size_t i = 0; i < traces->count; i++)
        if (strcmp(traces->list[i].pool, pool) == 0) return i;
    (void)traces_add(traces, pool);
    names_t *names = tool_alloc(traces->count * sizeof *names);
    if (traces->count > 1) memcpy(names, reading->names, (traces->count - 1) * sizeof *names);
    names[traces->count - 1] = (names_t){ NULL, 0 };
    free(reading->names);
    reading->names = names;
    return traces->count - 1;
}

static void take(trace_t *trace, names_t *names, uint64_t name, uint64_t nbytes, uint32_t scope)
{
    if (trace->nblocks == names->room) {
        const size_t room = names->room ? 2 * names->room : 1024;
        uint64_t *known = tool_alloc(room * sizeof *known);
        if (names->room) memcpy(known, names->known, names->room * sizeof *known);
        free(names->known);
        *names = (names_t){ known, room };
    }
    names->known[trace->nblocks] = name;
    (void)trace_take(trace, nbytes ? nbytes : 1, scope);
}

static void give(trace_t *trace, const names_t *names, uint64_t name, uint32_t scope)
{
    size_t from = 0, to = trace->nblocks;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (names->known[middle] < name)
            from = middle + 1;
        else
            to = middle;
    }
    if (from == trace->nblocks || names->known[from] != name)
        trace->unknown++;
    else
        trace_give(trace, (uint32_t)from, scope);
}

static void add(void *user, const event_t *event)
{
    reading_t *reading = user;
    const bool is_take = event_is(event, "block_alloc");
    if (!is_take && !event_is(event, "block_free")) return;
    const size_t at = trace_of(reading, event_text(event, "pool"));
    trace_t *trace = &reading->traces->list[at];
    const char *path = event_text(event, "scope");
    if (reading->last != at || reading->last_scope >= trace->nscopes || strcmp(trace->scopes[reading->last_scope], path) != 0)
        reading->last_scope = trace_scope(trace, path);
    reading->last = at;
    if (is_take)
        take(trace, &reading->names[at], event_whole(event, "block"), event_whole(event, "requested_bytes"), reading->last_scope);
    else
        give(trace, &reading->names[at], event_whole(event, "block"), reading->last_scope);
}

fy_status_t traces_read_events(const char *path, traces_t *traces)
{
    reading_t reading = { .traces = traces, .last = SIZE_MAX };
    event_file_info_t info;
    fy_status_t status = event_file_read(path, add, &reading, &info);
    if (status == FY_STATUS_OK && info.lost)
        status = TOOL_FAIL(CORRUPT_DATA, "%s lost %llu events while it was recorded, so it cannot be replayed; record a shorter run", path,
                           (unsigned long long)info.lost);
    for (size_t i = 0; i < traces->count; i++) free(reading.names[i].known);
    free(reading.names);
    return status;
}
