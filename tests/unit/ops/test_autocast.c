/* Autocast: the classes of all ops, the dtypes of results, casts that are made and used again,
 * gradients, graphs, recomputation, and calls without casts.
 * Not here: failures inside (tests/faults/test_autocast.c), threads (test_scope_memory.c). */
#include <math.h>
#include <stdbool.h>

#include "tests/support/harness.h"
#include "tests/support/own_op.h"

enum { N = 16 };

static fy_autocast_info_t now(void)
{
    fy_autocast_info_t info = FY_AUTOCAST_INFO_INIT;
    ts_ok(fy_autocast_query(&info));
    return info;
}

static fy_dtype_t dtype_of(const fy_tensor_t *tensor) { return ts_info(tensor).dtype; }

static fy_tensor_t *full(fy_device_t *device, fy_dtype_t dtype, double value)
{
    fy_tensor_t *tensor;
    ts_ok(fy_full(device, dtype, FY_DIMS(N, N), value, &tensor));
    return tensor;
}

/* ---- the table ---- */

static const char low[] = " matmul linear conv2d scaled_dot_product_attention ";
static const char widest[] = " add sub mul div maximum minimum where concat eq ne lt le gt ge "
                             "logical_and logical_or logical_xor batch_norm ";
static const char whole[] = " exp log log1p expm1 tan rsqrt softplus pow sum mean prod norm cumsum "
                            "softmax log_softmax mse_loss nll_loss cross_entropy "
                            "batch_norm_inference layer_norm rms_norm ";

static int has(const char *list, const char *name)
{
    char word[64];
    snprintf(word, sizeof word, " %s ", name);
    return strstr(list, word) != NULL;
}

TS_DEVICE_TEST(each_op_has_its_class)
{
    for (fy_op_t op = 0; op < FY_OP_BUILTIN_COUNT; op++) {
        const fy_op_info_t *info = fy_op_get(op);
        const uint32_t want = has(low, info->name)      ? FY_OP_AUTOCAST_LOW
                              : has(whole, info->name)  ? FY_OP_AUTOCAST_FULL
                              : has(widest, info->name) ? FY_OP_AUTOCAST_WIDEST
                                                        : 0;
        if ((info->flags & (16 | 32 | 64)) != want) fail_msg("%s: another class", info->name);
        /* results that are given are never cast, so such an op would have none of its class */
        if (want) assert_false(info->flags & FY_OP_IN_PLACE);
    }
}

/* ---- dtypes ---- */

/* The call makes `result`, of this dtype. */
#define GIVES(call, result, dtype)                   \
    do {                                             \
        ts_ok(call);                                 \
        assert_int_equal(dtype_of(result), (dtype)); \
    } while (0)

TS_DEVICE_TEST(results_have_the_dtype_of_the_class)
{
    const fy_dtype_t halves[] = { FY_DTYPE_BF16, FY_DTYPE_F16 };
    fy_tensor_t *x = full(ctx->device, FY_DTYPE_F32, 0.5), *y, *z, *mask;
    for (int i = 0; i < 2; i++) {
        const fy_scope_t scope = fy_scope_begin("low");
        ts_ok(fy_autocast_set(halves[i]));
        GIVES(fy_matmul(x, x, &y), y, halves[i]);
        GIVES(fy_relu(y, &z), z, halves[i]);
        GIVES(fy_add(y, y, &z), z, halves[i]);
        GIVES(fy_add(y, x, &z), z, FY_DTYPE_F32);
        GIVES(fy_softmax(y, 1, &z), z, FY_DTYPE_F32);
        ts_ok(fy_gt(y, x, &mask));
        GIVES(fy_where(mask, x, y, &z), z, FY_DTYPE_F32);
        fy_tensor_t *parts[] = { x, y, x };
        GIVES(fy_concat(3, parts, 0, &z), z, FY_DTYPE_F32);
        ts_ok(fy_cast(x, halves[1 - i], &z));
        GIVES(fy_mul(y, z, &z), z, FY_DTYPE_F32); /* two half dtypes */
        fy_scope_end(scope, 0, NULL);
    }
    GIVES(fy_matmul(x, x, &y), y, FY_DTYPE_F32);
}

