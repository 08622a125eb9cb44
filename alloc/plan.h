/* A plan's run of a step, on a separate simulated device that computes nothing and whose memory
 * continues past its limit. The first refusal is recorded; after it, no request is refused. So a
 * trial uses the real pool with its fallback, segments and pending blocks, and does not run out of
 * memory.
 * plan_watch.c: the pool's side. plan_run.c: one run. plan.c: the public calls. */
#ifndef FERRY_ALLOC_PLAN_H_
#define FERRY_ALLOC_PLAN_H_

#include <ferry/plan.h>

#include "runtime/device/memory.h"
#include "runtime/device/plan.h"

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

/* The caller has set pool, capacity_nbytes, is_bounded, on_block, user; the rest is 0. The pool is
 * new. */
void fy__plan_watch(fy__plan_watch_t *watch);
/* The pool may be used further. */
void fy__plan_unwatch(fy__plan_watch_t *watch);

/* One block that was allocated or freed. */
typedef struct fy__plan_event {
    uint64_t model_ns, live, reserved;
    int64_t nbytes;    /* negative: freed */
    const void *scope; /* the current node; NULL: the thread has no state */
    fy_category_t category;
} fy__plan_event_t;

enum { FY__PLAN_SCOPES = 64 };

/* The caller has set is_bounded and wants_events; the rest is 0. */
typedef struct fy__plan_run {
    bool is_bounded, wants_events;
    fy_device_t *device;
    uint64_t begin_ns; /* by the model clock */
    uint64_t step_begin_ns[FY__PLAN_SCOPES], step_ns, steps;
    uint64_t flops, step_begin_flops[FY__PLAN_SCOPES], step_flops; /* flops: so far */
    fy__plan_watch_t watch;
    /* guarded by the pool's lock */
    bool has_lost_events;
    fy__plan_event_t *events;
    size_t count, room;
    /* afterwards */
    fy_memory_stats_t memory, pinned;
    uint64_t total_ns;
} fy__plan_run_t;

/* Opens the device, runs the step, closes it. spec: of a simulated device. The caller frees
 * run->events. Fails as fy_plan_step; a step that page-locks more than the spec allows is refused,
 * with its verdict. */
fy_status_t fy__plan_run(fy__plan_run_t *run, const char *spec, fy_step_fn step, void *user,
                         int64_t batch);
/* Whether the pool's caller on this thread has an alternative after a refusal. */
bool fy__plan_declines(void);

#endif
