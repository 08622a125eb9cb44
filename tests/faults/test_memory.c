/* Running out of memory through the public API: a small capacity, a limit, a pinned limit, guards
 * that refuse the N-th allocation for every N.
 * After each failure nothing leaks, the verdict adds up, and the device continues. Runs on sim,
 * whose capacity can be chosen.
 * Not here: scripted faults (N-th copy, launch, lost device), the pool alone (tests/unit/alloc). */
#include <inttypes.h>

#include "tests/support/harness.h"

static fy_device_t *g_device; /* open; a test that fails leaves it to the teardown */
static fy_scope_t g_scope;

static fy_device_t *open_spec(const char *spec)
{
    ts_ok(fy_device_open(spec, &g_device));
    return g_device;
}

static void close_it(void)
{
    fy_device_close(g_device);
    g_device = NULL;
}

static int set_up(void **state)
{
    (void)state;
    g_scope = fy_scope_begin("test");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fy_scope_end(g_scope, 0, NULL);
    close_it();
    return 0;
}

static fy_memory_stats_t stats_of(const fy_device_t *device)
{
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    ts_ok(fy_memory_query(device, NULL, &stats));
    return stats;
}

/* Checks the verdict of the last failure: its figures must add up and appear in its text. */
static fy_oom_verdict_t verdict(fy_status_t status, uint64_t asked)
{
    const fy_error_t *error = fy_error_get();
    assert_int_equal(error->status, status);
    assert_non_null(error->oom);
    fy_oom_verdict_t v = *error->oom;
    assert_int_equal(v.status, status);
    assert_true(v.asked >= asked && v.asked < 2 * asked + 4096);
    assert_int_equal(v.reserved, v.live + v.cached);
    assert_true(v.pending <= v.cached);
    assert_true(v.largest_free <= v.cached);
    assert_true(v.largest_free < v.asked);
    assert_true(strlen(v.text) > 40);
    assert_true(strlen(error->text) > 20);
    return v;
}

static void goes_on(fy_device_t *device)
{
    fy_tensor_t *x = ts_iota(device, FY_DIMS(8), 1), *y;
    ts_ok(fy_mul(x, x, &y));
    ts_expect_f32(y, (float[]){ 1, 4, 9, 16, 25, 36, 49, 64 }, 8);
    fy_tensor_destroy(x);
    fy_tensor_destroy(y);
}

TS_TEST(larger_than_the_device)
{
    fy_device_t *device = open_spec("sim:7?capacity=1MiB");
    fy_scope_t scope = fy_scope_begin("oom");
    fy_tensor_t *x = (fy_tensor_t *)&scope, *small = ts_iota(device, FY_DIMS(100), 0);
    fy_ledger_totals_t before = ts_ledger(NULL);
    uint64_t live = stats_of(device).live;
    ts_fails(fy_tensor_create(device, FY_DTYPE_U8, FY_DIMS(2 << 20), &x), OUT_OF_MEMORY);
    assert_null(x);
    fy_oom_verdict_t v = verdict(FY_STATUS_OUT_OF_MEMORY, 2 << 20);
    assert_int_equal(v.reason, FY_OOM_TOO_LARGE);
    assert_int_equal(v.would_help, 0); /* whatever is freed */
    ts_text_has("sim:7");
    assert_int_equal(stats_of(device).live, live);
    fy_tensor_t *wide, *sum = NULL;
    ts_ok(fy_broadcast(small, FY_DIMS(10000, 100), &wide));
    ts_fails(fy_neg(wide, &sum), OUT_OF_MEMORY); /* an op's result */
    assert_null(sum);
    fy_tensor_t *host;
    ts_ok(fy_tensor_create(fy_device_host(), FY_DTYPE_F32, FY_DIMS(1 << 20), &host));
    ts_fails(fy_tensor_upload(host, device, NULL, &x), OUT_OF_MEMORY); /* an upload's */
    assert_null(x);
    fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.requests, before.requests);
    assert_int_equal(after.upload.nbytes, before.upload.nbytes);
    assert_int_equal(after.upload.wire_nbytes, before.upload.wire_nbytes);
    goes_on(device);
    fy_scope_end(scope, 0, NULL);
    assert_int_equal(stats_of(device).live, 0);
    close_it();
}

