/* The memory interface: what runtime/ asks of alloc/. A pool hands out blocks of one kind of memory
 * (a device's, page-locked host, host), cut from segments it gets through a source. wire.c joins
 * the two when a device is opened; nothing here knows how pools work.
 * Next: alloc/README.md. */
#ifndef FERRY_RUNTIME_MEMORY_H_
#define FERRY_RUNTIME_MEMORY_H_

#include <ferry/memory.h>

#include "runtime/order/hazard.h"

typedef struct fy__pool fy__pool_t;

/* What a block is for, and where it was made: figures are told by it, nothing else depends on
 * it. */
typedef struct fy__tag {
    fy_category_t category;
    const void
        *scope; /* a node of runtime/thread/node.h, for fy__scope_path; NULL: none in particular */
} fy__tag_t;

/* Bytes on loan from a pool. Owned by whoever got it from alloc until it is given to free. */
typedef struct fy__block {
    void *address;
    uint64_t nbytes;    /* as rounded */
    uint64_t requested; /* as asked for */
    uint64_t id;        /* of this loan: never given twice by a pool */
    /* alloc: who may still use the bytes; the new owner waits on the device. free: set it before */
    fy__hazard_t hazard;
    fy__pool_t *pool;
    /* as asked for; the category is in the pool's figures, so its owner leaves it alone */
    fy__tag_t tag;
    /* for snapshots: while it reads 0 the block is kept at hand, nobody's. NULL: not such a
     * block */
    const _Atomic uint32_t *_Atomic users;
    bool is_fixed; /* fy__pool_fix; the pool's */
} fy__block_t;

/* How a call of `press` went: nobody is left to ask; it had nothing; it gave something. */
typedef enum fy__reclaim { FY__RECLAIM_END, FY__RECLAIM_NOTHING, FY__RECLAIM_GAVE } fy__reclaim_t;
/* Whom one request has asked already; starts as zeros. */
typedef struct fy__reclaim_cursor {
    uint64_t after, until;
} fy__reclaim_cursor_t;

/* The result of the last check of a segment against this machine's memory (runtime/device/machine.h). The
 * source's lock guards it. */
typedef struct fy__backing {
    bool is_refused;  /* the machine has too little memory */
    uint64_t nbytes;  /* the bytes that it had; valid only if refused */
    const char *hint; /* another remedy for the text; NULL: none */
} fy__backing_t;

/* Where segments come from. Called with no pool lock held, one call at a time but for `press`. */
typedef struct fy__segment_source {
    void *user;
    uint64_t alignment; /* power of two, at least 64 */
    /* OUT_OF_MEMORY: no more to be had; REFUSED_BY_GUARD: a scope forbids growth; both leave
     * everything as it was. */
    fy_status_t (*alloc)(void *user, uint64_t nbytes, void **out_address);
    void (*free)(void *user, void *address, uint64_t nbytes);
    /* May the pool make the host wait now (guards)? If so the pool waits and then reports it with
     * note_sync. */
    bool (*may_sync)(void *user);
    void (*note_sync)(void *user, uint64_t blocked_ns);
    /* Asks the next of those who may have something to give. NULL: there is nobody. */
    fy__reclaim_t (*reclaim)(void *user, uint64_t nbytes, fy__reclaim_cursor_t *cursor);
    /* May be NULL. Gives back to the pool what somebody keeps of its blocks without using them;
     * true if there was any. Called with none of the pool's locks held, before it grows and before
     * it says no. */
    bool (*collect)(void *user);
    /* waits until what is leaving (leaving_nbytes) has left; no lock of the pool is held. NULL:
     * nothing is */
    void (*settle)(void *user);
    bool (*may_grow)(void *user); /* would a guard let alloc pass now? NULL: yes */
    /* How much the blocks of fy__pool_fix would be if the limit were another one: hints reckon with
     * it. NULL: as much as they are. */
    uint64_t (*fixed_at)(void *user, uint64_t limit_nbytes);
    /* Makes a segment of alloc's longer or shorter where it stands; both sizes are multiples of
     * `step_nbytes` (a power of two), and so is what alloc gave it. Longer: as alloc, and
     * OUT_OF_MEMORY also where this segment cannot grow. Shorter: never fails. NULL: segments
     * stay. */
    fy_status_t (*resize)(void *user, void *address, uint64_t nbytes, uint64_t new_nbytes);
    uint64_t step_nbytes;
    /* As fy_region_fn, of region_dev, with the pool's lock held: blocks come and go. NULL: nobody
     * listens. Not for bytes that the host reaches. */
    void (*region)(void *dev, void *address, uint64_t nbytes, const char *name);
    void *region_dev;
    /* Set by alloc and resize, where the bytes are this machine's. NULL: they are not. */
    const fy__backing_t *backing;
    /* Fills in `top`, for a verdict; no lock of the pool is held. NULL: nobody knows. */
    void (*top_scopes)(void *user, fy_oom_verdict_t *verdict);
} fy__segment_source_t;

/* debug= of a spec; a build with AddressSanitizer; a tool that listens to the device's blocks. */
enum { FY__DEBUG_POISON = 1, FY__DEBUG_GUARD = 2, FY__DEBUG_ASAN = 4, FY__DEBUG_REGIONS = 8 };

