/* Heaps and regions of NVTX's memory extension. Its headers find the tool, see nvtx.c; the table of
 * calls that the tool filled in shows whether it supports the extension. The tool gives each heap a
 * handle; this file stores them for all devices, by address. Not here: the lifetime of a block
 * (alloc/debug.c). */
#include "backends/cuda/nvtx.h"

int fy__cuda_regions_on;

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExtMem.h>)
#define HAS_NVTX_MEMORY 1
#endif
#endif

#ifdef HAS_NVTX_MEMORY

#include <nvtx3/nvToolsExtMem.h>
#include <pthread.h>
#include <stdlib.h>

typedef struct heap {
    uintptr_t begin;
    uint64_t nbytes;
    nvtxMemHeapHandle_t handle;
    struct heap *next;
} heap_t;

static nvtxDomainHandle_t domain; /* set before fy__cuda_regions_on */
/* guards the list; the tool is called without it */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static heap_t *heaps;

void fy__cuda_regions_open(void *nvtx_domain)
{
    static const int needed[] = { NVTX3EXT_CBID_nvtxMemHeapRegister,
                                  NVTX3EXT_CBID_nvtxMemHeapUnregister,
                                  NVTX3EXT_CBID_nvtxMemRegionsRegister,
                                  NVTX3EXT_CBID_nvtxMemRegionsUnregister };
    /* behind the module's state */
    const intptr_t *slots = NVTX_EXT_MEM_VERSIONED_ID(nvtxExtMemSlots) + 1;
    domain = nvtx_domain;
    NVTX_EXT_MEM_VERSIONED_ID(nvtxExtMemInitOnce)();
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (slots[needed[i]] == NVTX_EXTENSION_DISABLED || slots[needed[i]] == NVTX_EXTENSION_FRESH)
            return;
    fy__cuda_regions_on = 1;
}

void fy__cuda_heap_begin(const fy__cuda_device_t *dev, void *address, uint64_t nbytes)
{
    if (dev->virtual_memory != NULL) return;
    heap_t *heap = malloc(sizeof *heap);
    if (heap == NULL) return;
    char name[32];
    snprintf(name, sizeof name, "ferry cuda:%d", dev->index);
    const nvtxMemVirtualRangeDesc_t range = { .size = nbytes, .ptr = address };
    const nvtxMemHeapDesc_t what = {
        .extCompatID = NVTX_EXT_COMPATID_MEM,
        .structSize = sizeof what,
        .usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR,
        .type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
        .typeSpecificDescSize = sizeof range,
        .typeSpecificDesc = &range,
        .messageType = NVTX_MESSAGE_TYPE_ASCII,
        .message.ascii = name,
    };
    *heap = (heap_t){ .begin = (uintptr_t)address,
                      .nbytes = nbytes,
                      .handle = nvtxMemHeapRegister(domain, &what) };
    if (heap->handle == NULL || heap->handle == NVTX_MEM_HEAP_HANDLE_NO_TOOL) {
        free(heap);
        return;
    }
    pthread_mutex_lock(&lock);
    heap->next = heaps;
    heaps = heap;
    pthread_mutex_unlock(&lock);
}

void fy__cuda_heap_end(void *address)
{
    pthread_mutex_lock(&lock);
    heap_t **link = &heaps;
    while (*link != NULL && (*link)->begin != (uintptr_t)address) link = &(*link)->next;
    heap_t *heap = *link;
    if (heap != NULL) *link = heap->next;
    pthread_mutex_unlock(&lock);
    if (heap == NULL) return;
    nvtxMemHeapUnregister(domain, heap->handle);
    free(heap);
}

/* The heap that `address` is in; NULL: none. */
static nvtxMemHeapHandle_t heap_of(const void *address)
{
    pthread_mutex_lock(&lock);
    const heap_t *heap = heaps;
    while (heap != NULL && (uintptr_t)address - heap->begin >= heap->nbytes) heap = heap->next;
    const nvtxMemHeapHandle_t handle = heap != NULL ? heap->handle : NULL;
    pthread_mutex_unlock(&lock);
    return handle;
}

static void begin_region(nvtxMemHeapHandle_t heap, const void *address, uint64_t nbytes,
                         const char *name)
{
    const nvtxMemVirtualRangeDesc_t range = { .size = nbytes, .ptr = address };
    const nvtxMemRegionsRegisterBatch_t what = {
        .extCompatID = NVTX_EXT_COMPATID_MEM,
        .structSize = sizeof what,
        .regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
        .heap = heap,
        .regionCount = 1,
        .regionDescElementSize = sizeof range,
        .regionDescElements = &range,
    };
    const nvtxMemRegionNameDesc_t named = {
        .regionRefType = NVTX_MEM_REGION_REF_TYPE_POINTER,
        .nameType = NVTX_MESSAGE_TYPE_ASCII,
        .region.pointer = address,
        .name.ascii = name,
    };
    const nvtxMemRegionsNameBatch_t names = {
        .extCompatID = NVTX_EXT_COMPATID_MEM,
        .structSize = sizeof names,
        .regionCount = 1,
        .regionElementSize = sizeof named,
        .regionElements = &named,
    };
    nvtxMemRegionsRegister(domain, &what);
    nvtxMemRegionsName(domain, &names);
}

static void tell_region(void *dev, void *address, uint64_t nbytes, const char *name)
{
    (void)dev;
    const nvtxMemHeapHandle_t heap = heap_of(address);
    if (heap == NULL) return;
    if (name != NULL) {
        begin_region(heap, address, nbytes, name);
        return;
    }
    const nvtxMemRegionRef_t region = { .pointer = address };
    const nvtxMemRegionsUnregisterBatch_t what = {
        .extCompatID = NVTX_EXT_COMPATID_MEM,
        .structSize = sizeof what,
        .refType = NVTX_MEM_REGION_REF_TYPE_POINTER,
        .refCount = 1,
        .refElementSize = sizeof region,
        .refElements = &region,
    };
    nvtxMemRegionsUnregister(domain, &what);
}

fy_region_fn fy__cuda_regions(void *dev_)
{
    const fy__cuda_device_t *dev = dev_;
    return fy__cuda_regions_on && dev->virtual_memory == NULL ? tell_region : NULL;
}

#else

void fy__cuda_regions_open(void *nvtx_domain) { (void)nvtx_domain; }
void fy__cuda_heap_begin(const fy__cuda_device_t *dev, void *address, uint64_t nbytes)
{
    (void)dev;
    (void)address;
    (void)nbytes;
}
void fy__cuda_heap_end(void *address) { (void)address; }
fy_region_fn fy__cuda_regions(void *dev)
{
    (void)dev;
    return NULL;
}

#endif
