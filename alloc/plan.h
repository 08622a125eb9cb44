/* A run of a step for a plan: on a simulated device of its own that computes nothing, whose memory
 * goes on behind its limit. What would have been refused there is noted once, and from then on
 * nothing is. So a trial is the pool itself at work, with its fallback, its segments and its pending
 * blocks, and yet none runs out.
 * plan_watch.c: what a pool does for it. plan_run.c: one run. plan.c: the public calls. */
#ifndef FERRY_ALLOC_PLAN_H_
#define FERRY_ALLOC_PLAN_H_

#include <ferry/plan.h>

#include "runtime/device/memory.h"
#include "runtime/device/plan.h"

/* Hangs on a pool. Guarded by its lock. */
typedef struct fy__plan_watch {
    fy__pool_t *pool;
    uint64_t capacity_nbytes; /* what the source has; it gives more */
    bool is_bounded;          /* limit and capacity count until something is refused */
    bool is_refused;
    fy_oom_verdict_t verdict;
    uint64_t limit_nbytes;       /* the pool's own */
    bool growth_off;             /* likewise */
    fy__segment_source_t source; /* the pool's own */
    /* Called for each block, nbytes negative when it is given back, with the pool's figures behind
     * it. NULL: nobody asks. */
    void (*on_block)(void *user, int64_t nbytes, uint64_t live, uint64_t reserved,
                     fy_category_t category);
    void *user;
} fy__plan_watch_t;

/* The caller has set pool, capacity_nbytes, is_bounded, on_block, user; the rest is 0. The pool is
 * new. */
void fy__plan_watch(fy__plan_watch_t *watch);
/* The pool may live on. */
void fy__plan_unwatch(fy__plan_watch_t *watch);

/* One block that was handed out or taken back. */
typedef struct fy__plan_event {
    uint64_t model_ns, live, reserved;
    int64_t nbytes;    /* negative: taken back */
    const void *scope; /* the node that was current; NULL: no thread of ours */
    fy_category_t category;
} fy__plan_event_t;

enum { FY__PLAN_SCOPES = 64 };

/* The caller has set is_bounded and wants_events; the rest is 0. */
typedef struct fy__plan_run {
    bool is_bounded, wants_events;
    fy_device_t *device;
    uint64_t begin_ns; /* by the model clock */
    uint64_t step_begin_ns[FY__PLAN_SCOPES], step_ns, steps;
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
/* Does the caller of the pool on this thread have another idea if he is refused? */
bool fy__plan_declines(void);

#endif
