/* Each proof changes a copy of the schedule's acts and executes it. An act that goes becomes host
 * work that takes no time; requests that came after it come after the host's place then. */
#include "tools/advise/prove.h"

#include <stdlib.h>
#include <string.h>

#include "tools/advise/rules.h"
#include "tools/cli/tool.h"
#include "tools/program/predict.h"

typedef struct proof {
    const facts_t *facts;
    const finding_t *finding;
    schedule_t schedule; /* its acts and lists are this proof's own */
    uint32_t *owner;     /* by act: the event that is a call, of which the act is part */
    size_t *place;       /* by event: 1, 2, ... in finding->events; 0: it is not there */
    bool *is_cost;       /* by event */
    size_t room;         /* of schedule.after */
} proof_t;

static void *copy_of(const void *items, size_t count, size_t size)
{
    void *copy = tool_alloc((count + 1) * size);
    if (count) memcpy(copy, items, count * size);
    return copy;
}

/* A line about memory is part of the call behind it, a copy of its transfer. */
static uint32_t owner_of(const facts_t *facts, uint32_t event)
{
    const program_t *p = facts->program;
    uint32_t i = event;
    while (i + 1 < p->nevents &&
           (!facts_takes_time(facts, i) || p->events[i].thread != p->events[event].thread))
        i++;
    const program_event_t *e = &p->events[i];
    return e->kind == PROGRAM_COPY && e->parent != PROGRAM_NONE ? e->parent : i;
}

/* Keeps `after` and `nafter`: what it waited for, others wait for instead. */
static void remove_act(act_t *act)
{
    *act = (act_t){ .kind = ACT_HOST,
                    .event = act->event,
                    .device = act->device,
                    .after = act->after,
                    .nafter = act->nafter };
}

/* The last request of an event: the one that others wait for. PROGRAM_NONE: there is none. */
static uint32_t request_of(const proof_t *proof, uint32_t event)
{
    const uint32_t until = proof->schedule.acts_until[event];
    for (uint32_t i = until; i-- > 0;) {
        if (proof->owner[i] == event && proof->schedule.acts[i].kind == ACT_REQUEST) return i;
        if (proof->owner[i] < event && until - i > 64) break;
    }
    return PROGRAM_NONE;
}

/* ---- what requests wait for ---- */

static void append(proof_t *proof, uint32_t act)
{
    schedule_t *schedule = &proof->schedule;
    if (schedule->nafter == proof->room) {
        proof->room = 2 * proof->room + 64;
        uint32_t *grown = tool_alloc(proof->room * sizeof *grown);
        memcpy(grown, schedule->after, schedule->nafter * sizeof *grown);
        free(schedule->after);
        schedule->after = grown;
    }
    schedule->after[schedule->nafter++] = act;
}

/* Appends `act`, or if it is gone, what it waited for: its own list, and if it uploaded what a
 * download of the finding had fetched, that of the download. */
static void append_remaining(proof_t *proof, uint32_t act, int depth)
{
    const act_t gone = proof->schedule.acts[act];
    if (gone.kind == ACT_REQUEST || depth == 4) {
        append(proof, act);
        return;
    }
    for (uint32_t i = 0; i < gone.nafter; i++)
        append_remaining(proof, proof->schedule.after[gone.after + i], depth + 1);
    const size_t place = proof->place[proof->owner[act]];
    if (!place || place >= proof->finding->nevents) return;
    const uint32_t next = proof->finding->events[place];
    const program_event_t *e = facts_event(proof->facts, next);
    if (e->kind != PROGRAM_TRANSFER || e->direction != PROGRAM_DOWNLOAD) return;
    const uint32_t until = proof->schedule.acts_until[next];
    if (facts_event(proof->facts, proof->owner[act])->direction == PROGRAM_UPLOAD && until)
        append_remaining(proof, until - 1, depth + 1);
}

/* Requests that waited for one that is gone wait for what that one waited for. */
static void mend_order(proof_t *proof)
{
    for (uint32_t i = 0; i < proof->schedule.nacts; i++) {
        const act_t act = proof->schedule.acts[i];
        bool changes = false;
        for (uint32_t k = 0; k < act.nafter && act.kind == ACT_REQUEST; k++)
            changes |= proof->schedule.acts[proof->schedule.after[act.after + k]].kind !=
                       ACT_REQUEST;
        if (!changes) continue;
        const size_t begin = proof->schedule.nafter;
        for (uint32_t k = 0; k < act.nafter; k++)
            append_remaining(proof, proof->schedule.after[act.after + k], 0);
        proof->schedule.acts[i].after = begin;
        proof->schedule.acts[i].nafter = (uint32_t)(proof->schedule.nafter - begin);
    }
}

