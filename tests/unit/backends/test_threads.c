/* The choice of threads: the model as a pure function, the variables as libgomp reads them,
 * settings, and that the requested number of threads works. */
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>

#include "backends/kernels/family.h"
#include "backends/kernels/team.h"
#include "tests/unit/backends/kernel_fixture.h"

/* ---- the model ---- */

TS_TEST(one_or_all_by_cost)
{
    static const struct {
        double work_us;
        int most, passive, active;
    } rows[] = {
        { 0, 2, 1, 1 },      { 3.1, 2, 1, 1 },                   /* 64 x 64 x 64 */
        { 7.9, 2, 1, 1 },    { 8.1, 2, 1, 2 }, { 25, 2, 1, 2 },  /* 128 x 128 x 128 */
        { 149, 2, 1, 2 },    { 151, 2, 2, 2 }, { 197, 2, 2, 2 }, /* 256 x 256 x 256 */
        { 1e6, 2, 2, 2 },    { 1e6, 1, 1, 1 }, { 7, 16, 1, 16 },     { 100, 16, 1, 16 },
        { 120, 16, 16, 16 }, { 120, 3, 3, 3 }, { 130, 128, 1, 128 }, { 340, 128, 128, 128 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        assert_int_equal(
            fy__threads_choose(1e3 * rows[i].work_us, rows[i].most, FY__WAITING_PASSIVE),
            rows[i].passive);
        assert_int_equal(
            fy__threads_choose(1e3 * rows[i].work_us, rows[i].most, FY__WAITING_ACTIVE),
            rows[i].active);
    }
}

/* More work never takes fewer threads, and a team is one or all. */
TS_TEST(more_work_never_takes_fewer)
{
    for (int most = 1; most <= 256; most *= 2)
        for (int waiting = FY__WAITING_PASSIVE; waiting <= FY__WAITING_ACTIVE; waiting++) {
            int before = 1;
            for (double work_ns = 100; work_ns < 1e9; work_ns *= 1.25) {
                const int threads = fy__threads_choose(work_ns, most, waiting);
                assert_true(threads == 1 || threads == most);
                assert_true(threads >= before);
                before = threads;
            }
            assert_int_equal(before, most);
        }
}

TS_TEST(variables_as_libgomp_reads_them)
{
    static const struct {
        const char *policy, *count;
        uint64_t spins;
    } rows[] = {
        { NULL, NULL, 300000 },
        { "passive", NULL, 0 },
        { " PASSIVE ", NULL, 0 },
        { "active", NULL, UINT64_C(30000000000) },
        { "lazy", NULL, 300000 },
        { "", NULL, 300000 },
        { "passive", "20000", 20000 },
        { "active", "0", 0 },
        { NULL, "20k", 20000 },
        { NULL, " 3 M ", 3000000 },
        { NULL, "2g", UINT64_C(2000000000) },
        { NULL, "1t", UINT64_C(1000000000000) },
        { NULL, "infinite", UINT64_MAX },
        { "passive", "Infinity", UINT64_MAX },
        { NULL, "99999999999999t", UINT64_MAX },
        { "passive", "many", 0 },
        { "passive", "", 0 },
        { "passive", "20kk", 0 },
        { "active", "k", UINT64_C(30000000000) },
        { "active", " ", UINT64_C(30000000000) },
        { NULL, "99999999999999999999999", 300000 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (fy__threads_spins(rows[i].policy, rows[i].count) != rows[i].spins)
            fail_msg("row %zu: %llu spins, not %llu", i,
                     (unsigned long long)fy__threads_spins(rows[i].policy, rows[i].count),
                     (unsigned long long)rows[i].spins);
    assert_int_equal(fy__threads_waiting(0, 2, 2), FY__WAITING_PASSIVE);
    assert_int_equal(fy__threads_waiting(1000, 2, 2), FY__WAITING_PASSIVE);
    assert_int_equal(fy__threads_waiting(20000, 2, 2), FY__WAITING_ACTIVE);
    /* libgomp spins 1000 times at most */
    assert_int_equal(fy__threads_waiting(UINT64_MAX, 3, 2), FY__WAITING_PASSIVE);
}

TS_TEST(numbers_and_auto_are_read)
{
    static const char *const bad[] = { "",     "0",   "-1",   "+2",
                                       "2x",   " 2",  "1025", "99999999999999999999",
                                       "AUTO", "two", "1.5" };
    int threads = 7;
    assert_true(fy__threads_parse("auto", &threads) && threads == FY__THREADS_AUTO);
    assert_true(fy__threads_parse("1", &threads) && threads == 1);
    assert_true(fy__threads_parse("1024", &threads) && threads == 1024);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        if (fy__threads_parse(bad[i], &threads)) fail_msg("'%s' is read as %d", bad[i], threads);
    assert_int_equal(threads, 1024);
}

/* ---- settings ---- */

TS_TEST(a_number_replaces_the_choice)
{
    fy__threads_set(3);
    assert_int_equal(fy__threads_for(1, 1 << 20), 3);
    assert_int_equal(fy__threads_for_cost(1e12, 0), 3);
    assert_int_equal(fy__threads_override(5), FY__THREADS_INHERIT);
    assert_int_equal(fy__threads_for(1, 1 << 20), 5);
    assert_int_equal(fy__threads_override(FY__THREADS_AUTO), 5);
    assert_int_equal(fy__threads_for(1, 1 << 20), 1);
    assert_int_equal(fy__threads_override(FY__THREADS_INHERIT), FY__THREADS_AUTO);
    assert_int_equal(fy__threads_for(1, 1 << 20), 3);
    fy__threads_set(FY__THREADS_AUTO);
    assert_int_equal(fy__threads_for(1, 1 << 20), 1);
    assert_int_equal(fy__threads_for_cost(1e12, 0), omp_get_max_threads());
    assert_int_equal(fy__threads_for_cost(0, 1e12), omp_get_max_threads());
}

static void *ask(void *user)
{
    *(int *)user = fy__threads_for(1, 1 << 20);
    return NULL;
}

TS_TEST(an_override_applies_to_its_thread)
{
    pthread_t thread;
    int other = 0;
    (void)fy__threads_override(4);
    assert_int_equal(pthread_create(&thread, NULL, ask, &other), 0);
    pthread_join(thread, NULL);
    assert_int_equal(fy__threads_for(1, 1 << 20), 4);
    assert_int_equal(other, 1);
    (void)fy__threads_override(FY__THREADS_INHERIT);
}

/* ---- the regions ---- */

static atomic_uint seen; /* a bit for each thread of the team */

static void note_thread(const void *context, int64_t i)
{
    (void)context;
    (void)i;
    atomic_fetch_or(&seen, 1u << omp_get_thread_num());
}

static int team_of(int threads)
{
    atomic_store(&seen, 0);
    fy__for_each(64, threads, note_thread, NULL);
    return __builtin_popcount(atomic_load(&seen));
}

TS_TEST(the_chosen_number_of_threads_works)
{
    assert_int_equal(team_of(1), 1);
    assert_int_equal(team_of(2), 2);
    assert_int_equal(team_of(3), 3);
    atomic_store(&seen, 0);
    fy__for_each(1, 3, note_thread, NULL); /* a single piece cannot be divided */
    assert_int_equal(atomic_load(&seen), 1);
}

TS_TEST(onednn_gets_the_chosen_number)
{
    const int most = omp_get_max_threads();
    for (int threads = 1; threads <= 3; threads++) {
        const fy__team_t team = fy__team_begin(threads);
        assert_int_equal(team.threads, threads);
        assert_int_equal(omp_get_max_threads(), threads);
        fy__team_end(&team);
        assert_int_equal(omp_get_max_threads(), most);
    }
}
