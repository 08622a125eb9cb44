/* Linear regression, y = x w + b, by gradient descent: the idea of Ferry in one page.
 * Two heavy requests: the data is uploaded once, the parameters are downloaded once. Everything
 * between is light requests, and a guard proves it. Usage: 01_linear [device], by default sim:0.
 * Next: 02_refusal_and_guard.c. */
#include <ferry/ferry.h>

#include "example.h"

enum { SAMPLES = 256, FEATURES = 3, STEPS = 200 };

/* Row i is {x0, x1, x2, y} with y = 2 x0 - 3 x1 + 0.5 x2 + 1. Any source of host memory will do. */
static void make_data(float data[SAMPLES][FEATURES + 1])
{
    uint32_t state = 1;
    for (int i = 0; i < SAMPLES; i++) {
        for (int j = 0; j < FEATURES; j++) {
            state = state * 1664525u + 1013904223u;
            data[i][j] = (float)(state >> 8) / (1 << 23) - 1.0f;
        }
        data[i][FEATURES] = 2.0f * data[i][0] - 3.0f * data[i][1] + 0.5f * data[i][2] + 1.0f;
    }
}

/* One step of gradient descent on mean((x w + b - y)^2). Everything here is on the device; w and b
 * are written in place. */
static fy_status_t step(fy_tensor_t *x, fy_tensor_t *y, fy_tensor_t *w, fy_tensor_t *b, double lr)
{
    /* The scope owns what the step makes, so there is nothing to destroy, not even if a call
     * fails. */
    fy_scope_t scope = fy_scope_begin("step");
    /* in here, an upload, a download or a wait is an error */
    const fy_guard_options_t light_only = FY_GUARD_LIGHT_ONLY;
    FY_TRY(fy_scope_guard(&light_only));

    fy_tensor_t *pred, *err, *xt, *grad_w, *grad_b;
    FY_TRY(fy_matmul(x, w, &pred));                  /* [n, 3] x [3, 1] */
    FY_TRY(fy_add(pred, b, &pred));                  /* the scope still owns the first pred */
    FY_TRY(fy_sub(pred, y, &err));                   /* [n, 1] */
    FY_TRY(fy_transpose(x, NULL, &xt));              /* a view: nothing moves */
    FY_TRY(fy_matmul(xt, err, &grad_w));             /* [3, 1], times n / 2 */
    FY_TRY(fy_sum(err, FY_AXES(0), 1, &grad_b));     /* [1, 1], times n / 2 */
    FY_TRY(fy_axpy(w, -lr * 2.0 / SAMPLES, grad_w)); /* w += alpha * grad_w; alpha has no device */
    FY_TRY(fy_axpy(b, -lr * 2.0 / SAMPLES, grad_b));
    fy_scope_end(scope, 0, NULL);
    return FY_STATUS_OK;
}

static fy_status_t train(fy_device_t *device, float parameters[FEATURES + 1])
{
    static float data[SAMPLES][FEATURES + 1];
    make_data(data);

    /* Up, once. wrap shares the array where it lies; upload is the request that moves it. */
    fy_tensor_t *on_host, *on_device, *x, *y, *wb, *w, *b;
    FY_TRY(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(SAMPLES, FEATURES + 1), data,
                          NULL, NULL, &on_host));
    FY_TRY(fy_tensor_upload(on_host, device, NULL, &on_device));
    FY_TRY(fy_slice(on_device, 1, 0, FEATURES, &x));
    FY_TRY(fy_slice(on_device, 1, FEATURES, FEATURES + 1, &y));

    /* Parameters are made where they are used. w and b are views of one tensor, so that one
     * download brings both. */
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(FEATURES + 1, 1), &wb));
    FY_TRY(fy_slice(wb, 0, 0, FEATURES, &w));
    FY_TRY(fy_slice(wb, 0, FEATURES, FEATURES + 1, &b));

    for (int i = 0; i < STEPS; i++) FY_TRY(step(x, y, w, b, 0.3));

    /* Down, once. Asking returns at once; waiting makes the host tensor. */
    fy_download_t *download;
    fy_tensor_t *result;
    void *bytes;
    FY_TRY(fy_tensor_download(wb, NULL, &download));
    FY_TRY(fy_download_wait(download, FY_FOREVER, &result));
    FY_TRY(fy_tensor_map(result, FY_ACCESS_READ, &bytes));
    for (int i = 0; i <= FEATURES; i++) parameters[i] = ((const float *)bytes)[i];
    return FY_STATUS_OK;
}

/* What it cost, by scope. */
static void print_scope(void *user, const char *path, const fy_ledger_totals_t *totals)
{
    (void)user;
    printf("  %-12s %6" PRIu64 " requests %3" PRIu64 " uploads (%" PRIu64 " bytes) %3" PRIu64
           " downloads (%" PRIu64 " bytes) %3" PRIu64 " syncs\n",
           *path ? path : "(all)", totals->requests, totals->upload.count, totals->upload.nbytes,
           totals->download.count, totals->download.nbytes, totals->syncs);
}

static fy_status_t run(const char *spec)
{
    fy_device_t *device;
    FY_TRY(fy_device_open(spec, &device));
    float parameters[FEATURES + 1];
    fy_scope_t scope = fy_scope_begin("train");
    fy_status_t status = train(device, parameters);
    fy_scope_end(scope, 0, NULL); /* ends what train left open, too, should it have failed */
    if (status == FY_STATUS_OK) {
        printf("on %s, %d steps: w = %.4f %.4f %.4f  b = %.4f   (made with 2 -3 0.5, 1)\n",
               fy_device_name(device), STEPS, parameters[0], parameters[1], parameters[2],
               parameters[3]);
        fy_ledger_walk(print_scope, NULL);
    }
    fy_device_close(device);
    return status;
}

int main(int argc, char **argv)
{
    return example_finish(argv[0], run(argc > 1 ? argv[1] : "sim:0"));
}
