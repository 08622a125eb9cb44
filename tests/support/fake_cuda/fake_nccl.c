/* NCCL of the fake, for the devices of one process: communicators for sets of devices, groups of
 * calls, sums in the order of the ranks. Stricter than NCCL: a group must have a call of every rank
 * of a set, of one size and type, on a stream of the rank's own device, and buffers must lie there.
 * Next: fake_nccl_ranks.c. */
#include "tests/support/fake_cuda/fake_nccl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = FAKE_DEVICES, CALLS = 16 };

typedef struct fake_nccl_set {
    int count, alive;
} set_t;

typedef struct call {
    void *buffer;
    size_t nelem;
    int dtype;
    struct ncclComm *comm;
    CUstream stream;
} call_t;

static int64_t live;
static struct ncclComm *all[64];
static _Thread_local call_t calls[CALLS];
static _Thread_local int ncalls, depth;

int64_t fake_nccl_live(void) { return live; }

void fake_cuda_nccl_error(int code)
{
    fake_lock();
    for (int i = 0; i < 64; i++)
        if (all[i] != NULL) all[i]->error = code;
    fake_unlock();
}

#define VISIBLE                     __attribute__((visibility("default")))
#define X(name, result, parameters) VISIBLE result name parameters;
FY__NCCL_LIST(X)
#undef X

struct ncclComm *fake_nccl_add(int device, int rank, struct fake_nccl_set *set)
{
    struct ncclComm *comm = calloc(1, sizeof *comm);
    comm->device = device;
    comm->rank = rank;
    comm->set = set;
    int place = 0;
    while (place < 63 && all[place] != NULL) place++;
    all[place] = comm;
    live++;
    return comm;
}

int ncclGetVersion(int *version)
{
    int code = fake_enter(FAKE_ncclGetVersion);
    *version = 22703;
    return fake_leave(code);
}

int ncclCommInitAll(fy__nccl_comm_t *comms, int count, const int *devices)
{
    int code = fake_enter(FAKE_ncclCommInitAll);
    if (code == 0 && count < 1) code = 4;
    for (int i = 0; code == 0 && i < count; i++) {
        if (devices[i] < 0 || devices[i] >= FAKE_DEVICES || fake_primary(devices[i]) == NULL)
            code = 4;
        for (int k = 0; code == 0 && k < i; k++)
            if (devices[k] == devices[i]) code = 5;
    }
    set_t *set = code == 0 ? malloc(sizeof *set) : NULL;
    if (set != NULL) *set = (set_t){ count, count };
    for (int i = 0; code == 0 && i < count; i++) comms[i] = fake_nccl_add(devices[i], i, set);
    return fake_leave(code);
}

static int end(enum fake_entry entry, fy__nccl_comm_t comm)
{
    CUcontext context = NULL;
    int code = 0, place = 0;
    (void)fake_enter_release(entry, &context, &code);
    if (context == NULL) { /* NCCL would create that of device 0 */
        fake_count_misuse();
        code = 0;
    }
    while (place < 64 && all[place] != comm) place++;
    if (place == 64) {
        fake_count_misuse();
        return fake_leave(4);
    }
    all[place] = NULL;
    if (comm->link != NULL)
        fake_nccl_unlink(comm);
    else if (--comm->set->alive == 0)
        free(comm->set);
    free(comm);
    live--;
    return fake_leave(code);
}

int ncclCommDestroy(fy__nccl_comm_t comm) { return end(FAKE_ncclCommDestroy, comm); }
int ncclCommAbort(fy__nccl_comm_t comm)
{
    const char *seconds = getenv("FAKE_NCCL_SLOW_ABORT");
    if (seconds != NULL) sleep((unsigned)atoi(seconds));
    return end(FAKE_ncclCommAbort, comm);
}

int ncclCommGetAsyncError(fy__nccl_comm_t comm, int *error)
{
    int code = fake_enter(FAKE_ncclCommGetAsyncError);
    *error = comm->error;
    if (code == 0 && comm->error == 0 && comm->link != NULL) *error = fake_nccl_progress(comm);
    return fake_leave(code);
}

int ncclGroupStart(void)
{
    int code = fake_enter(FAKE_ncclGroupStart);
    if (code == 0 && depth++ == 0) ncalls = 0;
    return fake_leave(code);
}

int ncclAllReduce(const void *from, void *to, size_t nelem, int dtype, int op, fy__nccl_comm_t comm,
                  CUstream stream)
{
    int code = fake_enter(FAKE_ncclAllReduce);
    if (code == 0 && comm->link != NULL)
        return fake_leave(fake_nccl_submit(
            comm, stream,
            &(fake_nccl_call_t){ FAKE_NCCL_ALL_REDUCE, op, dtype, 0, nelem, from, to }));
    if (code == 0 && (from != to || op != FY__NCCL_SUM || dtype < FY__NCCL_F16 ||
                      dtype > FY__NCCL_BF16 || depth != 1 || ncalls == CALLS))
        code = 5; /* outside of a group, one thread would wait for itself */
    if (code == 0) calls[ncalls++] = (call_t){ to, nelem, dtype, comm, stream };
    return fake_leave(code);
}

int fake_nccl_depth(void) { return depth; }

static fy_dtype_t dtype_of(int dtype)
{
    return dtype == FY__NCCL_F64   ? FY_DTYPE_F64
           : dtype == FY__NCCL_F32 ? FY_DTYPE_F32
           : dtype == FY__NCCL_F16 ? FY_DTYPE_F16
                                   : FY_DTYPE_BF16;
}

/* The calls of one set, by rank. */
static int run(const call_t *const *ranks, int count)
{
    void *buffers[RANKS];
    const fy_dtype_t dtype = dtype_of(ranks[0] != NULL ? ranks[0]->dtype : 0);
    for (int r = 0; r < count; r++) {
        const call_t *call = ranks[r];
        if (call == NULL || call->nelem != ranks[0]->nelem || call->dtype != ranks[0]->dtype)
            return 5;
        if (!fake_stream_is_valid(call->stream, fake_primary(call->comm->device))) return 4;
        buffers[r] = fake_translate(call->comm->device, (uint64_t)(uintptr_t)call->buffer,
                                    call->nelem * fy_dtype_size(dtype));
        if (buffers[r] == NULL) return 1;
    }
    /* Sums of two values are exact in f64, except for f64, so there is one rounding. */
    for (int64_t i = 0; i < (int64_t)ranks[0]->nelem; i++) {
        for (int r = 1; r < count; r++)
            fake_write(dtype, buffers[0], i,
                       fake_read(dtype, buffers[0], i) + fake_read(dtype, buffers[r], i));
        for (int r = 1; r < count; r++)
            fake_write(dtype, buffers[r], i, fake_read(dtype, buffers[0], i));
    }
    return 0;
}

int ncclGroupEnd(void)
{
    int code = fake_enter(FAKE_ncclGroupEnd);
    if (depth == 0) return fake_leave(5);
    depth--;
    for (int i = 0; code == 0 && depth == 0 && i < ncalls; i++) {
        const call_t *ranks[RANKS] = { NULL };
        if (calls[i].comm->rank != 0) continue;
        for (int k = 0; k < ncalls; k++)
            if (calls[k].comm->set == calls[i].comm->set) ranks[calls[k].comm->rank] = &calls[k];
        code = run(ranks, calls[i].comm->set->count);
    }
    return fake_leave(code);
}
