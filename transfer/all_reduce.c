/* Sums over devices by their backend's library (its all_reduce slot), in one call, on each device's
 * download engine, as peer transfers. Not here: sums by copies (train/parallel.c), the alternative
 * of the caller. */
#include <stdlib.h>

#include "runtime/base/fail.h"
#include "runtime/order/stream.h"
#include "runtime/record/recording.h"
#include "runtime/record/tape.h"
#include "runtime/thread/guard.h"
#include "transfer/upload.h"

static const char what[] = "tensor_all_reduce";

/* One call; the arrays are of `count`. */
typedef struct sum {
    fy__move_t move; /* its parts that are the same for all tensors */
    size_t count;
    fy_tensor_t *const *tensors;
    void **devs, **streams, **buffers;
    uint64_t nbytes, blocked_ns; /* nbytes: of one tensor */
} sum_t;

static fy_device_t *device_of(const sum_t *sum, size_t i)
{
    return sum->tensors[i]->storage->device;
}

static bool is_float(int dtype)
{
    return dtype == FY_DTYPE_F32 || dtype == FY_DTYPE_F64 || dtype == FY_DTYPE_F16 ||
           dtype == FY_DTYPE_BF16;
}

static fy_status_t check_tensor(const sum_t *sum, size_t i)
{
    char texts[2][128];
    fy_tensor_t *tensor = sum->tensors[i];
    const fy_tensor_t *first = sum->tensors[0];
    if (!tensor) return FY_FAIL(INVALID_ARGUMENT, "%s: tensor %zu is NULL", what, i);
    if (fy__tensor_is_gone(tensor)) return fy__refuse_gone(what, "tensor");
    if (tensor->dtype != first->dtype || !is_float(tensor->dtype))
        return FY_FAIL(DTYPE_MISMATCH,
                       "%s: tensor %zu is %s, tensor 0 is %s: all are of one float dtype", what, i,
                       fy__tensor_format(tensor, texts[0], 128),
                       fy__tensor_format(first, texts[1], 128));
    if (!tensor->contiguous)
        return FY_FAIL(INVALID_ARGUMENT, "%s: tensor %zu is not dense", what, i);
    FY_TRY(fy__upload_check_into(what, tensor, first)); /* equal shapes, and it may be written */
    for (size_t k = 0; k < i; k++)
        if (device_of(sum, k) == device_of(sum, i))
            return FY_FAIL(DEVICE_MISMATCH,
                           "%s: tensors %zu and %zu are both on %s; pass one tensor a device", what,
                           k, i, device_of(sum, i)->spec);
    return FY_STATUS_OK;
}

/* Whether all devices have one backend that can sum. */
static bool can_sum(const sum_t *sum)
{
    const fy_backend_t *backend = device_of(sum, 0)->backend;
    if (!backend->all_reduce || sum->count < 2) return false;
    for (size_t i = 0; i < sum->count; i++)
        if (device_of(sum, i)->backend != backend || device_of(sum, i)->synchronous) return false;
    return true;
}

/* All waits and refusals, before anything is submitted. */
static fy_status_t prepare(fy__thread_t *thread, sum_t *sum)
{
    for (size_t i = 0; i < sum->count; i++) {
        fy_tensor_t *tensor = sum->tensors[i];
        fy_device_t *device = device_of(sum, i);
        FY_TRY(fy__peer_resolve(what, tensor, &sum->blocked_ns));
        FY_TRY(fy__stream_throttle(thread, device->download));
        FY_TRY(fy__hazard_before_write(&tensor->storage->hazard, device->download,
                                       FY__WAIT_PEER_WRITE));
        sum->devs[i] = device->dev;
        sum->streams[i] = device->download->native;
        sum->buffers[i] = tensor->data;
    }
    return FY_STATUS_OK;
}

