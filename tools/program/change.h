/* Changes of a recorded program, proved: the changed requests are executed on the model clock,
 * beside the recorded ones. A change is another schedule; the recording is not touched.
 * Not here: which change is worth it (tools/advise). Next: change.c, change_order.c. */
#ifndef FERRY_TOOLS_CHANGE_H_
#define FERRY_TOOLS_CHANGE_H_

#include "tools/program/predict.h"

/* Of TRANSFERs; GRAPH of OPs. The bytes are assumed to be such that the change is correct. */
typedef enum change_kind {
    /* They do not happen, nor the host's waits for them: dead and repeated copies. */
    CHANGE_DROP,
    /* Their memory on the host is page-locked: each is one copy, which neither is staged nor holds
     * the host. */
    CHANGE_PIN,
    /* Three or more of a step in one direction become one copy at the last of them, and a kernel
     * that scatters or gathers the bytes, as fy_tensor_upload_many and _download_many do. One wait,
     * if there were some. A request in between that needs the bytes divides them. */
    CHANGE_BATCH,
    /* The host waits for these downloads `steps` steps later, at the end of that step. */
    CHANGE_READ_LATER,
    /* These uploads are submitted `steps` steps earlier, at the begin of that step, into other
     * memory: a deeper prefetch. */
    CHANGE_UPLOAD_EARLIER,
    /* Ops with no other request of the host between them are submitted at once, as a device with
     * graphs does: submission costs the host one launch. Kernels take as long as before. */
    CHANGE_GRAPH
} change_kind_t;

typedef struct change {
    change_kind_t kind;
    uint32_t steps;         /* READ_LATER, UPLOAD_EARLIER */
    const uint32_t *events; /* of the program */
    size_t nevents;
} change_t;

typedef struct proof {
    prediction_t before, after;
    int64_t saved_ns; /* of the whole program, by the model clock; negative: it became slower */
} proof_t;

/* The changed schedule; free it, also after a failure. Fails: INVALID_ARGUMENT (an event of the
 * wrong kind). */
fy_status_t change_make(const schedule_t *schedule, const change_t *change,
                        schedule_t *out_changed);
/* Executes the schedule without and with the change, on `machines` (as schedule_run). */
fy_status_t change_prove(const schedule_t *schedule, const figures_t *machines,
                         const change_t *change, proof_t *out_proof);

/* ---- change_order.c, for change.c ---- */

typedef struct changer {
    schedule_t *schedule; /* the changed one */
    bool *is_changed;     /* by event: those that are named, their pieces and their submissions */
    uint32_t steps;
} changer_t;

/* The act becomes host work of 0 ns, so that all others keep their numbers; what waits for it finds
 * it done. */
void change_drop(act_t *act);
/* Is the act a request of a transfer that is changed? */
bool change_has(const changer_t *changer, const act_t *act);
void change_batch(changer_t *changer);
void change_read_later(changer_t *changer);
void change_upload_earlier(changer_t *changer);

#endif
