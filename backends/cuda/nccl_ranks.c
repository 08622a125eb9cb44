/* A device as a rank among those of other processes: the communicator slots. NCCL's calls wait for
 * no other process (its `blocking` is 0): fy__cuda_communicator_test reports when one is on
 * the stream. A device that is closed, and a failure that a poll detects, end the clique before the
 * communicator is closed. See nccl.c. */
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/nccl_clique.h"

typedef struct communicator {
    fy__cuda_device_t *dev;
    fy__cuda_clique_t *clique; /* NULL: it ended; guarded by the lock of cliques */
} communicator_t;

_Static_assert(sizeof(fy__nccl_id_t) == FY_COMMUNICATOR_ID_NBYTES, "an id is copied whole");

fy_status_t fy__cuda_communicator_id(void *dev, void *id)
{
    fy__nccl_id_t own;
    FY_TRY(fy__cuda_is_usable(dev));
    FY_TRY(fy__nccl_load_ranks());
    if (id == NULL) return FY_STATUS_OK;
    const int code = fy__nccl.ncclGetUniqueId(&own);
    if (code != 0)
        return FY__CUDA_FAIL(fy__nccl_status(code),
                             "ncclGetUniqueId gave %s (%d)\n  NCCL_DEBUG=WARN says more, "
                             "NCCL_SOCKET_IFNAME names the network to use",
                             fy__nccl_name(code), code);
    memcpy(id, &own, sizeof own);
    return FY_STATUS_OK;
}

static fy_status_t failed_to_open(const fy__cuda_device_t *dev, int code)
{
    return FY__CUDA_FAIL(fy__nccl_status(code),
                         "cuda:%d does not connect to other processes: ncclCommInitRankConfig gave "
                         "%s (%d)\n  NCCL_DEBUG=WARN says more, FERRY_NCCL=none sends through the "
                         "host",
                         dev->index, fy__nccl_name(code), code);
}

/* The device's context is current. */
static fy_status_t connect(communicator_t *communicator, const void *id, int rank, int size)
{
    fy__nccl_id_t own;
    fy__nccl_config_t config = FY__NCCL_CONFIG_INIT;
    fy__cuda_clique_t *clique = calloc(1, sizeof *clique);
    if (clique == NULL) return FY__CUDA_FAIL(FY_STATUS_OUT_OF_MEMORY, "no host memory");
    clique->count = 1;
    clique->devs[0] = communicator->dev;
    clique->owner = &communicator->clique;
    memcpy(&own, id, sizeof own);
    pthread_mutex_lock(&fy__cuda_clique_lock);
    const int code = fy__nccl.ncclCommInitRankConfig(&clique->comms[0], size, own, rank, &config);
    const int fails = code != 0 && code != FY__NCCL_IN_PROGRESS;
    if (!fails) {
        communicator->clique = clique;
        fy__cuda_clique_add(clique);
    } else if (clique->comms[0] != NULL) {
        (void)fy__nccl.ncclCommAbort(clique->comms[0]); /* it began to connect before it failed */
    }
    pthread_mutex_unlock(&fy__cuda_clique_lock);
    if (!fails) return FY_STATUS_OK;
    free(clique);
    return failed_to_open(communicator->dev, code);
}

fy_status_t fy__cuda_communicator_open(void *dev, const void *id, int rank, int size,
                                       void **out_communicator)
{
    fy__cuda_frame_t frame;
    *out_communicator = NULL;
    FY_TRY(fy__nccl_load_ranks());
    communicator_t *communicator = calloc(1, sizeof *communicator);
    if (communicator == NULL) return FY__CUDA_FAIL(FY_STATUS_OUT_OF_MEMORY, "no host memory");
    communicator->dev = dev;
    fy_status_t status = fy__cuda_enter(dev, &frame);
    if (status == FY_STATUS_OK) {
        status = connect(communicator, id, rank, size);
        fy__cuda_leave(&frame);
    }
    if (status == FY_STATUS_OK)
        *out_communicator = communicator;
    else
        free(communicator);
    return status;
}

