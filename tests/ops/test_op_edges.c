/* Values at the edges, as docs/ops.md's table of edge values has them, in every float dtype and in
 * the layouts that take other loops: the sign of a zero of maximum and minimum, hardswish far out,
 * the gradients of the piecewise activations at their kinks and at NaN.
 * Not here: whatever an error bound can judge, division of integers, and the truth of NaN and -0
 * (test_op_matrix.c), the loop tables one by one (tests/unit/backends/test_edges.c). */
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

TS_DEVICE_TEST(slope_of_pow_by_b_at_0)
{
    static const float exponents[] = { -2, -0.5f, 0, 0.5f, 2 };
    for (int d = 0; d < FLOATS; d++) {
        float got[5];
        fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
        fy_scope_t scope = fy_scope_begin("pow");
        fy_tensor_t *a = all_of(ctx, k_floats[d], 1, 5, 0),
                    *b = ts_f32(ctx->device, FY_DIMS(1, 5), exponents), *y;
        fy_tape_t *tape;
        ts_ok(fy_cast(b, k_floats[d], &b));
        ts_ok(fy_tape_create(&tape));
        ts_ok(fy_tape_watch(tape, b, NULL));
        options.seed = all_of(ctx, k_floats[d], 1, 5, 1);
        ts_ok(fy_tape_begin(tape));
        ts_ok(fy_pow(a, b, &y));
        ts_ok(fy_tape_backward(tape, y, &options));
        read(ts_grad(tape, b), got, 5);
        for (int i = 0; i < 5; i++) assert_true(got[i] == 0);
        fy_tape_destroy(tape);
        fy_scope_end(scope, 0, NULL);
    }
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
    static const edge_t gelu_tanh[] = { { -INFINITY, 0 }, { -61440, 0 },   { 0, 3 },
                                        { 61440, 6 },     { INFINITY, 6 }, { NAN, NAN } };
    EXPECT_EDGES(ctx, FY_OP_GELU_TANH_BACKWARD, true, gelu_tanh);
    EXPECT_EDGES(ctx, FY_OP_HARDSIGMOID_BACKWARD, true, hardsigmoid);
    EXPECT_EDGES(ctx, FY_OP_HARDSWISH_BACKWARD, true, hardswish);
    EXPECT_EDGES(ctx, FY_OP_RELU_BACKWARD, true, relu);
    EXPECT_EDGES(ctx, FY_OP_RELU6_BACKWARD, true, relu6);
}
