/* Devices: places where data lives. Opening one is the only way to reach it; nothing is opened
 * behind your back. */
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
    uint64_t memory_nbytes;    /* what the device has */
    uint64_t free_nbytes;      /* of that, free for everybody; a snapshot */
    uint64_t limit_nbytes;     /* what Ferry may reserve there */
    uint64_t workspace_nbytes; /* the most that one library call may use as scratch */
    int is_host, is_simulated;
    int numerics; /* 0: shapes, memory and clock only; downloads read zero */
} fy_device_info_t;
#define FY_DEVICE_INFO_INIT                                       \
    {                                                             \
        sizeof(fy_device_info_t), "", "", "", 0, 0, 0, 0, 0, 0, 0 \
    }

/* The device's own time. FY_CLOCK_MODEL is computed, not measured: it depends only on what was
 * submitted. */
typedef enum fy_clock_kind { FY_CLOCK_WALL, FY_CLOCK_MODEL } fy_clock_kind_t;
typedef struct fy_device_clock {
    size_t struct_size;
    fy_clock_kind_t kind;
    /* WALL: monotonic host time. MODEL: where the host's model clock stands */
    uint64_t now_ns;
    /* MODEL: how long each engine was busy so far; WALL: 0 */
    uint64_t compute_ns, upload_ns, download_ns;
} fy_device_clock_t;
#define FY_DEVICE_CLOCK_INIT                                 \
    {                                                        \
        sizeof(fy_device_clock_t), FY_CLOCK_WALL, 0, 0, 0, 0 \
    }

/* The host as a device: always open, owned by the library, runs each request inside the call. */
FY_API fy_device_t *fy_device_host(void);

/* Opens a device by its spec; the same device again is counted.
 *   "host" · "auto" (the first CUDA device, else host) · "cuda:N"
 *   "sim:N?profile=h200&capacity=8GiB&numerics=off" · "sim:N?order=random&seed=7&faults=copy@3"
 *   (docs/simulator.md) · "null:0"
 * Any spec but host takes limit=BYTES (most that Ferry reserves there), pinned=BYTES (most
 * page-locked host memory), workspace=BYTES, ahead=N (how many requests the host may be ahead of a
 * stream), segment=BYTES (what is asked of the backend at a time for small blocks), growth=off
 * (only fy_memory_reserve grows) and debug=poison+guard (finds writes out of bounds and reads of
 * old bytes, where the host reaches them: docs/memory.md). Options count on the first open of a
 * device only; other options on a later one are refused.
 * "host" and "sim:N" take threads=N (threads of each kernel: docs/environment.md); on the host it
 * counts at every open.
 * Fails: INVALID_ARGUMENT (names the option and what it may be), UNAVAILABLE (with the reason),
 * OUT_OF_MEMORY. */
FY_API_STATUS fy_device_open(const char *spec, fy_device_t **out_device);
/* Gives back one open; NULL is ignored. The device itself goes with its last tensor. */
FY_API void fy_device_close(fy_device_t *device);
/* Facts about `device`. Start from FY_DEVICE_INFO_INIT: Ferry refuses every struct whose
 * struct_size is not exactly its size.
 * Fails: INVALID_ARGUMENT, DEVICE_LOST. */
FY_API_STATUS fy_device_query(const fy_device_t *device, fy_device_info_t *out_info);
/* Calls `say` with each fact that the device's backend knows beyond fy_device_query, in the order
 * to be shown: of a card its compute capability, processors, memory, peers, libraries found or why
 * not, options in force; of a simulated device the figures of its profile and whether segments
 * grow. For people and logs: keys are stable, values are text with their unit in the key
 * (docs/cuda.md, docs/simulator.md).
 * Submits nothing; may load the libraries that it tells about, so it is not for a hot path. A
 * device without facts calls `say` never.
 * Fails: INVALID_ARGUMENT, DEVICE_LOST. */
FY_API_STATUS fy_device_describe(const fy_device_t *device, fy_fact_fn say, void *user);
/* "sim:0"; valid while the device is open. */
FY_API const char *fy_device_name(const fy_device_t *device);
/* Reads the device's clock; moves nothing and waits for nothing. Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_device_clock_query(const fy_device_t *device, fy_device_clock_t *out_clock);
/* Blocks until everything submitted to `device` so far is done; returns the first fault it meets.
 * TIMEOUT leaves it running. */
FY_API_STATUS fy_device_wait(fy_device_t *device, uint64_t timeout_ns);

/* A plugin that was looked for. */
typedef struct fy_plugin_info {
    size_t struct_size;
    char name[16]; /* "cuda" */
    int loaded;
    char reason[256]; /* why not, or where it was loaded from */
} fy_plugin_info_t;
#define FY_PLUGIN_INFO_INIT                 \
    {                                       \
        sizeof(fy_plugin_info_t), "", 0, "" \
    }
/* Looks for plugin number `index` (0, 1, ...) and loads it if its file exists. Returns 0 past the
 * last one. Number 0 is "cuda"; then come the plugins that device specs have named, and every
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
