/* The pool's side of a plan: reports its blocks, and continues past its limit after the plan has
 * recorded a refusal. Next: plan.h. */
#include "alloc/plan.h"

#include "alloc/pool.h"
#include "runtime/base/fail.h"

FY_COLD void fy__plan_block(fy__pool_t *pool, const fy__block_t *block, bool is_alloc)
{
    const fy__plan_watch_t *watch = pool->plan;
    if (!watch->on_block) return;
    const int64_t nbytes = (int64_t)block->nbytes;
    watch->on_block(watch->user, is_alloc ? nbytes : -nbytes, pool->live, pool->reserved,
                    block->tag.category);
}

/* The pool's lock is held. */
static void lift(fy__pool_t *pool)
{
    pool->options.limit_nbytes = pool->options.device_nbytes = FY_UNLIMITED;
    pool->options.growth_off = false;
}

FY_COLD bool fy__plan_lift(fy__pool_t *pool)
{
    const fy_oom_verdict_t *verdict = fy_error_get()->oom;
    if (!pool->plan || !verdict || fy__plan_declines()) return false;
    fy__plan_watch_t *watch = pool->plan;
    pthread_mutex_lock(&pool->lock);
    if (watch->is_bounded && !watch->is_refused) {
        watch->is_refused = true;
        watch->verdict = *verdict;
    }
    lift(pool);
    pthread_mutex_unlock(&pool->lock);
    return true;
}

/* ---- the source: gives any number of bytes, but applies its capacity while the plan is bounded
 * ---- */

static fy_status_t check_capacity(const fy__plan_watch_t *watch, uint64_t nbytes)
{
    fy__pool_t *pool = watch->pool;
    pthread_mutex_lock(&pool->lock);
    const bool is_bounded = watch->is_bounded && !watch->is_refused;
    const uint64_t left =
        pool->reserved < watch->capacity_nbytes ? watch->capacity_nbytes - pool->reserved : 0;
    pthread_mutex_unlock(&pool->lock);
    if (is_bounded && nbytes > left)
        return FY_FAIL(OUT_OF_MEMORY, "plan: %llu bytes asked for, %llu of %llu are free",
                       (unsigned long long)nbytes, (unsigned long long)left,
                       (unsigned long long)watch->capacity_nbytes);
    return FY_STATUS_OK;
}

static fy_status_t watched_alloc(void *user, uint64_t nbytes, void **out_address)
{
    const fy__plan_watch_t *watch = user;
    FY_TRY(check_capacity(watch, nbytes));
    return watch->source.alloc(watch->source.user, nbytes, out_address);
}

static fy_status_t watched_resize(void *user, void *address, uint64_t nbytes, uint64_t new_nbytes)
{
    const fy__plan_watch_t *watch = user;
    if (new_nbytes > nbytes) FY_TRY(check_capacity(watch, new_nbytes - nbytes));
    return watch->source.resize(watch->source.user, address, nbytes, new_nbytes);
}

static void watched_free(void *user, void *address, uint64_t nbytes)
{
    const fy__plan_watch_t *watch = user;
    watch->source.free(watch->source.user, address, nbytes);
}

static bool watched_may_sync(void *user)
{
    const fy__plan_watch_t *watch = user;
    return watch->source.may_sync(watch->source.user);
}

static void watched_note_sync(void *user, uint64_t blocked_ns)
{
    const fy__plan_watch_t *watch = user;
    watch->source.note_sync(watch->source.user, blocked_ns);
}

static fy__reclaim_t watched_reclaim(void *user, uint64_t nbytes, fy__reclaim_cursor_t *cursor)
{
    const fy__plan_watch_t *watch = user;
    return watch->source.reclaim(watch->source.user, nbytes, cursor);
}

void fy__plan_watch(fy__plan_watch_t *watch)
{
    fy__pool_t *pool = watch->pool;
    pthread_mutex_lock(&pool->lock);
    watch->limit_nbytes = pool->options.limit_nbytes;
    watch->source = pool->source;
    pool->source.user = watch;
    pool->source.alloc = watched_alloc;
    pool->source.free = watched_free;
    if (pool->source.resize) pool->source.resize = watched_resize;
    pool->source.may_sync = watched_may_sync;
    pool->source.note_sync = watched_note_sync;
    if (pool->source.reclaim) pool->source.reclaim = watched_reclaim;
    watch->growth_off = pool->options.growth_off;
    if (!watch->is_bounded) lift(pool);
    pool->plan = watch;
    pthread_mutex_unlock(&pool->lock);
}

void fy__plan_unwatch(fy__plan_watch_t *watch)
{
    fy__pool_t *pool = watch->pool;
    pthread_mutex_lock(&pool->lock);
    pool->source = watch->source;
    pool->plan = NULL;
    pthread_mutex_unlock(&pool->lock);
}
