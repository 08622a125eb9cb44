/* Memory, copies, streams and events of the CUDA plugin, against the fake driver. */
#include "fixture.h"

static void bytes_go_round(void **state)
{
    (void)state;
    unsigned char out[5000], back[5000] = { 0 };
    for (size_t i = 0; i < sizeof out; i++) out[i] = (unsigned char)random_bits();
    memset(recorded, 0, sizeof recorded);
    uint64_t up = fake.fake_cuda_bytes(FAKE_H2D), down = fake.fake_cuda_bytes(FAKE_D2H), local = fake.fake_cuda_bytes(FAKE_D2D);
    void *a = device_bytes(out, sizeof out), *b = NULL;
    assert_ok(cuda->alloc(dev, sizeof out, &b));
    assert_true((uintptr_t)a % 256 == 0 && (uintptr_t)b % 256 == 0);
    fy_copy_t within = { FY_COPY_LOCAL, 0, b, a, sizeof out };
    assert_ok(cuda->copy(dev, stream, &within));
    fetch(back, b, sizeof back);
    assert_memory_equal(out, back, sizeof out);
    /* What is reported is what moved. */
    assert_int_equal(recorded[FY_COPY_UPLOAD], 5000);
    assert_int_equal(recorded[FY_COPY_DOWNLOAD], 5000);
    assert_int_equal(recorded[FY_COPY_LOCAL], 5000);
    assert_int_equal(fake.fake_cuda_bytes(FAKE_H2D) - up, 5000);
    assert_int_equal(fake.fake_cuda_bytes(FAKE_D2H) - down, 5000);
    assert_int_equal(fake.fake_cuda_bytes(FAKE_D2D) - local, 5000);
    assert_ok(cuda->fill(dev, stream, (char *)b + 7, 0x5A, 100));
    fetch(back, b, sizeof back);
    assert_memory_equal(back, out, 7);
    for (int i = 7; i < 107; i++) assert_int_equal(back[i], 0x5A);
    assert_memory_equal(back + 107, out + 107, sizeof out - 107);
    cuda->free(dev, a, sizeof out);
    cuda->free(dev, b, sizeof out);
}

static void a_failed_copy_reports_no_bytes(void **state)
{
    (void)state;
    char bytes[64] = { 0 };
    void *a = device_bytes(bytes, 64);
    fy_copy_t up = { FY_COPY_UPLOAD, 0, a, bytes, 64 };
    memset(recorded, 0, sizeof recorded);
    fake.fake_cuda_fail("cuMemcpyHtoDAsync", 1, 999);
    assert_failed(cuda->copy(dev, stream, &up), FY_STATUS_INTERNAL, "uploading 64 bytes to cuda:0");
    assert_int_equal(recorded[FY_COPY_UPLOAD], 0);
    cuda->free(dev, a, 64);
}

static void peers_copy(void **state)
{
    (void)state;
    char bytes[256], back[256] = { 0 };
    void *other, *theirs;
    memset(bytes, 42, sizeof bytes);
    assert_ok(cuda->device_open(1, 0, NULL, &other));
    assert_ok(cuda->alloc(other, sizeof bytes, &theirs));
    void *mine = device_bytes(bytes, sizeof bytes), *home = device_bytes(back, sizeof back);
    fy_copy_t there = { FY_COPY_PEER, 0, theirs, mine, sizeof bytes }, here = { FY_COPY_PEER, 0, home, theirs, sizeof bytes };
    assert_ok(cuda->copy(dev, stream, &there));
    assert_ok(cuda->copy(dev, stream, &here));
    fetch(back, home, sizeof back);
    assert_memory_equal(bytes, back, sizeof bytes);
    cuda->free(dev, mine, sizeof bytes);
    cuda->free(dev, home, sizeof bytes);
    cuda->free(other, theirs, sizeof bytes);
    cuda->device_close(other);
}

