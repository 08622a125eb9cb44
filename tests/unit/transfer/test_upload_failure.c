/* Uploads that fail. Before the first byte, nothing changes. After it, the DMA in flight is tracked
 * and the damaged bytes are poisoned. */
#include "runtime/tensor/storage.h"
#include "runtime/tensor/tensor.h"
#include "tests/support/failing.h"

TS_DEVICE_TEST(a_refused_upload_changes_nothing)
{
    fy_tensor_t *dst = ts_full(ctx->device, FY_DIMS(4), 0),
                *src = ts_zeros(fy_device_host(), FY_DTYPE_F64, FY_DIMS(4));
    if (ctx->is_host) skip();
    fy_scope_t scope = fy_scope_begin("no memory");
    ts_guard(memory_nbytes, 0);
    /* no memory for the bytes before conversion */
    ts_fails(fy_tensor_upload_into(dst, src, &ts_convert, NULL), REFUSED_BY_GUARD);
    fy_scope_end(scope, 0, NULL);
    ts_expect_f32(dst, (float[]){ 0, 0, 0, 0 }, 4);
}

TS_DEVICE_TEST(an_upload_that_fails_before_the_first_byte_changes_nothing)
{
    fy_tensor_t *dst = ts_full(ctx->device, FY_DIMS(4), 0),
                *src = ts_full(fy_device_host(), FY_DIMS(4), 0);
    ts_fail_after(ctx->device, 0, 9);
    ts_fails(fy_tensor_upload_into(dst, src, NULL, NULL), INTERNAL);
    ts_heal(ctx->device);
    ts_expect_f32(dst, (float[]){ 0, 0, 0, 0 }, 4);
}

TS_DEVICE_TEST(an_upload_that_fails_half_way_poisons_its_target)
{
    /* one ring slot and a little more: the host submits the second chunk early */
    enum { N = (1 << 18) + 1 };
    fy_tensor_t *dst = ts_full(ctx->device, FY_DIMS(N), 0),
                *src = ts_full(fy_device_host(), FY_DIMS(N), 0);
    if (ctx->is_host) skip();
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    ts_fail_after(ctx->device, 1, 9);
    ts_fails(fy_tensor_upload_into(dst, src, NULL, NULL), INTERNAL);
    ts_heal(ctx->device);
    assert_true(fy_tensor_ticket(dst).stream != 0); /* the first chunk is in flight */
    assert_int_equal(fy_ticket_poll(fy_tensor_ticket(dst)), FY_POLL_PENDING);
    ts_download_fails(dst, INTERNAL, "half way");
}

TS_DEVICE_TEST(a_new_tensor_failed_half_way)
{
    enum { N = (1 << 18) + 1 };
    fy_tensor_t *src = ts_full(fy_device_host(), FY_DIMS(N), 0), *dst;
    if (ctx->is_host) skip();
    ts_fail_after(ctx->device, 1, 9);
    ts_fails(fy_tensor_upload(src, ctx->device, NULL, &dst), INTERNAL);
    ts_heal(ctx->device);
    assert_null(dst);
    const fy_memory_stats_t stats = ts_memory(ctx->device, NULL);
    /* no request gets the block while the first chunk is in flight */
    assert_true(stats.pending >= N * sizeof(float));
}

/* An f64 source has as many bytes as the whole f32 dst, of which it fills half: the poison of the
 * other half stays. */
TS_DEVICE_TEST(an_upload_of_half_a_tensor_keeps_its_poison)
{
    fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(4), 0), *indices, *rows, *half,
                *src = ts_zeros(fy_device_host(), FY_DTYPE_F64, FY_DIMS(2));
    int64_t values[4] = { 0, 1, 2, 99 };
    indices = ts_upload(ctx->device, FY_DTYPE_I64, FY_DIMS(4), values);
    ts_ok(fy_gather(table, indices, &rows));
    ts_ok(fy_slice(rows, 0, 0, 2, &half));
    ts_ok(fy_tensor_upload_into(half, src, &ts_convert, NULL));
    ts_fails(ts_try_download(rows), BAD_VALUE);
}

static void *deleted_data;
static int deleted;
static void deleter(void *user, void *data)
{
    (void)user;
    deleted_data = data;
    deleted++;
}

TS_DEVICE_TEST(an_empty_wrap_releases_its_own_address)
{
    fy_tensor_t *empty;
    double mine = 0;
    deleted = 0;
    ts_ok(fy_tensor_wrap(ctx->device, FY_DTYPE_F32, FY_DIMS(0), &mine, deleter, NULL, &empty));
    fy_tensor_destroy(empty);
    assert_int_equal(deleted, 1);
    assert_ptr_equal(deleted_data, &mine);
    ts_ok(fy_tensor_wrap(ctx->device, FY_DTYPE_F32, FY_DIMS(0), NULL, deleter, NULL, &empty));
    fy_tensor_destroy(empty);
    assert_ptr_equal(deleted_data, NULL);
}

/* The user's memory is released even if the device was closed first and the last use is still in
 * flight. */
TS_DEVICE_TEST(wrapped_bytes_are_released_after_the_last_close)
{
    fy_device_t *device;
    void *address;
    if (ctx->is_host) skip();
    ts_ok(fy_device_open("sim:5", &device));
    fy_scope_t scope = fy_scope_begin("device");
    fy_tensor_t *block = ts_full(device, FY_DIMS(512, 512), 1), *wrapped, *product;
    ts_ok(fy_tensor_begin_native_access(block, FY_ACCESS_READ, NULL, &address));
    deleted = 0;
    ts_ok(
        fy_tensor_wrap(device, FY_DTYPE_F32, FY_DIMS(512, 512), address, deleter, NULL, &wrapped));
    ts_ok(fy_matmul(wrapped, wrapped, &product));
    fy_device_close(device);
    fy_tensor_destroy(wrapped);
    fy_scope_end(scope, 0, NULL);
    assert_int_equal(deleted, 1);
    assert_ptr_equal(deleted_data, address);
    /* the wrap is gone, so other options are accepted */
    ts_ok(fy_device_open("sim:5?limit=1GiB", &device));
    fy_device_close(device);
}
