/* The same test profiler for NVTX's memory extension, as memory checkers use it. It records "heap
 * SIZE", "region SIZE", "'NAME'", "-region" and "-heap", each followed by a space. A word that
 * begins with "?" is an error: a region outside its heap or over another one, the end of an unknown
 * object. With NVTX_TOOL_RANGES_ONLY in the environment it does not offer the extension. */
#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExtMem.h>)
#define HAS_NVTX_MEMORY 1
#endif
#endif

#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

/* Returns the records since the last call. NULL: built without the extension's header. */
EXPORT const char *nvtx_tool_memory(void);
/* Returns the sum of the sizes of all current regions, and in *out_heaps that of all heaps. */
EXPORT size_t nvtx_tool_regions(size_t *out_heaps);

#ifdef HAS_NVTX_MEMORY

#include <nvtx3/nvToolsExtMem.h>
#include <pthread.h>
#include <stdarg.h>

enum { SPANS = 256 };

/* `heap` is the heap itself for heaps. */
typedef struct span {
    const char *begin;
    size_t nbytes;
    const struct span *heap;
} span_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards everything below */
static span_t spans[SPANS];
static char told[16384];
static size_t used;

static void __attribute__((format(printf, 1, 2))) tell(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (used < sizeof told - 1)
        used += (size_t)vsnprintf(told + used, sizeof told - used, format, list);
    va_end(list);
}

static span_t *add(const void *begin, size_t nbytes)
{
    for (span_t *span = spans; span < spans + SPANS; span++)
        if (span->nbytes == 0) {
            *span = (span_t){ .begin = begin, .nbytes = nbytes };
            return span;
        }
    tell("?full ");
    return NULL;
}

static span_t *find_region(const void *begin)
{
    for (span_t *span = spans; span < spans + SPANS; span++)
        if (span->nbytes && span->heap != span && span->begin == begin) return span;
    return NULL;
}

static nvtxMemHeapHandle_t heap_register(nvtxDomainHandle_t domain, nvtxMemHeapDesc_t const *what)
{
    const nvtxMemVirtualRangeDesc_t *range = what->typeSpecificDesc;
    (void)domain;
    pthread_mutex_lock(&lock);
    span_t *heap = NULL;
    if (what->extCompatID != NVTX_EXT_COMPATID_MEM || what->structSize != sizeof *what ||
        what->type != NVTX_MEM_TYPE_VIRTUAL_ADDRESS ||
        what->usage != NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR ||
        what->typeSpecificDescSize != sizeof *range || range->size == 0)
        tell("?heap ");
    else if ((heap = add(range->ptr, range->size)) != NULL) {
        heap->heap = heap;
        tell("heap %zu ", range->size);
    }
    pthread_mutex_unlock(&lock);
    return (nvtxMemHeapHandle_t)heap;
}

static void heap_unregister(nvtxDomainHandle_t domain, nvtxMemHeapHandle_t handle)
{
    span_t *heap = (span_t *)handle;
    (void)domain;
    pthread_mutex_lock(&lock);
    if (heap < spans || heap >= spans + SPANS || heap->nbytes == 0 || heap->heap != heap)
        tell("?-heap ");
    else {
        for (span_t *span = spans; span < spans + SPANS; span++)
            if (span->nbytes && span->heap == heap && span != heap) tell("?left ");
        heap->nbytes = 0;
        tell("-heap ");
    }
    pthread_mutex_unlock(&lock);
}

static void regions_register(nvtxDomainHandle_t domain, nvtxMemRegionsRegisterBatch_t const *what)
{
    const nvtxMemVirtualRangeDesc_t *ranges = what->regionDescElements;
    const span_t *heap = (const span_t *)what->heap;
    (void)domain;
    pthread_mutex_lock(&lock);
    if (what->extCompatID != NVTX_EXT_COMPATID_MEM || what->structSize != sizeof *what ||
        what->regionType != NVTX_MEM_TYPE_VIRTUAL_ADDRESS ||
        what->regionDescElementSize != sizeof *ranges)
        tell("?regions ");
    else
        for (size_t i = 0; i < what->regionCount; i++) {
            const char *begin = ranges[i].ptr;
            if (begin < heap->begin ||
                ranges[i].size > heap->nbytes - (size_t)(begin - heap->begin))
                tell("?outside ");
            for (const span_t *span = spans; span < spans + SPANS; span++)
                if (span->nbytes && span->heap != span && begin < span->begin + span->nbytes &&
                    span->begin < begin + ranges[i].size)
                    tell("?over ");
            span_t *region = add(begin, ranges[i].size);
            if (region != NULL) region->heap = heap;
            tell("region %zu ", ranges[i].size);
        }
    pthread_mutex_unlock(&lock);
}

