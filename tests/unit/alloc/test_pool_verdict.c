/* The verdict: reason, figures and text for each way to run out of memory. Every number in the text
 * is checked, and every hint is followed and must help. */
#include "tests/unit/alloc/fake.h"

enum { S1 = 1, S2 = 2 };

static const fy_oom_verdict_t *refused(fy__pool_t *pool, uint64_t nbytes, uint32_t stream)
{
    fy__block_t *block = (fy__block_t *)&fake;
    ts_fails(fy__pool_alloc(pool, nbytes, stream, &block), OUT_OF_MEMORY);
    assert_null(block);
    const fy_oom_verdict_t *verdict = fy_error_get()->oom;
    assert_non_null(verdict);
    assert_int_equal(verdict->struct_size, sizeof *verdict);
    assert_int_equal(verdict->status, FY_STATUS_OUT_OF_MEMORY);
    assert_int_equal(verdict->asked, nbytes);
    assert_int_equal(verdict->reserved, verdict->live + verdict->cached);
    /* The record holds half of the full text; the hint is in that half. */
    const size_t room = sizeof fy_error_get()->text - 1, kept = strlen(fy_error_get()->text);
    assert_int_equal(kept, strlen(verdict->text) < room ? strlen(verdict->text) : room);
    assert_memory_equal(fy_error_get()->text, verdict->text, kept);
    if (strstr(verdict->text, "Would help")) ts_text_has("Would help");
    return verdict;
}

static void says(const fy_oom_verdict_t *verdict, const char *text)
{
    if (strcmp(verdict->text, text) != 0)
        print_error("said:\n%s\nwant:\n%s\n", verdict->text, text);
    assert_string_equal(verdict->text, text);
}

TS_TEST(limit)
{
    fy__pool_t *pool = fake_pool(4 * MIB, 2 * MIB);
    fy__block_t *a = take(pool, 2 * MIB, S1), *b = take(pool, MIB, S1), *c;
    const fy_oom_verdict_t *verdict = refused(pool, 2 * MIB - 100, S1);
    assert_int_equal(verdict->reason, FY_OOM_LIMIT);
    assert_int_equal(verdict->live, 3 * MIB);
    assert_int_equal(verdict->limit, 4 * MIB);
    assert_int_equal(verdict->would_help, MIB);
    assert_int_equal(verdict->tried, FY_OOM_TRIED_SEARCH | FY_OOM_TRIED_GROW);
    says(
        verdict,
        "dev:0: 2097052 bytes asked for (2.0 MiB, 2097152 as rounded): more than the limit leaves\n"
        "  limit 4194304 (4.0 MiB), reserved 4194304 = live 3145728 (3.0 MiB, peak 3145728) + "
        "cached 1048576 (of it pending 0); "
        "largest free block 1048576, fragmentation 0 %\n"
        "  Would help: free 1048576 live bytes (1.0 MiB, adjacent, in one segment), or a "
        "limit higher by 2097152 bytes\n"
        "  tried: search, grow\n"
        "  live by category: activations 3.0 MiB");
    give_done(b); /* the hint is true */
    c = take(pool, 2 * MIB - 100, S1);
    fake_end_with(pool, a, c);
}

/* If a whole segment of another size is freed, the pool can release it and grow. */
TS_TEST(limit_with_segments_too_small)
{
    fy__pool_t *pool = fake_pool(9 * MIB, 64 * KIB);
    fy__block_t *a = take(pool, 2 * MIB, S1), *b = take(pool, 4 * MIB, S1),
                *c = take(pool, 3 * MIB, S1);
    const fy_oom_verdict_t *verdict = refused(pool, 5 * MIB, S1);
    assert_int_equal(verdict->reason, FY_OOM_LIMIT);
    assert_int_equal(verdict->largest_free, 0);
    assert_int_equal(verdict->would_help,
                     9 * MIB); /* no single segment is enough: all of them are */
    says(verdict, "dev:0: 5242880 bytes asked for (5.0 MiB): more than the limit leaves\n"
                  "  limit 9437184 (9.0 MiB), reserved 9437184 = live 9437184 (9.0 MiB, peak "
                  "9437184) + cached 0 (of it pending 0)\n"
                  "  Would help: free 9437184 live bytes (9.0 MiB, all there are), or a limit "
                  "higher by 5242880 bytes\n"
                  "  tried: search, grow\n"
                  "  live by category: activations 9.0 MiB");
    verdict = refused(pool, 2 * MIB + 1, S1);
    assert_int_equal(verdict->would_help, 2 * MIB + 256 <= 3 * MIB ? 3 * MIB : 0);
    give_done(c);
    c = take(pool, 2 * MIB + 1, S1);
    fake_end_with(pool, a, b, c);
}

