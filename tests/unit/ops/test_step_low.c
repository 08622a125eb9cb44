/* Steps of optimizers beside the ops' values (tests/ops/cases_training.def): their typed calls, and
 * the last result, a copy of an f32 parameter in half precision. It has the bits of a cast, the
 * other results those of a step without it, in any layout and with any sources; a skipped step does
 * not change it. */
#include <stdbool.h>

#include "tests/support/harness.h"

enum { MOST = 5, NSTEPS = 9 };

#define A(type, ...) (&(const type){ __VA_ARGS__ })

/* The results of each step: p a parameter or its state, t trust ratios, n a step number. Attributes
 * that are not the defaults. */
static const struct {
    fy_op_t op;
    const char *results;
    const void *attrs;
} k_steps[NSTEPS] = {
    { FY_OP_SGD_STEP, "p", A(fy_sgd_attrs_t, 0, 0, 0.1, 0) },
    { FY_OP_SGD_MOMENTUM_STEP, "ppn", A(fy_sgd_attrs_t, 0.9, 0, 0.01, 1) },
    { FY_OP_ADAM_STEP, "pppn", A(fy_adam_attrs_t, 0.8, 0.99, 1e-3, 0.1, 1) },
    { FY_OP_ADADELTA_STEP, "ppp", A(fy_adadelta_attrs_t, 0.8, 1e-3, 0.1) },
    { FY_OP_RMSPROP_STEP, "pp", A(fy_rmsprop_attrs_t, 0.8, 1e-3, 0.1, 0) },
    { FY_OP_RMSPROP_MOMENTUM_STEP, "ppp", A(fy_rmsprop_attrs_t, 0.9, 1e-8, 0.01, 0.9) },
    { FY_OP_RMSPROP_CENTERED_STEP, "ppp", A(fy_rmsprop_attrs_t, 0.8, 1e-3, 0.1, 0) },
    { FY_OP_LARS_STEP, "ppt", A(fy_lars_attrs_t, 0.9, 0.01, 0, 0.1) },
    { FY_OP_LAMB_STEP, "ppptn", A(fy_lamb_attrs_t, 0.8, 0.99, 1e-3, 0.1) },
};

/* A tensor of rows x columns that counts up from `first` in steps of a seventh; transposed: with
 * the strides of a transposed one. */
static fy_tensor_t *matrix(fy_device_t *device, int64_t rows, int64_t columns, bool transposed,
                           double first, fy_dtype_t dtype)
{
    fy_tensor_t *x;
    ts_ok(fy_arange(device, FY_DTYPE_F32, first, 1.0 / 7, rows * columns, &x));
    if (dtype != FY_DTYPE_F32) ts_ok(fy_cast(x, dtype, &x));
    ts_ok(fy_reshape(x, 2, transposed ? (int64_t[]){ columns, rows } : (int64_t[]){ rows, columns },
                     &x));
    if (transposed) ts_ok(fy_transpose(x, NULL, &x));
    return x;
}

typedef struct step {
    fy_op_t op;
    size_t nsrc, ndst;
    fy_tensor_t *src[4], *dst[MOST + 2];
} step_t;

static step_t begin(fy_device_t *device, int which, int64_t rows, int64_t columns, bool transposed,
                    size_t nsrc, double found)
{
    step_t s = { .op = k_steps[which].op, .nsrc = nsrc };
    const double parts[3] = { 0, 0.5, 1 }, scaling[5] = { 8, 8, found, 0, 0 };
    s.src[0] = matrix(device, rows, columns, transposed, -2, FY_DTYPE_F32);
    ts_ok(fy_full(device, FY_DTYPE_F32, 0, NULL, 0.125, &s.src[1]));
    ts_ok(fy_zeros(device, FY_DTYPE_F64, 2, (int64_t[]){ 1, 3 }, &s.src[2]));
    ts_ok(fy_zeros(device, FY_DTYPE_F64, 1, (int64_t[]){ 5 }, &s.src[3]));
    for (int i = 0; i < 5; i++) {
        fy_tensor_t *place;
        if (i < 3) {
            ts_ok(fy_slice(s.src[2], 1, i, i + 1, &place));
            ts_ok(fy_fill(place, parts[i]));
        }
        ts_ok(fy_slice(s.src[3], 0, i, i + 1, &place));
        ts_ok(fy_fill(place, scaling[i]));
    }
    for (const char *kind = k_steps[which].results; *kind; kind++) {
        fy_tensor_t **dst = &s.dst[s.ndst++];
        if (*kind == 'n') ts_ok(fy_zeros(device, FY_DTYPE_I64, 0, NULL, dst));
        if (*kind == 't') ts_ok(fy_zeros(device, FY_DTYPE_F64, 2, (int64_t[]){ 1, 7 }, dst));
        if (*kind == 'p')
            *dst = matrix(device, rows, columns, transposed, (double)s.ndst - 1, FY_DTYPE_F32);
    }
    return s;
}

