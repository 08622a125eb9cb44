/* Groups: processes that run one program together, one device each, and the calls in which all of
 * them take part. mpirun or srun starts the processes, and MPI carries the bytes; Ferry does
 * neither. In libferry_dist. docs/distributed.md has an example.
 *
 * These rules hold for all calls of a group but fy_group_open, _query and _close:
 *   1. Every rank makes the same calls in the same order, each with the same dtype, shape and
 *      options. An asynchronous call has its place where it is made. fy_group_send and _receive
 *      concern two ranks only.
 *   2. A call waits for the other ranks. It returns when the tensor may be read and written; a
 *      result on a device is ready for ops as after fy_tensor_upload_into. The same call with
 *      _async at its end returns a ticket at once. Until the ticket is done, the tensors obey the
 *      rules of ferry/external.h. Calls run in the order in which they were made.
 *   3. Tensors are contiguous. Those on the host are sent from where they are. Those on another
 *      device are downloaded to page-locked memory, results uploaded: both are heavy, counted and
 *      guarded as such. fy_tensor_download_into is a sync. With one rank, a call in place moves
 *      nothing. The bytes of calls are `collective` in the ledger, in guards and in budgets.
 *   4. Sums are made in the order of the ranks. Their bits are the same on every rank, in every
 *      run with as many ranks, and with every MPI.
 *   5. All ranks first compare their calls. If these differ, every rank fails with
 *      INVALID_ARGUMENT, whose text has both calls, and no tensor has changed.
 *   6. A rank that does not take part before the deadline fails the call with RANK_LOST. So does
 *      one that is silent: each rank sends a beat to each other one every second, also while it
 *      computes. A rank that has closed its group fails the call within seconds. The text has the
 *      lost rank's number, host, process and last call; all ranks name the same one. Bytes of the
 *      call's result are undefined then, and are not freed before the process ends. All other
 *      tensors are as before.
 *   7. After 5 and 6, after an error of MPI (IO), and after an asynchronous call that fails on this
 *      rank alone (a transfer, a guard), the group is broken: each further call and each ticket
 *      fails with the same error. The other ranks lose this one. fy_group_close still works.
 *   8. The group is of the process that opened it. In a child of a fork all calls, and
 *      fy_group_query, fail with UNSUPPORTED, and fy_group_close does nothing. */
#ifndef FERRY_DIST_H_
#define FERRY_DIST_H_

#include <ferry/external.h>
#include <ferry/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* owned by the caller, never by a scope; used by one thread at a time */
typedef struct fy_group fy_group_t;

typedef struct fy_group_options {
    size_t struct_size;
    /* how long a call waits for another rank; FY_FOREVER: no deadline */
    uint64_t deadline_ns;
    /* how long a rank may send no beat: more than 2 s; 0: 8 s; FY_FOREVER: any time */
    uint64_t silence_ns;
} fy_group_options_t;
#define FY_GROUP_OPTIONS_INIT FY_DEFAULTS_(group_options, .deadline_ns = 60000000000u)
FY_API void fy_group_options_init(fy_group_options_t *options, size_t nbytes);

/* The group of all processes that were started together. Started alone, it has one rank and needs
 * no MPI. Each MPI has an ABI, and so libferry_dist has a plugin for each of them: $FERRY_MPI
 * (openmpi, mpich) chooses one, else the variables that the launcher sets (OMPI_COMM_WORLD_SIZE,
 * PMIX_RANK: openmpi; PMI_RANK, PMI_SIZE: mpich). Waits for all ranks. options may be NULL.
 * Initialises MPI, in a thread and with MPI_THREAD_SERIALIZED, if the program has not. If that
 * takes longer than deadline_ns, a rank has ended before: RANK_LOST, without its number. Another
 * call then goes on waiting. A program that calls MPI itself initialises it first, with
 * MPI_THREAD_MULTIPLE; with less, the group has no threads: asynchronous calls then run inside the
 * call, and this rank sends beats only while a call waits: it is not lost if it is silent. An MPI
 * without threads must be initialised so.
 * Fails: INVALID_ARGUMENT (silence_ns), UNAVAILABLE (no plugin, or WORLD_SIZE or
 * SLURM_STEP_NUM_TASKS announce several processes without MPI), BUSY (a group is open), UNSUPPORTED
 * (MPI has been finalised), RANK_LOST, IO. */
FY_API_STATUS fy_group_open(const fy_group_options_t *options, fy_group_t **out_group);
/* Waits for asynchronous calls and, after fy_group_use_device, until all ranks close, without a
 * deadline; a broken group waits for no rank. Calls MPI_Finalize if fy_group_open initialised MPI
 * and the group is not broken. This process can then open no further group with several ranks. NULL
 * is ignored. */
FY_API void fy_group_close(fy_group_t *group);

