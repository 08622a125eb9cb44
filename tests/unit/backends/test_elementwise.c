/* Elementwise kernels: every op and dtype in every layout, against the same op in f64 (long double
 * for f64). */
#include "tests/unit/backends/kernel_fixture.h"

/* ---- layouts: dims of dst, and for each operand its dims and strides ---- */

typedef struct layout {
    const char *name;
    int rank;
    int64_t dims[3];
    int64_t dst_strides[3]; /* all 0: dense */
    struct {
        int rank;
        int64_t dims[3], strides[3];
    } src[2];
} layout_t;

static const layout_t layouts[] = {
    { "scalar", 0, { 0 }, { 0 }, { { 0, { 0 }, { 0 } }, { 0, { 0 }, { 0 } } } },
    { "four", 1, { 4 }, { 0 }, { { 1, { 4 }, { 0 } }, { 1, { 4 }, { 0 } } } },
    { "seventeen", 1, { 17 }, { 0 }, { { 1, { 17 }, { 0 } }, { 1, { 17 }, { 0 } } } },
    { "empty", 2, { 3, 0 }, { 0 }, { { 2, { 3, 0 }, { 0 } }, { 2, { 3, 0 }, { 0 } } } },
    { "row", 2, { 37, 53 }, { 0 }, { { 2, { 37, 53 }, { 0 } }, { 1, { 53 }, { 0 } } } },
    { "column", 2, { 37, 530 }, { 0 }, { { 2, { 37, 1 }, { 0 } }, { 2, { 37, 530 }, { 0 } } } },
    { "outer", 2, { 19, 23 }, { 0 }, { { 2, { 19, 1 }, { 0 } }, { 1, { 23 }, { 0 } } } },
    { "transposed",
      2,
      { 40, 300 },
      { 1, 41 },
      { { 2, { 40, 300 }, { 1, 40 } }, { 2, { 40, 300 }, { 600, 2 } } } },
    { "three axes",
      3,
      { 5, 6, 7 },
      { 0 },
      { { 3, { 5, 1, 7 }, { 7, 7, 1 } }, { 3, { 5, 6, 7 }, { 1, 5, 30 } } } },
    { "large", 1, { 100003 }, { 0 }, { { 1, { 100003 }, { 0 } }, { 1, { 100003 }, { 0 } } } },
    { "large gaps",
      2,
      { 300, 301 },
      { 602, 2 },
      { { 2, { 300, 301 }, { 0 } }, { 1, { 301 }, { 0 } } } },
};

static const int64_t *or_dense(const int64_t strides[3])
{
    return strides[0] | strides[1] | strides[2] ? strides : NULL;
}

/* ---- the oracle ---- */

static long double reference(fy_op_t op, long double a, long double b)
{
    switch (op) {
    case FY_OP_NEG: return -a;
    case FY_OP_ABS: return fabsl(a);
    case FY_OP_EXP: return expl(a);
    case FY_OP_LOG: return logl(a);
    case FY_OP_SQRT: return sqrtl(a);
    case FY_OP_TANH: return tanhl(a);
    case FY_OP_SIGMOID: return 1 / (1 + expl(-a));
    case FY_OP_RELU: return a > 0 ? a : isnan(a) ? a : 0;
    case FY_OP_AFFINE: return 2.5L * a - 0.75L;
    case FY_OP_ADD: return a + b;
    case FY_OP_SUB: return a - b;
    case FY_OP_MUL: return a * b;
    case FY_OP_DIV: return a / b;
    case FY_OP_MAXIMUM: return isnan(a) || isnan(b) ? (long double)NAN : a > b ? a : b;
    case FY_OP_MINIMUM: return isnan(a) || isnan(b) ? (long double)NAN : a < b ? a : b;
    case FY_OP_POW: return powl(a, b);
    case FY_OP_EQ: return a == b;
    case FY_OP_NE: return a != b;
    case FY_OP_LT: return a < b;
    case FY_OP_LE: return a <= b;
    case FY_OP_GT: return a > b;
    default: return a >= b;
    }
}

