/* What a card, its driver and the libraries around it are, for people. Each part of the plugin that
 * has something to tell has a row in `parts`. Not here: what requests need to know (device.c asks
 * for that when the device is opened). See device.h. */
#include "backends/cuda/device.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/dnn.h"
#include "backends/cuda/lt.h"
#include "backends/cuda/nvtx.h"
#include "backends/cuda/virtual.h"
#include "runtime/base/c_locale.h"
#include "runtime/base/environment.h"

void fy__cuda_say(const fy__cuda_facts_t *facts, const char *key, const char *format, ...)
{
    char value[400];
    va_list args;
    va_start(args, format);
    fy__vsnprintf(value, sizeof value, format, args);
    va_end(args);
    facts->say(facts->user, key, value);
}

void fy__cuda_say_library(const fy__cuda_facts_t *facts, const char *key, const char *const *names,
                          const char *version_entry)
{
    char why[400] = "";
    size_t used = 0;
    for (; *names != NULL; names++) {
        /* they do not all survive being unloaded */
        void *library = dlopen(*names, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        size_t (*version_of)(void) = NULL;
        void *entry = library != NULL ? dlsym(library, version_entry) : NULL;
        Dl_info where = { 0 };
        if (entry == NULL) {
            const char *text = fy__dlerror();
            if (used < sizeof why)
                used += (size_t)snprintf(why + used, sizeof why - used, "%s%s",
                                         used > 0 ? "; " : "not found: ", text);
            if (library != NULL) dlclose(library);
            continue;
        }
        memcpy(&version_of, &entry, sizeof entry);
        size_t version = version_of();
        dladdr(entry, &where);
        fy__cuda_say(facts, key, "%zu.%zu.%zu, %s", version / 10000, version / 100 % 100,
                     version % 100, where.dli_fname != NULL ? where.dli_fname : *names);
        dlclose(library);
        return;
    }
    fy__cuda_say(facts, key, "%s", why);
}

/* ---- the card ---- */

static fy_status_t say_card(fy__cuda_device_t *dev, const fy__cuda_facts_t *facts)
{
    static const struct {
        const char *key;
        CUdevice_attribute attribute;
        int divisor; /* the driver speaks of kHz */
    } rows[] = {
        { "clock_mhz", CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000 },
        { "memory_clock_mhz", CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000 },
        { "memory_bus_bits", CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 1 },
        { "l2_bytes", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 },
        { "shared_bytes_per_processor", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
          1 },
        { "copy_engines", CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 1 },
        { "ecc", CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1 },
    };
    char bus[32] = "";
    fy__cuda_say(facts, "driver", "%d.%d", fy__cuda.version / 1000, fy__cuda.version % 1000 / 10);
    fy__cuda_say(facts, "compute_capability", "%d.%d", dev->major, dev->minor);
    fy__cuda_say(facts, "processors", "%d", dev->nprocessors);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int value = 0;
        FY_TRY(fy__cuda_attribute(dev, rows[i].attribute, &value));
        fy__cuda_say(facts, rows[i].key, "%d", value / rows[i].divisor);
    }
    FY_TRY(FY__CUDA_CALL(dev, cuDeviceGetPCIBusId, (bus, (int)sizeof bus, dev->handle),
                         "asking cuda:%d for its bus", dev->index));
    fy__cuda_say(facts, "pci_bus", "%s", bus);
    return FY_STATUS_OK;
}

/* Over NVLink a card may do atomics on its peer's memory, over PCIe it may not: the driver's API
 * has no other word for the difference. */
static fy_status_t say_peers(fy__cuda_device_t *dev, const fy__cuda_facts_t *facts)
{
    int count = 0;
    FY_TRY(FY__CUDA_CALL(dev, cuDeviceGetCount, (&count), "counting CUDA devices"));
    if (count <= 1) fy__cuda_say(facts, "peers", "none: this is the only device");
    for (int i = 0; i < count; i++) {
        int reached = 0, native = 0;
        char key[32];
        CUdevice peer;
        if (i == dev->index) continue;
        FY_TRY(FY__CUDA_CALL(dev, cuDeviceGet, (&peer, i), "looking at cuda:%d", i));
        FY_TRY(FY__CUDA_CALL(dev, cuDeviceCanAccessPeer, (&reached, dev->handle, peer),
                             "asking whether cuda:%d reaches cuda:%d", dev->index, i));
        if (reached)
            FY_TRY(FY__CUDA_CALL(
                dev, cuDeviceGetP2PAttribute,
                (&native, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, dev->handle, peer),
                "asking how cuda:%d reaches cuda:%d", dev->index, i));
        snprintf(key, sizeof key, "peer_cuda:%d", i);
        fy__cuda_say(facts, key, "%s", !reached ? "through the host" : native ? "NVLink" : "PCIe");
    }
    return FY_STATUS_OK;
}

