/* A recording handed to a device that keeps graphs itself: at the second replay, because everything
 * that a call makes once (plans of libraries, timed choices, modules) was made by the first. What
 * the device refuses is replayed call by call, as elsewhere.
 * Not here: replaying (replay.c), how a device keeps calls (backends/cuda/graph.c). */
#include <stdio.h>
#include <string.h>

#include "ops/graph.h"
#include "runtime/device/device.h"

static void give_up(fy_graph_t *graph, const char *reason)
{
    graph->is_tried = true;
    snprintf(graph->reason, sizeof graph->reason, "%s", reason);
}

void fy__graph_look(fy_graph_t *graph)
{
    const fy__recording_t *recording = &graph->recording;
    if (recording->device->synchronous || !recording->device->backend->graph_begin)
        return give_up(graph, "this device keeps no graphs of its own");
    if (!recording->ncalls) return give_up(graph, "it has no calls");
    if (recording->nfaults && !recording->flags)
        return give_up(graph, "there was no device memory for its fault flags");
    for (uint32_t i = 0; i < recording->ncalls; i++) {
        const fy__recorded_t *call = &recording->calls[i];
        if (call->is_upload && !call->upload.copy.host_pinned)
            return give_up(graph, "the source of an upload is not page-locked");
        if (call->is_upload && call->fault)
            return give_up(graph, "a copy in it can fail on its way");
        /* Its own code may raise the flag on the host, where these words are not. */
        if (!call->is_upload && call->fault && call->launch.kernel)
            return give_up(graph, "a registered op in it can meet bad values");
    }
    snprintf(graph->reason, sizeof graph->reason,
             "the device takes it over with the second replay");
}

/* All calls, in their order, to `stream`. The flags are cleared before the first call that has one:
 * earlier ones may use these bytes. */
static fy_status_t submit(fy_graph_t *graph, fy_device_t *device, void *stream)
{
    const fy__recording_t *recording = &graph->recording;
    const fy_backend_t *backend = device->backend;
    uint32_t *flags = fy__graph_flags(graph);
    bool is_clear = false;
    for (uint32_t i = 0; i < graph->nsteps; i++) {
        fy__recorded_t *call = &recording->calls[graph->steps[i].call];
        if (graph->steps[i].chain) {
            FY_TRY(backend->launch(device->dev, stream, graph->steps[i].chain));
            continue;
        }
        if (call->is_upload) {
            FY_TRY(backend->copy(device->dev, stream, &call->upload.copy));
            continue;
        }
        if (call->fault && !is_clear)
            FY_TRY(
                backend->fill(device->dev, stream, flags, 0, recording->nfaults * sizeof *flags));
        is_clear |= call->fault != 0;
        call->launch.fault = call->fault ? &flags[call->fault - 1] : NULL;
        FY_TRY(backend->launch(device->dev, stream, &call->launch));
    }
    return FY_STATUS_OK;
}

static fy_status_t capture(fy_graph_t *graph, fy_device_t *device)
{
    const fy_backend_t *backend = device->backend;
    fy__error_copy_t first;
    void *stream;
    FY_TRY(backend->graph_begin(device->dev, &stream));
    const fy_status_t status = submit(graph, device, stream);
    if (status == FY_STATUS_OK) return backend->graph_end(device->dev, stream, &graph->native);
    fy__error_save(&first);
    const fy_status_t ended = backend->graph_end(device->dev, stream, NULL);
    if (ended != FY_STATUS_DEVICE_LOST) fy__error_restore(&first);
    return ended == FY_STATUS_DEVICE_LOST ? ended : status;
}

FY_COLD fy_status_t fy__graph_capture_slow(fy_graph_t *graph)
{
    fy_device_t *device = graph->recording.device;
    fy__error_copy_t before;
    fy__error_save(&before);
    graph->is_tried = true;
    const fy_status_t status = capture(graph, device);
    graph->reason[0] = '\0';
    if (status == FY_STATUS_OK) return FY_STATUS_OK;
    graph->native = NULL;
    give_up(graph, fy_error_get()->text);
    if (status == FY_STATUS_DEVICE_LOST) return fy__device_check(device, status);
    fy__error_restore(&before);
    fy_log_write(
        FY_LOG_WARNING,
        "%s does not take over a graph of %u calls, which is replayed call by call from now on: %s",
        device->spec, graph->recording.ncalls, graph->reason);
    return FY_STATUS_OK;
}
