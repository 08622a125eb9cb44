/* Events and timeline words of the application, over the fake driver. The test is the application:
 * it has a queue, an event and memory in the device's primary context. Not here: its
 * streams (tests/faults/test_cuda_streams.c), devices without native queues
 * (tests/conformance/test_stream.c). */
#include <cuda.h>
#include <cudaTypedefs.h>

#include "tests/unit/cuda/driver_call.h"

enum { N = 64 };

/* X(call, version): the driver as the application uses it */
#define CALLS(X)                        \
    X(cuDevicePrimaryCtxRetain, 7000)   \
    X(cuDevicePrimaryCtxRelease, 11000) \
    X(cuStreamCreateWithPriority, 5050) \
    X(cuStreamDestroy, 4000)            \
    X(cuStreamWaitEvent, 3020)          \
    X(cuEventCreate, 2000)              \
    X(cuEventDestroy, 4000)             \
    X(cuEventRecord, 2000)              \
    X(cuEventQuery, 2000)               \
    X(cuMemAlloc, 3020)                 \
    X(cuMemFree, 3020)                  \
    X(cuMemcpyHtoDAsync, 3020)          \
    X(cuMemHostRegister, 6050)          \
    X(cuMemHostUnregister, 4000)        \
    X(cuStreamWriteValue64, 11070)      \
    X(cuStreamWaitValue64, 11070)

static struct {
#define X(name, version) PFN_##name##_v##version name;
    CALLS(X)
#undef X
    CUcontext context;
    CUstream queue;
    CUevent event;
    CUdeviceptr memory, word;
} app;

#define cu_ok(call) assert_int_equal(call, CUDA_SUCCESS)

static fy_device_t *device;
static fy_scope_t scope;

static int set_up(void **state)
{
    (void)state;
    ts_ok(fy_device_open("cuda:0", &device));
    scope = fy_scope_begin("native");
    cu_ok(app.cuDevicePrimaryCtxRetain(&app.context, 0));
    driver.fake_cuda_application(app.context);
    cu_ok(app.cuStreamCreateWithPriority(&app.queue, CU_STREAM_NON_BLOCKING, 0));
    cu_ok(app.cuEventCreate(&app.event, CU_EVENT_DISABLE_TIMING));
    cu_ok(app.cuMemAlloc(&app.memory, N * sizeof(float)));
    cu_ok(app.cuMemAlloc(&app.word, sizeof(uint64_t)));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    driver.fake_cuda_hold(0);
    fy_scope_end(scope, 0, NULL);
    cu_ok(app.cuMemFree(app.memory));
    cu_ok(app.cuMemFree(app.word));
    if (app.event) cu_ok(app.cuEventDestroy(app.event));
    cu_ok(app.cuStreamDestroy(app.queue));
    driver.fake_cuda_application(NULL);
    cu_ok(app.cuDevicePrimaryCtxRelease(0));
    fy_device_close(device);
    return 0;
}

static int64_t waits(void) { return driver.fake_cuda_calls("cuStreamWaitEvent"); }

static fy_tensor_t *wrap_memory(void)
{
    fy_tensor_t *x;
    ts_ok(fy_tensor_wrap(device, FY_DTYPE_F32, FY_DIMS(N), (void *)(uintptr_t)app.memory, NULL,
                         NULL, &x));
    return x;
}

/* The application fills its memory on its queue; Ferry's streams wait for it, also one that is not
 * the stream of the call. */
TS_TEST(ferry_reads_what_the_application_writes)
{
    float values[N];
    for (int i = 0; i < N; i++) values[i] = (float)i;
    fy_tensor_t *x = wrap_memory(), *sum;
    fy_stream_t *side;
    void *address;
    ts_ok(fy_stream_create(device, NULL, &side));
    driver.fake_cuda_hold(1);
    cu_ok(app.cuMemcpyHtoDAsync(app.memory, values, sizeof values, app.queue));
    cu_ok(app.cuEventRecord(app.event, app.queue));
    const int64_t before = waits();
    const fy_ledger_totals_t quiet = ts_ledger(NULL);
    ts_ok(fy_native_event_wait(device, NULL, app.event));
    assert_int_equal(waits(), before + 1);
    ts_ok(fy_tensor_begin_native_access(x, FY_ACCESS_WRITE, NULL, &address));
    assert_int_equal((uintptr_t)address, app.memory);
    const fy_ledger_totals_t after = ts_ledger(NULL);
    ts_expect_quiet(&quiet, &after, "a wait for an event");
    const int64_t first = waits();
    ts_ok(fy_stream_set_current(side));
    ts_ok(fy_sum(x, 0, NULL, 0, &sum));
    assert_int_equal(waits(), first + 1); /* the side stream waits for the compute stream */
    cu_ok(app.cuEventDestroy(app.event)); /* the wait has taken what it needs */
    app.event = NULL;
    driver.fake_cuda_hold(0);
    ts_expect_f32(sum, (float[]){ N * (N - 1) / 2 }, 1);
}

