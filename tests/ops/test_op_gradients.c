/* Every op whose result has a gradient, in every layout, against central differences: walks the op
 * table and the cases of cases.def, so that an op without a rule, or a rule without a case, fails.
 * Cases with more than a few dozen elements, with special values or with ties are left out.
 * Not here: recording, watching, refusals (tests/conformance/test_tape.c). */
#include <math.h>

#include "tests/support/cases.h"
#include "tests/support/harness.h"

#include "ops/dispatch.h"
#include "ops/tape/rules.h"

enum { MOST_ELEMENTS = 160 };

typedef struct problem {
    const ts_case_t *row;
    const fy_op_info_t *info;
    size_t nsrc;
    fy_tensor_t *src[TS_MAX_OPERANDS]; /* constants; NULL where the next input stands */
    const ts_plan_t *plan;             /* its `given`: what ops that write in place write into */
    fy_dtype_t dtype;
    fy_device_t *device;
} problem_t;

/* Zeros; a random state is the same in each call, so that the function is one. */
static fy_status_t make_given(const problem_t *problem, const ts_shape_t *shape,
                              fy_tensor_t **out_dst)
{
    if (shape->domain == TS_RNG) return fy_rng_create(problem->device, 7, out_dst);
    return fy_zeros(problem->device, ts_domain_dtype(shape->domain, problem->dtype), shape->rank,
                    shape->dims, out_dst);
}

static fy_status_t call(void *user, size_t count, fy_tensor_t *const *inputs,
                        fy_tensor_t **out_result)
{
    const problem_t *problem = user;
    fy_tensor_t *src[TS_MAX_OPERANDS], *dst[TS_MAX_OPERANDS] = { NULL };
    size_t next = 0;
    for (size_t i = 0; i < problem->nsrc; i++)
        src[i] = problem->src[i] ? problem->src[i] : inputs[next++];
    assert_int_equal(next, count);
    for (size_t i = 0; i < problem->plan->ngiven; i++)
        FY_TRY(make_given(problem, &problem->plan->given[i], &dst[i]));
    FY_TRY(fy_op_call(problem->row->op, problem->nsrc, src, problem->row->attrs,
                      problem->row->attrs ? problem->info->attrs_nbytes : 0,
                      ts_ndst(problem->info->op), dst));
    *out_result = dst[0];
    return FY_STATUS_OK;
}

static bool is_smooth(ts_domain_t domain)
{
    return domain == TS_ANY || domain == TS_POS || domain == TS_UNIT || domain == TS_COND ||
           domain == TS_INDEX || domain == TS_INDEX32 || domain == TS_RNG;
}

static bool is_cast(const ts_case_t *row, fy_dtype_t *out_dtype)
{
    if (row->op != FY_OP_CAST) return false;
    *out_dtype = (fy_dtype_t)((const fy_cast_attrs_t *)row->attrs)->dtype;
    return true;
}

/* Small, smooth, with a result that is a float. */
static bool is_usable(const ts_case_t *row, const ts_plan_t *plan)
{
    uint64_t total = 0;
    fy_dtype_t dtype;
    if (is_cast(row, &dtype) && !ts_is_float(dtype)) return false;
    if (row->status != FY_STATUS_OK || plan->is_empty) return false;
    for (size_t i = 0; i < plan->nsrc; i++) {
        uint64_t nelem = 1;
        for (int axis = 0; axis < plan->src[i].rank; axis++)
            nelem *= (uint64_t)plan->src[i].dims[axis];
        total += nelem;
        if (!is_smooth(plan->src[i].domain)) return false;
    }
    return total <= MOST_ELEMENTS;
}

/* The row with values of moderate size, in `domains` of 64 bytes: differences of large ones drown
 * in rounding. */
static ts_case_t tame(const ts_case_t *row, char *domains)
{
    ts_case_t tamed = *row;
    char *wide;
    snprintf(domains, 64, "%s", row->domains);
    while ((wide = strstr(domains, "wide"))) memcpy(wide, "any ", 4);
    tamed.domains = domains;
    return tamed;
}

