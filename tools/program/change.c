/* Changes that keep the order of acts, and their proof. */
#include "tools/program/change.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

void change_drop(act_t *act)
{
    act->kind = ACT_HOST;
    act->host_ns = 0;
    act->nafter = 0;
}

bool change_has(const changer_t *changer, const act_t *act)
{
    return act->kind == ACT_REQUEST && act->engine != FY__SIM_COMPUTE &&
           changer->is_changed[act->event];
}

static fy_status_t mark_events(changer_t *changer, const change_t *change)
{
    const program_t *program = changer->schedule->program;
    const bool takes_ops = change->kind == CHANGE_GRAPH;
    changer->is_changed = tool_alloc(program->nevents + 1);
    memset(changer->is_changed, 0, program->nevents);
    for (size_t i = 0; i < change->nevents; i++) {
        const uint32_t event = change->events[i];
        if (event >= program->nevents ||
            program->events[event].kind != (takes_ops ? PROGRAM_OP : PROGRAM_TRANSFER))
            return TOOL_FAIL(INVALID_ARGUMENT, "event %u is no %s: it cannot be changed so", event,
                             takes_ops ? "op" : "transfer");
        changer->is_changed[event] = true;
    }
    /* a submission follows its transfer, pieces come before either */
    for (size_t i = 0; i < program->nevents; i++)
        if (program->events[i].kind == PROGRAM_STARTED && program->events[i].parent != PROGRAM_NONE)
            changer->is_changed[i] = changer->is_changed[program->events[i].parent];
    for (size_t i = 0; i < program->nevents; i++)
        if (program->events[i].kind == PROGRAM_COPY && program->events[i].parent != PROGRAM_NONE)
            changer->is_changed[i] = changer->is_changed[program->events[i].parent];
    return FY_STATUS_OK;
}

static void *copy_list(const void *list, size_t count, size_t size)
{
    size_t room = 1; /* as lists grow: a power of two */
    while (room < count) room *= 2;
    void *copied = tool_alloc(room * size);
    if (count) memcpy(copied, list, count * size);
    return copied;
}

static void copy_schedule(const schedule_t *schedule, schedule_t *out_copy)
{
    *out_copy = *schedule;
    out_copy->acts = copy_list(schedule->acts, schedule->nacts, sizeof *schedule->acts);
    out_copy->after = copy_list(schedule->after, schedule->nafter, sizeof *schedule->after);
    out_copy->acts_until =
        copy_list(schedule->acts_until, schedule->program->nevents, sizeof *schedule->acts_until);
}

static void drop_transfers(changer_t *changer)
{
    schedule_t *schedule = changer->schedule;
    bool *is_dropped = tool_alloc(schedule->nacts + 1);
    for (size_t i = 0; i < schedule->nacts; i++) {
        act_t *act = &schedule->acts[i];
        is_dropped[i] = change_has(changer, act) ||
                        (act->kind == ACT_STAGE && changer->is_changed[act->event]) ||
                        (act->kind == ACT_WAIT && is_dropped[act->awaited]);
        if (is_dropped[i]) change_drop(act);
    }
    free(is_dropped);
}

/* All pieces of a transfer become its last one. */
static void pin_transfers(changer_t *changer)
{
    schedule_t *schedule = changer->schedule;
    act_t *piece = NULL; /* the one before */
    for (size_t i = 0; i < schedule->nacts; i++) {
        act_t *act = &schedule->acts[i];
        if (!changer->is_changed[act->event]) continue;
        if (act->kind == ACT_STAGE || act->kind == ACT_WAIT) change_drop(act);
        if (!change_has(changer, act)) continue;
        act->is_staged = act->is_pageable = false;
        if (piece && piece->event == act->event) {
            act->nbytes += piece->nbytes;
            if (!act->nafter) {
                act->after = piece->after;
                act->nafter = piece->nafter;
            }
            change_drop(piece);
        }
        piece = act;
    }
}

/* The first op of a graph comes after all that any of its ops comes after. */
static void join_ops(changer_t *changer)
{
    schedule_t *schedule = changer->schedule;
    const program_t *program = schedule->program;
    act_t *first = NULL;
    for (size_t i = 0; i < schedule->nacts; i++) {
        act_t *act = &schedule->acts[i];
        const bool is_throttle = act->kind == ACT_WAIT &&
                                 program->events[act->event].kind != PROGRAM_SYNC;
        if (act->kind == ACT_HOST || is_throttle) {
            if (first && changer->is_changed[act->event]) change_drop(act);
        } else if (act->kind != ACT_REQUEST || !changer->is_changed[act->event] ||
                   (first && first->device != act->device))
            first = NULL;
        if (act->kind != ACT_REQUEST || !changer->is_changed[act->event]) continue;
        if (!first)
            first = act;
        else {
            act->is_joined = true;
            for (uint32_t k = 0; k < act->nafter; k++)
                schedule_append_after(schedule, first, schedule->after[act->after + k]);
            act->nafter = 0;
        }
    }
}

fy_status_t change_make(const schedule_t *schedule, const change_t *change, schedule_t *out_changed)
{
    changer_t changer = { .schedule = out_changed, .steps = change->steps };
    copy_schedule(schedule, out_changed);
    const fy_status_t status = mark_events(&changer, change);
    if (status == FY_STATUS_OK) switch (change->kind) {
        case CHANGE_DROP: drop_transfers(&changer); break;
        case CHANGE_PIN: pin_transfers(&changer); break;
        case CHANGE_BATCH: change_batch(&changer); break;
        case CHANGE_READ_LATER: change_read_later(&changer); break;
        case CHANGE_UPLOAD_EARLIER: change_upload_earlier(&changer); break;
        case CHANGE_GRAPH: join_ops(&changer); break;
        }
    free(changer.is_changed);
    return status;
}

fy_status_t change_prove(const schedule_t *schedule, const figures_t *machines,
                         const change_t *change, proof_t *out_proof)
{
    schedule_t changed;
    *out_proof = (proof_t){ .saved_ns = 0 };
    const fy_status_t status = change_make(schedule, change, &changed);
    if (status == FY_STATUS_OK) {
        predict_run(schedule, machines, &out_proof->before);
        predict_run(&changed, machines, &out_proof->after);
        out_proof->saved_ns = (int64_t)(out_proof->before.total_ns - out_proof->after.total_ns);
    }
    schedule_free(&changed);
    return status;
}
