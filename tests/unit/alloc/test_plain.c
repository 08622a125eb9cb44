/* fy_pool_*: the caching pool over plain numbers. Options, best fit, the exact limit with its
 * verdict, offsets of segments, figures. */

#include "tests/support/harness.h"

#define KIB 1024ull
#define MIB (1024 * KIB)

static fy_pool_t *make(uint64_t alignment, uint64_t segment_nbytes, uint64_t limit)
{
    fy_pool_options_t options = FY_POOL_OPTIONS_INIT;
    fy_pool_t *pool = NULL;
    options.alignment = alignment;
    options.segment_nbytes = segment_nbytes;
    options.limit = limit;
    ts_ok(fy_pool_create(&options, &pool));
    return pool;
}

static fy_pool_block_t take(fy_pool_t *pool, uint64_t nbytes)
{
    fy_pool_block_t block;
    ts_ok(fy_pool_alloc(pool, nbytes, &block));
    assert_non_null(block.token);
    assert_true(block.nbytes >= nbytes);
    return block;
}

static fy_memory_stats_t figures(const fy_pool_t *pool)
{
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    ts_ok(fy_pool_query(pool, &stats));
    assert_int_equal(stats.reserved, stats.live + stats.cached);
    assert_int_equal(stats.pending, 0);
    assert_int_equal(stats.by_category[FY_CATEGORY_ACTIVATIONS], stats.live);
    return stats;
}

TS_TEST(options)
{
    fy_pool_t *pool = (fy_pool_t *)&options;
    fy_pool_options_t bad = FY_POOL_OPTIONS_INIT;
    bad.alignment = 192;
    ts_fails(fy_pool_create(&bad, &pool), INVALID_ARGUMENT);
    assert_null(pool);
    ts_text_has("192");
    bad.alignment = 32;
    ts_fails(fy_pool_create(&bad, &pool), INVALID_ARGUMENT);
    bad = (fy_pool_options_t)FY_POOL_OPTIONS_INIT;
    bad.segment_nbytes = 0;
    ts_fails(fy_pool_create(&bad, &pool), INVALID_ARGUMENT);
    bad = (fy_pool_options_t)FY_POOL_OPTIONS_INIT;
    bad.struct_size = 0;
    ts_fails(fy_pool_create(&bad, &pool), INVALID_ARGUMENT);
    ts_fails(fy_pool_create(NULL, NULL), INVALID_ARGUMENT);

    ts_ok(fy_pool_create(NULL, &pool));
    fy_pool_block_t block = take(pool, 100);
    assert_int_equal(block.nbytes, 256);
    assert_int_equal(block.offset, 0);
    fy_memory_stats_t stats = figures(pool);
    assert_int_equal(stats.requested, 100);
    assert_int_equal(stats.reserved, 2 * MIB);
    assert_int_equal(stats.device_allocs, 1);
    assert_true(stats.limit == FY_UNLIMITED);
    fy_pool_free(pool, &block);
    assert_int_equal(figures(pool).live, 0);
    assert_int_equal(figures(pool).peak_live, 256);
    assert_int_equal(fy_pool_trim(pool, 0), 2 * MIB);
    assert_int_equal(figures(pool).reserved, 0);
    fy_pool_destroy(pool);
    fy_pool_destroy(NULL);
}

TS_TEST(arguments)
{
    fy_pool_t *pool = make(64, MIB, FY_UNLIMITED);
    fy_pool_block_t block;
    fy_memory_stats_t stats = { 0 };
    ts_fails(fy_pool_alloc(pool, 0, &block), INVALID_ARGUMENT);
    assert_null(block.token);
    ts_fails(fy_pool_alloc(NULL, 1, &block), INVALID_ARGUMENT);
    ts_fails(fy_pool_alloc(pool, 1, NULL), INVALID_ARGUMENT);
    ts_fails(fy_pool_query(pool, &stats), INVALID_ARGUMENT);
    ts_fails(fy_pool_query(pool, NULL), INVALID_ARGUMENT);
    ts_fails(fy_pool_alloc(pool, UINT64_MAX, &block), OUT_OF_MEMORY);
    assert_int_equal(fy_error_get()->oom->reason, FY_OOM_TOO_LARGE);
    fy_pool_free(pool, NULL);
    fy_pool_free(pool, &block); /* the token is NULL */
    fy_pool_free(NULL, &block);
    assert_int_equal(fy_pool_trim(NULL, 0), 0);
    fy_pool_destroy(pool);
}

