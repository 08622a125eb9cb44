/* Finds what made each request of a recording start when it did. In the recording the host's time
 * is known after each event, and start and end of each request: a wait of the host ends at the end
 * of the awaited request plus the wake-up, to the nanosecond, and a request that waits for another
 * one starts at its end. */
#include "tools/program/builder.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

enum { POLLS_MOST = 12 };

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* ---- the host's side ---- */

void builder_add_host(builder_t *builder, uint32_t event, uint64_t ns)
{
    if (ns)
        schedule_add(builder->schedule,
                     &(act_t){ .kind = ACT_HOST, .event = event, .host_ns = ns });
}

void builder_add_wait(builder_t *builder, uint32_t event, uint32_t awaited)
{
    if (awaited != PROGRAM_NONE)
        schedule_add(builder->schedule,
                     &(act_t){ .kind = ACT_WAIT, .event = event, .awaited = awaited });
}

/* Did the host wait for a request since builder->now_ns, and continue at until_ns? Then adds the
 * wait and the polls after it. */
static bool explain_wait(builder_t *builder, const fy__sim_profile_t *profile, uint32_t event,
                         uint64_t until_ns)
{
    for (uint64_t polls = 0; polls < POLLS_MOST; polls++) {
        const uint64_t spent_ns = profile->wake_ns + polls * profile->poll_ns;
        if (until_ns < spent_ns || until_ns - spent_ns <= builder->now_ns) return false;
        const uint32_t awaited = *number_table_at(&builder->ends, until_ns - spent_ns);
        if (awaited == NUMBER_TABLE_NONE) continue;
        builder_add_host(builder, event, profile->poll_ns);
        builder_add_wait(builder, event, awaited);
        builder_add_host(builder, event, polls * profile->poll_ns);
        return true;
    }
    return false;
}

static uint32_t act_at(builder_t *builder, uint32_t stream, uint64_t seq)
{
    return stream == PROGRAM_NONE ? PROGRAM_NONE
                                  : *number_table_at(&builder->points, builder_key(stream, seq));
}

/* The host's time up to the event, in which it may have waited. `awaited`: for which request, if it
 * was a wait, and with `all` for all of its device; PROGRAM_NONE: unknown. */
static void explain_host(builder_t *builder, const fy__sim_profile_t *profile, uint32_t event,
                         uint32_t awaited, bool all)
{
    const uint64_t now_ns = builder->program->events[event].model_ns;
    if (now_ns < builder->now_ns) return;
    if (!explain_wait(builder, profile, event, now_ns))
        builder_add_host(builder, event, now_ns - builder->now_ns);
    builder->now_ns = now_ns;
    if (awaited == PROGRAM_NONE || builder->ends_ns[awaited] > now_ns) return;
    builder_add_wait(builder, event, awaited);
    const uint32_t device = builder->schedule->acts[awaited].device;
    for (int engine = 0; all && engine < FY__SIM_ENGINE_COUNT; engine++) {
        const uint32_t last = builder->devices[device].last[engine];
        if (last != PROGRAM_NONE && builder->ends_ns[last] <= now_ns)
            builder_add_wait(builder, event, last);
    }
}

/* ---- requests ---- */

void builder_await(builder_t *builder, uint32_t index, uint32_t other)
{
    act_t *act = &builder->schedule->acts[index];
    if (other != PROGRAM_NONE && other != index &&
        (builder->schedule->acts[other].engine != act->engine ||
         builder->schedule->acts[other].device != act->device))
        schedule_append_after(builder->schedule, act, other);
}

/* What the bytes of `event` make the act wait for: the order of all uses of a storage. */
void builder_add_hazards(builder_t *builder, const program_event_t *event, uint32_t act)
{
    for (size_t i = 0; i < (size_t)event->nsrc + event->ndst; i++) {
        const uint32_t storage = program_operand(builder->program, event, i)->storage;
        const builder_uses_t *uses = &builder->uses[storage];
        builder_await(builder, act, uses->writer);
        for (int slot = 0; i >= event->nsrc && slot < BUILDER_SLOTS; slot++)
            builder_await(builder, act, uses->readers[slot]);
    }
}

void builder_note_reads(builder_t *builder, const program_event_t *event, uint32_t act)
{
    const int slot = builder->schedule->acts[act].engine;
    for (size_t i = 0; i < event->nsrc; i++)
        builder->uses[program_operand(builder->program, event, i)->storage].readers[slot] = act;
}

void builder_note_writes(builder_t *builder, const program_event_t *event, uint32_t act)
{
    for (size_t i = 0; i < event->ndst; i++)
        builder->uses[program_operand(builder->program, event, event->nsrc + i)->storage].writer =
            act;
}

