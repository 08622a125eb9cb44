/* Dispatch: from tensors to one launch. In order: one device? shapes and dtypes (the row's rule) ·
 * results · cost · fault flag · scratch · device-side waits · launch · hazards, versions, poison,
 * ledger. Everything before the launch can refuse, and has then changed nothing.
 * The common path (host, new result, nothing poisoned) takes no lock and no read-modify-write; rare
 * cases are in cold functions.
 * Not here: what refuse.c says when operands do not fit. */
#include "ops/dispatch.h"

#include <stdlib.h>
#include <string.h>

#include "ops/autocast.h"
#include "ops/kernel.h"
#include "ops/refuse.h"
#include "ops/shape.h"
#include "ops/tape/tape.h"
#include "runtime/base/fail.h"
#include "runtime/device/plan.h"
#include "runtime/order/stream.h"
#include "runtime/record/event_ring.h"
#include "runtime/record/recording.h"
#include "runtime/tensor/tensor.h"

enum { NEAR = 8 }; /* operands that need no scratch from the heap */

/* One call being dispatched. */
typedef struct fy__call {
    const fy__op_row_t *row;
    fy__thread_t *thread;
    fy_device_t *device;
    fy_stream_t *stream; /* NULL on synchronous devices */
    const fy_tensor_t *const *src;
    fy_tensor_t **dst;
    uint64_t given;     /* bit i: dst[i] is the caller's, the others are made here */
    uint64_t taint;     /* not 0: some operand is poisoned or may be */
    uint32_t own_fault; /* the flag itself, where it is raised before the launch returns */
    uint64_t request;   /* asynchronous: the flag's number */
    fy__storage_t *workspace;
    bool after_transfer; /* a source comes from another stream that is not known to be done */
    uint64_t watching;   /* fy__watching() */
    fy_launch_t launch;
} fy__call_t;

/* ---- before the launch ---- */

/* The given dst as a kernel sees it; it must be something that can be written. */
static fy_status_t take_given(fy__call_t *call, unsigned i)
{
    fy_tensor_t *tensor = call->dst[i];
    const fy_desc_t *ruled = &call->launch.dst[i];
    const char *name = call->row->info.name;
    if (!(call->row->info.flags & FY_OP_IN_PLACE))
        FY_TRY(fy__refuse_unlike(name, i, tensor, ruled));
    FY_TRY(fy__refuse_unwritable(name, i, tensor));
    FY_TRY(fy__refuse_overlap(name, i, call->dst, call->launch.nsrc, call->src,
                              call->row->info.flags & FY_OP_ELEMENTWISE));
    if (atomic_load_explicit(&tensor->storage->borrow, memory_order_relaxed) &&
        !fy__recording_of(call->thread, call->device))
        FY_TRY(fy__storage_check_borrow(tensor->storage, name));
    call->taint |= tensor->storage->taint.mask | tensor->storage->taint.poison;
    fy__tensor_desc(tensor, &call->launch.dst[i]);
    return FY_STATUS_OK;
}

/* The rule gave dtype, rank and dims: makes the tensor and completes the descriptor. Sizes of
 * sources fit 63 bits, but a broadcast or an outer product may not. */
static fy_status_t make_result(fy__call_t *call, unsigned i)
{
    fy_desc_t *desc = &call->launch.dst[i];
    uint64_t nelem, nbytes;
    FY_TRY(fy__shape_check(call->row->info.name, (fy_dtype_t)desc->dtype, desc->rank, desc->dims,
                           &nelem, &nbytes));
    FY_TRY(fy__tensor_new(call->thread, call->device, (fy_dtype_t)desc->dtype, desc->rank,
                          desc->dims, nelem, call->stream, &call->dst[i]));
    fy__tensor_desc(call->dst[i], desc);
    return FY_STATUS_OK;
}

/* A small host tensor from a cached block and handle: shape, strides and descriptor are written
 * together. NULL: none is cached. */
