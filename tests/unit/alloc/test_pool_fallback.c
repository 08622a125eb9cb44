/* The fallback stages that grow, free segments and wait. Each test sets up the situation in which
 * one stage must serve, and checks that the earlier stages did not.
 * Also exact limits, rounding and trim. The stages that only reuse are in test_pool_reuse.c. */
#include "tests/unit/alloc/fake.h"

enum { S1 = 1, S2 = 2, S3 = 3 };

TS_TEST(the_pool_grows_by_segments_and_large_requests_get_dedicated_ones)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, 4 * MIB);
    fy__block_t *small = take(pool, 1, S1);
    assert_int_equal(small->nbytes, 256);
    assert_int_equal(query(pool).reserved, 4 * MIB);
    fy__block_t *large = take(pool, 5 * MIB + 1, S1);
    assert_int_equal(large->nbytes, 5 * MIB + 256);
    /* 2 MiB steps would waste more than an eighth */
    assert_int_equal(query(pool).reserved, 9 * MIB + 256);
    fy__block_t *larger = take(pool, 19 * MIB, S1);
    assert_int_equal(query(pool).reserved, 29 * MIB + 256); /* here they do not */
    assert_int_equal(stats(pool).grown, 3);
    assert_int_equal(query(pool).device_allocs, 3);
    fake_end_with(pool, larger, small, large);
}

/* A large idle segment is kept whole for large requests until no other memory is left. */
TS_TEST(small_blocks_do_not_break_a_free_large_segment)
{
    fy__pool_t *pool = fake_pool(9 * MIB, MIB);
    give_done(take(pool, 8 * MIB, S1));
    fy__block_t *crumb = take(pool, KIB, S1);
    assert_int_equal(query(pool).reserved, 9 * MIB);
    fy__block_t *large = take(pool, 8 * MIB, S1);
    assert_int_equal(fake.alloc_calls, 2);
    give_done(large);
    fy__block_t *rest = take(pool, MIB - KIB, S1), *more = take(pool, KIB, S1);
    /* the limit refused a segment, so the large one was cut */
    assert_int_equal(fake.alloc_calls, 2);
    assert_int_equal(query(pool).reserved, 9 * MIB);
    fake_end_with(pool, more, rest, crumb);
}

TS_TEST(idle_segments_are_freed_before_a_refusal)
{
    fy__pool_t *pool = fake_pool(8 * MIB, MIB);
    fy__block_t *a = take(pool, 4 * MIB, S1), *b = take(pool, 4 * MIB, S1);
    give_done(a);
    give_done(b);
    fy__block_t *block = take(pool, 6 * MIB, S1);
    assert_int_equal(stats(pool).grown_after_trim, 1);
    assert_int_equal(stats(pool).syncs, 0);
    assert_int_equal(query(pool).reserved, 6 * MIB);
    fake_end_with(pool, block);
}

TS_TEST(only_enough_segments_are_freed)
{
    fy__pool_t *pool = fake_pool(12 * MIB, MIB);
    fy__block_t *a = take(pool, 4 * MIB, S1), *b = take(pool, 4 * MIB, S1),
                *c = take(pool, 4 * MIB, S1);
    give_done(a);
    give_done(b);
    give_done(c);
    fy__block_t *block = take(pool, 6 * MIB, S1);
    assert_int_equal(query(pool).reserved, 10 * MIB);
    fake_end_with(pool, block);
}

TS_TEST(a_full_device_frees_segments_and_retries)
{
    fake.capacity = 8 * MIB;
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    fy__block_t *b[16];
    for (int i = 0; i < 16; i++) b[i] = take(pool, MIB / 2, S1);
    for (int i = 0; i < 16; i++) give_done(b[i]);
    assert_int_equal(query(pool).reserved, 8 * MIB);
    fy__block_t *block = take(pool, 6 * MIB, S1);
    assert_int_equal(stats(pool).grown_after_trim, 1);
    fake_end_with(pool, block);
}

/* Two pending neighbours whose points one hazard cannot hold: only waiting and searching again
 * serves (pytorch#189504). */
