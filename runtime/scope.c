/* Beginning and ending scopes. Ending one ends what was begun inside it, so that an early return is safe; results move to the
 * enclosing frame's ring, or to the user. */
#include "runtime/scope.h"

#include "runtime/base/checked.h"
#include "runtime/base/fail.h"
#include "runtime/guard.h"
#include "runtime/tensor.h"
#include "runtime/thread.h"

fy__handle_destroy_fn fy__handle_destroyers[FY__HANDLE_KINDS];

fy_scope_t fy_scope_begin(const char *name)
{
    fy_scope_t scope = { 0, 0 };
    fy__thread_t *thread = fy__thread();
    if (!thread) return scope;
    if (thread->depth == FY__MAX_SCOPES) {
        thread->excess++;
        scope.depth = FY__MAX_SCOPES + thread->excess;
        scope.serial = thread->frame->serial;
        return scope;
    }
    fy__frame_t *frame = &thread->frames[thread->depth++];
    frame->handles.prev = frame->handles.next = &frame->handles;
    frame->handles.kind = FY__HANDLE_KINDS;
    frame->outer_node = thread->node;
    frame->node = fy__node_child(thread->node, name ? name : "scope");
    frame->serial = ++thread->next_serial;
    frame->guarded = false;
    frame->streams_saved = 0;
    thread->frame = frame;
    thread->node = frame->node;
    scope.depth = thread->depth;
    scope.serial = frame->serial;
    return scope;
}

/* Ends the innermost frame. Handles go in the order they were made. */
static void end_frame(fy__thread_t *thread)
{
    fy__frame_t *frame = thread->frame;
    while (frame->handles.next != &frame->handles) {
        fy__handle_t *handle = frame->handles.next;
        fy__handle_release(handle);
        fy__handle_destroyers[handle->kind](handle);
    }
    for (uint32_t i = 0; frame->streams_saved; i++, frame->streams_saved >>= 1)
        if (frame->streams_saved & 1) thread->streams[i] = frame->outer_streams[i];
    if (frame->guarded) thread->nguards--;
    thread->node = frame->outer_node;
    thread->depth--;
    thread->frame = thread->depth ? &thread->frames[thread->depth - 1] : NULL;
}

/* Is the handle in a frame from `depth` on? Looks for the ring's sentinel both ways: what is asked about was mostly made last. */
static bool is_inside(const fy__thread_t *thread, uint32_t depth, const fy__handle_t *handle)
{
    const fy__handle_t *after = handle, *before = handle;
    if (!handle->next) return false;
    while (after->kind != FY__HANDLE_KINDS && before->kind != FY__HANDLE_KINDS) {
        after = after->next;
        before = before->prev;
    }
    const fy__frame_t *frame = (const fy__frame_t *)(after->kind == FY__HANDLE_KINDS ? after : before);
    return frame >= &thread->frames[depth - 1] && frame < &thread->frames[thread->depth];
}

