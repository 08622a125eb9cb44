/* The regions that a memory checker gets: segments of the device's pool as heaps, its blocks as
 * regions with names, over the fake driver. A test tool (tests/support/nvtx_tool) is loaded through
 * NVTX_INJECTION64_PATH; it reports ("?") regions outside their heap or over each other. A process
 * loads one tool, so the cases without a tool, or with one that knows only ranges, run in
 * children. */
#include "tests/support/fake_driver.h"

#include <sys/wait.h>

#include <ferry/train/model.h>

static const char *(*tool_memory)(void);
static size_t (*tool_regions)(size_t *out_heaps);

static const char *told(void)
{
    const char *text = tool_memory();
    if (strchr(text, '?')) fail_msg("the tool complains: %s", text);
    return text;
}

/* The tool's sums are those of the pool. */
static void agree(fy_device_t *device)
{
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    size_t heaps;
    ts_ok(fy_device_wait(device, FY_FOREVER));
    ts_ok(fy_memory_query(device, NULL, &stats)); /* polls for finished work */
    assert_int_equal(tool_regions(&heaps), stats.requested);
    assert_int_equal(heaps, stats.reserved);
}

static void note_fact(void *user, const char *key, const char *value)
{
    if (strcmp(key, "nvtx") == 0) snprintf(user, 128, "%s", value);
}

static uint64_t live(fy_device_t *device)
{
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    ts_ok(fy_memory_query(device, NULL, &stats));
    return stats.live;
}

TS_TEST(blocks_come_and_go)
{
    fy_device_t *device;
    fy_tensor_t *x, *y, *z;
    size_t heaps;
    ts_ok(fy_device_open("cuda:0?segment=1MiB", &device));
    assert_string_equal(told(), "");
    fy_scope_t scope = fy_scope_begin("train");
    ts_ok(fy_tensor_create(device, FY_DTYPE_F32, FY_DIMS(25), &x));
    /* the requested size, not the rounded one */
    assert_string_equal(told(), "heap 1048576 region 100 'train activations' ");
    assert_int_equal(live(device), 256);
    ts_ok(fy_tensor_create(device, FY_DTYPE_F32, FY_DIMS(64), &y));
    assert_string_equal(told(), "region 256 'train activations' ");
    /* so that an access after the last byte is detected */
    assert_int_equal(live(device), 256 + 512);
    ts_ok(fy_scope_memory(FY_CATEGORY_WEIGHTS));
    ts_ok(fy_tensor_create(device, FY_DTYPE_U8, FY_DIMS(1), &z));
    assert_string_equal(told(), "region 1 'train weights' ");
    fy_tensor_destroy(y);
    assert_string_equal(told(), "-region ");
    agree(device);
    /* in a separate segment */
    ts_ok(fy_tensor_create(device, FY_DTYPE_U8, FY_DIMS(3 << 20), &y));
    assert_string_equal(told(), "heap 3145984 region 3145728 'train weights' ");
    fy_tensor_destroy(y);
    assert_string_equal(told(), "-region ");
    ts_ok(fy_memory_trim(device, 0, NULL));
    assert_string_equal(told(), "-heap ");
    agree(device);
    fy_scope_end(scope, 0, NULL);
    assert_string_equal(told(), "-region -region ");
    fy_device_close(device);
    assert_string_equal(told(), "-heap ");
    assert_int_equal(tool_regions(&heaps), 0);
    assert_int_equal(heaps, 0);
}

TS_TEST(pending_blocks_stay_regions)
{
    fy_device_t *device;
    fy_tensor_t *x, *y, *beside[2];
    ts_ok(fy_device_open("cuda:0?segment=1MiB", &device));
    ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(400000), &x));
    ts_ok(fy_device_wait(device, FY_FOREVER));
    (void)told();
    driver.fake_cuda_hold(1);
    ts_ok(fy_relu(x, &y));
    for (int i = 0; i < 2; i++) ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(25), &beside[i]));
    (void)told();
    fy_tensor_destroy(x);
    fy_tensor_destroy(y);
    for (int i = 0; i < 2; i++) fy_tensor_destroy(beside[i]);
    (void)live(device); /* polls: no work is done, and each block stays a separate region */
    const fy_status_t status =
        /* on the same stream, but at other addresses */
        fy_tensor_create(device, FY_DTYPE_F32, FY_DIMS(390000), &x);
    const char *meanwhile = told();
    driver.fake_cuda_hold(0);
    ts_ok(status);
    assert_string_equal(meanwhile, "heap 1560064 region 1560000 'activations' ");
    ts_ok(fy_device_wait(device, FY_FOREVER));
    agree(device);
    assert_string_equal(told(), "-region -region -region -region ");
    fy_tensor_destroy(x);
    fy_device_close(device);
    (void)told();
}

