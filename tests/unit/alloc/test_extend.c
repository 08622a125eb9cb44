/* Segments that grow and shrink in place. The pool requests only the missing bytes, free bytes are
 * never divided by a segment border, a trim frees the free end, and a failure changes nothing.
 * Random histories are checked against the pool's invariants. Figures of traces: tests/traces/. */
#include "tests/unit/alloc/fake.h"

enum { S1 = 1 };

static int setup(void **state)
{
    (void)state;
    fake_reset();
    fake.step = 2 * MIB;
    fake.space = 1024 * MIB;
    return 0;
}

TS_TEST(only_the_missing_bytes_are_requested)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, 2 * MIB);
    fy__block_t *a = take(pool, 5 * MIB, S1); /* the segment has 6 MiB */
    assert_int_equal(query(pool).reserved, 6 * MIB);
    fy__block_t *b = take(pool, 4 * MIB, S1); /* 1 MiB is free: grows by 4 */
    assert_int_equal(query(pool).reserved, 10 * MIB);
    give_done(b);
    fy__block_t *c = take(pool, 16 * MIB, S1); /* 5 MiB are free: grows by 12 */
    assert_int_equal(query(pool).reserved, 22 * MIB);
    assert_int_equal(fake.used, 22 * MIB);
    assert_int_equal(fake.alloc_calls, 1);
    assert_int_equal(fake.resize_calls, 2);
    assert_int_equal(query(pool).device_allocs, 3);
    assert_int_equal(stats(pool).grown, 3);
    give_done(a);
    give_done(c);
    assert_int_equal(query(pool).largest_free, 22 * MIB); /* one free block */
    fake_end(pool);
}

TS_TEST(a_trim_gives_the_end_back)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, 2 * MIB);
    fy__block_t *a = take(pool, 3 * MIB, S1), *b = take(pool, 20 * MIB, S1);
    give_done(b);
    assert_int_equal(query(pool).reserved, 24 * MIB);
    assert_int_equal(fy__pool_trim(pool, 9 * MIB), 16 * MIB); /* keeps at most 9 MiB */
    assert_int_equal(query(pool).reserved, 8 * MIB);
    assert_int_equal(fake.used, 8 * MIB);
    assert_int_equal(fy__pool_trim(pool, 0), 4 * MIB);
    assert_int_equal(query(pool).reserved, 4 * MIB);
    assert_true(fy__pool_is_valid(pool));
    b = take(pool, 20 * MIB, S1);
    give(b, S1, 7); /* pending: it stays */
    assert_int_equal(fy__pool_trim(pool, 0), 0);
    fake.done[S1] = 7;
    assert_int_equal(fy__pool_trim(pool, 0), 20 * MIB);
    give_done(a);
    assert_int_equal(fy__pool_trim(pool, 0), 4 * MIB);
    assert_int_equal(fake.used, 0);
    fake_end(pool);
}

TS_TEST(a_limit_between_two_steps)
{
    fy__pool_t *pool = fake_pool(5 * MIB, 2 * MIB);
    /* The last block in a segment of exactly its size. */
    fy__block_t *a = take(pool, 4 * MIB, S1), *b = take(pool, MIB, S1);
    assert_int_equal(query(pool).reserved, 5 * MIB);
    fy__block_t *none;
    ts_fails(fy__pool_alloc(pool, 256, S1, &none), OUT_OF_MEMORY);
    give_done(a);
    give_done(b);
    assert_true(fy__pool_is_valid(pool));
    assert_int_equal(fy__pool_trim(pool, 0), 5 * MIB);
    fake_end(pool);
}

TS_TEST(a_segment_that_cannot_grow_is_followed_by_a_new_one)
{
    fake.space = 8 * MIB;
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, 2 * MIB);
    fy__block_t *a = take(pool, 6 * MIB, S1), *b = take(pool, 4 * MIB, S1);
    assert_int_equal(fake.alloc_calls, 2);
    assert_int_equal(query(pool).reserved, 10 * MIB);
    fake.capacity = 12 * MIB; /* full: nothing serves, nothing changes */
    fy__block_t *none;
    const uint64_t used = fake.used;
    ts_fails(fy__pool_alloc(pool, 4 * MIB, S1, &none), OUT_OF_MEMORY);
    assert_int_equal(fake.used, used);
    assert_int_equal(query(pool).reserved, used);
    fake_end_with(pool, a, b);
}

