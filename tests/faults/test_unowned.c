/* Calls in a scope that owns nothing while host memory fails at each allocation, the device's
 * memory and launches at each call: a failed call leaves no handle, so destroying those that calls
 * returned frees everything.
 * Not here: which scope owns which handle (tests/unit/runtime/test_scope_unowned.c). */
#include "tests/faults/sweeps.h"

typedef struct handles {
    fy_tensor_t *x, *view, *y, *out[3], *loss, *grad;
    fy_tape_t *tape;
    fy_download_t *download;
} handles_t;

static fy_status_t compute(fy_device_t *device, handles_t *h)
{
    double value;
    const fy_status_t status = fy_full(device, FY_DTYPE_F32, FY_DIMS(300000), 2, &h->x);
    if (status != FY_STATUS_OK) return status;
    FY_TRY(fy_tape_create(&h->tape));
    FY_TRY(fy_tape_watch(h->tape, h->x, NULL));
    FY_TRY(fy_tape_begin(h->tape));
    FY_TRY(fy_reshape(h->x, FY_DIMS(3000, 100), &h->view));
    FY_TRY(fy_mul(h->view, h->view, &h->y));
    FY_TRY(fy_mean(h->y, FY_ALL_AXES, 0, &h->loss));
    FY_TRY(fy_tape_backward(h->tape, h->loss, NULL));
    FY_TRY(fy_tape_grad(h->tape, h->x, &h->grad));
    FY_TRY(fy_op_call(FY_OP_NEG, 1, &h->grad, NULL, 0, 1, h->out));
    FY_TRY(fy_tensor_download(h->loss, NULL, &h->download));
    const fy_status_t waited = fy_download_wait_f64(h->download, FY_FOREVER, &value);
    if (waited == FY_STATUS_OK) h->download = NULL;
    return waited;
}

static fy_status_t run(fy_device_t *device)
{
    handles_t h = { 0 };
    const fy_scope_t scope = fy_scope_begin_unowned("binding");
    const fy_status_t status = compute(device, &h);
    fy_scope_end(scope, 0, NULL);
    fy_download_destroy(h.download);
    fy_tape_destroy(h.tape);
    fy_tensor_t *const tensors[] = { h.x, h.view, h.y, h.out[0], h.loss, h.grad };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) fy_tensor_destroy(tensors[i]);
    return status;
}

TS_TEST(every_call_of_the_device_fails_once)
{
    sweep_calls("", "alloc launch copy event", 200, run);
}

TS_TEST(host_memory_fails_at_each_place) { sweep_host_memory(4000, run); }
