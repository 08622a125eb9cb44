/* Growth when the shape of the work changes. Idle segments of large blocks are freed for a larger
 * one, but not in every round, and reserved segments never.
 * An idle segment is kept for blocks of its kind as long as the pool may grow. */
#include "tests/unit/alloc/fake.h"

enum { S1 = 1 };

static void take_and_give(fy__pool_t *pool, int count, uint64_t nbytes)
{
    fy__block_t *blocks[64];
    for (int i = 0; i < count; i++) blocks[i] = take(pool, nbytes, S1);
    for (int i = 0; i < count; i++) give_done(blocks[i]);
}

/* Batches that grow by a fifth: the reserved bytes stay near the live bytes, although no old
 * segment serves a new block. */
TS_TEST(growing_batches_do_not_accumulate_segments)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    for (uint64_t nbytes = 10 * MIB; nbytes < 80 * MIB; nbytes += nbytes / 5 & ~(256 - 1ull))
        take_and_give(pool, 4, nbytes);
    const fy_memory_stats_t stats = query(pool);
    assert_true(stats.peak_live > 200 * MIB);
    assert_true(stats.peak_reserved <= stats.peak_live + stats.peak_live / 8);
    fake_end(pool);
}

/* Two alternating shapes: finally both have their segments, and the backend is not called any
 * more. */
TS_TEST(alternating_shapes_reach_a_steady_state)
{
    uint64_t calls = 0;
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    for (int i = 0; i < 200; i++) {
        if (i == 100) calls = fake.alloc_calls;
        take_and_give(pool, i % 2 ? 8 : 1, i % 2 ? 10 * MIB : 80 * MIB);
    }
    assert_int_equal(fake.alloc_calls, calls);
    fake_end(pool);
}

TS_TEST(reserved_segments_are_not_freed)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    ts_ok(fy__pool_reserve(pool, 16 * MIB));
    fy__block_t *block = take(pool, 20 * MIB, S1);
    assert_int_equal(query(pool).reserved, 36 * MIB);
    fake_end_with(pool, block);
}

TS_TEST(an_idle_segment_is_kept_for_its_kind)
{
    /* So much is live that 4 MiB more are no reason to free a segment. */
    fy__pool_t *pool = fake_pool(112 * MIB, MIB);
    fy__block_t *most = take(pool, 100 * MIB, S1), *large = take(pool, 8 * MIB, S1), *quarter,
                *less, *last;
    give_done(large);
    less = take(pool, 2 * MIB - 256, S1);
    assert_int_equal(query(pool).reserved, 110 * MIB);
    assert_int_equal(query(pool).largest_free, 8 * MIB);
    quarter = take(pool, 2 * MIB, S1);
    assert_int_equal(query(pool).largest_free, 6 * MIB);
    give_done(quarter);
    quarter = take(pool, 2 * MIB - 256, S1); /* grows up to the limit */
    assert_int_equal(query(pool).reserved, 112 * MIB);
    last = take(pool, 2 * MIB - 256, S1); /* then cuts the idle segment */
    assert_int_equal(query(pool).largest_free, 6 * MIB + 256);
    fake_end_with(pool, less, quarter, last, most);
}

TS_SUITE(.set_up = fake_set_up);
