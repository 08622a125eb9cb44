/* "Does it fit?" answered without a device: runs your step on a simulated one that computes nothing
 * and has memory without end, and says what it needs, when, and for what; finds the largest batch.
 * And the caching allocator over plain numbers, for memory of your own.
 * Next: docs/memory.md; `ferry plan` does the same from the command line. */
#ifndef FERRY_PLAN_H_
#define FERRY_PLAN_H_

#include <ferry/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- plans ---- */

/* Your program in small: opens nothing, makes what it needs on `device` (weights, batch, ...), runs
 * a step or several, and lets go of everything, or leaves it to the scope that encloses the call. A
 * scope named "step" tells a step from what prepares it. Values that come down are zeros. */
typedef fy_status_t (*fy_step_fn)(fy_device_t *device, int64_t batch, void *user);

/* Memory at one moment of the model clock. */
typedef struct fy_plan_point {
    uint64_t model_ns; /* since the beginning */
    uint64_t live, reserved;
    uint64_t by_category[FY_CATEGORY_COUNT]; /* the sum is live */
    /* path of the scope that changed it; valid during the call */
    const char *scope;
} fy_plan_point_t;

typedef struct fy_plan_options {
    size_t struct_size;
    /* Called for every block that is made or given back, in order; NULL: nobody asks. After the
     * run, not during it. */
    void (*on_point)(void *user, const fy_plan_point_t *point);
    void *user;
} fy_plan_options_t;
#define FY_PLAN_OPTIONS_INIT                                                               \
    {                                                                                      \
        sizeof(fy_plan_options_t), (void (*)(void *, const fy_plan_point_t *))0, (void *)0 \
    }

typedef struct fy_plan {
    size_t struct_size;
    int64_t batch;
    /* most bytes in tensors, workspace and staging at once, as rounded */
    uint64_t peak_live;
    uint64_t peak_by_category[FY_CATEGORY_COUNT]; /* at that moment; the sum is peak_live */
    /* most bytes held from the device; if it does not fit, of one that gives whatever is asked
     * for */
    uint64_t peak_reserved;
    uint64_t pinned_peak_reserved; /* page-locked host memory, likewise */
    /* what the device of the spec gives: the smaller of its capacity and limit= */
    uint64_t limit;
    int fits;       /* 1: the step runs within `limit` */
    uint64_t steps; /* scopes named "step" that ended */
    /* model time of the last one: from its beginning, or the end of earlier work, until its own is
     * done;
     * without any, of it all */
    uint64_t step_model_ns;
    fy_oom_verdict_t verdict; /* if it does not fit: what it would be told on the device */
} fy_plan_t;
#define FY_PLAN_INIT      \
    {                     \
        sizeof(fy_plan_t) \
    }

/* What `step` needs with `batch`, on a device like `spec`: "sim?profile=h200&limit=80GiB", any
 * simulated device (a free number is taken, whatever it says; numerics=off is understood). Peaks
 * are those of a real run to the byte, as long as it asks for the same things in the same order.
 * Nothing is refused to the step but page-locked memory past pinned=, and what no process has
 * addresses for: some 60 TiB at once.
 * Called once, twice if it may not fit. Its requests stand in the ledger under the scope "plan",
 * guards count them, and the model clock of simulated devices goes on. options may be NULL.
 * Fails: INVALID_ARGUMENT, UNAVAILABLE (no free number), or as `step` does; a step that does not
 * fit is OK with fits = 0. */
FY_API_STATUS fy_plan_step(const char *spec, fy_step_fn step, void *user, int64_t batch,
                           const fy_plan_options_t *options, fy_plan_t *out_plan);
/* Largest batch in [1, max_batch] that fits, and its plan; one that fits is supposed to fit with
 * less. The trials, with at most twice the answer, compute nothing and have memory that goes on
 * behind the limit: no device, simulated or real, runs out on the way.
 * out_plan may be NULL. Fails: as fy_plan_step; OUT_OF_MEMORY with the verdict if not even 1 fits
 * (*out_batch is 0). */
FY_API_STATUS fy_plan_fit(const char *spec, fy_step_fn step, void *user, int64_t max_batch,
                          int64_t *out_batch, fy_plan_t *out_plan);

/* ---- a pool of plain numbers ---- */

/* Ferry's caching allocator with nothing behind it: for memory that you have from elsewhere (a
 * file, a heap of another API), for planning and for replaying traces. The same code, segments and
 * rounding as a device's. One thread at a time. */
typedef struct fy_pool fy_pool_t;

