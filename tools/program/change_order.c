/* Changes that move acts. The new place of each act is a key: its own number, or that of the act
 * before which it moves. Afterwards an act never refers to a later one: what it came after has
 * other memory then. */
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"
#include "tools/program/change.h"

typedef struct move {
    uint64_t key;
    uint32_t act;
} move_t;

static int compare_moves(const void *a, const void *b)
{
    const move_t *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->act < y->act ? -1 : 1;
}

static move_t *begin_moves(const schedule_t *schedule)
{
    move_t *moves = tool_alloc((schedule->nacts + 1) * sizeof *moves);
    for (uint32_t i = 0; i < schedule->nacts; i++) moves[i] = (move_t){ 2ull * i + 1, i };
    return moves;
}

static void move_before(move_t *move, uint32_t act) { move->key = 2ull * act; }

/* Events end where the last act before them that has not moved does. */
static void place_events(schedule_t *schedule, const move_t *moves, const uint32_t *places)
{
    uint32_t *until = tool_alloc((schedule->nacts + 1) * sizeof *until); /* by old number of acts */
    until[0] = 0;
    for (uint32_t i = 0; i < schedule->nacts; i++)
        until[i + 1] = moves[i].key & 1 ? places[i] + 1 : until[i];
    for (size_t i = 0; i < schedule->program->nevents; i++)
        schedule->acts_until[i] = until[schedule->acts_until[i]];
    free(until);
}

/* Frees `moves`. */
static void end_moves(schedule_t *schedule, move_t *moves)
{
    const size_t count = schedule->nacts;
    move_t *sorted = tool_alloc((count + 1) * sizeof *sorted);
    uint32_t *places = tool_alloc((count + 1) * sizeof *places);
    act_t *acts = tool_alloc((count + 1) * sizeof *acts);
    memcpy(sorted, moves, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_moves);
    for (uint32_t i = 0; i < count; i++) places[sorted[i].act] = i;
    for (uint32_t i = 0; i < count; i++) {
        act_t *act = &acts[i];
        *act = schedule->acts[sorted[i].act];
        const uint32_t awaited = act->kind == ACT_WAIT ? places[act->awaited] : 0;
        if (act->kind == ACT_WAIT && awaited >= i) change_drop(act);
        act->awaited = awaited;
    }
    /* lists may be shared by acts: each gets a new one */
    schedule_t old = *schedule;
    schedule->after = NULL;
    schedule->nafter = 0;
    for (uint32_t i = 0; i < count; i++) {
        const size_t first = acts[i].after;
        const uint32_t nafter = acts[i].nafter;
        acts[i].after = schedule->nafter;
        acts[i].nafter = 0;
        for (uint32_t k = 0; k < nafter; k++)
            if (places[old.after[first + k]] < i)
                schedule_append_after(schedule, &acts[i], places[old.after[first + k]]);
    }
    place_events(schedule, moves, places);
    memcpy(schedule->acts, acts, count * sizeof *acts);
    free(old.after);
    free(acts);
    free(places);
    free(sorted);
    free(moves);
}

/* Does the act belong to an event of the change? */
static bool is_changed(const changer_t *changer, const act_t *act)
{
    return changer->place[change_owner(changer, act)] != 0;
}

/* ---- steps ---- */

static uint32_t step_of(const schedule_t *schedule, const act_t *act)
{
    const program_t *program = schedule->program;
    return program->scopes[program->events[act->event].scope].step;
}

/* The number of acts when the step began or ended; UINT32_MAX: the file does not have it. */
static uint32_t acts_at(const schedule_t *schedule, uint64_t step, bool is_end)
{
    const program_t *program = schedule->program;
    if (step >= program->nsteps) return UINT32_MAX;
    const program_scope_t *scope = &program->scopes[program->steps[step]];
    const uint32_t event = is_end ? scope->end : scope->begin;
    return event == PROGRAM_NONE ? UINT32_MAX : schedule->acts_until[event];
}

void change_upload_earlier(changer_t *changer)
{
    schedule_t *schedule = changer->schedule;
    move_t *moves = begin_moves(schedule);
    for (uint32_t i = 0; i < schedule->nacts; i++) {
        const act_t *act = &schedule->acts[i];
        if (!is_changed(changer, act)) continue;
        const uint32_t step = step_of(schedule, act);
        if (step == PROGRAM_NONE) continue;
        const uint32_t at = acts_at(
            schedule, step > changer->change->steps ? step - changer->change->steps : 0, false);
        if (at != UINT32_MAX && at < i) move_before(&moves[i], at);
    }
    end_moves(schedule, moves);
}

/* ---- batches ---- */

typedef struct batch {
    uint32_t *members; /* acts */
    size_t count;
    bool *is_member; /* by act */
    bool has_wait;
} batch_t;

/* Does the act need bytes of the batch? The host's waits for downloads can come later; is_own: a
 * wait for a staging buffer of the batch is not needed. */
static bool needs(const schedule_t *schedule, const batch_t *batch, const act_t *act,
                  bool is_download, bool is_own)
{
    if (act->kind == ACT_WAIT) return !is_download && !is_own && batch->is_member[act->awaited];
    for (uint32_t i = 0; act->kind == ACT_REQUEST && i < act->nafter; i++)
        if (batch->is_member[schedule->after[act->after + i]]) return true;
    return false;
}

