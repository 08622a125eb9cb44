/* The allocation fallback: its stages, in this order, after a miss.
 *    1 search again, after pending blocks that are done became free
 *    2 join adjacent blocks that need no wait
 *    3 a block pending elsewhere: the new owner waits on the device
 *    4 grow by a segment
 *    5 cut a large segment that is wholly free (for much smaller requests)
 *    6 reclaim callbacks of the program; after each, search and grow
 *    7 release whole free segments, grow by just enough
 *    8 wait for everything pending, search, release, grow
 *    9 fail with a verdict
 * A guard that forbids growth skips 4 and 7; so does growth=off. A guard that forbids syncs skips
 * 8. Stage 8 searches again before it fails, because joining the freed blocks may have made room
 * (pytorch#189504 is a failure with a fitting block free). A request counts in the stage that
 * served it, and in no other. Next: verdict.c. */
#include "alloc/pool.h"

#include "runtime/base/fail.h"
#include "runtime/device/plan.h"

/* Best fit among ready blocks; *out_stage is the count of the stage that served it. */
static fy__pool_node_t *cut_ready(fy__pool_t *pool, fy__request_t *request, uint64_t **out_stage)
{
    const uint64_t same_stream = pool->stats.same_stream;
    fy__pool_node_t *node = fy__pool_cut_ready(pool, request);
    *out_stage = pool->stats.same_stream != same_stream ? &pool->stats.same_stream
                                                        : &pool->stats.ready;
    return node;
}

/* Stages 1 to 3; *out_stage is the one that served. lock held. */
static fy__pool_node_t *fall_back_to_waits(fy__pool_t *pool, fy__request_t *request,
                                           uint64_t **out_stage)
{
    fy__pool_node_t *node = cut_ready(pool, request, out_stage);
    if (node || request->no_nodes || !pool->pending_count) return node;
    if (fy__pending_reap(pool)) node = cut_ready(pool, request, out_stage);
    if (node || request->no_nodes) return node;
    *out_stage = &pool->stats.joined;
    if ((node = fy__pool_cut_joined(pool, request, false))) pool->stats.joined++;
    if (node || request->no_nodes || !request->stream) return node;
    *out_stage = &pool->stats.inserted_wait;
    node = fy__pool_cut_waiting(pool, request);
    if (!node && !request->no_nodes) node = fy__pool_cut_joined(pool, request, true);
    if (node) pool->stats.inserted_wait++;
    return node;
}

/* Stages 1 to 3, repeated if `late` is not NULL: that stage is then counted. lock held. */
static fy__pool_node_t *search(fy__pool_t *pool, fy__request_t *request, uint64_t *late)
{
    uint64_t *stage;
    fy__pool_node_t *node = fall_back_to_waits(pool, request, &stage);
    if (!node || !late) return node;
    --*stage;
    ++*late;
    return node;
}

static fy__pool_node_t *search_locked(fy__pool_t *pool, fy__request_t *request, uint64_t *late)
{
    pthread_mutex_lock(&pool->lock);
    fy__pool_node_t *node = search(pool, request, late);
    pthread_mutex_unlock(&pool->lock);
    return node;
}

/* One request in the fallback. source_lock is held except while callbacks of the program run or the
 * host waits. */
typedef struct fallback {
    fy__pool_t *pool;
    fy__request_t *request;
    fy__pool_node_t *node; /* the block that serves it */
    fy__growth_t growth;   /* result of the last growth */
    fy_status_t status;
    fy__refusal_t refusal;
    fy__error_copy_t guard_error;
} fallback_t;

/* Whether no further stage can change the result. */
static bool is_over(const fallback_t *fallback)
{
    return fallback->node || fallback->request->no_nodes || fallback->growth == FY__GROWTH_FAILED;
}

static bool may_grow(const fallback_t *fallback)
{
    return fallback->growth == FY__GROWTH_PAST_LIMIT || fallback->growth == FY__GROWTH_REFUSED;
}

static void try_to_grow(fallback_t *fallback, uint64_t *stage)
{
    fallback->growth =
        fy__pool_grow(fallback->pool, fallback->request, stage, &fallback->node, &fallback->status);
    if (fallback->growth == FY__GROWTH_FORBIDDEN) fy__error_save(&fallback->guard_error);
    fy__refusal_note_machine(&fallback->refusal, fallback->pool, fallback->growth);
}

/* Stage 6. A callback may free bytes of this pool, or of the device, by a trim or through another
 * library. */
static void reclaim(fallback_t *fallback)
{
    fy__pool_t *pool = fallback->pool;
    fy__reclaim_cursor_t cursor = { 0, 0 };
    while (pool->source.reclaim && !is_over(fallback)) {
        fy__unlock(&pool->source_lock);
        const fy__reclaim_t reclaim =
            pool->source.reclaim(pool->source.user, fallback->request->nbytes, &cursor);
        fy__lock(&pool->source_lock);
        if (reclaim == FY__RECLAIM_END) break;
        if (reclaim == FY__RECLAIM_GAVE) fallback->refusal.pressed = true;
        fallback->node = search_locked(pool, fallback->request, &pool->stats.after_pressure);
        if (!is_over(fallback) && reclaim == FY__RECLAIM_GAVE && may_grow(fallback))
            try_to_grow(fallback, &pool->stats.after_pressure);
    }
}

