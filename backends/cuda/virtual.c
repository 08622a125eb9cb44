/* Virtual-memory blocks. Each step is a separate physical allocation, because the driver unmaps
 * only whole mappings; its handle is released as soon as it is mapped, so the mapping alone keeps
 * it. Peers that can access this device may use all of it: for such memory cuMemSetAccess grants
 * access, not cuCtxEnablePeerAccess. See virtual.h. */
#include "backends/cuda/virtual.h"

#include <stdlib.h>

typedef unsigned long long ull;

typedef struct block {
    CUdeviceptr begin;
    uint64_t nbytes; /* mapped */
    struct block *next;
} block_t;

struct fy__cuda_virtual {
    /* guards the list; not held over the driver: one block is in one call at a time */
    pthread_mutex_t lock;
    block_t *blocks;
    uint64_t step, space; /* of a block: all the device has */
    CUmemAllocationProp what;
    size_t naccess;
    CUmemAccessDesc access[1 + FY__CUDA_PEERS]; /* who may use it */
};

/* So that even all the memory is a few thousand steps. */
enum { STEPS_MOST = 8192 };

static fy_status_t find_peers(fy__cuda_device_t *dev, fy__cuda_virtual_t *memory)
{
    int count = 0;
    FY_TRY(FY__CUDA_CALL(dev, cuDeviceGetCount, (&count), "counting CUDA devices"));
    for (int i = 0; i < count && i < FY__CUDA_PEERS; i++) {
        CUdevice peer;
        int reaches = 0;
        FY_TRY(FY__CUDA_CALL(dev, cuDeviceGet, (&peer, i), "looking at cuda:%d", i));
        if (i != dev->index)
            FY_TRY(FY__CUDA_CALL(dev, cuDeviceCanAccessPeer, (&reaches, peer, dev->handle),
                                 "asking whether cuda:%d reaches cuda:%d", i, dev->index));
        if (i != dev->index && !reaches) continue;
        memory->access[memory->naccess++] =
            (CUmemAccessDesc){ .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = peer },
                               .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    }
    return FY_STATUS_OK;
}

static fy_status_t describe(fy__cuda_device_t *dev, fy__cuda_virtual_t *memory)
{
    int has = 0;
    size_t granularity = 0, available = 0, total = 0;
    FY_TRY(
        FY__CUDA_CALL(dev, cuDeviceGetAttribute,
                      (&has, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, dev->handle),
                      "asking cuda:%d for virtual memory", dev->index));
    if (!has)
        return FY__CUDA_FAIL(
            FY_STATUS_UNSUPPORTED,
            "cuda:%d: the device has no virtual memory management: leave segments=virtual out",
            dev->index);
    memory->what = (CUmemAllocationProp){ .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
                                                        .id = dev->handle } };
    FY_TRY(FY__CUDA_CALL(dev, cuMemGetAllocationGranularity,
                         (&granularity, &memory->what, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                         "asking cuda:%d for its granularity of memory", dev->index));
    FY_TRY(FY__CUDA_CALL(dev, cuMemGetInfo, (&available, &total),
                         "asking cuda:%d how much memory it has", dev->index));
    if (granularity == 0 || (granularity & (granularity - 1)) != 0)
        return FY__CUDA_FAIL(FY_STATUS_UNSUPPORTED,
                             "cuda:%d: a granularity of %zu bytes is no power of two", dev->index,
                             granularity);
    for (memory->step = granularity; memory->step < total / STEPS_MOST;) memory->step *= 2;
    memory->space = (total + memory->step - 1) / memory->step * memory->step;
    return find_peers(dev, memory);
}

fy_status_t fy__cuda_virtual_open(fy__cuda_device_t *dev)
{
    fy__cuda_virtual_t *memory = calloc(1, sizeof *memory);
    if (memory == NULL)
        return FY__CUDA_FAIL(FY_STATUS_OUT_OF_MEMORY,
                             "no host memory for the virtual memory of cuda:%d", dev->index);
    const fy_status_t status = describe(dev, memory);
    if (status != FY_STATUS_OK) {
        free(memory);
        return status;
    }
    pthread_mutex_init(&memory->lock, NULL);
    dev->virtual_memory = memory;
    return FY_STATUS_OK;
}

