/* Lists of acts, and their execution on the simulator's clock. */
#include <stdlib.h>

#include "tools/cli/tool.h"
#include "tools/program/schedule.h"

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

act_t *schedule_add(schedule_t *schedule, const act_t *act)
{
    schedule->acts = tool_grow(schedule->acts, schedule->nacts, sizeof *schedule->acts);
    act_t *added = &schedule->acts[schedule->nacts++];
    *added = *act;
    added->after = schedule->nafter;
    added->nafter = 0;
    return added;
}

static void add_after(schedule_t *schedule, uint32_t awaited)
{
    schedule->after = tool_grow(schedule->after, schedule->nafter, sizeof *schedule->after);
    schedule->after[schedule->nafter++] = awaited;
}

void schedule_append_after(schedule_t *schedule, act_t *act, uint32_t awaited)
{
    for (uint32_t i = 0; i < act->nafter; i++)
        if (schedule->after[act->after + i] == awaited) return;
    if (act->after + act->nafter != schedule->nafter) { /* the list moves to the end */
        const size_t first = act->after;
        act->after = schedule->nafter;
        for (uint32_t i = 0; i < act->nafter; i++) add_after(schedule, schedule->after[first + i]);
    }
    add_after(schedule, awaited);
    act->nafter++;
}

void schedule_free(schedule_t *schedule)
{
    free(schedule->acts);
    free(schedule->after);
    free(schedule->acts_until);
    *schedule = (schedule_t){ 0 };
}

/* ---- durations ---- */

uint64_t act_duration_ns(const act_t *act, const figures_t *machines)
{
    const fy__sim_profile_t *profile = &machines[act->device].device;
    uint64_t ns;
    if (act->engine == FY__SIM_COMPUTE)
        ns = fy__sim_profile_launch_ns(profile, (fy_dtype_t)act->dtype, act->flops, act->nbytes);
    else if (act->engine == FY__SIM_ENGINE_COUNT)
        ns = fy__sim_profile_peer_ns(profile, &machines[act->other].device, act->nbytes);
    else
        ns = fy__sim_profile_link_ns(profile, !act->is_pageable, act->nbytes);
    if (act->factor == 1) return ns;
    const double scaled = (double)ns * act->factor + 0.5;
    return scaled < 0x1p63 ? (uint64_t)scaled : INT64_MAX;
}

uint64_t act_submit_ns(const act_t *act, const figures_t *machines)
{
    const fy__sim_profile_t *profile = &machines[act->device].device;
    if (act->is_joined) return 0;
    return act->engine == FY__SIM_COMPUTE ? profile->launch_submit_ns : profile->copy_submit_ns;
}

/* ---- execution ---- */

static void run_request(const schedule_t *schedule, const act_t *act, const figures_t *machines,
                        fy__sim_engines_t *engines, uint64_t base_ns, act_times_t *times,
                        act_times_t *out_times)
{
    const uint64_t duration = act_duration_ns(act, machines);
    fy__sim_place_t places[2] = { { &engines[act->device], (fy__sim_engine_t)act->engine } };
    int nplaces = 1;
    uint64_t ready_ns = 0;
    if (act->engine == FY__SIM_ENGINE_COUNT) {
        places[0].engine = FY__SIM_DOWNLOAD;
        places[nplaces++] = (fy__sim_place_t){ &engines[act->other], FY__SIM_UPLOAD };
    }
    for (uint32_t i = 0; i < act->nafter; i++)
        ready_ns = later(ready_ns, base_ns + times[schedule->after[act->after + i]].end_ns);
    const fy__sim_span_t span = fy__sim_clock_submit(act_submit_ns(act, machines), ready_ns,
                                                     nplaces, places, act->delay_ns + duration);
    if (act->is_pageable || act->holds_host)
        (void)fy__sim_clock_wait(span.end_ns, UINT64_MAX, machines[act->device].device.wake_ns);
    out_times->start_ns = span.start_ns + act->delay_ns - base_ns;
    out_times->end_ns = span.end_ns - base_ns;
}

uint64_t schedule_run(const schedule_t *schedule, const figures_t *machines, act_times_t *out_times)
{
    const size_t ndevices = schedule->program->ndevices;
    fy__sim_engines_t *engines = tool_alloc((ndevices + 1) * sizeof *engines);
    const uint64_t base_ns = fy__sim_clock_now();
    for (size_t i = 0; i < schedule->nacts; i++) {
        const act_t *act = &schedule->acts[i];
        act_times_t *times = &out_times[i];
        *times = (act_times_t){ .start_ns = fy__sim_clock_now() - base_ns };
        switch ((act_kind_t)act->kind) {
        case ACT_HOST: fy__sim_clock_advance(act->host_ns); break;
        case ACT_STAGE:
            fy__sim_clock_advance(
                figures_staging_ns(&machines[act->device], act->before, act->nbytes));
            break;
        case ACT_WAIT: {
            const act_t *awaited = &schedule->acts[act->awaited];
            (void)fy__sim_clock_wait(base_ns + out_times[act->awaited].end_ns, UINT64_MAX,
                                     machines[awaited->device].device.wake_ns);
            break;
        }
        case ACT_REQUEST:
            run_request(schedule, act, machines, engines, base_ns, out_times, times);
            break;
        }
        times->host_ns = fy__sim_clock_now() - base_ns;
        if (act->kind != ACT_REQUEST) times->end_ns = times->host_ns;
    }
    free(engines);
    return fy__sim_clock_now() - base_ns;
}
