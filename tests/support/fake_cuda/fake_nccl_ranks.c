/* NCCL of the fake, for one device in each of several processes. Ranks meet in a file in shared
 * memory, whose name is the id, with a mailbox for each pair. Calls never wait: they return
 * FY__NCCL_IN_PROGRESS, and ncclCommGetAsyncError moves the bytes. Stricter than NCCL: one call at
 * a time, outside of groups, without `blocking`. */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/fake_cuda/fake_nccl.h"

enum { RANKS = 8, SLOT = 16 << 10 };

typedef struct mailbox {
    _Atomic uint32_t nbytes; /* 0: empty */
    char data[SLOT];
} mailbox_t;

typedef struct meeting {
    _Atomic int joined;
    mailbox_t boxes[RANKS][RANKS]; /* [from][to] */
} meeting_t;

typedef struct fake_nccl_link {
    meeting_t *meeting;
    char path[128];
    int size;
    fake_nccl_call_t call; /* FAKE_NCCL_NONE: none is in progress */
    /* per rank: what goes there and comes from there */
    const char *out[RANKS];
    char *in[RANKS];
    size_t out_nbytes[RANKS], in_nbytes[RANKS], sent[RANKS], received[RANKS];
    char *inputs; /* of a reduction, by rank */
} link_t;

#define VISIBLE                     __attribute__((visibility("default")))
#define X(name, result, parameters) VISIBLE result name parameters;
FY__NCCL_RANKS_LIST(X)
#undef X

/* ---- ranks meet ---- */

/* The last file that this process has made: its ranks may never have met. */
static char made[128];

__attribute__((destructor)) static void remove_made(void)
{
    if (made[0] != 0) unlink(made);
}

int ncclGetUniqueId(fy__nccl_id_t *out_id)
{
    int code = fake_enter(FAKE_ncclGetUniqueId);
    remove_made();
    memset(out_id, 0, sizeof *out_id);
    snprintf(out_id->bytes, sizeof out_id->bytes, "/dev/shm/fake-nccl-XXXXXX");
    const int file = code == 0 ? mkstemp(out_id->bytes) : -1;
    if (code == 0 && (file < 0 || ftruncate(file, sizeof(meeting_t)) != 0)) code = 2;
    if (file >= 0) close(file);
    memcpy(made, out_id->bytes, sizeof made);
    return fake_leave(code);
}

