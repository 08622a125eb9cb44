/* Plans predict, without a device, whether a step fits. A plan runs your step on a simulated device
 * that computes nothing and has unlimited memory. It reports the memory needed by time and
 * category, or the largest batch. Also: the caching allocator over plain numbers, for your own
 * memory.
 * Next: docs/memory.md; `ferry plan` does the same from the command line. */
#ifndef FERRY_PLAN_H_
#define FERRY_PLAN_H_

#include <ferry/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- plans ---- */

/* A small form of your program. It opens no device and makes everything it needs on `device`
 * (weights, batch, ...). It runs one or more steps, and destroys everything or leaves it to the
 * scope that encloses the call. A scope named "step" separates a step from its preparation.
 * Downloaded values are zeros. */
typedef fy_status_t (*fy_step_fn)(fy_device_t *device, int64_t batch, void *user);

/* Memory at one moment of the model clock. */
typedef struct fy_plan_point {
    uint64_t model_ns; /* since the beginning */
    uint64_t live, reserved;
    uint64_t by_category[FY_CATEGORY_CAPACITY]; /* the sum is live */
    /* path of the scope that changed it; valid during the call */
    const char *scope;
} fy_plan_point_t;

typedef struct fy_plan_options {
    size_t struct_size;
    /* Called after the run for every block that was allocated or freed, in order. May be NULL. */
    void (*on_point)(void *user, const fy_plan_point_t *point);
    void *user;
} fy_plan_options_t;
#define FY_PLAN_OPTIONS_INIT FY_ZEROED_(plan_options)
FY_API void fy_plan_options_init(fy_plan_options_t *options, size_t nbytes);

typedef struct fy_plan {
    size_t struct_size;
    int64_t batch;
    /* most bytes in tensors, workspace and staging at once, as rounded */
    uint64_t peak_live;
    uint64_t peak_by_category[FY_CATEGORY_CAPACITY]; /* at that moment; the sum is peak_live */
    /* most bytes reserved from the device; if the step does not fit, from one without a limit */
    uint64_t peak_reserved;
    uint64_t pinned_peak_reserved; /* the same for page-locked host memory */
    /* memory of the spec's device: the smaller of its capacity and limit= */
    uint64_t limit;
    int fits;       /* 1: the step runs within `limit` */
    uint64_t steps; /* scopes named "step" that ended */
    /* model time of the last step: from its beginning, or the end of earlier work, to the end of
     * its own work. Without a step: of the whole run */
    uint64_t step_model_ns;
    fy_oom_verdict_t verdict; /* if it does not fit: the verdict on the device */
    /* floating-point operations of the requests of that step, as the model clock counts them */
    uint64_t step_flops;
} fy_plan_t;
#define FY_PLAN_INIT FY_ZEROED_(plan)

/* Runs `step` with `batch` on a simulated device with the profile and limits of `spec`
 * ("sim?profile=h200&limit=80GiB"; its index is ignored, numerics=off is implied). The peaks equal,
 * to the byte, those of a real run with the same requests in the same order. The limit refuses
 * nothing; page-locked memory above pinned= and more than about 60 TiB at once are refused.
 * `step` runs a second time if the first run exceeded the limit. It counts in guards, and in the
 * ledger under "plan"; simulated clocks advance. options may be NULL.
 * A step that does not fit is OK with fits = 0. Fails: INVALID_ARGUMENT, UNAVAILABLE (no free
 * index), or as `step`. */
FY_API_STATUS fy_plan_step(const char *spec, fy_step_fn step, void *user, int64_t batch,
                           const fy_plan_options_t *options, fy_plan_t *out_plan);
/* Largest batch in [1, max_batch] that fits, and its plan. Assumes that all smaller batches fit
 * too. The trials compute nothing, use at most twice the resulting batch, and do not run out of
 * memory. The first trial is 1, or 2 if the step refuses 1 with SHAPE_MISMATCH (batch norm).
 * out_plan may be NULL. Fails: as fy_plan_step; OUT_OF_MEMORY with the verdict if the first does
 * not fit (*out_batch is 0). */
FY_API_STATUS fy_plan_fit(const char *spec, fy_step_fn step, void *user, int64_t max_batch,
                          int64_t *out_batch, fy_plan_t *out_plan);

/* ---- a pool of plain numbers ---- */

/* Ferry's caching allocator without memory behind it: for memory from another source (a file, a
 * heap of another API), for planning and for replaying traces. Code, segments and rounding are
 * those of a device's pool. One thread at a time. */
typedef struct fy_pool fy_pool_t;

