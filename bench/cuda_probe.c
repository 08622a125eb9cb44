/* What the CUDA driver's own calls cost on this machine, without Ferry: launches by the size of
 * their arguments, the current context, events, a graph of 32 launches, copies. Figures of Ferry
 * are read beside these (gpu_torch.py, scripts/gpu-check.sh).
 * The driver is found as the plugin finds it: $FERRY_CUDA_DRIVER, else libcuda.so.1, and
 * cuGetProcAddress. Nothing of Ferry is linked.
 * Usage: cuda_probe [DEVICE_INDEX [ROUNDS]]: one JSON document on standard output, a table on
 * standard error. Rounds are interleaved and medians count. Exit 0; 1: a call failed; 2: usage; 77:
 * there is no driver or no device. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda.h>
#include <cudaTypedefs.h>

/* X(entry point, version whose signature is used) */
#define DRIVER_LIST(X)                    \
    X(cuInit, 2000)                       \
    X(cuDriverGetVersion, 2020)           \
    X(cuGetErrorName, 6000)               \
    X(cuDeviceGet, 2000)                  \
    X(cuDeviceGetName, 2000)              \
    X(cuDevicePrimaryCtxRetain, 7000)     \
    X(cuDevicePrimaryCtxRelease, 11000)   \
    X(cuCtxGetCurrent, 4000)              \
    X(cuCtxPushCurrent, 4000)             \
    X(cuCtxPopCurrent, 4000)              \
    X(cuModuleLoadData, 2000)             \
    X(cuModuleUnload, 2000)               \
    X(cuModuleGetFunction, 2000)          \
    X(cuMemAlloc, 3020)                   \
    X(cuMemFree, 3020)                    \
    X(cuMemHostRegister, 6050)            \
    X(cuMemHostUnregister, 4000)          \
    X(cuMemcpyHtoDAsync, 3020)            \
    X(cuMemcpyDtoHAsync, 3020)            \
    X(cuStreamCreateWithPriority, 5050)   \
    X(cuStreamDestroy, 4000)              \
    X(cuEventCreate, 2000)                \
    X(cuEventDestroy, 4000)               \
    X(cuEventRecord, 2000)                \
    X(cuEventQuery, 2000)                 \
    X(cuEventSynchronize, 2000)           \
    X(cuLaunchKernel, 4000)               \
    X(cuStreamBeginCapture, 10010)        \
    X(cuStreamEndCapture, 10000)          \
    X(cuGraphInstantiateWithFlags, 11040) \
    X(cuGraphUpload, 11010)               \
    X(cuGraphLaunch, 10000)               \
    X(cuGraphExecDestroy, 10000)          \
    X(cuGraphDestroy, 10000)

static struct {
#define X(name, since) PFN_##name##_v##since name;
    DRIVER_LIST(X)
#undef X
} driver;

typedef CUresult(CUDAAPI *get_proc_fn)(const char *symbol, void **pfn, int version,
                                       cuuint64_t flags, CUdriverProcAddressQueryResult *status);

/* The kernels: probe_kernels.cu, as nvcc left them. */
__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        "probe_fatbin:\n"
        ".incbin \"" FERRY_PROBE_FATBIN "\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const unsigned char probe_fatbin[] __attribute__((visibility("hidden")));

enum {
    SIZES = 3,
    GRAPH_NODES = 32,
    CALLS = 200,
    MAX_ROUNDS = 101,
    SMALL_NBYTES = 4 << 10,
    LARGE_NBYTES = 64 << 20
};

static struct {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction kernels[SIZES];
    CUstream stream;
    CUevent event;
    CUgraph graph;
    CUgraphExec replay;
    CUdeviceptr memory;
    void *pageable, *pinned;
    int is_pushed, is_registered;
} probe;

static uint64_t arguments[2120 / 8];
static void *parameters[] = { arguments };

/* ---- the driver ---- */