static inline __attribute__((always_inline)) fy_tensor_t *make_small(fy__thread_t *thread,
                                                                     fy_desc_t *desc)
{
    /* bytes; no dim of a small tensor is larger, so the product cannot overflow unnoticed */
    const uint64_t most = FY__CACHE_LARGEST;
    const int rank = desc->rank;
    uint64_t nelem = 1;
    for (int axis = 0; axis < rank; axis++) {
        if ((uint64_t)desc->dims[axis] > most || nelem > most) return NULL;
        nelem *= (uint64_t)desc->dims[axis];
    }
    if (FY__HAS_ASAN) return NULL;
    fy__storage_t *storage = fy__cache_pop(thread, nelem * fy__dtype_sizes[desc->dtype]);
    if (!storage) return NULL;
    fy_tensor_t *tensor = fy__tensor_first(thread, storage);
    desc->data = storage->data;
    tensor->dtype = (uint8_t)desc->dtype;
    tensor->rank = (uint8_t)rank;
    tensor->contiguous = true;
    tensor->nelem = nelem;
    int64_t stride = 1;
    for (int axis = rank - 1; axis >= 0; axis--) {
        const int64_t dim = desc->dims[axis];
        tensor->dims[axis] = dim;
        tensor->strides[axis] = desc->strides[axis] = stride;
        stride *= dim; /* nelem > 0: cache_pop saw to it */
    }
    return tensor;
}

/* The name of the op, and what an index must be below; -1: the op has no indices. */
static fy__fault_cause_t fault_cause(const fy__call_t *call)
{
    const fy__index_limit_t *limit = &call->row->index_limit;
    fy__fault_cause_t cause = { call->row->info.name, -1 };
    if (!limit->flag) return cause;
    const fy_desc_t *desc = limit->side == FY__SRC ? &call->launch.src[limit->index]
                                                   : &call->launch.dst[limit->index];
    cause.limit = desc->dims[limit->axis < 0 ? desc->rank - 1 : limit->axis];
    return cause;
}

static FY_COLD fy_status_t take_fault_flag(fy__call_t *call)
{
    if (!call->device->synchronous && fy__kernel_needs_flag(call->row, call->device))
        return fy__fault_begin(call->device, fault_cause(call), &call->request,
                               &call->launch.fault);
    call->launch.fault = &call->own_fault;
    return FY_STATUS_OK;
}

static fy_status_t take_workspace(fy__call_t *call)
{
    const fy_device_t *device = call->device;
    if (!device->backend->workspace) return FY_STATUS_OK;
    const uint64_t nbytes =
        device->backend->workspace(device->dev, &call->launch, device->workspace_nbytes);
    if (FY_LIKELY(!nbytes)) return FY_STATUS_OK;
    FY_TRY(fy__storage_create_scratch(call->thread, call->device, nbytes, call->stream,
                                      FY_CATEGORY_WORKSPACE, &call->workspace));
    call->launch.workspace = call->workspace->data;
    call->launch.workspace_nbytes = nbytes;
    return FY_STATUS_OK;
}

/* ---- asynchronous devices ---- */

/* The taint of a transfer that was queued when the call was made; 0: none. */
static inline uint64_t adopt(fy__storage_t *storage)
{
    fy__storage_adopt(storage);
    return storage->taint.mask | storage->taint.poison;
}

static fy_status_t wait_on_device(fy__call_t *call)
{
    FY_TRY(fy__stream_throttle(call->thread, call->stream));
    for (unsigned i = 0; i < call->launch.nsrc; i++) {
        fy__hazard_t *hazard = &call->src[i]->storage->hazard;
        call->after_transfer |= fy__stream_is_ahead(
            call->stream, atomic_load_explicit(&hazard->writer, memory_order_acquire));
        FY_TRY(fy__hazard_before_read(hazard, call->stream, FY__WAIT_DISPATCH_READ));
        call->taint |= adopt(call->src[i]->storage);
    }
    for (unsigned i = 0; i < call->launch.ndst; i++) {
        FY_TRY(fy__hazard_before_write(&call->dst[i]->storage->hazard, call->stream,
                                       FY__WAIT_DISPATCH_WRITE));
        call->taint |= adopt(call->dst[i]->storage);
    }
    return call->workspace ? fy__hazard_before_write(&call->workspace->hazard, call->stream,
                                                     FY__WAIT_DISPATCH_WORKSPACE)
                           : FY_STATUS_OK;
}