TS_TEST(above_the_limit_whatever_is_freed)
{
    fy__pool_t *pool = fake_pool(4 * MIB, MIB);
    const fy_oom_verdict_t *verdict = refused(pool, 5 * MIB, S1);
    assert_int_equal(verdict->reason, FY_OOM_LIMIT);
    assert_int_equal(verdict->would_help, 0);
    assert_int_equal(fake.alloc_calls, 0);
    assert_int_equal(verdict->tried, 0);
    says(verdict,
         "dev:0: 5242880 bytes asked for (5.0 MiB): more than the limit leaves\n"
         "  limit 4194304 (4.0 MiB), reserved 0 = live 0 (peak 0) + cached 0 (of it pending 0)\n"
         "  Would help: a limit of at least 5242880 bytes");
    fake_end(pool);
}

TS_TEST(too_large)
{
    fake.capacity = 4 * MIB;
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    const fy_oom_verdict_t *verdict = refused(pool, 5 * MIB, S1);
    assert_int_equal(verdict->reason, FY_OOM_TOO_LARGE);
    assert_int_equal(verdict->would_help, 0);
    assert_int_equal(fake.alloc_calls, 0);
    says(verdict,
         "dev:0: 5242880 bytes asked for (5.0 MiB): more than the 4194304 bytes the device has\n"
         "  no limit, reserved 0 = live 0 (peak 0) + cached 0 (of it pending 0)\n"
         "  Freeing memory would not help: ask for less");
    assert_int_equal(refused(pool, UINT64_MAX, S1)->reason, FY_OOM_TOO_LARGE);
    assert_int_equal(refused(pool, UINT64_MAX - 300, S1)->reason, FY_OOM_TOO_LARGE);
    fake_end(pool);
    /* the size of the device is unknown, and rounding this size up overflows */
    fake.capacity = UINT64_MAX;
    pool = fake_pool(FY_UNLIMITED, MIB);
    const fy_oom_verdict_t *verdict_unknown = refused(pool, UINT64_MAX, S1);
    assert_int_equal(verdict_unknown->reason, FY_OOM_TOO_LARGE);
    assert_non_null(strstr(verdict_unknown->text, "dev:0: 18446744073709551615 bytes asked for "
                                                  "(16.0 EiB): more than an address space has\n"));
    assert_int_equal(fake.alloc_calls, 0);
    fake_end(pool);
}

TS_TEST(device_full)
{
    fake.capacity = 4 * MIB;
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    fy__block_t *a = take(pool, 2 * MIB, S1), *b = take(pool, 2 * MIB, S1);
    const fy_oom_verdict_t *verdict = refused(pool, MIB, S1);
    assert_int_equal(verdict->reason, FY_OOM_DEVICE_FULL);
    assert_int_equal(verdict->limit, FY_UNLIMITED);
    assert_int_equal(verdict->would_help, 2 * MIB);
    says(verdict, "dev:0: 1048576 bytes asked for (1.0 MiB): the device has no more\n"
                  "  no limit, reserved 4194304 = live 4194304 (4.0 MiB, peak 4194304) + cached 0 "
                  "(of it pending 0)\n"
                  "  Would help: free 2097152 live bytes (2.0 MiB, adjacent, in one segment)\n"
                  "  tried: search, grow\n"
                  "  live by category: activations 4.0 MiB");
    fake_end_with(pool, a, b);
}

