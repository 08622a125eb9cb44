/* Sums over devices by NCCL, against the fake one: the bits, the reported errors, and that a
 * failure ends its communicators and no call waits forever. */
#include "opset/formulas/half.h"
#include "fixture.h"

enum { N = 1000 };

static void *devs[2], *streams[2], *buffers[2];

static int open_both(void **state)
{
    (void)state;
    use_fake();
    for (int i = 0; i < 2; i++) {
        assert_ok(cuda->device_open(i, 0, NULL, &devs[i]));
        assert_ok(cuda->stream_create(devs[i], FY_STREAM_DOWNLOAD, 0, NULL, &streams[i]));
        assert_ok(cuda->alloc(devs[i], N * 8, &buffers[i]));
    }
    memset(recorded, 0, sizeof recorded);
    return 0;
}

static void close_one(int i)
{
    cuda->free(devs[i], buffers[i], N * 8);
    cuda->stream_destroy(devs[i], streams[i]);
    cuda->device_close(devs[i]);
}

static int close_both(void **state)
{
    (void)state;
    driver.fake_cuda_fail(NULL, 0, 0);
    for (int i = 0; i < 2; i++) close_one(i);
    assert_nothing_left();
    return 0;
}

static void put(int i, const void *bytes, uint64_t nbytes)
{
    fy_copy_t up = { FY_COPY_UPLOAD, 0, buffers[i], bytes, nbytes };
    assert_ok(cuda->copy(devs[i], streams[i], &up));
}

static void get(int i, void *bytes, uint64_t nbytes)
{
    fy_copy_t down = { FY_COPY_DOWNLOAD, 0, bytes, buffers[i], nbytes };
    assert_ok(cuda->copy(devs[i], streams[i], &down));
}

static void sum_f32(float a, float b)
{
    float x[N], y[N], got[N];
    for (int k = 0; k < N; k++) {
        x[k] = a + (float)k / 7.0f;
        y[k] = b - (float)k / 3.0f;
    }
    put(0, x, sizeof x);
    put(1, y, sizeof y);
    assert_ok(cuda->all_reduce(2, devs, streams, buffers, FY_DTYPE_F32, N));
    for (int i = 0; i < 2; i++) {
        get(i, got, sizeof got);
        for (int k = 0; k < N; k++) assert_true(got[k] == x[k] + y[k]);
    }
}

TS_TEST(sums_and_reported_bytes)
{
    const int64_t made = driver.fake_cuda_calls("ncclCommInitAll"),
                  groups = driver.fake_cuda_calls("ncclGroupEnd");
    for (int i = 0; i < 3; i++) sum_f32((float)i, 0.1f);
    /* once for a set of devices */
    assert_int_equal(driver.fake_cuda_calls("ncclCommInitAll") - made, 1);
    assert_int_equal(driver.fake_cuda_calls("ncclGroupEnd") - groups, 3);
    /* 2 (2 - 1) / 2 of the bytes, from each */
    assert_int_equal(recorded[FY_COPY_PEER], 3 * 2 * N * 4);
    uint16_t half[2][N], got[N];
    for (int k = 0; k < N; k++) {
        half[0][k] = fy__f16_from_f32((float)k / 9.0f);
        half[1][k] = fy__f16_from_f32((float)(N - k) * 1.7f);
    }
    for (int i = 0; i < 2; i++) put(i, half[i], sizeof half[i]);
    assert_ok(cuda->all_reduce(2, devs, streams, buffers, FY_DTYPE_F16, N));
    get(1, got, sizeof got);
    for (int k = 0; k < N; k++)
        assert_int_equal(
            got[k], fy__f16_from_f32(fy__f32_from_f16(half[0][k]) + fy__f32_from_f16(half[1][k])));
    assert_failed(cuda->all_reduce(2, devs, streams, buffers, FY_DTYPE_I32, N),
                  FY_STATUS_UNSUPPORTED, "not NCCL's");
}

static void open_again(void **state)
{
    driver.fake_cuda_fail(NULL, 0, 0);
    driver.fake_cuda_hold(0);
    for (int i = 0; i < 2; i++) close_one(i);
    assert_int_equal(driver.fake_cuda_live(FAKE_LT_OBJECTS), 0);
    open_both(state);
}

static void assert_both_lost(const char *part)
{
    char byte = 0;
    for (int i = 0; i < 2; i++) {
        fy_copy_t up = { FY_COPY_UPLOAD, 0, buffers[i], &byte, 1 };
        assert_failed(cuda->copy(devs[i], streams[i], &up), FY_STATUS_DEVICE_LOST, part);
    }
}

/* Each call of NCCL fails once, and the communicators are destroyed. If they had no sums yet, the
 * status is that of the code, and the next sum works with new ones. If they had sums, those may
 * have been in flight, and the devices are lost. */
