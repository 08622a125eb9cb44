/* Devices through the public API: open and close are counted, options are checked by name, the
 * reported facts are true, a device outlives its close while a tensor of it lives. Runs on every
 * device under test. Not here: memory (test_memory.c), streams. */
#include "tests/support/harness.h"

TS_DEVICE_TEST(open_is_counted)
{
    fy_device_t *again, *third;
    ts_ok(fy_device_open(ctx->spec, &again));
    assert_ptr_equal(again, ctx->device);
    /* no options: accepts those of the first open */
    ts_ok(fy_device_open(ts_spec_name(ctx->spec), &third));
    assert_ptr_equal(third, ctx->device);
    fy_device_close(again);
    fy_device_close(third);
    /* the other open still holds the device */
    fy_tensor_t *tensor = ts_f32(ctx->device, FY_DIMS(2), (float[]){ 1, 2 });
    ts_expect_f32(tensor, (float[]){ 1, 2 }, 2);
    fy_device_close(NULL);
}

TS_DEVICE_TEST(other_options_on_a_later_open_are_refused)
{
    fy_device_t *again = (fy_device_t *)ctx;
    ts_fails_with(fy_device_open(ts_spec_with(ts_spec_name(ctx->spec), "limit=123456789"), &again),
                  INVALID_ARGUMENT, "limit");
    assert_null(again);
}

TS_DEVICE_TEST(a_closed_device_opens_again)
{
    const char *spec = ctx->is_sim ? "sim:5?capacity=64MiB" : ts_spec_name(ctx->spec);
    for (int round = 0; round < 3; round++) {
        fy_device_t *device;
        ts_ok(fy_device_open(spec, &device));
        fy_tensor_t *tensor = ts_iota(device, FY_DIMS(100), (float)round);
        float values[100];
        ts_read(tensor, values, sizeof values);
        assert_true(values[99] == (float)(99 + round));
        fy_tensor_destroy(tensor);
        fy_device_close(device);
    }
}

TS_DEVICE_TEST(a_tensor_keeps_its_device)
{
    const char *spec = ctx->is_sim ? "sim:5?capacity=64MiB" : ts_spec_name(ctx->spec);
    fy_device_t *device;
    fy_tensor_t *more;
    ts_ok(fy_device_open(spec, &device));
    fy_tensor_t *tensor = ts_f32(device, FY_DIMS(3), (float[]){ 1, 2, 3 });
    fy_device_close(device);
    ts_ok(fy_neg(tensor, &more)); /* the device is destroyed with its last tensor */
    ts_expect_f32(more, (float[]){ -1, -2, -3 }, 3);
}

TS_DEVICE_TEST(facts_are_true)
{
    fy_device_info_t info = FY_DEVICE_INFO_INIT;
    ts_ok(fy_device_query(ctx->device, &info));
    assert_string_equal(info.spec, ts_spec_name(ctx->spec));
    assert_string_equal(fy_device_name(ctx->device), info.spec);
    assert_int_equal(strncmp(info.spec, info.backend, strlen(info.backend)), 0);
    assert_true(info.model[0] != '\0');
    assert_true(info.memory_nbytes > 0);
    assert_true(info.free_nbytes <= info.memory_nbytes);
    assert_int_equal(info.is_host, ctx->device == fy_device_host());
    assert_int_equal(info.numerics, 1);
    fy_device_info_t unset = { 0 };
    ts_fails_with(fy_device_query(ctx->device, &unset), INVALID_ARGUMENT,
                  "out_info->struct_size is 0; fy_device_info_t has at least");
    ts_fails(fy_device_query(NULL, &info), INVALID_ARGUMENT);
}

static void count_fact(void *user, const char *key, const char *value)
{
    int *count = user;
    assert_true(key[0] != '\0' && value[0] != '\0');
    ++*count;
}

TS_DEVICE_TEST(facts_are_listed)
{
    int first = 0, again = 0;
    ts_ok(fy_device_describe(ctx->device, count_fact, &first));
    ts_ok(fy_device_describe(ctx->device, count_fact, &again));
    assert_int_equal(again, first);
    if (!strncmp(ctx->spec, "cuda", 4)) assert_true(first > 0);
    ts_fails(fy_device_describe(ctx->device, NULL, NULL), INVALID_ARGUMENT);
    ts_fails(fy_device_describe(NULL, count_fact, &again), INVALID_ARGUMENT);
}

