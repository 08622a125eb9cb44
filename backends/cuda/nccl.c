/* The sums, and the list of cliques. The first sum over a set of devices makes its clique, which
 * is kept until one of them is closed or a call of NCCL fails. A sum is one group of calls by one
 * thread. A failure ends its clique: communicators are aborted, so NCCL kernels that wait for a
 * peer end, with any bytes as their results. A poll may detect the failure and drop its status.
 * Therefore the devices of a clique that had sums are lost then, and no call uses such bytes as a
 * sum. Next: nccl_ranks.c, for several processes. */
#include "backends/cuda/nccl_clique.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = FY__CUDA_PEERS };

typedef fy__cuda_clique_t clique_t;

pthread_mutex_t fy__cuda_clique_lock = PTHREAD_MUTEX_INITIALIZER;
static clique_t *cliques;

static fy_status_t failed(fy_status_t status, int code, const char *call, const clique_t *clique,
                          int line)
{
    char who[80];
    const char *more = clique->owner != NULL ? "" : "The tensors hold garbage; ";
    if (clique->owner != NULL)
        snprintf(who, sizeof who, "a call of cuda:%d with other processes", clique->devs[0]->index);
    else
        snprintf(who, sizeof who, "a sum over %zu devices, cuda:%d and others", clique->count,
                 clique->devs[0]->index);
    if (status == FY_STATUS_DEVICE_LOST)
        more = clique->owner != NULL
                   ? "Earlier calls may have been cut short, so this device is lost: close it and "
                     "open it again. "
                   : "Earlier sums may have been cut short, so these devices are lost: close them "
                     "and open them again. ";
    else if (clique->owner != NULL && code == 5 /* ncclInvalidUsage */)
        more = "NCCL refuses two ranks that use one card. ";
    return fy__cuda.host->fail(status, __FILE__, line,
                               "%s: %s gave %s (%d)\n  %sNCCL_DEBUG=WARN says more, "
                               "FERRY_NCCL=none %s",
                               who, call, fy__nccl_name(code), code, more,
                               clique->owner != NULL ? "sends through the host"
                                                     : "sums by copies between devices");
}

void fy__cuda_clique_add(clique_t *clique)
{
    for (size_t i = 0; i < clique->count; i++) atomic_fetch_add(&clique->devs[i]->ncliques, 1);
    clique->next = cliques;
    cliques = clique;
}

void fy__cuda_clique_end(clique_t *clique, int abort)
{
    clique_t **link = &cliques;
    while (*link != NULL && *link != clique) link = &(*link)->next;
    if (*link != NULL) *link = clique->next;
    if (clique->owner != NULL) *clique->owner = NULL;
    /* The heart of a group has no context; NCCL would create that of device 0 then. A caller with
     * a device of a clique of several has its context, which stays current. */
    fy__cuda_frame_t frame;
    const int has_entered = clique->owner != NULL &&
                            fy__cuda_enter_to_release(clique->devs[0], &frame);
    for (size_t i = 0; i < clique->count; i++) {
        atomic_fetch_sub(&clique->devs[i]->ncliques, 1);
        (void)(abort ? fy__nccl.ncclCommAbort(clique->comms[i])
                     : fy__nccl.ncclCommDestroy(clique->comms[i]));
    }
    if (has_entered) fy__cuda_leave(&frame);
    free(clique);
}

void fy__cuda_clique_lose(clique_t *clique, int code)
{
    for (size_t i = 0; i < clique->count; i++) {
        int none = 0;
        atomic_compare_exchange_strong(&clique->devs[i]->lost, &none, -code);
    }
}

fy_status_t fy__cuda_clique_give_up(clique_t *clique, int code, const char *call, int line)
{
    const int loses = clique->nsums > 0;
    if (loses) fy__cuda_clique_lose(clique, code);
    const fy_status_t status =
        failed(loses ? FY_STATUS_DEVICE_LOST : fy__nccl_status(code), code, call, clique, line);
    fy__cuda_clique_end(clique, 1);
    return status;
}

