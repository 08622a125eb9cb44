/* Special cases of the dispatcher: calls inside a call, several results, given results that touch
 * each other. */
#include "tests/support/harness.h"
#include "tests/support/own_op.h"

#include "ops/optable.h"

static uint32_t seen_flags;

/* dst0 = sum of the sources, dst1 = -dst0, f32. Meanwhile it makes a call with still more
 * operands. */
static fy_status_t sum_and_negative(const fy_launch_t *launch, void *stream)
{
    fy_tensor_t *parts[20], *joined = NULL;
    (void)stream;
    seen_flags = launch->flags;
    fy_scope_t scope = fy_scope_begin("inside");
    for (int i = 0; i < 20; i++)
        FY_TRY(fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(3), 99, &parts[i]));
    FY_TRY(fy_concat(20, parts, 0, &joined));
    fy_scope_end(scope, 0, NULL);
    for (int64_t i = 0; i < (int64_t)launch->nelem; i++) {
        float sum = 0;
        for (int s = 0; s < launch->nsrc; s++)
            sum += ((const float *)launch->src[s].data)[i * launch->src[s].strides[0]];
        ((float *)launch->dst[0].data)[i * launch->dst[0].strides[0]] = sum;
        ((float *)launch->dst[1].data)[i * launch->dst[1].strides[0]] = -sum;
    }
    return FY_STATUS_OK;
}

static fy_status_t two_like_the_first(const fy_op_info_t *info, fy_launch_t *launch)
{
    (void)info;
    for (int i = 0; i < 2; i++) {
        launch->dst[i].dtype = launch->src[0].dtype;
        launch->dst[i].rank = 1;
        launch->dst[i].dims[0] = launch->src[0].dims[0];
    }
    return FY_STATUS_OK;
}

static fy_op_t the_op(void)
{
    static fy_op_t op = FY_OP_NONE;
    ts_own_op_t own;
    ts_own_op(&own, "test.sum_and_negative", FY_OP_VARIADIC, sum_and_negative);
    own.info.ndst = 2;
    own.def.shape = two_like_the_first;
    if (op == FY_OP_NONE) ts_ok(fy_op_register(&own.def, &op));
    return op;
}

/* Both calls have more operands than the caller's stack space holds; the inner call must not
 * overwrite those of the outer one. */
TS_DEVICE_TEST(a_call_inside_a_call)
{
    fy_tensor_t *src[10], *dst[2] = { NULL, NULL };
    if (!ctx->is_host) skip(); /* a kernel that calls Ferry is for the host */
    for (int i = 0; i < 10; i++) src[i] = ts_iota(ctx->device, FY_DIMS(3), (float)i);
    for (int round = 0; round < 2; round++) {
        dst[0] = dst[1] = NULL;
        ts_ok(fy_op_call(the_op(), 10, src, NULL, 0, 2, dst));
        ts_expect_f32(dst[0], (float[]){ 45, 55, 65 }, 3);
        ts_expect_f32(dst[1], (float[]){ -45, -55, -65 }, 3);
    }
}

TS_DEVICE_TEST(dense_means_every_result)
{
    fy_tensor_t *src = ts_iota(ctx->device, FY_DIMS(3), 0), *table, *column, *flat,
                *dst[2] = { NULL, NULL };
    if (!ctx->is_host) skip();
    ts_ok(fy_op_call(the_op(), 1, &src, NULL, 0, 2, dst));
    assert_int_equal(seen_flags & FY_LAUNCH_DENSE, FY_LAUNCH_DENSE);
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(3, 2), 0, &table));
    ts_ok(fy_slice(table, 1, 1, 2, &column));
    ts_ok(fy_squeeze(column, 1, &flat));
    dst[0] = NULL;
    dst[1] = flat;
    ts_ok(fy_op_call(the_op(), 1, &src, NULL, 0, 2, dst));
    assert_int_equal(seen_flags & FY_LAUNCH_DENSE, 0);
    ts_expect_f32(table, (float[]){ 0, 0, 0, -1, 0, -2 }, 6);
}

TS_DEVICE_TEST(an_empty_window_overlaps_nothing)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4), 0), *none, *nothing;
    ts_ok(fy_slice(x, 0, 2, 2, &none));
    ts_ok(fy_slice(x, 0, 1, 1, &nothing));
    ts_ok(fy_copy(none, nothing));
    fy_tensor_t *src[1] = { x }, *dst[1] = { NULL };
    ts_ok(fy_reshape(none, 2, (const int64_t[]){ 0, 4 }, &nothing));
    ts_ok(fy_broadcast(x, 2, (const int64_t[]){ 0, 4 }, &src[0]));
    dst[0] = nothing;
    ts_ok(fy_op_call(FY_OP_NEG, 1, src, NULL, 0, 1, dst));
    ts_expect_f32(x, (float[]){ 0, 1, 2, 3 }, 4);
}

/* The stride of an axis of length 1 has no meaning, and BLAS must not get it. */
TS_DEVICE_TEST(vectors_as_matrices)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(3), 1), *row, *column, *inner, *outer;
    ts_ok(fy_unsqueeze(x, 0, &row));    /* [1, 3], strides 1, 1 */
    ts_ok(fy_unsqueeze(x, 1, &column)); /* [3, 1], strides 1, 1 */
    ts_ok(fy_matmul(row, column, &inner));
    ts_expect_f32(inner, (float[]){ 14 }, 1);
    ts_ok(fy_matmul(column, row, &outer));
    ts_expect_f32(outer, (float[]){ 1, 2, 3, 2, 4, 6, 3, 6, 9 }, 9);
}
