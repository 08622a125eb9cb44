/* A native application that already has a device, a queue and memory, and uses Ferry's ops on them
 * without a copy:
 *   its queue     fy_stream_create with options.native, then fy_stream_set_current
 *   its memory    fy_tensor_wrap with a device address
 *   Ferry's       fy_tensor_begin_native_access gives the address to the application's kernels and
 *                 orders them; fy_stream_record gives a ticket behind them
 * On cuda the driver is found with dlopen, so this compiles without CUDA. On sim and host there is
 * no native queue: the same calls run with a queue that Ferry makes and memory borrowed from a
 * tensor, and the program says so. Usage: api_native [device], by default sim:0. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/ferry.h>

#include "example.h"

enum { COUNT = 1024 };

#define FAIL(...) fy_error_set(FY_STATUS_UNAVAILABLE, __FILE__, __LINE__, __VA_ARGS__)

/* ---- the application's own side: a queue, memory, and one "kernel" that sets words ---- */

typedef struct native {
    void *driver, *context, *queue;
    uint64_t memory; /* a CUdeviceptr; Ferry's wrap takes it as a void * */
    int (*create_queue)(void **, unsigned), (*destroy_queue)(void *);
    int (*alloc)(uint64_t *, size_t), (*free)(uint64_t),
        (*set_words)(uint64_t, unsigned, size_t, void *);
    int (*init)(unsigned), (*retain)(void **, int), (*release)(int), (*make_current)(void *);
} native_t;

static fy_status_t load(native_t *native, const char *name, void *slot)
{
    void *symbol = dlsym(native->driver, name);
    if (!symbol) return FAIL("libcuda.so.1 has no %s", name);
    memcpy(slot, &symbol, sizeof symbol);
    return FY_STATUS_OK;
}

static fy_status_t native_open(native_t *native, int index)
{
    native->driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!native->driver) return FAIL("no CUDA driver: %s", dlerror());
    FY_TRY(load(native, "cuInit", &native->init));
    FY_TRY(load(native, "cuDevicePrimaryCtxRetain", &native->retain));
    FY_TRY(load(native, "cuDevicePrimaryCtxRelease_v2", &native->release));
    FY_TRY(load(native, "cuCtxSetCurrent", &native->make_current));
    FY_TRY(load(native, "cuStreamCreate", &native->create_queue));
    FY_TRY(load(native, "cuStreamDestroy_v2", &native->destroy_queue));
    FY_TRY(load(native, "cuMemAlloc_v2", &native->alloc));
    FY_TRY(load(native, "cuMemFree_v2", &native->free));
    FY_TRY(load(native, "cuMemsetD32Async", &native->set_words));
    /* Ferry uses each device's primary context, as the CUDA runtime does; an application that does
     * too can share pointers with it. */
    if (native->init(0) || native->retain(&native->context, index) ||
        native->make_current(native->context))
        return FAIL("no CUDA context");
    if (native->create_queue(&native->queue, 1 /* CU_STREAM_NON_BLOCKING */))
        return FAIL("cuStreamCreate failed");
    if (native->alloc(&native->memory, COUNT * sizeof(float))) return FAIL("cuMemAlloc failed");
    return FY_STATUS_OK;
}

static void native_close(native_t *native, int index)
{
    if (native->memory) native->free(native->memory);
    if (native->queue) native->destroy_queue(native->queue);
    if (native->context) native->release(index);
    if (native->driver) dlclose(native->driver);
}

/* Sets COUNT floats to `value` at `address`, after the queued work; without a native queue an op of
 * Ferry does it. */
static fy_status_t own_kernel(const native_t *native, void *address, fy_tensor_t *tensor,
                              float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (!native->queue) return fy_fill(tensor, value);
    return native->set_words((uint64_t)(uintptr_t)address, bits, COUNT, native->queue)
               ? FAIL("cuMemsetD32Async failed")
               : FY_STATUS_OK;
}

/* ---- sharing ---- */

static void give_back(void *user, void *data)
{
    (void)data;
    *(int *)user += 1; /* here an application would return the block to its own pool */
}

static fy_status_t share(fy_device_t *device, const native_t *native, int *given_back)
{
    fy_device_info_t info = FY_DEVICE_INFO_INIT;
    fy_stream_t *stream = NULL;
    FY_TRY(fy_device_query(device, &info));
    fy_stream_options_t options = FY_STREAM_OPTIONS_INIT;
    options.name = "the application's";
    options.native = native->queue; /* NULL: Ferry makes one */
    if (info.is_host) {
        printf("%s has one stream, which runs inside each call: nothing to share but memory\n",
               info.spec);
        return FY_STATUS_OK;
    }
    FY_TRY(fy_stream_create(device, &options, &stream));
    FY_TRY(fy_stream_set_current(
        stream)); /* until this scope ends, ops on this device go to that queue */

    /* Memory: the application's own, or, where there is none, an address borrowed from a tensor. */
    fy_tensor_t *owner, *shared, *sum;
    void *address = (void *)(uintptr_t)native->memory;
    if (!address) {
        FY_TRY(fy_empty(device, FY_DTYPE_F32, FY_DIMS(COUNT), &owner));
        FY_TRY(fy_tensor_begin_native_access(owner, FY_ACCESS_READ_WRITE, stream, &address));
    }
    FY_TRY(fy_tensor_wrap(device, FY_DTYPE_F32, FY_DIMS(COUNT), address, give_back, given_back,
                          &shared));

    /* A kernel of the application writes; ops of Ferry read: fy_tensor_begin_native_access declares
     * the write, so they are ordered, on any stream. */
    void *words;
    FY_TRY(fy_tensor_begin_native_access(shared, FY_ACCESS_WRITE, stream, &words));
    FY_TRY(own_kernel(native, words, shared, 0.25f));
    FY_TRY(fy_sum(shared, 0, NULL, 0, &sum));

    /* A ticket behind all of that, the application's own work included. */
    fy_ticket_t done;
    FY_TRY(fy_stream_record(stream, &done));
    FY_TRY(fy_ticket_wait(done, FY_FOREVER));

    fy_download_t *download;
    double value;
    FY_TRY(fy_tensor_download(sum, NULL, &download));
    FY_TRY(fy_download_wait_f64(download, FY_FOREVER, &value));
    printf("%s: sum of %d shared floats is %g\n", info.spec, COUNT, value);
    return value == 0.25 * COUNT
               ? FY_STATUS_OK
               : fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__, "expected %g", 0.25 * COUNT);
}

static fy_status_t run(const char *spec)
{
    native_t native = { 0 };
    int is_cuda = !strncmp(spec, "cuda:", 5), index = is_cuda ? atoi(spec + 5) : 0, given_back = 0;
    fy_device_t *device = NULL;
    fy_status_t status = fy_device_open(spec, &device);
    if (status == FY_STATUS_OK && is_cuda) status = native_open(&native, index);
    if (status == FY_STATUS_OK) {
        printf("native queue: %s\n",
               native.queue ? "the application's CUstream"
                            : "none here; Ferry makes the stream, an op replaces the kernel");
        fy_scope_t scope = fy_scope_begin("native");
        status = share(device, &native, &given_back);
        fy_scope_end(scope, 0, NULL);
        printf("memory released %d time(s)\n", given_back);
    }
    fy_device_close(device);
    native_close(&native, index);
    return status;
}

int main(int argc, char **argv)
{
    return example_finish(argv[0], run(argc > 1 ? argv[1] : "sim:0"));
}
