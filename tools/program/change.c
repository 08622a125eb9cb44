/* Which acts belong to which event, removal of acts, and proofs. */
#include "tools/program/change.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

enum { DEPTH_MOST = 4 }; /* of dropped requests, one behind the other */

/* ---- acts ---- */

bool change_has(const changer_t *changer, const act_t *act)
{
    return act->kind == ACT_REQUEST && act->engine != FY__SIM_COMPUTE &&
           changer->place[change_owner(changer, act)];
}

void change_drop(act_t *act)
{
    *act = (act_t){ .kind = ACT_HOST,
                    .event = act->event,
                    .device = act->device,
                    .after = act->after,
                    .nafter = act->nafter };
}

/* Adds `other` to what `act` comes after; or if it is dropped, what it came after: its own list,
 * and if it uploaded what a download of the change had fetched, that of the download. */
static void add_remaining(changer_t *changer, uint32_t act, uint32_t other, int depth)
{
    schedule_t *schedule = changer->schedule;
    const act_t gone = schedule->acts[other];
    if (gone.kind == ACT_REQUEST || depth == DEPTH_MOST) {
        if (other < act) schedule_append_after(schedule, &schedule->acts[act], other);
        return;
    }
    for (uint32_t i = 0; i < gone.nafter; i++)
        add_remaining(changer, act, schedule->after[gone.after + i], depth + 1);
    const uint32_t owner = change_owner(changer, &gone);
    const size_t place = changer->place[owner];
    if (!place || place >= changer->change->nevents) return;
    const uint32_t next = changer->change->events[place];
    if (facts_event(changer->facts, next)->direction == PROGRAM_DOWNLOAD &&
        facts_event(changer->facts, owner)->direction == PROGRAM_UPLOAD &&
        changer->request[next] != PROGRAM_NONE)
        add_remaining(changer, act, changer->request[next], depth + 1);
}

void change_mend(changer_t *changer)
{
    schedule_t *schedule = changer->schedule;
    for (uint32_t i = 0; i < schedule->nacts; i++) {
        act_t *act = &schedule->acts[i];
        const act_t old = *act;
        bool changes = false;
        for (uint32_t k = 0; k < old.nafter && old.kind == ACT_REQUEST; k++)
            changes |= schedule->acts[schedule->after[old.after + k]].kind != ACT_REQUEST;
        if (!changes) continue;
        act->after = schedule->nafter;
        act->nafter = 0;
        for (uint32_t k = 0; k < old.nafter; k++)
            add_remaining(changer, i, schedule->after[old.after + k], 0);
    }
}

/* Waits for dropped requests are dropped, too. */
static void drop(changer_t *changer)
{
    schedule_t *schedule = changer->schedule;
    bool *is_dropped = tool_alloc(schedule->nacts + 1);
    for (uint32_t i = 0; i < schedule->nacts; i++) {
        act_t *act = &schedule->acts[i];
        is_dropped[i] = changer->is_cost[change_owner(changer, act)] ||
                        (act->kind == ACT_WAIT && is_dropped[act->awaited]);
        if (is_dropped[i]) change_drop(act);
    }
    free(is_dropped);
    change_mend(changer);
}

/* ---- which acts ---- */

/* Pieces belong to their transfer, a line about memory to the call behind it. */
static void find_owners(changer_t *changer)
{
    const program_t *program = changer->facts->program;
    uint32_t most = 0, *next;
    for (uint32_t i = 0; i < program->nevents; i++)
        if (program->events[i].thread > most) most = program->events[i].thread;
    next = tool_alloc(((size_t)most + 1) * sizeof *next); /* by thread */
    memset(next, 0xff, ((size_t)most + 1) * sizeof *next);
    for (uint32_t i = (uint32_t)program->nevents; i-- > 0;) {
        const program_event_t *event = &program->events[i];
        uint32_t owner =
            event->kind == PROGRAM_COPY && event->parent != PROGRAM_NONE ? event->parent : i;
        if (program->events[owner].kind == PROGRAM_STARTED &&
            program->events[owner].parent != PROGRAM_NONE)
            owner = program->events[owner].parent;
        if (facts_takes_time(changer->facts, i))
            next[event->thread] = owner;
        else if (owner == i && event->kind != PROGRAM_STARTED &&
                 next[event->thread] != PROGRAM_NONE)
            owner = next[event->thread];
        changer->owner[i] = owner;
    }
    free(next);
}

