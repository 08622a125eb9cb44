/* The memory interface that alloc/ implements for runtime/. A pool allocates blocks of one kind of
 * memory (a device's, page-locked host, host), cut from segments that it gets through a source.
 * wire.c connects the two when a device is opened. Nothing here depends on how pools work. Next:
 * alloc/README.md. */
#ifndef FERRY_RUNTIME_MEMORY_H_
#define FERRY_RUNTIME_MEMORY_H_

#include <pthread.h>
#include <ferry/memory.h>

#include "runtime/order/hazard.h"

typedef struct fy__pool fy__pool_t;

/* Category and scope of a block: used by figures only. */
typedef struct fy__tag {
    fy_category_t category;
    const void *scope; /* a node of runtime/thread/node.h, for fy__scope_path; NULL: no scope */
} fy__tag_t;

/* Bytes allocated from a pool. The caller of alloc owns them until free. */
typedef struct fy__block {
    void *address;
    uint64_t nbytes;    /* as rounded */
    uint64_t requested; /* as requested */
    uint64_t id;        /* of this allocation: unique in its pool */
    /* alloc: requests that may still use the bytes; the new owner waits on the device. free: set it
     * before */
    fy__hazard_t hazard;
    fy__pool_t *pool;
    /* as requested; the pool's figures use the category, so the owner must not change it */
    fy__tag_t tag;
    /* for snapshots: while it reads 0 the block is in a thread cache, not in use. NULL: not such a
     * block */
    const _Atomic uint32_t *_Atomic users;
    bool is_fixed; /* set by fy__pool_fix; used by the pool */
} fy__block_t;

/* Result of a reclaim call: no callback is left; the callback freed nothing; it freed something. */
typedef enum fy__reclaim { FY__RECLAIM_END, FY__RECLAIM_NOTHING, FY__RECLAIM_GAVE } fy__reclaim_t;
/* The callbacks that one request has called already; zeros at first. */
typedef struct fy__reclaim_cursor {
    uint64_t after, until;
} fy__reclaim_cursor_t;

/* Who refused the last segment besides the backend: this machine (runtime/device/machine.h), or the
 * program's allocator (runtime/device/hooks.h). The source's lock guards it. */
typedef struct fy__backing {
    bool is_refused;   /* the machine has too little memory */
    bool hook_refused; /* the program's allocator returned NULL */
    uint64_t nbytes;   /* the bytes that it had; valid only if refused */
    const char *hint;  /* another remedy for the text; NULL: none */
} fy__backing_t;

/* The source of segments. Called with no pool lock held, and one call at a time, except for
 * `reclaim`. */
typedef struct fy__segment_source {
    void *user;
    uint64_t alignment; /* power of two, at least 64 */
    /* OUT_OF_MEMORY: there is no more; REFUSED_BY_GUARD: a scope forbids growth. Both leave
     * everything unchanged. */
    fy_status_t (*alloc)(void *user, uint64_t nbytes, void **out_address);
    void (*free)(void *user, void *address, uint64_t nbytes);
    /* Whether a free segment may be released now although the pool keeps segments; the pool's lock
     * is held. NULL: never. */
    bool (*may_release)(void *user, const void *address, uint64_t nbytes);
    /* Whether the pool may make the host wait now (guards). The pool reports its wait with
     * note_sync. */
    bool (*may_sync)(void *user);
    void (*note_sync)(void *user, uint64_t blocked_ns);
    /* Calls the next reclaim callback. NULL: there are none. */
    fy__reclaim_t (*reclaim)(void *user, uint64_t nbytes, fy__reclaim_cursor_t *cursor);
    /* May be NULL. Returns cached, unused blocks to the pool; true if there were any. Called with
     * none of the pool's locks held, before the pool grows and before it refuses. */
    bool (*collect)(void *user);
    /* waits until the leaving bytes (leaving_nbytes) are released; no lock of the pool is held.
     * NULL: there are never any */
    void (*settle)(void *user);
    bool (*may_grow)(void *user); /* whether a guard would let alloc pass now. NULL: always */
    /* The size of the blocks of fy__pool_fix under another limit, for hints. NULL: their present
     * size. */
    uint64_t (*fixed_at)(void *user, uint64_t limit_nbytes);
    /* Resizes a segment of alloc in place. Both sizes are multiples of `step_nbytes` (a power of
     * two), as is the size at alloc. Longer: as alloc, and OUT_OF_MEMORY also if this segment
     * cannot grow. Shorter: never fails. NULL: segments keep their size. */
    fy_status_t (*resize)(void *user, void *address, uint64_t nbytes, uint64_t new_nbytes);
    uint64_t step_nbytes;
    /* As fy_region_fn, of region_dev, with the pool's lock held, for allocated and freed blocks.
     * NULL: no listener. Not for bytes that the host can access. */
    void (*region)(void *dev, void *address, uint64_t nbytes, const char *name);
    void *region_dev;
    /* Set by alloc and resize. NULL: only the source itself refuses. */
    const fy__backing_t *backing;
    /* Fills `top` of a verdict; no lock of the pool is held. NULL: unknown. */
    void (*top_scopes)(void *user, fy_oom_verdict_t *verdict);
} fy__segment_source_t;

