/* DEVICE_MISMATCH: the text names the operand on another device than the others, and the call that
 * moves it. */
#include "tests/support/harness.h"

static fy_device_t *g_devices[2];
static fy_tensor_t *g_here, *g_there, *g_host;

static int begin(void **state)
{
    (void)state;
    ts_ok(fy_device_open("sim:0", &g_devices[0]));
    ts_ok(fy_device_open("sim:1", &g_devices[1]));
    ts_ok(fy_zeros(g_devices[0], FY_DTYPE_F32, FY_DIMS(4), &g_here));
    ts_ok(fy_zeros(g_devices[1], FY_DTYPE_F32, FY_DIMS(4), &g_there));
    ts_ok(fy_zeros(fy_device_host(), FY_DTYPE_F32, FY_DIMS(4), &g_host));
    return 0;
}

static int end(void **state)
{
    (void)state;
    fy_tensor_destroy(g_here);
    fy_tensor_destroy(g_there);
    fy_tensor_destroy(g_host);
    fy_device_close(g_devices[0]);
    fy_device_close(g_devices[1]);
    return 0;
}

static void refused(size_t count, fy_tensor_t *const *src)
{
    fy_tensor_t *joined;
    ts_fails(fy_concat(count, src, 0, &joined), DEVICE_MISMATCH);
    assert_null(joined);
}

TS_TEST(two_devices_are_one_send_apart)
{
    refused(2, (fy_tensor_t *[]){ g_here, g_there });
    ts_text_has("src0 [4 f32] is on sim:0, src1 [4 f32] is on sim:1");
    ts_text_has("Move src0: fy_tensor_send(src0, ...) to sim:1 (16 bytes), or src1: "
                "fy_tensor_send(src1, ...) to sim:0 (16 bytes)");
    assert_null(strstr(fy_error_get()->text, "fy_tensor_download"));
    fy_tensor_t *sent, *sum; /* following the advice works */
    ts_ok(fy_tensor_send(g_here, g_devices[1], NULL, &sent));
    ts_ok(fy_add(sent, g_there, &sum));
    fy_tensor_destroy(sum);
    fy_tensor_destroy(sent);
}

TS_TEST(the_operand_that_differs_is_named)
{
    refused(4, (fy_tensor_t *[]){ g_here, g_there, g_there, g_there });
    ts_text_has("src0 [4 f32] is on sim:0, src1 [4 f32] is on sim:1\n  Ferry moves nothing by "
                "itself. Move src0: fy_tensor_send");
    assert_null(strstr(fy_error_get()->text, ", or"));
    refused(4, (fy_tensor_t *[]){ g_here, g_here, g_host, g_here });
    ts_text_has("src0 [4 f32] is on sim:0, src2 [4 f32] is on host\n  Ferry moves nothing by "
                "itself. Move src2: fy_tensor_upload(src2, "
                "...) to sim:0");
    refused(5, (fy_tensor_t *[]){ g_here, g_there, g_here, g_host, g_here });
    ts_text_has("Move src1: fy_tensor_send(src1, ...) to sim:0 (16 bytes), and 1 more that are not "
                "on sim:0");
    refused(
        4, (fy_tensor_t *[]){ g_here, g_there, g_here, g_there }); /* equally many here and there */
    ts_text_has("src0 [4 f32] is on sim:0, src1 [4 f32] is on sim:1");
    ts_text_has(", or src1");
}

TS_TEST(steps_name_their_operands)
{
    fy_tensor_t *grad, *avg, *square, *number, *lr;
    ts_ok(fy_zeros(g_devices[0], FY_DTYPE_F32, FY_DIMS(4), &grad));
    ts_ok(fy_zeros(g_devices[0], FY_DTYPE_F32, FY_DIMS(4), &avg));
    ts_ok(fy_zeros(g_devices[0], FY_DTYPE_F32, FY_DIMS(4), &square));
    ts_ok(fy_zeros(g_devices[0], FY_DTYPE_F32, 0, NULL, &lr));
    ts_ok(fy_zeros(fy_device_host(), FY_DTYPE_I64, 0, NULL, &number));
    ts_fails_with(
        fy_adam_step(g_here, grad, avg, square, number, lr, NULL), DEVICE_MISMATCH,
        "adam_step: grad (src0) [4 f32] is on sim:0, step_number (dst3) [scalar i64] is on host",
        "Move step_number: fy_tensor_upload(step_number, ...) to sim:0 (8 bytes)");
    fy_tensor_destroy(grad);
    fy_tensor_destroy(avg);
    fy_tensor_destroy(square);
    fy_tensor_destroy(lr);
    fy_tensor_destroy(number);
}

