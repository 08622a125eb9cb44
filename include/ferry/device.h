/* Devices: places where data lives. fy_device_open is the only way to reach one; Ferry opens none
 * by itself. */
#ifndef FERRY_DEVICE_H_
#define FERRY_DEVICE_H_

#include <ferry/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fy_device_info {
    size_t struct_size;        /* set by you: sizeof(fy_device_info_t) */
    char spec[64];             /* "sim:0" */
    char model[64];            /* "h200 profile", "NVIDIA H200" */
    char backend[16];          /* "host", "sim", "cuda" */
    uint64_t memory_nbytes;    /* total memory of the device */
    uint64_t free_nbytes;      /* of that, free at the moment of the call, for all processes */
    uint64_t limit_nbytes;     /* most that Ferry may reserve there */
    uint64_t workspace_nbytes; /* most scratch memory of one library call */
    int is_host, is_simulated;
    int numerics; /* 0: shapes, memory and clock only; downloads read zero */
} fy_device_info_t;
#define FY_DEVICE_INFO_INIT FY_ZEROED_(device_info)

/* The device's own time. FY_CLOCK_MODEL is computed, not measured: it depends only on the submitted
 * requests. */
typedef enum fy_clock_kind { FY_CLOCK_WALL, FY_CLOCK_MODEL } fy_clock_kind_t;
typedef struct fy_device_clock {
    size_t struct_size;
    fy_clock_kind_t kind;
    /* WALL: monotonic host time. MODEL: the host's time on the model clock */
    uint64_t now_ns;
    /* MODEL: how long each engine was busy so far; WALL: 0 */
    uint64_t compute_ns, upload_ns, download_ns;
} fy_device_clock_t;
#define FY_DEVICE_CLOCK_INIT FY_ZEROED_(device_clock)

/* The host as a device: always open, owned by the library, runs each request inside the call. */
FY_API fy_device_t *fy_device_host(void);

/* Opens a device by its spec; opening the same device again adds to its count.
 *   "host" · "auto" (the first CUDA device, else host) · "cuda:N" · "null:0"
 *   "sim:N?profile=h200&capacity=8GiB&numerics=off" · "sim:N?order=random&seed=7&faults=copy@3"
 * docs/environment.md lists the options, such as limit=BYTES (most that Ferry reserves on the
 * device), pinned=BYTES (most page-locked host memory) and debug=poison+guard. Options apply to the
 * first open; a later open with other options fails. threads=N of the host applies at every open.
 * Fails: INVALID_ARGUMENT (names the option and its allowed values), UNAVAILABLE (with the reason),
 * BUSY (a running fy_plan_step simulates on it), OUT_OF_MEMORY. */
FY_API_STATUS fy_device_open(const char *spec, fy_device_t **out_device);

/* An allocator of yours, such as the application's own pool (RMM), for the segments from which
 * Ferry's pools cut blocks. Guards, limits and figures are as without one. Rules:
 *   - alloc_... returns `nbytes` > 0 at a multiple of `alignment` (a power of two), or NULL: then
 *     the request fails as if the device were full, after the stages of docs/memory.md.
 *   - The bytes may be used at once, on all streams of the device: wait for a stream-ordered
 *     allocation first. free_... gets the same size, on any thread, after the last use.
 *   - Calls for one kind of memory come one at a time. Ferry holds locks: a hook calls no function
 *     of Ferry, and waits for no thread that does. No CUDA context is made current for it.
 *   - The hooks and `user` stay valid until the device is closed: its last open and last tensor. In
 *     a forked child no hook is called. */
typedef struct fy_device_options {
    size_t struct_size;
    void *user;
    /* device memory; on a simulated device host memory that plays the device's. Both NULL: of the
     * backend */
    void *(*alloc_device)(void *user, uint64_t nbytes, uint64_t alignment);
    void (*free_device)(void *user, void *address, uint64_t nbytes);
    /* host memory, page-locked or not: Ferry page-locks it if it is not. Both NULL: Ferry's */
    void *(*alloc_pinned)(void *user, uint64_t nbytes, uint64_t alignment);
    void (*free_pinned)(void *user, void *address, uint64_t nbytes);
} fy_device_options_t;
#define FY_DEVICE_OPTIONS_INIT FY_ZEROED_(device_options)
FY_API void fy_device_options_init(fy_device_options_t *options, size_t nbytes);

