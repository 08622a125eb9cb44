/* Replaying: everything that can refuse, then the waits, then the calls in their order on one
 * stream (or the device's own graph of them), then hazards, poison and versions. Nothing is
 * allocated. A launch that fails half way leaves results that are poisoned with why.
 * Not here: recording (runtime/record/recording.c, ops/dispatch.c). */
#include <stdio.h>
#include <string.h>

#include "ops/autocast.h"
#include "ops/dispatch.h"
#include "ops/graph.h"
#include "runtime/device/plan.h"
#include "runtime/order/stream.h"
#include "runtime/record/event_ring.h"
#include "runtime/record/tape.h"
#include "runtime/record/text.h"
#include "runtime/tensor/tensor.h"
#include "runtime/thread/guard.h"
#include "transfer/move.h"

/* The event file gets a launch for each step, then the op. */
typedef struct events {
    uint64_t number; /* of the replay's op; 0: not recorded */
    uint32_t launches;
    uint64_t start_ns; /* of the first launch, model time; 0: unknown */
} events_t;

typedef struct replay {
    fy__thread_t *thread;
    fy_graph_t *graph;
    fy__recording_t *recording;
    fy_device_t *device;
    fy_stream_t *stream;                     /* NULL on synchronous devices */
    uint64_t requests[FY__RECORDING_FAULTS]; /* of the fault flags; asynchronous devices */
    uint32_t *words[FY__RECORDING_FAULTS];
    uint32_t own[FY__RECORDING_FAULTS]; /* synchronous ones: the flags themselves */
    uint32_t nfaults;
    /* the poison record of a kernel that failed inside its call, part of whose work may be on its
     * way */
    uint32_t refused;
    events_t events;
    bool after_transfer; /* something read comes from another stream that is not known to be done */
} replay_t;

/* The i-th storage that is still there. */
static inline fy__recording_slot_t *live_slot(const fy__recording_t *recording, uint32_t i)
{
    return &recording->slots[recording->live[i]];
}

/* ---- events ---- */

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

/* The step was submitted to `stream` (NULL: the device is synchronous), alone or as a part of the
 * device's own graph (`is_native`). */
static void event_launch(events_t *events, const fy__thread_t *thread, const fy_graph_t *graph,
                         const fy__graph_step_t *step, const fy_stream_t *stream, bool is_native)
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

