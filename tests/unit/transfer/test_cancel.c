/* Cancelled transfers whose neighbours in the queue continue: which tensors stay poisoned, which
 * bytes the host may write again, how long a wait for the rest takes, and the state of jobs behind
 * one that cannot run. Cancelling alone: test_queue.c. */
#include <unistd.h>

#include "tests/support/failing.h"
#include "tests/unit/transfer/engine.h"

/* An earlier upload of all bytes clears its destination's poison, but not the poison of a later
 * upload that was cancelled before the earlier one was submitted. */
TS_TEST(an_earlier_upload_does_not_clear_later_poison)
{
    open_spec("sim:9?window=256KiB");
    fy_tensor_t *filler = on_device(), *x = on_device(), *y;
    (void)borrow_into(filler, pinned(0), 0);
    (void)borrow_into(x, pinned(0), 0);
    ts_ok(fy_ticket_cancel(borrow_into(x, pinned(0), 0)));
    ts_ok(fy_neg(x, &y)); /* makes Ferry submit the earlier upload */
    ts_download_fails(y, CANCELLED);
    (void)borrow_into(x, pinned(0), 0); /* the whole tensor, and later */
    ts_ok(fy_neg(x, &y));
    (void)ts_download(y);
}

/* The source belongs to the host again with the ticket, however long the requests before the upload
 * take. */
TS_TEST(the_source_of_a_cancelled_upload_is_free)
{
    open_spec("sim:9?window=256KiB");
    void *data;
    fy_tensor_t *filler = on_device(), *x = on_device(), *own = pinned(0), *shared = pinned(0),
                *big = ts_full(g_device, FY_DIMS(512, 512), 1), *product;
    for (int i = 0; i < 40; i++) {
        ts_ok(fy_matmul(big, big, &product));
        fy_tensor_destroy(product);
    }
    ts_ok(fy_fill(x, 1)); /* queued behind all of that */
    (void)borrow_into(filler, shared, 0);
    const fy_ticket_t ticket = borrow_into(x, own, 0), other = borrow_into(x, shared, 0);
    ts_ok(fy_ticket_cancel(other));
    ts_ok(fy_ticket_cancel(ticket));
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_FAILED);
    ts_ok(fy_tensor_map(own, FY_ACCESS_WRITE, &data));
    /* the upload before still reads it */
    ts_fails(fy_tensor_map(shared, FY_ACCESS_WRITE, &data), BUSY);
    ts_ok(fy_device_wait(g_device, FY_FOREVER));
    ts_ok(fy_tensor_map(shared, FY_ACCESS_WRITE, &data));
}

/* A cancelled ticket is reported at once, even if its place in the order is not reached yet. */
TS_TEST(a_cancelled_ticket_needs_no_wait)
{
    open_spec("sim:9?window=256KiB");
    fy_tensor_t *filler = on_device(), *x = on_device();
    (void)borrow_into(filler, pinned(0), 0);
    (void)borrow_into(x, pinned(0), 0);
    const fy_ticket_t ticket = borrow_into(x, pinned(0), 0);
    ts_ok(fy_ticket_cancel(ticket));
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_FAILED);
    ts_fails(fy_ticket_wait(ticket, 0), CANCELLED);
}

/* The timeout covers the whole wait, not each queued transfer. */
TS_TEST(a_wait_for_a_queue_keeps_its_timeout)
{
    open_spec("sim:9?window=256KiB");
    fy_tensor_t *x = on_device();
    fy_ticket_t last = { 0, 0 };
    for (int i = 0; i < 64; i++) last = borrow_into(x, pinned(0), 0);
    const fy_device_clock_t before = ts_clock_now(g_device);
    ts_fails(fy_device_wait(g_device, 100000), TIMEOUT); /* one takes about 10 us */
    const fy_device_clock_t after = ts_clock_now(g_device);
    assert_true(after.now_ns - before.now_ns < 150000);
    assert_int_equal(fy_ticket_poll(last), FY_POLL_PENDING);
    ts_ok(fy_device_wait(g_device, FY_FOREVER));
}

/* A ticket that was done stays done after its device is lost. */
TS_TEST(a_done_ticket_outlives_its_lost_device)
{
    open_spec("sim:9?window=256KiB&faults=lost@14");
    fy_tensor_t *filler = on_device(), *x = on_device(), *y;
    (void)borrow_into(filler, pinned(0), 0);
    const fy_ticket_t ticket = borrow_into(x, pinned(0), 0);
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    int calls = 0;
    while (calls++ < 100 && fy_neg(x, &y) == FY_STATUS_OK) {}
    assert_true(calls < 100);
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_DONE);
    ts_close();
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_DONE);
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
}

static fy_status_t waits_no_more(void *dev, void *stream, void *event)
{
    (void)dev, (void)stream, (void)event;
    return fy_error_set(FY_STATUS_OUT_OF_MEMORY, __FILE__, __LINE__,
                        "the driver has no memory for one more wait");
}

/* A transfer whose place cannot be kept blocks the jobs behind it, but no thread spins: each waiter
 * gets an error. */
TS_TEST(a_job_that_cannot_keep_its_place_fails_its_waiters)
{
    open_spec("sim:9?window=256KiB");
    fy_tensor_t *filler = on_device(), *x = on_device(), *big, *product;
    ts_ok(fy_full(g_device, FY_DTYPE_F32, FY_DIMS(512, 512), 1, &big));
    for (int i = 0; i < 10; i++) ts_ok(fy_matmul(big, big, &product));
    ts_ok(fy_fill(x, 1));
    (void)borrow_into(filler, pinned(0), 0);
    const fy_ticket_t first = borrow_into(x, pinned(0), 0), second = borrow_into(x, pinned(0), 0);
    ts_replace_backend(g_device)->event_wait = waits_no_more;
    alarm(240);
    ts_fails(fy_device_wait(g_device, FY_FOREVER), OUT_OF_MEMORY);
    ts_heal(g_device);
    ts_fails(fy_ticket_wait(first, FY_FOREVER), OUT_OF_MEMORY);
    ts_ok(fy_ticket_wait(second, FY_FOREVER));
    if (fy_device_wait(g_device, FY_FOREVER) != FY_STATUS_OK) fy_error_get(); /* takes the fault */
    alarm(0);
}
