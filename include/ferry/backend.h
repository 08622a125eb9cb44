/* The interface between Ferry and a backend (host, sim, null, cuda, yours): a table of slots for
 * each backend, a handle for each device.
 * A backend is mechanism only: it has no policy, no tensors and no caches. It includes this header,
 * op.h, types.h and status.h. backends/null/ is a skeleton to copy; CONTRIBUTING.md has the steps.
 *
 * Rules for every slot:
 *   - Any thread may call it; the backend does its own locking.
 *   - On failure it returns the status of its fy_host_api_t.fail call, and has changed nothing.
 *   - It never aborts, exits or prints, and calls no function of Ferry but fy_host_api_t.
 *   - Work is asynchronous unless fy_backend_t.is_synchronous. The slot reads the pointers inside
 *     records before it returns. */
#ifndef FERRY_BACKEND_H_
#define FERRY_BACKEND_H_

#include <ferry/op.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FY_BACKEND_ABI 1u

/* The direction of a copy. The executor reports its copies by these kinds. */
typedef enum fy_copy_kind {
    FY_COPY_UPLOAD,
    FY_COPY_DOWNLOAD,
    FY_COPY_LOCAL,
    FY_COPY_PEER
} fy_copy_kind_t;

/* Ferry's functions for a backend, so that a plugin links nothing of Ferry. Valid as long as the
 * process. */
typedef struct fy_host_api {
    size_t struct_size;
    uint32_t abi;
    /* Writes the calling thread's error record; returns `status`. `file` must be static. */
    fy_status_t (*fail)(fy_status_t status, const char *file, int line, const char *format, ...)
        FY_PRINTF(4, 5);
    /* Sends a message to the log function. */
    void (*log)(fy_log_level_t level, const char *format, ...) FY_PRINTF(2, 3);
    /* Reports that the executor copied `nbytes` of this kind for the request that this thread is
     * submitting: the ledger's wire bytes. */
    void (*record)(fy_copy_kind_t kind, uint64_t nbytes);
} fy_host_api_t;

/* A call of a communicator; see fy_collective_t. Elements are dense, in the device's memory. */
typedef struct fy_backend_collective {
    fy_collective_t kind;
    int option;      /* a rank, or FY_COLLECTIVE_SUM or _MEAN */
    int32_t dtype;   /* of a reduction */
    uint64_t nelem;  /* of src; of dst for REDUCE_SCATTER and RECEIVE */
    uint64_t nbytes; /* of nelem elements */
    void *dst;       /* equal to src: in place; NULL: none */
    const void *src; /* NULL: none */
} fy_backend_collective_t;
typedef enum fy_backend_closing {
    FY_CLOSING_DONE,
    FY_CLOSING_IDLE,
    FY_CLOSING_RUNNING
} fy_backend_closing_t;

/* One `key=value` of a device spec that is not one of Ferry's options. */
typedef struct fy_backend_option {
    const char *key, *value; /* valid during device_open only */
    uint64_t nbytes;         /* the value as a byte size ("8GiB"), if is_size */
    int is_size;
} fy_backend_option_t;

typedef struct fy_backend_info {
    char model[64];
    uint64_t memory_nbytes, free_nbytes;
    uint32_t alignment; /* of alloc's addresses, in bytes; a power of two, at least 64 */
    int numerics;       /* 0: kernels do not compute */
    int is_simulated;
    int unified; /* host code may read alloc's memory (the host itself) */
    /* step of `resize`, a power of two; 0: blocks keep their size */
    uint64_t resize_nbytes;
    /* a submitted copy may fail by itself, and then sets *fy_copy_t.fault */
    int copies_can_fault;
    /* `launch` may return before it calls fy_launch_t.kernel; fy_launch_t.fault is then never
     * NULL */
    int kernels_run_late;
} fy_backend_info_t;

typedef struct fy_backend_clock {
    uint64_t now_ns, compute_ns, upload_ns, download_ns; /* as fy_device_clock_t */
    /* the time at which all engines are idle if nothing more is submitted */
    uint64_t idle_ns;
} fy_backend_clock_t;

/* The purpose of a stream; a hint for engines and priorities. */
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
    /* page-locked word; not 0 after the copy: it failed, and dst holds garbage. NULL if
     * copies_can_fault is 0 */
    uint32_t *fault;
    /* PEER: the handle of dst's device, from its device_open; src is on the device that copies.
     * Else NULL */
    void *peer;
} fy_copy_t;

/* Two launches that are not ops: small tensors cross packed in one buffer. attrs is an fy_packed_t,
 * which locates a table of fy_packed_entry_t.
 * SCATTER (uploads) copies each entry from the buffer src[0] to its address; the table is in
 * src[0].
 * GATHER (downloads) copies each entry from its address into the buffer dst[0]; the table is in
 * src[0]. All of it is on the device, as u8.
 * If copies_can_fault, the kernel must ignore a table that did not arrive. */
