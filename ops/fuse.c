/* What a replay submits: the steps of a graph, made once at its end. Calls whose results nothing
 * can read are dropped. Neighbours that are elementwise, of one number of elements, become a chain,
 * which runs block by block: each op on one block before the next block. A reduction of short rows
 * can be its last call: blocks then have whole rows.
 * That gives the same bytes if any two operands of different calls, one of them written, are
 * (1) disjoint, or (2) the same elements, so that an element of one is read and written in the
 * recorded order, as `may_meet` checks. A slot without a storage is a tensor that was made and
 * destroyed inside: only calls read it. If the chain writes it first and nothing else reads it, it
 * is a value and needs no memory.
 * Not here: the launch of a chain (chain.c), texts (explain.c). */
#include <stdlib.h>
#include <string.h>

#include "ops/dispatch.h"
#include "ops/graph.h"
#include "runtime/base/dtype.h"

enum { CALLS = 64, USES = 4 * CALLS, ROW = 1024 /* of a reduction */, NONE = UINT32_MAX };

/* One operand of a call in the chain that is being made. */
typedef struct use {
    uint32_t slot;
    const fy_desc_t *desc;
    bool is_written;
    bool is_state; /* of dropout: it is used once, not for each element */
} use_t;

typedef struct fuse {
    fy_graph_t *graph;
    const fy__recording_t *recording;
    uint32_t *first, *last; /* by slot: the calls that use it */
    uint8_t *is_value;      /* by slot, of the chain that is being made */
    use_t uses[USES];
    uint32_t nuses, begin, end, count; /* the chain: its first and last call, how many */
    uint32_t before;                   /* the call before the last one */
} fuse_t;

static bool is_inside(const fuse_t *fuse, uint32_t slot)
{
    const fy__recording_slot_t *s = &fuse->recording->slots[slot];
    return s->is_inside && !s->storage;
}

static uint32_t noperands(const fy__recorded_t *call) { return call->ndst + call->nsrc; }

/* dropout and its gradient: elementwise but for their state. */
static bool is_dropout(fy_op_t op) { return op == FY_OP_DROPOUT || op == FY_OP_DROPOUT_BACKWARD; }

/* Results first, as slots have them. */
static use_t use_of(const fy__recorded_t *call, uint32_t k)
{
    const fy_launch_t *launch = &call->launch;
    const bool is_dst = k < call->ndst;
    return (use_t){ call->slots[k], is_dst ? &launch->dst[k] : &launch->src[k - call->ndst], is_dst,
                    is_dropout(launch->op) && k != 0 && k != call->ndst };
}

/* ---- dropped calls ---- */

/* Bad values, copies and a program's own kernels are seen from outside. */
static bool is_pure(const fy__recorded_t *call)
{
    return !call->is_upload && !call->fault && !call->launch.kernel;
}

static void drop_dead(fuse_t *fuse, uint8_t *is_needed)
{
    fy_graph_t *graph = fuse->graph;
    for (uint32_t i = fuse->recording->ncalls; i-- > 0;) {
        const fy__recorded_t *call = &fuse->recording->calls[i];
        bool is_dead = is_pure(call);
        for (uint32_t k = 0; k < call->ndst; k++)
            is_dead &= is_inside(fuse, call->slots[k]) && !is_needed[call->slots[k]];
        if (is_dead) {
            graph->fates[i] = FY__FATE_DROPPED;
            graph->dropped_calls++;
            continue;
        }
        for (uint32_t k = call->ndst; k < noperands(call); k++) is_needed[call->slots[k]] = 1;
        /* bytes that are kept, or added to */
        for (uint32_t k = 0; k < call->ndst; k++)
            if (call->is_upload || !(call->replaced >> k & 1)) is_needed[call->slots[k]] = 1;
    }
}

static void note_uses(fuse_t *fuse)
{
    for (uint32_t i = 0; i < fuse->recording->nslots; i++) fuse->first[i] = fuse->last[i] = NONE;
    for (uint32_t i = 0; i < fuse->recording->ncalls; i++) {
        const fy__recorded_t *call = &fuse->recording->calls[i];
        if (fuse->graph->fates[i] == FY__FATE_DROPPED) continue;
        for (uint32_t k = 0; k < noperands(call); k++) {
            if (fuse->first[call->slots[k]] == NONE) fuse->first[call->slots[k]] = i;
            fuse->last[call->slots[k]] = i;
        }
    }
}

