/* Finding cuBLASLt. It brings its own copy of the runtime; what it needs from us is a current
 * context. A missing library is no reason to refuse the device: only matmul does, and says why. */
#include "backends/cuda/lt_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "backends/cuda/lt.h"
#include "runtime/base/c_locale.h"
#include "runtime/base/environment.h"

fy__cublaslt_t fy__cublaslt;

/* Guards the filling of fy__cublaslt; `loaded` is set last. */
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int loaded;

fy_status_t fy__cublaslt_status(cublasStatus_t code)
{
    switch (code) {
    case CUBLAS_STATUS_SUCCESS: return FY_STATUS_OK;
    case CUBLAS_STATUS_ALLOC_FAILED: return FY_STATUS_OUT_OF_MEMORY;
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_NOT_SUPPORTED: return FY_STATUS_UNSUPPORTED;
    case CUBLAS_STATUS_NOT_INITIALIZED:
    case CUBLAS_STATUS_LICENSE_ERROR: return FY_STATUS_UNAVAILABLE;
    default: return FY_STATUS_INTERNAL;
    }
}

const char *fy__cublaslt_name(cublasStatus_t code)
{
    switch (code) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR: return "CUBLAS_STATUS_LICENSE_ERROR";
    }
    return "unknown code";
}

static fy_status_t load(void)
{
    const char *asked = fy__env_file("FERRY_CUBLASLT");
    const char *const names[] = { asked != NULL ? asked : "libcublasLt.so.13",
                                  asked != NULL ? NULL : "libcublasLt.so.12" };
    char why[2][160] = { "", "" };
    fy__cublaslt_t table = { 0 };
    for (int i = 0; i < 2 && names[i] != NULL && table.library == NULL; i++) {
        table.library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        const char *text = table.library == NULL ? fy__dlerror() : NULL;
        if (text != NULL) snprintf(why[i], sizeof why[i], "%s%s", i > 0 ? "; " : "", text);
    }
    if (table.library == NULL)
        return FY__CUDA_FAIL(FY_STATUS_UNSUPPORTED,
                             "matmul on cuda needs cuBLASLt, and it did not load: %s%s\n  Install "
                             "it (CUDA toolkit), put it on "
                             "LD_LIBRARY_PATH, name it in FERRY_CUBLASLT, or set "
                             "FERRY_CUBLASLT=none for Ferry's own slow kernel",
                             why[0], why[1]);
    void *entry;
#define X(name)                                                                        \
    entry = dlsym(table.library, #name);                                               \
    if (entry == NULL) {                                                               \
        dlclose(table.library);                                                        \
        return FY__CUDA_FAIL(FY_STATUS_UNSUPPORTED,                                    \
                             "matmul on cuda: '%s' has no %s; cuBLASLt 12 or 13 does", \
                             asked != NULL ? asked : "libcublasLt", #name);            \
    }                                                                                  \
    memcpy(&table.name, &entry, sizeof entry);
    FY__CUBLASLT_LIST(X)
#undef X
    fy__cublaslt = table;
    return FY_STATUS_OK;
}

fy_status_t fy__cuda_lt_load(void)
{
    if (atomic_load_explicit(&loaded, memory_order_acquire)) return FY_STATUS_OK;
    pthread_mutex_lock(&load_lock);
    fy_status_t status = loaded ? FY_STATUS_OK : load();
    if (status == FY_STATUS_OK) atomic_store_explicit(&loaded, 1, memory_order_release);
    pthread_mutex_unlock(&load_lock);
    return status;
}
