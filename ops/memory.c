/* The memory of a graph after its steps are made: segments that only values inside chains and
 * dropped calls used are released. Not here: segments (runtime/record/private.c), other places for
 * the remaining bytes (layout.c). */
#include "ops/graph.h"

static bool meets(const fy_desc_t *desc, uintptr_t begin, uintptr_t end)
{
    uintptr_t first, last;
    fy__graph_extent(desc, &first, &last);
    return first < end && begin < last;
}

static bool is_within(const void *address, uint64_t nbytes, uintptr_t begin, uintptr_t end)
{
    const uintptr_t first = (uintptr_t)address;
    return nbytes && first < end && begin < first + nbytes;
}

static bool launch_uses(const fy_launch_t *launch, uintptr_t begin, uintptr_t end)
{
    for (unsigned i = 0; i < launch->ndst; i++)
        if (meets(&launch->dst[i], begin, end)) return true;
    for (unsigned i = 0; i < launch->nsrc; i++)
        if (meets(&launch->src[i], begin, end)) return true;
    return is_within(launch->workspace, launch->workspace_nbytes, begin, end);
}

static bool is_used(const void *user, const void *address, uint64_t nbytes)
{
    const fy_graph_t *graph = user;
    const uintptr_t begin = (uintptr_t)address, end = begin + nbytes;
    for (uint32_t i = 0; i < graph->nsteps; i++) {
        const fy__graph_step_t *step = &graph->steps[i];
        const fy__recorded_t *call = &graph->recording.calls[step->call];
        if (!step->chain && call->is_upload
                ? is_within(call->upload.copy.dst, call->upload.copy.nbytes, begin, end)
                : launch_uses(step->chain ? step->chain : &call->launch, begin, end))
            return true;
    }
    return false;
}

void fy__graph_trim(fy__thread_t *thread, fy_graph_t *graph)
{
    if (graph->chains || graph->dropped_calls)
        fy__private_trim(thread, graph->recording.memory, is_used, graph);
}
