/* The ranges that a profiler gets: scopes, transfers and replays as ranges of the domain "ferry",
 * begun and ended in order, on cuda's host side over the fake driver. A test tool
 * (tests/support/nvtx_tool) is loaded through NVTX_INJECTION64_PATH. */
#include "tests/support/fake_driver.h"

static const char *(*told)(void);

static void note_fact(void *user, const char *key, const char *value)
{
    if (strcmp(key, "nvtx") == 0) snprintf(user, 128, "%s", value);
}

TS_TEST(everything_is_a_range)
{
    fy_device_t *device;
    fy_tensor_t *host, *x, *y;
    fy_download_t *download;
    fy_graph_t *graph;
    double value;
    char fact[128] = "";
    fy_scope_t before = fy_scope_begin("before");
    ts_ok(fy_device_open("cuda:0", &device));
    ts_ok(fy_device_describe(device, note_fact, fact));
    assert_string_equal(fact, "ranges and blocks of memory go to a tool");
    (void)told();
    fy_scope_end(before, 0, NULL); /* begun before the tool was attached */
    assert_string_equal(told(), "");

    fy_scope_t outer = fy_scope_begin("outer");
    fy_scope_t inner = fy_scope_begin(NULL);
    (void)inner; /* ended with the outer one */
    fy_scope_end(outer, 0, NULL);
    assert_string_equal(told(), "ferry +outer +scope - - ");

    fy_scope_t scope = fy_scope_begin("step");
    host = ts_host_f32(FY_DIMS(2), (const float[]){ 3, 4 });
    (void)told();
    ts_ok(fy_tensor_upload(host, device, NULL, &x));
    assert_string_equal(told(), "ferry +upload - ");
    ts_ok(fy_graph_begin(device));
    ts_ok(fy_sum(x, 0, NULL, 0, &y));
    ts_ok(fy_graph_end(&graph));
    for (int i = 0; i < 4; i++) {
        (void)told();
        ts_ok(fy_graph_replay(graph, NULL));
    }
    assert_string_equal(told(), "ferry +graph replay - ");
    ts_ok(fy_tensor_download(y, NULL, &download));
    ts_ok(fy_download_wait_f64(download, FY_FOREVER, &value));
    assert_true(value == 7);
    assert_string_equal(told(), "ferry +download - ");
    driver.fake_cuda_fail("cuMemcpyHtoDAsync", 1, 2); /* the range of a failed request ends too */
    ts_fails(fy_tensor_upload(host, device, NULL, &x), OUT_OF_MEMORY);
    driver.fake_cuda_fail(NULL, 0, 0);
    assert_string_equal(told(), "ferry +upload - ");
    fy_scope_end(scope, 0, NULL);
    assert_string_equal(told(), "- ");
    fy_device_close(device);
}

static int prepare(void)
{
    char path[1024];
    const char *build = getenv("FERRY_BUILD_DIR");
    fake_driver_or_skip();
    snprintf(path, sizeof path, "%s/lib/tests/libnvtx_tool.so", build ? build : "build");
    void *tool = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = tool ? dlsym(tool, "nvtx_tool_told") : NULL;
    if (!symbol) {
        printf("SKIP: %s was not built: the toolkit has no nvtx3 headers\n", path);
        return 77;
    }
    memcpy(&told, &symbol, sizeof told);
    setenv("NVTX_INJECTION64_PATH", path, 1);
    return 0;
}

TS_SUITE(.prepare = prepare);
