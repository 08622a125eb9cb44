/* Devices, contexts, streams, events, modules of the fake. Handles are places in fixed tables; a place is used again at once, so a stale
 * handle may name something new, as with the real driver. Every call checks that the handle's context is the current one. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/codes.h"
#include "tests/support/fake_cuda/fake.h"

enum { NHANDLES = 4096, NKERNELS = 64, DEPTH = 16 };

struct CUstream_st {
    CUcontext context; /* NULL: destroyed */
};
struct CUevent_st {
    CUcontext context;
    int recorded, held, timed;
    double ms; /* when it was recorded */
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
static struct CUevent_st events[NHANDLES];
static struct CUmod_st modules[32];
static int64_t live_streams, live_events, live_modules;
static uint64_t leaked, misuses;
static int hold;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t release_lock = PTHREAD_MUTEX_INITIALIZER; /* guards `hold` for those who wait */

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

/* ---- devices ---- */

CUresult fake_cuDeviceGetCount(int *count)
{
    int code = fake_enter(FAKE_cuDeviceGetCount);
    *count = code == 0 ? FAKE_DEVICES : 0;
    return (CUresult)fake_leave(code);
}

CUresult fake_cuDeviceGet(CUdevice *device, int ordinal)
{
    int code = fake_enter(FAKE_cuDeviceGet);
    *device = ordinal;
    if (code == 0 && (ordinal < 0 || ordinal >= FAKE_DEVICES)) code = CUDA_ERROR_INVALID_DEVICE;
    return (CUresult)fake_leave(code);
}

CUresult fake_cuDeviceGetName(char *name, int len, CUdevice device)
{
    (void)device;
    int code = fake_enter(FAKE_cuDeviceGetName);
    if (code == 0) strncpy(name, "Fake GPU (no kernel runs here)", (size_t)len);
    return (CUresult)fake_leave(code);
}

CUresult fake_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    int code = fake_enter(FAKE_cuDeviceGetAttribute);
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = FAKE_PROCESSORS; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = 1500000; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = 2600000; break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = 5120; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 50 << 20; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = 228 << 10; break;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: *value = 3; break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED: *value = 1; break;
    default: *value = 0; code = CUDA_ERROR_INVALID_VALUE;
    }
    return (CUresult)fake_leave(code);
}

CUresult fake_cuDeviceGetPCIBusId(char *bus, int len, CUdevice device)
{
    int code = fake_enter(FAKE_cuDeviceGetPCIBusId);
    if (code == 0) snprintf(bus, (size_t)len, "0000:%02x:00.0", 0x1b + device);
    return (CUresult)fake_leave(code);
}

CUresult fake_cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    int code = fake_enter(FAKE_cuDeviceCanAccessPeer);
    *can = code == 0 && device != peer;
    return (CUresult)fake_leave(code);
}

CUresult fake_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer)
{
    int code = fake_enter(FAKE_cuDeviceGetP2PAttribute);
    *value = 0;
    if (code == 0 && device == peer) code = CUDA_ERROR_INVALID_DEVICE; /* as the driver's documentation says */
    if (code == 0) *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
    return (CUresult)fake_leave(code);
}

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

CUresult fake_cuCtxGetCurrent(CUcontext *out)
{
    int code = fake_enter(FAKE_cuCtxGetCurrent);
    *out = depth > 0 ? stack[depth - 1] : NULL;
    return (CUresult)fake_leave(code);
}

CUresult fake_cuCtxPushCurrent(CUcontext context)
{
    int code = fake_enter(FAKE_cuCtxPushCurrent);
    if (code == 0 && (context == NULL || context->refs == 0 || depth == DEPTH)) code = CUDA_ERROR_INVALID_CONTEXT;
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
    *out = stack[--depth]; /* even if told to fail: a stack that never empties would hide the first mistake */
    return (CUresult)fake_leave(code);
}

CUresult fake_cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    CUcontext context;
    int code = fake_enter_context(FAKE_cuCtxEnablePeerAccess, &context);
    if (code == 0 && flags != 0) code = CUDA_ERROR_INVALID_VALUE;
    if (code == 0 && (peer == NULL || peer->refs == 0 || peer->device == context->device)) {
        misuses++;
        code = CUDA_ERROR_INVALID_CONTEXT;
    }
    if (code == 0 && (context->peers & 1u << peer->device) != 0) code = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    if (code == 0) context->peers |= 1u << peer->device;
    return (CUresult)fake_leave(code);
}