typedef struct fy__pool_options {
    const char *name;      /* for verdicts: "sim:0", "pinned memory of sim:0"; copied */
    bool host_reaches;     /* the bytes at the addresses: what can be debugged */
    uint32_t debug;        /* FY__DEBUG_POISON, FY__DEBUG_GUARD */
    uint64_t limit_nbytes; /* most that may be reserved; FY_UNLIMITED */
    /* what the device has at all, FY_UNLIMITED if unknown: tells "too large" from "full" */
    uint64_t device_nbytes;
    /* growth step for small blocks; larger requests get segments of their own */
    uint64_t segment_nbytes;
    fy_status_t full_status; /* OUT_OF_MEMORY or PINNED_LIMIT */
    bool growth_off;         /* only fy__pool_reserve grows */
    bool keeps_segments;     /* none goes back before the pool does */
    /* Whatever is held is missing elsewhere (page-locked memory): idle segments go back before
     * growth makes more of waste, and the step of growth follows what is reserved. See grow.c. */
    bool release_eagerly;
    /* what counts against the limit, too, and is not the pool's; NULL: nothing */
    const _Atomic uint64_t *outside_nbytes;
    uint64_t outside_least_nbytes; /* of that: what nobody can give back */
    /* of outside_nbytes: what goes by itself, when its last use is over; NULL: nothing */
    const _Atomic uint64_t *leaving_nbytes;
} fy__pool_options_t;

/* OUT_OF_MEMORY if there is no memory for the pool itself. */
fy_status_t fy__pool_create(const fy__pool_options_t *options, const fy__segment_source_t *source,
                            fy__pool_t **out_pool);
/* Every block is back; waits for pending ones and gives all segments back. */
void fy__pool_destroy(fy__pool_t *pool);
/* nbytes > 0. `stream_index`: where the bytes will be used first (a block pending only there needs
 * no wait). Thread-safe.
 * Fails with the pool's full_status and a verdict, or REFUSED_BY_GUARD. */
fy_status_t fy__pool_alloc_tagged(fy__pool_t *pool, uint64_t nbytes, uint32_t stream_index,
                                  fy__tag_t tag, fy__block_t **out_block);
/* The same for bytes that nobody said anything about. */
static inline fy_status_t fy__pool_alloc(fy__pool_t *pool, uint64_t nbytes, uint32_t stream_index,
                                         fy__block_t **out_block)
{
    return fy__pool_alloc_tagged(pool, nbytes, stream_index,
                                 (fy__tag_t){ FY_CATEGORY_ACTIVATIONS, NULL }, out_block);
}
/* Memory of `device`, or page-locked for it, was refused with `status`: writes
 * $FERRY_SNAPSHOT_ON_OOM, if there is one and it was for want of memory. The error record stays. No
 * pool's lock is held. */
void fy__memory_refused(const fy_device_t *device, fy_status_t status);
/* The block stays as long as the pool does, so no hint says to free it. */
void fy__pool_fix(fy__block_t *block);
/* Never blocks: a block whose hazard is not done stays pending. Thread-safe. */
void fy__pool_free(fy__block_t *block);
/* Its figures for the event file, as of one moment. NULL is ignored. */
void fy__pool_tell(fy__pool_t *pool);
/* O(1) figures are exact; largest_free walks. */
void fy__pool_query(fy__pool_t *pool, fy_memory_stats_t *out_stats);
/* Without the lock, one figure after another; pending and largest_free are 0. */
void fy__pool_peek(const fy__pool_t *pool, fy_memory_stats_t *out_stats);
/* How its requests were served. */
void fy__pool_alloc_stats(fy__pool_t *pool, fy_memory_alloc_stats_t *out_stats);
/* Gives whole free segments back until at most keep_nbytes stay reserved; returns what was
 * released. */
uint64_t fy__pool_trim(fy__pool_t *pool, uint64_t keep_nbytes);
/* Grows by one segment so that nbytes are reserved, if less are. Fails as fy__pool_alloc; nothing
 * was taken then. */
fy_status_t fy__pool_reserve(fy__pool_t *pool, uint64_t nbytes);
/* Blocks whose guards were found written over, since it was created; looks at those that are handed
 * out now. */
uint64_t fy__pool_check(fy__pool_t *pool);
/* Walks every invariant (no overlap, no gap, sums, alignment, free blocks merged); false and a log
 * line if one is broken. For tests. */
bool fy__pool_is_valid(fy__pool_t *pool);

/* Holds the pool still over a fork, so that the child finds it whole. */
void fy__pool_fork_lock(fy__pool_t *pool);
void fy__pool_fork_unlock(fy__pool_t *pool);

/* A device opens in the place of one that is closed: its peaks by scope path begin anew. */
void fy__memory_forget_peaks(uint32_t device_index);
/* The scopes with most live bytes on a device, into the verdict's `top`. */
void fy__memory_top_scopes(uint32_t device_index, fy_oom_verdict_t *verdict);
/* The path of a tag's scope ("" for none), cut to `size`; returns buffer. */
const char *fy__scope_path(const void *scope, char *buffer, size_t size);

/* Host segments: jemalloc's dedicated arena when the program carries jemalloc, else mmap. Whole
 * pages, from 2 MiB up on a boundary of huge pages; zeroed or not. */
fy_status_t fy__host_segment_alloc(uint64_t nbytes, void **out_address);
/* Faults the pages of a segment, if it is large with several threads, where somebody is about to
 * need them all. */
void fy__host_segment_touch(void *address, uint64_t nbytes);
/* nbytes as in alloc. A bounded part stays warm: mapped, for the next segment of that size. */
void fy__host_segment_free(void *address, uint64_t nbytes);
/* Bytes that are kept warm; giving them to the system until at most keep_nbytes are. */
uint64_t fy__host_segments_warm(void);
void fy__host_segments_trim(uint64_t keep_nbytes);

#endif