typedef struct fy_pool_options {
    size_t struct_size;
    uint64_t alignment;      /* power of two from 64 up; sizes are rounded up to it */
    uint64_t segment_nbytes; /* what is reserved at a time for blocks of at most half of it */
    uint64_t limit;          /* most that may be reserved; FY_UNLIMITED */
    /* 1: release eagerly, as for page-locked memory: segments grow with the reserved amount, and
     * idle ones are released before growth would waste more than an eighth
     * (FY_POOL_OPTIONS_PINNED) */
    int release_eagerly;
    /* 0: segments keep their size. Else a power of two of at least the alignment: a segment grows
     * and shrinks in place, in steps of this size, as with segments=virtual. Not with
     * release_eagerly. */
    uint64_t resize_nbytes;
    /* 1: segments are released only when the pool is destroyed, as in a graph's pool */
    int keeps_segments;
} fy_pool_options_t;
#define FY_POOL_OPTIONS_INIT \
    FY_DEFAULTS_(pool_options, .alignment = 256, .segment_nbytes = 2u << 20, .limit = FY_UNLIMITED)
FY_API void fy_pool_options_init(fy_pool_options_t *options, size_t nbytes);
/* The options of page-locked pools. */
#ifdef __cplusplus
#define FY_POOL_OPTIONS_PINNED \
    FY_CHANGED_(pool_options, changed_.alignment = 64; changed_.release_eagerly = 1;)
#else
#define FY_POOL_OPTIONS_PINNED                                                                     \
    FY_DEFAULTS_(pool_options, .alignment = 64, .segment_nbytes = 2u << 20, .limit = FY_UNLIMITED, \
                 .release_eagerly = 1)
#endif

typedef struct fy_pool_block {
    /* multiple of the alignment. A segment takes the lowest free range, from 0 up; no block spans
     * two segments */
    uint64_t offset;
    uint64_t nbytes; /* as rounded */
    void *token;     /* for fy_pool_free */
} fy_pool_block_t;

/* options NULL: FY_POOL_OPTIONS_INIT. Fails: INVALID_ARGUMENT, OUT_OF_MEMORY. */
FY_API_STATUS fy_pool_create(const fy_pool_options_t *options, fy_pool_t **out_pool);
/* Destroys the pool and its blocks. NULL is ignored. */
FY_API void fy_pool_destroy(fy_pool_t *pool);
/* Fails: INVALID_ARGUMENT (0 bytes), OUT_OF_MEMORY (the limit, with the verdict). */
FY_API_STATUS fy_pool_alloc(fy_pool_t *pool, uint64_t nbytes, fy_pool_block_t *out_block);
/* A block that is not allocated is ignored, with a line in the log. NULL, and a block whose token
 * is NULL, are ignored. */
FY_API void fy_pool_free(fy_pool_t *pool, const fy_pool_block_t *block);

/* A point in one of your queues: request `seq`, from 1 to 2^48 - 1, of queue `stream`, from 1 to
 * 65535. A block that a queue still uses when it is freed is pending, as on a device. Until
 * fy_pool_reached reports the point, the pool prefers that queue for the bytes. */
typedef struct fy_pool_point {
    uint32_t stream;
    uint64_t seq;
} fy_pool_point_t;
enum { FY_POOL_POINTS_MOST = 5 };
/* As fy_pool_alloc, for bytes that your queue `stream` uses first; 0 is the host, as in
 * fy_pool_alloc. For a queue, the block may contain bytes that fy_pool_free_after freed and whose
 * points are not reported yet: make `stream` wait for those points before it uses the block. */
FY_API_STATUS fy_pool_alloc_on(fy_pool_t *pool, uint64_t nbytes, uint32_t stream,
                               fy_pool_block_t *out_block);
/* As fy_pool_free, for bytes that up to FY_POOL_POINTS_MOST requests, each of another queue, may
 * still use.
 * Fails: INVALID_ARGUMENT (an invalid point, or two of one queue); the block is then not freed. */
FY_API_STATUS fy_pool_free_after(fy_pool_t *pool, const fy_pool_block_t *block,
                                 const fy_pool_point_t *points, size_t npoints);
/* Reports that queue point.stream has passed point.seq: blocks that are pending on nothing else
 * become free. The pool polls no queue; only this call frees pending blocks. Fails:
 * INVALID_ARGUMENT. */
FY_API_STATUS fy_pool_reached(fy_pool_t *pool, fy_pool_point_t point);
/* device_allocs counts segments. All live bytes count as activations. Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_pool_query(const fy_pool_t *pool, fy_memory_stats_t *out_stats);
/* Releases whole free segments until at most keep_nbytes stay reserved; returns the released
 * bytes. */
FY_API uint64_t fy_pool_trim(fy_pool_t *pool, uint64_t keep_nbytes);

#ifdef __cplusplus
}
#endif
#endif