/* The application's event is pending until Ferry's requests are done: those of the stream, and a
 * transfer whose ticket the stream waits for. */
TS_TEST(the_application_waits_for_ferry)
{
    fy_tensor_t *host = ts_host_f32(FY_DIMS(2), (float[]){ 1, 2 }), *x, *y;
    fy_stream_t *collector;
    ts_ok(fy_stream_create(device, NULL, &collector));
    driver.fake_cuda_hold(1);
    ts_ok(fy_tensor_upload(host, device, NULL, &x));
    const int64_t before = waits();
    ts_ok(fy_stream_wait(collector, fy_tensor_ticket(x)));
    assert_int_equal(waits(), before + 1);
    ts_ok(fy_native_event_record(device, collector, app.event));
    assert_int_equal(app.cuEventQuery(app.event), CUDA_ERROR_NOT_READY);
    cu_ok(app.cuStreamWaitEvent(app.queue, app.event, 0));
    driver.fake_cuda_hold(0);
    cu_ok(app.cuEventQuery(app.event));
    ts_ok(fy_add(x, x, &y));
    ts_ok(fy_native_event_record(device, NULL, app.event)); /* again: it moves */
    ts_expect_f32(y, (float[]){ 2, 4 }, 2);
}

TS_TEST(timelines_count_steps)
{
    uint64_t locked = 0; /* host code polls this one */
    fy_tensor_t *x, *y;
    void *word = (void *)(uintptr_t)app.word;
    cu_ok(app.cuMemHostRegister(&locked, sizeof locked,
                                CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(N), 1, &x));
    cu_ok(app.cuStreamWriteValue64(app.queue, app.word, 0, 0));
    for (uint64_t step = 1; step < 4; step++) {
        cu_ok(app.cuStreamWriteValue64(app.queue, app.word, 10 * step, 0));
        ts_ok(fy_native_timeline_wait(device, NULL, word, 10 * step));
        ts_ok(fy_native_timeline_wait(device, NULL, word, 10 * step - 5)); /* at least */
        ts_ok(fy_add(x, x, &y));
        ts_ok(fy_native_timeline_signal(device, NULL, &locked, step));
        ts_ok(fy_native_timeline_signal(device, NULL, word, 10 * step + 1));
        cu_ok(app.cuStreamWaitValue64(app.queue, app.word, 10 * step + 1, 0));
        assert_int_equal(locked, step);
    }
    assert_int_equal(driver.fake_cuda_misuses(), 0); /* no wait came before its signal */
    assert_int_equal(driver.fake_cuda_calls("cuStreamWaitValue64"), 9);
    cu_ok(app.cuMemHostUnregister(&locked));
}

TS_TEST(devices_without_memory_operations_refuse_timelines)
{
    setenv("FAKE_CUDA_NO_MEM_OPS", "1", 1);
    ts_fails_with(fy_native_timeline_wait(device, NULL, (void *)(uintptr_t)app.word, 1),
                  UNSUPPORTED, "fy_native_event_wait");
    ts_fails(fy_native_timeline_signal(device, NULL, (void *)(uintptr_t)app.word, 1), UNSUPPORTED);
    unsetenv("FAKE_CUDA_NO_MEM_OPS");
    ts_ok(fy_native_timeline_signal(device, NULL, (void *)(uintptr_t)app.word, 1));
}

typedef struct exchange {
    fy_tensor_t *x, *y;
    float values[N];
} exchange_t;

/* One batch: the application writes, Ferry doubles, the application is signalled. */
static fy_status_t exchange(exchange_t *e)
{
    void *address, *word = (void *)(uintptr_t)app.word;
    FY_TRY(fy_native_event_wait(device, NULL, app.event));
    FY_TRY(fy_native_timeline_wait(device, NULL, word, 0));
    FY_TRY(fy_tensor_begin_native_access(e->x, FY_ACCESS_WRITE, NULL, &address));
    FY_TRY(fy_add(e->x, e->x, &e->y));
    FY_TRY(fy_native_timeline_signal(device, NULL, word, 7));
    return fy_native_event_record(device, NULL, app.event);
}

