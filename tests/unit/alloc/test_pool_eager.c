/* The release-eager pool of page-locked memory, on plain numbers: its rounding, its reserved bytes
 * at the peak of random churn, its number of backend calls. A steady program makes no calls, and a
 * refused request has freed nothing. */
#include <math.h>

#include "tests/unit/alloc/fake.h"

static fy__pool_t *eager_pool(uint64_t limit_nbytes)
{
    fy__pool_t *pool;
    fake.release_eagerly = true;
    ts_ok(fake_try_pool(limit_nbytes, 2 * MIB, 64, &pool));
    fake.lock_free = pool;
    return pool;
}

static fy__block_t *take_at(fy__pool_t *pool, uint64_t nbytes)
{
    fy__block_t *block;
    ts_ok(fy__pool_alloc(pool, nbytes, 0, &block));
    return block;
}

/* ---- rounding ---- */

TS_TEST(rounding)
{
    fy__pool_t *pool = eager_pool(FY_UNLIMITED);
    double sum = 0, worst = 0;
    uint64_t count = 0, random = 88172645463325252u;
    for (uint64_t octave = 4096; octave <= 1ull << 32; octave *= 2)
        /* just above each power of two, where rounding to powers of two wastes half, and random
         * sizes */
        for (int i = 0; i < 200; i++) {
            const uint64_t nbytes = octave +
                                    (i < 100 ? (uint64_t)i : fake_random(&random) % octave);
            fy__block_t *block = take_at(pool, nbytes);
            const double waste = (double)(block->nbytes - nbytes) / (double)nbytes;
            sum += waste;
            count++;
            if (waste > worst) worst = waste;
            give_done(block);
        }
    print_message("rounding from 4 KiB to 8 GiB: mean %.3f %%, worst %.3f %%\n",
                  100 * sum / (double)count, 100 * worst);
    assert_true(worst <= 0.125);
    assert_true(sum / (double)count <= 0.10);
    assert_true(worst < 64.0 / 4096); /* the real bound: less than a granule */
    fake_end(pool);
}

/* ---- churn ---- */

typedef struct churn {
    const char *name;
    uint64_t (*draw)(uint64_t random);
} churn_t;

static uint64_t uniform(uint64_t random, uint64_t least, uint64_t most)
{
    return least + random % (most - least + 1);
}
static uint64_t batches(uint64_t random) { return uniform(random, 4 * KIB, 16 * MIB); }
static uint64_t small(uint64_t random) { return uniform(random, 4 * KIB, 256 * KIB); }
static uint64_t large(uint64_t random) { return uniform(random, MIB, 256 * MIB); }
static uint64_t past_power(uint64_t random) { return (1ull << uniform(random, 12, 22)) + 1; }
static uint64_t past_large_power(uint64_t random) { return (1ull << uniform(random, 12, 26)) + 1; }

/* The bytes that powers of two would hold for one block, without fragmentation. */
static uint64_t power_of_two(uint64_t nbytes)
{
    uint64_t step = 1;
    while (step < nbytes) step *= 2;
    return step;
}

TS_TEST(random_churn)
{
    static const churn_t churns[] = { { "uniform to 256 KiB", small },
                                      { "uniform to 16 MiB", batches },
                                      { "uniform to 256 MiB", large },
                                      { "a power of two to 4 MiB, + 1", past_power },
                                      { "a power of two to 64 MiB, + 1", past_large_power } };
    for (size_t c = 0; c < sizeof churns / sizeof *churns; c++) {
        double worst = 0, worst_power = 0; /* registered / peak */
        uint64_t calls = 0;
        for (uint64_t seed = 1; seed <= 4; seed++) {
            static fy__block_t *blocks[500];
            uint64_t random = seed * 88172645463325252u, requested = 0, peak = 0, held = 0,
                     held_most = 0;
            fake_reset();
            fy__pool_t *pool = eager_pool(FY_UNLIMITED);
            memset(blocks, 0, sizeof blocks);
            for (int i = 0; i < 20000; i++) {
                fy__block_t **at = &blocks[fake_random(&random) % 500];
                if (*at) {
                    requested -= (*at)->requested;
                    held -= power_of_two((*at)->requested);
                    give_done(*at);
                    *at = NULL;
                    if (fake_random(&random) % 4 == 0) continue;
                }
                *at = take_at(pool, churns[c].draw(fake_random(&random) >> 3));
                requested += (*at)->requested;
                if (requested > peak) peak = requested;
                held += power_of_two((*at)->requested);
                if (held > held_most) held_most = held;
            }
            calls += query(pool).device_allocs;
            worst = fmax(worst, (double)query(pool).peak_reserved / (double)peak);
            worst_power = fmax(worst_power, (double)held_most / (double)peak);
            for (int i = 0; i < 500; i++)
                if (blocks[i]) give_done(blocks[i]);
            fake_end(pool);
        }
        print_message("%s: registered / peak %.3f, by powers of two %.3f; %llu calls in 80000 "
                      "requests\n",
                      churns[c].name, worst, worst_power, (unsigned long long)calls);
        assert_true(worst <= 1.20);
        assert_true(worst < worst_power);
    }
}

