/* Growing when the shape of the work changes: idle segments of large blocks go back for what is
 * larger, but not for ever, and not what was reserved;
 * an idle segment is kept for blocks of its kind as long as the pool may grow. */
#include "tests/unit/alloc/fake.h"

enum { S1 = 1 };

static int setup(void **state)
{
    (void)state;
    fake_reset();
    return 0;
}

static void take_and_give(fy__pool_t *pool, int count, uint64_t nbytes)
{
    fy__block_t *blocks[64];
    for (int i = 0; i < count; i++) blocks[i] = take(pool, nbytes, S1);
    for (int i = 0; i < count; i++) give_done(blocks[i]);
}

/* Batches that grow by a fifth: what is reserved stays near what is live, though no old segment
 * serves a new block. */
static void larger_batches(void **state)
{
    (void)state;
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    for (uint64_t nbytes = 10 * MIB; nbytes < 80 * MIB; nbytes += nbytes / 5 & ~(256 - 1ull))
        take_and_give(pool, 4, nbytes);
    const fy_memory_stats_t stats = query(pool);
    assert_true(stats.peak_live > 200 * MIB);
    assert_true(stats.peak_reserved <= stats.peak_live + stats.peak_live / 8);
    fake_end(pool);
}

/* Two shapes by turns: in the end both have what they need, and nobody asks the backend any
 * more. */
static void not_for_ever(void **state)
{
    (void)state;
    uint64_t calls = 0;
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    for (int i = 0; i < 200; i++) {
        if (i == 100) calls = fake.alloc_calls;
        take_and_give(pool, i % 2 ? 8 : 1, i % 2 ? 10 * MIB : 80 * MIB);
    }
    assert_int_equal(fake.alloc_calls, calls);
    fake_end(pool);
}

static void not_what_was_reserved(void **state)
{
    (void)state;
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    assert_int_equal(fy__pool_reserve(pool, 16 * MIB), FY_STATUS_OK);
    fy__block_t *block = take(pool, 20 * MIB, S1);
    assert_int_equal(query(pool).reserved, 36 * MIB);
    give_done(block);
    fake_end(pool);
}

static void kept_for_its_kind(void **state)
{
    (void)state;
    /* so much is live that 4 MiB more are no reason to give anything back */
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
    quarter = take(pool, 2 * MIB - 256, S1); /* up to the limit it grows */
    assert_int_equal(query(pool).reserved, 112 * MIB);
    last = take(pool, 2 * MIB - 256, S1); /* and then it cuts */
    assert_int_equal(query(pool).largest_free, 6 * MIB + 256);
    give_done(less);
    give_done(quarter);
    give_done(last);
    give_done(most);
    fake_end(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(larger_batches, setup),
        cmocka_unit_test_setup(not_for_ever, setup),
        cmocka_unit_test_setup(not_what_was_reserved, setup),
        cmocka_unit_test_setup(kept_for_its_kind, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
