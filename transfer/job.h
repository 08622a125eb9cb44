/* The inside of an engine's queue, for the files that work on it: job.c (one job, the window),
 * queue.c (who goes when), timeline.c (what runtime/ asks).
 * Locks: a queue's may be held while a stream's or the faults' is taken, never two queues', and
 * never over a submission: a job that is being submitted is TAKEN, and others who need it wait for
 * `changed`. That ends, because a job depends on older ones only. */
#ifndef FERRY_TRANSFER_JOB_H_
#define FERRY_TRANSFER_JOB_H_

#include "transfer/queue.h"

enum {
    /* slots; job n has slot n % FY__QUEUE_JOBS from its call until job n + FY__QUEUE_JOBS takes it
     * over */
    FY__QUEUE_JOBS = 1024,
    /* A failed job is remembered beyond its slot, until one that has a multiple of this many places
     * more fails: a thread may sleep long between its call and a look at the ticket. */
    FY__QUEUE_FAILURES = 16384,
    FY__QUEUE_FLIGHTS = 256 /* entries of what is in flight; more are counted with the newest */
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
    fy__point_t before; /* who read `src` last, on this engine, when it was asked for */
    uint64_t request;   /* its fault flag's number; 0 is none */
    fy__point_t native; /* STARTED; 0: over */
    fy_copy_t copy;
    fy__job_conversion_t *conversion;
    fy__storage_t *dst, *src; /* held until it is submitted or given up */
    fy__node_t *node;         /* where its wire bytes are counted */
    uint32_t ndependencies;
    fy__point_t dependencies[FY__JOB_DEPENDENCIES];
    struct fy__job *older, *newer; /* while it stands */
} fy__job_t;

struct fy__queue {
    pthread_mutex_t lock;   /* guards everything below but device and native, which stay */
    pthread_cond_t changed; /* a job is not TAKEN any more, or admitted bytes were sent */
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
    fy__queue_t *spare; /* next in the list of closed ones */
    fy__queue_t *next;  /* in the list of all; set once */
};

/* What a job held; let go of without a lock, because a deleter is the user's. */
typedef struct fy__job_held {
    fy__storage_t *dst, *src, *raw;
    fy__job_conversion_t *conversion;
} fy__job_held_t;

/* ---- the lock is held ---- */

/* Would nbytes more fit the window? Forgets what is done; asks the device only if it seems full. */
bool fy__queue_fits(fy__queue_t *queue, uint64_t nbytes);
/* Admitted bytes are in flight up to `point`; or, with 0, were not submitted. */
void fy__queue_fly(fy__queue_t *queue, uint64_t nbytes, fy__point_t point);
/* Job `seq` of timeline `stream`, if its slot is still its own; NULL: it is over. */
fy__job_t *fy__job_find(const fy__queue_t *queue, const fy_stream_t *stream, uint64_t seq);
void fy__job_link(fy__queue_t *queue, fy__job_t *job);
void fy__job_unlink(fy__queue_t *queue, fy__job_t *job);
fy__job_held_t fy__job_take_held(fy__job_t *job);
/* What whoever uses the bytes will find when he comes behind the job, which failed with `record`,
 * or with 0 did not. */
void fy__job_leave_word(fy__queue_t *queue, const fy__job_t *job, uint32_t record);
/* Waits until the oldest of what is in flight is done, or another thread has sent what was
 * admitted. Lets go of the lock meanwhile. */
fy_status_t fy__queue_wait_for_flight(fy__queue_t *queue, uint64_t timeout_ns);

/* ---- no lock is held ---- */

void fy__job_let_go(fy__job_held_t held);
/* Submits a job and, before it, whatever it depends on, however deep. Fails only if its place in
 * the order cannot be kept. */
fy_status_t fy__job_force(fy__point_t point);
/* Submits what stands and finds room; or all. Fails if the next one cannot go because an earlier
 * one's place in the order cannot be kept;
 * the next passer-by tries again. */
fy_status_t fy__queue_submit_standing(fy__queue_t *queue, bool all);

/* ---- for runtime/ ---- */

extern const fy__timeline_t fy__queue_timeline;

#endif
