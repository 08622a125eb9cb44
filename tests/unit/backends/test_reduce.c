/* sum, mean, max, min, argmax, softmax, log_softmax, mse_loss: all axes subsets and layouts against
 * the oracle, with the bounds of sums in f64. */
#include "backends/kernels/rows.h"
#include "tests/unit/backends/kernel_fixture.h"

typedef struct shape {
    int rank;
    int64_t dims[4], strides[4]; /* strides all 0: dense; -1 stands for 0 (a repeated axis) */
} shape_t;

static const shape_t shapes[] = {
    { 0, { 0 }, { 0 } },
    { 1, { 1 }, { 0 } },
    { 1, { 1000 }, { 0 } },
    { 1, { 200003 }, { 0 } },
    { 2, { 7, 300 }, { 0 } },
    { 2, { 300, 7 }, { 1, 301 } },
    { 2, { 700, 130 }, { 0 } },
    { 3, { 5, 6, 70 }, { 0 } },
    { 3, { 5, 6, 7 }, { 7, 35, 1 } },
    { 3, { 4, 9, 8 }, { 200, -1, 3 } },
    { 4, { 3, 4, 5, 6 }, { 0 } },
    { 2, { 3, 0 }, { 0 } },
    { 2, { 0, 3 }, { 0 } },
    { 2, { 2, 90000 }, { 0 } },
};

static tensor_t make_shape(int32_t dtype, const shape_t *shape)
{
    int64_t strides[4], any = 0;
    for (int i = 0; i < shape->rank; i++) {
        strides[i] = shape->strides[i] < 0 ? 0 : shape->strides[i];
        any |= shape->strides[i];
    }
    tensor_t t = make(dtype, shape->rank, shape->dims, any ? strides : NULL);
    fill_noise(&t.desc, shape->rank);
    return t;
}

/* dst of the expected shape; dense or with gaps. */
static tensor_t make_result(const ts_array_t *want, int gaps)
{
    int64_t strides[FY_MAX_RANK], step = gaps ? 3 : 1;
    for (int i = want->rank - 1; i >= 0; i--) {
        strides[i] = step;
        step *= want->dims[i] + (gaps != 0);
    }
    return make(want->dtype, want->rank, want->dims, strides);
}

static void check_reduction(fy_op_t op, int32_t dtype, const shape_t *shape, uint32_t axes,
                            int keepdims, int gaps, uint32_t accumulate)
{
    tensor_t src = make_shape(dtype, shape);
    const uint32_t mask = axes ? axes : (1u << shape->rank) - 1u;
    const int is_float = dtype <= FY_DTYPE_BF16, extreme = op == FY_OP_MAX || op == FY_OP_MIN;
    const fy_reduce_attrs_t attrs = { axes, keepdims };
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) count *= mask >> i & 1u ? shape->dims[i] : 1;
    if (!(extreme && count == 0)) {
        ts_expected_t expected = expect(op, SRCS(&src), &attrs);
        tensor_t dst = make_result(&expected.value, gaps);
        fill_noise(&dst.desc, 9);
        double *before = copy_of(&dst.desc);
        ts_ok(run(op, &dst, SRCS(&src), &attrs, accumulate, 0));
        for (int64_t i = 0; i < count_of(&dst.desc); i++) {
            char what[80];
            (void)snprintf(what, sizeof what, "op %u dtype %d shape %d axes %u keep %d gaps %d", op,
                           dtype, (int)(shape - shapes), axes, keepdims, gaps);
            double want = ts_array_get(&expected.value, (uint64_t)i);
            const double size = expected.scale[i] / (double)(count + 1);
            double bound =
                extreme || !is_float ? 0 : epsilon_of(dtype) * (0.51 * fabs(want)) + 2e-15 * size;
            if (accumulate && is_float && !extreme) {
                want += before[i];
                bound += epsilon_of(dtype) * fabs(want);
            }
            expect_near(get(&dst.desc, i), want, bound, what, i);
        }
        free(before);
        ts_expected_free(&expected);
        drop(&dst);
    }
    drop(&src);
}

static void check_all(fy_op_t op, int32_t last_dtype)
{
    for (int32_t dtype = 0; dtype <= last_dtype; dtype++) {
        for (size_t s = 0; s < COUNT_OF(shapes); s++) {
            for (uint32_t axes = 0; axes < (1u << shapes[s].rank); axes++) {
                for (int keepdims = 0; keepdims < 2; keepdims++) {
                    check_reduction(op, dtype, &shapes[s], axes, keepdims,
                                    keepdims ^ (int)(axes & 1u), 0);
                }
            }
        }
    }
}

