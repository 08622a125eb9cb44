/* Contexts, streams, modules of the fake. Handles are slots of fixed tables; a slot is reused at
 * once, so a stale handle may name a new object, as with the real driver. Every call checks that
 * the handle's context is the current one. Not here: attributes of a device (fake_device.c), events
 * (fake_event.c). */
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/codes.h"
#include "tests/support/fake_cuda/fake.h"

enum { NHANDLES = 4096, NKERNELS = 64, DEPTH = 16 };

struct CUstream_st {
    CUcontext context; /* NULL: destroyed */
};
struct CUfunc_st {
    CUmodule module;
    char name[48];
};
struct CUmod_st {
    CUcontext context;
    struct CUfunc_st functions[NKERNELS];
};

static struct CUctx_st primary[FAKE_DEVICES], own[16];
static int nown;
static struct CUstream_st streams[NHANDLES];
enum { NMODULES = 64 };
static struct CUmod_st modules[NMODULES];
static int64_t live_streams, live_modules;
static uint64_t leaked, misuses;

static _Thread_local CUcontext stack[DEPTH];
static _Thread_local int depth;

int fake_is_fatal(int code)
{
    switch (code) {
#define X(number) case number:
        FY__CUDA_PROCESS_FATAL_LIST(X)
#undef X
        return 1;
    default: return 0;
    }
}

int fake_enter_context(enum fake_entry entry, CUcontext *out)
{
    int code = fake_enter(entry);
    *out = depth > 0 ? stack[depth - 1] : NULL;
    if (*out == NULL || (*out)->refs == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if ((*out)->lost != 0) return (int)(*out)->lost;
    if (fake_is_fatal(code)) (*out)->lost = (CUresult)code;
    return code != 0 ? code : fake_capture_forbids(entry);
}

int fake_enter_release(enum fake_entry entry, CUcontext *out, int *out_told)
{
    *out_told = fake_enter(entry);
    *out = depth > 0 ? stack[depth - 1] : NULL;
    if (*out == NULL || (*out)->refs == 0) return *out_told = CUDA_ERROR_INVALID_CONTEXT;
    if ((*out)->lost != 0) return *out_told = (int)(*out)->lost;
    if (fake_is_fatal(*out_told)) (*out)->lost = (CUresult)*out_told;
    if (*out_told == 0) *out_told = fake_capture_forbids(entry);
    return 0;
}

void fake_lose_current(int code)
{
    if (depth > 0) stack[depth - 1]->lost = (CUresult)code;
}

void fake_count_misuse(void) { misuses++; }
void fake_count_leak(uint64_t n) { leaked += n; }
uint64_t fake_cuda_leaked(void) { return leaked; }
uint64_t fake_cuda_misuses(void) { return misuses; }

/* ---- contexts ---- */

CUresult fake_cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    int code = fake_enter(FAKE_cuDevicePrimaryCtxRetain);
    *out = NULL;
    if (code == 0) {
        primary[device].device = device;
        primary[device].refs++;
        *out = &primary[device];
    }
    return (CUresult)fake_leave(code);
}

CUresult fake_cuDevicePrimaryCtxRelease(CUdevice device)
{
    int code = 0, told = fake_enter(FAKE_cuDevicePrimaryCtxRelease); /* as fake_enter_release */
    if (code == 0 && primary[device].refs == 0) {
        misuses++;
        code = CUDA_ERROR_INVALID_CONTEXT;
    }
    if (code == 0 && --primary[device].refs == 0) {
        fake_memory_close(device, primary[device].lost != 0);
        fake_graphs_close(&primary[device], primary[device].lost != 0);
        fake_handles_close(&primary[device], primary[device].lost != 0);
        primary[device].lost = CUDA_SUCCESS;
        primary[device].peers = 0;
    }
    return (CUresult)fake_leave(code != 0 ? code : told);
}

CUcontext fake_primary(int device) { return primary[device].refs > 0 ? &primary[device] : NULL; }

void *fake_cuda_context(int device)
{
    fake_lock();
    CUcontext context = &own[nown++ % 16];
    *context = (struct CUctx_st){ .device = device, .refs = 1 };
    fake_unlock();
    return context;
}

void fake_cuda_application(void *context)
{
    fake_lock();
    if (context != NULL && depth < DEPTH) stack[depth++] = context;
    if (context == NULL && depth > 0) depth--;
    fake_unlock();
}

