/* Memory figures of a device, and the verdict that comes with OUT_OF_MEMORY and PINNED_LIMIT. */
#ifndef FERRY_MEMORY_H_
#define FERRY_MEMORY_H_

#include <ferry/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes on one device. live = handed out now, as rounded; requested = the same before rounding; cached = free inside reserved;
 * pending = given back while the device may still use it, reusable in stream order (part of cached); reserved = held from the
 * backend = live + cached. */
typedef struct fy_memory_stats {
    size_t struct_size;
    uint64_t live, requested, cached, pending, reserved, peak_live, peak_reserved;
    uint64_t largest_free;  /* largest block that needs no growth */
    uint64_t device_allocs; /* calls to the backend's allocator so far */
    uint64_t limit;         /* most that may be reserved; FY_UNLIMITED if only the device bounds it */
} fy_memory_stats_t;
#define FY_MEMORY_STATS_INIT                                    \
    {                                                           \
        sizeof(fy_memory_stats_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
    }

typedef enum fy_oom_reason {
    FY_OOM_DEVICE_FULL,          /* the backend refused to give more */
    FY_OOM_LIMIT,                /* the limit Ferry was given */
    FY_OOM_FRAGMENTED,           /* enough is free, but not in one piece */
    FY_OOM_WOULD_FIT_AFTER_SYNC, /* pending blocks would do, but a guard forbids syncs here */
    FY_OOM_TOO_LARGE             /* larger than the device, whatever is freed */
} fy_oom_reason_t;

/* Why an allocation failed, what was tried, and the smallest thing that would help. */
typedef struct fy_oom_verdict {
    size_t struct_size;
    fy_status_t status; /* OUT_OF_MEMORY or PINNED_LIMIT */
    fy_oom_reason_t reason;
    uint64_t asked, limit, live, cached, pending, reserved, largest_free;
    uint64_t would_help; /* bytes that would have to become free for this request to fit; 0 if nothing would help */
    char text[1024];
} fy_oom_verdict_t;

/* Figures of `device`; scope_path NULL: all of it, else live and requested of what was made under that path ("train/step"), the
 * rest 0. Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_memory_query(const fy_device_t *device, const char *scope_path, fy_memory_stats_t *out_stats);
/* Figures of the page-locked host memory that serves `device`. */
FY_API_STATUS fy_memory_query_pinned(const fy_device_t *device, fy_memory_stats_t *out_stats);
/* Gives cached memory back to the backend until at most `keep_nbytes` stay reserved (of the device's memory, and as much again of the
 * page-locked memory that serves it), as far as whole segments are free; pending blocks stay. out_released may be NULL. */
FY_API_STATUS fy_memory_trim(fy_device_t *device, uint64_t keep_nbytes, uint64_t *out_released);
/* Where host memory comes from: "jemalloc" (the program carries it) or "mmap". Static. */
FY_API const char *fy_memory_host_allocator(void);

#ifdef __cplusplus
}
#endif
#endif
