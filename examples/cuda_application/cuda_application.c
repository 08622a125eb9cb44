/* Ferry inside a CUDA application. The application has a queue, events, a memory pool and buffers,
 * and moves its data itself; Ferry computes on it. All order is on the device:
 *
 *   its queue    copy batch in | ready              | wait done, copy scores out | copied
 *   Ferry                       wait ready, network,  done, progress
 *
 *   pool         fy_device_open_with: all of Ferry's device memory comes from the application
 *   buffers      fy_tensor_wrap: tensors on the application's addresses, without a copy
 *   order        fy_native_event_wait and _record, fy_tensor_begin_native_access for the bytes
 *   progress     fy_native_timeline_signal: a page-locked word that a monitor may poll
 *
 * A guard shows that Ferry itself moves nothing. Usage: cuda_application [cuda:N]. The driver is
 * found as Ferry finds it: $FERRY_CUDA_DRIVER, else libcuda.so.1. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <cudaTypedefs.h>

#include <ferry/ferry.h>

#include "examples/example.h"

enum { BATCHES = 8, SLOTS = 2, ROWS = 32, FEATURES = 16, HIDDEN = 8, SCORES = 4 };

#define FAIL(...) fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__, __VA_ARGS__)

/* ---- the application: driver, pool, buffers ---- */

/* X(call, version) */
#define DRIVER(X)                       \
    X(cuInit, 2000)                     \
    X(cuDevicePrimaryCtxRetain, 7000)   \
    X(cuDevicePrimaryCtxRelease, 11000) \
    X(cuCtxPushCurrent, 4000)           \
    X(cuCtxPopCurrent, 4000)            \
    X(cuStreamCreateWithPriority, 5050) \
    X(cuStreamDestroy, 4000)            \
    X(cuStreamWaitEvent, 3020)          \
    X(cuEventCreate, 2000)              \
    X(cuEventDestroy, 4000)             \
    X(cuEventRecord, 2000)              \
    X(cuEventSynchronize, 2000)         \
    X(cuMemAlloc, 3020)                 \
    X(cuMemFree, 3020)                  \
    X(cuMemHostRegister, 6050)          \
    X(cuMemHostUnregister, 4000)        \
    X(cuMemcpyHtoDAsync, 3020)          \
    X(cuMemcpyDtoHAsync, 3020)

static struct {
    void *library;
#define X(name, version) PFN_##name##_v##version name;
    DRIVER(X)
#undef X
} cu;