/* Calls that are made of several ops: also of an f32 and a half operand. */
TS_DEVICE_TEST(composed_calls_take_f32_beside_halves)
{
    fy_tensor_t *x = full(ctx->device, FY_DTYPE_F32, 0.5),
                *half = full(ctx->device, FY_DTYPE_F16, 1), *weight, *y;
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(ts_info(x).dims[1]), 1, &weight));
    ts_fails(fy_l1_loss(half, x, FY_REDUCTION_MEAN, &y), DTYPE_MISMATCH);
    ts_fails(fy_group_norm(half, 1, weight, NULL, 0.1, &y), DTYPE_MISMATCH);
    ts_ok(fy_autocast_set(FY_DTYPE_F16));
    GIVES(fy_l1_loss(half, x, FY_REDUCTION_MEAN, &y), y, FY_DTYPE_F32);
    assert_true(ts_value(y) == 0.5);
    GIVES(fy_smooth_l1_loss(x, half, 1, FY_REDUCTION_SUM, &y), y, FY_DTYPE_F32);
    GIVES(fy_bce_with_logits(half, x, FY_REDUCTION_NONE, &y), y, FY_DTYPE_F32);
    GIVES(fy_kl_div(half, x, 0, FY_REDUCTION_MEAN, &y), y, FY_DTYPE_F32);
    GIVES(fy_l1_loss(half, half, FY_REDUCTION_MEAN, &y), y, FY_DTYPE_F16);
    GIVES(fy_group_norm(half, 1, weight, NULL, 0.1, &y), y, FY_DTYPE_F32);
    GIVES(fy_group_norm(half, 1, NULL, weight, 0.1, &y), y, FY_DTYPE_F32);
    assert_true(fy_l1_loss(half, full(ctx->device, FY_DTYPE_F64, 1), FY_REDUCTION_MEAN, &y) ==
                FY_STATUS_DTYPE_MISMATCH);
}

TS_DEVICE_TEST(other_dtypes_and_given_results_are_left_alone)
{
    fy_tensor_t *x = full(ctx->device, FY_DTYPE_F32, 1), *d = full(ctx->device, FY_DTYPE_F64, 1),
                *y, *n;
    ts_ok(fy_autocast_set(FY_DTYPE_BF16));
    const uint64_t before = now().casts;
    GIVES(fy_matmul(d, d, &y), y, FY_DTYPE_F64);
    ts_fails_with(fy_matmul(d, x, &y), DTYPE_MISMATCH, "f64");
    ts_fails(fy_add(d, x, &y), DTYPE_MISMATCH);
    n = full(ctx->device, FY_DTYPE_I32, 1);
    ts_ok(fy_add(n, n, &y));
    GIVES(fy_sum(n, FY_ALL_AXES, 0, &y), y, FY_DTYPE_I64);
    fy_tensor_t *src[] = { x, x }, *given = full(ctx->device, FY_DTYPE_F32, 0);
    ts_ok(fy_op_call(FY_OP_MATMUL, 2, src, NULL, 0, 1, &given));
    ts_ok(fy_axpy(given, 1, x));
    assert_int_equal(now().casts, before);
    assert_int_equal(dtype_of(given), FY_DTYPE_F32);
}

TS_DEVICE_TEST(refusals_name_the_operands)
{
    fy_tensor_t *x = full(ctx->device, FY_DTYPE_F32, 1), *w, *y;
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(3, 5), 1, &w));
    fy_tensor_set_name(w, "factor");
    ts_ok(fy_autocast_set(FY_DTYPE_BF16));
    ts_fails_with(fy_matmul(x, w, &y), SHAPE_MISMATCH, "factor");
    ts_fails(fy_matmul(x, NULL, &y), INVALID_ARGUMENT);
    ts_fails_with(fy_autocast_set(FY_DTYPE_F64), INVALID_ARGUMENT, "f32");
    ts_fails(fy_autocast_set((fy_dtype_t)-1), INVALID_ARGUMENT);
    assert_int_equal(now().dtype, FY_DTYPE_BF16);
}

TS_DEVICE_TEST(it_ends_with_its_scope)
{
    fy_tensor_t *x = full(ctx->device, FY_DTYPE_F32, 1), *y;
    const fy_scope_t outer = fy_scope_begin("outer");
    ts_ok(fy_autocast_set(FY_DTYPE_F16));
    const fy_scope_t inner = fy_scope_begin("inner");
    assert_int_equal(now().dtype, FY_DTYPE_F16);
    ts_ok(fy_autocast_set(FY_DTYPE_F32));
    GIVES(fy_matmul(x, x, &y), y, FY_DTYPE_F32);
    const fy_scope_t innermost = fy_scope_begin("innermost");
    ts_ok(fy_autocast_set(FY_DTYPE_BF16));
    (void)innermost;
    fy_scope_end(inner, 0, NULL);
    assert_int_equal(now().dtype, FY_DTYPE_F16);
    fy_scope_end(outer, 0, NULL);
    assert_int_equal(now().dtype, FY_DTYPE_F32);
}

