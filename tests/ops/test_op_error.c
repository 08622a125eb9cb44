/* The errors of gradients that cases.def states: of every op with a gradient on its cases, in f32,
 * f16 and bf16 against f64; of elementwise ops in all dtypes up to the ends of the range, against
 * long double.
 * Not here: errors of results (test_op_matrix.c), gradients in f64 (test_op_gradients.c). */
#include <math.h>

#include "tests/support/cases.h"
#include "tests/support/harness.h"

#include "ops/dispatch.h"
#include "ops/tape/rules.h"

#define MOST_DY (11.0 / 8)
static const fy_dtype_t k_dtypes[] = { FY_DTYPE_F32, FY_DTYPE_F16, FY_DTYPE_BF16 };

/* An array of the same values as a tensor of `dtype`, if it is of floats. */
static fy_tensor_t *tensor_of(ts_ctx_t *ctx, const ts_array_t *array, fy_dtype_t dtype)
{
    fy_tensor_t *tensor, *made;
    ts_operand_t operand;
    ts_operand_make(&operand, ctx->device, array, TS_CONTIGUOUS);
    tensor = operand.view;
    ts_ok(fy_cast(tensor, array->f ? dtype : array->dtype, &made));
    ts_operand_free(&operand);
    return made;
}

/* dy of result 0: eighths, which every dtype holds, in an order without a short period. */
static fy_tensor_t *seed_for(ts_ctx_t *ctx, const fy_tensor_t *result)
{
    const fy_tensor_info_t info = ts_info(result);
    ts_array_t values;
    ts_array_make(&values, FY_DTYPE_F64, info.rank, info.dims);
    for (uint64_t k = 0; k < values.nelem; k++)
        values.f[k] = (double)((int)(k * k * 7 + k * 3) % 23 - 11) / 8;
    fy_tensor_t *seed = tensor_of(ctx, &values, info.dtype);
    ts_array_free(&values);
    return seed;
}

typedef struct gradients {
    size_t count;
    fy_tensor_t *result, *grad[TS_MAX_OPERANDS]; /* in f64; NULL: none */
} gradients_t;

static bool is_constant_source(fy_op_t op, size_t i)
{
    return i == 2 && (op == FY_OP_NLL_LOSS || op == FY_OP_CROSS_ENTROPY);
}

enum { ALL = -1 };

/* The gradients of a case with the values of `made`, in its dtypes or in f64, of one source only or
 * of all. */
static void run(ts_ctx_t *ctx, const ts_case_t *row, const ts_inputs_t *made, bool is_reference,
                int only, gradients_t *out)
{
    fy_tensor_t *src[TS_MAX_OPERANDS], *dst[TS_MAX_OPERANDS] = { NULL };
    fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
    fy_tape_t *tape;
    ts_ok(fy_tape_create(&tape));
    out->count = made->plan.nsrc;
    for (size_t i = 0; i < made->plan.nsrc; i++) {
        const ts_array_t *array = &made->src[i];
        src[i] = tensor_of(ctx, array, is_reference ? FY_DTYPE_F64 : array->dtype);
        if (array->f && !is_constant_source(row->op, i) && (only == ALL || only == (int)i))
            ts_ok(fy_tape_watch(tape, src[i], NULL));
    }
    for (size_t i = 0; i < made->plan.ngiven; i++) {
        const ts_array_t *array = &made->given[i];
        dst[i] = tensor_of(ctx, array, is_reference ? FY_DTYPE_F64 : array->dtype);
    }
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_op_call(row->op, made->plan.nsrc, src, row->attrs,
                     row->attrs ? fy_op_get(row->op)->attrs_nbytes : 0, ts_ndst(row->op), dst));
    ts_ok(fy_cast(dst[0], FY_DTYPE_F64, &out->result));
    options.seed = seed_for(ctx, dst[0]);
    ts_ok(fy_tape_backward(tape, dst[0], &options));
    for (size_t i = 0; i < out->count; i++) {
        out->grad[i] = NULL;
        if (!made->src[i].f || is_constant_source(row->op, i)) continue;
        if (only != ALL && only != (int)i) continue;
        ts_ok(fy_tape_grad(tape, src[i], &out->grad[i]));
        if (out->grad[i]) ts_ok(fy_cast(out->grad[i], FY_DTYPE_F64, &out->grad[i]));
    }
    fy_tape_destroy(tape);
}

static double *values_of(const fy_tensor_t *tensor)
{
    const size_t nbytes = (size_t)ts_info(tensor).nbytes;
    double *values = malloc(nbytes + 8);
    assert_non_null(values);
    if (nbytes) ts_read(tensor, values, nbytes);
    return values;
}

