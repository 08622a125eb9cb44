/* Hazard words and streams: waits before a request, words after it, and the queries of pools. */
#include "runtime/order/hazard.h"

#include "runtime/base/fail.h"
#include "runtime/order/stream.h"
#include "runtime/thread/guard.h"

void fy__hazard_copy(fy__hazard_t *dst, const fy__hazard_t *src)
{
    atomic_store_explicit(&dst->writer, atomic_load_explicit(&src->writer, memory_order_relaxed),
                          memory_order_relaxed);
    for (int i = 0; i < FY__READER_COUNT; i++)
        atomic_store_explicit(&dst->readers[i],
                              atomic_load_explicit(&src->readers[i], memory_order_relaxed),
                              memory_order_relaxed);
}

bool fy__hazard_done(const fy__hazard_t *hazard)
{
    for (int i = 0; i <= FY__READER_COUNT; i++) {
        const fy__point_t point = fy__hazard_word(hazard, i);
        if (point && !fy__point_reached(point)) return false;
    }
    return true;
}

bool fy__hazard_only_on(const fy__hazard_t *hazard, uint32_t stream_index)
{
    for (int i = 0; i <= FY__READER_COUNT; i++) {
        const fy__point_t point = fy__hazard_word(hazard, i);
        if (point && FY__POINT_STREAM(point) != stream_index && !fy__point_reached(point))
            return false;
    }
    return true;
}

fy_status_t fy__hazard_wait(const fy__hazard_t *hazard, uint64_t timeout_ns)
{
    const uint64_t start_ns = fy__now_ns();
    for (int i = 0; i <= FY__READER_COUNT; i++) {
        const fy__point_t point = fy__hazard_word(hazard, i);
        if (!point) continue;
        uint64_t left_ns = timeout_ns;
        if (timeout_ns != FY_FOREVER) {
            const uint64_t spent_ns = fy__now_ns() - start_ns;
            left_ns = spent_ns < timeout_ns ? timeout_ns - spent_ns : 0;
        }
        FY_TRY(fy__point_wait(point, left_ns, FY__WAIT_POOL_SYNC));
    }
    return FY_STATUS_OK;
}

/* Ignores requests of another device that was lost: a request that overwrites the bytes need not
 * wait for them. */
static fy_status_t wait_unless_lost(fy_stream_t *stream, fy__point_t point, fy__wait_site_t site)
{
    const fy_status_t status = fy__stream_wait_point(stream, point, site);
    if (FY_LIKELY(status == FY_STATUS_OK)) return FY_STATUS_OK;
    return !fy__device_is_lost(stream->device) && fy__point_is_lost(point) ? FY_STATUS_OK : status;
}

fy_status_t fy__hazard_before_write(fy__hazard_t *hazard, fy_stream_t *stream, fy__wait_site_t site)
{
    if (fy__wait_drops(site)) return FY_STATUS_OK;
    for (int i = 0; i <= FY__READER_COUNT; i++)
        FY_TRY(wait_unless_lost(stream, fy__hazard_word(hazard, i), site));
    return FY_STATUS_OK;
}

fy_status_t fy__hazard_before_read(fy__hazard_t *hazard, fy_stream_t *stream, fy__wait_site_t site)
{
    if (fy__wait_drops(site)) return FY_STATUS_OK;
    /* fails if the bytes were lost with another device */
    FY_TRY(fy__stream_wait_point(stream, fy__hazard_word(hazard, 0), site));
    /* The word of this read may still hold another stream's read: wait for that one as well, so
     * that one word covers both. */
    if (fy__wait_drops(FY__WAIT_READERS_SHARE)) return FY_STATUS_OK;
    const fy__point_t held = fy__hazard_word(hazard, 1 + (int)stream->reader);
    return FY__POINT_STREAM(held) == stream->index ? FY_STATUS_OK
                                                   : wait_unless_lost(stream, held, site);
}

void fy__hazard_written(fy__hazard_t *hazard, fy__point_t point)
{
    /* The write waited for all points, so its point alone covers them. */
    fy__hazard_clear(hazard);
    atomic_store_explicit(&hazard->writer, point, memory_order_release);
}

/* The native point of the read at `held`: of a submitted job its native point; of a cancelled job
 * the read before it. */
static fy__point_t native_read(fy__point_t held)
{
    fy__job_view_t view;
    while (fy__point_job_view(held, &view)) {
        if (!view.cancelled)
            return view.state == FY__JOB_STARTED ? view.native
                   : view.state == FY__JOB_OVER  ? 0
                                                 : held;
        held = view.before;
    }
    return held;
}

