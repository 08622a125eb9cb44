/* Gradient rules of registered ops (fy_op_def_t.backward): the same gradients as built-in ops give,
 * saved operands, several results, many sources, and refusals of wrong gradients.
 * Not here: failures of memory and devices (tests/faults/test_gradient.c). */
#include "tests/support/harness.h"
#include "tests/support/own_op.h"

#include "ops/optable.h"

/* ---- test.product: dst = scale * a * b, as mul and affine give it ---- */

typedef struct product_attrs {
    double scale;
} product_attrs_t;

static fy_status_t product(const fy_launch_t *launch, void *stream)
{
    (void)stream;
    const double scale = ((const product_attrs_t *)launch->attrs)->scale;
    const fy_desc_t *dst = &launch->dst[0];
    for (uint64_t i = 0; i < launch->nelem; i++) {
        int64_t rest = (int64_t)i, a = 0, b = 0, y = 0;
        for (int axis = dst->rank - 1; axis >= 0; axis--) {
            const int64_t at = rest % dst->dims[axis];
            rest /= dst->dims[axis];
            a += at * launch->src[0].strides[axis];
            b += at * launch->src[1].strides[axis];
            y += at * dst->strides[axis];
        }
        ((float *)dst->data)[y] = (float)scale * ((const float *)launch->src[0].data)[a] *
                                  ((const float *)launch->src[1].data)[b];
    }
    return FY_STATUS_OK;
}

static int calls; /* of back_product */

static fy_status_t back_product(const fy_op_backward_t *call, fy_tensor_t **src_grad)
{
    const product_attrs_t *attrs = call->attrs;
    assert_string_equal(call->info->name, "test.product");
    assert_ptr_equal(call->user, &calls);
    assert_true(call->struct_size == sizeof *call && call->nsrc == 2 && call->ndst == 1);
    assert_null(call->dst[0]); /* not saved */
    calls++;
    for (int i = 0; i < 2; i++) {
        fy_tensor_t *scaled;
        assert_null(src_grad[i]);
        if (!call->wanted[i]) continue;
        assert_int_equal(call->wanted[i]->dtype, FY_DTYPE_F32);
        assert_int_equal(call->wanted[i]->rank, ts_info(call->src[i]).rank);
        FY_TRY(fy_affine(call->dst_grad[0], attrs->scale, 0, &scaled));
        FY_TRY(fy_mul(scaled, call->src[1 - i], &src_grad[i])); /* maybe wider than source i */
    }
    return FY_STATUS_OK;
}

static ts_own_op_t own; /* that define_product made last */
static const fy_attr_field_t product_field = { "scale", FY_ATTR_F64, 0, 1 };

static void define_product(const char *name)
{
    ts_own_op(&own, name, 2, product);
    own.info.nsrc_min = 2;
    own.info.nfields = 1;
    own.info.fields = &product_field;
    own.info.attrs_nbytes = sizeof(product_attrs_t);
    own.def.user = &calls;
    own.def.backward = back_product;
    own.def.saved_srcs = 3;
}

static fy_op_t product_op(void)
{
    static fy_op_t op = FY_OP_NONE;
    define_product("test.product");
    if (op == FY_OP_NONE) ts_ok(fy_op_register(&own.def, &op));
    return op;
}

/* scale * a * b by the registered op, or by built-in ones. */
static fy_status_t multiply(bool is_own, fy_tensor_t *a, fy_tensor_t *b, double scale,
                            fy_tensor_t **out)
{
    *out = NULL;
    if (is_own)
        return fy_op_call(product_op(), 2, (fy_tensor_t *[]){ a, b }, &(product_attrs_t){ scale },
                          sizeof(product_attrs_t), 1, out);
    FY_TRY(fy_mul(a, b, out));
    return fy_affine(*out, scale, 0, out);
}

/* Fits y = 0.5 x w + shift by five steps, w [3] broadcast over rows: w afterwards. */
static void train(fy_device_t *device, bool is_own, float out[3])
{
    fy_tensor_t *x = ts_iota(device, FY_DIMS(4, 3), 1), *w, *grad, *y, *loss;
    ts_ok(fy_affine(x, 0.1, 0, &x));
    ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(3), 0.25, &w));
    fy_tape_t *tape = ts_tape(w, NULL);
    for (int i = 0; i < 5; i++) {
        const fy_scope_t step = fy_scope_begin("step");
        ts_ok(fy_tape_begin(tape));
        ts_ok(multiply(is_own, x, w, 0.5, &y));
        ts_ok(multiply(is_own, y, w, 2, &y)); /* w twice, and a result as a source */
        ts_ok(fy_mse_loss(y, x, &loss));
        ts_ok(fy_tape_backward(tape, loss, NULL));
        ts_ok(fy_tape_grad(tape, w, &grad));
        ts_ok(fy_axpy(w, -0.1, grad));
        fy_scope_end(step, 0, NULL);
    }
    ts_read(w, out, 3 * sizeof *out);
    fy_tape_destroy(tape);
}