CUresult fake_cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    CUcontext context;
    int code = fake_enter_context(FAKE_cuCtxGetStreamPriorityRange, &context);
    *least = 0;
    *greatest = -5;
    return (CUresult)fake_leave(code);
}

/* ---- streams ---- */

int fake_stream_is_valid(CUstream stream, CUcontext context)
{
    int valid = stream >= streams && stream < streams + NHANDLES && stream->context == context;
    if (!valid) misuses++;
    return valid;
}

CUresult fake_cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
    CUcontext context;
    int code = fake_enter_context(FAKE_cuStreamCreateWithPriority, &context);
    *out = NULL;
    if (code == 0 && (flags != CU_STREAM_NON_BLOCKING || priority > 0 || priority < -5)) code = CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; code == 0 && *out == NULL && i < NHANDLES; i++)
        if (streams[i].context == NULL) *out = &streams[i];
    if (code == 0 && *out == NULL) code = CUDA_ERROR_OUT_OF_MEMORY;
    if (code == 0) {
        (*out)->context = context;
        live_streams++;
    }
    return (CUresult)fake_leave(code);
}

void *fake_cuda_stream(int device)
{
    CUstream made = NULL;
    fake_lock();
    for (int i = 0; made == NULL && i < NHANDLES; i++)
        if (streams[i].context == NULL) made = &streams[i];
    if (made != NULL) {
        made->context = &primary[device];
        live_streams++;
    }
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
    CUcontext context;
    int told, code = fake_enter_release(FAKE_cuStreamDestroy, &context, &told);
    if (code == 0 && !fake_stream_is_valid(stream, context)) code = CUDA_ERROR_INVALID_HANDLE;
    if (code == 0) {
        fake_capture_drop(stream);
        stream->context = NULL;
        live_streams--;
    }
    return (CUresult)fake_leave(code != 0 ? code : told);
}

CUresult fake_cuStreamGetCtx(CUstream stream, CUcontext *out)
{
    CUcontext context;
    int code = fake_enter_context(FAKE_cuStreamGetCtx, &context);
    *out = NULL;
    if (code == 0 && (stream < streams || stream >= streams + NHANDLES || stream->context == NULL)) code = CUDA_ERROR_INVALID_HANDLE;
    if (code == 0) *out = stream->context;
    return (CUresult)fake_leave(code);
}

/* ---- events ---- */

static int event_is_valid(CUevent event, CUcontext context)
{
    int valid = event >= events && event < events + NHANDLES && event->context == context;
    if (!valid) misuses++;
    return valid;
}

static int event_is_live(CUevent event)
{
    int live = event >= events && event < events + NHANDLES && event->context != NULL;
    if (!live) misuses++;
    return live;
}

/* ---- a clock that only work moves ---- */

static double clock_ms;
static struct {
    char prefix[48];
    double ms;
} costs[8];

void fake_cuda_cost(const char *prefix, double ms)
{
    fake_lock();
    for (int i = 0; i < 8; i++)
        if (costs[i].prefix[0] == '\0' || strcmp(costs[i].prefix, prefix) == 0) {
            strncpy(costs[i].prefix, prefix, sizeof costs[i].prefix - 1);
            costs[i].ms = ms;
            break;
        }
    fake_unlock();
}

void fake_spend(const char *name)
{
    for (int i = 0; i < 8; i++)
        if (costs[i].prefix[0] != '\0' && strncmp(costs[i].prefix, name, strlen(costs[i].prefix)) == 0) clock_ms += costs[i].ms;
}

CUresult fake_cuEventElapsedTime(float *ms, CUevent begin, CUevent end)
{
    CUcontext context;
    int code = fake_enter_context(FAKE_cuEventElapsedTime, &context);
    *ms = 0;
    if (code == 0 && (!event_is_valid(begin, context) || !event_is_valid(end, context) || !begin->timed || !end->timed ||
                      !begin->recorded || !end->recorded))
        code = CUDA_ERROR_INVALID_HANDLE;
    if (code == 0 && (begin->held || end->held)) code = CUDA_ERROR_NOT_READY;
    if (code == 0) *ms = (float)(end->ms - begin->ms);
    return (CUresult)fake_leave(code);
}

