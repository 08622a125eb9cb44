/* Plans: fy_plan_step and fy_plan_fit. The figures come from a run without a limit. If these exceed
 * the limit, a second run applies the limit until the first refusal. It decides whether the step
 * fits, and if so its figures count. Not here: a run (plan_run.c). */
#include "alloc/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/abi_structs.h"
#include "runtime/base/fail.h"
#include "runtime/thread/thread.h"

/* ---- the timeline ---- */

/* The path below the plan's scope. */
static const char *path_in_plan(const fy__node_t *node, const char *plan_path, char *buffer,
                                size_t size)
{
    const size_t length = strlen(plan_path);
    if (!node) return "";
    fy__node_path(node, buffer, size);
    if (strncmp(buffer, plan_path, length) != 0) return buffer;
    return buffer[length] == '/' ? buffer + length + 1 : buffer[length] ? buffer : "";
}

static void report_points(const fy__plan_run_t *run, const fy_plan_options_t *options)
{
    char outside[512], plan_path[512], buffer[512];
    const fy__thread_t *thread = fy__thread();
    fy_plan_point_t point = { 0 };
    /* The plan's scope was a child of the current scope; its figures stay under that path. */
    fy__node_path(thread->node, outside, sizeof outside - sizeof "/plan");
    snprintf(plan_path, sizeof plan_path, "%s%splan", outside, outside[0] ? "/" : "");
    for (size_t i = 0; i < run->count; i++) {
        const fy__plan_event_t *event = &run->events[i];
        point.model_ns = event->model_ns;
        point.live = event->live;
        point.reserved = event->reserved;
        /* modulo 2^64, like the sums */
        point.by_category[event->category] += (uint64_t)event->nbytes;
        point.scope = path_in_plan(event->scope, plan_path, buffer, sizeof buffer);
        options->on_point(options->user, &point);
    }
}

/* ---- plans ---- */

static bool is_pinned_refusal(fy_status_t status)
{
    const fy_oom_verdict_t *verdict = fy_error_get()->oom;
    return status == FY_STATUS_PINNED_LIMIT && verdict && verdict->status == status;
}

/* Whether it runs within the limit. */
static fy_status_t run_bounded(fy__plan_run_t *run, const char *spec, fy_step_fn step, void *user,
                               int64_t batch, int *out_fits, fy_oom_verdict_t *out_verdict)
{
    run->is_bounded = true;
    const fy_status_t status = fy__plan_run(run, spec, step, user, batch);
    *out_fits = status == FY_STATUS_OK && !run->watch.is_refused;
    if (run->watch.is_refused)
        *out_verdict = run->watch.verdict;
    else if (is_pinned_refusal(status))
        *out_verdict = *fy_error_get()->oom;
    else
        return status;
    return FY_STATUS_OK;
}

/* The same without figures. */
static fy_status_t try_bounded(const char *spec, fy_step_fn step, void *user, int64_t batch,
                               int *out_fits, fy_oom_verdict_t *out_verdict)
{
    fy__plan_run_t run = { 0 };
    return run_bounded(&run, spec, step, user, batch, out_fits, out_verdict);
}

static fy_status_t check(const char *spec, fy_step_fn step, const fy_plan_t *out_plan,
                         const char *what)
{
    if (!spec || !step)
        return FY_FAIL(INVALID_ARGUMENT, "%s: %s is NULL", what, spec ? "step" : "spec");
    if (out_plan) FY_TRY(FY__CHECK_OUT(plan, what, out_plan));
    return FY_STATUS_OK;
}

static void note_figures(fy_plan_t *plan, const fy__plan_run_t *run)
{
    plan->limit = run->watch.limit_nbytes < run->watch.capacity_nbytes ? run->watch.limit_nbytes
                                                                       : run->watch.capacity_nbytes;
    plan->peak_live = run->memory.peak_live;
    memcpy(plan->peak_by_category, run->memory.peak_by_category, sizeof plan->peak_by_category);
    plan->peak_reserved = run->memory.peak_reserved;
    plan->pinned_peak_reserved = run->pinned.peak_reserved;
    plan->steps = run->steps;
    plan->step_model_ns = run->steps ? run->step_ns : run->total_ns;
    plan->step_flops = run->steps ? run->step_flops : run->flops;
}

