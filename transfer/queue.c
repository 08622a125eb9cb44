/* Engines' queues: whether a transfer is submitted at once or queued, and which job is next. Not
 * here: the submission of a job (job.c), the interface to runtime/ (timeline.c). Locks: job.h. */
#include "transfer/job.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/fail.h"
#include "runtime/order/external.h"
#include "runtime/thread/guard.h"

/* Closed queues, reused and never freed: a thread with an old ticket may read one. */
pthread_mutex_t fy__queue_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the two below */
/* closed ones; all queues */
static fy__queue_t *spares, *made;

/* The lock is held. */
static const fy__job_t *best(const fy__queue_t *queue)
{
    const fy__job_t *found = queue->oldest;
    for (const fy__job_t *job = found; job; job = job->newer)
        if (job->priority > found->priority) found = job;
    return found;
}

/* ---- pumping ---- */

/* The device is lost: no queued job will ever run. */
static void fail_all(fy__queue_t *queue)
{
    fy__job_t *job;
    uint32_t record = 0;
    fy__lock(&queue->lock);
    while ((job = queue->oldest)) {
        if (!record)
            record = fy__poison_record(FY_STATUS_DEVICE_LOST,
                                       "%s was lost before this transfer was submitted",
                                       queue->device->spec);
        fy__job_unlink(queue, job);
        job->phase = FY__PHASE_STARTED;
        job->native = 0;
        job->record = record;
        const fy__job_held_t held = fy__job_take_held(job);
        fy__unlock(&queue->lock);
        fy__job_let_go(held);
        fy__lock(&queue->lock);
    }
    fy__unlock(&queue->lock);
}

/* A pump's failures belong to the jobs, not to this thread's error record. */
static fy_status_t force_quietly(fy__point_t point)
{
    fy__error_copy_t before;
    fy__error_save(&before);
    const fy_status_t status = fy__job_force(point);
    fy__error_restore(&before);
    return status;
}

fy_status_t fy__queue_submit_standing(fy__queue_t *queue, bool all)
{
    while (atomic_load_explicit(&queue->nstanding, memory_order_relaxed)) {
        if (fy__device_is_lost(queue->device)) {
            fail_all(queue);
            return FY_STATUS_OK;
        }
        fy__lock(&queue->lock);
        const fy__job_t *job = best(queue);
        const fy__point_t point = job && (all || fy__queue_fits(queue, job->copy.nbytes))
                                      ? FY__POINT(queue->stream->index, job->seq)
                                      : 0;
        fy__unlock(&queue->lock);
        if (!point) return FY_STATUS_OK;
        const uint32_t before = atomic_load_explicit(&queue->nstanding, memory_order_relaxed);
        const fy_status_t status = force_quietly(point);
        if (status != FY_STATUS_OK &&
            atomic_load_explicit(&queue->nstanding, memory_order_relaxed) >= before)
            return status;
    }
    return FY_STATUS_OK;
}

bool fy__queue_admit(fy__queue_t *queue, uint64_t nbytes)
{
    (void)fy__queue_submit_standing(queue, false);
    fy__lock(&queue->lock);
    const bool admitted = !atomic_load(&queue->device->opens) ||
                          /* closed: no call would pump */
                          (!queue->oldest && fy__queue_fits(queue, nbytes));
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
    fy__queue_fly(queue, nbytes, point);
    queue->nadmitted--;
    pthread_cond_broadcast(&queue->changed);
    fy__unlock(&queue->lock);
}

/* ---- queued jobs ---- */

fy_status_t fy__queue_wait_for_flight(fy__queue_t *queue, uint64_t timeout_ns)
{
    fy_status_t status = FY_STATUS_OK;
    if (!queue->nflights && queue->nadmitted) {
        pthread_cond_wait(&queue->changed, &queue->lock);
        return status;
    }
    const fy__point_t point =
        queue->nflights ? FY__POINT(queue->native->index, queue->flights[queue->first].seq) : 0;
    fy__unlock(&queue->lock);
    /* No wait site: it makes room, and orders nothing. */
    if (point) status = fy__point_wait(point, timeout_ns, FY__WAIT_NONE);
    const fy_status_t stuck = status == FY_STATUS_OK ? fy__queue_submit_standing(queue, false)
                                                     : FY_STATUS_OK;
    if (stuck != FY_STATUS_OK && !point) /* no transfer in flight would change that */
        status = fy_error_set(stuck, __FILE__, __LINE__,
                              "the queued transfers of %s cannot be ordered after earlier work",
                              queue->device->spec);
    fy__lock(&queue->lock);
    return status;
}

