/* Engines' queues: the window, what stands, and how a job gets to the engine.
 * Locks: a queue's may be held while a stream's or the faults' is taken, never two queues', and never over a submission: a job that is being
 * submitted is TAKEN, and others who need it wait for `changed`. That ends, because a job depends on older ones only. */
#include "transfer/queue.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/fail.h"
#include "runtime/guard.h"
#include "transfer/submit.h"

enum {
    JOBS = 1024,  /* slots; job n has slot n % JOBS from its call until job n + JOBS takes it over */
    FLIGHTS = 256 /* entries of what is in flight; more are counted with the newest */
};

typedef enum state { JOB_NONE, JOB_STANDING, JOB_TAKEN, JOB_EMPTY, JOB_STARTED } state_t;

typedef struct conversion {
    fy__end_t final, raw;
    uint64_t nelem;
} conversion_t;

typedef struct job {
    uint64_t seq;
    state_t state;
    bool replaces;
    int priority;
    uint32_t record;    /* of its failure */
    uint64_t request;   /* its fault flag's number; 0 is none */
    fy__point_t native; /* STARTED; 0: over */
    fy_copy_t copy;
    conversion_t *conversion;
    fy__storage_t *dst, *src; /* held until it is submitted or given up */
    fy__node_t *node;         /* where its wire bytes are counted */
    uint32_t ndependencies;
    fy__point_t dependencies[FY__JOB_DEPENDENCIES];
    struct job *older, *newer; /* while it stands */
} job_t;

struct fy__queue {
    pthread_mutex_t lock;   /* guards everything below but device and native, which stay */
    pthread_cond_t changed; /* a job is not TAKEN any more, or admitted bytes were sent */
    fy_device_t *device;
    fy_stream_t *native;
    fy_stream_t *stream; /* the jobs' timeline; NULL before the first */
    job_t *jobs;         /* [JOBS] */
    job_t *oldest, *newest;
    _Atomic uint32_t nstanding;
    uint64_t standing_nbytes;
    uint64_t flying_nbytes; /* admitted ones included */
    uint32_t nadmitted;     /* transfers that are being submitted */
    struct {
        uint64_t seq, nbytes;
    } flights[FLIGHTS];
    uint32_t first, nflights;
    fy__queue_t *spare; /* next in the list of closed ones */
};

/* Closed queues, to be used again and never freed: who holds an old ticket may be looking. */
static pthread_mutex_t spares_lock = PTHREAD_MUTEX_INITIALIZER; /* guards `spares` */
static fy__queue_t *spares;

/* ---- the window; the lock is held ---- */

static void retire(fy__queue_t *queue, bool poll)
{
    while (queue->nflights) {
        const uint64_t seq = queue->flights[queue->first].seq;
        if (atomic_load_explicit(&queue->native->done, memory_order_acquire) < seq &&
            !(poll && fy__point_reached(FY__POINT(queue->native->index, seq))))
            return;
        queue->flying_nbytes -= queue->flights[queue->first].nbytes;
        queue->first = (queue->first + 1) % FLIGHTS;
        queue->nflights--;
    }
}

static bool fits(fy__queue_t *queue, uint64_t nbytes)
{
    const uint64_t window = queue->device->window_nbytes;
    for (int poll = 0; poll < 2; poll++) {
        retire(queue, poll);
        if (!queue->flying_nbytes || (nbytes <= window && queue->flying_nbytes <= window - nbytes)) return true;
    }
    return false;
}

static void fly(fy__queue_t *queue, uint64_t nbytes, fy__point_t point)
{
    if (!point) {
        queue->flying_nbytes -= nbytes;
        return;
    }
    const uint64_t seq = FY__POINT_SEQ(point);
    const uint32_t last = (queue->first + queue->nflights - 1) % FLIGHTS;
    if (queue->nflights && (queue->nflights == FLIGHTS || queue->flights[last].seq >= seq)) { /* two threads may get here out of order */
        if (queue->flights[last].seq < seq) queue->flights[last].seq = seq;
        queue->flights[last].nbytes += nbytes;
        return;
    }
    const uint32_t next = (queue->first + queue->nflights++) % FLIGHTS;
    queue->flights[next].seq = seq;
    queue->flights[next].nbytes = nbytes;
}

