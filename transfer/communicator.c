/* Calls between devices of several processes, by the library of their backend (its communicator
 * slots), on the download engine, as sums over the devices of one process (all_reduce.c). Not here:
 * groups of processes, and the way through the host (libferry_dist). */
#include <ferry/communicator.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <ferry/ledger.h>

#include "runtime/base/abi_structs.h"
#include "runtime/base/fail.h"
#include "runtime/order/stream.h"
#include "runtime/record/recording.h"
#include "runtime/record/tape.h"
#include "runtime/thread/guard.h"
#include "transfer/upload.h"

struct fy_communicator {
    fy_device_t *device; /* in use */
    void *native;        /* NULL: aborted */
    fy_communicator_options_t options;
    fy__point_t last;        /* of its last call */
    _Atomic bool is_aborted; /* `reason` is written */
    char reason[256];
};

/* One call; `written` and `read` are NULL where there is none. */
typedef struct call {
    const char *what;
    fy_collective_t kind;
    int option;
    fy_tensor_t *written, *read;
    bool in_place;
} call_t;

/* ---- checks ---- */

static const char *name_of(int kind)
{
    static const char *const names[] = { "communicator all_reduce",     "communicator broadcast",
                                         "communicator reduce_scatter", "communicator all_gather",
                                         "communicator send",           "communicator receive" };
    return kind >= 0 && kind <= FY_COLLECTIVE_RECEIVE ? names[kind] : NULL;
}

static bool is_reduction(const call_t *call)
{
    return call->kind == FY_COLLECTIVE_ALL_REDUCE || call->kind == FY_COLLECTIVE_REDUCE_SCATTER;
}

static fy_status_t check_tensor(const fy_communicator_t *c, const call_t *call,
                                const fy_tensor_t *tensor, const char *role)
{
    char text[128];
    if (!tensor) return FY_FAIL(INVALID_ARGUMENT, "%s: %s is NULL", call->what, role);
    if (fy__tensor_is_gone(tensor)) return fy__refuse_gone(call->what, role);
    if (tensor->storage->device != c->device)
        return FY_FAIL(DEVICE_MISMATCH, "%s: %s is %s on %s, the communicator's device is %s",
                       call->what, role, fy__tensor_format(tensor, text, sizeof text),
                       tensor->storage->device->spec, c->device->spec);
    if (!tensor->contiguous)
        return FY_FAIL(INVALID_ARGUMENT, "%s: %s is %s, which is not contiguous: fy_copy",
                       call->what, role, fy__tensor_format(tensor, text, sizeof text));
    return FY_STATUS_OK;
}

static fy_status_t check_option(const fy_communicator_t *c, const call_t *call)
{
    const int option = call->option, size = c->options.size;
    const bool is_pair = call->kind == FY_COLLECTIVE_SEND || call->kind == FY_COLLECTIVE_RECEIVE;
    if (is_reduction(call))
        return option == FY_COLLECTIVE_SUM || option == FY_COLLECTIVE_MEAN
                   ? FY_STATUS_OK
                   : FY_FAIL(INVALID_ARGUMENT,
                             "%s: option %d; there are FY_COLLECTIVE_SUM and _MEAN", call->what,
                             option);
    if (call->kind == FY_COLLECTIVE_ALL_GATHER) return FY_STATUS_OK;
    if (option < 0 || option >= size || (is_pair && option == c->options.rank))
        return FY_FAIL(INVALID_ARGUMENT, "%s: option %d is %s of %d ranks", call->what, option,
                       is_pair ? "no other one" : "none", size);
    return FY_STATUS_OK;
}

/* `whole` has `size` times the first axis of `part`. */
static fy_status_t check_parts(const fy_communicator_t *c, const call_t *call,
                               const fy_tensor_t *part, const fy_tensor_t *whole)
{
    char texts[2][128];
    bool fits = part->rank == whole->rank && part->rank > 0 &&
                part->dims[0] * c->options.size == whole->dims[0];
    for (int i = 1; fits && i < part->rank; i++) fits = part->dims[i] == whole->dims[i];
    if (fits) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH,
                   "%s: %s has to have %d times the first axis of %s, and its other axes",
                   call->what, fy__tensor_format(whole, texts[0], 128), c->options.size,
                   fy__tensor_format(part, texts[1], 128));
}

static fy_status_t check_dtypes(const call_t *call)
{
    char text[128];
    const fy_tensor_t *tensor = call->read;
    const bool is_float = tensor->dtype == FY_DTYPE_F32 || tensor->dtype == FY_DTYPE_F64;
    const bool is_int = tensor->dtype == FY_DTYPE_I32 || tensor->dtype == FY_DTYPE_I64;
    if (call->written && call->written->dtype != tensor->dtype)
        return FY_FAIL(DTYPE_MISMATCH, "%s: src and dst have two dtypes", call->what);
    if (!is_reduction(call) || is_float || (is_int && call->option == FY_COLLECTIVE_SUM))
        return FY_STATUS_OK;
    return FY_FAIL(DTYPE_MISMATCH,
                   "%s: %s; sums take f32, f64, i32 and i64, means f32 and f64: fy_cast",
                   call->what, fy__tensor_format(tensor, text, sizeof text));
}