TS_TEST(sums) { check_all(FY_OP_SUM, FY_DTYPE_BOOL); }
TS_TEST(means) { check_all(FY_OP_MEAN, FY_DTYPE_BF16); }
TS_TEST(maxima) { check_all(FY_OP_MAX, FY_DTYPE_U8); }
TS_TEST(minima) { check_all(FY_OP_MIN, FY_DTYPE_U8); }
TS_TEST(accumulated)
{
    for (int32_t dtype = 0; dtype <= FY_DTYPE_BF16; dtype++) {
        check_reduction(FY_OP_SUM, dtype, &shapes[7], 2, 0, 0, 1);
        check_reduction(FY_OP_SUM, dtype, &shapes[3], 0, 0, 0, 1);
        check_reduction(FY_OP_MEAN, dtype, &shapes[6], 1, 1, 1, 1);
    }
}

/* All elements of dst are the expected ones, exactly; NaN is NaN. */
static void check_exact(fy_op_t op, const tensor_t *src, const void *attrs, int gaps)
{
    ts_expected_t expected = expect(op, SRCS(src), attrs);
    tensor_t dst = make_result(&expected.value, gaps);
    ts_ok(run(op, &dst, SRCS(src), attrs, 0, 0));
    for (int64_t i = 0; i < count_of(&dst.desc); i++)
        expect_near(get(&dst.desc, i), ts_array_get(&expected.value, (uint64_t)i), 0,
                    fy_op_get(op)->name, i);
    ts_expected_free(&expected);
    drop(&dst);
}

/* One NaN anywhere makes its output NaN, in both orders of folding. */
TS_TEST(extremes_propagate_nan)
{
    const int64_t dims[2] = { 130, 140 };
    for (int32_t dtype = 0; dtype <= FY_DTYPE_BF16; dtype++) {
        for (uint32_t axes = 0; axes < 3; axes++) {
            for (int64_t place = 0; place < 130 * 140; place += 1999) {
                for (fy_op_t op = FY_OP_MAX; op <= FY_OP_MIN; op++) {
                    tensor_t src = make(dtype, 2, dims, NULL);
                    const fy_reduce_attrs_t attrs = { axes, 0 };
                    fill_noise(&src.desc, 0);
                    set(&src.desc, place, NAN);
                    check_exact(op, &src, &attrs, 0);
                    drop(&src);
                }
            }
        }
    }
}

/* A row of ones with one 3 (for the minimum 0) anywhere: the lanes, their halves and the rest of a
 * row (loops_reduce.h) each count every element once. */
TS_TEST(each_element_of_a_row_counts_once)
{
    static const fy_op_t ops[] = { FY_OP_SUM, FY_OP_PROD, FY_OP_MAX, FY_OP_MIN };
    const fy_reduce_attrs_t attrs = { 2, 0 };
    for (int32_t dtype = 0; dtype <= FY_DTYPE_U8; dtype++) {
        for (int64_t n = 1; n <= 135; n++) {
            const int64_t dims[2] = { 2, n };
            tensor_t src = make(dtype, 2, dims, NULL);
            for (int64_t place = 0; place < 2 * n; place += place == 2 * n - 8 ? 1 : 7) {
                for (size_t k = 0; k < COUNT_OF(ops); k++) {
                    for (int64_t i = 0; i < 2 * n; i++) set(&src.desc, i, 1);
                    set(&src.desc, place, ops[k] == FY_OP_MIN ? 0 : 3);
                    check_exact(ops[k], &src, &attrs, 0);
                }
            }
            drop(&src);
        }
    }
}

/* An infinity, or one of each sign, at any place of a row. */
TS_TEST(infinities_in_rows)
{
    static const fy_op_t ops[] = { FY_OP_SUM, FY_OP_MAX, FY_OP_MIN };
    static const int64_t lengths[] = { 1, 2, 31, 32, 33, 65, 1100 };
    const fy_reduce_attrs_t attrs = { 2, 0 };
    for (int32_t dtype = 0; dtype <= FY_DTYPE_BF16; dtype++) {
        for (size_t s = 0; s < COUNT_OF(lengths); s++) {
            const int64_t n = lengths[s], dims[2] = { 4, n };
            tensor_t src = make(dtype, 2, dims, NULL);
            for (int64_t place = 0; place < n; place += 1 + n / 9) {
                for (int64_t i = 0; i < 4 * n; i++) set(&src.desc, i, i < 3 * n ? 0 : -INFINITY);
                set(&src.desc, place, INFINITY);
                set(&src.desc, n + place, -INFINITY);
                set(&src.desc, 2 * n + place, INFINITY);
                set(&src.desc, 2 * n + (place + n / 2) % n, -INFINITY);
                for (size_t k = 0; k < COUNT_OF(ops); k++) check_exact(ops[k], &src, &attrs, 0);
            }
            drop(&src);
        }
    }
}

