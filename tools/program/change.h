/* The editor of schedules: changes of a recorded program, each of which can be executed on the
 * model clock. A change edits a copy of the schedule; the recording is not touched. Several
 * changes can follow one another: acts keep the event that they belong to. Not here: which change
 * is worth it (tools/advise). Next: change.c; change_waits.c and change_series.c keep the order of
 * acts, change_order.c moves them. */
#ifndef FERRY_TOOLS_CHANGE_H_
#define FERRY_TOOLS_CHANGE_H_

#include "tools/program/facts.h"
#include "tools/program/predict.h"

/* The bytes are assumed to be such that the change is correct. */
typedef enum change_kind {
    CHANGE_NONE,
    /* They do not happen, nor the host's waits for them. Requests that came after one of them come
     * after the requests before it. TRANSFER, SYNC, OP on the host. */
    CHANGE_DROP,
    /* Their memory on the host is page-locked: each is one copy, which neither is staged nor holds
     * the host. TRANSFER. */
    CHANGE_PIN,
    /* Three or more of a step in one direction become one copy at the last of them, and a kernel
     * that scatters or gathers the bytes, as fy_tensor_upload_many and _download_many do. One wait,
     * if there were some. A request in between that needs the bytes divides them. TRANSFER. */
    CHANGE_BATCH,
    /* The host waits for the one of `steps` events before, and for the last ones at the end of the
     * program. TRANSFER. */
    CHANGE_READ_LATER,
    /* The same for copies that wait inside their call: page-locked, too. */
    CHANGE_UNBLOCK,
    /* They are submitted `steps` steps earlier, at the begin of that step, into other memory: a
     * deeper prefetch. TRANSFER. */
    CHANGE_UPLOAD_EARLIER,
    /* Each waits for what the one before it waited for: buffers take turns. TRANSFER. */
    CHANGE_SECOND_BUFFER,
    /* Each series becomes one op, which reads the bytes from outside and writes the last result.
     * OP. */
    CHANGE_FUSE,
    /* Ops with no other request of the host between them are submitted at once, as a device with
     * graphs does: submission costs the host one launch. Kernels take as long as before. OP. */
    CHANGE_GRAPH
} change_kind_t;

typedef struct change {
    change_kind_t kind;
    uint32_t steps;         /* READ_LATER, UNBLOCK, UPLOAD_EARLIER */
    const uint32_t *events; /* of the program, in its order */
    size_t nevents;
    const uint32_t *costs; /* events that are there only because of them, such as waits */
    size_t ncosts;
    /* FUSE, BATCH, GRAPH: by place in `events`: it begins a series. NULL: none does. */
    const bool *begins;
} change_t;

typedef struct proof {
    prediction_t before, after;
    int64_t saved_ns; /* of the whole program, by the model clock; negative: it became slower */
} proof_t;

/* Edits the schedule. `facts`: of its program. Fails: INVALID_ARGUMENT (an event of the wrong
 * kind); nothing has changed then. */
fy_status_t change_apply(schedule_t *schedule, const facts_t *facts, const change_t *change);
/* Executes the schedule without and with the changes, on `machines` (as schedule_run). */
fy_status_t change_prove(const schedule_t *schedule, const facts_t *facts,
                         const figures_t *machines, const change_t *changes, size_t count,
                         proof_t *out_proof);
/* The bytes that a series of ops reads from outside, and those of its last result. out_all may be
 * NULL: the bytes of all operands of all its ops. */
uint64_t change_outer_nbytes(const facts_t *facts, const uint32_t *ops, size_t count,
                             uint64_t *out_all);

/* ---- for the other sources of changes ---- */

typedef struct changer {
    const facts_t *facts;
    const change_t *change;
    schedule_t *schedule;
    uint32_t *owner;   /* by event: the call of which it is a part */
    uint32_t *request; /* by event: the last request act of that call; PROGRAM_NONE: none */
    size_t *place;     /* by event: 1, 2, ... in change->events; 0: it is not there */
    bool *is_cost;     /* by event: it is in change->events or change->costs */
} changer_t;

static inline uint32_t change_owner(const changer_t *changer, const act_t *act)
{
    return changer->owner[act->event];
}
/* Is the act a copy of a transfer that is changed? */
bool change_has(const changer_t *changer, const act_t *act);
/* The act becomes host work of 0 ns, so that all others keep their numbers. It keeps what it came
 * after, for change_mend; what waits for it finds it done. */
void change_drop(act_t *act);
/* Requests that came after a dropped one come after what that one came after. */
void change_mend(changer_t *changer);

/* change_waits.c */
void change_read_later(changer_t *changer);
void change_unblock(changer_t *changer);
void change_second_buffer(changer_t *changer);
void change_pin(changer_t *changer);
/* change_series.c */
void change_fuse(changer_t *changer);
void change_graph(changer_t *changer);
/* change_order.c */
void change_batch(changer_t *changer);
void change_upload_earlier(changer_t *changer);

#endif