/* Whether the slot's last job is over; if so, stores its result for its ticket. The lock is
 * held. */
static bool slot_is_free(fy__queue_t *queue, fy__job_t *job)
{
    if (job->phase == FY__PHASE_NONE) return true;
    if (job->phase != FY__PHASE_STARTED || (job->native && !fy__point_reached(job->native)))
        return false;
    uint32_t record = job->record;
    if (!record && job->request) record = fy__fault_at(queue->device, job->native);
    if (record) {
        queue->failures[job->seq % FY__QUEUE_FAILURES].seq = job->seq;
        queue->failures[job->seq % FY__QUEUE_FAILURES].record = record;
    }
    if (atomic_load(&queue->stream->done) < job->seq)
        atomic_store_explicit(&queue->stream->done, job->seq, memory_order_release);
    job->phase = FY__PHASE_NONE;
    return true;
}

/* The lock is held, and released during waits. */
static fy_status_t make_room(fy__thread_t *thread, fy__queue_t *queue, uint64_t nbytes)
{
    fy_status_t status = FY_STATUS_OK;
    uint64_t start_ns = 0;
    for (;;) {
        if (fy__device_is_lost(queue->device)) {
            status = fy__device_lost_error(queue->device);
            break;
        }
        fy__job_t *job =
            &queue->jobs[(atomic_load(&queue->stream->submitted) + 1) % FY__QUEUE_JOBS];
        const bool is_free = slot_is_free(queue, job);
        const uint64_t bound = queue->device->queue_nbytes;
        if (is_free &&
            (!queue->oldest || (nbytes <= bound && queue->standing_nbytes <= bound - nbytes)))
            break;
        if (!start_ns) start_ns = fy__now_ns();
        if (!is_free) { /* a whole round later it is still queued, or runs: wait for it */
            const fy__point_t point = FY__POINT(queue->stream->index, job->seq);
            fy__unlock(&queue->lock);
            status = fy__point_wait(point, FY_FOREVER, FY__WAIT_NONE);
            fy__lock(&queue->lock);
        } else
            status = fy__queue_wait_for_flight(queue, FY_FOREVER);
        if (status != FY_STATUS_OK) break;
    }
    if (start_ns) fy__throttled(thread, "queue_full", start_ns);
    return status;
}

/* The lock is held. */
static fy_status_t make_timeline(fy__queue_t *queue)
{
    if (queue->stream) return FY_STATUS_OK;
    if (!queue->jobs) queue->jobs = calloc(FY__QUEUE_JOBS, sizeof *queue->jobs);
    if (!queue->failures) queue->failures = calloc(FY__QUEUE_FAILURES, sizeof *queue->failures);
    if (!queue->jobs || !queue->failures)
        return FY_FAIL(OUT_OF_MEMORY, "transfer: no host memory for %zu bytes of a queue",
                       FY__QUEUE_JOBS * sizeof *queue->jobs);
    FY_TRY(fy__stream_open_timeline(queue->native->device, queue->native->reader,
                                    queue->native->name, &fy__queue_timeline, queue,
                                    &queue->stream));
    fy_device_t *device = queue->device;
    atomic_store_explicit(&device->jobs[queue == device->downloads], queue->stream,
                          memory_order_release);
    return FY_STATUS_OK;
}

static void depend(fy__job_t *job, fy__point_t point)
{
    const fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(point));
    if (!stream || fy__stream_is_past(stream, FY__POINT_SEQ(point))) return;
    if (fy__external_is_own(point)) return;
    for (uint32_t i = 0; i < job->ndependencies; i++)
        if (job->dependencies[i] == point) return;
    job->dependencies[job->ndependencies++] = point;
}

static void depend_all(fy__job_t *job, const fy__hazard_t *hazard)
{
    fy__point_t points[1 + FY__READER_COUNT];
    const uint32_t count = fy__hazard_points(hazard, points);
    for (uint32_t i = 0; i < count; i++) depend(job, points[i]);
}

_Static_assert(FY__JOB_DEPENDENCIES >= 2 * (1 + FY__READER_COUNT) + 2,
               "dst, raw, and src's writer and reader");

