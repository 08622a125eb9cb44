/* Allocation traces: what one pool was asked for, in order, as plain numbers. They come from event
 * files (docs/internals/events.md) or from compact traces, a text format (tests/traces/README.md).
 * Not here: replaying them (replay.h). Next: trace.c, trace_events.c. */
#ifndef FERRY_TOOLS_TRACE_H_
#define FERRY_TOOLS_TRACE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <ferry/plan.h>

#include "tools/cli/text_file.h"
#include "tools/cli/tables.h"

/* One event. A block is known by its number: the first that is asked for is 0. */
enum { TRACE_NO_BLOCK = 0xffffffff };
typedef struct trace_step {
    /* asked for; 0: the block goes back, or, of TRACE_NO_BLOCK, a stream has reached a point */
    uint64_t nbytes;
    uint32_t block, scope;
    uint32_t stream;  /* that uses the bytes first; 0: the host */
    uint32_t npoints; /* that a block waits for when it goes back, or the one that was reached */
    size_t points;    /* where they are in the trace's list */
} trace_step_t;

typedef struct trace {
    char *pool;          /* its name: "sim:0", "pinned memory of sim:0", "host" */
    const char **scopes; /* texts of the index */
    text_index_t scope_index;
    trace_step_t *steps;
    fy_pool_point_t *points;
    size_t nscopes, nsteps, nblocks, npoints;
    bool has_streams; /* some step has a stream or a point */
    /* the pool's own, as fy_pool_options_t has them; segment_nbytes 0: unknown */
    uint64_t segment_nbytes, resize_nbytes;
    bool keeps_segments;
    /* freed blocks that were allocated before the recording began: left out */
    uint64_t unknown;
    /* most bytes allocated and not freed, and the first step (from 1) that reached them */
    uint64_t peak, peak_step;
} trace_t;

typedef struct traces {
    trace_t *list;
    size_t count;
    bool is_cut_off; /* an event file without its end: what is there was read */
} traces_t;

/* Reads either kind of file, one trace per pool; a pool that was created again has a separate
 * trace, "sim:0 (2)". Fails: IO, CORRUPT_DATA (with the line's number). On failure *out_traces is
 * empty. */
fy_status_t traces_read(const char *path, traces_t *out_traces);
void traces_free(traces_t *traces);
/* Writes a compact trace, with `comment` (lines without a '#', or NULL) at its head. Fails: IO. */
fy_status_t trace_write(const trace_t *trace, const char *comment, const char *path);

/* ---- for readers and makers of traces ---- */

/* A trace that is to be filled. */
trace_t *traces_add(traces_t *traces, const char *pool);
uint32_t trace_scope(trace_t *trace, const char *path);
/* Returns the block's number. */
uint32_t trace_take(trace_t *trace, uint64_t nbytes, uint32_t scope);
void trace_give(trace_t *trace, uint32_t block, uint32_t scope);
/* As take, for bytes that `stream` uses first. */
uint32_t trace_take_on(trace_t *trace, uint64_t nbytes, uint32_t stream, uint32_t scope);
/* trace_give_after: as trace_give, for a block that may be in use until these points are reached.
 * trace_reach: `point` is reached. */
void trace_give_after(trace_t *trace, uint32_t block, const fy_pool_point_t *points, size_t npoints,
                      uint32_t scope);
void trace_reach(trace_t *trace, fy_pool_point_t point, uint32_t scope);
/* Are the points valid: at most FY_POOL_POINTS_MOST, each of another stream? */
bool trace_points_are_good(const fy_pool_point_t *points, size_t npoints);
/* Finds the peak; after the last step. False: more bytes at once than there can be, 2^63 or
 * more. */
bool trace_finish(trace_t *trace);

/* trace_events.c: fills one trace per pool of an event file. */
fy_status_t traces_read_events(text_lines_t *lines, traces_t *traces);

#endif
