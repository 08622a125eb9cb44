/* Reclaim callbacks, fy_memory_reserve and growth=off, in a pool without a device: when the
 * callbacks run, how their freed blocks are found, which stage counts, and the texts of refusals.
 * The public calls are in tests/conformance/test_pressure.c. */
#include "tests/unit/alloc/fake.h"

enum { S1 = 1, S2 = 2 };

static fy__pool_t *pool;
static fy__block_t *kept[8];

static int setup(void **state)
{
    (void)state;
    fake_reset();
    memset(kept, 0, sizeof kept);
    return 0;
}

static bool nothing(uint64_t nbytes)
{
    (void)nbytes;
    return false;
}

/* Frees kept[0], whose work is done. */
static bool give_first(uint64_t nbytes)
{
    (void)nbytes;
    if (!kept[0]) return false;
    give_done(kept[0]);
    kept[0] = NULL;
    return true;
}

/* Frees kept[1], in use on another stream. */
static bool give_second_pending(uint64_t nbytes)
{
    (void)nbytes;
    if (!kept[1]) return false;
    give(kept[1], S2, 9);
    kept[1] = NULL;
    return true;
}

static bool give_both(uint64_t nbytes)
{
    const bool first = give_first(nbytes), second = give_second_pending(nbytes);
    return first || second;
}

static bool trims(uint64_t nbytes) { return nbytes && fy__pool_trim(pool, 0) > 0; }

/* Frees memory that another library held. */
static bool device_gets_room(uint64_t nbytes)
{
    fake.capacity += nbytes;
    return true;
}

static fy_status_t refused(uint64_t nbytes, uint32_t stream)
{
    fy__block_t *block = (fy__block_t *)&fake;
    const fy_status_t status = fy__pool_alloc(pool, nbytes, stream, &block);
    assert_null(block);
    assert_true(status != FY_STATUS_OK);
    return status;
}

TS_TEST(callbacks_run_when_the_limit_is_reached)
{
    pool = fake_pool(MIB, MIB);
    fake.reclaim[0] = nothing;
    fake.reclaim[1] = give_first;
    fake.reclaim[2] = nothing;
    kept[0] = take(pool, 512 * KIB, S1);
    kept[1] = take(pool, 512 * KIB, S1);
    assert_int_equal(fake.pressed[0] + fake.pressed[1], 0);
    fy__block_t *block = take(pool, 500 * KIB, S1);
    assert_int_equal(fake.pressed[0], 1);
    assert_int_equal(fake.pressed[1], 1);
    assert_int_equal(fake.pressed[2], 0); /* not called: the previous one was enough */
    const fy_memory_alloc_stats_t r = stats(pool);
    assert_int_equal(r.after_pressure, 1);
    assert_int_equal(r.ready, 1);
    assert_int_equal(served(pool), 3);
    assert_int_equal(r.syncs, 0);
    fake_end_with(pool, block, kept[1]);
}

/* A pending block that a callback freed is taken with a wait on the device, not on the host. */
TS_TEST(a_freed_block_may_be_pending)
{
    pool = fake_pool(MIB, MIB);
    fake.reclaim[0] = give_second_pending;
    kept[1] = take(pool, MIB, S1);
    fy__block_t *block = take(pool, MIB, S1);
    assert_int_equal(fake_word(&block->hazard, 0), FY__POINT(S2, 9));
    assert_int_equal(stats(pool).after_pressure, 1);
    assert_int_equal(stats(pool).inserted_wait, 0);
    assert_int_equal(fake.waits, 0);
    kept[1] = block;
    block = take(pool, MIB, 0); /* for the host: after a wait, so that stage counts */
    assert_int_equal(fake.pressed[0], 2);
    assert_int_equal(stats(pool).after_sync, 1);
    assert_int_equal(served(pool), 3);
    fake_end_with(pool, block);
}

/* Neighbouring blocks from two callbacks join into the block that neither freed alone. */
TS_TEST(callbacks_run_in_order)
{
    pool = fake_pool(MIB, MIB);
    fake.reclaim[0] = give_first;
    fake.reclaim[1] = give_second_pending;
    kept[0] = take(pool, 512 * KIB, S1);
    kept[1] = take(pool, 512 * KIB, S1);
    fy__block_t *block = take(pool, MIB, S1);
    assert_int_equal(stats(pool).after_pressure, 1);
    assert_int_equal(served(pool), 3);
    fake_end_with(pool, block);
}

