/* Backward through a registered op, directly and in a function that runs again, while other things
 * fail: host memory at each allocation, the device's memory and launches at each call. After each
 * failure nothing leaks and the tape works.
 * Not here: wrong gradients (tests/unit/ops/test_register_gradient.c). */
#include "tests/faults/sweeps.h"
#include "tests/support/host_memory.h"

enum { NSRC = 12 }; /* more than the rule's caller keeps on the stack */

static fy_status_t sum_all(const fy_launch_t *launch, void *stream)
{
    (void)stream;
    for (uint64_t i = 0; i < launch->nelem; i++) {
        float sum = 0;
        for (int s = 0; s < launch->nsrc; s++) sum += ((const float *)launch->src[s].data)[i];
        ((float *)launch->dst[0].data)[i] = sum;
    }
    return FY_STATUS_OK;
}

/* Makes tensors that only its scope frees, and returns a wide one and a view. */
static fy_status_t back(const fy_op_backward_t *call, fy_tensor_t **src_grad)
{
    fy_tensor_t *twice;
    FY_TRY(fy_mul(call->dst_grad[0], call->src[0], &twice)); /* half of it */
    FY_TRY(fy_affine(twice, 2, 0, &twice));
    for (size_t i = 0; i < call->nsrc; i++)
        FY_TRY(fy_reshape(twice, call->wanted[i]->rank, call->wanted[i]->dims, &src_grad[i]));
    return fy_affine(twice, 1, 0, &src_grad[1]);
}

static fy_status_t register_sum(fy_op_t *out_op)
{
    const fy_op_kernel_t kernel = { "host", sum_all, NULL };
    const fy_op_def_t def = { .struct_size = sizeof def,
                              .info = &(fy_op_info_t){ .struct_size = sizeof(fy_op_info_t),
                                                       .name = "test.sum_all",
                                                       .nsrc_min = 1,
                                                       .nsrc_max = FY_OP_VARIADIC,
                                                       .ndst = 1,
                                                       .flags = FY_OP_ELEMENTWISE,
                                                       .dtypes = FY_DTYPE_BIT(FY_DTYPE_F32) },
                              .nkernels = 1,
                              .kernels = &kernel,
                              .backward = back,
                              .saved_srcs = 1 };
    return fy_op_register(&def, out_op);
}

static fy_op_t sum_op(void)
{
    const fy_op_info_t *info = fy_op_find("test.sum_all");
    fy_op_t op = info ? info->op : FY_OP_NONE;
    if (!info) ts_ok(register_sum(&op));
    return op;
}

/* user: a random generator, and a one. */
static fy_status_t drop_and_sum(void *user, size_t count, fy_tensor_t *const *inputs,
                                fy_tensor_t **out_y)
{
    fy_tensor_t *const *own = user, *src[NSRC], *x;
    (void)count;
    FY_TRY(fy_dropout(own[0], inputs[0], 0, &x));
    FY_TRY(fy_mul(x, own[1], &x));
    for (int i = 0; i < NSRC; i++) src[i] = x;
    *out_y = NULL;
    return fy_op_call(sum_op(), NSRC, src, NULL, 0, 1, out_y);
}

static fy_status_t program(fy_device_t *device, int again)
{
    fy_tensor_t *x, *y, *loss, *grad, *own[2];
    fy_tape_t *tape;
    fy_download_t *download;
    double value;
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(300000), 0.5, &x));
    FY_TRY(fy_rng_create(device, 1, &own[0]));
    FY_TRY(fy_full(device, FY_DTYPE_F32, 0, NULL, 1, &own[1]));
    FY_TRY(fy_tape_create(&tape));
    FY_TRY(fy_tape_watch(tape, x, NULL));
    FY_TRY(fy_tape_begin(tape));
    const fy_recompute_options_t options = { sizeof options, 1, own, NULL };
    FY_TRY(again ? fy_tape_recompute(drop_and_sum, own, 1, &x, &options, &y)
                 : drop_and_sum(own, 1, &x, &y));
    FY_TRY(fy_mean(y, FY_ALL_AXES, 0, &loss));
    FY_TRY(fy_tape_backward(tape, loss, NULL));
    FY_TRY(fy_tape_grad(tape, x, &grad));
    FY_TRY(fy_sum(grad, FY_ALL_AXES, 0, &grad));
    FY_TRY(fy_tensor_download(grad, NULL, &download));
    FY_TRY(fy_download_wait_f64(download, FY_FOREVER, &value));
    assert_true(value > NSRC - 1e-3 && value < NSRC + 1e-3);
    return FY_STATUS_OK;
}

static fy_status_t run(fy_device_t *device)
{
    const fy_scope_t scope = fy_scope_begin("program");
    fy_status_t status = program(device, 0);
    if (status == FY_STATUS_OK) status = program(device, 1);
    fy_scope_end(scope, 0, NULL);
    return status;
}

/* Registering itself: the name stays free. */
TS_TEST(registering_fails_without_memory)
{
    fy_op_t op;
    assert_null(fy_op_find("test.sum_all"));
    ts_fail_allocation(0);
    ts_fails(register_sum(&op), OUT_OF_MEMORY);
    ts_fail_allocation(-1);
    assert_int_equal(op, FY_OP_NONE);
    assert_null(fy_op_find("test.sum_all"));
}

TS_TEST(every_call_of_the_device_fails_once)
{
    (void)sum_op();
    sweep_calls("", "alloc launch event", 400, run);
}

TS_TEST(host_memory_fails_at_each_place) { sweep_host_memory(8000, run); }