/* A block of exactly the free size fits, one byte more does not, and the verdict names the
 * shortage. */
TS_TEST(limit)
{
    fy_pool_t *pool = make(256, MIB, 5 * MIB + 512);
    fy_pool_block_t a = take(pool, 3 * MIB), b = take(pool, 2 * MIB), c;
    ts_fails(fy_pool_alloc(pool, 513, &c), OUT_OF_MEMORY);
    const fy_oom_verdict_t *verdict = fy_error_get()->oom;
    assert_int_equal(verdict->reason, FY_OOM_LIMIT);
    assert_int_equal(verdict->asked, 513);
    assert_int_equal(verdict->live, 5 * MIB);
    assert_int_equal(verdict->would_help, 2 * MIB);
    assert_non_null(strstr(verdict->text, "513 bytes asked for (768 as rounded)"));
    c = take(pool, 512);
    assert_int_equal(figures(pool).reserved, 5 * MIB + 512);
    fy_pool_free(pool, &b); /* the hint is true */
    b = take(pool, 513);
    fy_pool_free(pool, &a);
    fy_pool_free(pool, &b);
    fy_pool_free(pool, &c);
    fy_pool_destroy(pool);
}

/* The smallest free block that fits is used; free neighbours join. */
TS_TEST(best_fit)
{
    fy_pool_t *pool = make(64, MIB, FY_UNLIMITED);
    fy_pool_block_t block[6];
    const uint64_t sizes[6] = { 8 * KIB, 64, 4 * KIB, 64, 16 * KIB, 64 };
    for (int i = 0; i < 6; i++) block[i] = take(pool, sizes[i]);
    for (int i = 0; i < 6; i += 2) fy_pool_free(pool, &block[i]);
    const fy_pool_block_t four = take(pool, 4 * KIB), eight = take(pool, 5 * KIB),
                          sixteen = take(pool, 9 * KIB);
    assert_int_equal(four.offset, block[2].offset);
    assert_int_equal(eight.offset, block[0].offset);
    assert_int_equal(sixteen.offset, block[4].offset);
    fy_pool_free(pool, &four);
    fy_pool_free(pool, &block[1]);
    fy_pool_free(pool, &eight);
    const fy_pool_block_t joined = take(pool, 12 * KIB + 64);
    assert_int_equal(joined.offset, block[0].offset);
    assert_int_equal(figures(pool).device_allocs, 1);
    fy_pool_destroy(pool); /* forgets the blocks in use */
}

/* Segments are placed from offset 0 up without gaps, and a freed place is reused. */
TS_TEST(segments_reuse_freed_places)
{
    fy_pool_t *pool = make(256, 4 * MIB, FY_UNLIMITED);
    fy_pool_block_t a = take(pool, 6 * MIB), b = take(pool, 10 * MIB), c = take(pool, 4 * MIB);
    assert_int_equal(a.offset, 0);
    assert_int_equal(b.offset, 6 * MIB);
    assert_int_equal(c.offset, 16 * MIB);
    fy_pool_free(pool, &b);
    assert_int_equal(fy_pool_trim(pool, 15 * MIB), 10 * MIB);
    b = take(pool, 12 * MIB);
    assert_int_equal(b.offset, 20 * MIB); /* the gap is too small */
    fy_pool_block_t d = take(pool, 8 * MIB);
    assert_int_equal(d.offset, 6 * MIB);
    fy_pool_free(pool, &a);
    fy_pool_free(pool, &d);
    /* Adjacent segments are not joined: both are freed, and a new one takes their place. */
    a = take(pool, 14 * MIB);
    assert_int_equal(a.offset, 0);
    assert_int_equal(figures(pool).device_allocs, 6);
    fy_pool_destroy(pool);
}

