/* External work: its table, its timeline, and the state of tensors meanwhile. Work n has slot
 * n % SLOTS, which work n + SLOTS reuses; it stores the result for tickets. */
#include "runtime/order/external.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/fail.h"
#include "runtime/record/recording.h"
#include "runtime/tensor/tensor.h"
#include "runtime/thread/guard.h"

enum { SLOTS = 1024 };

struct fy_external {
    fy__point_t point;
    fy__storage_t *src, *dst; /* references */
    fy__heritage_t heritage;  /* of the caller of begin */
    char what[48];
    uint32_t ndependencies;
    fy__point_t dependencies[FY__JOB_DEPENDENCIES]; /* requests that used the bytes before */
};

typedef struct slot {
    uint64_t seq;
    bool is_running;
    fy__point_t native; /* finished: stands for the work; 0: nothing to wait for */
    uint32_t record;    /* finished: of its failure */
} slot_t;

/* Guards everything below; `made` is also read without it. Taken after all other locks of the
 * runtime but a stream's. */
pthread_mutex_t fy__external_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t finished;
static fy_stream_t *timeline;
static slot_t slots[SLOTS];
static uint64_t forgotten; /* the last number whose failure is no longer stored */

/* ---- the timeline ---- */

static void look(fy_stream_t *stream, uint64_t seq, fy__job_view_t *out_view)
{
    (void)stream;
    *out_view = (fy__job_view_t){ .state = FY__JOB_OVER };
    fy__lock(&fy__external_lock);
    const slot_t *slot = &slots[seq % SLOTS];
    if (slot->seq == seq) {
        out_view->state = slot->is_running ? FY__JOB_STANDING
                          : slot->native   ? FY__JOB_STARTED
                                           : FY__JOB_OVER;
        out_view->native = slot->native;
        out_view->record = slot->record;
    } else if (seq <= forgotten) {
        out_view->record = FY__POISON_FORGOTTEN;
    }
    fy__unlock(&fy__external_lock);
}

static uint64_t earlier(uint64_t a, uint64_t b) { return a < b ? a : b; }

static fy_status_t await(fy_stream_t *stream, uint64_t seq, uint64_t timeout_ns,
                         fy__wait_site_t site)
{
    const slot_t *slot = &slots[seq % SLOTS];
    if (fy__external_is_own(FY__POINT(stream->index, seq))) return FY_STATUS_OK;
    const bool asks = fy__interrupt_may_end(stream->device, site);
    const uint64_t now_ns = fy__now_ns();
    const uint64_t end_ns = timeout_ns < FY_FOREVER - now_ns ? now_ns + timeout_ns : FY_FOREVER;
    uint64_t next_ns = asks ? earlier(end_ns, now_ns + FY__INTERRUPT_NS) : end_ns;
    fy_status_t status = FY_STATUS_OK;
    fy__lock(&fy__external_lock);
    while (status == FY_STATUS_OK && slot->seq == seq && slot->is_running) {
        const int code = next_ns == FY_FOREVER
                             ? pthread_cond_wait(&finished, &fy__external_lock)
                             : fy__condition_wait(&finished, &fy__external_lock, next_ns);
        if (code != ETIMEDOUT || slot->seq != seq || !slot->is_running) continue;
        fy__unlock(&fy__external_lock);
        status = next_ns == end_ns ? FY_FAIL(TIMEOUT, "external work %llu is not finished",
                                             (unsigned long long)seq)
                                   : fy__interrupt_ask(stream->device);
        next_ns = earlier(end_ns, fy__now_ns() + FY__INTERRUPT_NS);
        fy__lock(&fy__external_lock);
    }
    fy__unlock(&fy__external_lock);
    return status;
}

static fy_status_t submit(fy_stream_t *stream, uint64_t seq, fy__point_t *out_native)
{
    fy__job_view_t view;
    fy__thread_t *thread = fy__thread();
    *out_native = 0;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (thread->external == FY__POINT(stream->index, seq)) return FY_STATUS_OK;
    look(stream, seq, &view);
    if (view.state == FY__JOB_STANDING) {
        const uint64_t start_ns = fy__now_ns();
        FY_TRY(await(stream, seq, FY_FOREVER, FY__WAIT_NONE));
        fy__throttled(thread, "external", start_ns);
        look(stream, seq, &view);
    }
    *out_native = view.native;
    return fy__point_submit(out_native); /* it may be a queued transfer */
}

static bool cancel(fy_stream_t *stream, uint64_t seq)
{
    (void)stream;
    (void)seq;
    return false;
}
static void pump(fy_stream_t *stream) { (void)stream; }
static fy_status_t drain(fy_stream_t *stream, uint64_t timeout_ns)
{
    (void)stream;
    (void)timeout_ns;
    return FY_STATUS_OK;
}