/* Idle segments are freed only if the callbacks were not enough. */
TS_TEST(callbacks_run_before_segments_are_freed)
{
    pool = fake_pool(8 * MIB, MIB);
    fake.reclaim[0] = give_both;
    kept[0] = take(pool, 5 * MIB, S1);
    give_done(take(pool, 3 * MIB, S1));
    fy__block_t *block = take(pool, 5 * MIB, S1);
    assert_int_equal(stats(pool).after_pressure, 1);
    assert_int_equal(fake.free_calls, 0);
    kept[0] = block;
    /* the block that it frees is too small, but it completes an idle segment */
    block = take(pool, 6 * MIB, S1);
    assert_int_equal(stats(pool).grown_after_trim, 1);
    assert_int_equal(stats(pool).after_pressure, 1);
    assert_int_equal(served(pool), 4);
    fake_end_with(pool, block);
}

/* A callback may free memory on the device itself. */
TS_TEST(growth_is_tried_again_after_callbacks)
{
    fake.capacity = 2 * MIB;
    pool = fake_pool(FY_UNLIMITED, MIB);
    pool->options.device_nbytes = FY_UNLIMITED;
    fake.reclaim[0] = device_gets_room;
    fy__block_t *a = take(pool, 2 * MIB, S1), *b = take(pool, 2 * MIB, S1);
    assert_int_equal(stats(pool).after_pressure, 1);
    assert_int_equal(stats(pool).grown, 1);
    assert_int_equal(fake.alloc_calls, 3);
    fake_end_with(pool, a, b);
    fake_reset();
    pool = fake_pool(4 * MIB, MIB); /* by calling trim */
    fake.reclaim[0] = trims;
    give_done(take(pool, 3 * MIB, S1));
    give_done(take(pool, 4 * MIB, S1));
    assert_int_equal(stats(pool).after_pressure, 1);
    assert_int_equal(served(pool), 2);
    fake_end(pool);
}

TS_TEST(callbacks_do_not_run_for_impossible_requests)
{
    pool = fake_pool(MIB, MIB);
    fake.reclaim[0] = give_first;
    kept[0] = take(pool, MIB, S1);
    /* above the limit, whatever is freed */
    assert_int_equal(refused(2 * MIB, S1), FY_STATUS_OUT_OF_MEMORY);
    assert_int_equal(fake.pressed[0], 0);
    give_first(0);
    fake_end(pool);
}

/* A guard forbids growth; stages without growth are tried. */
TS_TEST(callbacks_run_under_a_guard)
{
    pool = fake_pool(FY_UNLIMITED, MIB);
    kept[0] = take(pool, MIB, S1);
    fake.guard_growth = true;
    fake.reclaim[0] = give_first;
    fy__block_t *block = take(pool, MIB, S1);
    assert_int_equal(stats(pool).after_pressure, 1);
    assert_int_equal(refused(MIB, S1), FY_STATUS_REFUSED_BY_GUARD);
    assert_string_equal(fy_error_get()->text, "the guard of 'step' allows 0 device allocations");
    assert_int_equal(fake.pressed[0], 2);
    fake_end_with(pool, block);
}

TS_TEST(the_verdict_reports_the_callbacks)
{
    pool = fake_pool(MIB, MIB);
    fake.reclaim[0] = nothing;
    kept[0] = take(pool, 256 * KIB, S1);
    kept[1] = take(pool, 768 * KIB, S1);
    assert_int_equal(refused(512 * KIB, S1), FY_STATUS_OUT_OF_MEMORY);
    ts_text_has("tried: search, grow\n");
    fake.reclaim[0] = give_first;
    assert_int_equal(refused(512 * KIB, S1), FY_STATUS_OUT_OF_MEMORY);
    ts_text_has("tried: search, grow, reclaim callbacks");
    fake_end_with(pool, kept[1]);
}

/* ---- reserve, growth=off ---- */

TS_TEST(reserve_grows_once_by_what_is_missing)
{
    pool = fake_pool(FY_UNLIMITED, MIB);
    ts_ok(fy__pool_reserve(pool, 0));
    assert_int_equal(fake.alloc_calls, 0);
    ts_ok(fy__pool_reserve(pool, 3 * MIB + 1));
    assert_int_equal(query(pool).reserved, 3 * MIB + 256);
    ts_ok(fy__pool_reserve(pool, 3 * MIB));
    assert_int_equal(fake.alloc_calls, 1);
    /* either kind of block may be cut from it */
    fy__block_t *small = take(pool, KIB, S1), *large = take(pool, 2 * MIB, S1);
    assert_int_equal(fake.alloc_calls, 1);
    ts_ok(fy__pool_reserve(pool, 10 * MIB));
    assert_int_equal(query(pool).reserved, 10 * MIB);
    assert_int_equal(fake.alloc_calls, 2);
    assert_int_equal(stats(pool).grown, 0); /* the reservation served no request */
    assert_int_equal(served(pool), 2);
    give_done(small);
    give_done(large);
    assert_int_equal(fy__pool_trim(pool, 0), 10 * MIB);
    fake_end(pool);
}