void fy_scope_end(fy_scope_t scope, size_t count, fy_tensor_t *const *results)
{
    fy__thread_t *thread = fy__thread();
    if (!thread || !scope.depth) return;
    if (scope.depth > FY__MAX_SCOPES) { /* shares the innermost frame: nothing to destroy */
        const uint32_t excess = scope.depth - FY__MAX_SCOPES;
        if (excess <= thread->excess && thread->frame && thread->frame->serial == scope.serial) thread->excess = excess - 1;
        return;
    }
    if (scope.depth > thread->depth || thread->frames[scope.depth - 1].serial != scope.serial)
        return; /* ended already, or another thread's */
    fy__frame_t *outer = scope.depth > 1 ? &thread->frames[scope.depth - 2] : NULL;
    for (size_t i = 0; results && i < count; i++) {
        if (!results[i] || !is_inside(thread, scope.depth, fy__tensor_handle(results[i]))) continue;
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

static fy_status_t check_tighter(const fy__thread_t *thread, const fy_guard_options_t *options)
{
    static const char *const names[] = { "upload_nbytes", "download_nbytes", "peer_nbytes", "syncs", "device_allocs", "memory_nbytes" };
    const uint64_t asked[] = { options->upload_nbytes, options->download_nbytes, options->peer_nbytes,
                               options->syncs,         options->device_allocs,   options->memory_nbytes };
    for (uint32_t depth = thread->depth; depth-- > 0;) {
        const fy__frame_t *frame = &thread->frames[depth];
        if (!frame->guarded || frame->guard.limit.action != FY_GUARD_REFUSE) continue;
        const fy_guard_options_t *outer = &frame->guard.limit;
        const uint64_t limits[] = { outer->upload_nbytes, outer->download_nbytes, outer->peer_nbytes,
                                    outer->syncs,         outer->device_allocs,   outer->memory_nbytes };
        for (int i = 0; i < 6; i++)
            if (asked[i] != FY_UNLIMITED && asked[i] > limits[i])
                return FY_FAIL(INVALID_ARGUMENT,
                               "scope_guard: %s=%llu is looser than the %llu of the guard on scope '%s'\n  A guard may only tighten what "
                               "encloses it; use FY_UNLIMITED to leave that limit alone",
                               names[i], (unsigned long long)asked[i], (unsigned long long)limits[i], frame->node->name);
    }
    return FY_STATUS_OK;
}

/* The tighter one of a limit and `asked` more from here on, where `used` is used. */
static uint64_t tighten(uint64_t limit, uint64_t asked, uint64_t used)
{
    uint64_t sum;
    if (!fy__add_u64(asked, used, &sum)) return limit;
    return sum < limit ? sum : limit;
}

fy_status_t fy_scope_guard(const fy_guard_options_t *options)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!options || options->struct_size < sizeof *options)
        return FY_FAIL(INVALID_ARGUMENT, "scope_guard: options is NULL or its struct_size is not set; start from FY_GUARD_OPTIONS_INIT");
    if (!thread->frame) return FY_FAIL(INVALID_ARGUMENT, "scope_guard: no scope is open on this thread; call fy_scope_begin first");
    if (options->action != FY_GUARD_REFUSE && options->action != FY_GUARD_LOG)
        return FY_FAIL(INVALID_ARGUMENT, "scope_guard: action %d is neither FY_GUARD_REFUSE nor FY_GUARD_LOG", (int)options->action);
    FY_TRY(check_tighter(thread, options));
    fy__frame_t *frame = thread->frame;
    fy__guard_t *guard = &frame->guard;
    if (!frame->guarded) {
        *guard = (fy__guard_t){ .limit = *options, .live_before = fy__guard_live(frame->node) };
        frame->guarded = true;
        thread->nguards++;
        return FY_STATUS_OK;
    }
    const int64_t live = fy__guard_live(frame->node) - guard->live_before;
    guard->limit.upload_nbytes = tighten(guard->limit.upload_nbytes, options->upload_nbytes, guard->moved[FY__UPLOAD]);
    guard->limit.download_nbytes = tighten(guard->limit.download_nbytes, options->download_nbytes, guard->moved[FY__DOWNLOAD]);
    guard->limit.peer_nbytes = tighten(guard->limit.peer_nbytes, options->peer_nbytes, guard->moved[FY__PEER]);
    guard->limit.syncs = tighten(guard->limit.syncs, options->syncs, guard->syncs);
    guard->limit.device_allocs = tighten(guard->limit.device_allocs, options->device_allocs, guard->device_allocs);
    guard->limit.memory_nbytes = tighten(guard->limit.memory_nbytes, options->memory_nbytes, live > 0 ? (uint64_t)live : 0);
    if (options->action == FY_GUARD_REFUSE) guard->limit.action = FY_GUARD_REFUSE;
    return FY_STATUS_OK;
}