TS_DEVICE_TEST(it_trains_as_built_in_ops_do)
{
    float registered[3], built_in[3];
    calls = 0;
    train(ctx->device, true, registered);
    assert_int_equal(calls, 10);
    train(ctx->device, false, built_in);
    assert_memory_equal(registered, built_in, sizeof registered);
    assert_true(registered[0] != 0.25f);
}

/* ---- any rule: test.any, whose rule is `rule` ---- */

static fy_backward_fn rule;
static fy_status_t back_any(const fy_op_backward_t *call, fy_tensor_t **src_grad)
{
    return rule(call, src_grad);
}

/* Every result is the sum of the sources. */
static fy_status_t sum_all(const fy_launch_t *launch, void *stream)
{
    (void)stream;
    for (int j = 0; j < launch->ndst; j++)
        for (uint64_t i = 0; i < launch->nelem; i++) {
            float sum = 0;
            for (int s = 0; s < launch->nsrc; s++) sum += ((const float *)launch->src[s].data)[i];
            ((float *)launch->dst[j].data)[i] = sum;
        }
    return FY_STATUS_OK;
}
static fy_status_t as_the_first(const fy_op_info_t *op, fy_launch_t *launch)
{
    (void)op;
    for (int j = 0; j < launch->ndst; j++) launch->dst[j] = launch->src[0];
    return FY_STATUS_OK;
}

/* Two results; any number of sources; saves source 1, all from source 31 on, and result 1. */
static fy_op_t any_op(void)
{
    static fy_op_t op = FY_OP_NONE;
    ts_own_op_t any;
    ts_own_op(&any, "test.any", FY_OP_VARIADIC, sum_all);
    any.info.ndst = 2;
    any.info.flags = 0;
    any.def.shape = as_the_first;
    any.def.backward = back_any;
    any.def.saved_srcs = 1u << 1 | 1u << 31;
    any.def.saved_dsts = 2;
    if (op == FY_OP_NONE) ts_ok(fy_op_register(&any.def, &op));
    return op;
}

/* Calls test.any on `nsrc` times x, then backward from result `from` alone. */
static fy_status_t run_any(fy_device_t *device, fy_backward_fn with, size_t nsrc, int from,
                           fy_tensor_t **out_grad)
{
    fy_tensor_t *src[40], *x, *dst[2] = { NULL, NULL }, *loss;
    rule = with;
    ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(2, 3), 4, &x));
    for (size_t i = 0; i < nsrc; i++) src[i] = x;
    fy_tape_t *tape = ts_record(x, NULL);
    ts_ok(fy_op_call(any_op(), nsrc, src, NULL, 0, 2, dst));
    ts_ok(fy_sum(dst[from], FY_ALL_AXES, 0, &loss));
    const fy_status_t status = fy_tape_backward(tape, loss, NULL);
    if (status == FY_STATUS_OK) ts_ok(fy_tape_grad(tape, x, out_grad));
    fy_tape_destroy(tape);
    return status;
}

static int expected_from;
static fy_status_t back_sum(const fy_op_backward_t *call, fy_tensor_t **src_grad)
{
    assert_non_null(call->dst_grad[expected_from]);
    assert_null(call->dst_grad[1 - expected_from]);
    assert_null(call->dst[0]);
    assert_non_null(call->dst[1]);
    for (size_t i = 0; i < call->nsrc; i++) {
        assert_int_equal(call->src[i] != NULL, i == 1 || i >= 31);
        assert_non_null(call->wanted[i]);
        src_grad[i] = call->dst_grad[expected_from]; /* the same tensor for each source */
    }
    return FY_STATUS_OK;
}

TS_DEVICE_TEST(results_and_many_sources)
{
    fy_tensor_t *grad;
    float want[6];
    for (int from = 0; from < 2; from++) {
        for (int wide = 0; wide < 2; wide++) {
            const size_t nsrc = wide ? 40 : 3;
            expected_from = from;
            ts_ok(run_any(ctx->device, back_sum, nsrc, from, &grad));
            for (int i = 0; i < 6; i++) want[i] = (float)nsrc;
            ts_expect_f32(grad, want, 6);
        }
    }
}

