/* The limit of how far the host may be ahead of a stream: the limit holds, waiting at it is neither
 * a drain nor a sync, and below it nothing is paid.
 * Also: tickets of a device that was lost and closed. */
#include "runtime/order/stream.h"
#include "runtime/tensor/tensor.h"
#include "tests/support/harness.h"

static fy_device_t *open_spec(const char *spec)
{
    fy_device_t *device;
    ts_ok(fy_device_open(spec, &device));
    return device;
}

static uint64_t behind(const fy_stream_t *stream)
{
    return atomic_load(&stream->submitted) - atomic_load(&stream->done);
}

/* The device needs longer for each of these requests than the host needs to submit it. */
static void many(fy_device_t *device, int count, uint64_t *out_most)
{
    fy_tensor_t *a, *b;
    ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(512, 512), 0, &a));
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
        fy_device_t *device = open_spec(specs[i]);
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
        fy_device_close(device);
    }
}

TS_TEST(below_the_limit_no_call_waits)
{
    uint64_t most;
    fy_device_t *device = open_spec("sim:9?numerics=off");
    const fy_ledger_totals_t before = ts_ledger(NULL);
    many(device, 1000, &most);
    const fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.throttles, before.throttles);
    fy_device_close(device);
}

TS_TEST(a_sync_guard_allows_waiting_at_the_limit)
{
    uint64_t most;
    fy_device_t *device = open_spec("sim:9?ahead=8&numerics=off");
    fy_guard_options_t light = FY_GUARD_LIGHT_ONLY;
    fy_scope_t scope = fy_scope_begin("held back");
    ts_ok(fy_scope_guard(&light));
    many(device, 100, &most);
    fy_scope_end(scope, 0, NULL);
    assert_true(ts_ledger("held back").throttles > 0);
    assert_true(ts_ledger("held back").throttle_ns > 0);
    fy_device_close(device);
}

TS_TEST(the_limit_holds_for_transfers)
{
    fy_device_t *device = open_spec("sim:9?ahead=4&numerics=off");
    fy_tensor_t *x;
    ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(1 << 20), 0, &x));
    for (int i = 0; i < 40; i++) {
        fy_download_t *download;
        ts_ok(fy_tensor_download(x, NULL, &download));
        fy_download_destroy(download);
        assert_true(behind(device->download) <= 4);
    }
    fy_tensor_destroy(x);
    fy_device_close(device);
}

TS_TEST(an_invalid_limit_is_refused)
{
    fy_device_t *device;
    ts_fails_with(fy_device_open("sim:9?ahead=0", &device), INVALID_ARGUMENT, "ahead=0");
    ts_fails_with(fy_device_open("sim:9?ahead=many", &device), INVALID_ARGUMENT, "number");
}

/* ---- lost ---- */

static fy_status_t lost(void *dev, void *event, int *out_done)
{
    (void)dev, (void)event;
    *out_done = 0;
    return fy_error_set(FY_STATUS_DEVICE_LOST, __FILE__, __LINE__, "made to be lost");
}

TS_TEST(a_lost_devices_ticket_fails_even_when_it_is_closed)
{
    fy_device_t *device = open_spec("sim:9");
    fy_tensor_t *x, *y;
    fy_ticket_t done, never, later;
    ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(512, 512), 0, &x));
    done = fy_tensor_ticket(x);
    ts_ok(fy_ticket_wait(done, FY_FOREVER));
    ts_ok(fy_matmul(x, x, &y));
    never = fy_tensor_ticket(y);
    fy_backend_t backend = *device->backend;
    const fy_backend_t *real = device->backend;
    backend.event_query = lost;
    device->backend = &backend;
    assert_int_equal(fy_ticket_poll(never), FY_POLL_FAILED);
    device->backend = real;
    fy_tensor_destroy(x);
    fy_tensor_destroy(y);
    fy_device_close(device);
    /* Before and after other devices reuse the slots of its streams. */
    for (int again = 0; again < 2; again++) {
        assert_int_equal(fy_ticket_poll(done), FY_POLL_DONE);
        assert_int_equal(fy_ticket_poll(never), FY_POLL_FAILED);
        ts_fails(fy_ticket_wait(never, FY_FOREVER), DEVICE_LOST);
        device = open_spec("sim:9");
        ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(2), 0, &x));
        later = fy_tensor_ticket(x);
        ts_ok(fy_ticket_wait(later, FY_FOREVER));
        assert_int_equal(fy_ticket_poll(later), FY_POLL_DONE);
        fy_tensor_destroy(x);
        fy_device_close(device);
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
    fy_device_t *device = open_spec("sim:9");
    fy_stream_t *stream;
    fy_ticket_t ticket;
    ts_ok(fy_stream_create(device, NULL, &stream));
    ts_ok(fy_stream_record(stream, &ticket));
    fy_backend_t backend = *device->backend;
    const fy_backend_t *real = device->backend;
    backend.event_record = no_record;
    device->backend = &backend;
    fy_stream_destroy(stream);
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_PENDING);
    device->backend = real;
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_DONE);
    fy_device_close(device);
}
