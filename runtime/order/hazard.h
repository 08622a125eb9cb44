/* Hazards: the last writer and the last readers of bytes, as points on streams' timelines. A word
 * packs (stream index, sequence); 0 is "done, nothing to wait for". A freed storage's words are
 * copied to its memory block. A stream that reuses the block waits for them on the device, not on
 * the host.
 * Not here: streams (stream.h), storages (storage.h). */
#ifndef FERRY_RUNTIME_HAZARD_H_
#define FERRY_RUNTIME_HAZARD_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <ferry/status.h>

/* stream index in the upper 16 bits, sequence in the lower 48. */
typedef uint64_t fy__point_t;
#define FY__POINT(stream_index, seq) (((uint64_t)(stream_index) << 48) | (seq))
#define FY__POINT_STREAM(point)      ((uint32_t)((point) >> 48))
#define FY__POINT_SEQ(point)         ((point)&0xFFFFFFFFFFFFull)

/* One reader word per engine class; user streams share the last one (a later reader first waits for
 * the earlier). */
enum {
    FY__READER_COMPUTE,
    FY__READER_UPLOAD,
    FY__READER_DOWNLOAD,
    FY__READER_OTHER,
    FY__READER_COUNT
};

typedef struct fy__hazard {
    _Atomic fy__point_t writer, readers[FY__READER_COUNT];
} fy__hazard_t;

/* Clears all points: for bytes that no stream has used. */
static inline void fy__hazard_clear(fy__hazard_t *hazard)
{
    atomic_store_explicit(&hazard->writer, 0, memory_order_relaxed);
    for (int i = 0; i < FY__READER_COUNT; i++)
        atomic_store_explicit(&hazard->readers[i], 0, memory_order_relaxed);
}
/* Whether all words are 0. Does not check whether points are reached. */
static inline bool fy__hazard_is_empty(const fy__hazard_t *hazard)
{
    fy__point_t any = atomic_load_explicit(&hazard->writer, memory_order_relaxed);
    for (int i = 0; i < FY__READER_COUNT; i++)
        any |= atomic_load_explicit(&hazard->readers[i], memory_order_relaxed);
    return any == 0;
}
/* Word i: the writer first, then the readers. */
static inline fy__point_t fy__hazard_word(const fy__hazard_t *hazard, int i)
{
    return atomic_load_explicit(i ? &hazard->readers[i - 1] : &hazard->writer,
                                memory_order_acquire);
}
/* Copies the words between a storage and its block. */
void fy__hazard_copy(fy__hazard_t *dst, const fy__hazard_t *src);
/* Adds src's points to dst, for a request that waits for all of them: any word may hold any point.
 * false: dst has fewer words than there are streams; some points may have been added. */
bool fy__hazard_join(fy__hazard_t *dst, const fy__hazard_t *src);
/* For queues that other submitters use as well: moves the points after everything submitted there
 * so far. Called last before the bytes are released. */
void fy__hazard_cover_foreign(fy__hazard_t *hazard);
/* Whether all points are reached. Polls, never waits. A point of a lost device counts as
 * reached. */
bool fy__hazard_done(const fy__hazard_t *hazard);
/* Whether every point that is not reached is on stream `stream_index`: reuse there needs no
 * wait. */
bool fy__hazard_only_on(const fy__hazard_t *hazard, uint32_t stream_index);
/* Blocks the host until all points are reached. OK, TIMEOUT, DEVICE_LOST. API functions count the
 * wait, not this function. */
fy_status_t fy__hazard_wait(const fy__hazard_t *hazard, uint64_t timeout_ns);

#endif
