/* Inside a group. group.c opens and closes it, call.c has the public calls, collective.c what each
 * moves, worker.c the group's thread, exchange.c messages with a deadline, beat.c ranks that
 * are silent, agree.c compares calls, staging.c has the bytes of tensors on the host, native.c
 * calls that stay on devices.
 *
 * Two threads use a group: the caller's and the group's own. `engine` is held by the one that calls
 * the transport; it guards all fields without another comment. */
#ifndef FERRY_DIST_GROUP_H_
#define FERRY_DIST_GROUP_H_

#include <stdatomic.h>
#include <stdbool.h>

#include <ferry/communicator.h>
#include <ferry/dist.h>
#include <ferry/external.h>

#include "dist/transport.h"
#include "runtime/base/posix.h"

#define FYD_FAIL(code, ...) fy_error_set(FY_STATUS_##code, __FILE__, __LINE__, __VA_ARGS__)

/* Kinds of calls behind those of fy_collective_t. */
enum { FYD_BARRIER = FY_COLLECTIVE_RECEIVE + 1, FYD_USE_DEVICE, FYD_CLOSING };

/* One call, as the ranks compare it; sent as it is between processes of one program. */
typedef struct fyd_call {
    uint64_t number; /* of the rank's calls: 1, 2, ...; 0: none yet */
    int32_t kind, dtype;
    int32_t option; /* a fy_group_reduce_t, the root, the other rank */
    int32_t rank;   /* of the tensor */
    int64_t dims[FY_MAX_RANK];
    int64_t is_native; /* from device to device: fyd_is_native */
} fyd_call_t;

/* What a rank sends to each other rank every second. */
typedef struct fyd_beat {
    uint64_t number;   /* of the call that it runs, or ran last */
    int32_t waits_for; /* the rank for which that call waits; -1: none */
    int32_t lost;      /* the rank whose loss ended its group; -1: none */
} fyd_beat_t;

typedef struct fyd_peer {
    char host[FYD_NAME_SIZE];
    int64_t process;
    int64_t beats;   /* 1: if silent, it is lost */
    fyd_call_t last; /* that this rank has seen */
} fyd_peer_t;

/* The beats from and to one rank. MPI owns a buffer while its request is open. */
typedef struct fyd_watch {
    fyd_beat_t in, out, heard; /* heard: the last one that came */
    void *in_request, *out_request;
    uint64_t silent_ns; /* for so long, in time during which this rank polled */
} fyd_watch_t;

typedef struct fyd_message {
    int peer;
    bool is_send;
    void *data;
    uint64_t nbytes; /* 0: nothing is sent */
    void *request;   /* of the transport; NULL: done */
} fyd_message_t;

struct fyd_work;

struct fy_group {
    fyd_transport_t transport;
    uint64_t deadline_ns, silence_ns;
    pthread_mutex_t engine;
    fyd_call_t call; /* the one that runs, or the last */
    fyd_peer_t *peers;
    fyd_watch_t *watches;
    uint64_t beaten_ns;      /* when the beats were sent last */
    fyd_call_t *calls;       /* of all ranks, for agree.c */
    fyd_message_t *messages; /* two for each rank */
    char *inbox, *outbox;    /* FYD_SLOT bytes for each rank: its call, and a small tensor */
    uint64_t *packed;        /* bytes of tensors in each slot of outbox */
    char *scratch;           /* FYD_PIECE bytes for each rank */
    const void **sources;    /* of a sum, one for each rank */
    uint64_t ncalls, sent_nbytes, received_nbytes;
    uint64_t wire_nbytes, nmessages, blocked_ns; /* sent, and waited, not yet in the ledger */
    char reason[512];                            /* why it is broken; written before */
    _Atomic int broken;                          /* a status; OK: it is not. Read by any thread */
    /* native.c; NULL: fy_group_use_device was not called, calls cross the host. The caller's
     * thread writes them while no work is queued */
    fy_device_t *device;
    fy_communicator_t *communicator;
    fy_ticket_t last_native; /* of the last call from device to device */
    char not_direct[128];    /* why there is no communicator; "": it is not known */
    /* worker.c; used by the caller's thread */
    pthread_t worker, heart;
    bool has_worker, has_heart;
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t changed, closing;
    struct fyd_work *first, *last; /* queued */
    bool is_running, is_paused, is_closing;
};