static fy__point_t note_on_device(fy__call_t *call)
{
    /* What reads bytes that just arrived is what the next upload into them will wait for; a fault
     * flag is waited for a window later. */
    const fy__point_t point = call->after_transfer || call->request
                                  ? fy__stream_submitted_anchored(call->stream)
                                  : fy__stream_submitted(call->stream);
    for (unsigned i = 0; i < call->launch.nsrc; i++)
        fy__hazard_read(&call->src[i]->storage->hazard, call->stream, point);
    for (unsigned i = 0; i < call->launch.ndst; i++)
        fy__hazard_written(&call->dst[i]->storage->hazard, point);
    if (call->workspace) fy__hazard_written(&call->workspace->hazard, point);
    if (call->request) fy__fault_end(call->device, call->request, point);
    return point;
}

/* ---- poison ---- */

/* Are all bytes of result i new when it is done? */
static bool is_replaced(const fy__call_t *call, unsigned i)
{
    const fy_tensor_t *tensor = call->dst[i];
    return !(call->row->info.inout >> i & 1) && !(call->launch.accumulate >> i & 1) &&
           tensor->contiguous && fy__tensor_nbytes(tensor) == tensor->storage->nbytes;
}

/* Taints the results: with the taint of their sources and with this request's flag. */
static FY_COLD void spread_poison(fy__call_t *call, fy__point_t point)
{
    fy__taint_t all = { 0, 0, 0 };
    for (unsigned i = 0; i < call->launch.nsrc; i++)
        fy__taint_join(call->device, &all, &call->src[i]->storage->taint);
    if (call->request) fy__taint_add(call->device, &all, call->request);
    if (call->own_fault) {
        const uint32_t record = fy__poison_flag(call->own_fault, fault_cause(call));
        fy__fault_keep(call->device, point, record);
        if (!all.poison) all.poison = record;
    }
    for (unsigned i = 0; i < call->launch.ndst; i++) {
        fy__storage_t *storage = call->dst[i]->storage;
        if (is_replaced(call, i)) {
            storage->taint = (fy__taint_t){ 0, 0, 0 };
            fy__storage_late_clear(call->device, storage);
        }
        fy__storage_taint(call->device, storage, &all);
    }
}

/* ---- the call ---- */

static FY_COLD fy_status_t give_up(fy__call_t *call, fy_status_t status)
{
    fy__error_copy_t first;
    fy__error_save(&first);
    if (call->request) fy__fault_end(call->device, call->request, 0);
    if (call->workspace) fy__storage_release(call->thread, call->workspace);
    for (unsigned i = 0; i < call->launch.ndst; i++) {
        if ((call->given >> i & 1) || !call->dst[i]) continue;
        fy__tensor_free(call->thread, call->dst[i]);
        call->dst[i] = NULL;
    }
    fy__error_restore(&first);
    return status;
}

/* Results that are not one small host tensor: large, several, given, on a device. */
static __attribute__((noinline)) fy_status_t take_results(fy__call_t *call)
{
    for (unsigned i = 0; i < call->launch.ndst; i++) {
        const fy_status_t status = call->given >> i & 1 ? take_given(call, i)
                                                        : make_result(call, i);
        if (status != FY_STATUS_OK) return give_up(call, status);
    }
    return FY_STATUS_OK;
}

/* A host tensor that unfinished external work writes is no operand. */
static FY_COLD fy_status_t refuse_busy(const fy__call_t *call)
{
    for (unsigned i = 0; i < call->launch.nsrc; i++)
        if (call->src[i]->storage->taint.poison == FY__POISON_EXTERNAL)
            return fy__poison_fail(FY__POISON_EXTERNAL, call->row->info.name);
    return FY_STATUS_OK;
}