static const fy__timeline_t functions = { look, submit, cancel, pump, drain, pump, await };

fy_status_t fy__external_await(const fy__hazard_t *hazard)
{
    fy__point_t points[1 + FY__READER_COUNT], native;
    const uint32_t count = fy__hazard_points(hazard, points);
    for (uint32_t i = 0; i < count; i++) {
        fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(points[i]));
        if (atomic_load_explicit(&stream->timeline, memory_order_acquire) != &functions) continue;
        FY_TRY(submit(stream, FY__POINT_SEQ(points[i]), &native));
    }
    return FY_STATUS_OK;
}

/* ---- begin ---- */

static void depend(fy_external_t *external, fy__point_t point)
{
    const fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(point));
    if (!stream || fy__stream_is_past(stream, FY__POINT_SEQ(point))) return;
    external->dependencies[external->ndependencies++] = point;
}

/* On an asynchronous device the words name the work; on the host two fields refuse other uses. The
 * readers of a host source are words as well: an upload, or later work, replaces `borrow`. One word
 * is for all work: the next piece depends on the last one and so covers it. */
static void mark(fy_external_t *external)
{
    fy__storage_t *src = external->src, *dst = external->dst;
    fy__point_t points[1 + FY__READER_COUNT];
    if (dst && !dst->device->synchronous) {
        const uint32_t count = fy__hazard_points(&dst->hazard, points);
        for (uint32_t i = 0; i < count; i++) depend(external, points[i]);
        fy__hazard_written(&dst->hazard, external->point);
    } else if (dst) {
        fy__storage_lend(dst, external->point);
        fy__storage_poison(dst, FY__POISON_EXTERNAL);
    }
    if (!src || src == dst) return;
    depend(external, atomic_load(&src->hazard.writer));
    depend(external, fy__hazard_read_job(&src->hazard, FY__READER_OTHER, external->point));
    if (src->device->synchronous) fy__storage_lend(src, external->point);
}

/* The lock is held. */
static fy_status_t take_number(fy_external_t *external)
{
    if (!timeline) {
        FY_TRY(fy__stream_open_timeline(fy_device_host(), FY__READER_OTHER, "external", &functions,
                                        NULL, &timeline));
        fy__condition_init(&finished);
    }
    const uint64_t seq = atomic_load(&timeline->submitted) + 1;
    slot_t *slot = &slots[seq % SLOTS];
    if (slot->is_running)
        return FY_FAIL(BUSY, "%s: %d pieces of external work are not finished; wait for a ticket",
                       external->what, SLOTS);
    if (slot->record) forgotten = slot->seq;
    if (!slot->native || fy__point_reached(slot->native))
        atomic_store_explicit(&timeline->done, slot->seq, memory_order_release);
    *slot = (slot_t){ .seq = seq, .is_running = true };
    external->point = FY__POINT(timeline->index, seq);
    atomic_store_explicit(&timeline->submitted, seq, memory_order_release);
    return FY_STATUS_OK;
}

static fy_status_t check_tensor(fy__thread_t *thread, const char *what, const char *role,
                                const fy_tensor_t *tensor)
{
    if (!tensor) return FY_STATUS_OK;
    if (fy__tensor_is_gone(tensor)) return fy__refuse_gone(what, role);
    if (fy__device_is_lost(tensor->storage->device))
        return fy__device_lost_error(tensor->storage->device);
    return fy__recording_check(thread, tensor->storage->device, what);
}

static fy_status_t check(fy__thread_t *thread, const char *what, const fy_tensor_t *src,
                         const fy_tensor_t *dst)
{
    FY_TRY(check_tensor(thread, what, "src", src));
    FY_TRY(check_tensor(thread, what, "dst", dst));
    if (src && src->storage->taint.poison) return fy__poison_fail(src->storage->taint.poison, what);
    if (src && src->storage->device->synchronous)
        FY_TRY(fy__taint_resolve(src->storage->device, &src->storage->taint, what));
    if (src) { /* other work may read it at the same time */
        const fy__hazard_t writer = { .writer = atomic_load(&src->storage->hazard.writer) };
        FY_TRY(fy__external_await(&writer));
    }
    if (!dst) return FY_STATUS_OK;
    FY_TRY(fy__tensor_check_writable(dst, what, "dst"));
    FY_TRY(fy__storage_check_borrow(dst->storage, what));
    return fy__external_await(&dst->storage->hazard);
}