TS_TEST(a_wait_is_followed_by_a_new_search)
{
    fy__pool_t *pool = fake_pool(MIB, MIB);
    fy__block_t *b[2];
    fill(pool, b, (const int[]){ 512, 0 });
    for (uint32_t i = 0; i < 2; i++) {
        fy__hazard_clear(&b[i]->hazard);
        for (uint32_t w = 0; w < FY__READER_COUNT; w++)
            atomic_store(&b[i]->hazard.readers[w], FY__POINT(10 + 4 * i + w, 5));
        fy__pool_free(b[i]);
    }
    assert_int_equal(query(pool).pending, MIB);
    fy__block_t *block = take(pool, MIB, S1);
    assert_int_equal(stats(pool).after_sync, 1);
    assert_int_equal(stats(pool).syncs, 1);
    assert_int_equal(fake.sync_noted, 1);
    assert_int_equal(fake.waits, 8);
    assert_int_equal(fake.alloc_calls, 1);
    assert_true(fake_hazard_done(&block->hazard));
    fake_end_with(pool, block);
}

TS_TEST(the_host_waits_as_the_last_stage)
{
    fy__pool_t *pool = fake_pool(MIB, MIB);
    give(take(pool, MIB, 0), S1, 7);
    fy__block_t *block = take(pool, MIB, 0);
    assert_int_equal(stats(pool).after_sync, 1);
    assert_true(fake_hazard_done(&block->hazard));
    fake_end_with(pool, block);
}

/* Segments that are pending as a whole: after the wait they are freed, and a larger one fits. */
TS_TEST(the_pool_waits_frees_and_grows)
{
    fy__pool_t *pool = fake_pool(8 * MIB, MIB);
    fy__block_t *a = take(pool, 4 * MIB, S1), *b = take(pool, 4 * MIB, S1);
    give(a, S1, 1);
    give(b, S1, 2);
    fy__block_t *block = take(pool, 6 * MIB, S1);
    assert_int_equal(stats(pool).grown_after_sync, 1);
    assert_int_equal(fake.sync_noted, 1);
    fake_end_with(pool, block);
}

static fy__pool_t *wait_pool;
static fy__block_t *wait_block;
static void take_during_wait(void)
{
    fake.during_wait = NULL;
    ts_ok(fy__pool_alloc(wait_pool, KIB, S1, &wait_block));
}

/* The thread that completes the work may need memory itself: no lock is held during the wait. */
TS_TEST(another_may_allocate_while_one_waits)
{
    fy__pool_t *pool = wait_pool = fake_pool(9 * MIB, MIB);
    fy__block_t *a = take(pool, 4 * MIB, S1), *b = take(pool, 4 * MIB, S1);
    give(a, S1, 1);
    give(b, S1, 2);
    fake.during_wait = take_during_wait;
    fy__block_t *block = take(pool, 6 * MIB, S1);
    fake_end_with(pool, block, wait_block);
}

/* A guard that forbids growth: every stage that does not grow is still tried, and the error record
 * is the guard's. */
TS_TEST(guard_refuses_growth)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    fy__block_t *large = take(pool, 4 * MIB, S1), *other = take(pool, 4 * MIB, S1), *block;
    fake.guard_growth = true;
    give_done(large);
    fy__block_t *small = take(pool, KIB, S1); /* cut from the large one */
    ts_fails(fy__pool_alloc(pool, 4 * MIB, S1, &block), REFUSED_BY_GUARD);
    assert_null(block);
    assert_string_equal(fy_error_get()->text, "the guard of 'step' allows 0 device allocations");
    /* pending, and its neighbour too: waiting serves the host without growing */
    give(other, S2, 3);
    block = take(pool, 4 * MIB, 0);
    assert_int_equal(stats(pool).after_sync, 1);
    give(block, S2, 4);
    /* The wait leaves an error record and the guard's text replaces it; nothing was freed. */
    ts_fails(fy__pool_alloc(pool, 5 * MIB, 0, &block), REFUSED_BY_GUARD);
    assert_string_equal(fy_error_get()->text, "the guard of 'step' allows 0 device allocations");
    assert_null(fy_error_get()->oom);
    assert_int_equal(fake.free_calls, 0);
    assert_int_equal(fake.alloc_calls, 2);
    assert_int_equal(query(pool).device_allocs, 2);
    fake_end_with(pool, small);
}

/* More streams than the pool has lists for: the other blocks are checked one by one, and still
 * found. */
