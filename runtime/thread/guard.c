/* Checks and charges guards. A check follows the chain from the inner guard out. At each guard it
 * compares and claims in one atomic step. If a later guard refuses, it returns the claims. So
 * threads that share a guard cannot exceed its limit together. */
#include "runtime/thread/guard.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/fail.h"
#include "runtime/record/event.h"
#include "runtime/record/notes.h"

typedef unsigned long long ull;

_Static_assert((int)FY__QUOTA_UPLOAD == (int)FY__UPLOAD &&
                   (int)FY__QUOTA_DOWNLOAD == (int)FY__DOWNLOAD &&
                   (int)FY__QUOTA_PEER == (int)FY__PEER &&
                   (int)FY__QUOTA_COLLECTIVE == (int)FY__COLLECTIVE,
               "a direction is its quota");

/* ---- guard objects ---- */

fy__guard_t *fy__guard_create(fy_guard_action_t action, const uint64_t limit[FY__QUOTAS],
                              const fy__node_t *node, fy__guard_t *outer)
{
    fy__guard_t *guard = calloc(1, sizeof *guard);
    if (!guard) return NULL;
    atomic_store_explicit(&guard->refs, 1, memory_order_relaxed);
    guard->action = action;
    guard->node = node;
    guard->outer = outer;
    guard->counts_memory = limit[FY__QUOTA_MEMORY] != FY_UNLIMITED ||
                           (outer && outer->counts_memory);
    for (int i = 0; i < FY__QUOTAS; i++)
        atomic_store_explicit(&guard->limit[i], limit[i], memory_order_relaxed);
    return guard;
}

void fy__guard_release(fy__guard_t *guard)
{
    while (guard && atomic_fetch_sub_explicit(&guard->refs, 1, memory_order_acq_rel) == 1) {
        fy__guard_t *outer = guard->outer;
        if (guard->keeper) guard->keeper_release(guard->keeper);
        free(guard);
        guard = outer;
    }
}

fy__guard_t *_Atomic fy__guard_process;
/* Guards the step from reading fy__guard_process to retaining it. */
pthread_mutex_t fy__guard_lock = PTHREAD_MUTEX_INITIALIZER;

fy__guard_t *fy__guard_process_retain(void)
{
    if (FY_LIKELY(!atomic_load_explicit(&fy__guard_process, memory_order_relaxed))) return NULL;
    pthread_mutex_lock(&fy__guard_lock);
    fy__guard_t *guard =
        fy__guard_retain(atomic_load_explicit(&fy__guard_process, memory_order_relaxed));
    pthread_mutex_unlock(&fy__guard_lock);
    return guard;
}

void fy__guard_process_set(fy__guard_t *guard)
{
    pthread_mutex_lock(&fy__guard_lock);
    fy__guard_t *old = atomic_exchange(&fy__guard_process, guard);
    pthread_mutex_unlock(&fy__guard_lock);
    fy__guard_release(old);
}

/* ---- claims ---- */

static const char *const quantities[FY__QUOTAS] = {
    "upload bytes", "download bytes",     "peer bytes",       "collective bytes",
    "syncs",        "device allocations", "live device bytes"
};

static uint64_t load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* The call that claims, for texts; formatted only when a guard refuses or logs. */
typedef struct asker {
    const char *what;   /* "tensor_upload"; or the kind of an allocation of nbytes on `device` */
    const char *device; /* NULL: `what` is a call */
    uint64_t nbytes;
} asker_t;

static const char *name_of(const asker_t *asker, char buffer[128])
{
    if (!asker->device) return asker->what;
    snprintf(buffer, 128, "%s of %llu bytes on %s", asker->what, (ull)asker->nbytes, asker->device);
    return buffer;
}

