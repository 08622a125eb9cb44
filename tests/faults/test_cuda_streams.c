/* CUDA streams and contexts that the application destroys while Ferry uses them. A stream is
 * destroyed and the driver reuses its handle for another stream. Requests of the old stream must
 * still be waited for, and the new stream's requests are separate. Over the fake driver, with
 * events held back, so that a missing wait shows in the driver's calls. Not here: the slots
 * (tests/unit/cuda). */
#include "runtime/order/stream.h"
#include "runtime/tensor/tensor.h"
#include "tests/support/fake_driver.h"

enum { N = 64 };

static int64_t waits(void) { return driver.fake_cuda_calls("cuStreamWaitEvent"); }

/* Wraps an application's stream. */
static fy_stream_t *wrap(fy_device_t *device, void *native)
{
    fy_stream_options_t options = FY_STREAM_OPTIONS_INIT;
    fy_stream_t *stream;
    options.native = native;
    options.name = "theirs";
    ts_ok(fy_stream_create(device, &options, &stream));
    return stream;
}

/* y = 2 x on `stream`, or on the device's stream with NULL. */
static fy_tensor_t *twice(fy_stream_t *stream, fy_tensor_t *x)
{
    fy_tensor_t *y;
    fy_scope_t scope = fy_scope_begin("twice");
    if (stream) ts_ok(fy_stream_set_current(stream));
    ts_ok(fy_affine(x, 2, 0, &y));
    fy_scope_end(scope, 1, &y);
    return y;
}

static fy_device_t *device;
static fy_scope_t scope;
static fy_tensor_t *x; /* made on the device's stream, and done */
static void *native;
static fy_stream_t *old, *new; /* both wrap `native`, one after the other */

static int set_up(void **state)
{
    (void)state;
    ts_ok(fy_device_open("cuda:0", &device));
    scope = fy_scope_begin("streams");
    ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(N), 1, &x));
    ts_ok(fy_device_wait(device, FY_FOREVER));
    driver.fake_cuda_hold(1);
    native = driver.fake_cuda_stream(0);
    old = wrap(device, native);
    return 0;
}

static void destroy_old(void)
{
    fy_stream_destroy(old);
    driver.fake_cuda_stream_end(native);
}

static void reuse_handle(void)
{
    void *again = driver.fake_cuda_stream(0);
    assert_ptr_equal(again, native); /* otherwise this tests nothing */
    new = wrap(device, again);
}

static int tear_down(void **state)
{
    (void)state;
    fy_stream_destroy(new);
    driver.fake_cuda_hold(0);
    fy_scope_end(scope, 0, NULL);
    driver.fake_cuda_stream_end(native); /* before the context */
    fy_device_close(device);
    fake_driver_is_tidy("afterwards");
    return 0;
}

/* A new stream with the old stream's handle waits for the old stream's write: on the card they are
 * two queues. */
TS_TEST_WITH(a_write_of_the_old_stream_is_waited_for, set_up, tear_down)
{
    fy_tensor_t *y = twice(old, x);
    destroy_old();
    reuse_handle();
    const int64_t before = waits();
    fy_tensor_t *z = twice(new, y);
    assert_int_equal(waits(), before + 1);
    (void)twice(new, y); /* once is enough */
    assert_int_equal(waits(), before + 1);
    driver.fake_cuda_hold(0);
    double value;
    fy_download_t *download;
    ts_ok(fy_sum(z, 0, NULL, 0, &z));
    ts_ok(fy_tensor_download(z, NULL, &download));
    ts_ok(fy_download_wait_f64(download, FY_FOREVER, &value));
    assert_true(value == 4 * N);
}

/* A wait for the old stream does not count for the new one. */
TS_TEST_WITH(a_write_of_the_new_stream_is_waited_for, set_up, tear_down)
{
    fy_tensor_t *y = twice(old, x);
    (void)twice(NULL, y); /* the compute stream waits for the old stream's last request */
    destroy_old();
    driver.fake_cuda_hold(0); /* all work is done: the old slot can be reused */
    ts_ok(fy_device_wait(device, FY_FOREVER));
    driver.fake_cuda_hold(1);
    reuse_handle();
    fy_tensor_t *z = twice(new, x);
    const int64_t before = waits();
    (void)twice(NULL, z);
    assert_int_equal(waits(), before + 1);
}

/* An old ticket reports the old stream's request, whatever is pending on the new stream, and vice
 * versa. */
TS_TEST_WITH(tickets_belong_to_their_stream, set_up, tear_down)
{
    fy_ticket_t old_ticket, new_ticket;
    (void)twice(old, x);
    ts_ok(fy_stream_record(old, &old_ticket));
    assert_int_equal(fy_ticket_poll(old_ticket), FY_POLL_PENDING);
    destroy_old();
    assert_int_equal(fy_ticket_poll(old_ticket), FY_POLL_PENDING); /* its event is still pending */
    driver.fake_cuda_hold(0);
    driver.fake_cuda_hold(1);
    reuse_handle();
    (void)twice(new, x);
    ts_ok(fy_stream_record(new, &new_ticket));
    assert_int_equal(fy_ticket_poll(old_ticket), FY_POLL_DONE);
    ts_ok(fy_ticket_wait(old_ticket, 0));
    assert_int_equal(fy_ticket_poll(new_ticket), FY_POLL_PENDING);
}

/* The new stream cannot use a block at once that the old stream may still write. */
TS_TEST_WITH(memory_of_the_old_stream_is_pending_for_the_new_one, set_up, tear_down)
{
    fy_tensor_t *y = twice(old, x);
    const void *block = y->storage->data;
    fy_tensor_destroy(y); /* with its request pending */
    destroy_old();
    reuse_handle();
    const int64_t before = waits();
    fy_tensor_t *z = twice(new, x);
    if (z->storage->data == block) assert_int_equal(waits(), before + 1);
}

TS_TEST(a_stream_of_another_context_is_refused)
{
    fy_device_t *first, *other;
    fy_stream_options_t options = FY_STREAM_OPTIONS_INIT;
    fy_stream_t *stream = (fy_stream_t *)&options;
    ts_ok(fy_device_open("cuda:0", &first));
    ts_ok(fy_device_open("cuda:1", &other));
    options.native = driver.fake_cuda_stream(1);
    ts_fails_with(fy_stream_create(first, &options, &stream), INVALID_ARGUMENT,
                  "belongs to another context than cuda:0's primary one");
    assert_null(stream);
    ts_ok(fy_stream_create(other, &options, &stream)); /* the stream belongs to this context */
    fy_stream_destroy(stream);
    driver.fake_cuda_stream_end(options.native);
    fy_device_close(other);
    fy_device_close(first);
    fake_driver_is_tidy("afterwards");
}

TS_SUITE(.prepare = fake_driver_or_skip);
