/* Finding the driver, opening devices, and what the plugin does when the driver says no: every call, every fatal code, once each. */
#include "visit.h"

#include <cuda.h>

/* ---- before the driver is there; this order matters, the table is filled once a process ---- */

static void no_driver_is_unavailable(void **state)
{
    (void)state;
    int count = 7;
    setenv("FERRY_CUDA_DRIVER", "/nonexistent/libcuda.so.1", 1);
    assert_failed(cuda->device_count(&count), FY_STATUS_UNAVAILABLE, "/nonexistent/libcuda.so.1");
    assert_int_equal(count, 0);
    assert_failed(cuda->device_open(0, 0, NULL, &dev), FY_STATUS_UNAVAILABLE, "dlopen");
    assert_null(dev);
}

static void a_library_that_is_no_driver(void **state)
{
    (void)state;
    int count;
    setenv("FERRY_CUDA_DRIVER", "libc.so.6", 1);
    assert_failed(cuda->device_count(&count), FY_STATUS_UNAVAILABLE, "cuGetProcAddress_v2");
}

static void init_failure_names_the_code(void **state)
{
    (void)state;
    int count;
    use_fake();
    fake.fake_cuda_fail("cuInit", 1, CUDA_ERROR_NO_DEVICE);
    assert_failed(cuda->device_count(&count), FY_STATUS_UNAVAILABLE, "CUDA_ERROR_NO_DEVICE (100)");
    assert_ok(cuda->device_count(&count)); /* it is tried again */
    assert_int_equal(count, 2);
}

/* ---- devices ---- */

static void query_says_what_it_is(void **state)
{
    (void)state;
    fy_backend_info_t info;
    assert_ok(cuda->device_query(dev, &info));
    assert_non_null(strstr(info.model, "Fake GPU"));
    assert_true(info.memory_nbytes >= info.free_nbytes && info.free_nbytes > 0);
    assert_true(info.alignment >= 64 && info.numerics && !info.is_simulated && !info.unified);
}

static void wrong_index_and_unknown_option(void **state)
{
    (void)state;
    void *other = &other;
    fy_backend_option_t option = { .key = "colour", .value = "red" };
    assert_failed(cuda->device_open(2, 0, NULL, &other), FY_STATUS_UNAVAILABLE, "cuda:0 to cuda:1");
    assert_null(other);
    assert_failed(cuda->device_open(-1, 0, NULL, &other), FY_STATUS_UNAVAILABLE, "cuda:-1");
    assert_failed(cuda->device_open(0, 1, &option, &other), FY_STATUS_INVALID_ARGUMENT, "colour");
}

static void a_device_opens_twice(void **state)
{
    (void)state;
    void *again;
    assert_ok(cuda->device_open(0, 0, NULL, &again));
    assert_int_equal(fake.fake_cuda_live(FAKE_CONTEXTS), 2);
    cuda->device_close(again);
    assert_int_equal(fake.fake_cuda_live(FAKE_CONTEXTS), 1);
}

/* ---- each call of a whole visit ---- */

static void every_call_fails_once(void **state)
{
    (void)state;
    static const struct {
        int code;
        fy_status_t status;
    } driver[] = { { CUDA_ERROR_OUT_OF_MEMORY, FY_STATUS_OUT_OF_MEMORY }, { CUDA_ERROR_UNKNOWN, FY_STATUS_INTERNAL } },
      blas[] = { { 3, FY_STATUS_OUT_OF_MEMORY }, { 14, FY_STATUS_INTERNAL } };
    int64_t before[NFALLIBLE], clean[NFALLIBLE], points = 0;
    use_fake();
    for (int i = 0; i < NFALLIBLE; i++) before[i] = fake.fake_cuda_calls(fallible[i]);
    assert_ok(visit());
    for (int i = 0; i < NFALLIBLE; i++) clean[i] = calls_before_release[i] - before[i];
    assert_nothing_left();
    for (int i = 0; i < NFALLIBLE; i++) {
        const int is_blas = strncmp(fallible[i], "cublas", 6) == 0;
        if (clean[i] == 0) fail_msg("the visit does not call %s", fallible[i]);
        for (int64_t nth = 1; nth <= clean[i]; nth++, points++) {
            const int code = is_blas ? blas[nth % 2].code : driver[nth % 2].code;
            const fy_status_t expected = is_blas ? blas[nth % 2].status : driver[nth % 2].status;
            fake.fake_cuda_fail(fallible[i], nth, code);
            failure.text[0] = '\0';
            fy_status_t status = visit();
            if (status != expected)
                fail_msg("call %d of %s failed with %d: status %d, %s", (int)nth, fallible[i], code, (int)status, failure.text);
            /* "cuCtxGetCurrent" is told as the call it serves */
            if (strncmp(fallible[i], "cuCtx", 5) != 0) assert_non_null(strstr(failure.text, fallible[i]));
            assert_nothing_left();
        }
        fake.fake_cuda_fail(NULL, 0, 0);
        assert_ok(visit()); /* usable afterwards */
    }
    assert_true(points > 60);
}

