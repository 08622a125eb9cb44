/* Values at the edges, as docs/ops.md's table of edge values has them, in every float dtype and in
 * the layouts that take other loops: the sign of a zero of maximum and minimum, hardswish far out,
 * the gradients of the piecewise activations at their kinks and at NaN, division of integers by 0,
 * the truth of NaN and -0.
 * Not here: whatever an error bound can judge (test_op_matrix.c), the loop tables one by one
 * (tests/unit/backends/test_edges.c). */
#include <math.h>
#include <stdbool.h>

#include "tests/support/harness.h"

static const fy_dtype_t k_floats[] = { FY_DTYPE_F32, FY_DTYPE_F64, FY_DTYPE_F16, FY_DTYPE_BF16 };
enum { FLOATS = sizeof k_floats / sizeof *k_floats, MOST = 1024 };

static fy_tensor_t *all_of(ts_ctx_t *ctx, fy_dtype_t dtype, int64_t rows, int64_t columns,
                           double value)
{
    fy_tensor_t *tensor;
    ts_ok(fy_full(ctx->device, dtype, FY_DIMS(rows, columns), value, &tensor));
    return tensor;
}

/* Every element, as f32, which holds a NaN, a sign and all values here. */
static void read(const fy_tensor_t *tensor, float *out, size_t n)
{
    fy_tensor_t *wide;
    ts_ok(fy_cast(tensor, FY_DTYPE_F32, &wide));
    ts_read(wide, out, n * sizeof *out);
}

/* ---- maximum, minimum: of 0 and -0 the second operand ---- */

typedef enum layout { DENSE, TURNED, FIRST_REPEATS, SECOND_REPEATS, INTO_FIRST, LAYOUTS } layout_t;

TS_DEVICE_TEST(a_tie_is_the_second_operand)
{
    static float got[MOST];
    for (int d = 0; d < FLOATS; d++)
        for (int op = FY_OP_MAXIMUM; op <= FY_OP_MINIMUM; op++)
            for (int64_t rows = 1; rows <= MOST / 3; rows = rows * 3 + 2)
                for (int i = 0; i < 2 * LAYOUTS; i++) {
                    const layout_t layout = (layout_t)(i / 2);
                    const double second = i % 2 ? -0.0 : 0.0;
                    fy_scope_t scope = fy_scope_begin("tie");
                    const bool once = layout == FIRST_REPEATS;
                    fy_tensor_t *a = layout == TURNED ? all_of(ctx, k_floats[d], 3, rows, -second)
                                                      : all_of(ctx, k_floats[d], once ? 1 : rows,
                                                               once ? 1 : 3, -second);
                    fy_tensor_t *b = layout == SECOND_REPEATS
                                         ? all_of(ctx, k_floats[d], 1, 1, second)
                                         : all_of(ctx, k_floats[d], rows, 3, second);
                    fy_tensor_t *dst[1] = { NULL };
                    if (layout == TURNED) ts_ok(fy_transpose(a, NULL, &a));
                    if (layout == INTO_FIRST) dst[0] = a;
                    ts_ok(fy_op_call((fy_op_t)op, 2, (fy_tensor_t *[]){ a, b }, NULL, 0, 1, dst));
                    read(dst[0], got, (size_t)rows * 3);
                    for (int64_t k = 0; k < rows * 3; k++)
                        if (got[k] != 0 || !signbit(got[k]) != !signbit(second))
                            fail_msg("%s, %s, layout %d, element %lld of %lld: %g",
                                     fy_op_get((fy_op_t)op)->name, fy_dtype_name(k_floats[d]),
                                     (int)layout, (long long)k, (long long)rows * 3,
                                     (double)got[k]);
                    fy_scope_end(scope, 0, NULL);
                }
}

/* ---- one function of one variable ---- */

typedef struct edge {
    float x, y; /* y as f32 has it; NAN: any NaN */
} edge_t;

