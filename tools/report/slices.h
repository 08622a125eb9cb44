/* The slices and arrows of a timeline in memory, by lane: what tools/timeline makes of events, for
 * `ferry report`. A track has one lane for its calls or requests and one for each depth of scopes.
 * Not here: what becomes a slice (tools/timeline/tracks.h), leaving some out (recording.h).
 * Next: slices.c. */
#ifndef FERRY_TOOLS_SLICES_H_
#define FERRY_TOOLS_SLICES_H_

#include <stddef.h>
#include <stdint.h>

#include "tools/cli/tables.h"
#include "tools/timeline/trace_file.h"

/* The order is that of `kinds` in page/run.js. */
typedef enum slice_kind {
    SLICE_OP,
    SLICE_UPLOAD,
    SLICE_DOWNLOAD,
    SLICE_PEER,
    SLICE_CALL,
    SLICE_WAIT,
    SLICE_SCOPE
} slice_kind_t;

typedef struct slice {
    uint64_t start_ns, end_ns, busy_ns; /* busy: without the gaps between merged slices */
    uint64_t nbytes, flops;
    uint32_t kind : 4;          /* slice_kind_t */
    uint32_t name : 28;         /* the number of a text, as the next */
    uint32_t scope, site, path; /* path: of an op its shapes */
    uint32_t tensors;           /* their names */
    uint32_t count;             /* of slices that are merged into this one, or 1 */
} slice_t;

typedef struct lane {
    track_t track;
    uint32_t depth; /* 0: calls or requests; else scopes, from 1 */
    uint32_t nopen; /* scopes of the track that are open; in the lane of depth 0 */
    uint32_t name;  /* of the track, a text */
    slice_t *slices;
    size_t count;
} lane_t;

/* From a slice to one that waited for it. Until slices_finish, slices are moments on lanes. */
typedef struct arrow {
    uint64_t from_slice, to_slice;
    uint32_t from_lane, to_lane;
    uint32_t name;
} arrow_t;

typedef struct slices {
    lane_t *lanes;
    arrow_t *arrows;
    char **texts;
    char **processes; /* names by number; NULL: none */
    size_t nlanes, narrows, ntexts, nprocesses;
    text_index_t text_index;
    place_table_t lane_index;
    slice_t *last; /* takes the arguments; NULL: none */
} slices_t;

/* The sink of a trace_file_t whose `user` is a slices_t that began as zeros. */
extern const trace_sink_t slices_sink;

/* Sorts each lane by time and gives arrows their slices. Nothing is added afterwards. */
void slices_finish(slices_t *slices);
void slices_free(slices_t *slices);
/* The number of a text, which is copied. Numbers are given from 0 in the order of the calls; ""
 * is 0 if it comes first. */
uint32_t slices_text(slices_t *slices, const char *text);

#endif
