/* Registered ops whose hook refuses and whose kernel fails, while other things fail too: host
 * memory at each allocation, the device's memory, launches, streams and events at each call, in
 * every order. After each failure nothing leaks, and the device continues unless it was lost.
 * Not here: such failures alone (tests/conformance/test_kernel.c). */
#include "tests/faults/sweeps.h"
#include "tests/support/host_memory.h"

static fy_status_t verdict; /* of the kernel */

static fy_status_t takes_f32(const fy_launch_t *launch)
{
    if (launch->src[0].dtype == FY_DTYPE_F32) return FY_STATUS_OK;
    return fy_error_set(FY_STATUS_UNSUPPORTED, __FILE__, __LINE__, "f32 only");
}

static fy_status_t fails(const fy_launch_t *launch, void *stream)
{
    (void)launch, (void)stream;
    return fy_error_set(verdict, __FILE__, __LINE__, "made to fail");
}

static fy_op_t failing_op(void)
{
    static fy_op_t op = FY_OP_NONE;
    const fy_op_kernel_t kernel = { "host", fails, takes_f32 };
    fy_op_def_t def = { .struct_size = sizeof def, .nkernels = 1, .kernels = &kernel };
    def.info = &(fy_op_info_t){ .struct_size = sizeof *def.info,
                                .name = "test.failing",
                                .nsrc_min = 1,
                                .nsrc_max = FY_OP_VARIADIC,
                                .ndst = 1,
                                .flags = FY_OP_ELEMENTWISE,
                                .dtypes = FY_DTYPE_BIT(FY_DTYPE_F32) | FY_DTYPE_BIT(FY_DTYPE_F64) };
    if (op == FY_OP_NONE) ts_ok(fy_op_register(&def, &op));
    return op;
}

/* One refusal, one failing kernel of many operands, one that depends on it, one that does not.
 * Returns the first other failure. */
static fy_status_t program(fy_device_t *device)
{
    fy_tensor_t *x, *wide, *many[12], *bad = NULL, *none = NULL, *sum;
    fy_download_t *download;
    double value;
    /* more than a small segment: the pool allocates segments */
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(300000), 2, &x));
    FY_TRY(fy_full(device, FY_DTYPE_F64, FY_DIMS(5), 2, &wide));
    fy_status_t status = fy_op_call(failing_op(), 1, &wide, NULL, 0, 1, &none);
    assert_null(none);
    if (status != FY_STATUS_UNSUPPORTED) return status;
    for (int i = 0; i < 12; i++) many[i] = x;
    FY_TRY(fy_op_call(failing_op(), 12, many, NULL, 0, 1, &bad));
    FY_TRY(fy_sum(bad, 0, NULL, 0, &sum));
    FY_TRY(fy_tensor_download(sum, NULL, &download));
    status = fy_download_wait_f64(download, FY_FOREVER, &value);
    if (status != FY_STATUS_KERNEL_FAILED) return status;
    ts_text_has("test.failing: its kernel failed with BUSY: made to fail");
    FY_TRY(fy_mean(x, 0, NULL, 0, &sum));
    FY_TRY(fy_tensor_download(sum, NULL, &download));
    FY_TRY(fy_download_wait_f64(download, FY_FOREVER, &value));
    assert_true(value == 2);
    return FY_STATUS_OK;
}

static fy_status_t run(fy_device_t *device)
{
    fy_scope_t scope = fy_scope_begin("program");
    const fy_status_t status = program(device);
    fy_scope_end(scope, 0, NULL);
    return status;
}

static const char *const k_orders[] = { "order=eager", "order=lazy", "order=random&seed=1",
                                        "order=random&seed=2", "order=random&seed=3" };
enum { ORDERS = sizeof k_orders / sizeof *k_orders };

TS_TEST(every_call_of_the_device_fails_once)
{
    verdict = FY_STATUS_BUSY;
    for (int i = 0; i < ORDERS; i++) {
        sweep_calls(k_orders[i], "alloc pin stream event launch copy", 60, run);
    }
}

TS_TEST(host_memory_fails_at_each_place)
{
    verdict = FY_STATUS_BUSY;
    ts_sweep_host_memory("host", 2000, run);
    for (int i = 0; i < ORDERS; i++) {
        char spec[64];
        snprintf(spec, sizeof spec, "sim:7?%s", k_orders[i]);
        ts_sweep_host_memory(spec, 2000, run);
    }
}

/* The only status that concerns the device and not the op. */
TS_TEST(a_kernel_may_report_a_lost_device)
{
    fy_device_info_t info = FY_DEVICE_INFO_INIT;
    verdict = FY_STATUS_DEVICE_LOST;
    ts_fails(run(fy_device_host()), DEVICE_LOST);
    ts_ok(fy_device_query(fy_device_host(), &info)); /* the host is never lost */
    verdict = FY_STATUS_BUSY;
    ts_ok(run(fy_device_host()));
    for (int i = 0; i < ORDERS; i++) {
        char spec[64];
        fy_device_t *device;
        snprintf(spec, sizeof spec, "sim:7?%s", k_orders[i]);
        ts_ok(fy_device_open(spec, &device));
        verdict = FY_STATUS_DEVICE_LOST;
        ts_fails(run(device), DEVICE_LOST);
        ts_fails(run(device), DEVICE_LOST);
        fy_device_close(device);
        verdict = FY_STATUS_BUSY;
        ts_ok(fy_device_open(spec, &device));
        ts_ok(run(device));
        fy_device_close(device);
    }
}

/* Questions about a call with more sources than they keep on the stack. */
TS_TEST(questions_fail_without_memory)
{
    enum { NSRC = 40 };
    fy_desc_t src[NSRC], dst;
    fy_dtype_t dtypes[NSRC];
    for (int i = 0; i < NSRC; i++) {
        src[i] = (fy_desc_t){ .dtype = FY_DTYPE_F32, .rank = 1, .dims = { i } };
        dtypes[i] = FY_DTYPE_F32;
    }
    for (int fails = 1; fails >= 0; fails--) {
        ts_fail_allocation(fails ? 0 : -1);
        const fy_status_t inferred = fy_op_infer(FY_OP_CONCAT, NSRC, src, NULL, 0, 1, &dst);
        ts_fail_allocation(fails ? 0 : -1);
        const fy_status_t supported = fy_op_supported(fy_device_host(), FY_OP_CONCAT, dtypes, NSRC);
        ts_fail_allocation(-1);
        assert_int_equal(inferred, fails ? FY_STATUS_OUT_OF_MEMORY : FY_STATUS_OK);
        assert_int_equal(supported, inferred);
    }
}