TS_DEVICE_TEST(the_clock_does_not_go_back)
{
    fy_device_clock_t before = FY_DEVICE_CLOCK_INIT, after = FY_DEVICE_CLOCK_INIT;
    ts_ok(fy_device_clock_query(ctx->device, &before));
    fy_tensor_t *tensor = ts_iota(ctx->device, FY_DIMS(1000), 0), *more;
    ts_ok(fy_exp(tensor, &more));
    after = ts_clock(ctx->device);
    assert_int_equal(after.kind, ctx->is_sim ? FY_CLOCK_MODEL : FY_CLOCK_WALL);
    assert_true(after.now_ns >= before.now_ns);
    if (!ctx->is_sim) {
        assert_int_equal(after.compute_ns + after.upload_ns + after.download_ns, 0);
        return;
    }
    assert_true(after.upload_ns > before.upload_ns);
    assert_true(after.compute_ns > before.compute_ns);
    assert_int_equal(after.download_ns, before.download_ns);
    assert_true(after.now_ns > before.now_ns);
}

/* Two identical programs take the same model time to the nanosecond. */
TS_DEVICE_TEST(the_model_clock_is_reproducible)
{
    uint64_t ns[2];
    for (int round = 0; round < 2; round++) {
        fy_device_t *device;
        /* the host's model clock continues between opens */
        fy_device_clock_t before = FY_DEVICE_CLOCK_INIT, after = FY_DEVICE_CLOCK_INIT;
        ts_ok(fy_device_open("sim:5?capacity=64MiB", &device));
        ts_ok(fy_device_clock_query(device, &before));
        fy_tensor_t *a = ts_iota(device, FY_DIMS(64, 64), 1), *b;
        ts_ok(fy_matmul(a, a, &b));
        after = ts_clock(device);
        ns[round] = after.now_ns - before.now_ns;
        fy_tensor_destroy(a);
        fy_tensor_destroy(b);
        fy_device_close(device);
    }
    assert_int_equal(ns[0], ns[1]);
}

TS_DEVICE_TEST(waiting_twice_is_fine)
{
    fy_tensor_t *tensor = ts_iota(ctx->device, FY_DIMS(1000), 0);
    (void)tensor;
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    ts_ok(fy_device_wait(ctx->device, 0)); /* no work is left */
    ts_fails(fy_device_wait(NULL, 0), INVALID_ARGUMENT);
}

/* Specs that are refused, and the words that the text must contain. Independent of the device under
 * test. */
TS_DEVICE_TEST(bad_specs)
{
    static const struct {
        const char *spec, *named;
        fy_status_t status;
    } rows[] = {
        { "", "spec", FY_STATUS_INVALID_ARGUMENT },
        { "sim:", "sim:", FY_STATUS_INVALID_ARGUMENT },
        { "sim:x", "sim:x", FY_STATUS_INVALID_ARGUMENT },
        { "sim:-1", "sim:-1", FY_STATUS_INVALID_ARGUMENT },
        { "sim:5?capcity=1GiB", "capcity", FY_STATUS_INVALID_ARGUMENT },
        { "sim:5?capacity=much", "capacity", FY_STATUS_INVALID_ARGUMENT },
        { "sim:5?capacity", "capacity", FY_STATUS_INVALID_ARGUMENT },
        { "sim:5?order=sideways", "order", FY_STATUS_INVALID_ARGUMENT },
        { "sim:5?numerics=maybe", "numerics", FY_STATUS_INVALID_ARGUMENT },
        { "sim:5?profile=abacus", "profile", FY_STATUS_INVALID_ARGUMENT },
        { "sim:5?limit=-3", "limit", FY_STATUS_INVALID_ARGUMENT },
        { "sim:5?pinned=lots", "pinned", FY_STATUS_INVALID_ARGUMENT },
        { "host?limit=1GiB", "host", FY_STATUS_INVALID_ARGUMENT },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fy_device_t *device = (fy_device_t *)&device;
        fy_status_t status = fy_device_open(rows[i].spec, &device);
        if (status != rows[i].status || device || !strstr(fy_error_get()->text, rows[i].named)) {
            fail_msg("\"%s\": %s, %s: %s", rows[i].spec, fy_status_name(status),
                     device ? "a device" : "NULL", fy_error_get()->text);
        }
    }
    fy_device_t *device = (fy_device_t *)&device;
    assert_int_not_equal(fy_device_open("abacus:0", &device), FY_STATUS_OK);
    assert_null(device);
    ts_text_has("abacus");
    ts_fails(fy_device_open(NULL, &device), INVALID_ARGUMENT);
    ts_fails(fy_device_open("host", NULL), INVALID_ARGUMENT);
}

