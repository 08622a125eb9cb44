/* Builds the tables. Memory is about 60 bytes an event. */
#include "tools/advise/run.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

static void *zeroed(size_t count, size_t size)
{
    void *items = tool_alloc((count ? count : 1) * size);
    return memset(items, 0, (count ? count : 1) * size);
}

bool run_is_on_host(const run_t *run, uint32_t event)
{
    const program_event_t *e = run_event(run, event);
    return e->device != PROGRAM_NONE && strcmp(run->program->devices[e->device].name, "host") == 0;
}

bool run_is_request(const run_t *run, uint32_t event)
{
    const program_event_t *e = run_event(run, event);
    return (e->kind == PROGRAM_OP || e->kind == PROGRAM_TRANSFER) && !run_is_on_host(run, event);
}

uint32_t run_request(const run_t *run, uint32_t stream, uint64_t seq)
{
    if (stream == PROGRAM_NONE || stream >= run->program->nstreams) return PROGRAM_NONE;
    return seq < run->nrequests[stream] ? run->requests[stream][seq] : PROGRAM_NONE;
}

uint64_t run_host_ns(const run_t *run, uint32_t event)
{
    const uint64_t end = run_event(run, event)->model_ns;
    if (!run_takes_time(run, event)) return 0;
    return end != PROGRAM_NO_TIME && end > run->host_begin[event] ? end - run->host_begin[event]
                                                                  : 0;
}

run_engine_t run_engine(const run_t *run, uint32_t event)
{
    const program_event_t *e = run_event(run, event);
    if (e->kind == PROGRAM_TRANSFER)
        return e->direction == PROGRAM_DOWNLOAD ? RUN_DOWNLOAD : RUN_UPLOAD;
    return RUN_COMPUTE;
}

bool run_is_measured(const run_t *run, uint32_t event)
{
    const uint64_t at = run_event(run, event)->model_ns;
    return at != PROGRAM_NO_TIME && at >= run->begin_ns && at <= run->end_ns;
}

uint32_t run_step(const run_t *run, uint32_t event)
{
    const uint32_t scope = run_event(run, event)->scope;
    return scope == PROGRAM_NONE ? PROGRAM_NONE : run->program->scopes[scope].step;
}

/* ---- requests ---- */

static void put_request(run_t *run, uint32_t stream, uint64_t seq, uint32_t event)
{
    if (stream == PROGRAM_NONE || stream >= run->program->nstreams || seq > UINT32_MAX) return;
    size_t room = run->nrequests[stream];
    if (seq >= room) {
        room = room ? room : 64;
        while (room <= seq) room *= 2;
        uint32_t *grown = tool_alloc(room * sizeof *grown);
        memset(grown, 0xff, room * sizeof *grown);
        if (run->nrequests[stream])
            memcpy(grown, run->requests[stream], run->nrequests[stream] * sizeof *grown);
        free(run->requests[stream]);
        run->requests[stream] = grown;
        run->nrequests[stream] = room;
    }
    run->requests[stream][seq] = event;
}

/* A queued transfer has its times in its `started` line. */
static void find_requests(run_t *run)
{
    const program_t *p = run->program;
    for (uint32_t i = 0; i < p->nevents; i++) {
        const program_event_t *e = &p->events[i];
        if (run_is_request(run, i)) {
            run->start[i] = e->start_ns;
            run->end[i] = e->end_ns;
            put_request(run, e->stream, e->seq, i);
        } else if (e->kind == PROGRAM_STARTED) {
            const uint32_t job = run_request(run, e->stream, e->seq);
            if (job == PROGRAM_NONE) continue;
            run->start[job] = e->start_ns;
            run->end[job] = e->end_ns;
            put_request(run, e->on.stream, e->on.seq, job);
        }
    }
}

/* The download of an `arrived` line, and what the sync before it waited for. */
static void find_awaited(run_t *run)
{
    const program_t *p = run->program;
    for (uint32_t i = 0; i < p->nevents; i++) {
        const program_event_t *e = &p->events[i];
        run->awaited[i] = PROGRAM_NONE;
        if (e->kind == PROGRAM_SYNC) run->awaited[i] = run_request(run, e->on.stream, e->on.seq);
        if (e->kind != PROGRAM_ARRIVED) continue;
        run->awaited[i] = run_request(run, e->stream, e->seq);
        if (i && p->events[i - 1].kind == PROGRAM_SYNC && p->events[i - 1].thread == e->thread)
            run->awaited[i - 1] = run->awaited[i];
    }
}

static const run_t *sorted_run; /* of the sort; commands have one thread */
static int compare_ends(const void *a, const void *b)
{
    const uint64_t x = sorted_run->end[*(const uint32_t *)a],
                   y = sorted_run->end[*(const uint32_t *)b];
    return x < y ? -1 : x > y;
}

static void sort_ends(run_t *run)
{
    for (uint32_t i = 0; i < run->program->nevents; i++)
        if (run->end[i]) run->by_end[run->nby_end++] = i;
    sorted_run = run;
    qsort(run->by_end, run->nby_end, sizeof *run->by_end, compare_ends);
}

/* ---- storages ---- */