static void train(fy_device_t *device, int steps, int compares)
{
    fy_tensor_t *rng, *images, *targets, *lr, *logits, *loss;
    fy_model_t *model;
    fy_tape_t *tape;
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    fy_scope_t scope = fy_scope_begin("train");
    ts_ok(fy_rng_create(device, 4, &rng));
    ts_ok(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(8, 28, 28, 1), -1, 1, &images));
    ts_ok(fy_arange(device, FY_DTYPE_I64, 0, 1, 8, &targets));
    ts_ok(fy_full(device, FY_DTYPE_F32, 0, NULL, 0.1, &lr));
    ts_ok(fy_model_open(device, "lenet", NULL, &model));
    ts_ok(fy_model_query(model, &info));
    ts_ok(fy_tape_create(&tape));
    ts_ok(fy_model_watch(model, tape));
    for (int i = 0; i < steps; i++) {
        fy_scope_t step = fy_scope_begin("step");
        ts_ok(fy_tape_begin(tape));
        ts_ok(fy_model_forward(model, images, &logits));
        ts_ok(fy_cross_entropy(logits, targets, FY_REDUCTION_MEAN, &loss));
        ts_ok(fy_model_backward(model, tape, loss, NULL));
        ts_ok(fy_sgd_step(info.values, info.grads, lr, NULL));
        fy_scope_end(step, 0, NULL);
        /* otherwise the next step finds pending blocks */
        if (i % 2 == compares) agree(device);
    }
    fy_tape_destroy(tape);
    fy_model_destroy(model);
    fy_scope_end(scope, 0, NULL);
}

TS_TEST(training_agrees)
{
    fy_device_t *device;
    size_t heaps;
    ts_ok(fy_device_open("cuda:0", &device));
    train(device, 6, 1);
    agree(device);
    assert_non_null(strstr(told(), "'train/step activations' "));
    fy_device_close(device);
    (void)told();
    assert_int_equal(tool_regions(&heaps), 0);
    assert_int_equal(heaps, 0);
}

/* A device opened by `spec` reports no regions, and its blocks have their usual sizes. */
static void is_silent(const char *spec, const char *fact)
{
    fy_device_t *device;
    fy_tensor_t *x;
    char said[128] = "";
    ts_ok(fy_device_open(spec, &device));
    ts_ok(fy_device_describe(device, note_fact, said));
    assert_string_equal(said, fact);
    ts_ok(fy_tensor_create(device, FY_DTYPE_F32, FY_DIMS(64), &x));
    assert_int_equal(live(device), 256);
    fy_tensor_destroy(x);
    train(device, 2, 2);
    fy_device_close(device);
    assert_string_equal(told(), "");
}

TS_TEST(growing_segments_are_not_heaps)
{
    is_silent("cuda:0?segments=virtual", "ranges and blocks of memory go to a tool");
}

static void without_a_tool_nothing_is_reported(void **state)
{
    (void)state;
    is_silent("cuda:0", "no tool listens (NVTX_INJECTION64_PATH)");
}

static void the_tool_knows_ranges_only(void **state)
{
    (void)state;
    is_silent("cuda:0", "ranges go to a tool");
}

static int runs_in_a_child(const char *name, CMUnitTestFunction body)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const struct CMUnitTest tests[] = { { name, body, NULL, NULL, NULL } };
        exit(cmocka_run_group_tests_name(name, tests, NULL, NULL) != 0);
    }
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static int prepare(void)
{
    char path[1024];
    const char *build = getenv("FERRY_BUILD_DIR");
    fake_driver_or_skip();
    snprintf(path, sizeof path, "%s/lib/tests/libnvtx_tool.so", build ? build : "build");
    void *tool = dlopen(path, RTLD_NOW | RTLD_LOCAL),
         *memory = tool ? dlsym(tool, "nvtx_tool_memory") : NULL;
    void *regions = tool ? dlsym(tool, "nvtx_tool_regions") : NULL;
    if (memory) memcpy(&tool_memory, &memory, sizeof memory);
    if (regions) memcpy(&tool_regions, &regions, sizeof regions);
    if (!memory || !regions || !tool_memory()) {
        printf(
            "SKIP: %s was not built, or without memory: the toolkit has no nvtx3/nvToolsExtMem.h\n",
            path);
        return 77;
    }
    unsetenv("NVTX_INJECTION64_PATH");
    int failed =
        !runs_in_a_child("without_a_tool_nothing_is_reported", without_a_tool_nothing_is_reported);
    setenv("NVTX_INJECTION64_PATH", path, 1);
    setenv("NVTX_TOOL_RANGES_ONLY", "1", 1);
    failed += !runs_in_a_child("the_tool_knows_ranges_only", the_tool_knows_ranges_only);
    unsetenv("NVTX_TOOL_RANGES_ONLY");
    return failed != 0;
}

TS_SUITE(.prepare = prepare);
