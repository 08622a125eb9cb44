/* Elementwise kernels, and those that move elements, where tests/ops/cases.def has no row: rows
 * longer than a block, more than one thread's share, in every dtype and layout; results over a
 * source; bits that do not depend on the position. Values of short rows:
 * tests/ops/test_op_matrix.c. */
#include "backends/kernels/threads.h"
#include "tests/support/cases.h"
#include "tests/unit/backends/kernel_fixture.h"

static const fy_axpy_attrs_t k_axpy = { -0.5 };
static const fy_cast_attrs_t k_cast = { FY_DTYPE_F32 };
static const fy_fill_attrs_t k_fill = { -0.3, 1 };
static const fy_affine_attrs_t k_affine = { 2.5, -0.75 };
static const fy_arange_attrs_t k_arange = { -3, 1 };
static const fy_axis_attrs_t k_last = { 2, 0 };

/* As the rows of cases.def. */
static const ts_case_t k_rows[] = {
    { FY_OP_EXP, "large", "300,301", "any", NULL, FY_STATUS_OK },
    { FY_OP_NEG, "large", "100003", "wide", NULL, FY_STATUS_OK },
    { FY_OP_AFFINE, "long rows", "7,530", "any", &k_affine, FY_STATUS_OK },
    { FY_OP_CAST, "long rows", "7,530", "wide", &k_cast, FY_STATUS_OK },
    { FY_OP_ADD, "large", "100003 / 100003", "wide", NULL, FY_STATUS_OK },
    { FY_OP_SUB, "large, a row", "300,301 / 301", "any", NULL, FY_STATUS_OK },
    { FY_OP_MAXIMUM, "a column, long rows", "37,1 / 37,530", "any", NULL, FY_STATUS_OK },
    { FY_OP_POW, "long rows, a column", "37,530 / 37,1", "pos any", NULL, FY_STATUS_OK },
    { FY_OP_LT, "a column, long rows", "37,1 / 37,530", "ties", NULL, FY_STATUS_OK },
    { FY_OP_AXPY, "a column to all", "37,1 -> 37,530", "any", &k_axpy, FY_STATUS_OK },
    { FY_OP_WHERE, "long rows", "37,530 / 37,1 / 530", "cond any", NULL, FY_STATUS_OK },
    { FY_OP_COPY, "large", "400,515 -> 400,515", "any", NULL, FY_STATUS_OK },
    { FY_OP_CONCAT, "one is empty", "4,6,3 / 4,6,0 / 4,6,5 / 4,6,1", "any", &k_last, FY_STATUS_OK },
    { FY_OP_GATHER, "large", "50,3,4 / 6,3000", "any index:50", NULL, FY_STATUS_OK },
    { FY_OP_FILL, "large", "-> 300000", "any", &k_fill, FY_STATUS_OK },
    { FY_OP_ARANGE, "long", "-> 40000", "any", &k_arange, FY_STATUS_OK },
};

TS_TEST(long_rows_on_three_threads)
{
#ifndef __SANITIZE_THREAD__ /* libgomp is not instrumented: accesses of a team would be reported */
    fy__threads_set(3);
#endif
    for (size_t i = 0; i < COUNT_OF(k_rows); i++)
        for (fy_dtype_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++)
            for (ts_layout_t layout = 0; layout < TS_LAYOUT_COUNT; layout++) {
                if (!(fy_op_get(k_rows[i].op)->dtypes & FY_DTYPE_BIT(dtype))) continue;
                if (dtype == FY_DTYPE_U8 && k_rows[i].op == FY_OP_ARANGE)
                    continue; /* begins below 0 */
                const bool repeats = layout == TS_BROADCAST;
                const ts_run_options_t options = { fy_device_host(), layout,
                                                   repeats ? TS_CONTIGUOUS : layout, TS_ALL_SOURCES,
                                                   true };
                ts_inputs_t inputs;
                bool applied;
                ts_inputs_make(&inputs, &k_rows[i], dtype, repeats, 1);
                assert_true(ts_case_run(&k_rows[i], dtype, &inputs, &options, NULL, &applied));
                ts_inputs_free(&inputs);
            }
    fy__threads_set(FY__THREADS_AUTO);
}

