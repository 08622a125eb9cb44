/* Finding NCCL, and what its codes mean. A missing library is no failure of a device: sums over
 * devices go by copies then. */
#include "backends/cuda/nccl_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/device.h"
#include "runtime/base/c_locale.h"
#include "runtime/base/environment.h"

fy__nccl_t fy__nccl;

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Written under `once`; empty: it is there. `lacks`: an entry for several processes. */
static char why_not[256];
static const char *lacks;

static const char *asked_for(void)
{
    const char *name = fy__env_file("FERRY_NCCL");
    return name != NULL ? name : "libnccl.so.2";
}

static void load(void)
{
    const char *name = asked_for();
    if (strcmp(name, "none") == 0) {
        snprintf(why_not, sizeof why_not, "not used: FERRY_NCCL=none");
        return;
    }
    fy__nccl_t table = { .library = dlopen(name, RTLD_NOW | RTLD_LOCAL) };
    if (table.library == NULL) {
        const char *text = fy__dlerror();
        snprintf(why_not, sizeof why_not, "not found: %s", text != NULL ? text : name);
        return;
    }
    void *entry;
#define X(name, result, parameters)                                                             \
    entry = dlsym(table.library, #name);                                                        \
    if (entry == NULL) {                                                                        \
        snprintf(why_not, sizeof why_not, "'%s' has no %s; NCCL from 2.4 on does", asked_for(), \
                 #name);                                                                        \
        dlclose(table.library);                                                                 \
        return;                                                                                 \
    }                                                                                           \
    memcpy(&table.name, &entry, sizeof entry);
    FY__NCCL_LIST(X)
#undef X
#define X(name, result, parameters)      \
    entry = dlsym(table.library, #name); \
    if (entry == NULL) lacks = #name;    \
    memcpy(&table.name, &entry, sizeof entry);
    FY__NCCL_RANKS_LIST(X)
#undef X
    fy__nccl = table;
}

fy_status_t fy__nccl_load(void)
{
    pthread_once(&once, load);
    if (why_not[0] == '\0') return FY_STATUS_OK;
    return FY__CUDA_FAIL(FY_STATUS_UNSUPPORTED, "sums over devices by NCCL: %s", why_not);
}

fy_status_t fy__nccl_load_ranks(void)
{
    pthread_once(&once, load);
    if (why_not[0] != '\0')
        return FY__CUDA_FAIL(FY_STATUS_UNSUPPORTED, "calls between processes by NCCL: %s", why_not);
    if (lacks == NULL) return FY_STATUS_OK;
    return FY__CUDA_FAIL(FY_STATUS_UNSUPPORTED, "'%s' has no %s; NCCL from 2.14 on does",
                         asked_for(), lacks);
}

fy_status_t fy__cuda_nccl_say(fy__cuda_device_t *dev, const fy__cuda_facts_t *facts)
{
    int version = 0;
    Dl_info where = { 0 };
    void *entry;
    (void)dev;
    pthread_once(&once, load);
    if (why_not[0] != '\0') {
        fy__cuda_say(facts, "nccl", "%s; sums over devices go by copies", why_not);
        return FY_STATUS_OK;
    }
    memcpy(&entry, &fy__nccl.ncclGetVersion, sizeof entry);
    dladdr(entry, &where);
    (void)fy__nccl.ncclGetVersion(&version); /* major * 10000 + minor * 100 + patch, since 2.9 */
    fy__cuda_say(facts, "nccl", "%d.%d.%d, %s", version / 10000, version / 100 % 100, version % 100,
                 where.dli_fname != NULL ? where.dli_fname : asked_for());
    return FY_STATUS_OK;
}

fy_status_t fy__nccl_status(int code)
{
    switch (code) {
    case 0: return FY_STATUS_OK;
#define X(number, name, status) \
    case number: return FY_STATUS_##status;
        FY__NCCL_CODE_LIST(X)
#undef X
    default: return FY_STATUS_INTERNAL;
    }
}

const char *fy__nccl_name(int code)
{
    switch (code) {
#define X(number, name, status) \
    case number: return #name;
        FY__NCCL_CODE_LIST(X)
#undef X
    default: return "a code newer than this Ferry";
    }
}
