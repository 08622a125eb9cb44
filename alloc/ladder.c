/* The ladder: what is tried, in this order, when nothing ready fits.
 *   1 look again, now that pending blocks which are done are free      2 join neighbours that need no wait
 *   3 a block pending elsewhere: the new owner waits on the device     4 grow by a segment
 *   5 cut a large segment that is wholly free (much smaller requests)    6 the program's pressure functions; after each look again, grow
 *   7 give whole free segments back, grow by just enough               8 wait for everything pending, look again, give back, grow
 *   9 say why not
 * A guard that forbids growth skips 4 and 7; so does growth=off. One that forbids syncs skips 8.
 * Rung 8 looks again before it fails because joining what became free may have made room
 * (pytorch#189504 is a failure with a fitting block free). A request is counted in the rung that
 * served it, and in no other. Next: verdict.c. */
#include "alloc/pool.h"

#include "runtime/base/fail.h"
#include "runtime/device/plan.h"

/* Best fit among what is ready; *out_rung is where that was counted. */
static fy__node_t *cut_ready(fy__pool_t *pool, fy__request_t *request, uint64_t **out_rung)
{
    const uint64_t same_stream = pool->rungs.same_stream;
    fy__node_t *node = fy__pool_cut_ready(pool, request);
    *out_rung = pool->rungs.same_stream != same_stream ? &pool->rungs.same_stream
                                                       : &pool->rungs.ready;
    return node;
}

/* Rungs 1 to 3; *out_rung is the one that served. lock held. */
static fy__node_t *climb_to_waits(fy__pool_t *pool, fy__request_t *request, uint64_t **out_rung)
{
    fy__node_t *node = cut_ready(pool, request, out_rung);
    if (node || request->no_nodes || !pool->pending_count) return node;
    if (fy__pending_reap(pool)) node = cut_ready(pool, request, out_rung);
    if (node || request->no_nodes) return node;
    *out_rung = &pool->rungs.joined;
    if ((node = fy__pool_cut_joined(pool, request, false))) pool->rungs.joined++;
    if (node || request->no_nodes || !request->stream) return node;
    *out_rung = &pool->rungs.inserted_wait;
    node = fy__pool_cut_waiting(pool, request);
    if (!node && !request->no_nodes) node = fy__pool_cut_joined(pool, request, true);
    if (node) pool->rungs.inserted_wait++;
    return node;
}

/* Rungs 1 to 3, once more if `late` is not NULL: that is then the rung that counts. lock held. */
static fy__node_t *search(fy__pool_t *pool, fy__request_t *request, uint64_t *late)
{
    uint64_t *rung;
    fy__node_t *node = climb_to_waits(pool, request, &rung);
    if (!node || !late) return node;
    --*rung;
    ++*late;
    return node;
}

static fy__node_t *search_locked(fy__pool_t *pool, fy__request_t *request, uint64_t *late)
{
    pthread_mutex_lock(&pool->lock);
    fy__node_t *node = search(pool, request, late);
    pthread_mutex_unlock(&pool->lock);
    return node;
}

/* One request on its way up; source_lock held except while strangers run or the host waits. */
typedef struct climb {
    fy__pool_t *pool;
    fy__request_t *request;
    fy__node_t *node;    /* what served it */
    fy__growth_t growth; /* how the last try to grow ended */
    fy_status_t status;
    fy__refusal_t refusal;
    fy__error_copy_t guard_error;
} climb_t;

/* Is there no more to be tried? */
static bool is_over(const climb_t *climb)
{
    return climb->node || climb->request->no_nodes || climb->growth == FY__GROWTH_FAILED;
}

static bool may_grow(const climb_t *climb)
{
    return climb->growth == FY__GROWTH_PAST_LIMIT || climb->growth == FY__GROWTH_REFUSED;
}

static void try_to_grow(climb_t *climb, uint64_t *rung)
{
    climb->growth = fy__pool_grow(climb->pool, climb->request, rung, &climb->node, &climb->status);
    if (climb->growth == FY__GROWTH_FORBIDDEN) fy__error_save(&climb->guard_error);
    fy__refusal_note_machine(&climb->refusal, climb->pool, climb->growth);
}

/* Rung 6. What a function gives back may be bytes of this pool, or, by a trim or through another
 * library, of the device's. */
static void press(climb_t *climb)
{
    fy__pool_t *pool = climb->pool;
    fy__press_cursor_t cursor = { 0, 0 };
    while (pool->source.press && !is_over(climb)) {
        fy__unlock(&pool->source_lock);
        const fy__press_t press =
            pool->source.press(pool->source.user, climb->request->nbytes, &cursor);
        fy__lock(&pool->source_lock);
        if (press == FY__PRESS_END) break;
        if (press == FY__PRESS_GAVE) climb->refusal.pressed = true;
        climb->node = search_locked(pool, climb->request, &pool->rungs.after_pressure);
        if (!is_over(climb) && press == FY__PRESS_GAVE && may_grow(climb))
            try_to_grow(climb, &pool->rungs.after_pressure);
    }
}