fy_status_t fy_external_begin(const char *what, fy_tensor_t *src, fy_tensor_t *dst,
                              fy_external_t **out_external, fy_ticket_t *out_ticket)
{
    fy__thread_t *thread = fy__thread();
    if (out_external) *out_external = NULL;
    if (out_ticket) *out_ticket = (fy_ticket_t){ 0, 0 };
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!what || !out_external || !out_ticket)
        return FY_FAIL(INVALID_ARGUMENT, "external_begin: %s is NULL",
                       !what           ? "what"
                       : !out_external ? "out_external"
                                       : "out_ticket");
    FY_TRY(check(thread, what, src, dst));
    fy_external_t *external = calloc(1, sizeof *external);
    if (!external)
        return FY_FAIL(OUT_OF_MEMORY, "%s: no host memory for %zu bytes", what, sizeof *external);
    snprintf(external->what, sizeof external->what, "%s", what);
    fy__lock(&fy__external_lock);
    const fy_status_t status = take_number(external);
    fy__unlock(&fy__external_lock);
    if (status != FY_STATUS_OK) {
        free(external);
        return status;
    }
    external->src = src ? src->storage : NULL;
    external->dst = dst ? dst->storage : NULL;
    if (src) fy__storage_retain(external->src);
    if (dst) fy__storage_retain(external->dst);
    fy__heritage_take(thread, &external->heritage);
    mark(external);
    for (uint32_t i = 0; i < external->ndependencies; i++) /* a wait covers no later request */
        fy__stream_anchor(fy__stream_at(FY__POINT_STREAM(external->dependencies[i])));
    if (dst) fy__storage_wrote(dst->storage);
    *out_external = external;
    *out_ticket = fy__point_ticket(external->point);
    return FY_STATUS_OK;
}

/* ---- enter, leave, finish ---- */

static fy_status_t await_dependencies(const fy_external_t *external)
{
    for (uint32_t i = 0; i < external->ndependencies; i++)
        FY_TRY(fy__point_wait(external->dependencies[i], FY_FOREVER, FY__WAIT_NONE));
    return FY_STATUS_OK;
}

fy_status_t fy_external_enter(fy_external_t *external)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!external) return FY_FAIL(INVALID_ARGUMENT, "external_enter: external is NULL");
    if (thread->external || thread->depth)
        return FY_FAIL(INVALID_ARGUMENT, "external_enter: this thread has %s",
                       thread->external ? "entered other work: fy_external_leave"
                                        : "a scope open, and the work has its own");
    FY_TRY(await_dependencies(external));
    fy__heritage_enter(thread, &external->heritage);
    thread->external = external->point;
    return FY_STATUS_OK;
}

void fy_external_leave(fy_external_t *external)
{
    fy__thread_t *thread = fy__thread();
    if (!external || !thread || thread->external != external->point) return;
    fy__heritage_leave(thread);
    thread->external = 0;
}

/* The host's tensors can be used again. The loan of a source ends when someone wants to write it
 * and finds all its readers done: fy__storage_check_borrow. */
static void unmark(fy_external_t *external, uint32_t record)
{
    fy__storage_t *dst = external->dst;
    if (dst && (record || dst->device->synchronous)) {
        if (dst->device->synchronous)
            fy__storage_poison(dst, record);
        else
            fy__storage_late_add(dst->device, dst, &(fy__taint_t){ .poison = record });
    }
    if (dst && dst->device->synchronous) atomic_store(&dst->borrow, 0);
}

void fy_external_finish(fy_external_t *external, fy_ticket_t last, fy_status_t status)
{
    fy__thread_t *thread = fy__thread();
    if (!external) return;
    const uint64_t seq = FY__POINT_SEQ(external->point);
    uint32_t record = 0;
    fy_external_leave(external);
    fy__point_t native;
    if (!fy__ticket_point(last, &native) && status == FY_STATUS_OK)
        status = fy__ticket_refuse("external_finish", last);
    if (last.stream == FY__POINT_STREAM(external->point)) native = 0;
    if (status != FY_STATUS_OK)
        record = fy__poison_record(status, "%s: %s", external->what, fy_error_get()->text);
    /* nothing stands for the work: requests after it are behind those before it */
    if (!native) (void)await_dependencies(external);
    unmark(external, record);
    fy__lock(&fy__external_lock);
    slots[seq % SLOTS] = (slot_t){
        .seq = seq,
        .native = native,
        .record = record,
    };
    pthread_cond_broadcast(&finished);
    fy__unlock(&fy__external_lock);
    fy__heritage_release(&external->heritage);
    /* without memory for this thread's state the bytes stay; what waits for the work goes on */
    if (thread && external->src) fy__storage_release(thread, external->src);
    if (thread && external->dst) fy__storage_release(thread, external->dst);
    free(external);
}

/* ---- fork ---- */

/* The threads that do the work are not in the child. */
void fy__external_fork_child(void)
{
    for (int i = 0; i < SLOTS; i++) {
        if (slots[i].is_running) slots[i].record = FY__POISON_FORGOTTEN;
        slots[i].is_running = false;
    }
    if (timeline) fy__condition_init(&finished);
    pthread_mutex_unlock(&fy__external_lock);
}
