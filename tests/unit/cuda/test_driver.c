/* Finding the driver, opening devices, and driver calls that fail: every call and every fatal code,
 * once each. */
#include "visit.h"

#include <cuda.h>
#include <pthread.h>

/* ---- before the driver is loaded; the order of these tests matters, because a process fills the
 * table once ---- */

TS_TEST(no_driver_is_unavailable)
{
    int count = 7;
    setenv("FERRY_CUDA_DRIVER", "/nonexistent/libcuda.so.1", 1);
    assert_failed(cuda->device_count(&count), FY_STATUS_UNAVAILABLE, "/nonexistent/libcuda.so.1");
    assert_int_equal(count, 0);
    assert_failed(cuda->device_open(0, 0, NULL, &dev), FY_STATUS_UNAVAILABLE, "dlopen");
    assert_null(dev);
}

TS_TEST(a_library_that_is_no_driver)
{
    int count;
    setenv("FERRY_CUDA_DRIVER", "libc.so.6", 1);
    assert_failed(cuda->device_count(&count), FY_STATUS_UNAVAILABLE, "cuGetProcAddress_v2");
}

TS_TEST(init_failure_names_the_code)
{
    int count;
    use_fake();
    driver.fake_cuda_fail("cuInit", 1, CUDA_ERROR_NO_DEVICE);
    assert_failed(cuda->device_count(&count), FY_STATUS_UNAVAILABLE, "CUDA_ERROR_NO_DEVICE (100)");
    assert_ok(cuda->device_count(&count)); /* it is tried again */
    assert_int_equal(count, 2);
}

/* ---- devices ---- */

TS_TEST_WITH(query_names_the_library, open_device, close_device)
{
    fy_backend_info_t info;
    assert_ok(cuda->device_query(dev, &info));
    assert_non_null(strstr(info.model, "Fake GPU"));
    assert_true(info.memory_nbytes >= info.free_nbytes && info.free_nbytes > 0);
    assert_true(info.alignment >= 64 && info.numerics && !info.is_simulated && !info.unified);
}

TS_TEST_WITH(wrong_index_and_unknown_option, open_device, close_device)
{
    void *other = &other;
    fy_backend_option_t option = { .key = "colour", .value = "red" };
    assert_failed(cuda->device_open(2, 0, NULL, &other), FY_STATUS_UNAVAILABLE, "cuda:0 to cuda:1");
    assert_null(other);
    assert_failed(cuda->device_open(-1, 0, NULL, &other), FY_STATUS_UNAVAILABLE, "cuda:-1");
    assert_failed(cuda->device_open(0, 1, &option, &other), FY_STATUS_INVALID_ARGUMENT, "colour");
}

/* A driver that is older than the compiler cannot load the compiled kernels: the text has both
 * versions. */
