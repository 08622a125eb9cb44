/* Transfers of a recording: pieces of staged copies, and runs of packed tensors. A run of uploads
 * is copied from a staging buffer and spread by a kernel; for one of downloads the table of a
 * kernel is uploaded, it collects the tensors, and they are copied together. The file has no lines
 * of these kernels: the host submits the one right after its copy, the other right before. */
#include <string.h>

#include "tools/program/builder.h"

enum { ENTRY_NBYTES = 24 }; /* of a run's table, for each tensor */

void builder_empty_oldest(builder_t *builder, uint32_t event)
{
    const uint32_t index = builder->flights[0];
    const act_t piece = builder->schedule->acts[index];
    const figures_t *machine = &builder->machines[piece.device];
    const uint64_t end_ns = builder->ends_ns[index];
    builder_add_wait(builder, event, index);
    schedule_add(builder->schedule, &(act_t){ .kind = ACT_STAGE,
                                              .event = event,
                                              .device = piece.device,
                                              .nbytes = piece.nbytes,
                                              .before = piece.before });
    if (end_ns > builder->now_ns) builder->now_ns = end_ns + machine->device.wake_ns;
    builder->now_ns += figures_staging_ns(machine, piece.before, piece.nbytes);
    builder->nflights--;
    memmove(builder->flights, builder->flights + 1, sizeof builder->flights - sizeof index);
}

/* Are the model times those of the event's own request? A call with many transfers records all of
 * them when it returns, with the times of the last one. */
static bool has_times(const program_t *program, uint32_t index)
{
    const program_event_t *event = &program->events[index];
    for (uint32_t i = index + 1; event->kind == PROGRAM_TRANSFER && i < program->nevents; i++) {
        const program_event_t *next = &program->events[i];
        if (next->thread != event->thread) continue;
        if (next->kind != PROGRAM_TRANSFER || next->end_ns != event->end_ns ||
            next->start_ns != event->start_ns)
            break;
        if (next->stream != event->stream || next->seq != event->seq) return false;
    }
    return event->end_ns != 0;
}

/* ---- runs of packed tensors ---- */

/* The next transfer of the same run, or PROGRAM_NONE. Lines of other threads may be between. */
static uint32_t next_of_run(const program_t *program, uint32_t transfer)
{
    const program_event_t *event = &program->events[transfer];
    for (uint32_t i = transfer + 1; i < program->nevents; i++) {
        const program_event_t *next = &program->events[i];
        if (next->thread != event->thread) continue;
        if (next->kind != PROGRAM_TRANSFER) break;
        if (strcmp(next->path, event->path) == 0 && next->stream == event->stream &&
            next->seq == event->seq)
            return i;
    }
    return PROGRAM_NONE;
}

/* Is the run of the first transfer `transfer` the first of its call? */
static bool is_first_run(const program_t *program, uint32_t transfer)
{
    const program_event_t *event = &program->events[transfer];
    for (uint32_t i = transfer; i-- > 0;) {
        const program_event_t *before = &program->events[i];
        if (before->thread == event->thread)
            return before->kind != PROGRAM_TRANSFER || strcmp(before->path, event->path) != 0;
    }
    return true;
}

typedef struct run {
    uint32_t first; /* its first transfer */
    uint64_t payload_nbytes, count;
} run_t;

static run_t measure_run(const program_t *program, uint32_t first)
{
    run_t run = { .first = first };
    for (uint32_t i = first; i != PROGRAM_NONE; i = next_of_run(program, i)) {
        run.payload_nbytes += program->events[i].nbytes;
        run.count++;
    }
    return run;
}

static uint32_t stream_named(const program_t *program, uint32_t device, const char *name)
{
    for (uint32_t i = 0; i < program->nstreams; i++)
        if (program->streams[i].device == device && strcmp(program->streams[i].name, name) == 0)
            return i;
    return PROGRAM_NONE;
}

/* A request of a run; an `engine` of FY__SIM_COMPUTE is its kernel. */
static request_t request_of_run(const builder_t *builder, const run_t *run, uint32_t copy,
                                int engine)
{
    const program_event_t *event = &builder->program->events[run->first];
    const bool is_kernel = engine == FY__SIM_COMPUTE;
    return (request_t){ .act = { .kind = ACT_REQUEST,
                                 .engine = (uint8_t)engine,
                                 .dtype = FY_DTYPE_U8,
                                 .event = run->first,
                                 .device = event->device,
                                 .other = event->device,
                                 .nbytes = is_kernel
                                               ? 2 * run->payload_nbytes + run->count * ENTRY_NBYTES
                                               : builder->program->events[copy].nbytes,
                                 .factor = 1 },
                        .event = event,
                        .host = copy,
                        .at_ns = builder->program->events[copy].model_ns,
                        .stream = event->stream };
}

static void add_packed_upload(builder_t *builder, const run_t *run, uint32_t copy)
{
    const program_t *program = builder->program;
    const program_event_t *event = &program->events[run->first];
    request_t sent = request_of_run(builder, run, copy, FY__SIM_UPLOAD);
    if (is_first_run(program, run->first)) builder->packed_nbytes = 0;
    sent.act.is_staged = true;
    sent.act.before = builder->packed_nbytes;
    sent.staged_nbytes = run->payload_nbytes;
    builder->packed_nbytes += run->payload_nbytes;
    const uint32_t act = builder_submit(builder, &sent);
    for (uint32_t i = run->first; i != PROGRAM_NONE; i = next_of_run(program, i))
        builder_add_hazards(builder, &program->events[i], act);
    builder_end_request(builder, &sent, act);
    request_t kernel = request_of_run(builder, run, copy, FY__SIM_COMPUTE);
    kernel.at_ns = builder->now_ns + builder->machines[event->device].device.launch_submit_ns;
    kernel.seq = event->seq;
    kernel.is_timed = has_times(program, run->first);
    const uint32_t spread = builder_submit(builder, &kernel);
    builder_end_request(builder, &kernel, spread);
    for (uint32_t i = run->first; i != PROGRAM_NONE; i = next_of_run(program, i))
        builder_note_writes(builder, &program->events[i], spread);
}