/* Returns whether it was checked. */
static bool check(ts_ctx_t *ctx, const ts_case_t *wild, ts_layout_t layout)
{
    char domains[64];
    const ts_case_t tamed = tame(wild, domains), *row = &tamed;
    ts_inputs_t made;
    ts_operand_t operands[TS_MAX_OPERANDS];
    fy_tensor_t *inputs[TS_MAX_OPERANDS];
    fy_gradcheck_result_t result = FY_GRADCHECK_RESULT_INIT;
    fy_gradcheck_options_t options = FY_GRADCHECK_OPTIONS_INIT;
    problem_t problem = {
        .row = row, .info = fy_op_get(row->op), .device = ctx->device, .dtype = FY_DTYPE_F64
    };
    const ts_plan_t plan = ts_case_plan(row);
    size_t count = 0;
    bool applies = layout == TS_CONTIGUOUS;
    if (!is_usable(row, &plan)) return false;
    for (size_t i = 0; i < plan.nsrc; i++)
        applies |= ts_layout_applies(layout, plan.src[i].rank, plan.src[i].dims);
    if (!applies) return false;
    fy_scope_t scope = fy_scope_begin("case");
    ts_inputs_make(&made, row, FY_DTYPE_F64, false, 11);
    problem.nsrc = plan.nsrc;
    problem.plan = &plan;
    for (size_t i = 0; i < plan.nsrc; i++) {
        ts_operand_make(&operands[i], ctx->device, &made.src[i], layout);
        if (made.src[i].dtype == FY_DTYPE_F64)
            inputs[count++] = operands[i].view;
        else
            problem.src[i] = operands[i].view;
    }
    fy_dtype_t dtype;
    if (is_cast(row, &dtype)) { /* a line with steps, each as high as the dtype is coarse */
        options.step = 0.5;
        options.atol = 64 * ts_unit(dtype);
    }
    const fy_status_t status =
        count ? fy_gradcheck(call, &problem, count, inputs, &options, &result) : FY_STATUS_OK;
    if (status != FY_STATUS_OK)
        fail_msg("%s, case '%s', %s: %s", problem.info->name, row->label, ts_layout_name(layout),
                 fy_error_get()->text);
    for (size_t i = 0; i < plan.nsrc; i++) {
        ts_operand_check(&operands[i], true, NULL, problem.info->name); /* as it was before */
        ts_operand_free(&operands[i]);
    }
    ts_inputs_free(&made);
    fy_scope_end(scope, 0, NULL);
    return count && result.checked;
}

/* Without a gradient by nature: there is no source, or the result is no float, or a flag. */
static bool is_constant(const fy_op_info_t *info)
{
    if (info->op == FY_OP_CHECK_FINITE) return true;
    const uint32_t floats = FY_DTYPE_BIT(FY_DTYPE_F32) | FY_DTYPE_BIT(FY_DTYPE_F64),
                   results = info->dst[0].dtypes ? info->dst[0].dtypes : info->dtypes;
    return info->nsrc_max == 0 || !(results & floats) || !(info->dtypes & floats);
}

/* Gradients of gradients, and updates, are refused; whatever else computes floats from floats must
 * have a rule. */
static bool may_be_refused(const fy_op_info_t *info)
{
    return strstr(info->name, "_backward") || strstr(info->name, "_step") ||
           info->op == FY_OP_CLIP_BY_NORM;
}

TS_DEVICE_TEST(every_rule_agrees_with_differences)
{
    static const ts_layout_t layouts[] = { TS_CONTIGUOUS, TS_TRANSPOSED, TS_STEPPED, TS_OFFSET };
    for (fy_op_t op = 0; op < FY_OP_BUILTIN_COUNT; op++) {
        const fy__tape_rule_t *rule = fy__op_rows[op].gradient;
        assert_non_null(rule); /* a column in opset/ops.def */
        if (rule->is_refused ? !may_be_refused(fy_op_get(op))
                             : !rule->run && !is_constant(fy_op_get(op)))
            fail_msg("%s has no gradient rule, but floats go in and come out", fy_op_get(op)->name);
        if (!rule->run) continue;
        for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
            int checked = 0;
            for (size_t i = 0; i < ts_case_count(); i++) {
                const ts_case_t *row = ts_case_get(i);
                if (row->op == op) checked += check(ctx, row, layouts[l]);
            }
            if (!checked)
                fail_msg("no small case of %s checks its gradient, %s: add one to cases.def",
                         fy_op_get(op)->name, ts_layout_name(layouts[l]));
        }
    }
}

