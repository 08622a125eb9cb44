/* The interface of a job timeline. A transfer whose engine's window is full becomes a job in the
 * engine's queue. A job has a number on a separate stream without a native queue, so tickets and
 * hazard words can name it before it is submitted. A wait for a job, or an order after it, submits
 * its dependencies and then the job. From then on its point on the engine's stream replaces it.
 * Jobs finish out of order: only `look` knows the state of one.
 * runtime/ calls it; transfer/queue.c implements it, and external.c for work of other libraries,
 * which is submitted when it is finished. Why:
 * docs/decisions/0017-jobs-on-a-virtual-timeline.md. */
#ifndef FERRY_RUNTIME_TIMELINE_H_
#define FERRY_RUNTIME_TIMELINE_H_

#include <stdbool.h>

#include "runtime/order/hazard.h"
#include "runtime/thread/wait_site.h"

enum { FY__JOB_DEPENDENCIES = 12 };

typedef enum fy__job_state {
    FY__JOB_OVER,     /* there is nothing to wait for */
    FY__JOB_STANDING, /* queued, or being submitted */
    /* cancelled or failed, never submitted; others may have to wait for its dependencies */
    FY__JOB_EMPTY,
    FY__JOB_STARTED /* `native` replaces it */
} fy__job_state_t;

typedef struct fy__job_view {
    fy__job_state_t state;
    fy__point_t native;
    uint32_t record;    /* of its failure; 0: none known */
    bool cancelled;     /* it reads nothing; */
    fy__point_t before; /* but an earlier read of its source on the same engine may be running */
    uint32_t ndependencies;
    fy__point_t dependencies[FY__JOB_DEPENDENCIES]; /* if EMPTY */
} fy__job_view_t;

struct fy_stream;
typedef struct fy__timeline {
    /* Only reads: it never submits, waits or releases anything, so it may be called under any lock
     * of the runtime but a stream's. */
    void (*look)(struct fy_stream *jobs, uint64_t seq, fy__job_view_t *out_view);
    /* Submits it if it is queued; *out_native is the point to wait for, or 0. No lock may be
     * held. */
    fy_status_t (*submit)(struct fy_stream *jobs, uint64_t seq, fy__point_t *out_native);
    /* false: too late. No lock may be held. */
    bool (*cancel)(struct fy_stream *jobs, uint64_t seq);
    /* Submits the jobs that fit the window; for a lost device, fails queued jobs. No lock may be
     * held. */
    void (*pump)(struct fy_stream *jobs);
    /* Blocks until no job is queued. OK, TIMEOUT, DEVICE_LOST. */
    fy_status_t (*drain)(struct fy_stream *jobs, uint64_t timeout_ns);
    /* Submits all queued jobs, regardless of the window. */
    void (*flush)(struct fy_stream *jobs);
    /* Blocks until it may be submitted: OK, TIMEOUT, CANCELLED (stream.h). NULL: at any time. */
    fy_status_t (*await)(struct fy_stream *jobs, uint64_t seq, uint64_t timeout_ns,
                         fy__wait_site_t site);
} fy__timeline_t;

#endif
