/* Tests of fy__charge_host and fy__charge_host_copy (runtime/device/device.c): host work advances
 * the model clock of simulated devices once, at the rates of the host profile, however many devices
 * are open. Without an open device no backend is called. */
#include "runtime/device/device.h"
#include "tests/support/harness.h"

static uint64_t now_ns(const fy_device_t *device)
{
    const fy_device_clock_t clock = ts_clock_now(device);
    assert_int_equal(clock.kind, FY_CLOCK_MODEL);
    return clock.now_ns;
}

TS_TEST(each_kind_has_its_rate)
{
    fy_device_t *devices[2];
    fy__charge_host(300000, 0); /* no device is open */
    fy__charge_host_copy(60000);
    ts_ok(fy_device_open("sim:0", &devices[0]));
    ts_ok(fy_device_open("sim:1?order=lazy", &devices[1]));
    uint64_t start_ns = now_ns(devices[0]);
    fy__charge_host_copy(60000);
    assert_int_equal(now_ns(devices[0]) - start_ns, 1000);
    fy__charge_host(0, 60000);
    assert_int_equal(now_ns(devices[1]) - start_ns, 1000 + 6000 + 50);
    fy_device_close(devices[0]);
    fy__charge_host_copy(600);
    assert_int_equal(now_ns(devices[1]) - start_ns, 1000 + 6000 + 50 + 10);
    fy_device_close(devices[1]);
}
