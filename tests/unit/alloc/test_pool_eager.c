/* The release-eager pool of page-locked memory, on plain numbers: its rounding, its reserved bytes
 * at the peak of random churn, its number of backend calls. A steady program makes no calls, and a
 * refused request has freed nothing. */
#include "tests/unit/alloc/fake.h"

enum { PEERS = 3 };
static const char *const peer_names[PEERS] = { "ours", "powers of two",
                                               "jemalloc's size classes alone" };

static fy__pool_t *eager_pool(uint64_t limit_nbytes)
{
    fy__pool_t *pool;
    fake.release_eagerly = true;
    assert_int_equal(fake_try_pool(limit_nbytes, 2 * MIB, 64, &pool), FY_STATUS_OK);
    fake.lock_free = pool;
    return pool;
}

static fy__block_t *take_at(fy__pool_t *pool, uint64_t nbytes)
{
    fy__block_t *block;
    assert_int_equal(fy__pool_alloc(pool, nbytes, 0, &block), FY_STATUS_OK);
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
    int live;
    double most; /* registered / peak */
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

/* The bytes that these peers would hold for one block, without fragmentation: a lower bound in
 * their favour. */
static uint64_t peer_nbytes(int peer, uint64_t nbytes)
{
    uint64_t step = 1;
    while (step < nbytes) step *= 2;
    if (peer == 1) return step;
    step /= 8; /* jemalloc: four classes per doubling */
    return (nbytes + step - 1) / step * step;
}

TS_TEST(random_churn)
{
    static const churn_t churns[] = { { "uniform to 256 KiB", small, 500, 1.20 },
                                      { "uniform to 16 MiB", batches, 500, 1.20 },
                                      { "uniform to 256 MiB", large, 500, 1.20 },
                                      { "a power of two to 4 MiB, + 1", past_power, 500, 1.20 },
                                      { "a power of two to 64 MiB, + 1", past_large_power, 500,
                                        1.20 } };
    for (size_t c = 0; c < sizeof churns / sizeof *churns; c++) {
        double worst[PEERS] = { 0 };
        uint64_t calls = 0;
        for (uint64_t seed = 1; seed <= 4; seed++) {
            static fy__block_t *blocks[500];
            uint64_t random = seed * 88172645463325252u, requested = 0, peak = 0,
                     held[PEERS] = { 0 }, held_most[PEERS] = { 0 };
            fake_reset();
            fy__pool_t *pool = eager_pool(FY_UNLIMITED);
            memset(blocks, 0, sizeof blocks);
            for (int i = 0; i < 20000; i++) {
                fy__block_t **at = &blocks[fake_random(&random) % (uint64_t)churns[c].live];
                if (*at) {
                    requested -= (*at)->requested;
                    for (int peer = 1; peer < PEERS; peer++)
                        held[peer] -= peer_nbytes(peer, (*at)->requested);
                    give_done(*at);
                    *at = NULL;
                    if (fake_random(&random) % 4 == 0) continue;
                }
                *at = take_at(pool, churns[c].draw(fake_random(&random) >> 3));
                requested += (*at)->requested;
                if (requested > peak) peak = requested;
                for (int peer = 1; peer < PEERS; peer++) {
                    held[peer] += peer_nbytes(peer, (*at)->requested);
                    if (held[peer] > held_most[peer]) held_most[peer] = held[peer];
                }
            }
            held_most[0] = query(pool).peak_reserved;
            calls += query(pool).device_allocs;
            for (int peer = 0; peer < PEERS; peer++) {
                const double ratio = (double)held_most[peer] / (double)peak;
                if (ratio > worst[peer]) worst[peer] = ratio;
            }
            for (int i = 0; i < 500; i++)
                if (blocks[i]) give_done(blocks[i]);
            fake_end(pool);
        }
        print_message("%s, %d live: registered / peak", churns[c].name, churns[c].live);
        for (int peer = 0; peer < PEERS; peer++)
            print_message("%s %s %.3f", peer ? "," : "", peer_names[peer], worst[peer]);
        print_message("; %llu calls in 80000 requests\n", (unsigned long long)calls);
        assert_true(worst[0] <= churns[c].most);
        assert_true(worst[0] < worst[1]);
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
    assert_int_equal(fy__pool_alloc(pool, 120 * MIB, 0, &block), FY_STATUS_REFUSED_BY_GUARD);
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
