/* The current context of a thread, and the lifetime of primary contexts. If a thread has no current
 * context, Ferry sets the device's and leaves it current, as the runtime API does. If the
 * application has made another one current, Ferry pushes and pops the device's around each call.
 * Next: device.c. */
#include <pthread.h>

#include "backends/cuda/device.h"
#include "backends/cuda/nccl.h"

/* The context that Ferry has set on this thread: a call for another device replaces it without a
 * push. */
static _Thread_local CUcontext left;

void fy__cuda_note(fy__cuda_device_t *dev, CUresult code)
{
    int none = 0;
    if (fy__cuda_is_fatal(code)) atomic_compare_exchange_strong(&dev->lost, &none, (int)code);
}

/* cuCtxGetCurrent is one thread-local read, and the only call of a steady launch here. */
static CUresult make_current(fy__cuda_device_t *dev, fy__cuda_frame_t *out_frame,
                             const char **out_call)
{
    CUcontext current = NULL;
    out_frame->pushed = 0;
    *out_call = "cuCtxGetCurrent";
    CUresult code = fy__cuda.cuCtxGetCurrent(&current);
    if (code != CUDA_SUCCESS || current == dev->context) return code;
    if (current == NULL || current == left) {
        *out_call = "cuCtxSetCurrent";
        code = fy__cuda.cuCtxSetCurrent(dev->context);
        if (code == CUDA_SUCCESS) left = dev->context;
        return code;
    }
    *out_call = "cuCtxPushCurrent";
    code = fy__cuda.cuCtxPushCurrent(dev->context);
    out_frame->pushed = code == CUDA_SUCCESS;
    return code;
}

fy_status_t fy__cuda_is_usable(fy__cuda_device_t *dev)
{
    int lost = atomic_load_explicit(&dev->lost, memory_order_relaxed);
    if (lost == 0) return FY_STATUS_OK;
    if (lost < 0) return fy__cuda_nccl_lost(dev, -lost);
    fy__cuda_last_device = dev;
    return fy__cuda_failed((CUresult)lost, __FILE__, __LINE__, "an earlier call", "cuda:%d is lost",
                           dev->index);
}

fy_status_t fy__cuda_enter(fy__cuda_device_t *dev, fy__cuda_frame_t *out_frame)
{
    const char *call;
    FY_TRY(fy__cuda_is_usable(dev));
    CUresult code = fy__cuda_checked(dev, make_current(dev, out_frame, &call));
    if (code == CUDA_SUCCESS) return FY_STATUS_OK;
    return fy__cuda_failed(code, __FILE__, __LINE__, call, "using cuda:%d on this thread",
                           dev->index);
}

/* Tries twice: the failure may be one of earlier work, and memory that is not freed now is never
 * freed. */
int fy__cuda_enter_to_release(fy__cuda_device_t *dev, fy__cuda_frame_t *out_frame)
{
    const char *call;
    for (int i = 0; i < 2; i++)
        if (make_current(dev, out_frame, &call) == CUDA_SUCCESS) return 1;
    return 0;
}

void fy__cuda_leave(const fy__cuda_frame_t *frame)
{
    CUcontext popped;
    if (frame->pushed) fy__cuda.cuCtxPopCurrent(&popped);
}

/* ---- the primary context ---- Making one takes hundreds of milliseconds. So the first close of a
 * device keeps its reference for the process, and later openings find the context alive. Each
 * opening also takes a separate reference: if the application has reset the context, that makes it
 * again. */

enum { KEPT = 64 };
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
/* by index of device: the process has a reference; guarded by kept_lock */
static unsigned char kept[KEPT];

fy_status_t fy__cuda_context_retain(fy__cuda_device_t *dev)
{
    const fy_status_t status =
        FY__CUDA_CALL(dev, cuDevicePrimaryCtxRetain, (&dev->context, dev->handle),
                      "retaining the primary context of cuda:%d (%s)", dev->index, dev->model);
    if (status != FY_STATUS_OK) dev->context = NULL;
    return status;
}

void fy__cuda_context_release(fy__cuda_device_t *dev)
{
    int nreferences = 1;
    const int is_lost = atomic_load(&dev->lost) > 0;
    /* the context may end now: a dead one must not stay current */
    if (is_lost && dev->context == left) {
        CUcontext current = NULL;
        if (fy__cuda.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == left)
            (void)fy__cuda.cuCtxSetCurrent(NULL);
        left = NULL;
    }
    pthread_mutex_lock(&kept_lock);
    if (dev->index < KEPT && is_lost && kept[dev->index]) {
        kept[dev->index] = 0;
        nreferences = 2;
    } else if (dev->index < KEPT && !is_lost && !kept[dev->index]) {
        kept[dev->index] = 1;
        nreferences = 0;
    }
    pthread_mutex_unlock(&kept_lock);
    for (int i = 0; i < nreferences; i++) fy__cuda.cuDevicePrimaryCtxRelease(dev->handle);
}
