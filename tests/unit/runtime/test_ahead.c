/* The limit of how far the host may be ahead of a stream: the limit holds, waiting at it is neither
 * a drain nor a sync, and below it nothing is paid.
 * Also: tickets of a device that was lost and closed. */
#include "runtime/order/stream.h"
#include "runtime/tensor/tensor.h"
#include "tests/support/failing.h"

static uint64_t behind(const fy_stream_t *stream)
{
    return atomic_load(&stream->submitted) - atomic_load(&stream->done);
}

/* The device needs longer for each of these requests than the host needs to submit it. */
static void many(fy_device_t *device, int count, uint64_t *out_most)
{
    fy_tensor_t *a = ts_full(device, FY_DIMS(512, 512), 0), *b;
    *out_most = 0;
    for (int i = 0; i < count; i++) {
        ts_ok(fy_matmul(a, a, &b));
        fy_tensor_destroy(b);
        if (behind(device->compute) > *out_most) *out_most = behind(device->compute);
    }
    fy_tensor_destroy(a);
}

TS_TEST(the_limit_holds)
{
    static const char *const specs[] = { "sim:9?ahead=1&numerics=off", "sim:9?ahead=2&numerics=off",
                                         "sim:9?ahead=7&numerics=off",
                                         "sim:9?ahead=64&numerics=off", "sim:9?numerics=off" };
    static const uint64_t bounds[] = { 1, 2, 7, 64, 1024 };
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        fy_device_t *device = ts_open(specs[i]);
        const fy_ledger_totals_t before = ts_ledger(NULL);
        uint64_t most;
        many(device, 3000, &most);
        const fy_ledger_totals_t after = ts_ledger(NULL);
        assert_true(most <= bounds[i]);
        assert_true(after.throttles > before.throttles);
        assert_int_equal(after.syncs, before.syncs);
        /* The host waits until a quarter of the queue is done, not until it is empty: one hold for
         * each quarter. */
        if (bounds[i] >= 64) {
            assert_true(after.throttles - before.throttles <= 3000 / (bounds[i] / 4));
            assert_true(behind(device->compute) >= bounds[i] / 2);
        }
        ts_close();
    }
}

TS_TEST(below_the_limit_no_call_waits)
{
    uint64_t most;
    fy_device_t *device = ts_open("sim:9?numerics=off");
    const fy_ledger_totals_t before = ts_ledger(NULL);
    many(device, 1000, &most);
    const fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.throttles, before.throttles);
}

TS_TEST(a_sync_guard_allows_waiting_at_the_limit)
{
    uint64_t most;
    fy_device_t *device = ts_open("sim:9?ahead=8&numerics=off");
    fy_scope_t scope = fy_scope_begin("held back");
    ts_ok(fy_scope_guard(&(fy_guard_options_t)FY_GUARD_LIGHT_ONLY));
    many(device, 100, &most);
    fy_scope_end(scope, 0, NULL);
    assert_true(ts_ledger("test/held back").throttles > 0);
    assert_true(ts_ledger("test/held back").throttle_ns > 0);
}

TS_TEST(the_limit_holds_for_transfers)
{
    fy_device_t *device = ts_open("sim:9?ahead=4&numerics=off");
    fy_tensor_t *x = ts_full(device, FY_DIMS(1 << 20), 0);
    for (int i = 0; i < 40; i++) {
        fy_download_destroy(ts_submit_download(x));
        assert_true(behind(device->download) <= 4);
    }
}

TS_TEST(an_invalid_limit_is_refused)
{
    fy_device_t *device;
    ts_fails_with(fy_device_open("sim:9?ahead=0", &device), INVALID_ARGUMENT, "ahead=0");
    ts_fails_with(fy_device_open("sim:9?ahead=many", &device), INVALID_ARGUMENT, "number");
}

/* ---- lost ---- */

TS_TEST(a_lost_devices_ticket_fails_even_when_it_is_closed)
{
    fy_device_t *device = ts_open("sim:9");
    fy_tensor_t *x = ts_full(device, FY_DIMS(512, 512), 0), *y;
    const fy_ticket_t done = fy_tensor_ticket(x);
    ts_ok(fy_ticket_wait(done, FY_FOREVER));
    ts_ok(fy_matmul(x, x, &y));
    const fy_ticket_t never = fy_tensor_ticket(y);
    ts_lose(device);
    assert_int_equal(fy_ticket_poll(never), FY_POLL_FAILED);
    ts_heal(device);
    ts_close();
    /* Before and after other devices reuse the slots of its streams. */
    for (int again = 0; again < 2; again++) {
        assert_int_equal(fy_ticket_poll(done), FY_POLL_DONE);
        assert_int_equal(fy_ticket_poll(never), FY_POLL_FAILED);
        ts_fails(fy_ticket_wait(never, FY_FOREVER), DEVICE_LOST);
        device = ts_open("sim:9");
        const fy_ticket_t later = fy_tensor_ticket(ts_full(device, FY_DIMS(2), 0));
        ts_ok(fy_ticket_wait(later, FY_FOREVER));
        assert_int_equal(fy_ticket_poll(later), FY_POLL_DONE);
        ts_close();
    }
}

/* ---- closing a stream without an event ---- */

static fy_status_t no_record(void *dev, void *event, void *stream)
{
    (void)dev, (void)event, (void)stream;
    return fy_error_set(FY_STATUS_OUT_OF_MEMORY, __FILE__, __LINE__, "made to record none");
}

TS_TEST(a_stream_closed_without_an_event_still_answers)
{
    fy_device_t *device = ts_open("sim:9");
    fy_ticket_t ticket;
    fy_stream_t *stream = ts_stream(device);
    ts_ok(fy_stream_record(stream, &ticket));
    ts_replace_backend(device)->event_record = no_record;
    fy_stream_destroy(stream);
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_PENDING);
    ts_heal(device);
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_DONE);
}