static void fatal_codes_lose_the_device(void **state)
{
    (void)state;
    static const int codes[] = { 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911 };
    assert_int_equal(sizeof codes / sizeof *codes, 13);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        char number[16];
        void *memory, *event;
        int done;
        fy_backend_info_t info;
        assert_ok(cuda->device_open(1, 0, NULL, &dev));
        assert_ok(cuda->stream_create(dev, FY_STREAM_COMPUTE, 0, NULL, &stream));
        assert_ok(cuda->event_create(dev, &event));
        assert_ok(cuda->alloc(dev, 4096, &memory));
        snprintf(number, sizeof number, "(%d:", codes[i]);
        fake.fake_cuda_fail("cuMemsetD8Async", 1, codes[i]);
        assert_failed(cuda->fill(dev, stream, memory, 0, 4096), FY_STATUS_DEVICE_LOST, number);
        int64_t calls = fake.fake_cuda_all_calls();
        fy_copy_t down = { FY_COPY_DOWNLOAD, 0, number, memory, 4 };
        fy_desc_t x = DENSE(F32, 16);
        fy_launch_t launch = { .struct_size = sizeof launch, .op = FY_OP_NEG, .nsrc = 1, .ndst = 1, .dst = &x, .src = &x, .nelem = 16 };
        void *more;
        x.data = memory;
        assert_failed(cuda->alloc(dev, 4096, &more), FY_STATUS_DEVICE_LOST, "cuda:1 is lost");
        assert_failed(cuda->copy(dev, stream, &down), FY_STATUS_DEVICE_LOST, number);
        assert_failed(cuda->launch(dev, stream, &launch), FY_STATUS_DEVICE_LOST, number);
        assert_failed(cuda->event_query(dev, event, &done), FY_STATUS_DEVICE_LOST, number);
        assert_failed(cuda->event_sync(dev, event, FY_FOREVER), FY_STATUS_DEVICE_LOST, number);
        assert_failed(cuda->device_query(dev, &info), FY_STATUS_DEVICE_LOST, number);
        assert_int_equal(fake.fake_cuda_all_calls(), calls); /* at once: the driver is not asked again */
        cuda->free(dev, memory, 4096);
        cuda->event_destroy(dev, event);
        cuda->stream_destroy(dev, stream);
        cuda->device_close(dev);
        assert_nothing_left();
    }
}

/* A kernel that faults is found out by a later call, whichever it is. */
static void an_illegal_address_is_found_later(void **state)
{
    (void)state;
    void *event;
    fy_desc_t x = DENSE(F32, 1024);
    fy_launch_t launch = { .struct_size = sizeof launch, .op = FY_OP_NEG, .nsrc = 1, .ndst = 1, .dst = &x, .src = &x, .nelem = 1024 };
    open_device(NULL);
    assert_ok(cuda->event_create(dev, &event));
    x.data = (void *)(uintptr_t)4096;
    assert_ok(cuda->launch(dev, stream, &launch));
    assert_failed(cuda->event_record(dev, event, stream), FY_STATUS_DEVICE_LOST, "CUDA_ERROR_ILLEGAL_ADDRESS");
    cuda->event_destroy(dev, event);
    close_device(NULL);
}

/* ---- the application's context ---- */

typedef int (*context_fn)(void **context);
typedef int (*push_fn)(void *context);
typedef int (*lookup_fn)(const char *name, void **entry, int version, uint64_t flags, int *status);

static void *driver_call(const char *name)
{
    lookup_fn lookup;
    void *symbol = need_symbol(fake_library, "cuGetProcAddress_v2"), *entry = NULL;
    memcpy(&lookup, &symbol, sizeof symbol);
    assert_int_equal(lookup(name, &entry, 4000, 0, NULL), 0);
    return entry;
}