/* ---- a steady program ---- */

TS_TEST(a_steady_program_makes_no_backend_call)
{
    fy__pool_t *pool = eager_pool(FY_UNLIMITED);
    uint64_t calls = 0;
    /* Long-lived blocks between short-lived ones, of sizes that do not fit each other. */
    for (int step = 0; step < 50; step++) {
        fy__block_t *blocks[12];
        for (int i = 0; i < 12; i++) blocks[i] = take_at(pool, (uint64_t)(i * 5 % 12 + 1) * 777777);
        for (int i = 0; i < 12; i += 2) give_done(blocks[i]);
        fy__block_t *whole = take_at(pool, 11 * MIB);
        for (int i = 1; i < 12; i += 2) give_done(blocks[i]);
        give_done(whole);
        if (step == 30) calls = fake.alloc_calls + fake.free_calls;
    }
    assert_int_equal(fake.alloc_calls + fake.free_calls, calls);
    fake_end(pool);
}

/* The freed segments are smaller than the ones that replace them, so releases end, even where
 * almost no block fits. */
TS_TEST(eager_release_is_rare)
{
    enum { LIVE = 4 };
    fy__pool_t *pool = eager_pool(FY_UNLIMITED);
    fy__block_t *blocks[LIVE] = { NULL };
    uint64_t random = 88172645463325252u;
    /* Few and large blocks, so that almost no block fits in the place of another. */
    for (int i = 0; i < 300000; i++) {
        fy__block_t **at = &blocks[fake_random(&random) % LIVE];
        if (*at) give_done(*at);
        *at = take_at(pool, fake_random(&random) % 3 ? large(fake_random(&random) >> 3)
                                                     : small(fake_random(&random) >> 3));
    }
    print_message("%llu segments released in 300000 requests\n",
                  (unsigned long long)stats(pool).released);
    assert_true(stats(pool).released < 100);
    for (int i = 0; i < LIVE; i++) give_done(blocks[i]);
    fake_end(pool);
}

/* ---- released segments ---- */

TS_TEST(idle_segments_are_released_before_the_peak_rises)
{
    fy__pool_t *pool = eager_pool(FY_UNLIMITED);
    give_done(take_at(pool, 100 * MIB));
    give_done(take_at(pool, 120 * MIB));
    assert_int_equal(query(pool).peak_reserved, 120 * MIB); /* not 220 MiB */
    fy__block_t *part =
        take_at(pool, 3 * MIB); /* cut from the idle segment, although it is large */
    assert_int_equal(query(pool).reserved, 120 * MIB);
    fake_end_with(pool, part);
}

TS_TEST(a_refused_request_releases_nothing)
{
    fy__pool_t *pool = eager_pool(FY_UNLIMITED);
    fy__block_t *block;
    give_done(take_at(pool, 100 * MIB));
    fake.guard_growth = true;
    ts_fails(fy__pool_alloc(pool, 120 * MIB, 0, &block), REFUSED_BY_GUARD);
    assert_int_equal(query(pool).reserved, 100 * MIB);
    block = take_at(pool, 90 * MIB); /* the idle segment still serves */
    fake_end_with(pool, block);
}

TS_TEST(steps_are_bounded)
{
    fy__pool_t *pool = eager_pool(FY_UNLIMITED);
    static fy__block_t *blocks[6000];
    for (int i = 0; i < 6000; i++) {
        const uint64_t before = query(pool).reserved;
        blocks[i] = take_at(pool, 200 * KIB);
        const uint64_t step = query(pool).reserved - before;
        assert_true(step <= (before / 8 > 2 * MIB ? before / 8 : 2 * MIB));
    }
    assert_true(fake.alloc_calls < 200); /* 1.1 GiB in slabs of 2 MiB would be 600 */
    for (int i = 0; i < 6000; i++) give_done(blocks[i]);
    fake_end(pool);
}

TS_SUITE(.set_up = fake_set_up);
