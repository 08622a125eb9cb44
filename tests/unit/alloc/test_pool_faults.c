/* Every fallible point of a pool fails once, and permanently: the N-th call of the source and the
 * N-th request for bookkeeping memory.
 * After each failure, figures and invariants hold, nothing leaked, and the pool still serves. */
#include "tests/unit/alloc/fake.h"

enum { BLOCKS = 120, STREAMS = 20 };

/* A sequence of requests with growth, splits, pending blocks of many streams, joins, waits and
 * trims. It counts refusals and continues after each. */
static int story(fy__pool_t *pool)
{
    static const uint64_t sizes[] = { 300,      70 * KIB, 4 * KIB, 900 * KIB,
                                      20 * KIB, 3 * MIB,  256,     150 * KIB };
    fy__block_t *blocks[BLOCKS];
    uint64_t sequence = 0;
    int refused = 0, count = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS && count < BLOCKS; i++) {
            const fy_status_t status = fy__pool_alloc(pool, sizes[(i + round) % 8] + (uint64_t)i,
                                                      1 + (uint32_t)i % 3, &blocks[count]);
            if (status == FY_STATUS_OK) {
                count++;
                continue;
            }
            assert_null(blocks[count]);
            assert_int_equal(status, fake.fail_status);
            if (status == FY_STATUS_OUT_OF_MEMORY) assert_non_null(fy_error_get()->oom);
            refused++;
        }
        assert_true(fy__pool_is_valid(pool));
        while (count > 10) {
            fy__block_t *block = blocks[--count];
            fy__hazard_clear(&block->hazard);
            if (count % 3)
                atomic_store(&block->hazard.writer, FY__POINT(1 + count % STREAMS, ++sequence));
            if (count % 3 == 2) atomic_store(&block->hazard.readers[2], FY__POINT(40, sequence));
            fy__pool_free(block);
        }
        assert_true(fy__pool_is_valid(pool));
        for (uint32_t s = 0; s < 50; s++) fake.done[s] = sequence / 2;
        fy__pool_trim(pool, 2 * MIB);
    }
    while (count) give_done(blocks[--count]);
    return refused;
}

/* Runs the sequence with call n failing (once, or from then on) until n is past its last call.
 * Returns the number of n that refused a request. */
static int sweep(uint64_t *from, uint64_t *until, const uint64_t *calls, bool for_ever,
                 uint64_t limit)
{
    int refusing = 0;
    for (uint64_t n = 1;; n++) {
        const fy_status_t fail_status = fake.fail_status;
        fake_reset();
        fake.fail_status = fail_status;
        *from = n;
        *until = for_ever ? UINT64_MAX : n + 1;
        fy__pool_t *pool;
        const fy_status_t status = fake_try_pool(limit, MIB, 256, &pool);
        if (status != FY_STATUS_OK) {
            assert_int_equal(status, FY_STATUS_OUT_OF_MEMORY);
            assert_null(pool);
            assert_int_equal(fake.meta_live, 0);
            continue;
        }
        const int refused = story(pool);
        refusing += refused != 0;
        const bool reached = *calls >= n;
        *from = 0; /* after the failures end, every request succeeds */
        assert_int_equal(story(pool), 0);
        fake_end(pool);
        if (!reached) return refusing;
        assert_true(n < 10000);
    }
}

TS_TEST(without_faults)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    assert_int_equal(story(pool), 0);
    assert_true(fake.alloc_calls > 10);
    fake_end(pool);
}

TS_TEST(source_fails_once)
{
    /* A smaller segment, freed idle segments or waited-for pending ones can absorb one refusal. */
    (void)sweep(&fake.fail_alloc_from, &fake.fail_alloc_until, &fake.alloc_calls, false,
                FY_UNLIMITED);
}

TS_TEST(source_fails_for_ever)
{
    assert_true(sweep(&fake.fail_alloc_from, &fake.fail_alloc_until, &fake.alloc_calls, true,
                      FY_UNLIMITED) > 0);
}

/* A failure that is not a lack of memory is returned unchanged, at once. */
TS_TEST(device_is_lost)
{
    fake.fail_status = FY_STATUS_DEVICE_LOST;
    assert_true(sweep(&fake.fail_alloc_from, &fake.fail_alloc_until, &fake.alloc_calls, true,
                      FY_UNLIMITED) > 0);
    fake_reset();
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    fy__block_t *block;
    fake.fail_status = FY_STATUS_DEVICE_LOST;
    fake.fail_alloc_from = 1;
    fake.fail_alloc_until = 2;
    ts_fails(fy__pool_alloc(pool, KIB, 1, &block), DEVICE_LOST);
    assert_string_equal(fy_error_get()->text, "call 1 fails as told");
    fake_end(pool);
}

TS_TEST(bookkeeping_fails_once)
{
    assert_true(sweep(&fake.fail_meta_from, &fake.fail_meta_until, &fake.meta_calls, false,
                      FY_UNLIMITED) > 0);
}

TS_TEST(bookkeeping_fails_for_ever)
{
    assert_true(sweep(&fake.fail_meta_from, &fake.fail_meta_until, &fake.meta_calls, true,
                      FY_UNLIMITED) > 0);
}

/* The verdict does not name the device as the cause, and has no hint. */
TS_TEST(bookkeeping_has_its_own_text)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    fy__block_t *block;
    fake.fail_meta_from = fake.meta_calls + 1;
    fake.fail_meta_until = UINT64_MAX;
    ts_fails(fy__pool_alloc(pool, KIB, 1, &block), OUT_OF_MEMORY);
    assert_string_equal(
        fy_error_get()->text,
        "dev:0: 1024 bytes asked for: the host has no memory for the pool's own bookkeeping\n"
        "  no limit, reserved 0 = live 0 (peak 0) + cached 0 (of it pending 0)");
    assert_int_equal(fy_error_get()->oom->would_help, 0);
    assert_int_equal(fake.alloc_calls, 0); /* the source is not called for an impossible request */
    fake_end(pool);
}

TS_TEST(bad_alignment_is_refused)
{
    fy__pool_t *pool;
    ts_fails(fake_try_pool(FY_UNLIMITED, MIB, 32, &pool), INTERNAL);
    ts_fails(fake_try_pool(FY_UNLIMITED, MIB, 96, &pool), INTERNAL);
    assert_null(pool);
}

TS_SUITE(.set_up = fake_set_up);