/* A rule that is wrong is noticed: the same op, told to the tape as another. */
static fy_status_t wrong(void *user, size_t count, fy_tensor_t *const *inputs,
                         fy_tensor_t **out_result)
{
    fy_tensor_t *hidden;
    (void)user;
    assert_int_equal(count, 1);
    fy_scope_t scope = fy_scope_begin("hidden"); /* half of the dependence is not recorded */
    FY_TRY(fy_tape_begin(NULL));
    FY_TRY(fy_exp(inputs[0], &hidden));
    fy_scope_end(scope, 1, &hidden);
    return fy_mul(inputs[0], hidden, out_result);
}

TS_DEVICE_TEST(a_wrong_gradient_is_noticed)
{
    fy_gradcheck_result_t result = FY_GRADCHECK_RESULT_INIT;
    fy_tensor_t *rng, *x;
    ts_ok(fy_rng_create(ctx->device, 3, &rng));
    ts_ok(fy_rand(rng, FY_DTYPE_F64, FY_DIMS(4), 1, 2, &x));
    ts_fails_with(fy_gradcheck(wrong, NULL, 1, &x, NULL, &result), BAD_VALUE, "the tape says");
    assert_true(result.checked == 4 && result.worst > 1);
}

/* ---- prod where elements are 0: of a row with one zero, only that element has a gradient ---- */

static fy_status_t product_of_rows(void *user, size_t count, fy_tensor_t *const *inputs,
                                   fy_tensor_t **out_result)
{
    const int axis = *(const int *)user;
    (void)count;
    return fy_prod(inputs[0], 1, &axis, 0, out_result);
}

/* ---- zero sizes ---- */

/* The shapes of a row, in 128 bytes, with 0 in place of `dim`. Returns whether there is one. */
static bool without(const char *shapes, long dim, char *out)
{
    bool found = false;
    size_t n = 0;
    while (*shapes && n < 120) {
        char *end = NULL;
        const long value = *shapes >= '0' && *shapes <= '9' ? strtol(shapes, &end, 10) : -1;
        found |= value == dim;
        if (end)
            n += (size_t)snprintf(out + n, 128 - n, "%ld", value == dim ? 0 : value);
        else
            out[n++] = *shapes;
        shapes = end ? end : shapes + 1;
    }
    out[n] = '\0';
    return found && !*shapes;
}

/* The gradient has x's shape; over an empty result it is 0, or NaN where a slope is. */
static void expect_gradient(const problem_t *problem, const char *shapes, fy_tensor_t *grad,
                            fy_tensor_t *x, bool is_empty)
{
    const fy_tensor_info_t want = ts_info(x), got = ts_info(grad);
    double values[MOST_ELEMENTS];
    fy_tensor_t *wide;
    bool fits = want.rank == got.rank;
    for (int axis = 0; fits && axis < want.rank; axis++) fits = want.dims[axis] == got.dims[axis];
    if (!fits) fail_msg("%s of %s: a gradient of another shape", problem->info->name, shapes);
    if (!is_empty || got.nelem == 0 || got.nelem > MOST_ELEMENTS) return;
    ts_ok(fy_cast(grad, FY_DTYPE_F64, &wide));
    ts_read(wide, values, got.nelem * sizeof *values);
    for (uint64_t k = 0; k < got.nelem; k++)
        if (!(values[k] == 0 || isnan(values[k])))
            fail_msg("%s of %s: element %d of a gradient is %g", problem->info->name, shapes,
                     (int)k, values[k]);
}

static bool takes_class_weights(fy_op_t op) /* which have no gradient */
{
    return op == FY_OP_NLL_LOSS || op == FY_OP_CROSS_ENTROPY;
}

