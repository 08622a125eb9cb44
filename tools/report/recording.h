/* A recorded run as a report shows it: everything is read before anything is written.
 * Not here: the page (page.h). Next: recording.c. */
#ifndef FERRY_TOOLS_RECORDING_H_
#define FERRY_TOOLS_RECORDING_H_

#include "tools/cli/event_totals.h"
#include "tools/report/blocks.h"
#include "tools/report/page.h"
#include "tools/report/shares.h"
#include "tools/timeline/tracks.h"

/* ---- thin.c: a timeline with too many slices for a page keeps its first and its last part;
 * between them, neighbours on a lane are merged ---- */

typedef struct thin {
    uint64_t before;            /* slices that there were */
    uint64_t from_ns, until_ns; /* slices that begin there are merged; equal: none is */
} thin_t;

/* Changes the slices and the arrows' numbers; arrows to merged slices are removed. About `most`
 * slices stay. The parts in full end and begin with a whole step where one fits. */
thin_t thin_slices(slices_t *slices, const scope_times_t *times, size_t most);

/* The advisor's findings (tools/advise/advice.h). */
typedef struct findings {
    char *json; /* an object with the list "findings", as `ferry advise --json` has it; NULL: the
                   recording is no file that can be read again */
    size_t count;
    char step_path[300];          /* of the run's steps; "": it has none, or is no such file */
    uint64_t saving_ns, total_ns; /* the largest saving, of that time; 0: without a model clock */
} findings_t;

typedef struct run {
    const char *file;
    event_totals_t totals;
    event_file_info_t info;
    slices_t slices;
    blocks_t blocks;
    shares_t shares;
    scope_times_t times;
    thin_t thin;
    findings_t findings;
    tracks_clock_t clock; /* model, if the file has it */
    uint64_t end_ns;      /* of all slices and events, on that clock */
    uint64_t wall_ns;     /* of the recording */
    /* Keys and values, "key\0value\0...\0\0": of the first line; names and facts of devices. */
    char *header, *devices;
    size_t header_nbytes, devices_nbytes;
} recording_t;

/* About `most` slices are kept. Free the run in either case. Fails: IO, CORRUPT_DATA. A file that
 * has no end is OK, and run->info tells. */
fy_status_t recording_read(recording_t *run, const char *path, size_t most);
void recording_free(recording_t *run);

/* The shares of the steps, from the first one's begin to the end of the last one and its requests;
 * without steps, or if `of_all`, of the whole run. Returns the length of that part. */
uint64_t recording_shares(const recording_t *run, bool of_all, uint64_t sums[SHARES]);

/* ---- summary.c: the sentence at the head of a report ---- */

/* "61 % of the step ...", of one run. */
void summary_of(const recording_t *run, char *out_text, size_t size);
/* How the second run differs from the first one. */
void summary_of_two(const recording_t *first, const recording_t *second, char *out_text,
                    size_t size);
/* "8.25 ms"; `out_text` has SUMMARY_TIME bytes. Returns it. */
enum { SUMMARY_TIME = 32 };
const char *summary_time(double ns, char *out_text);

/* ---- recording_page.c: an object of the report's document, which page/run.js reads ---- */

void recording_page_write(page_t *page, recording_t *run);

#endif