/* ---- what stands; the lock is held ---- */

static job_t *find(const fy__queue_t *queue, const fy_stream_t *stream, uint64_t seq)
{
    if (queue->stream != stream || !queue->jobs) return NULL;
    job_t *job = &queue->jobs[seq % JOBS];
    return job->seq == seq && job->state != JOB_NONE ? job : NULL;
}

static void link_newest(fy__queue_t *queue, job_t *job)
{
    job->older = queue->newest;
    job->newer = NULL;
    *(queue->newest ? &queue->newest->newer : &queue->oldest) = job;
    queue->newest = job;
    atomic_fetch_add_explicit(&queue->nstanding, 1, memory_order_relaxed);
    queue->standing_nbytes += job->copy.nbytes;
}

static void unlink_job(fy__queue_t *queue, job_t *job)
{
    *(job->older ? &job->older->newer : &queue->oldest) = job->newer;
    *(job->newer ? &job->newer->older : &queue->newest) = job->older;
    atomic_fetch_sub_explicit(&queue->nstanding, 1, memory_order_relaxed);
    queue->standing_nbytes -= job->copy.nbytes;
}

static const job_t *best(const fy__queue_t *queue)
{
    const job_t *found = queue->oldest;
    for (const job_t *job = found; job; job = job->newer)
        if (job->priority > found->priority) found = job;
    return found;
}

/* What a job held; let go of without a lock, because a deleter is the user's. */
typedef struct held {
    fy__storage_t *dst, *src, *raw;
    conversion_t *conversion;
} held_t;

static held_t take_held(job_t *job)
{
    const held_t held = { job->dst, job->src, job->conversion ? job->conversion->raw.storage : NULL, job->conversion };
    job->dst = job->src = NULL;
    job->conversion = NULL;
    return held;
}

static void let_go(held_t held)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return;
    if (held.src) fy__storage_release(thread, held.src);
    if (held.raw) fy__storage_release(thread, held.raw);
    if (held.dst) fy__storage_release(thread, held.dst);
    free(held.conversion);
}

/* ---- submitting one ---- */

/* The conversion behind the copy. Only this job knows raw, and the job waited for all that `final` must wait for. */
static fy_status_t convert(fy__queue_t *queue, const job_t *job, fy__point_t copied, fy__point_t *out_point)
{
    conversion_t *conversion = job->conversion;
    fy__hazard_written(&conversion->raw.storage->hazard, copied);
    FY_TRY(fy__convert_launch(queue->device, queue->native, &conversion->final, &conversion->raw, conversion->nelem));
    *out_point = fy__stream_submitted_anchored(queue->native);
    fy__hazard_read(&conversion->raw.storage->hazard, queue->native, *out_point);
    return FY_STATUS_OK;
}

/* Copy, and conversion if there is one. *out_point: the last request of it, whatever became of the rest. */
static fy_status_t send(fy__queue_t *queue, job_t *job, fy__point_t *out_point)
{
    const char *what = job->copy.kind == FY_COPY_UPLOAD ? "upload" : "download";
    const fy_status_t status = fy__copy_submit(queue->device, queue->native, what, job->copy, out_point, &job->request);
    if (status != FY_STATUS_OK) *out_point = fy__stream_submitted(queue->native); /* keeps its place in the order */
    return status == FY_STATUS_OK && job->conversion ? convert(queue, job, *out_point, out_point) : status;
}

/* What whoever uses the bytes will find when he comes behind the job. */
static void leave_word(fy__queue_t *queue, const job_t *job, uint32_t record)
{
    if (!record && job->replaces) fy__storage_late_clear(queue->device, job->dst);
    if (job->copy.kind == FY_COPY_DOWNLOAD) fy__storage_late_join(queue->device, job->dst, job->src);
    const fy__suspect_t suspect = { job->request, job->request != 0, record };
    fy__storage_late_add(queue->device, job->dst, &suspect);
}