/* Fails if the driver's call does. */
#define CU(name, args)                                                                    \
    do {                                                                                  \
        const CUresult code_ = cu.name args;                                              \
        if (code_ != CUDA_SUCCESS) return FAIL(#name " failed with code %d", (int)code_); \
    } while (0)

static fy_status_t load_driver(void)
{
    const char *name = getenv("FERRY_CUDA_DRIVER");
    PFN_cuGetProcAddress_v12000 find;
    cu.library = dlopen(name ? name : "libcuda.so.1", RTLD_NOW);
    void *symbol = cu.library ? dlsym(cu.library, "cuGetProcAddress_v2") : NULL;
    if (!symbol) return FAIL("no CUDA driver of version 12: %s", dlerror());
    memcpy(&find, &symbol, sizeof symbol);
#define X(name, version)                                                   \
    if (find(#name, &symbol, version, 0, NULL) != CUDA_SUCCESS)            \
        return FAIL("the driver has no %s of version %d", #name, version); \
    memcpy(&cu.name, &symbol, sizeof symbol);
    DRIVER(X)
#undef X
    return FY_STATUS_OK;
}

/* A batch on its way: host buffers, device buffers, and Ferry's tensors on the latter. */
typedef struct slot {
    float in[ROWS * FEATURES], out[ROWS * SCORES];
    CUdeviceptr device_in, device_out;
    fy_tensor_t *x, *y;
    CUevent ready, done, copied;
} slot_t;

typedef struct app {
    CUcontext context;
    CUstream queue;
    slot_t slots[SLOTS];
    uint64_t progress;               /* batches that are done; written by the device */
    uint64_t pool_nbytes, pool_peak; /* of Ferry */
} app_t;

/* Hooks of Ferry. A real application would cut from its pool. No context is current here. */
static void *pool_alloc(void *user, uint64_t nbytes, uint64_t alignment)
{
    app_t *app = user;
    CUdeviceptr address = 0;
    if (alignment > 256) return NULL; /* cuMemAlloc promises no more */
    cu.cuCtxPushCurrent(app->context);
    if (cu.cuMemAlloc(&address, nbytes) != CUDA_SUCCESS) address = 0;
    cu.cuCtxPopCurrent(&(CUcontext){ NULL });
    if (address) app->pool_nbytes += nbytes;
    if (app->pool_peak < app->pool_nbytes) app->pool_peak = app->pool_nbytes;
    return (void *)(uintptr_t)address;
}

static void pool_free(void *user, void *address, uint64_t nbytes)
{
    app_t *app = user;
    cu.cuCtxPushCurrent(app->context);
    cu.cuMemFree((CUdeviceptr)(uintptr_t)address);
    cu.cuCtxPopCurrent(&(CUcontext){ NULL });
    app->pool_nbytes -= nbytes;
}

static fy_status_t app_open(app_t *app, int index)
{
    CU(cuInit, (0));
    CU(cuDevicePrimaryCtxRetain, (&app->context, index)); /* the context that Ferry uses */
    CU(cuCtxPushCurrent, (app->context));
    CU(cuStreamCreateWithPriority, (&app->queue, CU_STREAM_NON_BLOCKING, 0));
    CU(cuMemHostRegister, (&app->progress, sizeof app->progress,
                           CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    for (int i = 0; i < SLOTS; i++) {
        slot_t *slot = &app->slots[i];
        CU(cuMemAlloc, (&slot->device_in, sizeof slot->in));
        CU(cuMemAlloc, (&slot->device_out, sizeof slot->out));
        CU(cuEventCreate, (&slot->ready, CU_EVENT_DISABLE_TIMING));
        CU(cuEventCreate, (&slot->done, CU_EVENT_DISABLE_TIMING));
        CU(cuEventCreate, (&slot->copied, CU_EVENT_DISABLE_TIMING));
    }
    return FY_STATUS_OK;
}

/* After Ferry's device is closed: nothing of Ferry uses these any more. */
static void app_close(app_t *app, int index)
{
    for (int i = 0; i < SLOTS; i++) {
        const slot_t *slot = &app->slots[i];
        const CUevent events[] = { slot->ready, slot->done, slot->copied };
        for (int e = 0; e < 3; e++)
            if (events[e]) cu.cuEventDestroy(events[e]);
        if (slot->device_in) cu.cuMemFree(slot->device_in);
        if (slot->device_out) cu.cuMemFree(slot->device_out);
    }
    if (app->queue) {
        cu.cuMemHostUnregister(&app->progress);
        cu.cuStreamDestroy(app->queue);
    }
    if (app->context) {
        cu.cuCtxPopCurrent(&(CUcontext){ NULL });
        cu.cuDevicePrimaryCtxRelease(index);
    }
}

/* Small integers, so that every sum is exact and has one result. */
static float input_at(int batch, int i) { return (float)((i * 7 + batch) % 5 - 2); }
static float weight_at(int i) { return (float)(i % 3 - 1); }

/* The scores of a batch, in plain loops. */
static fy_status_t check(const slot_t *slot, int batch)
{
    for (int row = 0; row < ROWS; row++) {
        float hidden[HIDDEN];
        for (int h = 0; h < HIDDEN; h++) {
            float sum = 0;
            for (int f = 0; f < FEATURES; f++)
                sum += input_at(batch, row * FEATURES + f) * weight_at(f * HIDDEN + h);
            hidden[h] = sum > 0 ? sum : 0;
        }
        for (int s = 0; s < SCORES; s++) {
            float sum = 0;
            for (int h = 0; h < HIDDEN; h++) sum += hidden[h] * weight_at(h * SCORES + s);
            if (slot->out[row * SCORES + s] != sum)
                return FAIL("batch %d, row %d: score %d is %g, not %g", batch, row, s,
                            (double)slot->out[row * SCORES + s], (double)sum);
        }
    }
    return FY_STATUS_OK;
}

/* ---- Ferry inside ---- */

typedef struct network {
    fy_device_t *device;
    fy_tensor_t *w1, *w2;
    int has_timelines;
} network_t;

static fy_status_t upload_weights(network_t *net)
{
    float w1[FEATURES * HIDDEN], w2[HIDDEN * SCORES];
    fy_tensor_t *host1, *host2;
    for (int i = 0; i < FEATURES * HIDDEN; i++) w1[i] = weight_at(i);
    for (int i = 0; i < HIDDEN * SCORES; i++) w2[i] = weight_at(i);
    FY_TRY(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(FEATURES, HIDDEN), w1, NULL, NULL,
                          &host1));
    FY_TRY(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(HIDDEN, SCORES), w2, NULL, NULL,
                          &host2));
    FY_TRY(fy_tensor_upload(host1, net->device, NULL, &net->w1));
    return fy_tensor_upload(host2, net->device, NULL, &net->w2);
}

static fy_status_t wrap_buffers(const network_t *net, app_t *app)
{
    for (int i = 0; i < SLOTS; i++) {
        slot_t *slot = &app->slots[i];
        FY_TRY(fy_tensor_wrap(net->device, FY_DTYPE_F32, FY_DIMS(ROWS, FEATURES),
                              (void *)(uintptr_t)slot->device_in, NULL, NULL, &slot->x));
        FY_TRY(fy_tensor_wrap(net->device, FY_DTYPE_F32, FY_DIMS(ROWS, SCORES),
                              (void *)(uintptr_t)slot->device_out, NULL, NULL, &slot->y));
    }
    return FY_STATUS_OK;
}

static fy_status_t compute(network_t *net, slot_t *slot, app_t *app, int batch)
{
    fy_tensor_t *hidden, *scores;
    void *address;
    /* x was written by the application; later requests for it wait for that */
    FY_TRY(fy_native_event_wait(net->device, NULL, slot->ready));
    FY_TRY(fy_tensor_begin_native_access(slot->x, FY_ACCESS_WRITE, NULL, &address));
    FY_TRY(fy_matmul(slot->x, net->w1, &hidden));
    FY_TRY(fy_relu(hidden, &hidden));
    FY_TRY(fy_matmul(hidden, net->w2, &scores));
    FY_TRY(fy_copy(slot->y, scores));
    /* y is read by the application: `done` is behind every request that writes it */
    FY_TRY(fy_tensor_begin_native_access(slot->y, FY_ACCESS_READ, NULL, &address));
    FY_TRY(fy_native_event_record(net->device, NULL, slot->done));
    if (!net->has_timelines) return FY_STATUS_OK;
    const fy_status_t status =
        fy_native_timeline_signal(net->device, NULL, &app->progress, (uint64_t)batch + 1);
    net->has_timelines = status != FY_STATUS_UNSUPPORTED;
    return net->has_timelines ? status : FY_STATUS_OK;
}

static fy_status_t scoped_compute(network_t *net, slot_t *slot, app_t *app, int batch)
{
    const fy_guard_options_t light_only = FY_GUARD_LIGHT_ONLY;
    fy_scope_t scope = fy_scope_begin("batch"); /* owns the tensors of the batch */
    fy_status_t status = fy_scope_guard(&light_only);
    if (status == FY_STATUS_OK) status = compute(net, slot, app, batch);
    fy_scope_end(scope, 0, NULL);
    return status;
}

static fy_status_t serve(app_t *app, network_t *net)
{
    for (int batch = 0; batch < BATCHES + SLOTS; batch++) {
        slot_t *slot = &app->slots[batch % SLOTS];
        if (batch >= SLOTS) { /* the only wait of the host: for the application's own copy */
            CU(cuEventSynchronize, (slot->copied));
            FY_TRY(check(slot, batch - SLOTS));
        }
        if (batch >= BATCHES) continue;
        for (int i = 0; i < ROWS * FEATURES; i++) slot->in[i] = input_at(batch, i);
        CU(cuMemcpyHtoDAsync, (slot->device_in, slot->in, sizeof slot->in, app->queue));
        CU(cuEventRecord, (slot->ready, app->queue));
        FY_TRY(scoped_compute(net, slot, app, batch));
        CU(cuStreamWaitEvent, (app->queue, slot->done, 0));
        CU(cuMemcpyDtoHAsync, (slot->out, slot->device_out, sizeof slot->out, app->queue));
        CU(cuEventRecord, (slot->copied, app->queue));
    }
    return FY_STATUS_OK;
}

static fy_status_t run(const char *spec, app_t *app)
{
    network_t net = { .has_timelines = 1 };
    fy_device_options_t options = FY_DEVICE_OPTIONS_INIT;
    options.user = app;
    options.alloc_device = pool_alloc;
    options.free_device = pool_free;
    fy_scope_t scope = fy_scope_begin("application");
    fy_status_t status = fy_device_open_with(spec, &options, &net.device);
    if (status == FY_STATUS_OK) status = upload_weights(&net);
    if (status == FY_STATUS_OK) status = wrap_buffers(&net, app);
    if (status == FY_STATUS_OK) status = serve(app, &net);
    if (status == FY_STATUS_OK) status = fy_device_wait(net.device, FY_FOREVER);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(net.device);
    if (status != FY_STATUS_OK) return status;
    printf("%d batches of %d rows: all scores are right\n", BATCHES, ROWS);
    if (net.has_timelines)
        printf("progress word: %" PRIu64 "\n", app->progress);
    else
        printf("progress word: this device has no stream memory operations\n");
    printf("pool: %" PRIu64 " bytes at most, %" PRIu64 " now\n", app->pool_peak, app->pool_nbytes);
    return app->pool_nbytes ? FAIL("Ferry kept memory of the pool") : FY_STATUS_OK;
}

int main(int argc, char **argv)
{
    static app_t app;
    const char *spec = argc > 1 ? argv[1] : "cuda:0";
    const int index = strncmp(spec, "cuda:", 5) == 0 ? atoi(spec + 5) : 0;
    fy_status_t status = load_driver();
    if (status == FY_STATUS_OK) {
        status = app_open(&app, index);
        if (status == FY_STATUS_OK) status = run(spec, &app);
        app_close(&app, index);
    }
    return example_finish(argv[0], status);
}