void *fake_cuda_current(void) { return depth > 0 ? stack[depth - 1] : NULL; }

CUresult fake_cuCtxGetCurrent(CUcontext *out)
{
    int code = fake_enter(FAKE_cuCtxGetCurrent);
    *out = depth > 0 ? stack[depth - 1] : NULL;
    return (CUresult)fake_leave(code);
}

CUresult fake_cuCtxSetCurrent(CUcontext context)
{
    int code = fake_enter(FAKE_cuCtxSetCurrent);
    if (code == 0 && context != NULL && context->refs == 0) code = CUDA_ERROR_INVALID_CONTEXT;
    if (code == 0 && context == NULL && depth > 0) depth--;
    if (code == 0 && context != NULL) stack[depth > 0 ? depth - 1 : depth++] = context;
    return (CUresult)fake_leave(code);
}

CUresult fake_cuCtxPushCurrent(CUcontext context)
{
    int code = fake_enter(FAKE_cuCtxPushCurrent);
    if (code == 0 && (context == NULL || context->refs == 0 || depth == DEPTH))
        code = CUDA_ERROR_INVALID_CONTEXT;
    if (code == 0) stack[depth++] = context;
    return (CUresult)fake_leave(code);
}

CUresult fake_cuCtxPopCurrent(CUcontext *out)
{
    int code = fake_enter(FAKE_cuCtxPopCurrent);
    if (depth == 0) {
        misuses++;
        return (CUresult)fake_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    /* also when the call must fail: a stack that never empties would hide the first mistake */
    *out = stack[--depth];
    return (CUresult)fake_leave(code);
}

CUresult fake_cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    FAKE_ENTER(cuCtxEnablePeerAccess);
    if (code == 0 && flags != 0) code = CUDA_ERROR_INVALID_VALUE;
    if (code == 0 && (peer == NULL || peer->refs == 0 || peer->device == context->device)) {
        misuses++;
        code = CUDA_ERROR_INVALID_CONTEXT;
    }
    if (code == 0 && (context->peers & 1u << peer->device) != 0)
        code = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    if (code == 0) context->peers |= 1u << peer->device;
    return (CUresult)fake_leave(code);
}

CUresult fake_cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    FAKE_ENTER(cuCtxGetStreamPriorityRange);
    *least = 0;
    *greatest = -5;
    return (CUresult)fake_leave(code);
}

/* ---- streams ---- */

int fake_stream_is_valid(CUstream stream, CUcontext context)
{
    const int valid =
        stream == CU_STREAM_LEGACY ||
        (stream >= streams && stream < streams + NHANDLES && stream->context == context);
    if (!valid) misuses++;
    return valid;
}

/* NULL: the table is full. */
static CUstream make_stream(CUcontext context)
{
    for (int i = 0; i < NHANDLES; i++)
        if (streams[i].context == NULL) {
            streams[i].context = context;
            live_streams++;
            return &streams[i];
        }
    return NULL;
}

CUresult fake_cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
    FAKE_ENTER(cuStreamCreateWithPriority);
    *out = NULL;
    if (code == 0 && (flags != CU_STREAM_NON_BLOCKING || priority > 0 || priority < -5))
        code = CUDA_ERROR_INVALID_VALUE;
    if (code == 0 && (*out = make_stream(context)) == NULL) code = CUDA_ERROR_OUT_OF_MEMORY;
    return (CUresult)fake_leave(code);
}

void *fake_cuda_stream(int device)
{
    fake_lock();
    CUstream made = make_stream(&primary[device]);
    fake_unlock();
    return made;
}

void fake_cuda_stream_end(void *stream)
{
    fake_lock();
    ((CUstream)stream)->context = NULL;
    live_streams--;
    fake_unlock();
}

CUresult fake_cuStreamDestroy(CUstream stream)
{
    FAKE_ENTER_RELEASE(cuStreamDestroy);
    if (code == 0 && !fake_stream_is_valid(stream, context)) code = CUDA_ERROR_INVALID_HANDLE;
#ifdef FERRY_HAS_CUDNN
    /* the next call with that handle would go to a destroyed stream */
    if (code == 0 && fake_cudnn_holds(stream)) misuses++;
#endif
    if (code == 0) {
        fake_capture_drop(stream);
        stream->context = NULL;
        live_streams--;
    }
    return (CUresult)fake_leave(code != 0 ? code : told);
}

