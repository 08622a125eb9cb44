/* Memory figures of a device, a snapshot of every block, and the verdict that comes with
 * OUT_OF_MEMORY and PINNED_LIMIT. To predict without a device whether a step fits: plan.h. By
 * question: docs/memory.md. */
#ifndef FERRY_MEMORY_H_
#define FERRY_MEMORY_H_

#include <ferry/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- figures ---- */

/* Bytes on one device. live = allocated now, as rounded; requested = the same before rounding;
 * reserved = held from the backend = live + cached; cached = free inside reserved; pending = freed
 * while the device may still use it, reusable in stream order (part of cached). */
typedef struct fy_memory_stats {
    size_t struct_size;
    uint64_t live, requested, cached, pending, reserved, peak_live, peak_reserved;
    uint64_t largest_free;  /* largest block that needs no growth */
    uint64_t device_allocs; /* calls to the backend's allocator so far */
    /* most that may be reserved; FY_UNLIMITED: only the device's capacity limits it */
    uint64_t limit;
    uint64_t by_category[FY_CATEGORY_CAPACITY]; /* live, by category; the sum is live */
    /* at the first moment when live was peak_live */
    uint64_t peak_by_category[FY_CATEGORY_CAPACITY];
} fy_memory_stats_t;
#define FY_MEMORY_STATS_INIT FY_ZEROED_(memory_stats)

/* Exact figures of `device`. Checks which pending blocks are done, and walks the free blocks.
 * scope_path NULL: the whole device. Else live, requested and peak_live of the tensors made under
 * that path ("train/step"); other figures are 0. That peak is exact if one thread makes the
 * tensors. For several threads it is the sum of their peaks, so never too low.
 * Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_memory_query(const fy_device_t *device, const char *scope_path,
                              fy_memory_stats_t *out_stats);
/* The figures that need no lock and no walk, for a progress line or a check before each step.
 * pending and largest_free are 0. Figures are read one by one, so they can disagree while other
 * threads allocate. On the host, blocks in thread caches count as live. Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_memory_peek(const fy_device_t *device, fy_memory_stats_t *out_stats);
/* Figures of the page-locked host memory that serves `device`; its limit counts registered
 * bytes. */
FY_API_STATUS fy_memory_query_pinned(const fy_device_t *device, fy_memory_stats_t *out_stats);

/* How a device's memory requests were served since it was opened: one count for each stage of the
 * allocation fallback (docs/memory.md). */
typedef struct fy_memory_alloc_stats {
    size_t struct_size;
    /* each served request counts in one of these */
    uint64_t thread_cached;    /* a block from the thread cache; no lock */
    uint64_t ready;            /* a block without pending uses */
    uint64_t same_stream;      /* a block pending only on the requesting stream */
    uint64_t joined;           /* adjacent blocks, free or pending only on the requesting stream */
    uint64_t inserted_wait;    /* blocks pending elsewhere; the new owner waits on the device */
    uint64_t grown;            /* a new segment */
    uint64_t after_pressure;   /* a block or segment that a reclaim callback freed
                                * (fy_memory_on_pressure) */
    uint64_t grown_after_trim; /* a new segment in place of idle ones */
    uint64_t after_sync;       /* blocks that became free by a wait of the host */
    uint64_t grown_after_sync;
    /* steps on the way */
    uint64_t reaped;   /* pending blocks found done */
    uint64_t syncs;    /* waits of the host for pending blocks */
    uint64_t released; /* segments released to the backend */
    uint64_t guard_refusals, verdicts;
} fy_memory_alloc_stats_t;
#define FY_MEMORY_ALLOC_STATS_INIT FY_ZEROED_(memory_alloc_stats)
/* Sums over all threads. Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_memory_query_alloc_stats(const fy_device_t *device,
                                          fy_memory_alloc_stats_t *out_stats);

/* Writes every segment and block of `device`, and of the page-locked memory that serves it, to the
 * file `path`. FY_SNAPSHOT_JSON: size, state (live, pending, free, thread_cached), category, scope
 * path and figures (the schema: docs/internals/snapshot.md). FY_SNAPSHOT_SVG: a map as a picture.
 * All of one moment.
 * Fails: IO (the system's reason; no incomplete file is left), INVALID_ARGUMENT, OUT_OF_MEMORY. */
typedef enum fy_snapshot_format { FY_SNAPSHOT_JSON, FY_SNAPSHOT_SVG } fy_snapshot_format_t;
FY_API_STATUS fy_memory_snapshot(const fy_device_t *device, const char *path,
                                 fy_snapshot_format_t format);

/* With debug=guard in the device's spec (docs/memory.md): checks the guards of every block of
 * `device`, and of the page-locked memory that serves it, as far as the host can read them. Logs
 * each overwritten block once. *out_broken counts such blocks since the device was opened; 0
 * without guards. Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_memory_check(const fy_device_t *device, uint64_t *out_broken);

/* ---- trim, reserve, reclaim ---- */