/* ---- operands ---- */

bool fy__graph_is_flat(const fy_desc_t *desc)
{
    int64_t stride = 1;
    for (int axis = desc->rank - 1; axis >= 0; axis--) {
        if (desc->dims[axis] != 1 && desc->strides[axis] != stride) return false;
        stride *= desc->dims[axis];
    }
    return true;
}

void fy__graph_extent(const fy_desc_t *desc, uintptr_t *out_begin, uintptr_t *out_end)
{
    const int64_t size = fy__dtype_sizes[desc->dtype];
    int64_t before = 0, after = size;
    for (int axis = 0; axis < desc->rank; axis++) {
        const int64_t reach = (desc->dims[axis] - 1) * desc->strides[axis] * size;
        if (reach < 0)
            before -= reach;
        else
            after += reach;
    }
    *out_begin = (uintptr_t)desc->data - (uintptr_t)before;
    *out_end = (uintptr_t)desc->data + (uintptr_t)after;
}

static bool is_disjoint(const fy_desc_t *a, const fy_desc_t *b)
{
    uintptr_t a_begin, a_end, b_begin, b_end;
    fy__graph_extent(a, &a_begin, &a_end);
    fy__graph_extent(b, &b_begin, &b_end);
    return a_end <= b_begin || b_end <= a_begin;
}

static bool is_same(const fy_desc_t *a, const fy_desc_t *b)
{
    return a->data == b->data && fy__dtype_sizes[a->dtype] == fy__dtype_sizes[b->dtype] &&
           fy__graph_is_flat(a) && fy__graph_is_flat(b);
}

/* Is the slot used only by the calls begin .. end, of which the first one writes all of it? */
static bool is_value(const fuse_t *fuse, uint32_t slot, uint32_t begin, uint32_t end)
{
    if (!is_inside(fuse, slot) || fuse->first[slot] < begin || fuse->last[slot] > end) return false;
    const fy__recorded_t *call = &fuse->recording->calls[fuse->first[slot]];
    for (uint32_t k = 1; k < noperands(call); k++)
        if (call->slots[k] == slot) return false;
    return call->slots[0] == slot && (call->replaced & 1) != 0;
}

/* `now` is an operand of call `i`, `then` one of an earlier call of the chain. */
static bool may_meet(const fuse_t *fuse, const use_t *then, const use_t *now, uint32_t i)
{
    if ((!then->is_written && !now->is_written) || is_disjoint(then->desc, now->desc)) return true;
    /* a state that is destroyed: a tensor made later may have its bytes */
    if (then->is_state && !now->is_state)
        return is_inside(fuse, then->slot) && fuse->last[then->slot] < i;
    if (now->is_state && !then->is_state) return false;
    if (then->is_state) return true; /* used one call after the other, before all elements */
    if (then->slot == now->slot) return is_same(then->desc, now->desc);
    /* Other tensor, same bytes: the earlier one is read before, or it is gone and was a value. */
    if (!then->is_written && now->is_written) return is_same(then->desc, now->desc);
    return is_value(fuse, then->slot, fuse->begin, i);
}

/* ---- reductions ---- */

static bool is_reduction(fy_op_t op)
{
    return op == FY_OP_SUM || op == FY_OP_MEAN || op == FY_OP_PROD || op == FY_OP_NORM ||
           op == FY_OP_MAX || op == FY_OP_MIN || op == FY_OP_ANY || op == FY_OP_ALL;
}

/* Does the call reduce the last axes of a source without gaps, rows of 2 to ROW elements each? */
static bool reduces_rows(const fy__recorded_t *call)
{
    const fy_launch_t *launch = &call->launch;
    if (call->is_upload || launch->kernel || call->fault || launch->accumulate ||
        !is_reduction(launch->op) || !fy__graph_is_flat(&launch->src[0]) ||
        !fy__graph_is_flat(&launch->dst[0]))
        return false;
    const fy_reduce_attrs_t *attrs = launch->attrs;
    const fy_desc_t *src = &launch->src[0];
    const uint32_t all = (uint32_t)((1ull << src->rank) - 1),
                   mask = attrs->axes ? attrs->axes : all;
    int64_t row = 1;
    int axis = src->rank - 1;
    for (; axis >= 0 && (mask >> axis & 1 || src->dims[axis] == 1); axis--) row *= src->dims[axis];
    for (; axis >= 0; axis--)
        if (mask >> axis & 1 && src->dims[axis] != 1) return false;
    return row >= 2 && row <= ROW;
}

