/* Writes a file in the Trace Event Format ("Trace Event Format", the Chromium project, 2016), which
 * Perfetto's UI and chrome://tracing read: slices, flows, counters, names of tracks. Times are
 * nanoseconds; the file has microseconds with three decimals, so none is rounded.
 * With a sink, the pieces go there and no file is written: `ferry report` takes them so.
 * Not here: what becomes a slice (tracks.h). */
#ifndef FERRY_TOOLS_TRACE_FILE_H_
#define FERRY_TOOLS_TRACE_FILE_H_

#include <stdint.h>

#include <ferry/status.h>

#include "tools/cli/output.h"
#include "tools/cli/tables.h"

/* A row of the picture: a thread of the host, a stream of a device. */
typedef struct track {
    uint32_t process, thread;
} track_t;

/* Receives what the functions below are called with, in that order; `user` comes first. */
typedef struct trace_sink {
    void (*process)(void *user, uint32_t process, const char *name);
    void (*track)(void *user, track_t track, const char *name);
    void (*slice)(void *user, track_t track, uint64_t start_ns, uint64_t duration_ns,
                  const char *name, const char *category);
    void (*push)(void *user, track_t track, uint64_t at_ns, const char *name);
    void (*pop)(void *user, track_t track, uint64_t at_ns);
    /* Of the last slice or push. */
    void (*arg_text)(void *user, const char *key, const char *value);
    void (*arg)(void *user, const char *key, uint64_t value);
    void (*flow)(void *user, track_t from, uint64_t from_ns, track_t to, uint64_t to_ns,
                 const char *name);
} trace_sink_t;

typedef struct trace_file {
    const trace_sink_t *sink; /* NULL: a file is written; else only `user` is used besides */
    void *user;
    output_t output;
    uint64_t slices, flows, counts; /* written so far */
    int nevents;                    /* 1: a comma is due */
    int nargs;                      /* of the open event */
    track_t call_track;             /* of the open event, if it is a call */
    uint64_t call_end_ns;
    int is_call;
} trace_file_t;

/* The file appears at `path` when trace_file_commit succeeds. Fails: IO. */
fy_status_t trace_file_open(trace_file_t *trace, const char *path);
/* `about` is shown with the trace. Fails: IO; then `path` is as it was. */
fy_status_t trace_file_commit(trace_file_t *trace, const char *about);

/* Tracks and processes are shown in the order of `rank`. */
void trace_process(trace_file_t *trace, uint32_t process, const char *name, uint32_t rank);
void trace_track(trace_file_t *trace, track_t track, const char *name, uint32_t rank);

/* A slice whose length is known. Arguments may follow; trace_end closes it. */
void trace_slice(trace_file_t *trace, track_t track, uint64_t start_ns, uint64_t duration_ns,
                 const char *name, const char *category);
/* The same on a track with scopes. Perfetto sorts slices that begin when a scope ends before its
 * end; so calls are written as scopes are, and events of one time stay in their order. */
void trace_call(trace_file_t *trace, track_t track, uint64_t start_ns, uint64_t duration_ns,
                const char *name, const char *category);
/* A slice that trace_pop ends. trace_end closes it, too. */
void trace_push(trace_file_t *trace, track_t track, uint64_t at_ns, const char *name);
void trace_pop(trace_file_t *trace, track_t track, uint64_t at_ns);
void trace_arg_text(trace_file_t *trace, const char *key, const char *value);
void trace_arg(trace_file_t *trace, const char *key, uint64_t value);
void trace_end(trace_file_t *trace);

/* An arrow from the slice at `from_ns` to the one at `to_ns`. */
void trace_flow(trace_file_t *trace, track_t from, uint64_t from_ns, track_t to, uint64_t to_ns,
                const char *name);
void trace_counter(trace_file_t *trace, uint32_t process, uint64_t at_ns, const char *name,
                   uint64_t value);

/* ---- places ----
 * A table from numbers to places in a timeline: where a request ran, or where the last writer of a
 * storage did. */

typedef struct place {
    track_t track;
    uint64_t start_ns, end_ns;
    uint64_t version; /* of the storage, as written there */
} place_t;

typedef struct place_table {
    number_table_t numbers; /* of the list */
    place_t *places;
    size_t count;
} place_table_t;

void place_table_set(place_table_t *table, uint64_t key, place_t place);
/* NULL: there is none. Valid until the next set. */
const place_t *place_table_get(const place_table_t *table, uint64_t key);
void place_table_free(place_table_t *table);

#endif