TS_TEST(guards_and_bookkeeping)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, 2 * MIB);
    fy__block_t *a = take(pool, 2 * MIB, S1), *none;
    fake.guard_growth = true;
    ts_fails(fy__pool_alloc(pool, 2 * MIB, S1, &none), REFUSED_BY_GUARD);
    assert_int_equal(fake.resize_calls, 0);
    assert_int_equal(stats(pool).guard_refusals, 1);
    fake.guard_growth = false;
    for (uint64_t n = 1; n < 4; n++) { /* no memory for a node: refused, nothing lost */
        fake.fail_meta_from = fake.meta_calls + n;
        fake.fail_meta_until = UINT64_MAX;
        fy__block_t *blocks[4096];
        int count = 0;
        while (count < 4096 && fy__pool_alloc(pool, 256, S1, &blocks[count]) == FY_STATUS_OK)
            count++;
        assert_true(fy__pool_is_valid(pool));
        assert_int_equal(query(pool).reserved, fake.used);
        fake.fail_meta_from = 0;
        while (count) give_done(blocks[--count]);
    }
    ts_ok(fy__pool_reserve(pool, 31 * MIB));
    assert_int_equal(query(pool).reserved, 32 * MIB);
    assert_int_equal(fake.segments, 1);
    fake_end_with(pool, a);
}

static fy__pool_t *others_pool;
static fy__block_t *others[2];
static int nothers;

static void another_takes_the_end(void)
{
    if (nothers < 2) others[nothers++] = take(others_pool, 2 * MIB, S1);
}

/* While the device allocates the missing bytes, the free bytes that the request counts on stay in
 * the pool; another thread may take them. */
TS_TEST(another_thread_takes_the_free_end_meanwhile)
{
    fy__pool_t *pool = others_pool = fake_pool(FY_UNLIMITED, 2 * MIB);
    fy__block_t *a = take(pool, 2 * MIB, S1), *b = take(pool, 2 * MIB, S1), *c;
    give_done(b);
    nothers = 1; /* only once */
    fake.during_resize = another_takes_the_end;
    /* 2 MiB are free at the end and 2 more are requested; together they are no longer enough. */
    c = take(pool, 3 * MIB, S1);
    fake.during_resize = NULL;
    assert_true(fy__pool_is_valid(pool));
    assert_int_equal(nothers, 2);
    /* 6 with those two, and 4 that were added: not more than the device has */
    assert_int_equal(query(pool).live, 7 * MIB);
    assert_int_equal(query(pool).reserved, 10 * MIB);
    assert_int_equal(query(pool).reserved, fake.used);
    assert_true((char *)c->address >= (char *)others[1]->address + others[1]->nbytes);
    assert_int_equal(served(pool), 4);
    fake_end_with(pool, a, others[1], c);
}

/* Free neighbours join into one block, so finally one block as large as all of them needs no new
 * memory. */
TS_TEST(random_histories)
{
    for (uint64_t round = 1; round <= 20; round++) {
        uint64_t seed = round * 0x9E3779B97F4A7C15u, now = 0;
        fy__block_t *blocks[100] = { NULL };
        fake_reset();
        fake.step = 2 * MIB;
        fake.space = 400 * MIB;
        fake.capacity = round % 3 ? UINT64_MAX : 96 * MIB;
        fy__pool_t *pool = fake_pool(round % 2 ? FY_UNLIMITED : 77 * MIB + 256, 2 * MIB);
        for (int i = 0; i < 2000; i++) {
            const size_t at = fake_random(&seed) % 100;
            const uint32_t stream = 1 + (uint32_t)(fake_random(&seed) % 3);
            if (blocks[at]) {
                give(blocks[at], stream, fake_random(&seed) % 2 ? ++now : 0);
                blocks[at] = NULL;
            } else if (fy__pool_alloc(pool,
                                      1 + fake_random(&seed) %
                                              (fake_random(&seed) % 8 ? 200 * KIB : 5 * MIB),
                                      stream, &blocks[at]) != FY_STATUS_OK)
                assert_null(blocks[at]);
            if (fake_random(&seed) % 16 == 0)
                for (uint32_t s = 1; s < 4; s++) fake.done[s] = now;
            if (fake_random(&seed) % 64 == 0)
                (void)fy__pool_trim(pool, fake_random(&seed) % (100 * MIB));
            if (i % 20 == 0) assert_true(fy__pool_is_valid(pool));
            assert_int_equal(query(pool).reserved, fake.used);
        }
        for (size_t i = 0; i < 100; i++)
            if (blocks[i]) give_done(blocks[i]);
        for (uint32_t s = 1; s < 4; s++) fake.done[s] = now;
        (void)fy__pool_trim(pool, FY_UNLIMITED);
        if (fake.segments == 1) assert_int_equal(query(pool).largest_free, query(pool).reserved);
        (void)fy__pool_trim(pool, 0);
        assert_int_equal(fake.used, 0);
        fake_end(pool);
    }
}

TS_SUITE(.set_up = setup);
