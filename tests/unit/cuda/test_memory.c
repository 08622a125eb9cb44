/* Memory, copies, streams and events of the CUDA plugin, against the fake driver. */
#include "driver_call.h"
#include "fixture.h"

TS_TEST(copies_keep_the_bytes)
{
    unsigned char out[5000], back[5000] = { 0 };
    for (size_t i = 0; i < sizeof out; i++) out[i] = (unsigned char)random_bits();
    memset(recorded, 0, sizeof recorded);
    uint64_t up = driver.fake_cuda_bytes(FAKE_H2D), down = driver.fake_cuda_bytes(FAKE_D2H),
             local = driver.fake_cuda_bytes(FAKE_D2D);
    void *a = device_bytes(out, sizeof out), *b = NULL;
    assert_ok(cuda->alloc(dev, sizeof out, &b));
    assert_true((uintptr_t)a % 256 == 0 && (uintptr_t)b % 256 == 0);
    fy_copy_t within = { FY_COPY_LOCAL, 0, b, a, sizeof out };
    assert_ok(cuda->copy(dev, stream, &within));
    fetch(back, b, sizeof back);
    assert_memory_equal(out, back, sizeof out);
    /* The reported bytes are the copied bytes. */
    assert_int_equal(recorded[FY_COPY_UPLOAD], 5000);
    assert_int_equal(recorded[FY_COPY_DOWNLOAD], 5000);
    assert_int_equal(recorded[FY_COPY_LOCAL], 5000);
    assert_int_equal(driver.fake_cuda_bytes(FAKE_H2D) - up, 5000);
    assert_int_equal(driver.fake_cuda_bytes(FAKE_D2H) - down, 5000);
    assert_int_equal(driver.fake_cuda_bytes(FAKE_D2D) - local, 5000);
    assert_ok(cuda->fill(dev, stream, (char *)b + 7, 0x5A, 100));
    fetch(back, b, sizeof back);
    assert_memory_equal(back, out, 7);
    for (int i = 7; i < 107; i++) assert_int_equal(back[i], 0x5A);
    assert_memory_equal(back + 107, out + 107, sizeof out - 107);
    cuda->free(dev, a, sizeof out);
    cuda->free(dev, b, sizeof out);
}

TS_TEST(a_failed_copy_reports_no_bytes)
{
    char bytes[64] = { 0 };
    void *a = device_bytes(bytes, 64);
    fy_copy_t up = { FY_COPY_UPLOAD, 0, a, bytes, 64 };
    memset(recorded, 0, sizeof recorded);
    driver.fake_cuda_fail("cuMemcpyHtoDAsync", 1, 999);
    assert_failed(cuda->copy(dev, stream, &up), FY_STATUS_INTERNAL, "uploading 64 bytes to cuda:0");
    assert_int_equal(recorded[FY_COPY_UPLOAD], 0);
    cuda->free(dev, a, 64);
}

/* With peer access, or, where its call fails, without. */
static void copy_to_peer(const char *failing_call)
{
    char bytes[256], back[256] = { 0 };
    void *other, *theirs, *their_stream;
    memset(bytes, 42, sizeof bytes);
    assert_ok(cuda->device_open(1, 0, NULL, &other));
    assert_ok(cuda->alloc(other, sizeof bytes, &theirs));
    assert_ok(cuda->stream_create(other, FY_STREAM_COMPUTE, 0, NULL, &their_stream));
    void *mine = device_bytes(bytes, sizeof bytes), *home = device_bytes(back, sizeof back);
    fy_copy_t there = { FY_COPY_PEER, 0, theirs, mine, sizeof bytes, NULL, other };
    fy_copy_t here = { FY_COPY_PEER, 0, home, theirs, sizeof bytes, NULL, dev };
    const int64_t enabled = driver.fake_cuda_calls("cuCtxEnablePeerAccess");
    memset(recorded, 0, sizeof recorded);
    if (failing_call) driver.fake_cuda_fail(failing_call, 1, 999);
    assert_ok(cuda->copy(dev, stream, &there));
    driver.fake_cuda_fail(NULL, 0, 0);
    assert_ok(cuda->copy(dev, stream, &there)); /* the path is chosen */
    assert_int_equal(driver.fake_cuda_calls("cuCtxEnablePeerAccess") - enabled,
                     failing_call && strstr(failing_call, "Can") ? 0 : 1);
    assert_ok(cuda->copy(other, their_stream, &here));
    fetch(back, home, sizeof back);
    assert_memory_equal(bytes, back, sizeof bytes);
    assert_int_equal(recorded[FY_COPY_PEER], 3 * sizeof bytes);
    there.peer = NULL;
    assert_failed(cuda->copy(dev, stream, &there), FY_STATUS_INTERNAL, "does not say which");
    cuda->stream_destroy(other, their_stream);
    cuda->free(dev, mine, sizeof bytes);
    cuda->free(dev, home, sizeof bytes);
    cuda->free(other, theirs, sizeof bytes);
    cuda->device_close(other);
}

