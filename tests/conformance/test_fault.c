/* Faults of data: an index out of range makes gather's request fail with BAD_VALUE. Every wait for
 * those bytes, or for results computed from them, reports the first cause. Unrelated requests and
 * tensors are not affected, and the device continues.
 * Not here: refusals (no state changed), lost devices, scripted faults. */
#include "tests/support/harness.h"

static fy_tensor_t *indices_of(ts_ctx_t *ctx, const int64_t *values, int64_t n)
{
    return ts_upload(ctx->device, FY_DTYPE_I64, 1, &n, values);
}

static fy_tensor_t *bad_rows(ts_ctx_t *ctx, fy_tensor_t *table)
{
    fy_tensor_t *rows;
    /* submission knows no values */
    ts_ok(fy_gather(table, indices_of(ctx, (int64_t[]){ 1, 99, 0 }, 3), &rows));
    return rows;
}

TS_DEVICE_TEST(a_download_reports_the_fault)
{
    fy_tensor_t *rows = bad_rows(ctx, ts_iota(ctx->device, FY_DIMS(4, 2), 0)), *host = rows;
    fy_download_t *download = NULL;
    fy_status_t status = fy_tensor_download(rows, NULL, &download);
    if (status == FY_STATUS_OK) status = fy_download_wait(download, FY_FOREVER, &host);
    ts_fails_with(status, BAD_VALUE, "gather");
    if (download) assert_null(host);
}

/* It has none of the bytes, whether the request has run or not. */
TS_DEVICE_TEST(an_empty_view_has_no_fault)
{
    fy_tensor_t *rows = bad_rows(ctx, ts_iota(ctx->device, FY_DIMS(4, 2), 0)), *view, *host;
    ts_ok(fy_slice(rows, 0, 1, 1, &view));
    for (int is_known = 0; is_known < 2; is_known++) {
        ts_ok(fy_download_wait(ts_submit_download(view), FY_FOREVER, &host));
        assert_int_equal(ts_info(host).nelem, 0);
        ts_ok(fy_zeros(fy_device_host(), FY_DTYPE_F32, FY_DIMS(0, 2), &host));
        ts_ok(fy_tensor_download_into(host, view, NULL));
        ts_ok(fy_tensor_download_file(view, "/dev/null", 0, NULL));
        ts_download_fails(rows, BAD_VALUE);
    }
}

TS_DEVICE_TEST(reading_one_value_reports_the_fault)
{
    fy_tensor_t *rows = bad_rows(ctx, ts_iota(ctx->device, FY_DIMS(4, 2), 0)), *sum;
    fy_download_t *download = NULL;
    double value = 5;
    /* a dependent: fails with the first cause */
    fy_status_t status = fy_sum(rows, 0, NULL, 0, &sum);
    if (status == FY_STATUS_OK) status = fy_tensor_download(sum, NULL, &download);
    if (status == FY_STATUS_OK) status = fy_download_wait_f64(download, FY_FOREVER, &value);
    ts_fails_with(status, BAD_VALUE, "gather");
    if (download) assert_true(value == 0.0);
}

/* Only OK frees a download: every failing call keeps it, and each one reports the fault again. */
TS_DEVICE_TEST(a_failure_leaves_the_download)
{
    if (ctx->is_host) return; /* the host reports faults in the call: no download is made */
    const uint64_t live = ts_live(ctx->device);
    fy_scope_t scope = fy_scope_begin("inner");
    fy_tensor_t *rows = bad_rows(ctx, ts_iota(ctx->device, FY_DIMS(4, 2), 0)), *sum, *host;
    double value;
    int is_done = 0;
    ts_ok(fy_sum(rows, 0, NULL, 0, &sum));
    fy_download_t *download = ts_submit_download(sum);
    fy_download_keep(download);
    fy_scope_end(scope, 0, NULL);
    ts_fails(fy_download_wait(download, FY_FOREVER, &host), BAD_VALUE);
    for (int i = 0; i < 300;
         i++) { /* more than any window of faults and the table of poison records hold */
        ts_fails(fy_download_try_f64(download, &is_done, &value), BAD_VALUE);
        ts_fails(fy_download_wait_f64(download, FY_FOREVER, &value), BAD_VALUE);
        assert_int_equal(is_done, 0);
        if (i % 3) continue;
        scope = fy_scope_begin("later");
        (void)bad_rows(ctx, ts_iota(ctx->device, FY_DIMS(4, 2), 0));
        fy_scope_end(scope, 0, NULL);
    }
    fy_download_destroy(download);
    (void)!fy_device_wait(ctx->device, FY_FOREVER);
    assert_int_equal(ts_live(ctx->device), live);
}

TS_DEVICE_TEST(map_on_the_host_reports_the_fault)
{
    fy_tensor_t *rows = bad_rows(ctx, ts_iota(ctx->device, FY_DIMS(4, 2), 0)), *more;
    void *data = &data;
    ts_fails(fy_tensor_map(rows, FY_ACCESS_READ, &data), BAD_VALUE);
    assert_null(data);
    fy_status_t status = fy_neg(rows, &more);
    if (status == FY_STATUS_OK) status = fy_tensor_map(more, FY_ACCESS_READ, &data);
    ts_fails_with(status, BAD_VALUE, "gather");
}

