/* Sums of 2^20 equal terms, the case in which rounding errors of sums in order do not cancel:
 * products in both forms, narrow ones too, and their gradients, within the error that docs/ops.md
 * states.
 * Not here: short sums and the other ops (test_op_matrix.c). */
#include <math.h>

#include "tests/support/harness.h"
#include "tests/support/oracle.h"

enum { TERMS = 1 << 20, MOST = 9 };

static const fy_dtype_t k_floats[] = { FY_DTYPE_F32, FY_DTYPE_F64, FY_DTYPE_F16, FY_DTYPE_BF16 };

static fy_tensor_t *tenths(ts_ctx_t *ctx, fy_dtype_t dtype, int64_t rows, int64_t columns)
{
    fy_tensor_t *tensor;
    ts_ok(fy_full(ctx->device, dtype, FY_DIMS(rows, columns), 0.1, &tensor));
    return tensor;
}

/* Every element is a sum of TERMS terms of `term`, with the error of so many roundings. */
static void expect_within(const fy_tensor_t *got, fy_dtype_t dtype, double term, double steps,
                          const char *what)
{
    const double want = term * TERMS,
                 bound = (ts_unit(dtype) + ts_unit_compute(dtype) * steps) * want;
    fy_tensor_t *wide;
    double values[MOST];
    const size_t n = (size_t)ts_info(got).nelem;
    assert_true(n <= MOST);
    ts_ok(fy_cast(got, FY_DTYPE_F64, &wide));
    ts_read(wide, values, n * sizeof *values);
    for (size_t i = 0; i < n; i++)
        if (!(fabs(values[i] - want) <= bound || values[i] == ts_round(dtype, want)))
            fail_msg("%s in %s, element %zu of %zu: %.9g, not %.9g: an error of %.2g, bound %.2g",
                     what, fy_dtype_name(dtype), i, n, values[i], want, fabs(values[i] - want),
                     bound);
}

static void expect_sums(const fy_tensor_t *got, fy_dtype_t dtype, double term, const char *what)
{
    expect_within(got, dtype, term, ts_product_steps(dtype, TERMS), what);
}

static void check_products(ts_ctx_t *ctx, fy_dtype_t dtype, int64_t m, int64_t n)
{
    const double tenth = ts_round(dtype, 0.1), term = tenth * tenth;
    fy_tensor_t *a = tenths(ctx, dtype, m, TERMS), *b = tenths(ctx, dtype, TERMS, n),
                *a_turned = tenths(ctx, dtype, TERMS, m), *b_turned = tenths(ctx, dtype, n, TERMS),
                *y, *more;
    for (int turned = 0; turned < 4; turned++) {
        const fy_matmul_attrs_t attrs = { turned & 1, turned >> 1 };
        y = NULL;
        ts_ok(fy_op_call(FY_OP_MATMUL, 2,
                         (fy_tensor_t *[]){ turned & 1 ? a_turned : a, turned >> 1 ? b_turned : b },
                         &attrs, sizeof attrs, 1, &y));
        expect_sums(y, dtype, term, "matmul");
    }
    ts_ok(fy_linear(a, b_turned, NULL, FY_ACTIVATION_NONE, &y));
    expect_sums(y, dtype, term, "linear");
    ts_ok(fy_linear_backward_params(a_turned, b, &y, &more));
    expect_sums(y, dtype, term, "linear_backward_params");
    expect_within(more, dtype, tenth, dtype == FY_DTYPE_F64 ? TERMS : 4, "the bias' gradient");
}

TS_DEVICE_TEST(products_of_2_20_terms)
{
    static const int64_t sizes[][2] = {
        { 1, 1 }, { 1, 2 }, { 2, 1 }, { 3, 3 }, { 1, 9 }, { 9, 1 }
    };
    for (size_t d = 0; d < sizeof k_floats / sizeof *k_floats; d++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            fy_scope_t scope = fy_scope_begin("products");
            check_products(ctx, k_floats[d], sizes[i][0], sizes[i][1]);
            fy_scope_end(scope, 0, NULL);
        }
}

/* The gradients of x [TERMS, m] w [m, n] over rows, of each way to write it. */
TS_DEVICE_TEST(gradients_of_2_20_rows)
{
    for (size_t d = 0; d < sizeof k_floats / sizeof *k_floats; d++)
        for (int by_linear = 0; by_linear < 2; by_linear++) {
            const fy_dtype_t dtype = k_floats[d];
            const double tenth = ts_round(dtype, 0.1);
            fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
            fy_scope_t scope = fy_scope_begin("gradients");
            fy_tensor_t *x = tenths(ctx, dtype, TERMS, 3),
                        *w = tenths(ctx, dtype, by_linear ? 1 : 3, by_linear ? 3 : 1), *y;
            fy_tape_t *tape;
            ts_ok(fy_tape_create(&tape));
            ts_ok(fy_tape_watch(tape, w, NULL));
            options.seed = tenths(ctx, dtype, TERMS, 1);
            ts_ok(fy_tape_begin(tape));
            if (by_linear)
                ts_ok(fy_linear(x, w, NULL, FY_ACTIVATION_NONE, &y));
            else
                ts_ok(fy_matmul(x, w, &y));
            ts_ok(fy_tape_backward(tape, y, &options));
            expect_sums(ts_grad(tape, w), dtype, tenth * tenth, "the gradient of w");
            fy_tape_destroy(tape);
            fy_scope_end(scope, 0, NULL);
        }
}

TS_DEVICE_TEST(sums_of_2_20_terms)
{
    for (size_t d = 0; d < 2; d++) {
        static const int second = 1;
        const fy_dtype_t dtype = k_floats[d];
        const double tenth = ts_round(dtype, 0.1), steps = dtype == FY_DTYPE_F64 ? TERMS : 8;
        fy_scope_t scope = fy_scope_begin("sums");
        fy_tensor_t *x = tenths(ctx, dtype, 1, TERMS), *y;
        ts_ok(fy_sum(x, 1, &second, 0, &y));
        expect_within(y, dtype, tenth, steps, "sum");
        ts_ok(fy_mean(x, 1, &second, 0, &y));
        ts_ok(fy_affine(y, TERMS, 0, &y));
        expect_within(y, dtype, tenth, steps, "mean");
        ts_ok(fy_norm(x, 1, &second, 0, &y));
        ts_ok(fy_mul(y, y, &y));
        expect_within(y, dtype, tenth * tenth, steps, "norm");
        fy_scope_end(scope, 0, NULL);
    }
}