/* The allowed error of the kernel in units in the last place of the *compute* type; half types add
 * their own rounding. */
static double ulps(fy_op_t op)
{
    switch (op) {
    case FY_OP_EXP:
    case FY_OP_LOG:
    case FY_OP_TANH:
    case FY_OP_POW: return 4;
    case FY_OP_SIGMOID: return 6;
    case FY_OP_AFFINE: return 0; /* bounded separately: it can cancel */
    case FY_OP_ADD:
    case FY_OP_SUB:
    case FY_OP_MUL:
    case FY_OP_DIV:
    case FY_OP_SQRT: return 0.5;
    default: return 0;
    }
}

static double tolerance(fy_op_t op, int32_t dtype, long double a, long double want)
{
    const int32_t compute = dtype == FY_DTYPE_F16 || dtype == FY_DTYPE_BF16 ? FY_DTYPE_F32 : dtype;
    const double size = fabs((double)want), tiny = dtype == FY_DTYPE_F16   ? 0x1p-24
                                                   : dtype == FY_DTYPE_F64 ? 0x1p-1074
                                                                           : 0x1p-133;
    /* the oracle itself is rounded to f64 */
    const double off = ulps(op) == 0.5 && dtype == FY_DTYPE_F64 ? 1 : ulps(op);
    double t = off * epsilon_of(compute) * size + tiny;
    if (op == FY_OP_AFFINE) t += epsilon_of(compute) * (fabs((double)a) * 2.5 + size);
    if (compute != dtype) t += 0.501 * epsilon_of(dtype) * size;
    return t;
}

static int is_float(int32_t dtype) { return dtype <= FY_DTYPE_BF16; }

/* Beyond the dtype's range a finite result is infinite. */
static double clip(int32_t dtype, long double want)
{
    const double most = dtype == FY_DTYPE_F16                             ? 65519.99
                        : dtype == FY_DTYPE_F32 || dtype == FY_DTYPE_BF16 ? 3.4028235677973362e38
                                                                          : INFINITY;
    if (is_float(dtype) && fabsl(want) > most)
        return want > 0 ? (double)INFINITY : -(double)INFINITY;
    return (double)want;
}

static void plant_specials(const fy_desc_t *desc, int64_t shift)
{
    static const double specials[] = { NAN, INFINITY, -INFINITY, -0.0,  0.0, 1e-6,
                                       1.0, -1.0,     80.0,      -90.0, 0.5 };
    const int64_t n = count_of(desc);
    if (!is_float(desc->dtype) || n < 64) return;
    for (int64_t i = 0; i < (int64_t)COUNT_OF(specials); i++) {
        set(desc, i, specials[(size_t)(i + shift) % COUNT_OF(specials)]);
        set(desc, n - 1 - 2 * i, specials[i]);
    }
}

