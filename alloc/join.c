/* Reuses pending bytes before they are done, so that the pool need not grow: a block pending on
 * another stream, or several adjacent blocks that together are large enough. The new owner inherits
 * the points and waits on the device, never here. Walks only if no single block fits. Next:
 * fallback.c, the caller. */
#include "alloc/pool.h"

#include "runtime/thread/wait_site.h"

enum { WORD_COUNT = 1 + FY__READER_COUNT };

fy__pool_node_t *fy__pool_cut_waiting(fy__pool_t *pool, fy__request_t *request)
{
    fy__span_t *best = NULL;
    for (uint32_t list = FY__LIST_STREAMS; list < FY__LIST_COUNT; list++) {
        if (!pool->pending[list].count) continue;
        fy__span_t *span = fy__offsets_best(&pool->offsets, list, request->nbytes);
        if (span && (!best || span->size.nbytes < best->size.nbytes)) best = span;
        if (!request->most_whole) continue;
        span = fy__offsets_best_dedicated(&pool->offsets, list, request->nbytes);
        if (span && span->size.nbytes <= request->most_whole &&
            (!best || span->size.nbytes < best->size.nbytes))
            best = span;
    }
    return best ? fy__pool_cut(pool, request, best) : NULL;
}

/* Points of several blocks, the last one of each stream. A hazard has five words. */
typedef struct points {
    fy__point_t points[WORD_COUNT];
} points_t;

/* false: too many streams; *points is then unchanged. */
static bool add_points(points_t *points, const fy__hazard_t *hazard)
{
    points_t sum = *points;
    for (int w = 0; w < WORD_COUNT; w++) {
        fy__point_t point = atomic_load_explicit(w ? &hazard->readers[w - 1] : &hazard->writer,
                                                 memory_order_relaxed);
        if (!point) continue;
        int i = 0;
        while (i < WORD_COUNT && sum.points[i] &&
               FY__POINT_STREAM(sum.points[i]) != FY__POINT_STREAM(point))
            i++;
        if (i == WORD_COUNT) return false;
        if (point > sum.points[i]) sum.points[i] = point;
    }
    *points = sum;
    return true;
}

/* A run of adjacent spans, first to last. */
typedef struct stretch {
    fy__span_t *first, *last;
    uint64_t nbytes;
} stretch_t;

static inline bool is_usable(const fy__span_t *span, uint32_t own_list, bool any_stream)
{
    return span && span->list != FY__SPAN_TAKEN &&
           (any_stream || span->list == FY__LIST_FREE || span->list == own_list);
}

/* The shortest run that serves `nbytes`, from `first` to the right while spans are usable. */
static bool find_stretch(fy__span_t *first, uint64_t nbytes, uint32_t own_list, bool any_stream,
                         stretch_t *out_stretch)
{
    stretch_t at = { .first = first };
    points_t points = { { 0 } };
    for (fy__span_t *span = first; is_usable(span, own_list, any_stream); span = span->next) {
        if (span->list != FY__LIST_FREE && !add_points(&points, &fy__node_of(span)->block.hazard)) {
            at = (stretch_t){ .first = span };
            points = (points_t){ { 0 } };
            (void)add_points(&points, &fy__node_of(span)->block.hazard);
        }
        at.last = span;
        at.nbytes += span->size.nbytes;
        if (at.nbytes < nbytes) continue;
        while (at.first != at.last && at.nbytes - at.first->size.nbytes >= nbytes) {
            at.nbytes -= at.first->size.nbytes;
            at.first = at.first->next;
        }
        *out_stretch = at;
        return true;
    }
    return false;
}

/* The begin of the run of usable spans that contains `span`; NULL if an earlier pending span has
 * the same begin. */
static fy__span_t *begin_of(fy__span_t *span, uint32_t own_list, bool any_stream)
{
    fy__span_t *left = span->prev;
    if (!is_usable(left, own_list, any_stream)) return span;
    if (left->list != FY__LIST_FREE || is_usable(left->prev, own_list, any_stream)) return NULL;
    return left;
}

/* Makes a run one block. */
static fy__pool_node_t *cut_stretch(fy__pool_t *pool, fy__request_t *request,
                                    const stretch_t *stretch)
{
    uint64_t of_last = request->nbytes - (stretch->nbytes - stretch->last->size.nbytes);
    /* Only the last span may need a node, so it goes first: after it nothing can fail. */
    points_t points = { { 0 } };
    if (stretch->last->list != FY__LIST_FREE)
        (void)add_points(&points, &fy__node_of(stretch->last)->block.hazard);
    if (!fy__pool_detach(pool, stretch->last, of_last)) {
        request->no_nodes = true;
        return NULL;
    }
    for (fy__span_t *span = stretch->first; span != stretch->last; span = span->next) {
        if (span->list != FY__LIST_FREE && !fy__wait_drops(FY__WAIT_PENDING_STRETCH))
            (void)add_points(&points, &fy__node_of(span)->block.hazard);
        (void)fy__pool_detach(pool, span, span->size.nbytes);
    }
    while (stretch->first->size.nbytes < request->nbytes)
        fy__offsets_join_taken(&pool->offsets, stretch->first);
    fy__pool_node_t *node = fy__node_of(stretch->first);
    atomic_store_explicit(&node->block.hazard.writer, points.points[0], memory_order_relaxed);
    for (int i = 0; i < FY__READER_COUNT; i++)
        atomic_store_explicit(&node->block.hazard.readers[i], points.points[i + 1],
                              memory_order_relaxed);
    return fy__pool_hand_out(pool, request, node);
}

fy__pool_node_t *fy__pool_cut_joined(fy__pool_t *pool, fy__request_t *request, bool any_stream)
{
    uint32_t own_list = request->stream ? fy__pending_find(pool, request->stream) : FY__LIST_FREE;
    stretch_t best = { .nbytes = UINT64_MAX };
    if (!any_stream && own_list == FY__LIST_FREE) return NULL;
    for (uint32_t list = FY__LIST_STREAMS; list < FY__LIST_COUNT; list++) {
        if (!any_stream && list != own_list) continue;
        for (fy__pool_node_t *node = pool->pending[list].oldest; node; node = node->newer) {
            if (node->span.size.nbytes > request->most_whole &&
                fy__span_is_whole_apart(&node->span))
                continue;
            fy__span_t *first = begin_of(&node->span, own_list, any_stream);
            stretch_t found;
            if (first && find_stretch(first, request->nbytes, own_list, any_stream, &found) &&
                found.nbytes < best.nbytes)
                best = found;
        }
    }
    return best.first ? cut_stretch(pool, request, &best) : NULL;
}