/* Start as computed from the known times; the last act, submitted when the host was at host_ns. */
static uint64_t start_of(const builder_t *builder, const act_t *act, uint64_t host_ns)
{
    const schedule_t *schedule = builder->schedule;
    uint64_t start_ns = host_ns;
    if (act->engine == FY__SIM_ENGINE_COUNT) {
        start_ns = later(start_ns, builder->devices[act->device].free_ns[FY__SIM_DOWNLOAD]);
        start_ns = later(start_ns, builder->devices[act->other].free_ns[FY__SIM_UPLOAD]);
    } else
        start_ns = later(start_ns, builder->devices[act->device].free_ns[act->engine]);
    for (uint32_t i = 0; i < act->nafter; i++)
        start_ns = later(start_ns, builder->ends_ns[schedule->after[act->after + i]]);
    return start_ns;
}

static void note_engine(builder_t *builder, uint32_t device, int engine, uint64_t end_ns,
                        uint32_t index)
{
    builder->devices[device].free_ns[engine] = end_ns;
    builder->devices[device].last[engine] = index;
}

static void note_end(builder_t *builder, uint64_t end_ns)
{
    const uint32_t index = (uint32_t)builder->schedule->nacts - 1;
    const act_t *act = &builder->schedule->acts[index];
    while (builder->nends <= index) {
        builder->ends_ns = tool_grow(builder->ends_ns, builder->nends, sizeof *builder->ends_ns);
        builder->ends_ns[builder->nends++] = 0;
    }
    builder->ends_ns[index] = end_ns;
    *number_table_at(&builder->ends, end_ns) = index;
    if (act->engine == FY__SIM_ENGINE_COUNT) {
        note_engine(builder, act->device, FY__SIM_DOWNLOAD, end_ns, index);
        note_engine(builder, act->other, FY__SIM_UPLOAD, end_ns, index);
    } else
        note_engine(builder, act->device, act->engine, end_ns, index);
}

/* How the recorded duration comes about: dtype, page-locked or not, else a factor. */
static void explain_duration(builder_t *builder, act_t *act, uint64_t recorded_ns)
{
    static const uint8_t dtypes[] = { FY_DTYPE_F32, FY_DTYPE_F16, FY_DTYPE_BF16, FY_DTYPE_F64 };
    const act_t first = *act;
    if (act_duration_ns(act, builder->machines) == recorded_ns) return;
    for (size_t i = 0; act->engine == FY__SIM_COMPUTE && i < sizeof dtypes; i++) {
        act->dtype = dtypes[i];
        if (act_duration_ns(act, builder->machines) == recorded_ns) return;
    }
    if (act->engine == FY__SIM_UPLOAD || act->engine == FY__SIM_DOWNLOAD) {
        act->is_pageable = !act->is_pageable;
        if (act_duration_ns(act, builder->machines) == recorded_ns) return;
    }
    *act = first;
    const uint64_t computed_ns = act_duration_ns(act, builder->machines);
    if (computed_ns) act->factor = (double)recorded_ns / (double)computed_ns;
}

/* An event of another thread can divide the time of a submission: the part before it is in host
 * acts then, and is taken out of them. false: they do not have as much. */
static bool take_back(builder_t *builder, uint64_t ns)
{
    enum { ACTS_MOST = 64 };
    schedule_t *schedule = builder->schedule;
    uint64_t found_ns = 0;
    const size_t first = schedule->nacts > ACTS_MOST ? schedule->nacts - ACTS_MOST : 0;
    for (size_t i = schedule->nacts; i-- > first;) found_ns += schedule->acts[i].host_ns;
    for (size_t i = schedule->nacts; i-- > first && found_ns >= ns && ns;) {
        act_t *act = &schedule->acts[i];
        const uint64_t taken_ns = act->host_ns < ns ? act->host_ns : ns;
        act->host_ns -= taken_ns;
        ns -= taken_ns;
    }
    return !ns;
}

