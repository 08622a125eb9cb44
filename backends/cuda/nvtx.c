/* The only file, beside regions.c, that sees NVTX's headers. They find a tool by themselves, at the
 * first call, and make every other call nothing if there is none; a domain that could not be made
 * is how that shows.
 * Not here: who has ranges (memory.c, copy_many.c, graph.c, runtime/thread/scope.c), blocks of
 * memory (regions.c). */
#include "backends/cuda/nvtx.h"

#include <pthread.h>
#include <stddef.h>

int fy__cuda_listened;

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#define HAS_NVTX 1
#endif
#endif

#ifdef HAS_NVTX

#include <nvtx3/nvToolsExt.h>

/* for the process' life: others may be in a range when a device closes */
static nvtxDomainHandle_t domain;

static void open_domain(void)
{
    domain = nvtxDomainCreateA("ferry");
    fy__cuda_listened = domain != NULL;
    fy__cuda_regions_open(domain);
}

void fy__cuda_nvtx_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_domain);
}

void fy__cuda_range(const char *name)
{
    if (name == NULL) {
        nvtxDomainRangePop(domain);
        return;
    }
    nvtxEventAttributes_t attributes = { 0 };
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name;
    nvtxDomainRangePushEx(domain, &attributes);
}

const char *fy__cuda_nvtx_state(void)
{
    if (fy__cuda_regions_on)
        return fy__cuda_listened ? "ranges and blocks of memory go to a tool"
                                 : "blocks of memory go to a tool";
    return fy__cuda_listened ? "ranges go to a tool" : "no tool listens (NVTX_INJECTION64_PATH)";
}

#else

void fy__cuda_nvtx_open(void) {}
void fy__cuda_range(const char *name) { (void)name; }
const char *fy__cuda_nvtx_state(void)
{
    return "left out: this plugin was built without the nvtx3 headers";
}

#endif

fy_range_fn fy__cuda_ranges(void *dev)
{
    (void)dev;
    return fy__cuda_listened ? fy__cuda_range : NULL;
}