TS_TEST(integer_sums_wrap_and_do_not_round)
{
    const int64_t n = 3;
    tensor_t src = make(FY_DTYPE_I64, 1, &n, NULL), dst = make(FY_DTYPE_I64, 0, NULL, NULL);
    const fy_reduce_attrs_t attrs = { 0, 0 };
    int64_t *x = src.desc.data;
    x[0] = INT64_MAX;
    x[1] = 5;
    x[2] = (1ll << 53) + 1;
    ts_ok(run(FY_OP_SUM, &dst, SRCS(&src), &attrs, 0, 0));
    assert_true(*(int64_t *)dst.desc.data == INT64_MIN + 4 + (1ll << 53) + 1);
    DROP(&src, &dst);
}

/* ---- argmax ---- */

TS_TEST(argmax_finds_the_first_and_nan)
{
    for (int32_t dtype = 0; dtype <= FY_DTYPE_U8; dtype++) {
        for (size_t s = 1; s < COUNT_OF(shapes); s++) {
            for (int axis = 0; axis < shapes[s].rank; axis++) {
                if (shapes[s].dims[axis] == 0) continue;
                for (int variant = 0; variant < 3; variant++) {
                    tensor_t src = make_shape(dtype, &shapes[s]);
                    const fy_axis_attrs_t attrs = { axis, variant == 1 };
                    const int64_t n = count_of(&src.desc);
                    if (variant == 1 && dtype <= FY_DTYPE_BF16 && n > 20)
                        set(&src.desc, n / 2, NAN), set(&src.desc, n - 1, NAN);
                    check_exact(FY_OP_ARGMAX, &src, &attrs, variant == 2);
                    drop(&src);
                }
            }
        }
    }
}

/* ---- softmax ---- */

static void check_softmax(fy_op_t op, int32_t dtype, const shape_t *shape, int axis, int in_place)
{
    tensor_t src = make_shape(dtype, shape), other = make(dtype, shape->rank, shape->dims, NULL);
    tensor_t *dst = in_place ? &src : &other;
    const int64_t n = count_of(&src.desc), length = shape->dims[axis];
    const fy_axis_attrs_t attrs = { axis, 0 };
    for (int64_t i = 0; i < n; i++) set(&src.desc, i, 30 * noise(i));
    ts_expected_t expected = expect(op, SRCS(&src), &attrs);
    ts_ok(run(op, dst, SRCS(&src), &attrs, 0, 0));
    const int32_t compute = dtype == FY_DTYPE_F64 ? FY_DTYPE_F64 : FY_DTYPE_F32;
    for (int64_t i = 0; i < n; i++) {
        const double want = expected.value.f[i];
        /* the scale of a softmax: (length + 2 + the distance to the largest) times the value */
        double bound = epsilon_of(compute) * (op == FY_OP_SOFTMAX
                                                  ? expected.scale[i] + (6 - (double)length) * want
                                                  : 16 + fabs(want));
        if (dtype != compute) bound += 0.51 * epsilon_of(dtype) * fabs(want) + 0x1p-25;
        char what[64];
        (void)snprintf(what, sizeof what, "op %u dtype %d shape %d axis %d of %lld", op, dtype,
                       (int)(shape - shapes), axis, (long long)length);
        expect_near(get(&dst->desc, i), want, bound, what, i);
    }
    ts_expected_free(&expected);
    DROP(&src, &other);
}

TS_TEST(softmaxes)
{
    for (int32_t dtype = 0; dtype <= FY_DTYPE_BF16; dtype++) {
        for (size_t s = 1; s < COUNT_OF(shapes); s++) {
            /* in place, a repeated axis would be written twice */
            if (shapes[s].strides[1] == -1) continue;
            for (int axis = 0; axis < shapes[s].rank; axis++) {
                for (int in_place = 0; in_place < 2; in_place++) {
                    check_softmax(FY_OP_SOFTMAX, dtype, &shapes[s], axis, in_place);
                    check_softmax(FY_OP_LOG_SOFTMAX, dtype, &shapes[s], axis, in_place);
                }
            }
        }
    }
}