/* Other refusals name operands too; a and b are src0 and src1 there. */
TS_TEST(others_name_their_operands)
{
    fy_tensor_t *none = NULL, *whole, *part, *wide, *sum = NULL;
    fy_scope_t scope = fy_scope_begin("names");
    fy_device_t *device = g_devices[0];
    ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(4, 4), &whole));
    ts_ok(fy_zeros(device, FY_DTYPE_F64, FY_DIMS(4, 4), &wide));
    ts_fails_with(fy_linear(whole, none, NULL, FY_ACTIVATION_NONE, &sum), INVALID_ARGUMENT,
                  "linear: w (src1) is NULL");
    ts_fails_with(fy_add(whole, none, &sum), INVALID_ARGUMENT, "add: src1 is NULL");
    ts_fails_with(fy_op_call(FY_OP_GATHER, 2, (fy_tensor_t *[]){ whole, none }, NULL, 0, 1, &sum),
                  INVALID_ARGUMENT, "gather: indices (src1) is NULL");
    ts_fails_with(fy_adam_step(whole, whole, whole, none, whole, whole, NULL), INVALID_ARGUMENT,
                  "adam_step: exp_avg_sq (dst2), which is updated in place, is NULL");
    ts_fails_with(fy_linear(whole, wide, NULL, FY_ACTIVATION_NONE, &sum), DTYPE_MISMATCH,
                  "linear: x (src0) is [4x4 f32], w (src1) is [4x4 f64]");
    ts_fails_with(fy_gather(whole, whole, &sum), DTYPE_MISMATCH,
                  "gather: indices (src1) is [4x4 f32]");
    ts_fails_with(fy_conv2d(whole, whole, NULL, NULL, &sum), SHAPE_MISMATCH,
                  "conv2d: x (src0) is [4x4 f32], it needs rank 4");
    ts_fails_with(fy_linear(g_there, whole, NULL, FY_ACTIVATION_NONE, &sum), DEVICE_MISMATCH,
                  "linear: x (src0) [4 f32] is on sim:1, w (src1) [4x4 f32] is on sim:0",
                  "Move x: fy_tensor_send(x, ...) to sim:0");
    ts_ok(fy_slice(whole, 0, 1, 3, &part));
    ts_fails(fy_axpy(part, 1, whole), SHAPE_MISMATCH);
    ts_ok(fy_slice(whole, 0, 0, 2, &sum));
    ts_fails_with(fy_axpy(part, 1, sum), INVALID_ARGUMENT,
                  "axpy: y (dst0) [2x4 f32] overlaps x (src0) [2x4 f32]");
    /* Two results in one memory: the second one is named. */
    ts_ok(fy_zeros(device, FY_DTYPE_F32, 0, NULL, &sum));
    ts_fails_with(fy_sgd_momentum_step(whole, wide, whole, none, sum, NULL), INVALID_ARGUMENT,
                  "step_number (dst2)");
    fy_tensor_t *grad;
    ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(4, 4), &grad));
    ts_fails_with(fy_adadelta_step(whole, grad, grad, whole, sum, NULL), INVALID_ARGUMENT,
                  "adadelta_step: square_avg (dst1) [4x4 f32] overlaps grad (src0) [4x4 f32]");
    ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(4, 4), &part));
    ts_fails_with(fy_adadelta_step(whole, grad, part, whole, sum, NULL), INVALID_ARGUMENT,
                  "adadelta_step: acc_delta (dst2) [4x4 f32] overlaps param (dst0) [4x4 f32]");
    fy_scope_end(scope, 0, NULL);
}

TS_SUITE(.begin = begin, .end = end);
