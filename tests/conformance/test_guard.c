/* Guards: each limit refuses exactly the requests that exceed it, names the scope and the figures,
 * and changes nothing. Guards only tighten, nest, count from the moment they are set, and end with
 * their scope. LOG lets a request pass and calls the log function.
 * Not here: the ledger's sums (test_ledger.c). */
#include "tests/support/harness.h"

typedef struct log_count {
    int n;
    char last[512];
} log_count_t;

static void count_log(void *user, fy_log_level_t level, const char *text)
{
    log_count_t *count = user;
    if (level == FY_LOG_INFO) return;
    count->n++;
    snprintf(count->last, sizeof count->last, "%s", text);
}

TS_DEVICE_TEST(uploads)
{
    fy_tensor_t *host = ts_host_f32(FY_DIMS(4), (float[]){ 1, 2, 3, 4 }), *a, *b = host;
    fy_scope_t scope = fy_scope_begin("frugal");
    ts_guard(upload_nbytes, 24);
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &a)); /* 16 of 24 */
    fy_ledger_totals_t before = ts_ledger(NULL);
    uint64_t live = ts_live(ctx->device), version = ts_version(a);
    ts_fails_with(fy_tensor_upload(host, ctx->device, NULL, &b), REFUSED_BY_GUARD, "frugal", "24",
                  "16");
    assert_null(b);
    ts_fails(fy_tensor_upload_into(a, host, NULL, NULL), REFUSED_BY_GUARD);
    ts_expect_quiet_since(&before, "a refused upload");
    assert_int_equal(ts_live(ctx->device), live);
    assert_int_equal(ts_version(a), version);
    fy_tensor_t *half;
    ts_ok(fy_slice(host, 0, 0, 2, &half));
    ts_ok(fy_tensor_upload(half, ctx->device, NULL, &b)); /* exactly the rest */
    fy_scope_end(scope, 0, NULL);
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &b)); /* the guard ended with its scope */
}

TS_DEVICE_TEST(downloads)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4), 0);
    fy_scope_t scope = fy_scope_begin("mute");
    ts_guard(download_nbytes, 16);
    fy_download_t *second = (fy_download_t *)&x, *first = ts_submit_download(x);
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_fails_with(fy_tensor_download(x, NULL, &second), REFUSED_BY_GUARD, "mute");
    assert_null(second);
    ts_expect_quiet_since(&before, "a refused download");
    fy_tensor_t *host;
    ts_ok(fy_download_wait(first, FY_FOREVER, &host)); /* waiting transfers no more bytes */
    fy_scope_end(scope, 0, NULL);
}

TS_DEVICE_TEST(syncs)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4), 0), *host = x;
    fy_ticket_t done = { 0, 0 };
    double value = 3;
    fy_tensor_t *scalar;
    ts_ok(fy_sum(x, 0, NULL, 0, &scalar));
    fy_download_t *one = ts_submit_download(scalar), *download = ts_submit_download(x);
    fy_scope_t scope = fy_scope_begin("async");
    ts_guard(syncs, 1);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    fy_ledger_totals_t before = ts_ledger(NULL);
    /* each call that is documented as blocking */
    ts_fails(fy_device_wait(ctx->device, FY_FOREVER), REFUSED_BY_GUARD);
    ts_fails(fy_ticket_wait(done, FY_FOREVER), REFUSED_BY_GUARD);
    ts_fails(fy_download_wait(download, FY_FOREVER, &host), REFUSED_BY_GUARD);
    assert_null(host);
    ts_fails_with(fy_download_wait_f64(one, FY_FOREVER, &value), REFUSED_BY_GUARD, "async");
    ts_expect_quiet_since(&before, "refused syncs");
    assert_true(fy_ticket_poll(done) == FY_POLL_DONE); /* a poll is no sync */
    fy_scope_end(scope, 0, NULL);
    ts_ok(fy_download_wait(download, FY_FOREVER, &host)); /* the refused wait consumed nothing */
    ts_expect_f32(host, (float[]){ 0, 1, 2, 3 }, 4);
}

