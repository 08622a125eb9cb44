/* A queue's interface to runtime/: jobs are points on a separate timeline
 * (runtime/order/stream.h) that can be looked up, submitted and cancelled. Not here: the order of
 * jobs (queue.c), the submission of one (job.c). */
#include <string.h>

#include "runtime/base/fail.h"
#include "runtime/device/device.h"
#include "transfer/job.h"

static void look(fy_stream_t *stream, uint64_t seq, fy__job_view_t *out_view)
{
    fy__queue_t *queue = atomic_load(&stream->jobs);
    out_view->state = FY__JOB_OVER;
    out_view->native = out_view->before = 0;
    out_view->record = out_view->ndependencies = 0;
    out_view->cancelled = false;
    fy__lock(&queue->lock);
    const fy__job_t *job = fy__job_find(queue, stream, seq);
    if (job) {
        out_view->record = job->record;
        out_view->native = job->native;
        out_view->cancelled = job->cancelled;
        out_view->before = job->before;
        out_view->state = job->phase == FY__PHASE_EMPTY     ? FY__JOB_EMPTY
                          : job->phase != FY__PHASE_STARTED ? FY__JOB_STANDING
                          : job->native                     ? FY__JOB_STARTED
                                                            : FY__JOB_OVER;
        if (job->phase == FY__PHASE_EMPTY) {
            out_view->ndependencies = job->ndependencies;
            memcpy(out_view->dependencies, job->dependencies,
                   job->ndependencies * sizeof *job->dependencies);
        }
    }
    if (!job && queue->stream == stream && queue->failures &&
        queue->failures[seq % FY__QUEUE_FAILURES].seq == seq)
        out_view->record = queue->failures[seq % FY__QUEUE_FAILURES].record;
    fy__unlock(&queue->lock);
}

static fy_status_t submit(fy_stream_t *stream, uint64_t seq, fy__point_t *out_native)
{
    const fy__point_t point = FY__POINT(stream->index, seq);
    fy__job_view_t view;
    look(stream, seq, &view);
    if (view.state == FY__JOB_STANDING || view.state == FY__JOB_EMPTY) {
        if (fy__device_is_lost(stream->device)) return fy__device_lost_error(stream->device);
        FY_TRY(fy__job_force(point));
        look(stream, seq, &view);
    }
    if (!view.native && view.record && fy__device_is_lost(stream->device))
        return fy__device_lost_error(stream->device);
    *out_native = view.native;
    return FY_STATUS_OK;
}

/* Whether another upload into the same storage is being submitted. The lock is held. */
static bool is_being_written(const fy__queue_t *queue, const fy__job_t *job)
{
    for (uint32_t i = 0; i < FY__QUEUE_JOBS; i++)
        if (queue->jobs[i].phase == FY__PHASE_TAKEN && queue->jobs[i].dst == job->dst) return true;
    return false;
}

/* `job`, an upload, is cancelled: earlier uploads that are submitted later must not clear its
 * poison. The lock is held. */
static void keep_poison_of(const fy__queue_t *queue, const fy__job_t *job)
{
    for (fy__job_t *older = queue->oldest; older != job; older = older->newer)
        if (older->dst == job->dst) older->replaces = false;
}

static bool cancel(fy_stream_t *stream, uint64_t seq)
{
    fy__queue_t *queue = atomic_load(&stream->jobs);
    fy__job_t *job;
    bool is_upload;
    fy__lock(&queue->lock);
    for (;;) {
        job = fy__job_find(queue, stream, seq);
        if (!job || job->phase != FY__PHASE_STANDING || fy__device_is_lost(queue->device)) {
            fy__unlock(&queue->lock);
            return false;
        }
        is_upload = job->copy.kind == FY_COPY_UPLOAD;
        if (!is_upload || !is_being_written(queue, job)) break;
        pthread_cond_wait(&queue->changed, &queue->lock);
    }
    if (is_upload) keep_poison_of(queue, job);
    job->record = fy__poison_record(
        FY_STATUS_CANCELLED, "the %s of %llu bytes was cancelled before it started",
        is_upload ? "upload" : "download", (unsigned long long)job->copy.nbytes);
    fy__job_unlink(queue, job);
    fy__job_publish_result(queue, job, job->record);
    job->phase = FY__PHASE_EMPTY;
    job->cancelled = true;
    const fy__job_held_t held = fy__job_take_held(job);
    fy__unlock(&queue->lock);
    fy__job_let_go(held);
    return true;
}

static void pump(fy_stream_t *stream)
{
    (void)fy__queue_submit_standing(atomic_load(&stream->jobs), false);
}
static void flush(fy_stream_t *stream)
{
    (void)fy__queue_submit_standing(atomic_load(&stream->jobs), true);
}

static fy_status_t drain(fy_stream_t *stream, uint64_t timeout_ns)
{
    fy__queue_t *queue = atomic_load(&stream->jobs);
    fy_status_t status = FY_STATUS_OK;
    const uint64_t start_ns = fy__device_now_ns(queue->device);
    (void)fy__queue_submit_standing(queue, false);
    fy__lock(&queue->lock);
    while (queue->oldest && status == FY_STATUS_OK)
        status = fy__queue_wait_for_flight(queue,
                                           fy__device_left_ns(queue->device, timeout_ns, start_ns));
    while (queue->nadmitted && status == FY_STATUS_OK && timeout_ns == FY_FOREVER)
        pthread_cond_wait(&queue->changed, &queue->lock);
    fy__unlock(&queue->lock);
    return status;
}

const fy__timeline_t fy__queue_timeline = { look, submit, cancel, pump, drain, flush, NULL };