/* `backward`: of dy = 6 everywhere. Lengths that fill no vector, and several. */
static void expect_edges(ts_ctx_t *ctx, fy_op_t op, bool backward, size_t nedges,
                         const edge_t *edges)
{
    static float x[MOST], got[MOST];
    for (int d = 0; d < FLOATS; d++)
        for (size_t repeats = 1; repeats * nedges <= MOST; repeats *= 5) {
            const size_t n = repeats * nedges;
            fy_scope_t scope = fy_scope_begin("edges");
            fy_tensor_t *at, *sources[2], *dst[1] = { NULL };
            for (size_t i = 0; i < n; i++) x[i] = edges[i % nedges].x;
            at = ts_f32(ctx->device, FY_DIMS(1, (int64_t)n), x);
            ts_ok(fy_cast(at, k_floats[d], &at));
            sources[0] = backward ? all_of(ctx, k_floats[d], 1, (int64_t)n, 6) : at;
            sources[1] = at;
            ts_ok(fy_op_call(op, backward ? 2 : 1, sources, NULL, 0, 1, dst));
            read(dst[0], got, n);
            for (size_t i = 0; i < n; i++) {
                const float want = edges[i % nedges].y;
                if (isnan(want) ? isnan(got[i])
                                : got[i] == want && !signbit(got[i]) == !signbit(want))
                    continue;
                fail_msg("%s, %s, element %zu of %zu, of %g: %g, not %g", fy_op_get(op)->name,
                         fy_dtype_name(k_floats[d]), i, n, (double)x[i], (double)got[i],
                         (double)want);
            }
            fy_scope_end(scope, 0, NULL);
        }
}
#define EXPECT_EDGES(ctx, op, backward, edges) \
    expect_edges((ctx), (op), (backward), sizeof(edges) / sizeof *(edges), (edges))

TS_DEVICE_TEST(hardswish_far_out)
{
    /* 61440 is a large f16: its product with 6 would not be one. */
    static const edge_t edges[] = { { -INFINITY, 0 }, { -61440, 0 },          { -4, 0 },
                                    { -3, -0.0f },    { -0.0f, -0.0f },       { 0, 0 },
                                    { 3, 3 },         { INFINITY, INFINITY }, { NAN, NAN },
                                    { 61440, 61440 } };
    EXPECT_EDGES(ctx, FY_OP_HARDSWISH, false, edges);
}

TS_DEVICE_TEST(slopes_at_kinks_and_nan)
{
    static const edge_t hardsigmoid[] = {
        { -INFINITY, 0 }, { -3, 0 }, { -2.5f, 1 },    { 0, 1 },
        { 2.5f, 1 },      { 3, 0 },  { INFINITY, 0 }, { NAN, 0 }
    };
    static const edge_t hardswish[] = {
        { -INFINITY, 0 }, { -4, 0 }, { -3, 0 },       { 0, 3 },
        { 3, 6 },         { 4, 6 },  { INFINITY, 6 }, { NAN, NAN }
    };
    static const edge_t relu[] = { { -INFINITY, 0 }, { -1, 0 },       { -0.0f, 0 }, { 0, 0 },
                                   { 1, 6 },         { INFINITY, 6 }, { NAN, 6 } };
    static const edge_t relu6[] = { { -INFINITY, 0 }, { 0, 0 },        { 1, 6 },  { 6, 0 },
                                    { 7, 0 },         { INFINITY, 0 }, { NAN, 6 } };
    EXPECT_EDGES(ctx, FY_OP_HARDSIGMOID_BACKWARD, true, hardsigmoid);
    EXPECT_EDGES(ctx, FY_OP_HARDSWISH_BACKWARD, true, hardswish);
    EXPECT_EDGES(ctx, FY_OP_RELU_BACKWARD, true, relu);
    EXPECT_EDGES(ctx, FY_OP_RELU6_BACKWARD, true, relu6);
}

/* ---- two integers: division by 0 and by -1, signs ---- */

typedef struct quotient {
    int64_t a, b, quotient, rest;
} quotient_t;

static fy_tensor_t *integers(ts_ctx_t *ctx, fy_dtype_t dtype, int64_t rows, int64_t columns,
                             int64_t *values)
{
    fy_tensor_t *tensor = ts_upload(ctx->device, FY_DTYPE_I64, FY_DIMS(rows, columns), values);
    if (dtype != FY_DTYPE_I64) ts_ok(fy_cast(tensor, dtype, &tensor));
    return tensor;
}

/* Rows of equal elements: lengths that fill no vector, and several; dense, strided, and with one
 * divisor a row. */