TS_TEST(each_call_fails_once)
{
    static const struct {
        const char *call;
        int code, is_first, is_later;
        fy_status_t status;
    } cases[] = {
        { "ncclCommInitAll", 2, 1, 0, FY_STATUS_UNAVAILABLE },
        { "ncclCommGetAsyncError", 1, 0, 1, FY_STATUS_INTERNAL },
        { "ncclGroupStart", 3, 1, 1, FY_STATUS_INTERNAL },
        { "ncclAllReduce", 4, 1, 1, FY_STATUS_INVALID_ARGUMENT },
        { "ncclGroupEnd", 6, 1, 1, FY_STATUS_UNAVAILABLE },
        { "ncclGroupEnd", 99, 1, 1, FY_STATUS_INTERNAL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int later = !cases[i].is_first; later <= cases[i].is_later; later++) {
            if (later) sum_f32(1, 2);
            const uint64_t told = recorded[FY_COPY_PEER];
            driver.fake_cuda_fail(cases[i].call, 1, cases[i].code);
            assert_failed(cuda->all_reduce(2, devs, streams, buffers, FY_DTYPE_F32, N),
                          later ? FY_STATUS_DEVICE_LOST : cases[i].status, cases[i].call);
            driver.fake_cuda_fail(NULL, 0, 0);
            assert_int_equal(driver.fake_cuda_live(FAKE_LT_OBJECTS), 0);
            assert_int_equal(recorded[FY_COPY_PEER], told);
            if (later)
                assert_both_lost("a sum over devices ended with");
            else
                sum_f32(3, 4);
            open_again(state);
        }
    }
}

/* A link is lost while a sum runs. The first call that checks reports it, whether the check aborted
 * the sum or the sum had ended by itself. So does every later call: the sum never counts as
 * done. */
TS_TEST(an_asynchronous_error_is_reported)
{
    void *event;
    int done = 7;
    for (int how = 0; how < 4; how++) {
        assert_ok(cuda->event_create(devs[1], &event));
        sum_f32(1, 1);
        driver.fake_cuda_hold(1); /* the sum never ends */
        assert_ok(cuda->event_record(devs[1], event, streams[1]));
        assert_ok(cuda->event_query(devs[1], event, &done));
        assert_int_equal(done, 0);
        driver.fake_cuda_nccl_error(6);
        const int64_t aborts = driver.fake_cuda_calls("ncclCommAbort");
        if (how == 3) driver.fake_cuda_hold(0); /* NCCL's kernel ended by itself */
        if (how == 0 || how == 3)
            assert_failed(cuda->event_query(devs[1], event, &done), FY_STATUS_DEVICE_LOST,
                          "ncclRemoteError");
        if (how == 1)
            assert_failed(cuda->event_sync(devs[1], event, FY_FOREVER), FY_STATUS_DEVICE_LOST,
                          "ncclRemoteError");
        if (how == 2)
            assert_failed(cuda->all_reduce(2, devs, streams, buffers, FY_DTYPE_F32, N),
                          FY_STATUS_DEVICE_LOST, "ncclRemoteError");
        assert_int_equal(driver.fake_cuda_calls("ncclCommAbort") - aborts, 2);
        driver.fake_cuda_hold(0); /* the aborted kernels have ended */
        assert_failed(cuda->event_query(devs[1], event, &done), FY_STATUS_DEVICE_LOST,
                      "cuda:1 is lost");
        assert_int_equal(done, 0);
        assert_both_lost("ncclRemoteError");
        cuda->event_destroy(devs[1], event);
        open_again(state);
    }
    assert_ok(cuda->event_create(devs[1], &event));
    driver.fake_cuda_hold(1); /* a state that is not an error */
    sum_f32(1, 1);
    driver.fake_cuda_nccl_error(7);
    assert_ok(cuda->event_record(devs[1], event, streams[1]));
    assert_ok(cuda->event_query(devs[1], event, &done));
    driver.fake_cuda_hold(0);
    cuda->event_destroy(devs[1], event);
}

/* Either device can be closed first, and opened again. */
TS_TEST(closing_a_device_destroys_its_communicators)
{
    for (int first = 0; first < 2; first++) {
        sum_f32(1, 2);
        close_one(first);
        assert_int_equal(driver.fake_cuda_live(FAKE_LT_OBJECTS), 0);
        close_one(1 - first);
        open_both(state);
    }
}

TS_TEST(a_lost_device_is_refused)
{
    char byte = 0;
    sum_f32(1, 2);
    driver.fake_cuda_fail("cuMemcpyHtoDAsync", 1, 700);
    fy_copy_t up = { FY_COPY_UPLOAD, 0, buffers[1], &byte, 1 };
    assert_int_equal(cuda->copy(devs[1], streams[1], &up), FY_STATUS_DEVICE_LOST);
    const int64_t groups = driver.fake_cuda_calls("ncclGroupStart");
    assert_failed(cuda->all_reduce(2, devs, streams, buffers, FY_DTYPE_F32, N),
                  FY_STATUS_DEVICE_LOST, "cuda:1");
    assert_int_equal(driver.fake_cuda_calls("ncclGroupStart"), groups);
}

TS_SUITE(.set_up = open_both, .tear_down = close_both, .prepare = load_or_skip);