/* The largest error, in units of the dtype's rounding of the largest element, or of `least`. */
static double worst_of(const fy_tensor_t *want, const fy_tensor_t *got, fy_dtype_t dtype,
                       double least)
{
    const uint64_t n = ts_info(want).nelem;
    double *a = values_of(want), *b = values_of(got), largest = least, worst = 0;
    for (uint64_t k = 0; k < n; k++) largest = fmax(largest, fabs(a[k]));
    for (uint64_t k = 0; k < n; k++) {
        const double error = ts_round(dtype, a[k]) == b[k] ? 0 : fabs(a[k] - b[k]);
        if (error > ts_tiny(dtype)) worst = fmax(worst, error);
        if (isnan(b[k]) != isnan(a[k])) worst = INFINITY;
    }
    free(a);
    free(b);
    return worst == 0 ? 0 : worst / (ts_unit(dtype) * largest);
}

/* Whether the result is in the dtype's range. */
static bool is_finite(const fy_tensor_t *tensor)
{
    double *values = values_of(tensor);
    bool all = true;
    for (uint64_t k = 0; k < ts_info(tensor).nelem; k++) all &= !isinf(values[k]);
    free(values);
    return all;
}

static bool is_usable(const ts_case_t *row, const ts_inputs_t *made, fy_dtype_t dtype)
{
    if (made->plan.is_empty || !fy__op_rows[row->op].gradient->run) return false;
    if (row->op == FY_OP_CAST && ((const fy_cast_attrs_t *)row->attrs)->dtype != (int32_t)dtype)
        return false;
    for (size_t i = 0; i < made->plan.nsrc; i++) {
        const ts_domain_t domain = made->plan.src[i].domain;
        if (domain == TS_SPECIAL || domain == TS_NANS || domain == TS_WIDE || domain == TS_BIG ||
            domain == TS_ENDS)
            return false;
    }
    return made->has_oracle && made->expected.value.f;
}

/* Prints the error if it is too large. */
static bool is_within(const ts_case_t *row, const ts_inputs_t *made, size_t i,
                      const gradients_t *want, const gradients_t *got)
{
    const ts_op_row_t *op = ts_op_row(row->op);
    const bool adds_parts = op->has_parts || fy_op_get(row->op)->flags & FY_OP_ELEMENTWISE;
    if (!want->grad[i] || !got->grad[i] || !is_finite(got->result)) return true;
    const double error =
        worst_of(want->grad[i], got->grad[i], made->src[i].dtype, adds_parts ? MOST_DY : 0);
    if (error <= op->gradient) return true;
    print_error("%s \"%s\" in %s, source %zu: an error of %.3g units, stated are %g\n",
                fy_op_get(row->op)->name, row->label, fy_dtype_name(made->src[i].dtype), i, error,
                op->gradient);
    return false;
}

/* Of all sources at once, and of each alone: a rule then has only what it saved for that one. */
TS_DEVICE_TEST(gradients_of_all_cases_are_within_their_errors)
{
    int nwrong = 0;
    for (size_t c = 0; c < ts_case_count(); c++) {
        const ts_case_t *row = ts_case_get(c);
        if (row->status != FY_STATUS_OK) continue;
        for (size_t d = 0; d < sizeof k_dtypes / sizeof *k_dtypes; d++) {
            const fy_dtype_t dtype = k_dtypes[d];
            ts_inputs_t made;
            gradients_t want, got;
            if (!(fy_op_get(row->op)->dtypes & FY_DTYPE_BIT(dtype))) continue;
            ts_inputs_make(&made, row, dtype, false, 3);
            fy_scope_t scope = fy_scope_begin("case");
            if (is_usable(row, &made, dtype)) {
                run(ctx, row, &made, true, ALL, &want);
                for (int only = ALL; only < (int)(want.count > 1 ? want.count : 0); only++) {
                    if (only != ALL && !want.grad[only]) continue;
                    run(ctx, row, &made, false, only, &got);
                    for (size_t i = 0; i < want.count; i++)
                        nwrong += !is_within(row, &made, i, &want, &got);
                }
            }
            fy_scope_end(scope, 0, NULL);
            ts_inputs_free(&made);
        }
    }
    assert_int_equal(nwrong, 0);
}

/* ---- elementwise ops, up to the ends of the range ---- */

typedef long double real_t;

