/* The pool's internals, shared by the files of this folder and by its tests.
 * cache.c: the calls of runtime/device/memory.h and the hot path · pending.c: blocks that a device
 * may still use · join.c: their reuse before they are done · fallback.c: the stages after a miss ·
 * grow.c: segments are added and released · verdict.c: the reason of a failure · check.c:
 * invariants · debug.c: poison and guards · plan.c: a pool that a plan watches. */
#ifndef FERRY_ALLOC_POOL_H_
#define FERRY_ALLOC_POOL_H_

#include <pthread.h>

#include "alloc/offset.h"
#include "runtime/device/memory.h"

/* Dependencies of the pool besides the source. Tests replace them. */
typedef struct fy__pool_seams {
    bool (*hazard_done)(const fy__hazard_t *hazard);
    bool (*hazard_only_on)(const fy__hazard_t *hazard, uint32_t stream_index);
    fy_status_t (*hazard_wait)(const fy__hazard_t *hazard, uint64_t timeout_ns);
    fy__meta_t meta; /* bookkeeping memory */
} fy__pool_seams_t;

/* Lists of the offset allocator: free, one per stream with pending blocks, and blocks pending on
 * several streams. */
enum { FY__LIST_FREE = 0, FY__LIST_STREAMS = 1, FY__LIST_MIXED = FY__LIST_NO_JOIN };

/* A span with its block. The block's hazard is valid while the span is taken or pending, the rest
 * while it is taken. */
typedef struct fy__pool_node {
    fy__span_t span;
    bool is_pending; /* in its list's order; undefined while free */
    fy__block_t block;
    /* the part of block.requested in the pool's figure: the owner may change block.requested */
    uint64_t counted;
    bool is_broken;                      /* a guard was overwritten and that was logged; debug.c */
    struct fy__pool_node *older, *newer; /* its list's order, while pending */
} fy__pool_node_t;

/* Blocks pending on one stream (or, FY__LIST_MIXED, on several), approximately in the order in
 * which they were freed. On a stream's list the hazard is one point, in `writer`. */
typedef struct fy__pending {
    uint32_t stream;
    uint64_t count;
    fy__pool_node_t *oldest, *newest;
} fy__pending_t;

struct fy__pool {
    /* Guards everything below but the constants. A leaf lock: never held over a poll of a hazard, a
     * wait or a call of the source. */
    pthread_mutex_t lock;
    /* Serialises the slow path: the source gets one call at a time, and no request misses blocks
     * that are being polled. Taken before `lock`. Released while the host waits, because the wait
     * may need memory on another thread. */
    pthread_mutex_t source_lock;
    fy__offsets_t offsets;
    fy__pending_t pending[FY__LIST_COUNT];
    /* inspected: off their list while their hazards are polled, but still pending. fy__pool_peek
     * reads its figures without the lock, so they are written with the fy__figure_ functions. */
    uint64_t live, requested, pending_nbytes, pending_count, inspected_nbytes, reserved, peak_live,
        peak_reserved, device_allocs;
    /* The sums are live and peak_live. */
    uint64_t by_category[FY_CATEGORY_COUNT], peak_by_category[FY_CATEGORY_COUNT];
    uint64_t last_block;   /* id */
    uint64_t broken_count; /* blocks whose guards were written over */
    /* Bytes released so that growth would not add to them (grow.c). source_lock guards it. */
    uint64_t exchanged_nbytes;
    fy_memory_alloc_stats_t stats;
    struct fy__plan_watch *plan; /* NULL: no plan watches the pool */
    /* constants, except during plans */
    fy__pool_options_t options;
    fy__segment_source_t source;
    fy__pool_seams_t seams;
    uint32_t debug; /* FY__DEBUG_...; usually 0 */
    char name[64];
    const char *text; /* the name, as events hold it */
};

/* A wholly free dedicated segment is kept for large blocks, as long as the pool may grow: small
 * blocks are not cut from it, and large ones only if they need at least 1 / FY__WHOLE_PER_BLOCK of
 * it. */
enum { FY__WHOLE_PER_BLOCK = 4 };

/* One request in the fallback. */
typedef struct fy__request {
    uint64_t asked, nbytes; /* nbytes: rounded */
    fy__tag_t tag;
    /* 0: the host uses the bytes first, so only blocks that are done are usable */
    uint32_t stream;
    /* largest wholly free dedicated segment that it may be cut from */
    uint64_t most_whole;
    bool no_nodes; /* no memory for a node: no further stage can succeed */
} fy__request_t;

fy_status_t fy__pool_create_with(const fy__pool_options_t *options,
                                 const fy__segment_source_t *source, const fy__pool_seams_t *seams,
                                 fy__pool_t **out_pool);
/* Whether it is larger than the device. The device's size may be unknown, but no address space has
 * more than half of 2^64. */
