/* A second layout of a graph's memory, when chains and dropped calls have left gaps in the recorded
 * one. Bytes that only calls refer to (a tensor that was made and destroyed inside, workspace) can
 * be anywhere. They are placed again, the largest first, in the segments that the graph has:
 * 1. bytes of one step, or of steps whose intervals meet, do not overlap unless they did before,
 *    and then they move together;
 * 2. storages that still exist, and operands of registered ops, stay where they are;
 * 3. other bytes do not use the place of such a storage: its owner may write it between replays.
 * The layout is taken only if it needs fewer bytes of segments. Then segments that no step uses are
 * released. Not here: segments (runtime/record/private.c). */
#include <stdlib.h>

#include "ops/graph.h"

enum { MOST = 1024 /* groups: placing takes their square, or more */, NONE = UINT32_MAX };

/* Bytes that move together. Entries: of the slots, of the calls' workspaces, of the flags. */
typedef struct item {
    uintptr_t begin, end; /* begin == end: not in memory */
    uint32_t first, last; /* steps */
    uint32_t root;        /* the first item of its group */
    uint32_t newest;      /* of the group: the last one, in the order of making */
    uint32_t made;        /* of a storage that exists: its slot; else NONE */
    uint32_t segment;     /* NONE: not placed */
    bool is_fixed;
    uintptr_t to;
} item_t;

typedef struct segment {
    uintptr_t begin, end;
    bool was_used, is_used;
} segment_t;

typedef struct layout {
    fy_graph_t *graph;
    item_t *items;
    segment_t *segments;
    uint32_t *groups; /* their first items */
    uint32_t nslots, nitems, nsegments, ngroups;
    uintptr_t alignment;
} layout_t;

static const fy__recorded_t *call_of(const fy_graph_t *graph, uint32_t i)
{
    return graph->fates[i] == FY__FATE_DROPPED ? NULL : &graph->recording.calls[i];
}

/* ---- the recorded layout ---- */

static void extend(item_t *item, uintptr_t begin, uintptr_t end, uint32_t step)
{
    if (begin == end) return;
    if (item->begin == item->end) {
        item->begin = begin;
        item->end = end;
        item->first = item->last = step;
    }
    if (begin < item->begin) item->begin = begin;
    if (end > item->end) item->end = end;
    if (step < item->first) item->first = step;
    if (step > item->last) item->last = step;
}

static bool is_empty(const fy_desc_t *desc)
{
    for (int axis = 0; axis < desc->rank; axis++)
        if (!desc->dims[axis]) return true;
    return false;
}

/* Is the operand in memory in this step, or a value of the chain? */
static bool is_operand(const fy__graph_step_t *step, const fy_desc_t *desc)
{
    const fy_launch_t *chain = step->chain;
    for (unsigned i = 0; chain && i < (unsigned)chain->ndst + chain->nsrc; i++)
        if ((i < chain->ndst ? &chain->dst[i] : &chain->src[i - chain->ndst])->data == desc->data)
            return true;
    return !chain;
}

static void note_call(layout_t *l, uint32_t i, uint32_t s)
{
    const fy__recorded_t *call = call_of(l->graph, i);
    const fy__graph_step_t *step = &l->graph->steps[s];
    uintptr_t begin, end;
    if (!call) return;
    if (call->is_upload) {
        begin = (uintptr_t)call->upload.copy.dst;
        extend(&l->items[call->slots[0]], begin, begin + call->upload.copy.nbytes, s);
        return;
    }
    for (uint32_t k = 0; k < call->ndst + call->nsrc; k++) {
        const fy_desc_t *desc = k < call->ndst ? &call->launch.dst[k]
                                               : &call->launch.src[k - call->ndst];
        item_t *item = &l->items[call->slots[k]];
        if (is_empty(desc) || !is_operand(step, desc)) continue;
        fy__graph_extent(desc, &begin, &end);
        extend(item, begin, end, s);
        item->is_fixed |= call->launch.kernel != NULL;
    }
    begin = (uintptr_t)call->launch.workspace;
    extend(&l->items[l->nslots + i], begin, begin + call->launch.workspace_nbytes, s);
    l->items[l->nslots + i].is_fixed |= call->launch.kernel != NULL;
}