/* ---- gradients ---- */

typedef struct net {
    fy_tensor_t *x, *w1, *w2;
    fy_tape_t *tape;
} net_t;

static void make_net(fy_device_t *device, net_t *net)
{
    fy_tensor_t *rng;
    ts_ok(fy_rng_create(device, 5, &rng));
    ts_ok(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(N, N), 0, 1, &net->x));
    ts_ok(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(N, N), 0, 0.2, &net->w1));
    ts_ok(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(N, N), 0, 0.2, &net->w2));
    net->tape = ts_tape(net->w1, net->w2);
}

/* w1 is used twice, w2 once. */
static fy_status_t forward(void *user, size_t count, fy_tensor_t *const *inputs,
                           fy_tensor_t **out_y)
{
    const net_t *net = user;
    fy_tensor_t *y;
    (void)count;
    FY_TRY(fy_matmul(inputs[0], net->w1, &y));
    FY_TRY(fy_tanh(y, &y));
    FY_TRY(fy_matmul(y, net->w1, &y));
    FY_TRY(fy_relu(y, &y));
    return fy_matmul(y, net->w2, out_y);
}

static fy_status_t loss_of(net_t *net, fy_tensor_t **out_loss)
{
    fy_tensor_t *y;
    FY_TRY(forward(net, 1, &net->x, &y));
    return fy_mse_loss(y, net->x, out_loss);
}

typedef struct grads {
    float loss, w1[N * N], w2[N * N];
} grads_t;

static void read_grads(net_t *net, const fy_tensor_t *loss, grads_t *out)
{
    ts_read(loss, &out->loss, sizeof out->loss);
    ts_read(ts_grad(net->tape, net->w1), out->w1, sizeof out->w1);
    ts_read(ts_grad(net->tape, net->w2), out->w2, sizeof out->w2);
}

static void step(fy_device_t *device, fy_dtype_t dtype, grads_t *out)
{
    net_t net;
    fy_tensor_t *loss;
    const fy_scope_t scope = fy_scope_begin("step");
    make_net(device, &net);
    ts_ok(fy_tape_begin(net.tape));
    ts_ok(fy_autocast_set(dtype));
    ts_ok(loss_of(&net, &loss));
    assert_int_equal(dtype_of(loss), FY_DTYPE_F32);
    ts_ok(fy_tape_backward(net.tape, loss, NULL));
    assert_int_equal(now().dtype, dtype);
    read_grads(&net, loss, out);
    fy_scope_end(scope, 0, NULL);
}

TS_DEVICE_TEST(gradients_are_f32_and_near_those_without)
{
    static grads_t want, got, host;
    const fy_dtype_t halves[] = { FY_DTYPE_BF16, FY_DTYPE_F16 };
    const double error[] = { 0.03, 0.005 }; /* some roundings of 2^-8 and 2^-11, and the largest */
    step(ctx->device, FY_DTYPE_F32, &want);
    for (int i = 0; i < 2; i++) {
        float largest = 0;
        step(ctx->device, halves[i], &got);
        step(fy_device_host(), halves[i], &host);
        if (ctx->is_sim) assert_memory_equal(&got, &host, sizeof got);
        assert_true(fabsf(got.loss - want.loss) < error[i] * want.loss);
        for (int j = 0; j < N * N; j++) largest = fmaxf(largest, fabsf(want.w1[j]));
        for (int j = 0; j < N * N; j++) {
            assert_true(fabsf(got.w1[j] - want.w1[j]) < error[i] * largest);
            assert_true(fabsf(got.w2[j] - want.w2[j]) < error[i] * 4 * largest);
        }
        assert_memory_not_equal(got.w1, want.w1, sizeof got.w1);
    }
}