static int errors_logged;

static void count_errors(void *user, fy_log_level_t level, const char *text)
{
    (void)user;
    if (level == FY_LOG_ERROR && strstr(text, "pool_free")) errors_logged++;
}

TS_TEST(given_back_twice)
{
    fy_pool_t *pool = make(256, MIB, FY_UNLIMITED), *other = make(256, MIB, FY_UNLIMITED);
    const fy_pool_block_t a = take(pool, 1000), b = take(pool, 1000);
    errors_logged = 0;
    fy_log_set(count_errors, NULL);
    fy_pool_free(other, &a);
    assert_int_equal(errors_logged, 1);
    fy_pool_free(pool, &a);
    assert_int_equal(errors_logged, 1);
    fy_pool_free(pool, &a);
    assert_int_equal(errors_logged, 2);
    fy_log_set(NULL, NULL);
    assert_int_equal(figures(pool).live, b.nbytes);
    assert_int_equal(figures(other).live, 0);
    fy_pool_destroy(pool);
    fy_pool_destroy(other);
}

/* The same code as a device's pool: the same requests give the same figures. */
TS_TEST(like_a_device)
{
    fy_device_t *sim;
    ts_ok(fy_device_open("sim:0", &sim));
    fy_memory_stats_t device = FY_MEMORY_STATS_INIT;
    fy_pool_t *pool = make(256, 2 * MIB, FY_UNLIMITED);
    fy_pool_block_t blocks[40] = { { 0, 0, NULL } };
    fy_tensor_t *tensors[40] = { NULL };
    uint64_t random = 1;
    for (int i = 0; i < 400; i++) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        const size_t k = (random >> 33) % 40;
        const int64_t nbytes = 1 + (int64_t)(random >> 17 & ((1u << (10 + random % 15)) - 1));
        if (tensors[k]) {
            fy_tensor_destroy(tensors[k]);
            fy_pool_free(pool, &blocks[k]);
            tensors[k] = NULL;
        } else {
            ts_ok(fy_tensor_create(sim, FY_DTYPE_U8, 1, &nbytes, &tensors[k]));
            blocks[k] = take(pool, (uint64_t)nbytes);
        }
        ts_ok(fy_memory_query(sim, NULL, &device));
        const fy_memory_stats_t plain = figures(pool);
        assert_int_equal(plain.live, device.live);
        assert_int_equal(plain.reserved, device.reserved);
        assert_int_equal(plain.largest_free, device.largest_free);
        assert_int_equal(plain.device_allocs, device.device_allocs);
    }
    assert_true(figures(pool).peak_live > 2 * MIB);
    for (int k = 0; k < 40; k++) fy_tensor_destroy(tensors[k]);
    fy_pool_destroy(pool);
    fy_device_close(sim);
}

/* Options of page-locked memory: small blocks are cut from large segments, where a device's pool
 * allocates a small segment for them. In both kinds, large idle segments are freed before a larger
 * segment is allocated. */
TS_TEST(like_page_locked_memory)
{
    for (int release_eagerly = 0; release_eagerly < 2; release_eagerly++) {
        const fy_pool_options_t pinned = FY_POOL_OPTIONS_PINNED;
        fy_pool_options_t options = pinned;
        fy_pool_t *pool;
        options.release_eagerly = release_eagerly;
        assert_int_equal(pinned.release_eagerly, 1);
        ts_ok(fy_pool_create(&options, &pool));
        fy_pool_block_t block = take(pool, 100 * MIB);
        fy_pool_free(pool, &block);
        block = take(pool, 120 * MIB);
        fy_pool_free(pool, &block);
        assert_int_equal(figures(pool).peak_reserved, 120 * MIB);
        block = take(pool, 1000);
        assert_int_equal(figures(pool).reserved, release_eagerly ? 120 * MIB : 122 * MIB);
        fy_pool_free(pool, &block);
        fy_pool_destroy(pool);
    }
}