static fy_status_t check(const fy_communicator_t *c, call_t *call, fy_tensor_t *dst,
                         fy_tensor_t *src)
{
    const bool in_place = call->kind <= FY_COLLECTIVE_BROADCAST;
    call->in_place = in_place;
    if (in_place && src && src != dst)
        return FY_FAIL(INVALID_ARGUMENT, "%s: it is in place: src is dst or NULL", call->what);
    if ((call->kind == FY_COLLECTIVE_SEND && dst) || (call->kind == FY_COLLECTIVE_RECEIVE && src))
        return FY_FAIL(INVALID_ARGUMENT, "%s: %s is not NULL", call->what, dst ? "dst" : "src");
    FY_TRY(check_option(c, call));
    if (call->kind != FY_COLLECTIVE_SEND) {
        FY_TRY(check_tensor(c, call, dst, "dst"));
        FY_TRY(fy__upload_check_into(call->what, dst, dst)); /* it may be written */
        call->written = dst;
    }
    if (in_place) src = dst;
    if (call->kind != FY_COLLECTIVE_RECEIVE) {
        FY_TRY(check_tensor(c, call, src, "src"));
        call->read = src;
        FY_TRY(check_dtypes(call));
    }
    if (!in_place && dst && src && dst->storage == src->storage)
        return FY_FAIL(INVALID_ARGUMENT, "%s: src and dst share a storage", call->what);
    if (call->kind == FY_COLLECTIVE_REDUCE_SCATTER) FY_TRY(check_parts(c, call, dst, src));
    if (call->kind == FY_COLLECTIVE_ALL_GATHER) FY_TRY(check_parts(c, call, src, dst));
    if (call->kind == FY_COLLECTIVE_BROADCAST && call->option != c->options.rank) call->read = NULL;
    return FY_STATUS_OK;
}

static fy_status_t check_alive(const fy_communicator_t *c, const char *what)
{
    if (fy__device_is_lost(c->device)) return fy__device_lost_error(c->device);
    if (!c->is_aborted) return FY_STATUS_OK;
    return FY_FAIL(UNAVAILABLE, "%s: the communicator was aborted: %s", what, c->reason);
}

/* All refusals, and waits for the device, before other ranks are concerned. */
static fy_status_t prepare(fy__thread_t *thread, fy_communicator_t *c, call_t *call,
                           fy_tensor_t *dst, fy_tensor_t *src, uint64_t *blocked_ns)
{
    FY_TRY(check_alive(c, call->what));
    FY_TRY(check(c, call, dst, src));
    FY_TRY(fy__recording_check(thread, c->device, call->what));
    if (call->read) {
        FY_TRY(fy__tape_check_leaving(thread, call->read, call->what));
        FY_TRY(fy__peer_resolve(call->what, call->read, blocked_ns));
    }
    return fy__stream_throttle(thread, c->device->download);
}

static fy_status_t name_call(fy_collective_t kind, int option, call_t *out_call)
{
    *out_call = (call_t){ .what = name_of((int)kind), .kind = kind, .option = option };
    return out_call->what
               ? FY_STATUS_OK
               : FY_FAIL(INVALID_ARGUMENT, "communicator: %d is no kind of call", (int)kind);
}

/* ---- the backend's communicator ---- */

static void end(fy_communicator_t *c, fy_backend_closing_t closing)
{
    c->device->backend->communicator_close(c->native, closing);
    c->native = NULL;
}

void fy_communicator_abort(fy_communicator_t *communicator, const char *reason)
{
    fy__error_copy_t before;
    if (!communicator || communicator->is_aborted) return;
    fy_device_t *device = communicator->device;
    snprintf(communicator->reason, sizeof communicator->reason, "%s",
             reason ? reason : "no reason");
    communicator->is_aborted = true;
    fy__error_save(&before);
    const bool is_running = communicator->last && !fy__point_peek(communicator->last);
    if (is_running)
        (void)fy__device_check(
            device, FY_FAIL(DEVICE_LOST,
                            "%s is lost: a call with other processes did not end: %.200s\n  Close "
                            "it and open it again; host tensors stay readable",
                            device->spec, communicator->reason));
    end(communicator, is_running ? FY_CLOSING_RUNNING : FY_CLOSING_IDLE);
    fy__error_restore(&before);
}