static void fix(item_t *item, const fy__storage_t *storage, uint32_t slot)
{
    const bool is_unused = item->begin == item->end;
    extend(item, (uintptr_t)storage->data, (uintptr_t)storage->data + storage->nbytes, 0);
    if (is_unused) item->first = 0;
    item->last = NONE;
    item->made = slot;
    item->is_fixed = true;
}

static void note_items(layout_t *l)
{
    const fy__recording_t *recording = &l->graph->recording;
    for (uint32_t i = 0; i < l->nitems; i++)
        l->items[i] = (item_t){ .root = i, .newest = i, .made = NONE, .segment = NONE };
    for (uint32_t s = 0; s < l->graph->nsteps; s++)
        for (uint32_t i = l->graph->steps[s].call; i <= l->graph->steps[s].last; i++)
            note_call(l, i, s);
    for (uint32_t i = 0; i < l->nslots; i++) {
        const fy__recording_slot_t *slot = &recording->slots[i];
        if (!slot->is_inside) l->items[i].begin = l->items[i].end = 0;
        if (slot->is_inside && slot->storage) fix(&l->items[i], slot->storage, i);
    }
    if (recording->flags) fix(&l->items[l->nitems - 1], recording->flags, 0);
}

/* ---- groups ---- */

static bool overlap(uintptr_t begin, uintptr_t end, uintptr_t other, uintptr_t other_end)
{
    return begin < other_end && other < end;
}

/* May bytes of one group be needed while the other has them? */
static bool is_beside(const item_t *a, const item_t *b)
{
    return (a->first <= b->last && b->first <= a->last) ||
           (a->made != NONE && b->newest > a->made) || (b->made != NONE && a->newest > b->made);
}

static void join(layout_t *l, uint32_t into, uint32_t from)
{
    item_t *a = &l->items[into], *b = &l->items[from];
    extend(a, b->begin, b->end, b->first);
    extend(a, b->begin, b->end, b->last);
    a->is_fixed |= b->is_fixed;
    if (b->made < a->made) a->made = b->made;
    if (b->newest > a->newest) a->newest = b->newest;
    for (uint32_t k = 0; k < l->nitems; k++)
        if (l->items[k].root == from) l->items[k].root = into;
}

/* Items that share bytes in one step move together. false: nothing was left to do. */
static bool join_overlapping(layout_t *l)
{
    bool has_changed = false;
    for (uint32_t i = 0; i < l->ngroups; i++)
        for (uint32_t j = i + 1; j < l->ngroups;) {
            const item_t *a = &l->items[l->groups[i]], *b = &l->items[l->groups[j]];
            if (!overlap(a->begin, a->end, b->begin, b->end) || a->first > b->last ||
                b->first > a->last) {
                j++;
                continue;
            }
            join(l, l->groups[i], l->groups[j]);
            l->groups[j] = l->groups[--l->ngroups];
            has_changed = true;
        }
    return has_changed;
}

/* false: there are too many. */
static bool make_groups(layout_t *l)
{
    for (uint32_t i = 0; i < l->nitems; i++) {
        if (l->items[i].begin == l->items[i].end) continue;
        if (l->ngroups == MOST) return false;
        l->groups[l->ngroups++] = i;
    }
    while (join_overlapping(l)) continue;
    return true;
}

/* ---- places ---- */

/* The lowest place in the segment that no group beside this one has; 0: none. */
static uintptr_t find_place(const layout_t *l, const item_t *item, uint32_t segment)
{
    const segment_t *s = &l->segments[segment];
    const uintptr_t nbytes = item->end - item->begin;
    uintptr_t at = s->begin + item->begin % l->alignment;
    for (uint32_t i = 0; i < l->ngroups && at + nbytes <= s->end;) {
        const item_t *other = &l->items[l->groups[i]];
        const uintptr_t after = other->to + (other->end - other->begin);
        if (other->segment != segment || !overlap(at, at + nbytes, other->to, after) ||
            !is_beside(item, other)) {
            i++;
            continue;
        }
        at += (after - at + l->alignment - 1) / l->alignment * l->alignment;
        i = 0; /* ends: `at` only grows */
    }
    return at + nbytes <= s->end ? at : 0;
}