/* ---- chains ---- */

static uint64_t count_of(const fy_desc_t *desc)
{
    uint64_t nelem = 1;
    for (int axis = 0; axis < desc->rank; axis++) nelem *= (uint64_t)desc->dims[axis];
    return nelem;
}

/* Does the device run the op in chains? Asks with a chain of this call alone. ALONE: it does. */
static fy__fate_t ask_device(const fuse_t *fuse, const fy__recorded_t *call)
{
    const fy_launch_t *launch = &call->launch;
    const fy_device_t *device = fuse->recording->device;
    fy_chain_op_t op = { .op = launch->op,
                         .accumulate = (uint16_t)(launch->accumulate & 1),
                         .nsrc = launch->nsrc,
                         .src = { launch->ndst, (uint16_t)(launch->ndst + 1),
                                  (uint16_t)(launch->ndst + 2) },
                         .dst_dtype = (uint8_t)launch->dst[0].dtype,
                         .attrs_nbytes = (uint32_t)launch->attrs_nbytes };
    fy_launch_t chain = { .struct_size = sizeof chain,
                          .op = FY_LAUNCH_CHAIN,
                          .nsrc = launch->nsrc,
                          .ndst = launch->ndst,
                          .dst = launch->dst,
                          .src = launch->src,
                          .attrs = &op,
                          .attrs_nbytes = sizeof op,
                          .nelem = is_reduction(launch->op) ? count_of(&launch->src[0])
                                                            : launch->nelem };
    for (unsigned k = 0; k < launch->nsrc; k++) op.src_dtype[k] = (uint8_t)launch->src[k].dtype;
    if (launch->attrs_nbytes) memcpy(op.attrs, launch->attrs, launch->attrs_nbytes);
    if (launch->op == FY_OP_DROPOUT) fy__graph_set_states(&op, 1, 2);
    switch (device->backend->chain(device->dev, &chain)) {
    case FY_CHAIN_TAKEN: return FY__FATE_ALONE;
    case FY_CHAIN_NO_DTYPE: return FY__FATE_DTYPE;
    case FY_CHAIN_NO_REDUCTION: return FY__FATE_REDUCTION;
    case FY_CHAIN_TOO_LARGE: return FY__FATE_REFUSED;
    default: return FY__FATE_OP;
    }
}

static fy__fate_t why_several(fy_op_t op)
{
    switch (op) {
    case FY_OP_RAND:
    case FY_OP_RANDN:
    case FY_OP_RANDPERM:
    case FY_OP_DROPOUT2D: return FY__FATE_DRAWS;
    case FY_OP_BATCH_NORM:
    case FY_OP_BATCH_NORM_BACKWARD:
    case FY_OP_LAYER_NORM:
    case FY_OP_LAYER_NORM_BACKWARD:
    case FY_OP_RMS_NORM:
    case FY_OP_RMS_NORM_BACKWARD: return FY__FATE_STATISTICS;
    default: return FY__FATE_RESULTS;
    }
}

static fy__fate_t why_alone(const fuse_t *fuse, const fy__recorded_t *call)
{
    if (call->is_upload) return FY__FATE_TRANSFER;
    if (call->launch.kernel) return FY__FATE_REGISTERED;
    const fy_launch_t *launch = &call->launch;
    const fy_op_info_t *info = &fy__op_rows[launch->op].info;
    const bool has_chains = fuse->recording->device->backend->chain != NULL;
    if (is_reduction(launch->op)) {
        if (!reduces_rows(call)) return FY__FATE_NOT_ROWS;
        const fy__fate_t answer = has_chains ? ask_device(fuse, call) : FY__FATE_ALONE;
        return answer == FY__FATE_ALONE ? FY__FATE_NO_ROWS : answer;
    }
    const bool has_state = is_dropout(launch->op);
    if (launch->ndst != 1 && !has_state) return why_several(launch->op);
    if (!(info->flags & FY_OP_ELEMENTWISE || has_state) || call->fault || launch->nsrc > 3 ||
        launch->attrs_nbytes > sizeof(double[2]))
        return FY__FATE_NOT_ELEMENTWISE;
    if (!has_chains) return FY__FATE_DEVICE;
    for (uint32_t k = 0; k < noperands(call); k++) {
        const use_t use = use_of(call, k);
        if ((k == 0 || use.is_state) && !fy__graph_is_flat(use.desc)) return FY__FATE_GAPS;
    }
    const fy__fate_t answer = ask_device(fuse, call);
    if (answer == FY__FATE_OP && has_state) return FY__FATE_DRAWS;
    if (answer != FY__FATE_ALONE) return answer;
    for (unsigned k = 0; k < launch->nsrc; k++)
        if (!is_same(&launch->dst[0], &launch->src[k]) &&
            !is_disjoint(&launch->dst[0], &launch->src[k]))
            return FY__FATE_OVERLAP;
    return FY__FATE_ALONE;
}

