/* fy_interrupt_set over the fake driver, whose events are held back: a wait that blocks calls the
 * function and ends if it says so; waits that the program did not request never end by it. */
#include <pthread.h>

#include "tests/support/fake_driver.h"

enum { N = 64 };

static fy_device_t *device;
static fy_scope_t scope;
static fy_tensor_t *y;
static int calls, stop_at; /* of the function; 0: it never stops a wait */

static int interrupt(void *user)
{
    assert_ptr_equal(user, &calls);
    return ++calls == stop_at;
}

static int set_up(void **state)
{
    (void)state;
    ts_ok(fy_device_open("cuda:0", &device));
    scope = fy_scope_begin("interrupt");
    fy_tensor_t *x = ts_full(device, FY_DIMS(N), 1);
    ts_ok(fy_device_wait(device, FY_FOREVER));
    driver.fake_cuda_hold(1);
    ts_ok(fy_add(x, x, &y));
    calls = stop_at = 0;
    fy_interrupt_set(interrupt, &calls);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fy_interrupt_set(NULL, NULL);
    driver.fake_cuda_hold(0);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    fake_driver_is_tidy("afterwards");
    return 0;
}

TS_TEST(a_wait_ends_and_the_request_goes_on)
{
    fy_tensor_t *host;
    const fy_ticket_t ticket = fy_tensor_ticket(y);
    fy_download_t *download = ts_submit_download(y);
    for (int i = 0; i < 3; i++) {
        const fy_ledger_totals_t before = ts_ledger(NULL);
        calls = 0, stop_at = 1 + i % 2;
        if (i == 0) ts_fails(fy_ticket_wait(ticket, FY_FOREVER), CANCELLED);
        if (i == 1) ts_fails(fy_download_wait(download, FY_FOREVER, &host), CANCELLED);
        if (i == 2) ts_fails(fy_device_wait(device, FY_FOREVER), CANCELLED);
        ts_text_has("goes on");
        assert_int_equal(calls, stop_at);
        assert_int_equal(ts_ledger(NULL).syncs, before.syncs + 1);
        assert_int_equal(fy_ticket_poll(ticket), FY_POLL_PENDING);
    }
    calls = 0, stop_at = 0;
    driver.fake_cuda_hold(0);
    ts_ok(fy_download_wait(download, FY_FOREVER, &host));
    assert_int_equal(ts_info(host).nelem, N);
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    assert_int_equal(calls, 0); /* nothing blocked */
}

TS_TEST(a_time_limit_holds)
{
    ts_fails(fy_ticket_wait(fy_tensor_ticket(y), 120000000), TIMEOUT); /* three pieces */
    assert_int_equal(calls, 2);
    ts_fails(fy_ticket_wait(fy_tensor_ticket(y), 0), TIMEOUT);
    assert_int_equal(calls, 2);
}

static void *release_later(void *unused)
{
    (void)unused;
    usleep(200000);
    driver.fake_cuda_hold(0);
    return NULL;
}

/* The end of a device, and a copy that must be complete on return. */
TS_TEST(other_waits_do_not_end)
{
    fy_tensor_t *host = ts_host_f32(FY_DIMS(2), (float[]){ 0, 0 }), *part;
    ts_ok(fy_slice(y, 0, 0, 2, &part));
    stop_at = 1;
    const pthread_t thread = ts_thread(release_later, NULL);
    ts_ok(fy_tensor_download_into(host, part, NULL));
    assert_int_equal(pthread_join(thread, NULL), 0);
    ts_expect_f32(host, (float[]){ 2, 2 }, 2);
    assert_int_equal(calls, 0);
}

static void *wait_there(void *user)
{
    ts_fails(fy_ticket_wait(*(fy_ticket_t *)user, 60000000), TIMEOUT);
    return NULL;
}

TS_TEST(it_belongs_to_its_thread)
{
    fy_ticket_t ticket = fy_tensor_ticket(y);
    stop_at = 1;
    ts_on_thread(wait_there, &ticket);
    fy_interrupt_set(NULL, NULL);
    ts_fails(fy_ticket_wait(ticket, 60000000), TIMEOUT);
    assert_int_equal(calls, 0);
}

TS_SUITE(.set_up = set_up, .tear_down = tear_down, .prepare = fake_driver_or_skip);