static fy_status_t order_behind(const fy__queue_t *queue, const job_t *job)
{
    if (fy__wait_drops(FY__WAIT_QUEUE_JOB)) return FY_STATUS_OK;
    for (uint32_t i = 0; i < job->ndependencies; i++)
        FY_TRY(fy__stream_wait_point(queue->native, job->dependencies[i], FY__WAIT_QUEUE_JOB));
    return FY_STATUS_OK;
}

/* Submits job `seq` if it stands; or, if it was given up, what keeps its place in the order. What it depends on is submitted, or is being
 * submitted by others. Fails only if its place cannot be kept. */
static fy_status_t run_job(fy__queue_t *queue, const fy_stream_t *stream, uint64_t seq)
{
    fy__thread_t *thread = fy__thread();
    fy__point_t point = 0;
    job_t *job;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    fy__lock(&queue->lock);
    while ((job = find(queue, stream, seq)) && job->state == JOB_TAKEN) pthread_cond_wait(&queue->changed, &queue->lock);
    if (!job || job->state == JOB_STARTED) {
        fy__unlock(&queue->lock);
        return FY_STATUS_OK;
    }
    const bool stands = job->state == JOB_STANDING;
    if (stands) {
        unlink_job(queue, job);
        queue->flying_nbytes += job->copy.nbytes;
        queue->nadmitted++;
    }
    uint32_t record = job->record;
    job->state = JOB_TAKEN;
    fy__unlock(&queue->lock);

    fy_status_t status = order_behind(queue, job);
    const bool ordered = status == FY_STATUS_OK;
    if (stands) {
        fy__node_t *outer = thread->node;
        thread->node = fy__node_mirror(&thread->root, job->node);
        if (ordered) status = send(queue, job, &point);
        thread->node = outer;
        if (status != FY_STATUS_OK) {
            record = fy__poison_record(status, "a transfer that stood in a queue failed when its turn came: %.90s", fy_error_get()->text);
            fy__fault_keep(queue->device, FY__POINT(stream->index, seq), record, true);
        }
        leave_word(queue, job, record);
    } else if (ordered)
        point = fy__stream_submitted(queue->native);

    fy__lock(&queue->lock);
    const bool lost = fy__device_is_lost(queue->device);
    if (stands) {
        fly(queue, job->copy.nbytes, point);
        queue->nadmitted--;
    }
    job->native = point;
    job->record = record;
    job->state = point || lost ? JOB_STARTED : JOB_EMPTY;
    if (lost && !point && !job->record) job->record = fy__poison_record(FY_STATUS_DEVICE_LOST, "the device was lost");
    const held_t held = take_held(job);
    pthread_cond_broadcast(&queue->changed);
    fy__unlock(&queue->lock);
    let_go(held);
    return ordered || lost ? FY_STATUS_OK : status;
}

/* A job that `point`, a standing job, depends on and that is not submitted either; 0: none. */
static fy__point_t first_unsubmitted(fy__point_t point)
{
    fy__point_t dependencies[FY__JOB_DEPENDENCIES];
    uint32_t count = 0;
    fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(point));
    fy__queue_t *queue = atomic_load(&stream->jobs);
    fy__lock(&queue->lock);
    const job_t *job = find(queue, stream, FY__POINT_SEQ(point));
    if (job && (job->state == JOB_STANDING || job->state == JOB_EMPTY)) {
        count = job->ndependencies;
        memcpy(dependencies, job->dependencies, count * sizeof *dependencies);
    }
    fy__unlock(&queue->lock);
    for (uint32_t i = 0; i < count; i++) {
        fy__job_view_t view;
        if (fy__point_look(dependencies[i], &view) && (view.state == FY__JOB_STANDING || view.state == FY__JOB_EMPTY))
            return dependencies[i];
    }
    return 0;
}