TS_TEST(reserve_that_is_refused_takes_nothing)
{
    fake.capacity = 8 * MIB;
    pool = fake_pool(4 * MIB, MIB);
    fy__block_t *block = take(pool, MIB, S1);
    ts_fails(fy__pool_reserve(pool, 4 * MIB + 1), OUT_OF_MEMORY);
    const fy_oom_verdict_t *verdict = fy_error_get()->oom;
    assert_non_null(verdict);
    assert_int_equal(verdict->reason, FY_OOM_LIMIT);
    assert_int_equal(verdict->would_help, 0);
    assert_non_null(strstr(verdict->text, "besides the 1048576 that are reserved"));
    assert_non_null(strstr(verdict->text, "a limit of at least 4194560 bytes"));
    ts_fails(fy__pool_reserve(pool, UINT64_MAX), OUT_OF_MEMORY);
    assert_int_equal(fy_error_get()->oom->reason, FY_OOM_TOO_LARGE);
    ts_fails(fy__pool_reserve(pool, 8 * MIB + 1), OUT_OF_MEMORY);
    assert_int_equal(fy_error_get()->oom->reason, FY_OOM_TOO_LARGE);
    assert_int_equal(fake.alloc_calls, 1);
    fake.capacity = MIB; /* other processes have the rest */
    ts_fails(fy__pool_reserve(pool, 2 * MIB), OUT_OF_MEMORY);
    assert_int_equal(fy_error_get()->oom->reason, FY_OOM_DEVICE_FULL);
    fake.guard_growth = true;
    ts_fails(fy__pool_reserve(pool, 2 * MIB), REFUSED_BY_GUARD);
    assert_string_equal(fy_error_get()->text, "the guard of 'step' allows 0 device allocations");
    fake.guard_growth = false;
    fake.capacity = 8 * MIB;
    fake.fail_meta_from = 1;
    fake.fail_meta_until = UINT64_MAX;
    /* until bookkeeping memory is exhausted */
    while (fy__pool_reserve(pool, query(pool).reserved + 256) == FY_STATUS_OK) {}
    ts_text_has("bookkeeping");
    assert_int_equal(query(pool).reserved, fake.used);
    fake.fail_meta_from = 0;
    fake_end_with(pool, block);
}

TS_TEST(growth_off_refuses_and_the_hint_is_true)
{
    fake.growth_off = true;
    pool = fake_pool(4 * MIB, MIB);
    assert_int_equal(refused(MIB - 1, S1), FY_STATUS_OUT_OF_MEMORY);
    const fy_oom_verdict_t *verdict = fy_error_get()->oom;
    assert_int_equal(verdict->reason, FY_OOM_GROWTH_OFF);
    assert_int_equal(verdict->would_help, 0);
    assert_non_null(
        strstr(verdict->text, "Would help: fy_memory_reserve 1048576 more (1048576 in all)"));
    assert_int_equal(fake.alloc_calls, 0);
    ts_ok(fy__pool_reserve(pool, MIB));
    fy__block_t *a = take(pool, MIB - 1, S1);
    assert_int_equal(refused(KIB, S1), FY_STATUS_OUT_OF_MEMORY);
    assert_int_equal(fy_error_get()->oom->would_help, MIB);
    ts_text_has("free 1048576 live bytes (1.0 MiB, adjacent, in one "
                "segment), or fy_memory_reserve 1024 more");
    ts_ok(fy__pool_reserve(pool, MIB + KIB));
    fy__block_t *b = take(pool, KIB, S1);
    give_done(a);
    /* the idle segment is not freed: that would not help */
    assert_int_equal(refused(2 * MIB, S1), FY_STATUS_OUT_OF_MEMORY);
    assert_int_equal(fake.free_calls, 0);
    /* reserving more would exceed the limit, so the hint does not say it */
    assert_int_equal(refused(4 * MIB, S1), FY_STATUS_OUT_OF_MEMORY);
    assert_null(strstr(fy_error_get()->text, "fy_memory_reserve"));
    assert_int_equal(fake.alloc_calls, 2);
    give(b, S2, 4); /* a sync is the hint when nothing else helps */
    fake.guard_sync = true;
    assert_int_equal(refused(MIB + KIB, 0), FY_STATUS_OUT_OF_MEMORY);
    /* two segments do not make one block */
    assert_int_equal(fy_error_get()->oom->reason, FY_OOM_GROWTH_OFF);
    a = take(pool, MIB, S1);
    assert_int_equal(refused(KIB, 0), FY_STATUS_OUT_OF_MEMORY);
    assert_int_equal(fy_error_get()->oom->reason, FY_OOM_WOULD_FIT_AFTER_SYNC);
    fake.guard_sync = false;
    b = take(pool, KIB, 0);
    assert_int_equal(stats(pool).after_sync, 1);
    fake_end_with(pool, a, b);
}

TS_SUITE(.set_up = setup);
