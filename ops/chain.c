/* From calls to the launch of a chain: numbers the operands, and gives values between the ops as
 * few places as there are values at once.
 * Not here: which calls make a chain (fuse.c), running it (backends/). */
#include <string.h>

#include "ops/cost.h"
#include "ops/dispatch.h"
#include "ops/graph.h"
#include "runtime/base/dtype.h"

enum { OPERANDS = 24, VALUES = 12 };

typedef struct chain {
    const fy_graph_t *graph;
    uint32_t first, last;
    const uint8_t *is_value; /* by slot */
    unsigned ndst, nsrc, nvalues;
    fy_desc_t dst[OPERANDS], src[OPERANDS];
    bool is_read[OPERANDS]; /* dst */
    struct {
        uint32_t slot;
        uint8_t dtype;
        bool is_used;
    } value[VALUES];
} chain_t;

static bool is_equal(const fy_desc_t *a, const fy_desc_t *b)
{
    bool equal = a->data == b->data && a->dtype == b->dtype && a->rank == b->rank;
    for (int axis = 0; equal && axis < a->rank; axis++)
        equal = a->dims[axis] == b->dims[axis] && a->strides[axis] == b->strides[axis];
    return equal;
}

/* The same bytes as a result, element by element; -1: not so. */
static int find_dst(const chain_t *chain, const fy_desc_t *desc)
{
    for (unsigned i = 0; i < chain->ndst; i++)
        if (chain->dst[i].data == desc->data && fy__graph_is_flat(desc) &&
            fy__dtype_sizes[chain->dst[i].dtype] == fy__dtype_sizes[desc->dtype])
            return (int)i;
    return -1;
}

static int find_src(const chain_t *chain, const fy_desc_t *desc)
{
    for (unsigned i = 0; i < chain->nsrc; i++)
        if (is_equal(&chain->src[i], desc)) return (int)i;
    return -1;
}

static const fy__recorded_t *call_at(const chain_t *chain, uint32_t i)
{
    return chain->graph->fates[i] == FY__FATE_DROPPED ? NULL : &chain->graph->recording.calls[i];
}

/* The operands in memory; false: too many. */
static bool find_operands(chain_t *chain)
{
    for (int pass = 0; pass < 2; pass++) /* results first: a source may be one of them */
        for (uint32_t i = chain->first; i <= chain->last; i++) {
            const fy__recorded_t *call = call_at(chain, i);
            if (!call) continue;
            const fy_launch_t *launch = &call->launch;
            for (unsigned k = 0; pass == 0 && k < launch->ndst; k++) {
                if (chain->is_value[call->slots[k]] || find_dst(chain, &launch->dst[k]) >= 0)
                    continue;
                if (chain->ndst == OPERANDS) return false;
                chain->dst[chain->ndst++] = launch->dst[k];
            }
            for (unsigned k = 0; pass == 1 && k < launch->nsrc; k++) {
                if (chain->is_value[call->slots[launch->ndst + k]] ||
                    find_dst(chain, &launch->src[k]) >= 0 || find_src(chain, &launch->src[k]) >= 0)
                    continue;
                if (chain->ndst + chain->nsrc == OPERANDS) return false;
                chain->src[chain->nsrc++] = launch->src[k];
            }
        }
    return chain->ndst + chain->nsrc <= OPERANDS;
}

static bool is_read_after(const chain_t *chain, uint32_t call, uint32_t slot)
{
    for (uint32_t i = call + 1; i <= chain->last; i++) {
        const fy__recorded_t *next = call_at(chain, i);
        for (uint32_t k = 0; next && k < next->ndst + next->nsrc; k++)
            if (next->slots[k] == slot) return true;
    }
    return false;
}

static int find_value(const chain_t *chain, uint32_t slot)
{
    for (int i = 0; i < VALUES; i++)
        if (chain->value[i].is_used && chain->value[i].slot == slot) return i;
    return -1;
}

/* The place of the value that call `i` writes; -1: there are too many. The place of a source that
 * is not read again can be taken at once if its elements have the same size. */
static int take_value(chain_t *chain, uint32_t i)
{
    const fy__recorded_t *call = call_at(chain, i);
    const uint32_t slot = call->slots[0];
    const uint8_t dtype = (uint8_t)call->launch.dst[0].dtype;
    int place = find_value(chain, slot);
    for (uint32_t k = call->ndst; k < call->ndst + call->nsrc && place < 0; k++) {
        const int source = find_value(chain, call->slots[k]);
        if (source >= 0 && !is_read_after(chain, i, call->slots[k]) &&
            fy__dtype_sizes[chain->value[source].dtype] == fy__dtype_sizes[dtype])
            place = source;
    }
    for (int k = 0; k < VALUES && place < 0; k++)
        if (!chain->value[k].is_used) place = k;
    if (place < 0) return -1;
    chain->value[place].is_used = true;
    chain->value[place].slot = slot;
    chain->value[place].dtype = dtype;
    if ((unsigned)place >= chain->nvalues) chain->nvalues = (unsigned)place + 1;
    return place;
}

