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

static FY_COLD void put_event(const fy__thread_t *thread, const fy__transfer_record_t *record)
{
    fy__event_t event = fy__event_begin(FY__EVENT_TRANSFER, thread);
    event.device = fy__event_device_text(record->device);
    event.point = record->point;
    event.nbytes = record->nbytes;
    event.ns = record->blocked_ns;
    event.u.transfer.site = record->site;
    event.caller = record->caller;
    event.u.transfer.other = record->other ? fy__event_device_text(record->other) : NULL;
    event.u.transfer.direction = record->direction;
    event.u.transfer.path = (int)record->path;
    event.u.transfer.contract = record->contract;
    event.u.transfer.priority = record->priority;
    const fy__storage_t *host = record->direction == FY__UPLOAD     ? record->src
                                : record->direction == FY__DOWNLOAD ? record->dst
                                                                    : NULL;
    event.u.transfer.pinned = host ? host->pinned : -1;
    event.u.transfer.src = fy__event_bytes(&event, record->src);
    event.u.transfer.dst = fy__event_bytes(&event, record->dst);
    if (record->src_tensor) event.u.transfer.src.name = fy__event_name(record->src_tensor);
    if (record->dst_tensor) event.u.transfer.dst.name = fy__event_name(record->dst_tensor);
    const fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(record->point));
    /* a job's event follows when it is submitted */
    if (stream && !stream->timeline) fy__event_span(&event, record->device);
    fy__event_put(&event);
}

void fy__transfer_note(fy__thread_t *thread, const fy__transfer_record_t *record)
{
    fy__traffic_counters_t *traffic = &thread->node->traffic[record->direction];
    fy__count(&traffic->count, 1);
    fy__count(&traffic->nbytes, record->nbytes);
    fy__count(&traffic->by_path[record->path], 1);
    if (record->blocked_ns) fy__count(&traffic->blocked_ns, record->blocked_ns);
    fy__guard_charge_transfer(thread, record->direction, record->nbytes);
    FY__EVENT(put_event(thread, record));
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
