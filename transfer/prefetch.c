/* Prefetch: depth + 1 buffers, called rooms. One producer (a thread, or the consumer itself) fills
 * and uploads them in order; the consumer gets one at a time. Batch b is in room b % nrooms. A room
 * is refilled after its batch was returned, when the consumer asks for the next one. The producer
 * waits for the uploads that last read a room's host side; the device waits for uses of its device
 * side. The lock is held only while counting, never while `fill` runs or an upload is requested. */
#include <ferry/prefetch.h>

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <ferry/tensor.h>
#include <ferry/transfer.h>

#include "runtime/base/abi_structs.h"
#include "runtime/base/fail.h"
#include "runtime/device/device.h"
#include "runtime/order/stream.h"
#include "runtime/record/recording.h"
#include "runtime/tensor/tensor.h"
#include "runtime/thread/guard.h"

enum { FY__PREFETCH_DEEPEST = 64 };

/* The producer owns it until it is counted in `produced`; then the consumer, until it asks for the
 * next batch. */
typedef struct fy__room {
    fy_tensor_t **host, **device; /* the full batch; in no scope */
    fy_tensor_t **views;          /* of `device`, for a batch that is not full; else NULLs */
    int64_t rows;                 /* 0: there is no such batch */
    fy_status_t status;
    fy__error_copy_t error; /* if status is not OK */
} fy__room_t;

struct fy_prefetch {
    fy__handle_t handle;
    fy_device_t *device;
    fy_prefetch_fn fill;
    void *user;
    size_t count;
    int64_t rows; /* of a full batch */
    uint32_t nrooms;
    bool has_thread;
    pid_t pid; /* the thread exists in this process only */
    pthread_t thread;
    fy__heritage_t heritage;        /* the thread's */
    fy__thread_t *_Atomic filling;  /* the thread that runs `fill` */
    uint64_t next;                  /* used by the consumer: batches requested so far */
    bool is_over;                   /* used by the consumer: it has seen the end */
    pthread_mutex_t lock;           /* guards the three below */
    pthread_cond_t changed;         /* one of the three changed */
    uint64_t produced, handed_back; /* batches */
    bool stops;                     /* the thread must end */
    fy_tensor_t **tensors;          /* memory of the rooms' lists */
    fy__room_t rooms[];
};

/* ---- the producer ---- */

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

/* Fills and uploads batch `index` into its room, in a scope "prefetch". Adds to *blocked_ns the
 * wait for the room's host side. */
