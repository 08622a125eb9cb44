/* Schedules against tables: OneCycle's from PyTorch's documentation, and values that can be
 * computed by hand. Impossible lengths are refused, and give NaN. */
#include <math.h>

#include <ferry/train/schedule.h>

#include "tests/support/harness.h"

typedef double (*value_fn)(const fy_schedule_t *schedule, int64_t step);

static void expect(const fy_schedule_t *s, value_fn value, size_t n, const double *want,
                   double tolerance)
{
    ts_ok(fy_schedule_check(s));
    for (size_t i = 0; i < n; i++)
        if (!(fabs(value(s, (int64_t)i) - want[i]) <= tolerance))
            fail_msg("%s, step %zu: %.9g, want %.9g", fy_schedule_name(s->kind), i,
                     value(s, (int64_t)i), want[i]);
}
#define EXPECT(schedule, value, ...)                                                  \
    expect(schedule, value, sizeof((const double[]){ __VA_ARGS__ }) / sizeof(double), \
           (const double[]){ __VA_ARGS__ }, 1e-6)

TS_TEST(one_cycle_rises_and_falls)
{
    fy_schedule_t s;
    fy_schedule_defaults(FY_SCHEDULE_ONE_CYCLE, 1, 10, &s, sizeof s);
    EXPECT(&s, fy_schedule_lr, .04, .52, 1, .950485, .811746, .611262, .388742, .188258, .049519,
           .000004, .000004);
    /* momentum is the mirror image: 0.95 - 0.1 (lr - 0.04) / 0.96 while lr rises */
    EXPECT(&s, fy_schedule_momentum, .95, .9, .85, .854952, .868826, .888874, .911126, .931174,
           .945048, .95, .95);
    s.three_phase = 1;
    EXPECT(&s, fy_schedule_lr, .04, .52, 1, .52, .04, .0361804, .0261816, .0138224, .0038236,
           .000004, .000004);
    EXPECT(&s, fy_schedule_momentum, .95, .9, .85, .9, .95, .95, .95, .95, .95, .95);
    /* twelve steps, linear: rising for 2.6 of them, falling for 8.4 */
    fy_schedule_defaults(FY_SCHEDULE_ONE_CYCLE, 2, 12, &s, sizeof s);
    s.linear = 1;
    EXPECT(&s, fy_schedule_lr, .08, .08 + 1.92 / 2.6, .08 + 2 * 1.92 / 2.6, 2 - 1.999992 * .4 / 8.4,
           2 - 1.999992 * 1.4 / 8.4);
    assert_true(fabs(fy_schedule_lr(&s, 11) - 8e-6) < 1e-12);
    assert_true(fabs(fy_schedule_lr(&s, 1000000) - 8e-6) < 1e-12);
}

TS_TEST(cycles_swing)
{
    fy_schedule_t s;
    fy_schedule_defaults(FY_SCHEDULE_CYCLIC, 1, 0, &s, sizeof s);
    /* PyTorch's CyclicLR; its OneCycleLR has other values */
    assert_true(s.base_momentum == .8 && s.max_momentum == .9);
    s.min_lr = .1, s.step_size = 4;
    EXPECT(&s, fy_schedule_lr, .1, .325, .55, .775, 1, .775, .55, .325, .1, .325);
    EXPECT(&s, fy_schedule_momentum, .9, .875, .85, .825, .8, .825, .85, .875, .9);
    s.gamma = .5;
    EXPECT(&s, fy_schedule_lr, .1, .1 + .225 / 2, .1 + .45 / 4, .1 + .675 / 8, .1 + .9 / 16,
           .1 + .675 / 32);
    s.base_momentum = s.max_momentum = 0;
    ts_ok(fy_schedule_check(&s));
    assert_true(isnan(fy_schedule_momentum(&s, 3)));
}

