/* Finding the driver and speaking for it. Not here: what the calls are used for. The table in driver.h says which entry points there
 * are; nothing else in the plugin looks a symbol up. */
#include "backends/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fy__cuda_driver_t fy__cuda;

#define DRIVER_LIBRARY "libcuda.so.1"

/* Guards the filling of fy__cuda. `loaded` is set last; readers of the table come through device_count or device_open, which took it. */
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static int loaded;

/* X(code, status): every code that is not our bug. Anything else is INTERNAL. */
#define STATUS_LIST(X)                                          \
    X(CUDA_ERROR_INVALID_VALUE, INVALID_ARGUMENT)               \
    X(CUDA_ERROR_OUT_OF_MEMORY, OUT_OF_MEMORY)                  \
    X(CUDA_ERROR_NOT_INITIALIZED, UNAVAILABLE)                  \
    X(CUDA_ERROR_DEINITIALIZED, UNAVAILABLE)                    \
    X(CUDA_ERROR_STUB_LIBRARY, UNAVAILABLE)                     \
    X(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, UNAVAILABLE)       \
    X(CUDA_ERROR_DEVICE_UNAVAILABLE, UNAVAILABLE)               \
    X(CUDA_ERROR_NO_DEVICE, UNAVAILABLE)                        \
    X(CUDA_ERROR_INVALID_DEVICE, UNAVAILABLE)                   \
    X(CUDA_ERROR_DEVICE_NOT_LICENSED, UNAVAILABLE)              \
    X(CUDA_ERROR_SYSTEM_NOT_READY, UNAVAILABLE)                 \
    X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, UNAVAILABLE)           \
    X(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, UNAVAILABLE)   \
    X(CUDA_ERROR_MPS_CONNECTION_FAILED, UNAVAILABLE)            \
    X(CUDA_ERROR_MPS_RPC_FAILURE, UNAVAILABLE)                  \
    X(CUDA_ERROR_MPS_SERVER_NOT_READY, UNAVAILABLE)             \
    X(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, UNAVAILABLE)          \
    X(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, UNAVAILABLE)      \
    X(CUDA_ERROR_INVALID_IMAGE, UNSUPPORTED)                    \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, UNSUPPORTED)                \
    X(CUDA_ERROR_INVALID_PTX, UNSUPPORTED)                      \
    X(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, UNSUPPORTED)           \
    X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, UNSUPPORTED)          \
    X(CUDA_ERROR_JIT_COMPILATION_DISABLED, UNSUPPORTED)         \
    X(CUDA_ERROR_NOT_SUPPORTED, UNSUPPORTED)                    \
    X(CUDA_ERROR_NOT_PERMITTED, UNSUPPORTED)                    \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, UNSUPPORTED)       \
    X(CUDA_ERROR_NOT_READY, TIMEOUT)                            \
    X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, BUSY)          \
    X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, INVALID_ARGUMENT)  \
    /* After one of these thirteen only a new process helps. */ \
    X(CUDA_ERROR_CONTAINED, DEVICE_LOST)                        \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, DEVICE_LOST)                  \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, DEVICE_LOST)                   \
    X(CUDA_ERROR_ASSERT, DEVICE_LOST)                           \
    X(CUDA_ERROR_HARDWARE_STACK_ERROR, DEVICE_LOST)             \
    X(CUDA_ERROR_ILLEGAL_INSTRUCTION, DEVICE_LOST)              \
    X(CUDA_ERROR_MISALIGNED_ADDRESS, DEVICE_LOST)               \
    X(CUDA_ERROR_INVALID_ADDRESS_SPACE, DEVICE_LOST)            \
    X(CUDA_ERROR_INVALID_PC, DEVICE_LOST)                       \
    X(CUDA_ERROR_LAUNCH_FAILED, DEVICE_LOST)                    \
    X(CUDA_ERROR_TENSOR_MEMORY_LEAK, DEVICE_LOST)               \
    X(CUDA_ERROR_MPS_CLIENT_TERMINATED, DEVICE_LOST)            \
    X(CUDA_ERROR_EXTERNAL_DEVICE, DEVICE_LOST)

fy_status_t fy__cuda_status(CUresult code)
{
    switch ((int)code) {
    case CUDA_SUCCESS: return FY_STATUS_OK;
#define X(name, status) \
    case name: return FY_STATUS_##status;
        STATUS_LIST(X)
#undef X
    default: return FY_STATUS_INTERNAL;
    }
}

int fy__cuda_is_fatal(CUresult code) { return fy__cuda_status(code) == FY_STATUS_DEVICE_LOST; }