/* Adds the host's acts until it had submitted the request; returns when that was. */
static uint64_t explain_submission(builder_t *builder, const request_t *request)
{
    const figures_t *machine = &builder->machines[request->act.device];
    builder_device_t *device = &builder->devices[request->act.device];
    const uint64_t at_ns = later(request->at_ns, builder->now_ns),
                   spent_ns = act_submit_ns(&request->act, builder->machines),
                   staging_ns =
                       figures_staging_ns(machine, request->act.before, request->staged_nbytes);
    uint64_t host_ns = at_ns; /* when it had submitted */
    if (request->is_timed && request->event->start_ns < host_ns &&
        request->event->start_ns >= builder->now_ns + spent_ns)
        host_ns = request->event->start_ns;
    const uint64_t passed_ns = host_ns - builder->now_ns, all_ns = spent_ns + staging_ns;
    bool has_staged = staging_ns != 0;
    uint64_t until_ns = builder->now_ns;
    if (passed_ns >= all_ns)
        until_ns = host_ns - all_ns;
    else if (!take_back(builder, all_ns - passed_ns)) {
        has_staged = false;
        if (passed_ns > spent_ns) until_ns = host_ns - spent_ns;
    }
    if (!explain_wait(builder, &machine->device, request->host, until_ns)) {
        builder_add_host(builder, request->host, until_ns - builder->now_ns);
        if (request->act.is_staged) {
            const uint32_t used = device->ring[device->next_slot];
            if (used != PROGRAM_NONE && builder->ends_ns[used] <= until_ns)
                builder_add_wait(builder, request->host, used);
        }
    }
    if (has_staged)
        schedule_add(builder->schedule, &(act_t){ .kind = ACT_STAGE,
                                                  .event = request->host,
                                                  .device = request->act.device,
                                                  .nbytes = request->staged_nbytes,
                                                  .before = request->act.before });
    builder->now_ns = at_ns;
    return host_ns;
}

uint32_t builder_submit(builder_t *builder, request_t *request)
{
    schedule_t *schedule = builder->schedule;
    request->at_ns = explain_submission(builder, request);
    if (request->is_timed)
        explain_duration(builder, &request->act, request->event->end_ns - request->event->start_ns);
    schedule_add(schedule, &request->act);
    const uint32_t index = (uint32_t)schedule->nacts - 1;
    if (request->stream == PROGRAM_NONE) return index;
    builder_stream_t *stream = &builder->streams[request->stream];
    builder_await(builder, index, stream->last);
    if (stream->awaited != PROGRAM_NONE)
        schedule_append_after(schedule, &schedule->acts[index], stream->awaited);
    *stream = (builder_stream_t){ .awaited = PROGRAM_NONE, .last = index };
    if (request->seq)
        *number_table_at(&builder->points, builder_key(request->stream, request->seq)) = index;
    return index;
}

void builder_end_request(builder_t *builder, const request_t *request, uint32_t index)
{
    schedule_t *schedule = builder->schedule;
    const program_event_t *event = request->event;
    const uint64_t host_ns = request->at_ns;
    act_t *act = &schedule->acts[index];
    uint64_t start_ns = start_of(builder, act, host_ns);
    if (request->is_timed && event->start_ns > start_ns) {
        const uint32_t awaited = *number_table_at(&builder->ends, event->start_ns);
        if (awaited != NUMBER_TABLE_NONE)
            schedule_append_after(schedule, act, awaited);
        else
            schedule->unexplained_ns += act->delay_ns = event->start_ns - start_ns;
        start_ns = event->start_ns;
    }
    note_end(builder, request->is_timed ? event->end_ns
                                        : start_ns + act_duration_ns(act, builder->machines));
    if (request->act.is_staged) {
        builder_device_t *device = &builder->devices[act->device];
        device->ring[device->next_slot] = index;
        device->next_slot = (device->next_slot + 1) % BUILDER_RING_SLOTS;
    }
    if (act->is_pageable) {
        const uint64_t wake_ns = builder->machines[act->device].device.wake_ns;
        const uint64_t awake_ns = builder->ends_ns[index] + wake_ns;
        if (builder->now_ns > awake_ns)
            builder_add_host(builder, request->host, builder->now_ns - awake_ns);
    } else if (builder->now_ns > host_ns)
        builder_add_host(builder, request->host, builder->now_ns - host_ns);
}

uint32_t builder_add_request(builder_t *builder, request_t *request,
                             const program_event_t *operands)
{
    const uint32_t act = builder_submit(builder, request);
    if (request->is_first) builder_add_hazards(builder, operands, act);
    if (request->is_last) {
        builder_note_reads(builder, operands, act);
        builder_note_writes(builder, operands, act);
    }
    builder_end_request(builder, request, act);
    return act;
}

/* When the host had submitted the request of an op. Another thread can advance the clock before the
 * line is recorded; a request never starts before it is submitted. */
static uint64_t submitted_ns(const program_event_t *event)
{
    const bool is_one = event->kind == PROGRAM_OP && event->end_ns &&
                        strcmp(event->name, "graph_replay") != 0;
    return is_one && event->start_ns < event->model_ns ? event->start_ns : event->model_ns;
}