/* A call that is accepted with shapes without elements has gradients. Returns whether it is. */
static bool check_empty(ts_ctx_t *ctx, const ts_case_t *full, long dim, fy_dtype_t dtype)
{
    char shapes[128];
    ts_case_t row = *full;
    ts_inputs_t made;
    ts_operand_t operands[TS_MAX_OPERANDS];
    fy_tensor_t *inputs[TS_MAX_OPERANDS], *result = NULL, *seed, *grad;
    problem_t problem = {
        .row = &row, .info = fy_op_get(row.op), .device = ctx->device, .dtype = dtype
    };
    fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
    fy_tape_t *tape;
    size_t count = 0;
    bool may_fault = false;
    if (!without(full->shapes, dim, shapes)) return false;
    row.shapes = shapes;
    row.status = FY_STATUS_SHAPE_MISMATCH; /* no expected values are made */
    fy_scope_t scope = fy_scope_begin("empty");
    ts_inputs_make(&made, &row, dtype, false, 5);
    problem.nsrc = made.plan.nsrc;
    problem.plan = &made.plan;
    ts_ok(fy_tape_create(&tape));
    for (size_t i = 0; i < problem.nsrc; i++) {
        const ts_shape_t *shape = &made.plan.src[i];
        may_fault |= (shape->domain == TS_INDEX || shape->domain == TS_INDEX32) &&
                     made.src[i].nelem > 0; /* an index into nothing */
        ts_operand_make(&operands[i], ctx->device, &made.src[i], TS_CONTIGUOUS);
        const bool is_class_weight = i == 2 && takes_class_weights(row.op);
        if (ts_is_float(made.src[i].dtype) && !is_class_weight) {
            inputs[count++] = operands[i].view;
            ts_ok(fy_tape_watch(tape, operands[i].view, NULL));
        } else
            problem.src[i] = operands[i].view;
    }
    ts_ok(fy_tape_begin(tape));
    const bool runs = count && !may_fault && call(&problem, count, inputs, &result) == 0 &&
                      ts_is_float(ts_info(result).dtype);
    if (runs) {
        const fy_tensor_info_t info = ts_info(result);
        ts_ok(fy_full(ctx->device, info.dtype, info.rank, info.dims, 1, &seed));
        options.seed = seed;
        if (fy_tape_backward(tape, result, &options) != FY_STATUS_OK)
            fail_msg("%s of %s is accepted, its gradient is not: %s", problem.info->name, shapes,
                     fy_error_get()->text);
        for (size_t i = 0; i < count; i++) {
            ts_ok(fy_tape_grad(tape, inputs[i], &grad));
            if (grad) expect_gradient(&problem, shapes, grad, inputs[i], info.nelem == 0);
        }
    }
    fy_tape_destroy(tape);
    for (size_t i = 0; i < problem.nsrc; i++) ts_operand_free(&operands[i]);
    ts_inputs_free(&made);
    fy_scope_end(scope, 0, NULL);
    return runs;
}

TS_DEVICE_TEST(calls_without_elements_have_gradients)
{
    for (fy_op_t op = 0; op < FY_OP_BUILTIN_COUNT; op++) {
        int accepted = 0;
        if (!fy__op_rows[op].gradient->run) continue;
        for (size_t i = 0; i < ts_case_count(); i++) {
            const ts_case_t *row = ts_case_get(i);
            ts_plan_t plan;
            if (row->op != op || row->status != FY_STATUS_OK) continue;
            plan = ts_case_plan(row);
            for (size_t k = 0; k < plan.nsrc; k++)
                for (int axis = 0; axis < plan.src[k].rank; axis++) {
                    accepted += check_empty(ctx, row, (long)plan.src[k].dims[axis], FY_DTYPE_F64);
                    accepted += check_empty(ctx, row, (long)plan.src[k].dims[axis], FY_DTYPE_F16);
                }
        }
        if (!accepted) fail_msg("no case of %s is accepted without elements", fy_op_get(op)->name);
    }
}

/* ---- half dtypes ---- */

