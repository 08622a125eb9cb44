/* The most scratch that one call may take on cuda: a share of the device's memory, so that cuDNN
 * runs the gradients that need much; taken by the call that needs it, not before. Devices that are
 * not real have less. */
#include "tests/support/fake_driver.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

static uint64_t workspace_of(const char *spec)
{
    fy_device_t *device;
    fy_device_info_t info = FY_DEVICE_INFO_INIT;
    ts_ok(fy_device_open(spec, &device));
    ts_ok(fy_device_query(device, &info));
    fy_device_close(device);
    return info.workspace_nbytes;
}

TS_TEST(it_is_a_share_of_the_memory)
{
    static const struct {
        uint64_t memory, workspace;
    } cards[] = { { 1 * GIB, 32 * MIB },   { 3 * GIB, 32 * MIB },   { 4 * GIB, 40 * MIB },
                  { 24 * GIB, 245 * MIB }, { 80 * GIB, 819 * MIB }, { 141 * GIB, 1443 * MIB } };
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        driver.fake_cuda_capacity(cards[i].memory);
        assert_int_equal(workspace_of("cuda:0"), cards[i].workspace);
    }
    assert_int_equal(workspace_of("cuda:0?limit=1GiB"), 32 * MIB);
    assert_int_equal(workspace_of("cuda:0?limit=8GiB"), 81 * MIB);
    assert_int_equal(workspace_of("cuda:0?workspace=5MiB"), 5 * MIB);
    assert_int_equal(workspace_of("cuda:0?limit=1GiB&workspace=256MiB"), 256 * MIB);
    assert_int_equal(workspace_of("cuda:0?workspace=0"), 0);
}

/* A simulated card is not a real one: plans keep their figures. */
TS_TEST(other_devices_have_32_mib)
{
    static const char *const specs[] = { "host", "null:0", "sim:0", "sim:0?profile=h200",
                                         "sim:0?profile=h200&numerics=off" };
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        assert_int_equal(workspace_of(specs[i]), 32 * MIB);
}

/* A weight gradient for which cuDNN needs 100 MiB. */
static void a_gradient(const char *spec, uint64_t peak)
{
    static const int64_t dims[] = { 2, 8, 8, 16 };
    const fy_conv2d_attrs_t attrs = { 1, 1, 1, 1, 1, 1, 1, FY_ACTIVATION_NONE };
    fy_device_t *device;
    fy_tensor_t *dy, *x, *dw;
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    fy_scope_t scope = fy_scope_begin("gradient");
    ts_ok(fy_device_open(spec, &device));
    ts_ok(fy_zeros(device, FY_DTYPE_F32, 4, dims, &dy));
    ts_ok(fy_zeros(device, FY_DTYPE_F32, 4, dims, &x));
    ts_ok(fy_memory_query(device, NULL, &stats));
    assert_int_equal(stats.peak_by_category[FY_CATEGORY_WORKSPACE], 0);
    assert_true(stats.peak_reserved < 32 * MIB);
    const int64_t before = driver.fake_cuda_calls("cudnnConvolutionBackwardFilter");
    ts_ok(fy_conv2d_backward_weight(dy, x, &attrs, 3, 3, &dw));
    ts_ok(fy_memory_query(device, NULL, &stats));
    assert_int_equal(driver.fake_cuda_calls("cudnnConvolutionBackwardFilter") - before, peak > 0);
    if (peak > 0) assert_int_equal(stats.peak_by_category[FY_CATEGORY_WORKSPACE], peak);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
}

TS_TEST(cudnn_has_what_its_gradients_need)
{
    if (driver.fake_cuda_calls("cudnnCreate") < 0) {
        print_message("built without cudnn.h: nothing to test\n");
        return;
    }
    setenv("FERRY_CUDNN", getenv("FERRY_CUDA_DRIVER"), 1);
    driver.fake_cuda_dnn_scratch(100 * MIB);
    driver.fake_cuda_capacity(16 * GIB);
    a_gradient("cuda:0", 100 * MIB);
    a_gradient("cuda:0?workspace=99MiB", 0);
    driver.fake_cuda_capacity(4 * GIB); /* 40 MiB */
    a_gradient("cuda:0", 0);
    a_gradient("cuda:0?workspace=100MiB", 100 * MIB);
}

TS_SUITE(.prepare = fake_driver_or_skip);
