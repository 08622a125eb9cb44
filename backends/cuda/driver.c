/* Finding the driver. The table in driver.h says which entry points there are; nothing else in the
 * plugin looks a driver's symbol up. Not here: what its codes mean (codes.c), what the calls are
 * used for. */
#include "backends/cuda/driver.h"
#include "runtime/base/c_locale.h"
#include "runtime/base/environment.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

fy__cuda_driver_t fy__cuda;

#define DRIVER_LIBRARY "libcuda.so.1"

/* Guards the filling of fy__cuda. `loaded` is set last; readers of the table come through
 * device_count or device_open, which took it. */
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static int loaded;

typedef CUresult(CUDAAPI *get_proc_fn)(const char *symbol, void **pfn, int version,
                                       cuuint64_t flags, CUdriverProcAddressQueryResult *status);

static const char *library_name(void)
{
    const char *name = fy__env_file("FERRY_CUDA_DRIVER");
    return name != NULL ? name : DRIVER_LIBRARY;
}

/* What this driver has not stays NULL. */
static void resolve_optional(fy__cuda_driver_t *table, get_proc_fn get_proc)
{
    CUdriverProcAddressQueryResult found;
    void *entry;
#define X(member, name, since)                                                                 \
    entry = NULL;                                                                              \
    if (table->version >= (since) &&                                                           \
        get_proc(#name, &entry, since, CU_GET_PROC_ADDRESS_DEFAULT, &found) == CUDA_SUCCESS && \
        entry != NULL)                                                                         \
        memcpy(&table->member, &entry, sizeof entry);
    FY__CUDA_DRIVER_OPTIONAL_LIST(X)
#undef X
}

/* Fills every entry of `table`; the first that is missing fails. */
static fy_status_t resolve(fy__cuda_driver_t *table, get_proc_fn get_proc, const char *library)
{
    CUdriverProcAddressQueryResult found;
    void *entry;
/* A function pointer cannot be assigned from void * in ISO C: copy its bytes. */
#define X(name, since)                                                                            \
    entry = NULL;                                                                                 \
    found = CU_GET_PROC_ADDRESS_SUCCESS;                                                          \
    if (get_proc(#name, &entry, since, CU_GET_PROC_ADDRESS_DEFAULT, &found) != CUDA_SUCCESS ||    \
        entry == NULL)                                                                            \
        return FY__CUDA_FAIL(FY_STATUS_UNAVAILABLE,                                               \
                             "CUDA driver '%s' has no %s of version %d (query result %d): Ferry " \
                             "needs driver 12.0 or newer",                                        \
                             library, #name, since, (int)found);                                  \
    memcpy(&table->name, &entry, sizeof entry);
    FY__CUDA_DRIVER_LIST(X)
#undef X
    return FY_STATUS_OK;
}

static fy_status_t load(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = fy__dlerror();
        return FY__CUDA_FAIL(FY_STATUS_UNAVAILABLE,
                             "no CUDA driver: dlopen(\"%s\") failed: %s\n  Install the NVIDIA "
                             "driver (it brings %s), or name another file "
                             "in FERRY_CUDA_DRIVER",
                             name, why != NULL ? why : "no reason given", DRIVER_LIBRARY);
    }
    fy__cuda_driver_t table = { .host = fy__cuda.host, .library = library };
    get_proc_fn get_proc = NULL;
    void *entry = dlsym(library, "cuGetProcAddress_v2");
    memcpy(&get_proc, &entry, sizeof entry);
    if (get_proc == NULL) {
        fy_status_t status = FY__CUDA_FAIL(
            FY_STATUS_UNAVAILABLE,
            "'%s' has no cuGetProcAddress_v2: Ferry needs CUDA driver 12.0 or newer", name);
        dlclose(library);
        return status;
    }
    fy_status_t status = resolve(&table, get_proc, name);
    int started = 0;
    if (status == FY_STATUS_OK) {
        fy__cuda = table;
        CUresult code = fy__cuda.cuInit(0);
        started = 1;
        if (code != CUDA_SUCCESS) {
            const char *code_name = NULL;
            if (fy__cuda.cuGetErrorName(code, &code_name) != CUDA_SUCCESS || code_name == NULL)
                code_name = "unknown code";
            status = FY__CUDA_FAIL(FY_STATUS_UNAVAILABLE,
                                   "CUDA driver '%s' loaded, but cuInit gave %s (%d)\n  Is there a "
                                   "GPU, and may this process use it? "
                                   "nvidia-smi says; CUDA_VISIBLE_DEVICES hides devices",
                                   name, code_name, (int)code);
        }
    }
    if (status == FY_STATUS_OK && fy__cuda.cuDriverGetVersion(&fy__cuda.version) != CUDA_SUCCESS)
        fy__cuda.version = 0;
    if (status == FY_STATUS_OK) resolve_optional(&fy__cuda, get_proc);
    if (status != FY_STATUS_OK) {
        fy__cuda = (fy__cuda_driver_t){ .host = fy__cuda.host };
        if (!started) dlclose(library); /* a driver that ran cuInit may have threads: it stays */
    }
    return status;
}

fy_status_t fy__cuda_driver_load(void)
{
    pthread_mutex_lock(&load_lock);
    fy_status_t status = loaded ? FY_STATUS_OK : load(library_name());
    if (status == FY_STATUS_OK) loaded = 1;
    pthread_mutex_unlock(&load_lock);
    return status;
}