TS_DEVICE_TEST(watched_tensors_are_cast_once_in_a_record)
{
    net_t net;
    fy_tensor_t *loss, *y;
    fy_tape_info_t info = FY_TAPE_INFO_INIT;
    fy_autocast_info_t before, after;
    make_net(ctx->device, &net);
    ts_ok(fy_autocast_set(FY_DTYPE_BF16));
    const uint64_t live = ts_live(ctx->device);
    for (int i = 0; i < 3; i++) {
        const fy_scope_t scope = fy_scope_begin("step");
        ts_ok(fy_tape_begin(net.tape));
        before = now();
        ts_ok(loss_of(&net, &loss));
        after = now();
        /* w1, w2, x; and the result for the loss, in f32 */
        assert_int_equal(after.casts - before.casts, 4);
        assert_int_equal(after.nbytes - before.nbytes, 3 * N * N * 2 + N * N * 4);
        assert_int_equal(after.reused - before.reused, 1);
        ts_ok(fy_tape_backward(net.tape, loss, NULL));
        ts_ok(fy_tape_query(net.tape, &info));
        assert_int_equal(info.saved, 0);
        ts_ok(fy_axpy(net.w1, 0.5, net.w2)); /* the next record casts the new values */
        fy_scope_end(scope, 0, NULL);
    }
    /* without a record, nothing stays */
    const fy_scope_t scope = fy_scope_begin("validation");
    before = now();
    ts_ok(forward(&net, 1, &net.x, &y));
    after = now();
    assert_int_equal(after.casts - before.casts, 4);
    fy_scope_end(scope, 0, NULL);
    assert_int_equal(ts_live(ctx->device), live + 2 * N * N * 4); /* the gradients */
}

/* A write to a watched tensor through another handle is detected, with autocast, too. */
TS_DEVICE_TEST(a_write_invalidates_the_cast)
{
    net_t net;
    fy_tensor_t *view, *y;
    make_net(ctx->device, &net);
    ts_ok(fy_reshape(net.w1, FY_DIMS(N * N), &view));
    ts_ok(fy_autocast_set(FY_DTYPE_BF16));
    ts_ok(fy_tape_begin(net.tape));
    ts_ok(fy_matmul(net.x, net.w1, &y));
    ts_ok(fy_fill(view, 2));
    ts_fails(fy_matmul(net.x, net.w1, &y), BUSY);
    /* a new record sees the new values */
    fy_tensor_t *ones = full(ctx->device, FY_DTYPE_F32, 1), *element;
    ts_ok(fy_tape_begin(net.tape));
    ts_ok(fy_matmul(ones, net.w1, &y));
    ts_ok(fy_max(y, FY_ALL_AXES, 0, &element));
    assert_true(ts_value(element) == 2 * N);
}

/* Both dtypes in one record. */
TS_DEVICE_TEST(another_dtype_is_another_cast)
{
    net_t net;
    fy_tensor_t *a, *b, *loss;
    grads_t grads;
    make_net(ctx->device, &net);
    ts_ok(fy_tape_begin(net.tape));
    const fy_scope_t scope = fy_scope_begin("f16");
    ts_ok(fy_autocast_set(FY_DTYPE_F16));
    ts_ok(fy_matmul(net.x, net.w1, &a));
    fy_scope_end(scope, 1, &a);
    ts_ok(fy_autocast_set(FY_DTYPE_BF16));
    const uint64_t before = now().reused;
    ts_ok(fy_matmul(a, net.w1, &b));
    ts_ok(fy_matmul(b, net.w2, &b));
    ts_ok(fy_matmul(b, net.w1, &b));
    assert_int_equal(now().reused - before, 1);
    ts_ok(fy_mean(b, FY_ALL_AXES, 0, &loss));
    ts_ok(fy_tape_backward(net.tape, loss, NULL));
    read_grads(&net, loss, &grads);
}

/* ---- graphs and recomputation ---- */

TS_DEVICE_TEST(a_replay_casts_again)
{
    static grads_t want, got;
    net_t net;
    fy_tensor_t *loss, *y;
    step(ctx->device, FY_DTYPE_BF16, &want);
    make_net(ctx->device, &net);
    ts_ok(fy_autocast_set(FY_DTYPE_BF16));
    /* a cast outside is not used inside, which would not follow later writes */
    ts_ok(fy_tape_begin(net.tape));
    ts_ok(fy_matmul(net.x, net.w2, &y));
    const uint64_t before = now().casts;
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(loss_of(&net, &loss));
    assert_int_equal(now().casts - before, 4);
    ts_ok(fy_tape_backward(net.tape, loss, NULL));
    fy_graph_t *graph = ts_graph_end();
    ts_ok(fy_graph_replay(graph, NULL));
    read_grads(&net, loss, &got);
    assert_memory_equal(&got, &want, sizeof got);
    ts_ok(fy_fill(net.w2, 0));
    ts_ok(fy_graph_replay(graph, NULL));
    read_grads(&net, loss, &got);
    for (int i = 0; i < N * N; i++) assert_true(got.w1[i] == 0);
}

