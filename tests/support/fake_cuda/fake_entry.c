/* Entry points of the fake: cuGetProcAddress, counting, failing on request, the error names. See
 * fake_context.c, fake_memory.c. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/codes.h"
#include "tests/support/fake_cuda/fake.h"

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int64_t calls[FAKE_ENTRIES];
static int fail_entry = -1; /* FAKE_ENTRIES: any */
static int64_t fail_after;  /* calls until one fails; 0: none fails */
static int fail_code;
static int fail_ever;  /* later calls fail too */
static int fail_fatal; /* the code that loses the context; 0: none */

enum { TRACED = 4096 };
static unsigned short trace[TRACED];
static int tracing, ntraced;
static char traced_text[TRACED * 24];

static const char *const names[FAKE_ENTRIES] = {
#define X(name, since) #name,
    FY__CUDA_DRIVER_LIST(X)
#undef X
#define X(member, name, since) #member,
        FY__CUDA_DRIVER_OPTIONAL_LIST(X)
#undef X
#define X(name) #name,
            FY__CUBLASLT_LIST(X)
#ifdef FERRY_HAS_CUDNN
                FY__CUDNN_LIST(X)
#endif
#undef X
#define X(name, result, parameters) #name,
                    FY__NCCL_LIST(X) FY__NCCL_RANKS_LIST(X)
#undef X
};

void fake_lock(void) { pthread_mutex_lock(&lock); }
void fake_unlock(void) { pthread_mutex_unlock(&lock); }

int fake_enter(enum fake_entry entry)
{
    fake_lock();
    calls[entry]++;
    if (tracing && ntraced <= TRACED) {
        if (ntraced < TRACED) trace[ntraced] = (unsigned short)entry;
        ntraced++;
    }
    if (fail_after == 0 || (fail_entry != FAKE_ENTRIES && fail_entry != (int)entry)) return 0;
    if (--fail_after > 0) return 0;
    if (fail_ever) fail_after = 1;
    if (fail_ever && fail_entry == FAKE_ENTRIES && strncmp(names[entry], "cuCtx", 5) == 0) return 0;
    if (fail_fatal != 0) fake_lose_current(fail_fatal);
    if (fail_entry == FAKE_ENTRIES && strncmp(names[entry], "cudnn", 5) == 0) {
        if (fake_is_fatal(fail_code)) fake_lose_current(fail_code);
        return fake_is_fatal(fail_code) ? 5000
               : fail_code == 2         ? 4003
                                /* EXECUTION_FAILED, HOST_ALLOCATION_FAILED,
                                         * INTERNAL_ERROR */
                                : 4000;
    }
    if (fail_entry != FAKE_ENTRIES || strncmp(names[entry], "cublas", 6) != 0) return fail_code;
    /* Any call was to fail, with a driver's code, and the next one is cuBLASLt's: it has its own
     * codes, and a fault belongs to the context. */
    if (fake_is_fatal(fail_code)) fake_lose_current(fail_code);
    return fake_is_fatal(fail_code) ? CUBLAS_STATUS_EXECUTION_FAILED
           : fail_code == 2         ? CUBLAS_STATUS_ALLOC_FAILED
                                    : CUBLAS_STATUS_INTERNAL_ERROR;
}

int fake_leave(int code)
{
    fake_unlock();
    return code;
}

static int find(const char *name)
{
    for (int i = 0; i < FAKE_ENTRIES; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

int64_t fake_cuda_calls(const char *name)
{
    int i = find(name);
    fake_lock();
    int64_t n = i < 0 ? -1 : calls[i];
    fake_unlock();
    return n;
}

int64_t fake_cuda_all_calls(void)
{
    int64_t n = 0;
    fake_lock();
    for (int i = 0; i < FAKE_ENTRIES; i++) n += calls[i];
    fake_unlock();
    return n;
}

static void plan_failure(const char *name, int64_t nth, int code, int ever, int fatal)
{
    fake_lock();
    fail_entry = name == NULL ? FAKE_ENTRIES : find(name);
    fail_after = fail_entry < 0 ? 0 : nth;
    fail_code = code;
    fail_ever = ever;
    fail_fatal = fatal;
    fake_unlock();
}
void fake_cuda_fail(const char *name, int64_t nth, int code)
{
    plan_failure(name, nth, code, 0, 0);
}
void fake_cuda_fail_from(const char *name, int64_t nth, int code)
{
    plan_failure(name, nth, code, 1, 0);
}
void fake_cuda_break(const char *name, int64_t nth, int code, int fatal)
{
    plan_failure(name, nth, code, 0, fatal);
}

void fake_cuda_trace(int on)
{
    fake_lock();
    if (on) ntraced = 0;
    tracing = on;
    fake_unlock();
}

const char *fake_cuda_traced(void)
{
    size_t used = 0;
    fake_lock();
    for (int i = 0; i < ntraced && i < TRACED; i++) {
        const size_t length = strlen(names[trace[i]]);
        if (used + length + 2 > sizeof traced_text) break;
        memcpy(traced_text + used, names[trace[i]], length);
        used += length;
        traced_text[used++] = ' ';
    }
    traced_text[used] = '\0';
    const int too_many = ntraced > TRACED;
    fake_unlock();
    return too_many ? NULL : traced_text;
}

/* The release of this driver: $FAKE_CUDA_VERSION, as cuDriverGetVersion returns it (12040). */
static int driver_version(void)
{
    const char *version = getenv("FAKE_CUDA_VERSION");
    return version != NULL ? atoi(version) : 13000;
}

__attribute__((visibility("default"))) CUresult
cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                    CUdriverProcAddressQueryResult *status)
{
    static const struct {
        const char *name;
        int since;
        void (*entry)(void);
    } table[] = {
#define X(name, since) { #name, since, (void (*)(void))fake_##name },
        FY__CUDA_DRIVER_LIST(X)
#undef X
#define X(member, name, since) { #name, since, (void (*)(void))fake_##member },
            FY__CUDA_DRIVER_OPTIONAL_LIST(X)
#undef X
    };
    (void)flags;
    *pfn = NULL;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].name, symbol) != 0 || table[i].since > driver_version()) continue;
        /* one signature for each: the version that the plugin was written for */
        int fits = version == table[i].since;
        /* a newer version of the entry */
        if (!fits && i + 1 < sizeof table / sizeof *table && strcmp(table[i + 1].name, symbol) == 0)
            continue;
        if (fits) memcpy(pfn, &table[i].entry, sizeof *pfn);
        if (status != NULL)
            *status = fits ? CU_GET_PROC_ADDRESS_SUCCESS
                           : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        return fits ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
    }
    if (status != NULL) *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_ERROR_NOT_FOUND;
}

/* ---- entries without a context ---- */

CUresult fake_cuInit(unsigned int flags)
{
    (void)flags;
    int code = fake_enter(FAKE_cuInit);
    if (code == 0) code = fake_memory_init();
    return (CUresult)fake_leave(code);
}

CUresult fake_cuDriverGetVersion(int *version)
{
    int code = fake_enter(FAKE_cuDriverGetVersion);
    *version = driver_version();
    return (CUresult)fake_leave(code);
}

CUresult fake_cuGetErrorName(CUresult error, const char **out)
{
    *out = NULL;
    switch ((int)error) {
#define X(number, name, status) \
    case number: *out = "CUDA_ERROR_" #name; return CUDA_SUCCESS;
        FY__CUDA_CODE_LIST(X)
#undef X
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult fake_cuGetErrorString(CUresult error, const char **out)
{
    (void)error;
    *out = "fake driver";
    return CUDA_SUCCESS;
}