CUresult fake_cuEventCreate(CUevent *out, unsigned int flags)
{
    CUcontext context;
    int code = fake_enter_context(FAKE_cuEventCreate, &context);
    *out = NULL;
    if (code == 0 && flags != CU_EVENT_DISABLE_TIMING && flags != CU_EVENT_DEFAULT) code = CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; code == 0 && *out == NULL && i < NHANDLES; i++)
        if (events[i].context == NULL) *out = &events[i];
    if (code == 0 && *out == NULL) code = CUDA_ERROR_OUT_OF_MEMORY;
    if (code == 0) {
        **out = (struct CUevent_st){ .context = context, .timed = flags == CU_EVENT_DEFAULT };
        live_events++;
    }
    return (CUresult)fake_leave(code);
}

CUresult fake_cuEventDestroy(CUevent event)
{
    CUcontext context;
    int told, code = fake_enter_release(FAKE_cuEventDestroy, &context, &told);
    if (code == 0 && !event_is_valid(event, context)) code = CUDA_ERROR_INVALID_HANDLE;
    if (code == 0) {
        event->context = NULL;
        live_events--;
    }
    return (CUresult)fake_leave(code != 0 ? code : told);
}

CUresult fake_cuEventRecord(CUevent event, CUstream stream)
{
    CUcontext context;
    int code = fake_enter_context(FAKE_cuEventRecord, &context);
    if (code == 0 && (!event_is_valid(event, context) || !fake_stream_is_valid(stream, context))) code = CUDA_ERROR_INVALID_HANDLE;
    if (code == 0) code = fake_capture_refuses(stream);
    if (code == 0) {
        event->recorded = 1;
        event->held = hold;
        event->ms = clock_ms;
    }
    return (CUresult)fake_leave(code);
}

/* The event may be another device's, as the driver's manual has it. */
CUresult fake_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    CUcontext context;
    (void)flags;
    int code = fake_enter_context(FAKE_cuStreamWaitEvent, &context);
    if (code == 0 && (!event_is_live(event) || !fake_stream_is_valid(stream, context))) code = CUDA_ERROR_INVALID_HANDLE;
    if (code == 0) code = fake_capture_refuses(stream);
    return (CUresult)fake_leave(code);
}

CUresult fake_cuEventQuery(CUevent event)
{
    CUcontext context;
    int code = fake_enter_context(FAKE_cuEventQuery, &context);
    if (code == 0 && !event_is_valid(event, context)) code = CUDA_ERROR_INVALID_HANDLE;
    if (code == 0 && event->recorded && event->held) code = CUDA_ERROR_NOT_READY;
    return (CUresult)fake_leave(code);
}

CUresult fake_cuEventSynchronize(CUevent event)
{
    CUcontext context;
    int code = fake_enter_context(FAKE_cuEventSynchronize, &context);
    if (code == 0 && !event_is_valid(event, context)) code = CUDA_ERROR_INVALID_HANDLE;
    int waits = code == 0 && event->recorded && event->held;
    fake_leave(code);
    pthread_mutex_lock(&release_lock);
    while (waits && hold) pthread_cond_wait(&released, &release_lock);
    pthread_mutex_unlock(&release_lock);
    return (CUresult)code;
}

void fake_cuda_hold(int on)
{
    fake_lock();
    pthread_mutex_lock(&release_lock);
    hold = on;
    for (int i = 0; !on && i < NHANDLES; i++) events[i].held = 0;
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&release_lock);
    fake_unlock();
}

/* ---- modules ---- */

CUresult fake_cuModuleLoadData(CUmodule *out, const void *image)
{
    CUcontext context;
    int code = fake_enter_context(FAKE_cuModuleLoadData, &context);
    uint32_t magic = 0;
    *out = NULL;
    memcpy(&magic, image, sizeof magic);
    if (code == 0 && magic != 0xba55ed50) code = CUDA_ERROR_INVALID_IMAGE; /* what a fatbin begins with */
    for (int i = 0; code == 0 && *out == NULL && i < 32; i++)
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
    CUcontext context;
    int told, code = fake_enter_release(FAKE_cuModuleUnload, &context, &told);
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
    CUcontext context;
    int code = fake_enter_context(FAKE_cuModuleGetFunction, &context);
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
    if (function != NULL && function->module != NULL && function->module->context == context) return function->name;
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
        if (events[i].context == context) {
            events[i].context = NULL;
            live_events--;
            leaked += !lost;
        }
    }
    for (int i = 0; i < 32; i++) {
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
    case FAKE_EVENTS: n = live_events; break;
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