/* Submits a job and, before it, whatever it depends on, however deep: no recursion, since chains may be as long as the queue. */
static fy_status_t force(fy__point_t point)
{
    fy__point_t path[32], next;
    uint32_t depth = 0;
    path[depth++] = point;
    while (depth) {
        if ((next = first_unsubmitted(path[depth - 1]))) {
            if (depth == sizeof path / sizeof *path) depth--; /* found again on the way back */
            path[depth++] = next;
            continue;
        }
        fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(path[depth - 1]));
        FY_TRY(run_job(atomic_load(&stream->jobs), stream, FY__POINT_SEQ(path[depth - 1])));
        depth--;
    }
    return FY_STATUS_OK;
}

/* ---- pumping ---- */

/* The device is gone: nothing that stands will ever run. */
static void give_up_all(fy__queue_t *queue)
{
    job_t *job;
    uint32_t record = 0;
    fy__lock(&queue->lock);
    while ((job = queue->oldest)) {
        if (!record) record = fy__poison_record(FY_STATUS_DEVICE_LOST, "%s was lost before this transfer's turn came", queue->device->spec);
        unlink_job(queue, job);
        job->state = JOB_STARTED;
        job->native = 0;
        job->record = record;
        const held_t held = take_held(job);
        fy__unlock(&queue->lock);
        let_go(held);
        fy__lock(&queue->lock);
    }
    fy__unlock(&queue->lock);
}

/* What a pump meets is for the jobs' owners, not for this thread's record. */
static void force_quietly(fy__point_t point)
{
    fy__error_copy_t before;
    fy__error_save(&before);
    if (force(point) != FY_STATUS_OK) fy__error_restore(&before);
    fy__error_restore(&before);
}

static void submit_standing(fy__queue_t *queue, bool all)
{
    while (atomic_load_explicit(&queue->nstanding, memory_order_relaxed)) {
        if (fy__device_is_lost(queue->device)) {
            give_up_all(queue);
            return;
        }
        fy__lock(&queue->lock);
        const job_t *job = best(queue);
        const fy__point_t point = job && (all || fits(queue, job->copy.nbytes)) ? FY__POINT(queue->stream->index, job->seq) : 0;
        fy__unlock(&queue->lock);
        if (!point) return;
        force_quietly(point);
    }
}

bool fy__queue_admit(fy__queue_t *queue, uint64_t nbytes)
{
    submit_standing(queue, false);
    fy__lock(&queue->lock);
    const bool admitted = !atomic_load(&queue->device->opens) || (!queue->oldest && fits(queue, nbytes)); /* closed: nobody would pump */
    if (admitted) {
        queue->flying_nbytes += nbytes;
        queue->nadmitted++;
    }
    fy__unlock(&queue->lock);
    return admitted;
}

void fy__queue_sent(fy__queue_t *queue, uint64_t nbytes, fy__point_t point)
{
    fy__lock(&queue->lock);
    fly(queue, nbytes, point);
    queue->nadmitted--;
    pthread_cond_broadcast(&queue->changed);
    fy__unlock(&queue->lock);
}

/* ---- standing ---- */

/* Waits until the oldest of what is in flight is done, or another thread has sent what was admitted. The lock is held, and let go
 * meanwhile. */
static fy_status_t wait_for_flight(fy__queue_t *queue, uint64_t timeout_ns)
{
    fy_status_t status = FY_STATUS_OK;
    if (!queue->nflights && queue->nadmitted) {
        pthread_cond_wait(&queue->changed, &queue->lock);
        return status;
    }
    const fy__point_t point = queue->nflights ? FY__POINT(queue->native->index, queue->flights[queue->first].seq) : 0;
    fy__unlock(&queue->lock);
    /* No wait site: it makes room, and orders nothing. */
    if (point) status = fy__point_wait(point, timeout_ns, FY__WAIT_NONE);
    if (status == FY_STATUS_OK) submit_standing(queue, false);
    fy__lock(&queue->lock);
    return status;
}

