/* The internals of an engine's queue, shared by job.c (one job, the window), queue.c (the order of
 * jobs) and timeline.c (the interface to runtime/).
 * Locks: a thread that holds a queue's lock may take a stream's or the faults' lock, but no other
 * queue's lock, and submits nothing. A job that is being submitted is TAKEN; other threads that
 * need it wait for `changed`. These waits end, because a job depends on older jobs only. */
#ifndef FERRY_TRANSFER_JOB_H_
#define FERRY_TRANSFER_JOB_H_

#include "transfer/queue.h"

enum {
    /* slots; job n has slot n % FY__QUEUE_JOBS until job n + FY__QUEUE_JOBS reuses it */
    FY__QUEUE_JOBS = 1024,
    /* A failed job is stored after its slot is reused, until a job fails whose number differs by a
     * multiple of this: a thread may poll its ticket late. */
    FY__QUEUE_FAILURES = 16384,
    FY__QUEUE_FLIGHTS = 256 /* entries for submitted bytes; further ones are added to the newest */
};

typedef enum fy__job_phase {
    FY__PHASE_NONE,
    FY__PHASE_STANDING,
    FY__PHASE_TAKEN,
    FY__PHASE_EMPTY,
    FY__PHASE_STARTED
} fy__job_phase_t;

typedef struct fy__job_conversion {
    fy__end_t final, raw;
    uint64_t nelem;
} fy__job_conversion_t;

typedef struct fy__job {
    uint64_t seq;
    fy__job_phase_t phase;
    bool replaces;
    int priority;
    bool cancelled;
    uint32_t record;    /* of its failure */
    fy__point_t before; /* the last reader of `src` on this engine at the time of the call */
    uint64_t request;   /* its fault flag's number; 0 is none */
    fy__point_t native; /* STARTED; 0: over */
    fy_copy_t copy;
    fy__job_conversion_t *conversion;
    fy__storage_t *dst, *src; /* held until it is submitted or dropped */
    fy__node_t *node;         /* counts its wire bytes */
    uint32_t ndependencies;
    fy__point_t dependencies[FY__JOB_DEPENDENCIES];
    struct fy__job *older, *newer; /* while it is queued */
} fy__job_t;

struct fy__queue {
    pthread_mutex_t lock;   /* guards everything below except device and native, which are
                             * constant */
    pthread_cond_t changed; /* a job is no longer TAKEN, or admitted bytes were sent */
    fy_device_t *device;
    fy_stream_t *native;
    fy_stream_t *stream; /* the jobs' timeline; NULL before the first */
    fy__job_t *jobs;     /* [FY__QUEUE_JOBS] */
    fy__job_t *oldest, *newest;
    struct {
        uint64_t seq;
        uint32_t record;
    } * failures; /* [FY__QUEUE_FAILURES], by number */
    _Atomic uint32_t nstanding;
    uint64_t standing_nbytes;
    uint64_t flying_nbytes; /* admitted ones included */
    uint32_t nadmitted;     /* transfers that are being submitted */
    struct {
        uint64_t seq, nbytes;
    } flights[FY__QUEUE_FLIGHTS];
    uint32_t first, nflights;
    fy__queue_t *spare; /* next in the list of closed queues */
    fy__queue_t *next;  /* in the list of all queues; set once */
};

/* The objects that a job held; released without a lock, because deleters are the user's code. */
typedef struct fy__job_held {
    fy__storage_t *dst, *src, *raw;
    fy__job_conversion_t *conversion;
} fy__job_held_t;

/* ---- the lock is held ---- */

/* Whether nbytes more fit the window. Removes completed entries; polls the device only if the
 * window seems full. */
bool fy__queue_fits(fy__queue_t *queue, uint64_t nbytes);
/* Admitted bytes are in flight up to `point`; point 0: they were not submitted. */
void fy__queue_fly(fy__queue_t *queue, uint64_t nbytes, fy__point_t point);
/* Job `seq` of timeline `stream`, if its slot is not reused; NULL: it is over. */
fy__job_t *fy__job_find(const fy__queue_t *queue, const fy_stream_t *stream, uint64_t seq);
void fy__job_link(fy__queue_t *queue, fy__job_t *job);
void fy__job_unlink(fy__queue_t *queue, fy__job_t *job);
fy__job_held_t fy__job_take_held(fy__job_t *job);
/* Leaves the job's result on its bytes, for requests ordered after it: poison by `record`, or with
 * 0 none. */
void fy__job_publish_result(fy__queue_t *queue, const fy__job_t *job, uint32_t record);
/* Waits until the oldest entry in flight is done, or another thread has sent its admitted bytes.
 * Releases the lock meanwhile. */
fy_status_t fy__queue_wait_for_flight(fy__queue_t *queue, uint64_t timeout_ns);

/* ---- no lock is held ---- */

void fy__job_let_go(fy__job_held_t held);
/* Submits a job and, before it, all its dependencies at any depth. Fails only if its place in the
 * order cannot be kept. */
fy_status_t fy__job_force(fy__point_t point);
/* Submits the queued jobs that fit the window; or all. Fails if the next one cannot be submitted
 * because an earlier one's place in the order cannot be kept; the next API call tries again. */
fy_status_t fy__queue_submit_standing(fy__queue_t *queue, bool all);

/* ---- for runtime/ ---- */

extern const fy__timeline_t fy__queue_timeline;

#endif
