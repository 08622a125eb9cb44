/* Finding cuDNN, and what its codes mean. It is never needed: Ferry's own kernels do what it does,
 * so a library that is missing is said in the log, once, and nothing is refused. Next: dnn.c. */
#include "backends/cuda/dnn_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "backends/cuda/dnn.h"
#include "runtime/base/c_locale.h"
#include "runtime/base/environment.h"

fy__cudnn_t fy__cudnn;

/* Guards the filling of fy__cudnn; `loaded` is set last. */
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int loaded;

/* By thousands of the code. Another kernel runs a convolution that is UNSUPPORTED; other codes fail
 * the op. */
fy_status_t fy__cudnn_status(cudnnStatus_t code)
{
    if (code == CUDNN_STATUS_SUCCESS) return FY_STATUS_OK;
    if (code == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
        code == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        return FY_STATUS_OUT_OF_MEMORY;
    switch ((int)code / 1000) {
    case 1: return FY_STATUS_UNAVAILABLE;
    case 3: return FY_STATUS_UNSUPPORTED;
    default: return FY_STATUS_INTERNAL;
    }
}

/* Nothing has run while a plan is made. So codes from 1000 (not initialized) and 2000 (bad
 * parameter) and a failed compilation are refusals. */
fy_status_t fy__cudnn_planning_status(cudnnStatus_t code)
{
    const int thousands = (int)code / 1000;
    if (thousands == 1 || thousands == 2 || code == CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED)
        return FY_STATUS_UNSUPPORTED;
    return fy__cudnn_status(code);
}

const char *fy__cudnn_name(cudnnStatus_t code)
{
    switch ((int)code / 1000) {
    case 0: return "CUDNN_STATUS_SUCCESS";
    case 1: return "CUDNN_STATUS_NOT_INITIALIZED or its like";
    case 2: return "CUDNN_STATUS_BAD_PARAM";
    case 3: return "CUDNN_STATUS_NOT_SUPPORTED";
    case 4: return "CUDNN_STATUS_INTERNAL_ERROR";
    case 5: return "CUDNN_STATUS_EXECUTION_FAILED";
    default: return "an unknown code";
    }
}

static fy_status_t load(const char *name)
{
    fy__cudnn_t table = { .library = dlopen(name, RTLD_NOW | RTLD_LOCAL) };
    void *entry;
    if (table.library == NULL) {
        const char *why = fy__dlerror();
        return FY__CUDA_FAIL(FY_STATUS_UNSUPPORTED, "cuDNN did not load: %s",
                             why != NULL ? why : name);
    }
#define X(call)                                                                                   \
    entry = dlsym(table.library, #call);                                                          \
    if (entry == NULL) {                                                                          \
        dlclose(table.library);                                                                   \
        return FY__CUDA_FAIL(FY_STATUS_UNSUPPORTED, "'%s' has no %s; cuDNN 9 does", name, #call); \
    }                                                                                             \
    memcpy(&table.call, &entry, sizeof entry);
    FY__CUDNN_LIST(X)
#undef X
    if (table.cudnnGetVersion() / 10000 != 9) { /* the structs of the heuristics may have changed */
        const unsigned long long version = table.cudnnGetVersion();
        dlclose(table.library);
        return FY__CUDA_FAIL(FY_STATUS_UNSUPPORTED,
                             "'%s' is cuDNN of version number %llu; version 9 is needed", name,
                             version);
    }
    fy__cudnn = table;
    return FY_STATUS_OK;
}

fy_status_t fy__cudnn_load(void)
{
    if (atomic_load_explicit(&loaded, memory_order_acquire)) return FY_STATUS_OK;
    const char *asked = fy__env_file("FERRY_CUDNN");
    pthread_mutex_lock(&load_lock);
    const fy_status_t status = loaded ? FY_STATUS_OK
                                      : load(asked != NULL ? asked : "libcudnn.so.9");
    if (status == FY_STATUS_OK) atomic_store_explicit(&loaded, 1, memory_order_release);
    pthread_mutex_unlock(&load_lock);
    return status;
}