/* Is the slot's last job over? Then what became of it is written down where its ticket finds it later. The lock is held. */
static bool slot_is_free(fy__queue_t *queue, job_t *job)
{
    if (job->state == JOB_NONE) return true;
    if (job->state != JOB_STARTED || (job->native && !fy__point_reached(job->native))) return false;
    uint32_t record = job->record;
    if (!record && job->request) record = fy__fault_at(queue->device, job->native);
    if (record) fy__fault_keep(queue->device, FY__POINT(queue->stream->index, job->seq), record, false);
    if (atomic_load(&queue->stream->done) < job->seq) atomic_store_explicit(&queue->stream->done, job->seq, memory_order_release);
    job->state = JOB_NONE;
    return true;
}

/* The lock is held, and let go while waiting. */
static fy_status_t make_room(fy__thread_t *thread, fy__queue_t *queue, uint64_t nbytes)
{
    fy_status_t status = FY_STATUS_OK;
    uint64_t start_ns = 0;
    for (;;) {
        if (fy__device_is_lost(queue->device)) {
            status = fy__device_lost_error(queue->device);
            break;
        }
        job_t *job = &queue->jobs[(atomic_load(&queue->stream->submitted) + 1) % JOBS];
        const bool is_free = slot_is_free(queue, job);
        const uint64_t bound = queue->device->queue_nbytes;
        if (is_free && (!queue->oldest || (nbytes <= bound && queue->standing_nbytes <= bound - nbytes))) break;
        if (!start_ns) start_ns = fy__now_ns();
        if (!is_free) { /* a whole round later it still stands, or runs: now it is its turn */
            const fy__point_t point = FY__POINT(queue->stream->index, job->seq);
            fy__unlock(&queue->lock);
            status = fy__point_wait(point, FY_FOREVER, FY__WAIT_NONE);
            fy__lock(&queue->lock);
        } else
            status = wait_for_flight(queue, FY_FOREVER);
        if (status != FY_STATUS_OK) break;
    }
    if (start_ns) fy__throttled(thread, start_ns);
    return status;
}

static const fy__timeline_t timeline;

/* The lock is held. */
static fy_status_t make_timeline(fy__queue_t *queue)
{
    if (queue->stream) return FY_STATUS_OK;
    if (!queue->jobs) queue->jobs = calloc(JOBS, sizeof *queue->jobs);
    if (!queue->jobs) return FY_FAIL(OUT_OF_MEMORY, "transfer: no host memory for %zu bytes of a queue", JOBS * sizeof *queue->jobs);
    FY_TRY(fy__stream_open_timeline(queue->native, &timeline, queue, &queue->stream));
    fy_device_t *device = queue->device;
    atomic_store_explicit(&device->jobs[queue == device->downloads], queue->stream, memory_order_release);
    return FY_STATUS_OK;
}

static void depend(job_t *job, fy__point_t point)
{
    const fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(point));
    if (!stream || (!stream->foreign && atomic_load_explicit(&stream->done, memory_order_acquire) >= FY__POINT_SEQ(point))) return;
    for (uint32_t i = 0; i < job->ndependencies; i++)
        if (job->dependencies[i] == point) return;
    job->dependencies[job->ndependencies++] = point;
}

static void depend_all(job_t *job, const fy__hazard_t *hazard)
{
    fy__point_t points[1 + FY__READER_COUNT];
    const uint32_t count = fy__hazard_points(hazard, points);
    for (uint32_t i = 0; i < count; i++) depend(job, points[i]);
}

_Static_assert(FY__JOB_DEPENDENCIES >= 2 * (1 + FY__READER_COUNT) + 2, "dst, raw, and src's writer and reader");