/* debug= of a spec; a build with AddressSanitizer; a profiler that listens to the device's
 * blocks. */
enum { FY__DEBUG_POISON = 1, FY__DEBUG_GUARD = 2, FY__DEBUG_ASAN = 4, FY__DEBUG_REGIONS = 8 };

typedef struct fy__pool_options {
    const char *name;      /* for verdicts: "sim:0", "pinned memory of sim:0"; copied */
    bool host_reaches;     /* the host can access the bytes, so they can be debugged */
    uint32_t debug;        /* FY__DEBUG_POISON, FY__DEBUG_GUARD */
    uint64_t limit_nbytes; /* most that may be reserved; FY_UNLIMITED */
    /* the device's total, FY_UNLIMITED if unknown: distinguishes "too large" from "full" */
    uint64_t device_nbytes;
    /* growth step for small blocks; larger requests get dedicated segments */
    uint64_t segment_nbytes;
    fy_status_t full_status; /* OUT_OF_MEMORY or PINNED_LIMIT */
    bool growth_off;         /* only fy__pool_reserve grows */
    bool keeps_segments;     /* released with the pool only, or if may_release agrees */
    /* Held memory is missing elsewhere (page-locked memory): idle segments are released before
     * growth would waste more, and the growth step follows the reserved bytes. See grow.c. */
    bool release_eagerly;
    /* bytes outside the pool that count against the limit; NULL: none */
    const _Atomic uint64_t *outside_nbytes;
    uint64_t outside_least_nbytes; /* of those: bytes that cannot be freed */
    /* of outside_nbytes: bytes that are freed by themselves after their last use; NULL: none */
    const _Atomic uint64_t *leaving_nbytes;
} fy__pool_options_t;

/* OUT_OF_MEMORY if there is no memory for the pool object. */
fy_status_t fy__pool_create(const fy__pool_options_t *options, const fy__segment_source_t *source,
                            fy__pool_t **out_pool);
/* Every block must be freed. Waits for pending ones and releases all segments. */
void fy__pool_destroy(fy__pool_t *pool);
/* nbytes > 0. `stream_index`: the stream that uses the bytes first (a block pending only there
 * needs no wait). Thread-safe. Fails with the pool's full_status and a verdict, or
 * REFUSED_BY_GUARD. */
fy_status_t fy__pool_alloc_tagged(fy__pool_t *pool, uint64_t nbytes, uint32_t stream_index,
                                  fy__tag_t tag, fy__block_t **out_block);
/* The same with the default category and no scope. */
static inline fy_status_t fy__pool_alloc(fy__pool_t *pool, uint64_t nbytes, uint32_t stream_index,
                                         fy__block_t **out_block)
{
    return fy__pool_alloc_tagged(pool, nbytes, stream_index,
                                 (fy__tag_t){ FY_CATEGORY_ACTIVATIONS, NULL }, out_block);
}
/* Called after memory of `device`, or page-locked for it, was refused with `status`. Writes
 * $FERRY_SNAPSHOT_ON_OOM if it is set and memory was short. Keeps the error record. No pool's lock
 * is held. */