TS_TEST(fragmented)
{
    fy__pool_t *pool = fake_pool(MIB, MIB);
    fy__block_t *b[16];
    for (int i = 0; i < 16; i++)
        b[i] = take(pool, i == 5 ? 32 * KIB : 66 * KIB - 256 * (i == 6), S1);
    for (int i = 0; i < 16; i += 2) give_done(b[i]);
    const fy_memory_stats_t stats = query(pool);
    const fy_oom_verdict_t *verdict = refused(pool, 150 * KIB, S1);
    assert_int_equal(verdict->reason, FY_OOM_FRAGMENTED);
    assert_int_equal(verdict->largest_free, 66 * KIB);
    assert_int_equal(verdict->cached, stats.cached);
    assert_int_equal(verdict->would_help, 32 * KIB); /* the small block between two free ones */
    assert_non_null(strstr(verdict->text, ": enough is free, but not in one piece\n"));
    assert_non_null(strstr(verdict->text, "largest free block 67584, fragmentation 88 %\n"));
    assert_non_null(strstr(
        verdict->text, "Would help: free 32768 live bytes (32.0 KiB, adjacent, in one segment)"));
    give_done(b[5]);
    give_done(take(pool, 150 * KIB, S1));
    for (int i = 1; i < 16; i += 2)
        if (i != 5) give_done(b[i]);
    fake_end(pool);
}

TS_TEST(would_fit_after_sync)
{
    fy__pool_t *pool = fake_pool(4 * MIB, MIB);
    fy__block_t *a = take(pool, 2 * MIB, S1), *b = take(pool, 2 * MIB, S1);
    give(a, S2, 5);
    give(b, S2, 6);
    fake.guard_sync = true;
    const fy_oom_verdict_t *verdict = refused(pool, 3 * MIB, S1);
    assert_int_equal(verdict->reason, FY_OOM_WOULD_FIT_AFTER_SYNC);
    assert_int_equal(verdict->pending, 4 * MIB);
    assert_int_equal(verdict->would_help, 0);
    assert_int_equal(fake.waits, 0);
    says(verdict, "dev:0: 3145728 bytes asked for (3.0 MiB)\n"
                  "  limit 4194304 (4.0 MiB), reserved 4194304 = live 0 (peak 4194304) + cached "
                  "4194304 (of it pending 4194304); "
                  "largest free block 2097152, fragmentation 50 %\n"
                  "  It would fit after a sync: wait for the device first\n"
                  "  tried: search, grow; not tried: a guard forbids to wait for pending blocks");
    fake.guard_sync = false; /* and it does help */
    give_done(take(pool, 3 * MIB, S1));
    fake_end(pool);
}

/* The guard forbids a sync, but no sync would help: the verdict does not suggest one (hints must be
 * true: pytorch#173049). */
TS_TEST(no_false_hint_of_a_sync)
{
    fy__pool_t *pool = fake_pool(4 * MIB, MIB);
    fy__block_t *a = take(pool, 2 * MIB, S1), *b = take(pool, 2 * MIB, S1);
    give(b, S2, 6);
    fake.guard_sync = true;
    const fy_oom_verdict_t *verdict = refused(pool, 3 * MIB, S1);
    assert_int_equal(verdict->reason, FY_OOM_LIMIT);
    assert_null(strstr(verdict->text, "after a sync"));
    assert_int_equal(verdict->would_help, 2 * MIB);
    fake_end_with(pool, a);
}

TS_TEST(says_what_was_tried)
{
    fy__pool_t *pool = fake_pool(8 * MIB, MIB);
    fy__block_t *a = take(pool, 2 * MIB, S1), *b = take(pool, 2 * MIB, S1),
                *c = take(pool, 2 * MIB, S1);
    give_done(a);
    give(b, S2, 6);
    const fy_oom_verdict_t *verdict = refused(pool, 7 * MIB, S1);
    assert_int_equal(verdict->reason, FY_OOM_LIMIT);
    assert_int_equal(verdict->tried, FY_OOM_TRIED_SEARCH | FY_OOM_TRIED_GROW |
                                         FY_OOM_TRIED_RELEASE | FY_OOM_TRIED_SYNC);
    assert_non_null(strstr(verdict->text, "\n  tried: search, grow, release 4194304 idle bytes, "
                                          "wait for pending blocks and search again\n"));
    fake_end_with(pool, c);
}