static void expect_quotients(ts_ctx_t *ctx, fy_dtype_t dtype, size_t nrows, const quotient_t *want)
{
    static int64_t a[MOST], b[MOST], got[MOST];
    for (int64_t columns = 1; columns * (int64_t)nrows <= MOST; columns = columns * 5 + 1)
        for (int layout = 0; layout < 3; layout++) {
            const int64_t rows = (int64_t)nrows, divisors = layout == 2 ? 1 : columns;
            fy_scope_t scope = fy_scope_begin("quotients");
            fy_tensor_t *x, *y, *result[2];
            for (int64_t i = 0; i < rows * columns; i++) a[i] = want[i / columns].a;
            for (int64_t i = 0; i < rows * divisors; i++) b[i] = want[i / divisors].b;
            x = integers(ctx, dtype, rows, columns, a);
            y = integers(ctx, dtype, rows, divisors, b);
            if (layout == 1) {
                ts_ok(fy_transpose(x, NULL, &x));
                ts_ok(fy_transpose(y, NULL, &y));
            }
            ts_ok(fy_floor_divide(x, y, &result[0]));
            ts_ok(fy_remainder(x, y, &result[1]));
            for (int op = 0; op < 2; op++) {
                fy_tensor_t *all = result[op];
                if (layout == 1) ts_ok(fy_transpose(all, NULL, &all));
                ts_ok(fy_cast(all, FY_DTYPE_I64, &all));
                ts_read(all, got, (size_t)(rows * columns) * sizeof *got);
                for (int64_t i = 0; i < rows * columns; i++) {
                    const quotient_t *row = &want[i / columns];
                    if (got[i] == (op ? row->rest : row->quotient)) continue;
                    fail_msg("%s of %lld and %lld, %s, layout %d: %lld",
                             op ? "remainder" : "floor_divide", (long long)row->a,
                             (long long)row->b, fy_dtype_name(dtype), layout, (long long)got[i]);
                }
            }
            fy_scope_end(scope, 0, NULL);
        }
}
#define EXPECT_QUOTIENTS(ctx, dtype, want) \
    expect_quotients((ctx), (dtype), sizeof(want) / sizeof *(want), (want))

TS_DEVICE_TEST(integers_divide_without_a_trap)
{
    static const quotient_t small[] = { { 7, 2, 3, 1 },    { -7, 2, -4, 1 }, { 7, -2, -4, -1 },
                                        { -7, -2, 3, -1 }, { 6, -3, -2, 0 }, { -6, 3, -2, 0 },
                                        { 0, -5, 0, 0 },   { 5, 0, 0, 0 },   { -5, 0, 0, 0 },
                                        { 0, 0, 0, 0 },    { 9, -1, -9, 0 } };
    static const quotient_t i32[] = { { INT32_MIN, -1, INT32_MIN, 0 },
                                      { INT32_MIN, 0, 0, 0 },
                                      { INT32_MIN, INT32_MAX, -2, INT32_MAX - 1 },
                                      { INT32_MAX, INT32_MIN, -1, -1 },
                                      { INT32_MIN, 1, INT32_MIN, 0 } };
    static const quotient_t i64[] = { { INT64_MIN, -1, INT64_MIN, 0 },
                                      { INT64_MIN, 0, 0, 0 },
                                      { INT64_MIN, INT64_MAX, -2, INT64_MAX - 1 },
                                      { INT64_MAX, INT64_MIN, -1, -1 },
                                      { INT64_MIN, 1, INT64_MIN, 0 } };
    static const quotient_t u8[] = { { 255, 2, 127, 1 }, { 255, 0, 0, 0 }, { 1, 255, 0, 1 } };
    EXPECT_QUOTIENTS(ctx, FY_DTYPE_I32, small);
    EXPECT_QUOTIENTS(ctx, FY_DTYPE_I64, small);
    EXPECT_QUOTIENTS(ctx, FY_DTYPE_I32, i32);
    EXPECT_QUOTIENTS(ctx, FY_DTYPE_I64, i64);
    EXPECT_QUOTIENTS(ctx, FY_DTYPE_U8, u8);
}

/* ---- truth: NaN is true, -0 is false ---- */

TS_DEVICE_TEST(nan_is_true_and_minus_zero_false)
{
    static const float x[] = { NAN, -0.0f, 0, -1, INFINITY };
    static const uint8_t truth[] = { 1, 0, 0, 1, 1 }, is_nan[] = { 1, 0, 0, 0, 0 };
    enum { N = sizeof truth };
    uint8_t got[4][N];
    for (int d = 0; d < FLOATS; d++) {
        fy_scope_t scope = fy_scope_begin("truth");
        fy_tensor_t *at = ts_f32(ctx->device, FY_DIMS(N), x), *zero, *result;
        ts_ok(fy_cast(at, k_floats[d], &at));
        ts_ok(fy_full(ctx->device, k_floats[d], 0, NULL, -0.0, &zero));
        ts_ok(fy_logical_or(at, zero, &result));
        ts_read(result, got[0], N);
        ts_ok(fy_logical_and(at, at, &result));
        ts_read(result, got[1], N);
        ts_ok(fy_logical_not(at, &result));
        ts_read(result, got[2], N);
        ts_ok(fy_isnan(at, &result));
        ts_read(result, got[3], N);
        for (int i = 0; i < N; i++) {
            assert_int_equal(got[0][i], truth[i]);
            assert_int_equal(got[1][i], truth[i]);
            assert_int_equal(got[2][i], !truth[i]);
            assert_int_equal(got[3][i], is_nan[i]);
        }
        fy_scope_end(scope, 0, NULL);
    }
}
