/* The ledger: every byte that crossed, every request, every sync. Always on; sums are exact.
 *   payload (nbytes): bytes of the tensors you asked to move.
 *   wire (wire_nbytes): bytes the executor really copied, counted in the executor; larger when views or tables were packed. */
#ifndef FERRY_LEDGER_H_
#define FERRY_LEDGER_H_

#include <ferry/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fy_traffic {
    uint64_t count, nbytes, wire_nbytes;
    uint64_t host_blocked_ns; /* real time that the host spent inside such calls waiting, for ring space or for the bytes */
} fy_traffic_t;

typedef struct fy_ledger_totals {
    size_t struct_size;
    fy_traffic_t upload, download, peer;
    uint64_t requests;      /* ops submitted: the light requests. Views submit nothing */
    uint64_t syncs;         /* calls marked Blocks */
    uint64_t sync_ns;       /* real time spent in them */
    uint64_t device_allocs; /* calls to a backend's allocator or for page-locked memory; cache hits and plain host memory are none */
} fy_ledger_totals_t;
#define FY_LEDGER_TOTALS_INIT                                                                  \
    {                                                                                          \
        sizeof(fy_ledger_totals_t), { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, 0, 0, 0, 0 \
    }

/* Exact totals of a scope path ("train/step": all its instances, on all threads, with the scopes inside it); NULL is everything.
 * A path that never was gives zeros. Fails: INVALID_ARGUMENT. Cost: walks the scope names. */
FY_API_STATUS fy_ledger_query(const char *scope_path, fy_ledger_totals_t *out_totals);
/* Calls `fn` once for each scope path that has figures, parents first, numbers in names in
 * numeric order, with that path's own totals (inner scopes included).
 * `path` is "" for everything and is valid during the call only. `fn` must not begin or end scopes. */
FY_API void fy_ledger_walk(void (*fn)(void *user, const char *path, const fy_ledger_totals_t *totals), void *user);

#ifdef __cplusplus
}
#endif
#endif