/* dst and source may be the same memory. */
TS_TEST(dst_may_be_a_source)
{
    const int64_t n = 1000;
    for (int32_t dtype = 0; dtype <= FY_DTYPE_U8; dtype++) {
        tensor_t t = make(dtype, 1, &n, NULL), copy = make(dtype, 1, &n, NULL);
        fill_noise(&t.desc, 1);
        memcpy(copy.desc.data, t.desc.data, t.nbytes);
        ts_ok(run_elementwise(FY_OP_SUB, &t, SRCS(&t, &t), NULL, 0));
        for (int64_t i = 0; i < n; i++) assert_true(get(&t.desc, i) == 0);
        ts_ok(run_elementwise(FY_OP_ADD, &t, SRCS(&copy, &t), NULL, 0));
        for (int64_t i = 0; i < n; i++) assert_true(get(&t.desc, i) == get(&copy.desc, i));
        DROP(&t, &copy);
    }
}

/* An element has the same bits at every position in a row. */
TS_TEST(bits_do_not_depend_on_the_place)
{
    const int64_t n = 131;
    static const fy_op_t ops[] = { FY_OP_EXP,     FY_OP_LOG, FY_OP_TANH,
                                   FY_OP_SIGMOID, FY_OP_ERF, FY_OP_GELU };
    for (size_t k = 0; k < COUNT_OF(ops); k++) {
        for (int32_t dtype = 0; dtype <= FY_DTYPE_F64; dtype++) {
            tensor_t src = make(dtype, 1, &n, NULL), whole = make(dtype, 1, &n, NULL),
                     one = make(dtype, 0, NULL, NULL);
            for (int64_t i = 0; i < n; i++) set(&src.desc, i, fabs(noise(i)) * 3);
            ts_ok(run_elementwise(ops[k], &whole, SRCS(&src), NULL, 0));
            for (int64_t i = 0; i < n; i++) {
                tensor_t scalar = src;
                scalar.desc.rank = 0;
                scalar.desc.data = at(&src.desc, i);
                ts_ok(run_elementwise(ops[k], &one, SRCS(&scalar), NULL, 0));
                assert_memory_equal(at(&whole.desc, i), one.desc.data, size_of(dtype));
            }
            DROP(&src, &whole, &one);
        }
    }
}

/* gelu and its slope from where f32 has no smaller results on, by every loop table: the error is
 * that of the exponential of x^2 / 2 and of a few roundings. */
TS_TEST(gelu_has_its_digits_everywhere)
{
    enum { N = 22 << 10 };
    static float x[N], ones[N], got[2][N];
    const fy__loops_t *tables[3];
    const size_t ntables = find_tables(tables);
    for (int i = 0; i < N; i++) x[i] = (float)i * 0x1p-10f - 14, ones[i] = 1;
    for (size_t t = 0; t < ntables; t++) {
        tables[t]->unary[FY__UNARY_GELU][FY_DTYPE_F32](N, got[0], x);
        tables[t]->binary[FY__BINARY_GELU_BACKWARD][FY_DTYPE_F32](N, got[1], ones, x);
        for (int i = 0; i < N; i++) {
            const double at = (double)x[i], below = erfc(-at * M_SQRT1_2) / 2,
                         slope = at * exp(-at * at / 2) / sqrt(2 * M_PI),
                         bound = 2.5 * 0x1p-23 * (2 + at * at);
            expect_near((double)got[0][i], at * below, bound * fabs(at * below) + 0x1p-126, "gelu",
                        i);
            expect_near((double)got[1][i], below + slope, bound * (below + fabs(slope)) + 0x1p-126,
                        "its slope", i);
        }
    }
}
