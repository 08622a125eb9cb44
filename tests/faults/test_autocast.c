/* Training under autocast while things fail: host memory at each allocation, the device's memory
 * and launches at each call. After each failure nothing leaks, and the next step works.
 * Not here: results (tests/unit/ops/test_autocast.c). */
#include "tests/faults/sweeps.h"

enum { N = 200, PARTS = 12 }; /* more sources than the casts of a call keep on the stack */

/* user: the weights. They are used twice, which one cast serves. */
static fy_status_t forward(void *user, size_t count, fy_tensor_t *const *inputs,
                           fy_tensor_t **out_y)
{
    fy_tensor_t *w = user, *y, *parts[PARTS];
    (void)count;
    FY_TRY(fy_matmul(inputs[0], w, &y));
    FY_TRY(fy_matmul(y, w, &y));
    for (int i = 0; i < PARTS; i++) parts[i] = i % 2 ? y : inputs[0];
    return fy_concat(PARTS, parts, 0, out_y);
}

static fy_status_t program(fy_device_t *device, int again)
{
    fy_tensor_t *x, *w, *y, *loss, *grad;
    fy_tape_t *tape;
    fy_download_t *download;
    double value;
    FY_TRY(fy_autocast_set(FY_DTYPE_BF16));
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(N, N), 1.0 / N, &x));
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(N, N), 1.0 / N, &w));
    FY_TRY(fy_tape_create(&tape));
    FY_TRY(fy_tape_watch(tape, w, NULL));
    FY_TRY(fy_tape_begin(tape));
    FY_TRY(again ? fy_tape_recompute(forward, w, 1, &x, NULL, &y) : forward(w, 1, &x, &y));
    FY_TRY(fy_mean(y, FY_ALL_AXES, 0, &loss));
    FY_TRY(fy_tape_backward(tape, loss, NULL));
    FY_TRY(fy_tape_grad(tape, w, &grad));
    FY_TRY(fy_sum(grad, FY_ALL_AXES, 0, &grad));
    FY_TRY(fy_tensor_download(grad, NULL, &download));
    FY_TRY(fy_download_wait_f64(download, FY_FOREVER, &value));
    assert_true(value > 0.9 && value < 1.1); /* d mean(x w w) / d w, half of the parts */
    return FY_STATUS_OK;
}

/* With a copy that the tape uses in place of casts; other writes make it stale; in a graph, too. */
static fy_status_t copied(fy_device_t *device)
{
    fy_tensor_t *x, *w, *low, *y, *loss, *grad, *lr;
    fy_tape_t *tape;
    fy_graph_t *graph;
    FY_TRY(fy_autocast_set(FY_DTYPE_BF16));
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(N, N), 1.0 / N, &x));
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(N, N), 0.5 / N, &w));
    FY_TRY(fy_zeros(device, FY_DTYPE_BF16, FY_DIMS(N, N), &low));
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(N, N), &grad));
    FY_TRY(fy_full(device, FY_DTYPE_F32, 0, NULL, 0.5, &lr));
    FY_TRY(fy_tape_create(&tape));
    FY_TRY(fy_tape_watch(tape, w, grad));
    FY_TRY(fy_autocast_keep(tape, w, low));
    FY_TRY(fy_fill(w, 1.0 / N));
    for (int t = 0; t < 2; t++) {
        if (t == 1) FY_TRY(fy_graph_begin(device));
        FY_TRY(fy_tape_begin(tape));
        FY_TRY(forward(w, 1, &x, &y));
        FY_TRY(fy_mean(y, FY_ALL_AXES, 0, &loss));
        FY_TRY(fy_tape_backward(tape, loss, NULL));
        fy_tensor_t *src[2] = { grad, lr }, *dst[2] = { w, low };
        FY_TRY(fy_op_call(FY_OP_SGD_STEP, 2, src, NULL, 0, 2, dst));
    }
    FY_TRY(fy_graph_end(&graph));
    FY_TRY(fy_fill(w, 1.0 / N));
    FY_TRY(fy_graph_replay(graph, NULL));
    fy_graph_destroy(graph);
    return FY_STATUS_OK;
}

static fy_status_t run(fy_device_t *device)
{
    const fy_scope_t scope = fy_scope_begin("program");
    fy_status_t status = program(device, 0);
    if (status == FY_STATUS_OK) status = program(device, 1);
    if (status == FY_STATUS_OK) status = copied(device);
    fy_scope_end(scope, 0, NULL);
    fy_autocast_info_t info = FY_AUTOCAST_INFO_INIT;
    ts_ok(fy_autocast_query(&info));
    assert_int_equal(info.dtype, FY_DTYPE_F32);
    return status;
}

TS_TEST(every_call_of_the_device_fails_once) { sweep_calls("", "alloc launch", 400, run); }

TS_TEST(host_memory_fails_at_each_place) { sweep_host_memory(8000, run); }
