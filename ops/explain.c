/* Texts for fy_graph_explain: the chain of each call, or the reason why it has none. Not here:
 * the decisions (fuse.c). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ops/dispatch.h"
#include "ops/graph.h"

static const char *const reasons[FY__FATE_COUNT] = {
    [FY__FATE_ALONE] = "no call beside it can join it",
    [FY__FATE_TRANSFER] = "it is a transfer",
    [FY__FATE_REGISTERED] = "its op is registered by the program",
    [FY__FATE_NOT_ELEMENTWISE] = "it is not elementwise",
    [FY__FATE_RESULTS] = "it has more than one result",
    [FY__FATE_DRAWS] = "it draws numbers: its generator is a second result",
    [FY__FATE_STATISTICS] =
        "it is a norm: statistics come first; a batch norm takes relu and residual itself",
    [FY__FATE_NOT_ROWS] = "it does not reduce rows of 2 to 1024 neighbours",
    [FY__FATE_NO_ROWS] = "no chain before it makes the rows that it reduces",
    [FY__FATE_GAPS] = "its result is a view with gaps",
    [FY__FATE_SIZE] = "the calls beside it have another number of elements",
    [FY__FATE_OVERLAP] = "its operands overlap those of the calls before it",
    [FY__FATE_FULL] = "the chain before it is full",
    [FY__FATE_DEVICE] = "this device runs chains call by call",
    [FY__FATE_OP] = "this device has no code for its op in chains",
    [FY__FATE_DTYPE] = "chains of this device compute in f32, which it does not",
    [FY__FATE_REDUCTION] = "a chain of this device would add its rows in another order",
    [FY__FATE_REFUSED] = "a chain here would have too many operands, axes or values at once",
    [FY__FATE_OFF] = "fuse=off",
};

static const char *name_of(const fy__recorded_t *call)
{
    if (call->is_upload) return "upload";
    const fy__op_row_t *row = fy__op_row(call->launch.op);
    return row ? row->info.name : "?";
}

static void say_call(const fy_graph_t *graph, uint32_t i, fy_fact_fn say, void *user)
{
    char text[192];
    const bool is_dropped = graph->fates[i] == FY__FATE_DROPPED;
    snprintf(text, sizeof text, "%" PRIu32 " %s: %s", i + 1, name_of(&graph->recording.calls[i]),
             is_dropped ? "nothing reads its results" : reasons[graph->fates[i]]);
    say(user, is_dropped ? "dropped" : "call", text);
}

static void say_chain(const fy_graph_t *graph, const fy__graph_step_t *step, fy_fact_fn say,
                      void *user)
{
    char text[1024];
    size_t at = 0;
    uint64_t alone = 0;
    for (uint32_t i = step->call; i <= step->last; i++) {
        const fy__recorded_t *call = &graph->recording.calls[i];
        if (graph->fates[i] == FY__FATE_DROPPED) continue;
        if (__builtin_add_overflow(alone, call->launch.nbytes, &alone)) alone = UINT64_MAX;
        if (at < sizeof text - 160)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%" PRIu32 " %s", at ? ", " : "",
                                   i + 1, name_of(call));
        else if (strcmp(text + at - 3, "...") != 0)
            at += (size_t)snprintf(text + at, sizeof text - at, ", ...");
    }
    snprintf(text + at, sizeof text - at,
             ": %" PRIu64 " elements, %" PRIu64 " bytes instead of %" PRIu64, step->chain->nelem,
             step->chain->nbytes, alone);
    say(user, "chain", text);
}

fy_status_t fy_graph_explain(const fy_graph_t *graph, fy_fact_fn say, void *user)
{
    if (!graph) return FY_FAIL(INVALID_ARGUMENT, "graph_explain: graph is NULL");
    if (!say) return FY_FAIL(INVALID_ARGUMENT, "graph_explain: say is NULL");
    uint32_t next = 0;
    for (uint32_t i = 0; i < graph->nsteps; i++) {
        const fy__graph_step_t *step = &graph->steps[i];
        for (; next < step->call; next++) say_call(graph, next, say, user);
        if (step->chain)
            say_chain(graph, step, say, user);
        else
            say_call(graph, step->call, say, user);
        for (next = step->call; next <= step->last; next++)
            if (step->chain && graph->fates[next] == FY__FATE_DROPPED)
                say_call(graph, next, say, user);
    }
    for (; next < graph->recording.ncalls; next++) say_call(graph, next, say, user);
    return FY_STATUS_OK;
}
