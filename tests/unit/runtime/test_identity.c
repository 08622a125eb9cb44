/* The storage that a tensor shares and its offset there (fy_tensor_query), and the native queues of
 * devices without any (fy_stream_native). cuda: tests/unit/cuda/test_launch.c. */
#include "tests/support/harness.h"

TS_DEVICE_TEST(views_share_a_storage)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4, 3), 0), *row, *turned, *again, *wide, *other;
    ts_ok(fy_slice(x, 0, 2, 4, &row));
    ts_ok(fy_transpose(row, NULL, &turned));
    ts_ok(fy_slice(turned, 0, 1, 2, &again)); /* column 1 of rows 2 and 3 */
    ts_ok(fy_broadcast(row, FY_DIMS(5, 2, 3), &wide));
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(4, 3), &other));
    const fy_tensor_info_t of_x = ts_info(x), of_other = ts_info(other);
    assert_true(of_x.storage != 0 && of_x.offset_nbytes == 0 && of_x.storage_nbytes == 48);
    assert_true(of_other.storage != of_x.storage);
    const struct {
        fy_tensor_t *view;
        uint64_t offset;
    } views[] = { { row, 24 }, { turned, 24 }, { again, 28 }, { wide, 24 } };
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        const fy_tensor_info_t info = ts_info(views[i].view);
        assert_true(info.storage == of_x.storage && info.storage_nbytes == 48);
        assert_int_equal(info.offset_nbytes, views[i].offset);
    }
    fy_tensor_destroy(x); /* the views keep the storage */
    assert_true(ts_info(again).storage == of_x.storage);
}

TS_DEVICE_TEST(wrapped_and_empty_tensors)
{
    float bytes[6] = { 0 };
    fy_tensor_t *wrapped, *part, *empty;
    (void)ctx;
    ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(6), bytes, NULL, NULL, &wrapped));
    ts_ok(fy_slice(wrapped, 0, 4, 6, &part));
    assert_int_equal(ts_info(part).offset_nbytes, 16);
    assert_int_equal(ts_info(part).storage_nbytes, sizeof bytes);
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(0, 3), &empty));
    assert_int_equal(ts_info(empty).offset_nbytes, 0);
}

/* A program whose fy_tensor_info_t ends with `name`: nothing is written behind it. */
TS_DEVICE_TEST(older_struct)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4), 0);
    info.struct_size = offsetof(fy_tensor_info_t, storage);
    info.storage = info.offset_nbytes = info.storage_nbytes = 7;
    ts_ok(fy_tensor_query(x, &info));
    assert_true(info.nelem == 4 && info.storage == 7);
    assert_true(info.offset_nbytes == 7 && info.storage_nbytes == 7);
}

TS_DEVICE_TEST(native_queues)
{
    void *native = &native;
    fy_stream_t *stream = NULL;
    fy_device_t *other = ts_open("sim:6");
    fy_stream_t *far = ts_stream(other);
    if (ctx->is_host || ctx->is_sim) {
        ts_ok(fy_stream_native(ctx->device, NULL, &native));
        assert_null(native);
    }
    if (!ctx->is_host) ts_ok(fy_stream_create(ctx->device, NULL, &stream));
    if (ctx->is_sim) {
        native = &native;
        ts_ok(fy_stream_native(ctx->device, stream, &native));
        assert_null(native);
    }
    native = &native;
    ts_fails_with(fy_stream_native(ctx->device, far, &native), INVALID_ARGUMENT,
                  "is of sim:6, the device is");
    assert_null(native);
    ts_fails(fy_stream_native(NULL, NULL, &native), INVALID_ARGUMENT);
    ts_fails(fy_stream_native(ctx->device, stream, NULL), INVALID_ARGUMENT);
}
