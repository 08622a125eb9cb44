/* Page-locking host memory. The driver takes each range once a process, for all contexts
 * (PORTABLE); here is who shares it: devices of ours that were given the same range, and the
 * application, which may have registered it before. Pages of Ferry's own are there already when
 * they come here (alloc/host_touch.c). Not here: how much may be locked (runtime/device/pin.c). */
#include <pthread.h>
#include <stdlib.h>

#include "backends/cuda/device.h"

typedef struct range {
    uintptr_t address;
    uint64_t nbytes;
    /* under whose context it was registered; NULL: the application's, we only use it */
    fy__cuda_device_t *owner;
    /* the owner's device, whose primary context is retained on behalf of the others ... */
    CUdevice kept;
    CUcontext context; /* ... which is this one; NULL: it is not */
    size_t nusers;
    struct range *next;
    fy__cuda_device_t *users[FY__CUDA_PEERS];
} range_t;

/* Guards the list, and is held while the driver locks pages, so that two who bring the same range
 * do not meet there. A leaf. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static range_t *ranges;

/* What of ours overlaps it. */
static range_t *find(uintptr_t address, uint64_t nbytes)
{
    range_t *range = ranges;
    while (range != NULL &&
           !(address < range->address + range->nbytes && range->address < address + nbytes))
        range = range->next;
    return range;
}

static size_t place_of(const range_t *range, const fy__cuda_device_t *dev)
{
    size_t i = 0;
    while (i < range->nusers && range->users[i] != dev) i++;
    return i;
}

/* One device more for a range that is locked already. */
static fy_status_t share(fy__cuda_device_t *dev, range_t *range, uintptr_t address, uint64_t nbytes)
{
    if (range->address != address || range->nbytes != nbytes ||
        place_of(range, dev) < range->nusers || range->nusers == FY__CUDA_PEERS)
        return FY__CUDA_FAIL(FY_STATUS_BUSY,
                             "page-locking %llu bytes of host memory for cuda:%d: they overlap "
                             "%llu bytes that are page-locked already\n  "
                             "Unpin those first, or use that tensor",
                             (unsigned long long)nbytes, dev->index,
                             (unsigned long long)range->nbytes);
    /* the owner may be closed before the others let go */
    if (range->owner != NULL && range->context == NULL) {
        FY_TRY(FY__CUDA_CALL(dev, cuDevicePrimaryCtxRetain, (&range->context, range->owner->handle),
                             "keeping the context of cuda:%d for host memory shared with cuda:%d",
                             range->owner->index, dev->index));
        range->kept = range->owner->handle;
    }
    range->users[range->nusers++] = dev;
    return FY_STATUS_OK;
}

/* Does a registration that is not ours cover all of it? */
static int is_covered(uintptr_t address, uint64_t nbytes)
{
    CUdeviceptr begin = 0;
    size_t size = 0;
    unsigned int type = 0;
    if (fy__cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) !=
            CUDA_SUCCESS ||
        type != CU_MEMORYTYPE_HOST)
        return 0;
    if (fy__cuda.cuPointerGetAttribute(&begin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) !=
        CUDA_SUCCESS)
        return 0;
    if (fy__cuda.cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) !=
        CUDA_SUCCESS)
        return 0;
    return begin <= address && address + nbytes <= begin + size;
}

/* DEVICEMAP: kernels use the same address, which device_open has checked. `range` is not in the
 * list yet. */
static fy_status_t lock_pages(fy__cuda_device_t *dev, range_t *range)
{
    fy__cuda_frame_t frame;
    FY_TRY(fy__cuda_enter(dev, &frame));
    const CUresult code = fy__cuda_checked(
        dev,
        fy__cuda.cuMemHostRegister((void *)range->address, range->nbytes,
                                   CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    fy_status_t status = FY_STATUS_OK;
    if (code == CUDA_SUCCESS) range->owner = dev;
    /* INVALID_VALUE: memory of cuMemHostAlloc, on some drivers */
    else if ((code != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED &&
              code != CUDA_ERROR_INVALID_VALUE) ||
             !is_covered(range->address, range->nbytes))
        status = fy__cuda_failed(code, __FILE__, __LINE__, "cuMemHostRegister",
                                 "page-locking %llu bytes of host memory for cuda:%d",
                                 (unsigned long long)range->nbytes, dev->index);
    fy__cuda_leave(&frame);
    return status;
}

fy_status_t fy__cuda_register_host(void *dev_, void *address, uint64_t nbytes)
{
    fy__cuda_device_t *dev = dev_;
    FY_TRY(fy__cuda_is_usable(dev));
    range_t *made = calloc(1, sizeof *made);
    if (made == NULL)
        return FY__CUDA_FAIL(FY_STATUS_OUT_OF_MEMORY,
                             "no host memory to record a page-locked range for cuda:%d",
                             dev->index);
    made->address = (uintptr_t)address;
    made->nbytes = nbytes;
    made->users[made->nusers++] = dev;
    pthread_mutex_lock(&lock);
    range_t *there = find(made->address, nbytes);
    const fy_status_t status = there != NULL ? share(dev, there, made->address, nbytes)
                                             : lock_pages(dev, made);
    const int is_new = there == NULL && status == FY_STATUS_OK;
    if (is_new) {
        made->next = ranges;
        ranges = made;
    }
    pthread_mutex_unlock(&lock);
    if (!is_new) free(made);
    return status;
}

/* It is unused and out of the list. `dev` is its last user. */
static void unlock_pages(fy__cuda_device_t *dev, const range_t *range)
{
    fy__cuda_frame_t frame;
    CUcontext popped;
    if (range->owner == NULL) return;
    if (range->context != NULL) { /* the owner may be gone; its context is not */
        if (fy__cuda.cuCtxPushCurrent(range->context) == CUDA_SUCCESS) {
            fy__cuda_note(dev, fy__cuda.cuMemHostUnregister((void *)range->address));
            fy__cuda.cuCtxPopCurrent(&popped);
        }
        fy__cuda.cuDevicePrimaryCtxRelease(range->kept);
    } else if (fy__cuda_enter_to_release(dev, &frame)) {
        fy__cuda_note(dev, fy__cuda.cuMemHostUnregister((void *)range->address));
        fy__cuda_leave(&frame);
    }
}

void fy__cuda_unregister_host(void *dev_, void *address, uint64_t nbytes)
{
    fy__cuda_device_t *dev = dev_;
    (void)nbytes;
    pthread_mutex_lock(&lock);
    range_t **link = &ranges, *over = NULL;
    while (*link != NULL && (*link)->address != (uintptr_t)address) link = &(*link)->next;
    range_t *range = *link;
    const size_t place = range != NULL ? place_of(range, dev) : 0;
    if (range != NULL && place < range->nusers) {
        range->users[place] = range->users[--range->nusers];
        if (range->nusers == 0) {
            over = range;
            *link = range->next;
            unlock_pages(dev, over);
        }
    }
    pthread_mutex_unlock(&lock);
    free(over);
}
