/* Medians, quartiles and bootstrap intervals of tools/cli/stats.h, and when measuring ends. */
#include <math.h>

#include "tests/support/test.h"
#include "tools/cli/tool.h"

static sample_t sample_of(size_t count, const double *values)
{
    sample_t sample = { 0 };
    for (size_t i = 0; i < count; i++) sample_add(&sample, values[i]);
    return sample;
}

TS_TEST(quartiles_interpolate_as_those_of_r_do)
{
    const sample_t four = sample_of(4, (const double[]){ 10, 1, 2, 4 });
    const spread_t s = sample_spread(&four);
    assert_true(s.q1 == 1.75 && s.median == 3 && s.q3 == 5.5 && s.best == 1 && s.worst == 10);
    const sample_t one = sample_of(1, (const double[]){ 7 });
    const spread_t alone = sample_spread(&one);
    assert_true(alone.q1 == 7 && alone.median == 7 && alone.q3 == 7 && alone.rounds == 1);
}

TS_TEST(few_rounds_have_no_interval)
{
    sample_t sample = sample_of(ROUNDS_FOR_INTERVAL - 1, (const double[]){ 1, 2, 3, 4 });
    assert_true(isnan(sample_spread(&sample).low) && isnan(sample_spread(&sample).high));
    sample_add(&sample, 5);
    const spread_t s = sample_spread(&sample);
    assert_true(s.low == 1 && s.high == 5);
    assert_true(fabs(spread_half_percent(&s) - 200.0 / 3) < 1e-12);
}

TS_TEST(the_interval_does_not_depend_on_the_order)
{
    sample_t up = { 0 }, down = { 0 };
    for (int i = 0; i < 40; i++) sample_add(&up, i * i), sample_add(&down, (39 - i) * (39 - i));
    const spread_t a = sample_spread(&up), b = sample_spread(&down);
    assert_true(a.low == b.low && a.high == b.high && a.low < a.median && a.median < a.high);
}

TS_TEST(equal_values_have_an_interval_of_width_0)
{
    const sample_t same = sample_of(6, (const double[]){ 3, 3, 3, 3, 3, 3 });
    const spread_t s = sample_spread(&same);
    assert_true(s.low == 3 && s.high == 3 && spread_half_percent(&s) == 0);
}

TS_TEST(values_that_are_not_finite_have_no_figures)
{
    const sample_t sample = sample_of(5, (const double[]){ 1, 2, NAN, 4, 5 });
    assert_true(isnan(sample_spread(&sample).median) && isnan(sample_spread(&sample).low));
    assert_true(isnan(sample_spread(&(sample_t){ 0 }).median));
}

/* An even distribution has the median 0.5; of 95 % intervals, 95 % should contain it. */
TS_TEST(intervals_cover_the_median_as_often_as_they_say)
{
    enum { SAMPLES = 1000, VALUES = 31 };
    int covered = 0;
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < SAMPLES; i++) {
        sample_t sample = { 0 };
        for (int k = 0; k < VALUES; k++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17; /* xorshift64 (Marsaglia 2003) */
            sample_add(&sample, (double)(x >> 11) * 0x1p-53);
        }
        const spread_t s = sample_spread(&sample);
        covered += s.low <= 0.5 && 0.5 <= s.high;
    }
    assert_in_range(covered, 930, 975);
}

TS_TEST(rates_have_the_ends_of_their_times_exchanged)
{
    const sample_t sample = sample_of(5, (const double[]){ 1, 2, 4, 5, 10 });
    const spread_t time = sample_spread(&sample), rate = spread_rate(20, &time);
    assert_true(rate.median == 5 && rate.q1 == 4 && rate.q3 == 10 && rate.rounds == 5);
    assert_true(rate.low == 20 / time.high && rate.high == 20 / time.low);
    assert_true(rate.best == 20 && rate.worst == 2);
    assert_true(spread_scale(2, &time).q3 == 10);
}

TS_TEST(measuring_ends_by_rounds_or_by_the_interval)
{
    sample_t sample = { 0 };
    const effort_t three = { .rounds = 3 }, settled = { .rounds = 3, .until = 0.01 };
    for (int i = 0; i < 3; i++) {
        assert_false(effort_is_met(&three, &sample));
        sample_add(&sample, 100);
    }
    assert_true(effort_is_met(&three, &sample));
    assert_false(effort_is_met(&settled, &sample)); /* without an interval it has not settled */
    sample_add(&sample, 100), sample_add(&sample, 100);
    assert_true(effort_is_met(&settled, &sample));
    sample_t wild = { 0 };
    while (!effort_is_met(&settled, &wild)) sample_add(&wild, (double)(wild.count % 2));
    assert_int_equal(wild.count, ROUNDS_MOST);
    sample_add(&wild, 1);
    assert_int_equal(wild.count, ROUNDS_MOST);
    sample_t unknown = { 0 };
    for (int i = 0; i < 5; i++) sample_add(&unknown, NAN);
    assert_true(effort_is_met(&settled, &unknown));
}
