/* ops/tape/attach: fy_tape_attach records a result that the tape has not seen, with the caller's
 * gradient rule; the rule's data are destroyed once. Not here: failures of memory
 * (tests/faults/test_norms.c). */
#include "tests/support/harness.h"

enum { N = 4 };

typedef struct rule {
    int calls, destroyed, fails;
} rule_t;

static void destroy(void *user) { ((rule_t *)user)->destroyed++; }

/* Of y = a * b: b only if it is wanted. */
static fy_status_t back(const fy_op_backward_t *call, fy_tensor_t **src_grad)
{
    rule_t *rule = call->user;
    rule->calls++;
    assert_string_equal(call->info->name, "product");
    assert_true(call->nsrc >= 2 && call->ndst == 1 && !call->attrs);
    if (rule->fails) return fy_error_set(FY_STATUS_IO, __FILE__, __LINE__, "planted");
    if (call->wanted[0]) FY_TRY(fy_mul(call->dst_grad[0], call->src[1], &src_grad[0]));
    if (call->wanted[1]) FY_TRY(fy_mul(call->dst_grad[0], call->src[0], &src_grad[1]));
    return FY_STATUS_OK;
}

static const fy_attach_options_t product = {
    .struct_size = sizeof product, .name = "product", .saved_srcs = 3, .destroy = destroy
};

/* a * b, which the tape does not record. */
static fy_tensor_t *multiply(fy_tensor_t *a, fy_tensor_t *b)
{
    fy_tensor_t *y;
    const fy_scope_t scope = fy_scope_begin("apart");
    ts_ok(fy_tape_begin(NULL));
    ts_ok(fy_mul(a, b, &y));
    fy_scope_end(scope, 1, &y);
    return y;
}

typedef struct net {
    fy_tensor_t *a, *b;
    fy_tape_t *tape;
    rule_t rule;
} net_t;

static void make(ts_ctx_t *ctx, net_t *net)
{
    *net = (net_t){ .a = ts_iota(ctx->device, FY_DIMS(N), 1),
                    .b = ts_iota(ctx->device, FY_DIMS(N), 5) };
    net->tape = ts_record(net->a, NULL);
}

static fy_tensor_t *attach(net_t *net)
{
    fy_tensor_t *y = multiply(net->a, net->b);
    ts_ok(fy_tape_attach(back, &net->rule, 2, (fy_tensor_t *[]){ net->a, net->b }, y, &product));
    return y;
}

/* loss = sum(2 (a * b)): d / da = 2 b. */
static fy_status_t go_back(net_t *net, fy_tensor_t *y)
{
    fy_tensor_t *loss;
    ts_ok(fy_affine(y, 2, 0, &y));
    ts_ok(fy_sum(y, FY_ALL_AXES, 0, &loss));
    return fy_tape_backward(net->tape, loss, NULL);
}

static void expect_grad(net_t *net, fy_tensor_t *of, float first, float step)
{
    float want[N];
    fy_tensor_t *grad;
    for (int i = 0; i < N; i++) want[i] = first + step * (float)i;
    ts_ok(fy_tape_grad(net->tape, of, &grad));
    assert_non_null(grad);
    ts_expect_f32(grad, want, N);
}

TS_DEVICE_TEST(gradients_come_from_the_rule)
{
    net_t net;
    make(ctx, &net);
    ts_ok(go_back(&net, attach(&net)));
    assert_true(net.rule.calls == 1 && net.rule.destroyed == 1);
    expect_grad(&net, net.a, 10, 2);
    fy_tape_destroy(net.tape);
    assert_int_equal(net.rule.destroyed, 1);
}

TS_DEVICE_TEST(a_dropped_record_destroys_its_rules)
{
    net_t net;
    make(ctx, &net);
    attach(&net);
    ts_ok(fy_tape_begin(net.tape));
    assert_true(net.rule.calls == 0 && net.rule.destroyed == 1);
    attach(&net);
    fy_tape_destroy(net.tape);
    assert_int_equal(net.rule.destroyed, 2);
}

TS_DEVICE_TEST(a_rule_that_fails_fails_the_backward)
{
    net_t net;
    make(ctx, &net);
    net.rule.fails = 1;
    ts_fails(go_back(&net, attach(&net)), IO);
    assert_true(net.rule.calls == 1 && net.rule.destroyed == 1);
}

