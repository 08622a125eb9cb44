/* Views: reshape, transpose, slice, broadcast, squeeze, unsqueeze. Shapes, strides, values,
 * refusals; a view submits no request and moves no data.
 * Not here: ops on views (tests/ops), the lifetime of bytes (test_lifetime.c). */
#include "tests/support/harness.h"

/* 0 .. 23 */
static fy_tensor_t *grid(ts_ctx_t *ctx) { return ts_iota(ctx->device, FY_DIMS(2, 3, 4), 0); }

/* dims and strides of a view; -1: any value, the stride of an axis of length 1. */
static void expect_shape(const fy_tensor_t *view, int rank, const int64_t *dims,
                         const int64_t *strides)
{
    fy_tensor_info_t info = ts_info(view);
    assert_int_equal(info.rank, rank);
    for (int axis = 0; axis < rank; axis++) {
        assert_int_equal(info.dims[axis], dims[axis]);
        if (strides[axis] >= 0 && dims[axis] > 1)
            assert_int_equal(info.strides[axis], strides[axis]);
    }
}

TS_DEVICE_TEST(reshape)
{
    fy_tensor_t *x = grid(ctx), *view = NULL, *turned;
    ts_ok(fy_reshape(x, FY_DIMS(6, 4), &view));
    expect_shape(view, FY_DIMS(6, 4), (int64_t[]){ 4, 1 });
    ts_ok(fy_reshape(x, FY_DIMS(4, -1, 2), &view));
    expect_shape(view, FY_DIMS(4, 3, 2), (int64_t[]){ 6, 2, 1 });
    ts_fails(fy_reshape(x, FY_DIMS(5, 5), &view), SHAPE_MISMATCH);
    assert_null(view);
    ts_fails(fy_reshape(x, FY_DIMS(5, -1), &view), SHAPE_MISMATCH);
    assert_int_not_equal(fy_reshape(x, FY_DIMS(-1, -1), &view), FY_STATUS_OK);
    assert_int_not_equal(fy_reshape(x, FY_DIMS(-2, 12), &view), FY_STATUS_OK);
    ts_ok(fy_transpose(x, NULL, &turned));
    ts_fails(fy_reshape(turned, FY_DIMS(24), &view), SHAPE_MISMATCH); /* not contiguous */
    fy_tensor_t *one, *empty;
    ts_ok(fy_slice(x, 0, 1, 2, &one)); /* dense, with an offset */
    ts_ok(fy_reshape(one, FY_DIMS(12), &view));
    float want[12];
    for (int i = 0; i < 12; i++) want[i] = (float)(12 + i);
    ts_expect_f32(view, want, 12);
    ts_ok(fy_slice(x, 1, 2, 2, &empty));
    ts_ok(fy_reshape(empty, FY_DIMS(0, 7), &view));
    assert_int_equal(ts_info(view).nelem, 0);
}

TS_DEVICE_TEST(transpose)
{
    fy_tensor_t *x = grid(ctx), *view;
    ts_ok(fy_transpose(x, NULL, &view));
    expect_shape(view, FY_DIMS(4, 3, 2), (int64_t[]){ 1, 4, 12 });
    assert_false(ts_info(view).is_contiguous);
    ts_ok(fy_transpose(x, (int[]){ 1, 0, 2 }, &view));
    expect_shape(view, FY_DIMS(3, 2, 4), (int64_t[]){ 4, 12, 1 });
    float want[24];
    for (int i = 0; i < 24; i++) want[i] = (float)(i / 8 * 4 + i / 4 % 2 * 12 + i % 4);
    ts_expect_f32(view, want, 24);
    ts_fails(fy_transpose(x, (int[]){ 0, 1, 1 }, &view), INVALID_ARGUMENT);
    ts_fails(fy_transpose(x, (int[]){ 0, 1, 3 }, &view), INVALID_ARGUMENT);
    assert_null(view);
}

TS_DEVICE_TEST(slice)
{
    fy_tensor_t *x = grid(ctx), *view;
    ts_ok(fy_slice(x, 1, 1, 3, &view));
    expect_shape(view, FY_DIMS(2, 2, 4), (int64_t[]){ 12, 4, 1 });
    float want[16];
    for (int i = 0; i < 16; i++) want[i] = (float)(i / 8 * 12 + 4 + i % 8);
    ts_expect_f32(view, want, 16);
    ts_ok(fy_slice(x, -1, -3, -1, &view)); /* columns 1, 2 */
    expect_shape(view, FY_DIMS(2, 3, 2), (int64_t[]){ 12, 4, 1 });
    ts_ok(fy_slice(x, 0, 2, 2, &view));
    assert_int_equal(ts_info(view).nelem, 0);
    ts_fails(fy_slice(x, 3, 0, 1, &view), INVALID_ARGUMENT);
    ts_fails(fy_slice(x, -4, 0, 1, &view), INVALID_ARGUMENT);
    ts_fails(fy_slice(x, 0, 0, 3, &view), INVALID_ARGUMENT);
    ts_fails(fy_slice(x, 0, -3, 1, &view), INVALID_ARGUMENT);
    ts_fails(fy_slice(x, 1, 2, 1, &view), INVALID_ARGUMENT);
    assert_null(view);
}

