/* Sums over an execution. Time is divided by the gaps of each compute engine: in a gap the next op
 * was not yet submitted, or was waiting for a transfer. */
#include "tools/program/predict.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

#define X(name, key, heading) key,
const char *const predict_cause_keys[] = { PREDICT_CAUSES(X) };
#undef X
#define X(name, key, heading) heading,
const char *const predict_cause_headings[] = { PREDICT_CAUSES(X) };
#undef X

typedef struct span {
    uint64_t start_ns, end_ns;
} span_t;

typedef struct sums {
    const schedule_t *schedule;
    const act_times_t *times;
    span_t window; /* what is outside of it is not counted */
    span_t *copies;
    size_t ncopies;
    size_t at; /* the host's act in which the last gap ended */
    prediction_t *out;
} sums_t;

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t overlap(span_t a, span_t b)
{
    const uint64_t start_ns = later(a.start_ns, b.start_ns), end_ns = sooner(a.end_ns, b.end_ns);
    return end_ns > start_ns ? end_ns - start_ns : 0;
}

static uint64_t host_at(const schedule_t *schedule, const act_times_t *times, uint32_t event)
{
    const uint32_t count = event == PROGRAM_NONE ? 0 : schedule->acts_until[event];
    return count ? times[count - 1].host_ns : 0;
}

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static int compare_spans(const void *a, const void *b)
{
    return compare_numbers(&((const span_t *)a)->start_ns, &((const span_t *)b)->start_ns);
}

/* When the host and the requests of a step were done. */
static uint64_t end_of(const sums_t *sums, const program_scope_t *scope)
{
    const uint32_t *until = sums->schedule->acts_until;
    uint64_t end_ns = host_at(sums->schedule, sums->times, scope->end);
    for (uint32_t i = until[scope->begin]; i < until[scope->end]; i++)
        end_ns = later(end_ns, sums->times[i].end_ns);
    return end_ns;
}

/* Steps that the file begins and ends. The host can be some steps ahead of the device, so a step is
 * the time from the end of the one before, on both, to its own. */
static void sum_steps(sums_t *sums)
{
    const program_t *program = sums->schedule->program;
    uint64_t *steps_ns = tool_alloc((program->nsteps + 1) * sizeof *steps_ns);
    size_t count = 0;
    prediction_t *out = sums->out;
    for (size_t i = 0; i < program->nsteps; i++) {
        const program_scope_t *scope = &program->scopes[program->steps[i]];
        if (scope->begin == PROGRAM_NONE || scope->end == PROGRAM_NONE) continue;
        const uint64_t end_ns = end_of(sums, scope);
        if (!out->nsteps++)
            sums->window.start_ns = host_at(sums->schedule, sums->times, scope->begin);
        else
            steps_ns[count++] = end_ns - sooner(end_ns, sums->window.end_ns);
        sums->window.end_ns = later(sums->window.end_ns, end_ns);
    }
    if (!out->nsteps) sums->window.end_ns = out->total_ns;
    out->steps_ns = sums->window.end_ns - sums->window.start_ns;
    if (!count) steps_ns[count++] = out->steps_ns;
    qsort(steps_ns, count, sizeof *steps_ns, compare_numbers);
    out->step_ns = out->nsteps ? steps_ns[count / 2] : 0;
    free(steps_ns);
}

/* ---- gaps ---- */

/* The host's part of a gap: what it did until it submitted the op. */
static void sum_host(sums_t *sums, span_t gap)
{
    const schedule_t *schedule = sums->schedule;
    while (sums->at && sums->times[sums->at].host_ns > gap.start_ns) sums->at--;
    for (size_t i = sums->at; i < schedule->nacts; i++) {
        const act_t *act = &schedule->acts[i];
        const uint64_t begin_ns = i ? sums->times[i - 1].host_ns : 0,
                       end_ns = sums->times[i].host_ns;
        if (begin_ns >= gap.end_ns) break;
        sums->at = i;
        predict_cause_t cause = act->kind == ACT_STAGE ? PREDICT_STAGING : PREDICT_HOST;
        const bool waits = act->kind == ACT_WAIT ||
                           (act->kind == ACT_REQUEST && (act->is_pageable || act->holds_host));
        if (waits) {
            const act_times_t *awaited = &sums->times[act->kind == ACT_WAIT ? act->awaited : i];
            const uint64_t woken_ns = later(begin_ns, sooner(awaited->end_ns, end_ns));
            sums->out->idle_ns[PREDICT_TRANSFER] += overlap(gap, (span_t){ begin_ns, woken_ns });
            sums->out->idle_ns[PREDICT_WAKE_UP] += overlap(gap, (span_t){ woken_ns, end_ns });
        } else
            sums->out->idle_ns[cause] += overlap(gap, (span_t){ begin_ns, end_ns });
    }
}

static void sum_gap(sums_t *sums, span_t gap, uint64_t submitted_ns)
{
    gap.start_ns = later(gap.start_ns, sums->window.start_ns);
    gap.end_ns = sooner(gap.end_ns, sums->window.end_ns);
    if (gap.end_ns <= gap.start_ns) return;
    for (size_t i = 0; i < sums->ncopies && sums->copies[i].start_ns < gap.end_ns; i++)
        sums->out->exposed_ns += overlap(gap, sums->copies[i]);
    const uint64_t host_ns = sooner(later(submitted_ns, gap.start_ns), gap.end_ns);
    sums->out->idle_ns[PREDICT_TRANSFER] += gap.end_ns - host_ns;
    sum_host(sums, (span_t){ gap.start_ns, host_ns });
}

