/* Tests of backends/sim/device.c and sim.c: opening, options, several devices at once, the
 * description of a device. */
#include "tests/unit/sim/fixture.h"

static void refuse(fy_status_t want, int index, const char *option, const char *const *words)
{
    void *dev = &dev;
    assert_int_equal(try_open(index, &dev, option ? (const char *const[]){ option, NULL } : NULL),
                     want);
    assert_null(dev);
    for (size_t i = 0; words[i]; i++)
        if (!strstr(said, words[i])) fail_msg("\"%s\" does not say %s", said, words[i]);
}
#define REFUSE(want, index, option, ...) \
    refuse(want, index, option, (const char *const[]){ __VA_ARGS__, NULL })

TS_TEST(another_abi_is_refused)
{
    const fy_backend_t *other = sim;
    sim_fails(fy__backend_sim_open(&host_api, FY_BACKEND_ABI + 1, &other), UNSUPPORTED);
    assert_null(other);
    assert_non_null(strstr(said, "ABI"));
}

/* Every fy_device_open of a sim opens the backend while other threads use the functions of the
 * first one (a race for ThreadSanitizer to detect). */
TS_TEST(the_first_host_api_stays)
{
    static const fy_host_api_t other_api = { .struct_size = sizeof other_api,
                                             .abi = FY_BACKEND_ABI };
    const fy_backend_t *again;
    sim_ok(fy__backend_sim_open(&other_api, FY_BACKEND_ABI, &again));
    assert_ptr_equal(again, sim);
    REFUSE(FY_STATUS_UNAVAILABLE, 16, NULL, "sim:16"); /* reported through host_api */
}

TS_TEST(bad_options_are_named)
{
    REFUSE(FY_STATUS_INVALID_ARGUMENT, 3, "colour=red", "sim:3", "colour=red", "profile",
           "capacity", "numerics", "order");
    REFUSE(FY_STATUS_INVALID_ARGUMENT, 0, "profile=b200", "profile=b200", "k80", "v100", "a100",
           "h100", "h200", "rtx4090", "t4");
    REFUSE(FY_STATUS_INVALID_ARGUMENT, 0, "capacity=much", "capacity=much", "8GiB");
    REFUSE(FY_STATUS_INVALID_ARGUMENT, 0, "capacity=0", "above zero");
    REFUSE(FY_STATUS_INVALID_ARGUMENT, 0, "numerics=maybe", "numerics=maybe", "on, off");
    REFUSE(FY_STATUS_INVALID_ARGUMENT, 0, "order=sideways", "order=sideways", "eager");
    REFUSE(FY_STATUS_UNAVAILABLE, 16, NULL, "sim:16", "sim:15");
    REFUSE(FY_STATUS_UNAVAILABLE, -1, NULL, "sim:15");
}

TS_TEST(defaults)
{
    int count = 0;
    sim_ok(sim->device_count(&count));
    assert_int_equal(count, 16);
    void *dev = open_device(0, NULL);
    fy_backend_info_t info;
    sim_ok(sim->device_query(dev, &info));
    assert_string_equal(info.model, "h200 profile");
    assert_int_equal(info.memory_nbytes, 143771ull << 20);
    assert_int_equal(info.free_nbytes, info.memory_nbytes);
    assert_int_equal(info.alignment, 256);
    assert_true(info.numerics);
    assert_true(info.is_simulated);
    assert_false(info.unified);
    sim->device_close(dev);
}

TS_TEST(options_are_applied)
{
    void *dev = OPEN(5, "capacity=12345", "numerics=off", "order=eager", "profile=t4");
    fy_backend_info_t info;
    sim->device_query(dev, &info);
    assert_string_equal(info.model, "t4 profile");
    assert_int_equal(info.memory_nbytes, 12345);
    assert_false(info.numerics);
    sim->device_close(dev);
}

TS_TEST(devices_do_not_share)
{
    world_t a = MAKE_WORLD(0, 4096, NULL, 0, "capacity=4096"),
            b = MAKE_WORLD(1, 0, NULL, 0, "capacity=8192", "profile=k80");
    fy_backend_info_t info;
    sim->device_query(a.dev, &info);
    assert_int_equal(info.free_nbytes, 0);
    sim->device_query(b.dev, &info);
    assert_int_equal(info.free_nbytes, 8192);
    sim_fails_with(sim->fill(b.dev, b.stream[0], a.block, 1, 4096), INVALID_ARGUMENT,
                   "not an address of sim:1 but of sim:0");
}

/* 564 GiB at once on any machine: address space only. */
TS_TEST(four_large_devices_open_at_once)
{
    const uint64_t size = 141ull << 30;
    for (int i = 0; i < 4; i++) {
        world_t w = MAKE_WORLD(i, size, NULL, 0, "capacity=151397597184");
        unsigned char *last = w.block + size - 4;
        uint32_t word = 0;
        sim_ok(sim->fill(w.dev, w.stream[0], last, 0x40 + i, 4));
        sim_ok(copy(w.dev, w.stream[0], FY_COPY_DOWNLOAD, 0, &word, last, 4));
        assert_int_equal(word, 0x01010101u * (uint32_t)(0x40 + i));
    }
}

TS_TEST(closing_reports_leaked_memory)
{
    void *dev = OPEN(0, "capacity=8192");
    make_block(dev, 4096);
    int before = nlogged;
    sim->device_close(dev);
    assert_int_equal(nlogged, before + 1);
    sim->device_close(NULL);
}

TS_SUITE(.begin = open_backend, .tear_down = end_worlds);
