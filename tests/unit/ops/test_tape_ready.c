/* ops/tape/ready: gradients are reported when they are complete, in the order of the backward. */
#include "tests/support/harness.h"

enum { PARAMS = 3, N = 4 };

typedef struct net {
    fy_tensor_t *w[PARAMS], *x;
    fy_tape_t *tape;
    int order[2 * PARAMS], count;
    float seen[PARAMS][N * N];
    int fail_at; /* the call that fails; -1: none */
} net_t;

static fy_status_t on_grad(void *user, const fy_tensor_t *tensor, fy_tensor_t *grad)
{
    net_t *net = user;
    fy_tensor_t *host, *copy;
    void *data;
    if (net->count == net->fail_at)
        return fy_error_set(FY_STATUS_IO, __FILE__, __LINE__, "planted");
    for (int i = 0; i < PARAMS; i++)
        if (ts_info(tensor).storage == ts_info(net->w[i]).storage) {
            net->order[net->count++] = i;
            ts_ok(fy_affine(grad, 1, 0, &copy)); /* belongs to the caller's scope */
            host = ts_download(copy);
            ts_ok(fy_tensor_map(host, FY_ACCESS_READ, &data));
            memcpy(net->seen[i], data, sizeof net->seen[i]);
        }
    return FY_STATUS_OK;
}

static void make(ts_ctx_t *ctx, net_t *net)
{
    *net = (net_t){ .fail_at = -1 };
    ts_ok(fy_tape_create(&net->tape));
    for (int i = 0; i < PARAMS; i++) {
        net->w[i] = ts_iota(ctx->device, FY_DIMS(N, N), (float)i - 5);
        ts_ok(fy_tape_watch(net->tape, net->w[i], NULL));
    }
    net->x = ts_iota(ctx->device, FY_DIMS(N, N), 1);
}

static fy_status_t go_back(net_t *net, fy_tensor_t *y)
{
    fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
    fy_tensor_t *loss;
    options.on_grad = on_grad;
    options.user = net;
    net->count = 0;
    ts_ok(fy_sum(y, FY_AXES(0, 1), 0, &loss));
    return fy_tape_backward(net->tape, loss, &options);
}

/* Reported bytes are those after the backward. */
static void expect_order(net_t *net, int count, const int *order)
{
    assert_int_equal(net->count, count);
    for (int i = 0; i < count; i++) {
        assert_int_equal(net->order[i], order[i]);
        ts_expect_f32(ts_grad(net->tape, net->w[order[i]]), net->seen[order[i]], N * N);
    }
}

TS_DEVICE_TEST(gradients_come_in_the_order_of_the_backward)
{
    net_t net;
    fy_tensor_t *y;
    make(ctx, &net);
    for (int step = 0; step < 2; step++) {
        ts_ok(fy_tape_begin(net.tape));
        ts_ok(fy_matmul(net.x, net.w[0], &y));
        ts_ok(fy_matmul(y, net.w[1], &y));
        ts_ok(fy_matmul(y, net.w[2], &y));
        ts_ok(go_back(&net, y));
        expect_order(&net, 3, (const int[]){ 2, 1, 0 });
    }
    ts_ok(fy_tape_begin(net.tape)); /* the first is used again, the second never */
    ts_ok(fy_matmul(net.x, net.w[0], &y));
    ts_ok(fy_matmul(y, net.w[2], &y));
    ts_ok(fy_matmul(y, net.w[0], &y));
    ts_ok(go_back(&net, y));
    expect_order(&net, 2, (const int[]){ 2, 0 });
}

static fy_status_t twice(void *user, size_t count, fy_tensor_t *const *inputs, fy_tensor_t **out)
{
    net_t *net = user;
    fy_tensor_t *y;
    (void)count;
    FY_TRY(fy_matmul(inputs[0], net->w[1], &y));
    return fy_matmul(y, net->w[1], out);
}

TS_DEVICE_TEST(functions_that_run_again_may_use_any)
{
    net_t net;
    fy_tensor_t *y, *z;
    make(ctx, &net);
    ts_ok(fy_tape_begin(net.tape));
    ts_ok(fy_matmul(net.x, net.w[0], &y));
    ts_ok(fy_tape_recompute(twice, &net, 1, &y, NULL, &z));
    ts_ok(fy_matmul(z, net.w[2], &y));
    ts_ok(go_back(&net, y));
    expect_order(&net, 3, (const int[]){ 2, 1, 0 });
}

TS_DEVICE_TEST(a_failure_ends_the_backward)
{
    net_t net;
    fy_tensor_t *y;
    make(ctx, &net);
    for (int fail_at = 0; fail_at < 3; fail_at++) {
        net.fail_at = fail_at;
        ts_ok(fy_tape_begin(net.tape));
        ts_ok(fy_matmul(net.x, net.w[0], &y));
        ts_ok(fy_matmul(y, net.w[1], &y));
        ts_ok(fy_matmul(y, net.w[2], &y));
        ts_fails_with(go_back(&net, y), IO, "planted");
        assert_int_equal(net.count, fail_at);
    }
    net.fail_at = -1;
    ts_ok(fy_tape_begin(net.tape));
    ts_ok(fy_matmul(net.x, net.w[1], &y));
    ts_ok(go_back(&net, y));
    expect_order(&net, 1, (const int[]){ 1 });
}