/* Rung 7: gives back just enough and grows; if that was not enough, gives back everything and
 * grows. */
static void make_room(climb_t *climb, uint64_t *rung)
{
    fy__pool_t *pool = climb->pool;
    const uint64_t nbytes = climb->request->nbytes;
    for (int all = 0; all < 2 && !is_over(climb) && may_grow(climb); all++) {
        pthread_mutex_lock(&pool->lock);
        const uint64_t limit = fy__pool_limit(pool);
        uint64_t keep_nbytes = limit > nbytes ? limit - nbytes : 0;
        if (climb->growth == FY__GROWTH_REFUSED)
            keep_nbytes = pool->reserved > nbytes ? pool->reserved - nbytes : 0;
        pthread_mutex_unlock(&pool->lock);
        const uint64_t released = fy__pool_release(pool, all ? 0 : keep_nbytes);
        climb->refusal.released += released;
        /* The limit may leave more by now even so: the lock was let go. */
        if (released || climb->growth == FY__GROWTH_PAST_LIMIT) try_to_grow(climb, rung);
    }
}

/* Rung 8 up to the look-again. */
static void wait_and_search(climb_t *climb)
{
    fy__pool_t *pool = climb->pool;
    pthread_mutex_lock(&pool->lock);
    const bool has_pending = pool->pending_count || fy__pool_leaving(pool);
    pthread_mutex_unlock(&pool->lock);
    if (!has_pending) return;
    climb->refusal.sync_forbidden = !pool->source.may_sync(pool->source.user);
    if (climb->refusal.sync_forbidden) return;
    climb->refusal.synced = true;
    fy__unlock(&pool->source_lock);
    const uint64_t blocked_ns = fy__pending_wait(pool);
    pool->source.note_sync(pool->source.user, blocked_ns);
    fy__lock(&pool->source_lock);
    pthread_mutex_lock(&pool->lock);
    pool->rungs.syncs++;
    fy__pending_reap(pool);
    climb->node = search(pool, climb->request, &pool->rungs.after_sync);
    pthread_mutex_unlock(&pool->lock);
}

static void climb_all(climb_t *climb)
{
    fy__pool_t *pool = climb->pool;
    /* Another thread may have grown while this one waited for its turn. */
    climb->node = search_locked(pool, climb->request, NULL);
    if (!is_over(climb)) try_to_grow(climb, &pool->rungs.grown);
    if (is_over(climb)) return;
    if (climb->request->most_whole != UINT64_MAX) {
        climb->request->most_whole = UINT64_MAX;
        climb->node = search_locked(pool, climb->request, NULL);
    }
    press(climb);
    make_room(climb, &pool->rungs.grown_after_trim);
    if (is_over(climb)) return;
    wait_and_search(climb);
    if (climb->refusal.synced) make_room(climb, &pool->rungs.grown_after_sync);
}

/* What did not serve says why not. */
static fy_status_t fail(climb_t *climb)
{
    const bool has_nodes = !climb->request->no_nodes;
    if (has_nodes && climb->growth == FY__GROWTH_FAILED) return climb->status;
    if (has_nodes && climb->growth == FY__GROWTH_FORBIDDEN) {
        fy__error_restore(&climb->guard_error); /* what was tried since may have written over it */
        return FY_STATUS_REFUSED_BY_GUARD;
    }
    climb->refusal.limit_refused = climb->growth == FY__GROWTH_PAST_LIMIT;
    climb->refusal.growth_off = climb->growth == FY__GROWTH_OFF;
    return fy__pool_verdict(climb->pool, climb->request, &climb->refusal);
}

static fy_status_t climb(fy__pool_t *pool, fy__request_t *request, fy__node_t **out_node)
{
    climb_t climb = { .pool = pool, .request = request, .growth = FY__GROWTH_PAST_LIMIT };
    if (fy__pool_is_hopeless(pool, request->nbytes))
        return fy__pool_verdict(pool, request, &climb.refusal);
    fy__lock(&pool->source_lock);
    climb_all(&climb);
    fy__unlock(&pool->source_lock);
    *out_node = climb.node;
    return climb.node ? FY_STATUS_OK : fail(&climb);
}

fy_status_t fy__pool_climb(fy__pool_t *pool, fy__request_t *request, fy__node_t **out_node)
{
    const fy__request_t asked = *request;
    const fy_status_t status = climb(pool, request, out_node);
    if (FY_LIKELY(status == FY_STATUS_OK || !pool->plan || !fy__plan_lift(pool))) return status;
    *request = asked;
    return climb(pool, request, out_node);
}
