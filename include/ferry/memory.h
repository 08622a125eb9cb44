/* Memory that explains itself: figures of a device, a picture of every block, and the verdict that
 * comes with OUT_OF_MEMORY and PINNED_LIMIT. What would fit, without a device: plan.h. By question:
 * docs/memory.md. */
#ifndef FERRY_MEMORY_H_
#define FERRY_MEMORY_H_

#include <ferry/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- figures ---- */

/* Bytes on one device. live = handed out now, as rounded; requested = the same before rounding;
 * cached = free inside reserved;
 * pending = given back while the device may still use it, reusable in stream order (part of
 * cached); reserved = held from the backend = live + cached. */
typedef struct fy_memory_stats {
    size_t struct_size;
    uint64_t live, requested, cached, pending, reserved, peak_live, peak_reserved;
    uint64_t largest_free;  /* largest block that needs no growth */
    uint64_t device_allocs; /* calls to the backend's allocator so far */
    /* most that may be reserved; FY_UNLIMITED if only the device bounds it */
    uint64_t limit;
    uint64_t by_category[FY_CATEGORY_COUNT]; /* live, by what it is for; the sum is live */
    /* at the moment when live was peak_live for the first time */
    uint64_t peak_by_category[FY_CATEGORY_COUNT];
} fy_memory_stats_t;
#define FY_MEMORY_STATS_INIT                                                  \
    {                                                                         \
        sizeof(fy_memory_stats_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, { 0 } \
    }

/* Figures of `device`, exact, with a look at which pending blocks are done; walks the free blocks.
 * scope_path NULL: all of it; else live, requested and peak_live of what was made under that path
 * ("train/step"), the rest 0. That peak is exact where one thread makes tensors; of several it is
 * the sum of each one's, so never too low. Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_memory_query(const fy_device_t *device, const char *scope_path,
                              fy_memory_stats_t *out_stats);
/* The figures that cost nothing to read, for a progress line or a check before each step: takes no
 * lock and walks nothing, whatever the number of blocks. pending and largest_free are 0; figures
 * read one by one while other threads allocate may disagree by what those do meanwhile. On the
 * host, blocks that threads keep at hand count as live. Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_memory_peek(const fy_device_t *device, fy_memory_stats_t *out_stats);
/* Figures of the page-locked host memory that serves `device`; its limit counts registered
 * bytes. */
FY_API_STATUS fy_memory_query_pinned(const fy_device_t *device, fy_memory_stats_t *out_stats);

/* How requests for a device's memory were served since it was opened, one count for each stage of
 * the fallback (docs/memory.md). */
typedef struct fy_memory_alloc_stats {
    size_t struct_size;
    /* each request that was served counts in one of these */
    uint64_t thread_cached;    /* what this thread had just given back; no lock */
    uint64_t ready;            /* a block that nobody uses any more */
    uint64_t same_stream;      /* a block pending only on the asking stream */
    uint64_t joined;           /* neighbours, free or pending only on the asking stream */
    uint64_t inserted_wait;    /* blocks pending elsewhere; the new owner waits on the device */
    uint64_t grown;            /* a new segment */
    uint64_t after_pressure;   /* room made by fy_memory_on_pressure's functions */
    uint64_t grown_after_trim; /* a new segment in place of idle ones */
    uint64_t after_sync;       /* what a wait of the host had set free */
    uint64_t grown_after_sync;
    /* what was done on the way */
    uint64_t reaped;   /* pending blocks found done */
    uint64_t syncs;    /* waits of the host for pending blocks */
    uint64_t released; /* segments given back */
    uint64_t guard_refusals, verdicts;
} fy_memory_alloc_stats_t;
#define FY_MEMORY_ALLOC_STATS_INIT                                                   \
    {                                                                                \
        sizeof(fy_memory_alloc_stats_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
    }
/* Of all threads together. Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_memory_query_alloc_stats(const fy_device_t *device,
                                          fy_memory_alloc_stats_t *out_stats);

/* Writes every segment and block of `device`, and of the page-locked memory that serves it, to the
 * file `path`: FY_SNAPSHOT_JSON with size, state (live, pending, free), category, scope path and
 * figures (the schema: docs/internals/snapshot.md), FY_SNAPSHOT_SVG as a map to look at. All of one
 * moment. Fails: IO (the system's reason; no half-written file stays), INVALID_ARGUMENT,
 * OUT_OF_MEMORY. */
typedef enum fy_snapshot_format { FY_SNAPSHOT_JSON, FY_SNAPSHOT_SVG } fy_snapshot_format_t;
FY_API_STATUS fy_memory_snapshot(const fy_device_t *device, const char *path,
                                 fy_snapshot_format_t format);

/* With debug=guard in the device's spec (docs/memory.md): looks at the guards of every block of
 * `device` and of the page-locked memory that serves it, as far as the host reaches them, and tells
 * fy_log_set's function about each that was written over, once. *out_broken counts those blocks
 * since the device was opened; 0 without guards. Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_memory_check(const fy_device_t *device, uint64_t *out_broken);

/* ---- giving and taking ---- */

/* Gives cached memory back to the backend until at most `keep_nbytes` stay reserved (of the
 * device's memory, and as much again of the page-locked memory that serves it), as far as whole
 * segments are free; pending blocks stay. Of the host: what pools of host and page-locked memory
 * have given back and Ferry keeps warm (at most 64 MiB) goes, too. out_released may be NULL. */
FY_API_STATUS fy_memory_trim(fy_device_t *device, uint64_t keep_nbytes, uint64_t *out_released);
/* Grows now, so that later steps need not: asks the backend for one segment, if less than `nbytes`
 * are reserved, that makes it so.
 * With growth=off in the device's spec it is the only thing that grows. Fails: OUT_OF_MEMORY
 * (verdict; nothing was taken), REFUSED_BY_GUARD, UNSUPPORTED (while this thread records on
 * `device`), DEVICE_LOST. */
FY_API_STATUS fy_memory_reserve(fy_device_t *device, uint64_t nbytes);

/* Called on the thread that asks for memory of `device` when the cache has nothing and neither the
 * limit nor the backend gives `nbytes` more (or a guard or growth=off forbids to ask), before Ferry
 * gives idle segments back or waits. It may destroy tensors of `device`, drop caches of your own,
 * and call anything that makes no tensor on `device` (a request for memory in here is not answered
 * by pressure again). It runs in a scope of its own, "pressure", under the thread's guards; what
 * the thread records goes on without it; on several threads at once if several run out. Once for a
 * request, so give as much as `nbytes`. Returns 0 if it had nothing to give. */
typedef int (*fy_pressure_fn)(void *user, fy_device_t *device, uint64_t nbytes);
/* Calls `fn` from now on, after those set before it; no lock is held during the call. *out_id is
 * for taking it away again. It must be taken away before `user` goes; what is left when the device
 * goes is forgotten. Fails: INVALID_ARGUMENT, OUT_OF_MEMORY. */
FY_API_STATUS fy_memory_on_pressure(fy_device_t *device, fy_pressure_fn fn, void *user,
                                    uint64_t *out_id);
/* When it returns, `fn` is not running and will not be called. Not from inside a pressure function:
 * BUSY. Fails: INVALID_ARGUMENT (no such id). */
FY_API_STATUS fy_memory_off_pressure(fy_device_t *device, uint64_t id);

/* Where host memory comes from: "jemalloc" (the program carries it) or "mmap";
 * $FERRY_HOST_ALLOCATOR may ask for one. Static. */
FY_API const char *fy_memory_host_allocator(void);

/* ---- the verdict ---- */

typedef enum fy_oom_reason {
    FY_OOM_DEVICE_FULL,          /* the backend refused to give more */
    FY_OOM_LIMIT,                /* the limit Ferry was given */
    FY_OOM_FRAGMENTED,           /* enough is free, but not in one piece */
    FY_OOM_WOULD_FIT_AFTER_SYNC, /* pending blocks would do, but a guard forbids syncs here */
    FY_OOM_TOO_LARGE,            /* larger than the device, whatever is freed */
    FY_OOM_GROWTH_OFF,           /* growth=off, and the cache does not serve it */
    /* this machine has too little memory for bytes of the host, or of a simulated device with
     * numerics */
    FY_OOM_MACHINE
} fy_oom_reason_t;

/* What was tried, as bits of fy_oom_verdict_t.tried. */
enum {
    FY_OOM_TRIED_SEARCH = 1, /* free blocks, finished ones, pending ones */
    /* a new segment: the backend refused, or it would have been past the limit */
    FY_OOM_TRIED_GROW = 2,
    FY_OOM_TRIED_PRESSURE = 4, /* functions of fy_memory_on_pressure gave something */
    FY_OOM_TRIED_RELEASE = 8,  /* gave idle segments back */
    FY_OOM_TRIED_SYNC = 16     /* waited for pending blocks, merged, searched again */
};

enum { FY_OOM_TOP = 3 };

/* Why an allocation failed, what was tried, and the smallest thing that would help. */
typedef struct fy_oom_verdict {
    size_t struct_size;
    fy_status_t status; /* OUT_OF_MEMORY or PINNED_LIMIT */
    fy_oom_reason_t reason;
    uint32_t tried;
    uint64_t asked, limit, live, cached, pending, reserved, largest_free;
    /* bytes that would have to become free for this request to fit; 0 if nothing would help */
    uint64_t would_help;
    struct {
        /* the end of it, after "...", if it is longer; "" for what was made outside any scope */
        char path[80];
        uint64_t live; /* bytes made in that very scope, not in those inside it */
    } top[FY_OOM_TOP]; /* the scopes with most live bytes, largest first; live 0: no more */
    char text[1024];
} fy_oom_verdict_t;

#ifdef __cplusplus
}
#endif
#endif