#define FY_LAUNCH_SCATTER 0xFFFFFFF0u
#define FY_LAUNCH_GATHER  0xFFFFFFF1u
typedef struct fy_packed {
    uint64_t table_offset; /* of the first entry, in bytes from the run's beginning; a multiple of
                            * 8 */
    uint32_t count;
} fy_packed_t;
typedef struct fy_packed_entry {
    uint64_t address; /* of the tensor's bytes on the device */
    uint64_t offset;  /* of the same bytes in the run; a multiple of 16 */
    uint64_t nbytes;
} fy_packed_entry_t;

/* A launch that runs a chain: elementwise ops, one after the other, on operands of one number of
 * elements, launch->nelem, each in row-major order. attrs is an array of fy_chain_op_t. launch->dst
 * has no gaps; a source may have any strides. An operand may be the same elements as another one;
 * else no result overlaps another operand.
 * The last op may be a reduction of a dense operand: sum, mean, prod, norm, max, min, any, all. Its
 * dst then has one element for each row of neighbours; attrs is its fy_reduce_attrs_t.
 * dropout and its gradient can be in a chain: the number of an element selects its draw. src[1] is
 * the state, i64 [2]; src[2] of dropout is the state before. Both are results of dropout in
 * launch->dst, written once. No other op uses them.
 * A result has the bits that a launch of each op alone would give; a NaN may have others. */
#define FY_LAUNCH_CHAIN 0xFFFFFFF2u
typedef struct fy_chain_op {
    fy_op_t op;
    uint16_t accumulate; /* 1: adds to dst */
    uint16_t nsrc;
    /* Operands: 0 .. ndst - 1 are launch->dst, which ops may read too; the next nsrc ones are
     * launch->src; higher numbers are values that need no memory: each is set by an op before
     * others read it. */
    uint16_t dst, src[3];
    uint8_t dst_dtype, src_dtype[3];
    uint32_t attrs_nbytes; /* of the op's struct, in attrs */
    double attrs[2];
} fy_chain_op_t;

/* What the slot `chain` returns. Reasons are for fy_graph_explain. */
enum {
    FY_CHAIN_TAKEN = 1,
    FY_CHAIN_NO_OP = 0,         /* an op, or a reason without a name */
    FY_CHAIN_NO_DTYPE = -1,     /* chains of this device compute in f32, and an op does not */
    FY_CHAIN_NO_REDUCTION = -2, /* a chain would add a row in another order than the op alone */
    FY_CHAIN_TOO_LARGE = -3     /* too many ops, operands, axes, or values at once */
};

/* Begins a range `name` of the calling thread, valid during the call; NULL ends the innermost
 * one. */
typedef void (*fy_range_fn)(const char *name);

/* Names a block: the `nbytes` from `address` on, inside alloc's memory, are in use as `name` (valid
 * during the call). name NULL: the block is free and no device work uses it. Ferry holds a lock
 * during the call, so it must not wait for another thread. */
typedef void (*fy_region_fn)(void *dev, void *address, uint64_t nbytes, const char *name);