/* What only some calls need before they are launched. */
static __attribute__((noinline)) fy_status_t prepare(fy__call_t *call)
{
    const fy_op_info_t *info = &call->row->info;
    fy_device_t *device = call->device;
    if (FY_UNLIKELY(call->taint) && device->is_host) FY_TRY(refuse_busy(call));
    if (call->row->nkernels) FY_TRY(fy__kernel_choose(call->row, device, &call->launch));
    if (!(info->flags & FY_OP_ELEMENTWISE)) FY_TRY(take_workspace(call));
    /* On the host the cost is computed only if a recording reads it. */
    if (!device->is_host || call->watching) call->row->cost(&call->launch);
    if ((info->flags & FY_OP_CAN_FAULT) || call->row->nkernels) FY_TRY(take_fault_flag(call));
    return call->stream ? wait_on_device(call) : FY_STATUS_OK;
}

static FY_COLD void tell(const fy__call_t *call, fy__point_t point)
{
    const fy_launch_t *launch = &call->launch;
    fy__event_t event = fy__event_op_begin(call->thread, call->row->info.name, call->device, point,
                                           launch->flops, launch->nbytes, fy__event_op_number());
    fy__event_op_launch(&event, &call->row->info, launch);
    for (unsigned i = 0; i < launch->nsrc; i++)
        fy__event_op_src(&event, call->src[i]->storage, fy__event_name(call->src[i]));
    for (unsigned i = 0; i < launch->ndst; i++)
        fy__event_op_dst(&event, call->dst[i]->storage, fy__event_name(call->dst[i]),
                         call->given >> i & 1);
    fy__event_put(&event);
}

/* And after. */
static __attribute__((noinline)) void conclude(fy__call_t *call)
{
    fy__point_t point = 0;
    if (call->stream)
        point = note_on_device(call);
    else
        fy__charge_host(call->launch.flops, call->launch.nbytes);
    if (FY_UNLIKELY(call->thread->plan != NULL))
        fy__plan_flops(call->thread, call->device, call->launch.flops);
    if (FY_UNLIKELY(fy__watch_has(call->watching, FY__WATCH_EVENTS))) tell(call, point);
    if (call->taint | call->own_fault | call->request) spread_poison(call, point);
    for (uint64_t given = call->given; given; given &= given - 1)
        fy__storage_wrote(call->dst[__builtin_ctzll(given)]->storage);
    if (call->workspace) fy__storage_release(call->thread, call->workspace);
}

/* This thread records a graph: stores the call, runs nothing. What the kernel would refuse is
 * refused now, if the backend can say so. */
static FY_COLD fy_status_t record(fy__call_t *call, fy__recording_t *recording)
{
    const fy__op_row_t *row = call->row;
    const fy_backend_t *backend = call->device->backend;
    const unsigned ndst = call->launch.ndst;
    const fy__fault_cause_t cause = fault_cause(call);
    uint64_t replaced = 0;
    uint32_t *slots;
    if (row->nkernels) FY_TRY(fy__kernel_choose(row, call->device, &call->launch));
    if (!(row->info.flags & FY_OP_ELEMENTWISE)) FY_TRY(take_workspace(call));
    row->cost(&call->launch);
    if (backend->supports && !backend->supports(call->device->dev, &call->launch))
        return FY_FAIL(UNSUPPORTED, "%s: %s has no kernel for these dtypes and layouts",
                       row->info.name, call->device->spec);
    FY_TRY(fy__recording_slots(recording, ndst + (size_t)call->launch.nsrc, &slots));
    for (unsigned i = 0; i < ndst; i++) {
        FY_TRY(fy__recording_slot(recording, call->dst[i]->storage, true, &slots[i]));
        replaced |= (uint64_t)is_replaced(call, i) << i;
    }
    if (fy__op_has_low(&row->info, ndst)) recording->slots[slots[ndst - 1]].copied = slots[0] + 1;
    for (unsigned i = 0; i < call->launch.nsrc; i++)
        FY_TRY(fy__recording_slot(recording, call->src[i]->storage, false, &slots[ndst + i]));
    const bool has_flag = fy__kernel_needs_flag(row, call->device) ||
                          (row->nkernels && call->device->synchronous);
    FY_TRY(
        fy__recording_launch(recording, &call->launch, slots, replaced, has_flag ? &cause : NULL));
    recording->requests++;
    if (call->workspace) fy__storage_release(call->thread, call->workspace);
    return FY_STATUS_OK;
}

