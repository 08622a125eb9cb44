/* Tickets: points on streams' timelines as public values. A ticket is a plain value, so a caller
 * may pass any bits: each call checks them first. Not here: how a point is reached or waited for
 * (stream.c). */
#include <ferry/stream.h>

#include "runtime/base/fail.h"
#include "runtime/order/callback.h"
#include "runtime/order/stream.h"
#include "runtime/record/recording.h"
#include "runtime/tensor/storage.h"
#include "runtime/thread/guard.h"
#include "runtime/thread/thread.h"

bool fy__ticket_point(fy_ticket_t ticket, fy__point_t *out_point)
{
    *out_point = 0;
    /* numbers start at 1 */
    if (!ticket.stream || !ticket.seq) return !ticket.stream && !ticket.seq;
    const fy_stream_t *stream =
        ticket.stream < FY__MAX_STREAMS ? fy__stream_at((uint32_t)ticket.stream) : NULL;
    if (!stream || ticket.seq > atomic_load_explicit(&stream->submitted, memory_order_acquire))
        return false;
    *out_point = FY__POINT(ticket.stream, ticket.seq);
    return true;
}

fy_status_t fy__ticket_refuse(const char *what, fy_ticket_t ticket)
{
    if (ticket.stream == FY__TICKET_RECORDED)
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: this transfer is recorded in a graph: it runs at each replay, so its "
                       "ticket is never done\n"
                       "  Use the ticket of the replay: fy_graph_replay(graph, &ticket)",
                       what);
    return FY_FAIL(INVALID_ARGUMENT, "%s: {%llu, %llu} is no ticket of this process", what,
                   (unsigned long long)ticket.stream, (unsigned long long)ticket.seq);
}

uint32_t fy__point_fault(fy_device_t *device, fy__point_t point)
{
    fy__job_view_t view;
    while (fy__point_job_view(point, &view)) {
        if (view.record) return view.record;
        if (!view.native) break;
        point = view.native;
        const fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(point));
        if (stream) device = stream->device;
    }
    return fy__fault_at(device, point);
}

fy_status_t fy__point_status(fy__point_t point, const char *what)
{
    fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(point));
    const uint32_t record = fy__point_fault(stream->device, point);
    if (record) return fy__poison_fail(record, what);
    if (fy__stream_took_along(stream, FY__POINT_SEQ(point)))
        return FY_FAIL(DEVICE_LOST,
                       "%s: the device of this request was lost and has been closed since", what);
    /* Nothing to wait for: it is done, or the device is lost. (For a foreign queue a wait would
     * include the work of other submitters.) */
    if (!stream->timeline && atomic_load(&stream->done) >= FY__POINT_SEQ(point))
        return FY_STATUS_OK;
    return fy__point_wait(point, 0, FY__WAIT_NONE);
}

fy_poll_t fy_ticket_poll(fy_ticket_t ticket)
{
    fy__job_view_t view;
    fy__point_t point;
    if (!fy__ticket_point(ticket, &point)) return FY_POLL_FAILED;
    if (!point) return FY_POLL_DONE;
    fy__device_pump(fy__stream_at(FY__POINT_STREAM(point))->device);
    fy__callback_nudge();
    if (fy__point_job_view(point, &view)) {
        if (view.record) return FY_POLL_FAILED;
        if (view.state == FY__JOB_STARTED) point = view.native;
    }
    if (!fy__wait_drops(FY__WAIT_TICKET_POLL) && !fy__point_reached(point)) return FY_POLL_PENDING;
    if (fy__point_is_lost(point)) return FY_POLL_FAILED;
    return fy__point_fault(fy__stream_at(FY__POINT_STREAM(point))->device, point) ? FY_POLL_FAILED
                                                                                  : FY_POLL_DONE;
}

