/* The ledger: every byte that crossed, every request, every sync. It is always on, and its sums are
 * exact.
 *   payload (nbytes): bytes of the tensors in transfer calls.
 *   wire (wire_nbytes): bytes that the executor copied, counted there; larger than the payload when
 *   views or tables were packed. */
#ifndef FERRY_LEDGER_H_
#define FERRY_LEDGER_H_

#include <ferry/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The path of a transfer; docs/transfers.md lists the conditions of each. */
#define FY_PATH_LIST(X)                                                            \
    X(HOST, host)           /* within host memory: to or from the device `host` */ \
    X(DIRECT, direct)       /* one copy, page-locked on the host's side */         \
    X(STAGED, staged)       /* chunk by chunk through the staging ring */          \
    X(COALESCED, coalesced) /* many small tensors packed into one copy */          \
    X(PEER, peer)           /* from device to device */                            \
    X(FILE, file)           /* between a file and a device, through the ring */
typedef enum fy_path {
#define X(name, text) FY_PATH_##name,
    FY_PATH_LIST(X)
#undef X
        FY_PATH_COUNT /* how many this header has */
} fy_path_t;
#define FY_PATH_CAPACITY 16 /* length of arrays indexed by path; never changes */
/* "staged". Static. */
FY_API const char *fy_path_name(fy_path_t path);

typedef struct fy_traffic {
    /* transfers requested; a call for many tensors counts each */
    uint64_t count;
    uint64_t nbytes;      /* payload */
    uint64_t wire_nbytes; /* bytes that the executor copied */
    uint64_t copies;      /* pieces: DMAs, where the device has them */
    /* wall time that the host spent waiting in such calls, for ring space or for the bytes */
    uint64_t host_blocked_ns;
    uint64_t by_path[FY_PATH_CAPACITY]; /* count by path */
} fy_traffic_t;

typedef struct fy_ledger_totals {
    size_t struct_size;
    fy_traffic_t upload, download, peer;
    uint64_t requests; /* ops submitted: the light requests. Views submit nothing */
    uint64_t syncs;    /* calls whose comment begins with "Blocks" */
    uint64_t sync_ns;  /* wall time spent in them */
    /* calls to a backend's allocator or for page-locked memory; cache hits and plain host memory do
     * not count */
    uint64_t device_allocs;
    /* requests that waited because the host was too far ahead of the device (the run-ahead bound, a
     * full transfer queue). Back-pressure is not a sync: the caller requests nothing from the
     * device */
    uint64_t throttles;
    uint64_t throttle_ns; /* wall time of these waits */
    /* Calls of a group of processes (ferry/dist.h). nbytes: of the call's larger tensor;
     * wire_nbytes: what this process sent to others, with the descriptions of calls; copies: the
     * messages that it sent */
    fy_traffic_t collective;
} fy_ledger_totals_t;
#define FY_LEDGER_TOTALS_INIT FY_ZEROED_(ledger_totals)

/* Exact totals of a scope path ("train/step": all its instances, on all threads, with the scopes
 * inside it); NULL is the whole process.
 * An unknown path gives zeros. Fails: INVALID_ARGUMENT. Cost: walks the scope names. */
FY_API_STATUS fy_ledger_query(const char *scope_path, fy_ledger_totals_t *out_totals);
/* Calls `fn` once for each scope path that has figures, with that path's totals (inner scopes
 * included). Parents come first; numbers in names are in numeric order.
 * `path` is "" for the whole process and is valid during the call only. `fn` must not begin or end
 * scopes. Does nothing if `fn` is NULL. */
FY_API void fy_ledger_walk(void (*fn)(void *user, const char *path,
                                      const fy_ledger_totals_t *totals),
                           void *user);

/* Writes the totals of every scope path to the file `path`: FY_LEDGER_TEXT is a table, _JSON one
 * document, _CSV one line a path.
 * Fails: IO (the system's reason), INVALID_ARGUMENT. */
typedef enum fy_ledger_format { FY_LEDGER_TEXT, FY_LEDGER_JSON, FY_LEDGER_CSV } fy_ledger_format_t;
FY_API_STATUS fy_ledger_write(const char *path, fy_ledger_format_t format);

/* From now on writes every event of the process (scopes, ops, transfers, waits, allocations,
 * dependencies) to the file `path`, one JSON object a line (docs/internals/events.md). NULL ends
 * the recording and closes the file. $FERRY_RECORD=path records from the first call on.
 * Never blocks the caller: a thread writes the events of a bounded ring. Events that do not fit are
 * dropped; their number is in the file's last line. "%p" in `path` becomes the process's number;
 * ".gz" at its end: compressed. Exit ends a recording; the child of a fork does not record.
 * Fails: IO (NULL: the file is incomplete); BUSY (a recording is running, by fy_ledger_record or
 * the environment); INVALID_ARGUMENT (empty, or longer than 4095 bytes); UNSUPPORTED (.zst);
 * OUT_OF_MEMORY. */
FY_API_STATUS fy_ledger_record(const char *path);

/* For libraries that exchange bytes with other processes, as libferry_dist: counts a call of
 * `nbytes` payload bytes in this thread's scope, before it moves any. `what` names it in refusals.
 * Fails: REFUSED_BY_GUARD; then nothing is counted. */
FY_API_STATUS fy_ledger_collective(const char *what, uint64_t nbytes);
/* What it moved: bytes and messages sent, and the time that it waited. */
FY_API void fy_ledger_collective_moved(uint64_t wire_nbytes, uint64_t copies, uint64_t blocked_ns);
/* For the event file only: this process, rank `rank` of a group, has run call `number` of that
 * group, from start_ns of CLOCK_MONOTONIC to now, with this result. */
FY_API void fy_ledger_collective_ran(const char *what, int rank, uint64_t number, uint64_t start_ns,
                                     fy_status_t status);

#ifdef __cplusplus
}
#endif
#endif