/* Several results: is each without gaps and as large as the first? */
static FY_COLD bool all_dense(const fy__call_t *call)
{
    bool dense = true;
    for (unsigned i = 0; i < call->launch.ndst; i++)
        dense &= call->dst[i]->contiguous & (call->dst[i]->nelem == call->dst[0]->nelem);
    return dense;
}

static inline __attribute__((always_inline)) fy_status_t
run(fy__thread_t *thread, const fy__op_row_t *row, size_t nsrc, const fy_tensor_t *const *src,
    const void *attrs, uint32_t accumulate, size_t ndst, fy_tensor_t **dst, fy_desc_t *descs)
{
    const fy_op_info_t *info = &row->info;
    fy__call_t call;
    const fy_tensor_t *first = FY_LIKELY(nsrc) ? src[0] : dst[0];
    if (FY_UNLIKELY(!first)) return fy__refuse_null(info->name, nsrc, src);
    fy_device_t *device = first->storage->device;
    if (FY_UNLIKELY(!device)) return fy__refuse_null(info->name, nsrc, src);
    uint64_t taint = 0, given = 0;
    /* all sources are row-major without gaps; as large as the first */
    bool contiguous = true, same_size = true;
    if (FY_LIKELY(nsrc)) {
        taint = first->storage->taint.mask | first->storage->taint.poison;
        contiguous = first->contiguous;
        fy__tensor_desc(first, &descs[ndst]);
    }
    for (size_t i = 1; i < nsrc; i++) {
        const fy_tensor_t *tensor = src[i];
        if (FY_UNLIKELY(!tensor)) return fy__refuse_null(info->name, nsrc, src);
        const fy__storage_t *storage = tensor->storage;
        if (FY_UNLIKELY(storage->device != device))
            return fy__refuse_mixed(info->name, nsrc, src, ndst, dst);
        taint |= storage->taint.mask | storage->taint.poison;
        contiguous &= tensor->contiguous;
        same_size &= tensor->nelem == first->nelem;
        fy__tensor_desc(tensor, &descs[ndst + i]);
    }
    for (size_t i = 0; i < ndst; i++) {
        if (!dst[i]) continue;
        if (FY_UNLIKELY(dst[i]->storage->device != device))
            return fy__refuse_mixed(info->name, nsrc, src, ndst, dst);
        given |= 1ull << i;
    }
    fy_stream_t *stream = NULL;
    if (FY_UNLIKELY(!device->is_host)) { /* which is never lost and has no streams */
        if (fy__device_is_lost(device)) return fy__device_lost_error(device);
        if (!device->synchronous) stream = fy__stream_current(device, thread->streams);
    }
    if (FY_UNLIKELY(accumulate)) FY_TRY(fy__refuse_accumulate(info, accumulate, ndst, dst));
    call.row = row;
    call.thread = thread;
    call.device = device;
    call.stream = stream;
    call.src = src;
    call.dst = dst;
    call.given = given;
    call.taint = taint;
    call.own_fault = 0;
    call.request = 0;
    call.workspace = NULL;
    call.after_transfer = false;
    uint64_t watching = fy__watching();
    fy__recording_t *recording = NULL;
    if (FY_UNLIKELY(watching)) {
        watching &= FY__WATCH_TAPE - 1; /* ignore tapes: begin_taped has handled this thread's */
        recording = fy__recording_of(thread, device);
    }
    call.watching = watching;
    fy_launch_t *launch = &call.launch;
    launch->struct_size = sizeof *launch;
    launch->op = info->op;
    launch->nsrc = (uint16_t)nsrc;
    launch->ndst = (uint16_t)ndst;
    launch->flags = 0;
    launch->accumulate = accumulate;
    launch->dst = descs;
    launch->src = descs + ndst;
    launch->attrs = attrs;
    launch->attrs_nbytes = info->attrs_nbytes;
    launch->workspace = NULL;
    launch->workspace_nbytes = launch->flops = launch->nbytes = 0;
    launch->fault = NULL;
    launch->kernel = NULL;
    launch->user = NULL;

    for (uint64_t must = given & row->given; FY_UNLIKELY(must); must &= must - 1)
        fy__tensor_desc(dst[__builtin_ctzll(must)], &descs[__builtin_ctzll(must)]);
    fy_status_t status = row->shape(info, launch);
    if (FY_UNLIKELY(status != FY_STATUS_OK)) return fy__refuse_named(status, nsrc, src);
    if (!(FY_LIKELY(ndst == 1 && !given && device->is_host && !recording) &&
          (dst[0] = make_small(thread, descs))))
        FY_TRY(take_results(&call));
    const fy_tensor_t *result = dst[0];
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): take_results made it */
    launch->nelem = result->nelem;
    /* nothing to compute, nothing submitted */
    if (FY_UNLIKELY(!launch->nelem) && ndst == 1) return FY_STATUS_OK;
    if (contiguous & result->contiguous && (ndst == 1 || all_dense(&call))) {
        if (!(info->flags & FY_OP_ELEMENTWISE))
            launch->flags = FY_LAUNCH_CONTIGUOUS;
        else if (same_size &
                 (first->nelem == result->nelem)) /* then broadcasting changed nothing */
            launch->flags = FY_LAUNCH_DENSE;
    }
    const bool plain = row->plain && device->is_host && !(taint | given | watching);
    if (FY_UNLIKELY(recording != NULL)) {
        FY_CHECK(record(&call, recording));
        return FY_STATUS_OK;
    }
    if (!plain)
        FY_CHECK(prepare(&call));
    else if (!(info->flags & FY_OP_ELEMENTWISE))
        FY_CHECK(take_workspace(&call));
    status = device->backend->launch(device->dev, stream ? stream->native : NULL, launch);
    if (FY_UNLIKELY(status != FY_STATUS_OK))
        return give_up(&call, fy__device_check(device, status));
    if (!plain || call.workspace) conclude(&call);
    fy__count(&thread->node->requests, 1);
    return FY_STATUS_OK;
