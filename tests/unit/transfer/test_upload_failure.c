/* Uploads that fail. Before the first byte, nothing changes. After it, the DMA in flight is tracked
 * and the damaged bytes are poisoned. */
#include "runtime/tensor/storage.h"
#include "runtime/tensor/tensor.h"
#include "tests/support/harness.h"

static fy_backend_t backend; /* the device's backend with the copy slot replaced */
static const fy_backend_t *real;
static int copies_left;

static fy_status_t failing_copy(void *dev, void *stream, const fy_copy_t *copy)
{
    if (copies_left-- > 0) return real->copy(dev, stream, copy);
    return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__, "the copy was made to fail");
}

static void fail_after(ts_ctx_t *ctx, int copies)
{
    real = ctx->device->backend;
    backend = *real;
    backend.copy = failing_copy;
    copies_left = copies;
    ctx->device->backend = &backend;
}

static fy_tensor_t *zeros(fy_device_t *device, fy_dtype_t dtype, int64_t n)
{
    fy_tensor_t *tensor;
    ts_ok(fy_full(device, dtype, 1, &n, 0, &tensor));
    return tensor;
}

TS_DEVICE_TEST(a_refused_upload_changes_nothing)
{
    fy_tensor_t *dst = zeros(ctx->device, FY_DTYPE_F32, 4),
                *src = zeros(fy_device_host(), FY_DTYPE_F64, 4);
    fy_guard_options_t guard = FY_GUARD_OPTIONS_INIT;
    if (ctx->is_host) skip();
    fy_scope_t scope = fy_scope_begin("no memory");
    guard.memory_nbytes = 0;
    ts_ok(fy_scope_guard(&guard));
    /* no memory for the bytes before conversion */
    ts_fails(fy_tensor_upload_into(dst, src, &ts_convert, NULL), REFUSED_BY_GUARD);
    fy_scope_end(scope, 0, NULL);
    ts_expect_f32(dst, (float[]){ 0, 0, 0, 0 }, 4);
}

TS_DEVICE_TEST(an_upload_that_fails_before_the_first_byte_changes_nothing)
{
    fy_tensor_t *dst = zeros(ctx->device, FY_DTYPE_F32, 4),
                *src = zeros(fy_device_host(), FY_DTYPE_F32, 4);
    fail_after(ctx, 0);
    ts_fails(fy_tensor_upload_into(dst, src, NULL, NULL), INTERNAL);
    ctx->device->backend = real;
    ts_expect_f32(dst, (float[]){ 0, 0, 0, 0 }, 4);
}

TS_DEVICE_TEST(an_upload_that_fails_half_way_poisons_its_target)
{
    /* one ring slot and a little more: the host submits the second chunk early */
    enum { N = (1 << 18) + 1 };
    fy_tensor_t *dst = zeros(ctx->device, FY_DTYPE_F32, N),
                *src = zeros(fy_device_host(), FY_DTYPE_F32, N), *host;
    fy_download_t *download;
    if (ctx->is_host) skip();
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    fail_after(ctx, 1);
    ts_fails(fy_tensor_upload_into(dst, src, NULL, NULL), INTERNAL);
    ctx->device->backend = real;
    assert_true(fy_tensor_ticket(dst).stream != 0); /* the first chunk is in flight */
    assert_int_equal(fy_ticket_poll(fy_tensor_ticket(dst)), FY_POLL_PENDING);
    ts_ok(fy_tensor_download(dst, NULL, &download));
    ts_fails_with(fy_download_wait(download, FY_FOREVER, &host), INTERNAL, "half way");
}

TS_DEVICE_TEST(a_new_tensor_failed_half_way)
{
    enum { N = (1 << 18) + 1 };
    fy_tensor_t *src = zeros(fy_device_host(), FY_DTYPE_F32, N), *dst;
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    if (ctx->is_host) skip();
    fail_after(ctx, 1);
    ts_fails(fy_tensor_upload(src, ctx->device, NULL, &dst), INTERNAL);
    ctx->device->backend = real;
    assert_null(dst);
    ts_ok(fy_memory_query(ctx->device, NULL, &stats));
    /* no request gets the block while the first chunk is in flight */
    assert_true(stats.pending >= N * sizeof(float));
}

/* An f64 source has as many bytes as the whole f32 dst, of which it fills half: the poison of the
 * other half stays. */
TS_DEVICE_TEST(an_upload_of_half_a_tensor_keeps_its_poison)
{
    fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(4), 0), *indices, *rows, *half,
                *src = zeros(fy_device_host(), FY_DTYPE_F64, 2);
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
    fy_tensor_t *block, *wrapped, *product;
    void *address;
    if (ctx->is_host) skip();
    ts_ok(fy_device_open("sim:5", &device));
    fy_scope_t scope = fy_scope_begin("device");
    ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(512, 512), 1, &block));
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
