/* Dispatch: from tensors to one launch. In order: one device? shapes and dtypes (the row's rule) · results · cost · fault flag · scratch ·
 * device-side waits · launch · hazards, versions, poison, ledger. Everything before the launch can refuse, and has then changed nothing.
 * The straight path (host, new result, nothing poisoned) takes no lock and no read-modify-write; what is rare stands in cold functions.
 * Not here: what refuse.c says when operands do not fit. */
#include "ops/dispatch.h"

#include <stdlib.h>
#include <string.h>

#include "ops/refuse.h"
#include "runtime/base/fail.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

enum { NEAR = 8 }; /* operands that need no scratch from the heap */

/* One call on its way. */
typedef struct fy__call {
    const fy__op_row_t *row;
    fy__thread_t *thread;
    fy_device_t *device;
    fy_stream_t *stream; /* NULL on synchronous devices */
    const fy_tensor_t *const *src;
    fy_tensor_t **dst;
    uint64_t made;      /* bit i: dst[i] was made by this call */
    bool suspect;       /* some operand is poisoned or may be */
    uint32_t own_fault; /* synchronous devices: the flag itself */
    uint64_t request;   /* asynchronous: the flag's number */
    fy__storage_t *workspace;
    fy_launch_t launch;
} fy__call_t;

/* ---- before the launch ---- */

static inline void fill_sources(fy__call_t *call)
{
    for (unsigned i = 0; i < call->launch.nsrc; i++) {
        const fy_tensor_t *tensor = call->src[i];
        fy__tensor_desc(tensor, &call->launch.src[i]);
        call->suspect |= fy__suspect_any(&tensor->storage->suspect);
    }
}

/* The given dst as a kernel sees it; it must be something that can be written. */
static FY_COLD fy_status_t take_given(fy__call_t *call, unsigned i)
{
    fy_tensor_t *tensor = call->dst[i];
    const fy_desc_t *ruled = &call->launch.dst[i];
    const char *name = call->row->info.name;
    if (!(call->row->info.flags & FY_OP_IN_PLACE)) FY_TRY(fy__refuse_unlike(name, i, tensor, ruled));
    FY_TRY(fy__refuse_unwritable(name, i, tensor));
    FY_TRY(fy__refuse_overlap(&call->row->info, i, tensor, call->launch.nsrc, call->src));
    for (unsigned j = 0; j < i; j++)
        if (call->dst[j]) FY_TRY(fy__refuse_overlap(&call->row->info, i, tensor, 1, (const fy_tensor_t *const *)&call->dst[j]));
    if (atomic_load_explicit(&tensor->storage->borrow, memory_order_relaxed)) FY_TRY(fy__storage_check_borrow(tensor->storage, name));
    call->suspect |= fy__suspect_any(&tensor->storage->suspect);
    fy__tensor_desc(tensor, &call->launch.dst[i]);
    return FY_STATUS_OK;
}

/* The rule gave dtype, rank and dims; sizes of sources fit 63 bits, but a broadcast or an outer product may not. */
static inline fy_status_t make_result(fy__call_t *call, unsigned i)
{
    fy_desc_t *desc = &call->launch.dst[i];
    uint64_t nelem = 1;
    bool overflow = false;
    for (int axis = 0; axis < desc->rank; axis++) overflow |= __builtin_mul_overflow(nelem, (uint64_t)desc->dims[axis], &nelem);
    if (FY_UNLIKELY(overflow || nelem > INT64_MAX / 8)) {
        uint64_t nbytes;
        FY_TRY(fy__shape_check(call->row->info.name, (fy_dtype_t)desc->dtype, desc->rank, desc->dims, &nelem, &nbytes));
    }
    FY_TRY(fy__tensor_new(call->thread, call->device, (fy_dtype_t)desc->dtype, desc->rank, desc->dims, nelem, call->stream, &call->dst[i]));
    const fy_tensor_t *tensor = call->dst[i];
    call->made |= 1ull << i;
    desc->data = tensor->data;
    for (int axis = 0; axis < desc->rank; axis++) desc->strides[axis] = tensor->strides[axis];
    return FY_STATUS_OK;
}

/* All operands row-major without gaps and as many elements as dst[0]: then broadcasting changed nothing. */
static inline bool is_dense(const fy__call_t *call)
{
    const fy_tensor_t *dst = call->dst[0];
    if (!dst->contiguous) return false;
    for (unsigned i = 0; i < call->launch.nsrc; i++)
        if (!call->src[i]->contiguous || call->src[i]->nelem != dst->nelem) return false;
    return true;
}

static FY_COLD fy_status_t take_fault_flag(fy__call_t *call)
{
    if (!call->device->synchronous) return fy__fault_begin(call->device, call->row->info.name, &call->request, &call->launch.fault);
    call->launch.fault = &call->own_fault;
    return FY_STATUS_OK;
}

