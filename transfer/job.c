/* One job: its place in the queue, its references, and its submission to the engine. Locks:
 * job.h. */
#include "transfer/job.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/fail.h"
#include "runtime/order/callback.h"
#include "runtime/record/event.h"
#include "transfer/move.h"

/* ---- the window; the lock is held ---- */

static void retire(fy__queue_t *queue, bool poll)
{
    while (queue->nflights) {
        const uint64_t seq = queue->flights[queue->first].seq;
        if (atomic_load_explicit(&queue->native->done, memory_order_acquire) < seq &&
            !(poll && fy__point_reached(FY__POINT(queue->native->index, seq))))
            return;
        queue->flying_nbytes -= queue->flights[queue->first].nbytes;
        queue->first = (queue->first + 1) % FY__QUEUE_FLIGHTS;
        queue->nflights--;
    }
}

bool fy__queue_fits(fy__queue_t *queue, uint64_t nbytes)
{
    const uint64_t window = queue->device->window_nbytes;
    for (int poll = 0; poll < 2; poll++) {
        retire(queue, poll);
        if (!queue->flying_nbytes || (nbytes <= window && queue->flying_nbytes <= window - nbytes))
            return true;
    }
    return false;
}

void fy__queue_fly(fy__queue_t *queue, uint64_t nbytes, fy__point_t point)
{
    if (!point) {
        queue->flying_nbytes -= nbytes;
        return;
    }
    const uint64_t seq = FY__POINT_SEQ(point);
    const uint32_t last = (queue->first + queue->nflights - 1) % FY__QUEUE_FLIGHTS;
    if (queue->nflights &&
        /* two threads may reach this out of order */
        (queue->nflights == FY__QUEUE_FLIGHTS || queue->flights[last].seq >= seq)) {
        if (queue->flights[last].seq < seq) queue->flights[last].seq = seq;
        queue->flights[last].nbytes += nbytes;
        return;
    }
    const uint32_t next = (queue->first + queue->nflights++) % FY__QUEUE_FLIGHTS;
    queue->flights[next].seq = seq;
    queue->flights[next].nbytes = nbytes;
}

/* ---- queued jobs; the lock is held ---- */

fy__job_t *fy__job_find(const fy__queue_t *queue, const fy_stream_t *stream, uint64_t seq)
{
    if (queue->stream != stream || !queue->jobs) return NULL;
    fy__job_t *job = &queue->jobs[seq % FY__QUEUE_JOBS];
    return job->seq == seq && job->phase != FY__PHASE_NONE ? job : NULL;
}

void fy__job_link(fy__queue_t *queue, fy__job_t *job)
{
    job->older = queue->newest;
    job->newer = NULL;
    *(queue->newest ? &queue->newest->newer : &queue->oldest) = job;
    queue->newest = job;
    atomic_fetch_add_explicit(&queue->nstanding, 1, memory_order_relaxed);
    queue->standing_nbytes += job->copy.nbytes;
    if (!queue->device->info.is_simulated) fy__callback_standing(1);
}

void fy__job_unlink(fy__queue_t *queue, fy__job_t *job)
{
    *(job->older ? &job->older->newer : &queue->oldest) = job->newer;
    *(job->newer ? &job->newer->older : &queue->newest) = job->older;
    atomic_fetch_sub_explicit(&queue->nstanding, 1, memory_order_relaxed);
    queue->standing_nbytes -= job->copy.nbytes;
    if (!queue->device->info.is_simulated) fy__callback_standing(-1);
}

fy__job_held_t fy__job_take_held(fy__job_t *job)
{
    const fy__job_held_t held = { job->dst, job->src,
                                  job->conversion ? job->conversion->raw.storage : NULL,
                                  job->conversion };
    job->dst = job->src = NULL;
    job->conversion = NULL;
    return held;
}

void fy__job_let_go(fy__job_held_t held)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return;
    if (held.src) fy__storage_release(thread, held.src);
    if (held.raw) fy__storage_release(thread, held.raw);
    if (held.dst) fy__storage_release(thread, held.dst);
    free(held.conversion);
}

/* ---- submitting one ---- */

/* The conversion after the copy. Only this job uses raw, and the job has waited for everything that
 * `final` must wait for. */
static fy_status_t convert(fy__queue_t *queue, const fy__job_t *job, fy__point_t copied,
                           fy__point_t *out_point)
{
    fy__job_conversion_t *conversion = job->conversion;
    fy__hazard_written(&conversion->raw.storage->hazard, copied);
    FY_TRY(fy__convert_launch(queue->device, queue->native, &conversion->final, &conversion->raw,
                              conversion->nelem));
    *out_point = fy__stream_submitted_anchored(queue->native);
    fy__hazard_read(&conversion->raw.storage->hazard, queue->native, *out_point);
    return FY_STATUS_OK;
}

/* Submits the copy, and the conversion if there is one. *out_point: its last request, even if a
 * later step failed. */
static fy_status_t send(fy__queue_t *queue, fy__job_t *job, fy__point_t *out_point)
{
    const char *what = job->copy.kind == FY_COPY_UPLOAD ? "upload" : "download";
    const fy_status_t status =
        fy__copy_submit(queue->device, queue->native, what, job->copy, out_point, &job->request);
    /* keeps its place in the order */
    if (status != FY_STATUS_OK) *out_point = fy__stream_submitted(queue->native);
    if (status != FY_STATUS_OK || !job->conversion) return status;
    FY_TRY(convert(queue, job, *out_point, out_point));
    if (job->request)
        fy__fault_belongs(queue->device, &(fy__taint_t){ .first = job->request, .mask = 1 },
                          *out_point, FY__FAULT_ALSO_TRANSFER);
    return FY_STATUS_OK;
}

