/* The other transfer paths when a copy, a launch, a read or the ring fails. Before the first byte,
 * nothing changes; after it, the damaged bytes are poisoned. Afterwards everything works again. */
#include <unistd.h>

#include "runtime/tensor/storage.h"
#include "runtime/tensor/tensor.h"
#include "tests/support/harness.h"

static fy_backend_t backend; /* the device's backend with some slots replaced */
static const fy_backend_t *real;
static int copies_left, launches_left;

static fy_status_t failing_copy(void *dev, void *stream, const fy_copy_t *copy)
{
    if (copies_left-- > 0) return real->copy(dev, stream, copy);
    return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__, "the copy was made to fail");
}

static fy_status_t failing_launch(void *dev, void *stream, const fy_launch_t *launch)
{
    if (launches_left-- > 0) return real->launch(dev, stream, launch);
    return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__, "the launch was made to fail");
}

static void fail_after(ts_ctx_t *ctx, int copies, int launches)
{
    real = ctx->device->backend;
    backend = *real;
    backend.copy = failing_copy;
    backend.launch = failing_launch;
    copies_left = copies;
    launches_left = launches;
    ctx->device->backend = &backend;
}

enum { MANY = 4 };

static void make(ts_ctx_t *ctx, int64_t n, fy_tensor_t **src, fy_tensor_t **dst)
{
    for (int i = 0; i < MANY; i++) {
        ts_ok(fy_full(fy_device_host(), FY_DTYPE_F32, 1, &n, 7, &src[i]));
        ts_ok(fy_full(ctx->device, FY_DTYPE_F32, 1, &n, 1, &dst[i]));
    }
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
}

static fy_status_t first_value(const fy_tensor_t *tensor, float *out_value)
{
    fy_download_t *download;
    fy_tensor_t *host;
    void *data;
    FY_TRY(fy_tensor_download(tensor, NULL, &download));
    FY_TRY(fy_download_wait(download, FY_FOREVER, &host));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_READ, &data));
    *out_value = *(const float *)data;
    return FY_STATUS_OK;
}

static void expect_first(const fy_tensor_t *tensor, float want)
{
    float value = -1;
    ts_ok(first_value(tensor, &value));
    assert_true(value == want);
}

TS_DEVICE_TEST(a_packed_transfer_fails_before_the_first_byte)
{
    fy_tensor_t *src[MANY], *dst[MANY], *out[MANY];
    if (ctx->is_host) skip();
    make(ctx, 100, src, dst);
    for (int launches = 0; launches < 2; launches++) {
        for (int copies = 0; copies < 2; copies++) {
            if (copies && launches) continue;
            fail_after(ctx, copies, launches);
            ts_fails(fy_tensor_upload_many_into(MANY, dst, src, NULL, NULL), INTERNAL);
            ctx->device->backend = real;
            for (int i = 0; i < MANY; i++) expect_first(dst[i], 1);
            fail_after(ctx, copies, launches);
            ts_fails(fy_tensor_upload_many(MANY, src, ctx->device, NULL, out), INTERNAL);
            ctx->device->backend = real;
            for (int i = 0; i < MANY; i++) assert_null(out[i]);
        }
    }
    ts_ok(fy_tensor_upload_many_into(MANY, dst, src, NULL, NULL));
    for (int i = 0; i < MANY; i++) expect_first(dst[i], 7);
}

/* The packed tensors were copied; a large one after them was not. */
TS_DEVICE_TEST(uploads_of_many_fail_half_way)
{
    fy_tensor_t *src[MANY], *dst[MANY], *large, *there;
    const int64_t n = 100000;
    float value;
    if (ctx->is_host) skip();
    make(ctx, 100, src, dst);
    ts_ok(fy_full(fy_device_host(), FY_DTYPE_F32, 1, &n, 7, &large));
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, 1, &n, 1, &there));
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    src[1] = large;
    dst[1] = there;
    fail_after(ctx, 1, 9);
    ts_fails(fy_tensor_upload_many_into(MANY, dst, src, NULL, NULL), INTERNAL);
    ctx->device->backend = real;
    expect_first(there, 1); /* no byte was copied */
    ts_fails_with(first_value(dst[0], &value), INTERNAL, "half way");
    ts_ok(fy_tensor_upload_many_into(MANY, dst, src, NULL, NULL));
    for (int i = 0; i < MANY; i++) expect_first(dst[i], 7);
}