TS_DEVICE_TEST(memory)
{
    fy_scope_t scope = fy_scope_begin("small");
    ts_guard(memory_nbytes, 10000);
    fy_tensor_t *a = ts_bytes(ctx->device, 8000), *b = a;
    uint64_t live = ts_live(ctx->device);
    ts_fails_with(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(8000), &b), REFUSED_BY_GUARD,
                  "small");
    assert_null(b);
    assert_int_equal(ts_live(ctx->device), live);
    fy_tensor_t *sum = NULL;
    ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(1), &b));
    fy_tensor_t *wide;
    ts_ok(fy_broadcast(b, FY_DIMS(8000), &wide));
    ts_fails(fy_neg(wide, &sum), REFUSED_BY_GUARD); /* results of ops count */
    assert_null(sum);
    fy_tensor_destroy(a);
    /* freed bytes can be allocated again */
    ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(8000), &a));
    fy_scope_end(scope, 0, NULL);
    ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(20000), &a));
}

TS_DEVICE_TEST(device_allocs)
{
    fy_tensor_t *large = (fy_tensor_t *)&ctx, *warm = ts_bytes(ctx->device, 1000000), *again;
    fy_tensor_destroy(warm);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    fy_scope_t scope = fy_scope_begin("steady");
    ts_guard(device_allocs, 0);
    /* a cache hit is no device allocation */
    ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(1000000), &again));
    uint64_t live = ts_live(ctx->device), allocs = ts_ledger(NULL).device_allocs;
    ts_fails_with(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(INT64_C(300) << 20), &large),
                  REFUSED_BY_GUARD, "steady");
    assert_null(large);
    assert_int_equal(ts_live(ctx->device), live);
    assert_int_equal(ts_ledger(NULL).device_allocs, allocs);
    fy_scope_end(scope, 0, NULL);
}

TS_DEVICE_TEST(light_only)
{
    fy_tensor_t *host = ts_host_f32(FY_DIMS(2), (float[]){ 1, 2 }),
                *x = ts_iota(ctx->device, FY_DIMS(2), 0), *y = NULL;
    fy_download_t *download = NULL;
    fy_scope_t scope = fy_scope_begin("light");
    ts_ok(fy_scope_guard(&(fy_guard_options_t)FY_GUARD_LIGHT_ONLY));
    for (int i = 0; i < 10; i++) ts_ok(fy_axpy(x, 1, x)); /* light requests pass */
    ts_ok(fy_exp(x, &y));
    ts_fails(fy_tensor_upload(host, ctx->device, NULL, &y), REFUSED_BY_GUARD);
    ts_fails(fy_tensor_download(x, NULL, &download), REFUSED_BY_GUARD);
    ts_fails(fy_device_wait(ctx->device, 0), REFUSED_BY_GUARD);
    fy_scope_begin("inside"); /* scopes inside inherit */
    ts_fails_with(fy_tensor_download(x, NULL, &download), REFUSED_BY_GUARD, "light");
    fy_scope_end(scope, 0, NULL);
    ts_ok(fy_tensor_download(x, NULL, &download));
}

