/* Transfers that are polled instead of waited for: downloads that are tried, tickets that are
 * polled and waited for with short timeouts.
 * Not here: bytes and layouts (test_transfer.c), borrowed sources
 * (test_contract.c). */
#include <stdatomic.h>
#include <time.h>

#include "tests/support/harness.h"

/* A request that keeps an asynchronous device busy. */
static fy_tensor_t *slow(fy_device_t *device)
{
    fy_tensor_t *a = ts_full(device, FY_DIMS(256, 256), 0.5), *b;
    for (int i = 0; i < 8; i++) {
        ts_ok(fy_matmul(a, a, &b));
        fy_tensor_destroy(a);
        a = b;
    }
    return a;
}

TS_DEVICE_TEST(a_download_is_tried_until_it_is_there)
{
    fy_tensor_t *x = slow(ctx->device), *host = NULL;
    const fy_ledger_totals_t before = ts_ledger(NULL);
    fy_download_t *download = ts_submit_download(x);
    int tries = 0;
    for (; !host; tries++) ts_ok(fy_download_try(download, &host));
    if (ctx->is_sim) assert_true(tries > 1);
    assert_int_equal(ts_info(host).nelem, 256 * 256);
    const fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.syncs, before.syncs);
    assert_int_equal(after.download.count, before.download.count + 1);
}

TS_DEVICE_TEST(one_value_is_tried)
{
    fy_tensor_t *x, *many = ts_iota(ctx->device, FY_DIMS(3), 0);
    int done = 7;
    double value = 7;
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(1), 2.5, &x));
    fy_download_t *download = ts_submit_download(x);
    fy_scope_t scope = fy_scope_begin("light");
    ts_ok(fy_scope_guard(
        &(fy_guard_options_t)FY_GUARD_LIGHT_ONLY)); /* no sync, so nothing to refuse */
    do ts_ok(fy_download_try_f64(download, &done, &value));
    while (!done);
    fy_scope_end(scope, 0, NULL);
    assert_true(value == 2.5);
    ts_ok(fy_tensor_download(many, NULL, &download));
    ts_fails_with(fy_download_try_f64(download, &done, &value), SHAPE_MISMATCH, "fy_download_try");
    assert_int_equal(done, 0);
    fy_download_destroy(download); /* it was queued */
}

TS_DEVICE_TEST(tries_refuse_nothing_and_null)
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

/* A failing try destroys the download and reports the reason. */
TS_DEVICE_TEST(a_poisoned_download_fails_its_try)
{
    const int32_t bad = 9;
    fy_tensor_t *index = ts_upload(ctx->device, FY_DTYPE_I32, FY_DIMS(1), &bad), *taken,
                *host = NULL;
    ts_ok(fy_gather(ts_iota(ctx->device, FY_DIMS(4), 0), index, &taken));
    fy_download_t *download = ts_submit_download(taken);
    fy_status_t status;
    do status = fy_download_try(download, &host);
    while (status == FY_STATUS_OK && !host);
    assert_int_equal(status, FY_STATUS_BAD_VALUE);
    /* takes the fault, so that the next test does not */
    if (fy_device_wait(ctx->device, FY_FOREVER) != FY_STATUS_OK) fy_error_get();
}

/* ---- callbacks ---- */

typedef struct seen {
    _Atomic int runs;
    fy_status_t status;
    fy_device_t *device;
    int again;
} seen_t;

static void wait_for(seen_t *seen, int runs)
{
    const struct timespec moment = { 0, 200000 };
    for (int i = 0; i < 600000 && atomic_load(&seen->runs) < runs; i++) nanosleep(&moment, NULL);
    assert_int_equal(atomic_load(&seen->runs), runs);
}

static void note_done(void *user, fy_status_t status)
{
    seen_t *seen = user;
    seen->status = status;
    atomic_fetch_add(&seen->runs, 1);
}