TS_TEST(peers_copy)
{
    copy_to_peer(NULL);
    copy_to_peer(NULL); /* the peer was closed and opened again: peer access is enabled again too */
}

TS_TEST(peers_copy_without_peer_access)
{
    copy_to_peer("cuCtxEnablePeerAccess");
    assert_non_null(strstr(last_log, "go by the host"));
    last_log[0] = '\0';
    copy_to_peer("cuDeviceCanAccessPeer");
    assert_non_null(strstr(last_log, "go by the host"));
}

/* A fatal code of that call loses the device, like any other. */
TS_TEST(enabling_peer_access_can_lose_the_device)
{
    char bytes[64] = { 0 };
    void *other, *theirs;
    assert_ok(cuda->device_open(1, 0, NULL, &other));
    assert_ok(cuda->alloc(other, sizeof bytes, &theirs));
    void *mine = device_bytes(bytes, sizeof bytes);
    fy_copy_t there = { FY_COPY_PEER, 0, theirs, mine, sizeof bytes, NULL, other };
    driver.fake_cuda_fail("cuCtxEnablePeerAccess", 1, 719);
    assert_failed(cuda->copy(dev, stream, &there), FY_STATUS_DEVICE_LOST,
                  "reaching cuda:1 from cuda:0");
    assert_failed(cuda->copy(dev, stream, &there), FY_STATUS_DEVICE_LOST, "cuda:0 is lost");
    cuda->free(dev, mine, sizeof bytes);
    cuda->free(other, theirs, sizeof bytes);
    cuda->device_close(other);
}

TS_TEST(a_refused_allocation_has_no_lasting_effect)
{
    void *address = &address;
    fy_backend_info_t before, after;
    assert_ok(cuda->device_query(dev, &before));
    assert_failed(cuda->alloc(dev, before.memory_nbytes + 1, &address), FY_STATUS_OUT_OF_MEMORY,
                  "allocating");
    assert_non_null(strstr(failure.text, "CUDA_ERROR_OUT_OF_MEMORY"));
    assert_null(address);
    assert_ok(cuda->alloc(dev, 1 << 20, &address));
    assert_ok(cuda->device_query(dev, &after));
    assert_int_equal(before.free_nbytes - after.free_nbytes, 1 << 20);
    cuda->free(dev, address, 1 << 20);
}

TS_TEST(host_memory_is_registered_once)
{
    static char memory[8192] __attribute__((aligned(4096)));
    assert_ok(cuda->register_host(dev, memory, sizeof memory));
    assert_failed(cuda->register_host(dev, memory, 4096), FY_STATUS_BUSY,
                  "page-locking 4096 bytes");
    cuda->unregister_host(dev, memory, sizeof memory);
    assert_int_equal(driver.fake_cuda_live(FAKE_REGISTRATIONS), 0);
}

/* The driver has one registration, whichever device closes first; the memory stays usable for the
 * other. */
TS_TEST(two_devices_share_a_registration)
{
    static char memory[8192] __attribute__((aligned(4096)));
    for (int first = 0; first < 2; first++) {
        void *other;
        const int64_t calls = driver.fake_cuda_calls("cuMemHostRegister");
        assert_ok(cuda->device_open(1, 0, NULL, &other));
        assert_ok(cuda->register_host(other, memory, sizeof memory));
        driver.fake_cuda_fail("cuDevicePrimaryCtxRetain", 1, 999);
        assert_failed(cuda->register_host(dev, memory, sizeof memory), FY_STATUS_INTERNAL,
                      "keeping the context of cuda:1");
        assert_ok(cuda->register_host(dev, memory, sizeof memory));
        assert_failed(cuda->register_host(dev, memory, sizeof memory), FY_STATUS_BUSY,
                      "page-locked already");
        assert_failed(cuda->register_host(dev, memory + 4096, 4096), FY_STATUS_BUSY,
                      "page-locked already");
        assert_int_equal(driver.fake_cuda_calls("cuMemHostRegister") - calls, 1);
        cuda->unregister_host(first ? dev : other, memory, sizeof memory);
        assert_int_equal(driver.fake_cuda_live(FAKE_REGISTRATIONS), 1);
        if (!first) cuda->device_close(other); /* the device whose context made the registration */
        assert_int_equal(driver.fake_cuda_live(FAKE_REGISTRATIONS), 1);
        cuda->unregister_host(first ? other : dev, memory, sizeof memory);
        assert_int_equal(driver.fake_cuda_live(FAKE_REGISTRATIONS), 0);
        if (first) cuda->device_close(other);
    }
}