/* FUSED: call `i` can be the next one of the chain. */
static fy__fate_t why_not(const fuse_t *fuse, uint32_t i)
{
    const fy__recorded_t *call = &fuse->recording->calls[i];
    const fy__recorded_t *before = &fuse->recording->calls[fuse->begin];
    if (call->launch.nelem != before->launch.nelem) return FY__FATE_SIZE;
    if (fuse->count == CALLS) return FY__FATE_FULL;
    for (uint32_t k = 0; k < noperands(call); k++) {
        const use_t now = use_of(call, k);
        for (uint32_t j = 0; j < fuse->nuses; j++)
            if (!may_meet(fuse, &fuse->uses[j], &now, i)) return FY__FATE_OVERLAP;
    }
    return FY__FATE_FUSED;
}

/* Can the reduction `i` end the chain? Its source is a result of the chain; its own result is apart
 * from all operands, because an element of it is written after a row. */
static bool can_end(const fuse_t *fuse, uint32_t i)
{
    const fy__recorded_t *call = &fuse->recording->calls[i];
    const fy_desc_t *src = &call->launch.src[0], *dst = &call->launch.dst[0];
    bool is_made = false;
    if (!fuse->count || fuse->count == CALLS || !fuse->recording->device->backend->chain)
        return false;
    if (count_of(src) != fuse->recording->calls[fuse->begin].launch.nelem) return false;
    const use_t read = { call->slots[1], src, false, false };
    for (uint32_t j = 0; j < fuse->nuses; j++) {
        const use_t *use = &fuse->uses[j];
        is_made |= use->is_written && use->slot == read.slot;
        if (!may_meet(fuse, use, &read, i)) return false;
        if (!is_disjoint(use->desc, dst) && !is_value(fuse, use->slot, fuse->begin, i))
            return false;
    }
    return is_made;
}

static void join(fuse_t *fuse, uint32_t i)
{
    const fy__recorded_t *call = &fuse->recording->calls[i];
    if (!fuse->count) {
        fuse->begin = i;
        fuse->nuses = 0;
    }
    for (uint32_t k = 0; k < noperands(call); k++) fuse->uses[fuse->nuses++] = use_of(call, k);
    fuse->before = fuse->end;
    fuse->end = i;
    fuse->count++;
}

static void add_step(fy_graph_t *graph, uint32_t call, uint32_t last, fy_launch_t *chain)
{
    graph->steps[graph->nsteps++] = (fy__graph_step_t){ call, last, chain };
}

/* Makes a chain of the calls joined so far, or a separate step of each. */
static fy_status_t close_chain(fuse_t *fuse)
{
    fy_graph_t *graph = fuse->graph;
    fy_launch_t *launch = NULL;
    if (fuse->count > 1) {
        for (uint32_t j = 0; j < fuse->nuses; j++)
            fuse->is_value[fuse->uses[j].slot] =
                is_value(fuse, fuse->uses[j].slot, fuse->begin, fuse->end);
        FY_TRY(fy__graph_chain(graph, fuse->begin, fuse->end, fuse->is_value, &launch));
        for (uint32_t i = fuse->begin; i <= fuse->end; i++)
            if (graph->fates[i] != FY__FATE_DROPPED)
                graph->fates[i] = launch ? FY__FATE_FUSED : FY__FATE_REFUSED;
    }
    const uint32_t last = fuse->end;
    if (!launch && fuse->count > 1 && is_reduction(fuse->recording->calls[last].launch.op)) {
        fuse->end = fuse->before; /* without it */
        fuse->nuses -= noperands(&fuse->recording->calls[last]);
        fuse->count--;
        FY_TRY(close_chain(fuse));
        add_step(graph, last, last, NULL);
        return FY_STATUS_OK;
    }
    if (launch) {
        add_step(graph, fuse->begin, fuse->end, launch);
        graph->chains++;
        graph->fused_calls += fuse->count;
    }
    for (uint32_t i = fuse->begin; fuse->count && !launch && i <= fuse->end; i++)
        if (graph->fates[i] != FY__FATE_DROPPED) add_step(graph, i, i, NULL);
    fuse->count = 0;
    return FY_STATUS_OK;
}