/* Leaves the job's faults on the bytes for requests after it. */
void fy__job_publish_result(fy__queue_t *queue, const fy__job_t *job, uint32_t record)
{
    if (!record && job->replaces) fy__storage_late_clear(queue->device, job->dst);
    if (job->copy.kind == FY_COPY_DOWNLOAD)
        fy__storage_late_join(queue->device, job->dst, job->src);
    const fy__taint_t taint = { .first = job->request,
                                .mask = job->request != 0,
                                .poison = record };
    fy__storage_late_add(queue->device, job->dst, &taint);
}

static fy_status_t order_behind(const fy__queue_t *queue, const fy__job_t *job)
{
    if (fy__wait_drops(FY__WAIT_QUEUE_JOB)) return FY_STATUS_OK;
    for (uint32_t i = 0; i < job->ndependencies; i++)
        FY_TRY(fy__stream_wait_point(queue->native, job->dependencies[i], FY__WAIT_QUEUE_JOB));
    return FY_STATUS_OK;
}

/* Submits job `seq` if it is queued; if it was dropped, submits a placeholder for its place in the
 * order. Its dependencies are submitted, or other threads are submitting them. Fails only if its
 * place cannot be kept. */
static fy_status_t run_job(fy__queue_t *queue, const fy_stream_t *stream, uint64_t seq)
{
    fy__thread_t *thread = fy__thread();
    fy__point_t point = 0;
    fy__job_t *job;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    fy__lock(&queue->lock);
    while ((job = fy__job_find(queue, stream, seq)) && job->phase == FY__PHASE_TAKEN)
        pthread_cond_wait(&queue->changed, &queue->lock);
    if (!job || job->phase == FY__PHASE_STARTED) {
        fy__unlock(&queue->lock);
        return FY_STATUS_OK;
    }
    const bool stands = job->phase == FY__PHASE_STANDING;
    if (stands) {
        fy__job_unlink(queue, job);
        queue->flying_nbytes += job->copy.nbytes;
        queue->nadmitted++;
    }
    uint32_t record = job->record;
    job->phase = FY__PHASE_TAKEN;
    fy__unlock(&queue->lock);

    fy_status_t status = order_behind(queue, job);
    const bool ordered = status == FY_STATUS_OK;
    if (stands) {
        fy__node_t *outer = thread->node;
        thread->node = fy__node_mirror(&thread->root, job->node);
        if (ordered) status = send(queue, job, &point);
        FY__EVENT(fy__event_started(thread, queue->device, FY__POINT(stream->index, seq), point,
                                    job->copy.nbytes, status));
        thread->node = outer;
        if (status != FY_STATUS_OK) {
            record = fy__poison_record(status,
                                       "a queued transfer failed when it was submitted: %.90s",
                                       fy_error_get()->text);
            fy__fault_keep(queue->device, FY__POINT(stream->index, seq), record);
        }
        fy__job_publish_result(queue, job, record);
    } else if (ordered)
        point = fy__stream_submitted(queue->native);

    fy__lock(&queue->lock);
    const bool lost = fy__device_is_lost(queue->device);
    if (stands) {
        fy__queue_fly(queue, job->copy.nbytes, point);
        queue->nadmitted--;
    }
    job->native = point;
    job->record = record;
    job->phase = point || lost ? FY__PHASE_STARTED : FY__PHASE_EMPTY;
    if (lost && !point && !job->record)
        job->record = fy__poison_record(FY_STATUS_DEVICE_LOST, "the device was lost");
    const fy__job_held_t held = fy__job_take_held(job);
    pthread_cond_broadcast(&queue->changed);
    fy__unlock(&queue->lock);
    fy__job_let_go(held);
    return ordered || lost ? FY_STATUS_OK : status;
}

/* An unsubmitted job on which `point`, a queued job, depends; 0: none. */
static fy__point_t first_unsubmitted(fy__point_t point)
{
    fy__point_t dependencies[FY__JOB_DEPENDENCIES];
    uint32_t count = 0;
    fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(point));
    fy__queue_t *queue = atomic_load(&stream->jobs);
    fy__lock(&queue->lock);
    const fy__job_t *job = fy__job_find(queue, stream, FY__POINT_SEQ(point));
    if (job && (job->phase == FY__PHASE_STANDING || job->phase == FY__PHASE_EMPTY)) {
        count = job->ndependencies;
        memcpy(dependencies, job->dependencies, count * sizeof *dependencies);
    }
    fy__unlock(&queue->lock);
    for (uint32_t i = 0; i < count; i++) {
        fy__job_view_t view;
        if (fy__point_job_view(dependencies[i], &view) &&
            (view.state == FY__JOB_STANDING || view.state == FY__JOB_EMPTY))
            return dependencies[i];
    }
    return 0;
}

/* Submits a job and, before it, all its dependencies at any depth. No recursion, since chains may
 * be as long as the queue. */
fy_status_t fy__job_force(fy__point_t point)
{
    fy__point_t path[32], next;
    uint32_t depth = 0;
    path[depth++] = point;
    while (depth) {
        if ((next = first_unsubmitted(path[depth - 1]))) {
            if (depth == sizeof path / sizeof *path) depth--; /* found again later */
            path[depth++] = next;
            continue;
        }
        fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(path[depth - 1]));
        FY_TRY(run_job(atomic_load(&stream->jobs), stream, FY__POINT_SEQ(path[depth - 1])));
        depth--;
    }
    return FY_STATUS_OK;
}
