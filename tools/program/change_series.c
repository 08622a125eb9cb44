/* Ops that are submitted, or run, together. */
#include <string.h>

#include "tools/program/change.h"

uint64_t change_outer_nbytes(const facts_t *facts, const uint32_t *ops, size_t count,
                             uint64_t *out_all)
{
    const program_t *p = facts->program;
    uint64_t inner = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        const program_event_t *e = facts_event(facts, ops[i]);
        for (unsigned k = 0; k < e->nsrc + e->ndst; k++) {
            const program_operand_t *o = program_operand(p, e, k);
            if (o->storage == PROGRAM_NONE) continue;
            const uint64_t nbytes = p->storages[o->storage].nbytes;
            all += nbytes;
            const bool is_last = k >= e->nsrc && i + 1 == count;
            if (!is_last && (k >= e->nsrc || (i && o->writer == ops[i - 1]))) inner += nbytes;
        }
    }
    if (out_all) *out_all = all;
    return all - inner;
}

/* The last op takes the place of all. */
static void fuse_one(changer_t *changer, size_t begin, size_t end)
{
    schedule_t *schedule = changer->schedule;
    const uint32_t *events = changer->change->events;
    const uint32_t kept = changer->request[events[end - 1]];
    uint64_t flops = 0;
    if (kept == PROGRAM_NONE) return;
    for (size_t k = begin; k + 1 < end; k++) {
        const uint32_t op = changer->request[events[k]];
        if (op == PROGRAM_NONE) continue;
        const act_t gone = schedule->acts[op];
        flops += gone.flops;
        for (uint32_t i = 0; i < gone.nafter; i++)
            schedule_append_after(schedule, &schedule->acts[kept], schedule->after[gone.after + i]);
    }
    schedule->acts[kept].flops += flops;
    schedule->acts[kept].nbytes =
        change_outer_nbytes(changer->facts, &events[begin], end - begin, NULL);
}

void change_fuse(changer_t *changer)
{
    const change_t *change = changer->change;
    schedule_t *schedule = changer->schedule;
    for (size_t begin = 0, end; begin < change->nevents; begin = end) {
        for (end = begin + 1; end < change->nevents && !(change->begins && change->begins[end]);)
            end++;
        fuse_one(changer, begin, end);
    }
    for (uint32_t i = 0; i < schedule->nacts; i++) {
        const size_t place = changer->place[change_owner(changer, &schedule->acts[i])];
        const bool is_last = place == change->nevents || (change->begins && change->begins[place]);
        if (place && !is_last) change_drop(&schedule->acts[i]);
    }
    change_mend(changer);
}

/* The first op of a graph comes after all that any of its ops comes after. */
void change_graph(changer_t *changer)
{
    schedule_t *schedule = changer->schedule;
    const program_t *program = schedule->program;
    act_t *first = NULL;
    for (size_t i = 0; i < schedule->nacts; i++) {
        act_t *act = &schedule->acts[i];
        const uint32_t owner = change_owner(changer, act);
        const bool is_changed = changer->place[owner] != 0;
        const bool is_throttle = act->kind == ACT_WAIT &&
                                 program->events[act->event].kind != PROGRAM_SYNC;
        if (act->kind == ACT_HOST || is_throttle) {
            if (first && is_changed) change_drop(act);
        } else if (act->kind != ACT_REQUEST || !is_changed ||
                   (first && first->device != act->device) ||
                   (changer->change->begins && changer->change->begins[changer->place[owner] - 1]))
            first = NULL;
        if (act->kind != ACT_REQUEST || !is_changed) continue;
        if (!first)
            first = act;
        else {
            act->is_joined = true;
            for (uint32_t k = 0; k < act->nafter; k++)
                if (schedule->after[act->after + k] < (uint32_t)(first - schedule->acts))
                    schedule_append_after(schedule, first, schedule->after[act->after + k]);
            act->nafter = 0;
        }
    }
}