done:
    return give_up(&call, status);
}

/* Operands beyond NEAR: their descriptors are in the thread's scratch. The call detaches it,
 * because a rule, a kernel or the log function may call Ferry. */
static FY_COLD fy_status_t run_far(fy__thread_t *thread, const fy__op_row_t *row, size_t nsrc,
                                   const fy_tensor_t *const *src, const void *attrs,
                                   uint32_t accumulate, size_t ndst, fy_tensor_t **dst)
{
    size_t nbytes = (nsrc + ndst) * sizeof(fy_desc_t);
    void *scratch = thread->scratch;
    if (thread->scratch_nbytes < nbytes) {
        scratch = malloc(nbytes);
        if (!scratch)
            return FY_FAIL(OUT_OF_MEMORY, "%s: no host memory for the descriptors of %zu operands",
                           row->info.name, nsrc + ndst);
    } else {
        nbytes = thread->scratch_nbytes;
        thread->scratch = NULL;
        thread->scratch_nbytes = 0;
    }
    const fy_status_t status = run(thread, row, nsrc, src, attrs, accumulate, ndst, dst, scratch);
    if (thread->scratch_nbytes >= nbytes) {
        free(scratch);
        return status;
    }
    free(thread->scratch);
    thread->scratch = scratch;
    thread->scratch_nbytes = nbytes;
    return status;
}

