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

typedef struct setting {
    fy_device_t *device;
    fy_scope_t scope;
    fy_tensor_t *x; /* made on the device's stream, and done */
} setting_t;

static void set_up(setting_t *s)
{
    ts_ok(fy_device_open("cuda:0", &s->device));
    s->scope = fy_scope_begin("streams");
    ts_ok(fy_full(s->device, FY_DTYPE_F32, FY_DIMS(N), 1, &s->x));
    ts_ok(fy_device_wait(s->device, FY_FOREVER));
    driver.fake_cuda_hold(1);
}

static void tear_down(setting_t *s, void *native)
{
    driver.fake_cuda_hold(0);
    fy_scope_end(s->scope, 0, NULL);
    driver.fake_cuda_stream_end(native); /* before the context */
    fy_device_close(s->device);
    fake_driver_is_tidy("afterwards");
}

/* A new stream with the old stream's handle waits for the old stream's write: on the card they are
 * two queues. */
TS_TEST(a_write_of_the_old_stream_is_waited_for)
{
    setting_t s;
    set_up(&s);
    void *native = driver.fake_cuda_stream(0);
    fy_stream_t *old = wrap(s.device, native);
    fy_tensor_t *y = twice(old, s.x);
    fy_stream_destroy(old);
    driver.fake_cuda_stream_end(native);
    void *again = driver.fake_cuda_stream(0);
    assert_ptr_equal(again, native); /* otherwise this tests nothing */
    fy_stream_t *new = wrap(s.device, again);
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
    fy_stream_destroy(new);
    tear_down(&s, again);
}

/* A wait for the old stream does not count for the new one. */
TS_TEST(a_write_of_the_new_stream_is_waited_for)
{
    setting_t s;
    set_up(&s);
    void *native = driver.fake_cuda_stream(0);
    fy_stream_t *old = wrap(s.device, native);
    fy_tensor_t *y = twice(old, s.x);
    (void)twice(NULL, y); /* the compute stream waits for the old stream's last request */
    fy_stream_destroy(old);
    driver.fake_cuda_stream_end(native);
    driver.fake_cuda_hold(0); /* all work is done: the old slot can be reused */
    ts_ok(fy_device_wait(s.device, FY_FOREVER));
    driver.fake_cuda_hold(1);
    void *again = driver.fake_cuda_stream(0);
    assert_ptr_equal(again, native);
    fy_stream_t *new = wrap(s.device, again);
    fy_tensor_t *z = twice(new, s.x);
    const int64_t before = waits();
    (void)twice(NULL, z);
    assert_int_equal(waits(), before + 1);
    fy_stream_destroy(new);
    tear_down(&s, again);
}

/* An old ticket reports the old stream's request, whatever is pending on the new stream, and vice
 * versa. */
TS_TEST(tickets_belong_to_their_stream)
{
    setting_t s;
    fy_ticket_t old_ticket, new_ticket;
    set_up(&s);
    void *native = driver.fake_cuda_stream(0);
    fy_stream_t *old = wrap(s.device, native);
    (void)twice(old, s.x);
    ts_ok(fy_stream_record(old, &old_ticket));
    assert_int_equal(fy_ticket_poll(old_ticket), FY_POLL_PENDING);
    fy_stream_destroy(old);
    driver.fake_cuda_stream_end(native);
    assert_int_equal(fy_ticket_poll(old_ticket), FY_POLL_PENDING); /* its event is still pending */
    driver.fake_cuda_hold(0);
    driver.fake_cuda_hold(1);
    void *again = driver.fake_cuda_stream(0);
    assert_ptr_equal(again, native);
    fy_stream_t *new = wrap(s.device, again);
    (void)twice(new, s.x);
    ts_ok(fy_stream_record(new, &new_ticket));
    assert_int_equal(fy_ticket_poll(old_ticket), FY_POLL_DONE);
    ts_ok(fy_ticket_wait(old_ticket, 0));
    assert_int_equal(fy_ticket_poll(new_ticket), FY_POLL_PENDING);
    fy_stream_destroy(new);
    tear_down(&s, again);
}

/* The new stream cannot use a block at once that the old stream may still write. */
TS_TEST(memory_of_the_old_stream_is_pending_for_the_new_one)
{
    setting_t s;
    set_up(&s);
    void *native = driver.fake_cuda_stream(0);
    fy_stream_t *old = wrap(s.device, native);
    fy_tensor_t *y = twice(old, s.x);
    const void *block = y->storage->data;
    fy_tensor_destroy(y); /* with its request pending */
    fy_stream_destroy(old);
    driver.fake_cuda_stream_end(native);
    void *again = driver.fake_cuda_stream(0);
    assert_ptr_equal(again, native);
    fy_stream_t *new = wrap(s.device, again);
    const int64_t before = waits();
    fy_tensor_t *z = twice(new, s.x);
    if (z->storage->data == block) assert_int_equal(waits(), before + 1);
    fy_stream_destroy(new);
    tear_down(&s, again);
}

TS_TEST(a_stream_of_another_context_is_refused)
{
    fy_device_t *device, *other;
    fy_stream_options_t options = FY_STREAM_OPTIONS_INIT;
    fy_stream_t *stream = (fy_stream_t *)&options;
    ts_ok(fy_device_open("cuda:0", &device));
    ts_ok(fy_device_open("cuda:1", &other));
    options.native = driver.fake_cuda_stream(1);
    ts_fails_with(fy_stream_create(device, &options, &stream), INVALID_ARGUMENT,
                  "belongs to another context than cuda:0's primary one");
    assert_null(stream);
    ts_ok(fy_stream_create(other, &options, &stream)); /* the stream belongs to this context */
    fy_stream_destroy(stream);
    driver.fake_cuda_stream_end(options.native);
    fy_device_close(other);
    fy_device_close(device);
    fake_driver_is_tidy("afterwards");
}

TS_SUITE(.prepare = fake_driver_or_skip);