/* `act` waits for what `other` waits for, too. */
static void wait_for_the_same(proof_t *proof, uint32_t act, const act_t *other)
{
    act_t *to = &proof->schedule.acts[act];
    const act_t old = *to;
    const size_t begin = proof->schedule.nafter;
    for (uint32_t i = 0; i < old.nafter; i++) append(proof, proof->schedule.after[old.after + i]);
    for (uint32_t i = 0; i < other->nafter; i++)
        if (proof->schedule.after[other->after + i] < act)
            append(proof, proof->schedule.after[other->after + i]);
    to->after = begin;
    to->nafter = (uint32_t)(proof->schedule.nafter - begin);
}

/* ---- changes ---- */

static void drop(proof_t *proof)
{
    for (uint32_t i = 0; i < proof->schedule.nacts; i++)
        if (proof->is_cost[proof->owner[i]]) remove_act(&proof->schedule.acts[i]);
    mend_order(proof);
}

/* Waits for the request of `place` - `steps`; the first ones wait for nothing. */
static void wait_for_earlier(proof_t *proof, act_t *act, size_t place, size_t steps)
{
    const uint32_t request =
        place > steps ? request_of(proof, proof->finding->events[place - steps - 1]) : PROGRAM_NONE;
    if (request == PROGRAM_NONE)
        remove_act(act);
    else
        act->awaited = request;
}

static void read_later(proof_t *proof, size_t steps)
{
    for (uint32_t i = 0; i < proof->schedule.nacts; i++) {
        act_t *act = &proof->schedule.acts[i];
        const uint32_t event = proof->owner[i], awaited = proof->facts->awaited[event];
        if (act->kind != ACT_WAIT || !proof->is_cost[event] || awaited == PROGRAM_NONE) continue;
        if (proof->place[awaited]) wait_for_earlier(proof, act, proof->place[awaited], steps);
    }
}

/* The last request of a series takes the place of all. */
static void merge(proof_t *proof, bool is_chain)
{
    const finding_t *finding = proof->finding;
    for (size_t begin = 0, end; begin < finding->nevents; begin = end) {
        uint64_t nbytes = 0, flops = 0;
        for (end = begin; end < finding->nevents && (end == begin || !finding->begins[end]); end++)
            nbytes += facts_event(proof->facts, finding->events[end])->nbytes;
        const uint32_t last = finding->events[end - 1], kept = request_of(proof, last);
        for (uint32_t i = 0; i < proof->schedule.nacts; i++) {
            act_t *act = &proof->schedule.acts[i];
            const size_t place = proof->place[proof->owner[i]];
            if (place <= begin || place > end) continue;
            flops += act->kind == ACT_REQUEST ? act->flops : 0;
            if (proof->owner[i] != last) {
                const act_t gone = *act;
                remove_act(act);
                if (gone.kind == ACT_REQUEST && kept != PROGRAM_NONE)
                    wait_for_the_same(proof, kept, &gone);
            } else if (act->kind == ACT_REQUEST && is_chain) {
                act->nbytes =
                    chain_outer_nbytes(proof->facts, &finding->events[begin], end - begin, NULL);
                act->flops = flops;
            } else if (act->kind != ACT_HOST)
                act->nbytes = nbytes;
        }
    }
}

/* One piece from page-locked memory: the last one, with all bytes, behind what the first waited
 * for. */
static void pin(proof_t *proof)
{
    act_t *acts = proof->schedule.acts;
    for (size_t k = 0; k < proof->finding->nevents; k++) {
        const uint32_t event = proof->finding->events[k], last = request_of(proof, event);
        uint32_t first = PROGRAM_NONE;
        if (last == PROGRAM_NONE) continue;
        for (uint32_t i = last + 1; i-- > 0 && last - i < 512;)
            if (proof->owner[i] == event && acts[i].kind == ACT_REQUEST) first = i;
        acts[last].after = acts[first].after;
        acts[last].nafter = acts[first].nafter;
        acts[last].nbytes = facts_event(proof->facts, event)->nbytes;
        acts[last].is_staged = acts[last].is_pageable = false;
        acts[last].factor = 1;
        for (uint32_t i = first > 8 ? first - 8 : 0; i < last; i++)
            if (proof->owner[i] == event) remove_act(&acts[i]);
    }
}

/* Each is one copy to page-locked memory; of its waits, the last is for the copy of `steps` before.
 */
static void unblock(proof_t *proof, size_t steps)
{
    size_t last = 0; /* place of the wait that was kept */
    pin(proof);
    for (uint32_t i = proof->schedule.nacts; i-- > 0;) {
        act_t *act = &proof->schedule.acts[i];
        if (!proof->is_cost[proof->owner[i]]) continue;
        const size_t place = proof->place[proof->owner[act->awaited]];
        if (act->kind == ACT_WAIT && place && place != last) {
            wait_for_earlier(proof, act, place, steps);
            last = place;
        } else if (act->kind != ACT_REQUEST)
            remove_act(act);
    }
}