static fy_status_t take_workspace(fy__call_t *call)
{
    const fy_device_t *device = call->device;
    const uint64_t nbytes = device->backend->workspace(device->dev, &call->launch, device->workspace_nbytes);
    if (!nbytes) return FY_STATUS_OK;
    FY_TRY(fy__storage_create(call->thread, call->device, nbytes, call->stream, &call->workspace));
    call->launch.workspace = call->workspace->data;
    call->launch.workspace_nbytes = nbytes;
    return FY_STATUS_OK;
}

/* Registered ops bring their kernels; sim runs the host's. */
static FY_COLD fy_status_t choose_kernel(fy__call_t *call)
{
    const fy__op_row_t *row = call->row;
    const char *name = call->device->backend->name;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < row->nkernels; i++)
            if (strcmp(row->kernels[i].backend, name) == 0) {
                call->launch.kernel = row->kernels[i].kernel;
                call->launch.user = row->user;
                return FY_STATUS_OK;
            }
        if (strcmp(name, "sim") != 0) break;
        name = "host";
    }
    return FY_FAIL(UNSUPPORTED, "%s: it was registered without a kernel for %s (device %s)", row->info.name, call->device->backend->name,
                   call->device->spec);
}

/* ---- asynchronous devices ---- */

static fy_status_t wait_on_device(fy__call_t *call)
{
    for (unsigned i = 0; i < call->launch.nsrc; i++) FY_TRY(fy__hazard_before_read(&call->src[i]->storage->hazard, call->stream));
    for (unsigned i = 0; i < call->launch.ndst; i++) FY_TRY(fy__hazard_before_write(&call->dst[i]->storage->hazard, call->stream));
    return call->workspace ? fy__hazard_before_write(&call->workspace->hazard, call->stream) : FY_STATUS_OK;
}

static void note_on_device(fy__call_t *call)
{
    const fy__point_t point = fy__stream_submitted(call->stream);
    for (unsigned i = 0; i < call->launch.nsrc; i++) fy__hazard_read(&call->src[i]->storage->hazard, call->stream, point);
    for (unsigned i = 0; i < call->launch.ndst; i++) fy__hazard_written(&call->dst[i]->storage->hazard, point);
    if (call->workspace) fy__hazard_written(&call->workspace->hazard, point);
    if (call->request) fy__fault_end(call->device, call->request, point);
}

/* ---- poison ---- */

/* What the results suffer from: what their sources did, and this request's own flag. */
static FY_COLD void spread_poison(fy__call_t *call)
{
    fy__suspect_t all = { 0, 0, 0 };
    for (unsigned i = 0; i < call->launch.nsrc; i++) fy__suspect_join(call->device, &all, &call->src[i]->storage->suspect);
    if (call->request) fy__suspect_add(call->device, &all, call->request);
    if (call->own_fault && !all.poison)
        all.poison = fy__poison_record(FY_STATUS_BAD_VALUE, "%s met an index outside its range and clamped it; check the indices",
                                       call->row->info.name);
    for (unsigned i = 0; i < call->launch.ndst; i++) {
        fy_tensor_t *tensor = call->dst[i];
        fy__storage_t *storage = tensor->storage;
        const bool replaced = !(call->row->info.inout >> i & 1) && !(call->launch.accumulate >> i & 1) && tensor->contiguous &&
                              fy__tensor_nbytes(tensor) == storage->nbytes;
        if (replaced) storage->suspect = (fy__suspect_t){ 0, 0, 0 };
        fy__suspect_join(call->device, &storage->suspect, &all);
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
        if (!(call->made >> i & 1)) continue;
        fy__tensor_free(call->thread, call->dst[i]);
        call->dst[i] = NULL;
    }
    fy__error_restore(&first);
    return status;
}

static fy_status_t run(fy__call_t *call)
{
    const fy_op_info_t *info = &call->row->info;
    fy_device_t *device = call->device;
    fy_launch_t *launch = &call->launch;
    fy_status_t status;
    fill_sources(call);
    if (info->flags & FY_OP_IN_PLACE)
        for (unsigned i = 0; i < launch->ndst; i++) fy__tensor_desc(call->dst[i], &launch->dst[i]);
    FY_TRY(call->row->shape(info, launch));
    for (unsigned i = 0; i < launch->ndst; i++) {
        status = FY_LIKELY(!call->dst[i]) ? make_result(call, i) : take_given(call, i);
        if (FY_UNLIKELY(status != FY_STATUS_OK)) return give_up(call, status);
    }
    launch->nelem = call->dst[0]->nelem;
    if (FY_UNLIKELY(!launch->nelem) && launch->ndst == 1) return FY_STATUS_OK; /* nothing to compute, nothing submitted */
    if (info->flags & FY_OP_ELEMENTWISE) {
        if (is_dense(call)) launch->flags = FY_LAUNCH_DENSE;
    } else if (device->backend->workspace)
        FY_CHECK(take_workspace(call));
    call->row->cost(launch);
    if (FY_UNLIKELY(info->flags & FY_OP_CAN_FAULT)) FY_CHECK(take_fault_flag(call));
    if (FY_UNLIKELY(call->row->nkernels)) FY_CHECK(choose_kernel(call));
    if (call->stream) FY_CHECK(wait_on_device(call));
    FY_CHECK(device->backend->launch(device->dev, call->stream ? call->stream->native : NULL, launch));
    if (call->stream)
        note_on_device(call);
    else
        fy__charge_host(launch->flops, launch->nbytes);
    if (FY_UNLIKELY(call->suspect | call->own_fault | (call->request != 0))) spread_poison(call);
    for (unsigned i = 0; i < launch->ndst; i++)
        if (!(call->made >> i & 1)) fy__storage_wrote(call->dst[i]->storage);
    if (call->workspace) fy__storage_release(call->thread, call->workspace);
    fy__count(&call->thread->node->requests, 1);
    return FY_STATUS_OK;
done:
    return give_up(call, fy__device_check(device, status));
}

