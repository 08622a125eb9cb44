/* A snapshot: the blocks of a device's memory at one moment, as plain data. Taken under the pools'
 * locks (snapshot_device.c), written as JSON (snapshot_json.c, docs/internals/snapshot.md) or drawn
 * (snapshot_svg.c). The `ferry` command reads the JSON into the same structs. It compiles
 * snapshot_{svg,map,sums}.c as well, so these need only the public headers.
 * Not here: pools (pool.h), the file (snapshot_device.c). */
#ifndef FERRY_ALLOC_SNAPSHOT_H_
#define FERRY_ALLOC_SNAPSHOT_H_

#include <stdbool.h>
#include <stdio.h>

#include <ferry/memory.h>

/* X(name, text) */
#define FY__SNAPSHOT_STATES(X)                                 \
    X(LIVE, live)       /* in use */                           \
    X(PENDING, pending) /* freed; a stream may still use it */ \
    X(FREE, free)                                              \
    X(THREAD_CACHED, thread_cached) /* free, in a thread cache */
typedef enum fy__snapshot_state {
#define X(name, text) FY__SNAPSHOT_##name,
    FY__SNAPSHOT_STATES(X)
#undef X
        FY__SNAPSHOT_STATE_COUNT
} fy__snapshot_state_t;

/* X(name, text); GRAPH: inside live blocks of the device's pool, shown again in detail */
#define FY__SNAPSHOT_KINDS(X) \
    X(DEVICE, device)         \
    X(HOST, host)             \
    X(PINNED, pinned)         \
    X(GRAPH, graph)
typedef enum fy__snapshot_kind {
#define X(name, text) FY__SNAPSHOT_##name,
    FY__SNAPSHOT_KINDS(X)
#undef X
        FY__SNAPSHOT_KIND_COUNT
} fy__snapshot_kind_t;

/* X(field): of fy_memory_alloc_stats_t */
/* clang-format off */
#define FY__SNAPSHOT_ALLOC_STATS(X)                                                                              \
    X(thread_cached) X(ready) X(same_stream) X(joined) X(inserted_wait) X(grown) X(after_pressure)               \
    X(grown_after_trim) X(after_sync) X(grown_after_sync) X(reaped) X(syncs) X(released) X(guard_refusals) \
    X(verdicts)
/* clang-format on */

enum {
    FY__SNAPSHOT_STREAMS = 5,
    FY__SNAPSHOT_NO_CATEGORY = FY_CATEGORY_COUNT,
    FY__SNAPSHOT_PATH = 768
};

typedef struct fy__snapshot_block {
    uint64_t offset; /* in its segment */
    uint64_t nbytes;
    uint64_t requested, id; /* live: as requested, and as in event files; else 0 */
    const char *scope;      /* live: the scope of the allocation; NULL: unknown */
    uint16_t streams[FY__SNAPSHOT_STREAMS];
    uint8_t nstreams; /* pending: streams that may still use it, as in event files */
    uint8_t state;
    uint8_t category; /* live; FY__SNAPSHOT_NO_CATEGORY: unknown */
} fy__snapshot_block_t;

/* Its blocks fill it from end to end, in order. */
typedef struct fy__snapshot_segment {
    uint64_t address, nbytes;
    size_t first_block, nblocks;
} fy__snapshot_segment_t;

typedef struct fy__snapshot_pool {
    char name[96];
    fy__snapshot_kind_t kind;
    fy_memory_stats_t stats;
    /* page-locked in place, and a page of the device itself: part of live and reserved, in no
     * segment */
    uint64_t in_place;
    fy_memory_alloc_stats_t alloc_stats;
    size_t first_segment, nsegments; /* by address */
} fy__snapshot_pool_t;

typedef struct fy__snapshot {
    char device[64], model[64];
    uint64_t process, unix_ns;
    size_t npools, nsegments, nblocks;
    fy__snapshot_pool_t *pools;
    fy__snapshot_segment_t *segments;
    fy__snapshot_block_t *blocks;
    void *texts; /* memory of the scopes' texts */
} fy__snapshot_t;

static inline const fy__snapshot_block_t *
fy__snapshot_blocks_of(const fy__snapshot_t *snapshot, const fy__snapshot_segment_t *segment)
{
    return snapshot->blocks + segment->first_block;
}

/* The current state: snapshot_device.c. On failure there is nothing to free. */
fy_status_t fy__snapshot_take(const fy_device_t *device, fy__snapshot_t *out_snapshot);
void fy__snapshot_free(fy__snapshot_t *snapshot);

/* ---- snapshot_sums.c ---- */

typedef struct fy__snapshot_sums {
    uint64_t nbytes[FY__SNAPSHOT_STATE_COUNT], count[FY__SNAPSHOT_STATE_COUNT];
    /* of live blocks; the last one: unknown */
    uint64_t requested, by_category[FY_CATEGORY_COUNT + 1];
    size_t nsegments;
} fy__snapshot_sums_t;
fy__snapshot_sums_t fy__snapshot_sum(const fy__snapshot_t *snapshot,
                                     const fy__snapshot_pool_t *pool);

/* Live bytes made in this scope, without inner scopes. */
typedef struct fy__snapshot_scope {
    const char *path;
    uint64_t live, blocks;
} fy__snapshot_scope_t;
/* The scopes of a pool's live blocks, most bytes first; returns their number. *out_scopes is for
 * free(); NULL: no memory, and 0. */
size_t fy__snapshot_scopes(const fy__snapshot_t *snapshot, const fy__snapshot_pool_t *pool,
                           fy__snapshot_scope_t **out_scopes);

/* ---- snapshot_json.c, snapshot_svg.c ---- */

/* Errors are the stream's. */
void fy__snapshot_write_json(const fy__snapshot_t *snapshot, FILE *file);
void fy__snapshot_write_svg(const fy__snapshot_t *snapshot, FILE *file);
const char *fy__snapshot_state_name(int state);

#endif
