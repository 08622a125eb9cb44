/* sum, mean, max, min, argmax, softmax, log_softmax, mse_loss: all axes subsets and layouts against
 * long double. */
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

/* dst for a reduction of src by `mask`; dense or with gaps. */
static tensor_t make_result(const fy_desc_t *src, uint32_t mask, int keepdims, int32_t dtype,
                            int gaps)
{
    int64_t dims[FY_MAX_RANK], strides[FY_MAX_RANK], step = gaps ? 3 : 1;
    int rank = 0;
    for (int i = 0; i < src->rank; i++) {
        const int reduced = (mask >> i & 1u) != 0;
        if (!reduced || keepdims) dims[rank++] = reduced ? 1 : src->dims[i];
    }
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = step;
        step *= dims[i] + (gaps != 0);
    }
    return make(dtype, rank, dims, strides);
}

/* The output that element `linear` of src belongs to. */
static int64_t output_of(const fy_desc_t *src, uint32_t mask, int64_t linear)
{
    int64_t at[FY_MAX_RANK], out = 0;
    for (int i = src->rank - 1; i >= 0; i--) {
        at[i] = linear % src->dims[i];
        linear /= src->dims[i];
    }
    for (int i = 0; i < src->rank; i++) {
        if ((mask >> i & 1u) == 0) out = out * src->dims[i] + at[i];
    }
    return out;
}

static void check_reduction(fy_op_t op, int32_t dtype, const shape_t *shape, uint32_t axes,
                            int keepdims, int gaps, uint32_t accumulate)
{
    tensor_t src = make_shape(dtype, shape);
    const uint32_t mask = axes ? axes : (1u << shape->rank) - 1u;
    const int is_float = dtype <= FY_DTYPE_BF16, extreme = op == FY_OP_MAX || op == FY_OP_MIN;
    tensor_t dst =
        make_result(&src.desc, mask, keepdims, is_float || extreme ? dtype : FY_DTYPE_I64, gaps);
    const int64_t n = count_of(&src.desc), noutputs = count_of(&dst.desc);
    long double *total = calloc((size_t)noutputs + 1, sizeof *total),
                *size = calloc((size_t)noutputs + 1, sizeof *size);
    const fy_reduce_attrs_t attrs = { axes, keepdims };
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) count *= mask >> i & 1u ? shape->dims[i] : 1;
    if (!(extreme && count == 0)) {
        fill_noise(&dst.desc, 9);
        for (int64_t i = 0; i < n; i++) {
            const int64_t out = output_of(&src.desc, mask, i);
            const long double x = get(&src.desc, i);
            if (extreme) {
                const int first = size[out] == 0;
                total[out] =
                    first || (op == FY_OP_MAX ? x > total[out] : x < total[out]) ? x : total[out];
                size[out] = 1;
            } else {
                total[out] += x;
                size[out] += fabsl(x);
            }
        }
        double *before = calloc((size_t)noutputs + 1, sizeof *before);
        for (int64_t i = 0; i < noutputs; i++) before[i] = get(&dst.desc, i);
        assert_int_equal(run(op, &dst, SRCS(&src), &attrs, accumulate, 0), FY_STATUS_OK);
        for (int64_t i = 0; i < noutputs; i++) {
            char what[80];
            (void)snprintf(what, sizeof what, "op %u dtype %d shape %d axes %u keep %d gaps %d", op,
                           dtype, (int)(shape - shapes), axes, keepdims, gaps);
            const long double scale = op == FY_OP_MEAN ? (long double)count : 1;
            double want = extreme ? (double)total[i] : (double)(total[i] / scale);
            double bound = extreme || !is_float ? 0
                                                : epsilon_of(dtype) * (0.51 * fabs(want)) +
                                                      2e-15 * (double)(size[i] / scale);
            if (accumulate && is_float && !extreme) {
                want += before[i];
                bound += epsilon_of(dtype) * fabs(want);
            }
            expect_near(get(&dst.desc, i), want, bound, what, i);
        }
        free(before);
    }
    free(total);
    free(size);
    DROP(&src, &dst);
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

