/* A typed call of one op is one request without transfers, and gives the bits of fy_op_call with
 * the attributes that <ferry/ops.h> documents.
 * Not here: values and gradients (tests/ops/), steps of optimizers (test_step_low.c), refused
 * arguments (test_typed.c and others). */
#include "tests/support/cases.h"
#include "tests/support/harness.h"

#define A(type, ...) (&(const type){ __VA_ARGS__ })

/* ---- calls without attributes, which the rows of opset/ops.def make ---- */

static const struct {
    fy_op_t op;
    fy_status_t (*unary)(const fy_tensor_t *x, fy_tensor_t **out_y);
    fy_status_t (*binary)(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_y);
} k_plain[] = {
#define UNARY(number, ENUM, name, ...)   { FY_OP_##ENUM, fy_##name, NULL },
#define TEST(number, ENUM, name, ...)    { FY_OP_##ENUM, fy_##name, NULL },
#define BINARY(number, ENUM, name, ...)  { FY_OP_##ENUM, NULL, fy_##name },
#define COMPARE(number, ENUM, name, ...) { FY_OP_##ENUM, NULL, fy_##name },
#define SLOPE(number, ENUM, name, ...)   { FY_OP_##ENUM, NULL, fy_##name },
#include "opset/ops.def"
};

static fy_tensor_t *typed[8], *generic[8]; /* results; NULL before a call that makes them */
static fy_ledger_totals_t before;

/* After the typed call. */
static void expect_same(ts_ctx_t *ctx, fy_op_t op, fy_status_t status, const void *attrs,
                        size_t nsrc, fy_tensor_t *const *src)
{
    const fy_op_info_t *info = fy_op_get(op);
    fy_ledger_totals_t after = ts_ledger(NULL);
    if (status != FY_STATUS_OK) fail_msg("%s: %s", info->name, fy_error_get()->text);
    assert_int_equal(after.requests, before.requests + 1);
    after.requests = before.requests;
    if (!generic[0])
        after.device_allocs = before.device_allocs; /* of results that the call makes */
    ts_expect_quiet(&before, &after, info->name);
    ts_ok(fy_op_call(op, nsrc, src, attrs, attrs ? info->attrs_nbytes : 0, ts_ndst(op), generic));
    for (size_t i = 0; i < ts_ndst(op); i++) {
        ts_array_t a, b;
        ts_result_read(typed[i], ctx->device, &a, info->name);
        ts_result_read(generic[i], ctx->device, &b, info->name);
        assert_true(ts_same(&a, &b, info->name));
        ts_array_free(&a);
        ts_array_free(&b);
        generic[i] = NULL;
    }
}