static meeting_t *meet(const char *path)
{
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return NULL;
    meeting_t *meeting = mmap(NULL, sizeof(meeting_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return meeting == MAP_FAILED ? NULL : meeting;
}

int ncclCommInitRankConfig(fy__nccl_comm_t *out_comm, int nranks, fy__nccl_id_t id, int rank,
                           fy__nccl_config_t *config)
{
    CUcontext context = NULL;
    int code = fake_enter_context(FAKE_ncclCommInitRankConfig, &context);
    if (code == 0 && (config->magic != 0xcafebeefu || config->size != sizeof *config ||
                      config->version < 21400 || config->blocking != 0 || nranks > RANKS ||
                      rank < 0 || rank >= nranks || context == NULL))
        code = 4;
    meeting_t *meeting = code == 0 ? meet(id.bytes) : NULL;
    if (code == 0 && meeting == NULL) code = 2;
    if (code != 0) return fake_leave(code);
    link_t *link = calloc(1, sizeof *link);
    link->meeting = meeting;
    link->size = nranks;
    memcpy(link->path, id.bytes, sizeof link->path - 1);
    *out_comm = fake_nccl_add(context->device, rank, NULL);
    (*out_comm)->link = link;
    atomic_fetch_add(&meeting->joined, 1);
    return fake_leave(FY__NCCL_IN_PROGRESS);
}

void fake_nccl_unlink(struct ncclComm *comm)
{
    unlink(comm->link->path); /* also of ranks that never met */
    munmap(comm->link->meeting, sizeof *comm->link->meeting);
    free(comm->link->inputs);
    free(comm->link);
}

/* ---- calls ---- */

static size_t width(int dtype)
{
    switch (dtype) {
    case FY__NCCL_BYTE: return 1;
    case FY__NCCL_I32:
    case FY__NCCL_F32: return 4;
    case FY__NCCL_I64:
    case FY__NCCL_F64: return 8;
    default: return 0;
    }
}

#define ADD(type, scale)                                                             \
    for (size_t i = 0; i < n; i++) {                                                 \
        type sum = (type)(((const type *)inputs)[i] * (scale));                      \
        for (int r = 1; r < size; r++)                                               \
            sum = (type)(sum + ((const type *)inputs)[(size_t)r * n + i] * (scale)); \
        ((type *)to)[i] = sum;                                                       \
    }                                                                                \
    break

/* In the order of the ranks; a mean divides first, as NCCL's does. */
static void add(void *to, const void *inputs, int dtype, int op, int size, size_t n)
{
    const double scale = op == FY__NCCL_MEAN ? 1.0 / size : 1.0;
    switch (dtype) {
    case FY__NCCL_I32: ADD(int32_t, 1);
    case FY__NCCL_I64: ADD(int64_t, 1);
    case FY__NCCL_F32: ADD(float, (float)scale);
    default: ADD(double, scale);
    }
}

static void plan_send(link_t *link, int rank, const char *data, size_t nbytes)
{
    link->out[rank] = data;
    link->out_nbytes[rank] = nbytes;
}

static void plan_receive(link_t *link, int rank, char *data, size_t nbytes)
{
    link->in[rank] = data;
    link->in_nbytes[rank] = nbytes;
}

/* $FAKE_NCCL_STOP is "RANK.N": that rank stops in its N-th call, whose bytes never come. */
static void stop_if_asked(const struct ncclComm *comm)
{
    static int ncalls;
    int rank = -1, nth = -1;
    const char *asked = getenv("FAKE_NCCL_STOP");
    if (asked == NULL || sscanf(asked, "%d.%d", &rank, &nth) != 2 || rank != comm->rank) return;
    if (++ncalls == nth) raise(SIGSTOP);
}

/* Who gets what. `own`: the bytes of nelem. */
static void plan(struct ncclComm *comm, const char *from, char *to, size_t own)
{
    link_t *link = comm->link;
    const fake_nccl_call_t *call = &link->call;
    for (int r = 0; r < link->size; r++) {
        link->sent[r] = link->received[r] = link->out_nbytes[r] = link->in_nbytes[r] = 0;
        const int is_self = r == comm->rank;
        switch (call->kind) {
        case FAKE_NCCL_ALL_REDUCE:
        case FAKE_NCCL_REDUCE_SCATTER: {
            const char *part = from + (call->kind == FAKE_NCCL_ALL_REDUCE ? 0 : (size_t)r * own);
            char *room = link->inputs + (size_t)r * own;
            if (is_self) memcpy(room, part, own);
            if (!is_self) plan_send(link, r, part, own), plan_receive(link, r, room, own);
            break;
        }
        case FAKE_NCCL_ALL_GATHER:
            if (is_self) memmove(to + (size_t)r * own, from, own);
            if (!is_self)
                plan_send(link, r, from, own), plan_receive(link, r, to + (size_t)r * own, own);
            break;
        case FAKE_NCCL_BROADCAST:
            if (comm->rank == call->peer && !is_self) plan_send(link, r, from, own);
            if (comm->rank != call->peer && r == call->peer) plan_receive(link, r, to, own);
            break;
        case FAKE_NCCL_SEND:
            if (r == call->peer) plan_send(link, r, from, own);
            break;
        default:
            if (r == call->peer) plan_receive(link, r, to, own);
        }
    }
}

int fake_nccl_submit(struct ncclComm *comm, CUstream stream, const fake_nccl_call_t *call)
{
    link_t *link = comm->link;
    const size_t own = call->nelem * width(call->dtype), size = (size_t)link->size;
    const int is_part = call->kind == FAKE_NCCL_REDUCE_SCATTER;
    const int is_sum = is_part || call->kind == FAKE_NCCL_ALL_REDUCE;
    const size_t in = is_part ? own * size : own;
    const size_t out = call->kind == FAKE_NCCL_ALL_GATHER ? own * size : own;
    if (own == 0 || fake_nccl_depth() != 0 || link->call.kind != FAKE_NCCL_NONE ||
        atomic_load(&link->meeting->joined) != link->size || call->peer < 0 ||
        call->peer >= link->size || (is_sum && call->dtype == FY__NCCL_BYTE))
        return 5;
    if (!fake_stream_is_valid(stream, fake_primary(comm->device))) return 4;
    const char *from = NULL;
    char *to = NULL;
    if (call->kind != FAKE_NCCL_RECEIVE) {
        from = fake_translate(comm->device, (uint64_t)(uintptr_t)call->from, in);
        if (from == NULL) return 1;
    }
    if (call->kind != FAKE_NCCL_SEND) {
        to = fake_translate(comm->device, (uint64_t)(uintptr_t)call->to, out);
        if (to == NULL) return 1;
    }
    stop_if_asked(comm);
    if (is_sum) link->inputs = malloc(own * size);
    link->call = *call;
    link->call.to = to;
    plan(comm, from, to, own);
    return FY__NCCL_IN_PROGRESS;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static int move_bytes(struct ncclComm *comm)
{
    link_t *link = comm->link;
    int open = 0;
    for (int r = 0; r < link->size; r++) {
        mailbox_t *out = &link->meeting->boxes[comm->rank][r];
        mailbox_t *in = &link->meeting->boxes[r][comm->rank];
        if (link->sent[r] < link->out_nbytes[r] && atomic_load(&out->nbytes) == 0) {
            const size_t n = least(SLOT, link->out_nbytes[r] - link->sent[r]);
            memcpy(out->data, link->out[r] + link->sent[r], n);
            link->sent[r] += n;
            atomic_store(&out->nbytes, (uint32_t)n);
        }
        const size_t n = link->received[r] < link->in_nbytes[r] ? atomic_load(&in->nbytes) : 0;
        if (n > 0) {
            memcpy(link->in[r] + link->received[r], in->data, n);
            link->received[r] += n;
            atomic_store(&in->nbytes, 0);
        }
        open |= link->sent[r] < link->out_nbytes[r] || link->received[r] < link->in_nbytes[r];
    }
    return open;
}

int fake_nccl_progress(struct ncclComm *comm)
{
    link_t *link = comm->link;
    fake_nccl_call_t *call = &link->call;
    if (atomic_load(&link->meeting->joined) < link->size) return FY__NCCL_IN_PROGRESS;
    unlink(link->path); /* all have it */
    if (call->kind == FAKE_NCCL_NONE) return 0;
    if (move_bytes(comm)) return FY__NCCL_IN_PROGRESS;
    if (link->inputs != NULL)
        add(call->to, link->inputs, call->dtype, call->op, link->size, call->nelem);
    free(link->inputs);
    link->inputs = NULL;
    call->kind = FAKE_NCCL_NONE;
    return 0;
}

static int run(enum fake_entry entry, struct ncclComm *comm, CUstream stream,
               const fake_nccl_call_t *call)
{
    int code = fake_enter(entry);
    if (code == 0) code = comm->link == NULL ? 5 : fake_nccl_submit(comm, stream, call);
    return fake_leave(code);
}

int ncclBroadcast(const void *from, void *to, size_t nelem, int dtype, int root,
                  fy__nccl_comm_t comm, CUstream stream)
{
    return run(FAKE_ncclBroadcast, comm, stream,
               &(fake_nccl_call_t){ FAKE_NCCL_BROADCAST, 0, dtype, root, nelem, from, to });
}

int ncclReduceScatter(const void *from, void *to, size_t nelem, int dtype, int op,
                      fy__nccl_comm_t comm, CUstream stream)
{
    return run(FAKE_ncclReduceScatter, comm, stream,
               &(fake_nccl_call_t){ FAKE_NCCL_REDUCE_SCATTER, op, dtype, 0, nelem, from, to });
}

int ncclAllGather(const void *from, void *to, size_t nelem, int dtype, fy__nccl_comm_t comm,
                  CUstream stream)
{
    return run(FAKE_ncclAllGather, comm, stream,
               &(fake_nccl_call_t){ FAKE_NCCL_ALL_GATHER, 0, dtype, 0, nelem, from, to });
}

int ncclSend(const void *from, size_t nelem, int dtype, int peer, fy__nccl_comm_t comm,
             CUstream stream)
{
    return run(FAKE_ncclSend, comm, stream,
               &(fake_nccl_call_t){ FAKE_NCCL_SEND, 0, dtype, peer, nelem, from, NULL });
}

int ncclRecv(void *to, size_t nelem, int dtype, int peer, fy__nccl_comm_t comm, CUstream stream)
{
    return run(FAKE_ncclRecv, comm, stream,
               &(fake_nccl_call_t){ FAKE_NCCL_RECEIVE, 0, dtype, peer, nelem, NULL, to });
}
