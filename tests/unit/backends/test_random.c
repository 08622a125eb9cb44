/* Random draws: known answers of Philox, the promised layout of counters and lanes, ranges,
 * moments, permutations. */
#include "opset/formulas/random.h"
#include "tests/unit/backends/kernel_fixture.h"

/* Known answers: Random123's kat_vectors, philox4x32 with 10 rounds. */
TS_TEST(philox_known_answers)
{
    const fy__philox_t zero = fy__philox4x32(0, 0, 0);
    const fy__philox_t ones = fy__philox4x32(UINT64_MAX, UINT64_MAX, UINT64_MAX);
    const fy__philox_t pi =
        fy__philox4x32(0x299f31d0a4093822u, 0x85a308d3243f6a88u, 0x0370734413198a2eu);
    const uint32_t want_zero[4] = { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 };
    const uint32_t want_ones[4] = { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd };
    const uint32_t want_pi[4] = { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 };
    assert_memory_equal(zero.lane, want_zero, sizeof want_zero);
    assert_memory_equal(ones.lane, want_ones, sizeof want_ones);
    assert_memory_equal(pi.lane, want_pi, sizeof want_pi);
}

/* Draws into dst and returns the counter afterwards. */
static int64_t draw(fy_op_t op, tensor_t *dst, int64_t seed, int64_t counter, const void *attrs)
{
    int64_t rng[2] = { seed, counter };
    fy_desc_t descs[2] = {
        dst->desc,
        { .data = rng, .dtype = FY_DTYPE_I64, .rank = 1, .dims = { 2 }, .strides = { 1 } }
    };
    fy_launch_t launch = launch_of(op, 2, descs, 0, NULL, attrs);
    ts_ok(fy__kernels_launch(&api, &launch));
    assert_true(rng[0] == seed);
    return rng[1];
}

TS_TEST(rand_follows_the_documented_layout)
{
    const fy_rand_attrs_t unit = { 0.0, 1.0 };
    const int64_t sizes[] = { 0, 1, 3, 4, 5, 255, 256, 257, 1000, 70001 };
    const int64_t seed = -5, counter = 0xfffffffeLL; /* carries into the second counter word */
    for (int32_t dtype = 0; dtype <= FY_DTYPE_BF16; dtype++) {
        for (size_t s = 0; s < COUNT_OF(sizes); s++) {
            const int64_t n = sizes[s], per = dtype == FY_DTYPE_F64 ? 2 : 4;
            tensor_t t = make(dtype, 1, &n, NULL);
            assert_true(draw(FY_OP_RAND, &t, seed, counter, &unit) ==
                        counter + (n + per - 1) / per);
            for (int64_t i = 0; i < n; i++) {
                const fy__philox_t block = fy__rng_block(seed, counter, (uint64_t)(i / per));
                double want;
                if (dtype == FY_DTYPE_F64)
                    want = fy__unit_f64(block.lane[2 * (i % 2)], block.lane[2 * (i % 2) + 1]);
                else if (dtype == FY_DTYPE_F32)
                    want = (block.lane[i % 4] >> 8) * 0x1p-24;
                else if (dtype == FY_DTYPE_F16)
                    want = (block.lane[i % 4] >> 21) * 0x1p-11;
                else
                    want = (block.lane[i % 4] >> 24) * 0x1p-8;
                if (get(&t.desc, i) != want)
                    fail_msg("dtype %d n %lld element %lld", dtype, (long long)n, (long long)i);
            }
            drop(&t);
        }
    }
}

TS_TEST(rand_stays_below_high)
{
    const int64_t n = 20000;
    const fy_rand_attrs_t ranges[] = {
        { 0, 1 }, { -3, 5 }, { 1000, 1001 }, { 16777216.0, 16777218.0 }
    };
    for (int32_t dtype = 0; dtype <= FY_DTYPE_BF16; dtype++) {
        for (size_t r = 0;
             r < (dtype == FY_DTYPE_F16 || dtype == FY_DTYPE_BF16 ? 2 : COUNT_OF(ranges)); r++) {
            tensor_t t = make(dtype, 1, &n, NULL);
            (void)draw(FY_OP_RAND, &t, 11, 0, &ranges[r]);
            double sum = 0;
            for (int64_t i = 0; i < n; i++) {
                const double x = get(&t.desc, i);
                if (!(x >= ranges[r].low && x < ranges[r].high))
                    fail_msg("dtype %d: %g outside [%g, %g)", dtype, x, ranges[r].low,
                             ranges[r].high);
                sum += x;
            }
            const double width = ranges[r].high - ranges[r].low, middle = ranges[r].low + width / 2;
            if (r < 2) assert_true(fabs(sum / (double)n - middle) < width * 0.02);
            drop(&t);
        }
    }
}