TS_DEVICE_TEST(a_callback_runs_once_with_the_status)
{
    seen_t good = { 0, FY_STATUS_INTERNAL, NULL, 0 }, done = good, bad = good;
    fy_tensor_t *x = slow(ctx->device);
    /* no call waits: the callback thread polls */
    ts_ok(fy_ticket_on_done(fy_tensor_ticket(x), note_done, &good));
    wait_for(&good, 1);
    assert_int_equal(good.status, FY_STATUS_OK);
    assert_int_equal(fy_ticket_poll(fy_tensor_ticket(x)), FY_POLL_DONE);
    ts_ok(fy_ticket_on_done((fy_ticket_t){ 0, 0 }, note_done, &done));
    wait_for(&done, 1);
    assert_int_equal(done.status, FY_STATUS_OK);
    if (!ctx->is_host) {
        fy_tensor_t *taken = ts_bad_rows(ts_iota(ctx->device, FY_DIMS(4), 0));
        ts_ok(fy_ticket_on_done(fy_tensor_ticket(taken), note_done, &bad));
        ts_fails(fy_device_wait(ctx->device, FY_FOREVER), BAD_VALUE);
        wait_for(&bad, 1);
        assert_int_equal(bad.status, FY_STATUS_BAD_VALUE);
    }
    assert_int_equal(atomic_load(&good.runs), 1);
}

/* A callback may call every function: it submits, and sets another callback. */
static void go_on(void *user, fy_status_t status)
{
    seen_t *seen = user;
    float value = 1;
    fy_tensor_t *host = NULL, *up = NULL;
    seen->status = status;
    if (seen->again-- > 0 &&
        fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(1), &value, NULL, NULL, &host) ==
            FY_STATUS_OK &&
        fy_tensor_upload(host, seen->device, NULL, &up) == FY_STATUS_OK)
        seen->status = fy_ticket_on_done(fy_tensor_ticket(up), go_on, seen);
    fy_tensor_destroy(host);
    fy_tensor_destroy(up);
    atomic_fetch_add(&seen->runs, 1);
}

TS_DEVICE_TEST(a_callback_may_set_another)
{
    seen_t seen = { 0, FY_STATUS_INTERNAL, ctx->device, 5 };
    ts_ok(fy_ticket_on_done(fy_tensor_ticket(slow(ctx->device)), go_on, &seen));
    wait_for(&seen, 6);
    assert_int_equal(seen.status, FY_STATUS_OK);
    ts_fails(fy_ticket_on_done((fy_ticket_t){ 0, 0 }, NULL, NULL), INVALID_ARGUMENT);
    ts_fails(fy_ticket_on_done((fy_ticket_t){ 70000, 1 }, note_done, NULL), INVALID_ARGUMENT);
}

/* ---- queued transfers ---- */

TS_DEVICE_TEST(borrowed_bytes_are_busy_until_their_upload)
{
    fy_ticket_t ticket = { 0, 0 };
    if (ctx->is_host) skip();
    fy_device_t *device = ts_open_with(ctx, "window=4KiB");
    void *data;
    fy_tensor_t *src[6], *x = ts_full(device, FY_DIMS(1 << 20), 0);
    for (int i = 0; i < 6; i++) {
        ts_ok(fy_tensor_create_pinned(device, FY_DTYPE_F32, FY_DIMS(1 << 20), &src[i]));
        ts_ok(fy_tensor_map(src[i], FY_ACCESS_WRITE, &data));
        ((float *)data)[7] = (float)i;
        ts_ok(fy_tensor_upload_into(x, src[i], &ts_borrow, &ticket));
    }
    if (ctx->is_sim) { /* elsewhere it may be done already */
        ts_fails(fy_tensor_map(src[5], FY_ACCESS_WRITE, &data), BUSY);
        char text[64];
        snprintf(text, sizeof text, "{%llu, %llu}", (unsigned long long)ticket.stream,
                 (unsigned long long)ticket.seq);
        ts_text_has(text);
    }
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    ts_ok(fy_tensor_map(src[5], FY_ACCESS_WRITE, &data));
    fy_tensor_t *part;
    float value;
    ts_ok(fy_slice(x, 0, 7, 8, &part));
    ts_read(part, &value, sizeof value);
    assert_true(value == 5);
}
