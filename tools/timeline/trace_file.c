/* The pieces of a trace file. Formatted by hand: a recording may have millions of events. */
#include "tools/timeline/trace_file.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/json.h"
#include "tools/cli/tool.h"

enum { LONGEST = 8192, TEXT_LONGEST = 1024 };

fy_status_t trace_file_open(trace_file_t *trace, const char *path)
{
    static const char head[] = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
    *trace = (trace_file_t){ .sink = NULL };
    FY_TRY(output_begin(&trace->output, path));
    output_write(&trace->output, head, sizeof head - 1);
    return FY_STATUS_OK;
}

static void put(trace_file_t *trace, const char *text)
{
    output_write(&trace->output, text, strlen(text));
}

static void put_number(trace_file_t *trace, uint64_t value)
{
    char digits[20];
    size_t n = sizeof digits;
    do digits[--n] = (char)('0' + value % 10);
    while (value /= 10);
    output_write(&trace->output, digits + n, sizeof digits - n);
}

static void put_text(trace_file_t *trace, const char *text)
{
    output_t *output = &trace->output;
    output->used += fy__json_quote(text, output->buffer + output->used, TEXT_LONGEST);
}

static void put_us(trace_file_t *trace, uint64_t ns)
{
    const unsigned rest = (unsigned)(ns % 1000);
    const char decimals[] = { '.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10),
                              (char)('0' + rest % 10), 0 };
    put_number(trace, ns / 1000);
    put(trace, decimals);
}

/* Begins an event; an event is shorter than LONGEST. */
static void begin(trace_file_t *trace, const char *phase, track_t track)
{
    output_reserve(&trace->output, LONGEST);
    put(trace, trace->nevents ? ",\n{\"ph\":\"" : "\n{\"ph\":\"");
    trace->nevents = 1;
    trace->nargs = 0;
    put(trace, phase);
    put(trace, "\",\"pid\":");
    put_number(trace, track.process);
    put(trace, ",\"tid\":");
    put_number(trace, track.thread);
}

static void put_time(trace_file_t *trace, uint64_t at_ns)
{
    put(trace, ",\"ts\":");
    put_us(trace, at_ns);
}

static void put_name(trace_file_t *trace, const char *name)
{
    put(trace, ",\"name\":");
    put_text(trace, name);
}

static void put_key(trace_file_t *trace, const char *key)
{
    put(trace, trace->nargs++ ? ",\"" : ",\"args\":{\"");
    put(trace, key);
    put(trace, "\":");
}

void trace_arg_text(trace_file_t *trace, const char *key, const char *value)
{
    if (trace->sink) {
        trace->sink->arg_text(trace->user, key, value);
        return;
    }
    put_key(trace, key);
    put_text(trace, value);
}

void trace_arg(trace_file_t *trace, const char *key, uint64_t value)
{
    if (trace->sink) {
        trace->sink->arg(trace->user, key, value);
        return;
    }
    put_key(trace, key);
    put_number(trace, value);
}

static void put_pop(trace_file_t *trace, track_t track, uint64_t at_ns)
{
    begin(trace, "E", track);
    put_time(trace, at_ns);
    put(trace, "}");
}

void trace_end(trace_file_t *trace)
{
    if (trace->sink) return;
    put(trace, trace->nargs ? "}}" : "}");
    if (trace->is_call) put_pop(trace, trace->call_track, trace->call_end_ns);
    trace->is_call = 0;
}

static void metadata(trace_file_t *trace, track_t track, const char *what, const char *name,
                     const char *order, uint32_t rank)
{
    begin(trace, "M", track);
    put_name(trace, what);
    trace_arg_text(trace, "name", name);
    trace_end(trace);
    begin(trace, "M", track);
    put_name(trace, order);
    trace_arg(trace, "sort_index", rank);
    trace_end(trace);
}

void trace_process(trace_file_t *trace, uint32_t process, const char *name, uint32_t rank)
{
    if (trace->sink) {
        trace->sink->process(trace->user, process, name);
        return;
    }
    metadata(trace, (track_t){ process, 0 }, "process_name", name, "process_sort_index", rank);
}

