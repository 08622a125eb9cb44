/* The ladder: what is tried, in this order, when nothing ready fits.
 *   1 look again, now that pending blocks which are done are free      2 join neighbours that need no wait
 *   3 a block pending elsewhere: the new owner waits on the device     4 grow by a segment
 *   5 cut a large segment that is wholly free (small requests only)    6 give whole free segments back, grow by just enough
 *   7 wait for everything pending, look again, give back, grow again   8 say why not
 * A guard that forbids growth skips 4 and 6; one that forbids syncs skips 7. Rung 7 looks again before it fails because joining what
 * became free may have made room (pytorch#189504 is a failure with a fitting block free). Next: verdict.c. */
#include "alloc/pool.h"

#include "runtime/base/checked.h"
#include "runtime/base/fail.h"
#include "runtime/event.h"

/* Own segments are rounded to this, as device pages are, unless that would waste more than an eighth. */
static const uint64_t large_step_nbytes = 2u << 20;

/* How growing ended when it did not succeed. */
typedef enum growth { GROWN, LIMIT_REFUSED, SOURCE_REFUSED, GUARD_REFUSED, NO_NODES, FAILED } growth_t;

/* Rungs 1 to 3. lock held. */
static fy__node_t *search(fy__pool_t *pool, fy__request_t *request)
{
    fy__node_t *node = fy__pool_cut_ready(pool, request);
    if (node || request->no_nodes || !pool->pending_count) return node;
    if (fy__pending_reap(pool)) node = fy__pool_cut_ready(pool, request);
    if (node || request->no_nodes) return node;
    if ((node = fy__pool_cut_joined(pool, request, false))) pool->rungs.joined++;
    if (node || request->no_nodes || !request->stream) return node;
    node = fy__pool_cut_waiting(pool, request);
    if (!node && !request->no_nodes) node = fy__pool_cut_joined(pool, request, true);
    if (node) pool->rungs.inserted_wait++;
    return node;
}

static fy__node_t *search_locked(fy__pool_t *pool, fy__request_t *request)
{
    pthread_mutex_lock(&pool->lock);
    fy__node_t *node = search(pool, request);
    pthread_mutex_unlock(&pool->lock);
    return node;
}

/* Sizes to ask the source for, the better one first; returns how many. Never more than `room`. */
static int growth_sizes(const fy__pool_t *pool, uint64_t nbytes, bool is_apart, uint64_t room, uint64_t *sizes)
{
    const uint64_t left = pool->options.device_nbytes > pool->reserved ? pool->options.device_nbytes - pool->reserved : 0;
    uint64_t step, most = (room < left ? room : left) & ~(pool->source.alignment - 1);
    int count = 0;
    if (is_apart) {
        if (!fy__round_up_u64(nbytes, large_step_nbytes, &step)) step = nbytes;
        if (step > most || step - nbytes > nbytes / 8) step = nbytes;
    } else {
        if (!fy__round_up_u64(pool->options.segment_nbytes, pool->source.alignment, &step) || step > most) step = most;
    }
    if (step > nbytes) sizes[count++] = step;
    sizes[count++] = nbytes;
    return count;
}

/* One call of the source; source_lock held, lock not. */
static growth_t ask_source(fy__pool_t *pool, uint64_t nbytes, void **out_address, fy_status_t *out_status)
{
    *out_status = pool->source.alloc(pool->source.user, nbytes, out_address);
    if (*out_status == FY_STATUS_REFUSED_BY_GUARD) return GUARD_REFUSED;
    pthread_mutex_lock(&pool->lock);
    pool->device_allocs++;
    pthread_mutex_unlock(&pool->lock);
    if (*out_status == FY_STATUS_OK) return GROWN;
    return *out_status == FY_STATUS_OUT_OF_MEMORY || *out_status == pool->options.full_status ? SOURCE_REFUSED : FAILED;
}

/* Rung 4; source_lock held, lock not. Needs nothing but the source once it has asked: the nodes are had before. */
static growth_t grow(fy__pool_t *pool, fy__request_t *request, fy__node_t **out_node, fy_status_t *out_status)
{
    const bool is_apart = request->nbytes > pool->options.segment_nbytes / 2;
    uint64_t sizes[2];
    pthread_mutex_lock(&pool->lock);
    const uint64_t room = pool->options.limit_nbytes - pool->reserved;
    fy__range_t *range = request->nbytes <= room ? fy__offsets_prepare_range(&pool->offsets, is_apart) : NULL;
    pthread_mutex_unlock(&pool->lock);
    if (request->nbytes > room) return LIMIT_REFUSED;
    if (!range) {
        request->no_nodes = true;
        return NO_NODES;
    }
    const int count = growth_sizes(pool, request->nbytes, is_apart, room, sizes);
    growth_t growth = FAILED;
    void *address = NULL;
    int i;
    for (i = 0; i < count; i++)
        if ((growth = ask_source(pool, sizes[i], &address, out_status)) != SOURCE_REFUSED) break;
    pthread_mutex_lock(&pool->lock);
    if (growth == GROWN) {
        fy__span_t *span = fy__offsets_add_range(&pool->offsets, range, (uint64_t)(uintptr_t)address, sizes[i]);
        pool->reserved += sizes[i];
        if (pool->reserved > pool->peak_reserved) pool->peak_reserved = pool->reserved;
        FY__EVENT(fy__event_segment(pool->name, sizes[i], true));
        *out_node = fy__pool_cut(pool, request, span);
        if (*out_node)
            pool->rungs.grown++;
        else
            growth = NO_NODES; /* the segment stays, cached */
    } else {
        fy__offsets_drop_range(&pool->offsets, range);
        if (growth == GUARD_REFUSED) pool->rungs.guard_refusals++;
    }
    pthread_mutex_unlock(&pool->lock);
    return growth;
}