/* As fy_device_open, with memory from your allocator; options NULL is fy_device_open. They apply to
 * the first open: a later one has the same hooks or none.
 * Fails: as fy_device_open; INVALID_ARGUMENT (half a pair, other hooks than the first open's),
 * UNSUPPORTED (the host: its memory is the process's, see fy_memory_host_allocator). */
FY_API_STATUS fy_device_open_with(const char *spec, const fy_device_options_t *options,
                                  fy_device_t **out_device);
/* Closes one open; NULL is ignored. The device is closed with its last open and its last tensor. */
FY_API void fy_device_close(fy_device_t *device);
/* Facts about `device`. Start from FY_DEVICE_INFO_INIT. Fails: INVALID_ARGUMENT, DEVICE_LOST. */
FY_API_STATUS fy_device_query(const fy_device_t *device, fy_device_info_t *out_info);
/* Calls `say` with each fact that the device's backend knows beyond fy_device_query, in display
 * order: for a card its compute capability, processors, memory, peers, libraries and options; for a
 * simulated device its profile (docs/cuda.md, docs/simulator.md). For people and logs: keys are
 * stable, a unit is part of the key.
 * Submits nothing. May load libraries, so do not call it on a hot path. A backend without facts
 * makes no call.
 * Fails: INVALID_ARGUMENT, DEVICE_LOST. */
FY_API_STATUS fy_device_describe(const fy_device_t *device, fy_fact_fn say, void *user);
/* "sim:0"; valid while the device is open. */
FY_API const char *fy_device_name(const fy_device_t *device);
/* Reads the device's clock; moves nothing and waits for nothing. Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_device_clock_query(const fy_device_t *device, fy_device_clock_t *out_clock);
/* Blocks until everything submitted to `device` so far is done; returns the first fault among it.
 * TIMEOUT leaves the work running. */
FY_API_STATUS fy_device_wait(fy_device_t *device, uint64_t timeout_ns);

/* Calls `fn` with the spec of each device that fy_device_open can open now: "host", each device of
 * each plugin that loads ("cuda:0", ...), and "sim:0". `fn` may open devices.
 * Loads the plugins (fy_plugin_query) and opens no device. A backend without devices is left out;
 * opening its device 0 reports the reason. Fails: INVALID_ARGUMENT (fn is NULL). */
typedef void (*fy_device_fn)(void *user, const char *spec, int is_simulated);
FY_API_STATUS fy_device_enumerate(fy_device_fn fn, void *user);

/* Sets the number of threads for kernels of the host and of simulated devices, for the whole
 * process: 0 chooses by cost for each launch, N > 0 takes N. The same as opening "host?threads=N".
 * Fails: INVALID_ARGUMENT (negative, or above 1024). */
FY_API_STATUS fy_host_set_threads(int threads);

/* A plugin and the result of loading it. */
typedef struct fy_plugin_info {
    size_t struct_size;
    char name[16]; /* "cuda" */
    int loaded;
    char reason[256]; /* why it was not loaded, or the file it was loaded from */
} fy_plugin_info_t;
#define FY_PLUGIN_INFO_INIT FY_ZEROED_(plugin_info)
/* Searches plugin number `index` (0, 1, ...). Loads it if its file exists and it is not loaded; its
 * code stays in the process. Returns 0 past the last one, and for an invalid struct_size
 * (fy_error_get). Number 0 is "cuda"; then come the plugins that device specs have named, and every
 * libferry_NAME.so of the searched folders; at most 16 in all.
 * The searched folders are those of $FERRY_PLUGIN_PATH, else the folder `ferry` beside libferry.so;
 * never the current folder. Each call with index 0 searches them again. */
FY_API int fy_plugin_query(int index, fy_plugin_info_t *out_info);

/* Ferry's version, "0.1.0". Static. */
FY_API const char *fy_version(void);

#ifdef __cplusplus
}
#endif
#endif