/* An upload and the waits for it move on by one: each waits for what the one before it did. */
static void add_buffer(proof_t *proof)
{
    act_t *acts = proof->schedule.acts;
    const finding_t *finding = proof->finding;
    for (size_t k = finding->nevents; k-- > 0;) {
        const uint32_t request = request_of(proof, finding->events[k]);
        const uint32_t before = k ? request_of(proof, finding->events[k - 1]) : PROGRAM_NONE;
        if (request == PROGRAM_NONE) continue;
        acts[request].after = before == PROGRAM_NONE ? 0 : acts[before].after;
        acts[request].nafter = before == PROGRAM_NONE ? 0 : acts[before].nafter;
    }
    for (uint32_t i = 0; i < proof->schedule.nacts; i++) {
        const size_t place = acts[i].kind == ACT_WAIT ? proof->place[proof->owner[acts[i].awaited]]
                                                      : 0;
        if (place) wait_for_earlier(proof, &acts[i], place, 1);
    }
}

static void change(proof_t *proof, const rule_t *rule)
{
    switch (rule->change) {
    case CHANGE_NONE: break;
    case CHANGE_DROP: drop(proof); break;
    case CHANGE_LATER: read_later(proof, rule->steps); break;
    case CHANGE_PACK: merge(proof, false); break;
    case CHANGE_PIN: pin(proof); break;
    case CHANGE_SECOND_BUFFER: add_buffer(proof); break;
    case CHANGE_UNBLOCK: unblock(proof, rule->steps); break;
    case CHANGE_FUSE: merge(proof, true); break;
    }
}

/* ---- all findings ---- */

static uint64_t measured_part(const schedule_t *schedule, const figures_t *machines)
{
    prediction_t prediction;
    predict_run(schedule, machines, &prediction);
    return prediction.steps_ns;
}

static void begin_proof(proof_t *proof, const schedule_t *schedule)
{
    proof->schedule = *schedule;
    proof->schedule.acts = copy_of(schedule->acts, schedule->nacts, sizeof(act_t));
    proof->schedule.after = copy_of(schedule->after, schedule->nafter, sizeof(uint32_t));
    proof->room = schedule->nafter;
}

/* Changes keep the numbers of acts, so one can follow another. */
static void apply(proof_t *proof, const finding_t *finding)
{
    const size_t nevents = proof->facts->program->nevents;
    proof->finding = finding;
    memset(proof->place, 0, nevents * sizeof *proof->place);
    memset(proof->is_cost, 0, nevents);
    for (size_t i = 0; i < finding->nevents; i++) proof->place[finding->events[i]] = i + 1;
    for (size_t i = 0; i < finding->ncosts; i++) proof->is_cost[finding->costs[i]] = true;
    change(proof, finding->rule);
}

/* What the changed program saves. */
static int64_t end_proof(proof_t *proof, const figures_t *machines, uint64_t base_ns)
{
    const int64_t ns = (int64_t)base_ns - (int64_t)measured_part(&proof->schedule, machines);
    free(proof->schedule.acts);
    free(proof->schedule.after);
    return ns;
}

static void prove_all(proof_t *proof, advice_t *advice, const schedule_t *schedule,
                      const figures_t *machines)
{
    const uint64_t base_ns = measured_part(schedule, machines);
    for (size_t i = 0; i < advice->nfindings; i++) {
        finding_t *finding = &advice->findings[i];
        if (finding->rule->change == CHANGE_NONE) continue;
        begin_proof(proof, schedule);
        apply(proof, finding);
        finding->measured_ns = end_proof(proof, machines, base_ns);
        finding->has_measured = true;
    }
    begin_proof(proof, schedule);
    for (size_t i = 0; i < advice->nfindings; i++) apply(proof, &advice->findings[i]);
    advice->together_ns = end_proof(proof, machines, base_ns);
    advice->has_together = true;
}

fy_status_t prove(advice_t *advice)
{
    const program_t *p = advice->facts->program;
    figures_t *machines = NULL;
    schedule_t schedule = { .nacts = 0 };
    fy_status_t status = predict_machines(p, NULL, &machines);
    if (status == FY_STATUS_OK) status = schedule_build(p, machines, &schedule);
    if (status == FY_STATUS_OK) {
        proof_t proof = { .facts = advice->facts,
                          .owner = tool_alloc((schedule.nacts + 1) * sizeof(uint32_t)),
                          .place = tool_alloc((p->nevents + 1) * sizeof(size_t)),
                          .is_cost = tool_alloc(p->nevents + 1) };
        for (uint32_t i = 0; i < schedule.nacts; i++)
            proof.owner[i] = owner_of(advice->facts, schedule.acts[i].event);
        prove_all(&proof, advice, &schedule, machines);
        free(proof.owner);
        free(proof.place);
        free(proof.is_cost);
    }
    schedule_free(&schedule);
    free(machines);
    return status;
}
