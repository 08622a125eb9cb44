/* Tests of backends/sim/ranges.c: the sorted set of address ranges. */
#include "tests/unit/sim/fixture.h"

#include "backends/sim/ranges.h"

static void insert(fy__sim_ranges_t *ranges, uintptr_t begin, uint64_t nbytes)
{
    assert_true(fy__sim_ranges_reserve(ranges));
    fy__sim_ranges_insert(ranges, &(fy__sim_range_t){ .begin = begin, .nbytes = nbytes });
}

TS_TEST(stays_sorted)
{
    fy__sim_ranges_t ranges = { 0 };
    for (uintptr_t i = 0; i < 97; i++) insert(&ranges, 100 * (i * 37 % 97) + 100, 50);
    assert_int_equal(ranges.count, 97);
    for (size_t i = 0; i < 97; i++) assert_int_equal(ranges.items[i].begin, 100 * (i + 1));
    for (uintptr_t i = 0; i < 97; i++)
        assert_true(fy__sim_ranges_remove(&ranges, 100 * (i * 61 % 97) + 100, NULL));
    assert_false(fy__sim_ranges_remove(&ranges, 100, NULL));
    fy__sim_ranges_trim(&ranges);
    assert_null(ranges.items);
}

TS_TEST(finds_by_byte)
{
    fy__sim_ranges_t ranges = { 0 };
    insert(&ranges, 1000, 100);
    insert(&ranges, 2000, 100);
    assert_null(fy__sim_ranges_below(&ranges, 999));
    assert_int_equal(fy__sim_ranges_below(&ranges, 1000)->begin, 1000);
    assert_int_equal(fy__sim_ranges_below(&ranges, 1999)->begin, 1000);
    assert_null(fy__sim_ranges_touching(&ranges, 900, 100));
    assert_int_equal(fy__sim_ranges_touching(&ranges, 900, 101)->begin, 1000);
    assert_int_equal(fy__sim_ranges_touching(&ranges, 1099, 1)->begin, 1000);
    assert_null(fy__sim_ranges_touching(&ranges, 1100, 900));
    assert_int_equal(fy__sim_ranges_touching(&ranges, 1100, 901)->begin, 2000);

    const fy__sim_range_t *range = fy__sim_ranges_below(&ranges, 1000);
    assert_true(fy__sim_range_holds(range, 1000, 100));
    assert_true(fy__sim_range_holds(range, 1099, 1));
    assert_false(fy__sim_range_holds(range, 1099, 2));
    assert_false(fy__sim_range_holds(range, 1100, 0));
    assert_false(fy__sim_range_holds(range, 1050, UINT64_MAX));
    assert_false(fy__sim_range_holds(range, 999, 1));
    assert_false(fy__sim_range_holds(&(fy__sim_range_t){ 0 }, 0, 0));
    fy__sim_range_t gone;
    assert_true(fy__sim_ranges_remove(&ranges, 2000, &gone));
    assert_int_equal(gone.nbytes, 100);
    fy__sim_ranges_remove(&ranges, 1000, NULL);
    fy__sim_ranges_trim(&ranges);
}

TS_SUITE(.begin = open_backend);
