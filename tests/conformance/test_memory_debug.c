/* debug=poison+guard: fresh and freed bytes have a pattern, a write out of bounds is detected and
 * reported once; without the option none of this happens. For memory that the host can access:
 * page-locked memory of any device, and host memory with FERRY_MEMORY_DEBUG, which this program
 * sets. Not here: AddressSanitizer (test_asan_marks.c). */
#include "tests/support/harness.h"

static struct {
    int errors;
    char text[8][256];
} said;

static void on_log(void *user, fy_log_level_t level, const char *text)
{
    (void)user;
    if (level != FY_LOG_ERROR) return;
    if (said.errors < 8) snprintf(said.text[said.errors], sizeof said.text[0], "%s", text);
    said.errors++;
}

static fy_device_t *with_debug(ts_ctx_t *ctx, const char *option)
{
    memset(&said, 0, sizeof said);
    fy_log_set(on_log, NULL);
    return ctx->is_host ? ctx->device : ts_open_with(ctx, option);
}

/* Memory that the host can access and that `device` manages. */
static uint8_t *bytes_of(fy_device_t *device, int64_t n, fy_tensor_t **out_tensor)
{
    void *data;
    *out_tensor = ts_pinned_bytes(device, n);
    ts_ok(fy_tensor_map(*out_tensor, FY_ACCESS_WRITE, &data));
    return data;
}

static uint64_t broken(const fy_device_t *device)
{
    uint64_t count = 12345;
    ts_ok(fy_memory_check(device, &count));
    return count;
}

TS_DEVICE_TEST(fresh_and_freed_bytes_have_a_pattern)
{
    fy_device_t *device = with_debug(ctx, "debug=poison");
    fy_tensor_t *x, *hold;
    (void)bytes_of(device, 100, &hold); /* the segment stays */
    for (int64_t n = 1; n < 200000; n = n * 3 + 1) {
        volatile uint8_t *data = bytes_of(device, n, &x);
        assert_int_equal((uintptr_t)data % 64, 0);
        for (int64_t i = 0; i < n; i++) assert_int_equal(data[i], 0xCD);
        data[0] = data[n - 1] = 1;
        fy_tensor_destroy(x);
#ifndef __SANITIZE_ADDRESS__
        for (int64_t i = 0; i < n; i++) assert_int_equal(data[i], 0xDD);
#endif
    }
    fy_tensor_destroy(hold);
    assert_int_equal(said.errors, 0);
    fy_log_set(NULL, NULL);
}

/* Until a transfer is done with them, freed bytes do not change. */
TS_DEVICE_TEST(bytes_in_use_keep_their_values)
{
    fy_device_t *device = with_debug(ctx, "debug=poison+guard");
    fy_tensor_t *host, *x;
    memset(bytes_of(device, 5000, &host), 7, 5000);
    ts_ok(fy_tensor_upload(host, device, &ts_borrow, &x));
    fy_tensor_destroy(host);
    uint8_t got[5000];
    ts_read(x, got, sizeof got);
    for (size_t i = 0; i < sizeof got; i++) assert_int_equal(got[i], 7);
    fy_tensor_destroy(x);
    assert_int_equal(said.errors, 0);
    fy_log_set(NULL, NULL);
}

#ifndef __SANITIZE_ADDRESS__ /* ASan would detect it first */
TS_DEVICE_TEST(writes_out_of_bounds_are_detected)
{
    static const int64_t sizes[] = { 1, 100, 256, 4097, 70000, 3 << 20 };
    fy_device_t *device = with_debug(ctx, "debug=guard");
    const uint64_t before = broken(device);
    fy_tensor_t *x;
    fy_scope_t scope = fy_scope_begin("writer");
    for (int i = 0; i < 6; i++) { /* freed: detected */
        const int errors = said.errors;
        volatile uint8_t *data = bytes_of(device, sizes[i], &x);
        assert_int_equal(broken(device) - before, i);
        data[i % 2 ? -1 - i : sizes[i] + i] = 0x41;
        fy_tensor_destroy(x);
        assert_int_equal(said.errors - errors, 1);
        char want[128];
        snprintf(want, sizeof want,
                 " of %lld bytes, made in 'test/writer', was written %s: byte %lld is 0x41",
                 (long long)sizes[i], i % 2 ? "before its beginning" : "past its end",
                 i % 2 ? (long long)-1 - i : (long long)sizes[i] + i);
        if (!strstr(said.text[errors], want))
            fail_msg("said: %s; want: %s", said.text[errors], want);
        assert_non_null(strstr(said.text[errors], ": block "));
        assert_int_equal(broken(device) - before, i + 1);
    }
    /* Still in use: a walk detects it, and the end does not report it again. */
    volatile uint8_t *data = bytes_of(device, 1000, &x);
    data[1000] = 1;
    memset(&said, 0, sizeof said);
    assert_int_equal(broken(device) - before, 7);
    assert_int_equal(said.errors, 1);
    assert_int_equal(broken(device) - before, 7);
    fy_tensor_destroy(x);
    assert_int_equal(said.errors, 1);
    assert_int_equal(broken(device) - before, 7);
    /* The next block in the same place starts without errors. */
    data = bytes_of(device, 1000, &x);
    fy_tensor_destroy(x);
    assert_int_equal(said.errors, 1);
    fy_scope_end(scope, 0, NULL);
    if (!ctx->is_host) { /* closing reports how many there were */
        memset(&said, 0, sizeof said);
        fy_device_close(ctx->device);
        assert_int_equal(said.errors, 1);
        assert_non_null(strstr(said.text[0], "7 blocks were written out of their bounds"));
        ts_ok(fy_device_open(ctx->spec, &ctx->device));
    }
    fy_log_set(NULL, NULL);
}
#endif

/* Programs work as without the option: transfers, ops, graphs, exact limits. */
TS_DEVICE_TEST(programs_work_as_usual)
{
    fy_device_t *device = with_debug(ctx, "debug=poison+guard");
    const uint64_t before = broken(device);
    fy_tensor_t *x, *y, *sum;
    fy_graph_t *graph;
    for (int round = 0; round < 3; round++) {
        fy_scope_t scope = fy_scope_begin("round");
        x = ts_iota(device, FY_DIMS(1000), 1);
        ts_ok(fy_graph_begin(device));
        ts_ok(fy_affine(x, 2, 0, &y));
        ts_ok(fy_sum(y, 0, NULL, 0, &sum));
        ts_ok(fy_graph_end(&graph));
        ts_ok(fy_graph_replay(graph, NULL));
        ts_expect_f32(sum, (float[]){ 1001000 }, 1);
        fy_scope_end(scope, 0, NULL);
    }
    assert_int_equal(broken(device), before);
    assert_int_equal(said.errors, 0);
    fy_log_set(NULL, NULL);
}

TS_DEVICE_TEST(refusals)
{
    fy_device_t *device = NULL;
    uint64_t count = 9;
    ts_fails(fy_memory_check(NULL, &count), INVALID_ARGUMENT);
    assert_int_equal(count, 0);
    ts_fails(fy_memory_check(ctx->device, NULL), INVALID_ARGUMENT);
    ts_fails_with(fy_device_open("sim:9?debug=all", &device), INVALID_ARGUMENT,
                  "debug=all; it may be poison, guard, poison+guard or none");
    assert_null(device);
    if (!ctx->is_host) assert_int_equal(broken(ctx->device), 0);
}

static int prepare(void)
{
    setenv("FERRY_MEMORY_DEBUG", "poison+guard", 1); /* before the host is opened */
    return 0;
}

TS_SUITE(.prepare = prepare);