static void too_much_memory_is_refused_and_nothing_sticks(void **state)
{
    (void)state;
    void *address = &address;
    fy_backend_info_t before, after;
    assert_ok(cuda->device_query(dev, &before));
    assert_failed(cuda->alloc(dev, before.memory_nbytes + 1, &address), FY_STATUS_OUT_OF_MEMORY, "allocating");
    assert_non_null(strstr(failure.text, "CUDA_ERROR_OUT_OF_MEMORY"));
    assert_null(address);
    assert_ok(cuda->alloc(dev, 1 << 20, &address));
    assert_ok(cuda->device_query(dev, &after));
    assert_int_equal(before.free_nbytes - after.free_nbytes, 1 << 20);
    cuda->free(dev, address, 1 << 20);
}

static void host_memory_is_registered_once(void **state)
{
    (void)state;
    static char memory[8192] __attribute__((aligned(4096)));
    assert_ok(cuda->register_host(dev, memory, sizeof memory));
    assert_failed(cuda->register_host(dev, memory, 4096), FY_STATUS_BUSY, "page-locking 4096 bytes");
    cuda->unregister_host(dev, memory, sizeof memory);
    assert_int_equal(fake.fake_cuda_live(FAKE_REGISTRATIONS), 0);
}

/* ---- streams ---- */

static void priorities_are_clamped(void **state)
{
    (void)state;
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

static void a_foreign_stream_is_used_and_not_destroyed(void **state)
{
    (void)state;
    char bytes[64] = { 1 };
    void *wrapped, *native = ((native_stream_t *)stream)->handle;
    assert_ok(cuda->stream_create(dev, FY_STREAM_COMPUTE, 0, native, &wrapped));
    assert_int_equal(fake.fake_cuda_live(FAKE_STREAMS), 1);
    void *memory = device_bytes(bytes, 64);
    assert_ok(cuda->fill(dev, wrapped, memory, 0, 64));
    cuda->stream_destroy(dev, wrapped);
    assert_int_equal(fake.fake_cuda_live(FAKE_STREAMS), 1);
    assert_ok(cuda->fill(dev, stream, memory, 0, 64)); /* still alive */
    cuda->free(dev, memory, 64);
}

static void a_stream_of_another_context_is_refused(void **state)
{
    (void)state;
    void *other, *theirs, *wrapped = &wrapped;
    assert_ok(cuda->device_open(1, 0, NULL, &other));
    assert_ok(cuda->stream_create(other, FY_STREAM_COMPUTE, 0, NULL, &theirs));
    assert_failed(cuda->stream_create(dev, FY_STREAM_COMPUTE, 0, ((native_stream_t *)theirs)->handle, &wrapped), FY_STATUS_INVALID_ARGUMENT,
                  "another context");
    assert_null(wrapped);
    cuda->stream_destroy(other, theirs);
    cuda->device_close(other);
}

/* ---- events ---- */

static void events_happen(void **state)
{
    (void)state;
    void *event;
    int done = 7;
    assert_ok(cuda->event_create(dev, &event));
    fake.fake_cuda_hold(1);
    assert_ok(cuda->event_record(dev, event, stream));
    assert_ok(cuda->event_query(dev, event, &done));
    assert_int_equal(done, 0);
    assert_failed(cuda->event_sync(dev, event, 0), FY_STATUS_TIMEOUT, "not done");
    assert_failed(cuda->event_sync(dev, event, 2000000), FY_STATUS_TIMEOUT, "goes on");
    assert_ok(cuda->event_wait(dev, stream, event)); /* the host does not wait */
    fake.fake_cuda_hold(0);
    assert_ok(cuda->event_query(dev, event, &done));
    assert_int_equal(done, 1);
    assert_ok(cuda->event_sync(dev, event, 0));
    assert_ok(cuda->event_sync(dev, event, FY_FOREVER));
    cuda->event_destroy(dev, event);
}

int main(void)
{
    load_or_skip();
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_device, close_device)
    const struct CMUnitTest tests[] = {
        TEST(bytes_go_round),
        TEST(a_failed_copy_reports_no_bytes),
        TEST(peers_copy),
        TEST(too_much_memory_is_refused_and_nothing_sticks),
        TEST(host_memory_is_registered_once),
        TEST(priorities_are_clamped),
        TEST(a_foreign_stream_is_used_and_not_destroyed),
        TEST(a_stream_of_another_context_is_refused),
        TEST(events_happen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