static void regions_unregister(nvtxDomainHandle_t domain,
                               nvtxMemRegionsUnregisterBatch_t const *what)
{
    (void)domain;
    pthread_mutex_lock(&lock);
    if (what->extCompatID != NVTX_EXT_COMPATID_MEM || what->structSize != sizeof *what ||
        what->refType != NVTX_MEM_REGION_REF_TYPE_POINTER ||
        what->refElementSize != sizeof *what->refElements)
        tell("?-regions ");
    else
        for (size_t i = 0; i < what->refCount; i++) {
            span_t *region = find_region(what->refElements[i].pointer);
            if (region != NULL) region->nbytes = 0;
            tell(region != NULL ? "-region " : "?-region ");
        }
    pthread_mutex_unlock(&lock);
}

static void regions_name(nvtxDomainHandle_t domain, nvtxMemRegionsNameBatch_t const *what)
{
    (void)domain;
    pthread_mutex_lock(&lock);
    if (what->extCompatID != NVTX_EXT_COMPATID_MEM || what->structSize != sizeof *what ||
        what->regionElementSize != sizeof *what->regionElements)
        tell("?names ");
    else
        for (size_t i = 0; i < what->regionCount; i++) {
            const nvtxMemRegionNameDesc_t *name = &what->regionElements[i];
            const int is_known = name->regionRefType == NVTX_MEM_REGION_REF_TYPE_POINTER &&
                                 find_region(name->region.pointer) != NULL;
            tell("%s'%s' ", is_known && name->nameType == NVTX_MESSAGE_TYPE_ASCII ? "" : "?",
                 name->name.ascii);
        }
    pthread_mutex_unlock(&lock);
}

EXPORT int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module);
EXPORT int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module)
{
    if (getenv("NVTX_TOOL_RANGES_ONLY") || module->moduleId != NVTX_EXT_MODULEID_MEM ||
        module->compatId != NVTX_EXT_COMPATID_MEM || module->segmentsCount != 1 ||
        module->segments->slotCount <= NVTX3EXT_CBID_nvtxMemRegionsName)
        return 0;
    intptr_t *slots = module->segments->functionSlots;
    slots[NVTX3EXT_CBID_nvtxMemHeapRegister] = (intptr_t)heap_register;
    slots[NVTX3EXT_CBID_nvtxMemHeapUnregister] = (intptr_t)heap_unregister;
    slots[NVTX3EXT_CBID_nvtxMemRegionsRegister] = (intptr_t)regions_register;
    slots[NVTX3EXT_CBID_nvtxMemRegionsUnregister] = (intptr_t)regions_unregister;
    slots[NVTX3EXT_CBID_nvtxMemRegionsName] = (intptr_t)regions_name;
    return 1;
}

const char *nvtx_tool_memory(void)
{
    static char out[sizeof told];
    pthread_mutex_lock(&lock);
    memcpy(out, told, sizeof out);
    used = 0;
    told[0] = '\0';
    pthread_mutex_unlock(&lock);
    return out;
}

size_t nvtx_tool_regions(size_t *out_heaps)
{
    size_t regions = 0;
    *out_heaps = 0;
    pthread_mutex_lock(&lock);
    for (const span_t *span = spans; span < spans + SPANS; span++)
        *(span->heap == span ? out_heaps : &regions) += span->nbytes;
    pthread_mutex_unlock(&lock);
    return regions;
}

#else

const char *nvtx_tool_memory(void) { return NULL; }
size_t nvtx_tool_regions(size_t *out_heaps) { return *out_heaps = 0; }

#endif
