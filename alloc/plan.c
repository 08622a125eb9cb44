/* Plans: fy_plan_step and fy_plan_fit. A plan runs a step on a separate simulated device that
 * computes nothing and whose memory continues past its limit. The first refusal is recorded; after
 * it, no request is refused. So a trial uses the real pool with its fallback, segments and pending
 * blocks, and does not run out of memory.
 * The figures come from a run without a limit. If these exceed the limit, a second run applies the
 * limit until the first refusal. It decides whether the step fits, and if so its figures count. */
#include <ferry/plan.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/pool.h"
#include "runtime/base/abi_structs.h"
#include "runtime/base/fail.h"
#include "runtime/base/spec.h"
#include "runtime/device/device.h"
#include "runtime/device/plan.h"
#include "runtime/device/registry.h"
#include "runtime/thread/thread.h"

/* Attached to a pool. Guarded by the pool's lock. */
typedef struct fy__plan_watch {
    fy__pool_t *pool;
    uint64_t capacity_nbytes; /* memory of the source's device; the source gives more */
    bool is_bounded;          /* limit and capacity apply until the first refusal */
    bool is_refused;
    fy_oom_verdict_t verdict;
    uint64_t limit_nbytes;       /* the pool's original value */
    bool growth_off;             /* the pool's original value */
    fy__segment_source_t source; /* the pool's original source */
    /* Called for each block; nbytes is negative when it is freed; the figures are those after it.
     * May be NULL. */
    void (*on_block)(void *user, int64_t nbytes, uint64_t live, uint64_t reserved,
                     fy_category_t category);
    void *user;
} fy__plan_watch_t;

/* One block that was allocated or freed. */
typedef struct fy__plan_event {
    uint64_t model_ns, live, reserved;
    int64_t nbytes;    /* negative: freed */
    const void *scope; /* the current node; NULL: the thread has no state */
    fy_category_t category;
} fy__plan_event_t;

/* The caller has set is_bounded and wants_events; the rest is 0. */
typedef struct fy__plan_run {
    bool is_bounded, wants_events;
    fy_device_t *device;
    uint64_t begin_ns; /* by the model clock */
    uint64_t step_begin_ns[FY__MAX_SCOPES], step_ns, steps;
    uint64_t flops, step_begin_flops[FY__MAX_SCOPES], step_flops; /* flops: so far */
    fy__plan_watch_t watch;
    /* guarded by the pool's lock */
    bool has_lost_events;
    fy__plan_event_t *events;
    size_t count, room;
    /* afterwards */
    fy_memory_stats_t memory, pinned;
    uint64_t total_ns;
} fy__plan_run_t;

/* ---- the pool's side: reports its blocks, and continues past its limit after the plan has
 * recorded a refusal ---- */

FY_COLD void fy__plan_block(fy__pool_t *pool, const fy__block_t *block, bool is_alloc)
{
    const fy__plan_watch_t *watch = pool->plan;
    if (!watch->on_block) return;
    const int64_t nbytes = (int64_t)block->nbytes;
    watch->on_block(watch->user, is_alloc ? nbytes : -nbytes, pool->live, pool->reserved,
                    block->tag.category);
}

/* The pool's lock is held. */
static void lift(fy__pool_t *pool)
{
    pool->options.limit_nbytes = pool->options.device_nbytes = FY_UNLIMITED;
    pool->options.growth_off = false;
}

/* Whether the pool's caller on this thread has an alternative after a refusal. */
static bool declines(void) { return fy__tls && fy__tls->plan_declines; }

FY_COLD bool fy__plan_lift(fy__pool_t *pool)
{
    const fy_oom_verdict_t *verdict = fy_error_get()->oom;
    if (!pool->plan || !verdict || declines()) return false;
    fy__plan_watch_t *watch = pool->plan;
    pthread_mutex_lock(&pool->lock);
    if (watch->is_bounded && !watch->is_refused) {
        watch->is_refused = true;
        watch->verdict = *verdict;
    }
    lift(pool);
    pthread_mutex_unlock(&pool->lock);
    return true;
}

/* ---- the source: gives any number of bytes, but applies its capacity while the plan is bounded
 * ---- */