static void open_changer(changer_t *changer, schedule_t *schedule, const facts_t *facts,
                         const change_t *change)
{
    const size_t nevents = facts->program->nevents;
    *changer = (changer_t){ .facts = facts,
                            .change = change,
                            .schedule = schedule,
                            .owner = tool_alloc((nevents + 1) * sizeof(uint32_t)),
                            .request = tool_alloc((nevents + 1) * sizeof(uint32_t)),
                            .place = tool_alloc((nevents + 1) * sizeof(size_t)),
                            .is_cost = tool_alloc(nevents + 1) };
    memset(changer->request, 0xff, nevents * sizeof(uint32_t));
    find_owners(changer);
    for (size_t i = 0; i < change->nevents; i++) {
        changer->place[change->events[i]] = i + 1;
        changer->is_cost[change->events[i]] = true;
    }
    for (size_t i = 0; i < change->ncosts; i++) changer->is_cost[change->costs[i]] = true;
    for (uint32_t i = 0; i < schedule->nacts; i++)
        if (schedule->acts[i].kind == ACT_REQUEST)
            changer->request[change_owner(changer, &schedule->acts[i])] = i;
}

static void close_changer(changer_t *changer)
{
    free(changer->owner);
    free(changer->request);
    free(changer->place);
    free(changer->is_cost);
}

static fy_status_t check(const facts_t *facts, const change_t *change)
{
    const program_t *program = facts->program;
    const bool takes_ops = change->kind == CHANGE_GRAPH || change->kind == CHANGE_FUSE;
    for (size_t i = 0; change->kind != CHANGE_NONE && i < change->nevents; i++) {
        const uint32_t event = change->events[i];
        const int kind = event < program->nevents ? program->events[event].kind : PROGRAM_OTHER;
        const bool is_right = change->kind == CHANGE_DROP
                                  ? kind == PROGRAM_TRANSFER || kind == PROGRAM_SYNC ||
                                        (kind == PROGRAM_OP && facts_is_on_host(facts, event))
                                  : kind == (takes_ops ? PROGRAM_OP : PROGRAM_TRANSFER);
        if (!is_right)
            return TOOL_FAIL(INVALID_ARGUMENT, "event %u is no %s: it cannot be changed so", event,
                             takes_ops ? "op" : "transfer");
    }
    return FY_STATUS_OK;
}

/* ---- changes ---- */

static void *copy_list(const void *list, size_t count, size_t size)
{
    size_t room = 1; /* as lists grow: a power of two */
    while (room < count) room *= 2;
    void *copied = tool_alloc(room * size);
    if (count) memcpy(copied, list, count * size);
    return copied;
}

/* Free it with schedule_free. */
static void copy_schedule(const schedule_t *schedule, schedule_t *out_copy)
{
    *out_copy = *schedule;
    out_copy->acts = copy_list(schedule->acts, schedule->nacts, sizeof *schedule->acts);
    out_copy->after = copy_list(schedule->after, schedule->nafter, sizeof *schedule->after);
    out_copy->acts_until =
        copy_list(schedule->acts_until, schedule->program->nevents, sizeof *schedule->acts_until);
}

fy_status_t change_apply(schedule_t *schedule, const facts_t *facts, const change_t *change)
{
    changer_t changer;
    FY_TRY(check(facts, change));
    open_changer(&changer, schedule, facts, change);
    switch (change->kind) {
    case CHANGE_NONE: break;
    case CHANGE_DROP: drop(&changer); break;
    case CHANGE_PIN: change_pin(&changer); break;
    case CHANGE_BATCH: change_batch(&changer); break;
    case CHANGE_READ_LATER: change_read_later(&changer); break;
    case CHANGE_UNBLOCK: change_unblock(&changer); break;
    case CHANGE_UPLOAD_EARLIER: change_upload_earlier(&changer); break;
    case CHANGE_SECOND_BUFFER: change_second_buffer(&changer); break;
    case CHANGE_FUSE: change_fuse(&changer); break;
    case CHANGE_GRAPH: change_graph(&changer); break;
    }
    close_changer(&changer);
    return FY_STATUS_OK;
}

fy_status_t change_prove(const schedule_t *schedule, const facts_t *facts,
                         const figures_t *machines, const change_t *changes, size_t count,
                         proof_t *out_proof)
{
    schedule_t changed;
    fy_status_t status = FY_STATUS_OK;
    *out_proof = (proof_t){ .saved_ns = 0 };
    copy_schedule(schedule, &changed);
    for (size_t i = 0; i < count && status == FY_STATUS_OK; i++)
        status = change_apply(&changed, facts, &changes[i]);
    if (status == FY_STATUS_OK) {
        predict_run(schedule, machines, &out_proof->before);
        predict_run(&changed, machines, &out_proof->after);
        out_proof->saved_ns = (int64_t)(out_proof->before.total_ns - out_proof->after.total_ns);
    }
    schedule_free(&changed);
    return status;
}