/* Releases cached memory to the backend until at most `keep_nbytes` stay reserved: of the device's
 * memory, and separately of the page-locked memory that serves it. Only whole free segments are
 * released; pending blocks stay. For the host it also frees the memory that pools have released and
 * Ferry keeps mapped (at most 64 MiB). out_released may be NULL. */
FY_API_STATUS fy_memory_trim(fy_device_t *device, uint64_t keep_nbytes, uint64_t *out_released);
/* Reserves at least `nbytes` now, so that later steps need not grow: requests one segment from the
 * backend if less is reserved. With growth=off in the device's spec nothing else grows.
 * Fails: OUT_OF_MEMORY (verdict; nothing was taken), REFUSED_BY_GUARD, UNSUPPORTED (while this
 * thread records on `device`), DEVICE_LOST. */
FY_API_STATUS fy_memory_reserve(fy_device_t *device, uint64_t nbytes);

/* A reclaim callback. Ferry calls it when no cached block serves a request for
 * memory of `device` and the pool cannot grow, before it releases idle segments or waits.
 * It runs on the requesting thread, in a scope "pressure", under that thread's guards. Its calls
 * are not recorded into a graph. Several threads may run it at once.
 * It may destroy tensors of `device` and drop your caches. It must make no tensor on `device`; a
 * memory request inside it calls no reclaim callback.
 * It is called once for each request, so free at least `nbytes`. Return 0 if nothing was freed. */
typedef int (*fy_pressure_fn)(void *user, fy_device_t *device, uint64_t nbytes);
/* Registers `fn` after those registered before; no lock is held during its calls. *out_id
 * identifies it for fy_memory_off_pressure. Unregister it before `user` becomes invalid; closing
 * the device unregisters the rest.
 * Fails: INVALID_ARGUMENT, OUT_OF_MEMORY. */
FY_API_STATUS fy_memory_on_pressure(fy_device_t *device, fy_pressure_fn fn, void *user,
                                    uint64_t *out_id);
/* Unregisters it: after the return, `fn` is not running and will not be called. Fails: BUSY (inside
 * a reclaim callback), INVALID_ARGUMENT (no such id). */
FY_API_STATUS fy_memory_off_pressure(fy_device_t *device, uint64_t id);

/* The source of host memory: "jemalloc" (linked into the program) or "mmap"; $FERRY_HOST_ALLOCATOR
 * can select one. Static. */
FY_API const char *fy_memory_host_allocator(void);

/* ---- the verdict ---- */

typedef enum fy_oom_reason {
    FY_OOM_DEVICE_FULL,          /* the backend, or your allocator, refused to give more */
    FY_OOM_LIMIT,                /* the limit that Ferry was given */
    FY_OOM_FRAGMENTED,           /* enough is free, but not in one piece */
    FY_OOM_WOULD_FIT_AFTER_SYNC, /* pending blocks would suffice, but a guard forbids syncs here */
    FY_OOM_TOO_LARGE,            /* larger than the device, whatever is freed */
    FY_OOM_GROWTH_OFF,           /* growth=off, and the cache cannot serve the request */
    /* this machine has too little memory for bytes of the host, or of a simulated device with
     * numerics */
    FY_OOM_MACHINE
} fy_oom_reason_t;

/* The stages that were tried, as bits of fy_oom_verdict_t.tried. */
enum {
    FY_OOM_TRIED_SEARCH = 1, /* free blocks, finished ones, pending ones */
    /* a new segment: the backend refused, or it would have exceeded the limit */
    FY_OOM_TRIED_GROW = 2,
    FY_OOM_TRIED_PRESSURE = 4, /* reclaim callbacks (fy_memory_on_pressure) freed something */
    FY_OOM_TRIED_RELEASE = 8,  /* released idle segments */
    FY_OOM_TRIED_SYNC = 16     /* waited for pending blocks, merged, searched again */
};

enum { FY_OOM_TOP = 3 };

/* Why an allocation failed, the stages that were tried, and the smallest change that would help. */
typedef struct fy_oom_verdict {
    size_t struct_size;
    fy_status_t status; /* OUT_OF_MEMORY or PINNED_LIMIT */
    fy_oom_reason_t reason;
    uint32_t tried;
    uint64_t asked, limit, live, cached, pending, reserved, largest_free;
    /* bytes that must become free for this request to fit; 0 if no amount suffices */
    uint64_t would_help;
    struct {
        /* its end, after "...", if it is longer; "" for tensors made outside any scope */
        char path[80];
        uint64_t live; /* bytes made in this scope, without inner scopes */
    } top[FY_OOM_TOP]; /* the scopes with most live bytes, largest first; live 0: end of the list */
    char text[1024];
    uint64_t reserved_words[8]; /* 0; new fields take their place: fy_plan_t contains this struct */
} fy_oom_verdict_t;

#ifdef __cplusplus
}
#endif
#endif
