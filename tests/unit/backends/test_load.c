/* The load of a machine, from lines in the format of /proc/loadavg. */
#include "backends/host/load.h"
#include "tests/unit/backends/kernel_fixture.h"

TS_TEST(a_line_is_read)
{
    fy__load_t load = { 7, 7 };
    assert_true(fy__load_parse("0.42 0.36 0.30 3/213 4711\n", &load));
    assert_int_equal(load.others, 2); /* the process that reads it is running */
    assert_true(load.average == 0.42);
    assert_true(fy__load_parse("1.00 0 0 0/1 1", &load));
    assert_int_equal(load.others, 0);
}

TS_TEST(malformed_lines_are_refused)
{
    static const char *const bad[] = {
        "",           "\n",        "x", "0.1", "0.1 0.2 0.3", "0.1 0.2 0.3 4", "0.1 0.2 0.3 x/2",
        "-1 0 0 1/2", "0 0 0 -1/2"
    };
    fy__load_t load = { 7, 7 };
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        if (fy__load_parse(bad[i], &load)) fail_msg("'%s' is taken", bad[i]);
    assert_true(load.others == 7 && load.average == 7);
}

TS_TEST(more_threads_than_processors)
{
    static const struct {
        fy__load_t load;
        int threads, processors, is_high;
    } rows[] = {
        { { 0, 0 }, 2, 2, 0 },   { { 1, 0 }, 2, 2, 1 },   { { 0, 0.99 }, 2, 2, 0 },
        { { 0, 1.0 }, 2, 2, 1 }, { { 9, 9 }, 1, 2, 0 },   { { 4, 4 }, 4, 8, 0 },
        { { 5, 0 }, 4, 8, 1 },   { { 0, 5.5 }, 4, 8, 1 }, { { 0, 1e300 }, 2, 64, 1 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        assert_int_equal(fy__load_is_high(&rows[i].load, rows[i].threads, rows[i].processors),
                         rows[i].is_high);
}