/* When the device's copy engines work: without overlaps, in order. */
static void find_copies(sums_t *sums, uint32_t device)
{
    const schedule_t *schedule = sums->schedule;
    sums->ncopies = 0;
    for (size_t i = 0; i < schedule->nacts; i++) {
        const act_t *act = &schedule->acts[i];
        if (act->kind != ACT_REQUEST || act->engine == FY__SIM_COMPUTE) continue;
        const bool is_peer = act->engine == FY__SIM_ENGINE_COUNT;
        if (act->device != device && !(is_peer && act->other == device)) continue;
        const span_t span = { sums->times[i].start_ns, sums->times[i].end_ns };
        const bool is_upload = is_peer ? act->other == device : act->engine == FY__SIM_UPLOAD;
        *(is_upload ? &sums->out->upload_ns : &sums->out->download_ns) +=
            overlap(span, sums->window);
        sums->copies[sums->ncopies++] = span;
    }
    if (sums->ncopies) qsort(sums->copies, sums->ncopies, sizeof(span_t), compare_spans);
    size_t count = 0;
    for (size_t i = 0; i < sums->ncopies; i++)
        if (count && sums->copies[i].start_ns <= sums->copies[count - 1].end_ns)
            sums->copies[count - 1].end_ns =
                later(sums->copies[count - 1].end_ns, sums->copies[i].end_ns);
        else
            sums->copies[count++] = sums->copies[i];
    sums->ncopies = count;
}

static void sum_device(sums_t *sums, uint32_t device)
{
    const schedule_t *schedule = sums->schedule;
    span_t *const copies = sums->copies;
    uint64_t free_ns = 0, noops = 0;
    find_copies(sums, device);
    sums->at = 0;
    for (size_t i = 0; i < schedule->nacts; i++) {
        const act_t *act = &schedule->acts[i];
        if (act->kind != ACT_REQUEST || act->engine != FY__SIM_COMPUTE || act->device != device)
            continue;
        const act_times_t *times = &sums->times[i];
        sum_gap(sums, (span_t){ free_ns, times->start_ns }, times->host_ns);
        sums->out->busy_ns += overlap(sums->window, (span_t){ times->start_ns, times->end_ns });
        free_ns = times->end_ns;
        noops++;
        while (sums->ncopies && sums->copies->end_ns <= free_ns) {
            sums->copies++;
            sums->ncopies--;
        }
    }
    if (noops || sums->ncopies)
        sum_gap(sums, (span_t){ free_ns, sums->window.end_ns }, sums->window.end_ns);
    sums->copies = copies;
}

void predict_run(const schedule_t *schedule, const figures_t *machines,
                 prediction_t *out_prediction)
{
    act_times_t *times = tool_alloc((schedule->nacts + 1) * sizeof *times);
    sums_t sums = { .schedule = schedule,
                    .times = times,
                    .copies = tool_alloc((schedule->nacts + 1) * sizeof(span_t)),
                    .out = out_prediction };
    *out_prediction = (prediction_t){ .total_ns = schedule_run(schedule, machines, times) };
    sum_steps(&sums);
    for (uint32_t i = 0; i < schedule->program->ndevices; i++)
        if (machines[i].device.memory_nbytes) sum_device(&sums, i);
    free(sums.copies);
    free(times);
}

/* ---- what to execute it on ---- */

/* The profile as an option of the device: a file's name is there only. */
static bool profile_option(const program_device_t *device, char *out_profile, size_t size)
{
    const char *option = strstr(device->options, "profile=");
    if (!option) return false;
    option += strlen("profile=");
    snprintf(out_profile, size, "%.*s", (int)strcspn(option, "&"), option);
    return true;
}

fy_status_t predict_machines(const program_t *program, const char *profile,
                             figures_t **out_machines)
{
    figures_t *machines = tool_alloc((program->ndevices + 1) * sizeof *machines);
    fy_status_t status = FY_STATUS_OK;
    for (size_t i = 0; i < program->ndevices && status == FY_STATUS_OK; i++) {
        const program_device_t *device = &program->devices[i];
        char name[256];
        if (strcmp(device->name, "host") == 0 || strncmp(device->name, "sim:", 4) != 0) continue;
        if (!profile_option(device, name, sizeof name))
            snprintf(name, sizeof name, "%s",
                     *device->profile ? device->profile
                     : profile        ? profile
                                      : "");
        status = *name ? figures_open(name, &machines[i])
                       : TOOL_FAIL(INVALID_ARGUMENT,
                                   "the recording does not name the profile of %s, because an "
                                   "older Ferry wrote it: name it by --from",
                                   device->name);
    }
    *out_machines = machines;
    return status;
}

uint64_t predict_peak(const program_t *program)
{
    uint64_t peak = 0;
    for (size_t d = 0; d < program->ndevices; d++) {
        uint64_t live = 0;
        for (size_t i = 0; i < program->nevents; i++) {
            const program_event_t *event = &program->events[i];
            if (strcmp(event->name, program->devices[d].name) != 0) continue;
            if (event->kind == PROGRAM_POOL) live = event->number;
            if (event->kind == PROGRAM_BLOCK_ALLOC) live += event->nbytes;
            if (event->kind == PROGRAM_BLOCK_FREE) live -= sooner(live, event->nbytes);
            if (strcmp(program->devices[d].name, "host") != 0) peak = later(peak, live);
        }
    }
    return peak;
}
