/* The seam between Ferry and a backend (host, sim, null, cuda, yours): a table of slots per
 * backend, a handle per device.
 * A backend is mechanism only: it owns no policy, no tensors, no caching. It sees this header,
 * op.h, types.h and status.h.
 * backends/null/ is a skeleton to copy; CONTRIBUTING.md walks through it.
 *
 * Rules for every slot:
 *   - may be called by any thread; the backend locks what it must;
 *   - on failure returns the status that fy_host_api_t.fail gave, and has changed nothing;
 *   - never aborts, exits or prints, and calls nothing of Ferry but fy_host_api_t;
 *   - work is asynchronous unless fy_backend_t.is_synchronous; pointers inside records are read
 *     before the slot returns. */
#ifndef FERRY_BACKEND_H_
#define FERRY_BACKEND_H_

#include <ferry/op.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FY_BACKEND_ABI 1u

/* Which way bytes go. The executor reports them in these terms. */
typedef enum fy_copy_kind {
    FY_COPY_UPLOAD,
    FY_COPY_DOWNLOAD,
    FY_COPY_LOCAL,
    FY_COPY_PEER
} fy_copy_kind_t;

/* What Ferry offers a backend, so that a plugin links nothing of Ferry. Valid for the life of the
 * process. */
typedef struct fy_host_api {
    size_t struct_size;
    uint32_t abi;
    /* Writes the calling thread's error record; returns `status`. `file` must be static. */
    fy_status_t (*fail)(fy_status_t status, const char *file, int line, const char *format, ...)
        FY_PRINTF(4, 5);
    /* Says something to the log function. */
    void (*log)(fy_log_level_t level, const char *format, ...) FY_PRINTF(2, 3);
    /* The executor moved `nbytes` of this kind for the request now being submitted on this thread:
     * the ledger's wire bytes. */
    void (*record)(fy_copy_kind_t kind, uint64_t nbytes);
} fy_host_api_t;

/* One `key=value` of a device spec that Ferry itself did not use. */
typedef struct fy_backend_option {
    const char *key, *value; /* valid during device_open only */
    uint64_t nbytes;         /* the value as a byte size ("8GiB"), if is_size */
    int is_size;
} fy_backend_option_t;

typedef struct fy_backend_info {
    char model[64];
    uint64_t memory_nbytes, free_nbytes;
    uint32_t alignment; /* of what alloc returns, in bytes; a power of two, at least 64 */
    int numerics;       /* 0: kernels do not compute */
    int is_simulated;
    int unified; /* host code may read what alloc returns (the host itself) */
    /* `resize` goes in steps of so many bytes, a power of two; 0: blocks keep their size */
    uint64_t resize_nbytes;
    /* a copy may fail alone, after it was submitted, and then raises fy_copy_t.fault */
    int copies_can_fault;
    /* `launch` may return before it calls fy_launch_t.kernel; fy_launch_t.fault is then never
     * NULL */
    int kernels_run_late;
} fy_backend_info_t;

typedef struct fy_backend_clock {
    uint64_t now_ns, compute_ns, upload_ns, download_ns; /* as fy_device_clock_t */
    /* from when on all engines are idle, if nothing more is submitted */
    uint64_t idle_ns;
} fy_backend_clock_t;

/* What a stream is for; a hint for engines and priorities. */
typedef enum fy_stream_role {
    FY_STREAM_COMPUTE,
    FY_STREAM_UPLOAD,
    FY_STREAM_DOWNLOAD
} fy_stream_role_t;

typedef struct fy_copy {
    fy_copy_kind_t kind;
    int host_pinned; /* the host end is page-locked (registered with this device) */
    void *dst;
    const void *src;
    uint64_t nbytes; /* > 0 */
    /* page-locked; not 0 once done: this copy failed and dst holds garbage. NULL: nobody looks
     * (copies_can_fault is 0) */
    uint32_t *fault;
    /* PEER: the device that dst is on, as its device_open gave it; src is on the one that copies.
     * Else NULL */
    void *peer;
} fy_copy_t;

/* Two launches that are no ops. Many small tensors cross in one copy, packed in one run of bytes
 * with a table behind them; a kernel on the device then spreads them (SCATTER: src[0] is the run,
 * as u8) or has collected them (GATHER: dst[0]). The table lies in the run too (GATHER: in src[0]),
 * on the device; attrs is an fy_packed_t. Where copies_can_fault, a table that did not come is to
 * be left alone. */
