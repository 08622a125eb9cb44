/* Builds the tables. Memory is about 60 bytes an event. */
#include "tools/program/facts.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

bool facts_is_on_host(const facts_t *facts, uint32_t event)
{
    const program_event_t *e = facts_event(facts, event);
    return e->device != PROGRAM_NONE &&
           strcmp(facts->program->devices[e->device].name, "host") == 0;
}

bool facts_is_request(const facts_t *facts, uint32_t event)
{
    const program_event_t *e = facts_event(facts, event);
    return (e->kind == PROGRAM_OP || e->kind == PROGRAM_TRANSFER) &&
           !facts_is_on_host(facts, event);
}

/* The last one with that number of the first `count`, which are sorted. */
static uint32_t find_request(const facts_t *facts, size_t count, uint32_t stream, uint64_t seq)
{
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const facts_request_t *r = &facts->requests[middle];
        if (r->stream < stream || (r->stream == stream && r->seq <= seq))
            low = middle + 1;
        else
            high = middle;
    }
    const facts_request_t *found = low ? &facts->requests[low - 1] : NULL;
    return found && found->stream == stream && found->seq == seq ? found->event : PROGRAM_NONE;
}

uint32_t facts_request(const facts_t *facts, uint32_t stream, uint64_t seq)
{
    return find_request(facts, facts->nrequests, stream, seq);
}

uint64_t facts_host_ns(const facts_t *facts, uint32_t event)
{
    const uint64_t end = facts_event(facts, event)->model_ns;
    if (!facts_takes_time(facts, event)) return 0;
    return end != PROGRAM_NO_TIME && end > facts->host_begin[event] ? end - facts->host_begin[event]
                                                                    : 0;
}

facts_engine_t facts_engine(const facts_t *facts, uint32_t event)
{
    const program_event_t *e = facts_event(facts, event);
    if (e->kind == PROGRAM_TRANSFER)
        return e->direction == PROGRAM_DOWNLOAD ? FACTS_DOWNLOAD : FACTS_UPLOAD;
    return FACTS_COMPUTE;
}

bool facts_is_measured(const facts_t *facts, uint32_t event)
{
    const uint64_t at = facts_event(facts, event)->model_ns;
    return at != PROGRAM_NO_TIME && at >= facts->begin_ns && at <= facts->end_ns;
}

uint32_t facts_step(const facts_t *facts, uint32_t event)
{
    const uint32_t scope = facts_event(facts, event)->scope;
    return scope == PROGRAM_NONE ? PROGRAM_NONE : facts->program->scopes[scope].step;
}

/* ---- requests ---- */

static int compare_requests(const void *a, const void *b)
{
    const facts_request_t *x = a, *y = b;
    if (x->stream != y->stream) return x->stream < y->stream ? -1 : 1;
    if (x->seq != y->seq) return x->seq < y->seq ? -1 : 1;
    return (x->event > y->event) - (x->event < y->event);
}

static void put_request(facts_t *facts, uint32_t stream, uint64_t seq, uint32_t event)
{
    if (stream != PROGRAM_NONE)
        facts->requests[facts->nrequests++] = (facts_request_t){ seq, stream, event };
}

static void sort_requests(facts_t *facts)
{
    qsort(facts->requests, facts->nrequests, sizeof *facts->requests, compare_requests);
}

/* A queued transfer has its times in its `started` line, which gives it another number. */
static void find_requests(facts_t *facts)
{
    const program_t *p = facts->program;
    for (uint32_t i = 0; i < p->nevents; i++) {
        const program_event_t *e = &p->events[i];
        if (!facts_is_request(facts, i)) continue;
        facts->start[i] = e->start_ns;
        facts->end[i] = e->end_ns;
        put_request(facts, e->stream, e->seq, i);
    }
    sort_requests(facts);
    const size_t nsorted = facts->nrequests;
    for (uint32_t i = 0; i < p->nevents; i++) {
        const program_event_t *e = &p->events[i];
        if (e->kind != PROGRAM_STARTED) continue;
        const uint32_t job = find_request(facts, nsorted, e->stream, e->seq);
        if (job == PROGRAM_NONE) continue;
        facts->start[job] = e->start_ns;
        facts->end[job] = e->end_ns;
        put_request(facts, e->on.stream, e->on.seq, job);
    }
    sort_requests(facts);
}

/* The download of an `arrived` line, and what the sync before it waited for. */
static void find_awaited(facts_t *facts)
{
    const program_t *p = facts->program;
    for (uint32_t i = 0; i < p->nevents; i++) {
        const program_event_t *e = &p->events[i];
        facts->awaited[i] = PROGRAM_NONE;
        if (e->kind == PROGRAM_SYNC)
            facts->awaited[i] = facts_request(facts, e->on.stream, e->on.seq);
        if (e->kind != PROGRAM_ARRIVED) continue;
        facts->awaited[i] = facts_request(facts, e->stream, e->seq);
        if (i && p->events[i - 1].kind == PROGRAM_SYNC && p->events[i - 1].thread == e->thread)
            facts->awaited[i - 1] = facts->awaited[i];
    }
}

static const facts_t *sorted; /* of the sort; commands have one thread */
static int compare_ends(const void *a, const void *b)
{
    const uint64_t x = sorted->end[*(const uint32_t *)a], y = sorted->end[*(const uint32_t *)b];
    return x < y ? -1 : x > y;
}