static void find_uses(run_t *run)
{
    const program_t *p = run->program;
    size_t *at = run->first_use;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < p->nevents; i++)
            for (unsigned j = 0; j < p->events[i].nsrc + p->events[i].ndst; j++) {
                const program_operand_t *o = program_operand(p, &p->events[i], j);
                if (o->storage == PROGRAM_NONE) continue;
                if (pass == 0)
                    at[o->storage + 1]++;
                else
                    run->uses[at[o->storage]++] =
                        (run_use_t){ i, j >= p->events[i].nsrc, o->version };
            }
        if (pass == 0)
            for (size_t s = 0; s < p->nstorages; s++) at[s + 1] += at[s];
    }
    memmove(at + 1, at, p->nstorages * sizeof *at); /* each now is where the next one began */
    at[0] = 0;
}

/* ---- time ---- */

bool run_takes_time(const run_t *run, uint32_t event)
{
    switch (run_event(run, event)->kind) {
    case PROGRAM_OP:
    case PROGRAM_TRANSFER:
    case PROGRAM_COPY:
    case PROGRAM_SYNC:
    case PROGRAM_ARRIVED:
    case PROGRAM_THROTTLE:
    case PROGRAM_MAP:
    case PROGRAM_SCOPE_BEGIN:
    case PROGRAM_SCOPE_END: return true;
    default: return false;
    }
}

static void find_host_times(run_t *run)
{
    const program_t *p = run->program;
    uint64_t last = 0;
    for (uint32_t i = 0; i < p->nevents; i++) {
        run->host_begin[i] = last;
        if (!run_takes_time(run, i)) continue;
        if (p->events[i].model_ns != PROGRAM_NO_TIME && p->events[i].model_ns > last)
            last = p->events[i].model_ns;
    }
}

static void find_part(run_t *run)
{
    const program_t *p = run->program;
    uint64_t first = p->begin_model_ns;
    if (first == PROGRAM_NO_TIME || p->end_model_ns <= first) return; /* no model clock */
    run->end_ns = p->end_model_ns;
    if (p->nsteps >= 3 && p->scopes[p->steps[0]].begin != PROGRAM_NONE)
        first = p->events[p->scopes[p->steps[0]].begin].model_ns;
    run->begin_ns = first == PROGRAM_NO_TIME ? p->begin_model_ns : first;
}

uint64_t run_device_ns(const run_t *run, uint32_t event)
{
    const program_event_t *e = run_event(run, event);
    const bool is_staged = e->kind == PROGRAM_TRANSFER && strcmp(e->path, "staged") == 0;
    const uint64_t span = run->end[event] ? run->end[event] - run->start[event] : 0;
    return is_staged && e->number > 1 ? span * e->number : span;
}

static void add_busy(run_t *run)
{
    for (uint32_t i = 0; i < run->program->nevents; i++) {
        const program_event_t *e = run_event(run, i);
        const uint32_t owner = e->kind == PROGRAM_COPY && e->parent != PROGRAM_NONE ? e->parent : i;
        if (e->kind != PROGRAM_SYNC && e->kind != PROGRAM_ARRIVED && e->kind != PROGRAM_THROTTLE)
            run->work_ns[owner] += run_host_ns(run, i);
    }
    for (uint32_t i = 0; i < run->program->nevents; i++) {
        if (!run_is_measured(run, i)) continue;
        if (run->end[i]) run->busy_ns[run_engine(run, i)] += run_device_ns(run, i);
        run->busy_ns[RUN_HOST] += run->work_ns[i];
    }
}

void run_create(const program_t *program, run_t *out_run)
{
    const size_t n = program->nevents;
    *out_run = (run_t){ .program = program };
    out_run->host_begin = zeroed(n, sizeof(uint64_t));
    out_run->start = zeroed(n, sizeof(uint64_t));
    out_run->end = zeroed(n, sizeof(uint64_t));
    out_run->work_ns = zeroed(n, sizeof(uint64_t));
    out_run->idle_ns = zeroed(n, sizeof(uint64_t));
    out_run->awaited = zeroed(n, sizeof(uint32_t));
    out_run->by_end = zeroed(n, sizeof(uint32_t));
    out_run->uses = zeroed(program->noperands, sizeof(run_use_t));
    out_run->first_use = zeroed(program->nstorages + 2, sizeof(size_t));
    out_run->requests = zeroed(program->nstreams, sizeof(uint32_t *));
    out_run->nrequests = zeroed(program->nstreams, sizeof(size_t));
    find_requests(out_run);
    find_awaited(out_run);
    sort_ends(out_run);
    find_uses(out_run);
    find_host_times(out_run);
    find_part(out_run);
    add_busy(out_run);
    run_find_idle(out_run);
}

void run_free(run_t *run)
{
    for (size_t i = 0; run->requests && i < run->program->nstreams; i++) free(run->requests[i]);
    free(run->host_begin);
    free(run->start);
    free(run->end);
    free(run->work_ns);
    free(run->idle_ns);
    free(run->awaited);
    free(run->by_end);
    free(run->uses);
    free(run->first_use);
    free(run->requests);
    free(run->nrequests);
}