/* In a segment that is used anyway, else in the smallest one. */
static bool place(layout_t *l, item_t *item)
{
    uint32_t best = NONE;
    for (uint32_t s = 0; s < l->nsegments; s++) {
        const uintptr_t nbytes = l->segments[s].end - l->segments[s].begin;
        if (best != NONE && (l->segments[best].is_used ||
                             (!l->segments[s].is_used &&
                              nbytes >= l->segments[best].end - l->segments[best].begin)))
            continue;
        if (find_place(l, item, s)) best = s;
    }
    if (best == NONE) return false;
    item->to = find_place(l, item, best);
    item->segment = best;
    l->segments[best].is_used = true;
    return true;
}

static void place_fixed(layout_t *l)
{
    for (uint32_t i = 0; i < l->ngroups; i++)
        for (uint32_t s = 0; s < l->nsegments; s++) {
            item_t *item = &l->items[l->groups[i]];
            if (item->begin < l->segments[s].begin || item->end > l->segments[s].end) continue;
            l->segments[s].was_used = true;
            if (!item->is_fixed) continue;
            l->segments[s].is_used = true;
            item->segment = s;
            item->to = item->begin;
        }
}

static bool place_all(layout_t *l)
{
    place_fixed(l);
    for (;;) {
        item_t *next = NULL;
        for (uint32_t i = 0; i < l->ngroups; i++) {
            item_t *item = &l->items[l->groups[i]];
            if (item->segment == NONE &&
                (!next || item->end - item->begin > next->end - next->begin))
                next = item;
        }
        if (!next) return true;
        if (next->is_fixed || !place(l, next)) return false;
    }
}

static bool is_smaller(const layout_t *l)
{
    uint64_t before = 0, now = 0;
    for (uint32_t s = 0; s < l->nsegments; s++) {
        const uint64_t nbytes = l->segments[s].end - l->segments[s].begin;
        before += l->segments[s].was_used ? nbytes : 0;
        now += l->segments[s].is_used ? nbytes : 0;
    }
    return now < before;
}

/* ---- moving ---- */

static void *moved(const layout_t *l, uint32_t i, void *address)
{
    const item_t *item = &l->items[l->items[i].root];
    if (item->begin == item->end) return address;
    return (void *)((uintptr_t)address - item->begin + item->to);
}

/* Equal addresses of one chain are in one group. */
static void *moved_operand(const layout_t *l, const fy__graph_step_t *step, void *address)
{
    for (uint32_t i = step->call; i <= step->last; i++) {
        const fy__recorded_t *call = call_of(l->graph, i);
        for (uint32_t k = 0; call && k < call->ndst + call->nsrc; k++) {
            const uint32_t slot = call->slots[k];
            const fy_desc_t *desc = k < call->ndst ? &call->launch.dst[k]
                                                   : &call->launch.src[k - call->ndst];
            if (desc->data == address && l->items[slot].begin != l->items[slot].end)
                return moved(l, slot, address);
        }
    }
    return address;
}

static void move_call(const layout_t *l, uint32_t i)
{
    fy__recorded_t *call = &l->graph->recording.calls[i];
    if (call->is_upload) {
        call->upload.copy.dst = moved(l, call->slots[0], call->upload.copy.dst);
        return;
    }
    for (uint32_t k = 0; k < call->ndst; k++)
        call->launch.dst[k].data = moved(l, call->slots[k], call->launch.dst[k].data);
    for (uint32_t k = 0; k < call->nsrc; k++)
        call->launch.src[k].data = moved(l, call->slots[call->ndst + k], call->launch.src[k].data);
    call->launch.workspace = moved(l, l->nslots + i, call->launch.workspace);
}