static fy_status_t back_nothing(const fy_op_backward_t *call, fy_tensor_t **src_grad)
{
    return (void)call, (void)src_grad, FY_STATUS_OK;
}

TS_DEVICE_TEST(a_gradient_may_be_zero)
{
    fy_tensor_t *grad = NULL;
    ts_ok(run_any(ctx->device, back_nothing, 2, 0, &grad));
    assert_null(grad); /* as of a loss that does not depend on the tensor */
}

/* ---- refusals ---- */

static fy_device_t *other;
static fy_status_t back_shape(const fy_op_backward_t *call, fy_tensor_t **src_grad)
{
    return fy_sum(call->dst_grad[0], FY_AXES(0), 0, &src_grad[0]);
}
static fy_status_t back_dims(const fy_op_backward_t *call, fy_tensor_t **src_grad)
{
    return fy_transpose(call->dst_grad[0], NULL, &src_grad[0]);
}
static fy_status_t back_dtype(const fy_op_backward_t *call, fy_tensor_t **src_grad)
{
    return fy_cast(call->dst_grad[0], FY_DTYPE_F64, &src_grad[0]);
}
static fy_status_t back_device(const fy_op_backward_t *call, fy_tensor_t **src_grad)
{
    return fy_zeros(other, FY_DTYPE_F32, call->wanted[0]->rank, call->wanted[0]->dims,
                    &src_grad[0]);
}
static fy_status_t back_fails(const fy_op_backward_t *call, fy_tensor_t **src_grad)
{
    fy_scope_begin("left open");
    FY_TRY(fy_affine(call->dst_grad[0], 2, 0, &src_grad[0]));
    return fy_error_set(FY_STATUS_BAD_VALUE, __FILE__, __LINE__, "made to fail");
}
static fy_status_t back_silent(const fy_op_backward_t *call, fy_tensor_t **src_grad)
{
    return (void)call, (void)src_grad, FY_STATUS_BAD_VALUE;
}

TS_DEVICE_TEST(refuses_wrong_gradients)
{
    fy_tensor_t *grad;
    ts_ok(fy_device_open("sim:5", &other));
    ts_fails_with(run_any(ctx->device, back_shape, 1, 0, &grad), SHAPE_MISMATCH,
                  "test.any: its gradient rule gave source 0 [2x3 f32] a gradient");
    ts_fails(run_any(ctx->device, back_dims, 1, 0, &grad), SHAPE_MISMATCH);
    ts_fails(run_any(ctx->device, back_dtype, 1, 0, &grad), DTYPE_MISMATCH);
    ts_fails_with(run_any(ctx->device, back_device, 1, 0, &grad), DEVICE_MISMATCH, "sim:5");
    ts_fails_with(run_any(ctx->device, back_fails, 1, 0, &grad), BAD_VALUE, "made to fail");
    ts_fails_with(run_any(ctx->device, back_silent, 1, 0, &grad), BAD_VALUE, "gave no reason");
    ts_ok(run_any(ctx->device, back_nothing, 1, 0, &grad));
    fy_device_close(other);
}

static fy_tape_t *used;
static fy_status_t back_uses_the_tape(const fy_op_backward_t *call, fy_tensor_t **src_grad)
{
    (void)src_grad;
    ts_fails_with(fy_tape_begin(used), BUSY, "the tape runs backward");
    ts_fails(fy_tape_watch(used, call->src[1], NULL), BUSY);
    return fy_tape_backward(used, call->src[1], NULL);
}

TS_DEVICE_TEST(a_rule_must_not_use_its_tape)
{
    fy_tensor_t *x, *dst[2] = { NULL, NULL }, *loss;
    rule = back_uses_the_tape;
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(2), 4, &x));
    used = ts_tape(x, NULL);
    for (int i = 0; i < 2; i++) { /* the tape works afterwards */
        ts_ok(fy_tape_begin(used));
        dst[0] = dst[1] = NULL;
        ts_ok(fy_op_call(any_op(), 2, (fy_tensor_t *[]){ x, x }, NULL, 0, 2, dst));
        ts_ok(fy_sum(dst[0], FY_ALL_AXES, 0, &loss));
        ts_fails(fy_tape_backward(used, loss, NULL), BUSY);
    }
    fy_tape_destroy(used);
}

TS_DEVICE_TEST(saved_bytes_must_not_be_written)
{
    fy_tensor_t *x, *dst[2] = { NULL, NULL }, *loss;
    rule = back_nothing;
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(2), 4, &x));
    fy_tape_t *tape = ts_record(x, NULL);
    ts_ok(fy_op_call(any_op(), 2, (fy_tensor_t *[]){ x, x }, NULL, 0, 2, dst));
    ts_ok(fy_sum(dst[0], FY_ALL_AXES, 0, &loss));
    ts_ok(fy_fill(dst[1], 1)); /* a saved result */
    ts_fails_with(fy_tape_backward(tape, loss, NULL), BUSY, "test.any needs");
    fy_tape_destroy(tape);
}