static fy_status_t make_chains(fuse_t *fuse)
{
    fy_graph_t *graph = fuse->graph;
    for (uint32_t i = 0; i < fuse->recording->ncalls; i++) {
        if (graph->fates[i] == FY__FATE_DROPPED) continue;
        graph->fates[i] = (uint8_t)why_alone(fuse, &fuse->recording->calls[i]);
        if (graph->fates[i] == FY__FATE_NO_ROWS && can_end(fuse, i)) {
            join(fuse, i);
            FY_TRY(close_chain(fuse));
            continue;
        }
        if (graph->fates[i] != FY__FATE_ALONE) {
            FY_TRY(close_chain(fuse));
            add_step(graph, i, i, NULL);
            continue;
        }
        const fy__fate_t fate = fuse->count ? why_not(fuse, i) : FY__FATE_FUSED;
        if (fate != FY__FATE_FUSED) {
            FY_TRY(close_chain(fuse));
            graph->fates[i] = (uint8_t)fate;
        }
        join(fuse, i);
    }
    return close_chain(fuse);
}

/* ---- the whole ---- */

/* flops and bytes of a replay are those of its steps */
static void add_costs(fy_graph_t *graph)
{
    fy__recording_t *recording = &graph->recording;
    recording->flops = recording->nbytes = 0;
    for (uint32_t i = 0; i < graph->nsteps; i++) {
        const fy__recorded_t *call = &recording->calls[graph->steps[i].call];
        const fy_launch_t *launch = graph->steps[i].chain ? graph->steps[i].chain : &call->launch;
        const uint64_t flops = call->is_upload ? 0 : launch->flops,
                       nbytes = call->is_upload ? 2 * call->upload.copy.nbytes : launch->nbytes;
        if (__builtin_add_overflow(recording->flops, flops, &recording->flops))
            recording->flops = UINT64_MAX;
        if (__builtin_add_overflow(recording->nbytes, nbytes, &recording->nbytes))
            recording->nbytes = UINT64_MAX;
    }
}

fy_status_t fy__graph_fuse(fy_graph_t *graph)
{
    fy__recording_t *recording = &graph->recording;
    const uint32_t ncalls = recording->ncalls, nslots = recording->nslots;
    FY_TRY(fy__recording_bytes(recording, (ncalls + 1) * sizeof *graph->steps, &graph->steps));
    FY_TRY(fy__recording_bytes(recording, ncalls + 1, &graph->fates));
    for (uint32_t i = 0; i < ncalls; i++) graph->fates[i] = FY__FATE_OFF;
    if (recording->device->fuse_off) {
        for (uint32_t i = 0; i < ncalls; i++) add_step(graph, i, i, NULL);
        return FY_STATUS_OK;
    }
    const size_t nbytes = sizeof(fuse_t) + (size_t)nslots * (2 * sizeof(uint32_t) + 2);
    fuse_t *fuse = calloc(1, nbytes);
    if (!fuse) return FY_FAIL(OUT_OF_MEMORY, "graph_end: no host memory for %zu bytes", nbytes);
    fuse->graph = graph;
    fuse->recording = recording;
    fuse->first = (uint32_t *)(fuse + 1);
    fuse->last = fuse->first + nslots;
    fuse->is_value = (uint8_t *)(fuse->last + nslots);
    drop_dead(fuse, fuse->is_value + nslots);
    note_uses(fuse);
    const fy_status_t status = make_chains(fuse);
    free(fuse);
    if (status == FY_STATUS_OK) add_costs(graph);
    return status;
}