TS_TEST_WITH(kernels_that_do_not_load_name_versions, open_device, close_device)
{
    void *other;
    char versions[96];
    snprintf(versions, sizeof versions,
             "compiled by CUDA %d.%d, whose code needs driver %d.0 or newer; this one is 13.0",
             CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10, CUDA_VERSION / 1000);
    driver.fake_cuda_fail("cuModuleLoadData", 1, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    assert_failed(cuda->device_open(0, 0, NULL, &other), FY_STATUS_UNSUPPORTED, versions);
}

/* Kernels write fault flags in page-locked host memory, and get the host's address of it. */
TS_TEST_WITH(host_memory_at_other_addresses_is_refused, open_device, close_device)
{
    void *other;
    const int64_t contexts = driver.fake_cuda_live(FAKE_CONTEXTS);
    setenv("FAKE_CUDA_NO_HOST_POINTERS", "1", 1);
    assert_failed(cuda->device_open(1, 0, NULL, &other), FY_STATUS_UNSUPPORTED,
                  "cuda:1 (Fake GPU (no kernel runs here)): kernels do not reach page-locked host "
                  "memory at the host's address");
    unsetenv("FAKE_CUDA_NO_HOST_POINTERS");
    assert_null(other);
    assert_int_equal(driver.fake_cuda_live(FAKE_CONTEXTS), contexts);
}

TS_TEST_WITH(a_device_opens_twice, open_device, close_device)
{
    void *again;
    fy_backend_info_t info;
    const int64_t before = driver.fake_cuda_live(FAKE_CONTEXTS);
    assert_ok(cuda->device_open(0, 0, NULL, &again));
    assert_int_equal(driver.fake_cuda_live(FAKE_CONTEXTS), before + 1);
    cuda->stream_destroy(dev, stream);
    cuda->device_close(dev); /* the first is closed, the second still works */
    assert_ok(cuda->device_query(again, &info));
    dev = again;
    assert_ok(cuda->stream_create(dev, FY_STREAM_COMPUTE, 0, NULL, &stream));
}

/* ---- each call of a complete visit ---- */

TS_TEST(every_call_fails_once)
{
    static const struct {
        int code;
        fy_status_t status;
    } codes[] = { { CUDA_ERROR_OUT_OF_MEMORY, FY_STATUS_OUT_OF_MEMORY },
                  { CUDA_ERROR_UNKNOWN, FY_STATUS_INTERNAL } },
      blas[] = { { 3, FY_STATUS_OUT_OF_MEMORY }, { 14, FY_STATUS_INTERNAL } };
    int64_t before[NFALLIBLE], clean[NFALLIBLE], points = 0;
    use_fake();
    for (int i = 0; i < NFALLIBLE; i++) before[i] = driver.fake_cuda_calls(fallible[i]);
    assert_ok(visit());
    for (int i = 0; i < NFALLIBLE; i++) clean[i] = calls_before_release[i] - before[i];
    assert_nothing_left();
    for (int i = 0; i < NFALLIBLE; i++) {
        const int is_blas = strncmp(fallible[i], "cublas", 6) == 0;
        if (clean[i] == 0) fail_msg("the visit does not call %s", fallible[i]);
        for (int64_t nth = 1; nth <= clean[i]; nth++, points++) {
            const int code = is_blas ? blas[nth % 2].code : codes[nth % 2].code;
            const fy_status_t expected = is_blas ? blas[nth % 2].status : codes[nth % 2].status;
            driver.fake_cuda_fail(fallible[i], nth, code);
            failure.text[0] = '\0';
            fy_status_t status = visit();
            if (status != expected)
                fail_msg("call %d of %s failed with %d: status %d, %s", (int)nth, fallible[i], code,
                         (int)status, failure.text);
            /* "cuCtxGetCurrent" is reported as the slot that calls it */
            if (strncmp(fallible[i], "cuCtx", 5) != 0)
                assert_non_null(strstr(failure.text, fallible[i]));
            assert_nothing_left();
        }
        driver.fake_cuda_fail(NULL, 0, 0);
        assert_ok(visit()); /* still usable */
    }
    assert_true(points > 60);
}

/* A later call reports a faulting kernel, whichever call comes first. */
TS_TEST(an_illegal_address_is_reported_later)
{
    void *event;
    fy_desc_t x = DENSE(F32, 1024);
    fy_launch_t launch = launch_of(FY_OP_NEG, 1, &x, &x, NULL);
    open_device(NULL);
    assert_ok(cuda->event_create(dev, &event));
    x.data = (void *)(uintptr_t)4096;
    assert_ok(cuda->launch(dev, stream, &launch));
    assert_failed(cuda->event_record(dev, event, stream), FY_STATUS_DEVICE_LOST,
                  "CUDA_ERROR_ILLEGAL_ADDRESS");
    cuda->event_destroy(dev, event);
    close_device(NULL);
}

/* ---- the application's context ---- */

/* Calls every slot with `expected` current before it. NULL: no context is current, and the device's
 * context stays current once the device is open. */
static void slots_leave_current(void *expected)
{
    void *memory, *event, *second;
    int done, count;
    char bytes[64] = { 0 };
    fy_backend_info_t info;
    fy_desc_t x = DENSE(F32, 16), m = DENSE(F32, 4, 4), mm[2];
    const fy_matmul_attrs_t product = { 0 };
#define KEEPS(call)                                             \
    do {                                                        \
        call;                                                   \
        assert_ptr_equal(driver.fake_cuda_current(), expected); \
    } while (0)
    KEEPS(assert_ok(cuda->device_count(&count)));
    assert_ok(cuda->device_open(0, 0, NULL, &dev));
    if (expected == NULL) assert_non_null(expected = driver.fake_cuda_current());
    assert_ptr_equal(driver.fake_cuda_current(), expected);
    KEEPS(assert_ok(cuda->device_query(dev, &info)));
    KEEPS(assert_ok(cuda->stream_create(dev, FY_STREAM_COMPUTE, 0, NULL, &stream)));
    KEEPS(assert_ok(cuda->event_create(dev, &event)));
    KEEPS(assert_ok(cuda->alloc(dev, 4096, &memory)));
    KEEPS(assert_int_equal(cuda->alloc(dev, 1ull << 60, &second), FY_STATUS_OUT_OF_MEMORY));
    KEEPS(assert_ok(cuda->register_host(dev, pinned, sizeof pinned)));
    fy_copy_t up = { FY_COPY_UPLOAD, 0, memory, bytes, 64 },
              down = { FY_COPY_DOWNLOAD, 0, bytes, memory, 64 };
    KEEPS(assert_ok(cuda->copy(dev, stream, &up)));
    KEEPS(assert_ok(cuda->copy(dev, stream, &down)));
    KEEPS(assert_ok(cuda->fill(dev, stream, memory, 0, 64)));
    x.data = m.data = memory;
    mm[0] = mm[1] = m;
    m.data = (char *)memory + 2048;
    fy_launch_t launch = launch_of(FY_OP_NEG, 1, &x, &x, NULL);
    fy_launch_t matmul = launch_of(FY_OP_MATMUL, 2, &m, mm, &product);
    KEEPS(assert_ok(cuda->launch(dev, stream, &launch)));
    KEEPS(assert_true(cuda->supports(dev, &matmul)));
    KEEPS(assert_int_equal(cuda->workspace(dev, &matmul, 1 << 20), 4096));
    KEEPS(assert_ok(cuda->launch(dev, stream, &matmul)));
    KEEPS(assert_ok(cuda->event_record(dev, event, stream)));
    KEEPS(assert_ok(cuda->event_wait(dev, stream, event)));
    KEEPS(assert_ok(cuda->event_query(dev, event, &done)));
    KEEPS(assert_ok(cuda->event_sync(dev, event, FY_FOREVER)));
    KEEPS(cuda->unregister_host(dev, pinned, sizeof pinned));
    KEEPS(cuda->free(dev, memory, 4096));
    KEEPS(cuda->event_destroy(dev, event));
    KEEPS(cuda->stream_destroy(dev, stream));
    KEEPS(cuda->device_close(dev));
#undef KEEPS
    assert_nothing_left();
}

static void *a_new_thread(void *unused)
{
    (void)unused;
    assert_null(driver.fake_cuda_current());
    slots_leave_current(NULL);
    void *own = driver.fake_cuda_context(
        0); /* pushed above the device's context, which stays on the stack */
    driver.fake_cuda_application(own);
    slots_leave_current(own);
    driver.fake_cuda_application(NULL);
    return NULL;
}

TS_TEST(slots_keep_the_current_context)
{
    pthread_t thread;
    pthread_create(&thread, NULL, a_new_thread, NULL);
    pthread_join(thread, NULL);
    void *own = driver.fake_cuda_context(1); /* of another card */
    driver.fake_cuda_application(own);
    slots_leave_current(own);
    for (int i = 0; i < NFALLIBLE; i++) { /* also when a slot fails */
        driver.fake_cuda_fail(fallible[i], 1, CUDA_ERROR_OUT_OF_MEMORY);
        (void)visit();
        driver.fake_cuda_fail(NULL, 0, 0);
        if (driver.fake_cuda_current() != own)
            fail_msg("%s failed, and the application's context is another one", fallible[i]);
    }
    driver.fake_cuda_application(NULL);
}

/* Counts the driver calls of one dense launch, including those for contexts. */
static void count_launch(void *device, void *on, int64_t gets, int64_t sets, int64_t pushes)
{
    static const char *const names[] = { "cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxPushCurrent",
                                         "cuCtxPopCurrent", "cuLaunchKernel" };
    const int64_t expected[] = { gets, sets, pushes, pushes, 1 };
    int64_t before[5], all = 1 + gets + sets + 2 * pushes;
    void *memory;
    fy_desc_t x = DENSE(F32, 16);
    fy_launch_t launch = launch_of(FY_OP_NEG, 1, &x, &x, NULL);
    void *top = driver.fake_cuda_current();
    /* the allocation must not change the counts below */
    driver.fake_cuda_application(driver.fake_cuda_context(0));
    assert_ok(cuda->alloc(device, 4096, &memory));
    driver.fake_cuda_application(NULL);
    assert_ptr_equal(driver.fake_cuda_current(), top);
    x.data = memory;
    for (int i = 0; i < 5; i++) before[i] = driver.fake_cuda_calls(names[i]);
    all += driver.fake_cuda_all_calls();
    assert_ok(cuda->launch(device, on, &launch));
    assert_int_equal(driver.fake_cuda_all_calls(), all);
    for (int i = 0; i < 5; i++)
        if (driver.fake_cuda_calls(names[i]) - before[i] != expected[i])
            fail_msg("%s was called %lld times, not %lld", names[i],
                     (long long)(driver.fake_cuda_calls(names[i]) - before[i]),
                     (long long)expected[i]);
    cuda->free(device, memory, 4096);
}

TS_TEST_WITH(a_launch_makes_two_driver_calls, open_device, close_device)
{
    void *second, *on_second;
    assert_ok(cuda->device_open(1, 0, NULL, &second));
    assert_ok(cuda->stream_create(second, FY_STREAM_COMPUTE, 0, NULL, &on_second));
    count_launch(second, on_second, 1, 0, 0);
    count_launch(second, on_second, 1, 0, 0);
    count_launch(dev, stream, 1, 1, 0); /* another device of Ferry replaces it without a push */
    count_launch(dev, stream, 1, 0, 0);
    void *own = driver.fake_cuda_context(0);
    driver.fake_cuda_application(own);
    count_launch(dev, stream, 1, 0, 1); /* the application's context stays */
    count_launch(second, on_second, 1, 0, 1);
    assert_ptr_equal(driver.fake_cuda_current(), own);
    driver.fake_cuda_application(NULL);
    count_launch(dev, stream, 1, 0, 0);
    cuda->stream_destroy(second, on_second);
    cuda->device_close(second);
}

/* A context costs hundreds of milliseconds: the process keeps it until the device is lost. */
TS_TEST(the_primary_context_is_kept)
{
    void *device;
    const int64_t first = driver.fake_cuda_live(FAKE_CONTEXTS);
    for (int i = 0; i < 3; i++) {
        assert_ok(cuda->device_open(0, 0, NULL, &device));
        cuda->device_close(device);
        assert_int_equal(driver.fake_cuda_live(FAKE_CONTEXTS), first);
    }
    assert_true(first == 2); /* both were opened before */
    assert_ok(cuda->device_open(0, 0, NULL, &device));
    fy_backend_info_t info;
    driver.fake_cuda_fail("cuMemGetInfo", 1, CUDA_ERROR_LAUNCH_FAILED);
    assert_failed(cuda->device_query(device, &info), FY_STATUS_DEVICE_LOST,
                  "CUDA_ERROR_LAUNCH_FAILED");
    cuda->device_close(device);
    assert_int_equal(driver.fake_cuda_live(FAKE_CONTEXTS), first - 1);
    assert_null(driver.fake_cuda_current()); /* not a destroyed context */
    assert_ok(cuda->device_open(0, 0, NULL, &device));
    assert_ok(cuda->device_query(device, &info));
    cuda->device_close(device);
    assert_int_equal(driver.fake_cuda_live(FAKE_CONTEXTS), first);
    assert_nothing_left();
}

TS_SUITE(.prepare = load_or_skip);
