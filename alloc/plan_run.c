/* One run of a step for a plan; see plan.h. Not here: the use of its figures (plan.c). */
#include "alloc/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/fail.h"
#include "runtime/base/spec.h"
#include "runtime/device/device.h"
#include "runtime/device/registry.h"
#include "runtime/thread/thread.h"

_Static_assert((int)FY__PLAN_SCOPES == (int)FY__MAX_SCOPES, "a step may be any scope");

static fy_backend_clock_t clock_of(const fy_device_t *device)
{
    fy_backend_clock_t clock = { 0 };
    device->backend->clock(device->dev, &clock);
    return clock;
}

/* The time at which the host and all submitted work are done. */
static uint64_t settled_ns(const fy_device_t *device)
{
    const fy_backend_clock_t clock = clock_of(device);
    return clock.idle_ns > clock.now_ns ? clock.idle_ns : clock.now_ns;
}

/* ---- events of a run ---- */

FY_COLD void fy__plan_scope(fy__thread_t *thread, bool is_begin)
{
    fy__plan_run_t *run = thread->plan;
    if (strcmp(thread->node->name, "step") != 0) return;
    uint64_t *begin_ns = &run->step_begin_ns[thread->depth - 1];
    const uint64_t now_ns = settled_ns(run->device);
    uint64_t *begin_flops = &run->step_begin_flops[thread->depth - 1];
    if (is_begin) {
        *begin_ns = now_ns;
        *begin_flops = run->flops;
        return;
    }
    run->step_ns = now_ns - *begin_ns;
    run->step_flops = run->flops - *begin_flops;
    run->steps++;
}

FY_COLD void fy__plan_flops(fy__thread_t *thread, const fy_device_t *device, uint64_t flops)
{
    fy__plan_run_t *run = thread->plan;
    if (device == run->device) run->flops += flops;
}

/* Under the pool's lock. */
static void on_block(void *user, int64_t nbytes, uint64_t live, uint64_t reserved,
                     fy_category_t category)
{
    fy__plan_run_t *run = user;
    if (run->count == run->room && !run->has_lost_events) {
        const size_t room = run->room ? 2 * run->room : 1024;
        fy__plan_event_t *events = realloc(run->events, room * sizeof *events);
        run->has_lost_events = !events;
        if (events) {
            run->events = events;
            run->room = room;
        }
    }
    if (run->has_lost_events) return;
    run->events[run->count++] = (fy__plan_event_t){
        .model_ns = clock_of(run->device).now_ns - run->begin_ns,
        .live = live,
        .reserved = reserved,
        .nbytes = nbytes,
        .scope = fy__tls ? fy__tls->node : NULL,
        .category = category,
    };
}

bool fy__plan_declines(void) { return fy__tls && fy__tls->plan_declines; }

/* ---- the run ---- */

/* The options that a plan sets itself; the device refuses their malformed values. */
static bool is_ours(const char *key, const char *value)
{
    return (strcmp(key, "numerics") == 0 || strcmp(key, "overcommit") == 0) &&
           (strcmp(value, "on") == 0 || strcmp(value, "off") == 0);
}

/* Opens a device like `spec` under a free index, without arithmetic and with memory beyond its
 * capacity. */
static fy_status_t open_device(const char *text, fy_device_t **out_device)
{
    static const char extra[] = "numerics=off&overcommit=on";
    fy__spec_t spec;
    char options[sizeof spec.options + sizeof extra] = "";
    size_t length = 0;
    FY_TRY(fy__spec_parse(text, &spec));
    if (strcmp(spec.backend, "sim") != 0)
        return FY_FAIL(INVALID_ARGUMENT,
                       "plan: '%.100s' is no simulated device\n  Describe the one you mean: "
                       "sim?profile=h200&capacity=80GiB",
                       text);
    for (size_t i = 0; i < spec.noptions; i++)
        if (!is_ours(spec.option[i].key, spec.option[i].value))
            length += (size_t)snprintf(options + length, sizeof options - length, "%s=%s&",
                                       spec.option[i].key, spec.option[i].value);
    snprintf(options + length, sizeof options - length, "%s", extra);
    return fy__device_open_unused("sim", options, out_device);
}

static fy_status_t call_step(fy__plan_run_t *run, fy_step_fn step, void *user, int64_t batch)
{
    fy__thread_t *thread = fy__thread();
    fy__plan_run_t *outer = thread->plan; /* a step may make plans */
    const fy_scope_t scope = fy_scope_begin("plan");
    thread->plan = run;
    const fy_status_t status = step(run->device, batch, user);
    run->total_ns = settled_ns(run->device) - run->begin_ns;
    fy__error_copy_t error;
    fy__error_save(&error);
    fy_scope_end(scope, 0, NULL);
    thread->plan = outer;
    if (status != FY_STATUS_OK) fy__error_restore(&error);
    return status;
}

fy_status_t fy__plan_run(fy__plan_run_t *run, const char *spec, fy_step_fn step, void *user,
                         int64_t batch)
{
    if (!fy__thread()) return FY_STATUS_OUT_OF_MEMORY;
    FY_TRY(open_device(spec, &run->device));
    run->begin_ns = settled_ns(run->device);
    run->watch = (fy__plan_watch_t){
        .pool = run->device->pool,
        .capacity_nbytes = run->device->info.memory_nbytes,
        .is_bounded = run->is_bounded,
        .on_block = run->wants_events ? on_block : NULL,
        .user = run,
    };
    fy__plan_watch(&run->watch);
    fy_status_t status = call_step(run, step, user, batch);
    run->memory = run->pinned = (fy_memory_stats_t)FY_MEMORY_STATS_INIT;
    if (status == FY_STATUS_OK) status = fy_memory_query(run->device, NULL, &run->memory);
    if (status == FY_STATUS_OK) status = fy_memory_query_pinned(run->device, &run->pinned);
    if (status == FY_STATUS_OK && run->has_lost_events)
        status =
            FY_FAIL(OUT_OF_MEMORY,
                    "plan: no host memory for the timeline; plan without on_point, or fewer steps");
    fy__plan_unwatch(&run->watch);
    fy_device_close(run->device);
    return status;
}