static real_t sigma(real_t x) { return 1 / (1 + expl(-x)); }
static real_t bell(real_t x) { return expl(-x * x / 2) / sqrtl(2 * acosl(-1)); }
static real_t below(real_t x) { return erfcl(-x / sqrtl(2)) / 2; }
static real_t of_exp(real_t x) { return expl(x); }
static real_t of_log(real_t x) { return 1 / x; }
static real_t of_sqrt(real_t x) { return 1 / (2 * sqrtl(x)); }
static real_t of_tanh(real_t x) { return 1 / (coshl(x) * coshl(x)); }
static real_t of_tan(real_t x) { return 1 + tanl(x) * tanl(x); }
static real_t of_sin(real_t x) { return cosl(x); }
static real_t of_cos(real_t x) { return -sinl(x); }
static real_t of_log1p(real_t x) { return 1 / (1 + x); }
static real_t of_rsqrt(real_t x) { return -0.5L / (x * sqrtl(x)); }
static real_t of_sigmoid(real_t x) { return sigma(x) * sigma(-x); }
static real_t of_silu(real_t x) { return sigma(x) * (1 + x * sigma(-x)); }
static real_t of_gelu(real_t x) { return below(x) + x * bell(x); }
static real_t of_erf(real_t x) { return 2 / sqrtl(acosl(-1)) * expl(-x * x); }
static real_t of_softplus(real_t x) { return x > 20 ? 1 : sigma(x); }
static real_t of_leaky_relu(real_t x) { return x > 0 ? 1 : 0.25L; }
static real_t of_elu(real_t x) { return x > 0 ? 1 : 0.5L * expl(x); }
static real_t of_abs(real_t x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }
static real_t of_relu(real_t x) { return x > 0; }
static real_t of_relu6(real_t x) { return x > 0 && x < 6; }
static real_t of_hardsigmoid(real_t x) { return x > -3 && x < 3 ? 1 / 6.0L : 0; }
static real_t of_hardswish(real_t x) { return x <= -3 ? 0 : x >= 3 ? 1 : x / 3 + 0.5L; }
static real_t of_affine(real_t x) { return x == x ? -1.5L : x; }

static real_t of_gelu_tanh(real_t x)
{
    const real_t c = sqrtl(2 / acosl(-1)), u = c * (x + 0.044715L * x * x * x), t = tanhl(u);
    const real_t slope = 1 / (coshl(u) * coshl(u)); /* 0 far out, where the cubes are infinite */
    return (1 + t) / 2 + (slope == 0 ? 0 : x * slope * c * (1 + 3 * 0.044715L * x * x) / 2);
}

typedef struct slope {
    fy_op_t op;
    const void *attrs;
    size_t attrs_nbytes;
    real_t (*slope)(real_t x);
    double part;        /* of dy: what is added up in the slope may be so much larger than it */
    double least, most; /* where it is defined */
} slope_t;
#define SLOPE(ENUM, name, part, ...)                        \
    {                                                       \
        FY_OP_##ENUM, NULL, 0, of_##name, part, __VA_ARGS__ \
    }
#define ATTRS(ENUM, name, part, type, ...)                                                       \
    {                                                                                            \
        FY_OP_##ENUM, &(const type){ __VA_ARGS__ }, sizeof(type), of_##name, part, -1e300, 1e300 \
    }
#define ANYWHERE -1e300, 1e300

static const slope_t k_slopes[] = {
    SLOPE(EXP, exp, 0, ANYWHERE),
    SLOPE(LOG, log, 0, 0, 1e300),
    SLOPE(SQRT, sqrt, 0, 0, 1e300),
    SLOPE(TANH, tanh, 2, ANYWHERE),
    SLOPE(TAN, tan, 0, ANYWHERE),
    SLOPE(SIN, sin, 0, ANYWHERE),
    SLOPE(COS, cos, 0, ANYWHERE),
    SLOPE(LOG1P, log1p, 0, -0.99, 1e300),
    SLOPE(EXPM1, exp, 1, ANYWHERE),
    SLOPE(RSQRT, rsqrt, 0, 0, 1e300),
    SLOPE(SIGMOID, sigmoid, 1, ANYWHERE),
    SLOPE(SILU, silu, 1, ANYWHERE),
    SLOPE(GELU, gelu, 1, ANYWHERE),
    SLOPE(GELU_TANH, gelu_tanh, 1, ANYWHERE),
    SLOPE(ERF, erf, 0, ANYWHERE),
    SLOPE(ABS, abs, 0, ANYWHERE),
    SLOPE(RELU, relu, 0, ANYWHERE),
    SLOPE(RELU6, relu6, 0, ANYWHERE),
    SLOPE(HARDSIGMOID, hardsigmoid, 0, ANYWHERE),
    SLOPE(HARDSWISH, hardswish, 1, ANYWHERE),
    ATTRS(SOFTPLUS, softplus, 0, fy_softplus_attrs_t, 1, 20),
    ATTRS(LEAKY_RELU, leaky_relu, 0, fy_leaky_relu_attrs_t, 0.25),
    ATTRS(ELU, elu, 0, fy_elu_attrs_t, 0.5),
    ATTRS(AFFINE, affine, 0, fy_affine_attrs_t, -1.5, 2),
};

enum { MOST_POINTS = 4096 };