/* Stage 7: releases just enough and grows; if that was not enough, releases everything and
 * grows. */
static void make_room(fallback_t *fallback, uint64_t *stage)
{
    fy__pool_t *pool = fallback->pool;
    const uint64_t nbytes = fallback->request->nbytes;
    for (int all = 0; all < 2 && !is_over(fallback) && may_grow(fallback); all++) {
        pthread_mutex_lock(&pool->lock);
        const uint64_t limit = fy__pool_limit(pool);
        uint64_t keep_nbytes = limit > nbytes ? limit - nbytes : 0;
        if (fallback->growth == FY__GROWTH_REFUSED)
            keep_nbytes = pool->reserved > nbytes ? pool->reserved - nbytes : 0;
        pthread_mutex_unlock(&pool->lock);
        const uint64_t released = fy__pool_release(pool, all ? 0 : keep_nbytes);
        fallback->refusal.released += released;
        /* Even without a release the limit may leave more by now: the lock was released. */
        if (released || fallback->growth == FY__GROWTH_PAST_LIMIT) try_to_grow(fallback, stage);
    }
}

/* Stage 8, up to its search. */
static void wait_and_search(fallback_t *fallback)
{
    fy__pool_t *pool = fallback->pool;
    pthread_mutex_lock(&pool->lock);
    const bool has_pending = pool->pending_count || fy__pool_leaving(pool);
    pthread_mutex_unlock(&pool->lock);
    if (!has_pending) return;
    fallback->refusal.sync_forbidden = !pool->source.may_sync(pool->source.user);
    if (fallback->refusal.sync_forbidden) return;
    fallback->refusal.synced = true;
    fy__unlock(&pool->source_lock);
    const uint64_t blocked_ns = fy__pending_wait(pool);
    pool->source.note_sync(pool->source.user, blocked_ns);
    fy__lock(&pool->source_lock);
    pthread_mutex_lock(&pool->lock);
    pool->stats.syncs++;
    fy__pending_reap(pool);
    fallback->node = search(pool, fallback->request, &pool->stats.after_sync);
    pthread_mutex_unlock(&pool->lock);
}

static void fall_back_all(fallback_t *fallback)
{
    fy__pool_t *pool = fallback->pool;
    /* Another thread may have grown the pool while this one waited for the lock. */
    fallback->node = search_locked(pool, fallback->request, NULL);
    if (!is_over(fallback)) try_to_grow(fallback, &pool->stats.grown);
    if (is_over(fallback)) return;
    if (fallback->request->most_whole != UINT64_MAX) {
        fallback->request->most_whole = UINT64_MAX;
        fallback->node = search_locked(pool, fallback->request, NULL);
    }
    reclaim(fallback);
    make_room(fallback, &pool->stats.grown_after_trim);
    if (is_over(fallback)) return;
    wait_and_search(fallback);
    if (fallback->refusal.synced) make_room(fallback, &pool->stats.grown_after_sync);
}

/* Fails with the reason of the last stage. */
static fy_status_t fail(fallback_t *fallback)
{
    const bool has_nodes = !fallback->request->no_nodes;
    if (has_nodes && fallback->growth == FY__GROWTH_FAILED) return fallback->status;
    if (has_nodes && fallback->growth == FY__GROWTH_FORBIDDEN) {
        fy__error_restore(&fallback->guard_error); /* later stages may have overwritten it */
        return FY_STATUS_REFUSED_BY_GUARD;
    }
    fallback->refusal.limit_refused = fallback->growth == FY__GROWTH_PAST_LIMIT;
    fallback->refusal.growth_off = fallback->growth == FY__GROWTH_OFF;
    return fy__pool_verdict(fallback->pool, fallback->request, &fallback->refusal);
}

static fy_status_t fallback(fy__pool_t *pool, fy__request_t *request, fy__pool_node_t **out_node)
{
    fallback_t fallback = { .pool = pool, .request = request, .growth = FY__GROWTH_PAST_LIMIT };
    if (fy__pool_is_hopeless(pool, request->nbytes))
        return fy__pool_verdict(pool, request, &fallback.refusal);
    fy__lock(&pool->source_lock);
    fall_back_all(&fallback);
    fy__unlock(&pool->source_lock);
    *out_node = fallback.node;
    return fallback.node ? FY_STATUS_OK : fail(&fallback);
}

fy_status_t fy__pool_fall_back(fy__pool_t *pool, fy__request_t *request, fy__pool_node_t **out_node)
{
    const fy__request_t asked = *request;
    const fy_status_t status = fallback(pool, request, out_node);
    if (FY_LIKELY(status == FY_STATUS_OK || !pool->plan || !fy__plan_lift(pool))) return status;
    *request = asked;
    return fallback(pool, request, out_node);
}