TS_DEVICE_TEST(broadcast)
{
    fy_tensor_t *row = ts_f32(ctx->device, FY_DIMS(3), (float[]){ 1, 2, 3 }), *view, *scalar;
    ts_ok(fy_broadcast(row, FY_DIMS(2, 3), &view));
    expect_shape(view, FY_DIMS(2, 3), (int64_t[]){ 0, 1 });
    assert_int_equal(ts_info(view).nbytes, 24);
    ts_expect_f32(view, (float[]){ 1, 2, 3, 1, 2, 3 }, 6);
    ts_fails(fy_fill(view, 0), INVALID_ARGUMENT); /* can be read, not written */
    ts_fails(fy_broadcast(row, FY_DIMS(2, 4), &view), SHAPE_MISMATCH);
    ts_fails(fy_broadcast(row, FY_DIMS(3, 1), &view), SHAPE_MISMATCH);
    ts_fails(fy_broadcast(row, 0, NULL, &view), SHAPE_MISMATCH);
    assert_null(view);
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, 0, NULL, 2.5, &scalar));
    ts_ok(fy_broadcast(scalar, FY_DIMS(2, 2), &view));
    ts_expect_f32(view, (float[]){ 2.5f, 2.5f, 2.5f, 2.5f }, 4);
    if (!ctx->is_host) return;
    void *data;
    ts_ok(fy_tensor_map(view, FY_ACCESS_READ, &data));
    ts_fails(fy_tensor_map(view, FY_ACCESS_WRITE, &data), INVALID_ARGUMENT);
}

TS_DEVICE_TEST(squeeze_and_unsqueeze)
{
    fy_tensor_t *x = grid(ctx), *thin, *view;
    ts_ok(fy_slice(x, 1, 2, 3, &thin)); /* [2, 1, 4] */
    ts_ok(fy_squeeze(thin, 1, &view));
    expect_shape(view, FY_DIMS(2, 4), (int64_t[]){ 12, 1 });
    ts_expect_f32(view, (float[]){ 8, 9, 10, 11, 20, 21, 22, 23 }, 8);
    ts_ok(fy_squeeze(thin, -2, &view));
    ts_fails(fy_squeeze(thin, 0, &view), SHAPE_MISMATCH);
    assert_null(view);
    assert_int_not_equal(fy_squeeze(thin, 3, &view), FY_STATUS_OK);
    for (int axis = 0; axis <= 3; axis++) {
        ts_ok(fy_unsqueeze(x, axis, &view));
        assert_int_equal(ts_info(view).rank, 4);
        assert_int_equal(ts_info(view).dims[axis], 1);
    }
    ts_ok(fy_unsqueeze(x, -1, &view)); /* after the last axis */
    assert_int_equal(ts_info(view).dims[3], 1);
    ts_fails(fy_unsqueeze(x, 4, &view), INVALID_ARGUMENT);
    fy_tensor_t *deep = ts_full(ctx->device, FY_DIMS(1, 1, 1, 1, 1, 1, 1, 1), 0);
    assert_int_not_equal(fy_unsqueeze(deep, 0, &view), FY_STATUS_OK);
    assert_null(view);
}

TS_DEVICE_TEST(views_are_free)
{
    fy_tensor_t *x = grid(ctx), *a, *b, *c, *d;
    fy_ledger_totals_t before = ts_ledger(NULL);
    uint64_t live = ts_live(ctx->device), version = ts_version(x);
    ts_ok(fy_transpose(x, NULL, &a));
    ts_ok(fy_slice(a, 0, 1, 3, &b));
    ts_ok(fy_unsqueeze(b, 0, &c));
    ts_ok(fy_broadcast(c, FY_DIMS(5, 2, 3, 2), &d));
    ts_expect_quiet_since(&before, "views");
    assert_int_equal(ts_live(ctx->device), live);
    assert_int_equal(ts_version(x), version);
    assert_ptr_equal(ts_info(d).device, ctx->device);
}

TS_DEVICE_TEST(writes_go_through)
{
    fy_tensor_t *x = grid(ctx), *turned, *part;
    ts_ok(fy_transpose(x, NULL, &turned));
    ts_ok(fy_slice(turned, 0, 1, 2, &part)); /* column 1 of every row */
    ts_ok(fy_fill(part, -1));
    float want[24];
    for (int i = 0; i < 24; i++) want[i] = i % 4 == 1 ? -1.0f : (float)i;
    ts_expect_f32(x, want, 24);
}