enum {
    EXPONENTS = 15,
    GRID = 2 * EXPONENTS * EXPONENTS
}; /* 2^-14 to 2^14, the first of both signs */

typedef struct half_op {
    fy_op_t op;
    size_t nsrc;     /* 0: a reduction of (a, b, a / 2) */
    bool is_of_sign; /* refuses a negative first operand, or has none there */
} half_op_t;

static const half_op_t half_ops[] = {
    { FY_OP_NEG, 1, false },     { FY_OP_ABS, 1, false },  { FY_OP_RELU, 1, false },
    { FY_OP_SQRT, 1, true },     { FY_OP_LOG, 1, true },   { FY_OP_EXP, 1, false },
    { FY_OP_RSQRT, 1, true },    { FY_OP_TAN, 1, false },  { FY_OP_MUL, 2, false },
    { FY_OP_DIV, 2, false },     { FY_OP_POW, 2, true },   { FY_OP_MAXIMUM, 2, false },
    { FY_OP_MINIMUM, 2, false }, { FY_OP_SUM, 0, false },  { FY_OP_MEAN, 0, false },
    { FY_OP_PROD, 0, false },    { FY_OP_NORM, 0, false }, { FY_OP_MAX, 0, false },
    { FY_OP_MIN, 0, false },
};

/* [GRID], or [GRID, 3] for a reduction, of `dtype`. */
static fy_tensor_t *half_grid(ts_ctx_t *ctx, const half_op_t *op, size_t i, fy_dtype_t dtype)
{
    static double values[3 * GRID];
    const int64_t dims[2] = { GRID, 3 };
    fy_tensor_t *host, *wide, *grid;
    const int width = op->nsrc ? 1 : 3;
    for (int k = 0; k < GRID; k++) {
        const double a = ldexp(k < GRID / 2 || op->is_of_sign ? 1.25 : -1.25,
                               2 * (k % EXPONENTS) - EXPONENTS + 1),
                     b = ldexp(1.5, 2 * (k / EXPONENTS % EXPONENTS) - EXPONENTS + 1);
        const double of_row[3] = { a, b, a / 2 };
        for (int c = 0; c < width; c++) values[k * width + c] = of_row[op->nsrc ? i : (size_t)c];
    }
    ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F64, width == 1 ? 1 : 2, dims, values, NULL,
                         NULL, &host));
    ts_ok(ctx->is_host ? fy_cast(host, FY_DTYPE_F64, &wide)
                       : fy_tensor_upload(host, ctx->device, NULL, &wide));
    ts_ok(fy_cast(wide, dtype, &grid));
    return grid;
}

/* Results and gradients of the watched sources (1 << i), as f64; each on the values that `half` can
 * have. */
static void run_half(ts_ctx_t *ctx, const half_op_t *op, unsigned watched, fy_dtype_t half,
                     fy_dtype_t dtype, double scale, double *y, double (*grads)[3 * GRID])
{
    const fy_reduce_attrs_t rows = { 1 << 1, 0 };
    const size_t nsrc = op->nsrc ? op->nsrc : 1;
    fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
    fy_tensor_t *src[2], *dst = NULL, *seed, *wide;
    fy_tape_t *tape;
    ts_ok(fy_tape_create(&tape));
    for (size_t i = 0; i < nsrc; i++) {
        ts_ok(fy_cast(half_grid(ctx, op, i, half), dtype, &src[i]));
        if (watched >> i & 1) ts_ok(fy_tape_watch(tape, src[i], NULL));
    }
    ts_ok(fy_full(ctx->device, dtype, FY_DIMS(GRID), scale, &seed));
    options.seed = seed;
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_op_call(op->op, nsrc, src, op->nsrc ? NULL : &rows, op->nsrc ? 0 : sizeof rows, 1,
                     &dst));
    ts_ok(fy_tape_backward(tape, dst, &options));
    ts_ok(fy_cast(dst, FY_DTYPE_F64, &wide));
    ts_read(wide, y, GRID * sizeof *y);
    for (size_t i = 0; i < nsrc; i++) {
        if (!(watched >> i & 1)) continue;
        ts_ok(fy_cast(ts_grad(tape, src[i]), FY_DTYPE_F64, &wide));
        ts_read(wide, grads[i], (op->nsrc ? 1 : 3) * GRID * sizeof **grads);
    }
    fy_tape_destroy(tape);
}

