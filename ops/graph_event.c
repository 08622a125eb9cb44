/* What the event file has of a replay: a launch for each step, then the op. Not here: submitting
 * (replay.c). */
#include <stdio.h>

#include "ops/dispatch.h"
#include "ops/graph.h"
#include "runtime/order/stream.h"
#include "runtime/record/event_ring.h"
#include "runtime/record/text.h"

/* The ops of a chain, "mul+add+relu"; of many the first ones. */
static const char *chain_name(const fy_launch_t *launch)
{
    char name[96] = "";
    const fy_chain_op_t *ops = launch->attrs;
    size_t used = 0;
    for (size_t i = 0; i < launch->attrs_nbytes / sizeof *ops && used < sizeof name; i++) {
        const fy__op_row_t *row = fy__op_row(ops[i].op);
        used += (size_t)snprintf(name + used, sizeof name - used, "%s%s", i ? "+" : "",
                                 row ? row->info.name : "?");
    }
    return fy__text(name);
}

void fy__graph_event_launch(fy__graph_events_t *events, const fy__thread_t *thread,
                            const fy_graph_t *graph, const fy__graph_step_t *step,
                            const fy_stream_t *stream, bool is_native)
{
    const fy__recorded_t *call = &graph->recording.calls[step->call];
    const fy_device_t *device = graph->recording.device;
    const fy_launch_t *launch = step->chain ? step->chain : &call->launch;
    if (!step->chain && call->is_upload) return; /* it has a transfer event */
    const fy__op_row_t *row = step->chain ? NULL : fy__op_row(launch->op);
    fy__event_t event = fy__event_begin(FY__EVENT_LAUNCH, thread);
    event.name = step->chain ? chain_name(launch) : row ? row->info.name : "?";
    event.device = fy__event_device_text(device);
    event.nbytes = launch->nbytes;
    if (stream) event.point = FY__POINT(stream->index, 0);
    event.u.op.number = events->number;
    event.u.op.flops = launch->flops;
    if (row) fy__event_op_launch(&event, &row->info, launch);
    if (!is_native) fy__event_span(&event, device);
    if (!events->launches++) events->start_ns = event.start_ns;
    fy__event_put(&event);
}

void fy__graph_event_replay(const fy__graph_events_t *events, const fy__thread_t *thread,
                            const fy_graph_t *graph, fy__point_t point)
{
    const fy__recording_t *recording = &graph->recording;
    fy__event_t event = fy__event_op_begin(thread, "graph_replay", recording->device, point,
                                           recording->flops, recording->nbytes, events->number);
    event.u.op.launches = events->launches;
    /* the span is the last request's */
    if (events->start_ns && event.end_ns) event.start_ns = events->start_ns;
    for (int written = 0; written < 2; written++)
        for (uint32_t i = 0; i < recording->nlive; i++) {
            const fy__recording_slot_t *slot = &recording->slots[recording->live[i]];
            if (slot->is_written != written) continue;
            if (written)
                fy__event_op_dst(&event, slot->storage, 0, true);
            else
                fy__event_op_src(&event, slot->storage, 0);
        }
    fy__event_put(&event);
}