static void *current(void)
{
    void *context = NULL, *entry = driver_call("cuCtxGetCurrent");
    context_fn get;
    memcpy(&get, &entry, sizeof entry);
    assert_int_equal(get(&context), 0);
    return context;
}

/* Every slot, with `expected` current before it. */
static void slots_leave_current(void *expected)
{
    void *memory, *event, *second;
    int done, count;
    char bytes[64] = { 0 };
    fy_backend_info_t info;
    fy_desc_t x = DENSE(F32, 16), m = DENSE(F32, 4, 4), mm[2];
    const fy_matmul_attrs_t product = { 0 };
#define KEEPS(call)                            \
    do {                                       \
        call;                                  \
        assert_ptr_equal(current(), expected); \
    } while (0)
    KEEPS(assert_ok(cuda->device_count(&count)));
    KEEPS(assert_ok(cuda->device_open(0, 0, NULL, &dev)));
    KEEPS(assert_ok(cuda->device_query(dev, &info)));
    KEEPS(assert_ok(cuda->stream_create(dev, FY_STREAM_COMPUTE, 0, NULL, &stream)));
    KEEPS(assert_ok(cuda->event_create(dev, &event)));
    KEEPS(assert_ok(cuda->alloc(dev, 4096, &memory)));
    KEEPS(assert_int_equal(cuda->alloc(dev, 1ull << 60, &second), FY_STATUS_OUT_OF_MEMORY));
    KEEPS(assert_ok(cuda->register_host(dev, pinned, sizeof pinned)));
    fy_copy_t up = { FY_COPY_UPLOAD, 0, memory, bytes, 64 }, down = { FY_COPY_DOWNLOAD, 0, bytes, memory, 64 };
    KEEPS(assert_ok(cuda->copy(dev, stream, &up)));
    KEEPS(assert_ok(cuda->copy(dev, stream, &down)));
    KEEPS(assert_ok(cuda->fill(dev, stream, memory, 0, 64)));
    x.data = m.data = memory;
    mm[0] = mm[1] = m;
    m.data = (char *)memory + 2048;
    fy_launch_t launch = { .struct_size = sizeof launch, .op = FY_OP_NEG, .nsrc = 1, .ndst = 1, .dst = &x, .src = &x, .nelem = 16 };
    fy_launch_t matmul = {
        .struct_size = sizeof matmul, .op = FY_OP_MATMUL, .nsrc = 2, .ndst = 1, .dst = &m, .src = mm, .attrs = &product, .nelem = 16
    };
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

static void the_current_context_stays(void **state)
{
    (void)state;
    void *entry = driver_call("cuCtxPushCurrent"), *popped;
    push_fn push;
    context_fn pop;
    memcpy(&push, &entry, sizeof entry);
    entry = driver_call("cuCtxPopCurrent");
    memcpy(&pop, &entry, sizeof entry);
    slots_leave_current(NULL);
    void *own = fake.fake_cuda_context(0);
    assert_int_equal(push(own), 0);
    slots_leave_current(own);
    assert_int_equal(pop(&popped), 0);
    assert_ptr_equal(popped, own);
    own = fake.fake_cuda_context(1); /* of another card */
    assert_int_equal(push(own), 0);
    slots_leave_current(own);
    for (int i = 0; i < NFALLIBLE; i++) { /* and when a slot fails */
        fake.fake_cuda_fail(fallible[i], 1, CUDA_ERROR_OUT_OF_MEMORY);
        (void)visit();
        fake.fake_cuda_fail(NULL, 0, 0);
        if (current() != own) fail_msg("%s failed, and the application's context is another one", fallible[i]);
    }
    assert_int_equal(pop(&popped), 0);
    assert_ptr_equal(popped, own);
}

int main(void)
{
    load_or_skip();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_driver_is_unavailable),
        cmocka_unit_test(a_library_that_is_no_driver),
        cmocka_unit_test(init_failure_names_the_code),
        cmocka_unit_test_setup_teardown(query_says_what_it_is, open_device, close_device),
        cmocka_unit_test_setup_teardown(wrong_index_and_unknown_option, open_device, close_device),
        cmocka_unit_test_setup_teardown(a_device_opens_twice, open_device, close_device),
        cmocka_unit_test(every_call_fails_once),
        cmocka_unit_test(fatal_codes_lose_the_device),
        cmocka_unit_test(the_current_context_stays),
        cmocka_unit_test(an_illegal_address_is_found_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
