/* Edge values in each loop table that this machine has: every table gives the result of the scalar
 * formula, bit for bit, for zeros of both signs, infinities, NaN and the kinks of the piecewise
 * activations. Not here: ops, layouts and half precision (tests/ops/test_op_edges.c). */
#include "opset/formulas/activation.h"
#include "tests/unit/backends/kernel_fixture.h"

enum { N = 400 };
static const double k_values[] = { -INFINITY, -1e30, -4, -3, -2.5, -0.0, 0.0,      1,
                                   2.5,       3,     4,  6,  7,    1e30, INFINITY, NAN };

/* Each value beside each other value, repeated. */
#define CHECK(sfx, T, row)                                                                       \
    static void check_##sfx(const fy__loops_t *table, const char *op, fy__loop2_fn loop,         \
                            T (*formula)(T, T), int64_t n)                                       \
    {                                                                                            \
        T a[N], b[N], got[N];                                                                    \
        for (int i = 0; i < N; i++) {                                                            \
            a[i] = (T)k_values[i % COUNT_OF(k_values)];                                          \
            b[i] = (T)k_values[i / COUNT_OF(k_values) % COUNT_OF(k_values)];                     \
        }                                                                                        \
        loop(n, got, a, b);                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                        \
            const T want = formula(a[i], b[i]);                                                  \
            if (isnan(want) ? isnan(got[i])                                                      \
                            : got[i] == want && !signbit(got[i]) == !signbit(want))              \
                continue;                                                                        \
            fail_msg("%s, %s_" #sfx "(%g, %g): %g, not %g", table->name, op, (double)a[i],       \
                     (double)b[i], (double)got[i], (double)want);                                \
        }                                                                                        \
    }                                                                                            \
    static T hardswish_of_##sfx(T x, T unused) { return (void)unused, fy__hardswish_##sfx(x); }  \
    static const fy__loops_t *hardswish_table_##sfx;                                             \
    static void hardswish_loop_##sfx(int64_t n, void *dst, const void *a, const void *b)         \
    {                                                                                            \
        (void)b;                                                                                 \
        hardswish_table_##sfx->unary[FY__UNARY_HARDSWISH][row](n, dst, a);                       \
    }                                                                                            \
    static void check_table_##sfx(const fy__loops_t *table, int64_t n)                           \
    {                                                                                            \
        hardswish_table_##sfx = table;                                                           \
        check_##sfx(table, "maximum", table->binary[FY__BINARY_MAXIMUM][row], fy__maximum_##sfx, \
                    n);                                                                          \
        check_##sfx(table, "minimum", table->binary[FY__BINARY_MINIMUM][row], fy__minimum_##sfx, \
                    n);                                                                          \
        check_##sfx(table, "hardswish", hardswish_loop_##sfx, hardswish_of_##sfx, n);            \
        check_##sfx(table, "hardswish_backward",                                                 \
                    table->binary[FY__BINARY_HARDSWISH_BACKWARD][row],                           \
                    fy__hardswish_backward_##sfx, n);                                            \
        check_##sfx(table, "hardsigmoid_backward",                                               \
                    table->binary[FY__BINARY_HARDSIGMOID_BACKWARD][row],                         \
                    fy__hardsigmoid_backward_##sfx, n);                                          \
    }
CHECK(f32, float, 0)
CHECK(f64, double, 1)

TS_TEST(every_table_matches_the_formula)
{
    const fy__loops_t *tables[3];
    const size_t ntables = find_tables(tables);
    for (size_t t = 0; t < ntables; t++)
        for (int64_t n = 1; n <= N; n += n < 40 ? 1 : 51) {
            check_table_f32(tables[t], n);
            check_table_f64(tables[t], n);
        }
}

/* Other values of the table in docs/ops.md: tests/ops/test_op_edges.c. */
TS_TEST(the_formulas_match_the_documented_edges)
{
    assert_true(fy__hardswish_f32(3e38f) == 3e38f); /* the product with 6 would be infinite */
}