/* What the reader can do about it; true for every code of that status. */
static const char *advice(fy_status_t status)
{
    switch (status) {
    case FY_STATUS_OUT_OF_MEMORY: return "free or trim device memory (another process may hold some: see nvidia-smi), then try again";
    case FY_STATUS_DEVICE_LOST:
        return "the CUDA context is broken until this process ends; host tensors stay readable: save them and restart";
    case FY_STATUS_UNAVAILABLE: return "check the driver and CUDA_VISIBLE_DEVICES with nvidia-smi";
    case FY_STATUS_UNSUPPORTED: return "this driver or GPU cannot do it; docs/cuda.md lists what is needed";
    case FY_STATUS_BUSY: return "the memory is page-locked already: unregister it there first, or hand Ferry other memory";
    case FY_STATUS_INVALID_ARGUMENT: return "the driver does not accept what it was given";
    case FY_STATUS_INTERNAL: return "the driver was called in a way it does not expect: please report this text";
    default: return "it may succeed later";
    }
}

fy_status_t fy__cuda_failed(CUresult code, const char *file, int line, const char *call, const char *format, ...)
{
    char asked[200];
    va_list args;
    va_start(args, format);
    vsnprintf(asked, sizeof asked, format, args);
    va_end(args);
    const char *name = NULL, *text = NULL;
    if (fy__cuda.cuGetErrorName == NULL || fy__cuda.cuGetErrorName(code, &name) != CUDA_SUCCESS || name == NULL) name = "unknown code";
    if (fy__cuda.cuGetErrorString == NULL || fy__cuda.cuGetErrorString(code, &text) != CUDA_SUCCESS || text == NULL) text = "no text";
    fy_status_t status = fy__cuda_status(code);
    return fy__cuda.host->fail(status, file, line, "%s: %s gave %s (%d: %s)\n  %s", asked, call, name, (int)code, text, advice(status));
}

typedef CUresult(CUDAAPI *get_proc_fn)(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                       CUdriverProcAddressQueryResult *status);

static const char *library_name(void)
{
    const char *name = getenv("FERRY_CUDA_DRIVER");
    return name != NULL && name[0] != '\0' ? name : DRIVER_LIBRARY;
}

/* What this driver has not stays NULL. */
static void resolve_optional(fy__cuda_driver_t *table, get_proc_fn get_proc)
{
    CUdriverProcAddressQueryResult found;
    void *entry;
#define X(member, name, since)                                                                                                             \
    entry = NULL;                                                                                                                          \
    if (table->version >= (since) && get_proc(#name, &entry, since, CU_GET_PROC_ADDRESS_DEFAULT, &found) == CUDA_SUCCESS && entry != NULL) \
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
#define X(name, since)                                                                                                                \
    entry = NULL;                                                                                                                     \
    found = CU_GET_PROC_ADDRESS_SUCCESS;                                                                                              \
    if (get_proc(#name, &entry, since, CU_GET_PROC_ADDRESS_DEFAULT, &found) != CUDA_SUCCESS || entry == NULL)                         \
        return FY__CUDA_FAIL(FY_STATUS_UNAVAILABLE,                                                                                   \
                             "CUDA driver '%s' has no %s of version %d (query result %d): Ferry needs driver 12.0 or newer", library, \
                             #name, since, (int)found);                                                                               \
    memcpy(&table->name, &entry, sizeof entry);
    FY__CUDA_DRIVER_LIST(X)
#undef X
    return FY_STATUS_OK;
}

static fy_status_t load(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        return FY__CUDA_FAIL(FY_STATUS_UNAVAILABLE,
                             "no CUDA driver: dlopen(\"%s\") failed: %s\n  Install the NVIDIA driver (it brings %s), or name another file "
                             "in FERRY_CUDA_DRIVER",
                             name, why != NULL ? why : "no reason given", DRIVER_LIBRARY);
    }
    fy__cuda_driver_t table = { .host = fy__cuda.host, .library = library };
    get_proc_fn get_proc = NULL;
    void *entry = dlsym(library, "cuGetProcAddress_v2");
    memcpy(&get_proc, &entry, sizeof entry);
    fy_status_t status;
    int started = 0;
    if (get_proc == NULL)
        status = FY__CUDA_FAIL(FY_STATUS_UNAVAILABLE, "'%s' has no cuGetProcAddress_v2: Ferry needs CUDA driver 12.0 or newer", name);
    else
        status = resolve(&table, get_proc, name);
    if (status == FY_STATUS_OK) {
        fy__cuda = table;
        CUresult code = fy__cuda.cuInit(0);
        started = 1;
        if (code != CUDA_SUCCESS) {
            const char *code_name = NULL;
            if (fy__cuda.cuGetErrorName(code, &code_name) != CUDA_SUCCESS || code_name == NULL) code_name = "unknown code";
            status = FY__CUDA_FAIL(FY_STATUS_UNAVAILABLE,
                                   "CUDA driver '%s' loaded, but cuInit gave %s (%d)\n  Is there a GPU, and may this process use it? "
                                   "nvidia-smi says; CUDA_VISIBLE_DEVICES hides devices",
                                   name, code_name, (int)code);
        }
    }
    if (status == FY_STATUS_OK && fy__cuda.cuDriverGetVersion(&fy__cuda.version) != CUDA_SUCCESS) fy__cuda.version = 0;
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
