/* Inside a group. group.c opens and closes it, exchange.c moves messages, agree.c compares calls,
 * staging.c has the bytes of tensors on the host, collective.c is the calls. */
#ifndef FERRY_DIST_GROUP_H_
#define FERRY_DIST_GROUP_H_

#include <stdbool.h>
#include <stdint.h>

#include <ferry/dist.h>

#include "dist/transport.h"

#define FYD_FAIL(code, ...) fy_error_set(FY_STATUS_##code, __FILE__, __LINE__, __VA_ARGS__)

typedef enum fyd_kind {
    FYD_OPENING,
    FYD_ALL_REDUCE,
    FYD_BROADCAST,
    FYD_REDUCE_SCATTER,
    FYD_ALL_GATHER,
    FYD_SEND,
    FYD_RECEIVE,
    FYD_BARRIER
} fyd_kind_t;

/* One call, as the ranks compare it; sent as it is between processes of one program. */
typedef struct fyd_call {
    uint64_t number; /* of the rank's calls: 1, 2, ... */
    int32_t kind, dtype, option, rank;
    int64_t dims[FY_MAX_RANK];
} fyd_call_t;

typedef struct fyd_peer {
    char host[FYD_NAME_SIZE];
    int64_t process;
    fyd_call_t last; /* that this rank has seen; kind FYD_OPENING: none */
} fyd_peer_t;

typedef struct fyd_message {
    int peer;
    bool is_send;
    void *data;
    uint64_t nbytes; /* 0: nothing is sent */
    void *request;   /* of the transport; NULL: done */
} fyd_message_t;

struct fy_group {
    fyd_transport_t transport;
    uint64_t deadline_ns;
    fyd_call_t call; /* the one that runs, or the last */
    fyd_peer_t *peers;
    fyd_call_t *calls;       /* of all ranks, for agree.c */
    fyd_message_t *messages; /* two for each rank */
    char *scratch;           /* FYD_PIECE bytes for each rank */
    const void **sources;    /* of a sum, one for each rank */
    uint64_t ncalls, sent_nbytes, received_nbytes;
    uint64_t wire_nbytes, nmessages, blocked_ns; /* sent, and waited, not yet in the ledger */
    fy_status_t broken;                          /* OK: it is not */
    char reason[512];                            /* why */
};

/* Bytes of a tensor that go to one rank at a time: two pieces fit in a core's cache. */
#define FYD_PIECE ((uint64_t)256 << 10)

/* Sends and receives all messages, or breaks the group: RANK_LOST, IO. */
fy_status_t fyd_exchange(fy_group_t *group, fyd_message_t *messages, size_t count);
/* Adds what was moved since the last call to the ledger. */
void fyd_account(fy_group_t *group);
/* Records the error of this thread as the group's. Returns its status. */
fy_status_t fyd_break(fy_group_t *group);

/* Writes "all_reduce 17 of f32 [10, 3]". */
void fyd_call_text(const fyd_call_t *call, char *text, size_t size);
/* Compares group->call with that of every rank; `peer` >= 0: with that rank's only. */
fy_status_t fyd_agree(fy_group_t *group, int peer);

/* A tensor whose elements are on the host during a call. */
typedef struct fyd_operand {
    fy_tensor_t *tensor, *staging; /* staging NULL: the tensor is on the host */
    fy_tensor_info_t info;
    void *data;
} fyd_operand_t;

/* Fails: INVALID_ARGUMENT (not contiguous). Allocates what fyd_operand_read and _write need. */
fy_status_t fyd_operand_open(const char *call, fy_tensor_t *tensor, fy_access_t access,
                             fyd_operand_t *out);
fy_status_t fyd_operand_read(fyd_operand_t *operand);  /* downloads */
fy_status_t fyd_operand_write(fyd_operand_t *operand); /* uploads */
/* is_used: MPI may still use the bytes; they are not freed. */
void fyd_operand_close(fyd_operand_t *operand, bool is_used);

/* out[i] = the reduction of sources[rank][i] over `size` ranks, in their order; out may be one of
 * the sources. */
void fyd_reduce(fy_dtype_t dtype, fy_group_reduce_t reduce, void *out, const void *const *sources,
                int size, uint64_t nelem);

#endif
