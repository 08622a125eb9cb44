/* Begins and ends scopes. The end of a scope also ends everything that began inside it, so an early
 * return is safe. Results move to the enclosing frame's ring, or to the user. */
#include "runtime/thread/scope.h"

#include "runtime/base/abi_structs.h"
#include "runtime/base/checked.h"
#include "runtime/base/fail.h"
#include "runtime/device/plan.h"
#include "runtime/record/event.h"
#include "runtime/tensor/tensor.h"
#include "runtime/thread/guard.h"
#include "runtime/thread/thread.h"

_Atomic(fy_range_fn) fy__ranges;
fy__handle_destroy_fn fy__handle_destroyers[FY__HANDLE_KINDS];

static fy_scope_t begin(const char *name, bool owns)
{
    fy_scope_t scope = { 0, 0 };
    fy__thread_t *thread = fy__thread();
    if (!thread) return scope;
    if (thread->depth == FY__MAX_SCOPES) {
        thread->excess++;
        scope.depth = FY__MAX_SCOPES + thread->excess;
        scope.serial = fy__thread_scope(thread)->serial;
        return scope;
    }
    fy__frame_t *frame = &thread->frames[thread->depth++];
    frame->handles.prev = frame->handles.next = &frame->handles;
    frame->handles.kind = FY__HANDLE_KINDS;
    frame->outer_node = thread->node;
    frame->node = fy__node_child(thread->node, name ? name : "scope");
    frame->serial = ++thread->next_serial;
    frame->outer_category = thread->category;
    frame->outer_autocast = thread->autocast;
    frame->outer_tape = thread->tape;
    frame->outer_guards = thread->guards;
    frame->streams_saved = 0;
    frame->owns = owns;
    const fy_range_fn ranges = atomic_load_explicit(&fy__ranges, memory_order_acquire);
    frame->in_range = ranges != NULL;
    if (FY_UNLIKELY(ranges != NULL)) ranges(name ? name : "scope");
    thread->frame = owns ? frame : NULL;
    thread->node = frame->node;
    if (FY_UNLIKELY(atomic_load_explicit(&fy__guard_process, memory_order_relaxed) != NULL))
        fy__budget_scope(thread, name ? name : "scope");
    FY__EVENT(fy__event_scope(thread, true));
    if (FY_UNLIKELY(thread->plan != NULL)) fy__plan_scope(thread, true);
    scope.depth = thread->depth;
    scope.serial = frame->serial;
    return scope;
}

fy_scope_t fy_scope_begin(const char *name) { return begin(name, true); }
fy_scope_t fy_scope_begin_unowned(const char *name) { return begin(name, false); }

/* Ends the innermost frame. Handles are destroyed in the order in which they were made, except
 * small tensors in reused slots. */
static void end_frame(fy__thread_t *thread)
{
    fy__frame_t *frame = fy__thread_scope(thread);
    while (frame->handles.next != &frame->handles) {
        fy__handle_t *handle = frame->handles.next;
        fy__handle_release(handle);
        /* already destroyed, in the thread cache */
        if (handle->kind == FY__HANDLE_TENSOR && fy__tensor_is_gone((fy_tensor_t *)handle))
            continue;
        fy__handle_destroyers[handle->kind](handle);
    }
    for (uint32_t i = 0; frame->streams_saved; i++, frame->streams_saved >>= 1)
        if (frame->streams_saved & 1) thread->streams[i] = frame->outer_streams[i];
    fy__guard_settle(thread);
    while (thread->guards != frame->outer_guards) {
        fy__guard_t *guard = thread->guards;
        thread->guards = fy__guard_retain(guard->outer);
        fy__guard_release(guard);
    }
    FY__EVENT(fy__event_scope(thread, false));
    if (FY_UNLIKELY(frame->in_range)) atomic_load_explicit(&fy__ranges, memory_order_acquire)(NULL);
    if (FY_UNLIKELY(thread->plan != NULL)) fy__plan_scope(thread, false);
    thread->node = frame->outer_node;
    thread->category = frame->outer_category;
    thread->autocast = frame->outer_autocast;
    thread->tape = frame->outer_tape;
    thread->depth--;
    fy__frame_t *outer = fy__thread_scope(thread);
    thread->frame = outer && outer->owns ? outer : NULL;
}

/* Searches the ring's sentinel in both directions: most handles in question were made last. */
bool fy__scope_has(const fy__thread_t *thread, uint32_t depth, const fy__handle_t *handle)
{
    const fy__handle_t *after = handle, *before = handle;
    if (!handle->next) return false;
    if (depth > FY__MAX_SCOPES) depth = FY__MAX_SCOPES; /* deeper ones share this frame */
    while (after->kind != FY__HANDLE_KINDS && before->kind != FY__HANDLE_KINDS) {
        after = after->next;
        before = before->prev;
    }
    const fy__frame_t *frame =
        (const fy__frame_t *)(after->kind == FY__HANDLE_KINDS ? after : before);
    return frame >= &thread->frames[depth - 1] && frame < &thread->frames[thread->depth];
}

void fy_scope_end(fy_scope_t scope, size_t count, fy_tensor_t *const *results)
{
    fy__thread_t *thread = fy__thread();
    if (!thread || !scope.depth) return;
    if (scope.depth > FY__MAX_SCOPES) { /* shares the innermost frame: nothing to destroy */
        const uint32_t excess = scope.depth - FY__MAX_SCOPES;
        if (excess <= thread->excess && fy__thread_scope(thread)->serial == scope.serial)
            thread->excess = excess - 1;
        return;
    }
    if (scope.depth > thread->depth || thread->frames[scope.depth - 1].serial != scope.serial)
        return; /* already ended, or of another thread */
    fy__frame_t *outer = scope.depth > 1 ? &thread->frames[scope.depth - 2] : NULL;
    if (outer && !outer->owns) outer = NULL; /* results become the caller's */
    for (size_t i = 0; results && i < count; i++) {
        if (!results[i] || !fy__scope_has(thread, scope.depth, fy__tensor_handle(results[i])))
            continue;
        fy__handle_release(fy__tensor_handle(results[i]));
        fy__handle_adopt(outer, fy__tensor_handle(results[i]));
    }
    thread->excess = 0;
    while (thread->depth >= scope.depth) end_frame(thread);
}

