/* Facts of a recorded program that its lines do not have, found once: who uses a storage, which
 * event is a request, how long each call of the host took, and for how long the device stood idle
 * because of it. All times are by the model clock.
 * Not here: the file (program.h), conclusions (tools/advise/advice.h). Next: idle.c. */
#ifndef FERRY_TOOLS_FACTS_H_
#define FERRY_TOOLS_FACTS_H_

#include "tools/program/program.h"

/* One use of a storage. */
typedef struct facts_use {
    uint32_t event;
    bool is_write;
    uint64_t version;
} facts_use_t;

/* Parts of a run that can be busy. */
typedef enum facts_engine {
    FACTS_COMPUTE,
    FACTS_UPLOAD,
    FACTS_DOWNLOAD,
    FACTS_HOST,
    FACTS_ENGINES
} facts_engine_t;

/* What the device stood idle for. */
typedef enum facts_cause {
    FACTS_CAUSE_UPLOAD,
    FACTS_CAUSE_DOWNLOAD,
    FACTS_CAUSE_WAIT,    /* the host waited for a request, so it had submitted nothing */
    FACTS_CAUSE_SUBMIT,  /* the host was submitting the op */
    FACTS_CAUSE_HOST_OP, /* an op on the host */
    FACTS_CAUSE_OTHER,   /* other calls of the host, copies between devices */
    FACTS_CAUSES
} facts_cause_t;

/* A request's number on a stream, and its event. */
typedef struct facts_request {
    uint64_t seq;
    uint32_t stream, event;
} facts_request_t;

typedef struct facts {
    const program_t *program;
    uint64_t *host_begin;  /* by event: when the event before it ended, on any thread */
    uint64_t *start, *end; /* by event: when its request ran; end 0: unknown, or not a request */
    uint64_t *work_ns;     /* by event: of the host, with the staging copies; 0 of waits */
    /* By event: for how long the compute engine stood idle because of it (idle.c). */
    uint64_t *idle_ns;
    uint64_t *queue_ns; /* the same, while it was behind other transfers of its engine */
    /* By event: the request that it waited for, or whose bytes it took over; PROGRAM_NONE: none */
    uint32_t *awaited;
    facts_use_t *uses;         /* sorted by storage, then as in the file */
    size_t *first_use;         /* by storage; one more at the end */
    facts_request_t *requests; /* sorted by stream, then by number, then as in the file */
    size_t nrequests;
    uint32_t *by_end; /* requests that ran, sorted by their ends */
    size_t nby_end;
    /* The part that findings are measured against: the steps, or all if there are none. */
    uint64_t begin_ns, end_ns;
    uint64_t busy_ns[FACTS_ENGINES]; /* in that part */
    uint64_t idle_total_ns;
} facts_t;

void facts_create(const program_t *program, facts_t *out_facts);
void facts_free(facts_t *facts);

static inline const program_event_t *facts_event(const facts_t *facts, uint32_t event)
{
    return &facts->program->events[event];
}
/* PROGRAM_NONE: there is none. */
uint32_t facts_request(const facts_t *facts, uint32_t stream, uint64_t seq);
static inline const facts_use_t *facts_uses(const facts_t *facts, uint32_t storage,
                                            size_t *out_count)
{
    *out_count = facts->first_use[storage + 1] - facts->first_use[storage];
    return &facts->uses[facts->first_use[storage]];
}
/* Is it an op or a transfer on a device that is not the host? */
bool facts_is_request(const facts_t *facts, uint32_t event);
bool facts_is_on_host(const facts_t *facts, uint32_t event);
/* Is it a call? Lines about memory are parts of one, and the time belongs to the call. */
bool facts_takes_time(const facts_t *facts, uint32_t event);
/* Time of the host in this call. */
uint64_t facts_host_ns(const facts_t *facts, uint32_t event);
facts_engine_t facts_engine(const facts_t *facts, uint32_t event);
/* For how long its request used its engine: all pieces of a staged copy. 0: unknown. */
uint64_t facts_device_ns(const facts_t *facts, uint32_t event);
/* Did this event begin in the measured part? */
bool facts_is_measured(const facts_t *facts, uint32_t event);
/* The step that the event is in, or PROGRAM_NONE. */
uint32_t facts_step(const facts_t *facts, uint32_t event);

/* idle.c: fills idle_ns and idle_total_ns. */
void facts_find_idle(facts_t *facts);
facts_cause_t facts_cause(const facts_t *facts, uint32_t event);
/* "uploads", ... */
const char *facts_cause_name(facts_cause_t cause);

#endif
