/* Networks of simulated devices (backends/sim/network.h): names, LATENCY:BANDWIDTH, everything else
 * is refused; net= of a device, and the time of its peer copies. */
#include "backends/sim/network.h"
#include "tests/support/harness.h"

static fy__sim_network_t net(const char *text)
{
    fy__sim_network_t network = { .latency_ns = 0 };
    assert_true(fy__sim_network_parse(text, &network));
    return network;
}

TS_TEST(names_and_pairs_are_networks)
{
    static const char *const wrong[] = {
        "",           "ib401",        "IB400",           "5us",
        "5us:",       "5us:0GB/s",    "0us:1GB/s",       "5us:1GB/s ",
        "-5us:1GB/s", "5:1GB/s",      "5us:1",           "5us:1GB",
        "us:1GB/s",   "2000ms:1GB/s", "5us:9999999GB/s", "99999999999999999999ns:1GB/s"
    };
    fy__sim_network_t network = net("ib400");
    assert_int_equal(network.latency_ns, 5000);
    assert_int_equal(network.bytes_per_s, 50000000000);
    assert_false(network.is_shared);
    assert_int_equal(net("nvlink").bytes_per_s, 450000000000);
    assert_true(net("eth25").is_shared && net("eth25").bytes_per_s == 3125000000);
    network = net("20us:3125MB/s");
    assert_int_equal(network.latency_ns, 20000);
    assert_int_equal(network.bytes_per_s, 3125000000);
    assert_false(network.is_shared);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(fy__sim_network_parse(wrong[i], &network));
}

/* A megabyte from sim:1 to sim:0, by the model clock. */
static uint64_t peer_ns(const char *first, const char *second)
{
    fy_device_t *devices[2];
    fy_tensor_t *x, *y;
    fy_device_clock_t begin = FY_DEVICE_CLOCK_INIT, end = FY_DEVICE_CLOCK_INIT;
    const fy_scope_t scope = fy_scope_begin("peers");
    ts_ok(fy_device_open(first, &devices[0]));
    ts_ok(fy_device_open(second, &devices[1]));
    ts_ok(fy_zeros(devices[1], FY_DTYPE_F32, FY_DIMS(250000), &x));
    ts_ok(fy_zeros(devices[0], FY_DTYPE_F32, FY_DIMS(250000), &y));
    for (int i = 0; i < 2; i++) ts_ok(fy_device_wait(devices[i], FY_FOREVER));
    ts_ok(fy_device_clock_query(devices[0], &begin));
    ts_ok(fy_tensor_send_into(y, x, NULL, NULL));
    for (int i = 0; i < 2; i++) ts_ok(fy_device_wait(devices[i], FY_FOREVER));
    ts_ok(fy_device_clock_query(devices[0], &end));
    fy_scope_end(scope, 0, NULL);
    for (int i = 0; i < 2; i++) fy_device_close(devices[i]);
    return end.now_ns - begin.now_ns;
}

TS_TEST(a_device_with_a_network_sends_over_it)
{
    /* h200: 450 bytes a ns; both ends on ib400: 50 bytes a ns and 5 us; one end: the slower one */
    const uint64_t plain = peer_ns("sim:0", "sim:1");
    const uint64_t ib400 = peer_ns("sim:0?net=ib400", "sim:1?net=ib400");
    assert_int_equal(ib400 - plain, 5000 + 20000 - 2223);
    assert_int_equal(peer_ns("sim:0?net=ib400", "sim:1"), ib400);
    assert_int_equal(peer_ns("sim:0?net=5us:50GB/s", "sim:1?net=ib400"), ib400);
    /* the profile may come after it */
    assert_int_equal(peer_ns("sim:0?net=ib400&profile=h200", "sim:1?profile=h200"), ib400);
}

TS_TEST(another_network_is_refused)
{
    fy_device_t *device;
    ts_fails_with(fy_device_open("sim:0?net=ib401", &device), INVALID_ARGUMENT,
                  "net may be eth25, ib400, nvlink, or LATENCY");
}
