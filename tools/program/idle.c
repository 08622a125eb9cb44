/* Charges every nanosecond in which the compute engine of a device stood idle to the event that
 * caused it. Between two ops, the search goes back in time from the start of the second:
 * - A transfer ended when the op (or transfer) started: its time is charged to that transfer, and
 *   the search goes on at the transfer's start.
 * - Else the host submitted it then. The host's time before it is charged to the calls in which
 *   the host was. A wait goes on at the end of the request that it awaited.
 * - Submissions that follow a wait are charged to the wait: without it, the host would have made
 *   them while the device was still busy.
 * Not here: the limit by other engines (tools/advise/advice.c). */
#include "tools/program/facts.h"

#include <string.h>

enum { WAIT_LINES_MOST = 64, FLOOR_LINES_MOST = 1024 }; /* before a request's own line */

/* A walk through one gap; [begin, at) is still to be charged. */
typedef struct walk {
    facts_t *facts;
    uint32_t device;
    uint64_t begin, at;
    uint32_t pending[64]; /* submissions behind the next wait */
    uint64_t pending_ns[64];
    uint32_t npending;
    uint64_t floor; /* when the engine was done with transfers of other sites */
} walk_t;

/* Adds the time from `from` to where the walk is: to queue_ns for the part before `floor`. */
static void add(walk_t *w, uint32_t event, uint64_t ns, uint64_t from)
{
    const uint64_t below = from < w->floor ? w->floor - from : 0, queued = below < ns ? below : ns;
    w->facts->queue_ns[event] += queued;
    w->facts->idle_ns[event] += ns - queued;
}

/* The time from `from`, but not before the gap, to where the walk is. */
static void charge(walk_t *w, uint32_t event, uint64_t from)
{
    if (from < w->begin) from = w->begin;
    if (from >= w->at) return;
    add(w, event, w->at - from, from);
    w->at = from;
}

/* The same, for the time in which the request was behind others in its engine's queue. */
static void charge_queue(walk_t *w, uint32_t event, uint64_t from)
{
    if (from < w->begin) from = w->begin;
    if (from >= w->at) return;
    w->facts->queue_ns[event] += w->at - from;
    w->at = from;
}

static void defer(walk_t *w, uint32_t event, uint64_t from)
{
    if (w->npending == 64) {
        charge(w, event, from);
        return;
    }
    if (from < w->begin) from = w->begin;
    if (from >= w->at) return;
    w->pending[w->npending] = event;
    w->pending_ns[w->npending++] = w->at - from;
    w->at = from;
}

/* wait PROGRAM_NONE: to the submissions themselves. */
static void charge_pending(walk_t *w, uint32_t wait)
{
    while (w->npending > 0) {
        w->npending--;
        const uint32_t event = wait == PROGRAM_NONE ? w->pending[w->npending] : wait;
        w->facts->idle_ns[event] += w->pending_ns[w->npending];
    }
}

/* Does the device make `request` wait for `other`? The lines of its waits are before its own. */
static bool is_awaited(const facts_t *facts, uint32_t request, uint32_t other)
{
    const program_event_t *e = facts_event(facts, request);
    for (uint32_t i = request, n = 0; i-- > 0 && n < WAIT_LINES_MOST; n++) {
        const program_event_t *line = facts_event(facts, i);
        if (line->thread == e->thread && line->kind == PROGRAM_OP) break;
        if (line->kind == PROGRAM_WAIT && line->stream == e->stream && line->seq == e->seq &&
            facts_request(facts, line->on.stream, line->on.seq) == other)
            return true;
    }
    return false;
}

/* The transfer of the device that ended at `at`; of several the one that `request` waited for, else
 * an upload. PROGRAM_NONE: none did. */
