/* A recorded run as a report shows it: everything is read before anything is written.
 * Not here: the page (recording_page.h). Next: recording.c. */
#ifndef FERRY_TOOLS_RECORDING_H_
#define FERRY_TOOLS_RECORDING_H_

#include "tools/cli/event_totals.h"
#include "tools/report/blocks.h"
#include "tools/report/findings.h"
#include "tools/report/thin.h"
#include "tools/timeline/tracks.h"

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

#endif