static fy_status_t run(step_t *s)
{
    return fy_op_call(s->op, s->nsrc, s->src, NULL, 0, s->ndst, s->dst);
}

static void expect_equal(const fy_tensor_t *a, const fy_tensor_t *b)
{
    const fy_tensor_info_t info = ts_info(a);
    const size_t nbytes = (size_t)info.nelem * fy_dtype_size(info.dtype);
    char *bytes = calloc(2, nbytes + 1);
    assert_non_null(bytes);
    ts_read(a, bytes, nbytes);
    ts_read(b, bytes + nbytes, nbytes);
    assert_memory_equal(bytes, bytes + nbytes, nbytes);
    free(bytes);
}

static fy_status_t call(const step_t *s, const fy_tensor_t *lr, const void *attrs)
{
    fy_tensor_t *const *dst = s->dst;
    const fy_tensor_t *grad = s->src[0];
    switch (s->op) {
    case FY_OP_SGD_STEP: return fy_sgd_step(dst[0], grad, lr, attrs);
    case FY_OP_SGD_MOMENTUM_STEP:
        return fy_sgd_momentum_step(dst[0], grad, dst[1], dst[2], lr, attrs);
    case FY_OP_ADAM_STEP: return fy_adam_step(dst[0], grad, dst[1], dst[2], dst[3], lr, attrs);
    case FY_OP_ADADELTA_STEP: return fy_adadelta_step(dst[0], grad, dst[1], dst[2], lr, attrs);
    case FY_OP_RMSPROP_STEP: return fy_rmsprop_step(dst[0], grad, dst[1], lr, attrs);
    case FY_OP_RMSPROP_MOMENTUM_STEP:
        return fy_rmsprop_momentum_step(dst[0], grad, dst[1], dst[2], lr, attrs);
    case FY_OP_RMSPROP_CENTERED_STEP:
        return fy_rmsprop_centered_step(dst[0], grad, dst[1], dst[2], lr, attrs);
    case FY_OP_LARS_STEP: return fy_lars_step(dst[0], grad, dst[1], dst[2], NULL, lr, attrs);
    default: return fy_lamb_step(dst[0], grad, dst[1], dst[2], dst[3], dst[4], NULL, lr, attrs);
    }
}

/* With the defaults and with other attributes; a rate in f64 is the same rate. One request each. */
TS_DEVICE_TEST(typed_calls_are_their_ops)
{
    for (int which = 0; which < 2 * NSTEPS; which++) {
        const void *attrs = which % 2 ? k_steps[which / 2].attrs : NULL;
        const fy_scope_t scope = fy_scope_begin("step");
        step_t typed = begin(ctx->device, which / 2, 3, 7, false, 2, 0),
               generic = begin(ctx->device, which / 2, 3, 7, false, 2, 0);
        fy_tensor_t *lr;
        ts_ok(fy_cast(typed.src[1], FY_DTYPE_F64, &lr));
        for (int t = 0; t < 3; t++) {
            const fy_ledger_totals_t before = ts_ledger(NULL);
            ts_ok(call(&typed, attrs && t ? lr : typed.src[1], attrs));
            fy_ledger_totals_t after = ts_ledger(NULL);
            assert_int_equal(after.requests, before.requests + 1);
            after.requests = before.requests;
            ts_expect_quiet(&before, &after, fy_op_get(typed.op)->name);
            ts_ok(fy_op_call(generic.op, 2, generic.src, attrs,
                             attrs ? fy_op_get(generic.op)->attrs_nbytes : 0, generic.ndst,
                             generic.dst));
        }
        for (size_t i = 0; i < typed.ndst; i++) expect_equal(typed.dst[i], generic.dst[i]);
        fy_scope_end(scope, 0, NULL);
    }
}