/* From here on hazards name the job. The lock is held, so nobody finds it unfinished. */
static void enter(fy__queue_t *queue, job_t *job, fy__point_t point)
{
    depend_all(job, &job->dst->hazard);
    if (job->conversion) depend_all(job, &job->conversion->raw.storage->hazard);
    depend(job, atomic_load_explicit(&job->src->hazard.writer, memory_order_acquire));
    fy__hazard_written(&job->dst->hazard, point);
    depend(job, fy__hazard_read_job(&job->src->hazard, queue->native->reader, point));
}

/* So that the job waits, when its turn comes, for no more than was submitted when it was asked for. */
static void anchor_dependencies(const fy__queue_t *queue, const fy__point_t *points, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(points[i]));
        if (stream != queue->native && stream->native && stream->device == queue->device) fy__stream_anchor(stream);
    }
}

fy_status_t fy__queue_stand(fy__thread_t *thread, fy__queue_t *queue, const fy__job_order_t *order, fy__point_t *out_point)
{
    conversion_t *conversion = NULL;
    if (order->final) {
        conversion = malloc(sizeof *conversion);
        if (!conversion) return FY_FAIL(OUT_OF_MEMORY, "transfer: no host memory for %zu bytes", sizeof *conversion);
        *conversion = (conversion_t){ *order->final, *order->raw, order->nelem };
    }
    fy__lock(&queue->lock);
    fy_status_t status = make_timeline(queue);
    if (status == FY_STATUS_OK) status = make_room(thread, queue, order->copy.nbytes);
    if (status != FY_STATUS_OK) {
        fy__unlock(&queue->lock);
        free(conversion);
        return status;
    }
    const uint64_t seq = atomic_load(&queue->stream->submitted) + 1;
    job_t *job = &queue->jobs[seq % JOBS];
    *job = (job_t){
        .seq = seq,
        .state = JOB_STANDING,
        .replaces = order->replaces,
        .priority = order->priority,
        .copy = order->copy,
        .conversion = conversion,
        .dst = order->dst,
        .src = order->src,
        .node = thread->node,
    };
    fy__storage_retain(job->dst);
    fy__storage_retain(job->src);
    if (conversion) fy__storage_retain(conversion->raw.storage);
    atomic_store_explicit(&queue->stream->submitted, seq, memory_order_release);
    *out_point = FY__POINT(queue->stream->index, seq);
    enter(queue, job, *out_point);
    link_newest(queue, job);
    fy__point_t dependencies[FY__JOB_DEPENDENCIES];
    const uint32_t count = job->ndependencies;
    memcpy(dependencies, job->dependencies, count * sizeof *dependencies);
    fy__unlock(&queue->lock);
    anchor_dependencies(queue, dependencies, count);
    return FY_STATUS_OK;
}

/* ---- what runtime/ asks ---- */

static void look(fy_stream_t *stream, uint64_t seq, fy__job_view_t *out_view)
{
    fy__queue_t *queue = atomic_load(&stream->jobs);
    out_view->state = FY__JOB_OVER;
    out_view->native = 0;
    out_view->record = out_view->ndependencies = 0;
    fy__lock(&queue->lock);
    const job_t *job = find(queue, stream, seq);
    if (job) {
        out_view->record = job->record;
        out_view->native = job->native;
        out_view->state = job->state == JOB_EMPTY     ? FY__JOB_EMPTY
                          : job->state != JOB_STARTED ? FY__JOB_STANDING
                          : job->native               ? FY__JOB_STARTED
                                                      : FY__JOB_OVER;
        if (job->state == JOB_EMPTY) {
            out_view->ndependencies = job->ndependencies;
            memcpy(out_view->dependencies, job->dependencies, job->ndependencies * sizeof *job->dependencies);
        }
    }
    fy__unlock(&queue->lock);
}

static fy_status_t submit(fy_stream_t *stream, uint64_t seq, fy__point_t *out_native)
{
    const fy__point_t point = FY__POINT(stream->index, seq);
    fy__job_view_t view;
    look(stream, seq, &view);
    if (view.state == FY__JOB_STANDING || view.state == FY__JOB_EMPTY) {
        if (fy__device_is_lost(stream->device)) return fy__device_lost_error(stream->device);
        FY_TRY(force(point));
        look(stream, seq, &view);
    }
    if (!view.native && view.record && fy__device_is_lost(stream->device)) return fy__device_lost_error(stream->device);
    *out_native = view.native;
    return FY_STATUS_OK;
}