fy_status_t fy__cuda_nccl_lost(const fy__cuda_device_t *dev, int code)
{
    return FY__CUDA_FAIL(FY_STATUS_DEVICE_LOST,
                         "cuda:%d is lost: a sum over devices ended with %s (%d)\n  close this "
                         "device and open it again; host tensors stay "
                         "readable",
                         dev->index, fy__nccl_name(code), code);
}

fy_status_t fy__cuda_clique_test(clique_t *clique, int *out_done)
{
    *out_done = 1;
    for (size_t i = 0; i < clique->count; i++) {
        int state = 0;
        int code = fy__nccl.ncclCommGetAsyncError(clique->comms[i], &state);
        if (code == 0 && state == FY__NCCL_IN_PROGRESS) {
            *out_done = 0;
            continue;
        }
        if (code == 0) code = state;
        if (code == 0) continue;
        return fy__cuda_clique_give_up(clique, code, "ncclCommGetAsyncError", __LINE__);
    }
    return FY_STATUS_OK;
}

/* The lock is held. */
static fy_status_t check(clique_t *clique)
{
    int done;
    return fy__cuda_clique_test(clique, &done);
}

/* NULL: *out_status says why. The lock is held. */
static clique_t *find_or_make(size_t count, void *const *devs, fy_status_t *out_status)
{
    int indices[MOST] = { 0 };
    for (clique_t *clique = cliques; clique != NULL; clique = clique->next) {
        size_t i = 0;
        while (clique->count == count && i < count && clique->devs[i] == devs[i]) i++;
        if (clique->owner != NULL || clique->count != count || i < count) continue;
        *out_status = check(clique);
        return *out_status == FY_STATUS_OK ? clique : NULL;
    }
    clique_t *clique = calloc(1, sizeof *clique);
    if (clique == NULL) {
        *out_status = FY__CUDA_FAIL(FY_STATUS_OUT_OF_MEMORY,
                                    "no host memory for a sum over %zu devices", count);
        return NULL;
    }
    clique->count = count;
    for (size_t i = 0; i < count; i++) {
        clique->devs[i] = devs[i];
        indices[i] = clique->devs[i]->index;
    }
    const int code = fy__nccl.ncclCommInitAll(clique->comms, (int)count, indices);
    if (code != 0) {
        *out_status = failed(fy__nccl_status(code), code, "ncclCommInitAll", clique, __LINE__);
        free(clique);
        return NULL;
    }
    fy__cuda_clique_add(clique);
    return clique;
}

/* One group; ended whatever happens inside. */
static fy_status_t submit(clique_t *clique, void *const *streams, void *const *buffers, int dtype,
                          uint64_t nelem)
{
    const char *call = "ncclGroupStart";
    int code = fy__nccl.ncclGroupStart();
    if (code == 0) {
        for (size_t i = 0; i < clique->count && code == 0; i++) {
            call = "ncclAllReduce";
            code = fy__nccl.ncclAllReduce(buffers[i], buffers[i], nelem, dtype, FY__NCCL_SUM,
                                          clique->comms[i],
                                          ((fy__cuda_stream_t *)streams[i])->handle);
        }
        const int ended = fy__nccl.ncclGroupEnd();
        if (code == 0) {
            call = "ncclGroupEnd";
            code = ended;
        }
    }
    if (code != 0) return fy__cuda_clique_give_up(clique, code, call, __LINE__);
    clique->nsums++;
    return FY_STATUS_OK;
}

int fy__nccl_dtype(int32_t dtype)
{
    switch (dtype) {
    case FY_DTYPE_I32: return FY__NCCL_I32;
    case FY_DTYPE_I64: return FY__NCCL_I64;
    case FY_DTYPE_F16: return FY__NCCL_F16;
    case FY_DTYPE_BF16: return FY__NCCL_BF16;
    case FY_DTYPE_F32: return FY__NCCL_F32;
    case FY_DTYPE_F64: return FY__NCCL_F64;
    default: return -1;
    }
}