TS_DEVICE_TEST(low_has_the_bits_of_a_cast)
{
    static const int64_t shapes[][2] = { { 1, 1 }, { 3, 7 }, { 64, 40 }, { 129, 131 } };
    for (int which = 0; which < NSTEPS; which++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
            for (int variant = 0; variant < 6; variant++) {
                const fy_dtype_t dtype = variant % 2 ? FY_DTYPE_F16 : FY_DTYPE_BF16;
                const size_t nsrc = variant < 2 ? 2 : variant < 4 ? 4 : 3;
                const int64_t rows = shapes[k][0], columns = shapes[k][1];
                fy_scope_t scope = fy_scope_begin("variant");
                step_t plain = begin(ctx->device, which, rows, columns, variant == 3, nsrc, 0),
                       with = begin(ctx->device, which, rows, columns, variant == 3, nsrc, 0);
                fy_tensor_t *low = matrix(ctx->device, rows, columns, variant > 3, 99, dtype),
                            *want;
                with.dst[with.ndst++] = low;
                for (int t = 0; t < 2; t++) {
                    ts_ok(run(&plain));
                    ts_ok(run(&with));
                }
                for (size_t i = 0; i < plain.ndst; i++) expect_equal(with.dst[i], plain.dst[i]);
                ts_ok(fy_cast(plain.dst[0], dtype, &want));
                expect_equal(low, want);
                fy_scope_end(scope, 0, NULL);
            }
}

TS_DEVICE_TEST(a_skipped_step_leaves_low)
{
    for (int which = 0; which < NSTEPS; which++) {
        step_t s = begin(ctx->device, which, 33, 9, false, 4, 1);
        fy_tensor_t *low = matrix(ctx->device, 33, 9, false, 99, FY_DTYPE_BF16),
                    *before = matrix(ctx->device, 33, 9, false, 99, FY_DTYPE_BF16);
        s.dst[s.ndst++] = low;
        ts_ok(run(&s));
        expect_equal(low, before);
    }
}

TS_DEVICE_TEST(invalid_operands_are_refused)
{
    fy_device_t *device = ctx->device;
    for (int which = 0; which < NSTEPS; which++) {
        step_t s = begin(device, which, 3, 7, false, 2, 0);
        const size_t low = s.ndst++;
        fy_tensor_t *param = s.dst[0], *grad = s.src[0];
        s.dst[low] = matrix(device, 3, 7, false, 0, FY_DTYPE_F32);
        ts_fails(run(&s), DTYPE_MISMATCH);
        s.dst[low] = matrix(device, 7, 3, false, 0, FY_DTYPE_F16);
        ts_fails(run(&s), SHAPE_MISMATCH);
        s.dst[low] = NULL;
        ts_fails(run(&s), INVALID_ARGUMENT);
        /* a copy of a parameter that is in half precision itself */
        s.dst[low] = matrix(device, 3, 7, false, 0, FY_DTYPE_F16);
        ts_ok(fy_cast(param, FY_DTYPE_F16, &s.dst[0]));
        ts_ok(fy_cast(grad, FY_DTYPE_F16, &s.src[0]));
        ts_fails(run(&s), DTYPE_MISMATCH);
        s.ndst--;
        ts_ok(run(&s));
        /* states in half precision, another dtype of the gradient, a rate in half precision */
        if (s.ndst > 1 && k_steps[which].results[1] == 'p') {
            fy_tensor_t *state = s.dst[1];
            ts_ok(fy_cast(state, FY_DTYPE_F16, &s.dst[1]));
            ts_fails_with(run(&s), DTYPE_MISMATCH, "states of f16 and bf16 are f32");
            s.dst[1] = state;
        }
        s.src[0] = grad;
        ts_fails(run(&s), DTYPE_MISMATCH);
        s.dst[0] = param;
        ts_ok(fy_cast(s.src[1], FY_DTYPE_F16, &s.src[1]));
        ts_fails(run(&s), DTYPE_MISMATCH);
        s.ndst = low + 2;
        s.dst[low] = s.dst[low + 1] = matrix(device, 3, 7, false, 0, FY_DTYPE_F16);
        ts_fails(run(&s), INVALID_ARGUMENT);
    }
}