static void check_op(fy_op_t op, uint16_t nsrc, int32_t dtype, uint32_t accumulate)
{
    const fy_affine_attrs_t affine = { 2.5, -0.75 };
    const int compares = op >= FY_OP_EQ && op <= FY_OP_GE;
    for (size_t l = 0; l < COUNT_OF(layouts); l++) {
        const layout_t *layout = &layouts[l];
        tensor_t dst = make(compares ? FY_DTYPE_BOOL : dtype, layout->rank, layout->dims,
                            or_dense(layout->dst_strides));
        tensor_t src[2];
        const tensor_t *sources[2] = { &src[0], &src[1] };
        for (int k = 0; k < nsrc; k++) {
            src[k] = make(dtype, layout->src[k].rank, layout->src[k].dims,
                          or_dense(layout->src[k].strides));
            fill_noise(&src[k].desc, k);
            plant_specials(&src[k].desc, 3 * k);
        }
        const int64_t n = count_of(&dst.desc);
        double *before = calloc((size_t)n + 1, sizeof *before);
        if (!compares) fill_noise(&dst.desc, 5);
        for (int64_t i = 0; i < n; i++) before[i] = get(&dst.desc, i);
        assert_int_equal(run_elementwise(op, &dst, nsrc, sources, &affine, accumulate),
                         FY_STATUS_OK);
        const fy_desc_t a = broadcast(&src[0].desc, &dst.desc),
                        b = nsrc > 1 ? broadcast(&src[1].desc, &dst.desc) : a;
        for (int64_t i = 0; i < n; i++) {
            const long double x = get(&a, i), y = get(&b, i), plain = reference(op, x, y);
            long double want = accumulate ? before[i] + plain : plain;
            char what[64];
            if (dtype == FY_DTYPE_U8 && !compares) want = (double)(uint8_t)(int)want;
            (void)snprintf(what, sizeof what, "op %u dtype %d %s", op, dtype, layout->name);
            double bound = tolerance(op, dtype, x, plain);
            if (accumulate)
                bound = 2 * bound + epsilon_of(dtype) * (fabs(before[i]) + fabs((double)plain)) +
                        1e-30;
            expect_near(get(&dst.desc, i), compares ? (double)want : clip(dtype, want), bound, what,
                        i);
        }
        free(before);
        drop(&dst);
        for (int k = 0; k < nsrc; k++) drop(&src[k]);
    }
}

TS_TEST(every_unary_op)
{
    for (fy_op_t op = FY_OP_NEG; op <= FY_OP_AFFINE; op++) {
        for (int32_t dtype = 0; dtype <= (op <= FY_OP_ABS ? FY_DTYPE_U8 : FY_DTYPE_BF16); dtype++)
            check_op(op, 1, dtype, 0);
    }
}

TS_TEST(every_binary_op)
{
    for (fy_op_t op = FY_OP_ADD; op <= FY_OP_POW; op++) {
        const int only_float = op == FY_OP_DIV || op == FY_OP_POW;
        for (int32_t dtype = 0; dtype <= (only_float ? FY_DTYPE_BF16 : FY_DTYPE_U8); dtype++)
            check_op(op, 2, dtype, 0);
    }
}

TS_TEST(every_comparison)
{
    for (fy_op_t op = FY_OP_EQ; op <= FY_OP_GE; op++) {
        for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) check_op(op, 2, dtype, 0);
    }
}

TS_TEST(accumulate_adds_for_floats)
{
    for (int32_t dtype = 0; dtype <= FY_DTYPE_BF16; dtype++) {
        for (fy_op_t op = FY_OP_NEG; op <= FY_OP_AFFINE; op++) check_op(op, 1, dtype, 1);
        for (fy_op_t op = FY_OP_ADD; op <= FY_OP_POW; op++) check_op(op, 2, dtype, 1);
    }
}

/* dst and source may be the same memory. */
TS_TEST(dst_may_be_a_source)
{
    const int64_t n = 1000;
    for (int32_t dtype = 0; dtype <= FY_DTYPE_U8; dtype++) {
        tensor_t t = make(dtype, 1, &n, NULL), copy = make(dtype, 1, &n, NULL);
        fill_noise(&t.desc, 1);
        memcpy(copy.desc.data, t.desc.data, t.nbytes);
        assert_int_equal(run_elementwise(FY_OP_SUB, &t, SRCS(&t, &t), NULL, 0), FY_STATUS_OK);
        for (int64_t i = 0; i < n; i++) assert_true(get(&t.desc, i) == 0);
        assert_int_equal(run_elementwise(FY_OP_ADD, &t, SRCS(&copy, &t), NULL, 0), FY_STATUS_OK);
        for (int64_t i = 0; i < n; i++) assert_true(get(&t.desc, i) == get(&copy.desc, i));
        DROP(&t, &copy);
    }
}

