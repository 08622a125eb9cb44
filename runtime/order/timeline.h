/* What a timeline of jobs is asked. A transfer that finds its engine's window full becomes a job:
 * it stands in the engine's queue and has a number on a stream of its own, one without a native
 * queue, so that tickets and hazard words can name it before it is submitted. Whoever waits for a
 * job, or orders something behind it, has it submitted now, after the jobs it depends on itself;
 * from then on its point on the engine's own stream answers for it. Jobs finish out of order: only
 * `look` knows about one of them.
 * runtime/ asks, transfer/queue.c answers. Why:
 * docs/decisions/0017-jobs-on-a-virtual-timeline.md. */
#ifndef FERRY_RUNTIME_TIMELINE_H_
#define FERRY_RUNTIME_TIMELINE_H_

#include <stdbool.h>

#include "runtime/order/hazard.h"

enum { FY__JOB_DEPENDENCIES = 12 };

typedef enum fy__job_state {
    FY__JOB_OVER,     /* nothing is left to wait for */
    FY__JOB_STANDING, /* not submitted, or being submitted */
    /* cancelled or failed, never submitted; others may have to wait for what it would have waited
     * for */
    FY__JOB_EMPTY,
    FY__JOB_STARTED /* `native` answers for it */
} fy__job_state_t;

typedef struct fy__job_view {
    fy__job_state_t state;
    fy__point_t native;
    uint32_t record;    /* of its failure; 0: none that is known */
    bool cancelled;     /* it reads nothing; */
    fy__point_t before; /* but what read its source before it, on the same engine, may */
    uint32_t ndependencies;
    fy__point_t dependencies[FY__JOB_DEPENDENCIES]; /* if EMPTY */
} fy__job_view_t;

struct fy_stream;
typedef struct fy__timeline {
    /* Looks only: never submits, waits or lets go of anything, so it may be asked under any lock of
     * the runtime's but a stream's. */
    void (*look)(struct fy_stream *jobs, uint64_t seq, fy__job_view_t *out_view);
    /* Submits it if it stands; *out_native is where to wait, 0 if there is nothing to wait for. No
     * lock may be held. */
    fy_status_t (*submit)(struct fy_stream *jobs, uint64_t seq, fy__point_t *out_native);
    /* false: too late. No lock may be held. */
    bool (*cancel)(struct fy_stream *jobs, uint64_t seq);
    /* Submits what the window has room for; of a lost device, fails what stands. No lock may be
     * held. */
    void (*pump)(struct fy_stream *jobs);
    /* Blocks until nothing stands any more. OK, TIMEOUT, DEVICE_LOST. */
    fy_status_t (*drain)(struct fy_stream *jobs, uint64_t timeout_ns);
    /* Submits all that stands, window or not. */
    void (*flush)(struct fy_stream *jobs);
} fy__timeline_t;

#endif
