/* Makes a timeline of events: tracks for the host's threads and for each stream of each device,
 * arrows for dependencies and waits, counters for memory.
 * On the model clock a thread's call lasts from the thread's call before it, because only calls
 * advance that clock; a request lasts as its device computed. On the wall clock only waits and
 * calls between ranks have a length, and devices have no tracks: their wall times are unknown. A
 * thread's calls between ranks have a separate track, on the wall clock only: a network takes no
 * time of the model clock.
 * Not here: the file's form (trace_file.h), reading events (tools/cli/event_file.h). */
#ifndef FERRY_TOOLS_TRACKS_H_
#define FERRY_TOOLS_TRACKS_H_

#include "tools/cli/event_file.h"
#include "tools/cli/tables.h"
#include "tools/timeline/trace_file.h"

typedef enum tracks_clock { TRACKS_MODEL, TRACKS_WALL, TRACKS_CLOCKS } tracks_clock_t;

/* The process of the host's tracks is this plus the clock; those of devices are larger. */
enum { TRACKS_HOST_PROCESS = 1 };

/* A thread's track is its number plus 1; that of its calls between ranks is this much more. */
enum { TRACKS_RANKS = 1 << 21 };

typedef struct tracks {
    trace_file_t *trace;
    const char *under; /* only calls inside this scope path; "": all */
    bool shows[TRACKS_CLOCKS];
    uint64_t taken[TRACKS_CLOCKS];   /* events with a time on that clock */
    uint64_t last_ns[TRACKS_CLOCKS]; /* the latest time so far */
    struct tracks_thread *threads;
    struct tracks_pool *pools;
    struct tracks_wait *waits;     /* of requests that are not submitted yet */
    struct tracks_queued *queued;  /* transfers that are not started yet */
    struct tracks_arrival *flying; /* a heap: transfers under way, the earliest end first */
    size_t nthreads, npools, nwaits, nqueued, nflying;
    number_table_t thread_numbers, stream_processes; /* by number in the file */
    text_index_t devices, pool_index;                /* by name; of a device: its process */
    uint64_t flying_nbytes;
    place_table_t requests, writers; /* by stream and number; by storage */
} tracks_t;

/* For event_file_read; user: a tracks_t. */
void tracks_add(void *user, const event_t *event);
/* Ends what is open. */
void tracks_finish(tracks_t *tracks);
void tracks_free(tracks_t *tracks);

#endif