void fy__scope_end_all(fy__thread_t *thread)
{
    thread->excess = 0;
    while (thread->depth) end_frame(thread);
}

/* ---- attributes ---- */

fy_status_t fy__scope_check_innermost(const fy__thread_t *thread, const char *call,
                                      const char *what)
{
    if (!thread->depth)
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: no scope is open on this thread; call fy_scope_begin first", call);
    if (!thread->excess) return FY_STATUS_OK;
    return FY_FAIL(
        INVALID_ARGUMENT,
        "%s: %u scopes are open, the innermost is counted under the %dth and cannot have "
        "a %s\n  End scopes that are over, or set the %s in an outer scope",
        call, FY__MAX_SCOPES + thread->excess, FY__MAX_SCOPES, what, what);
}

fy_status_t fy_scope_memory(fy_category_t category)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if ((unsigned)category >= FY_CATEGORY_COUNT)
        return FY_FAIL(INVALID_ARGUMENT, "scope_memory: %d is no category; see fy_category_t",
                       (int)category);
    FY_TRY(fy__scope_check_innermost(thread, "scope_memory", "category"));
    thread->category = category;
    return FY_STATUS_OK;
}

/* ---- guards ---- */

/* Refuses a limit that is looser than that of an outer guard set by the user. Budgets are not
 * compared. */
static fy_status_t check_tighter(const fy__guard_t *guard, const uint64_t asked[FY__QUOTAS])
{
    static const char *const names[] = { "upload_nbytes",     "download_nbytes", "peer_nbytes",
                                         "collective_nbytes", "syncs",           "device_allocs",
                                         "memory_nbytes" };
    for (; guard; guard = guard->outer) {
        if (guard->keeper || guard->action != FY_GUARD_REFUSE) continue;
        for (int i = 0; i < FY__QUOTAS; i++) {
            const uint64_t limit = atomic_load_explicit(&guard->limit[i], memory_order_relaxed);
            if (asked[i] != FY_UNLIMITED && asked[i] > limit)
                return FY_FAIL(INVALID_ARGUMENT,
                               "scope_guard: %s=%llu is looser than the %llu of the guard on scope "
                               "'%s'\n  A guard may only tighten what "
                               "encloses it; use FY_UNLIMITED to leave that limit alone",
                               names[i], (unsigned long long)asked[i], (unsigned long long)limit,
                               guard->node->name);
        }
    }
    return FY_STATUS_OK;
}

/* Allows at most `asked` more from here on, so that repeated calls on one scope need one guard. */
static void tighten(fy__guard_t *guard, const uint64_t asked[FY__QUOTAS])
{
    for (int i = 0; i < FY__QUOTAS; i++) {
        uint64_t sum, limit = atomic_load_explicit(&guard->limit[i], memory_order_relaxed);
        if (!fy__add_u64(asked[i], atomic_load_explicit(&guard->used[i], memory_order_relaxed),
                         &sum))
            continue;
        while (sum < limit && !atomic_compare_exchange_weak_explicit(&guard->limit[i], &limit, sum,
                                                                     memory_order_relaxed,
                                                                     memory_order_relaxed)) {}
    }
}

/* A guard of this scope that can adopt these limits. It must have the same action, and count live
 * bytes if they are limited. */
static fy__guard_t *find_like(fy__thread_t *thread, fy_guard_action_t action,
                              const uint64_t asked[FY__QUOTAS])
{
    for (fy__guard_t *guard = thread->guards; guard != fy__thread_scope(thread)->outer_guards;
         guard = guard->outer)
        if (!guard->keeper && guard->action == action &&
            (asked[FY__QUOTA_MEMORY] == FY_UNLIMITED || guard->counts_memory))
            return guard;
    return NULL;
}

fy_status_t fy_scope_guard(const fy_guard_options_t *options)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    fy_guard_options_t own;
    FY_TRY(FY__READ_GIVEN(guard_options, "scope_guard", options, &own));
    options = &own;
    FY_TRY(fy__scope_check_innermost(thread, "scope_guard", "guard"));
    if (options->action != FY_GUARD_REFUSE && options->action != FY_GUARD_LOG)
        return FY_FAIL(INVALID_ARGUMENT,
                       "scope_guard: action %d is neither FY_GUARD_REFUSE nor FY_GUARD_LOG",
                       (int)options->action);
    const uint64_t asked[FY__QUOTAS] = { options->upload_nbytes, options->download_nbytes,
                                         options->peer_nbytes,   options->collective_nbytes,
                                         options->syncs,         options->device_allocs,
                                         options->memory_nbytes };
    FY_TRY(check_tighter(thread->guards, asked));
    fy__guard_t *guard = find_like(thread, options->action, asked);
    if (guard) {
        tighten(guard, asked);
        return FY_STATUS_OK;
    }
    guard =
        fy__guard_create(options->action, asked, fy__thread_scope(thread)->node, thread->guards);
    if (!guard)
        return FY_FAIL(OUT_OF_MEMORY, "scope_guard: no host memory for %zu bytes", sizeof *guard);
    thread->guards = guard;
    return FY_STATUS_OK;
}
