/* Kernels that run inside their call on an asynchronous device, as on cuda: a failure is known at
 * once, and is a fault all the same. The device is an eager simulated one with that property. Not
 * here: kernels as users see them on every device (tests/conformance/test_kernel.c). */
#include "runtime/device/device.h"
#include "tests/support/harness.h"
#include "tests/support/own_op.h"

static fy_status_t fails(const fy_launch_t *launch, void *stream)
{
    (void)stream;
    if (launch->fault) return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__, "not my flag");
    return fy_error_set(FY_STATUS_BUSY, __FILE__, __LINE__, "made to fail");
}

static fy_status_t call(fy_tensor_t *dst, fy_tensor_t *src)
{
    static fy_op_t op = FY_OP_NONE;
    ts_own_op_t own;
    ts_own_op(&own, "test.fails", 1, fails);
    own.info.flags |= FY_OP_IN_PLACE;
    if (op == FY_OP_NONE) ts_ok(fy_op_register(&own.def, &op));
    return fy_op_call(op, 1, &src, NULL, 0, 1, &dst);
}

static void expect_poisoned(const fy_tensor_t *tensor)
{
    fy_download_t *download;
    fy_tensor_t *host;
    ts_ok(fy_tensor_download(tensor, NULL, &download));
    ts_fails_with(fy_download_wait(download, FY_FOREVER, &host), KERNEL_FAILED,
                  "test.fails: its kernel failed with BUSY: made to fail");
}

static fy_tensor_t *ones(const ts_ctx_t *ctx)
{
    fy_tensor_t *tensor;
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(3), 1, &tensor));
    return tensor;
}

TS_DEVICE_TEST(a_call_is_a_fault_that_is_known)
{
    if (!ctx->is_sim) skip();
    fy_tensor_t *x = ones(ctx), *y = ones(ctx), *more;
    ctx->device->info.kernels_run_late = 0;
    ts_ok(call(y, x));
    const fy_ticket_t ticket = fy_tensor_ticket(y);
    ts_ok(fy_neg(y, &more));
    expect_poisoned(y);
    expect_poisoned(more);
    ts_fails(fy_ticket_wait(ticket, FY_FOREVER), KERNEL_FAILED);
    ts_fails(fy_device_wait(ctx->device, FY_FOREVER), KERNEL_FAILED);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    ts_expect_f32(x, (float[]){ 1, 1, 1 }, 3);
}

/* The replay may have submitted part of its work before it failed, also as the first or the last
 * call. */
TS_DEVICE_TEST(a_replay_stops_there)
{
    if (!ctx->is_sim) skip();
    ctx->device->info.kernels_run_late = 0;
    for (int at = 0; at < 3; at++) {
        fy_tensor_t *x = ones(ctx), *y = ones(ctx), *z = ones(ctx);
        ts_ok(fy_graph_begin(ctx->device));
        for (int i = 0; i < 3; i++) ts_ok(i == at ? call(y, x) : fy_axpy(z, 1, x));
        fy_graph_t *graph = ts_graph_end();
        for (int i = 0; i < 2; i++) {
            ts_ok(fy_copy(y, x));
            ts_ok(fy_copy(z, x));
            ts_fails_with(fy_graph_replay(graph, NULL), KERNEL_FAILED,
                          "graph_replay: test.fails: its kernel failed with BUSY: made to fail");
            expect_poisoned(y);
            expect_poisoned(z); /* how far the replay came is not to be relied on */
        }
        ts_ok(fy_copy(z, x));
        ts_expect_f32(z, (float[]){ 1, 1, 1 }, 3);
        fy_graph_destroy(graph);
    }
}
