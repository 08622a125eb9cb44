/* Changes of what the host, or a request, waits for. */
#include <string.h>

#include "tools/program/change.h"

/* The transfer of the change that the host's wait `act` is for: its place, or 0. */
static size_t awaited_place(const changer_t *changer, const act_t *act)
{
    const uint32_t event = change_owner(changer, act), awaited = changer->facts->awaited[event];
    const act_t *request = &changer->schedule->acts[act->awaited];
    if (awaited != PROGRAM_NONE && changer->place[awaited]) return changer->place[awaited];
    return request->kind == ACT_REQUEST ? changer->place[change_owner(changer, request)] : 0;
}

/* For the request of `steps` before; the first ones wait for nothing. */
static void wait_for_earlier(const changer_t *changer, act_t *act, size_t place, size_t steps)
{
    const uint32_t request =
        place > steps ? changer->request[changer->change->events[place - steps - 1]] : PROGRAM_NONE;
    if (request == PROGRAM_NONE)
        change_drop(act);
    else
        act->awaited = request;
}

/* The last ones are waited for at the end of the program. */
static void wait_for_rest(changer_t *changer)
{
    const change_t *change = changer->change;
    const size_t first = change->nevents > change->steps ? change->nevents - change->steps : 0;
    for (size_t i = first; i < change->nevents; i++) {
        const uint32_t request = changer->request[change->events[i]];
        if (request == PROGRAM_NONE) continue;
        schedule_add(changer->schedule,
                     &(act_t){ .kind = ACT_WAIT, .event = change->events[i], .awaited = request });
    }
}

void change_read_later(changer_t *changer)
{
    const size_t nacts = changer->schedule->nacts;
    const bool waits_only = changer->change->ncosts != 0; /* those that the caller names */
    for (uint32_t i = 0; i < nacts; i++) {
        act_t *act = &changer->schedule->acts[i];
        if (act->kind != ACT_WAIT) continue;
        if (waits_only && !changer->is_cost[change_owner(changer, act)]) continue;
        const size_t place = awaited_place(changer, act);
        if (place) wait_for_earlier(changer, act, place, changer->change->steps);
    }
    wait_for_rest(changer);
}

/* One piece from page-locked memory: the last one, with all bytes, behind what the first came
 * after. */
void change_pin(changer_t *changer)
{
    schedule_t *schedule = changer->schedule;
    act_t *piece = NULL; /* the one before */
    for (uint32_t i = 0; i < schedule->nacts; i++) {
        act_t *act = &schedule->acts[i];
        const uint32_t owner = change_owner(changer, act);
        if (!changer->place[owner]) continue;
        const bool is_between = act->kind == ACT_HOST && piece &&
                                change_owner(changer, piece) == owner;
        if (act->kind == ACT_STAGE || act->kind == ACT_WAIT || is_between) change_drop(act);
        if (!change_has(changer, act)) continue;
        act->is_staged = act->is_pageable = false;
        act->factor = 1;
        if (piece && change_owner(changer, piece) == owner) {
            act->nbytes += piece->nbytes;
            act->after = piece->after;
            act->nafter = piece->nafter;
            change_drop(piece);
        }
        piece = act;
    }
}

/* Of the waits for a copy, the last one is for the copy of `steps` before. */
void change_unblock(changer_t *changer)
{
    schedule_t *schedule = changer->schedule;
    size_t last = 0; /* place of the wait that was kept */
    const size_t nacts = schedule->nacts;
    change_pin(changer);
    for (uint32_t i = (uint32_t)nacts; i-- > 0;) {
        act_t *act = &schedule->acts[i];
        if (!changer->is_cost[change_owner(changer, act)] || act->kind == ACT_REQUEST) continue;
        const size_t place =
            act->kind == ACT_WAIT
                ? changer->place[change_owner(changer, &schedule->acts[act->awaited])]
                : 0;
        if (place && place != last) {
            wait_for_earlier(changer, act, place, changer->change->steps);
            last = place;
        } else
            change_drop(act);
    }
    wait_for_rest(changer);
}

/* An upload and the waits for it move on by one. */
void change_second_buffer(changer_t *changer)
{
    act_t *acts = changer->schedule->acts;
    const change_t *change = changer->change;
    for (size_t k = change->nevents; k-- > 0;) {
        const uint32_t request = changer->request[change->events[k]];
        const uint32_t before = k ? changer->request[change->events[k - 1]] : PROGRAM_NONE;
        if (request == PROGRAM_NONE) continue;
        acts[request].after = before == PROGRAM_NONE ? 0 : acts[before].after;
        acts[request].nafter = before == PROGRAM_NONE ? 0 : acts[before].nafter;
    }
    for (uint32_t i = 0; i < changer->schedule->nacts; i++) {
        const size_t place = acts[i].kind == ACT_WAIT
                                 ? changer->place[change_owner(changer, &acts[acts[i].awaited])]
                                 : 0;
        if (place) wait_for_earlier(changer, &acts[i], place, 1);
    }
}
