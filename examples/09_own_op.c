/* A registered op: its kernel, its `supports` hook, a call that the hook refuses, and a call whose
 * kernel fails.
 *   1. The op runs on the host and on simulated devices, like any op.
 *   2. The hook refuses operands for which the kernel has no loop: the call fails before anything
 *      is submitted.
 *   3. The kernel fails while it runs: the wait for the result fails with the kernel's text, and
 *      the device stays usable.
 * Usage: 09_own_op [device], by default sim:0. docs/ops.md shows the functions up to
 * register_swish. Next: docs/ops.md. */
#include <math.h>

#include <ferry/ferry.h>

#include "example.h"

/* Ferry calls this on the caller's thread before it submits anything. It reads dtypes, shapes,
 * strides and attributes, never elements. */
static fy_status_t takes_swish(const fy_launch_t *launch)
{
    if (launch->flags & FY_LAUNCH_DENSE) return FY_STATUS_OK;
    return fy_error_set(FY_STATUS_UNSUPPORTED, __FILE__, __LINE__,
                        "dense operands only; fy_copy into a new tensor makes one");
}

static fy_status_t run_swish(const fy_launch_t *launch, void *stream)
{
    const float *x = launch->src[0].data;
    float *y = launch->dst[0].data;
    (void)stream; /* NULL on host and sim */
    for (uint64_t i = 0; i < launch->nelem; i++) {
        if (isnan(x[i]))
            return fy_error_set(FY_STATUS_BAD_VALUE, __FILE__, __LINE__, "element %d is no number",
                                (int)i);
        y[i] = x[i] / (1.0f + expf(-x[i]));
    }
    return FY_STATUS_OK;
}

static fy_status_t register_swish(fy_op_t *out_swish)
{
    const fy_op_kernel_t kernel = { "host", run_swish, takes_swish }; /* "host" also serves sim */
    fy_op_def_t def = { .struct_size = sizeof def, .nkernels = 1, .kernels = &kernel };
    def.info = (fy_op_info_t){ .struct_size = sizeof def.info,
                               .name = "mylib.swish",
                               .summary = "x / (1 + exp(-x))",
                               .nsrc_min = 1,
                               .nsrc_max = 1,
                               .ndst = 1,
                               /* so shape and cost rules may be left to Ferry */
                               .flags = FY_OP_ELEMENTWISE,
                               .dtypes = FY_DTYPE_BIT(FY_DTYPE_F32) };
    return fy_op_register(&def, out_swish); /* everything is copied */
}

/* Prints the error of a call or a wait if its status is `expected`; fails otherwise. */
static fy_status_t expect(fy_status_t status, fy_status_t expected)
{
    if (status != expected)
        return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__, "expected %s, got %s",
                            fy_status_name(expected), fy_status_name(status));
    printf("%s: %s\n\n", fy_status_name(status), fy_error_get()->text);
    return FY_STATUS_OK;
}

static fy_status_t sum_of(const fy_tensor_t *tensor, double *out_sum)
{
    fy_tensor_t *sum;
    fy_download_t *download;
    FY_TRY(fy_sum(tensor, FY_ALL_AXES, 0, &sum));
    FY_TRY(fy_tensor_download(sum, NULL, &download));
    return fy_download_wait_f64(download, FY_FOREVER, out_sum);
}

static fy_status_t demonstrate(fy_device_t *device)
{
    fy_op_t swish;
    fy_tensor_t *x, *turned, *bad, *y = NULL, *none = NULL, *failed = NULL;
    double sum;
    FY_TRY(register_swish(&swish));
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(4, 3), 2.0, &x));

    printf("1. swish of twelve times 2\n");
    FY_TRY(fy_op_call(swish, 1, &x, NULL, 1, &y));
    FY_TRY(sum_of(y, &sum));
    printf("its sum is %.4f\n\n", sum);

    printf("2. swish of a transposed view\n");
    FY_TRY(fy_transpose(x, NULL, &turned));
    FY_TRY(expect(fy_op_call(swish, 1, &turned, NULL, 1, &none), FY_STATUS_UNSUPPORTED));

    printf("3. swish of what is no number\n");
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(4, 3), (double)NAN, &bad));
    /* OK: the failure is reported by the wait */
    FY_TRY(fy_op_call(swish, 1, &bad, NULL, 1, &failed));
    FY_TRY(expect(sum_of(failed, &sum), FY_STATUS_KERNEL_FAILED));

    FY_TRY(sum_of(y, &sum));
    printf("the device goes on: the first sum is still %.4f\n", sum);
    return FY_STATUS_OK;
}

static fy_status_t run(const char *spec)
{
    fy_device_t *device;
    FY_TRY(fy_device_open(spec, &device));
    fy_scope_t scope = fy_scope_begin("example");
    fy_status_t status = demonstrate(device);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    return status;
}

int main(int argc, char **argv)
{
    return example_finish(argv[0], run(argc > 1 ? argv[1] : "sim:0"));
}
