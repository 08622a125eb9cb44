/* A registered op: its kernel, its `supports` hook, its gradient rule, a call that the hook
 * refuses, and a call whose kernel fails.
 *   1. The op runs on the host and on simulated devices, like any op.
 *   2. The hook refuses operands for which the kernel has no loop: the call fails before anything
 *      is submitted.
 *   3. A tape computes its gradient by the rule that is registered with it.
 *   4. The kernel fails while it runs: the wait for the result fails with the kernel's text, and
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

/* dx = dy (s + y (1 - s)) with s = sigmoid(x): a scope of Ferry owns the tensors made here. */
static fy_status_t back_swish(const fy_op_backward_t *call, fy_tensor_t **src_grad)
{
    fy_tensor_t *s, *slope;
    FY_TRY(fy_sigmoid(call->src[0], &s));
    FY_TRY(fy_affine(s, -1, 1, &slope));
    FY_TRY(fy_mul(call->dst[0], slope, &slope));
    FY_TRY(fy_add(s, slope, &slope));
    return fy_mul(call->dst_grad[0], slope, &src_grad[0]);
}

static fy_status_t register_swish(fy_op_t *out_swish)
{
    const fy_op_kernel_t kernel = { "host", run_swish, takes_swish }; /* "host" also serves sim */
    fy_op_info_t info = FY_OP_INFO_INIT;
    fy_op_def_t def = FY_OP_DEF_INIT;
    info.name = "mylib.swish";
    info.summary = "x / (1 + exp(-x))";
    info.nsrc_min = info.nsrc_max = info.ndst = 1;
    info.flags = FY_OP_ELEMENTWISE; /* so shape and cost rules may be left to Ferry */
    info.dtypes = FY_DTYPE_BIT(FY_DTYPE_F32);
    def.info = &info;
    def.nkernels = 1;
    def.kernels = &kernel;
    def.backward = back_swish;
    def.saved_srcs = def.saved_dsts = 1; /* bit 0 of each: x and y */
    return fy_op_register(&def, out_swish);
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

static fy_status_t slope_of(fy_op_t swish, fy_tensor_t *x, double *out_sum)
{
    fy_tape_t *tape;
    fy_tensor_t *y = NULL, *loss, *grad;
    FY_TRY(fy_tape_create(&tape));
    FY_TRY(fy_tape_watch(tape, x, NULL));
    FY_TRY(fy_tape_begin(tape));
    FY_TRY(fy_op_call(swish, 1, &x, NULL, 0, 1, &y));
    FY_TRY(fy_sum(y, FY_ALL_AXES, 0, &loss));
    FY_TRY(fy_tape_backward(tape, loss, NULL));
    FY_TRY(fy_tape_grad(tape, x, &grad));
    return sum_of(grad, out_sum);
}

static fy_status_t demonstrate(fy_device_t *device)
{
    fy_op_t swish;
    fy_tensor_t *x, *turned, *bad, *y = NULL, *none = NULL, *failed = NULL;
    double sum;
    FY_TRY(register_swish(&swish));
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(4, 3), 2.0, &x));

    printf("1. swish of twelve times 2\n");
    FY_TRY(fy_op_call(swish, 1, &x, NULL, 0, 1, &y));
    FY_TRY(sum_of(y, &sum));
    printf("its sum is %.4f\n\n", sum);

    printf("2. swish of a transposed view\n");
    FY_TRY(fy_transpose(x, NULL, &turned));
    FY_TRY(expect(fy_op_call(swish, 1, &turned, NULL, 0, 1, &none), FY_STATUS_UNSUPPORTED));

    printf("3. the gradient of its sum\n");
    FY_TRY(slope_of(swish, x, &sum));
    printf("its sum is %.4f\n\n", sum);

    printf("4. swish of what is no number\n");
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(4, 3), (double)NAN, &bad));
    /* OK: the failure is reported by the wait */
    FY_TRY(fy_op_call(swish, 1, &bad, NULL, 0, 1, &failed));
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
