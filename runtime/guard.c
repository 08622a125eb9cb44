/* Checking and charging guards. A check walks the open frames from the inside out and either refuses, naming the scope, or logs. */
#include "runtime/guard.h"

#include <stdio.h>
#include <time.h>

#include "runtime/base/fail.h"

typedef unsigned long long ull;

uint64_t fy__now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t transfer_limit(const fy__guard_t *guard, int direction)
{
    return direction == FY__UPLOAD     ? guard->limit.upload_nbytes
           : direction == FY__DOWNLOAD ? guard->limit.download_nbytes
                                       : guard->limit.peer_nbytes;
}

/* One frame's verdict on `asked` more where `used` of `limit` are used. */
static FY_COLD fy_status_t over(const fy__frame_t *frame, const char *what, const char *quantity, uint64_t asked, uint64_t used,
                                uint64_t limit)
{
    char path[128];
    fy__node_path(frame->node, path, sizeof path);
    if (frame->guard.limit.action == FY_GUARD_LOG) {
        fy__log(FY_LOG_WARNING, "guard on scope '%s': %s: %llu %s asked, %llu of %llu used", path, what, (ull)asked, quantity, (ull)used,
                (ull)limit);
        return FY_STATUS_OK;
    }
    return FY_FAIL(REFUSED_BY_GUARD,
                   "%s: the guard on scope '%s' allows %llu %s, of which %llu are used; this call needs %llu\n  Move the call out of the "
                   "scope, or raise the limit where the guard is set (fy_scope_guard)",
                   what, path, (ull)limit, quantity, (ull)used, (ull)asked);
}

fy_status_t fy__guard_check_transfer(fy__thread_t *thread, int direction, uint64_t nbytes, const char *what)
{
    static const char *const quantities[] = { "upload bytes", "download bytes", "peer bytes" };
    if (FY_LIKELY(!thread->nguards)) return FY_STATUS_OK;
    for (uint32_t depth = thread->depth; depth-- > 0;) {
        const fy__frame_t *frame = &thread->frames[depth];
        if (!frame->guarded) continue;
        const uint64_t limit = transfer_limit(&frame->guard, direction), used = frame->guard.moved[direction];
        if (limit != FY_UNLIMITED && (used > limit || nbytes > limit - used))
            FY_TRY(over(frame, what, quantities[direction], nbytes, used, limit));
    }
    return FY_STATUS_OK;
}

void fy__guard_charge_transfer(fy__thread_t *thread, int direction, uint64_t nbytes)
{
    if (FY_LIKELY(!thread->nguards)) return;
    for (uint32_t depth = 0; depth < thread->depth; depth++)
        if (thread->frames[depth].guarded) thread->frames[depth].guard.moved[direction] += nbytes;
}

bool fy__sync_allowed(const fy__thread_t *thread)
{
    for (uint32_t depth = thread->depth; thread->nguards && depth-- > 0;) {
        const fy__frame_t *frame = &thread->frames[depth];
        if (frame->guarded && frame->guard.limit.action == FY_GUARD_REFUSE && frame->guard.limit.syncs != FY_UNLIMITED &&
            frame->guard.syncs >= frame->guard.limit.syncs)
            return false;
    }
    return true;
}

fy_status_t fy__sync_begin(fy__thread_t *thread, const char *what, uint64_t *out_start_ns)
{
    if (FY_UNLIKELY(thread->nguards)) {
        for (uint32_t depth = thread->depth; depth-- > 0;) {
            const fy__frame_t *frame = &thread->frames[depth];
            if (frame->guarded && frame->guard.limit.syncs != FY_UNLIMITED && frame->guard.syncs >= frame->guard.limit.syncs)
                FY_TRY(over(frame, what, "syncs", 1, frame->guard.syncs, frame->guard.limit.syncs));
        }
        for (uint32_t depth = 0; depth < thread->depth; depth++)
            if (thread->frames[depth].guarded) thread->frames[depth].guard.syncs++;
    }
    fy__count(&thread->node->syncs, 1);
    *out_start_ns = fy__now_ns();
    return FY_STATUS_OK;
}

void fy__sync_end(fy__thread_t *thread, uint64_t start_ns) { fy__count(&thread->node->sync_ns, fy__now_ns() - start_ns); }

void fy__throttled(fy__thread_t *thread, uint64_t start_ns)
{
    fy__count(&thread->node->throttles, 1);
    fy__count(&thread->node->throttle_ns, fy__now_ns() - start_ns);
}

fy_status_t fy__guard_check_device_alloc(fy__thread_t *thread, uint64_t nbytes, const char *device)
{
    if (FY_LIKELY(!thread->nguards)) return FY_STATUS_OK;
    for (uint32_t depth = thread->depth; depth-- > 0;) {
        const fy__frame_t *frame = &thread->frames[depth];
        if (!frame->guarded || frame->guard.limit.device_allocs == FY_UNLIMITED ||
            frame->guard.device_allocs < frame->guard.limit.device_allocs)
            continue;
        char what[128];
        snprintf(what, sizeof what, "allocation of a segment of %llu bytes on %s", (ull)nbytes, device);
        FY_TRY(over(frame, what, "device allocations", 1, frame->guard.device_allocs, frame->guard.limit.device_allocs));
    }
    return FY_STATUS_OK;
}

void fy__guard_count_device_alloc(fy__thread_t *thread)
{
    fy__count(&thread->node->device_allocs, 1);
    for (uint32_t depth = 0; thread->nguards && depth < thread->depth; depth++)
        if (thread->frames[depth].guarded) thread->frames[depth].guard.device_allocs++;
}

static void add_live(void *user, fy__node_t *node)
{
    int64_t *sum = user;
    const fy__node_memory_t *memory = atomic_load_explicit(&node->memory, memory_order_acquire);
    for (uint32_t i = 0; memory && i < FY__MAX_DEVICES; i++) *sum += atomic_load_explicit(&memory[i].live, memory_order_relaxed);
}

int64_t fy__guard_live(fy__node_t *node)
{
    int64_t sum = 0;
    fy__node_walk(node, add_live, &sum);
    return sum;
}

fy_status_t fy__guard_check_memory(fy__thread_t *thread, uint64_t nbytes, const char *device)
{
    if (FY_LIKELY(!thread->nguards)) return FY_STATUS_OK;
    for (uint32_t depth = thread->depth; depth-- > 0;) {
        const fy__frame_t *frame = &thread->frames[depth];
        if (!frame->guarded || frame->guard.limit.memory_nbytes == FY_UNLIMITED) continue;
        const int64_t live = fy__guard_live(frame->node) - frame->guard.live_before;
        const uint64_t used = live > 0 ? (uint64_t)live : 0, limit = frame->guard.limit.memory_nbytes;
        if (used <= limit && nbytes <= limit - used) continue;
        char what[128];
        snprintf(what, sizeof what, "tensor of %llu bytes on %s", (ull)nbytes, device);
        FY_TRY(over(frame, what, "live device bytes", nbytes, used, limit));
    }
    return FY_STATUS_OK;
}