#define SAME(ENUM, call, attrs, ...)                                                      \
    do {                                                                                  \
        fy_tensor_t *const src_[] = { __VA_ARGS__ };                                      \
        before = ts_ledger(NULL);                                                         \
        const fy_status_t status_ = (call);                                               \
        expect_same(ctx, FY_OP_##ENUM, status_, attrs, sizeof src_ / sizeof *src_, src_); \
    } while (0)
/* Into two tensors that `made` makes. */
#define SAME_INTO(made, ENUM, call, attrs, ...) \
    do {                                        \
        typed[0] = (made);                      \
        generic[0] = (made);                    \
        SAME(ENUM, call, attrs, __VA_ARGS__);   \
    } while (0)

static fy_tensor_t *noise(fy_device_t *device, int rank, const int64_t *dims)
{
    fy_tensor_t *rng, *x;
    static int64_t seed;
    ts_ok(fy_rng_create(device, seed++, &rng));
    ts_ok(fy_rand(rng, FY_DTYPE_F32, rank, dims, 0.125, 7, &x));
    return x;
}

TS_DEVICE_TEST(calls_without_attributes)
{
    for (size_t i = 0; i < sizeof k_plain / sizeof *k_plain; i++) {
        const fy_op_t op = k_plain[i].op;
        const bool has_floats = fy_op_get(op)->dtypes & FY_DTYPE_BIT(FY_DTYPE_F32);
        const fy_scope_t scope = fy_scope_begin("call");
        fy_tensor_t *src[2];
        for (int k = 0; k < 2; k++) {
            src[k] = noise(ctx->device, FY_DIMS(5, 7));
            if (!has_floats) ts_ok(fy_cast(src[k], FY_DTYPE_I32, &src[k]));
        }
        before = ts_ledger(NULL);
        const fy_status_t status = k_plain[i].unary ? k_plain[i].unary(src[0], typed)
                                                    : k_plain[i].binary(src[0], src[1], typed);
        expect_same(ctx, op, status, NULL, k_plain[i].unary ? 1 : 2, src);
        fy_scope_end(scope, 0, NULL);
    }
}

TS_DEVICE_TEST(calls_along_axes)
{
    fy_tensor_t *a = noise(ctx->device, FY_DIMS(3, 4)), *b = noise(ctx->device, FY_DIMS(3, 4)),
                *pair[2] = { a, b }, *turned, *cond;
    ts_ok(fy_transpose(b, NULL, &turned));
    ts_ok(fy_gt(a, b, &cond));
    SAME(SUM, fy_sum(a, FY_AXES(-1), 1, typed), A(fy_reduce_attrs_t, 2, 1), a);
    SAME(MEAN, fy_mean(a, FY_AXES(0, 1), 0, typed), A(fy_reduce_attrs_t, 3, 0), a);
    SAME(MAX, fy_max(a, FY_ALL_AXES, 0, typed), NULL, a);
    SAME(MIN, fy_min(a, FY_AXES(0), 0, typed), A(fy_reduce_attrs_t, 1, 0), a);
    SAME(ARGMAX, fy_argmax(a, -1, 0, typed), A(fy_axis_attrs_t, 1, 0), a);
    SAME(SOFTMAX, fy_softmax(a, 0, typed), A(fy_axis_attrs_t, -2, 0), a);
    SAME(LOG_SOFTMAX, fy_log_softmax(a, 1, typed), A(fy_axis_attrs_t, 1, 0), a);
    SAME(MSE_LOSS, fy_mse_loss(a, b, typed), NULL, a, b);
    SAME(AFFINE, fy_affine(a, 2, -1, typed), A(fy_affine_attrs_t, 2, -1), a);
    SAME(AFFINE, fy_affine(a, 1, 0, typed), NULL, a);
    SAME(CAST, fy_cast(a, FY_DTYPE_I64, typed), A(fy_cast_attrs_t, FY_DTYPE_I64), a);
    SAME(CONCAT, fy_concat(2, pair, 1, typed), A(fy_axis_attrs_t, 1, 0), a, b);
    SAME(MATMUL, fy_matmul(a, turned, typed), A(fy_matmul_attrs_t, 0, 1), a, b);
    SAME(WHERE, fy_where(cond, a, b, typed), NULL, cond, a, b);
}

TS_DEVICE_TEST(calls_of_layers)
{
    const fy_conv2d_attrs_t by_2 = { 2, 1, 1, 2, 1, 2, 2, FY_ACTIVATION_RELU };
    const fy_attention_attrs_t causal = { 0.25, 1 };
    fy_device_t *device = ctx->device;
    fy_tensor_t *x = noise(device, FY_DIMS(4, 6)), *w = noise(device, FY_DIMS(5, 6)),
                *b = noise(device, FY_DIMS(5)), *dy = noise(device, FY_DIMS(4, 5));
    SAME(LINEAR, fy_linear(x, w, b, FY_ACTIVATION_TANH, typed),
         A(fy_linear_attrs_t, FY_ACTIVATION_TANH), x, w, b);
    SAME(LINEAR, fy_linear(x, w, NULL, FY_ACTIVATION_NONE, typed), NULL, x, w);
    SAME(LINEAR_BACKWARD_PARAMS, fy_linear_backward_params(dy, x, &typed[0], &typed[1]), NULL, dy,
         x);
    SAME(CLAMP, fy_clamp(x, 1, 5, typed), A(fy_clamp_attrs_t, 1, 5), x);
    SAME(NORM, fy_norm(x, FY_AXES(-1), 1, typed), A(fy_reduce_attrs_t, 2, 1), x);
    SAME_INTO(ts_iota(device, FY_DIMS(4, 5), 0), CLIP_BY_NORM, fy_clip_by_norm(typed[0], b, 2),
              A(fy_clip_attrs_t, 2), b);
    x = noise(device, FY_DIMS(2, 7, 6, 4)), w = noise(device, FY_DIMS(6, 3, 2, 2));
    b = noise(device, FY_DIMS(6)), dy = noise(device, FY_DIMS(2, 4, 8, 6));
    SAME(CONV2D, fy_conv2d(x, w, b, &by_2, typed), &by_2, x, w, b);
    SAME(CONV2D_BACKWARD_INPUT, fy_conv2d_backward_input(dy, w, &by_2, 7, 6, typed),
         A(fy_conv2d_backward_attrs_t, 2, 1, 1, 2, 1, 2, 2, 7, 6), dy, w);
    SAME(CONV2D_BACKWARD_WEIGHT, fy_conv2d_backward_weight(dy, x, &by_2, 3, 2, typed),
         A(fy_conv2d_backward_attrs_t, 2, 1, 1, 2, 1, 2, 2, 3, 2), dy, x);
    SAME(CONV2D_BACKWARD_PARAMS,
         fy_conv2d_backward_params(dy, x, &by_2, 3, 2, &typed[0], &typed[1]),
         A(fy_conv2d_backward_attrs_t, 2, 1, 1, 2, 1, 2, 2, 3, 2), dy, x);
    w = noise(device, FY_DIMS(6, 3, 2, 4)), dy = noise(device, FY_DIMS(2, 5, 5, 6));
    SAME(CONV2D, fy_conv2d(x, w, NULL, NULL, typed), A(fy_conv2d_attrs_t, 1, 1, 0, 0, 1, 1, 1, 0),
         x, w);
    SAME(CONV2D_BACKWARD_INPUT, fy_conv2d_backward_input(dy, w, NULL, 7, 6, typed),
         A(fy_conv2d_backward_attrs_t, 1, 1, 0, 0, 1, 1, 1, 7, 6), dy, w);
    SAME(CONV2D_BACKWARD_WEIGHT, fy_conv2d_backward_weight(dy, x, NULL, 3, 2, typed),
         A(fy_conv2d_backward_attrs_t, 1, 1, 0, 0, 1, 1, 1, 3, 2), dy, x);
    SAME(SCALED_DOT_PRODUCT_ATTENTION,
         fy_scaled_dot_product_attention(x, x, x, NULL, &causal, &typed[0], &typed[1]), &causal, x,
         x, x);
}

TS_DEVICE_TEST(calls_over_images)
{
    const fy_pool2d_attrs_t pool = { 3, 2, 2, 1, 1, 0, FY_ACTIVATION_NONE, 1, 0 },
                            of_relu = { 3, 2, 2, 1, 1, 0, FY_ACTIVATION_RELU, 1, 0 };
    fy_tensor_t *x = noise(ctx->device, FY_DIMS(2, 7, 5, 3)),
                *dy = noise(ctx->device, FY_DIMS(2, 4, 4, 3));
    SAME(MAX_POOL2D, fy_max_pool2d(x, &pool, typed), &pool, x);
    SAME(MAX_POOL2D_BACKWARD, fy_max_pool2d_backward(dy, x, &pool, typed), &pool, dy, x);
    SAME(AVG_POOL2D, fy_avg_pool2d(x, &of_relu, typed), &of_relu, x);
    SAME(AVG_POOL2D_BACKWARD, fy_avg_pool2d_backward(dy, x, &of_relu, 7, 5, typed),
         A(fy_pool2d_backward_attrs_t, 3, 2, 2, 1, 1, 0, FY_ACTIVATION_RELU, 1, 0, 7, 5), dy, x);
    SAME(AVG_POOL2D_BACKWARD, fy_avg_pool2d_backward(dy, NULL, &pool, 7, 5, typed),
         A(fy_pool2d_backward_attrs_t, 3, 2, 2, 1, 1, 0, FY_ACTIVATION_NONE, 1, 0, 7, 5), dy);
    SAME(RESIZE2D, fy_resize2d(x, 4, 9, typed), A(fy_image_size_attrs_t, 4, 9), x);
    SAME(RESIZE2D_BACKWARD, fy_resize2d_backward(x, 4, 9, typed), A(fy_image_size_attrs_t, 4, 9),
         x);
    SAME(ADAPTIVE_AVG_POOL2D, fy_adaptive_avg_pool2d(x, 4, 9, typed),
         A(fy_image_size_attrs_t, 4, 9), x);
    SAME(ADAPTIVE_AVG_POOL2D_BACKWARD, fy_adaptive_avg_pool2d_backward(x, 4, 9, typed),
         A(fy_image_size_attrs_t, 4, 9), x);
}

TS_DEVICE_TEST(calls_with_indices)
{
    static const int64_t values[6] = { 0, 1, -100, 2, 1, 2 };
    const fy_class_loss_attrs_t smoothed = { FY_REDUCTION_SUM, -100, 0.25 };
    fy_device_t *device = ctx->device;
    fy_tensor_t *classes = ts_upload(device, FY_DTYPE_I64, FY_DIMS(6), values),
                *rows = ts_upload(device, FY_DTYPE_I64, FY_DIMS(3), values + 3),
                *x = noise(device, FY_DIMS(6, 3)), *w = noise(device, FY_DIMS(3)),
                *one = noise(device, 0, NULL), *few = noise(device, FY_DIMS(3, 4)), *turned;
    SAME(NLL_LOSS, fy_nll_loss(x, classes, FY_REDUCTION_SUM, typed),
         A(fy_class_loss_attrs_t, FY_REDUCTION_SUM, -100, 0), x, classes);
    SAME(CROSS_ENTROPY, fy_cross_entropy(x, classes, FY_REDUCTION_NONE, typed),
         A(fy_class_loss_attrs_t, FY_REDUCTION_NONE, -100, 0), x, classes);
    SAME(NLL_LOSS, fy_nll_loss_with(x, classes, w, NULL, typed),
         A(fy_class_loss_attrs_t, FY_REDUCTION_MEAN, -100, 0), x, classes, w);
    SAME(CROSS_ENTROPY, fy_cross_entropy_with(x, classes, w, NULL, typed),
         A(fy_class_loss_attrs_t, FY_REDUCTION_MEAN, -100, 0), x, classes, w);
    SAME(CROSS_ENTROPY, fy_cross_entropy_with(x, classes, NULL, &smoothed, typed), &smoothed, x,
         classes);
    SAME(NLL_LOSS_BACKWARD, fy_nll_loss_backward(one, classes, 3, FY_REDUCTION_SUM, typed),
         A(fy_class_loss_backward_attrs_t, FY_REDUCTION_SUM, 3, -100), one, classes);
    SAME(CROSS_ENTROPY_BACKWARD,
         fy_cross_entropy_backward(one, x, classes, FY_REDUCTION_MEAN, typed),
         A(fy_class_loss_attrs_t, FY_REDUCTION_MEAN, -100, 0), one, x, classes);
    SAME(GATHER_BACKWARD, fy_gather_backward(few, rows, 5, typed), A(fy_gather_backward_attrs_t, 5),
         few, rows);
    SAME_INTO(ts_iota(device, FY_DIMS(5, 4), 0), INDEX_ADD, fy_index_add(typed[0], rows, 2, few),
              A(fy_axpy_attrs_t, 2), few, rows);
    SAME(TOPK, fy_topk(x, 2, &typed[0], &typed[1]), A(fy_topk_attrs_t, 2), x);
    ts_ok(fy_reshape(rows, FY_DIMS(3, 1), &rows));
    SAME(TAKE_ALONG_AXIS, fy_take_along_axis(few, rows, -1, typed), NULL, few, rows);
    SAME(FLIP, fy_flip(few, FY_AXES(-1), typed), A(fy_flip_attrs_t, 2), few);
    SAME(FLIP, fy_flip(few, FY_ALL_AXES, typed), NULL, few);
    ts_ok(fy_transpose(few, NULL, &turned));
    SAME(FLIP, fy_flip(turned, FY_AXES(0, 1), typed), A(fy_flip_attrs_t, 3), turned);
}
