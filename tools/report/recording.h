/* A recorded run as a report shows it: everything is read before anything is written.
 * Not here: the page (page.h). Next: recording.c. */
#ifndef FERRY_TOOLS_RECORDING_H_
#define FERRY_TOOLS_RECORDING_H_

#include "tools/cli/event_totals.h"
#include "tools/report/page.h"
#include "tools/report/shares.h"
#include "tools/timeline/tracks.h"

/* ---- blocks.c: the blocks of each pool over time: live bytes by category, and which scopes owned
 * those that were live at the peak ---- */

enum { BLOCK_CATEGORIES = 16 };

typedef struct block_step { /* an allocation or a free */
    uint64_t
        at_ns[TRACKS_CLOCKS]; /* of the clocks, in order; a clock without a time keeps its last */
    int64_t nbytes;
    uint32_t scope; /* of the allocation, a text */
    uint32_t category;
    uint32_t name;         /* of the largest tensor in it that has one, a text */
    uint64_t named_nbytes; /* of that tensor */
    uint64_t ends;         /* of an allocation: the number of the free; UINT64_MAX: none */
} block_step_t;

typedef struct block_pool {
    char *name;
    block_step_t *steps;
    size_t count;
    uint64_t before;              /* bytes that were live when the recording began */
    uint64_t live, peak, peak_at; /* peak_at: the number of steps until then */
} block_pool_t;

/* Live bytes at one moment. */
typedef struct block_point {
    uint64_t at_ns, total, by_category[BLOCK_CATEGORIES];
} block_point_t;

typedef struct block_owner {
    uint32_t scope, category, name; /* name: of the tensor, a text */
    uint64_t nbytes, count;
} block_owner_t;

/* The last allocation of a block. */
typedef struct block_open {
    uint64_t step; /* UINT64_MAX: none */
    uint32_t pool;
} block_open_t;

typedef struct blocks {
    block_pool_t *pools;
    size_t npools;
    text_index_t pool_index;
    pair_table_t numbers; /* of blocks, by pool and number in the file */
    block_open_t *open;   /* by the block's number here */
    size_t nblocks;
    char *categories[BLOCK_CATEGORIES];
    size_t ncategories;
    number_table_t storages; /* their blocks' numbers here, by storage */
    uint64_t last_ns[TRACKS_CLOCKS];
} blocks_t;

/* Takes blocks, pools, storages and names of tensors; other events change nothing. Scopes and names
 * become texts of `slices`. */
void blocks_add(blocks_t *blocks, slices_t *slices, const event_t *event);
/* At most about `most` points; each minimum and maximum of an interval is one of them. The list is
 * the caller's to free. */
block_point_t *blocks_points(const block_pool_t *pool, tracks_clock_t clock, size_t most,
                             size_t *out_count);
/* Owners of the peak's bytes, the largest first. The list is the caller's to free. */
block_owner_t *blocks_owners(const block_pool_t *pool, size_t *out_count);
void blocks_free(blocks_t *blocks);

/* ---- thin.c: a timeline with too many slices for a page keeps its first and its last part;
 * between them, neighbours on a lane are merged ---- */

typedef struct thin {
    uint64_t before;            /* slices that there were */
    uint64_t from_ns, until_ns; /* slices that begin there are merged; equal: none is */
} thin_t;

/* Changes the slices and the arrows' numbers; arrows to merged slices are removed. About `most`
 * slices stay. The parts in full end and begin with a whole step where one fits. */
thin_t thin_slices(slices_t *slices, const scope_times_t *times, size_t most);

/* Lines of a file that the advisor reads for a report. */
enum { FINDINGS_EVENTS = 1000000 };

/* The advisor's findings (tools/advise/advice.h). */
typedef struct findings {
    char *json; /* an object with the list "findings", as `ferry advise --json` has it; NULL: the
                   recording is no file that can be read again */
    size_t count;
    char step_path[300];          /* of the run's steps; "": it has none, or is no such file */
    uint64_t saving_ns, total_ns; /* the largest saving, of that time; 0: without a model clock */
    uint64_t nfirst;              /* lines of the file that they are about; 0: all */
    bool has_model_clock;         /* false: not in those lines */
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

/* ---- recording_page.c: an object of the report's document, which page/run.js reads ---- */

void recording_page_write(page_t *page, recording_t *run);

#endif
