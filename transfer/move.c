/* The steps of transfers, and their records. */
#include "transfer/move.h"

#include "runtime/base/abi_structs.h"
#include "runtime/base/fail.h"
#include "runtime/record/event_ring.h"
#include "runtime/record/recording.h"
#include "runtime/thread/guard.h"

fy_status_t fy__transfer_options_read(const char *what, const fy_transfer_options_t *options,
                                      fy_transfer_options_t *out_own)
{
    FY_TRY(FY__READ(transfer_options, what, options, out_own));
    if (out_own->contract != FY_HOST_COPY && out_own->contract != FY_HOST_BORROW)
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: contract %d is neither FY_HOST_COPY nor FY_HOST_BORROW", what,
                       (int)out_own->contract);
    if ((unsigned)out_own->dtype >= FY_DTYPE_COUNT && out_own->dtype != FY_DTYPE_SAME)
        return FY_FAIL(INVALID_ARGUMENT, "%s: options->dtype %d is no dtype", what,
                       (int)out_own->dtype);
    return FY_STATUS_OK;
}

fy_status_t fy__move_begin(fy__move_t *move, const fy_transfer_options_t *options,
                           const fy_tensor_t *tensor, const char *name, const void *other,
                           const char *other_name)
{
    move->thread = fy__thread();
    if (!move->thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!tensor || !other)
        return FY_FAIL(INVALID_ARGUMENT, "%s: %s is NULL", move->what, tensor ? other_name : name);
    if (fy__tensor_is_gone(tensor)) return fy__refuse_gone(move->what, name);
    if (move->dst && fy__tensor_is_gone(move->dst)) return fy__refuse_gone(move->what, "dst");
    FY_TRY(fy__transfer_options_read(move->what, options, &move->options));
    move->dtype = move->options.dtype == FY_DTYPE_SAME ? (fy_dtype_t)tensor->dtype
                                                       : move->options.dtype;
    move->nbytes = move->direction == FY__UPLOAD ? fy__tensor_nbytes(tensor)
                                                 : tensor->nelem * fy__dtype_sizes[move->dtype];
    return FY_STATUS_OK;
}

fy_status_t fy__move_check_device(const fy__move_t *move, const fy_device_t *device)
{
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    return fy__recording_check(move->thread, device, move->what);
}

fy_status_t fy__move_check_dtype(const char *what, const fy_tensor_t *dst,
                                 const fy_transfer_options_t *options)
{
    if (options->dtype == FY_DTYPE_SAME || options->dtype == (fy_dtype_t)dst->dtype)
        return FY_STATUS_OK;
    return FY_FAIL(INVALID_ARGUMENT,
                   "%s: options->dtype is %s but dst is %s; leave it at FY_DTYPE_SAME", what,
                   fy_dtype_name(options->dtype), fy_dtype_name((fy_dtype_t)dst->dtype));
}

fy_status_t fy__move_check_shapes(const char *what, const fy_tensor_t *dst, const fy_tensor_t *src)
{
    char texts[2][128];
    bool same = dst->rank == src->rank;
    for (int i = 0; same && i < dst->rank; i++) same = dst->dims[i] == src->dims[i];
    if (same) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH, "%s: dst is %s, src is %s; the shapes must be equal", what,
                   fy__tensor_format(dst, texts[0], 128), fy__tensor_format(src, texts[1], 128));
}

fy_status_t fy__move_make_dst(fy__move_t *move, fy_device_t *to, fy_stream_t *stream,
                              fy_tensor_t **out_dst)
{
    const fy_tensor_t *src = move->src;
    FY_TRY(fy__guard_check_transfer(move->thread, move->direction, move->nbytes, move->what));
    FY_TRY(fy__guard_settled(move->thread, fy__tensor_new(move->thread, to, move->dtype, src->rank,
                                                          src->dims, src->nelem, stream, out_dst)));
    move->dst = *out_dst;
    return FY_STATUS_OK;
}

void fy__move_drop_dst(const fy__move_t *move, fy_tensor_t **out_dst)
{
    fy__error_copy_t first;
    fy__error_save(&first);
    fy__tensor_free(move->thread, *out_dst);
    *out_dst = NULL;
    fy__error_restore(&first);
}

fy_status_t fy__copy_submit(fy_device_t *device, fy_stream_t *stream, const char *what,
                            fy_copy_t copy, fy__point_t *out_point, uint64_t *out_request)
{
    *out_point = 0;
    *out_request = 0;
    if (FY_UNLIKELY(device->info.copies_can_fault))
        FY_TRY(fy__fault_begin(device, (fy__fault_cause_t){ what, FY__FAULT_OF_COPY }, out_request,
                               &copy.fault));
    const fy_status_t status =
        fy__device_check(device, device->backend->copy(device->dev, stream->native, &copy));
    if (status == FY_STATUS_OK) *out_point = fy__stream_submitted_anchored(stream);
    if (*out_request) fy__fault_end(device, *out_request, *out_point);
    if (status != FY_STATUS_OK) *out_request = 0;
    return status;
}

fy_status_t fy__copy_submit_many(fy_device_t *device, fy_stream_t *stream, size_t count,
                                 const fy_copy_t *copies, fy__point_t *out_point)
{
    const fy_status_t status = fy__device_check(
        device, device->backend->copy_many(device->dev, stream->native, count, copies));
    *out_point = fy__stream_submitted_anchored(stream);
    return status;
}

/* ---- records ---- */

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