void fy__cuda_virtual_close(fy__cuda_virtual_t *memory)
{
    if (memory == NULL) return;
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

uint64_t fy__cuda_virtual_step(const fy__cuda_virtual_t *memory)
{
    return memory != NULL ? memory->step : 0;
}

int fy__cuda_virtual_takes(const fy__cuda_virtual_t *memory, uint64_t nbytes)
{
    return memory != NULL && nbytes % memory->step == 0 && nbytes <= memory->space;
}

/* ---- mapping ---- */

static void unmap(fy__cuda_device_t *dev, CUdeviceptr from, CUdeviceptr to)
{
    for (CUdeviceptr at = to; at > from; at -= dev->virtual_memory->step)
        fy__cuda_note(
            dev, fy__cuda.cuMemUnmap(at - dev->virtual_memory->step, dev->virtual_memory->step));
}

static fy_status_t map_step(fy__cuda_device_t *dev, CUdeviceptr at)
{
    const fy__cuda_virtual_t *memory = dev->virtual_memory;
    CUmemGenericAllocationHandle handle;
    FY_TRY(FY__CUDA_CALL(dev, cuMemCreate, (&handle, memory->step, &memory->what, 0),
                         "making %llu bytes of memory on cuda:%d", (ull)memory->step, dev->index));
    const fy_status_t status = FY__CUDA_CALL(dev, cuMemMap, (at, memory->step, 0, handle, 0),
                                             "mapping %llu bytes of memory on cuda:%d",
                                             (ull)memory->step, dev->index);
    fy__cuda_note(dev, fy__cuda.cuMemRelease(handle));
    return status;
}

/* Memory behind [from, to), all of it or none. */
static fy_status_t map(fy__cuda_device_t *dev, CUdeviceptr from, CUdeviceptr to)
{
    const fy__cuda_virtual_t *memory = dev->virtual_memory;
    fy_status_t status = FY_STATUS_OK;
    CUdeviceptr at = from;
    for (; at < to && status == FY_STATUS_OK; at += status == FY_STATUS_OK ? memory->step : 0)
        status = map_step(dev, at);
    if (status == FY_STATUS_OK)
        status = FY__CUDA_CALL(dev, cuMemSetAccess,
                               (from, to - from, memory->access, memory->naccess),
                               "opening %llu bytes of memory on cuda:%d to %zu devices",
                               (ull)(to - from), dev->index, memory->naccess);
    if (status != FY_STATUS_OK) unmap(dev, from, at);
    return status;
}

/* ---- blocks ---- */

fy_status_t fy__cuda_virtual_alloc(fy__cuda_device_t *dev, uint64_t nbytes,
                                   CUdeviceptr *out_address)
{
    fy__cuda_virtual_t *memory = dev->virtual_memory;
    CUdeviceptr begin = 0;
    block_t *block = malloc(sizeof *block);
    if (block == NULL)
        return FY__CUDA_FAIL(FY_STATUS_OUT_OF_MEMORY, "no host memory to note a block of cuda:%d",
                             dev->index);
    fy_status_t status = FY__CUDA_CALL(
        dev, cuMemAddressReserve, (&begin, memory->space, memory->step, 0, 0),
        "reserving addresses for %llu bytes on cuda:%d", (ull)memory->space, dev->index);
    if (status != FY_STATUS_OK) {
        free(block);
        return status;
    }
    status = map(dev, begin, begin + nbytes);
    if (status != FY_STATUS_OK) {
        fy__cuda_note(dev, fy__cuda.cuMemAddressFree(begin, memory->space));
        free(block);
        return status;
    }
    pthread_mutex_lock(&memory->lock);
    *block = (block_t){ begin, nbytes, memory->blocks };
    memory->blocks = block;
    pthread_mutex_unlock(&memory->lock);
    *out_address = begin;
    return FY_STATUS_OK;
}

static block_t *find(fy__cuda_virtual_t *memory, CUdeviceptr begin, int takes_out)
{
    pthread_mutex_lock(&memory->lock);
    block_t **link = &memory->blocks;
    while (*link != NULL && (*link)->begin != begin) link = &(*link)->next;
    block_t *block = *link;
    if (takes_out && block != NULL) *link = block->next;
    pthread_mutex_unlock(&memory->lock);
    return block;
}

int fy__cuda_virtual_free(fy__cuda_device_t *dev, CUdeviceptr address)
{
    block_t *block = dev->virtual_memory != NULL ? find(dev->virtual_memory, address, 1) : NULL;
    if (block == NULL) return 0;
    unmap(dev, block->begin, block->begin + block->nbytes);
    fy__cuda_note(dev, fy__cuda.cuMemAddressFree(block->begin, dev->virtual_memory->space));
    free(block);
    return 1;
}

fy_status_t fy__cuda_resize(void *dev_, void *address, uint64_t nbytes, uint64_t new_nbytes)
{
    fy__cuda_device_t *dev = dev_;
    fy__cuda_virtual_t *memory = dev->virtual_memory;
    const CUdeviceptr begin = (CUdeviceptr)(uintptr_t)address;
    block_t *block = memory != NULL ? find(memory, begin, 0) : NULL;
    fy__cuda_frame_t frame;
    if (block == NULL || block->nbytes != nbytes || new_nbytes % memory->step != 0 ||
        new_nbytes == 0)
        return FY__CUDA_FAIL(FY_STATUS_INTERNAL,
                             "cuda:%d has no block of %llu bytes at 0x%llx that could have %llu",
                             dev->index, (ull)nbytes, (ull)begin, (ull)new_nbytes);
    if (new_nbytes < nbytes) {
        block->nbytes = new_nbytes;
        if (!fy__cuda_enter_to_release(dev, &frame)) return FY_STATUS_OK;
        unmap(dev, begin + new_nbytes, begin + nbytes);
        fy__cuda_leave(&frame);
        return FY_STATUS_OK;
    }
    if (new_nbytes > memory->space)
        return FY__CUDA_FAIL(FY_STATUS_OUT_OF_MEMORY,
                             "cuda:%d: a block cannot grow to %llu bytes; %llu are all there is",
                             dev->index, (ull)new_nbytes, (ull)memory->space);
    FY_TRY(fy__cuda_enter(dev, &frame));
    const fy_status_t status = map(dev, begin + nbytes, begin + new_nbytes);
    fy__cuda_leave(&frame);
    if (status == FY_STATUS_OK) block->nbytes = new_nbytes;
    return status;
}