/* Of an op, or of one launch of a replay: its own flops and bytes are to be set. */
static request_t op_request(const program_event_t *event, uint32_t index)
{
    return (request_t){
        .act = { .kind = ACT_REQUEST,
                 .engine = FY__SIM_COMPUTE,
                 .dtype = FY_DTYPE_F32,
                 .event = index,
                 .device = event->device,
                 .flops = event->flops,
                 .nbytes = event->nbytes,
                 .factor = 1 },
        .event = event,
        .host = index,
        .at_ns = submitted_ns(event),
        .stream = event->stream,
        .seq = event->seq,
        .is_timed = true,
        .is_first = true,
        .is_last = true,
    };
}

/* A graph's replay whose launches are known. */
static void add_launches(builder_t *builder, uint32_t index)
{
    const program_event_t *event = &builder->program->events[index];
    const program_launch_t *launches = &builder->program->launches[event->launches];
    for (uint32_t i = 0; i < event->nlaunches; i++) {
        program_event_t one = *event;
        one.model_ns = launches[i].model_ns;
        one.start_ns = launches[i].start_ns;
        one.end_ns = launches[i].end_ns;
        one.flops = launches[i].flops;
        one.nbytes = launches[i].nbytes;
        request_t request = op_request(&one, index);
        request.at_ns = one.start_ns < one.model_ns ? one.start_ns : one.model_ns;
        request.is_first = i == 0;
        request.is_last = i + 1 == event->nlaunches;
        if (!request.is_last) request.seq = 0; /* the op's number is that of its last launch */
        (void)builder_add_request(builder, &request, event);
    }
}

/* A replay in a file without launches: their number follows from the host's time. */
static void guess_launches(builder_t *builder, uint32_t index, uint64_t count)
{
    const program_event_t *event = &builder->program->events[index];
    const uint64_t each_ns = builder->machines[event->device].device.launch_submit_ns,
                   spent_ns = event->model_ns - builder->now_ns;
    request_t request = op_request(event, index);
    request.act.flops /= count;
    request.act.nbytes /= count;
    request.is_timed = false;
    const uint64_t busy_from_ns =
                       later(builder->devices[event->device].free_ns[0], builder->now_ns + each_ns),
                   all_ns = count * act_duration_ns(&request.act, builder->machines);
    if (event->end_ns > busy_from_ns && event->end_ns - busy_from_ns > count * each_ns)
        request.act.factor = (double)(event->end_ns - busy_from_ns) / (double)all_ns;
    builder_add_host(builder, index, spent_ns - count * each_ns);
    for (uint64_t i = 0; i + 1 < count; i++) {
        builder->now_ns = event->model_ns - each_ns * (count - i - 1);
        schedule_add(builder->schedule, &request.act);
        const uint32_t launch = (uint32_t)builder->schedule->nacts - 1;
        if (!i) builder_add_hazards(builder, event, launch);
        const act_t *act = &builder->schedule->acts[launch];
        note_end(builder,
                 start_of(builder, act, builder->now_ns) + act_duration_ns(act, builder->machines));
    }
    (void)builder_add_request(builder, &request, event);
}

static void add_op(builder_t *builder, uint32_t index)
{
    const program_event_t *event = &builder->program->events[index];
    const uint64_t each_ns = builder->machines[event->device].device.launch_submit_ns;
    uint64_t count = 1;
    if (strcmp(event->name, "graph_replay") == 0 && each_ns && event->model_ns > builder->now_ns)
        count = later(1, (event->model_ns - builder->now_ns) / each_ns);
    if (event->nlaunches)
        add_launches(builder, index);
    else if (count > 1)
        guess_launches(builder, index, count);
    else {
        request_t request = op_request(event, index);
        (void)builder_add_request(builder, &request, event);
    }
}

/* ---- all of it ---- */

static uint32_t awaited_by(builder_t *builder, uint32_t index)
{
    const program_t *program = builder->program;
    const program_event_t *event = &program->events[index];
    if (event->on.stream != PROGRAM_NONE) return act_at(builder, event->on.stream, event->on.seq);
    if (event->kind == PROGRAM_SYNC && index + 1 < program->nevents &&
        program->events[index + 1].kind == PROGRAM_ARRIVED)
        return act_at(builder, program->events[index + 1].stream, program->events[index + 1].seq);
    return PROGRAM_NONE;
}

