/* The typed calls that join, cut, reverse or enlarge tensors, and slices with a step: values,
 * gradients through the tape, refusals.
 * What the ops flip, index_add, take_along_axis and topk compute is tested in tests/ops/. */
#include "tests/support/harness.h"

/* From the sum of y times `weights`, which has y's shape. */
static void backward(fy_tape_t *tape, const fy_tensor_t *y, const fy_tensor_t *weights)
{
    fy_tensor_t *product, *sum;
    ts_ok(fy_mul(y, weights, &product));
    ts_ok(fy_sum(product, 0, NULL, 0, &sum));
    ts_ok(fy_tape_backward(tape, sum, NULL));
}

static void expect_dims(const fy_tensor_t *x, int rank, const int64_t *dims)
{
    const fy_tensor_info_t info = ts_info(x);
    assert_int_equal(info.rank, rank);
    for (int i = 0; i < rank; i++) assert_int_equal(info.dims[i], dims[i]);
}

TS_DEVICE_TEST(stack_makes_a_new_axis)
{
    fy_tensor_t *a = ts_iota(ctx->device, FY_DIMS(2, 2), 1),
                *b = ts_iota(ctx->device, FY_DIMS(2, 2), 5), *y, *odd;
    fy_tensor_t *const both[2] = { a, b };
    ts_ok(fy_stack(2, both, 0, &y));
    expect_dims(y, FY_DIMS(2, 2, 2));
    ts_expect_f32(y, (const float[]){ 1, 2, 3, 4, 5, 6, 7, 8 }, 8);
    ts_ok(fy_stack(2, both, 1, &y));
    ts_expect_f32(y, (const float[]){ 1, 2, 5, 6, 3, 4, 7, 8 }, 8);
    fy_tape_t *tape = ts_record(b, NULL);
    ts_ok(fy_stack(2, both, -1, &y));
    ts_expect_f32(y, (const float[]){ 1, 5, 2, 6, 3, 7, 4, 8 }, 8);
    backward(tape, y, ts_iota(ctx->device, FY_DIMS(2, 2, 2), 1));
    ts_expect_f32(ts_grad(tape, b), (const float[]){ 2, 4, 6, 8 }, 4);
    fy_tape_destroy(tape);
    ts_ok(fy_slice(a, 0, 0, 1, &odd));
    ts_fails_with(fy_stack(2, (fy_tensor_t *const[]){ a, odd }, 0, &y), SHAPE_MISMATCH,
                  "stack: src0 is [2x2 f32], src1 is [1x2 f32]: shapes must be equal");
    ts_fails_with(fy_stack(2, both, 3, &y), INVALID_ARGUMENT,
                  "stack: axis 3; it must be in [-3, 3)");
    ts_fails(fy_stack(2, both, -4, &y), INVALID_ARGUMENT);
    ts_fails_with(fy_stack(2, (fy_tensor_t *const[]){ a, NULL }, 0, &y), INVALID_ARGUMENT,
                  "stack: src1 is NULL");
    ts_ok(fy_cast(a, FY_DTYPE_F64, &odd));
    ts_fails_with(fy_stack(2, (fy_tensor_t *const[]){ a, odd }, 0, &y), DTYPE_MISMATCH,
                  "stack: src0 is [2x2 f32], src1 is [2x2 f64]");
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(1, 1, 1, 1, 1, 1, 1, 1), &odd));
    ts_fails_with(fy_stack(1, &odd, 0, &y), INVALID_ARGUMENT,
                  "stack: src0 is [1x1x1x1x1x1x1x1 f32]; a tensor has at most 8 axes");
    ts_fails(fy_stack(0, both, 0, &y), INVALID_ARGUMENT);
    ts_fails(fy_stack(2, NULL, 0, &y), INVALID_ARGUMENT);
    assert_null(y);
}

TS_DEVICE_TEST(split_makes_views_of_all_elements)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(2, 4), 1), *part[3];
    const int64_t sizes[3] = { 1, 0, 3 }, few[2] = { 1, 2 }, many[2] = { 3, 2 };
    ts_ok(fy_split(x, 1, 2, NULL, part));
    ts_expect_f32(part[0], (const float[]){ 1, 2, 5, 6 }, 4);
    ts_expect_f32(part[1], (const float[]){ 3, 4, 7, 8 }, 4);
    fy_tape_t *tape = ts_record(x, NULL);
    ts_ok(fy_split(x, -1, 3, sizes, part));
    expect_dims(part[1], FY_DIMS(2, 0));
    ts_expect_f32(part[2], (const float[]){ 2, 3, 4, 6, 7, 8 }, 6);
    backward(tape, part[2], ts_iota(ctx->device, FY_DIMS(2, 3), 1));
    ts_expect_f32(ts_grad(tape, x), (const float[]){ 0, 1, 2, 3, 0, 4, 5, 6 }, 8);
    fy_tape_destroy(tape);
    ts_fails(fy_split(x, 1, 3, NULL, part), SHAPE_MISMATCH);
    ts_fails(fy_split(x, 1, 2, few, part), SHAPE_MISMATCH);
    ts_fails(fy_split(x, 1, 2, many, part), SHAPE_MISMATCH);
    ts_fails(fy_split(x, 2, 2, NULL, part), INVALID_ARGUMENT);
    ts_fails(fy_split(x, 0, 0, NULL, part), INVALID_ARGUMENT);
    ts_fails(fy_split(NULL, 0, 2, NULL, part), INVALID_ARGUMENT);
    ts_fails(fy_split(x, 0, 2, NULL, NULL), INVALID_ARGUMENT);
    assert_null(part[0]);
    assert_null(part[1]);
}