/* An element has the same bits at every position in a row. */
TS_TEST(bits_do_not_depend_on_the_place)
{
    const int64_t n = 131;
    static const fy_op_t ops[] = { FY_OP_EXP, FY_OP_LOG, FY_OP_TANH, FY_OP_SIGMOID };
    for (size_t k = 0; k < COUNT_OF(ops); k++) {
        for (int32_t dtype = 0; dtype <= FY_DTYPE_F64; dtype++) {
            tensor_t src = make(dtype, 1, &n, NULL), whole = make(dtype, 1, &n, NULL),
                     one = make(dtype, 0, NULL, NULL);
            for (int64_t i = 0; i < n; i++) set(&src.desc, i, fabs(noise(i)) * 3);
            assert_int_equal(run_elementwise(ops[k], &whole, SRCS(&src), NULL, 0), FY_STATUS_OK);
            for (int64_t i = 0; i < n; i++) {
                tensor_t scalar = src;
                scalar.desc.rank = 0;
                scalar.desc.data = at(&src.desc, i);
                assert_int_equal(run_elementwise(ops[k], &one, SRCS(&scalar), NULL, 0),
                                 FY_STATUS_OK);
                assert_memory_equal(at(&whole.desc, i), one.desc.data, size_of(dtype));
            }
            DROP(&src, &whole, &one);
        }
    }
}

TS_TEST(axpy_adds_in_place)
{
    const fy_axpy_attrs_t attrs = { -0.5 };
    for (int32_t dtype = 0; dtype <= FY_DTYPE_BF16; dtype++) {
        for (size_t l = 0; l < COUNT_OF(layouts); l++) {
            const layout_t *layout = &layouts[l];
            tensor_t y = make(dtype, layout->rank, layout->dims, or_dense(layout->dst_strides));
            tensor_t x = make(dtype, layout->src[1].rank, layout->src[1].dims,
                              or_dense(layout->src[1].strides));
            const int64_t n = count_of(&y.desc);
            double *before = calloc((size_t)n + 1, sizeof *before);
            fill_noise(&y.desc, 1);
            fill_noise(&x.desc, 2);
            for (int64_t i = 0; i < n; i++) before[i] = get(&y.desc, i);
            assert_int_equal(run_elementwise(FY_OP_AXPY, &y, SRCS(&x), &attrs, 0), FY_STATUS_OK);
            const fy_desc_t source = broadcast(&x.desc, &y.desc);
            for (int64_t i = 0; i < n; i++) {
                const double want = before[i] - 0.5 * get(&source, i);
                expect_near(get(&y.desc, i), want, 1.01 * epsilon_of(dtype) * (fabs(before[i]) + 2),
                            layout->name, i);
            }
            free(before);
            DROP(&y, &x);
        }
    }
}

TS_TEST(where_picks_bytes)
{
    for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        for (size_t l = 0; l < COUNT_OF(layouts); l++) {
            const layout_t *layout = &layouts[l];
            tensor_t dst = make(dtype, layout->rank, layout->dims, or_dense(layout->dst_strides));
            tensor_t a = make(dtype, layout->src[0].rank, layout->src[0].dims,
                              or_dense(layout->src[0].strides));
            tensor_t b = make(dtype, layout->src[1].rank, layout->src[1].dims,
                              or_dense(layout->src[1].strides));
            tensor_t cond = make(FY_DTYPE_BOOL, layout->src[1].rank, layout->src[1].dims, NULL);
            fill_noise(&a.desc, 1);
            fill_noise(&b.desc, 2);
            fill_noise(&cond.desc, 3);
            plant_specials(&a.desc, 0);
            assert_int_equal(run_elementwise(FY_OP_WHERE, &dst, SRCS(&cond, &a, &b), NULL, 0),
                             FY_STATUS_OK);
            const fy_desc_t x = broadcast(&a.desc, &dst.desc), y = broadcast(&b.desc, &dst.desc),
                            c = broadcast(&cond.desc, &dst.desc);
            for (int64_t i = 0; i < count_of(&dst.desc); i++) {
                assert_memory_equal(at(&dst.desc, i), get(&c, i) != 0 ? at(&x, i) : at(&y, i),
                                    size_of(dtype));
            }
            DROP(&dst, &a, &b, &cond);
        }
    }
}