static void produce_batch(fy_prefetch_t *prefetch, fy__thread_t *thread, uint64_t index,
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

/* The thread; user: the prefetch. */
static void *run(void *user)
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
            produce_batch(prefetch, thread, index, &blocked_ns);
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

/* ---- the public calls ---- */

static void free_prefetch(fy_prefetch_t *prefetch)
{
    for (uint32_t r = 0; r < prefetch->nrooms; r++)
        for (size_t i = 0; i < prefetch->count; i++) {
            fy_tensor_destroy(prefetch->rooms[r].views[i]);
            fy_tensor_destroy(prefetch->rooms[r].device[i]);
            fy_tensor_destroy(prefetch->rooms[r].host[i]);
        }
    fy__heritage_release(&prefetch->heritage);
    fy__handle_release(&prefetch->handle);
    free(prefetch->tensors);
    free(prefetch);
}

static fy_status_t make_rooms(fy_prefetch_t *prefetch, const fy_batch_spec_t *specs)
{
    for (uint32_t r = 0; r < prefetch->nrooms; r++)
        for (size_t i = 0; i < prefetch->count; i++) {
            const fy_batch_spec_t *spec = &specs[i];
            fy__room_t *room = &prefetch->rooms[r];
            FY_TRY(fy_tensor_create_pinned(prefetch->device, spec->dtype, spec->rank, spec->dims,
                                           &room->host[i]));
            fy_tensor_keep(room->host[i]);
            FY_TRY(fy_tensor_create(prefetch->device, spec->dtype, spec->rank, spec->dims,
                                    &room->device[i]));
            fy_tensor_keep(room->device[i]);
        }
    return FY_STATUS_OK;
}

static fy_status_t check_specs(size_t count, const fy_batch_spec_t *specs)
{
    uint64_t nelem, nbytes;
    for (size_t i = 0; i < count; i++) {
        FY_TRY(fy__shape_check("prefetch_create", specs[i].dtype, specs[i].rank, specs[i].dims,
                               &nelem, &nbytes));
        if (specs[i].rank < 1 || specs[i].dims[0] < 1)
            return FY_FAIL(INVALID_ARGUMENT,
                           "prefetch_create: specs[%zu] has no rows; dims[0] is the number of rows "
                           "of a full batch",
                           i);
        if (specs[i].dims[0] != specs[0].dims[0])
            return FY_FAIL(INVALID_ARGUMENT,
                           "prefetch_create: specs[%zu] has %lld rows, specs[0] has %lld; a batch "
                           "has one number of rows",
                           i, (long long)specs[i].dims[0], (long long)specs[0].dims[0]);
    }
    return FY_STATUS_OK;
}

static fy_status_t check(const fy_device_t *device, size_t count, const fy_batch_spec_t *specs,
                         fy_prefetch_fn fill, const fy_prefetch_options_t *options)
{
    if (!device || !specs || !fill)
        return FY_FAIL(INVALID_ARGUMENT, "prefetch_create: %s is NULL",
                       !device ? "device"
                       : specs ? "fill"
                               : "specs");
    if (!count || count > 1024)
        return FY_FAIL(INVALID_ARGUMENT,
                       "prefetch_create: %zu tensors a batch; there may be 1 to 1024", count);
    if (options->depth < 1 || options->depth > FY__PREFETCH_DEEPEST)
        return FY_FAIL(INVALID_ARGUMENT, "prefetch_create: depth is %d; it may be 1 to %d",
                       options->depth, FY__PREFETCH_DEEPEST);
    if (options->threads != 0 && options->threads != 1)
        return FY_FAIL(INVALID_ARGUMENT, "prefetch_create: threads is %d; it may be 0 or 1",
                       options->threads);
    return check_specs(count, specs);
}

fy_status_t fy_prefetch_create(fy_device_t *device, size_t count, const fy_batch_spec_t *specs,
                               fy_prefetch_fn fill, void *user,
                               const fy_prefetch_options_t *options, fy_prefetch_t **out_prefetch)
{
    fy_prefetch_options_t own;
    fy__thread_t *thread = fy__thread();
    if (!out_prefetch) return FY_FAIL(INVALID_ARGUMENT, "prefetch_create: out_prefetch is NULL");
    *out_prefetch = NULL;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    FY_TRY(FY__READ(prefetch_options, "prefetch_create", options, &own));
    options = &own;
    FY_TRY(check(device, count, specs, fill, options));
    FY_TRY(fy__recording_check(thread, device, "prefetch_create"));
    const uint32_t nrooms = (uint32_t)options->depth + 1;
    fy_prefetch_t *prefetch = calloc(1, sizeof *prefetch + nrooms * sizeof *prefetch->rooms);
    fy_tensor_t **tensors = calloc(3 * nrooms * count, sizeof(fy_tensor_t *));
    if (!prefetch || !tensors) {
        free(prefetch);
        free(tensors);
        return FY_FAIL(OUT_OF_MEMORY, "prefetch_create: no host memory for %zu bytes",
                       sizeof *prefetch + nrooms * sizeof(fy__room_t));
    }
    prefetch->handle.kind = FY__HANDLE_PREFETCH;
    prefetch->device = device;
    prefetch->fill = fill;
    prefetch->user = user;
    prefetch->count = count;
    prefetch->rows = specs[0].dims[0];
    prefetch->nrooms = nrooms;
    prefetch->has_thread = options->threads > 0;
    prefetch->pid = getpid();
    prefetch->tensors = tensors;
    for (uint32_t r = 0; r < nrooms; r++) {
        prefetch->rooms[r].host = tensors + 3 * r * count;
        prefetch->rooms[r].device = tensors + (3 * r + 1) * count;
        prefetch->rooms[r].views = tensors + (3 * r + 2) * count;
    }
    fy__heritage_take(thread, &prefetch->heritage);
    pthread_mutex_init(&prefetch->lock, NULL);
    pthread_cond_init(&prefetch->changed, NULL);
    fy_status_t status = make_rooms(prefetch, specs);
    const int failed = status == FY_STATUS_OK && prefetch->has_thread
                           ? fy__thread_start(&prefetch->thread, run, prefetch)
                           : 0;
    if (failed)
        status =
            FY_FAIL(OUT_OF_MEMORY,
                    "prefetch_create: the system starts no thread (error %d); threads=0 needs none",
                    failed);
    if (status != FY_STATUS_OK) {
        fy__error_copy_t first;
        fy__error_save(&first);
        free_prefetch(prefetch);
        fy__error_restore(&first);
        return status;
    }
    /* `fill` may use the scope's other handles until the scope ends */
    fy__handle_adopt_first(thread->frame, &prefetch->handle);
    *out_prefetch = prefetch;
    return FY_STATUS_OK;
}

/* Returns the consumer's batches to the producer, and waits for batch prefetch->next. */
static fy_status_t wait_for_batch(fy_prefetch_t *prefetch, uint64_t *blocked_ns)
{
    if (prefetch->pid != getpid())
        return FY_FAIL(UNAVAILABLE, "prefetch_next: the thread that fills the batches is not in "
                                    "this forked child; make a prefetch here");
    pthread_mutex_lock(&prefetch->lock);
    prefetch->handed_back = prefetch->next;
    pthread_cond_broadcast(&prefetch->changed);
    if (prefetch->produced == prefetch->next) {
        const uint64_t start_ns = fy__now_ns();
        while (prefetch->produced == prefetch->next)
            pthread_cond_wait(&prefetch->changed, &prefetch->lock);
        *blocked_ns += fy__now_ns() - start_ns;
    }
    pthread_mutex_unlock(&prefetch->lock);
    return FY_STATUS_OK;
}

/* Without a thread: produces the requested batch, then those ahead of it. */
static void produce_here(fy_prefetch_t *prefetch, fy__thread_t *thread, uint64_t *blocked_ns)
{
    prefetch->handed_back = prefetch->next;
    while (prefetch->produced - prefetch->handed_back < prefetch->nrooms) {
        const fy__room_t *last =
            &prefetch->rooms[(prefetch->produced + prefetch->nrooms - 1) % prefetch->nrooms];
        /* there is no batch after the end */
        if (prefetch->produced && last->status == FY_STATUS_OK && !last->rows) return;
        produce_batch(prefetch, thread, prefetch->produced++, blocked_ns);
    }
}

fy_status_t fy_prefetch_next(fy_prefetch_t *prefetch, fy_tensor_t **out_tensors, int64_t *out_rows)
{
    fy__thread_t *thread = fy__thread();
    uint64_t blocked_ns = 0;
    if (out_rows) *out_rows = 0;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!prefetch || !out_tensors || !out_rows)
        return FY_FAIL(INVALID_ARGUMENT, "prefetch_next: %s is NULL",
                       !prefetch     ? "prefetch"
                       : out_tensors ? "out_rows"
                                     : "out_tensors");
    for (size_t i = 0; i < prefetch->count; i++) out_tensors[i] = NULL;
    if (atomic_load(&prefetch->filling) == thread)
        return FY_FAIL(INVALID_ARGUMENT,
                       "prefetch_next: called inside its fill, which would wait for itself");
    /* a replay would repeat this batch */
    FY_TRY(fy__recording_check(thread, prefetch->device, "prefetch_next"));
    if (prefetch->is_over) return FY_STATUS_OK;
    if (prefetch->has_thread)
        FY_TRY(wait_for_batch(prefetch, &blocked_ns));
    else
        produce_here(prefetch, thread, &blocked_ns);
    if (blocked_ns) fy__count(&thread->node->traffic[FY__UPLOAD].blocked_ns, blocked_ns);
    const fy__room_t *room = &prefetch->rooms[prefetch->next++ % prefetch->nrooms];
    if (room->status != FY_STATUS_OK) {
        fy__error_restore(&room->error);
        return room->status;
    }
    prefetch->is_over = !room->rows;
    for (size_t i = 0; room->rows && i < prefetch->count; i++)
        out_tensors[i] = room->views[i] ? room->views[i] : room->device[i];
    *out_rows = room->rows;
    return FY_STATUS_OK;
}

void fy_prefetch_destroy(fy_prefetch_t *prefetch)
{
    const fy__thread_t *thread = fy__thread();
    if (!prefetch || !thread) return;
    if (atomic_load(&prefetch->filling) == thread) {
        fy_log_write(FY_LOG_ERROR, "prefetch_destroy: called inside its fill; ignored");
        return;
    }
    /* else the thread exists only in the parent, and may have held the lock */
    const bool is_here = prefetch->pid == getpid();
    if (prefetch->has_thread && is_here) {
        pthread_mutex_lock(&prefetch->lock);
        prefetch->stops = true;
        pthread_cond_broadcast(&prefetch->changed);
        pthread_mutex_unlock(&prefetch->lock);
        pthread_join(prefetch->thread, NULL);
    }
    if (is_here) {
        pthread_cond_destroy(&prefetch->changed);
        pthread_mutex_destroy(&prefetch->lock);
    }
    free_prefetch(prefetch);
}

void fy_prefetch_keep(fy_prefetch_t *prefetch)
{
    if (prefetch) fy__handle_release(&prefetch->handle);
}