TS_DEVICE_TEST(flip_refuses)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(2, 3), 1), *y;
    ts_fails_with(fy_flip(x, 1, (const int[]){ 2 }, &y), INVALID_ARGUMENT,
                  "flip: axis 2 does not exist in a tensor of rank 2");
    ts_fails(fy_flip(x, 2, (const int[]){ 1, -1 }, &y), INVALID_ARGUMENT);
    ts_fails(fy_flip(NULL, 0, NULL, &y), INVALID_ARGUMENT);
    assert_null(y);
}

TS_DEVICE_TEST(pad_surrounds_with_a_value)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(2, 2), 1), *y, *whole;
    const int64_t begin[2] = { 1, 0 }, end[2] = { 0, 2 }, none[2] = { 0, 0 }, less[2] = { 0, -1 };
    fy_tape_t *tape = ts_record(x, NULL);
    ts_ok(fy_pad(x, begin, end, 9, &y));
    expect_dims(y, FY_DIMS(3, 4));
    ts_expect_f32(y, (const float[]){ 9, 9, 9, 9, 1, 2, 9, 9, 3, 4, 9, 9 }, 12);
    backward(tape, y, ts_iota(ctx->device, FY_DIMS(3, 4), 1));
    ts_expect_f32(ts_grad(tape, x), (const float[]){ 5, 6, 9, 10 }, 4);
    fy_tape_destroy(tape);
    ts_fails(fy_pad(x, none, none, 0, &y), INVALID_ARGUMENT);
    ts_fails(fy_pad(x, begin, less, 0, &y), INVALID_ARGUMENT);
    ts_fails(fy_pad(x, NULL, end, 0, &y), INVALID_ARGUMENT);
    ts_fails(fy_pad(x, begin, NULL, 0, &y), INVALID_ARGUMENT);
    ts_fails(fy_pad(NULL, begin, end, 0, &y), INVALID_ARGUMENT);
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_I32, FY_DIMS(2, 2), &whole));
    ts_fails_with(fy_pad(whole, begin, end, 0.5, &y), INVALID_ARGUMENT, "pad: i32 cannot hold 0.5");
    ts_fails_with(fy_pad(x, (const int64_t[]){ INT64_MAX, 0 }, end, 0, &y), INVALID_ARGUMENT,
                  "pad: broadcast: ");
    assert_null(y);
}

TS_DEVICE_TEST(a_slice_with_a_step_is_a_view)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(2, 7), 0), *view;
    fy_tape_t *tape = ts_record(x, NULL);
    ts_ok(fy_slice_step(x, 1, 1, 7, 3, &view)); /* columns 1, 4 */
    assert_int_equal(ts_info(view).storage, ts_info(x).storage);
    ts_expect_f32(view, (const float[]){ 1, 4, 8, 11 }, 4);
    backward(tape, view, ts_iota(ctx->device, FY_DIMS(2, 2), 1));
    ts_expect_f32(ts_grad(tape, x), (const float[]){ 0, 1, 0, 0, 2, 0, 0, 0, 3, 0, 0, 4, 0, 0 },
                  14);
    fy_tape_destroy(tape);
    ts_ok(fy_slice_step(x, -1, 0, 7, 2, &view));
    ts_expect_f32(view, (const float[]){ 0, 2, 4, 6, 7, 9, 11, 13 }, 8);
    ts_ok(fy_slice_step(x, 1, 5, 7, INT64_MAX, &view));
    ts_expect_f32(view, (const float[]){ 5, 12 }, 2);
    ts_ok(fy_slice_step(x, 1, 7, 7, 2, &view));
    assert_int_equal(ts_info(view).nelem, 0);
    ts_fails(fy_slice_step(x, 1, 0, 7, 0, &view), INVALID_ARGUMENT);
    ts_fails(fy_slice_step(x, 1, 0, 7, -1, &view), INVALID_ARGUMENT);
    ts_fails(fy_slice_step(x, 1, 0, 8, 2, &view), INVALID_ARGUMENT);
    assert_null(view);
}

