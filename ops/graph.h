/* A graph from inside: a handle around a recording. graph.c begins, ends and answers; replay.c
 * submits; capture.c hands all calls to a device that keeps graphs itself. Not here: what recording
 * does to a call (runtime/record/recording.h, the record function of dispatch.c). */
#ifndef FERRY_OPS_GRAPH_H_
#define FERRY_OPS_GRAPH_H_

#include <ferry/graph.h>

#include "runtime/record/recording.h"
#include "runtime/thread/scope.h"

/* Why a call is not part of a chain, or what became of it. */
typedef enum fy__fate {
    FY__FATE_ALONE, /* nothing beside it to join */
    FY__FATE_FUSED,
    FY__FATE_DROPPED, /* its results are not read */
    FY__FATE_TRANSFER,
    FY__FATE_REGISTERED,
    FY__FATE_NOT_ELEMENTWISE,
    FY__FATE_RESULTS,    /* several results */
    FY__FATE_DRAWS,      /* it writes a random generator */
    FY__FATE_STATISTICS, /* a norm: no result before all elements of a group were read */
    FY__FATE_NOT_ROWS,   /* a reduction, but not of short rows */
    FY__FATE_NO_ROWS,    /* a reduction of short rows, which no chain makes */
    FY__FATE_GAPS,       /* its result is a view with gaps */
    FY__FATE_SIZE,       /* the calls beside it have another number of elements */
    FY__FATE_OVERLAP,    /* its operands overlap those of the calls before it */
    FY__FATE_FULL,       /* the chain before it is as long as chains get */
    FY__FATE_DEVICE,     /* the device runs no chains */
    FY__FATE_OP,         /* its chains do not have this op */
    FY__FATE_DTYPE,      /* or this dtype */
    FY__FATE_REDUCTION,  /* or no reduction: the order of its sums would differ */
    FY__FATE_REFUSED,    /* the device does not run this chain */
    FY__FATE_OFF,        /* fuse=off */
    FY__FATE_COUNT
} fy__fate_t;

/* What a replay submits at once: a call, or a chain of calls. */
typedef struct fy__graph_step {
    uint32_t call, last; /* of a chain: its first and last call; dropped ones may be between */
    fy_launch_t *chain;  /* NULL: the call itself */
} fy__graph_step_t;

struct fy_graph {
    fy__handle_t handle;
    fy__recording_t recording;
    /* set by fuse.c: in memory of the recording */
    fy__graph_step_t *steps;
    uint32_t nsteps, chains, fused_calls, dropped_calls;
    uint64_t recorded_nbytes; /* of the pool before the steps were made */
    uint8_t *fates;           /* of each call: fy__fate_t */
    uint64_t replays;
    /* the device's own graph: a replay is one request for it. NULL: a replay submits call by
     * call */
    void *native;
    char reason[256]; /* why native is NULL; "" if it is not */
    bool is_tried;    /* it was asked for, or never will be */
};

/* The recording was closed: makes its steps. Calls whose results nothing can read are dropped, and
 * neighbours that are elementwise become chains. Fails only with OUT_OF_MEMORY. */
fy_status_t fy__graph_fuse(fy_graph_t *graph);
/* Moves bytes that only calls refer to, if the steps then need fewer segments. Fails only with
 * OUT_OF_MEMORY. */
fy_status_t fy__graph_layout(fy_graph_t *graph);
/* Releases memory that no step uses. */
void fy__graph_trim(fy__thread_t *thread, fy_graph_t *graph);
/* The addresses that an operand may touch. */
void fy__graph_extent(const fy_desc_t *desc, uintptr_t *out_begin, uintptr_t *out_end);
/* The launch of the chain of calls `first` .. `last` that are not dropped; NULL in *out_launch: the
 * device does not take it. `is_value`: by slot, whether a value between ops holds its bytes.
 * chain.c */
fy_status_t fy__graph_chain(fy_graph_t *graph, uint32_t first, uint32_t last,
                            const uint8_t *is_value, fy_launch_t **out_launch);
/* Row-major without gaps. */
bool fy__graph_is_flat(const fy_desc_t *desc);
/* The op is dropout: the numbers of its state and of the state before, results of the chain. */
void fy__graph_set_states(fy_chain_op_t *op, uint16_t state, uint16_t before);

/* The recording was closed: may the device keep it? */
void fy__graph_look(fy_graph_t *graph);
/* Before a replay submits anything. Asks the device for a native graph once, when all calls have
 * run once. A refusal is in the log and in `reason`, and replays submit call by call.
 * Fails only with DEVICE_LOST. */
fy_status_t fy__graph_capture_slow(fy_graph_t *graph);
static inline fy_status_t fy__graph_capture(fy_graph_t *graph)
{
    return FY_LIKELY(graph->is_tried) || !graph->replays ? FY_STATUS_OK
                                                         : fy__graph_capture_slow(graph);
}
/* The words that the calls' flags are raised in; NULL if no call has one. */
static inline uint32_t *fy__graph_flags(const fy_graph_t *graph)
{
    return graph->recording.flags ? graph->recording.flags->data : NULL;
}

#endif