/* Bytes that a recorded call wrote through another handle become a constant. */
TS_DEVICE_TEST(a_constant_over_written_bytes_is_not_recorded)
{
    net_t net;
    fy_tensor_t *y = ts_iota(ctx->device, FY_DIMS(N), 1), *other;
    fy_tape_info_t info = FY_TAPE_INFO_INIT;
    ts_ok(fy_reshape(y, FY_DIMS(N), &other));
    make(ctx, &net);
    ts_ok(fy_axpy(y, 0.5, net.a));
    ts_ok(fy_tape_attach(back, &net.rule, 2, (fy_tensor_t *[]){ net.b, net.b }, other, &product));
    ts_ok(fy_tape_query(net.tape, &info));
    assert_int_equal(info.calls, 1);
    assert_int_equal(net.rule.destroyed, 1);
}

/* Without a tape, and without a watched input. */
TS_DEVICE_TEST(constants_are_not_recorded)
{
    net_t net;
    fy_tape_info_t info = FY_TAPE_INFO_INIT;
    make(ctx, &net);
    fy_tensor_t *y = multiply(net.b, net.b);
    ts_ok(fy_tape_attach(back, &net.rule, 2, (fy_tensor_t *[]){ net.b, net.b }, y, &product));
    assert_int_equal(net.rule.destroyed, 1);
    ts_ok(fy_tape_query(net.tape, &info));
    assert_true(info.calls == 0 && info.saved == 0);
    const fy_scope_t scope = fy_scope_begin("none");
    ts_ok(fy_tape_begin(NULL));
    y = multiply(net.a, net.b);
    ts_ok(fy_tape_attach(back, &net.rule, 2, (fy_tensor_t *[]){ net.a, net.b }, y, &product));
    fy_scope_end(scope, 0, NULL);
    assert_int_equal(net.rule.destroyed, 2);
}

TS_DEVICE_TEST(refusals)
{
    net_t net;
    fy_tensor_t *recorded, *whole;
    make(ctx, &net);
    fy_tensor_t *const inputs[2] = { net.a, net.b };
    fy_tensor_t *y = multiply(net.a, net.b);
    ts_fails(fy_tape_attach(NULL, &net.rule, 2, inputs, y, &product), INVALID_ARGUMENT);
    ts_fails(fy_tape_attach(back, &net.rule, 2, NULL, y, &product), INVALID_ARGUMENT);
    ts_fails(fy_tape_attach(back, &net.rule, 2, inputs, NULL, &product), INVALID_ARGUMENT);
    ts_fails_with(fy_tape_attach(back, &net.rule, 2, (fy_tensor_t *[]){ net.a, NULL }, y, &product),
                  INVALID_ARGUMENT, "product: inputs[1] is NULL");
    ts_fails(fy_tape_attach(back, &net.rule, 100000, inputs, y, &product), INVALID_ARGUMENT);
    ts_ok(fy_mul(net.a, net.b, &recorded));
    ts_fails_with(fy_tape_attach(back, &net.rule, 2, inputs, recorded, &product), INVALID_ARGUMENT,
                  "fy_tape_begin(NULL)");
    ts_fails(fy_tape_attach(back, &net.rule, 2, inputs, net.a, &product), BUSY);
    ts_ok(fy_cast(net.b, FY_DTYPE_I32, &whole));
    ts_fails(fy_tape_attach(back, &net.rule, 2, inputs, whole, &product), DTYPE_MISMATCH);
    assert_true(net.rule.calls == 0 && net.rule.destroyed == 8);
    /* the tape goes on */
    ts_ok(fy_tape_attach(back, &net.rule, 2, inputs, y, &product));
    ts_ok(go_back(&net, y));
    expect_grad(&net, net.a, 10, 2);
}

TS_DEVICE_TEST(a_saved_input_must_stay)
{
    net_t net;
    make(ctx, &net);
    fy_tensor_t *y = attach(&net);
    ts_ok(fy_fill(net.b, 0));
    ts_fails(go_back(&net, y), BUSY);
    assert_true(net.rule.calls == 0 && net.rule.destroyed == 1);
}

/* Inside a function that runs again: attached twice, and once more in the backward. */
static fy_status_t twice(void *user, size_t count, fy_tensor_t *const *inputs, fy_tensor_t **out_y)
{
    net_t *net = user;
    (void)count;
    fy_tensor_t *y = multiply(inputs[0], net->b);
    FY_TRY(
        fy_tape_attach(back, &net->rule, 2, (fy_tensor_t *[]){ inputs[0], net->b }, y, &product));
    *out_y = y;
    return FY_STATUS_OK;
}

TS_DEVICE_TEST(it_is_recomputed)
{
    net_t net;
    fy_tensor_t *y;
    make(ctx, &net);
    ts_ok(fy_tape_recompute(twice, &net, 1, &net.a, NULL, &y));
    assert_int_equal(net.rule.destroyed, 1);
    ts_ok(go_back(&net, y));
    assert_true(net.rule.calls == 1 && net.rule.destroyed == 2);
    expect_grad(&net, net.a, 10, 2);
}