/* The function is called again as it was the first time, though the scope has ended. */
TS_DEVICE_TEST(recomputation_casts_as_the_first_call)
{
    static grads_t want, got;
    net_t net;
    fy_tensor_t *y, *loss;
    step(ctx->device, FY_DTYPE_BF16, &want);
    make_net(ctx->device, &net);
    ts_ok(fy_tape_begin(net.tape));
    for (int outside = 0; outside < 2; outside++) {
        const fy_scope_t scope = fy_scope_begin("forward");
        ts_ok(fy_autocast_set(FY_DTYPE_BF16));
        ts_ok(fy_tape_begin(net.tape));
        /* a cast outside serves no call inside, whose record is dropped, nor the other way */
        if (outside) ts_ok(fy_matmul(net.x, net.w1, &y));
        const uint64_t before = now().reused;
        ts_ok(fy_tape_recompute(forward, &net, 1, &net.x, NULL, &y));
        assert_int_equal(now().reused - before, outside ? 0 : 1);
        ts_ok(fy_mse_loss(y, net.x, &loss));
        if (outside) {
            fy_tensor_t *again;
            ts_ok(fy_matmul(net.x, net.w1, &again));
            assert_int_equal(now().reused - before, 1);
        }
        fy_tensor_t *results[] = { loss };
        ts_ok(fy_autocast_set(FY_DTYPE_F32));
        ts_ok(fy_tape_backward(net.tape, loss, NULL));
        read_grads(&net, loss, &got);
        fy_scope_end(scope, 1, results);
        assert_memory_equal(&got, &want, sizeof got);
    }
}

/* ---- copies that a step keeps current ---- */

typedef struct kept {
    fy_tensor_t *x, *w, *low, *grad, *lr;
    fy_tape_t *tape;
} kept_t;

static void begin_kept(fy_device_t *device, kept_t *k, bool has_low)
{
    k->x = full(device, FY_DTYPE_F32, 0.5);
    k->w = full(device, FY_DTYPE_F32, 0.37);
    k->low = full(device, FY_DTYPE_BF16, 9);
    k->grad = full(device, FY_DTYPE_F32, 0);
    ts_ok(fy_full(device, FY_DTYPE_F32, 0, NULL, 0.25, &k->lr));
    ts_ok(fy_tape_create(&k->tape));
    ts_ok(fy_tape_watch(k->tape, k->w, k->grad));
    if (has_low) ts_ok(fy_autocast_keep(k->tape, k->w, k->low));
}

/* Uses w twice, through a view and not; then a step, and, if requested, a write of w alone. */
static void step_kept(kept_t *k, bool has_low, bool clamps)
{
    fy_tensor_t *y, *loss, *src[2] = { k->grad, k->lr }, *dst[2] = { k->w, k->low };
    ts_ok(fy_tape_begin(k->tape));
    ts_ok(fy_matmul(k->x, k->w, &y));
    ts_ok(fy_matmul(y, k->w, &y));
    ts_ok(fy_mse_loss(y, k->x, &loss));
    ts_ok(fy_tape_backward(k->tape, loss, NULL));
    ts_ok(fy_op_call(FY_OP_SGD_STEP, 2, src, NULL, 0, has_low ? 2 : 1, dst));
    if (clamps) ts_ok(fy_axpy(k->w, 0.5, k->x));
}