/* The host's time between the members for each: polls, and those beside its waits. */
static void drop_host_time(const changer_t *changer, const batch_t *batch)
{
    act_t *acts = changer->schedule->acts;
    for (uint32_t i = batch->members[0] + 1; i < batch->members[batch->count - 1]; i++) {
        if (acts[i].kind == ACT_HOST && is_changed(changer, &acts[i])) change_drop(&acts[i]);
        if (acts[i].kind != ACT_WAIT || !batch->is_member[acts[i].awaited]) continue;
        if (acts[i - 1].kind == ACT_HOST && acts[i - 1].event == acts[i].event)
            change_drop(&acts[i - 1]);
        if (acts[i + 1].kind == ACT_HOST && acts[i + 1].event == acts[i].event)
            change_drop(&acts[i + 1]);
    }
}

/* The copy, and a kernel that reads and writes its bytes: behind an upload, before a download. The
 * kernel needs a table: an upload has it with its bytes, before a download it is uploaded. All
 * others are dropped, and what refers to one refers to the last. */
static void end_batch(const changer_t *changer, batch_t *batch, uint32_t *replaced, move_t *moves)
{
    enum { TABLE_NBYTES = 24, LEAST = 3 };
    schedule_t *schedule = changer->schedule;
    if (batch->count >= LEAST) {
        drop_host_time(changer, batch);
        const uint32_t last = batch->members[batch->count - 1],
                       other = batch->members[batch->count - 2];
        const bool is_download = schedule->acts[last].engine == FY__SIM_DOWNLOAD;
        act_t copy = schedule->acts[last], kernel = copy;
        copy.nbytes = 0;
        copy.after = schedule->nafter;
        copy.nafter = 0;
        for (size_t i = 0; i < batch->count; i++) {
            act_t *member = &schedule->acts[batch->members[i]];
            copy.nbytes += member->nbytes;
            for (uint32_t k = 0; k < member->nafter; k++)
                schedule_append_after(schedule, &copy, schedule->after[member->after + k]);
            change_drop(member);
            replaced[batch->members[i]] = last;
        }
        kernel.engine = FY__SIM_COMPUTE;
        kernel.dtype = FY_DTYPE_U8;
        kernel.is_pageable = kernel.is_staged = false;
        kernel.nbytes = 2 * copy.nbytes;
        act_t *front = is_download ? &kernel : &copy, *back = is_download ? &copy : &kernel;
        front->after = copy.after;
        front->nafter = copy.nafter;
        back->after = schedule->nafter;
        back->nafter = 0;
        schedule_append_after(schedule, back, other);
        copy.holds_host = batch->has_wait;
        if (is_download) {
            const uint32_t table = batch->members[batch->count - 3];
            schedule->acts[table] = copy;
            schedule->acts[table].engine = FY__SIM_UPLOAD;
            schedule->acts[table].nbytes = TABLE_NBYTES * batch->count;
            schedule->acts[table].nafter = 0;
            schedule->acts[table].holds_host = false;
            schedule_append_after(schedule, front, table);
            replaced[table] = table;
            move_before(&moves[table], last);
        } else
            copy.nbytes += TABLE_NBYTES * batch->count;
        schedule->acts[other] = *front;
        schedule->acts[last] = *back;
        move_before(&moves[other], last);
    }
    for (size_t i = 0; i < batch->count; i++) batch->is_member[batch->members[i]] = false;
    batch->count = 0;
    batch->has_wait = false;
}

static bool begins_series(const changer_t *changer, const act_t *act)
{
    return changer->change->begins &&
           changer->change->begins[changer->place[change_owner(changer, act)] - 1];
}

void change_batch(changer_t *changer)
{
    schedule_t *schedule = changer->schedule;
    const size_t room = schedule->nacts + 1;
    batch_t batch = { .members = tool_alloc(room * sizeof(uint32_t)),
                      .is_member = tool_alloc(room) };
    uint32_t *replaced = tool_alloc(room * sizeof *replaced);
    move_t *moves = begin_moves(schedule);
    for (uint32_t i = 0; i < schedule->nacts; i++) replaced[i] = i;
    for (uint32_t i = 0; i < schedule->nacts; i++) {
        act_t *act = &schedule->acts[i];
        const act_t *first = batch.count ? &schedule->acts[batch.members[0]] : NULL;
        const bool is_member = change_has(changer, act);
        const bool is_download = first && first->engine == FY__SIM_DOWNLOAD;
        if (is_download && act->kind == ACT_WAIT) batch.has_wait |= batch.is_member[act->awaited];
        if (first && needs(schedule, &batch, act, is_download, is_changed(changer, act)))
            end_batch(changer, &batch, replaced, moves);
        else if (first && is_member &&
                 (begins_series(changer, act) || first->engine != act->engine ||
                  first->device != act->device ||
                  step_of(schedule, first) != step_of(schedule, act)))
            end_batch(changer, &batch, replaced, moves);
        if (is_member) {
            batch.is_member[i] = true;
            batch.members[batch.count++] = i;
        }
    }
    end_batch(changer, &batch, replaced, moves);
    for (uint32_t i = 0; i < schedule->nacts; i++) {
        act_t *act = &schedule->acts[i];
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): nacts counts the acts */
        if (act->kind == ACT_WAIT) act->awaited = replaced[act->awaited];
        for (uint32_t k = 0; k < act->nafter; k++) {
            uint32_t *after = &schedule->after[act->after + k];
            if (replaced[*after] != i) *after = replaced[*after]; /* not the batch's own order */
        }
    }
    free(batch.members);
    free(batch.is_member);
    free(replaced);
    end_moves(schedule, moves);
}