static uint32_t ended_at(const walk_t *w, uint64_t at, uint32_t request)
{
    const facts_t *facts = w->facts;
    uint32_t found = PROGRAM_NONE;
    size_t low = 0, high = facts->nby_end;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (facts->end[facts->by_end[middle]] < at)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < facts->nby_end && facts->end[facts->by_end[low]] == at; low++) {
        const uint32_t here = facts->by_end[low];
        const program_event_t *e = facts_event(facts, here);
        if (e->kind != PROGRAM_TRANSFER || e->device != w->device || here == request) continue;
        if (is_awaited(facts, request, here)) return here;
        if (found == PROGRAM_NONE || e->direction == PROGRAM_UPLOAD) found = here;
    }
    return found;
}

/* The last request that ended before or at `at`. */
static uint32_t ended_before(const walk_t *w, uint64_t at)
{
    const facts_t *facts = w->facts;
    size_t low = 0, high = facts->nby_end;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (facts->end[facts->by_end[middle]] <= at)
            low = middle + 1;
        else
            high = middle;
    }
    while (low && facts_event(facts, facts->by_end[low - 1])->device != w->device) low--;
    return low ? facts->by_end[low - 1] : PROGRAM_NONE;
}

static bool is_wait(uint8_t kind)
{
    return kind == PROGRAM_SYNC || kind == PROGRAM_ARRIVED || kind == PROGRAM_THROTTLE;
}

/* The event that the host's time at `event` belongs to. */
static uint32_t owner_of(const facts_t *facts, uint32_t event)
{
    const program_event_t *e = facts_event(facts, event);
    return e->kind == PROGRAM_COPY && e->parent != PROGRAM_NONE ? e->parent : event;
}

/* Is the call a mere submission, without work of the host? */
static bool is_submission(const facts_t *facts, uint32_t event)
{
    const uint32_t owner = owner_of(facts, event);
    const program_event_t *e = facts_event(facts, owner);
    if (!facts_is_request(facts, owner)) return e->kind != PROGRAM_COPY && e->kind != PROGRAM_OP;
    return e->kind == PROGRAM_OP || strcmp(e->path, "direct") == 0;
}

/* The last end, in the gap, of a transfer of the same engine that another site submitted before:
 * this one was behind it in the queue. */
static uint64_t floor_of(const walk_t *w, uint32_t transfer)
{
    const facts_t *facts = w->facts;
    uint64_t last = 0;
    for (uint32_t i = transfer, n = 0; i-- > 0 && n < FLOOR_LINES_MOST; n++) {
        const program_event_t *e = facts_event(facts, i);
        if (e->model_ns < w->begin && facts->end[i] && facts->end[i] < w->begin) break;
        if (e->kind == PROGRAM_TRANSFER && e->device == w->device && facts->end[i] <= w->at &&
            facts_engine(facts, i) == facts_engine(facts, transfer) &&
            e->site != facts_event(facts, transfer)->site && facts->end[i] > last)
            last = facts->end[i];
    }
    return last;
}

/* Back through the calls of the host, from the one that ended where the walk is. Returns the
 * transfer that a wait awaited, or PROGRAM_NONE: the gap is charged. */
static uint32_t walk_host(walk_t *w, uint32_t event)
{
    const facts_t *facts = w->facts;
    for (; w->at > w->begin; event--) {
        const program_event_t *e = facts_event(facts, event);
        if (!facts_takes_time(facts, event)) {
            if (!event) break;
            continue;
        }
        if (e->model_ns < w->at) break; /* submitted before: another reason held it back */
        if (facts_host_ns(facts, event) && facts->host_begin[event] < w->at) {
            if (is_wait(e->kind)) {
                const uint64_t began = facts->host_begin[event];
                uint32_t request = facts->awaited[event];
                if (request == PROGRAM_NONE || !facts->end[request] || facts->end[request] > w->at)
                    request = ended_before(w, w->at);
                const uint64_t ended = request == PROGRAM_NONE ? 0 : facts->end[request];
                if (ended <= began) { /* a poll */
                    defer(w, event, began);
                    continue;
                }
                charge_pending(w, event);
                charge(w, event, ended);
                if (w->at > w->begin) return request;
            } else if (is_submission(facts, event))
                defer(w, event, facts->host_begin[event]);
            else {
                const uint32_t owner = owner_of(facts, event);
                if (!w->floor && facts_event(facts, owner)->kind == PROGRAM_TRANSFER)
                    w->floor = floor_of(w, owner);
                charge(w, owner, facts->host_begin[event]);
            }
        }
        if (!event) break;
    }
    charge_pending(w, PROGRAM_NONE);
    return PROGRAM_NONE;
}