TS_TEST(randn_has_the_moments_and_the_formula)
{
    const fy_randn_attrs_t attrs = { 2.0, 3.0 };
    const int64_t n = 100003;
    for (int32_t dtype = 0; dtype <= FY_DTYPE_BF16; dtype++) {
        tensor_t t = make(dtype, 1, &n, NULL);
        const int64_t per = dtype == FY_DTYPE_F64 ? 2 : 4;
        assert_true(draw(FY_OP_RANDN, &t, 99, 7, &attrs) == 7 + (n + per - 1) / per);
        double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
        for (int64_t i = 0; i < n; i++) {
            const double x = get(&t.desc, i), z = (x - 2.0) / 3.0;
            const fy__philox_t block = fy__rng_block(99, 7, (uint64_t)(i / per));
            double want;
            if (dtype == FY_DTYPE_F64) {
                double pair[2];
                fy__box_muller_f64(block.lane, pair);
                want = 2.0 + 3.0 * pair[i % 2];
            } else {
                const uint32_t *lane = &block.lane[i % 4 / 2 * 2];
                const double u = ((double)(float)lane[0] + 1.0) * 0x1p-32,
                             angle = (lane[1] >> 8) * 0x1p-24 * 2 * M_PI;
                want = 2.0 + 3.0 * sqrt(-2 * log(u)) * (i % 2 ? sin(angle) : cos(angle));
            }
            expect_near(x, want,
                        dtype == FY_DTYPE_F64 ? 1e-13
                                              : 4e-6 + 4 * epsilon_of(dtype) * (2 + fabs(want)),
                        "randn", i);
            m1 += z;
            m2 += z * z;
            m3 += z * z * z;
            m4 += z * z * z * z;
        }
        assert_true(fabs(m1 / (double)n) < 0.02);
        assert_true(fabs(m2 / (double)n - 1) < 0.03);
        assert_true(fabs(m3 / (double)n) < 0.06);
        assert_true(fabs(m4 / (double)n - 3) < 0.15);
        drop(&t);
    }
}

/* The first values of a long draw are those of a short one, bit for bit: groups of blocks and of
 * pairs end anywhere. */
TS_TEST(randn_does_not_depend_on_the_length)
{
    const fy_randn_attrs_t attrs = { 0, 1 };
    const int64_t all = 9000;
    for (int32_t dtype = 0; dtype <= FY_DTYPE_BF16; dtype++) {
        tensor_t whole = make(dtype, 1, &all, NULL);
        (void)draw(FY_OP_RANDN, &whole, 5, 1, &attrs);
        for (int64_t n = 1; n <= 150; n++) {
            tensor_t t = make(dtype, 1, &n, NULL);
            (void)draw(FY_OP_RANDN, &t, 5, 1, &attrs);
            assert_memory_equal(t.desc.data, whole.desc.data, t.nbytes);
            drop(&t);
        }
        drop(&whole);
    }
}

TS_TEST(randperm_is_a_permutation)
{
    const int64_t sizes[] = { 0, 1, 2, 3, 16, 17, 255, 256, 257, 1000, 60000 };
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        for (int64_t seed = 0; seed < 3; seed++) {
            const int64_t n = sizes[s];
            tensor_t t = make(FY_DTYPE_I64, 1, &n, NULL);
            unsigned char *seen = calloc(1, (size_t)n + 1);
            int64_t fixed = 0;
            assert_true(draw(FY_OP_RANDPERM, &t, seed, 40, NULL) == 40 + (n > 0));
            for (int64_t i = 0; i < n; i++) {
                const int64_t x = *(int64_t *)at(&t.desc, i);
                assert_true(x >= 0 && x < n);
                assert_int_equal(seen[x]++, 0);
                fixed += x == i;
            }
            if (n >= 255) assert_true(fixed < 12); /* one on average */
            free(seen);
            drop(&t);
        }
    }
}

/* Every order of four, and every position of an element among 100, occurs about as often as
 * expected. */
TS_TEST(randperm_is_fair)
{
    enum { DRAWS = 24000 };
    int orders[256] = { 0 }, places[100] = { 0 };
    for (int64_t c = 0; c < DRAWS; c++) {
        const fy__perm_t four = fy__perm_make(3, c, 4), hundred = fy__perm_make(3, c, 100);
        unsigned code = 0;
        for (uint32_t i = 0; i < 4; i++) code = code << 2 | fy__perm_at(&four, i);
        orders[code]++;
        places[fy__perm_at(&hundred, 17)]++;
    }
    double chi_orders = 0, chi_places = 0;
    int reached = 0;
    for (int i = 0; i < 256; i++) {
        if (orders[i] == 0) continue;
        reached++;
        chi_orders += pow(orders[i] - DRAWS / 24.0, 2) / (DRAWS / 24.0);
    }
    for (int i = 0; i < 100; i++) chi_places += pow(places[i] - DRAWS / 100.0, 2) / (DRAWS / 100.0);
    assert_int_equal(reached, 24);
    assert_true(chi_orders < 60);  /* 23 degrees of freedom: 99.99 % below 58 */
    assert_true(chi_places < 165); /* 99 degrees of freedom: 99.99 % below 161 */
}