TS_TEST(pinned_pools_fail_with_their_own_status)
{
    fy__pool_t *pool;
    fy__block_t *block;
    fake.name = "pinned memory of sim:0";
    fake.full_status = FY_STATUS_PINNED_LIMIT;
    ts_ok(fake_try_pool(MIB, MIB, 64, &pool));
    ts_fails(fy__pool_alloc(pool, 2 * MIB, S1, &block), PINNED_LIMIT);
    assert_int_equal(fy_error_get()->oom->status, FY_STATUS_PINNED_LIMIT);
    assert_int_equal(strncmp(fy_error_get()->text, "pinned memory of sim:0: 2097152 bytes", 37), 0);
    fake_end(pool);
}

/* Numbers of maximal length must not be truncated. */
TS_TEST(the_text_fits_the_record)
{
    const uint64_t huge = 1ull << 62;
    fy__pool_t *pool = fake_pool(huge + 3 * MIB, MIB);
    fy__block_t *a = take(pool, huge / 2, S1), *b = take(pool, huge / 2, S1);
    give(a, S2, 1);
    fake.fail_alloc_from = 1;
    fake.fail_alloc_until = 1000;
    const fy_oom_verdict_t *verdict = refused(pool, huge - 1, S1);
    assert_true(strlen(verdict->text) < sizeof verdict->text - 1);
    ts_text_has("Would help");
    ts_text_has(" live bytes (");
    fake_end_with(pool, b);
}

/* A limit above the device's memory would not help: the verdict does not suggest it. */
TS_TEST(no_false_hint_of_a_limit)
{
    fake.capacity = 4 * MIB;
    fy__pool_t *pool = fake_pool(3 * MIB, MIB);
    fy__block_t *a = take(pool, 2 * MIB, S1);
    assert_non_null(strstr(refused(pool, 2 * MIB, S1)->text, "or a limit higher by 1048576 bytes"));
    const fy_oom_verdict_t *verdict = refused(pool, 2 * MIB + 1, S1);
    assert_int_equal(verdict->would_help, 2 * MIB);
    assert_null(strstr(verdict->text, "a limit higher"));
    fake_end_with(pool, a);
}

static fy_oom_verdict_t longest;

static void long_names(void *user, fy_oom_verdict_t *verdict)
{
    (void)user;
    for (int i = 0; i < FY_OOM_TOP; i++) {
        memset(verdict->top[i].path, 'a' + i, sizeof verdict->top[i].path - 1);
        verdict->top[i].live = UINT64_MAX - (uint64_t)i;
    }
}

/* Scopes with the longest names, every category, and numbers of maximal length: no part is
 * truncated, and the record keeps its half. */
TS_TEST(the_longest_text_fits)
{
    const uint64_t huge = 1ull << 61;
    char name[64];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    fake.name = name;
    fake.top_scopes = long_names;
    fy__pool_t *pool = fake_pool((1ull << 63) - 1, MIB);
    fy__block_t *blocks[FY_CATEGORY_COUNT], *none;
    for (int i = 0; i < FY_CATEGORY_COUNT; i++)
        ts_ok(fy__pool_alloc_tagged(pool, huge / 4 - (uint64_t)i * 256, S1,
                                    (fy__tag_t){ (fy_category_t)i, NULL }, &blocks[i]));
    ts_fails(fy__pool_alloc(pool, 3 * huge + 1, S1, &none), OUT_OF_MEMORY);
    longest = *fy_error_get()->oom;
    assert_true(strlen(longest.text) < sizeof longest.text - 1);
    assert_non_null(strstr(longest.text, "live by category: activations "));
    assert_non_null(strstr(longest.text, ", staging "));
    ts_text_has("Would help: ");
    ts_text_has("a limit higher by ");
    for (int i = 0; i < FY_CATEGORY_COUNT; i++) give_done(blocks[i]);
    fake_end(pool);
}

TS_SUITE(.set_up = fake_set_up);
