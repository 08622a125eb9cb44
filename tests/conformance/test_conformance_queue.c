/* Transfers that are asked about instead of waited for: downloads tried, tickets polled and waited for with little patience.
 * Not here: bytes and layouts (test_conformance_transfer.c), borrowed sources (test_conformance_contract.c). */
#include "tests/support/harness.h"

/* Something that takes the device a while, on asynchronous ones. */
static fy_tensor_t *slow(fy_device_t *device)
{
    fy_tensor_t *a, *b;
    ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(256, 256), 0.5, &a));
    for (int i = 0; i < 8; i++) {
        ts_ok(fy_matmul(a, a, &b));
        fy_tensor_destroy(a);
        a = b;
    }
    return a;
}

static void a_download_is_tried_until_it_is_there(ts_ctx_t *ctx)
{
    fy_tensor_t *x = slow(ctx->device), *host = NULL;
    fy_download_t *download;
    const fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_tensor_download(x, NULL, &download));
    int tries = 0;
    for (; !host; tries++) ts_ok(fy_download_try(download, &host));
    if (ctx->is_sim) assert_true(tries > 1);
    assert_int_equal(ts_info(host).nelem, 256 * 256);
    const fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.syncs, before.syncs);
    assert_int_equal(after.download.count, before.download.count + 1);
}

static void one_value_is_tried(ts_ctx_t *ctx)
{
    fy_tensor_t *x, *many = ts_iota(ctx->device, FY_DIMS(3), 0);
    fy_download_t *download;
    int done = 7;
    double value = 7;
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(1), 2.5, &x));
    ts_ok(fy_tensor_download(x, NULL, &download));
    fy_guard_options_t light = FY_GUARD_LIGHT_ONLY;
    fy_scope_t scope = fy_scope_begin("light");
    ts_ok(fy_scope_guard(&light)); /* no sync, so nothing to refuse */
    do ts_ok(fy_download_try_f64(download, &done, &value));
    while (!done);
    fy_scope_end(scope, 0, NULL);
    assert_true(value == 2.5);
    ts_ok(fy_tensor_download(many, NULL, &download));
    ts_fails(fy_download_try_f64(download, &done, &value), SHAPE_MISMATCH);
    ts_text_has("fy_download_try");
    assert_int_equal(done, 0);
    fy_download_destroy(download); /* it stood */
}

static void tries_refuse_nothing_and_null(ts_ctx_t *ctx)
{
    fy_tensor_t *host;
    int done;
    double value;
    (void)ctx;
    ts_fails(fy_download_try(NULL, &host), INVALID_ARGUMENT);
    ts_fails(fy_download_try(NULL, NULL), INVALID_ARGUMENT);
    ts_fails(fy_download_try_f64(NULL, &done, &value), INVALID_ARGUMENT);
    ts_fails(fy_download_try_f64(NULL, NULL, &value), INVALID_ARGUMENT);
}

/* A try that fails uses the download up and says why. */
static void a_poisoned_download_fails_its_try(ts_ctx_t *ctx)
{
    fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(4), 0), *index, *taken, *host = NULL;
    int32_t bad = 9;
    fy_tensor_t *wrapped;
    ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_I32, FY_DIMS(1), &bad, NULL, NULL, &wrapped));
    ts_ok(fy_tensor_upload(wrapped, ctx->device, NULL, &index));
    ts_ok(fy_gather(table, index, &taken));
    fy_download_t *download;
    ts_ok(fy_tensor_download(taken, NULL, &download));
    fy_status_t status;
    do status = fy_download_try(download, &host);
    while (status == FY_STATUS_OK && !host);
    assert_int_equal(status, FY_STATUS_BAD_VALUE);
    if (fy_device_wait(ctx->device, FY_FOREVER) != FY_STATUS_OK) fy_error_get(); /* takes the fault, so that the next test does not */
}

static const ts_test_t k_tests[] = {
    TS_TEST(a_download_is_tried_until_it_is_there),
    TS_TEST(one_value_is_tried),
    TS_TEST(tries_refuse_nothing_and_null),
    TS_TEST(a_poisoned_download_fails_its_try),
};

int main(void) { return TS_RUN("queue", k_tests, NULL); }