/* Each pair of dtypes in a dense and in a strided layout; the scalar rules themselves are tested in
 * test_formulas and test_half. */
TS_TEST(every_cast)
{
    const int64_t dims[2] = { 30, 70 }, gaps[2] = { 2, 61 };
    static const double values[] = { 0,         1,     -1,    2.5,         -2.5,  0.49,
                                     255,       256,   300,   -300,        70000, 3e9,
                                     -3e9,      1e19,  -1e19, 1e-8,        NAN,   INFINITY,
                                     -INFINITY, 65519, 65520, 1.0009765625 };
    for (int32_t from = 0; from < FY_DTYPE_COUNT; from++) {
        for (int32_t to = 0; to < FY_DTYPE_COUNT; to++) {
            for (int strided = 0; strided < 4; strided++) {
                tensor_t src = make(from, 2, dims, strided & 1 ? gaps : NULL),
                         dst = make(to, 2, dims, strided & 2 ? gaps : NULL);
                const fy_cast_attrs_t attrs = { to };
                fill_noise(&src.desc, from);
                for (int64_t i = 0; is_float(from) && i < (int64_t)COUNT_OF(values); i++)
                    set(&src.desc, i, values[i]);
                if (from == FY_DTYPE_I64)
                    *(int64_t *)at(&src.desc, 1) = INT64_MAX,
                                              *(int64_t *)at(&src.desc, 2) = 1234567890123;
                assert_int_equal(run_elementwise(FY_OP_CAST, &dst, SRCS(&src), &attrs, 0),
                                 FY_STATUS_OK);
                for (int64_t i = 0; i < 2100; i++) {
                    const double x = get(&src.desc, i), got = get(&dst.desc, i);
                    double want = x;
                    if (to == FY_DTYPE_F32) want = (double)(float)x;
                    if (to == FY_DTYPE_F16) want = (double)fy__f32_from_f16(fy__f16_from_f64(x));
                    if (to == FY_DTYPE_BF16) want = (double)fy__f32_from_bf16(fy__bf16_from_f64(x));
                    if (to == FY_DTYPE_BOOL) want = isnan(x) || x != 0;
                    if (is_float(from) && to == FY_DTYPE_I32)
                        want = isnan(x) ? 0 : fmin(fmax(trunc(x), -2147483648.0), 2147483647.0);
                    if (is_float(from) && to == FY_DTYPE_I64)
                        want = isnan(x) ? 0 : fmin(fmax(trunc(x), -0x1p63), 0x1p63);
                    if (is_float(from) && to == FY_DTYPE_U8)
                        want = isnan(x) ? 0 : fmin(fmax(trunc(x), 0), 255);
                    if (from == FY_DTYPE_I64 && i < 3 && !is_float(to) && to != FY_DTYPE_BOOL) {
                        const int64_t whole = *(int64_t *)at(&src.desc, i);
                        want = to == FY_DTYPE_I32  ? (double)(int32_t)whole
                               : to == FY_DTYPE_U8 ? (double)(uint8_t)whole
                                                   : (double)whole;
                    } else if (to == FY_DTYPE_U8 && !is_float(from)) {
                        want = (double)(uint8_t)(int64_t)x;
                    }
                    if (from == FY_DTYPE_I64 && i < 3 && to == FY_DTYPE_F32)
                        want = (double)(float)*(int64_t *)at(&src.desc, i);
                    char what[48];
                    (void)snprintf(what, sizeof what, "cast %d -> %d layout %d", from, to, strided);
                    expect_near(got, want, 0, what, i);
                }
                DROP(&src, &dst);
            }
        }
    }
}