static bool cancel(fy_stream_t *stream, uint64_t seq)
{
    fy__queue_t *queue = atomic_load(&stream->jobs);
    fy__lock(&queue->lock);
    job_t *job = find(queue, stream, seq);
    if (!job || job->state != JOB_STANDING || fy__device_is_lost(queue->device)) {
        fy__unlock(&queue->lock);
        return false;
    }
    const bool is_upload = job->copy.kind == FY_COPY_UPLOAD;
    job->record = fy__poison_record(FY_STATUS_CANCELLED, "the %s of %llu bytes was cancelled before it started",
                                    is_upload ? "upload" : "download", (unsigned long long)job->copy.nbytes);
    unlink_job(queue, job);
    leave_word(queue, job, job->record);
    job->state = JOB_EMPTY;
    const held_t held = take_held(job);
    fy__unlock(&queue->lock);
    let_go(held);
    return true;
}

static void pump(fy_stream_t *stream) { submit_standing(atomic_load(&stream->jobs), false); }
static void flush(fy_stream_t *stream) { submit_standing(atomic_load(&stream->jobs), true); }

static fy_status_t drain(fy_stream_t *stream, uint64_t timeout_ns)
{
    fy__queue_t *queue = atomic_load(&stream->jobs);
    fy_status_t status = FY_STATUS_OK;
    submit_standing(queue, false);
    fy__lock(&queue->lock);
    while (queue->oldest && status == FY_STATUS_OK) status = wait_for_flight(queue, timeout_ns);
    while (queue->nadmitted && status == FY_STATUS_OK && timeout_ns == FY_FOREVER) pthread_cond_wait(&queue->changed, &queue->lock);
    fy__unlock(&queue->lock);
    return status;
}

static void fork_child(fy_stream_t *stream)
{
    fy__queue_t *queue = atomic_load(&stream->jobs);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->changed, NULL);
}

static const fy__timeline_t timeline = { look, submit, cancel, pump, drain, flush, fork_child };

/* ---- with its device ---- */

fy_status_t fy__queue_open(fy_stream_t *native, fy__queue_t **out_queue)
{
    fy__lock(&spares_lock);
    fy__queue_t *queue = spares;
    if (queue) spares = queue->spare;
    fy__unlock(&spares_lock);
    if (!queue) {
        queue = calloc(1, sizeof *queue);
        if (!queue) return FY_FAIL(OUT_OF_MEMORY, "device_open: no host memory for %zu bytes of a queue", sizeof *queue);
        pthread_mutex_init(&queue->lock, NULL);
        pthread_cond_init(&queue->changed, NULL);
    }
    fy__lock(&queue->lock);
    queue->device = native->device;
    queue->native = native;
    queue->stream = NULL;
    queue->oldest = queue->newest = NULL;
    queue->flying_nbytes = queue->standing_nbytes = 0;
    queue->nadmitted = queue->nflights = 0;
    atomic_store(&queue->nstanding, 0);
    fy__unlock(&queue->lock);
    *out_queue = queue;
    return FY_STATUS_OK;
}

void fy__queue_close(fy__queue_t *queue)
{
    submit_standing(queue, true);
    fy__lock(&queue->lock);
    fy_stream_t *stream = queue->stream;
    queue->stream = NULL;
    free(queue->jobs);
    queue->jobs = NULL;
    fy__unlock(&queue->lock);
    if (stream) {
        atomic_store(&queue->device->jobs[queue == queue->device->downloads], NULL);
        fy__stream_close(stream);
    }
    fy__lock(&spares_lock);
    queue->spare = spares;
    spares = queue;
    fy__unlock(&spares_lock);
}