/* Aborts it for the reason that this thread's error has. */
static fy_status_t give_up(fy_communicator_t *c, fy_status_t status)
{
    fy_communicator_abort(c, fy_error_get()->text);
    return status == FY_STATUS_DEVICE_LOST ? fy__device_check(c->device, status) : status;
}

/* Until it is connected and its last call is on the stream. */
static fy_status_t settle(fy_communicator_t *c, const char *what)
{
    enum { YIELDS = 1000 };
    const struct timespec pause = { .tv_nsec = 50000 };
    const fy_communicator_options_t *o = &c->options;
    const uint64_t start_ns = fy__now_ns();
    for (int round = 0;; round += round < YIELDS) {
        int done = 0;
        fy_status_t status = c->is_aborted
                                 ? check_alive(c, what)
                                 : c->device->backend->communicator_test(c->native, &done);
        if (status == FY_STATUS_OK && done) return FY_STATUS_OK;
        if (status == FY_STATUS_OK && o->on_wait) status = o->on_wait(o->user);
        if (status == FY_STATUS_OK && fy__now_ns() - start_ns > o->deadline_ns)
            status = FY_FAIL(
                RANK_LOST, "%s: rank %d of %d on %s waited %.3g s for the other ranks to connect",
                what, o->rank, o->size, c->device->spec, (double)o->deadline_ns * 1e-9);
        if (status != FY_STATUS_OK) return give_up(c, status);
        if (round < YIELDS)
            sched_yield();
        else
            nanosleep(&pause, NULL);
    }
}

/* ---- open and close ---- */

static fy_status_t check_device(const char *what, fy_device_t *device)
{
    if (!device) return FY_FAIL(INVALID_ARGUMENT, "%s: device is NULL", what);
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    const fy_backend_t *b = device->backend;
    if (!device->synchronous && b->communicator_id && b->communicator_open &&
        b->communicator_test && b->communicator_call && b->communicator_close)
        return FY_STATUS_OK;
    return FY_FAIL(UNSUPPORTED, "%s: %s has no library for calls with other processes", what,
                   device->spec);
}

fy_status_t fy_communicator_id(fy_device_t *device, void *out_id)
{
    FY_TRY(check_device("communicator_id", device));
    return fy__device_check(device, device->backend->communicator_id(device->dev, out_id));
}

static fy_status_t check_options(const fy_communicator_options_t *o)
{
    if (o->size < 1 || o->rank < 0 || o->rank >= o->size)
        return FY_FAIL(INVALID_ARGUMENT, "communicator_open: rank %d of %d", o->rank, o->size);
    return o->id ? FY_STATUS_OK
                 : FY_FAIL(INVALID_ARGUMENT, "communicator_open: id is NULL: fy_communicator_id");
}

fy_status_t fy_communicator_open(fy_device_t *device, const fy_communicator_options_t *options,
                                 fy_communicator_t **out_communicator)
{
    static const char what[] = "communicator_open";
    fy_communicator_options_t own;
    if (!out_communicator) return FY_FAIL(INVALID_ARGUMENT, "%s: out_communicator is NULL", what);
    *out_communicator = NULL;
    FY_TRY(FY__READ(communicator_options, what, options, &own));
    FY_TRY(check_options(&own));
    FY_TRY(check_device(what, device));
    fy_communicator_t *c = calloc(1, sizeof *c);
    if (!c) return FY_FAIL(OUT_OF_MEMORY, "%s: no host memory for a communicator", what);
    c->device = device;
    c->options = own;
    fy_status_t status = fy__device_check(
        device,
        device->backend->communicator_open(device->dev, own.id, own.rank, own.size, &c->native));
    c->options.id = NULL;
    if (status == FY_STATUS_OK) {
        status = settle(c, what);
        if (status == FY_STATUS_OK) fy__device_use(device);
    }
    if (status == FY_STATUS_OK)
        *out_communicator = c;
    else
        free(c);
    return status;
}

void fy_communicator_close(fy_communicator_t *communicator)
{
    fy__error_copy_t before;
    if (!communicator) return;
    fy_device_t *device = communicator->device;
    fy__error_save(&before);
    if (!communicator->is_aborted) {
        const fy_status_t status =
            communicator->last ? fy__point_wait(communicator->last, FY_FOREVER, FY__WAIT_DRAIN)
                               : FY_STATUS_OK;
        if (status == FY_STATUS_OK && !fy__device_is_lost(device))
            end(communicator, FY_CLOSING_DONE);
        else
            end(communicator, FY_CLOSING_IDLE); /* the device is lost already */
    }
    free(communicator);
    fy__device_unuse(device);
    fy__error_restore(&before);
}

/* ---- calls ---- */