static fy_status_t say_memory(fy__cuda_device_t *dev, const fy__cuda_facts_t *facts)
{
    if (dev->virtual_memory != NULL)
        fy__cuda_say(facts, "segments", "virtual, in steps of %llu bytes",
                     (unsigned long long)fy__cuda_virtual_step(dev->virtual_memory));
    else
        fy__cuda_say(facts, "segments", "fixed");
    return FY_STATUS_OK;
}

/* ---- libraries ---- */

static fy_status_t say_lt(fy__cuda_device_t *dev, const fy__cuda_facts_t *facts)
{
    const char *asked = fy__env_file("FERRY_CUBLASLT");
    fy__cuda_plans_t table;
    const char *const names[] = { asked != NULL ? asked : "libcublasLt.so.13",
                                  asked != NULL ? NULL : "libcublasLt.so.12", NULL };
    if (dev->wants_lt)
        fy__cuda_say_library(facts, "cublaslt", names, "cublasLtGetVersion");
    else
        fy__cuda_say(facts, "cublaslt",
                     "not used: FERRY_CUBLASLT=none; matmul takes Ferry's own kernel");
    fy__cuda_lt_query(dev->lt, &table);
    fy__cuda_say(facts, "f32_products", "%s", dev->tf32 ? "TF32 (tf32=on)" : "f32");
    fy__cuda_say(facts, "relu_of_linear", "%s",
                 dev->fused_relu ? "by cuBLASLt (relu=fused)" : "exact");
    fy__cuda_say(facts, "product_plans", "%u of %u, %llu hits, %llu misses, %llu evictions",
                 table.count, (unsigned)FY__CUDA_PLANS, (unsigned long long)table.hits,
                 (unsigned long long)table.misses, (unsigned long long)table.evictions);
    return FY_STATUS_OK;
}

static fy_status_t say_dnn(fy__cuda_device_t *dev, const fy__cuda_facts_t *facts)
{
#ifdef FERRY_HAS_CUDNN
    const char *asked = fy__env_file("FERRY_CUDNN");
    const char *const names[] = { asked != NULL ? asked : "libcudnn.so.9", NULL };
    if (dev->wants_dnn)
        fy__cuda_say_library(facts, "cudnn", names, "cudnnGetVersion");
    else
        fy__cuda_say(facts, "cudnn",
                     "not used: FERRY_CUDNN=none; convolutions take Ferry's own kernels");
#else
    fy__cuda_say(
        facts, "cudnn",
        "not used: the plugin was built without cudnn.h; convolutions take Ferry's own kernels");
#endif
    fy__cuda_say(facts, "autotune", dev->tune != NULL ? "on" : "off");
    return FY_STATUS_OK;
}

static fy_status_t say_tools(fy__cuda_device_t *dev, const fy__cuda_facts_t *facts)
{
    (void)dev;
    fy__cuda_say(facts, "nvtx", "%s", fy__cuda_nvtx_state());
    return FY_STATUS_OK;
}

/* ---- all of it ---- */

static fy_status_t (*const parts[])(fy__cuda_device_t *dev, const fy__cuda_facts_t *facts) = {
    say_card, say_peers, say_memory, say_lt, say_dnn, fy__cuda_nccl_say, say_tools,
};

fy_status_t fy__cuda_describe(void *dev_, fy_fact_fn say, void *user)
{
    fy__cuda_device_t *dev = dev_;
    const fy__cuda_facts_t facts = { say, user };
    fy__cuda_frame_t frame;
    FY_TRY(fy__cuda_enter(dev, &frame));
    fy_status_t status = FY_STATUS_OK;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && status == FY_STATUS_OK; i++)
        status = parts[i](dev, &facts);
    fy__cuda_leave(&frame);
    return status;
}
