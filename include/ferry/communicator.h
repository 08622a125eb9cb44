/* Communicators: devices of several processes that exchange tensors by the library of their vendor
 * (NCCL for cuda), without the host. A group of ferry/dist.h makes one: fy_group_use_device. Use
 * this header if another launcher than MPI's starts your processes: one of them makes an id, and
 * your program sends it to the others.
 *
 *   rank 0       fy_communicator_id; sends the id to all ranks
 *   every rank   fy_communicator_open; fy_communicator_submit ...; fy_communicator_close
 *
 * All ranks make the same calls in the same order, with the same kind, dtype and shape. Nothing
 * compares them: after a difference, or when a rank ends, a call may run for ever, until
 * fy_communicator_abort. */
#ifndef FERRY_COMMUNICATOR_H_
#define FERRY_COMMUNICATOR_H_

#include <ferry/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Owned by the caller, never by a scope; keeps its device open. Used by one thread at a time, which
 * may be another one each time. Meanwhile other threads may use the device, and wait for it. */
typedef struct fy_communicator fy_communicator_t;

/* Writes a new id of FY_COMMUNICATOR_ID_NBYTES, which is 128. It serves for one communicator:
 * each rank opens it once. out_id NULL: only checks that the device supports communicators. The
 * other ranks wait for the id: send them a failure, too. Fails: UNSUPPORTED (its backend has no
 * such library, or did not find it), DEVICE_LOST, UNAVAILABLE. */
FY_API_STATUS fy_communicator_id(fy_device_t *device, void *out_id);

typedef struct fy_communicator_options {
    size_t struct_size;
    int rank, size; /* 0 <= rank < size */
    const void *id; /* the same on all ranks; copied */
    /* how long fy_communicator_open and _submit wait for other processes; FY_FOREVER: no limit */
    uint64_t deadline_ns;
    /* Called again and again while they wait, by the thread that waits. Must not use the
     * communicator. A failure ends the wait and is its result. NULL: none */
    fy_status_t (*on_wait)(void *user);
    void *user;
    /* 0: fy_communicator_submit counts and guards calls; 1: your program does, by
     * fy_ledger_collective and _moved (ferry/ledger.h) */
    int64_t is_counted;
} fy_communicator_options_t;
#define FY_COMMUNICATOR_OPTIONS_INIT \
    FY_DEFAULTS_(communicator_options, .size = 1, .deadline_ns = 60000000000u)
FY_API void fy_communicator_options_init(fy_communicator_options_t *options, size_t nbytes);

/* Connects `device` with those of the other ranks; waits until all have called it.
 * Fails: INVALID_ARGUMENT, RANK_LOST (the deadline), as fy_communicator_id, as on_wait. */
FY_API_STATUS fy_communicator_open(fy_device_t *device, const fy_communicator_options_t *options,
                                   fy_communicator_t **out_communicator);

/* Submits a call on the device's download engine, ordered by the tensors' bytes as a transfer is:
 * you may destroy dst and src at once. Kinds, and what `option`, dst and src are for each:
 * fy_collective_t (ferry/types.h). out_ticket may be NULL. The library connects two ranks at the
 * first call that needs it, so early calls wait, up to the deadline. Sums are in the library's
 * order, with the same bits on all ranks; a mean may divide before it adds.
 * Fails on this rank alone, and the others wait for it: INVALID_ARGUMENT (not contiguous,
 * read-only, shared storage that is not in place), DEVICE_MISMATCH, DTYPE_MISMATCH, SHAPE_MISMATCH,
 * REFUSED_BY_GUARD, UNSUPPORTED (this thread records a graph, or a tape has a gradient of src),
 * DEVICE_LOST, UNAVAILABLE (aborted), the fault of src's bytes. RANK_LOST (the deadline), a failure
 * of on_wait or of the library: dst is poisoned, and the communicator aborted. */
FY_API_STATUS fy_communicator_submit(fy_communicator_t *communicator, fy_collective_t kind,
                                     int option, fy_tensor_t *dst, fy_tensor_t *src,
                                     fy_ticket_t *out_ticket);
/* Makes the checks and the waits of fy_communicator_submit that need no other rank; submits and
 * counts nothing. For programs that compare their calls before they submit. Fails: as
 * fy_communicator_submit on this rank alone. */
FY_API_STATUS fy_communicator_prepare(fy_communicator_t *communicator, fy_collective_t kind,
                                      int option, fy_tensor_t *dst, fy_tensor_t *src);
/* Ends calls that run; later ones fail with UNAVAILABLE. If one was running, its results may be any
 * bytes and may have been used, so the device is lost: waits fail with DEVICE_LOST, whose text has
 * `reason` (copied). Another thread may wait for the device meanwhile. A second call does
 * nothing. */
FY_API void fy_communicator_abort(fy_communicator_t *communicator, const char *reason);
/* Waits until its calls are done and all ranks of this machine close, without a deadline: if one of
 * them has failed, abort first; then it does not wait. NULL is ignored. */
FY_API void fy_communicator_close(fy_communicator_t *communicator);

#ifdef __cplusplus
}
#endif
#endif