TS_TEST(steps_cosines_and_ranges)
{
    fy_schedule_t s;
    fy_schedule_defaults(FY_SCHEDULE_CONSTANT, .3, 0, &s, sizeof s);
    EXPECT(&s, fy_schedule_lr, .3, .3, .3);
    assert_true(isnan(fy_schedule_momentum(&s, 0)));
    s.warmup_steps = 4, s.warmup_factor = 0;
    EXPECT(&s, fy_schedule_lr, 0, .075, .15, .225, .3, .3);
    fy_schedule_defaults(FY_SCHEDULE_STEP, 1, 0, &s, sizeof s);
    s.step_size = 3, s.gamma = .5;
    EXPECT(&s, fy_schedule_lr, 1, 1, 1, .5, .5, .5, .25);
    s.warmup_steps = 2, s.warmup_factor = .5;
    EXPECT(&s, fy_schedule_lr, .5, .75, 1, 1, 1, .5, .5, .5, .25);
    fy_schedule_defaults(FY_SCHEDULE_COSINE, 1, 8, &s, sizeof s);
    s.min_lr = .1;
    const double r = sqrt(.5) * .45;
    const double cosine[] = { 1, .55 + .45 * cos(.39269908169872414), .55 + r,
                              .55 + .45 * sin(.39269908169872414), .55 };
    expect(&s, fy_schedule_lr, 5, cosine, 1e-9);
    assert_true(fabs(fy_schedule_lr(&s, 8) - .1) < 1e-12 &&
                fabs(fy_schedule_lr(&s, 99) - .1) < 1e-12);
    fy_schedule_defaults(FY_SCHEDULE_RANGE, 10, 5, &s, sizeof s);
    s.min_lr = .001;
    EXPECT(&s, fy_schedule_lr, .001, .01, .1, 1, 10, 10);
}