/* An existing registration is used and not removed. A range that the application did not register
 * completely is refused. */
TS_TEST(registrations_of_the_application_are_used)
{
    static char memory[16384] __attribute__((aligned(4096)));
    int (*lock)(void *address, size_t nbytes, unsigned flags);
    int (*unlock)(void *address);
    find_call("cuMemHostRegister", 6050, &lock);
    find_call("cuMemHostUnregister", 4000, &unlock);
    driver.fake_cuda_application(driver.fake_cuda_context(0));
    assert_int_equal(lock(memory, 8192, 3), 0);
    assert_failed(cuda->register_host(dev, memory + 4096, 8192), FY_STATUS_BUSY,
                  "page-locking 8192 bytes");
    assert_ok(cuda->register_host(dev, memory + 4096, 4096));
    cuda->unregister_host(dev, memory + 4096, 4096);
    assert_int_equal(driver.fake_cuda_live(FAKE_REGISTRATIONS), 1);
    assert_int_equal(unlock(memory), 0);
    driver.fake_cuda_application(NULL);
}

/* ---- streams ---- */

TS_TEST(priorities_are_clamped)
{
    static const int priorities[] = { -2147483647 - 1, -1, 0, 1, 5, 6, 2147483647 };
    for (size_t i = 0; i < sizeof priorities / sizeof *priorities; i++) {
        void *one;
        assert_ok(cuda->stream_create(dev, FY_STREAM_UPLOAD, priorities[i], NULL, &one));
        cuda->stream_destroy(dev, one);
    }
}

typedef struct native_stream {
    void *handle; /* the plugin's record begins with the CUstream */
} native_stream_t;

TS_TEST(a_foreign_stream_is_used_and_not_destroyed)
{
    char bytes[64] = { 1 };
    void *wrapped, *native = ((native_stream_t *)stream)->handle;
    assert_ok(cuda->stream_create(dev, FY_STREAM_COMPUTE, 0, native, &wrapped));
    assert_int_equal(driver.fake_cuda_live(FAKE_STREAMS), 1);
    void *memory = device_bytes(bytes, 64);
    assert_ok(cuda->fill(dev, wrapped, memory, 0, 64));
    cuda->stream_destroy(dev, wrapped);
    assert_int_equal(driver.fake_cuda_live(FAKE_STREAMS), 1);
    assert_ok(cuda->fill(dev, stream, memory, 0, 64)); /* still alive */
    cuda->free(dev, memory, 64);
}

/* ---- events ---- */

TS_TEST(events_report_completion)
{
    void *event;
    int done = 7;
    assert_ok(cuda->event_create(dev, &event));
    driver.fake_cuda_hold(1);
    assert_ok(cuda->event_record(dev, event, stream));
    assert_ok(cuda->event_query(dev, event, &done));
    assert_int_equal(done, 0);
    assert_failed(cuda->event_sync(dev, event, 0), FY_STATUS_TIMEOUT, "not done");
    assert_failed(cuda->event_sync(dev, event, 2000000), FY_STATUS_TIMEOUT, "goes on");
    assert_ok(cuda->event_wait(dev, stream, event)); /* the host does not wait */
    driver.fake_cuda_hold(0);
    assert_ok(cuda->event_query(dev, event, &done));
    assert_int_equal(done, 1);
    assert_ok(cuda->event_sync(dev, event, 0));
    assert_ok(cuda->event_sync(dev, event, FY_FOREVER));
    cuda->event_destroy(dev, event);
}

TS_SUITE(.set_up = open_device, .tear_down = close_device, .prepare = load_or_skip);