/* OK with *out_done false: this backend cannot, and nothing was submitted. */
static fy_status_t submit(fy__thread_t *thread, sum_t *sum, bool *out_done)
{
    const fy_tensor_t *first = sum->tensors[0];
    const fy_backend_t *backend = device_of(sum, 0)->backend;
    fy__error_copy_t before;
    *out_done = false;
    FY_TRY(prepare(thread, sum));
    fy__error_save(&before);
    fy_status_t status = backend->all_reduce(sum->count, sum->devs, sum->streams, sum->buffers,
                                             first->dtype, first->nelem);
    if (status == FY_STATUS_UNSUPPORTED) {
        fy__error_restore(&before);
        return FY_STATUS_OK;
    }
    *out_done = true;
    for (size_t i = 0; i < sum->count; i++) { /* even if it failed: some of it may run */
        fy_device_t *device = device_of(sum, i);
        if (status == FY_STATUS_DEVICE_LOST) (void)fy__device_check(device, status);
        fy__hazard_written(&sum->tensors[i]->storage->hazard,
                           fy__stream_submitted_anchored(device->download));
        if (status == FY_STATUS_OK)
            fy__upload_done(sum->tensors[i]);
        else
            fy__upload_poison(sum->tensors[i], status);
    }
    return status;
}

static void note(const sum_t *sum)
{
    for (size_t i = 0; i < sum->count; i++) {
        const size_t next = (i + 1) % sum->count;
        fy__move_t move = sum->move;
        move.device = device_of(sum, i);
        move.other = device_of(sum, next);
        move.src = sum->tensors[i];
        move.to = sum->tensors[next]->storage;
        move.nbytes = 2 * (sum->count - 1) * sum->nbytes / sum->count;
        move.blocked_ns = i ? 0 : sum->blocked_ns;
        move.point =
            atomic_load_explicit(&sum->tensors[i]->storage->hazard.writer, memory_order_relaxed);
        fy__move_note(&move);
    }
}

static fy_status_t run(sum_t *sum, int *out_done)
{
    fy__thread_t *thread = sum->move.thread;
    bool done;
    for (size_t i = 0; i < sum->count; i++) FY_TRY(check_tensor(sum, i));
    if (!can_sum(sum) || !sum->tensors[0]->nelem) return FY_STATUS_OK;
    for (size_t i = 0; i < sum->count; i++) {
        FY_TRY(fy__move_check_device(&sum->move, device_of(sum, i)));
        FY_TRY(fy__tape_check_leaving(thread, sum->tensors[i], what));
    }
    sum->nbytes = fy__tensor_nbytes(sum->tensors[0]);
    FY_TRY(fy__guard_check_transfer(thread, FY__PEER, 2 * (sum->count - 1) * sum->nbytes, what));
    FY_TRY(fy__guard_settled(thread, submit(thread, sum, &done)));
    if (!done) {
        fy__guard_settle(thread);
        return FY_STATUS_OK;
    }
    note(sum);
    *out_done = 1;
    for (size_t i = 0; i < sum->count; i++) fy__storage_reap(device_of(sum, i));
    return FY_STATUS_OK;
}

fy_status_t fy_tensor_all_reduce(size_t count, fy_tensor_t *const *tensors,
                                 const fy_transfer_options_t *options, int *out_done)
{
    sum_t sum = { .count = count,
                  .tensors = tensors,
                  .move = { .what = what,
                            .caller = __builtin_return_address(0),
                            .thread = fy__thread(),
                            .direction = FY__PEER,
                            .path = FY_PATH_PEER } };
    if (!out_done) return FY_FAIL(INVALID_ARGUMENT, "%s: out_done is NULL", what);
    *out_done = 0;
    if (!sum.move.thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!count || !tensors || count > 1024)
        return FY_FAIL(INVALID_ARGUMENT, "%s: %zu tensors; there may be 1 to 1024", what,
                       tensors ? count : 0);
    FY_TRY(fy__transfer_options_read(what, options, &sum.move.options));
    void **arrays = malloc(3 * count * sizeof *arrays);
    if (!arrays) return FY_FAIL(OUT_OF_MEMORY, "%s: no host memory for %zu tensors", what, count);
    sum.devs = arrays;
    sum.streams = arrays + count;
    sum.buffers = arrays + 2 * count;
    const fy_status_t status = run(&sum, out_done);
    free(arrays);
    return status;
}