typedef struct fy_group_info {
    size_t struct_size;
    int rank, size;  /* 0 <= rank < size */
    int local_rank;  /* among the ranks of this host: device N is "cuda:N" or "sim:N" */
    int is_broken;   /* rule 7 */
    char engine[64]; /* "Open MPI v4.1.4"; "" for one rank without MPI */
    uint64_t calls;  /* collective calls, sends and receives that succeeded */
    /* bytes of tensor elements that this rank has sent to and received from others */
    uint64_t sent_nbytes, received_nbytes;
    int has_threads;   /* 1: asynchronous calls and beats run beside the caller */
    int64_t is_direct; /* 1: calls go from device to device: fy_group_use_device */
    char reason[128];  /* why not, with the rank; "": one rank, or no fy_group_use_device */
} fy_group_info_t;
#define FY_GROUP_INFO_INIT FY_ZEROED_(group_info)
/* Fails: INVALID_ARGUMENT, UNSUPPORTED (rule 8). */
FY_API_STATUS fy_group_query(const fy_group_t *group, fy_group_info_t *out_info);

/* All ranks call it, each with its device. From now on tensors on these devices go from device
 * to device by the library of their vendor (NCCL for cuda, ferry/communicator.h), if every rank's
 * device has it and no two ranks use one card; else across the host, as without this call. NCCL
 * adds in another order (rule 4), and may divide before it adds; maxima cross the host, because
 * NCCL's may drop NaN. If a rank is lost while a call runs on devices, the others lose theirs, with
 * all tensors there: DEVICE_LOST. fy_ddp_create calls it unless the program has. The group keeps
 * the device open, if calls are direct. Fails: INVALID_ARGUMENT (the group has a device), as the
 * rules above and as fy_communicator_open. */
FY_API_STATUS fy_group_use_device(fy_group_t *group, fy_device_t *device);

typedef enum fy_group_reduce {
    FY_GROUP_SUM,
    FY_GROUP_MEAN, /* the sum, divided by the number of ranks; float dtypes */
    FY_GROUP_MAX   /* NaN if one of the values is */
} fy_group_reduce_t;

/* In place: each element becomes the sum (mean, maximum) over the ranks. F32, F64, I32, I64. Of n
 * ranks each sends 2 (n - 1) / n of the tensor's bytes: reduce-scatter, all-gather.
 * Fails: DTYPE_MISMATCH, INVALID_ARGUMENT, as the rules above. */
FY_API_STATUS fy_group_all_reduce(fy_group_t *group, fy_tensor_t *tensor, fy_group_reduce_t reduce);
/* In place: the elements become those of rank `root`. Any dtype. */
FY_API_STATUS fy_group_broadcast(fy_group_t *group, fy_tensor_t *tensor, int root);
/* Rank i gets part i of the sum (mean, maximum) of `src`: src is [n * k, ...] with n ranks, and dst
 * is [k, ...]. Fails: SHAPE_MISMATCH, as fy_group_all_reduce. */
FY_API_STATUS fy_group_reduce_scatter(fy_group_t *group, fy_tensor_t *dst, fy_tensor_t *src,
                                      fy_group_reduce_t reduce);
/* dst [n * k, ...] becomes the src [k, ...] of all n ranks, in their order. Any dtype. Fails:
 * SHAPE_MISMATCH. */
FY_API_STATUS fy_group_all_gather(fy_group_t *group, fy_tensor_t *dst, fy_tensor_t *src);
/* To and from another rank, which calls the other function with the same dtype and shape. */
FY_API_STATUS fy_group_send(fy_group_t *group, fy_tensor_t *src, int rank);
FY_API_STATUS fy_group_receive(fy_group_t *group, fy_tensor_t *dst, int rank);
/* The same calls, which return a ticket: rule 2. Fails: as ferry/external.h, and as the calls; what
 * concerns other ranks, and transfers, is on the ticket. {0, 0}: the call is done already. */
FY_API_STATUS fy_group_all_reduce_async(fy_group_t *group, fy_tensor_t *tensor,
                                        fy_group_reduce_t reduce, fy_ticket_t *out_ticket);
FY_API_STATUS fy_group_broadcast_async(fy_group_t *group, fy_tensor_t *tensor, int root,
                                       fy_ticket_t *out_ticket);
FY_API_STATUS fy_group_reduce_scatter_async(fy_group_t *group, fy_tensor_t *dst, fy_tensor_t *src,
                                            fy_group_reduce_t reduce, fy_ticket_t *out_ticket);
FY_API_STATUS fy_group_all_gather_async(fy_group_t *group, fy_tensor_t *dst, fy_tensor_t *src,
                                        fy_ticket_t *out_ticket);
FY_API_STATUS fy_group_send_async(fy_group_t *group, fy_tensor_t *src, int rank,
                                  fy_ticket_t *out_ticket);
FY_API_STATUS fy_group_receive_async(fy_group_t *group, fy_tensor_t *dst, int rank,
                                     fy_ticket_t *out_ticket);
/* Returns when every rank has called it. */
FY_API_STATUS fy_group_barrier(fy_group_t *group);
/* Fails on every rank with INVALID_ARGUMENT unless all have the same text; the first line that
 * differs is in the failure's text, of rank 0 and of the first rank with another one. The group
 * does not break. For options that have to be equal. */
FY_API_STATUS fy_group_compare(fy_group_t *group, const char *text);

#ifdef __cplusplus
}
#endif
#endif