/* All steps were submitted: one op that reads or writes every storage there is. */
static void event_replay(const events_t *events, const fy__thread_t *thread,
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

/* ---- before ---- */

static fy_status_t check(replay_t *replay)
{
    fy__recording_t *recording = replay->recording;
    for (uint32_t i = 0; i < recording->nlive; i++) {
        const fy__recording_slot_t *slot = live_slot(recording, i);
        if (slot->is_written) FY_TRY(fy__storage_check_borrow(slot->storage, "graph_replay"));
        if (FY_UNLIKELY(replay->thread->tape != NULL))
            FY_TRY(fy__tape_check_replay(replay->thread, slot->storage));
    }
    for (uint32_t i = 0; recording->uploads && i < recording->ncalls; i++) {
        if (!recording->calls[i].is_upload) continue;
        fy__storage_t *src = recording->slots[recording->calls[i].slots[1]].storage;
        FY_TRY(fy__taint_resolve(src->device, &src->taint, "graph_replay"));
    }
    if (!recording->uploads) return FY_STATUS_OK;
    return fy__guard_check_transfer(replay->thread, FY__UPLOAD, recording->upload_nbytes,
                                    "graph_replay");
}

static fy_status_t take_flags(replay_t *replay)
{
    const fy__recording_t *recording = replay->recording;
    if (replay->stream)
        FY_TRY(fy__fault_begin_many(replay->device, recording->nfaults, recording->causes,
                                    replay->requests, replay->words));
    replay->nfaults = recording->nfaults;
    for (uint32_t i = 0; !replay->stream && i < replay->nfaults; i++) {
        replay->own[i] = 0;
        replay->words[i] = &replay->own[i];
    }
    return FY_STATUS_OK;
}

static void give_flags_back(const replay_t *replay, fy__point_t point)
{
    for (uint32_t i = 0; replay->stream && i < replay->nfaults; i++)
        fy__fault_end(replay->device, replay->requests[i], point);
}

static fy_status_t wait_on_device(replay_t *replay)
{
    const fy__recording_t *recording = replay->recording;
    FY_TRY(fy__stream_throttle(replay->thread, replay->stream));
    FY_TRY(
        fy__hazard_before_write(&recording->memory->hazard, replay->stream, FY__WAIT_GRAPH_WRITE));
    for (uint32_t i = 0; i < recording->nlive; i++) {
        const fy__recording_slot_t *slot = live_slot(recording, i);
        fy__hazard_t *hazard = &slot->storage->hazard;
        replay->after_transfer |= fy__stream_is_ahead(
            replay->stream, atomic_load_explicit(&hazard->writer, memory_order_acquire));
        FY_TRY(slot->is_written
                   ? fy__hazard_before_write(hazard, replay->stream, FY__WAIT_GRAPH_WRITE)
                   : fy__hazard_before_read(hazard, replay->stream, FY__WAIT_GRAPH_READ));
        fy__storage_adopt(slot->storage);
    }
    return FY_STATUS_OK;
}

/* ---- the calls ---- */

/* All of them as one request. */
static fy_status_t submit_native(replay_t *replay, uint32_t *out_submitted)
{
    const fy__recording_t *recording = replay->recording;
    fy_device_t *device = replay->device;
    int is_submitted = 0;
    const fy_status_t status = device->backend->graph_replay(
        device->dev, replay->stream->native, replay->graph->native, fy__graph_flags(replay->graph),
        replay->nfaults, replay->words, &is_submitted);
    if (status == FY_STATUS_OK || is_submitted) *out_submitted = recording->ncalls;
    for (uint32_t i = 0; replay->events.number && is_submitted && i < replay->graph->nsteps; i++)
        event_launch(&replay->events, replay->thread, replay->graph, &replay->graph->steps[i],
                     replay->stream, true);
    return FY_UNLIKELY(status != FY_STATUS_OK) ? fy__device_check(device, status) : FY_STATUS_OK;
}

static fy_status_t submit(replay_t *replay, uint32_t *out_submitted)
{
    const fy__recording_t *recording = replay->recording;
    fy_device_t *device = replay->device;
    const fy_backend_t *backend = device->backend;
    const fy_graph_t *graph = replay->graph;
    void *native = replay->stream ? replay->stream->native : NULL;
    for (uint32_t i = 0; i < graph->nsteps; i++) {
        const fy__graph_step_t *step = &graph->steps[i];
        fy__recorded_t *call = &recording->calls[step->call];
        fy_status_t status;
        if (i) *out_submitted = step->call;
        uint32_t *fault = call->fault ? replay->words[call->fault - 1] : NULL;
        if (step->chain)
            status = backend->launch(device->dev, native, step->chain);
        else if (call->is_upload) {
            call->upload.copy.fault = fault;
            status = backend->copy(device->dev, native, &call->upload.copy);
        } else {
            call->launch.fault = call->launch.kernel && !fault ? &replay->refused : fault;
            status = backend->launch(device->dev, native, &call->launch);
        }
        if (FY_UNLIKELY(status != FY_STATUS_OK)) return fy__device_check(device, status);
        if (FY_UNLIKELY(replay->refused)) return fy__poison_fail(replay->refused, "graph_replay");
        if (FY_UNLIKELY(replay->events.number))
            event_launch(&replay->events, replay->thread, graph, step, replay->stream, false);
    }
    *out_submitted = recording->ncalls;
    return FY_STATUS_OK;
}

/* ---- after ---- */

/* Everything up to `point` was submitted. */
static void note_hazards(replay_t *replay, fy__point_t point)
{
    const fy__recording_t *recording = replay->recording;
    fy__hazard_written(&recording->memory->hazard, point);
    for (uint32_t i = 0; i < recording->nlive; i++) {
        const fy__recording_slot_t *slot = live_slot(recording, i);
        if (slot->is_written)
            fy__hazard_written(&slot->storage->hazard, point);
        else
            fy__hazard_read(&slot->storage->hazard, replay->stream, point);
    }
}

static void note_uploads(replay_t *replay, uint32_t submitted, fy__point_t point)
{
    const fy__recording_t *recording = replay->recording;
    for (uint32_t i = 0; recording->uploads && i < submitted; i++) {
        const fy__recorded_t *call = &recording->calls[i];
        if (!call->is_upload) continue;
        fy__storage_t *dst = recording->slots[call->slots[0]].storage,
                      *src = recording->slots[call->slots[1]].storage;
        /* An upload reads these bytes in place; the hazard has its point
         * (fy__storage_check_borrow_slow). */
        if (point && !atomic_load_explicit(&src->borrow, memory_order_relaxed))
            fy__storage_lend(src, point);
        fy__move_note(&(fy__move_t){ .thread = replay->thread,
                                     .caller = call->upload.caller,
                                     .direction = FY__UPLOAD,
                                     .path = replay->stream ? FY_PATH_DIRECT : FY_PATH_HOST,
                                     .device = replay->device,
                                     .to = dst,
                                     .from = src,
                                     .options = { .contract = FY_HOST_BORROW,
                                                  .priority = call->upload.priority,
                                                  .site = call->upload.site },
                                     .nbytes = call->upload.copy.nbytes,
                                     .point = point });
    }
}

static fy__taint_t *taint_of(fy__recording_slot_t *slot)
{
    return slot->storage ? &slot->storage->taint : &slot->taint;
}

/* The calls of the first replay are submitted: ends the poison of tensors made inside the
 * recording. */
static void fill_unplayed(const replay_t *replay)
{
    const fy__recording_t *recording = replay->recording;
    for (uint32_t i = 0; i < recording->nlive; i++) {
        fy__recording_slot_t *slot = live_slot(recording, i);
        if (slot->is_inside && slot->storage->taint.poison == FY__POISON_UNPLAYED)
            slot->storage->taint.poison = 0;
    }
}

/* Whether any storage that is read or written is tainted, or can become so in this replay. */
static bool any_tainted(const replay_t *replay)
{
    const fy__recording_t *recording = replay->recording;
    if (replay->stream && replay->nfaults) return true;
    for (uint32_t i = 0; i < replay->nfaults; i++)
        if (replay->own[i]) return true;
    for (uint32_t i = 0; i < recording->nlive; i++)
        if (fy__taint_any(&live_slot(recording, i)->storage->taint)) return true;
    return false;
}

/* Poison goes from call to call as it would have without a graph (conclude in dispatch.c). */
static FY_COLD void spread_poison(replay_t *replay)
{
    const fy__recording_t *recording = replay->recording;
    fy_device_t *device = replay->device;
    uint32_t records[FY__RECORDING_FAULTS] = { 0 };
    for (uint32_t i = 0; !replay->stream && i < replay->nfaults; i++) {
        if (!replay->own[i]) continue;
        records[i] = fy__poison_flag(replay->own[i], recording->causes[i]);
        fy__fault_keep(device, 0, records[i]);
    }
    for (uint32_t i = 0; i < recording->nslots; i++)
        recording->slots[i].taint = (fy__taint_t){ 0, 0, 0 };
    for (uint32_t i = 0; i < recording->ncalls; i++) {
        const fy__recorded_t *call = &recording->calls[i];
        fy__taint_t all = { 0, 0, 0 };
        for (uint32_t j = 0; !call->is_upload && j < call->nsrc; j++) {
            const fy__taint_t *src = taint_of(&recording->slots[call->slots[call->ndst + j]]);
            if (fy__taint_any(src)) fy__taint_join(device, &all, src);
        }
        if (call->fault && replay->stream)
            fy__taint_add(device, &all, replay->requests[call->fault - 1]);
        if (call->fault && !all.poison) all.poison = records[call->fault - 1];
        for (uint32_t j = 0; j < call->ndst; j++) {
            fy__recording_slot_t *slot = &recording->slots[call->slots[j]];
            fy__taint_t *dst = taint_of(slot);
            if (call->replaced >> j & 1) {
                *dst = (fy__taint_t){ 0, 0, 0 };
                if (slot->storage) fy__storage_late_clear(device, slot->storage);
            }
            if (slot->storage)
                fy__storage_taint(device, slot->storage, &all);
            else if (fy__taint_any(&all))
                fy__taint_join(device, dst, &all);
        }
    }
}

/* A call failed after `submitted` calls were submitted: the results are poisoned. */
static FY_COLD fy_status_t fail(replay_t *replay, fy_status_t status, uint32_t submitted)
{
    const fy__recording_t *recording = replay->recording;
    fy__error_copy_t first;
    fy__error_save(&first);
    const bool has_begun = submitted || replay->refused;
    const fy__point_t point =
        replay->stream && has_begun ? fy__stream_submitted_anchored(replay->stream) : 0;
    give_flags_back(replay, point);
    if (has_begun) {
        const uint32_t record =
            replay->refused ? replay->refused
            : submitted < recording->ncalls
                ? fy__poison_record(status, "a replay failed at call %u of %u: %.90s",
                                    submitted + 1, recording->ncalls, first.error.text)
                : fy__poison_record(status, "the flags of a replay's bad values are lost: %.80s",
                                    first.error.text);
        if (point) note_hazards(replay, point);
        note_uploads(replay, submitted, point);
        for (uint32_t i = 0; i < recording->nlive; i++) {
            const fy__recording_slot_t *slot = live_slot(recording, i);
            if (!slot->is_written) continue;
            fy__storage_poison(slot->storage, record);
            fy__storage_wrote(slot->storage);
        }
    }
    fy__guard_settle(replay->thread); /* returns the share of calls that were not submitted */
    fy__error_restore(&first);
    return status;
}

fy_status_t fy_graph_replay(fy_graph_t *graph, fy_ticket_t *out_ticket)
{
    replay_t replay;
    uint32_t submitted = 0;
    fy__point_t point = 0;
    fy_status_t status;
    if (out_ticket) *out_ticket = (fy_ticket_t){ 0, 0 };
    if (!(replay.thread = fy__thread())) return FY_STATUS_OUT_OF_MEMORY;
    if (!graph) return FY_FAIL(INVALID_ARGUMENT, "graph_replay: graph is NULL");
    fy__recording_t *recording = replay.recording = &graph->recording;
    fy_device_t *device = replay.device = recording->device;
    FY_TRY(fy__recording_check(replay.thread, device, "graph_replay"));
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    replay.graph = graph;
    replay.stream = device->synchronous ? NULL : fy__stream_current(device, replay.thread->streams);
    replay.nfaults = replay.refused = 0;
    replay.after_transfer = false;
    replay.events = (events_t){ .number = fy__event_on() ? fy__event_op_number() : 0 };
    FY_TRY(check(&replay));
    for (uint32_t i = 0; i < recording->ncopies; i++)
        FY_TRY(fy__copy_use(replay.thread, &recording->copies[i]));
    FY_TRY(fy__graph_capture(graph));
    FY_CHECK(take_flags(&replay));
    if (replay.stream && recording->ncalls) FY_CHECK(wait_on_device(&replay));
    FY_CHECK(graph->native && replay.stream ? submit_native(&replay, &submitted)
                                            : submit(&replay, &submitted));
    if (replay.stream && recording->ncalls) {
        const bool anchored = replay.after_transfer || recording->uploads || replay.nfaults;
        point = anchored ? fy__stream_submitted_anchored(replay.stream)
                         : fy__stream_submitted(replay.stream);
        note_hazards(&replay, point);
        give_flags_back(&replay, point);
    } else
        fy__charge_host(recording->flops, recording->nbytes);
    if (FY_UNLIKELY(replay.thread->plan != NULL))
        fy__plan_flops(replay.thread, device, recording->flops);
    if (FY_UNLIKELY(replay.events.number))
        event_replay(&replay.events, replay.thread, graph, point);
    if (!graph->replays) fill_unplayed(&replay);
    if (FY_UNLIKELY(any_tainted(&replay))) spread_poison(&replay);
    for (uint32_t i = 0; i < recording->nlive; i++) {
        const fy__recording_slot_t *slot = live_slot(recording, i);
        if (slot->is_written) fy__storage_wrote(slot->storage);
        if (slot->copied && recording->slots[slot->copied - 1].writes != slot->writes)
            fy__storage_set_apart(slot->storage);
    }
    if (recording->uploads) note_uploads(&replay, submitted, point);
    fy__count(&replay.thread->node->requests, 1);
    graph->replays++;
    if (out_ticket) *out_ticket = fy__point_ticket(point);
    return FY_STATUS_OK;
done:
    return fail(&replay, status, submitted);
}