TS_TEST(full_then_freed)
{
    fy_device_t *device = open_spec("sim:7?limit=8MiB");
    fy_scope_t scope = fy_scope_begin("oom");
    fy_tensor_t *held[64] = { NULL };
    int n = 0;
    fy_status_t status;
    while ((status = fy_tensor_create(device, FY_DTYPE_U8, FY_DIMS(1 << 20), &held[n])) ==
           FY_STATUS_OK) {
        n++;
        assert_in_range(n, 1, 8);
    }
    assert_int_equal(status, FY_STATUS_OUT_OF_MEMORY);
    assert_true(n >= 7); /* rounding may cost one */
    fy_oom_verdict_t v = verdict(FY_STATUS_OUT_OF_MEMORY, 1 << 20);
    assert_int_equal(v.reason, FY_OOM_LIMIT);
    assert_int_equal(v.limit, 8 << 20);
    assert_true(v.live >= (uint64_t)n << 20);
    assert_true(v.reserved <= v.limit);
    assert_true(v.would_help > 0 && v.would_help <= v.asked);
    ts_text_has("limit");
    for (int round = 0; round < 5; round++) { /* free one and allocate one, each time */
        fy_tensor_destroy(held[round]);
        ts_ok(fy_tensor_create(device, FY_DTYPE_U8, FY_DIMS(1 << 20), &held[round]));
        fy_tensor_t *more = NULL;
        ts_fails(fy_tensor_create(device, FY_DTYPE_U8, FY_DIMS(1 << 20), &more), OUT_OF_MEMORY);
    }
    assert_true(stats_of(device).reserved <= 8 << 20);
    assert_true(stats_of(device).peak_reserved <= 8 << 20);
    fy_tensor_destroy(held[0]);
    goes_on(device);
    fy_scope_end(scope, 0, NULL);
    assert_int_equal(stats_of(device).live, 0);
    close_it();
}

/* Rule 12: a request never fails while sync, merge and trim would serve it. Sizes alternate, so no
 * earlier block fits. */
TS_TEST(no_refusal_while_a_wait_would_serve)
{
    fy_device_t *device = open_spec("sim:7?limit=16MiB");
    for (int round = 0; round < 12; round++) {
        fy_scope_t scope = fy_scope_begin("round");
        fy_tensor_t *x, *y;
        int64_t n = (int64_t[]){ 10 << 20, 14 << 20, 3 << 20 }[round % 3];
        /* the previous one may still be pending */
        ts_ok(fy_zeros(device, FY_DTYPE_U8, FY_DIMS(n), &x));
        if (n <= 3 << 20) {
            ts_ok(fy_add(x, x, &y));
            ts_ok(fy_add(y, x, &y));
        }
        fy_scope_end(scope, 0, NULL);
    }
    assert_int_equal(stats_of(device).live, 0);
    close_it();
}

TS_TEST(pinned_memory_has_its_own_limit)
{
    fy_device_t *device = open_spec("sim:7?pinned=4MiB");
    fy_scope_t scope = fy_scope_begin("pinned");
    fy_tensor_t *pinned = (fy_tensor_t *)&scope, *x, *host;
    ts_fails(fy_tensor_create_pinned(device, FY_DTYPE_U8, FY_DIMS(8 << 20), &pinned), PINNED_LIMIT);
    assert_null(pinned);
    verdict(FY_STATUS_PINNED_LIMIT, 8 << 20);
    ts_text_has("sim:7");
    /* the device has memory: only the host side is short */
    ts_ok(fy_zeros(device, FY_DTYPE_U8, FY_DIMS(8 << 20), &x));
    fy_download_t *download = (fy_download_t *)&scope;
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_fails(fy_tensor_download(x, NULL, &download), PINNED_LIMIT);
    assert_null(download);
    assert_int_equal(ts_ledger(NULL).download.nbytes, before.download.nbytes);
    ts_ok(fy_tensor_create(fy_device_host(), FY_DTYPE_U8, FY_DIMS(8 << 20), &host));
    ts_ok(fy_tensor_upload_into(x, host, NULL, NULL)); /* passes through the ring in pieces */
    goes_on(device);
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    ts_ok(fy_memory_query_pinned(device, &stats));
    assert_true(stats.peak_reserved <= 4 << 20);
    fy_scope_end(scope, 0, NULL);
    close_it();
}