/* Did `request` need the transfer? Of one engine, it may have been only behind it in the queue. */
static bool is_reason(const facts_t *facts, uint32_t request, uint32_t transfer)
{
    return facts_engine(facts, request) != facts_engine(facts, transfer) ||
           is_awaited(facts, request, transfer);
}

static void walk_gap(walk_t *w, uint32_t op)
{
    facts_t *facts = w->facts;
    uint32_t request = op;
    while (w->at > w->begin) {
        const uint32_t transfer = ended_at(w, w->at, request);
        const program_event_t *e = facts_event(facts, request);
        if (transfer != PROGRAM_NONE && is_reason(facts, request, transfer))
            request = transfer;
        else if (e->kind == PROGRAM_TRANSFER && e->model_ns < w->at) {
            const uint64_t pieces = facts_device_ns(facts, request) -
                                    (facts->end[request] - facts->start[request]);
            const uint64_t first = w->at > pieces ? w->at - pieces : 0;
            charge(w, request, first > e->model_ns ? first : e->model_ns);
            charge_queue(w, request, e->model_ns);
            continue;
        } else {
            request = walk_host(w, request);
            if (request == PROGRAM_NONE || facts_event(facts, request)->kind != PROGRAM_TRANSFER)
                break;
            if (facts->end[request] != w->at) break;
        }
        if (!w->floor) w->floor = floor_of(w, request);
        charge(w, request, facts->start[request]);
    }
    charge_pending(w, PROGRAM_NONE);
}

void facts_find_idle(facts_t *facts)
{
    const program_t *p = facts->program;
    for (uint32_t device = 0; device < p->ndevices; device++) {
        uint64_t busy_until = facts->begin_ns; /* where the measured part begins */
        for (size_t i = 0; i < facts->nby_end;
             i++) { /* one engine: ends are in the order of starts */
            const uint32_t op = facts->by_end[i];
            const program_event_t *e = facts_event(facts, op);
            if (e->kind != PROGRAM_OP || e->device != device) continue;
            if (facts->start[op] > busy_until) {
                walk_t w = {
                    .facts = facts, .device = device, .begin = busy_until, .at = facts->start[op]
                };
                facts->idle_total_ns += facts->start[op] - busy_until;
                walk_gap(&w, op);
            }
            if (facts->end[op] > busy_until) busy_until = facts->end[op];
        }
    }
}

facts_cause_t facts_cause(const facts_t *facts, uint32_t event)
{
    const program_event_t *e = facts_event(facts, event);
    if (e->kind == PROGRAM_TRANSFER && e->direction == PROGRAM_UPLOAD) return FACTS_CAUSE_UPLOAD;
    if (e->kind == PROGRAM_TRANSFER && e->direction == PROGRAM_DOWNLOAD)
        return FACTS_CAUSE_DOWNLOAD;
    if (is_wait(e->kind)) return FACTS_CAUSE_WAIT;
    if (e->kind != PROGRAM_OP) return FACTS_CAUSE_OTHER;
    return facts_is_on_host(facts, event) ? FACTS_CAUSE_HOST_OP : FACTS_CAUSE_SUBMIT;
}

const char *facts_cause_name(facts_cause_t cause)
{
    static const char *const names[] = { "uploads",           "downloads",
                                         "waits of the host", "submission of ops",
                                         "ops on the host",   "other calls" };
    return names[cause];
}