void fy__memory_refused(const fy_device_t *device, fy_status_t status);
/* Marks a block that lives as long as the pool, so that no hint advises to free it. */
void fy__pool_fix(fy__block_t *block);
/* Never blocks: a block whose hazard is not done becomes pending. Thread-safe. */
void fy__pool_free(fy__block_t *block);
/* Writes its figures to the event file, as of one moment. NULL is ignored. */
void fy__pool_write_event(fy__pool_t *pool);
/* Exact figures, O(1); largest_free walks. */
void fy__pool_query(fy__pool_t *pool, fy_memory_stats_t *out_stats);
/* Without the lock, one figure after another; pending and largest_free are 0. */
void fy__pool_peek(const fy__pool_t *pool, fy_memory_stats_t *out_stats);
/* How its requests were served. */
void fy__pool_alloc_stats(fy__pool_t *pool, fy_memory_alloc_stats_t *out_stats);
/* Releases whole free segments until at most keep_nbytes stay reserved; returns the released
 * bytes. */
uint64_t fy__pool_trim(fy__pool_t *pool, uint64_t keep_nbytes);
/* Grows by one segment so that nbytes are reserved, if less are. Fails as fy__pool_alloc; nothing
 * was taken then. */
fy_status_t fy__pool_reserve(fy__pool_t *pool, uint64_t nbytes);
/* Checks the guards of allocated blocks; returns how many broken blocks were found since the pool
 * was created. */
uint64_t fy__pool_check(fy__pool_t *pool);
/* Checks every invariant (no overlap, no gap, sums, alignment, free blocks merged); false and a log
 * line if one is broken. For tests. */
bool fy__pool_is_valid(fy__pool_t *pool);

/* Locks the pool over a fork, so that the child finds it consistent. */
void fy__pool_fork_lock(fy__pool_t *pool);
void fy__pool_fork_unlock(fy__pool_t *pool);

/* A device opens in the place of a closed one: resets the peaks by scope path. */
void fy__memory_forget_peaks(uint32_t device_index);
/* Copies the scopes with most live bytes on a device to the verdict's `top`. */
void fy__memory_top_scopes(uint32_t device_index, fy_oom_verdict_t *verdict);
/* The path of a tag's scope ("" for none), cut to `size`; returns buffer. */
const char *fy__scope_path(const void *scope, char *buffer, size_t size);

/* Host segments: from jemalloc's dedicated arena if jemalloc is linked into the program, else from
 * mmap. Whole pages, from 2 MiB up at a huge-page boundary; zeroed or not. */
fy_status_t fy__host_segment_alloc(uint64_t nbytes, void **out_address);
/* Faults the pages of a segment before all of them are needed, with several threads if it is
 * large. */
void fy__host_segment_touch(void *address, uint64_t nbytes);
/* nbytes as in alloc. Up to a bound, segments stay mapped (warm) for the next request of the same
 * size. */
void fy__host_segment_free(void *address, uint64_t nbytes);
/* The bytes of warm segments; trim unmaps segments until at most keep_nbytes are left. */
uint64_t fy__host_segments_warm(void);
void fy__host_segments_trim(uint64_t keep_nbytes);
/* "jemalloc" if it is linked into the program and returned an arena, else "mmap"; with
 * $FERRY_HOST_ALLOCATOR=mmap always "mmap". Static. */
const char *fy__host_allocator_name(void);
/* Whether it is one of the values of FERRY_HOST_ALLOCATOR. */
bool fy__host_allocator_is_good(const char *wanted);
/* Of the list of kept segments; held over a fork, so that the child finds it consistent. */
extern pthread_mutex_t fy__host_segments_lock;
void fy__host_segments_fork_child(void);

#endif