/* Claims n if the guard has as much left; *out_used is the use before. */
static bool take_one(fy__guard_t *guard, fy__quota_t quota, uint64_t n, uint64_t *out_used)
{
    uint64_t used = load(&guard->used[quota]);
    do {
        const uint64_t limit = load(&guard->limit[quota]);
        if (n && guard->action == FY_GUARD_REFUSE && limit != FY_UNLIMITED &&
            (used > limit || n > limit - used)) {
            *out_used = used;
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&guard->used[quota], &used, used + n,
                                                    memory_order_relaxed, memory_order_relaxed));
    *out_used = used;
    return true;
}

static void return_claims(fy__guard_t *guard, const fy__guard_t *end, fy__quota_t quota, uint64_t n)
{
    for (; guard != end; guard = guard->outer)
        atomic_fetch_sub_explicit(&guard->used[quota], n, memory_order_relaxed);
}

static FY_COLD fy_status_t refuse(const fy__thread_t *thread, const fy__guard_t *guard,
                                  const asker_t *asker, fy__quota_t quota, uint64_t asked,
                                  uint64_t used)
{
    const ull limit = (ull)load(&guard->limit[quota]);
    char path[128], name[128];
    const char *what = name_of(asker, name);
    fy__node_path(guard->node ? guard->node : thread->node, path, sizeof path);
    if (!path[0]) snprintf(path, sizeof path, "(none)"); /* a budget, and no scope is open */
    if (!guard->keeper)
        return FY_FAIL(REFUSED_BY_GUARD,
                       "%s: the guard on scope '%s' allows %llu %s, of which %llu are used; this "
                       "call needs %llu\n  Move the call out of "
                       "the scope, or raise the limit where the guard is set (fy_scope_guard)",
                       what, path, limit, quantities[quota], (ull)used, (ull)asked);
    return FY_FAIL(
        REFUSED_BY_GUARD,
        "%s: the budget '%.64s' allows %s %llu %s, of which %llu are used; this call, in scope "
        "'%s', needs %llu\n  Do without "
        "it, or raise the budget where it is set (fy_budget_set, $FERRY_BUDGET, ferry --budget)",
        what, guard->items[quota], guard->node ? "each such scope" : "the process", limit,
        quantities[quota], (ull)used, path, (ull)asked);
}

/* Logs that a guard with FY_GUARD_LOG was exceeded. No lock is held; the caller keeps the chain
 * alive. */
static FY_COLD void log_exceeded(const fy__guard_t *guard, const asker_t *asker, fy__quota_t quota,
                                 uint64_t asked)
{
    char path[128], name[128];
    const uint64_t limit = load(&guard->limit[quota]), used = load(&guard->used[quota]);
    if (!asked || limit == FY_UNLIMITED || used <= limit) return;
    fy__node_path(guard->node, path, sizeof path);
    fy_log_write(FY_LOG_WARNING, "guard on scope '%s': %s: %llu %s asked, %llu of %llu used", path,
                 name_of(asker, name), (ull)asked, quantities[quota],
                 (ull)(used > asked ? used - asked : 0), (ull)limit);
}

/* Claims n from every guard of the thread and from the process's, or from none. Both chains are
 * returned retained. */
static FY_COLD fy_status_t take(fy__thread_t *thread, fy__quota_t quota, uint64_t n,
                                const asker_t *asker, fy__claim_t *out_claim)
{
    fy__guard_t *const heads[2] = { fy__guard_retain(thread->guards), fy__guard_process_retain() };
    fy_status_t status = FY_STATUS_OK;
    bool logs = false;
    uint64_t used;
    for (int i = 0; i < 2 && status == FY_STATUS_OK; i++)
        for (fy__guard_t *guard = heads[i]; guard; guard = guard->outer) {
            if (!take_one(guard, quota, n, &used)) {
                return_claims(heads[i], guard, quota, n);
                if (i) return_claims(heads[0], NULL, quota, n);
                status = refuse(thread, guard, asker, quota, n, used);
                FY__EVENT(fy__event_refusal(thread, status));
                fy__note(status, fy_error_get()->text);
                break;
            }
            logs |= guard->action == FY_GUARD_LOG;
        }
    if (status != FY_STATUS_OK) {
        fy__guard_release(heads[0]);
        fy__guard_release(heads[1]);
        return status;
    }
    *out_claim = (fy__claim_t){ heads[0], heads[1], n };
    for (fy__guard_t *guard = logs ? heads[0] : NULL; guard; guard = guard->outer)
        if (guard->action == FY_GUARD_LOG) log_exceeded(guard, asker, quota, n);
    return FY_STATUS_OK;
}