CUresult fake_cuStreamGetCtx(CUstream stream, CUcontext *out)
{
    FAKE_ENTER(cuStreamGetCtx);
    *out = NULL;
    const int is_legacy = stream == CU_STREAM_LEGACY;
    if (code == 0 && !is_legacy &&
        (stream < streams || stream >= streams + NHANDLES || stream->context == NULL))
        code = CUDA_ERROR_INVALID_HANDLE;
    if (code == 0) *out = is_legacy ? context : stream->context;
    return (CUresult)fake_leave(code);
}

/* ---- modules ---- */

CUresult fake_cuModuleLoadData(CUmodule *out, const void *image)
{
    FAKE_ENTER(cuModuleLoadData);
    uint32_t magic = 0;
    *out = NULL;
    memcpy(&magic, image, sizeof magic);
    /* the magic number of a fatbin */
    if (code == 0 && magic != 0xba55ed50) code = CUDA_ERROR_INVALID_IMAGE;
    for (int i = 0; code == 0 && *out == NULL && i < NMODULES; i++)
        if (modules[i].context == NULL) *out = &modules[i];
    if (code == 0 && *out == NULL) code = CUDA_ERROR_OUT_OF_MEMORY;
    if (code == 0) {
        memset(*out, 0, sizeof **out);
        (*out)->context = context;
        live_modules++;
    }
    return (CUresult)fake_leave(code);
}

CUresult fake_cuModuleUnload(CUmodule module)
{
    FAKE_ENTER_RELEASE(cuModuleUnload);
    if (code == 0 && module->context != context) {
        misuses++;
        code = CUDA_ERROR_INVALID_HANDLE;
    }
    if (code == 0) {
        module->context = NULL;
        live_modules--;
    }
    return (CUresult)fake_leave(code != 0 ? code : told);
}

CUresult fake_cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    FAKE_ENTER(cuModuleGetFunction);
    *out = NULL;
    if (code == 0 && module->context != context) code = CUDA_ERROR_INVALID_HANDLE;
    for (int i = 0; code == 0 && *out == NULL && i < NKERNELS; i++)
        if (module->functions[i].name[0] == '\0') *out = &module->functions[i];
    if (code == 0) {
        (*out)->module = module;
        strncpy((*out)->name, name, sizeof(*out)->name - 1);
    }
    return (CUresult)fake_leave(code);
}

const char *fake_kernel_name(CUfunction function, CUcontext context)
{
    if (function != NULL && function->module != NULL && function->module->context == context)
        return function->name;
    misuses++;
    return NULL;
}

void fake_handles_close(CUcontext context, int lost)
{
    for (int i = 0; i < NHANDLES; i++) {
        if (streams[i].context == context) {
            streams[i].context = NULL;
            live_streams--;
            leaked += !lost;
        }
    }
    fake_events_close(context, lost);
    for (int i = 0; i < NMODULES; i++) {
        if (modules[i].context != context) continue;
        modules[i].context = NULL;
        live_modules--;
        leaked += !lost;
    }
}

int64_t fake_memory_live(int kind);
int64_t fake_lt_live(void);

int64_t fake_cuda_live(int kind)
{
    fake_lock();
    int64_t n = 0;
    switch (kind) {
    case FAKE_BLOCKS:
    case FAKE_REGISTRATIONS: n = fake_memory_live(kind); break;
    case FAKE_STREAMS: n = live_streams; break;
    case FAKE_EVENTS: n = fake_events_live(); break;
    case FAKE_MODULES: n = live_modules; break;
    case FAKE_LT_OBJECTS: n = fake_lt_live() + fake_nccl_live(); break;
    case FAKE_GRAPHS: n = fake_graphs_live(0); break;
    case FAKE_GRAPH_EXECS: n = fake_graphs_live(1); break;
    case FAKE_DNN_OBJECTS:
#ifdef FERRY_HAS_CUDNN
        n = fake_cudnn_live();
#endif
        break;
    default:
        for (int i = 0; i < FAKE_DEVICES; i++) n += primary[i].refs;
    }
    fake_unlock();
    return n;
}