/* A program with every kind of allocation. It stops at the first failure and returns it. */
static fy_status_t program(fy_device_t *device, float *out)
{
    fy_tensor_t *host, *x, *y, *z, *sum, *half, *table, *reply;
    fy_download_t *download;
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    void *data;
    options.dtype = FY_DTYPE_F16;
    FY_TRY(fy_tensor_create(fy_device_host(), FY_DTYPE_F32, FY_DIMS(64, 64), &host));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_WRITE, &data));
    for (int i = 0; i < 64 * 64; i++) ((float *)data)[i] = (float)(i % 7);
    FY_TRY(fy_tensor_upload(host, device, NULL, &x));
    FY_TRY(fy_tensor_upload(host, device, &options, &half));
    FY_TRY(fy_matmul(x, x, &y));
    FY_TRY(fy_softmax(y, 1, &z));
    FY_TRY(fy_concat(2, (fy_tensor_t *[]){ z, x }, 0, &table));
    FY_TRY(fy_sum(table, 0, NULL, 0, &sum));
    FY_TRY(fy_tensor_download(sum, NULL, &download));
    FY_TRY(fy_download_wait(download, FY_FOREVER, &reply));
    FY_TRY(fy_tensor_map(reply, FY_ACCESS_READ, &data));
    *out = *(float *)data;
    return FY_STATUS_OK;
}

/* Runs the program with a device of `spec` for each N until it succeeds. Every failure before must
 * be `expected` and leak nothing. */
static void sweep(const char *format, uint64_t first, uint64_t step, int most, fy_status_t expected,
                  fy_status_t or_this)
{
    float reference = 0, result = 0;
    fy_device_t *device = open_spec("sim:7");
    fy_scope_t scope = fy_scope_begin("reference");
    ts_ok(program(device, &reference));
    fy_scope_end(scope, 0, NULL);
    close_it();
    int nfailed = 0;
    for (int n = 0; n < most; n++) {
        char spec[96];
        snprintf(spec, sizeof spec, format, first + (uint64_t)n * step);
        fy_status_t status = fy_device_open(spec, &g_device);
        device = g_device;
        if (status == FY_STATUS_OK) {
            scope = fy_scope_begin("attempt");
            status = program(device, &result);
            if (status != FY_STATUS_OK) assert_non_null(fy_error_get()->oom);
            fy_scope_end(scope, 0, NULL);
            fy_status_t waited = fy_device_wait(device, FY_FOREVER);
            assert_int_equal(waited, FY_STATUS_OK);
            assert_int_equal(stats_of(device).live, 0);
            close_it();
        }
        if (status == FY_STATUS_OK) {
            assert_true(result == reference);
            print_message("           %s passes after %d failures\n", spec, nfailed);
            assert_true(nfailed > 0);
            return;
        }
        if (status != expected && status != or_this)
            fail_msg("%s: %s: %s", spec, fy_status_name(status), fy_error_get()->text);
        nfailed++;
    }
    fail_msg("%s never passes", format);
}

TS_TEST(every_capacity)
{
    sweep("sim:7?capacity=%" PRIu64, 4096, 4096, 20000, FY_STATUS_OUT_OF_MEMORY,
          FY_STATUS_OUT_OF_MEMORY);
}

TS_TEST(every_limit)
{
    sweep("sim:7?limit=%" PRIu64, 4096, 4096, 20000, FY_STATUS_OUT_OF_MEMORY,
          FY_STATUS_OUT_OF_MEMORY);
}

TS_TEST(every_pinned_limit)
{
    sweep("sim:7?pinned=%" PRIu64, 4096, 65536, 2000, FY_STATUS_PINNED_LIMIT,
          FY_STATUS_OUT_OF_MEMORY);
}

/* Guards refuse the allocation at every point in turn: by live bytes, then by the number of backend
 * allocations. */
TS_TEST(every_guarded_byte)
{
    for (int by_calls = 0; by_calls < 2; by_calls++) {
        fy_status_t status = FY_STATUS_INTERNAL;
        int nrefused = 0;
        for (uint64_t n = 0; n < 2000 && status != FY_STATUS_OK; n++) {
            fy_device_t *device = open_spec("sim:7");
            fy_scope_t scope = fy_scope_begin("guarded");
            fy_guard_options_t guard = FY_GUARD_OPTIONS_INIT;
            if (by_calls)
                guard.device_allocs = n;
            else
                guard.memory_nbytes = n * 1024;
            ts_ok(fy_scope_guard(&guard));
            float result;
            status = program(device, &result);
            if (status != FY_STATUS_OK) {
                assert_int_equal(status, FY_STATUS_REFUSED_BY_GUARD);
                nrefused++;
            }
            fy_scope_end(scope, 0, NULL);
            assert_int_equal(stats_of(device).live, 0);
            goes_on(device);
            close_it();
        }
        assert_int_equal(status, FY_STATUS_OK);
        assert_true(nrefused > 0);
        print_message("           by %s: refused %d times, then passed\n",
                      by_calls ? "backend allocations" : "live bytes", nrefused);
    }
}

TS_SUITE(.set_up = set_up, .tear_down = tear_down);