/* Five rounds of one or two steps; w is written alone in each step, between them, or never. */
TS_DEVICE_TEST(a_copy_is_used_while_it_is_current)
{
    for (int way = 0; way < 12; way++) {
        const bool in_graph = way % 2, clamps = way / 2 % 3 == 1, fills = way / 2 % 3 == 2,
                   twice = way >= 6;
        float values[2][N * N];
        uint64_t made[2];
        for (int has_low = 0; has_low < 2; has_low++) {
            const fy_scope_t scope = fy_scope_begin("way");
            kept_t k;
            fy_graph_t *graph = NULL;
            begin_kept(ctx->device, &k, has_low);
            ts_ok(fy_autocast_set(FY_DTYPE_BF16));
            const uint64_t before = now().casts;
            if (in_graph) {
                ts_ok(fy_graph_begin(ctx->device));
                for (int i = 0; i <= twice; i++) step_kept(&k, has_low, clamps);
                ts_ok(fy_graph_end(&graph));
            }
            for (int t = 0; t < 5; t++) {
                if (in_graph)
                    ts_ok(fy_graph_replay(graph, NULL));
                else
                    for (int i = 0; i <= twice; i++) step_kept(&k, has_low, clamps);
                if (fills) ts_ok(fy_fill(k.w, 0.125 * t));
            }
            made[has_low] = now().casts - before;
            ts_read(k.w, values[has_low], sizeof values[has_low]);
            fy_scope_end(scope, 0, NULL);
        }
        assert_memory_equal(values[0], values[1], sizeof values[0]);
        if (!in_graph || !clamps) assert_true(made[1] < made[0] || in_graph);
    }
}

TS_DEVICE_TEST(copies_are_checked)
{
    kept_t k;
    fy_tensor_t *part, *other = full(ctx->device, FY_DTYPE_F32, 0);
    begin_kept(ctx->device, &k, true);
    ts_ok(fy_autocast_keep(k.tape, k.w, k.low)); /* again */
    ts_ok(fy_slice(k.low, 0, 0, 1, &part));
    ts_fails(fy_autocast_keep(NULL, k.w, k.low), INVALID_ARGUMENT);
    ts_fails(fy_autocast_keep(k.tape, NULL, k.low), INVALID_ARGUMENT);
    ts_fails(fy_autocast_keep(k.tape, k.w, NULL), INVALID_ARGUMENT);
    ts_fails(fy_autocast_keep(k.tape, k.w, part), SHAPE_MISMATCH);
    ts_fails(fy_autocast_keep(k.tape, k.w, other), DTYPE_MISMATCH);
    ts_fails(fy_autocast_keep(k.tape, k.low, k.low), DTYPE_MISMATCH);
    fy_tensor_t *more[4];
    for (int i = 0; i < 4; i++) {
        more[i] = full(ctx->device, FY_DTYPE_F32, 0);
        if (i < 3) ts_ok(fy_autocast_keep(k.tape, more[i], full(ctx->device, FY_DTYPE_F16, 0)));
    }
    fy_tensor_t *spare = full(ctx->device, FY_DTYPE_F16, 0);
    ts_fails_with(fy_autocast_keep(k.tape, more[3], spare), INVALID_ARGUMENT, "it takes no more");
}

/* ---- registered ops ---- */

static fy_status_t note_dtype(const fy_launch_t *launch, void *stream)
{
    (void)stream;
    *(float *)launch->dst[0].data = (float)launch->src[0].dtype;
    return FY_STATUS_OK;
}

static fy_status_t one_f32(const fy_op_info_t *info, fy_launch_t *launch)
{
    (void)info;
    launch->dst[0].dtype = FY_DTYPE_F32;
    launch->dst[0].rank = 0;
    return FY_STATUS_OK;
}

TS_DEVICE_TEST(a_registered_op_can_have_a_class)
{
    ts_own_op_t own;
    fy_op_t op;
    fy_tensor_t *x = full(fy_device_host(), FY_DTYPE_F32, 1), *src[9], *y = NULL;
    if (!ctx->is_host) return; /* once: an op is registered for ever */
    ts_own_op(&own, "test.autocast", FY_OP_VARIADIC, note_dtype);
    own.info.dtypes |= FY_DTYPE_BIT(FY_DTYPE_BF16);
    own.info.flags = FY_OP_AUTOCAST_LOW | FY_OP_AUTOCAST_FULL;
    own.def.shape = one_f32;
    ts_fails_with(fy_op_register(&own.def, &op), INVALID_ARGUMENT, "several autocast classes");
    own.info.flags = FY_OP_AUTOCAST_LOW;
    ts_ok(fy_op_register(&own.def, &op));
    for (int i = 0; i < 9; i++) src[i] = x;
    ts_ok(fy_autocast_set(FY_DTYPE_BF16));
    const uint64_t before = now().casts;
    ts_ok(fy_op_call(op, 9, src, NULL, 0, 1, &y));
    assert_true(ts_value(y) == FY_DTYPE_BF16);
    assert_int_equal(now().casts - before, 1);
}