static fy_tensor_t *indices_of(fy_device_t *device, int rank, const int64_t *dims,
                               const float *values)
{
    fy_tensor_t *indices;
    ts_ok(fy_cast(ts_f32(device, rank, dims, values), FY_DTYPE_I64, &indices));
    return indices;
}

TS_DEVICE_TEST(adding_rows_refuses)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(3, 2), 1), *y, *dx, *half, *real;
    fy_tensor_t *indices = indices_of(ctx->device, FY_DIMS(3), (const float[]){ 2, 0, 2 }),
                *few = indices_of(ctx->device, FY_DIMS(2), (const float[]){ 2, 0 });
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(3, 2), &y));
    ts_ok(fy_cast(x, FY_DTYPE_F16, &half));
    ts_ok(fy_cast(indices, FY_DTYPE_F32, &real));
    const uint64_t before = ts_ledger(NULL).requests;
    ts_fails_with(fy_index_add(y, few, 1, x), SHAPE_MISMATCH,
                  "src0 is [3x2 f32], the indices (src1) are [2 i64]");
    ts_fails(fy_index_add(x, indices, 1, indices), DTYPE_MISMATCH);
    ts_fails(fy_index_add(y, indices, 1, half), DTYPE_MISMATCH);
    ts_fails(fy_index_add(y, real, 1, x), DTYPE_MISMATCH);
    ts_fails_with(fy_index_add(indices, indices, 1, x), DTYPE_MISMATCH, "y (dst0) is [3 i64]");
    ts_fails(fy_index_add(NULL, indices, 1, x), INVALID_ARGUMENT);
    ts_fails_with(fy_gather_backward(x, indices, -1, &dx), INVALID_ARGUMENT, "rows is -1");
    assert_null(dx);
    ts_fails(fy_gather_backward(x, few, 3, &dx), SHAPE_MISMATCH);
    assert_int_equal(ts_ledger(NULL).requests, before);
    ts_fails_with(fy_index_add(dx = ts_iota(ctx->device, FY_DIMS(3, 3), 1), indices, 1, x),
                  SHAPE_MISMATCH, "y (dst0) is [3x3 f32]");
}

TS_DEVICE_TEST(take_along_the_first_axis)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(2, 3), 1), *y;
    fy_tensor_t *last = indices_of(ctx->device, FY_DIMS(2, 2), (const float[]){ 2, 2, 0, 1 }),
                *first = indices_of(ctx->device, FY_DIMS(1, 3), (const float[]){ 1, 0, 1 }),
                *outside = indices_of(ctx->device, FY_DIMS(2, 1), (const float[]){ 0, 3 });
    fy_tape_t *tape = ts_record(x, NULL);
    ts_ok(fy_take_along_axis(x, first, 0, &y));
    expect_dims(y, FY_DIMS(1, 3));
    ts_expect_f32(y, (const float[]){ 4, 2, 6 }, 3);
    backward(tape, y, ts_iota(ctx->device, FY_DIMS(1, 3), 1));
    ts_expect_f32(ts_grad(tape, x), (const float[]){ 0, 2, 0, 1, 0, 3 }, 6);
    fy_tape_destroy(tape);
    ts_fails_with(fy_take_along_axis(x, last, 0, &y), SHAPE_MISMATCH,
                  "src0 is [2x3 f32], indices are [2x2 i64]: all dims but that of axis 0");
    ts_fails_with(fy_take_along_axis(x, x, 0, &y), DTYPE_MISMATCH,
                  "take_along_axis: indices (src1) are [2x3 f32]");
    ts_fails(fy_take_along_axis(x, last, 2, &y), INVALID_ARGUMENT);
    ts_fails(fy_take_along_axis(x, NULL, 1, &y), INVALID_ARGUMENT);
    ts_fails(fy_take_along_axis(NULL, last, 1, &y), INVALID_ARGUMENT);
    assert_null(y);
    ts_ok(fy_take_along_axis(x, outside, 1, &y));
    ts_fails(ts_try_download(y), BAD_VALUE);
}

TS_DEVICE_TEST(topk_refuses)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(2, 4), 1), *y, *indices;
    ts_fails(fy_topk(x, 5, &y, &indices), INVALID_ARGUMENT);
    ts_fails(fy_topk(x, 0, &y, &indices), INVALID_ARGUMENT);
    ts_fails(fy_topk(NULL, 1, &y, &indices), INVALID_ARGUMENT);
    assert_null(y);
    assert_null(indices);
    ts_fails(fy_topk(x, 1, &y, NULL), INVALID_ARGUMENT);
}