fy_status_t fy_ticket_wait(fy_ticket_t ticket, uint64_t timeout_ns)
{
    fy__thread_t *thread = fy__thread();
    fy__point_t point;
    uint64_t start_ns;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!fy__ticket_point(ticket, &point)) return fy__ticket_refuse("ticket_wait", ticket);
    if (point)
        FY_TRY(fy__recording_check(thread, fy__stream_at(FY__POINT_STREAM(point))->device,
                                   "ticket_wait"));
    FY_TRY(fy__sync_begin(thread, "ticket_wait", FY__WAIT_TICKET, point, &start_ns));
    fy_status_t status = FY_STATUS_OK;
    if (point) {
        fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(point));
        /* another thread may close it during the wait */
        fy_device_t *device = stream->device, *held = fy__device_hold(device);
        fy__job_view_t view;
        /* a cancelled transfer fails at once, without a wait for its place in the order */
        if (fy__point_job_view(point, &view) && view.cancelled)
            status = fy__poison_fail(view.record, "ticket_wait");
        else
            status = fy__point_wait(point, timeout_ns, FY__WAIT_TICKET);
        if (status == FY_STATUS_OK && fy__stream_took_along(stream, ticket.seq))
            status = FY_FAIL(
                DEVICE_LOST,
                "ticket_wait: the device of this request was lost and has been closed since");
        if (status == FY_STATUS_OK) {
            const uint32_t record = fy__point_fault(device, point);
            fy__device_pump(device);
            fy__callback_nudge();
            if (record) status = fy__poison_fail(record, "ticket_wait");
            fy__storage_reap(device);
        }
        if (held) fy__device_unuse(held);
    }
    fy__sync_end(thread, start_ns);
    return status;
}

fy_status_t fy_stream_wait(fy_stream_t *stream, fy_ticket_t ticket)
{
    fy__thread_t *thread = fy__thread();
    fy__point_t point;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    FY_TRY(fy__stream_check(stream, "stream_wait"));
    if (!fy__ticket_point(ticket, &point)) return fy__ticket_refuse("stream_wait", ticket);
    FY_TRY(fy__recording_check(thread, stream->device, "stream_wait"));
    if (fy__wait_drops(FY__WAIT_STREAM_WAIT)) return FY_STATUS_OK;
    return fy__stream_wait_point(stream, point, FY__WAIT_STREAM_WAIT);
}

fy_status_t fy_ticket_cancel(fy_ticket_t ticket)
{
    fy__point_t point;
    if (!fy__thread()) return FY_STATUS_OUT_OF_MEMORY;
    if (!fy__ticket_point(ticket, &point)) return fy__ticket_refuse("ticket_cancel", ticket);
    if (fy__point_cancel(point)) return FY_STATUS_OK;
    return FY_FAIL(
        BUSY,
        "ticket_cancel: the request {%llu, %llu} has started, or is done; it cannot be cancelled",
        (unsigned long long)ticket.stream, (unsigned long long)ticket.seq);
}

fy_status_t fy_ticket_on_done(fy_ticket_t ticket, fy_done_fn fn, void *user)
{
    fy__point_t point;
    if (!fy__thread()) return FY_STATUS_OUT_OF_MEMORY;
    if (!fn) return FY_FAIL(INVALID_ARGUMENT, "ticket_on_done: fn is NULL");
    if (!fy__ticket_point(ticket, &point)) return fy__ticket_refuse("ticket_on_done", ticket);
    return fy__callback_add(point, fn, user);
}

/* ---- waits that block, in pieces between which the program's function may end them ---- */

void fy_interrupt_set(fy_interrupt_fn fn, void *user)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return;
    thread->interrupt = fn;
    thread->interrupt_user = user;
}

/* Does the program's function end this wait? Only waits that the program requested: after others,
 * such as those for a free slot, a call would be half done. */
bool fy__interrupt_may_end(const fy_device_t *device, fy__wait_site_t site)
{
    const fy__thread_t *thread = fy__thread();
    return thread && thread->interrupt && !device->backend->clock &&
           (site == FY__WAIT_TICKET || site == FY__WAIT_DOWNLOAD_ARRIVE ||
            (site == FY__WAIT_DRAIN && thread->in_device_wait));
}

fy_status_t fy__interrupt_ask(const fy_device_t *device)
{
    const fy__thread_t *thread = fy__thread();
    return thread->interrupt(thread->interrupt_user)
               ? FY_FAIL(CANCELLED,
                         "the wait for %s was interrupted by the function of fy_interrupt_set; "
                         "the request goes on\n  Wait again, or drop its results",
                         device->spec)
               : FY_STATUS_OK;
}

fy_status_t fy__event_block(fy_device_t *device, void *event, uint64_t timeout_ns,
                            fy__wait_site_t site)
{
    if (!fy__interrupt_may_end(device, site))
        return device->backend->event_sync(device->dev, event, timeout_ns);
    for (uint64_t left_ns = timeout_ns;;) {
        const uint64_t slice_ns = left_ns < FY__INTERRUPT_NS ? left_ns : FY__INTERRUPT_NS;
        const fy_status_t status = device->backend->event_sync(device->dev, event, slice_ns);
        if (left_ns != FY_FOREVER) left_ns -= slice_ns;
        if (status != FY_STATUS_TIMEOUT || !left_ns) return status;
        FY_TRY(fy__interrupt_ask(device));
    }
}