static fy_status_t check_capacity(const fy__plan_watch_t *watch, uint64_t nbytes)
{
    fy__pool_t *pool = watch->pool;
    pthread_mutex_lock(&pool->lock);
    const bool is_bounded = watch->is_bounded && !watch->is_refused;
    const uint64_t left =
        pool->reserved < watch->capacity_nbytes ? watch->capacity_nbytes - pool->reserved : 0;
    pthread_mutex_unlock(&pool->lock);
    if (is_bounded && nbytes > left)
        return FY_FAIL(OUT_OF_MEMORY, "plan: %llu bytes asked for, %llu of %llu are free",
                       (unsigned long long)nbytes, (unsigned long long)left,
                       (unsigned long long)watch->capacity_nbytes);
    return FY_STATUS_OK;
}

static fy_status_t watched_alloc(void *user, uint64_t nbytes, void **out_address)
{
    const fy__plan_watch_t *watch = user;
    FY_TRY(check_capacity(watch, nbytes));
    return watch->source.alloc(watch->source.user, nbytes, out_address);
}

static fy_status_t watched_resize(void *user, void *address, uint64_t nbytes, uint64_t new_nbytes)
{
    const fy__plan_watch_t *watch = user;
    if (new_nbytes > nbytes) FY_TRY(check_capacity(watch, new_nbytes - nbytes));
    return watch->source.resize(watch->source.user, address, nbytes, new_nbytes);
}

static void watched_free(void *user, void *address, uint64_t nbytes)
{
    const fy__plan_watch_t *watch = user;
    watch->source.free(watch->source.user, address, nbytes);
}

static bool watched_may_sync(void *user)
{
    const fy__plan_watch_t *watch = user;
    return watch->source.may_sync(watch->source.user);
}

static void watched_note_sync(void *user, uint64_t blocked_ns)
{
    const fy__plan_watch_t *watch = user;
    watch->source.note_sync(watch->source.user, blocked_ns);
}

static fy__reclaim_t watched_reclaim(void *user, uint64_t nbytes, fy__reclaim_cursor_t *cursor)
{
    const fy__plan_watch_t *watch = user;
    return watch->source.reclaim(watch->source.user, nbytes, cursor);
}

/* The caller has set pool, capacity_nbytes, is_bounded, on_block, user; the rest is 0. The pool is
 * new. */
static void watch_pool(fy__plan_watch_t *watch)
{
    fy__pool_t *pool = watch->pool;
    pthread_mutex_lock(&pool->lock);
    watch->limit_nbytes = pool->options.limit_nbytes;
    watch->source = pool->source;
    pool->source.user = watch;
    pool->source.alloc = watched_alloc;
    pool->source.free = watched_free;
    if (pool->source.resize) pool->source.resize = watched_resize;
    pool->source.may_sync = watched_may_sync;
    pool->source.note_sync = watched_note_sync;
    if (pool->source.reclaim) pool->source.reclaim = watched_reclaim;
    watch->growth_off = pool->options.growth_off;
    if (!watch->is_bounded) lift(pool);
    pool->plan = watch;
    pthread_mutex_unlock(&pool->lock);
}

/* The pool may be used further. */
static void unwatch_pool(fy__plan_watch_t *watch)
{
    fy__pool_t *pool = watch->pool;
    pthread_mutex_lock(&pool->lock);
    pool->source = watch->source;
    pool->plan = NULL;
    pthread_mutex_unlock(&pool->lock);
}

/* ---- events of a run ---- */

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

/* Opens the device, runs the step, closes it. spec: of a simulated device. The caller frees
 * run->events. Fails as fy_plan_step; a step that page-locks more than the spec allows is refused,
 * with its verdict. */
static fy_status_t run_step(fy__plan_run_t *run, const char *spec, fy_step_fn step, void *user,
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
    watch_pool(&run->watch);
    fy_status_t status = call_step(run, step, user, batch);
    run->memory = run->pinned = (fy_memory_stats_t)FY_MEMORY_STATS_INIT;
    if (status == FY_STATUS_OK) status = fy_memory_query(run->device, NULL, &run->memory);
    if (status == FY_STATUS_OK) status = fy_memory_query_pinned(run->device, &run->pinned);
    if (status == FY_STATUS_OK && run->has_lost_events)
        status =
            FY_FAIL(OUT_OF_MEMORY,
                    "plan: no host memory for the timeline; plan without on_point, or fewer steps");
    unwatch_pool(&run->watch);
    fy_device_close(run->device);
    return status;
}

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
    const fy_status_t status = run_step(run, spec, step, user, batch);
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
    fy_status_t status = run_step(&run, spec, step, user, batch);
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