/* Operands beyond NEAR: their descriptors lie in the thread's scratch. */
static FY_COLD fy_desc_t *far_descs(fy__thread_t *thread, size_t count)
{
    if (thread->scratch_nbytes < count * sizeof(fy_desc_t)) {
        void *grown = realloc(thread->scratch, count * sizeof(fy_desc_t));
        if (!grown) {
            (void)FY_FAIL(OUT_OF_MEMORY, "no host memory for the descriptors of %zu operands", count);
            return NULL;
        }
        thread->scratch = grown;
        thread->scratch_nbytes = count * sizeof(fy_desc_t);
    }
    return thread->scratch;
}

fy_status_t fy__dispatch(const fy__op_row_t *row, size_t nsrc, const fy_tensor_t *const *src, const void *attrs, uint32_t accumulate,
                         size_t ndst, fy_tensor_t **dst)
{
    fy_desc_t near[NEAR], *descs = near;
    fy__call_t call;
    call.thread = fy__thread();
    if (FY_UNLIKELY(!call.thread)) return FY_STATUS_OUT_OF_MEMORY;
    for (size_t i = 0; i < nsrc; i++)
        if (FY_UNLIKELY(!src[i])) return FY_FAIL(INVALID_ARGUMENT, "%s: src%zu is NULL", row->info.name, i);
    const fy_tensor_t *first = nsrc ? src[0] : dst[0];
    if (FY_UNLIKELY(!first)) return FY_FAIL(INVALID_ARGUMENT, "%s: dst0 is NULL; it writes into a given tensor", row->info.name);
    fy_device_t *device = first->storage->device;
    for (size_t i = 1; i < nsrc; i++)
        if (FY_UNLIKELY(src[i]->storage->device != device)) return fy__refuse_mixed(row->info.name, nsrc, src, ndst, dst);
    for (size_t i = 0; i < ndst; i++)
        if (FY_UNLIKELY(dst[i] && dst[i]->storage->device != device)) return fy__refuse_mixed(row->info.name, nsrc, src, ndst, dst);
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    if (FY_UNLIKELY(accumulate)) FY_TRY(fy__refuse_accumulate(&row->info, accumulate, ndst, dst));
    if (FY_UNLIKELY(nsrc + ndst > NEAR) && !(descs = far_descs(call.thread, nsrc + ndst))) return FY_STATUS_OUT_OF_MEMORY;
    call.row = row;
    call.device = device;
    call.stream = device->synchronous ? NULL : fy__stream_current(device, call.thread->streams);
    call.src = src;
    call.dst = dst;
    call.made = 0;
    call.suspect = false;
    call.own_fault = 0;
    call.request = 0;
    call.workspace = NULL;
    call.launch.struct_size = sizeof call.launch;
    call.launch.op = row->info.op;
    call.launch.nsrc = (uint16_t)nsrc;
    call.launch.ndst = (uint16_t)ndst;
    call.launch.flags = 0;
    call.launch.accumulate = accumulate;
    call.launch.dst = descs;
    call.launch.src = descs + ndst;
    call.launch.attrs = attrs;
    call.launch.attrs_nbytes = row->info.attrs_nbytes;
    call.launch.workspace = NULL;
    call.launch.workspace_nbytes = 0;
    call.launch.fault = NULL;
    call.launch.kernel = NULL;
    call.launch.user = NULL;
    return run(&call);
}

fy_status_t fy__op_new(fy_op_t op, size_t nsrc, const fy_tensor_t *const *src, const void *attrs, fy_tensor_t **out_dst)
{
    const fy__op_row_t *row = fy__op_row(op);
    if (FY_UNLIKELY(!out_dst)) return FY_FAIL(INVALID_ARGUMENT, "%s: the out parameter is NULL", row->info.name);
    *out_dst = NULL;
    return fy__dispatch(row, nsrc, src, attrs, 0, 1, out_dst);
}

fy_status_t fy__op_into(fy_op_t op, size_t nsrc, const fy_tensor_t *const *src, const void *attrs, fy_tensor_t *dst)
{
    return fy__dispatch(fy__op_row(op), nsrc, src, attrs, 0, 1, &dst);
}
