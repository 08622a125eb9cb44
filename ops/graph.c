/* Graphs: beginning, ending, asking, destroying. While one is recorded its handle belongs to the
 * scope that was innermost at the begin, so that the scope's end gives the recording up. Next:
 * replay.c. */
#include "ops/graph.h"

#include <stdlib.h>

#include "runtime/base/abi_structs.h"
#include "runtime/thread/watch.h"

fy_status_t fy_graph_begin(fy_device_t *device)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!device) return FY_FAIL(INVALID_ARGUMENT, "graph_begin: device is NULL");
    if (thread->recording)
        return FY_FAIL(BUSY,
                       "graph_begin: this thread records a graph on %s already\n  End that one "
                       "with fy_graph_end first",
                       thread->recording->device->spec);
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    fy_graph_t *graph = calloc(1, sizeof *graph);
    if (!graph)
        return FY_FAIL(OUT_OF_MEMORY, "graph_begin: no host memory for %zu bytes", sizeof *graph);
    fy__recording_t *recording = &graph->recording;
    const fy_status_t status = fy__private_create(device, &recording->memory);
    if (status != FY_STATUS_OK) {
        free(graph);
        return status;
    }
    recording->device = device;
    recording->handle = &graph->handle;
    graph->handle.kind = FY__HANDLE_GRAPH;
    fy__handle_adopt(thread->frame, &graph->handle);
    thread->recording = recording;
    fy__watch_hold(FY__WATCH_GRAPH);
    return FY_STATUS_OK;
}

/* Tensors made inside hold nothing before the first replay (fill_unplayed in replay.c), and never
 * without one. */
static void poison_results(const fy__recording_t *recording)
{
    for (uint32_t i = 0; i < recording->nslots; i++) {
        fy__recording_slot_t *slot = &recording->slots[i];
        if (slot->is_inside && slot->storage)
            fy__storage_poison(slot->storage, FY__POISON_UNPLAYED);
    }
}

static void stop(fy__thread_t *thread)
{
    poison_results(thread->recording);
    thread->recording = NULL;
    fy__watch_release(FY__WATCH_GRAPH);
}

fy_status_t fy_graph_end(fy_graph_t **out_graph)
{
    fy__thread_t *thread = fy__thread();
    if (out_graph) *out_graph = NULL;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!thread->recording)
        return FY_FAIL(INVALID_ARGUMENT, "graph_end: this thread records no graph: none was begun, "
                                         "or the end of a scope gave it up");
    if (!out_graph)
        return FY_FAIL(INVALID_ARGUMENT, "graph_end: out_graph is NULL; the recording goes on");
    fy__recording_t *recording = thread->recording;
    fy_graph_t *graph = (fy_graph_t *)recording->handle;
    stop(thread);
    fy_status_t status = recording->status;
    fy__error_copy_t first = recording->error;
    if (status == FY_STATUS_OK) {
        status = fy__recording_close(thread, recording);
        graph->recorded_nbytes = recording->memory->nbytes;
        if (status == FY_STATUS_OK) status = fy__graph_fuse(graph);
        if (status == FY_STATUS_OK) status = fy__graph_layout(graph);
        if (status == FY_STATUS_OK) fy__graph_trim(thread, graph);
        if (status != FY_STATUS_OK) fy__error_save(&first);
    }
    if (status != FY_STATUS_OK) {
        fy_graph_destroy(graph);
        fy__error_restore(&first);
        return status;
    }
    fy__graph_look(graph);
    fy__handle_release(&graph->handle);
    fy__handle_adopt(thread->frame, &graph->handle);
    *out_graph = graph;
    return FY_STATUS_OK;
}

fy_status_t fy_graph_query(const fy_graph_t *graph, fy_graph_info_t *out_info)
{
    FY_TRY(FY__CHECK_OUT(graph_info, "graph_query", out_info));
    if (!graph) return FY_FAIL(INVALID_ARGUMENT, "graph_query: graph is NULL");
    const fy__recording_t *recording = &graph->recording;
    const fy_graph_info_t info = {
        .struct_size = sizeof info,
        .device = recording->device,
        .requests = recording->requests,
        .uploads = recording->uploads,
        .upload_nbytes = recording->upload_nbytes,
        .pool_nbytes = recording->memory->nbytes,
        .replays = graph->replays,
        .path = graph->native ? FY_GRAPH_DEVICE : FY_GRAPH_CALLS,
        .reason = graph->reason,
        .chains = graph->chains,
        .fused_calls = graph->fused_calls,
        .dropped_calls = graph->dropped_calls,
        .recorded_pool_nbytes = graph->recorded_nbytes,
    };
    FY__WRITE(out_info, &info);
    return FY_STATUS_OK;
}

void fy_graph_destroy(fy_graph_t *graph)
{
    fy__thread_t *thread = fy__thread();
    if (!graph || !thread) return;
    if (thread->recording == &graph->recording) stop(thread); /* a scope gave it up */
    fy__handle_release(&graph->handle);
    const fy_device_t *device = graph->recording.device;
    if (graph->native) device->backend->graph_destroy(device->dev, graph->native);
    fy__recording_clear(thread, &graph->recording);
    free(graph);
}

void fy_graph_keep(fy_graph_t *graph)
{
    if (graph) fy__handle_release(&graph->handle);
}