TS_DEVICE_TEST(only_tighter)
{
    fy_guard_options_t guard = FY_GUARD_OPTIONS_INIT, unset = { 0 };
    fy_scope_t outer = fy_scope_begin("outer");
    guard.upload_nbytes = 100;
    guard.syncs = 5;
    ts_ok(fy_scope_guard(&guard));
    fy_scope_t inner = fy_scope_begin("inner");
    guard.upload_nbytes = 101;
    ts_fails(fy_scope_guard(&guard),
             INVALID_ARGUMENT); /* looser than the rest of the enclosing guard */
    ts_text_has("101");
    guard.upload_nbytes = 100;
    guard.syncs = 6;
    ts_fails(fy_scope_guard(&guard), INVALID_ARGUMENT);
    guard.syncs = FY_UNLIMITED; /* without a limit here it is not looser */
    ts_ok(fy_scope_guard(&guard));
    guard.upload_nbytes = 50;
    ts_ok(fy_scope_guard(&guard)); /* several on one scope: the tightest */
    ts_fails(fy_scope_guard(NULL), INVALID_ARGUMENT);
    ts_fails(fy_scope_guard(&unset), INVALID_ARGUMENT);
    fy_scope_end(inner, 0, NULL);
    fy_scope_end(outer, 0, NULL);
}

TS_DEVICE_TEST(nested_guards_both_count)
{
    fy_tensor_t *host = ts_host_f32(FY_DIMS(10), (float[10]){ 0 }), *x;
    fy_scope_t outer = fy_scope_begin("budget");
    ts_guard(upload_nbytes, 100);
    for (int i = 0; i < 2; i++) {
        fy_scope_t inner = fy_scope_begin("step");
        ts_guard(upload_nbytes, 40);
        /* 40 each: the step's limit counts from the moment it is set */
        ts_ok(fy_tensor_upload(host, ctx->device, NULL, &x));
        ts_fails_with(fy_tensor_upload(host, ctx->device, NULL, &x), REFUSED_BY_GUARD, "step");
        fy_scope_end(inner, 0, NULL);
    }
    /* 80 of the outer 100 are used */
    ts_fails_with(fy_tensor_upload(host, ctx->device, NULL, &x), REFUSED_BY_GUARD, "budget");
    fy_scope_end(outer, 0, NULL);
}

/* A second guard counts from the moment it is set, like the first. */
TS_DEVICE_TEST(a_second_guard_counts_from_its_own_moment)
{
    fy_tensor_t *host = ts_host_f32(FY_DIMS(4), (float[]){ 1, 2, 3, 4 }), *up = NULL;
    ts_guard(upload_nbytes, 64);
    for (int i = 0; i < 2; i++) ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up));
    ts_guard(upload_nbytes, 16);
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up));
    ts_fails(fy_tensor_upload(host, ctx->device, NULL, &up), REFUSED_BY_GUARD);
}

TS_DEVICE_TEST(log_lets_pass)
{
    log_count_t count = { 0 };
    fy_tensor_t *host = ts_host_f32(FY_DIMS(2), (float[]){ 1, 2 }), *x;
    fy_log_set(count_log, &count);
    fy_scope_t scope = fy_scope_begin("watched");
    fy_guard_options_t guard = FY_GUARD_LIGHT_ONLY;
    guard.action = FY_GUARD_LOG;
    ts_ok(fy_scope_guard(&guard));
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &x));
    int logged = count.n;
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    int both = count.n;
    fy_scope_end(scope, 0, NULL);
    fy_log_set(NULL, NULL);
    assert_true(logged >= 1);
    assert_true(both > logged);
    assert_non_null(strstr(count.last, "watched"));
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &x));
    assert_int_equal(count.n, both);
}

TS_DEVICE_TEST(without_a_scope)
{
    /* the runner's scope is open on this thread; test_conformance_threads tests a fresh one. Here:
     * invalid values only */
    fy_guard_options_t guard = FY_GUARD_OPTIONS_INIT;
    guard.action = (fy_guard_action_t)9;
    fy_scope_t scope = fy_scope_begin("bad");
    ts_fails(fy_scope_guard(&guard), INVALID_ARGUMENT);
    fy_scope_end(scope, 0, NULL);
}

static const ts_exclusion_t k_exclusions[] = {
    { "host", "device_allocs", "the ledger counts no backend allocations of the host" },
    { "host", "memory", "the limit is on device bytes; the host's are not" },
    { NULL, NULL, NULL },
};

TS_SUITE(.exclusions = k_exclusions);