static void move(const layout_t *l)
{
    for (uint32_t s = 0; s < l->graph->nsteps; s++) {
        fy__graph_step_t *step = &l->graph->steps[s];
        for (unsigned k = 0; step->chain && k < step->chain->ndst; k++)
            step->chain->dst[k].data = moved_operand(l, step, step->chain->dst[k].data);
        for (unsigned k = 0; step->chain && k < step->chain->nsrc; k++)
            step->chain->src[k].data = moved_operand(l, step, step->chain->src[k].data);
        for (uint32_t i = step->call; i <= step->last; i++)
            if (call_of(l->graph, i)) move_call(l, i);
    }
}

/* ---- the whole ---- */

fy_status_t fy__graph_layout(fy_graph_t *graph)
{
    const fy__recording_t *recording = &graph->recording;
    layout_t l = { .graph = graph,
                   .nslots = recording->nslots,
                   .nitems = recording->nslots + recording->ncalls + 1,
                   .alignment = recording->device->is_host ? 64
                                                           : recording->device->info.alignment };
    if (!graph->chains && !graph->dropped_calls) return FY_STATUS_OK;
    for (const fy__storage_t *s = recording->memory->segments; s; s = s->next) l.nsegments++;
    const size_t nbytes = l.nitems * sizeof *l.items + l.nsegments * sizeof *l.segments +
                          MOST * sizeof *l.groups;
    l.items = calloc(1, nbytes);
    if (!l.items) return FY_FAIL(OUT_OF_MEMORY, "graph_end: no host memory for %zu bytes", nbytes);
    l.segments = (segment_t *)(l.items + l.nitems);
    l.groups = (uint32_t *)(l.segments + l.nsegments);
    uint32_t n = 0;
    for (const fy__storage_t *s = recording->memory->segments; s; s = s->next)
        l.segments[n++] =
            (segment_t){ .begin = (uintptr_t)s->data, .end = (uintptr_t)s->data + s->nbytes };
    note_items(&l);
    if (make_groups(&l) && place_all(&l) && is_smaller(&l)) move(&l);
    free(l.items);
    return FY_STATUS_OK;
}

/* ---- segments that only values inside chains and dropped calls used are released ---- */

static bool meets(const fy_desc_t *desc, uintptr_t begin, uintptr_t end)
{
    uintptr_t first, last;
    fy__graph_extent(desc, &first, &last);
    return first < end && begin < last;
}

static bool is_within(const void *address, uint64_t nbytes, uintptr_t begin, uintptr_t end)
{
    const uintptr_t first = (uintptr_t)address;
    return nbytes && first < end && begin < first + nbytes;
}

static bool launch_uses(const fy_launch_t *launch, uintptr_t begin, uintptr_t end)
{
    for (unsigned i = 0; i < launch->ndst; i++)
        if (meets(&launch->dst[i], begin, end)) return true;
    for (unsigned i = 0; i < launch->nsrc; i++)
        if (meets(&launch->src[i], begin, end)) return true;
    return is_within(launch->workspace, launch->workspace_nbytes, begin, end);
}

static bool is_used(const void *user, const void *address, uint64_t nbytes)
{
    const fy_graph_t *graph = user;
    const uintptr_t begin = (uintptr_t)address, end = begin + nbytes;
    for (uint32_t i = 0; i < graph->nsteps; i++) {
        const fy__graph_step_t *step = &graph->steps[i];
        const fy__recorded_t *call = &graph->recording.calls[step->call];
        if (!step->chain && call->is_upload
                ? is_within(call->upload.copy.dst, call->upload.copy.nbytes, begin, end)
                : launch_uses(step->chain ? step->chain : &call->launch, begin, end))
            return true;
    }
    return false;
}

void fy__graph_trim(fy__thread_t *thread, fy_graph_t *graph)
{
    if (graph->chains || graph->dropped_calls)
        fy__private_trim(thread, graph->recording.memory, is_used, graph);
}
