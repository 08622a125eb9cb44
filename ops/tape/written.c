/* Bytes that recorded calls wrote into tensors that were there before, such as a slice of a buffer.
 * Such a result has a gradient through the handle that the call got, and through views made of it
 * since. Through any other handle on its bytes it would be a constant, so reading them is refused.
 * A view made since, but while the tape paused, is meant to be a constant. Next: record.c. */
#include "ops/tape/tape.h"

static fy__tape_written_t *find(const fy_tape_t *tape, const fy__storage_t *storage)
{
    for (uint32_t i = 0; i < tape->nwritten; i++)
        if (tape->written[i].storage == storage) return &tape->written[i];
    return NULL;
}

/* Whether `tensor` has such bytes, written at version `since` or later. */
static bool has_written(const fy_tape_t *tape, const fy_tensor_t *tensor, uint64_t since)
{
    const char *begin, *end;
    const fy__tape_written_t *written = find(tape, tensor->storage);
    fy__tensor_extent(tensor, &begin, &end);
    for (uint32_t i = 0; written && i < written->nranges; i++) {
        const fy__tape_range_t *range = &written->ranges[i];
        if (begin < range->end && range->begin < end && range->version >= since) return true;
    }
    return false;
}

FY_COLD fy_status_t fy__tape_check_other_slow(const fy_tape_t *tape, const char *what,
                                              const fy_tensor_t *tensor)
{
    char text[112];
    if (fy__tensor_is_gone(tensor) || !has_written(tape, tensor, fy__tensor_seen(tensor) + 1))
        return FY_STATUS_OK;
    return FY_FAIL(BUSY,
                   "%s: bytes of %s were written by a recorded call through another handle, so its "
                   "gradient would be lost\n  Read them through the handle that was written or a "
                   "view of it made since; join parts by fy_concat or fy_stack",
                   what, fy__tensor_format(tensor, text, sizeof text));
}

bool fy__tape_is_written(const fy_tape_t *tape, const fy_tensor_t *tensor)
{
    return tape->nwritten && has_written(tape, tensor, 0);
}

static void drop(fy__thread_t *thread, fy_tape_t *tape, fy__tape_written_t *written)
{
    fy__storage_release(thread, written->storage);
    *written = tape->written[--tape->nwritten];
}

fy_status_t fy__tape_written_room(fy__thread_t *thread, fy_tape_t *tape, uint32_t more)
{
    for (uint32_t i = tape->nwritten; i-- > 0;) /* no handle is left through which to read them */
        if (atomic_load_explicit(&tape->written[i].storage->refs, memory_order_acquire) == 1)
            drop(thread, tape, &tape->written[i]);
    return fy__tape_grow((void **)&tape->written, &tape->written_room, tape->nwritten, more,
                         sizeof *tape->written);
}

/* Without the ranges inside [begin, end). */
static void forget(fy__tape_written_t *written, const char *begin, const char *end)
{
    for (uint32_t i = written->nranges; i-- > 0;)
        if (begin <= written->ranges[i].begin && written->ranges[i].end <= end)
            written->ranges[i] = written->ranges[--written->nranges];
}

void fy__tape_wrote(fy_tape_t *tape, const fy_tensor_t *dst, uint64_t version)
{
    fy__tape_range_t range = { .version = version };
    fy__tape_written_t *written = find(tape, dst->storage);
    fy__tensor_extent(dst, &range.begin, &range.end);
    if (!written) {
        written = &tape->written[tape->nwritten++];
        fy__storage_retain(dst->storage);
        *written = (fy__tape_written_t){ .storage = dst->storage };
    }
    forget(written, range.begin, range.end);
    if (written->nranges == FY__TAPE_RANGES) {
        const fy__tape_range_t *last = &written->ranges[--written->nranges];
        if (last->begin < range.begin) range.begin = last->begin;
        if (last->end > range.end) range.end = last->end;
    }
    written->ranges[written->nranges++] = range;
}

void fy__tape_wrote_constant(fy__thread_t *thread, fy_tape_t *tape, const fy_tensor_t *dst)
{
    const char *begin, *end;
    fy__tape_written_t *written = find(tape, dst->storage);
    fy__tensor_extent(dst, &begin, &end);
    if (!written || !dst->contiguous) return;
    forget(written, begin, end);
    if (!written->nranges) drop(thread, tape, written);
}

void fy__tape_forget_written(fy__thread_t *thread, fy_tape_t *tape)
{
    while (tape->nwritten) fy__storage_release(thread, tape->written[--tape->nwritten].storage);
}