/* A failed op makes the graph's recording fail. */
static FY_COLD fy_status_t note_failure(fy__thread_t *thread, fy_status_t status)
{
    return thread->recording ? fy__recording_failed(thread->recording, status) : status;
}

/* Before a call that a tape looks on: what it saves for going back. The tape does not see what a
 * rule or the log function calls meanwhile. */
static __attribute__((noinline)) fy_status_t begin_taped(fy__thread_t *thread,
                                                         const fy__op_row_t *row, size_t nsrc,
                                                         const fy_tensor_t *const *src,
                                                         const void *attrs, size_t ndst,
                                                         fy_tensor_t **dst, bool *out_is_recorded)
{
    bool is_whole = true;
    *out_is_recorded = false;
    for (size_t i = 0; i < nsrc; i++) is_whole &= src[i] && !fy__tensor_is_gone(src[i]);
    for (size_t i = 0; i < ndst; i++) is_whole &= !dst[i] || !fy__tensor_is_gone(dst[i]);
    if (FY_LIKELY(is_whole)) /* else the dispatcher refuses it */
        FY_TRY(fy__tape_before(thread, thread->tape, row, nsrc, src, attrs, ndst, dst,
                               out_is_recorded));
    thread->tape = NULL;
    return FY_STATUS_OK;
}

/* And after it. */
static __attribute__((noinline)) void end_taped(fy__thread_t *thread, fy_tape_t *tape,
                                                bool is_recorded, fy_status_t status,
                                                fy_tensor_t *const *dst)
{
    thread->tape = tape;
    if (!is_recorded) return;
    if (FY_LIKELY(status == FY_STATUS_OK))
        fy__tape_kept(thread, tape, dst);
    else
        fy__tape_given_up(thread, tape);
}

fy_status_t fy__dispatch(const fy__op_row_t *row, size_t nsrc, const fy_tensor_t *const *src,
                         const void *attrs, uint32_t accumulate, size_t ndst, fy_tensor_t **dst)
{
    fy_desc_t near[NEAR];
    fy__thread_t *thread = fy__thread();
    if (FY_UNLIKELY(!thread)) return FY_STATUS_OUT_OF_MEMORY;
    if (FY_UNLIKELY(thread->autocast))
        return fy__autocast_dispatch(thread, row, nsrc, src, attrs, accumulate, ndst, dst);
    fy_tape_t *tape = thread->tape;
    bool is_recorded = false;
    if (FY_UNLIKELY(tape != NULL)) {
        const fy_status_t refused =
            begin_taped(thread, row, nsrc, src, attrs, ndst, dst, &is_recorded);
        if (refused != FY_STATUS_OK) return note_failure(thread, refused);
    }
    fy_status_t status;
    if (FY_UNLIKELY(nsrc + ndst > NEAR))
        status = run_far(thread, row, nsrc, src, attrs, accumulate, ndst, dst);
    else if (FY_LIKELY(ndst == 1 && !accumulate && !dst[0])) /* most calls: their own copy of run */
        status = run(thread, row, nsrc, src, attrs, 0, 1, dst, near);
    else
        status = run(thread, row, nsrc, src, attrs, accumulate, ndst, dst, near);
    if (FY_UNLIKELY(tape != NULL)) end_taped(thread, tape, is_recorded, status, dst);
    return FY_LIKELY(status == FY_STATUS_OK) ? status : note_failure(thread, status);
}

FY_COLD fy_status_t fy__op_no_out(fy_op_t op)
{
    return FY_FAIL(INVALID_ARGUMENT, "%s: the out parameter is NULL", fy__op_rows[op].info.name);
}

fy_status_t fy__op_into(fy_op_t op, size_t nsrc, const fy_tensor_t *const *src, const void *attrs,
                        fy_tensor_t *dst)
{
    return fy__dispatch(&fy__op_rows[op], nsrc, src, attrs, 0, 1, &dst);
}
