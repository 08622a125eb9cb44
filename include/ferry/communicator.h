/* Communicators: devices of several processes that exchange tensors by the library of their vendor
 * (NCCL for cuda), without the host. A group of ferry/dist.h makes one: fy_group_use_device. Use
 * this header if something other than MPI brings your processes together: one of them makes an id,
 * and your program takes it to the others.
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

/* Owned by the caller, never by a scope; keeps its device open. Used by one thread at a time.
 * Meanwhile another thread may call fy_communicator_prepare, or wait for the device. */
typedef struct fy_communicator fy_communicator_t;

/* Writes a new id, of FY_COMMUNICATOR_ID_NBYTES, for one communicator. NULL: only checks whether
 * `device` can. Fails: UNSUPPORTED (its backend has no such library, or did not find it),
 * DEVICE_LOST, UNAVAILABLE. */
FY_API_STATUS fy_communicator_id(fy_device_t *device, void *out_id);

typedef struct fy_communicator_options {
    size_t struct_size;
    int rank, size; /* 0 <= rank < size */
    const void *id; /* the same on all ranks; copied */
    /* how long fy_communicator_open and _submit wait for other processes; FY_FOREVER: no limit */
    uint64_t deadline_ns;
    /* Called again and again while they wait. A failure ends the wait and is its result. NULL:
     * none. */
    fy_status_t (*on_wait)(void *user);
    void *user;
    /* 0: fy_communicator_submit counts and guards calls; 1: your program does it itself, by
     * fy_ledger_collective and _moved */
    int64_t is_counted;
} fy_communicator_options_t;
#define FY_COMMUNICATOR_OPTIONS_INIT \
    FY_DEFAULTS_(communicator_options, .size = 1, .deadline_ns = 60000000000u)
FY_API void fy_communicator_options_init(fy_communicator_options_t *options, size_t nbytes);

/* Connects `device` with those of the other ranks; waits until all have called it.
 * Fails: INVALID_ARGUMENT, RANK_LOST (the deadline), as fy_communicator_id, as on_wait. */
FY_API_STATUS fy_communicator_open(fy_device_t *device, const fy_communicator_options_t *options,
                                   fy_communicator_t **out_communicator);

/* Submits a call on the device's download engine, ordered by the tensors' bytes as a transfer is.
 * The first calls wait until other processes have connected. *out_ticket may be NULL. Sums are in
 * the library's order, with the same bits on all ranks; a mean may divide before it adds.
 * Fails, and the other ranks wait: INVALID_ARGUMENT (not contiguous, read-only, shared storage),
 * DEVICE_MISMATCH, DTYPE_MISMATCH, SHAPE_MISMATCH, REFUSED_BY_GUARD, UNSUPPORTED (this thread
 * records a graph, or a tape has a gradient of src), DEVICE_LOST, UNAVAILABLE (aborted), the fault
 * of src's bytes. RANK_LOST (the deadline), a failure of on_wait or of the library: dst is
 * poisoned, and the communicator aborted. */
FY_API_STATUS fy_communicator_submit(fy_communicator_t *communicator, fy_collective_t kind,
                                     int option, fy_tensor_t *dst, fy_tensor_t *src,
                                     fy_ticket_t *out_ticket);
/* Everything of fy_communicator_submit that can fail, or wait for the device, before other ranks
 * are concerned; submits and counts nothing. */
FY_API_STATUS fy_communicator_prepare(fy_communicator_t *communicator, fy_collective_t kind,
                                      int option, fy_tensor_t *dst, fy_tensor_t *src);
/* Ends calls that run; later ones fail with UNAVAILABLE. If one was running, its results may be any
 * bytes and may have been used, so the device is lost: waits fail with DEVICE_LOST, whose text has
 * `reason`. A second call does nothing. */
FY_API void fy_communicator_abort(fy_communicator_t *communicator, const char *reason);
/* Waits until its calls are done and until all ranks of this machine close; after an abort it waits
 * for none. NULL is ignored. */
FY_API void fy_communicator_close(fy_communicator_t *communicator);

#ifdef __cplusplus
}
#endif
#endif