#define REFUSED(change, part)                                             \
    do {                                                                  \
        fy_op_t refused = 0;                                              \
        define_product("test.refused");                                   \
        change;                                                           \
        ts_fails(fy_op_register(&own.def, &refused), INVALID_ARGUMENT);   \
        ts_text_has(part);                                                \
        assert_true(refused == FY_OP_NONE && !fy_op_find(own.info.name)); \
    } while (0)

TS_DEVICE_TEST(refuses_malformed_rules)
{
    REFUSED(own.def.saved_srcs = 4, "saved_srcs 0x4");
    REFUSED(own.def.saved_srcs = 1u << 31, "past nsrc_max 2");
    REFUSED(own.def.saved_dsts = 2, "saved_dsts 0x2");
    REFUSED(own.def.backward = NULL, "without `backward`");
    REFUSED((own.info.flags |= FY_OP_IN_PLACE, own.info.inout = 1), "read as well");
}

/* ---- sizes and copies ---- */

/* A program whose fy_op_def_t ends before `backward`: an op without a gradient rule. */
TS_DEVICE_TEST(older_and_newer_definitions)
{
    struct newer {
        fy_op_def_t def;
        uint64_t more;
    } newer;
    fy_op_t op;
    fy_tensor_t *x, *dst[1] = { NULL };
    (void)ctx;
    char name[32];
    static int count;
    snprintf(name, sizeof name, "test.older%d", count);
    define_product(name);
    own.def.struct_size = offsetof(fy_op_def_t, backward);
    ts_ok(fy_op_register(&own.def, &op));
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(2), 4, &x));
    fy_tape_t *tape = ts_record(x, NULL);
    ts_fails_with(fy_op_call(op, 2, (fy_tensor_t *[]){ x, x }, NULL, 0, 1, dst), UNSUPPORTED,
                  "Give fy_op_def_t.backward");
    fy_tape_destroy(tape);

    snprintf(name, sizeof name, "test.newer%d", count++);
    define_product(name);
    newer.def = own.def;
    newer.def.struct_size = sizeof newer;
    newer.more = 1;
    ts_fails_with(fy_op_register(&newer.def, &op), INVALID_ARGUMENT, "built for a newer Ferry");
    newer.more = 0;
    ts_ok(fy_op_register(&newer.def, &op));
}

TS_DEVICE_TEST(operands_and_choices_are_copied)
{
    char name[32], a[] = "a", y[] = "y", fast[] = "fast";
    static int count;
    const char *choices[] = { fast, "exact" };
    fy_op_operand_t src[2] = { { a, FY_DTYPE_BIT(FY_DTYPE_F32), 0 }, { "b", 0, 0 } };
    fy_op_operand_t dst[1] = { { y, 0, 0 } };
    fy_attr_field_t field = {
        .name = "mode", .type = FY_ATTR_ENUM32, .nchoices = 2, .choices = choices
    };
    fy_op_t op;
    snprintf(name, sizeof name, "test.described%d", count++);
    define_product(name);
    own.info.src = src;
    own.info.dst = dst;
    own.info.fields = &field;
    own.info.attrs_nbytes = 4;
    ts_ok(fy_op_register(&own.def, &op));
    a[0] = y[0] = fast[0] = '#';
    memset(src, 0xFF, sizeof src), memset(dst, 0xFF, sizeof dst);
    const fy_op_info_t *got = fy_op_get(op);
    assert_string_equal(got->src[0].name, "a");
    assert_int_equal(got->src[0].dtypes, FY_DTYPE_BIT(FY_DTYPE_F32));
    assert_string_equal(got->src[1].name, "b");
    assert_string_equal(got->dst[0].name, "y");
    assert_int_equal(got->fields[0].nchoices, 2);
    assert_string_equal(got->fields[0].choices[0], "fast");
    assert_string_equal(got->fields[0].choices[1], "exact");
    fy_op_operand_t bad = { "A", 0, 0 };
    REFUSED(own.info.dst = &bad, "dst0 is described as 'A'");
    fy_attr_field_t nameless = { .name = "mode", .type = FY_ATTR_I32, .nchoices = 1 };
    REFUSED((own.info.fields = &nameless, own.info.attrs_nbytes = 4), "only an ENUM32 has them");
}