TS_TEST(invalid_schedules_are_refused)
{
    fy_schedule_t s;
#define REFUSES(kind, change, text)                                      \
    do {                                                                 \
        fy_schedule_defaults(FY_SCHEDULE_##kind, 0.1, 10, &s, sizeof s); \
        ts_ok(fy_schedule_check(&s));                                    \
        change;                                                          \
        ts_fails_with(fy_schedule_check(&s), INVALID_ARGUMENT, text);    \
        assert_true(isnan(fy_schedule_lr(&s, 0)));                       \
        assert_true(isnan(fy_schedule_momentum(&s, 0)));                 \
    } while (0)
    REFUSES(CONSTANT, s.lr = -1, "lr");
    REFUSES(CONSTANT, s.lr = NAN, "lr");
    REFUSES(CONSTANT, s.kind = FY_SCHEDULE_COUNT, "kind");
    REFUSES(CONSTANT, s.warmup_steps = -1, "warmup_steps");
    REFUSES(CONSTANT, s.warmup_steps = -5000000, "warmup_steps is -5000000; it must be 0 or more");
    REFUSES(CONSTANT, (s.warmup_steps = 3, s.warmup_factor = -1), "warmup_factor");
    REFUSES(STEP, s.step_size = 0, "step_size");
    REFUSES(STEP, s.gamma = 0, "gamma");
    REFUSES(COSINE, s.total_steps = 0, "total_steps");
    REFUSES(COSINE, s.min_lr = 1, "min_lr");
    REFUSES(CYCLIC, s.step_size = -2, "step_size");
    REFUSES(CYCLIC, s.base_momentum = 0.99, "base_momentum");
    REFUSES(ONE_CYCLE, s.pct_start = 1.5, "pct_start");
    REFUSES(ONE_CYCLE, (s.pct_start = 0.6, s.three_phase = 1), "pct_start");
    REFUSES(ONE_CYCLE, s.div_factor = 0, "div_factor");
    REFUSES(ONE_CYCLE, s.final_div_factor = NAN, "final_div_factor");
    REFUSES(ONE_CYCLE, s.max_momentum = 1, "max_momentum");
    REFUSES(RANGE, s.min_lr = 0, "min_lr");
    ts_fails(fy_schedule_check(NULL), INVALID_ARGUMENT);
    fy_schedule_defaults(FY_SCHEDULE_STEP, 0.1, 10, &s, sizeof s);
    assert_true(isnan(fy_schedule_lr(&s, -1)));
    s.struct_size = 0;
    ts_fails_with(fy_schedule_check(&s), INVALID_ARGUMENT, "FY_SCHEDULE_INIT");
}

/* Goyal et al. 2017: k times the batch, k times the rate, reached from the unscaled one. */
TS_TEST(scaling_is_linear_and_warms_up)
{
    fy_schedule_t s;
    fy_schedule_defaults(FY_SCHEDULE_STEP, .1, 0, &s, sizeof s);
    s.step_size = 2;
    ts_ok(fy_schedule_scale(&s, 1024, 256, 3));
    EXPECT(&s, fy_schedule_lr, .1, .2, .3, .4, .4, .04, .04, .004);
    fy_schedule_defaults(FY_SCHEDULE_COSINE, .4, 2, &s, sizeof s);
    s.min_lr = .1;
    ts_ok(fy_schedule_scale(&s, 128, 256, 2)); /* smaller: no rise */
    EXPECT(&s, fy_schedule_lr, .2, .2, .2, .125, .05);
    fy_schedule_defaults(FY_SCHEDULE_ONE_CYCLE, .5, 10, &s, sizeof s);
    ts_ok(fy_schedule_scale(&s, 64, 32, 0));
    EXPECT(&s, fy_schedule_lr, .04, .52, 1, .950485);
    const fy_schedule_t before = s;
    ts_fails_with(fy_schedule_scale(&s, 64, 32, 5), INVALID_ARGUMENT,
                  "warmup_steps is 5; a schedule one-cycle has no warm-up");
    ts_fails(fy_schedule_scale(&s, 0, 32, 0), INVALID_ARGUMENT);
    ts_fails(fy_schedule_scale(&s, 64, -1, 0), INVALID_ARGUMENT);
    ts_fails(fy_schedule_scale(NULL, 64, 32, 0), INVALID_ARGUMENT);
    s.lr = 1e308;
    ts_fails(fy_schedule_scale(&s, 64, 1, 0), INVALID_ARGUMENT); /* the result is not finite */
    s.lr = before.lr;
    assert_memory_equal(&s, &before, sizeof s);
}

/* Every kind gives finite rates for every length, even the shortest. */
TS_TEST(short_schedules_are_finite)
{
    for (int kind = 0; kind < FY_SCHEDULE_COUNT; kind++)
        for (int64_t total = 1; total <= 12; total++)
            for (int variant = 0; variant < 4; variant++) {
                fy_schedule_t s;
                fy_schedule_defaults((fy_schedule_kind_t)kind, 0.5, total, &s, sizeof s);
                s.linear = variant & 1, s.three_phase = variant >> 1;
                ts_ok(fy_schedule_check(&s));
                for (int64_t step = 0; step < 2 * total + 2; step++) {
                    const double lr = fy_schedule_lr(&s, step);
                    if (!(lr >= 0 && lr <= 0.5 + 1e-12))
                        fail_msg("%s, %lld steps, variant %d, step %lld: %g",
                                 fy_schedule_name(s.kind), (long long)total, variant,
                                 (long long)step, lr);
                }
            }
    const fy_schedule_t constant = FY_SCHEDULE_INIT;
    fy_schedule_t same;
    fy_schedule_defaults(FY_SCHEDULE_CONSTANT, 0.01, 0, &same, sizeof same);
    for (int64_t step = 0; step < 3; step++) assert_true(fy_schedule_lr(&constant, step) == 0.01);
    assert_true(constant.warmup_factor == same.warmup_factor &&
                constant.max_momentum == same.max_momentum);
    assert_string_equal(fy_schedule_name(FY_SCHEDULE_ONE_CYCLE), "one-cycle");
    assert_string_equal(fy_schedule_name(FY_SCHEDULE_COUNT), "?");
}
