/* A graph from inside: a handle around a recording. graph.c begins, ends and answers; replay.c
 * submits; capture.c hands all calls to a device that keeps graphs itself. Not here: what recording
 * does to a call (runtime/record/recording.h, the record function of dispatch.c). */
#ifndef FERRY_OPS_GRAPH_H_
#define FERRY_OPS_GRAPH_H_

#include <ferry/graph.h>

#include "runtime/record/recording.h"
#include "runtime/thread/scope.h"

struct fy_graph {
    fy__handle_t handle;
    fy__recording_t recording;
    uint64_t replays;
    /* the device's own graph: a replay is one request for it. NULL: a replay submits call by
     * call */
    void *native;
    char reason[256]; /* why native is NULL; "" if it is not */
    bool is_tried;    /* it was asked for, or never will be */
};

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
