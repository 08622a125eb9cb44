/* Facts that rules need of a recorded program, found once: who uses a storage, which event is a
 * request, how long each call of the host took, and for how long the device stood idle because of
 * it. All times are by the model clock.
 * Not here: the file (tools/program/program.h), conclusions (advice.h). Next: idle.c. */
#ifndef FERRY_TOOLS_ADVISE_RUN_H_
#define FERRY_TOOLS_ADVISE_RUN_H_

#include "tools/program/program.h"

/* One use of a storage. */
typedef struct run_use {
    uint32_t event;
    bool is_write;
    uint64_t version;
} run_use_t;

/* What can be busy. */
typedef enum run_engine {
    RUN_COMPUTE,
    RUN_UPLOAD,
    RUN_DOWNLOAD,
    RUN_HOST,
    RUN_ENGINES
} run_engine_t;

typedef struct run {
    const program_t *program;
    uint64_t *host_begin;  /* by event: when the event before it ended, on any thread */
    uint64_t *start, *end; /* by event: when its request ran; end 0: unknown, or not a request */
    uint64_t *work_ns;     /* by event: of the host, with the staging copies; 0 of waits */
    /* By event: for how long the compute engine stood idle because of it (idle.c). */
    uint64_t *idle_ns;
    /* By event: the request that it waited for, or whose bytes it took over; PROGRAM_NONE: none */
    uint32_t *awaited;
    run_use_t *uses;     /* sorted by storage, then as in the file */
    size_t *first_use;   /* by storage; one more at the end */
    uint32_t **requests; /* by stream and number */
    size_t *nrequests;   /* by stream */
    uint32_t *by_end;    /* requests that ran, sorted by their ends */
    size_t nby_end;
    /* The part that findings are measured against: the steps, or all if there are none. */
    uint64_t begin_ns, end_ns;
    uint64_t busy_ns[RUN_ENGINES]; /* in that part */
    uint64_t idle_total_ns;
} run_t;

void run_create(const program_t *program, run_t *out_run);
void run_free(run_t *run);

static inline const program_event_t *run_event(const run_t *run, uint32_t event)
{
    return &run->program->events[event];
}
/* PROGRAM_NONE: there is none. */
uint32_t run_request(const run_t *run, uint32_t stream, uint64_t seq);
static inline const run_use_t *run_uses(const run_t *run, uint32_t storage, size_t *out_count)
{
    *out_count = run->first_use[storage + 1] - run->first_use[storage];
    return &run->uses[run->first_use[storage]];
}
/* Is it an op or a transfer on a device that is not the host? */
bool run_is_request(const run_t *run, uint32_t event);
bool run_is_on_host(const run_t *run, uint32_t event);
/* Is it a call? Lines about memory are parts of one, and the time belongs to the call. */
bool run_takes_time(const run_t *run, uint32_t event);
/* Time of the host in this call. */
uint64_t run_host_ns(const run_t *run, uint32_t event);
run_engine_t run_engine(const run_t *run, uint32_t event);
/* For how long its request used its engine: all pieces of a staged copy. 0: unknown. */
uint64_t run_device_ns(const run_t *run, uint32_t event);
/* Did this event begin in the measured part? */
bool run_is_measured(const run_t *run, uint32_t event);
/* The step that the event is in, or PROGRAM_NONE. */
uint32_t run_step(const run_t *run, uint32_t event);

/* idle.c: fills idle_ns and idle_total_ns. */
void run_find_idle(run_t *run);

#endif
