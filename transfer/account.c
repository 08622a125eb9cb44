/* Records transfers. */
#include "transfer/account.h"

#include "runtime/base/fail.h"
#include "runtime/order/stream.h"
#include "runtime/record/event_ring.h"
#include "runtime/thread/guard.h"

const char *fy_path_name(fy_path_t path)
{
    static const char *const names[] = {
#define X(name, text) #text,
        FY_PATH_LIST(X)
#undef X
    };
    return (unsigned)path < FY_PATH_COUNT ? names[path] : "?";
}

static FY_COLD void put_event(const fy__move_t *move)
{
    const fy__storage_t *src = move->src ? move->src->storage : move->from;
    const fy__storage_t *dst = move->dst ? move->dst->storage : move->to;
    const bool is_upload = move->direction == FY__UPLOAD;
    fy__event_t event = fy__event_begin(FY__EVENT_TRANSFER, move->thread);
    event.device = fy__event_device_text(move->device);
    event.point = move->point;
    event.nbytes = move->nbytes;
    event.ns = move->blocked_ns;
    event.u.transfer.site = move->options.site;
    event.caller = move->caller;
    event.u.transfer.other = move->other ? fy__event_device_text(move->other) : NULL;
    event.u.transfer.direction = move->direction;
    event.u.transfer.path = (int)move->path;
    event.u.transfer.contract = is_upload && src ? (int)move->options.contract : FY_HOST_COPY;
    event.u.transfer.priority = move->options.priority;
    const fy__storage_t *host = is_upload ? src : move->direction == FY__DOWNLOAD ? dst : NULL;
    event.u.transfer.pinned = host ? host->pinned : -1;
    event.u.transfer.src = fy__event_bytes(&event, src);
    event.u.transfer.dst = fy__event_bytes(&event, dst);
    if (move->src) event.u.transfer.src.name = fy__event_name(move->src);
    if (move->dst) event.u.transfer.dst.name = fy__event_name(move->dst);
    const fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(move->point));
    /* a job's event follows when it is submitted */
    if (stream && !stream->timeline) fy__event_span(&event, move->device);
    fy__event_put(&event);
}

void fy__move_note(fy__move_t *move)
{
    fy__traffic_counters_t *traffic = &move->thread->node->traffic[move->direction];
    if (move->direction == FY__UPLOAD && move->dst)
        move->point =
            atomic_load_explicit(&move->dst->storage->hazard.writer, memory_order_relaxed);
    fy__count(&traffic->count, 1);
    fy__count(&traffic->nbytes, move->nbytes);
    fy__count(&traffic->by_path[move->path], 1);
    if (move->blocked_ns) fy__count(&traffic->blocked_ns, move->blocked_ns);
    fy__guard_charge_transfer(move->thread, move->direction, move->nbytes);
    FY__EVENT(put_event(move));
}

fy_status_t fy_ledger_collective(const char *what, uint64_t nbytes)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!what) return FY_FAIL(INVALID_ARGUMENT, "ledger_collective: what is NULL");
    FY_TRY(fy__guard_check_transfer(thread, FY__COLLECTIVE, nbytes, what));
    fy__count(&thread->node->traffic[FY__COLLECTIVE].count, 1);
    fy__count(&thread->node->traffic[FY__COLLECTIVE].nbytes, nbytes);
    fy__guard_charge_transfer(thread, FY__COLLECTIVE, nbytes);
    FY__EVENT(fy__event_collective(thread, what, nbytes));
    return FY_STATUS_OK;
}

void fy_ledger_collective_moved(uint64_t wire_nbytes, uint64_t copies, uint64_t blocked_ns)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return;
    fy__traffic_counters_t *traffic = &thread->node->traffic[FY__COLLECTIVE];
    fy__count(&traffic->wire_nbytes, wire_nbytes);
    fy__count(&traffic->copies, copies);
    fy__count(&traffic->blocked_ns, blocked_ns);
    FY__EVENT(fy__event_exchange(thread, wire_nbytes, copies, blocked_ns));
}

void fy_ledger_collective_ran(const char *what, int rank, uint64_t number, uint64_t start_ns,
                              fy_status_t status)
{
    fy__thread_t *thread = fy__thread();
    if (!thread || !what || rank < 0) return;
    FY__EVENT(fy__event_collective_ran(thread, what, rank, number, start_ns, status));
}
