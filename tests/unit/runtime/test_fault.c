/* runtime/fault: joined taints lose no request, in any order and at any distance. Old requests
 * resolve when their slot is reused. The first cause is kept. Records outlive their requests,
 * finally with a shorter text. */
#include "runtime/device/device.h"
#include "runtime/order/fault.h"
#include "runtime/order/stream.h"
#include "tests/support/harness.h"

static fy_device_t *g_device;

static int open_device(void **state)
{
    (void)state;
    g_device = ts_open("sim:9");
    return 0;
}

/* Submits a request that is done at once. `bad`: it raises its flag. */
static uint64_t request(bool bad)
{
    uint64_t number;
    uint32_t *word;
    ts_ok(fy__fault_begin(g_device, (fy__fault_cause_t){ "an op", -1 }, &number, &word));
    *word = bad;
    fy__fault_end(g_device, number,
                  FY__POINT(0, 1)); /* a point of an unused stream: counts as reached */
    return number;
}

static fy__taint_t taint_of(uint64_t number)
{
    fy__taint_t one = { 0, 0, 0 };
    fy__taint_add(g_device, &one, number);
    assert_true(fy__taint_any(&one));
    return one;
}

TS_TEST(a_clean_request_is_forgotten)
{
    fy__taint_t taint = taint_of(request(false));
    ts_ok(fy__taint_resolve(g_device, &taint, "a test"));
    assert_false(fy__taint_any(&taint));
}

TS_TEST(a_fault_is_reported_on_every_use)
{
    fy__taint_t taint = taint_of(request(true));
    for (int i = 0; i < 3; i++) {
        ts_fails_with(fy__taint_resolve(g_device, &taint, "a test"), BAD_VALUE, "an op", "a test");
    }
}

/* Joins the taints of two requests that are `distance` apart. The bad request is the early or the
 * late one. Both directions. */
TS_TEST(joined_taints_lose_no_request)
{
    static const int distances[] = { 1, 2, 31, 62, 63, 64, 65, 130 };
    for (size_t d = 0; d < sizeof distances / sizeof distances[0]; d++) {
        for (int bad_first = 0; bad_first < 2; bad_first++) {
            for (int early_into_late = 0; early_into_late < 2; early_into_late++) {
                fy__taint_t early = taint_of(request(bad_first)), late;
                for (int i = 1; i < distances[d]; i++) request(false);
                late = taint_of(request(!bad_first));
                fy__taint_t *into = early_into_late ? &late : &early;
                fy__taint_join(g_device, into, early_into_late ? &early : &late);
                if (fy__taint_resolve(g_device, into, "joined") != FY_STATUS_BAD_VALUE) {
                    fail_msg("%d apart, the %s one bad, %s: lost", distances[d],
                             bad_first ? "early" : "late",
                             early_into_late ? "early into late" : "late into early");
                }
            }
        }
    }
}

TS_TEST(many_requests_in_one)
{
    fy__taint_t all = taint_of(request(true));
    for (int i = 0; i < 300; i++) {
        fy__taint_t one = taint_of(request(false));
        fy__taint_join(g_device, &all, &one);
    }
    ts_fails(fy__taint_resolve(g_device, &all, "all"), BAD_VALUE);
    fy__taint_t clean = taint_of(request(false));
    for (int i = 0; i < 300; i++) {
        fy__taint_t one = taint_of(request(false));
        fy__taint_join(g_device, &clean, &one);
    }
    ts_ok(fy__taint_resolve(g_device, &clean, "all"));
}

TS_TEST(the_device_reports_each_fault_once)
{
    request(true);
    ts_fails(fy__faults_take(g_device, "device_wait"), BAD_VALUE);
    ts_ok(fy__faults_take(g_device, "device_wait"));
    for (int i = 0; i < 200; i++) request(true); /* more than the table of records holds */
    ts_fails(fy__faults_take(g_device, "device_wait"), BAD_VALUE);
    ts_ok(fy__faults_take(g_device, "device_wait"));
}

/* Another thread submits between the wait and the check. The flag of that request is read when it
 * is done, not before, and its ticket reports the fault permanently. */
TS_TEST(the_flag_of_a_running_request_is_not_read)
{
    uint64_t number;
    uint32_t *word;
    fy_tensor_t *a = ts_full(g_device, FY_DIMS(256, 256), 1), *b;
    ts_ok(fy_matmul(a, a, &b));
    ts_ok(fy__fault_begin(g_device, (fy__fault_cause_t){ "an op", -1 }, &number, &word));
    const fy__point_t point = fy__stream_submitted(g_device->compute);
    fy__fault_end(g_device, number, point);
    ts_ok(fy__faults_take(g_device, "device_wait"));
    *word = 1;
    ts_ok(fy__point_wait(point, FY_FOREVER, FY__WAIT_NONE));
    ts_fails(fy__faults_take(g_device, "device_wait"), BAD_VALUE);
    for (int i = 0; i < FY__FAULT_WINDOW; i++) request(false); /* reuses its slot */
    assert_int_equal(fy_ticket_poll(fy__point_ticket(point)), FY_POLL_FAILED);
}

TS_TEST(old_records_give_a_shorter_text)
{
    uint32_t first = fy__poison_record(FY_STATUS_BAD_VALUE, "the very first");
    ts_fails_with(fy__poison_fail(first, "now"), BAD_VALUE, "the very first");
    for (int i = 0; i < 1000; i++) fy__poison_record(FY_STATUS_DEVICE_LOST, "another");
    ts_fails(fy__poison_fail(first, "later"), BAD_VALUE); /* the status code is kept */
    assert_null(strstr(fy_error_get()->text, "another"));
}

TS_TEST(a_failed_kernel_reports_its_own_text)
{
    const fy__fault_cause_t cause = { "an op", -1 };
    const uint32_t kernel = fy__poison_kernel("its.op", FY_STATUS_BUSY, "too much of it");
    assert_int_equal(fy__poison_flag(kernel, cause), kernel);
    ts_fails_with(fy__poison_fail(kernel, "now"), KERNEL_FAILED,
                  "now: its.op: its kernel failed with BUSY: too much of it");
    /* a fault that the kernel itself reports */
    ts_fails(fy__poison_fail(fy__poison_flag(1, cause), "now"), BAD_VALUE);
    ts_fails(fy__poison_fail(fy__poison_flag(UINT32_MAX, cause), "now"), BAD_VALUE);
}

TS_SUITE(.set_up = open_device);