/* The reported bytes: each device sends 2 (count - 1) / count of the bytes, as any sum in place
 * must. */
static void tell(const clique_t *clique, void *const *streams, uint64_t nbytes)
{
    const uint64_t out = 2 * (clique->count - 1) * nbytes / clique->count;
    for (size_t i = 0; i < clique->count; i++) {
        fy__cuda_recent_add(((fy__cuda_stream_t *)streams[i])->trail, FY__CUDA_RECENT_COLLECTIVE,
                            nbytes);
        fy__cuda.host->record(FY_COPY_PEER, out);
    }
}

fy_status_t fy__cuda_all_reduce(size_t count, void *const *devs, void *const *streams,
                                void *const *buffers, int32_t dtype, uint64_t nelem)
{
    const int type = fy__nccl_dtype(dtype);
    fy_status_t status = FY_STATUS_OK;
    fy__cuda_frame_t frame;
    FY_TRY(fy__nccl_load());
    if (type < FY__NCCL_F16 || count < 2 || count > MOST)
        return FY__CUDA_FAIL(FY_STATUS_UNSUPPORTED,
                             "a sum over %zu devices of dtype %d is not NCCL's", count, (int)dtype);
    /* lost ones are refused before anything is asked of the others */
    for (size_t i = 1; i < count; i++) {
        FY_TRY(fy__cuda_enter(devs[i], &frame));
        fy__cuda_leave(&frame);
    }
    /* NCCL changes the current device, and puts back what it found: this one */
    FY_TRY(fy__cuda_enter(devs[0], &frame));
    pthread_mutex_lock(&fy__cuda_clique_lock);
    clique_t *clique = find_or_make(count, devs, &status);
    if (clique != NULL) status = submit(clique, streams, buffers, type, nelem);
    if (clique != NULL && status == FY_STATUS_OK)
        tell(clique, streams, nelem * (dtype == FY_DTYPE_F64 ? 8 : dtype == FY_DTYPE_F32 ? 4 : 2));
    pthread_mutex_unlock(&fy__cuda_clique_lock);
    fy__cuda_leave(&frame);
    return status;
}

int fy__cuda_nccl_is_used(const fy__cuda_device_t *dev)
{
    return atomic_load_explicit(&dev->ncliques, memory_order_relaxed) != 0;
}

static clique_t *clique_of(const fy__cuda_device_t *dev)
{
    for (clique_t *clique = cliques; clique != NULL; clique = clique->next)
        for (size_t i = 0; i < clique->count; i++)
            if (clique->devs[i] == dev) return clique;
    return NULL;
}

fy_status_t fy__cuda_nccl_check(fy__cuda_device_t *dev)
{
    fy_status_t status = FY_STATUS_OK;
    /* who holds it looks himself */
    if (!fy__cuda_nccl_is_used(dev) || pthread_mutex_trylock(&fy__cuda_clique_lock) != 0)
        return status;
    for (clique_t *clique = cliques, *next; clique != NULL && status == FY_STATUS_OK;
         clique = next) {
        next = clique->next;
        for (size_t i = 0; i < clique->count; i++)
            if (clique->devs[i] == dev) {
                status = check(clique);
                break;
            }
    }
    pthread_mutex_unlock(&fy__cuda_clique_lock);
    return status;
}

void fy__cuda_nccl_forget(fy__cuda_device_t *dev)
{
    clique_t *clique;
    if (!fy__cuda_nccl_is_used(dev)) return;
    pthread_mutex_lock(&fy__cuda_clique_lock);
    while ((clique = clique_of(dev)) != NULL)
        fy__cuda_clique_end(clique, atomic_load(&dev->lost) != 0);
    pthread_mutex_unlock(&fy__cuda_clique_lock);
}
