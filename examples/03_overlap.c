/* Double buffering: batch i+1 is uploaded on the upload engine while the device computes on batch
 * i. Run twice, once with a wait after every request and once without, and timed by the device's
 * clock. On sim that clock is a model: the same figures on every machine.
 * Ferry orders the engines by the tensors that they use: this program has no event and no stream.
 * Usage: 03_overlap [device], by default sim:0. Next: 04_streaming_batches.c. */
#include <ferry/ferry.h>

#include "example.h"

enum { BATCHES = 12, ROWS = 512, COLUMNS = 1024, SLOTS = 2 };

typedef struct pipeline {
    fy_device_t *device;
    fy_tensor_t *weights, *sum;
    fy_tensor_t *staging[SLOTS]; /* page-locked host memory: the engine reads it in place */
    fy_tensor_t *batch[SLOTS];   /* on the device */
    fy_ticket_t sent[SLOTS];     /* when staging[slot] is ours again; {0, 0} is done */
} pipeline_t;

static fy_status_t create(pipeline_t *p)
{
    FY_TRY(fy_full(p->device, FY_DTYPE_F32, FY_DIMS(COLUMNS, COLUMNS), 1.0 / COLUMNS, &p->weights));
    FY_TRY(fy_zeros(p->device, FY_DTYPE_F32, 0, NULL, &p->sum));
    for (int slot = 0; slot < SLOTS; slot++) {
        FY_TRY(fy_tensor_create_pinned(p->device, FY_DTYPE_F32, FY_DIMS(ROWS, COLUMNS),
                                       &p->staging[slot]));
        FY_TRY(fy_empty(p->device, FY_DTYPE_F32, FY_DIMS(ROWS, COLUMNS), &p->batch[slot]));
        p->sent[slot] = (fy_ticket_t){ 0, 0 };
    }
    return FY_STATUS_OK;
}

/* The host writes batch `index` into its slot, as a reader of files would, and sends it. If the
 * device still reads that slot (batch index - 2), the upload engine waits for it; the host does
 * not. */
static fy_status_t feed(pipeline_t *p, int index)
{
    int slot = index % SLOTS;
    void *bytes;
    /* without it, map would say BUSY: the engine may still be reading */
    FY_TRY(fy_ticket_wait(p->sent[slot], FY_FOREVER));
    FY_TRY(fy_tensor_map(p->staging[slot], FY_ACCESS_WRITE, &bytes));
    for (int i = 0; i < ROWS * COLUMNS; i++) ((float *)bytes)[i] = (float)(index + 1);
    fy_transfer_options_t borrow = FY_TRANSFER_OPTIONS_INIT;
    borrow.contract = FY_HOST_BORROW;
    return fy_tensor_upload_into(p->batch[slot], p->staging[slot], &borrow, &p->sent[slot]);
}

/* The compute engine's part: sum += mean(tanh(batch x weights x weights)). It waits, on the device,
 * for the slot's upload. */
static fy_status_t compute(pipeline_t *p, int index)
{
    fy_scope_t scope = fy_scope_begin("compute");
    fy_tensor_t *t;
    FY_TRY(fy_matmul(p->batch[index % SLOTS], p->weights, &t));
    FY_TRY(fy_matmul(t, p->weights, &t));
    FY_TRY(fy_tanh(t, &t));
    FY_TRY(fy_mean(t, 0, NULL, 0, &t));
    FY_TRY(fy_axpy(p->sum, 1.0, t));
    fy_scope_end(scope, 0, NULL);
    return FY_STATUS_OK;
}

static fy_status_t run_batches(pipeline_t *p, int overlap, double *out_sum, uint64_t *out_ns)
{
    fy_device_clock_t before = FY_DEVICE_CLOCK_INIT, after = FY_DEVICE_CLOCK_INIT;
    FY_TRY(fy_fill(p->sum, 0.0));
    FY_TRY(fy_device_wait(p->device, FY_FOREVER));
    FY_TRY(fy_device_clock_query(p->device, &before));
    if (overlap) FY_TRY(feed(p, 0));
    for (int i = 0; i < BATCHES; i++) {
        int next = overlap ? i + 1 : i; /* the next batch is uploaded before this one is used */
        if (next < BATCHES) FY_TRY(feed(p, next));
        if (!overlap) FY_TRY(fy_device_wait(p->device, FY_FOREVER));
        FY_TRY(compute(p, i));
        if (!overlap) FY_TRY(fy_device_wait(p->device, FY_FOREVER));
    }
    FY_TRY(fy_device_wait(p->device, FY_FOREVER));
    FY_TRY(fy_device_clock_query(p->device, &after));
    *out_ns = after.now_ns - before.now_ns;
    printf("%-10s %8.1f us", overlap ? "overlapped" : "serial", (double)*out_ns * 1e-3);
    if (after.kind == FY_CLOCK_MODEL) {
        printf("  (model; upload engine busy %.1f us, compute engine %.1f us)",
               (double)(after.upload_ns - before.upload_ns) * 1e-3,
               (double)(after.compute_ns - before.compute_ns) * 1e-3);
    }
    printf("\n");

    fy_download_t *download;
    FY_TRY(fy_tensor_download(p->sum, NULL, &download));
    return fy_download_wait_f64(download, FY_FOREVER, out_sum);
}

static fy_status_t measure(fy_device_t *device)
{
    pipeline_t p = { .device = device };
    double serial, overlapped;
    uint64_t serial_ns, overlapped_ns;
    FY_TRY(create(&p));
    FY_TRY(run_batches(&p, 0, &serial, &serial_ns));
    FY_TRY(run_batches(&p, 1, &overlapped, &overlapped_ns));
    printf("%d batches of %d bytes; results %.6f and %.6f; overlapped takes %.0f %% of serial\n",
           BATCHES, ROWS * COLUMNS * 4, serial, overlapped,
           100.0 * (double)overlapped_ns / (double)serial_ns);
    if (serial != overlapped)
        return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__, "overlap changed the result");
    return FY_STATUS_OK;
}

static fy_status_t run(const char *spec)
{
    fy_device_t *device;
    FY_TRY(fy_device_open(spec, &device));
    fy_scope_t scope = fy_scope_begin("overlap");
    fy_status_t status = measure(device);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    return status;
}

int main(int argc, char **argv)
{
    return example_finish(argv[0], run(argc > 1 ? argv[1] : "sim:0"));
}
