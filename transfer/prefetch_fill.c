/* The producer of a prefetch: waits for the uploads that last read a room's host side, has it
 * filled, requests its uploads. Uses of the room's device side are waited for by the device. */
#include <ferry/transfer.h>

#include "runtime/order/stream.h"
#include "runtime/tensor/tensor.h"
#include "transfer/prefetch.h"

/* Waits until no upload reads these bytes in place: neither the upload that borrowed them nor a
 * later one. */
static fy_status_t wait_for_bytes(fy_device_t *device, fy__storage_t *storage, uint64_t *blocked_ns)
{
    fy__point_t point = atomic_load_explicit(&storage->borrow, memory_order_acquire);
    if (!point) return FY_STATUS_OK;
    for (int i = -1; i < FY__READER_COUNT; i++) {
        if (i >= 0) point = atomic_load_explicit(&storage->hazard.readers[i], memory_order_acquire);
        if (!point || (fy__point_reached(point) && !fy__device_is_lost(device))) continue;
        const uint64_t start_ns = fy__now_ns();
        const fy_status_t status = fy__point_wait(point, FY_FOREVER, FY__WAIT_PREFETCH_ROOM);
        *blocked_ns += fy__now_ns() - start_ns;
        FY_TRY(status);
    }
    return FY_STATUS_OK;
}

/* Waits until the host side of the room may be written: at most for the device's work on the batch
 * depth + 1 before. */
static fy_status_t wait_for_room(const fy_prefetch_t *prefetch, const fy__room_t *room,
                                 uint64_t *blocked_ns)
{
    for (size_t i = 0; i < prefetch->count; i++)
        FY_TRY(wait_for_bytes(prefetch->device, room->host[i]->storage, blocked_ns));
    return FY_STATUS_OK;
}

static fy_status_t run_fill(fy_prefetch_t *prefetch, fy__thread_t *thread, fy_batch_t *batch)
{
    const fy_status_t before = thread->error.status;
    thread->error.status = FY_STATUS_OK; /* to distinguish a new failure from an old record */
    atomic_store(&prefetch->filling, thread);
    const fy_status_t status = prefetch->fill(prefetch->user, batch);
    atomic_store(&prefetch->filling, NULL);
    if (status != FY_STATUS_OK) {
        if (thread->error.status == status) return status;
        return fy_error_set(
            status, __FILE__, __LINE__,
            "prefetch: fill failed with %s for batch %llu without an error text (fy_error_set)",
            fy_status_name(status), (unsigned long long)batch->index);
    }
    thread->error.status = before;
    if (!batch->is_end && (batch->rows < 1 || batch->rows > prefetch->rows))
        return FY_FAIL(INVALID_ARGUMENT,
                       "prefetch: fill set rows to %lld for batch %llu; there is room for 1 to "
                       "%lld\n  Set is_end if there is no such "
                       "batch",
                       (long long)batch->rows, (unsigned long long)batch->index,
                       (long long)prefetch->rows);
    return FY_STATUS_OK;
}

/* The first `rows` rows, in no scope. */
static fy_status_t first_rows(fy_tensor_t *tensor, int64_t rows, fy_tensor_t **out_view)
{
    FY_TRY(fy_slice(tensor, 0, 0, rows, out_view));
    fy_tensor_keep(*out_view);
    return FY_STATUS_OK;
}

static fy_status_t upload(const fy_prefetch_t *prefetch, fy__room_t *room, size_t i)
{
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    fy_tensor_t *src = room->host[i], *dst = room->device[i];
    fy_ticket_t ticket;
    options.contract = FY_HOST_BORROW;
    options.site = "fy_prefetch";
    if (room->rows < prefetch->rows) {
        FY_TRY(first_rows(dst, room->rows, &room->views[i]));
        FY_TRY(fy_slice(src, 0, 0, room->rows, &src)); /* owned by the scope */
        dst = room->views[i];
    }
    /* clears the faults of an old batch; none of its bytes is used again */
    dst->storage->taint = (fy__taint_t){ 0, 0, 0 };
    fy__storage_late_clear(prefetch->device, dst->storage);
    return fy_tensor_upload_into(dst, src, &options, &ticket);
}

static fy_status_t produce(fy_prefetch_t *prefetch, fy__thread_t *thread, uint64_t index,
                           fy__room_t *room, uint64_t *blocked_ns)
{
    FY_TRY(wait_for_room(prefetch, room, blocked_ns));
    fy_batch_t batch = { index, prefetch->count, room->host, prefetch->rows, 0 };
    FY_TRY(run_fill(prefetch, thread, &batch));
    if (batch.is_end) return FY_STATUS_OK;
    room->rows = batch.rows;
    for (size_t i = 0; i < prefetch->count; i++) FY_TRY(upload(prefetch, room, i));
    return FY_STATUS_OK;
}

void fy__prefetch_produce(fy_prefetch_t *prefetch, fy__thread_t *thread, uint64_t index,
                          uint64_t *blocked_ns)
{
    fy__room_t *room = &prefetch->rooms[index % prefetch->nrooms];
    const fy_scope_t scope = fy_scope_begin("prefetch");
    for (size_t i = 0; i < prefetch->count; i++) {
        fy_tensor_destroy(room->views[i]);
        room->views[i] = NULL;
    }
    room->rows = 0;
    room->status = produce(prefetch, thread, index, room, blocked_ns);
    if (room->status != FY_STATUS_OK) fy__error_save(&room->error);
    fy_scope_end(scope, 0, NULL);
}

void *fy__prefetch_run(void *user)
{
    fy_prefetch_t *prefetch = user;
    fy__thread_t *thread = fy__thread();
    uint64_t blocked_ns = 0; /* not counted: waiting is this thread's purpose */
    if (thread) fy__heritage_enter(thread, &prefetch->heritage);
    pthread_mutex_lock(&prefetch->lock);
    for (bool is_over = false; !prefetch->stops && !is_over;) {
        const uint64_t index = prefetch->produced;
        if (index - prefetch->handed_back >= prefetch->nrooms) {
            pthread_cond_wait(&prefetch->changed, &prefetch->lock);
            continue;
        }
        pthread_mutex_unlock(&prefetch->lock);
        fy__room_t *room = &prefetch->rooms[index % prefetch->nrooms];
        if (thread)
            fy__prefetch_produce(prefetch, thread, index, &blocked_ns);
        else {
            room->status = FY_STATUS_OUT_OF_MEMORY;
            room->error = (fy__error_copy_t){ .error = *fy_error_get() };
        }
        is_over = room->status == FY_STATUS_OK && !room->rows;
        pthread_mutex_lock(&prefetch->lock);
        prefetch->produced++;
        pthread_cond_broadcast(&prefetch->changed);
    }
    pthread_mutex_unlock(&prefetch->lock);
    if (thread) fy__heritage_leave(thread);
    return NULL;
}