/* Each driver call of an exchange fails once, with a transient code. */
TS_TEST(each_driver_call_fails)
{
    exchange_t e = { .x = wrap_memory() };
    ts_ok(fy_native_timeline_signal(device, NULL, (void *)(uintptr_t)app.word, 0));
    ts_ok(exchange(&e));
    const int64_t before = driver.fake_cuda_all_calls();
    ts_ok(exchange(&e));
    const int64_t total = driver.fake_cuda_all_calls() - before;
    int failures = 0;
    assert_true(total > 5);
    for (int64_t n = 1; n <= total; n++) {
        driver.fake_cuda_fail(NULL, n, 999);
        const fy_status_t status = exchange(&e);
        driver.fake_cuda_fail(NULL, 0, 0);
        failures += status != FY_STATUS_OK;
        if (status != FY_STATUS_OK && status != FY_STATUS_INTERNAL)
            fail_msg("call %lld: %s: %s", (long long)n, fy_status_name(status),
                     fy_error_get()->text);
        ts_ok(exchange(&e)); /* nothing was kept */
    }
    assert_true(failures >= 5);
    assert_int_equal(driver.fake_cuda_misuses(), 0);
}

TS_TEST(mistakes_are_refused)
{
    uint64_t pageable = 0;
    CUevent stranger, gone;
    fy_device_t *other;
    fy_stream_t *theirs;
    fy_graph_t *graph;
    char *word = (char *)(uintptr_t)app.word;
    ts_fails(fy_native_event_wait(NULL, NULL, app.event), INVALID_ARGUMENT);
    ts_fails(fy_native_event_wait(device, NULL, NULL), INVALID_ARGUMENT);
    ts_fails(fy_native_event_record(device, NULL, NULL), INVALID_ARGUMENT);
    ts_fails(fy_native_timeline_wait(device, NULL, NULL, 1), INVALID_ARGUMENT);
    ts_fails_with(fy_native_timeline_signal(device, NULL, word + 4, 1), INVALID_ARGUMENT,
                  "multiple of 8");
    ts_fails_with(fy_native_timeline_signal(device, NULL, &pageable, 1), INVALID_ARGUMENT,
                  "page-locked");
    ts_ok(fy_device_open("cuda:1", &other));
    ts_ok(fy_stream_create(other, NULL, &theirs));
    ts_fails_with(fy_native_event_wait(device, theirs, app.event), INVALID_ARGUMENT, "cuda:1");
    fy_stream_destroy(theirs);
    ts_fails(fy_native_event_wait(device, theirs, app.event), INVALID_ARGUMENT);
    fy_device_close(other);
    ts_ok(fy_graph_begin(device));
    ts_fails(fy_native_event_wait(device, NULL, app.event), UNSUPPORTED);
    ts_fails(fy_native_timeline_signal(device, NULL, word, 1), UNSUPPORTED);
    ts_fails(fy_graph_end(&graph), UNSUPPORTED);
    assert_int_equal(driver.fake_cuda_misuses(), 0);
    /* another context's, and one that is destroyed: the driver notices */
    driver.fake_cuda_application(driver.fake_cuda_context(0));
    cu_ok(app.cuEventCreate(&stranger, CU_EVENT_DISABLE_TIMING));
    driver.fake_cuda_application(NULL);
    ts_fails_with(fy_native_event_record(device, NULL, stranger), INVALID_ARGUMENT,
                  "primary context");
    cu_ok(app.cuEventCreate(&gone, CU_EVENT_DISABLE_TIMING));
    cu_ok(app.cuEventDestroy(gone));
    ts_fails(fy_native_event_wait(device, NULL, gone), INVALID_ARGUMENT);
    ts_ok(fy_native_event_record(device, NULL, app.event)); /* the device works as before */
}

static int nothing_is_left(void **state)
{
    (void)state;
    return 0;
}

/* Last: the context is lost with the device. */
TS_TEST_WITH(a_lost_device_is_reported, set_up, nothing_is_left)
{
    driver.fake_cuda_fail("cuStreamWaitEvent", 1, 700);
    ts_fails(fy_native_event_wait(device, NULL, app.event), DEVICE_LOST);
    driver.fake_cuda_fail(NULL, 0, 0);
    ts_fails(fy_native_event_wait(device, NULL, app.event), DEVICE_LOST);
    ts_fails(fy_native_event_record(device, NULL, app.event), DEVICE_LOST);
    ts_fails(fy_native_timeline_signal(device, NULL, (void *)(uintptr_t)app.word, 9), DEVICE_LOST);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
}

static int prepare(void)
{
    fake_driver_or_skip();
#define X(name, version) find_call(#name, version, &app.name);
    CALLS(X)
#undef X
    return 0;
}

TS_SUITE(.set_up = set_up, .tear_down = tear_down, .prepare = prepare);