uint64_t fy__pool_release(fy__pool_t *pool, uint64_t keep_nbytes)
{
    uint64_t released = 0;
    pthread_mutex_lock(&pool->lock);
    fy__range_t *range = pool->offsets.ranges;
    while (range && pool->reserved > keep_nbytes) {
        fy__range_t *next = range->next; /* only this thread adds or removes ranges: it holds source_lock */
        if (!range->first->next && range->first->shelf == FY__SHELF_FREE) {
            void *address = (void *)(uintptr_t)range->offset;
            const uint64_t nbytes = range->nbytes;
            fy__offsets_remove_range(&pool->offsets, range);
            pool->reserved -= nbytes;
            FY__EVENT(fy__event_segment(pool->name, nbytes, false));
            pool->rungs.released++;
            released += nbytes;
            pthread_mutex_unlock(&pool->lock);
            pool->source.free(pool->source.user, address, nbytes);
            pthread_mutex_lock(&pool->lock);
        }
        range = next;
    }
    pthread_mutex_unlock(&pool->lock);
    return released;
}

/* Rung 6: gives back just enough and grows; if that was not enough, gives back everything and grows. */
static growth_t make_room(fy__pool_t *pool, fy__request_t *request, growth_t growth, fy__refusal_t *refusal, fy__node_t **out_node,
                          fy_status_t *out_status)
{
    for (int all = 0; all < 2 && (growth == LIMIT_REFUSED || growth == SOURCE_REFUSED); all++) {
        pthread_mutex_lock(&pool->lock);
        uint64_t keep_nbytes = pool->options.limit_nbytes - request->nbytes;
        if (growth == SOURCE_REFUSED) keep_nbytes = pool->reserved > request->nbytes ? pool->reserved - request->nbytes : 0;
        pthread_mutex_unlock(&pool->lock);
        const uint64_t released = fy__pool_release(pool, all ? 0 : keep_nbytes);
        refusal->released += released;
        /* The limit may leave more by now even so: the lock was let go for a wait. */
        if (released || growth == LIMIT_REFUSED) growth = grow(pool, request, out_node, out_status);
    }
    return growth;
}

static void count_rung(fy__pool_t *pool, uint64_t *rung)
{
    pthread_mutex_lock(&pool->lock);
    ++*rung;
    pthread_mutex_unlock(&pool->lock);
}

/* Rung 7 up to the look-again; source_lock held on entry and return. */
static fy__node_t *wait_and_search(fy__pool_t *pool, fy__request_t *request)
{
    fy__unlock(&pool->source_lock);
    const uint64_t blocked_ns = fy__pending_wait(pool);
    pool->source.note_sync(pool->source.user, blocked_ns);
    fy__lock(&pool->source_lock);
    pthread_mutex_lock(&pool->lock);
    pool->rungs.syncs++;
    fy__pending_reap(pool);
    fy__node_t *node = search(pool, request);
    if (node) pool->rungs.after_sync++;
    pthread_mutex_unlock(&pool->lock);
    return node;
}

fy_status_t fy__pool_climb(fy__pool_t *pool, fy__request_t *request, fy__node_t **out_node)
{
    fy__refusal_t refusal = { 0 };
    fy__error_copy_t guard_error;
    fy_status_t status = FY_STATUS_OK;
    fy__node_t *node = NULL;
    growth_t growth = LIMIT_REFUSED;
    if (fy__pool_is_hopeless(pool, request->nbytes)) return fy__pool_verdict(pool, request, &refusal);

    fy__lock(&pool->source_lock);
    /* Another thread may have grown while this one waited for its turn. */
    if ((node = search_locked(pool, request)) || request->no_nodes) goto done;
    growth = grow(pool, request, &node, &status);
    if (growth == GUARD_REFUSED) fy__error_save(&guard_error);
    if (growth == GROWN || growth == NO_NODES || growth == FAILED) goto done;
    if (!request->may_cut_whole) {
        request->may_cut_whole = true;
        if ((node = search_locked(pool, request)) || request->no_nodes) goto done;
    }
    if (growth != GUARD_REFUSED && (growth = make_room(pool, request, growth, &refusal, &node, &status)) == GUARD_REFUSED)
        fy__error_save(&guard_error);
    if (growth == GROWN) count_rung(pool, &pool->rungs.grown_after_trim);
    if (node || request->no_nodes || growth == FAILED) goto done;

    pthread_mutex_lock(&pool->lock);
    const bool has_pending = pool->pending_count != 0;
    pthread_mutex_unlock(&pool->lock);
    if (!has_pending) goto done;
    if (!pool->source.may_sync(pool->source.user)) {
        refusal.sync_forbidden = true;
        goto done;
    }
    refusal.synced = true;
    if ((node = wait_and_search(pool, request)) || request->no_nodes || growth == GUARD_REFUSED) goto done;
    if ((growth = make_room(pool, request, growth, &refusal, &node, &status)) == GUARD_REFUSED) fy__error_save(&guard_error);
    if (growth == GROWN) count_rung(pool, &pool->rungs.grown_after_sync);

done:
    fy__unlock(&pool->source_lock);
    *out_node = node;
    if (node) return FY_STATUS_OK;
    if (!request->no_nodes && growth == FAILED) return status;
    if (!request->no_nodes && growth == GUARD_REFUSED) {
        fy__error_restore(&guard_error); /* what was tried since may have written over it */
        return FY_STATUS_REFUSED_BY_GUARD;
    }
    refusal.limit_refused = growth == LIMIT_REFUSED;
    return fy__pool_verdict(pool, request, &refusal);
}