/* One NaN anywhere makes its output NaN, in both orders of folding. */
TS_TEST(extremes_propagate_nan)
{
    const int64_t dims[2] = { 130, 140 };
    for (int32_t dtype = 0; dtype <= FY_DTYPE_BF16; dtype++) {
        for (uint32_t axes = 0; axes < 3; axes++) {
            for (int64_t place = 0; place < 130 * 140; place += 1999) {
                for (fy_op_t op = FY_OP_MAX; op <= FY_OP_MIN; op++) {
                    tensor_t src = make(dtype, 2, dims, NULL);
                    const uint32_t mask = axes ? axes : 3;
                    tensor_t dst = make_result(&src.desc, mask, 0, dtype, 0);
                    const fy_reduce_attrs_t attrs = { axes, 0 };
                    fill_noise(&src.desc, 0);
                    set(&src.desc, place, NAN);
                    assert_int_equal(run(op, &dst, SRCS(&src), &attrs, 0, 0), FY_STATUS_OK);
                    const int64_t hit = output_of(&src.desc, mask, place);
                    for (int64_t i = 0; i < count_of(&dst.desc); i++)
                        assert_int_equal(!!isnan(get(&dst.desc, i)), i == hit);
                    DROP(&src, &dst);
                }
            }
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
    assert_int_equal(run(FY_OP_SUM, &dst, SRCS(&src), &attrs, 0, 0), FY_STATUS_OK);
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
                    tensor_t dst = make_result(&src.desc, 1u << axis, variant == 1, FY_DTYPE_I64,
                                               variant == 2);
                    const int64_t n = count_of(&src.desc), noutputs = count_of(&dst.desc);
                    if (variant == 1 && dtype <= FY_DTYPE_BF16 && n > 20)
                        set(&src.desc, n / 2, NAN), set(&src.desc, n - 1, NAN);
                    assert_int_equal(run(FY_OP_ARGMAX, &dst, SRCS(&src), &attrs, 0, 0),
                                     FY_STATUS_OK);
                    int64_t *want = calloc((size_t)noutputs + 1, sizeof *want), inner = 1;
                    double *best = calloc((size_t)noutputs + 1, sizeof *best);
                    for (int i = axis + 1; i < shapes[s].rank; i++) inner *= shapes[s].dims[i];
                    for (int64_t i = 0; i < n; i++) {
                        const int64_t out = output_of(&src.desc, 1u << axis, i),
                                      k = i / inner % shapes[s].dims[axis];
                        const double x = get(&src.desc, i);
                        if (k == 0 || (!isnan(best[out]) && (x > best[out] || isnan(x)))) {
                            best[out] = x;
                            want[out] = k;
                        }
                    }
                    for (int64_t i = 0; i < noutputs; i++)
                        assert_true(*(int64_t *)at(&dst.desc, i) == want[i]);
                    free(want);
                    free(best);
                    DROP(&src, &dst);
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
    const int64_t n = count_of(&src.desc), length = shape->rank ? shape->dims[axis] : 1;
    long double *sum = calloc((size_t)n + 1, sizeof *sum);
    double *x = calloc((size_t)n + 1, sizeof *x), *max = calloc((size_t)n + 1, sizeof *max);
    const uint32_t mask = shape->rank ? 1u << axis : 0;
    const fy_axis_attrs_t attrs = { axis, 0 };
    for (int64_t i = 0; i < n; i++) set(&src.desc, i, 30 * noise(i));
    for (int64_t i = 0; i < n; i++) max[i] = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        x[i] = get(&src.desc, i);
        const int64_t row = output_of(&src.desc, mask, i);
        max[row] = fmax(max[row], x[i]);
    }
    for (int64_t i = 0; i < n; i++)
        sum[output_of(&src.desc, mask, i)] +=
            expl((long double)x[i] - max[output_of(&src.desc, mask, i)]);
    assert_int_equal(run(op, dst, SRCS(&src), &attrs, 0, 0), FY_STATUS_OK);
    const int32_t compute = dtype == FY_DTYPE_F64 ? FY_DTYPE_F64 : FY_DTYPE_F32;
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = output_of(&src.desc, mask, i);
        const long double shifted = (long double)x[i] - max[row], p = expl(shifted) / sum[row];
        const double want = op == FY_OP_SOFTMAX ? (double)p : (double)(shifted - logl(sum[row]));
        double bound = op == FY_OP_SOFTMAX
                           ? epsilon_of(compute) * (8 + fabs((double)shifted)) * want
                           : epsilon_of(compute) * (16 + fabs(want));
        if (dtype != compute) bound += 0.51 * epsilon_of(dtype) * fabs(want) + 0x1p-25;
        char what[64];
        (void)snprintf(what, sizeof what, "op %u dtype %d shape %d axis %d of %lld", op, dtype,
                       (int)(shape - shapes), axis, (long long)length);
        expect_near(get(&dst->desc, i), want, bound, what, i);
    }
    free(sum);
    free(x);
    free(max);
    DROP(&src, &other);
}

TS_TEST(softmaxes)
{
    for (int32_t dtype = 0; dtype <= FY_DTYPE_BF16; dtype++) {
        for (size_t s = 0; s < COUNT_OF(shapes); s++) {
            /* in place, a repeated axis would be written twice */
            if (shapes[s].strides[1] == -1) continue;
            for (int axis = 0; axis == 0 || axis < shapes[s].rank; axis++) {
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
    assert_int_equal(run(FY_OP_SOFTMAX, &dst, SRCS(&src), &attrs, 0, 0), FY_STATUS_OK);
    assert_true(get(&dst.desc, 0) == 0.5 && get(&dst.desc, 1) == 0.5 && get(&dst.desc, 2) == 0 &&
                get(&dst.desc, 3) == 0);
    set(&src.desc, 1, NAN);
    assert_int_equal(run(FY_OP_SOFTMAX, &dst, SRCS(&src), &attrs, 0, 0), FY_STATUS_OK);
    for (int64_t i = 0; i < n; i++) assert_true(isnan(get(&dst.desc, i)));
    DROP(&src, &dst);
}

/* ---- mse_loss ---- */

TS_TEST(mse_is_the_mean_of_squares)
{
    for (int32_t dtype = 0; dtype <= FY_DTYPE_BF16; dtype++) {
        for (size_t s = 0; s < COUNT_OF(shapes); s++) {
            tensor_t a = make_shape(dtype, &shapes[s]),
                     b = make(dtype, shapes[s].rank, shapes[s].dims, NULL),
                     loss = make(dtype, 0, NULL, NULL);
            const int64_t n = count_of(&a.desc);
            long double total = 0;
            fill_noise(&b.desc, 77);
            for (int64_t i = 0; i < n; i++)
                total += powl((long double)get(&a.desc, i) - get(&b.desc, i), 2);
            assert_int_equal(run(FY_OP_MSE_LOSS, &loss, SRCS(&a, &b), NULL, 0, 0), FY_STATUS_OK);
            const double want = n ? (double)(total / n) : (double)NAN;
            expect_near(get(&loss.desc, 0), want, (0.51 * epsilon_of(dtype) + 1e-14) * want,
                        "mse_loss", (int64_t)s);
            DROP(&a, &b, &loss);
        }
    }
}
