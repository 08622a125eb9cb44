/* Blocks that grow in place (segments=virtual), against the fake driver's virtual memory. */
#include "fixture.h"

enum { STEP = 2 << 20 };

static const fy_backend_option_t is_virtual = { .key = "segments", .value = "virtual" };

static int open_virtual(void **state)
{
    (void)state;
    return open_with("segments", "virtual");
}

TS_TEST_WITH(growing_segments_are_reported, open_virtual, close_device)
{
    fy_backend_info_t info;
    void *other = &other;
    const fy_backend_option_t wrong = { .key = "segments", .value = "elastic" };
    assert_ok(cuda->device_query(dev, &info));
    assert_int_equal(info.resize_nbytes, STEP);
    assert_failed(cuda->device_open(1, 1, &wrong, &other), FY_STATUS_INVALID_ARGUMENT,
                  "segments may be fixed, virtual");
    assert_ok(cuda->device_open(1, 0, NULL, &other));
    assert_ok(cuda->device_query(other, &info));
    assert_int_equal(info.resize_nbytes, 0);
    cuda->device_close(other);
}

static uint64_t free_nbytes(void)
{
    fy_backend_info_t info;
    assert_ok(cuda->device_query(dev, &info));
    return info.free_nbytes;
}

TS_TEST_WITH(bytes_stay_while_it_grows_and_shrinks, open_virtual, close_device)
{
    static unsigned char out[3 * 4096], back[sizeof out];
    void *block;
    const uint64_t before = free_nbytes();
    for (size_t i = 0; i < sizeof out; i++) out[i] = (unsigned char)random_bits();
    assert_ok(cuda->alloc(dev, STEP, &block));
    assert_ok(cuda->resize(dev, block, STEP, 4 * STEP));
    assert_int_equal(before - free_nbytes(), 4 * STEP);
    char *across = (char *)block + STEP - 4096; /* over the old end */
    fy_copy_t up = { FY_COPY_UPLOAD, 0, across, out, sizeof out };
    assert_ok(cuda->copy(dev, stream, &up));
    assert_ok(cuda->resize(dev, block, 4 * STEP, 2 * STEP));
    assert_int_equal(before - free_nbytes(), 2 * STEP);
    assert_ok(cuda->resize(dev, block, 2 * STEP, 100 * STEP));
    fetch(back, across, sizeof back);
    assert_memory_equal(out, back, sizeof out);
    cuda->free(dev, block, 100 * STEP);
    assert_int_equal(free_nbytes(), before);
}

TS_TEST_WITH(memory_beyond_the_end_is_not_accessible, open_virtual, close_device)
{
    void *block;
    assert_ok(cuda->alloc(dev, 3 * STEP, &block));
    assert_ok(cuda->resize(dev, block, 3 * STEP, STEP));
    assert_int_equal(cuda->fill(dev, stream, (char *)block + STEP, 0, 1), FY_STATUS_DEVICE_LOST);
    cuda->free(dev, block, STEP);
}

TS_TEST_WITH(other_sizes_are_ordinary_segments, open_virtual, close_device)
{
    void *odd;
    assert_ok(cuda->alloc(dev, STEP + 256, &odd));
    assert_failed(cuda->resize(dev, odd, STEP + 256, 2 * STEP), FY_STATUS_INTERNAL, "no block");
    assert_ok(cuda->fill(dev, stream, odd, 0, STEP + 256));
    cuda->free(dev, odd, STEP + 256);
}

TS_TEST_WITH(peers_can_read_growing_blocks, open_virtual, close_device)
{
    void *other, *theirs, *mine;
    char bytes[64] = { 7 }, back[64] = { 0 };
    assert_ok(cuda->device_open(1, 1, &is_virtual, &other));
    assert_ok(cuda->alloc(other, STEP, &theirs));
    assert_ok(cuda->alloc(dev, STEP, &mine));
    fy_copy_t up = { FY_COPY_UPLOAD, 0, mine, bytes, 64 },
              there = { FY_COPY_PEER, 0, theirs, mine, 64, NULL, other };
    assert_ok(cuda->copy(dev, stream, &up));
    assert_ok(cuda->copy(dev, stream, &there));
    fetch(back, theirs, 64); /* this device may read it; the fake driver checks that */
    assert_memory_equal(bytes, back, 64);
    cuda->free(dev, mine, STEP);
    cuda->free(other, theirs, STEP);
    cuda->device_close(other);
}

static fy_status_t use(void **device, void **block, uint64_t *nbytes)
{
    FY_TRY(cuda->device_open(0, 1, &is_virtual, device));
    FY_TRY(cuda->alloc(*device, 2 * STEP, block));
    *nbytes = 2 * STEP;
    FY_TRY(cuda->resize(*device, *block, *nbytes, 5 * STEP));
    *nbytes = 5 * STEP;
    return cuda->resize(*device, *block, *nbytes, STEP);
}

/* Each call of virtual memory fails once: a failed call changes nothing and leaks nothing. */
TS_TEST(every_call_fails_once)
{
    static const char *const names[] = { "cuMemGetAllocationGranularity", "cuMemAddressReserve",
                                         "cuMemCreate", "cuMemMap", "cuMemSetAccess" };
    driver.fake_cuda_fail(NULL, 0, 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int failures = 0;
        for (int64_t nth = 1;; nth++) {
            void *device = NULL, *block = NULL;
            uint64_t nbytes = 0;
            const int64_t calls = driver.fake_cuda_calls(names[i]);
            driver.fake_cuda_fail(names[i], nth, 2);
            const fy_status_t status = use(&device, &block, &nbytes);
            const int failed = driver.fake_cuda_calls(names[i]) - calls >= nth;
            driver.fake_cuda_fail(NULL, 0, 0);
            if (failed) assert_failed(status, FY_STATUS_OUT_OF_MEMORY, names[i]);
            failures += failed;
            if (block != NULL && failed) /* still usable */
                assert_ok(cuda->resize(device, block, nbytes, nbytes + STEP));
            if (block != NULL) cuda->free(device, block, failed ? nbytes + STEP : STEP);
            if (device != NULL) cuda->device_close(device);
            assert_int_equal(driver.fake_cuda_live(FAKE_BLOCKS), 0);
            if (!failed) break;
        }
        assert_true(failures > 0);
    }
    assert_nothing_left();
}

TS_TEST_WITH(a_full_device_refuses_and_keeps_what_it_has, open_virtual, close_device)
{
    void *block;
    driver.fake_cuda_capacity(8ull * STEP);
    assert_ok(cuda->alloc(dev, 2 * STEP, &block));
    assert_failed(cuda->resize(dev, block, 2 * STEP, 9 * STEP), FY_STATUS_OUT_OF_MEMORY,
                  "cuMemCreate");
    assert_int_equal(free_nbytes(), 6 * STEP);
    assert_ok(cuda->resize(dev, block, 2 * STEP, 8 * STEP));
    cuda->free(dev, block, 8 * STEP);
    driver.fake_cuda_capacity(4ull << 30);
}

TS_SUITE(.prepare = load_or_skip);
