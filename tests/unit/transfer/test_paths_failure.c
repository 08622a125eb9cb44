/* The other transfer paths when a copy, a launch, a read or the ring fails. Before the first byte,
 * nothing changes; after it, the damaged bytes are poisoned. Afterwards everything works again. */
#include <unistd.h>

#include "runtime/tensor/storage.h"
#include "runtime/tensor/tensor.h"
#include "tests/support/failing.h"

enum { MANY = 4 };

static void make(fy_device_t *device, int64_t n, fy_tensor_t **src, fy_tensor_t **dst)
{
    for (int i = 0; i < MANY; i++) {
        src[i] = ts_full(fy_device_host(), 1, &n, 7);
        dst[i] = ts_full(device, 1, &n, 1);
    }
    ts_ok(fy_device_wait(device, FY_FOREVER));
}

static void expect_first(const fy_tensor_t *tensor, float want)
{
    fy_tensor_t *host = ts_download(tensor);
    void *data;
    ts_ok(fy_tensor_map(host, FY_ACCESS_READ, &data));
    assert_true(*(const float *)data == want);
}

TS_DEVICE_TEST(a_packed_transfer_fails_before_the_first_byte)
{
    fy_tensor_t *src[MANY], *dst[MANY], *out[MANY];
    if (ctx->is_host) skip();
    make(ctx->device, 100, src, dst);
    for (int launches = 0; launches < 2; launches++) {
        for (int copies = 0; copies < 2; copies++) {
            if (copies && launches) continue;
            ts_fail_after(ctx->device, copies, launches);
            ts_fails(fy_tensor_upload_many_into(MANY, dst, src, NULL, NULL), INTERNAL);
            ts_heal(ctx->device);
            for (int i = 0; i < MANY; i++) expect_first(dst[i], 1);
            ts_fail_after(ctx->device, copies, launches);
            ts_fails(fy_tensor_upload_many(MANY, src, ctx->device, NULL, out), INTERNAL);
            ts_heal(ctx->device);
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
    if (ctx->is_host) skip();
    make(ctx->device, 100, src, dst);
    ts_ok(fy_full(fy_device_host(), FY_DTYPE_F32, 1, &n, 7, &large));
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, 1, &n, 1, &there));
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    src[1] = large;
    dst[1] = there;
    ts_fail_after(ctx->device, 1, 9);
    ts_fails(fy_tensor_upload_many_into(MANY, dst, src, NULL, NULL), INTERNAL);
    ts_heal(ctx->device);
    expect_first(there, 1); /* no byte was copied */
    ts_fails_with(ts_try_download(dst[0]), INTERNAL, "half way");
    ts_ok(fy_tensor_upload_many_into(MANY, dst, src, NULL, NULL));
    for (int i = 0; i < MANY; i++) expect_first(dst[i], 7);
}

TS_DEVICE_TEST(download_into_fails)
{
    const int64_t n = (1 << 20) + 7; /* f32: several chunks */
    void *data;
    if (ctx->is_host) skip();
    fy_tensor_t *device = ts_full(ctx->device, 1, &n, 3),
                *host = ts_full(fy_device_host(), 1, &n, 1);
    ts_ok(fy_tensor_download_into(host, device, NULL));
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    const uint64_t version = ts_version(host);
    ts_fail_after(ctx->device, 0, 9);
    ts_fails(fy_tensor_download_into(host, device, NULL), INTERNAL);
    ts_heal(ctx->device);
    assert_int_equal(ts_version(host), version);
    ts_ok(fy_tensor_map(host, FY_ACCESS_READ, &data));
    ts_fail_after(ctx->device, 4, 9); /* three copies are in flight before the first is checked */
    ts_fails(fy_tensor_download_into(host, device, NULL), INTERNAL);
    ts_heal(ctx->device);
    ts_fails_with(fy_tensor_map(host, FY_ACCESS_READ, &data), INTERNAL, "half way");
    ts_ok(fy_tensor_download_into(host, device, NULL)); /* no slot was lost */
    expect_first(host, 3);
}

TS_DEVICE_TEST(a_file_upload_fails_half_way)
{
    const int64_t n = (1 << 20) + 7;
    char path[64];
    if (ctx->is_host) skip();
    snprintf(path, sizeof path, "/tmp/ferry_failure_%d", (int)getpid());
    fy_tensor_t *x = ts_full(ctx->device, 1, &n, 3);
    ts_ok(fy_tensor_download_file(x, path, 0, NULL));
    ts_ok(fy_fill(x, 1));
    ts_fail_after(ctx->device, 0, 9);
    ts_fails(fy_tensor_upload_file(x, path, 0, NULL), INTERNAL);
    ts_heal(ctx->device);
    expect_first(x, 1);
    ts_fail_after(ctx->device, 1, 9);
    ts_fails(fy_tensor_upload_file(x, path, 0, NULL), INTERNAL);
    ts_heal(ctx->device);
    ts_fails_with(ts_try_download(x), INTERNAL, "half way");
    ts_ok(fy_tensor_upload_file(x, path, 0, NULL));
    expect_first(x, 3);
    remove(path);
}

/* Less than the smallest ring needs. */
TS_DEVICE_TEST(transfers_without_memory_for_the_ring_fail)
{
    fy_tensor_t *src[MANY], *dst[MANY], *out[MANY], *host;
    char path[64];
    if (!ctx->is_sim) skip();
    fy_device_t *tight = ts_open("sim:8?pinned=8KiB");
    make(tight, 100, src, dst);
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
    remove(path);
}
