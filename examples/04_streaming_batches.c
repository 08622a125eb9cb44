/* Training on data that does not fit on the device, or is generated while training: a thread of
 * Ferry fills batches, which are uploaded while the device works on earlier ones. Losses are
 * downloaded and read when they have arrived, some steps later. No step waits, and a guard on the
 * scope "step" proves it: 4 bytes down, nothing up, no sync.
 * Usage: 04_streaming_batches [device], by default sim:0. Next: docs/transfers.md. */
#include <ferry/ferry.h>

#include "example.h"

enum { SAMPLES = 16000, FEATURES = 3, ROWS = 256, LATE = 16 };

/* Row i is made from its number alone, so any batch can be filled at any time. y = 2 x0 - 3 x1 +
 * 0.5 x2 + 1. */
static void make_row(uint32_t i, float x[FEATURES], float *y)
{
    uint32_t state = 2654435761u * (i + 1);
    for (int j = 0; j < FEATURES; j++) {
        state = state * 1664525u + 1013904223u;
        x[j] = (float)(state >> 8) / (1 << 23) - 1.0f;
    }
    *y = 2.0f * x[0] - 3.0f * x[1] + 0.5f * x[2] + 1.0f;
}

/* Called for batch 0, 1, 2, ... with page-locked tensors to write to; this is where a program would
 * read files. */
static fy_status_t fill(void *user, fy_batch_t *batch)
{
    const int64_t begin = (int64_t)batch->index * ROWS;
    void *x, *y;
    (void)user;
    batch->is_end = begin >= SAMPLES;
    if (batch->is_end) return FY_STATUS_OK;
    if (batch->rows > SAMPLES - begin) batch->rows = SAMPLES - begin; /* the last one is not full */
    FY_TRY(fy_tensor_map(batch->host[0], FY_ACCESS_WRITE, &x));
    FY_TRY(fy_tensor_map(batch->host[1], FY_ACCESS_WRITE, &y));
    for (int64_t i = 0; i < batch->rows; i++)
        make_row((uint32_t)(begin + i), (float *)x + i * FEATURES, (float *)y + i);
    return FY_STATUS_OK;
}

/* Gradient descent on mean((x w + b - y)^2): light requests, and a download of the loss, without a
 * wait for it. */
static fy_status_t step(fy_tensor_t *x, fy_tensor_t *y, int64_t rows, fy_tensor_t *w,
                        fy_tensor_t *b, fy_download_t **out_loss)
{
    const double rate = -0.25 * 2.0 / (double)rows;
    fy_scope_t scope = fy_scope_begin("step");
    fy_guard_options_t promise = FY_GUARD_LIGHT_ONLY;
    promise.download_nbytes = sizeof(float);
    FY_TRY(fy_scope_guard(&promise));

    fy_tensor_t *pred, *loss, *err, *xt, *grad_w, *grad_b;
    FY_TRY(fy_matmul(x, w, &pred));
    FY_TRY(fy_add(pred, b, &pred));
    FY_TRY(fy_mse_loss(pred, y, &loss));
    FY_TRY(fy_tensor_download(loss, NULL, out_loss)); /* returns at once */
    FY_TRY(fy_sub(pred, y, &err));
    FY_TRY(fy_transpose(x, NULL, &xt));
    FY_TRY(fy_matmul(xt, err, &grad_w));
    FY_TRY(fy_sum(err, FY_AXES(0), 1, &grad_b));
    FY_TRY(fy_axpy(w, rate, grad_w));
    FY_TRY(fy_axpy(b, rate, grad_b));
    fy_download_keep(*out_loss); /* outlives the scope */
    fy_scope_end(scope, 0, NULL);
    return FY_STATUS_OK;
}

/* Losses on their way, oldest first. */
typedef struct losses {
    fy_download_t *replies[LATE];
    int asked, read;
} losses_t;

/* Reads those that have come: no sync, no wait. */
static fy_status_t read_losses(losses_t *losses)
{
    int done = 1;
    double value;
    while (losses->read < losses->asked) {
        FY_TRY(fy_download_try_f64(losses->replies[losses->read % LATE], &done, &value));
        if (!done) break;
        if (losses->read % 16 == 0)
            printf("  step %2d: loss %.6f, read before step %d\n", losses->read, value,
                   losses->asked);
        losses->read++;
    }
    return FY_STATUS_OK;
}

static fy_status_t train(fy_device_t *device, fy_tensor_t *w, fy_tensor_t *b, losses_t *losses)
{
    static const fy_batch_spec_t specs[] = { { FY_DTYPE_F32, 2, { ROWS, FEATURES } },
                                             { FY_DTYPE_F32, 2, { ROWS, 1 } } };
    fy_prefetch_t *batches; /* the scope's, like a tensor */
    fy_tensor_t *batch[2];
    int64_t rows;
    FY_TRY(fy_prefetch_create(device, 2, specs, fill, NULL, NULL, &batches));
    for (;;) {
        FY_TRY(fy_prefetch_next(batches, batch, &rows));
        if (!rows) break;
        if (losses->asked - losses->read == LATE) /* the device is far behind: let it catch up */
            FY_TRY(fy_device_wait(device, FY_FOREVER));
        FY_TRY(read_losses(losses));
        FY_TRY(step(batch[0], batch[1], rows, w, b, &losses->replies[losses->asked % LATE]));
        losses->asked++;
    }
    FY_TRY(fy_device_wait(device, FY_FOREVER));
    return read_losses(losses);
}

static fy_status_t fit(fy_device_t *device)
{
    losses_t losses = { .asked = 0 };
    fy_tensor_t *wb, *w, *b, *result;
    fy_download_t *download;
    void *bytes;
    /* w and b are views of one tensor: one download brings both */
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(FEATURES + 1, 1), &wb));
    FY_TRY(fy_slice(wb, 0, 0, FEATURES, &w));
    FY_TRY(fy_slice(wb, 0, FEATURES, FEATURES + 1, &b));
    FY_TRY(train(device, w, b, &losses));

    FY_TRY(fy_tensor_download(wb, NULL, &download));
    FY_TRY(fy_download_wait(download, FY_FOREVER, &result));
    FY_TRY(fy_tensor_map(result, FY_ACCESS_READ, &bytes));
    const float *p = bytes;
    printf("on %s, %d steps: w = %.4f %.4f %.4f  b = %.4f   (made with 2 -3 0.5, 1)\n",
           fy_device_name(device), losses.read, p[0], p[1], p[2], p[3]);
    return FY_STATUS_OK;
}

static fy_status_t print_ledger(void)
{
    fy_ledger_totals_t all = FY_LEDGER_TOTALS_INIT;
    FY_TRY(fy_ledger_query(NULL, &all));
    printf("up:   %5" PRIu64 " transfers, %" PRIu64 " bytes\n", all.upload.count,
           all.upload.nbytes);
    printf("down: %5" PRIu64 " transfers, %" PRIu64 " bytes\n", all.download.count,
           all.download.nbytes);
    return FY_STATUS_OK;
}

static fy_status_t run(const char *spec)
{
    fy_device_t *device;
    FY_TRY(fy_device_open(spec, &device));
    fy_scope_t scope = fy_scope_begin("stream");
    fy_status_t status = fit(device);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    if (status == FY_STATUS_OK) status = print_ledger();
    return status;
}

int main(int argc, char **argv)
{
    return example_finish(argv[0], run(argc > 1 ? argv[1] : "sim:0"));
}