fy_status_t fy_plan_step(const char *spec, fy_step_fn step, void *user, int64_t batch,
                         const fy_plan_options_t *options, fy_plan_t *out_plan)
{
    fy_plan_options_t own;
    if (!out_plan) return FY_FAIL(INVALID_ARGUMENT, "plan_step: out_plan is NULL");
    FY_TRY(check(spec, step, out_plan, "plan_step"));
    FY_TRY(FY__READ(plan_options, "plan_step", options, &own));
    fy__plan_run_t run = { .wants_events = own.on_point != NULL },
                   within = { .wants_events = run.wants_events };
    fy_plan_t plan = { .struct_size = sizeof plan, .batch = batch };
    bool is_within = false;
    fy_status_t status = fy__plan_run(&run, spec, step, user, batch);
    note_figures(&plan, &run);
    if (is_pinned_refusal(status)) {
        plan.verdict = *fy_error_get()->oom;
        status = FY_STATUS_OK;
    } else if (status == FY_STATUS_OK) {
        plan.fits = plan.peak_reserved <= plan.limit && !run.watch.growth_off;
        if (!plan.fits) {
            status = run_bounded(&within, spec, step, user, batch, &plan.fits, &plan.verdict);
            is_within = status == FY_STATUS_OK && plan.fits;
            /* less may be reserved, and waits may be longer */
            if (is_within) note_figures(&plan, &within);
        }
    }
    if (status == FY_STATUS_OK && own.on_point) report_points(is_within ? &within : &run, &own);
    free(run.events);
    free(within.events);
    if (status == FY_STATUS_OK) FY__WRITE(out_plan, &plan);
    return status;
}

/* The largest that fits in (least, most): `least` does, `most` does not. */
static fy_status_t bisect(const char *spec, fy_step_fn step, void *user, int64_t *least,
                          int64_t most)
{
    fy_oom_verdict_t verdict;
    while (most - *least > 1) {
        const int64_t middle = *least + (most - *least) / 2;
        int fits;
        FY_TRY(try_bounded(spec, step, user, middle, &fits, &verdict));
        if (fits)
            *least = middle;
        else
            most = middle;
    }
    return FY_STATUS_OK;
}

fy_status_t fy_plan_fit(const char *spec, fy_step_fn step, void *user, int64_t max_batch,
                        int64_t *out_batch, fy_plan_t *out_plan)
{
    fy_oom_verdict_t verdict;
    int fits;
    if (!out_batch) return FY_FAIL(INVALID_ARGUMENT, "plan_fit: out_batch is NULL");
    *out_batch = 0;
    FY_TRY(check(spec, step, out_plan, "plan_fit"));
    if (max_batch < 1)
        return FY_FAIL(INVALID_ARGUMENT, "plan_fit: max_batch is %lld; the least is 1",
                       (long long)max_batch);
    /* A batch norm in training takes no batch of 1. */
    int64_t best = 1, next = 1;
    fy_status_t status = try_bounded(spec, step, user, best, &fits, &verdict);
    if (status == FY_STATUS_SHAPE_MISMATCH && max_batch > 1)
        status = try_bounded(spec, step, user, best = 2, &fits, &verdict);
    FY_TRY(status);
    if (!fits) return fy__fail_with_verdict(__FILE__, __LINE__, &verdict);
    /* Doubles first, so no trial is more than twice as large as the result. */
    while (fits && best < max_batch) {
        next = best > max_batch / 2 ? max_batch : 2 * best;
        FY_TRY(try_bounded(spec, step, user, next, &fits, &verdict));
        if (fits) best = next;
    }
    if (!fits) FY_TRY(bisect(spec, step, user, &best, next));
    if (out_plan) FY_TRY(fy_plan_step(spec, step, user, best, NULL, out_plan));
    *out_batch = best;
    return FY_STATUS_OK;
}