/* The table of a run of downloads: it takes a slot of the ring, without time of the host. */
static void add_table(builder_t *builder, const run_t *run, uint32_t copy)
{
    request_t table = request_of_run(builder, run, copy, FY__SIM_UPLOAD);
    table.act.is_staged = true;
    table.stream = stream_named(builder->program, table.act.device, "upload");
    builder_end_request(builder, &table, builder_submit(builder, &table));
}

static void add_packed_download(builder_t *builder, const run_t *run, uint32_t copy)
{
    const program_t *program = builder->program;
    const program_event_t *event = &program->events[run->first];
    const uint32_t upload = stream_named(program, event->device, "upload");
    request_t kernel = request_of_run(builder, run, copy, FY__SIM_COMPUTE);
    kernel.at_ns -= builder->machines[event->device].device.copy_submit_ns;
    const uint32_t collect = builder_submit(builder, &kernel);
    if (upload != PROGRAM_NONE) builder_await(builder, collect, builder->streams[upload].last);
    for (uint32_t i = run->first; i != PROGRAM_NONE; i = next_of_run(program, i)) {
        builder_add_hazards(builder, &program->events[i], collect);
        builder_note_reads(builder, &program->events[i], collect);
    }
    builder_end_request(builder, &kernel, collect);
    request_t sent = request_of_run(builder, run, copy, FY__SIM_DOWNLOAD);
    sent.seq = event->seq;
    sent.is_timed = has_times(program, run->first);
    const uint32_t act = builder_submit(builder, &sent);
    builder_end_request(builder, &sent, act);
    for (uint32_t i = run->first; i != PROGRAM_NONE; i = next_of_run(program, i))
        builder_note_writes(builder, &program->events[i], act);
}

static void add_packed(builder_t *builder, uint32_t index)
{
    const program_event_t *copy = &builder->program->events[index];
    const run_t run = measure_run(builder->program, copy->parent);
    const int8_t direction = builder->program->events[run.first].direction;
    if (direction == PROGRAM_UPLOAD)
        add_packed_upload(builder, &run, index);
    else if (copy->direction == PROGRAM_UPLOAD)
        add_table(builder, &run, index);
    else
        add_packed_download(builder, &run, index);
}

/* ---- all others ---- */

static bool is_last_piece(const program_t *program, uint32_t index)
{
    const uint32_t parent = program->events[index].parent;
    for (uint32_t i = index + 1; i < parent; i++)
        if (program->events[i].kind == PROGRAM_COPY && program->events[i].parent == parent)
            return false;
    return true;
}

void builder_add_copy(builder_t *builder, uint32_t index)
{
    const program_t *program = builder->program;
    const program_event_t *copy = &program->events[index], *event = &program->events[copy->parent],
                          *transfer = event;
    program_point_t point = { event->stream, event->seq };
    if (event->kind == PROGRAM_STARTED) {
        if (event->parent == PROGRAM_NONE) return;
        transfer = &program->events[event->parent];
        point = event->on;
    }
    if (!builder_is_simulated(builder, transfer->device)) return;
    if (strcmp(event->path, "coalesced") == 0) {
        add_packed(builder, index);
        return;
    }
    const bool is_last = is_last_piece(program, index);
    const bool is_peer = copy->direction == PROGRAM_PEER;
    const bool is_staged = strcmp(transfer->path, "staged") == 0;
    const bool is_upload = copy->direction == PROGRAM_UPLOAD;
    request_t request = {
        .act = { .kind = ACT_REQUEST,
                 .engine = is_peer     ? FY__SIM_ENGINE_COUNT
                           : is_upload ? FY__SIM_UPLOAD
                                       : FY__SIM_DOWNLOAD,
                 .is_staged = is_staged && is_upload,
                 .event = copy->parent,
                 .device = is_peer && transfer->other != PROGRAM_NONE ? transfer->other
                                                                      : transfer->device,
                 .other = transfer->device,
                 .nbytes = copy->nbytes,
                 .before = builder->staged_nbytes,
                 .factor = 1 },
        .event = event,
        .host = index,
        .at_ns = copy->model_ns,
        .staged_nbytes = is_staged && is_upload ? copy->nbytes : 0,
        .stream = point.stream,
        .seq = is_last ? point.seq : 0,
        .is_timed = is_last && has_times(program, copy->parent),
        .is_first = !builder->staged_nbytes,
        .is_last = is_last,
    };
    const bool is_fetched = is_staged && copy->direction == PROGRAM_DOWNLOAD;
    if (request.is_first) builder->nflights = 0;
    if (is_fetched && builder->nflights == BUILDER_FLIGHTS) builder_empty_oldest(builder, index);
    builder->staged_nbytes = is_last ? 0 : builder->staged_nbytes + copy->nbytes;
    const uint32_t act = builder_add_request(builder, &request, transfer);
    if (is_fetched) builder->flights[builder->nflights++] = act;
    if (is_last && event->kind == PROGRAM_STARTED && event->stream != PROGRAM_NONE)
        *number_table_at(&builder->points, builder_key(event->stream, event->seq)) = act;
}
