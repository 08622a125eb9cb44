/* The skeleton backend keeps the rules that it documents: new backends are copies of it. */
#include "backends/builtin.h"
#include "tests/unit/backends/kernel_fixture.h"

static const fy_backend_t *null_backend(void)
{
    const fy_backend_t *backend = NULL;
    ts_ok(fy__backend_null_open(&api, FY_BACKEND_ABI, &backend));
    return backend;
}

TS_TEST(refusals_are_explained)
{
    const fy_backend_t *null = null_backend(), *other = null;
    const fy_backend_option_t unknown = { "colour", "red", 0, 0 },
                              wrong = { "memory", "much", 0, 0 };
    void *dev = &dev;
    assert_int_equal(fy__backend_null_open(&api, 7, &other), FY_STATUS_UNSUPPORTED);
    assert_null(other);
    assert_non_null(strstr(last_text, "7"));
    assert_int_equal(null->device_open(3, 0, NULL, &dev), FY_STATUS_UNAVAILABLE);
    assert_null(dev);
    assert_int_equal(null->device_open(0, 1, &unknown, &dev), FY_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(last_text, "colour"));
    assert_int_equal(null->device_open(0, 1, &wrong, &dev), FY_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(last_text, "much"));
}

TS_TEST(memory_is_counted_and_bounded)
{
    const fy_backend_t *null = null_backend();
    const fy_backend_option_t memory = { "memory", "1MiB", 1 << 20, 1 };
    fy_backend_info_t info;
    void *dev, *a, *b;
    ts_ok(null->device_open(0, 1, &memory, &dev));
    ts_ok(null->alloc(dev, 700000, &a));
    assert_int_equal(null->alloc(dev, 700000, &b), FY_STATUS_OUT_OF_MEMORY);
    assert_null(b);
    assert_int_equal(null->alloc(dev, UINT64_MAX, &b), FY_STATUS_OUT_OF_MEMORY);
    ts_ok(null->device_query(dev, &info));
    assert_true(info.memory_nbytes == 1 << 20 && info.free_nbytes == (1 << 20) - 700000);
    assert_true(!info.numerics && !info.unified && (uintptr_t)a % info.alignment == 0);
    null->free(dev, a, 700000);
    ts_ok(null->alloc(dev, 1 << 20, &b));
    null->free(dev, b, 1 << 20);
    null->device_close(dev);
}

TS_TEST(requests_are_done_on_return)
{
    const fy_backend_t *null = null_backend();
    void *dev, *stream, *event, *block;
    char bytes[64];
    int done = 0;
    assert_false(null->is_synchronous);
    ts_ok(null->device_open(0, 0, NULL, &dev));
    ts_ok(null->stream_create(dev, FY_STREAM_COMPUTE, 0, NULL, &stream));
    ts_ok(null->event_create(dev, &event));
    assert_non_null(stream);
    assert_non_null(event);
    ts_ok(null->alloc(dev, 4096, &block));
    const fy_copy_t up = { FY_COPY_UPLOAD, 0, block, bytes, 64 },
                    down = { FY_COPY_DOWNLOAD, 0, bytes, block, 64 };
    const uint64_t uploaded = recorded_nbytes[FY_COPY_UPLOAD],
                   downloaded = recorded_nbytes[FY_COPY_DOWNLOAD];
    memset(bytes, 1, sizeof bytes);
    ts_ok(null->copy(dev, stream, &up));
    ts_ok(null->fill(dev, stream, block, 9, 64));
    ts_ok(null->copy(dev, stream, &down));
    for (int i = 0; i < 64; i++) assert_int_equal(bytes[i], 0);
    assert_int_equal(recorded_nbytes[FY_COPY_UPLOAD] - uploaded, 64);
    assert_int_equal(recorded_nbytes[FY_COPY_DOWNLOAD] - downloaded, 64);
    ts_ok(null->event_record(dev, event, stream));
    ts_ok(null->event_wait(dev, stream, event));
    ts_ok(null->event_query(dev, event, &done));
    assert_int_equal(done, 1);
    ts_ok(null->event_sync(dev, event, 0));
    null->event_destroy(dev, event);
    null->stream_destroy(dev, stream);
    null->free(dev, block, 4096);
    null->device_close(dev);
}