static void release_claim(fy__claim_t *claim)
{
    fy__guard_release(claim->guards);
    fy__guard_release(claim->process);
    *claim = (fy__claim_t){ NULL, NULL, 0 };
}

/* Returns this thread's claims of this kind that were not charged. */
static FY_COLD void unclaim(fy__thread_t *thread, fy__quota_t quota)
{
    fy__claim_t *claim = &thread->claims[quota];
    if (!(thread->claimed & 1u << quota)) return;
    thread->claimed &= ~(1u << quota);
    return_claims(claim->guards, NULL, quota, claim->n);
    return_claims(claim->process, NULL, quota, claim->n);
    release_claim(claim);
}

void fy__guard_settle_slow(fy__thread_t *thread)
{
    for (int i = 0; i < FY__QUOTAS; i++) unclaim(thread, (fy__quota_t)i);
}

/* Claims n and records the claim on the thread until it is charged or settled. */
static FY_COLD fy_status_t claim(fy__thread_t *thread, fy__quota_t quota, uint64_t n,
                                 const asker_t *asker)
{
    fy__claim_t taken;
    unclaim(thread, quota); /* left by a call that failed without settling */
    FY_TRY(take(thread, quota, n, asker, &taken));
    unclaim(thread, quota); /* left by a log function that called Ferry */
    thread->claims[quota] = taken;
    thread->claimed |= 1u << quota;
    return FY_STATUS_OK;
}

/* Counts completed use, also use above the claim: figures show the actual use. */
static FY_COLD void charge(fy__thread_t *thread, fy__quota_t quota, uint64_t n)
{
    fy__claim_t *claim = &thread->claims[quota];
    if (thread->claimed & 1u << quota) {
        const uint64_t mine = n < claim->n ? n : claim->n;
        claim->n -= mine;
        n -= mine;
        if (!claim->n) {
            thread->claimed &= ~(1u << quota);
            release_claim(claim);
        }
    }
    if (!n) return;
    fy__guard_t *process = fy__guard_process_retain();
    for (fy__guard_t *guard = thread->guards; guard; guard = guard->outer)
        atomic_fetch_add_explicit(&guard->used[quota], n, memory_order_relaxed);
    if (process) atomic_fetch_add_explicit(&process->used[quota], n, memory_order_relaxed);
    fy__guard_release(process);
}

/* ---- calls at the edge of the API ---- */

fy_status_t fy__guard_check_transfer(fy__thread_t *thread, int direction, uint64_t nbytes,
                                     const char *what)
{
    if (FY_LIKELY(!fy__guard_any(thread))) return FY_STATUS_OK;
    return claim(thread, (fy__quota_t)direction, nbytes, &(asker_t){ what, NULL, 0 });
}

void fy__guard_charge_transfer(fy__thread_t *thread, int direction, uint64_t nbytes)
{
    if (FY_LIKELY(!fy__guard_any(thread) && !thread->claimed)) return;
    charge(thread, (fy__quota_t)direction, nbytes);
}

static FY_COLD bool some_left(fy__guard_t *guard, fy__quota_t quota)
{
    for (; guard; guard = guard->outer)
        if (guard->action == FY_GUARD_REFUSE &&
            load(&guard->used[quota]) >= load(&guard->limit[quota]))
            return false;
    return true;
}

static bool is_allowed(const fy__thread_t *thread, fy__quota_t quota)
{
    if (FY_LIKELY(!fy__guard_any(thread))) return true;
    fy__guard_t *process = fy__guard_process_retain();
    const bool allowed = some_left(thread->guards, quota) && some_left(process, quota);
    fy__guard_release(process);
    return allowed;
}

