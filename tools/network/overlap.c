/* A step on several ranks; see overlap.h. */
#include "tools/network/overlap.h"

#include <math.h>
#include <stdlib.h>

#include "tools/cli/tool.h"

enum { BLOCK_ALIGN = 256 }; /* of device blocks: fy_pool_options_t.alignment */

size_t buckets_cut(size_t count, const uint64_t *nbytes, uint64_t first, uint64_t most,
                   uint64_t last, size_t *out_end)
{
    size_t nbuckets = 0, tail = count; /* where the last bucket begins */
    uint64_t filled = 0, left = last;
    while (tail > 0 && nbytes[tail - 1] <= left) left -= nbytes[--tail];
    for (size_t i = 0; i < count; i++) {
        filled += nbytes[i];
        if (filled < (nbuckets ? most : first) && i + 1 < count && i + 1 != tail) continue;
        out_end[nbuckets++] = i + 1;
        filled = 0;
    }
    return nbuckets;
}

static void cut(const backward_t *backward, uint64_t most, overlap_t *out)
{
    uint64_t *nbytes = tool_alloc((backward->count + 1) * sizeof *nbytes);
    size_t *ends = tool_alloc((backward->count + 1) * sizeof *ends), first = 0;
    for (size_t i = 0; i < backward->count; i++) nbytes[i] = backward->arrivals[i].nbytes;
    out->count = buckets_cut(backward->count, nbytes,
                             most < BUCKET_FIRST_NBYTES ? most : BUCKET_FIRST_NBYTES, most,
                             most < BUCKET_LAST_NBYTES ? most : BUCKET_LAST_NBYTES, ends);
    out->buckets = tool_alloc((out->count + 1) * sizeof *out->buckets);
    for (size_t b = 0; b < out->count; b++) {
        bucket_t *bucket = &out->buckets[b];
        *bucket = (bucket_t){ .gradients = ends[b] - first };
        for (; first < ends[b]; first++) {
            const arrival_t *arrival = &backward->arrivals[first];
            bucket->nbytes += arrival->nbytes;
            if (arrival->ns > bucket->ready_ns) bucket->ready_ns = arrival->ns;
        }
    }
    free(nbytes);
    free(ends);
}

static void add_cost(const cost_t *cost, overlap_t *out)
{
    out->communication_ns += cost->ns;
    out->inside_nbytes += cost->inside_nbytes;
    out->between_nbytes += cost->between_nbytes;
}

/* A rank's part of each bucket; each tensor of the state is one block. */
static void size_state(const cluster_t *cluster, const backward_t *backward, overlap_t *out)
{
    const uint64_t ranks = (uint64_t)cluster->ranks;
    uint64_t elements = 0, nbytes = 0;
    out->state_nbytes = out->shard_nbytes = backward->state_nbytes;
    if (ranks == 1 || !backward->nstates) return;
    for (size_t b = 0; b < out->count; b++) {
        const uint64_t whole = out->buckets[b].nbytes / backward->element_nbytes;
        const uint64_t part = (whole + ranks - 1) / ranks;
        elements += (part + OVERLAP_PART - 1) / OVERLAP_PART * OVERLAP_PART;
    }
    nbytes = elements * backward->state_element_nbytes / backward->nstates;
    nbytes = (nbytes + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN * backward->nstates;
    if (nbytes < out->shard_nbytes) out->shard_nbytes = nbytes;
}

void overlap_run(const cluster_t *cluster, const backward_t *backward, uint64_t bucket_nbytes,
                 bool shard, overlap_t *out_overlap)
{
    uint64_t end_ns = 0;
    *out_overlap = (overlap_t){ .count = 0 };
    cut(backward, bucket_nbytes, out_overlap);
    for (size_t b = 0; b < out_overlap->count; b++) {
        bucket_t *bucket = &out_overlap->buckets[b];
        const cost_t cost = network_cost(
            cluster, shard ? COLLECTIVE_REDUCE_SCATTER : COLLECTIVE_ALL_REDUCE, bucket->nbytes);
        bucket->begin_ns = bucket->ready_ns > end_ns ? bucket->ready_ns : end_ns;
        bucket->end_ns = end_ns = bucket->begin_ns + cost.ns;
        add_cost(&cost, out_overlap);
    }
    const uint64_t late_ns = end_ns > backward->backward_ns ? end_ns - backward->backward_ns : 0;
    out_overlap->exposed_ns = late_ns;
    if (shard) {
        const cost_t gather = network_cost(cluster, COLLECTIVE_ALL_GATHER, backward->nbytes);
        add_cost(&gather, out_overlap);
        out_overlap->exposed_ns += gather.ns;
    }
    out_overlap->step_ns = backward->step_ns + out_overlap->exposed_ns;
    size_state(cluster, backward, out_overlap);
}

void overlap_free(overlap_t *overlap) { free(overlap->buckets); }

double overlap_hidden(const overlap_t *overlap)
{
    if (!overlap->communication_ns) return NAN;
    return 100 * (1 - (double)overlap->exposed_ns / (double)overlap->communication_ns);
}