static void sort_ends(facts_t *facts)
{
    for (uint32_t i = 0; i < facts->program->nevents; i++)
        if (facts->end[i]) facts->by_end[facts->nby_end++] = i;
    sorted = facts;
    qsort(facts->by_end, facts->nby_end, sizeof *facts->by_end, compare_ends);
}

/* ---- storages ---- */

static void find_uses(facts_t *facts)
{
    const program_t *p = facts->program;
    size_t *at = facts->first_use;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < p->nevents; i++)
            for (unsigned j = 0; j < p->events[i].nsrc + p->events[i].ndst; j++) {
                const program_operand_t *o = program_operand(p, &p->events[i], j);
                if (o->storage == PROGRAM_NONE) continue;
                if (pass == 0)
                    at[o->storage + 1]++;
                else
                    facts->uses[at[o->storage]++] =
                        (facts_use_t){ i, j >= p->events[i].nsrc, o->version };
            }
        if (pass == 0)
            for (size_t s = 0; s < p->nstorages; s++) at[s + 1] += at[s];
    }
    memmove(at + 1, at, p->nstorages * sizeof *at); /* each now is where the next one began */
    at[0] = 0;
}

/* ---- time ---- */

bool facts_takes_time(const facts_t *facts, uint32_t event)
{
    switch (facts_event(facts, event)->kind) {
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

static void find_host_times(facts_t *facts)
{
    const program_t *p = facts->program;
    uint64_t last = 0;
    for (uint32_t i = 0; i < p->nevents; i++) {
        facts->host_begin[i] = last;
        if (!facts_takes_time(facts, i)) continue;
        if (p->events[i].model_ns != PROGRAM_NO_TIME && p->events[i].model_ns > last)
            last = p->events[i].model_ns;
    }
}

static void find_part(facts_t *facts)
{
    const program_t *p = facts->program;
    uint64_t first = p->begin_model_ns;
    if (first == PROGRAM_NO_TIME || p->end_model_ns <= first) return; /* no model clock */
    facts->end_ns = p->end_model_ns;
    /* requests can still be queued at the last event of a program that was killed */
    for (uint32_t i = 0; i < p->nevents; i++)
        if (facts->end[i] > facts->end_ns) facts->end_ns = facts->end[i];
    if (p->nsteps >= 3 && p->scopes[p->steps[0]].begin != PROGRAM_NONE)
        first = p->events[p->scopes[p->steps[0]].begin].model_ns;
    facts->begin_ns = first == PROGRAM_NO_TIME ? p->begin_model_ns : first;
}

uint64_t facts_device_ns(const facts_t *facts, uint32_t event)
{
    const program_event_t *e = facts_event(facts, event);
    const bool is_staged = e->kind == PROGRAM_TRANSFER && strcmp(e->path, "staged") == 0;
    const uint64_t span = facts->end[event] ? facts->end[event] - facts->start[event] : 0;
    return is_staged && e->number > 1 ? span * e->number : span;
}

static void add_busy(facts_t *facts)
{
    for (uint32_t i = 0; i < facts->program->nevents; i++) {
        const program_event_t *e = facts_event(facts, i);
        const uint32_t owner = e->kind == PROGRAM_COPY && e->parent != PROGRAM_NONE ? e->parent : i;
        if (e->kind != PROGRAM_SYNC && e->kind != PROGRAM_ARRIVED && e->kind != PROGRAM_THROTTLE)
            facts->work_ns[owner] += facts_host_ns(facts, i);
    }
    for (uint32_t i = 0; i < facts->program->nevents; i++) {
        if (!facts_is_measured(facts, i)) continue;
        if (facts->end[i]) facts->busy_ns[facts_engine(facts, i)] += facts_device_ns(facts, i);
        facts->busy_ns[FACTS_HOST] += facts->work_ns[i];
    }
}

void facts_create(const program_t *program, facts_t *out_facts)
{
    const size_t n = program->nevents;
    *out_facts = (facts_t){ .program = program };
    out_facts->host_begin = tool_alloc(n * sizeof(uint64_t));
    out_facts->start = tool_alloc(n * sizeof(uint64_t));
    out_facts->end = tool_alloc(n * sizeof(uint64_t));
    out_facts->work_ns = tool_alloc(n * sizeof(uint64_t));
    out_facts->idle_ns = tool_alloc(n * sizeof(uint64_t));
    out_facts->queue_ns = tool_alloc(n * sizeof(uint64_t));
    out_facts->awaited = tool_alloc(n * sizeof(uint32_t));
    out_facts->by_end = tool_alloc(n * sizeof(uint32_t));
    out_facts->uses = tool_alloc(program->noperands * sizeof(facts_use_t));
    out_facts->first_use = tool_alloc((program->nstorages + 2) * sizeof(size_t));
    out_facts->requests = tool_alloc(n * sizeof *out_facts->requests);
    find_requests(out_facts);
    find_awaited(out_facts);
    sort_ends(out_facts);
    find_uses(out_facts);
    find_host_times(out_facts);
    find_part(out_facts);
    add_busy(out_facts);
    facts_find_idle(out_facts);
}

void facts_free(facts_t *facts)
{
    free(facts->host_begin);
    free(facts->start);
    free(facts->end);
    free(facts->work_ns);
    free(facts->queue_ns);
    free(facts->idle_ns);
    free(facts->awaited);
    free(facts->by_end);
    free(facts->uses);
    free(facts->first_use);
    free(facts->requests);
}
