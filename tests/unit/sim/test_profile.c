/* Tests of backends/sim/profile.c: the figures are fixed here, number by number, so that none
 * changes by accident. The durations follow from them exactly. */
#include "tests/unit/sim/fixture.h"

#include "backends/sim/profile.h"

typedef struct frozen {
    const char *name;
    uint64_t memory_mib;
    uint64_t f32_gflops, f64_gflops, f16_gflops, bf16_gflops;
    uint64_t memory_gb, pinned_gb, pageable_gb, peer_gb; /* GB/s */
    uint64_t launch_submit_ns, copy_submit_ns, poll_ns, wake_ns, kernel_ns, copy_setup_ns;
} frozen_t;

static const frozen_t table[] = {
    { "k80", 11441, 4365, 1455, 4365, 4365, 240, 12, 8, 12, 1700, 7000, 200, 23000, 2000, 2000 },
    { "v100", 16160, 15700, 7800, 125000, 15700, 900, 12, 8, 150, 1500, 7000, 200, 11000, 2000,
      2000 },
    { "a100", 81920, 19500, 19500, 312000, 312000, 2039, 25, 10, 300, 1300, 6000, 200, 7000, 2000,
      1000 },
    { "h100", 81559, 67000, 67000, 989500, 989500, 3350, 52, 12, 450, 1000, 5000, 200, 3500, 2000,
      500 },
    { "h200", 143771, 67000, 67000, 989500, 989500, 4800, 52, 12, 450, 1000, 5000, 200, 3500, 2000,
      500 },
    { "rtx4090", 24564, 82600, 1290, 165200, 165200, 1008, 25, 10, 25, 1200, 6000, 200, 7000, 2000,
      1000 },
    { "t4", 15360, 8100, 253, 65000, 8100, 320, 12, 8, 12, 1700, 7000, 200, 11000, 2000, 2000 },
};
enum { NPROFILES = sizeof(table) / sizeof(table[0]) };

TS_TEST(figures_are_frozen)
{
    for (size_t i = 0; i < NPROFILES; i++) {
        const frozen_t *want = &table[i];
        const fy__sim_profile_t *got = fy__sim_profile_at(i);
        assert_string_equal(got->name, want->name);
        assert_ptr_equal(fy__sim_profile_find(want->name), got);
        assert_int_equal(got->memory_nbytes, want->memory_mib << 20);
        assert_int_equal(got->f32_flops_per_s, want->f32_gflops * 1000000000);
        assert_int_equal(got->f64_flops_per_s, want->f64_gflops * 1000000000);
        assert_int_equal(got->f16_flops_per_s, want->f16_gflops * 1000000000);
        assert_int_equal(got->bf16_flops_per_s, want->bf16_gflops * 1000000000);
        assert_int_equal(got->memory_bytes_per_s, want->memory_gb * 1000000000);
        assert_int_equal(got->pinned_bytes_per_s, want->pinned_gb * 1000000000);
        assert_int_equal(got->pageable_bytes_per_s, want->pageable_gb * 1000000000);
        assert_int_equal(got->peer_bytes_per_s, want->peer_gb * 1000000000);
        assert_int_equal(got->launch_submit_ns, want->launch_submit_ns);
        assert_int_equal(got->copy_submit_ns, want->copy_submit_ns);
        assert_int_equal(got->poll_ns, want->poll_ns);
        assert_int_equal(got->wake_ns, want->wake_ns);
        assert_int_equal(got->kernel_ns, want->kernel_ns);
        assert_int_equal(got->copy_setup_ns, want->copy_setup_ns);
    }
    assert_null(fy__sim_profile_at(NPROFILES));
    assert_null(fy__sim_profile_find("b200"));
    assert_int_equal(fy__sim_host_profile.flops_per_s, 300000000000);
    assert_int_equal(fy__sim_host_profile.bytes_per_s, 10000000000);
    assert_int_equal(fy__sim_host_profile.op_ns, 50);
    assert_int_equal(fy__sim_host_profile.copy_bytes_per_s, 60000000000);
}

TS_TEST(launch_is_the_slower_of_arithmetic_and_memory)
{
    const fy__sim_profile_t *h200 = fy__sim_profile_find("h200");
    assert_int_equal(fy__sim_profile_launch_ns(h200, FY_DTYPE_F32, 0, 0), 2000);
    assert_int_equal(fy__sim_profile_launch_ns(h200, FY_DTYPE_F32, 67000000000, 1), 2000 + 1000000);
    assert_int_equal(fy__sim_profile_launch_ns(h200, FY_DTYPE_I32, 67000000000, 1), 2000 + 1000000);
    assert_int_equal(fy__sim_profile_launch_ns(h200, FY_DTYPE_BF16, 989500000000, 1),
                     2000 + 1000000);
    assert_int_equal(fy__sim_profile_launch_ns(h200, FY_DTYPE_F16, 989500000001, 1),
                     2000 + 1000001);
    assert_int_equal(fy__sim_profile_launch_ns(h200, FY_DTYPE_F32, 1, 4800000000), 2000 + 1000000);
    assert_int_equal(
        fy__sim_profile_launch_ns(fy__sim_profile_find("t4"), FY_DTYPE_F64, 253000000, 0),
        2000 + 1000000);
}

TS_TEST(copies_take_setup_and_bandwidth)
{
    const fy__sim_profile_t *h200 = fy__sim_profile_find("h200"),
                            *k80 = fy__sim_profile_find("k80");
    assert_int_equal(fy__sim_profile_link_ns(h200, 1, 52000000000), 500 + 1000000000);
    assert_int_equal(fy__sim_profile_link_ns(h200, 0, 12000000000), 500 + 1000000000);
    assert_int_equal(fy__sim_profile_memory_ns(h200, 4800000000), 2000 + 1000000);
    assert_int_equal(fy__sim_profile_peer_ns(h200, h200, 450000000), 500 + 1000000);
    assert_int_equal(fy__sim_profile_peer_ns(h200, k80, 12000000), 2000 + 1000000);
    assert_int_equal(fy__sim_profile_peer_ns(k80, h200, 12000000), 2000 + 1000000);
}

TS_TEST(sizes_beyond_64_bits_do_not_wrap)
{
    const fy__sim_profile_t *h200 = fy__sim_profile_find("h200");
    assert_int_equal(fy__sim_profile_link_ns(h200, 1, 52000000000000ull), 500 + 1000000000000ull);
    assert_int_equal(fy__sim_profile_launch_ns(h200, FY_DTYPE_F64, UINT64_MAX, 0),
                     2000 + 275324538413576ull);
    assert_int_equal(fy__sim_profile_host_ns(&fy__sim_host_profile, 0, UINT64_MAX),
                     1844674407370955162ull + 50);
}

TS_TEST(host_ops)
{
    assert_int_equal(fy__sim_profile_host_ns(&fy__sim_host_profile, 0, 0), 50);
    assert_int_equal(fy__sim_profile_host_ns(&fy__sim_host_profile, 300000, 10), 50 + 1000);
    assert_int_equal(fy__sim_profile_host_ns(&fy__sim_host_profile, 300, 10000), 50 + 1000);
    assert_int_equal(fy__sim_profile_host_copy_ns(&fy__sim_host_profile, 60000), 1000);
    assert_int_equal(fy__sim_profile_host_copy_ns(&fy__sim_host_profile, 1), 1);
}

TS_SUITE(.begin = open_backend);