bool fy__sync_allowed(const fy__thread_t *thread) { return is_allowed(thread, FY__QUOTA_SYNCS); }
bool fy__device_alloc_allowed(const fy__thread_t *thread)
{
    return is_allowed(thread, FY__QUOTA_ALLOCS);
}

fy_status_t fy__sync_begin(fy__thread_t *thread, const char *what, fy__wait_site_t reason,
                           fy__point_t awaited, uint64_t *out_start_ns)
{
    if (FY_UNLIKELY(fy__guard_any(thread))) {
        fy__claim_t taken;
        FY_TRY(take(thread, FY__QUOTA_SYNCS, 1, &(asker_t){ what, NULL, 0 }, &taken));
        release_claim(&taken); /* counts even if the wait fails */
    }
    fy__count(&thread->node->syncs, 1);
    thread->blocking = (fy__blocking_t){ what, reason, awaited };
    *out_start_ns = fy__now_ns();
    return FY_STATUS_OK;
}

void fy__sync_ended(fy__thread_t *thread, uint64_t blocked_ns)
{
    fy__count(&thread->node->sync_ns, blocked_ns);
    FY__EVENT(fy__event_sync(thread, blocked_ns));
}

void fy__sync_end(fy__thread_t *thread, uint64_t start_ns)
{
    fy__sync_ended(thread, fy__now_ns() - start_ns);
}

void fy__throttled(fy__thread_t *thread, const char *reason, uint64_t start_ns)
{
    fy__count(&thread->node->throttles, 1);
    const uint64_t blocked_ns = fy__now_ns() - start_ns;
    fy__count(&thread->node->throttle_ns, blocked_ns);
    FY__EVENT(fy__event_throttle(thread, reason, blocked_ns));
}

fy_status_t fy__guard_check_device_alloc(fy__thread_t *thread, uint64_t nbytes, const char *device)
{
    if (FY_LIKELY(!fy__guard_any(thread))) return FY_STATUS_OK;
    return claim(thread, FY__QUOTA_ALLOCS, 1,
                 &(asker_t){ "allocation of a segment", device, nbytes });
}

fy_status_t fy__guard_end_device_alloc(fy__thread_t *thread, fy_status_t status)
{
    if (status != FY_STATUS_OK) {
        unclaim(thread, FY__QUOTA_ALLOCS);
        return status;
    }
    fy__count(&thread->node->device_allocs, 1);
    FY__EVENT(fy__event_device_alloc(thread));
    if (FY_UNLIKELY(fy__guard_any(thread) || thread->claimed)) charge(thread, FY__QUOTA_ALLOCS, 1);
    return FY_STATUS_OK;
}

fy_status_t fy__guard_take_memory(fy__thread_t *thread, uint64_t nbytes, const char *device,
                                  fy__guard_t **out_guards)
{
    fy__claim_t taken;
    *out_guards = NULL;
    if (FY_LIKELY(!thread->guards || !thread->guards->counts_memory)) return FY_STATUS_OK;
    FY_TRY(take(thread, FY__QUOTA_MEMORY, nbytes, &(asker_t){ "tensor", device, nbytes }, &taken));
    return_claims(taken.process, NULL, FY__QUOTA_MEMORY, nbytes); /* the process's guard has no such
                                                               * limit */
    fy__guard_release(taken.process);
    *out_guards = taken.guards;
    return FY_STATUS_OK;
}

void fy__guard_grow_memory(fy__guard_t *guards, uint64_t nbytes)
{
    for (; guards; guards = guards->outer)
        atomic_fetch_add_explicit(&guards->used[FY__QUOTA_MEMORY], nbytes, memory_order_relaxed);
}

void fy__guard_free_memory(fy__guard_t *guards, uint64_t nbytes)
{
    return_claims(guards, NULL, FY__QUOTA_MEMORY, nbytes);
    fy__guard_release(guards);
}