TS_TEST(more_streams_than_lists)
{
    fy__pool_t *pool = fake_pool(MIB, MIB);
    fy__block_t *blocks[32];
    for (uint32_t i = 0; i < 32; i++) blocks[i] = take(pool, 32 * KIB, S1);
    for (uint32_t i = 0; i < 32; i++) give(blocks[i], 100 + i, 1);
    assert_int_equal(query(pool).pending, MIB);
    assert_true(fy__pool_is_valid(pool));
    fy__block_t *block = take(pool, MIB, 131);
    assert_int_equal(stats(pool).after_sync, 1);
    assert_int_equal(fake.waits, 32);
    fake_end_with(pool, block);
}

/* A hundred streams are more than one round of waiting handles. */
TS_TEST(waits_for_any_number_of_streams)
{
    fy__pool_t *pool = fake_pool(MIB, MIB);
    fy__block_t *blocks[128];
    for (uint32_t i = 0; i < 128; i++) blocks[i] = take(pool, 8 * KIB, S1);
    for (uint32_t i = 0; i < 128; i++) give(blocks[i], 1000 + i, 1);
    give_done(take(pool, MIB, 0));
    assert_int_equal(fake.waits, 128);
    fake_end(pool);
}

TS_TEST(reserved_never_passes_the_limit)
{
    const uint64_t limit = 3 * MIB + 768; /* not a multiple of a segment */
    fy__pool_t *pool = fake_pool(limit, MIB);
    fy__block_t *blocks[16], *block;
    int count = 0;
    while (fy__pool_alloc(pool, 256 * KIB, S1, &block) == FY_STATUS_OK) blocks[count++] = block;
    assert_int_equal(count, 12);
    blocks[count++] = take(pool, 768, S1); /* up to the last byte */
    assert_int_equal(query(pool).live, limit);
    ts_fails(fy__pool_alloc(pool, 1, S1, &block), OUT_OF_MEMORY);
    while (count) give_done(blocks[--count]);
    fake_end(pool);
}

TS_TEST(tiny_limits_work)
{
    fy__pool_t *pool = fake_pool(1024, 32 * MIB);
    fy__block_t *a = take(pool, 512, S1), *b = take(pool, 300, S1), *block;
    assert_int_equal(query(pool).reserved, 1024);
    ts_fails(fy__pool_alloc(pool, 1, S1, &block), OUT_OF_MEMORY);
    fake_end_with(pool, a, b);
    fake.capacity = 1024; /* the device is smaller than a segment, and no limit is set */
    pool = fake_pool(FY_UNLIMITED, 32 * MIB);
    a = take(pool, 512, S1);
    b = take(pool, 512, S1);
    fake_end_with(pool, a, b);
}

TS_TEST(rounding_is_at_most_an_eighth_from_4_kib_up)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, 4 * MIB);
    for (uint64_t nbytes = 4 * KIB; nbytes < 40 * MIB; nbytes += 1 + nbytes / 9) {
        fy__block_t *block = take(pool, nbytes, S1);
        assert_true(block->nbytes - nbytes <= nbytes / 8);
        give_done(block);
    }
    fake_end(pool);
}

TS_TEST(trim_frees_whole_idle_segments)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    fy__block_t *a = take(pool, 4 * MIB, S1), *b = take(pool, 2 * MIB, S1),
                *c = take(pool, 6 * MIB, S1), *d = take(pool, KIB, S1);
    give_done(a);
    give(b, S2, 5);
    give_done(c);
    assert_int_equal(fy__pool_trim(pool, 13 * MIB), 0);
    const uint64_t released = fy__pool_trim(pool, 10 * MIB);
    assert_true(query(pool).reserved <= 10 * MIB);
    assert_int_equal(released + fy__pool_trim(pool, 0), 10 * MIB);
    assert_int_equal(query(pool).reserved, 3 * MIB); /* pending and live segments stay */
    fake.done[S2] = 5;
    assert_int_equal(fy__pool_trim(pool, 0), 2 * MIB);
    give_done(d);
    assert_int_equal(fy__pool_trim(pool, 0), MIB);
    assert_int_equal(query(pool).reserved, 0);
    assert_int_equal(query(pool).peak_reserved, 13 * MIB);
    fake_end(pool);
}

TS_SUITE(.set_up = fake_set_up);
