/* A graph from inside: a handle around a recording. graph.c begins, ends and answers; replay.c submits.
 * Not here: what recording does to a call (runtime/recording.h, the record function of dispatch.c). */
#ifndef FERRY_OPS_GRAPH_H_
#define FERRY_OPS_GRAPH_H_

#include <ferry/graph.h>

#include "runtime/recording.h"
#include "runtime/scope.h"

struct fy_graph {
    fy__handle_t handle;
    fy__recording_t recording;
    uint64_t replays;
};

#endif