TS_DEVICE_TEST(the_ticket_reports_the_fault)
{
    fy_tensor_t *rows = bad_rows(ctx, ts_iota(ctx->device, FY_DIMS(4, 2), 0));
    fy_ticket_t ticket = fy_tensor_ticket(rows);
    ts_fails(fy_ticket_wait(ticket, FY_FOREVER), BAD_VALUE);
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_FAILED);
}

TS_DEVICE_TEST(other_tensors_are_not_affected)
{
    fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(4, 2), 0), *before, *after, *good;
    ts_ok(fy_neg(table, &before));
    bad_rows(ctx, table);
    ts_ok(fy_affine(table, 2, 0, &after));
    ts_ok(fy_gather(table, indices_of(ctx, (int64_t[]){ 3, 0 }, 2), &good));
    ts_expect_f32(before, (float[]){ 0, -1, -2, -3, -4, -5, -6, -7 }, 8);
    ts_expect_f32(after, (float[]){ 0, 2, 4, 6, 8, 10, 12, 14 }, 8);
    ts_expect_f32(good, (float[]){ 6, 7, 0, 1 }, 4);
    ts_expect_f32(table, (float[]){ 0, 1, 2, 3, 4, 5, 6, 7 }, 8);
}

TS_DEVICE_TEST(the_device_wait_reports_a_fault_once)
{
    bad_rows(ctx, ts_iota(ctx->device, FY_DIMS(4, 2), 0));
    ts_fails(fy_device_wait(ctx->device, FY_FOREVER),
             BAD_VALUE);                            /* the first fault since the last wait */
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER)); /* and the device continues */
}

TS_DEVICE_TEST(the_first_cause_wins)
{
    fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(4, 2), 0), *bad = bad_rows(ctx, table),
                *x = bad;
    for (int i = 0; i < 200; i++) { /* much earlier, with many good gathers since: still known */
        fy_tensor_t *rows, *sum;
        ts_ok(fy_gather(table, indices_of(ctx, (int64_t[]){ i % 4, 0, 1 }, 3), &rows));
        ts_ok(fy_add(x, rows, &sum));
        x = sum;
        fy_tensor_destroy(rows);
    }
    ts_download_fails(x, BAD_VALUE, "gather");
    fy_tensor_t *clean;
    ts_ok(fy_gather(table, indices_of(ctx, (int64_t[]){ 2 }, 1), &clean));
    ts_expect_f32(clean, (float[]){ 4, 5 }, 2);
}

/* A fault that no call has reported is still known after many others. Older bytes that may have
 * failed count as failed. */
TS_DEVICE_TEST(many_failures_hide_none)
{
    static const int counts[] = { 100, 1100 };
    for (int k = 0; k < 2; k++) {
        fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(4, 2), 0), *good, *bad;
        ts_ok(fy_gather(table, indices_of(ctx, (int64_t[]){ 3, 0 }, 2), &good));
        bad = bad_rows(ctx, table);
        const fy_ticket_t ticket = fy_tensor_ticket(bad);
        for (int i = 0; i < counts[k]; i++) {
            fy_scope_t scope = fy_scope_begin("others");
            (void)bad_rows(ctx, table);
            fy_scope_end(scope, 0, NULL);
        }
        if (!ctx->is_host) {
            ts_fails(fy_ticket_wait(ticket, FY_FOREVER), BAD_VALUE);
            assert_int_equal(fy_ticket_poll(ticket), FY_POLL_FAILED);
        }
        ts_fails(ts_try_download(bad), BAD_VALUE);
        if (k == 0) ts_text_has("gather");
        if (k == 0 || ctx->is_host) {
            ts_ok(ts_try_download(good));
        } else {
            ts_text_has("may have failed: 1024 later requests of this device have failed");
            ts_fails(ts_try_download(good), BAD_VALUE);
        }
        (void)!fy_device_wait(ctx->device, FY_FOREVER);
    }
}

TS_DEVICE_TEST(indices_clamp)
{
    fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(4), 0), *rows;
    /* no byte outside the table is read */
    ts_ok(fy_gather(table, indices_of(ctx, (int64_t[]){ -1, 4, INT64_MIN, INT64_MAX }, 4), &rows));
    fy_tensor_t *host;
    fy_download_t *download = ts_submit_download(rows);
    ts_fails(fy_download_wait(download, FY_FOREVER, &host), BAD_VALUE);
    static const int64_t alone[] = { -1, 4, 5, INT64_MIN, INT64_MAX };
    for (size_t i = 0; i < sizeof alone / sizeof alone[0]; i++) { /* each one alone */
        ts_ok(fy_gather(table, indices_of(ctx, &alone[i], 1), &rows));
        ts_ok(fy_tensor_download(rows, NULL, &download));
        ts_fails(fy_download_wait(download, FY_FOREVER, &host), BAD_VALUE);
    }
}

static const ts_exclusion_t k_exclusions[] = {
    { "!host", "map_on_the_host_reports_the_fault", "only host tensors are mapped" },
    { "host", "the_ticket_reports_the_fault",
      "a host tensor's ticket is {0, 0}: its request ran inside the call; map and download tell" },
    { NULL, NULL, NULL },
};

TS_SUITE(.exclusions = k_exclusions);