#define FY_LAUNCH_SCATTER 0xFFFFFFF0u
#define FY_LAUNCH_GATHER  0xFFFFFFF1u
typedef struct fy_packed {
    uint64_t table_offset; /* of the first entry, in bytes from the run's begin; a multiple of 8 */
    uint32_t count;
} fy_packed_t;
typedef struct fy_packed_entry {
    uint64_t address; /* of the tensor's bytes on the device */
    uint64_t offset;  /* of the same bytes in the run; a multiple of 16 */
    uint64_t nbytes;
} fy_packed_entry_t;

/* A span of the calling thread begins and is called `name`, valid during the call; NULL: the
 * innermost one ends. */
typedef void (*fy_range_fn)(const char *name);

/* Of what alloc gave, the `nbytes` from `address` on belong to somebody now, and are called `name`,
 * valid during the call. name NULL: they are nobody's any more, and nothing on the device uses
 * them. Called with a lock of Ferry's held: must not wait for another thread's call. */
typedef void (*fy_region_fn)(void *dev, void *address, uint64_t nbytes, const char *name);

typedef struct fy_backend {
    size_t struct_size;
    uint32_t abi;     /* FY_BACKEND_ABI */
    const char *name; /* "cuda" */
    /* every request is done when its slot returns; streams and events are then never used */
    int is_synchronous;

    /* ---- devices ---- */
    /* How many devices there are now; a failure says why there are none. */
    fy_status_t (*device_count)(int *out_count);
    /* An unknown option is INVALID_ARGUMENT and names it and what is known. */
    fy_status_t (*device_open)(int index, size_t noptions, const fy_backend_option_t *options,
                               void **out_dev);
    /* All streams, events and blocks are already given back. */
    void (*device_close)(void *dev);
    fy_status_t (*device_query)(void *dev, fy_backend_info_t *out_info);

    /* ---- memory ---- */
    /* nbytes > 0. A refusal is OUT_OF_MEMORY and leaves the device usable. */
    fy_status_t (*alloc)(void *dev, uint64_t nbytes, void **out_address);
    void (*free)(void *dev, void *address, uint64_t nbytes);
    /* Page-locks host memory so that copies with it run asynchronously and kernels may write it at
     * the same address. The same range may be registered by several devices, and each gives it
     * back. BUSY: it overlaps what is page-locked already.
     * Both NULL: nothing to do. */
    fy_status_t (*register_host)(void *dev, void *address, uint64_t nbytes);
    void (*unregister_host)(void *dev, void *address, uint64_t nbytes);

    /* ---- order ---- (NULL if is_synchronous) */
    /* native != NULL: wrap it, borrowed. */
    fy_status_t (*stream_create)(void *dev, fy_stream_role_t role, int priority, void *native,
                                 void **out_stream);
    /* Submitted work still runs. */
    void (*stream_destroy)(void *dev, void *stream);
    /* A backend may return the same pointer for several events, if its events have no state. Ferry
     * destroys once for each create. */
    fy_status_t (*event_create)(void *dev, void **out_event);
    void (*event_destroy)(void *dev, void *event);
    /* The event happens when everything submitted to `stream` so far has; recording again moves
     * it. */
    fy_status_t (*event_record)(void *dev, void *event, void *stream);
    /* Later work on `stream` runs after the event, as it stands now; the host does not wait. */
    fy_status_t (*event_wait)(void *dev, void *stream, void *event);
    /* Has it happened? *out_done 0 or 1. Fails with the device's fault. */
    fy_status_t (*event_query)(void *dev, void *event, int *out_done);
    /* Blocks. OK, TIMEOUT, or the device's fault. */
    fy_status_t (*event_sync)(void *dev, void *event, uint64_t timeout_ns);

    /* ---- work ---- (stream is NULL if is_synchronous) */
    fy_status_t (*copy)(void *dev, void *stream, const fy_copy_t *copy);
    /* Writes `nbytes` of `value` from `address` on. */
    fy_status_t (*fill)(void *dev, void *stream, void *address, int value, uint64_t nbytes);
    /* Runs one op; UNSUPPORTED, and nothing done, if this op, dtype or layout has no kernel here.
     * If launch->kernel is set, call it with this launch or a copy of it; its status is the
     * request's status. */
    fy_status_t (*launch)(void *dev, void *stream, const fy_launch_t *launch);
    /* 1 if launch would take it. Never submits anything. NULL: everything. */
    int (*supports)(void *dev, const fy_launch_t *launch);
    /* Scratch that launch wants for it, at most `limit` bytes; granted through launch->workspace.
     * NULL: none. */
    uint64_t (*workspace)(void *dev, const fy_launch_t *launch, uint64_t limit);

    /* ---- graphs ---- (optional, all NULL: what was recorded is submitted call by call at each
     * replay) */
    /* Until graph_end, what this thread submits to *out_stream (copy, fill, launch) is kept instead
     * of run. Nobody else has that stream. All of it was run at least once before. */
    fy_status_t (*graph_begin)(void *dev, void **out_stream);
    /* Ends it, on the same thread, and takes the stream back, whatever it returns. out_graph NULL:
     * what was kept is dropped. */
    fy_status_t (*graph_end)(void *dev, void *stream, void **out_graph);
    /* Runs all that was kept as one request, behind what was submitted to `stream` and behind its
     * own last run. Then the `nflags` words at `flags` (on the device; what the launches' `fault`
     * points to) go to *words[i], page-locked. *out_submitted: 1 if it fails though the graph is on
     * its way; else 0, and nothing is. */
    fy_status_t (*graph_replay)(void *dev, void *stream, void *graph, const uint32_t *flags,
                                uint32_t nflags, uint32_t *const *words, int *out_submitted);
    /* A run that is on its way is not hurt. */
    void (*graph_destroy)(void *dev, void *graph);

    /* ---- model clock ---- (optional; a device that computes its times) */
    void (*clock)(void *dev, fy_backend_clock_t *out_clock);
    /* The host itself worked for so much; its model clock advances. */
    void (*host_work)(void *dev, uint64_t flops, uint64_t nbytes);
    /* The host filled or emptied nbytes of staging memory, with as many threads as that takes. */
    void (*host_copy)(void *dev, uint64_t nbytes);
    /* As event_query, for a thread of Ferry's own: costs no model time. NULL: event_query will
     * do. */
    fy_status_t (*event_peek)(void *dev, void *event, int *out_done);
    /* When the request that this thread submitted last to `dev` starts and ends. */
    void (*request_span)(void *dev, uint64_t *out_start_ns, uint64_t *out_end_ns);

    /* ---- for people ---- (optional) */
    /* Says what else is known about `dev`: calls `say` once for each fact, in the order in which
     * they are shown. NULL: nothing. A library that was not found is a fact, with the reason, and
     * no failure. */
    fy_status_t (*describe)(void *dev, fy_fact_fn say, void *user);

    /* ---- sums over devices ---- (optional; NULL: by copies from device to device) */
    /* In place: the `nelem` > 0 dense elements at each buffers[i], on devs[i], become the sum of
     * all of them, in the order of streams[i]; the same bits on every device. One thread calls for
     * all; the first call of a set of devices may take long. UNSUPPORTED: nothing was submitted,
     * and the caller sums otherwise. Another failure: buffers may hold garbage, and no stream waits
     * for another. */
    fy_status_t (*all_reduce)(size_t count, void *const *devs, void *const *streams,
                              void *const *buffers, int32_t dtype, uint64_t nelem);

    /* ---- blocks that grow ---- (optional; asked for where resize_nbytes is not 0) */
    /* Makes a block of alloc's longer or shorter where it stands. Both sizes are multiples of
     * resize_nbytes, and so was the one alloc gave it.
     * Longer: as alloc; OUT_OF_MEMORY also where only this block cannot grow. Shorter (not to 0):
     * nothing uses what goes; never fails. */
    fy_status_t (*resize)(void *dev, void *address, uint64_t nbytes, uint64_t new_nbytes);

    /* ---- many copies ---- (optional; NULL: `copy`, one after the other) */
    /* `count` > 0 copies of one kind, on one stream, in one submission. No two of them touch the
     * same bytes of a destination, and none reads what another writes: their order among each other
     * is free, the stream's order holds for all together. Not asked for where copies_can_fault. On
     * failure it is not known which of them run: their destinations hold garbage, and none is to be
     * submitted again. */
    fy_status_t (*copy_many)(void *dev, void *stream, size_t count, const fy_copy_t *copies);

    /* ---- for profilers ---- (optional) */
    /* What to tell the spans of the program's scopes, or NULL if nobody listens; asked once, when
     * the device was opened. */
    fy_range_fn (*ranges)(void *dev);
    /* What to tell the blocks that are cut from what alloc gives, or NULL if nobody listens; asked
     * once, before the first alloc. */
    fy_region_fn (*regions)(void *dev);
} fy_backend_t;

/* The one symbol of a plugin: `fy_backend_open`. Called once; *out_backend lives as long as the
 * process.
 * Fails: UNSUPPORTED (another ABI: says which), UNAVAILABLE (no driver: says what was tried). */
typedef fy_status_t (*fy_backend_open_fn)(const fy_host_api_t *host, uint32_t abi,
                                          const fy_backend_t **out_backend);
#define FY_BACKEND_OPEN_SYMBOL "fy_backend_open"

#ifdef __cplusplus
}
#endif
#endif