/* From here on hazards name the job. The lock is held, so no thread sees it incomplete. */
static void enter(fy__queue_t *queue, fy__job_t *job, fy__point_t point)
{
    depend_all(job, &job->dst->hazard);
    if (job->conversion) depend_all(job, &job->conversion->raw.storage->hazard);
    depend(job, atomic_load_explicit(&job->src->hazard.writer, memory_order_acquire));
    fy__hazard_written(&job->dst->hazard, point);
    job->before = fy__hazard_read_job(&job->src->hazard, queue->native->reader, point);
    depend(job, job->before);
}

/* Records events, so that the job waits for no request later than this call. */
static void anchor_dependencies(const fy__queue_t *queue, const fy__point_t *points, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(points[i]));
        if (stream != queue->native && stream->device == queue->device) fy__stream_anchor(stream);
    }
}

fy_status_t fy__queue_enqueue(fy__thread_t *thread, fy__queue_t *queue,
                              const fy__job_order_t *order, fy__point_t *out_point)
{
    fy__job_conversion_t *conversion = NULL;
    FY_TRY(fy__external_await(&order->dst->hazard));
    FY_TRY(fy__external_await(&order->src->hazard));
    if (order->final) {
        conversion = malloc(sizeof *conversion);
        if (!conversion)
            return FY_FAIL(OUT_OF_MEMORY, "transfer: no host memory for %zu bytes",
                           sizeof *conversion);
        *conversion = (fy__job_conversion_t){ *order->final, *order->raw, order->nelem };
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
    fy__job_t *job = &queue->jobs[seq % FY__QUEUE_JOBS];
    *job = (fy__job_t){
        .seq = seq,
        .phase = FY__PHASE_STANDING,
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
    fy__job_link(queue, job);
    fy__point_t dependencies[FY__JOB_DEPENDENCIES];
    const uint32_t count = job->ndependencies;
    memcpy(dependencies, job->dependencies, count * sizeof *dependencies);
    fy__unlock(&queue->lock);
    anchor_dependencies(queue, dependencies, count);
    /* closed meanwhile: there may be no further API call */
    if (!atomic_load(&queue->device->opens)) (void)fy__queue_submit_standing(queue, true);
    return FY_STATUS_OK;
}

/* ---- with its device ---- */

static void make_locks(fy__queue_t *queue)
{
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->changed, NULL);
}

fy_status_t fy__queue_open(fy_stream_t *native, fy__queue_t **out_queue)
{
    fy__lock(&fy__queue_lock);
    fy__queue_t *queue = spares;
    if (queue) spares = queue->spare;
    fy__unlock(&fy__queue_lock);
    if (!queue) {
        queue = calloc(1, sizeof *queue);
        if (!queue)
            return FY_FAIL(OUT_OF_MEMORY, "device_open: no host memory for %zu bytes of a queue",
                           sizeof *queue);
        make_locks(queue);
        fy__lock(&fy__queue_lock);
        queue->next = made;
        made = queue;
        fy__unlock(&fy__queue_lock);
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

/* The device is lost and the jobs are removed: the tickets of the oldest completed jobs must still
 * report success. The lock is held. */
static void keep_done(fy__queue_t *queue)
{
    for (uint64_t seq = atomic_load(&queue->stream->done) + 1;
         seq <= atomic_load(&queue->stream->submitted); seq++) {
        const fy__job_t *job = fy__job_find(queue, queue->stream, seq);
        if (!job || job->phase != FY__PHASE_STARTED || job->record || !job->native ||
            atomic_load(&queue->native->done) < FY__POINT_SEQ(job->native) ||
            (job->request && fy__fault_at(queue->device, job->native)))
            return;
        atomic_store_explicit(&queue->stream->done, seq, memory_order_release);
    }
}

void fy__queue_close(fy__queue_t *queue)
{
    (void)fy__queue_submit_standing(queue, true);
    fy__lock(&queue->lock);
    if (queue->stream && fy__device_is_lost(queue->device)) keep_done(queue);
    fy_stream_t *stream = queue->stream;
    queue->stream = NULL;
    free(queue->jobs);
    free(queue->failures);
    queue->jobs = NULL;
    queue->failures = NULL;
    fy__unlock(&queue->lock);
    if (stream) {
        atomic_store(&queue->device->jobs[queue == queue->device->downloads], NULL);
        fy__stream_close(stream);
    }
    fy__lock(&fy__queue_lock);
    queue->spare = spares;
    spares = queue;
    fy__unlock(&fy__queue_lock);
}

void fy__queue_fork_child(void)
{
    for (fy__queue_t *queue = made; queue; queue = queue->next) make_locks(queue);
    pthread_mutex_unlock(&fy__queue_lock);
}