static inline bool fy__pool_is_too_large(const fy__pool_t *pool, uint64_t nbytes)
{
    return nbytes > pool->options.device_nbytes || nbytes > INT64_MAX;
}
static inline uint64_t fy__pool_outside(const fy__pool_t *pool)
{
    return pool->options.outside_nbytes
               ? atomic_load_explicit(pool->options.outside_nbytes, memory_order_relaxed)
               : 0;
}
/* Of that, the bytes that a sync would free. */
static inline uint64_t fy__pool_leaving(const fy__pool_t *pool)
{
    return pool->options.leaving_nbytes
               ? atomic_load_explicit(pool->options.leaving_nbytes, memory_order_relaxed)
               : 0;
}
/* The rest, which stays. */
static inline uint64_t fy__pool_outside_for_good(const fy__pool_t *pool)
{
    const uint64_t leaving = fy__pool_leaving(pool), outside = fy__pool_outside(pool);
    return leaving < outside ? outside - leaving : 0;
}
static inline uint64_t fy__pool_limit_beside(const fy__pool_t *pool, uint64_t outside)
{
    const uint64_t limit = pool->options.limit_nbytes;
    return limit == FY_UNLIMITED ? limit : outside < limit ? limit - outside : 0;
}
/* The part of the limit that memory outside the pool leaves. */
static inline uint64_t fy__pool_limit(const fy__pool_t *pool)
{
    return fy__pool_limit_beside(pool, fy__pool_outside(pool));
}
/* The free part of it. The lock is held. */
static inline uint64_t fy__pool_room(const fy__pool_t *pool)
{
    const uint64_t limit = fy__pool_limit(pool);
    return pool->reserved < limit ? limit - pool->reserved : 0;
}
/* Whether no stage can serve the request. */
static inline bool fy__pool_is_hopeless(const fy__pool_t *pool, uint64_t nbytes)
{
    return nbytes > fy__pool_limit_beside(pool, fy__pool_outside_for_good(pool)) ||
           fy__pool_is_too_large(pool, nbytes);
}

/* With pool->lock held: plain stores that other threads may read meanwhile. */
static inline void fy__figure_set(uint64_t *figure, uint64_t value)
{
    __atomic_store_n(figure, value, __ATOMIC_RELAXED);
}
static inline void fy__figure_add(uint64_t *figure, uint64_t n)
{
    fy__figure_set(figure, *figure + n);
}
static inline void fy__figure_sub(uint64_t *figure, uint64_t n)
{
    fy__figure_set(figure, *figure - n);
}

static inline fy__pool_node_t *fy__node_of(fy__span_t *span) { return (fy__pool_node_t *)span; }

/* ---- cache.c; with pool->lock held ---- */

/* Takes the left nbytes of a span off its list; the rest stays there with the same hazard. false:
 * no node. */
bool fy__pool_detach(fy__pool_t *pool, fy__span_t *span, uint64_t nbytes);
/* The current figures; walks. */
fy_memory_stats_t fy__pool_figures(const fy__pool_t *pool);
/* Makes a detached node the block of the request. */
fy__pool_node_t *fy__pool_hand_out(fy__pool_t *pool, const fy__request_t *request,
                                   fy__pool_node_t *node);
/* Detaches and makes a block from a span on a list. NULL: no node (request->no_nodes is set). */
fy__pool_node_t *fy__pool_cut(fy__pool_t *pool, fy__request_t *request, fy__span_t *span);
/* Best fit among spans that are free or pending only on the requesting stream. NULL: none. */
fy__pool_node_t *fy__pool_cut_ready(fy__pool_t *pool, fy__request_t *request);

/* ---- pending.c ---- */

/* The list for bytes with a hazard. */
typedef struct fy__reuse {
    bool is_done, is_mixed; /* neither: pending on one stream, at `point` */
    fy__point_t point;
} fy__reuse_t;

/* Polls; no lock held. */
fy__reuse_t fy__pending_reuse(const fy__pool_t *pool, const fy__hazard_t *hazard);

/* As fy__pool_free; `points` are the requests that may still use the bytes: at most 1 +
 * FY__READER_COUNT, one per stream. No lock held. */
void fy__pool_free_after(fy__block_t *block, const fy__point_t *points, size_t npoints);
/* For pools whose points are numbers of the caller (plain.c): `point` is reached. source_lock held,
 * lock not. */
void fy__pending_reached(fy__pool_t *pool, fy__point_t point);

/* With pool->lock held: */

/* Puts a taken node on its list and joins it with adjacent nodes there. Needs no memory. */
void fy__pending_add(fy__pool_t *pool, fy__pool_node_t *node, const fy__reuse_t *reuse);
/* The list of blocks pending only on `stream`; FY__LIST_FREE if there are none. */
uint32_t fy__pending_find(const fy__pool_t *pool, uint32_t stream);
/* Adds to or removes from a list's order and the figures, with the node's current size. newer NULL:
 * `node` is the newest. */
void fy__pending_link(fy__pool_t *pool, fy__pool_node_t *node, fy__pool_node_t *newer,
                      uint32_t list);