TS_DEVICE_TEST(download_into_fails)
{
    const int64_t n = (1 << 20) + 7; /* f32: several chunks */
    fy_tensor_t *device, *host;
    void *data;
    if (ctx->is_host) skip();
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, 1, &n, 3, &device));
    ts_ok(fy_full(fy_device_host(), FY_DTYPE_F32, 1, &n, 1, &host));
    ts_ok(fy_tensor_download_into(host, device, NULL));
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    const uint64_t version = ts_version(host);
    fail_after(ctx, 0, 9);
    ts_fails(fy_tensor_download_into(host, device, NULL), INTERNAL);
    ctx->device->backend = real;
    assert_int_equal(ts_version(host), version);
    ts_ok(fy_tensor_map(host, FY_ACCESS_READ, &data));
    fail_after(ctx, 4, 9); /* three copies are in flight before the first is checked */
    ts_fails(fy_tensor_download_into(host, device, NULL), INTERNAL);
    ctx->device->backend = real;
    ts_fails_with(fy_tensor_map(host, FY_ACCESS_READ, &data), INTERNAL, "half way");
    ts_ok(fy_tensor_download_into(host, device, NULL)); /* no slot was lost */
    expect_first(host, 3);
}

TS_DEVICE_TEST(a_file_upload_fails_half_way)
{
    const int64_t n = (1 << 20) + 7;
    char path[64];
    float value;
    fy_tensor_t *x;
    if (ctx->is_host) skip();
    snprintf(path, sizeof path, "/tmp/ferry_failure_%d", (int)getpid());
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, 1, &n, 3, &x));
    ts_ok(fy_tensor_download_file(x, path, 0, NULL));
    ts_ok(fy_fill(x, 1));
    fail_after(ctx, 0, 9);
    ts_fails(fy_tensor_upload_file(x, path, 0, NULL), INTERNAL);
    ctx->device->backend = real;
    expect_first(x, 1);
    fail_after(ctx, 1, 9);
    ts_fails(fy_tensor_upload_file(x, path, 0, NULL), INTERNAL);
    ctx->device->backend = real;
    ts_fails_with(first_value(x, &value), INTERNAL, "half way");
    ts_ok(fy_tensor_upload_file(x, path, 0, NULL));
    expect_first(x, 3);
    remove(path);
}

/* Less than the smallest ring needs. */
TS_DEVICE_TEST(transfers_without_memory_for_the_ring_fail)
{
    fy_tensor_t *src[MANY], *dst[MANY], *out[MANY], *host;
    fy_device_t *tight;
    char path[64];
    if (!ctx->is_sim) skip();
    ts_ok(fy_device_open("sim:8?pinned=8KiB", &tight));
    ts_ctx_t there = *ctx;
    there.device = tight;
    make(&there, 100, src, dst);
    ts_ok(fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(100), 5, &host));
    snprintf(path, sizeof path, "/tmp/ferry_ring_%d", (int)getpid());
    ts_ok(fy_tensor_download_file(host, path, 0, NULL));
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_fails(fy_tensor_upload_many(MANY, src, tight, NULL, out), PINNED_LIMIT);
    ts_fails(fy_tensor_upload_many_into(MANY, dst, src, NULL, NULL), PINNED_LIMIT);
    ts_fails(fy_tensor_upload_file(dst[0], path, 0, NULL), PINNED_LIMIT);
    ts_fails(fy_tensor_download_into(host, dst[0], NULL), PINNED_LIMIT);
    fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.upload.count, before.upload.count);
    assert_int_equal(after.download.count, before.download.count);
    for (int i = 0; i < MANY; i++) expect_first(dst[i], 1);
    expect_first(host, 5);
    for (int i = 0; i < MANY; i++) fy_tensor_destroy(dst[i]);
    fy_device_close(tight);
    remove(path);
}