enum {
    FYD_PIECE = 256 << 10, /* bytes of a tensor that go to one rank at a time: two fit in a cache */
    FYD_SMALL = 8 << 10,   /* tensors up to here are sent with the call itself */
    FYD_SLOT = FYD_SMALL + 128
};
_Static_assert(sizeof(fyd_call_t) <= FYD_SLOT - FYD_SMALL && sizeof(fyd_call_t) % 8 == 0,
               "elements behind a call are aligned");

/* ---- exchange.c ---- */

/* Waits between two polls. `round`: how many polls have found nothing. At first it returns at once,
 * then it yields, then it sleeps for 50 us. */
void fyd_pause(uint64_t round);
/* Sends and receives all messages, or breaks the group: RANK_LOST, IO. */
fy_status_t fyd_exchange(fy_group_t *group, fyd_message_t *messages, size_t count);
/* Adds what was moved since the last call to the ledger. */
void fyd_account(fy_group_t *group);
/* Records the error of this thread as the group's, unless it is broken already: then reports to the
 * other ranks that `lost` is lost (-1: reports nothing), and aborts calls on devices. Returns the
 * status of this error. */
fy_status_t fyd_break(fy_group_t *group, int lost);
/* OK, or the error of the broken group. */
fy_status_t fyd_check(fy_group_t *group);
/* In a child of a fork, which has none of the group's threads: UNSUPPORTED. */
fy_status_t fyd_check_process(const fy_group_t *group, const char *call);

/* ---- beat.c ---- */

/* Receives beats and, once a period (a second), sends them. Breaks the group if a rank is silent
 * for too long, or another rank has lost one. `waits_for`: as in a beat. */
fy_status_t fyd_beat(fy_group_t *group, int waits_for);
/* Whether the group is broken, and this rank got no beat of `rank` in the last two periods. */
bool fyd_is_lost(fy_group_t *group, int rank);
/* The rank to blame for a missing message of `rank`: it may itself wait for another one. */
int fyd_blame(const fy_group_t *group, int rank);
/* The group broke because `rank` is lost: reports it to the others. This thread's error stays. */
void fyd_beat_lost(fy_group_t *group, int rank);
void fyd_beat_close(fy_group_t *group);

/* ---- agree.c ---- */

/* "group_all_reduce": the public function. */
const char *fyd_call_name(const fyd_call_t *call);
static inline bool fyd_reduces(const fyd_call_t *call)
{
    return call->kind == FY_COLLECTIVE_ALL_REDUCE || call->kind == FY_COLLECTIVE_REDUCE_SCATTER;
}
/* Concerns this rank and `option` only. */
static inline bool fyd_is_pair(const fyd_call_t *call)
{
    return call->kind == FY_COLLECTIVE_SEND || call->kind == FY_COLLECTIVE_RECEIVE;
}
/* Writes "all_reduce 17 of f32 [10, 3]"; "open": no call was made yet. */
void fyd_call_text(const fyd_call_t *call, char *text, size_t size);
/* Compares group->call with that of every rank; `peer` >= 0: with that rank's only. The bytes in
 * outbox go along, and those of the others are in inbox: fyd_inbox. */
fy_status_t fyd_agree(fy_group_t *group, int peer);
static inline char *fyd_inbox(const fy_group_t *group, int rank)
{
    return group->inbox + (size_t)rank * FYD_SLOT + sizeof(fyd_call_t);
}
static inline char *fyd_outbox(const fy_group_t *group, int rank)
{
    return group->outbox + (size_t)rank * FYD_SLOT + sizeof(fyd_call_t);
}

/* ---- staging.c: a tensor whose elements are on the host during a call ---- */

typedef struct fyd_operand {
    fy_tensor_t *tensor, *staging; /* staging NULL: the tensor is on the host */
    bool is_own;                   /* `tensor` is a handle of the operand's */
    fy_access_t access;
    fy_tensor_info_t info;
    void *data;
} fyd_operand_t;