/* Of both signs: every exponent from the smallest subnormal on, or every eighth of f64. */
static int grid(fy_dtype_t dtype, const slope_t *of, double *x)
{
    static const double mantissas[] = { 1, 1.25, 1.71875, 1.9921875 };
    int n = 0;
    for (double power = ts_tiny(dtype); isfinite(ts_round(dtype, power)) && power < 1e300;
         power *= dtype == FY_DTYPE_F64 ? 256 : 2)
        for (int i = 0; i < 8; i++) {
            const double value = ts_round(dtype, (i % 2 ? -power : power) * mantissas[i / 2]);
            if (value > of->least && value < of->most) x[n++] = value;
        }
    assert_true(n <= MOST_POINTS);
    return n;
}

static void run_slope(ts_ctx_t *ctx, const slope_t *of, fy_dtype_t dtype, double seed, int n,
                      const double *x, double *y, double *grad)
{
    fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
    const int64_t dims[1] = { n };
    fy_tensor_t *src, *dst = NULL, *dy, *wide;
    ts_array_t values;
    fy_tape_t *tape;
    ts_array_make(&values, dtype, 1, dims);
    memcpy(values.f, x, (size_t)n * sizeof *x);
    src = tensor_of(ctx, &values, dtype);
    ts_array_free(&values);
    ts_ok(fy_tape_create(&tape));
    ts_ok(fy_tape_watch(tape, src, NULL));
    ts_ok(fy_full(ctx->device, dtype, 1, dims, seed, &dy));
    options.seed = dy;
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_op_call(of->op, 1, &src, of->attrs, of->attrs_nbytes, 1, &dst));
    ts_ok(fy_tape_backward(tape, dst, &options));
    ts_ok(fy_cast(dst, FY_DTYPE_F64, &wide));
    ts_read(wide, y, (size_t)n * sizeof *y);
    ts_ok(fy_cast(ts_grad(tape, src), FY_DTYPE_F64, &wide));
    ts_read(wide, grad, (size_t)n * sizeof *grad);
    fy_tape_destroy(tape);
}

/* The error of the gradient at x, in units: a rounding of the slope, of x, of the parts of the
 * slope, or of the smallest values that the dtype and f32 have. */
static double units_at(const slope_t *of, fy_dtype_t dtype, double x, double seed, double got)
{
    const double unit = ts_unit(dtype);
    const real_t slope = of->slope(x), h = 2 * unit * fabs(x),
                 nearby = fabsl(of->slope(x + h) - slope) + fabsl(of->slope(x - h) - slope),
                 want = seed * slope;
    const double scale = fabs(seed) * (double)(fabsl(slope) + of->part + nearby / (2 * unit)),
                 smallest = ts_tiny(dtype) * fmax(1, fabs(seed)) +
                            (dtype == FY_DTYPE_F64 ? 0 : 0x1p-126 * fmax(1, fabs(seed)));
    if ((double)want == got || ts_round(dtype, (double)want) == got) return 0;
    if (isinf(got) && isinf(ts_round(dtype, (double)want * (1 + 8 * unit)))) return 0;
    return fabs((double)(got - want)) / (unit * scale + smallest);
}

TS_DEVICE_TEST(slopes_up_to_the_ends_of_the_range)
{
    static const double seeds[] = { 1, 1.0 / 1024, 1024 };
    static const fy_dtype_t dtypes[] = { FY_DTYPE_F32, FY_DTYPE_F64, FY_DTYPE_F16, FY_DTYPE_BF16 };
    static double x[MOST_POINTS], y[MOST_POINTS], grad[MOST_POINTS];
    int nwrong = 0;
    for (size_t t = 0; t < 12 * sizeof k_slopes / sizeof *k_slopes; t++) {
        const slope_t *of = &k_slopes[t / 12];
        const fy_dtype_t dtype = dtypes[t % 4];
        const double seed = seeds[t / 4 % 3];
        const int n = grid(dtype, of, x);
        double worst = 0;
        int at = 0;
        fy_scope_t scope = fy_scope_begin("slope");
        run_slope(ctx, of, dtype, seed, n, x, y, grad);
        for (int k = 0; k < n; k++) {
            const double units = isfinite(y[k]) ? units_at(of, dtype, x[k], seed, grad[k]) : 0;
            if (units <= worst) continue;
            worst = units;
            at = k;
        }
        fy_scope_end(scope, 0, NULL);
        if (worst <= ts_op_row(of->op)->gradient) continue;
        nwrong++;
        print_error("%s in %s at %.9g, dy %g: the gradient is %.9g, not %.9g: %.3g units\n",
                    fy_op_get(of->op)->name, fy_dtype_name(dtype), x[at], seed, grad[at],
                    seed * (double)of->slope(x[at]), worst);
    }
    assert_int_equal(nwrong, 0);
}