/* The lock is held. */
static fy_status_t check_clique(const communicator_t *communicator)
{
    FY_TRY(fy__cuda_is_usable(communicator->dev));
    if (communicator->clique != NULL) return FY_STATUS_OK;
    return FY__CUDA_FAIL(FY_STATUS_UNAVAILABLE,
                         "cuda:%d: its connection to other processes ended after a failure",
                         communicator->dev->index);
}

fy_status_t fy__cuda_communicator_test(void *communicator, int *out_done)
{
    communicator_t *c = communicator;
    *out_done = 0;
    pthread_mutex_lock(&fy__cuda_clique_lock);
    fy_status_t status = check_clique(c);
    if (status == FY_STATUS_OK) status = fy__cuda_clique_test(c->clique, out_done);
    pthread_mutex_unlock(&fy__cuda_clique_lock);
    return status;
}

static int call_nccl(const fy_backend_collective_t *call, fy__nccl_comm_t comm, CUstream stream,
                     const char **out_name)
{
    const int type = fy__nccl_dtype(call->dtype);
    const int op = call->option == FY_COLLECTIVE_MEAN ? FY__NCCL_MEAN : FY__NCCL_SUM;
#define CALL(name, ...) (*out_name = #name, fy__nccl.name(__VA_ARGS__, comm, stream))
    switch (call->kind) {
    case FY_COLLECTIVE_ALL_REDUCE:
        return CALL(ncclAllReduce, call->src, call->dst, call->nelem, type, op);
    case FY_COLLECTIVE_REDUCE_SCATTER:
        return CALL(ncclReduceScatter, call->src, call->dst, call->nelem, type, op);
    case FY_COLLECTIVE_BROADCAST:
        return CALL(ncclBroadcast, call->src, call->dst, call->nbytes, FY__NCCL_BYTE, call->option);
    case FY_COLLECTIVE_ALL_GATHER:
        return CALL(ncclAllGather, call->src, call->dst, call->nbytes, FY__NCCL_BYTE);
    case FY_COLLECTIVE_SEND:
        return CALL(ncclSend, call->src, call->nbytes, FY__NCCL_BYTE, call->option);
    case FY_COLLECTIVE_RECEIVE:
        return CALL(ncclRecv, call->dst, call->nbytes, FY__NCCL_BYTE, call->option);
    }
#undef CALL
    return 4; /* ncclInvalidArgument */
}

fy_status_t fy__cuda_communicator_call(void *communicator, void *stream,
                                       const fy_backend_collective_t *call)
{
    communicator_t *c = communicator;
    fy__cuda_stream_t *queue = stream;
    fy__cuda_frame_t frame;
    const char *name = "";
    FY_TRY(fy__cuda_enter(c->dev, &frame));
    pthread_mutex_lock(&fy__cuda_clique_lock);
    fy_status_t status = check_clique(c);
    if (status == FY_STATUS_OK) {
        const int code = call_nccl(call, c->clique->comms[0], queue->handle, &name);
        if (code != 0 && code != FY__NCCL_IN_PROGRESS) {
            status = fy__cuda_clique_give_up(c->clique, code, name, __LINE__);
        } else {
            c->clique->nsums++;
            fy__cuda_recent_add(queue->trail, FY__CUDA_RECENT_COLLECTIVE, call->nbytes);
        }
    }
    pthread_mutex_unlock(&fy__cuda_clique_lock);
    fy__cuda_leave(&frame);
    return status;
}

void fy__cuda_communicator_close(void *communicator, fy_backend_closing_t closing)
{
    communicator_t *c = communicator;
    pthread_mutex_lock(&fy__cuda_clique_lock);
    if (c->clique != NULL) {
        if (closing == FY_CLOSING_RUNNING) fy__cuda_clique_lose(c->clique, 6 /* ncclRemoteError */);
        fy__cuda_clique_end(c->clique, closing != FY_CLOSING_DONE);
    }
    pthread_mutex_unlock(&fy__cuda_clique_lock);
    free(c);
}
