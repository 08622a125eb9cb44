/* Guards limit transfers, waits and allocations. A check runs once, at the beginning of the API
 * call, before the call changes anything. A guard is a counted object that several threads may
 * share (threads that Ferry starts inherit their creator's: thread.h). So a check claims: it
 * compares and adds in one atomic step, and the claim is returned if the call then fails.
 * Guards form chains from the inner scope out; a call must pass all of them. An unguarded call pays
 * one comparison.
 * Not here: budgets as text (budget.c), which scope a guard belongs to (scope.c). */
#ifndef FERRY_RUNTIME_GUARD_H_
#define FERRY_RUNTIME_GUARD_H_

#include "runtime/base/posix.h"
#include "runtime/thread/thread.h"

typedef struct fy__guard {
    _Atomic uint32_t refs;
    fy_guard_action_t action;
    struct fy__guard *outer; /* the guard of the next outer scope; one reference */
    /* the scope, for texts; NULL: the process's guard. Nodes are never freed */
    const fy__node_t *node;
    bool counts_memory; /* this guard, or an outer one, limits live bytes */
    /* the budget of this guard; NULL: set by fy_scope_guard; one reference */
    void *keeper;
    void (*keeper_release)(void *keeper);
    /* of a budget: the text of each limit; NULL: no limit */
    const char *items[FY__QUOTAS];
    _Atomic uint64_t limit[FY__QUOTAS]; /* only decreases */
    _Atomic uint64_t used[FY__QUOTAS];  /* of MEMORY: currently live */
} fy__guard_t;

/* A guard with these limits inside `outer` (whose reference passes to it), nothing used, one
 * reference. NULL: no memory, and nothing has changed. */
fy__guard_t *fy__guard_create(fy_guard_action_t action, const uint64_t limit[FY__QUOTAS],
                              const fy__node_t *node, fy__guard_t *outer);
static inline fy__guard_t *fy__guard_retain(fy__guard_t *guard)
{
    if (guard) atomic_fetch_add_explicit(&guard->refs, 1, memory_order_relaxed);
    return guard;
}
void fy__guard_release(fy__guard_t *guard);

/* The process's guard; NULL: no budget is set. Retain it before you dereference it. */
extern fy__guard_t *_Atomic fy__guard_process;
fy__guard_t *fy__guard_process_retain(void);
/* Takes the caller's reference, or NULL. */
void fy__guard_process_set(fy__guard_t *guard);
extern pthread_mutex_t fy__guard_lock;

static inline bool fy__guard_any(const fy__thread_t *thread)
{
    return ((uintptr_t)thread->guards |
            (uintptr_t)atomic_load_explicit(&fy__guard_process, memory_order_relaxed)) != 0;
}

/* Checks whether a transfer of `nbytes` in `direction` is allowed now, and claims them.
 * fy__guard_charge_transfer turns the claim into use. fy__guard_settle returns the claim of a call
 * that failed in between, at the latest at this thread's next check. `what` names the call.
 * REFUSED_BY_GUARD names the guard, the limit and the current use. */
fy_status_t fy__guard_check_transfer(fy__thread_t *thread, int direction, uint64_t nbytes,
                                     const char *what);
void fy__guard_charge_transfer(fy__thread_t *thread, int direction, uint64_t nbytes);

/* Encloses a call that blocks: begin checks and counts, end adds the time. A refused call is not
 * counted. */
fy_status_t fy__sync_begin(fy__thread_t *thread, const char *what, fy__wait_site_t reason,
                           fy__point_t awaited, uint64_t *out_start_ns);
void fy__sync_end(fy__thread_t *thread, uint64_t start_ns);
/* The same for a caller that measured the time itself. */
void fy__sync_ended(fy__thread_t *thread, uint64_t blocked_ns);
/* Counts a request that waited from `start_ns` until now because the host was too far ahead:
 * back-pressure, which no guard forbids. `reason`: static, for the event file. */
void fy__throttled(fy__thread_t *thread, const char *reason, uint64_t start_ns);
/* Whether fy__sync_begin would pass. */
bool fy__sync_allowed(const fy__thread_t *thread);

/* One call to a backend's allocator: check before it, end after it with its status, which it
 * returns. A call that failed is not counted. */
fy_status_t fy__guard_check_device_alloc(fy__thread_t *thread, uint64_t nbytes, const char *device);
fy_status_t fy__guard_end_device_alloc(fy__thread_t *thread, fy_status_t status);
/* Whether the check would pass. */
bool fy__device_alloc_allowed(const fy__thread_t *thread);

/* Returns this thread's claims that were not charged, after a failure. */
void fy__guard_settle_slow(fy__thread_t *thread);
static inline void fy__guard_settle(fy__thread_t *thread)
{
    if (__builtin_expect(thread->claimed != 0, 0)) fy__guard_settle_slow(thread);
}

/* Returns `status`; if it is a failure, settles first. */
static inline fy_status_t fy__guard_settled(fy__thread_t *thread, fy_status_t status)
{
    if (status != FY_STATUS_OK) fy__guard_settle(thread);
    return status;
}

/* Checks whether `nbytes` more may become live on devices, and claims them. *out_guards (a
 * reference, or NULL) counts them until fy__guard_free_memory. */
fy_status_t fy__guard_take_memory(fy__thread_t *thread, uint64_t nbytes, const char *device,
                                  fy__guard_t **out_guards);
/* The allocation turned out `nbytes` larger than claimed. */
void fy__guard_grow_memory(fy__guard_t *guards, uint64_t nbytes);
/* Subtracts freed bytes; releases the reference. */
void fy__guard_free_memory(fy__guard_t *guards, uint64_t nbytes);

/* ---- budgets (budget.c): guards for the whole process, from a text ---- */

/* Called when a scope `name` begins while a budget is set: adds a guard with the limits of that
 * name to the thread's guards. */
void fy__budget_scope(fy__thread_t *thread, const char *name);
/* Reads $FERRY_BUDGET at the first call of any thread. A malformed value is logged as an error and
 * ignored. */
void fy__budget_environment(void);
/* INVALID_ARGUMENT while $FERRY_BUDGET is malformed and fy_budget_set has set no budget;
 * FERRY_STRICT=0: OK. */
fy_status_t fy__budget_check(void);

#endif