/* Bytes that a queue still uses when they are freed: that queue can reuse them, and so can a
 * request that would otherwise grow the pool. Other requests wait for the point. */
TS_TEST(pending)
{
    fy_pool_t *pool = make(64, MIB, FY_UNLIMITED);
    fy_pool_block_t large = take(pool, MIB), small, again;
    const fy_pool_point_t points[2] = { { 3, 10 }, { 4, 7 } };
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;

    /* Used by one queue: that queue gets the bytes at once, the host does not. */
    ts_ok(fy_pool_free_after(pool, &large, points, 1));
    ts_ok(fy_pool_query(pool, &stats));
    assert_int_equal(stats.live, 0);
    assert_int_equal(stats.pending, MIB);
    small = take(pool, KIB);
    assert_int_equal(stats.reserved, MIB);
    ts_ok(fy_pool_query(pool, &stats));
    assert_int_equal(stats.reserved, 2 * MIB);
    ts_ok(fy_pool_alloc_on(pool, MIB, 3, &again));
    assert_int_equal(again.offset, large.offset);

    /* Used by two queues: free when both are past their points, and not before. */
    ts_ok(fy_pool_free_after(pool, &again, points, 2));
    for (int i = 0; i < 3; i++) {
        const fy_pool_point_t reached[3] = { { 3, 9 }, { 3, 10 }, { 4, 7 } };
        ts_ok(fy_pool_query(pool, &stats));
        assert_int_equal(stats.pending, MIB);
        ts_ok(fy_pool_reached(pool, reached[i]));
    }
    fy_pool_free(pool, &small);
    assert_int_equal(figures(pool).live, 0);

    /* Another queue gets them rather than that the pool grows. Pending bytes are freed with the
     * pool. */
    large = take(pool, 2 * MIB);
    ts_ok(fy_pool_free_after(pool, &large, points, 2));
    ts_ok(fy_pool_alloc_on(pool, 2 * MIB, 9, &again));
    assert_int_equal(again.offset, large.offset);
    ts_ok(fy_pool_free_after(pool, &again, points, 2));
    ts_ok(fy_pool_alloc_on(pool, MIB, 3, &again));
    ts_ok(fy_pool_free_after(pool, &again, points, 1));
    fy_pool_destroy(pool);
}

TS_TEST(points_that_cannot_be)
{
    fy_pool_t *pool = make(64, MIB, FY_UNLIMITED);
    fy_pool_block_t block = take(pool, KIB), other;
    const fy_pool_point_t bad[4] = { { 0, 1 }, { 65536, 1 }, { 1, 0 }, { 1, 1ull << 48 } };
    const fy_pool_point_t twice[2] = { { 1, 1 }, { 1, 2 } },
                          many[6] = { { 1, 1 }, { 2, 1 }, { 3, 1 }, { 4, 1 }, { 5, 1 }, { 6, 1 } };
    for (int i = 0; i < 4; i++) {
        ts_fails(fy_pool_free_after(pool, &block, &bad[i], 1), INVALID_ARGUMENT);
        ts_fails(fy_pool_reached(pool, bad[i]), INVALID_ARGUMENT);
    }
    ts_fails(fy_pool_free_after(pool, &block, twice, 2), INVALID_ARGUMENT);
    ts_fails(fy_pool_free_after(pool, &block, many, 6), INVALID_ARGUMENT);
    ts_fails(fy_pool_free_after(pool, &block, NULL, 1), INVALID_ARGUMENT);
    ts_fails(fy_pool_alloc_on(pool, 1, 65536, &other), INVALID_ARGUMENT);
    assert_null(other.token);
    ts_fails(fy_pool_reached(NULL, twice[0]), INVALID_ARGUMENT);
    assert_int_equal(figures(pool).live, KIB); /* a refusal freed nothing */
    ts_ok(fy_pool_free_after(pool, &block, many, 5));
    fy_pool_destroy(pool);
}