static int check(CUresult code, const char *call)
{
    const char *name = NULL;
    if (code == CUDA_SUCCESS) return 1;
    if (driver.cuGetErrorName != NULL) driver.cuGetErrorName(code, &name);
    fprintf(stderr, "cuda_probe: %s gave %s (%d)\n", call, name != NULL ? name : "an unknown code",
            (int)code);
    return 0;
}
#define TRY(call, arguments_) \
    if (!check(driver.call arguments_, #call)) return 0

static int load_driver(void)
{
    const char *asked = getenv("FERRY_CUDA_DRIVER"),
               *name = asked != NULL && asked[0] != '\0' ? asked : "libcuda.so.1";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL),
         *entry = library != NULL ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    get_proc_fn get_proc;
    CUdriverProcAddressQueryResult found;
    if (entry == NULL) {
        fprintf(stderr, "cuda_probe: no CUDA driver 12.0 or newer: %s\n", dlerror());
        return 0;
    }
    memcpy(&get_proc, &entry, sizeof entry);
#define X(call, since)                                                                         \
    entry = NULL;                                                                              \
    if (get_proc(#call, &entry, since, CU_GET_PROC_ADDRESS_DEFAULT, &found) != CUDA_SUCCESS || \
        entry == NULL) {                                                                       \
        fprintf(stderr,                                                                        \
                "cuda_probe: '%s' has no %s of version %d: driver 12.0 or newer is needed\n",  \
                name, #call, since);                                                           \
        return 0;                                                                              \
    }                                                                                          \
    memcpy(&driver.call, &entry, sizeof entry);
    DRIVER_LIST(X)
#undef X
    return 1;
}

static int wait_idle(void)
{
    TRY(cuEventRecord, (probe.event, probe.stream));
    TRY(cuEventSynchronize, (probe.event));
    return 1;
}

static int capture_graph(void)
{
    TRY(cuStreamBeginCapture, (probe.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int i = 0; i < GRAPH_NODES; i++)
        TRY(cuLaunchKernel,
            (probe.kernels[1], 1, 1, 1, 32, 1, 1, 0, probe.stream, parameters, NULL));
    TRY(cuStreamEndCapture, (probe.stream, &probe.graph));
    TRY(cuGraphInstantiateWithFlags, (&probe.replay, probe.graph, 0));
    TRY(cuGraphUpload, (probe.replay, probe.stream));
    return wait_idle();
}

static int open_device(int index)
{
    static const char *const names[SIZES] = { "probe_8", "probe_128", "probe_2120" };
    TRY(cuDeviceGet, (&probe.device, index));
    TRY(cuDevicePrimaryCtxRetain, (&probe.context, probe.device));
    TRY(cuCtxPushCurrent, (probe.context));
    probe.is_pushed = 1;
    TRY(cuModuleLoadData, (&probe.module, probe_fatbin));
    for (int i = 0; i < SIZES; i++)
        TRY(cuModuleGetFunction, (&probe.kernels[i], probe.module, names[i]));
    TRY(cuStreamCreateWithPriority, (&probe.stream, CU_STREAM_NON_BLOCKING, 0));
    TRY(cuEventCreate, (&probe.event, CU_EVENT_DISABLE_TIMING));
    TRY(cuMemAlloc, (&probe.memory, LARGE_NBYTES));
    probe.pageable = aligned_alloc(4096, LARGE_NBYTES);
    probe.pinned = aligned_alloc(4096, LARGE_NBYTES);
    if (probe.pageable == NULL || probe.pinned == NULL) {
        fprintf(stderr, "cuda_probe: no host memory for two buffers of %d bytes\n", LARGE_NBYTES);
        return 0;
    }
    memset(probe.pageable, 1, LARGE_NBYTES);
    memset(probe.pinned, 1, LARGE_NBYTES);
    TRY(cuMemHostRegister,
        (probe.pinned, LARGE_NBYTES, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    probe.is_registered = 1;
    return capture_graph();
}

static void close_device(void)
{
    if (probe.is_pushed) {
        CUcontext popped;
        if (probe.replay != NULL) driver.cuGraphExecDestroy(probe.replay);
        if (probe.graph != NULL) driver.cuGraphDestroy(probe.graph);
        if (probe.is_registered) driver.cuMemHostUnregister(probe.pinned);
        if (probe.memory != 0) driver.cuMemFree(probe.memory);
        if (probe.event != NULL) driver.cuEventDestroy(probe.event);
        if (probe.stream != NULL) driver.cuStreamDestroy(probe.stream);
        if (probe.module != NULL) driver.cuModuleUnload(probe.module);
        driver.cuCtxPopCurrent(&popped);
    }
    if (probe.context != NULL) driver.cuDevicePrimaryCtxRelease(probe.device);
    free(probe.pageable);
    free(probe.pinned);
}

/* ---- measurements: each does its call `count` times; the time that counts ends before the device
 * is waited for, or after ---- */

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int launch(int size)
{
    TRY(cuLaunchKernel,
        (probe.kernels[size], 1, 1, 1, 32, 1, 1, 0, probe.stream, parameters, NULL));
    return 1;
}
static int get_context(int unused)
{
    CUcontext current;
    (void)unused;
    TRY(cuCtxGetCurrent, (&current));
    return 1;
}
static int push_and_pop(int unused)
{
    CUcontext popped;
    (void)unused;
    TRY(cuCtxPushCurrent, (probe.context));
    TRY(cuCtxPopCurrent, (&popped));
    return 1;
}
static int get_and_launch(int size) { return get_context(0) && launch(size); }
static int record_event(int unused)
{
    (void)unused;
    TRY(cuEventRecord, (probe.event, probe.stream));
    return 1;
}
static int query_event(int unused)
{
    (void)unused;
    TRY(cuEventQuery, (probe.event));
    return 1;
}
static int replay(int unused)
{
    (void)unused;
    TRY(cuGraphLaunch, (probe.replay, probe.stream));
    return 1;
}
static int replay_and_wait(int unused) { return replay(unused) && wait_idle(); }
static int launches_and_wait(int size)
{
    for (int i = 0; i < GRAPH_NODES; i++)
        if (!launch(size)) return 0;
    return wait_idle();
}

/* Bits: 1: down, else up; 2: page-locked, else pageable; 4: large, else small. */
static int copy_and_wait(int kind)
{
    void *host = kind & 2 ? probe.pinned : probe.pageable;
    const size_t nbytes = kind & 4 ? LARGE_NBYTES : SMALL_NBYTES;
    if (kind & 1) {
        TRY(cuMemcpyDtoHAsync, (host, probe.memory, nbytes, probe.stream));
    } else {
        TRY(cuMemcpyHtoDAsync, (probe.memory, host, nbytes, probe.stream));
    }
    return wait_idle();
}

typedef struct figure {
    const char *name;
    int (*call)(int argument);
    int argument, count;
    size_t nbytes;
    double ns[MAX_ROUNDS];
} figure_t;

static figure_t figures[] = {
    { "launch_8_bytes", launch, 0, CALLS, 0, { 0 } },
    { "launch_128_bytes", launch, 1, CALLS, 0, { 0 } },
    { "launch_2120_bytes", launch, 2, CALLS, 0, { 0 } },
    { "get_context", get_context, 0, CALLS, 0, { 0 } },
    { "push_and_pop_context", push_and_pop, 0, CALLS, 0, { 0 } },
    { "get_context_and_launch_128_bytes", get_and_launch, 1, CALLS, 0, { 0 } },
    { "record_event", record_event, 0, CALLS, 0, { 0 } },
    { "query_event", query_event, 0, CALLS, 0, { 0 } },
    { "wait_idle", NULL, 0, CALLS, 0, { 0 } },
    { "graph_32_launch", replay, 0, 20, 0, { 0 } },
    { "graph_32_until_done", replay_and_wait, 0, 20, 0, { 0 } },
    { "launches_32_until_done", launches_and_wait, 1, 20, 0, { 0 } },
    { "up_pageable_4KiB", copy_and_wait, 0, 50, SMALL_NBYTES, { 0 } },
    { "up_pinned_4KiB", copy_and_wait, 2, 50, SMALL_NBYTES, { 0 } },
    { "down_pageable_4KiB", copy_and_wait, 1, 50, SMALL_NBYTES, { 0 } },
    { "down_pinned_4KiB", copy_and_wait, 3, 50, SMALL_NBYTES, { 0 } },
    { "up_pageable_64MiB", copy_and_wait, 4, 1, LARGE_NBYTES, { 0 } },
    { "up_pinned_64MiB", copy_and_wait, 6, 1, LARGE_NBYTES, { 0 } },
    { "down_pageable_64MiB", copy_and_wait, 5, 1, LARGE_NBYTES, { 0 } },
    { "down_pinned_64MiB", copy_and_wait, 7, 1, LARGE_NBYTES, { 0 } },
};
enum { FIGURES = sizeof figures / sizeof *figures };

static int measure(figure_t *figure, int round)
{
    if (!wait_idle()) return 0;
    const double begin = now_ns();
    for (int i = 0; i < figure->count; i++)
        if (!(figure->call != NULL ? figure->call(figure->argument) : wait_idle())) return 0;
    figure->ns[round] = (now_ns() - begin) / figure->count;
    return wait_idle();
}

/* ---- the report ---- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(int index, int rounds)
{
    char name[256] = "";
    int version = 0;
    driver.cuDeviceGetName(name, sizeof name, probe.device);
    driver.cuDriverGetVersion(&version);
    for (char *c = name; *c != '\0'; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ') *c = '_';
    fprintf(stderr, "%s, driver %d.%d, %d rounds\n%-34s%14s%14s%12s\n", name, version / 1000,
            version % 1000 / 10, rounds, "", "ns", "worst ns", "GB/s");
    printf("{\n  \"bench\": \"cuda_probe\",\n  \"clock\": \"wall\",\n  \"device\": \"cuda:%d\",\n  "
           "\"card\": \"%s\",\n  \"driver\": %d,\n"
           "  \"rounds\": %d,\n  \"rows\": [\n",
           index, name, version, rounds);
    for (int i = 0; i < FIGURES; i++) {
        figure_t *figure = &figures[i];
        qsort(figure->ns, (size_t)rounds, sizeof *figure->ns, compare);
        const double median = figure->ns[rounds / 2], worst = figure->ns[rounds - 1];
        fprintf(stderr, "%-34s%14.0f%14.0f", figure->name, median, worst);
        if (figure->nbytes > 0) fprintf(stderr, "%12.3f", (double)figure->nbytes / median);
        fputc('\n', stderr);
        printf("    { \"what\": \"%s\", \"ns\": %.1f, \"worst_ns\": %.1f, \"bytes\": %zu }%s\n",
               figure->name, median, worst, figure->nbytes, i + 1 < FIGURES ? "," : "");
    }
    printf("  ]\n}\n");
}

int main(int argc, char **argv)
{
    const int index = argc > 1 ? atoi(argv[1]) : 0, rounds = argc > 2 ? atoi(argv[2]) : 15;
    if (argc > 3 || index < 0 || rounds < 1 || rounds > MAX_ROUNDS ||
        (argc > 1 && (argv[1][0] < '0' || argv[1][0] > '9'))) {
        fprintf(stderr, "usage: cuda_probe [DEVICE_INDEX [ROUNDS]]   (at most %d rounds)\n",
                MAX_ROUNDS);
        return 2;
    }
    if (!load_driver() || !check(driver.cuInit(0), "cuInit")) return 77;
    int fine = open_device(index);
    /* A round first that does not count. */
    for (int round = -1; fine && round < rounds; round++)
        for (int i = 0; fine && i < FIGURES; i++)
            fine = measure(&figures[i], round < 0 ? 0 : round);
    if (fine) report(index, rounds);
    close_device();
    return !fine;
}