void fy__pending_unlink(fy__pool_t *pool, fy__pool_node_t *node, uint32_t list);
/* For tests of the waits (runtime/thread/wait_site.h): its last use counts as over. */
void fy__pending_forget(fy__pool_node_t *node);
/* The offset allocator's `joined`; user is the pool. */
void fy__pending_joined(void *user, uint32_t list, fy__span_t *left_span, fy__span_t *right_span);

/* With source_lock and lock held; releases lock while it polls. Frees every block that is done;
 * returns their number. */
uint64_t fy__pending_reap(fy__pool_t *pool);
/* No lock held: blocks until everything that is pending now is done and the leaving bytes are
 * released; returns nanoseconds. */
uint64_t fy__pending_wait(fy__pool_t *pool);

/* ---- join.c; with pool->lock held ---- */

/* The best fitting block that is pending on any stream. */
fy__pool_node_t *fy__pool_cut_waiting(fy__pool_t *pool, fy__request_t *request);
/* Adjacent spans that together serve the request: free or pending on the requesting stream, or,
 * with any_stream, on any stream. */
fy__pool_node_t *fy__pool_cut_joined(fy__pool_t *pool, fy__request_t *request, bool any_stream);

/* ---- fallback.c ---- */

/* Serves a request after cut_ready failed; no lock held. */
fy_status_t fy__pool_fall_back(fy__pool_t *pool, fy__request_t *request,
                               fy__pool_node_t **out_node);
/* ---- grow.c; source_lock held, lock not ---- */

/* The result of a growth: served · the limit, the source, a guard or growth=off prevents it · no
 * bookkeeping memory · the source failed. */
typedef enum fy__growth {
    FY__GROWTH_DONE,
    FY__GROWTH_PAST_LIMIT,
    FY__GROWTH_REFUSED,
    FY__GROWTH_FORBIDDEN,
    FY__GROWTH_OFF,
    FY__GROWTH_NO_NODES,
    FY__GROWTH_FAILED
} fy__growth_t;

/* Requests a segment from the source and cuts the request from it; `stage` is then counted.
 * *out_status is the source's status, if it was called. */
fy__growth_t fy__pool_grow(fy__pool_t *pool, fy__request_t *request, uint64_t *stage,
                           fy__pool_node_t **out_node, fy_status_t *out_status);
/* fy__pool_grow's first attempt if the source can resize: extends a segment until its free end
 * serves the request; NULL: by nbytes. */
fy__growth_t fy__pool_extend(fy__pool_t *pool, fy__request_t *request, uint64_t nbytes,
                             uint64_t *stage, fy__pool_node_t **out_node, fy_status_t *out_status);
/* Releases the free end of such a segment, but keeps keep_nbytes reserved. The lock is held, and
 * released meanwhile. Returns bytes. */
uint64_t fy__pool_shorten(fy__pool_t *pool, fy__range_t *range, uint64_t keep_nbytes);
/* Classifies the status of a call of the source; counts it. */
fy__growth_t fy__pool_growth(fy__pool_t *pool, fy_status_t status);
/* Releases whole free segments until at most keep_nbytes stay reserved. Returns bytes. */
uint64_t fy__pool_release(fy__pool_t *pool, uint64_t keep_nbytes);

/* ---- plan.c; with pool->lock held and pool->plan set ---- */

/* A block was allocated or has just been freed. */
void fy__plan_block(fy__pool_t *pool, const fy__block_t *block, bool is_alloc);

/* ---- verdict.c ---- */

/* Results of the slow path. */
typedef struct fy__refusal {
    /* called by fy__pool_reserve: the bytes are in addition to the reserved ones */
    bool is_reserve;
    bool limit_refused;  /* else the source refused, or */
    bool growth_off;     /* the pool's options */
    bool pressed;        /* reclaim callbacks freed something */
    bool sync_forbidden; /* a guard forbids to wait for pending blocks */
    bool synced;
    bool hook_refused;    /* the program's allocator */
    bool machine_refused; /* the machine cannot back a segment, and could back machine_nbytes */
    uint64_t machine_nbytes;
    uint64_t released;
} fy__refusal_t;

/* Records whether the machine or the program's allocator refused the growth; source_lock held. */
static inline void fy__refusal_note_machine(fy__refusal_t *refusal, const fy__pool_t *pool,
                                            fy__growth_t growth)
{
    const fy__backing_t *backing = pool->source.backing;
    refusal->machine_refused = growth == FY__GROWTH_REFUSED && backing && backing->is_refused;
    refusal->hook_refused = growth == FY__GROWTH_REFUSED && backing && backing->hook_refused;
    refusal->machine_nbytes = refusal->machine_refused ? backing->nbytes : 0;
}
/* Fails with a verdict; no lock held. */
fy_status_t fy__pool_verdict(fy__pool_t *pool, const fy__request_t *request,
                             const fy__refusal_t *refusal);
/* Largest run of adjacent spans that are free or pending; lock held. Walks. */
uint64_t fy__pool_largest_free(const fy__pool_t *pool);

#endif