static void add_event(builder_t *builder, uint32_t index, const fy__sim_profile_t *profile)
{
    const program_event_t *event = &builder->program->events[index];
    switch ((program_kind_t)event->kind) {
    case PROGRAM_OP:
        if (event->end_ns && builder_is_simulated(builder, event->device))
            add_op(builder, index);
        else if (!event->end_ns) /* on the host: its time is the op's own */
            explain_host(builder, profile, index, PROGRAM_NONE, false);
        break;
    case PROGRAM_COPY:
        if (event->parent != PROGRAM_NONE) builder_add_copy(builder, index);
        break;
    case PROGRAM_WAIT:
        if (event->stream != PROGRAM_NONE)
            builder->streams[event->stream].awaited =
                act_at(builder, event->on.stream, event->on.seq);
        break;
    case PROGRAM_SYNC:
    case PROGRAM_THROTTLE:
    case PROGRAM_ARRIVED:
        while (builder->nflights && strcmp(event->name, "tensor_download_into") == 0)
            builder_empty_oldest(builder, index);
        explain_host(builder, profile, index, awaited_by(builder, index),
                     strcmp(event->name, "device_wait") == 0);
        break;
    case PROGRAM_SCOPE_BEGIN:
    case PROGRAM_SCOPE_END: explain_host(builder, profile, index, PROGRAM_NONE, false); break;
    default: /* such as a block that is allocated after a wait */
        if (event->model_ns > builder->now_ns + profile->wake_ns &&
            explain_wait(builder, profile, index, event->model_ns))
            builder->now_ns = event->model_ns;
    }
}

typedef struct moment {
    uint64_t model_ns;
    uint32_t event;
} moment_t;

static int compare_moments(const void *a, const void *b)
{
    const moment_t *x = a, *y = b;
    if (x->model_ns != y->model_ns) return x->model_ns < y->model_ns ? -1 : 1;
    return x->event < y->event ? -1 : 1;
}

/* In the order of the host's clock, which all threads share; the file has the order of each. */
static void add_events(builder_t *builder, const fy__sim_profile_t *profile)
{
    const program_t *program = builder->program;
    schedule_t *schedule = builder->schedule;
    moment_t *moments = tool_alloc((program->nevents + 1) * sizeof *moments);
    size_t count = 0;
    for (uint32_t i = 0; i < program->nevents; i++)
        if (program->events[i].model_ns != PROGRAM_NO_TIME)
            moments[count++] = (moment_t){ submitted_ns(&program->events[i]), i };
        else
            schedule->acts_until[i] = 0;
    qsort(moments, count, sizeof *moments, compare_moments);
    for (size_t i = 0; i < count; i++) {
        add_event(builder, moments[i].event, profile);
        schedule->acts_until[moments[i].event] = (uint32_t)schedule->nacts;
    }
    if (count) explain_host(builder, profile, moments[count - 1].event, PROGRAM_NONE, false);
    free(moments);
}

fy_status_t schedule_build(const program_t *program, const figures_t *machines,
                           schedule_t *out_schedule)
{
    const fy__sim_profile_t *profile = NULL;
    builder_t builder = { .program = program, .machines = machines, .schedule = out_schedule };
    *out_schedule = (schedule_t){ .program = program };
    for (size_t i = 0; i < program->ndevices && !profile; i++)
        if (machines[i].device.memory_nbytes) profile = &machines[i].device;
    if (!profile || !program->end_model_ns)
        return TOOL_FAIL(INVALID_ARGUMENT, "the recording has no times of the model clock: only a "
                                           "run on a simulated device can be predicted");
    builder.devices = tool_alloc((program->ndevices + 1) * sizeof *builder.devices);
    builder.uses = tool_alloc((program->nstorages + 1) * sizeof *builder.uses);
    builder.streams = tool_alloc((program->nstreams + 1) * sizeof *builder.streams);
    memset(builder.uses, 0xff, program->nstorages * sizeof *builder.uses);
    memset(builder.streams, 0xff, program->nstreams * sizeof *builder.streams);
    for (size_t i = 0; i < program->ndevices; i++) {
        builder.devices[i] = (builder_device_t){ .next_slot = 0 };
        memset(builder.devices[i].ring, 0xff, sizeof builder.devices[i].ring);
        memset(builder.devices[i].last, 0xff, sizeof builder.devices[i].last);
    }
    out_schedule->acts_until = tool_alloc((program->nevents + 1) * sizeof(uint32_t));
    builder.now_ns = program->begin_model_ns;
    add_events(&builder, profile);
    free(builder.devices);
    free(builder.uses);
    free(builder.streams);
    free(builder.ends_ns);
    number_table_free(&builder.points);
    number_table_free(&builder.ends);
    return FY_STATUS_OK;
}