/* The number of an operand that is read. */
static uint16_t number(chain_t *chain, uint32_t slot, const fy_desc_t *desc)
{
    const int noperands = (int)(chain->ndst + chain->nsrc);
    if (chain->is_value[slot]) return (uint16_t)(noperands + find_value(chain, slot));
    const int dst = find_dst(chain, desc);
    if (dst < 0) return (uint16_t)((int)chain->ndst + find_src(chain, desc));
    chain->is_read[dst] = true;
    return (uint16_t)dst;
}

void fy__graph_set_states(fy_chain_op_t *op, uint16_t state, uint16_t before)
{
    op->nsrc = 3;
    op->src[1] = state;
    op->src[2] = before;
    op->src_dtype[1] = op->src_dtype[2] = FY_DTYPE_I64;
}

/* false: too many values. */
static bool add_op(chain_t *chain, uint32_t i, fy_chain_op_t *out_op)
{
    const fy__recorded_t *call = call_at(chain, i);
    const fy_launch_t *launch = &call->launch;
    *out_op = (fy_chain_op_t){ .op = launch->op,
                               .accumulate = (uint16_t)(launch->accumulate & 1),
                               .nsrc = launch->nsrc,
                               .dst_dtype = (uint8_t)launch->dst[0].dtype,
                               .attrs_nbytes = (uint32_t)launch->attrs_nbytes };
    if (launch->attrs_nbytes) memcpy(out_op->attrs, launch->attrs, launch->attrs_nbytes);
    for (unsigned k = 0; k < launch->nsrc; k++) {
        out_op->src[k] = number(chain, call->slots[launch->ndst + k], &launch->src[k]);
        out_op->src_dtype[k] = (uint8_t)launch->src[k].dtype;
    }
    if (launch->op == FY_OP_DROPOUT)
        fy__graph_set_states(out_op, number(chain, call->slots[1], &launch->dst[1]),
                             (uint16_t)find_dst(chain, &launch->dst[2]));
    if (!chain->is_value[call->slots[0]]) {
        const int dst = find_dst(chain, &launch->dst[0]);
        chain->is_read[dst] |= (launch->accumulate | fy__op_rows[launch->op].info.inout) & 1;
        out_op->dst = (uint16_t)dst;
    } else {
        const int place = take_value(chain, i);
        if (place < 0) return false;
        out_op->dst = (uint16_t)(chain->ndst + chain->nsrc + (unsigned)place);
    }
    for (int k = 0; k < VALUES; k++) /* those that were read for the last time */
        chain->value[k].is_used &= is_read_after(chain, i, chain->value[k].slot);
    return true;
}

static void set_cost(const chain_t *chain, fy_launch_t *launch)
{
    for (uint32_t i = chain->first; i <= chain->last; i++)
        if (call_at(chain, i))
            launch->flops = fy__cost_add(launch->flops, call_at(chain, i)->launch.flops);
    for (unsigned i = 0; i < chain->ndst; i++) {
        const uint64_t nbytes = fy__cost_unique_nbytes(&launch->dst[i]);
        launch->nbytes = fy__cost_add(launch->nbytes, nbytes);
        if (chain->is_read[i]) launch->nbytes = fy__cost_add(launch->nbytes, nbytes);
    }
    for (unsigned i = 0; i < chain->nsrc; i++)
        launch->nbytes = fy__cost_add(launch->nbytes, fy__cost_unique_nbytes(&launch->src[i]));
}

fy_status_t fy__graph_chain(fy_graph_t *graph, uint32_t first, uint32_t last,
                            const uint8_t *is_value, fy_launch_t **out_launch)
{
    chain_t chain = { .graph = graph, .first = first, .last = last, .is_value = is_value };
    fy_device_t *device = graph->recording.device;
    fy_chain_op_t *ops;
    fy_desc_t *descs;
    fy_launch_t *launch;
    uint32_t count = 0;
    *out_launch = NULL;
    if (!find_operands(&chain) || !chain.ndst) return FY_STATUS_OK;
    for (uint32_t i = first; i <= last; i++) count += call_at(&chain, i) != NULL;
    FY_TRY(fy__recording_bytes(&graph->recording, sizeof *launch, &launch));
    FY_TRY(fy__recording_bytes(&graph->recording, count * sizeof *ops, &ops));
    FY_TRY(
        fy__recording_bytes(&graph->recording, (chain.ndst + chain.nsrc) * sizeof *descs, &descs));
    *launch = (fy_launch_t){
        .struct_size = sizeof *launch,
        .op = FY_LAUNCH_CHAIN,
        .nsrc = (uint16_t)chain.nsrc,
        .ndst = (uint16_t)chain.ndst,
        .dst = descs,
        .src = descs + chain.ndst,
        .attrs = ops,
        .attrs_nbytes = count * sizeof *ops,
        .nelem = graph->recording.calls[first].launch.nelem,
    };
    memcpy(launch->dst, chain.dst, chain.ndst * sizeof *descs);
    memcpy(launch->src, chain.src, chain.nsrc * sizeof *descs);
    for (uint32_t i = first, k = 0; i <= last; i++)
        if (call_at(&chain, i) && !add_op(&chain, i, &ops[k++])) return FY_STATUS_OK;
    set_cost(&chain, launch);
    if (device->backend->chain(device->dev, launch) == FY_CHAIN_TAKEN) *out_launch = launch;
    return FY_STATUS_OK;
}