/* What this rank sends. */
static uint64_t sent_nbytes(const fy_communicator_t *c, const call_t *call)
{
    const uint64_t n = (uint64_t)c->options.size;
    const uint64_t nbytes = fy__tensor_nbytes(call->in_place ? call->written
                                              : call->read   ? call->read
                                                             : call->written);
    switch (call->kind) {
    case FY_COLLECTIVE_ALL_REDUCE: return 2 * (n - 1) * nbytes / n;
    case FY_COLLECTIVE_BROADCAST:
    case FY_COLLECTIVE_REDUCE_SCATTER: return (n - 1) * nbytes / n;
    case FY_COLLECTIVE_ALL_GATHER: return (n - 1) * nbytes;
    case FY_COLLECTIVE_SEND: return nbytes;
    default: return 0;
    }
}

static uint64_t payload_nbytes(const call_t *call)
{
    const uint64_t in = call->read ? fy__tensor_nbytes(call->read) : 0;
    const uint64_t out = call->written ? fy__tensor_nbytes(call->written) : 0;
    return in > out ? in : out;
}

/* Orders the call behind earlier requests on its bytes, on the device. */
static fy_status_t order(const fy_communicator_t *c, const call_t *call)
{
    fy_stream_t *stream = c->device->download;
    if (call->read && !call->in_place)
        FY_TRY(fy__hazard_before_read(&call->read->storage->hazard, stream, FY__WAIT_PEER_READ));
    if (!call->written) return FY_STATUS_OK;
    return fy__hazard_before_write(&call->written->storage->hazard, stream, FY__WAIT_PEER_WRITE);
}

static fy_status_t submit(fy_communicator_t *c, const call_t *call)
{
    fy_device_t *device = c->device;
    const fy_tensor_t *from = call->in_place ? call->written : call->read;
    const bool is_part = call->kind == FY_COLLECTIVE_REDUCE_SCATTER;
    const fy_tensor_t *shaped = from && !is_part ? from : call->written;
    FY_TRY(order(c, call));
    const fy_backend_collective_t request = { .kind = call->kind,
                                              .option = call->option,
                                              .dtype = shaped->dtype,
                                              .nelem = shaped->nelem,
                                              .nbytes = fy__tensor_nbytes(shaped),
                                              .dst = call->written ? call->written->data : NULL,
                                              .src = from ? from->data : NULL };
    fy_status_t status =
        device->backend->communicator_call(c->native, device->download->native, &request);
    status = status == FY_STATUS_OK ? settle(c, call->what) : give_up(c, status);
    c->last =
        fy__stream_submitted_anchored(device->download); /* also after a failure: some may run */
    if (call->read && !call->in_place)
        fy__hazard_read(&call->read->storage->hazard, device->download, c->last);
    if (!call->written) return status;
    fy__hazard_written(&call->written->storage->hazard, c->last);
    if (status == FY_STATUS_OK)
        fy__upload_done(call->written);
    else
        fy__upload_poison(call->written, status);
    return status;
}

static fy_status_t run(fy__thread_t *thread, fy_communicator_t *c, call_t *call, fy_tensor_t *dst,
                       fy_tensor_t *src)
{
    uint64_t blocked_ns = 0;
    FY_TRY(prepare(thread, c, call, dst, src, &blocked_ns));
    if (!c->options.is_counted) FY_TRY(fy_ledger_collective(call->what, payload_nbytes(call)));
    if (!payload_nbytes(call)) return FY_STATUS_OK;
    const uint64_t start_ns = fy__now_ns();
    FY_TRY(submit(c, call));
    blocked_ns += fy__now_ns() - start_ns;
    if (!c->options.is_counted) fy_ledger_collective_moved(sent_nbytes(c, call), 1, blocked_ns);
    fy__storage_reap(c->device);
    return FY_STATUS_OK;
}

fy_status_t fy_communicator_prepare(fy_communicator_t *communicator, fy_collective_t kind,
                                    int option, fy_tensor_t *dst, fy_tensor_t *src)
{
    fy__thread_t *thread = fy__thread();
    call_t call;
    uint64_t blocked_ns = 0;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!communicator) return FY_FAIL(INVALID_ARGUMENT, "communicator_prepare: it is NULL");
    FY_TRY(name_call(kind, option, &call));
    return prepare(thread, communicator, &call, dst, src, &blocked_ns);
}

fy_status_t fy_communicator_submit(fy_communicator_t *communicator, fy_collective_t kind,
                                   int option, fy_tensor_t *dst, fy_tensor_t *src,
                                   fy_ticket_t *out_ticket)
{
    fy__thread_t *thread = fy__thread();
    call_t call;
    if (out_ticket) *out_ticket = (fy_ticket_t){ 0, 0 };
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!communicator) return FY_FAIL(INVALID_ARGUMENT, "communicator_submit: it is NULL");
    FY_TRY(name_call(kind, option, &call));
    FY_TRY(run(thread, communicator, &call, dst, src));
    if (out_ticket && payload_nbytes(&call)) *out_ticket = fy__point_ticket(communicator->last);
    return FY_STATUS_OK;
}
