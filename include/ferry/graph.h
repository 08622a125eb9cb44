/* Graphs: a step recorded once and replayed as one request. Recording runs the checks of the op
 * calls and makes their results, but submits nothing. A replay submits the calls in the recorded
 * order, some as one launch (fy_graph_explain), on the stream that is current at the replay. */
#ifndef FERRY_GRAPH_H_
#define FERRY_GRAPH_H_

#include <ferry/stream.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a replay reaches the device. The bytes are the same. */
typedef enum fy_graph_path {
    /* one launch or copy for each call: if the device has no graphs, and for the first replay */
    FY_GRAPH_CALLS,
    /* one request: the device keeps the calls (cuda: a CUDA graph), from the second replay on */
    FY_GRAPH_DEVICE
} fy_graph_path_t;

typedef struct fy_graph_info {
    size_t struct_size;
    fy_device_t *device;
    uint64_t requests;      /* op calls in it */
    uint64_t uploads;       /* transfers in it, counted again by each replay */
    uint64_t upload_nbytes; /* their payload */
    uint64_t pool_nbytes;   /* device memory of the graph's pool */
    uint64_t replays;       /* so far */
    fy_graph_path_t path;   /* of the next replay; the second replay may change it */
    const char *reason;     /* with FY_GRAPH_CALLS: the reason; else "". Valid as long as the
                             * graph */
    uint64_t chains;        /* launches of several elementwise calls (docs/graphs.md) */
    uint64_t fused_calls;   /* calls in them */
    uint64_t dropped_calls; /* calls whose results nothing can read; replays skip them */
    /* of the pool during the recording; pool_nbytes does not have what chains and dropped calls
     * leave unused */
    uint64_t recorded_pool_nbytes;
} fy_graph_info_t;
#define FY_GRAPH_INFO_INIT FY_ZEROED_(graph_info)

/* From now on this thread's requests on `device` are recorded and not run. The end of the innermost
 * scope discards a recording that was not ended; not that of fy_scope_begin_unowned.
 * Tensors made inside use the graph's memory, which lasts as long as the graph or one of them. To
 * read them before the first replay fails with INVALID_ARGUMENT.
 * Uploads inside must be FY_HOST_BORROW into existing tensors. Each replay reads the source again;
 * wait for the replay's ticket. Calls that block, other transfers and replays of other graphs fail
 * with UNSUPPORTED inside.
 * Fails: BUSY (this thread records already), INVALID_ARGUMENT, OUT_OF_MEMORY. */
FY_API_STATUS fy_graph_begin(fy_device_t *device);
/* Ends the recording; the graph belongs to the innermost scope. Fails: INVALID_ARGUMENT (none is
 * running); the first failure of an op, a new tensor or a transfer inside, and then there is no
 * graph. */
FY_API_STATUS fy_graph_end(fy_graph_t **out_graph);
/* Runs the graph: reads and writes the current bytes of the recorded tensors, ordered like one op
 * that reads and writes all of them. Counts as one request and allocates nothing. The second replay
 * passes the calls to a device that keeps graphs; later ones are one request for it
 * (docs/graphs.md).
 * out_ticket may be NULL. Any thread, one at a time. Fails: as the recorded calls; UNSUPPORTED (a
 * tape of this thread records, and they use a storage with bytes that depend on a watched
 * tensor). */
FY_API_STATUS fy_graph_replay(fy_graph_t *graph, fy_ticket_t *out_ticket);
FY_API_STATUS fy_graph_query(const fy_graph_t *graph, fy_graph_info_t *out_info); /* figures */
/* Calls `say` once for each chain and for each call outside of chains, in the order of replays.
 * Keys: "chain", "call", "dropped". The value names the calls by their numbers, from 1 on, and
 * ops, and has the reason why a call is outside. */
FY_API_STATUS fy_graph_explain(const fy_graph_t *graph, fy_fact_fn say, void *user);
/* Destroys the handle; a running replay completes. Tensors made inside keep their memory. NULL is
 * ignored. */
FY_API void fy_graph_destroy(fy_graph_t *graph);
/* Takes the handle out of its scope: it is yours to destroy. */
FY_API void fy_graph_keep(fy_graph_t *graph);

#ifdef __cplusplus
}
#endif
#endif
