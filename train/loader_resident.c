/* Sets that live on the device: they are uploaded once, in their own dtype, and become normalised
 * f32 there; batches are gathered.
 * A step is two requests; the first of an epoch also draws the order. Not here: batches that are
 * uploaded one by one (loader_stream.c). */
#include "loader.h"

#include <ferry/device.h>
#include <ferry/ops.h>
#include <ferry/transfer.h>

#include <stdlib.h>
#include <string.h>

struct fyt_resident {
    /* f32 or i32 [samples, dims...]; i32 [samples] or [samples, labels], or f32 [samples, targets];
     * in no scope */
    fy_tensor_t *x, *y;
    fy_tensor_t *order;  /* i64 [samples], in no scope */
    int64_t order_epoch; /* -1: none yet */
};

static void free_copy(void *user, void *data)
{
    (void)user;
    free(data);
}

/* All samples (or labels), contiguous: the set's memory if they are contiguous there, else a copy
 * that is freed with its last use. */
static fy_status_t wrap_all(const fy_dataset_t *dataset, unsigned char *base, size_t nbytes,
                            fy_dtype_t dtype, int rank, const int64_t *dims,
                            fy_tensor_t **out_tensor)
{
    if (!dataset->rows)
        return fy_tensor_wrap(fy_device_host(), dtype, rank, dims, base, NULL, NULL, out_tensor);
    unsigned char *copy = malloc(dataset->info.samples * nbytes);
    if (!copy)
        return FYT_FAIL(OUT_OF_MEMORY,
                        "loader_create: no host memory for %llu samples of %zu bytes",
                        (unsigned long long)dataset->info.samples, nbytes);
    for (uint64_t i = 0; i < dataset->info.samples; i++)
        memcpy(copy + i * nbytes, base + dataset->rows[i] * nbytes, nbytes);
    fy_status_t status =
        fy_tensor_wrap(fy_device_host(), dtype, rank, dims, copy, free_copy, NULL, out_tensor);
    if (status != FY_STATUS_OK) free(copy);
    return status;
}

static fy_status_t upload_all(const fy_loader_t *loader, unsigned char *base, size_t nbytes,
                              fy_dtype_t dtype, int rank, const int64_t *dims,
                              fy_tensor_t **out_tensor)
{
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    fy_tensor_t *all;
    options.site = "fy_loader";
    FY_TRY(wrap_all(loader->dataset, base, nbytes, dtype, rank, dims, &all));
    /* COPY: `all` is free on return */
    fy_status_t status = fy_tensor_upload(all, loader->device, &options, out_tensor);
    fy_tensor_destroy(all);
    return status;
}

static fy_status_t make_x(const fy_loader_t *loader, fy_tensor_t **out_x)
{
    const fy_dataset_t *dataset = loader->dataset;
    int64_t dims[FY_MAX_RANK] = { (int64_t)dataset->info.samples };
    fy_tensor_t *raw;
    for (int i = 0; i < dataset->info.rank; i++) dims[i + 1] = dataset->info.dims[i];
    FY_TRY(upload_all(loader, dataset->data, dataset->sample_nbytes, dataset->info.dtype,
                      dataset->info.rank + 1, dims, &raw));
    if (dataset->info.dtype != FY_DTYPE_U8) *out_x = raw; /* normalised in place, or tokens */
    if (dataset->info.dtype == FY_DTYPE_I32) return FY_STATUS_OK;
    return fyt_loader_normalise(&loader->normal, raw, out_x);
}

static fy_status_t make_y(const fy_loader_t *loader, fy_tensor_t **out_y)
{
    const fy_dataset_t *dataset = loader->dataset;
    int64_t dims[2];
    int rank;
    const fy_dtype_t dtype =
        fyt_dataset_labels(&dataset->info, (int64_t)dataset->info.samples, &rank, dims);
    return upload_all(loader, dataset->labels, dataset->label_nbytes, dtype, rank, dims, out_y);
}

fy_status_t fyt_resident_create(const fy_loader_t *loader, fyt_resident_t **out_resident)
{
    fyt_resident_t *resident = calloc(1, sizeof *resident);
    if (!resident)
        return FYT_FAIL(OUT_OF_MEMORY, "loader_create: no host memory for %zu bytes",
                        sizeof *resident);
    resident->order_epoch = -1;
    fy_status_t status = make_x(loader, &resident->x);
    if (status == FY_STATUS_OK) status = make_y(loader, &resident->y);
    if (status == FY_STATUS_OK && !loader->options.shuffle)
        status = fy_arange(loader->device, FY_DTYPE_I64, 0, 1,
                           (int64_t)loader->dataset->info.samples, &resident->order);
    if (status != FY_STATUS_OK) {
        free(resident); /* the scope owns the tensors */
        return status;
    }
    fy_tensor_keep(resident->x);
    fy_tensor_keep(resident->y);
    if (resident->order) fy_tensor_keep(resident->order);
    *out_resident = resident;
    return FY_STATUS_OK;
}

/* A graph would gather the recorded batch at each replay. Requesting an address is refused during a
 * recording, and costs nothing otherwise. */
static fy_status_t refuse_recording(const fyt_resident_t *resident)
{
    void *address;
    const fy_status_t status =
        fy_tensor_begin_native_access(resident->x, FY_ACCESS_READ, NULL, &address);
    if (status != FY_STATUS_UNSUPPORTED) return status;
    return FYT_FAIL(UNSUPPORTED, "loader_next: a graph is recorded, and its replays would see this "
                                 "batch again and again\n  Record on tensors of your own "
                                 "and fy_copy each batch into them before a replay");
}

fy_status_t fyt_resident_next(fyt_resident_t *resident, const fy_loader_t *loader,
                              fy_tensor_t **out_x, fy_tensor_t **out_y)
{
    const fyt_range_t span = fyt_loader_span(loader, loader->step);
    fy_tensor_t *indices;
    FY_TRY(refuse_recording(resident));
    if (loader->options.shuffle && resident->order_epoch != loader->epoch) {
        fy_tensor_t *order;
        FY_TRY(fyt_order_make(loader->device, loader->options.seed, loader->epoch,
                              loader->dataset->info.samples, &order));
        fy_tensor_keep(order);
        fy_tensor_destroy(resident->order); /* its bytes stay until the last gather has read them */
        resident->order = order;
        resident->order_epoch = loader->epoch;
    }
    FY_TRY(fy_slice(resident->order, 0, span.begin, span.begin + span.count, &indices));
    FY_TRY(fy_gather(resident->x, indices, out_x));
    return fy_gather(resident->y, indices, out_y);
}

void fyt_resident_destroy(fyt_resident_t *resident)
{
    if (!resident) return;
    fy_tensor_destroy(resident->x);
    fy_tensor_destroy(resident->y);
    fy_tensor_destroy(resident->order);
    free(resident);
}
