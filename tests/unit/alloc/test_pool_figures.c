/* The pool's figures. A peek takes no lock, even while another thread holds them, and reads whole
 * numbers while others allocate. Figures by category follow the tags. Not here: the equations over
 * devices (tests/conformance/test_memory.c). */
#include "tests/unit/alloc/fake.h"

#include <pthread.h>

enum { S1 = 1 };

TS_TEST(a_peek_takes_no_lock)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    fy__block_t *block = take(pool, 1000, S1);
    fy_memory_stats_t stats;
    fy__pool_fork_lock(pool); /* takes both locks; a peek that took one would never return */
    fy__pool_peek(pool, &stats);
    fy__pool_fork_unlock(pool);
    assert_int_equal(stats.live, 1024);
    assert_int_equal(stats.requested, 1000);
    assert_int_equal(stats.reserved, MIB);
    assert_int_equal(stats.cached, MIB - 1024);
    assert_int_equal(stats.device_allocs, 1);
    assert_int_equal(stats.limit, FY_UNLIMITED);
    assert_int_equal(stats.by_category[FY_CATEGORY_ACTIVATIONS], 1024);
    fake_end_with(pool, block);
}

typedef struct busy {
    fy__pool_t *pool;
    _Atomic int done;
} busy_t;

static void *allocate(void *user)
{
    busy_t *busy = user;
    for (int i = 0; i < 20000; i++) {
        fy__block_t *block = take(busy->pool, 1024, 0);
        give_done(block);
    }
    busy->done = 1;
    return NULL;
}

TS_TEST(peeks_while_others_allocate_see_whole_numbers)
{
    busy_t busy = { .pool = fake_pool(FY_UNLIMITED, MIB) };
    fy__block_t *held = take(busy.pool, 4096, 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, allocate, &busy), 0);
    while (!busy.done) {
        fy_memory_stats_t stats;
        fy__pool_peek(busy.pool, &stats);
        assert_true(stats.live == 4096 || stats.live == 5120);
        assert_true(stats.peak_live == 4096 || stats.peak_live == 5120);
        assert_int_equal(stats.reserved, MIB);
    }
    pthread_join(thread, NULL);
    fake_end_with(busy.pool, held);
}

static fy__block_t *take_for(fy__pool_t *pool, uint64_t nbytes, fy_category_t category)
{
    fy__block_t *block;
    ts_ok(fy__pool_alloc_tagged(pool, nbytes, S1, (fy__tag_t){ category, NULL }, &block));
    assert_int_equal(block->tag.category, category);
    return block;
}

/* The peak's categories are those of the moment when it was first reached, not of a later moment
 * with the same total. */
TS_TEST(the_peak_keeps_its_first_categories)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    fy__block_t *weights = take_for(pool, 1024, FY_CATEGORY_WEIGHTS),
                *gradients = take_for(pool, 2048, FY_CATEGORY_GRADIENTS);
    give_done(gradients);
    fy__block_t *workspace = take_for(pool, 2048, FY_CATEGORY_WORKSPACE);
    fy_memory_stats_t stats = query(pool);
    assert_int_equal(stats.peak_live, 3072);
    assert_int_equal(stats.peak_by_category[FY_CATEGORY_WEIGHTS], 1024);
    assert_int_equal(stats.peak_by_category[FY_CATEGORY_GRADIENTS], 2048);
    assert_int_equal(stats.peak_by_category[FY_CATEGORY_WORKSPACE], 0);
    assert_int_equal(stats.by_category[FY_CATEGORY_WORKSPACE], 2048);
    fy__block_t *more = take_for(pool, 256, FY_CATEGORY_STAGING);
    stats = query(pool);
    assert_int_equal(stats.peak_by_category[FY_CATEGORY_GRADIENTS], 0);
    assert_int_equal(stats.peak_by_category[FY_CATEGORY_WORKSPACE], 2048);
    assert_int_equal(stats.peak_by_category[FY_CATEGORY_STAGING], 256);
    fake_end_with(pool, more, workspace, weights);
}

TS_SUITE(.set_up = fake_set_up);