typedef struct fy_backend {
    size_t struct_size;
    uint32_t abi;     /* FY_BACKEND_ABI */
    const char *name; /* "cuda" */
    /* every request is done when its slot returns; Ferry then uses no streams and events */
    int is_synchronous;

    /* ---- devices ---- */
    /* How many devices there are now; if it fails, the text has the reason. */
    fy_status_t (*device_count)(int *out_count);
    /* Fails for an unknown option with INVALID_ARGUMENT, which names it and the known options. */
    fy_status_t (*device_open)(int index, size_t noptions, const fy_backend_option_t *options,
                               void **out_dev);
    /* Called after all streams, events and blocks are released. */
    void (*device_close)(void *dev);
    fy_status_t (*device_query)(void *dev, fy_backend_info_t *out_info);

    /* ---- memory ---- */
    /* nbytes > 0. If memory runs out, it returns OUT_OF_MEMORY and the device stays usable. */
    fy_status_t (*alloc)(void *dev, uint64_t nbytes, void **out_address);
    void (*free)(void *dev, void *address, uint64_t nbytes);
    /* Page-locks host memory: copies with it then run asynchronously, and kernels may write it at
     * the same address. Several devices may register the same range, and each unregisters it. BUSY:
     * the range overlaps page-locked memory. Both NULL: page-locking is not needed. */
    fy_status_t (*register_host)(void *dev, void *address, uint64_t nbytes);
    void (*unregister_host)(void *dev, void *address, uint64_t nbytes);

    /* ---- order ---- (NULL if is_synchronous) */
    /* native != NULL: wraps it, borrowed. */
    fy_status_t (*stream_create)(void *dev, fy_stream_role_t role, int priority, void *native,
                                 void **out_stream);
    /* Submitted work still runs. */
    void (*stream_destroy)(void *dev, void *stream);
    /* Ferry calls destroy once for each create. If events have no state, several may share one
     * pointer. */
    fy_status_t (*event_create)(void *dev, void **out_event);
    void (*event_destroy)(void *dev, void *event);
    /* The event is reached when everything submitted to `stream` so far is done; recording again
     * moves the event. */
    fy_status_t (*event_record)(void *dev, void *event, void *stream);
    /* Later work on `stream` runs after the event as last recorded; the host does not wait. */
    fy_status_t (*event_wait)(void *dev, void *stream, void *event);
    /* Sets *out_done to 1 if the event is reached, else 0. Fails with the device's fault. */
    fy_status_t (*event_query)(void *dev, void *event, int *out_done);
    /* Blocks. OK, TIMEOUT, or the device's fault. */
    fy_status_t (*event_sync)(void *dev, void *event, uint64_t timeout_ns);

    /* ---- work ---- (stream is NULL if is_synchronous) */
    fy_status_t (*copy)(void *dev, void *stream, const fy_copy_t *copy);
    /* Writes `nbytes` of `value` from `address` on. */
    fy_status_t (*fill)(void *dev, void *stream, void *address, int value, uint64_t nbytes);
    /* Runs one op; returns UNSUPPORTED, and does nothing, if this op, dtype or layout has no kernel
     * here. If launch->kernel is set, calls it with this launch or a copy of it; the kernel's
     * status is the request's status. */
    fy_status_t (*launch)(void *dev, void *stream, const fy_launch_t *launch);
    /* 1 if `launch` would accept it. Submits nothing. NULL: every launch is accepted. */
    int (*supports)(void *dev, const fy_launch_t *launch);
    /* Scratch bytes that `launch` needs for it, at most `limit`; Ferry passes them in
     * launch->workspace. NULL: none. */
    uint64_t (*workspace)(void *dev, const fy_launch_t *launch, uint64_t limit);

    /* ---- graphs ---- (optional; all NULL: each replay submits the recorded calls one by one) */
    /* Until graph_end, keeps this thread's submissions to *out_stream (copy, fill, launch) and does
     * not run them. No other thread uses that stream. All of these calls have run at least once
     * before. */
    fy_status_t (*graph_begin)(void *dev, void **out_stream);
    /* Ends it, on the same thread, and always destroys the stream. out_graph NULL: drops the kept
     * calls. */
    fy_status_t (*graph_end)(void *dev, void *stream, void **out_graph);
    /* Runs all kept calls as one request, after earlier work of `stream` and after the graph's last
     * run. Then copies the `nflags` words at `flags` (on the device; the launches' `fault` points
     * to them) to *words[i], page-locked. *out_submitted is 1 if it fails although the graph was
     * submitted; else 0, and nothing was submitted. */
    fy_status_t (*graph_replay)(void *dev, void *stream, void *graph, const uint32_t *flags,
                                uint32_t nflags, uint32_t *const *words, int *out_submitted);
    /* A submitted run completes. */
    void (*graph_destroy)(void *dev, void *graph);

    /* ---- model clock ---- (optional; a device that computes its times) */
    void (*clock)(void *dev, fy_backend_clock_t *out_clock);
    /* Advances the host's model clock by this work of the host. */
    void (*host_work)(void *dev, uint64_t flops, uint64_t nbytes);
    /* Advances it by filling or emptying nbytes of staging memory, with as many threads as that
     * uses. */
    void (*host_copy)(void *dev, uint64_t nbytes);
    /* As event_query, for Ferry's threads: costs no model time. NULL: Ferry calls event_query. */
    fy_status_t (*event_peek)(void *dev, void *event, int *out_done);
    /* Start and end of the request that this thread submitted last to `dev`. */
    void (*request_span)(void *dev, uint64_t *out_start_ns, uint64_t *out_end_ns);

    /* ---- for people ---- (optional) */
    /* Calls `say` once for each further fact about `dev`, in display order. NULL: there are none. A
     * library that was not found is a fact, with the reason, and not a failure. */
    fy_status_t (*describe)(void *dev, fy_fact_fn say, void *user);

    /* ---- sums over devices ---- (optional; NULL: Ferry sums by peer copies) */
    /* In place: the `nelem` > 0 dense elements at each buffers[i], on devs[i], become the sum of
     * all, in the order of streams[i]. The bits are the same on every device. One thread makes the
     * call for all devices; the first call of a set of devices may be slow. UNSUPPORTED: nothing
     * was submitted, and the caller uses copies. After another failure buffers may hold garbage,
     * and no stream waits for another. */
    fy_status_t (*all_reduce)(size_t count, void *const *devs, void *const *streams,
                              void *const *buffers, int32_t dtype, uint64_t nelem);

    /* ---- blocks that grow ---- (optional; called if resize_nbytes is not 0) */
    /* Resizes a block of alloc in place. Both sizes are multiples of resize_nbytes, as is the size
     * passed to alloc. Longer: fails as alloc; OUT_OF_MEMORY also if only this block cannot grow.
     * Shorter (not to 0): no work uses the removed part; never fails. */
    fy_status_t (*resize)(void *dev, void *address, uint64_t nbytes, uint64_t new_nbytes);

    /* ---- many copies ---- (optional; NULL: Ferry calls `copy` for each) */
    /* Submits `count` > 0 copies of one kind, on one stream, at once. No two of them write the same
     * bytes, and none reads bytes that another writes. So they may run in any order; the stream's
     * order holds for all together. Not called if copies_can_fault. After a failure it is unknown
     * which copies run: all destinations hold garbage, and Ferry submits none of them again. */
    fy_status_t (*copy_many)(void *dev, void *stream, size_t count, const fy_copy_t *copies);

    /* ---- for profilers ---- (optional) */
    /* The function that receives the program's scopes as ranges; NULL: no profiler listens. Called
     * once, when the device is opened. */
    fy_range_fn (*ranges)(void *dev);
    /* The function that receives the names of blocks inside alloc's memory; NULL: no profiler
     * listens. Called once, before the first alloc. */
    fy_region_fn (*regions)(void *dev);

    /* ---- native queues ---- (optional; NULL: programs cannot use the device's queues) */
    /* The native queue of a stream, as stream_create takes it in `native`. */
    void *(*stream_native)(void *dev, void *stream);

    /* ---- chains ---- (optional; NULL: graphs submit the calls of a chain one by one) */
    /* FY_CHAIN_TAKEN if `launch` would accept this FY_LAUNCH_CHAIN; else a reason. Submits
     * nothing. */
    int (*chain)(void *dev, const fy_launch_t *launch);

    /* ---- model clock of the host ---- (optional; NULL if there is no `clock`) */
    /* The host's time on the model clock, which all devices of the backend share. */
    uint64_t (*host_clock)(void);

    /* ---- memory of the program ---- (optional; NULL: addresses from the program's allocator need
     * no preparation) */
    /* `nbytes` at `address` are used as if alloc had returned them, until disown, which is called
     * after their last use. INVALID_ARGUMENT: not memory that the device can use. */
    fy_status_t (*adopt)(void *dev, void *address, uint64_t nbytes);
    void (*disown)(void *dev, void *address, uint64_t nbytes);

    /* ---- order with work of the program ---- (optional; NULL: fy_native_... are refused) */
    /* As fy_native_event_record and _wait: `event` is native, as a queue of stream_native is. */
    fy_status_t (*native_event_record)(void *dev, void *stream, void *event);
    fy_status_t (*native_event_wait)(void *dev, void *stream, void *event);
    /* As fy_native_timeline_signal and _wait; `word` is a multiple of 8. */
    fy_status_t (*native_timeline_signal)(void *dev, void *stream, void *word, uint64_t value);
    fy_status_t (*native_timeline_wait)(void *dev, void *stream, void *word, uint64_t value);

    /* ---- communicators ---- (optional, all or none; see ferry/communicator.h) */
    /* Writes a new id; NULL: checks only. UNSUPPORTED: the library was not found; the text has the
     * cause. */
    fy_status_t (*communicator_id)(void *dev, void *id);
    /* Begins to connect `dev` as rank `rank` of `size`; waits for no other process. */
    fy_status_t (*communicator_open)(void *dev, const void *id, int rank, int size,
                                     void **out_communicator);
    /* *out_done is 1 if it is connected and the last call is on its stream. Does not wait. */
    fy_status_t (*communicator_test)(void *communicator, int *out_done);
    /* Submits a call, after communicator_test has reported that the last one is done. */
    fy_status_t (*communicator_call)(void *communicator, void *stream,
                                     const fy_backend_collective_t *call);
    /* Ends and frees it. DONE: its calls are complete, on all ranks. IDLE: aborts; no call of this
     * rank runs. RUNNING: aborts, and marks `dev` as lost, because a call may run. */
    void (*communicator_close)(void *communicator, fy_backend_closing_t closing);
} fy_backend_t;

/* The one symbol of a plugin: `fy_backend_open`. Called once; *out_backend lives as long as the
 * process.
 * Fails: UNSUPPORTED (another ABI: names it), UNAVAILABLE (no driver: lists the attempts). */
typedef fy_status_t (*fy_backend_open_fn)(const fy_host_api_t *host, uint32_t abi,
                                          const fy_backend_t **out_backend);
#define FY_BACKEND_OPEN_SYMBOL "fy_backend_open"

#ifdef __cplusplus
}
#endif
#endif