TS_DEVICE_TEST(missing_plugins_have_a_reason)
{
    fy_plugin_info_t info = FY_PLUGIN_INFO_INIT;
    int n = 0;
    while (fy_plugin_query(n, &info)) {
        assert_true(info.name[0] != '\0');
        assert_true(info.reason[0] != '\0');
        assert_in_range(++n, 1, 16);
    }
    assert_true(n >= 1); /* cuda is listed even if it is not installed */
    assert_true(strlen(fy_version()) >= 5);
}

static void count_device(void *user, const char *spec, int is_simulated)
{
    int *counts = user;
    fy_device_t *device;
    counts[0] += strcmp(spec, "host") == 0;
    counts[1] += is_simulated;
    ts_ok(fy_device_open(spec, &device)); /* whatever is listed opens */
    assert_int_equal(strncmp(fy_device_name(device), spec, strlen(spec)), 0);
    fy_device_close(device);
}

TS_DEVICE_TEST(devices_are_listed)
{
    int counts[2] = { 0, 0 };
    ts_ok(fy_device_enumerate(count_device, counts));
    assert_int_equal(counts[0], 1);
    assert_int_equal(counts[1], 1);
    ts_fails(fy_device_enumerate(NULL, NULL), INVALID_ARGUMENT);
}

static void keep_threads(void *user, const char *key, const char *value)
{
    if (strcmp(key, "threads") == 0) snprintf(user, 64, "%s", value);
}

TS_DEVICE_TEST(threads_are_set_by_a_call)
{
    char text[64] = "";
    ts_ok(fy_host_set_threads(1));
    ts_ok(fy_device_describe(fy_device_host(), keep_threads, text));
    assert_string_equal(text, "1, set by threads=, FERRY_THREADS or fy_host_set_threads");
    ts_fails(fy_host_set_threads(-1), INVALID_ARGUMENT);
    ts_fails(fy_host_set_threads(1 << 30), INVALID_ARGUMENT);
    ts_ok(fy_device_describe(fy_device_host(), keep_threads, text));
    assert_string_equal(text,
                        "1, set by threads=, FERRY_THREADS or fy_host_set_threads"); /* unchanged */
    ts_ok(fy_host_set_threads(0));
    ts_ok(fy_device_describe(fy_device_host(), keep_threads, text));
    assert_string_not_equal(text, "1, set by threads=, FERRY_THREADS or fy_host_set_threads");
}

TS_DEVICE_TEST(status_and_dtype_names)
{
    assert_string_equal(fy_status_name(FY_STATUS_SHAPE_MISMATCH), "SHAPE_MISMATCH");
    assert_string_equal(fy_status_name((fy_status_t)999), "UNKNOWN");
    assert_non_null(fy_status_text(FY_STATUS_BUSY));
    assert_string_equal(fy_dtype_name(FY_DTYPE_BF16), "bf16");
    assert_string_equal(fy_dtype_name((fy_dtype_t)99), "?");
    assert_int_equal(fy_dtype_size(FY_DTYPE_I64), 8);
    assert_int_equal(fy_dtype_size((fy_dtype_t)99), 0);
    assert_int_equal(fy_error_set(FY_STATUS_IO, "here", 7, "disk %d", 3), FY_STATUS_IO);
    assert_int_equal(fy_error_get()->status, FY_STATUS_IO);
    assert_int_equal(fy_error_get()->line, 7);
    assert_string_equal(fy_error_get()->file, "here");
    ts_text_has("disk 3");
    assert_null(fy_error_get()->oom);
}

static const ts_exclusion_t k_exclusions[] = {
    { "cuda", "the_model_clock_is_reproducible",
      "opens sim:5; runs with the devices that need no GPU" },
    { "cuda", "bad_specs", "opens sim specs; runs with the devices that need no GPU" },
    { NULL, NULL, NULL },
};

TS_SUITE(.exclusions = k_exclusions);