TS_TEST(softmax_survives_large_values)
{
    const int64_t n = 4;
    const fy_axis_attrs_t attrs = { 0, 0 };
    tensor_t src = make(FY_DTYPE_F32, 1, &n, NULL), dst = make(FY_DTYPE_F32, 1, &n, NULL);
    const double values[4] = { 1e30, 1e30, -1e30, -INFINITY };
    for (int64_t i = 0; i < n; i++) set(&src.desc, i, values[i]);
    ts_ok(run(FY_OP_SOFTMAX, &dst, SRCS(&src), &attrs, 0, 0));
    assert_true(get(&dst.desc, 0) == 0.5 && get(&dst.desc, 1) == 0.5 && get(&dst.desc, 2) == 0 &&
                get(&dst.desc, 3) == 0);
    set(&src.desc, 1, NAN);
    ts_ok(run(FY_OP_SOFTMAX, &dst, SRCS(&src), &attrs, 0, 0));
    for (int64_t i = 0; i < n; i++) assert_true(isnan(get(&dst.desc, i)));
    DROP(&src, &dst);
}

/* Rows that fit one block and rows that do not, whose result keeps the exponentials or does not: of
 * -inf alone; with one inf; with one NaN; and finite ones of which each third element is -inf. */
TS_TEST(softmaxes_of_infinite_rows)
{
    static const int64_t lengths[] = { 1, 5, 64, FY__BLOCK, FY__BLOCK + 17, 3 * FY__BLOCK + 1 };
    const fy_axis_attrs_t attrs = { 1, 0 };
    for (int32_t dtype = 0; dtype <= FY_DTYPE_BF16; dtype++) {
        for (size_t s = 0; s < COUNT_OF(lengths); s++) {
            for (int variant = 0; variant < 4; variant++) {
                const int is_log = variant & 1, in_place = variant & 2;
                const fy_op_t op = is_log ? FY_OP_LOG_SOFTMAX : FY_OP_SOFTMAX;
                const int64_t n = lengths[s], dims[2] = { 4, n };
                tensor_t src = make(dtype, 2, dims, NULL), other = make(dtype, 2, dims, NULL);
                tensor_t *dst = in_place ? &src : &other;
                for (int64_t i = 0; i < 4 * n; i++)
                    set(&src.desc, i, i < n || (i >= 3 * n && i % 3 != 0) ? -INFINITY : 0);
                set(&src.desc, n + n / 2, INFINITY);
                set(&src.desc, 3 * n - 1, NAN);
                set(&src.desc, 3 * n, 0);
                double count = 0;
                for (int64_t i = 3 * n; i < 4 * n; i++) count += get(&src.desc, i) == 0;
                ts_ok(run(op, dst, SRCS(&src), &attrs, 0, 0));
                for (int64_t i = 0; i < 3 * n; i++) assert_true(isnan(get(&dst->desc, i)));
                for (int64_t i = 3 * n; i < 4 * n; i++) {
                    const int is_far = i != 3 * n && i % 3 != 0;
                    const double want = is_log ? (is_far ? -INFINITY : -log(count))
                                               : (is_far ? 0 : 1 / count);
                    expect_near(get(&dst->desc, i), want, epsilon_of(dtype) * fabs(want),
                                "a row with -inf", i - 3 * n);
                }
                DROP(&src, &other);
            }
        }
    }
}

/* ---- mse_loss ---- */

TS_TEST(mse_is_the_mean_of_squares)
{
    for (int32_t dtype = 0; dtype <= FY_DTYPE_BF16; dtype++) {
        for (size_t s = 0; s < COUNT_OF(shapes); s++) {
            tensor_t a = make_shape(dtype, &shapes[s]),
                     b = make(dtype, shapes[s].rank, shapes[s].dims, NULL),
                     loss = make(dtype, 0, NULL, NULL);
            fill_noise(&b.desc, 77);
            ts_ok(run(FY_OP_MSE_LOSS, &loss, SRCS(&a, &b), NULL, 0, 0));
            ts_expected_t expected = expect(FY_OP_MSE_LOSS, SRCS(&a, &b), NULL);
            const double want = expected.value.f[0];
            ts_expected_free(&expected);
            expect_near(get(&loss.desc, 0), want, (0.51 * epsilon_of(dtype) + 1e-14) * want,
                        "mse_loss", (int64_t)s);
            DROP(&a, &b, &loss);
        }
    }
}
