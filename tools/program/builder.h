/* For schedule.c and schedule_copies.c: a schedule while it is built, in the order of the host's
 * clock. Not here: the schedule (schedule.h). */
#ifndef FERRY_TOOLS_BUILDER_H_
#define FERRY_TOOLS_BUILDER_H_

#include "tools/cli/tables.h"
#include "tools/program/schedule.h"

enum { BUILDER_RING_SLOTS = 4, BUILDER_FLIGHTS = 3, BUILDER_SLOTS = FY__SIM_ENGINE_COUNT + 1 };

/* Acts that used a storage last; PROGRAM_NONE: none. */
typedef struct builder_uses {
    uint32_t writer, readers[BUILDER_SLOTS];
} builder_uses_t;

typedef struct builder_device {
    uint64_t free_ns[FY__SIM_ENGINE_COUNT];
    uint32_t last[FY__SIM_ENGINE_COUNT]; /* acts */
    uint32_t ring[BUILDER_RING_SLOTS];   /* the last copies out of the staging ring */
    unsigned next_slot;
} builder_device_t;

/* By stream; acts, or PROGRAM_NONE. */
typedef struct builder_stream {
    uint32_t awaited; /* for which its next request waits */
    uint32_t last;    /* its last request */
} builder_stream_t;

typedef struct builder {
    const program_t *program;
    const figures_t *machines;
    schedule_t *schedule;
    builder_device_t *devices;
    builder_uses_t *uses; /* by storage */
    builder_stream_t *streams;
    uint64_t *ends_ns; /* by act */
    size_t nends;
    number_table_t points, ends;       /* acts by stream and number, and by their end */
    uint64_t now_ns;                   /* the host's, as far as acts explain it */
    uint64_t staged_nbytes;            /* of the transfer that is being staged */
    uint64_t packed_nbytes;            /* of earlier runs of the call that is being packed */
    uint32_t flights[BUILDER_FLIGHTS]; /* pieces of a download through the ring, the oldest first */
    int nflights;
} builder_t;

/* A request to be added. */
typedef struct request {
    act_t act;
    const program_event_t *event; /* has its model times, if is_timed */
    uint32_t host;                /* the event that it belongs to on the host, */
    uint64_t at_ns;               /* and when the host had submitted it */
    uint64_t staged_nbytes;       /* that the host copied into a staging buffer for it */
    uint32_t stream;
    uint64_t seq; /* 0: unknown */
    bool is_timed;
    bool is_first, is_last; /* of its pieces */
} request_t;

static inline uint64_t builder_key(uint32_t stream, uint64_t seq)
{
    return (uint64_t)stream << 48 | (seq & (UINT64_MAX >> 16));
}
static inline bool builder_is_simulated(const builder_t *builder, uint32_t device)
{
    return device != PROGRAM_NONE && builder->machines[device].device.memory_nbytes;
}
void builder_add_host(builder_t *builder, uint32_t event, uint64_t ns);
void builder_add_wait(builder_t *builder, uint32_t event, uint32_t awaited);
/* Adds a request that uses the operands of one event; returns its act. */
uint32_t builder_add_request(builder_t *builder, request_t *request,
                             const program_event_t *operands);
/* The same in parts: the act waits for others, which are added between these two; it becomes a use
 * of the sources of `event`, or of what it writes. */
uint32_t builder_submit(builder_t *builder, request_t *request);
void builder_end_request(builder_t *builder, const request_t *request, uint32_t index);
/* `other` may be PROGRAM_NONE. */
void builder_await(builder_t *builder, uint32_t index, uint32_t other);
void builder_add_hazards(builder_t *builder, const program_event_t *event, uint32_t act);
void builder_note_reads(builder_t *builder, const program_event_t *event, uint32_t act);
void builder_note_writes(builder_t *builder, const program_event_t *event, uint32_t act);

/* ---- schedule_copies.c ---- */

/* A COPY event, with what its transfer needs besides. */
void builder_add_copy(builder_t *builder, uint32_t index);
/* The host waits for the oldest piece of a download and copies it out of its staging buffer. */
void builder_empty_oldest(builder_t *builder, uint32_t event);

#endif