void fy__hazard_read(fy__hazard_t *hazard, fy_stream_t *stream, fy__point_t point)
{
    _Atomic fy__point_t *reader = &hazard->readers[stream->reader];
    fy__point_t held = atomic_load_explicit(reader, memory_order_acquire);
    /* Two threads may read one tensor on one stream: keep the later number. */
    while (!(FY__POINT_STREAM(held) == stream->index && held >= point)) {
        /* Or on two streams that share the word and have not waited for each other: a later point
         * then covers both. */
        if (FY_UNLIKELY(fy__stream_is_ahead(stream, held)) &&
            !fy__wait_drops(FY__WAIT_READERS_SHARE)) {
            const fy__point_t last = native_read(held);
            if (FY__POINT_STREAM(last) == stream->index) {
                if (last > point) point = last;
            } else if (fy__stream_is_ahead(stream, last)) {
                if (fy__stream_wait_point(stream, last, FY__WAIT_READERS_SHARE) != FY_STATUS_OK)
                    (void)fy__point_wait(last, FY_FOREVER, FY__WAIT_READERS_SHARE);
                point = fy__stream_submitted(stream);
            }
        }
        if (atomic_compare_exchange_weak_explicit(reader, &held, point, memory_order_release,
                                                  memory_order_acquire))
            return;
    }
}

/* Stores `point` in the word of its stream, or in a word whose point is reached. */
static bool join_point(fy__hazard_t *hazard, fy__point_t point)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i <= FY__READER_COUNT; i++) {
            _Atomic fy__point_t *place = i ? &hazard->readers[i - 1] : &hazard->writer;
            fy__point_t held = atomic_load_explicit(place, memory_order_acquire);
            for (;;) {
                const bool same = FY__POINT_STREAM(held) == FY__POINT_STREAM(point);
                if (same && held >= point) return true;
                if (!same && (pass == 0 || (held && !fy__point_reached(held)))) break;
                if (atomic_compare_exchange_weak_explicit(place, &held, point, memory_order_release,
                                                          memory_order_acquire))
                    return true;
            }
        }
    }
    return false;
}

bool fy__hazard_join(fy__hazard_t *dst, const fy__hazard_t *src)
{
    for (int i = 0; i <= FY__READER_COUNT; i++) {
        const fy__point_t point = fy__hazard_word(src, i);
        if (point && !fy__point_reached(point) && !join_point(dst, point)) return false;
    }
    return true;
}

/* ---- jobs ---- */

uint32_t fy__hazard_points(const fy__hazard_t *hazard, fy__point_t *out_points)
{
    uint32_t count = 0;
    for (int i = 0; i <= FY__READER_COUNT; i++) {
        const fy__point_t point = fy__hazard_word(hazard, i);
        const fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(point));
        if (stream && !fy__stream_is_past(stream, FY__POINT_SEQ(point)))
            out_points[count++] = point;
    }
    return count;
}

fy__point_t fy__hazard_read_job(fy__hazard_t *hazard, uint32_t reader, fy__point_t point)
{
    return atomic_exchange_explicit(&hazard->readers[reader], point, memory_order_acq_rel);
}

void fy__hazard_settle(fy__hazard_t *hazard)
{
    for (int i = 0; i <= FY__READER_COUNT; i++) {
        const fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(fy__hazard_word(hazard, i)));
        if (!stream || !atomic_load_explicit(&stream->timeline, memory_order_relaxed)) continue;
        fy__point_t point = fy__hazard_word(hazard, i);
        /* A job holds a reference to every storage that it needs, so this submits nothing; at most
         * it waits for the order of a cancelled job. */
        if (fy__point_submit(&point) != FY_STATUS_OK) {
            (void)fy__point_wait(point, FY_FOREVER, FY__WAIT_NONE);
            point = 0;
        }
        atomic_store_explicit(i ? &hazard->readers[i - 1] : &hazard->writer, point,
                              memory_order_relaxed);
    }
}

void fy__hazard_cover_foreign(fy__hazard_t *hazard)
{
    for (int i = 0; i <= FY__READER_COUNT; i++) {
        fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(fy__hazard_word(hazard, i)));
        if (!stream || !stream->foreign ||
            fy__stream_is_past(stream, FY__POINT_SEQ(fy__hazard_word(hazard, i))))
            continue;
        atomic_store_explicit(i ? &hazard->readers[i - 1] : &hazard->writer,
                              fy__stream_submitted(stream), memory_order_relaxed);
    }
}