typedef struct fy_pool_options {
    size_t struct_size;
    uint64_t alignment;      /* power of two from 64 up; sizes are rounded up to it */
    uint64_t segment_nbytes; /* what is reserved at a time for blocks of at most half of it */
    uint64_t limit;          /* most that may be reserved; FY_UNLIMITED */
    /* 1: as page-locked memory is cut, where what is held is missing elsewhere: segments grow with
     * what is reserved, and idle ones go back before growth would waste more than an eighth
     * (FY_POOL_OPTIONS_PINNED) */
    int release_eagerly;
    /* Not 0, but a power of two from the alignment up: as with segments=virtual, a segment grows
     * and shrinks where it stands, in steps of so many bytes. 0: segments stay as they are. Not
     * with release_eagerly. */
    uint64_t resize_nbytes;
    /* 1: segments are released only when the pool is destroyed, as in a graph's own memory */
    int keeps_segments;
} fy_pool_options_t;
#define FY_POOL_OPTIONS_INIT                                            \
    {                                                                   \
        sizeof(fy_pool_options_t), 256, 2u << 20, FY_UNLIMITED, 0, 0, 0 \
    }
/* As the pools of page-locked memory are. */
#define FY_POOL_OPTIONS_PINNED                                         \
    {                                                                  \
        sizeof(fy_pool_options_t), 64, 2u << 20, FY_UNLIMITED, 1, 0, 0 \
    }

typedef struct fy_pool_block {
    /* multiple of the alignment. A segment takes the lowest place there is, from 0 up; no block
     * reaches over two */
    uint64_t offset;
    uint64_t nbytes; /* as rounded */
    void *token;     /* for fy_pool_free */
} fy_pool_block_t;

/* options NULL: FY_POOL_OPTIONS_INIT. Fails: INVALID_ARGUMENT, OUT_OF_MEMORY. */
FY_API_STATUS fy_pool_create(const fy_pool_options_t *options, fy_pool_t **out_pool);
/* Forgets its blocks, too. NULL is ignored. */
FY_API void fy_pool_destroy(fy_pool_t *pool);
/* Fails: INVALID_ARGUMENT (0 bytes), OUT_OF_MEMORY (the limit, with the verdict). */
FY_API_STATUS fy_pool_alloc(fy_pool_t *pool, uint64_t nbytes, fy_pool_block_t *out_block);
/* A block that is not out is left alone, with a line in the log. NULL, and a block whose token is
 * NULL, are ignored. */
FY_API void fy_pool_free(fy_pool_t *pool, const fy_pool_block_t *block);

/* A point in one of your queues: request `seq`, from 1 to 2^48 - 1, of queue `stream`, from 1 to
 * 65535.
 * A block that a queue still uses when it is freed is pending, as on a device: until the queue is
 * past the point, the pool reuses the bytes first for that queue. */
typedef struct fy_pool_point {
    uint32_t stream;
    uint64_t seq;
} fy_pool_point_t;
enum { FY_POOL_POINTS_MOST = 5 };
/* As fy_pool_alloc, for bytes that queue `stream` uses first; stream 0 is the host, as in
 * fy_pool_alloc. Before the pool grows it returns bytes that are pending on another queue: your
 * queue must then wait for that queue. */
FY_API_STATUS fy_pool_alloc_on(fy_pool_t *pool, uint64_t nbytes, uint32_t stream,
                               fy_pool_block_t *out_block);
/* As fy_pool_free, for bytes that up to FY_POOL_POINTS_MOST requests, each of another queue, may
 * still use.
 * Fails: INVALID_ARGUMENT (an impossible point, or two of one queue); the block is then not
 * freed. */
FY_API_STATUS fy_pool_free_after(fy_pool_t *pool, const fy_pool_block_t *block,
                                 const fy_pool_point_t *points, size_t npoints);
/* Reports that queue point.stream is past point.seq: blocks that are pending on nothing else become
 * free. The pool polls no queue, so pending blocks become free by this call only. Fails:
 * INVALID_ARGUMENT. */
FY_API_STATUS fy_pool_reached(fy_pool_t *pool, fy_pool_point_t point);
/* device_allocs counts segments. What is live counts as activations: nobody said what it is for.
 * Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_pool_query(const fy_pool_t *pool, fy_memory_stats_t *out_stats);
/* Forgets whole free segments until at most keep_nbytes stay reserved; returns what was
 * released. */
FY_API uint64_t fy_pool_trim(fy_pool_t *pool, uint64_t keep_nbytes);

#ifdef __cplusplus
}
#endif
#endif