/* A gradient that f16 or bf16 can hold is not lost on the way to it: whatever lies between is in
 * range, with the seeds of loss scaling, too. */
TS_DEVICE_TEST(half_gradients_are_lost_only_where_they_have_no_value)
{
    static const double seeds[] = { 1.0 / 1024, 1, 1024 };
    static double y[2][GRID], grads[2][2][3 * GRID];
    static const fy_dtype_t dtypes[] = { FY_DTYPE_F16, FY_DTYPE_BF16 };
    for (size_t t = 0; t < 2 * 3 * (sizeof half_ops / sizeof *half_ops); t++) {
        const half_op_t *op = &half_ops[t / 6];
        const fy_dtype_t dtype = dtypes[t % 2];
        const double seed = seeds[t / 2 % 3];
        const int width = op->nsrc ? 1 : 3;
        fy_scope_t scope = fy_scope_begin("half");
        run_half(ctx, op, 3, dtype, FY_DTYPE_F64, seed, y[0], grads[0]);
        run_half(ctx, op, 3, dtype, dtype, seed, y[1], grads[1]);
        for (int k = 0; k < width * GRID; k++)
            for (size_t i = 0; i < (op->nsrc ? op->nsrc : 1); i++) {
                const double exact = grads[0][i][k], got = grads[1][i][k],
                             result = fabs(y[0][k / width]);
                if (!(fabs(exact) > 1e-3 && fabs(exact) < 6e4 && result > 1e-3 && result < 6e4))
                    continue;
                if (fabs(got - exact) > 0.03 * fabs(exact))
                    fail_msg("%s in %s, seed %g, element %d of source %zu: %g, not %g",
                             fy_op_get(op->op)->name, fy_dtype_name(dtype), seed, k, i, got, exact);
            }
        fy_scope_end(scope, 0, NULL);
    }
}

/* A tape keeps only what the gradients of the watched sources need. */
TS_DEVICE_TEST(a_source_that_is_watched_alone_has_the_same_gradient)
{
    static double y[GRID], grads[2][3 * GRID], alone[2][3 * GRID];
    for (size_t t = 0; t < sizeof half_ops / sizeof *half_ops; t++) {
        const half_op_t *op = &half_ops[t];
        if (op->nsrc != 2) continue;
        fy_scope_t scope = fy_scope_begin("alone");
        run_half(ctx, op, 3, FY_DTYPE_F16, FY_DTYPE_F64, 1, y, grads);
        run_half(ctx, op, 1, FY_DTYPE_F16, FY_DTYPE_F64, 1, y, alone);
        run_half(ctx, op, 2, FY_DTYPE_F16, FY_DTYPE_F64, 1, y, alone);
        for (int i = 0; i < 2; i++) assert_memory_equal(grads[i], alone[i], GRID * sizeof **grads);
        fy_scope_end(scope, 0, NULL);
    }
}

TS_DEVICE_TEST(prod_has_a_gradient_at_zeros)
{
    static const float values[4][4] = {
        { 2, -3, 0.5f, 4 }, { 2, 0, -1.5f, 3 }, { 0, 5, 0, -2 }, { 0, 0, 0, 0 }
    };
    for (int axis = 0; axis < 2; axis++) {
        fy_gradcheck_result_t result = FY_GRADCHECK_RESULT_INIT;
        fy_scope_t scope = fy_scope_begin("zeros");
        fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(4, 4), values[0]);
        ts_ok(fy_cast(x, FY_DTYPE_F64, &x));
        if (axis == 0) ts_ok(fy_transpose(x, NULL, &x));
        ts_ok(fy_gradcheck(product_of_rows, &axis, 1, &x, NULL, &result));
        assert_int_equal(result.checked, 16);
        fy_scope_end(scope, 0, NULL);
    }
}