/* `operand` has a tensor only; NULL: nothing is done. Fails: INVALID_ARGUMENT (not contiguous,
 * read-only). `is_own`: uses another handle, which no scope ends. */
fy_status_t fyd_operand_open(const char *call, fyd_operand_t *operand, fy_access_t access,
                             bool is_own);
/* Makes its elements available on the host: maps them, or allocates what fyd_operand_read and
 * _write need. */
fy_status_t fyd_operand_stage(fyd_operand_t *operand);
fy_status_t fyd_operand_read(fyd_operand_t *operand); /* downloads */
/* Uploads. {0, 0}: no upload was needed. */
fy_status_t fyd_operand_write(fyd_operand_t *operand, fy_ticket_t *out_ticket);
/* is_used: MPI may still use the bytes; they are not freed. */
void fyd_operand_close(fyd_operand_t *operand, bool is_used);

/* ---- call.c, collective.c, worker.c ---- */

typedef struct fyd_work {
    bool in_place;           /* src is written; dst has no tensor */
    bool is_used;            /* after a failure: MPI may still use the elements */
    fyd_operand_t src, dst;  /* tensor NULL: none */
    fyd_call_t call;         /* without its number */
    fy_ticket_t ticket;      /* is_native: of the request that has run last */
    uint64_t start_ns;       /* of the call; 0: asynchronous, it starts when the worker takes it */
    fy_external_t *external; /* asynchronous; NULL: the caller waits */
    struct fyd_work *next;
} fyd_work_t;

/* Compares the calls and moves the bytes between the operands' elements on the host. */
fy_status_t fyd_move(fy_group_t *group, fyd_work_t *work);
static inline fy_tensor_t *fyd_written(const fyd_work_t *work)
{
    return work->in_place ? work->src.tensor : work->dst.tensor;
}
/* The whole call: download, exchange, upload. Closes the operands. */
fy_status_t fyd_work_run(fy_group_t *group, fyd_work_t *work, fy_ticket_t *out_ticket);
/* Closes the operands; returns `status`, whose error stays. */
fy_status_t fyd_work_close(fyd_work_t *work, fy_status_t status);

fy_status_t fyd_heart_start(fy_group_t *group);
/* At the first asynchronous call; does nothing at later ones. */
fy_status_t fyd_worker_start(fy_group_t *group);
/* Runs queued work, then ends the threads. */
void fyd_threads_stop(fy_group_t *group);
void fyd_worker_submit(fy_group_t *group, fyd_work_t *work);
/* Waits until no work is queued or runs; the caller then runs its own until fyd_worker_resume. */
void fyd_worker_pause(fy_group_t *group);
void fyd_worker_resume(fy_group_t *group);

/* out[i] = the reduction of sources[rank][i] over `size` ranks, in their order; out may be one of
 * the sources. */
void fyd_reduce(fy_dtype_t dtype, fy_group_reduce_t reduce, void *out, const void *const *sources,
                int size, uint64_t nelem);

/* ---- native.c ---- */

/* Does this call go from device to device? The operands are open. */
bool fyd_is_native(const fy_group_t *group, const fyd_work_t *work);
/* Everything that can fail, or wait for the device, before other ranks are concerned. */
fy_status_t fyd_native_prepare(fy_group_t *group, const fyd_work_t *work);
/* Submits it; the calls are compared and the engine is held. */
fy_status_t fyd_native_run(fy_group_t *group, fyd_work_t *work);
/* The group is broken: calls that run on the device end. */
void fyd_native_abort(fy_group_t *group);
/* Waits until all ranks close, or the group breaks. This thread's error stays. */
void fyd_native_close(fy_group_t *group);

/* ---- group.c ---- */

/* A group on a transport that is open. After a failure *out_group may be a group that has to be
 * ended. */
fy_status_t fyd_group_make(const fyd_transport_t *transport, const fy_group_options_t *options,
                           fy_group_t **out_group);
/* Ends its threads and closes the transport. false: it is broken and not freed, because MPI may
 * still use its memory. */
bool fyd_group_end(fy_group_t *group);
void fyd_group_free(fy_group_t *group);

#endif
