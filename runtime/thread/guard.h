/* Guards: what may still be done, decided once, at the edge of the API call, before anything was
 * done. A guard is a counted object that may serve several threads (those that Ferry starts inherit
 * their creator's: inherit.h), so asking takes: what was asked for is added to the guard's count in
 * the same step in which it is compared with the limit, and given back if the call then fails.
 * Guards form chains from the inside out; a call must pass all. Unguarded, a call pays one
 * comparison.
 * Not here: budgets as text (budget.h), which scope a guard belongs to (scope.c). */
#ifndef FERRY_RUNTIME_GUARD_H_
#define FERRY_RUNTIME_GUARD_H_

#include "runtime/thread/thread.h"

typedef struct fy__guard {
    _Atomic uint32_t refs;
    fy_guard_action_t action;
    struct fy__guard *outer; /* the next one out; one reference */
    /* whose scope it is, for texts; NULL: the process's. Nodes are never freed */
    const fy__node_t *node;
    bool counts_memory; /* it, or one further out, limits live bytes */
    /* the budget that it comes from, NULL: fy_scope_guard's; one reference */
    void *keeper;
    void (*keeper_release)(void *keeper);
    /* of a budget: what each limit was written as; NULL where there is none */
    const char *items[FY__QUOTAS];
    _Atomic uint64_t limit[FY__QUOTAS]; /* only ever lowered */
    _Atomic uint64_t used[FY__QUOTAS];  /* of MEMORY: live now */
} fy__guard_t;

/* A guard inside of `outer` (whose reference passes to it) with these limits, nothing used, one
 * reference; NULL: no memory, no change. */
fy__guard_t *fy__guard_create(fy_guard_action_t action, const uint64_t limit[FY__QUOTAS],
                              const fy__node_t *node, fy__guard_t *outer);
static inline fy__guard_t *fy__guard_retain(fy__guard_t *guard)
{
    if (guard) atomic_fetch_add_explicit(&guard->refs, 1, memory_order_relaxed);
    return guard;
}
void fy__guard_release(fy__guard_t *guard);

/* The process's guard; NULL: no budget is set. Dereferenced only by who retained it. */
extern fy__guard_t *_Atomic fy__guard_process;
fy__guard_t *fy__guard_process_retain(void);
/* Takes over the caller's reference, or NULL. */
void fy__guard_process_set(fy__guard_t *guard);
void fy__guard_fork_lock(void);
void fy__guard_fork_unlock(void);

static inline bool fy__guard_any(const fy__thread_t *thread)
{
    return ((uintptr_t)thread->guards |
            (uintptr_t)atomic_load_explicit(&fy__guard_process, memory_order_relaxed)) != 0;
}

/* May `nbytes` go this way now? Takes them; fy__guard_charge_transfer then says that they went.
 * What a call that failed in between took is given back by fy__guard_settle, at the latest by this
 * thread's next check. `what` names the call. REFUSED_BY_GUARD says which guard forbids it, the
 * limit and what is used. */
fy_status_t fy__guard_check_transfer(fy__thread_t *thread, int direction, uint64_t nbytes,
                                     const char *what);
void fy__guard_charge_transfer(fy__thread_t *thread, int direction, uint64_t nbytes);

/* Brackets a call marked Blocks: check and count on the way in, time on the way out. A refused call
 * is not counted. */
fy_status_t fy__sync_begin(fy__thread_t *thread, const char *what, uint64_t *out_start_ns);
void fy__sync_end(fy__thread_t *thread, uint64_t start_ns);
/* The same for who measured the time himself. */
void fy__sync_ended(fy__thread_t *thread, uint64_t blocked_ns);
/* A request was held back from `start_ns` till now because the host was too far ahead:
 * back-pressure, which no guard forbids. */
void fy__throttled(fy__thread_t *thread, uint64_t start_ns);
/* Would fy__sync_begin pass? */
bool fy__sync_allowed(const fy__thread_t *thread);

/* One call to a backend's allocator: check before, count after. */
fy_status_t fy__guard_check_device_alloc(fy__thread_t *thread, uint64_t nbytes, const char *device);
void fy__guard_count_device_alloc(fy__thread_t *thread);
/* Would the check pass? */
bool fy__device_alloc_allowed(const fy__thread_t *thread);

/* Gives back what a check on this thread took of this kind and nothing was charged for: behind
 * something that failed. */
void fy__guard_unclaim(fy__thread_t *thread, fy__quota_t quota);
/* The same for all kinds. */
void fy__guard_settle_slow(fy__thread_t *thread);
static inline void fy__guard_settle(fy__thread_t *thread)
{
    if (__builtin_expect(thread->claimed != 0, 0)) fy__guard_settle_slow(thread);
}

/* Hands on how a call went; if it failed, settles. */
static inline fy_status_t fy__guard_settled(fy__thread_t *thread, fy_status_t status)
{
    if (status != FY_STATUS_OK) fy__guard_settle(thread);
    return status;
}

/* May `nbytes` more become live on devices? Takes them; *out_guards, a reference (or NULL), is who
 * counts them until fy__guard_free_memory. */
fy_status_t fy__guard_take_memory(fy__thread_t *thread, uint64_t nbytes, const char *device,
                                  fy__guard_t **out_guards);
/* `nbytes` turned out to be so many more. */
void fy__guard_grow_memory(fy__guard_t *guards, uint64_t nbytes);
/* They are free again; lets go of the reference. */
void fy__guard_free_memory(fy__guard_t *guards, uint64_t nbytes);

/* Monotonic host time. */
uint64_t fy__now_ns(void);

#endif
