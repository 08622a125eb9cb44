/* FAKE_CUDA_KERNELS=ptx: planted PTX in the place of the plugin's kernels. A launch with a fault
 * fails, is counted, and has a line in the file of counts. See test_ptx.c for the faults. */
#include "fixture.h"

static char folder[] = "/tmp/ferry-ptx-XXXXXX", ptx[64], counts[64];

static void clean(void)
{
    remove(ptx);
    remove(counts);
    rmdir(folder);
}

static int plant(void)
{
    load_or_skip();
    if (mkdtemp(folder) == NULL) return 1;
    snprintf(ptx, sizeof ptx, "%s/elementwise.ptx", folder);
    snprintf(counts, sizeof counts, "%s/counts", folder);
    atexit(clean); /* after the fake driver has written the counts */
    setenv("FAKE_CUDA_KERNELS", "ptx", 1);
    setenv("FAKE_CUDA_PTX_DIR", folder, 1);
    setenv("FAKE_CUDA_PTX_COUNTS", counts, 1);
    return 0;
}

/* dst = -src of 32 elements, on a new device. The status of the launch, or of the copy after it. */
static fy_status_t negate(int32_t dtype)
{
    const uint64_t zeros[32] = { 0 };
    uint64_t result[32];
    fy_desc_t dst = DENSE_OF(dtype, 32), src = dst;
    open_device(NULL);
    dst.data = device_bytes(zeros, sizeof zeros);
    src.data = device_bytes(zeros, sizeof zeros);
    const fy_launch_t launch = launch_of(FY_OP_NEG, 1, &dst, &src, NULL);
    fy_copy_t down = { FY_COPY_DOWNLOAD, 0, result, dst.data, sizeof result };
    fy_status_t status = cuda->launch(dev, stream, &launch);
    if (status == FY_STATUS_OK) status = cuda->copy(dev, stream, &down);
    cuda->free(dev, dst.data, sizeof zeros);
    cuda->free(dev, src.data, sizeof zeros);
    return status;
}

static void assert_fault(int32_t dtype, const char *kernel)
{
    char text[256] = "";
    const fy_status_t status = negate(dtype);
    assert_string_equal(driver.fake_cuda_last_kernel(), kernel);
    if (status == FY_STATUS_OK || status == FY_STATUS_UNSUPPORTED)
        fail_msg("status %d of %s", (int)status, kernel);
    assert_int_equal(driver.fake_cuda_faults(), 1);
    FILE *file = fopen(counts, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    remove(counts);
    assert_non_null(strstr(text, "fault\t"));
    assert_non_null(strstr(text, kernel));
    close_device(NULL);
}

TS_TEST(a_fault_fails_the_launch)
{
    assert_fault(FY_DTYPE_F32, "fy_elementwise_flat_f32"); /* no file */
    FILE *file = fopen(ptx, "w");
    assert_non_null(file);
    fprintf(file, "%s",
            ".visible .entry fy_elementwise_flat_f32(\n.param .align 8 .b8 a[128]\n)\n{\n"
            ".reg .b64 %rd<2>;\nmov.u64 %rd0, 0;\nld.global.u64 %rd1, [%rd0+-8];\nret;\n}\n"
            ".visible .entry fy_elementwise_flat_f64(\n.param .align 8 .b8 a[8]\n)\n{\nret;\n}\n"
            ".visible .entry fy_elementwise_flat_int(\n.param .align 8 .b8 a[128]\n)\n{\n"
            "nanosleep.u32 1;\nret;\n}\n");
    fclose(file);
    assert_fault(FY_DTYPE_F32, "fy_elementwise_flat_f32"); /* outside any allocation */
    assert_fault(FY_DTYPE_F64, "fy_elementwise_flat_f64"); /* another size of arguments */
    assert_fault(FY_DTYPE_I32, "fy_elementwise_flat_int"); /* an unknown instruction */
}

TS_SUITE(.prepare = plant);