void trace_track(trace_file_t *trace, track_t track, const char *name, uint32_t rank)
{
    if (trace->sink) {
        trace->sink->track(trace->user, track, name);
        return;
    }
    metadata(trace, track, "thread_name", name, "thread_sort_index", rank);
}

void trace_slice(trace_file_t *trace, track_t track, uint64_t start_ns, uint64_t duration_ns,
                 const char *name, const char *category)
{
    if (trace->sink) {
        trace->sink->slice(trace->user, track, start_ns, duration_ns, name, category);
        return;
    }
    begin(trace, "X", track);
    put_time(trace, start_ns);
    put(trace, ",\"dur\":");
    put_us(trace, duration_ns);
    put_name(trace, name);
    put(trace, ",\"cat\":");
    put_text(trace, category);
    trace->slices++;
}

void trace_call(trace_file_t *trace, track_t track, uint64_t start_ns, uint64_t duration_ns,
                const char *name, const char *category)
{
    if (trace->sink) {
        trace->sink->slice(trace->user, track, start_ns, duration_ns, name, category);
        return;
    }
    begin(trace, "B", track);
    put_time(trace, start_ns);
    put_name(trace, name);
    put(trace, ",\"cat\":");
    put_text(trace, category);
    trace->slices++;
    trace->is_call = 1;
    trace->call_track = track;
    trace->call_end_ns = start_ns + duration_ns;
}

void trace_push(trace_file_t *trace, track_t track, uint64_t at_ns, const char *name)
{
    if (trace->sink) {
        trace->sink->push(trace->user, track, at_ns, name);
        return;
    }
    begin(trace, "B", track);
    put_time(trace, at_ns);
    put_name(trace, name);
    put(trace, ",\"cat\":\"scope\"");
    trace->slices++;
}

void trace_pop(trace_file_t *trace, track_t track, uint64_t at_ns)
{
    if (trace->sink) {
        trace->sink->pop(trace->user, track, at_ns);
        return;
    }
    put_pop(trace, track, at_ns);
}

void trace_flow(trace_file_t *trace, track_t from, uint64_t from_ns, track_t to, uint64_t to_ns,
                const char *name)
{
    if (trace->sink) {
        trace->sink->flow(trace->user, from, from_ns, to, to_ns, name);
        return;
    }
    trace->flows++;
    for (int is_end = 0; is_end < 2; is_end++) {
        begin(trace, is_end ? "f\",\"bp\":\"e" : "s", is_end ? to : from);
        put_time(trace, is_end ? to_ns : from_ns);
        put_name(trace, name);
        put(trace, ",\"cat\":\"flow\",\"id\":");
        put_number(trace, trace->flows);
        trace_end(trace);
    }
}

void trace_counter(trace_file_t *trace, uint32_t process, uint64_t at_ns, const char *name,
                   uint64_t value)
{
    if (trace->sink) return; /* a sink has no use for them */
    begin(trace, "C", (track_t){ process, 0 });
    put_time(trace, at_ns);
    put_name(trace, name);
    trace_arg(trace, "bytes", value);
    trace_end(trace);
    trace->counts++;
}

fy_status_t trace_file_commit(trace_file_t *trace, const char *about)
{
    output_reserve(&trace->output, LONGEST);
    put(trace, "\n],\"otherData\":{\"about\":");
    put_text(trace, about);
    put(trace, "}}\n");
    return output_commit(&trace->output);
}

/* ---- places: in a list; a number table finds them ---- */

void place_table_set(place_table_t *table, uint64_t key, place_t place)
{
    uint32_t *index = number_table_at(&table->numbers, key);
    if (*index == NUMBER_TABLE_NONE) {
        table->places = tool_grow(table->places, table->count, sizeof *table->places);
        *index = (uint32_t)table->count++;
    }
    table->places[*index] = place;
}

const place_t *place_table_get(const place_table_t *table, uint64_t key)
{
    const uint32_t index = number_table_find(&table->numbers, key);
    return index == NUMBER_TABLE_NONE ? NULL : &table->places[index];
}

void place_table_free(place_table_t *table)
{
    number_table_free(&table->numbers);
    free(table->places);
    *table = (place_table_t){ .count = 0 };
}
