/* Loaders: the public calls, the position of a loader, and conversion of samples to f32.
 * Not here: sets that live on the device (loader_resident.c), batches that are uploaded one by one
 * (loader_stream.c). */
#include "loader.h"
#include "train/abi.h"

#include <ferry/ops.h>
#include <ferry/scope.h>

#include <math.h>
#include <stdlib.h>

static fy_status_t check_normal(const fy_loader_options_t *options, const fy_dataset_info_t *info)
{
    const int64_t last = info->rank ? info->dims[info->rank - 1] : 1;
    if (info->dtype == FY_DTYPE_I32 && (options->scale != 1 || options->channels))
        return FYT_FAIL(
            INVALID_ARGUMENT,
            "loader_create: scale %g, %d channels; tokens (i32) are not normalised: set scale "
            "1 and channels 0",
            options->scale, options->channels);
    if (!isfinite(options->scale))
        return FYT_FAIL(INVALID_ARGUMENT, "loader_create: scale is %g", options->scale);
    if (options->channels < 0 || options->channels > FY_LOADER_CHANNELS ||
        (options->channels > 1 && options->channels != last))
        return FYT_FAIL(INVALID_ARGUMENT,
                        "loader_create: mean and std of %d channels; samples have %lld: 0, 1 or so "
                        "many (%d at most)",
                        options->channels, (long long)last, FY_LOADER_CHANNELS);
    for (int c = 0; c < options->channels; c++)
        if (!isfinite(options->mean[c]) || !isfinite(options->std[c]) ||
            !isfinite((float)(options->scale / options->std[c])) ||
            !isfinite((float)(options->mean[c] / options->std[c])))
            return FYT_FAIL(
                INVALID_ARGUMENT,
                "loader_create: mean[%d] is %g, std[%d] is %g: both must be finite, and scale "
                "/ std and mean / std must be finite in f32",
                c, options->mean[c], c, options->std[c]);
    return FY_STATUS_OK;
}

static fy_status_t check(const fy_device_t *device, const fy_dataset_t *dataset,
                         const fy_loader_options_t *options)
{
    if (!device || !dataset)
        return FYT_FAIL(INVALID_ARGUMENT, "loader_create: %s is NULL",
                        device ? "dataset" : "device");
    const uint64_t samples = dataset->info.samples;
    if (!samples) return FYT_FAIL(INVALID_ARGUMENT, "loader_create: the data set has no samples");
    if (samples > UINT32_MAX)
        return FYT_FAIL(INVALID_ARGUMENT, "loader_create: %llu samples; there may be 2^32 - 1",
                        (unsigned long long)samples);
    if (options->batch < 1 || (options->drop_last && (uint64_t)options->batch > samples))
        return FYT_FAIL(
            INVALID_ARGUMENT, "loader_create: batches of %lld of %llu samples%s",
            (long long)options->batch, (unsigned long long)samples,
            options->batch < 1
                ? ": at least 1 in each"
                : "; with drop_last there would be none: a smaller batch, or without it");
    if (options->workers < 0 || options->workers > FYT_LOADER_MAX_WORKERS ||
        (options->resident && options->workers))
        return FYT_FAIL(
            INVALID_ARGUMENT,
            "loader_create: %d workers; there may be 0 to %d, and none for a resident set",
            options->workers, FYT_LOADER_MAX_WORKERS);
    if (options->depth < 1 || options->depth > FYT_LOADER_MAX_DEPTH)
        return FYT_FAIL(INVALID_ARGUMENT, "loader_create: depth is %d; it may be 1 to %d",
                        options->depth, FYT_LOADER_MAX_DEPTH);
    if (options->ranks < 0 || options->rank < 0 ||
        options->rank >= (options->ranks ? options->ranks : 1))
        return FYT_FAIL(INVALID_ARGUMENT, "loader_create: rank %d of %d", options->rank,
                        options->ranks);
    return check_normal(options, &dataset->info);
}

/* f32 [C] with these values, made on the device by light requests, in no scope. */
static fy_status_t make_vector(fy_device_t *device, int count, const double *values,
                               fy_tensor_t **out_vector)
{
    FY_TRY(fy_empty(device, FY_DTYPE_F32, FY_DIMS(count), out_vector));
    fy_tensor_keep(*out_vector);
    for (int c = 0; c < count; c++) {
        fy_tensor_t *element;
        FY_TRY(fy_slice(*out_vector, 0, c, c + 1, &element));
        FY_TRY(fy_fill(element, values[c]));
    }
    return FY_STATUS_OK;
}

/* (s * scale - mean) / std, as one product and one sum. */
static fy_status_t make_normal(fy_loader_t *loader)
{
    const fy_loader_options_t *options = &loader->options;
    fyt_normal_t *normal = &loader->normal;
    double scales[FY_LOADER_CHANNELS] = { 0 }, shifts[FY_LOADER_CHANNELS] = { 0 };
    *normal = (fyt_normal_t){ .scale = options->scale };
    for (int c = 0; c < options->channels; c++) {
        scales[c] = options->scale / options->std[c];
        shifts[c] = -options->mean[c] / options->std[c];
    }
    if (options->channels) {
        normal->scale = scales[0];
        normal->shift = shifts[0];
    }
    normal->is_identity = options->channels <= 1 && normal->scale == 1 && normal->shift == 0;
    if (options->channels <= 1) return FY_STATUS_OK;
    FY_TRY(make_vector(loader->device, options->channels, scales, &normal->scales));
    return make_vector(loader->device, options->channels, shifts, &normal->shifts);
}

fy_status_t fyt_loader_normalise(const fyt_normal_t *normal, fy_tensor_t *src, fy_tensor_t **dst)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    const fy_cast_attrs_t to_f32 = { FY_DTYPE_F32 };
    const fy_affine_attrs_t affine = { normal->scale, normal->shift };
    FY_TRY(fy_tensor_query(src, &info));
    if (info.dtype != FY_DTYPE_F32) {
        FY_TRY(fy_op_call(FY_OP_CAST, 1, &src, &to_f32, sizeof to_f32, 1, dst));
        src = *dst; /* and from here on in place */
    }
    if (normal->scales) {
        FY_TRY(fy_op_call(FY_OP_MUL, 2, (fy_tensor_t *[]){ src, normal->scales }, NULL, 0, 1, dst));
        return fy_op_call(FY_OP_ADD, 2, (fy_tensor_t *[]){ *dst, normal->shifts }, NULL, 0, 1, dst);
    }
    if (!normal->is_identity)
        return fy_op_call(FY_OP_AFFINE, 1, &src, &affine, sizeof affine, 1, dst);
    return FY_STATUS_OK;
}

size_t fyt_loader_sample(const fy_loader_t *loader, int *out_rank, int64_t *out_dims)
{
    const fy_dataset_info_t *info = &loader->dataset->info;
    size_t nbytes = fy_dtype_size(info->dtype);
    *out_rank = info->rank;
    for (int i = 0; i < info->rank; i++) {
        out_dims[i] = loader->augment.is_on && i < 2 ? loader->augment.out[i] : info->dims[i];
        nbytes *= (size_t)out_dims[i];
    }
    return nbytes;
}

fyt_range_t fyt_loader_span(const fy_loader_t *loader, int64_t step)
{
    const int64_t samples = (int64_t)loader->dataset->info.samples, batch = loader->options.batch,
                  at = step * batch, count = samples - at < batch ? samples - at : batch,
                  begin = count * loader->options.rank / loader->options.ranks,
                  end = count * (loader->options.rank + 1) / loader->options.ranks;
    return (fyt_range_t){ at + begin, end - begin };
}

fy_status_t fy_loader_create(fy_device_t *device, const fy_dataset_t *dataset,
                             const fy_loader_options_t *options, fy_loader_t **out_loader)
{
    fy_loader_options_t own;
    fyt_augment_t augment;
    FY_TRY(FYT_CLEAR_OUT("loader_create", out_loader));
    FY_TRY(FY__READ(loader_options, "loader_create", options, &own));
    options = &own;
    FY_TRY(check(device, dataset, options));
    FY_TRY(fyt_augment_make(options, &dataset->info, &augment));
    fy_loader_t *loader = calloc(1, sizeof *loader);
    if (!loader)
        return FYT_FAIL(OUT_OF_MEMORY, "loader_create: no host memory for %zu bytes",
                        sizeof *loader);
    const int64_t samples = (int64_t)dataset->info.samples;
    loader->augment = augment;
    loader->device = device;
    loader->dataset = fyt_dataset_hold(dataset);
    loader->options = *options;
    if (loader->options.batch > samples) loader->options.batch = samples;
    if (!loader->options.ranks) loader->options.ranks = 1;
    loader->steps = samples / loader->options.batch +
                    (!options->drop_last && samples % loader->options.batch ? 1 : 0);

    fy_scope_t scope = fy_scope_begin("loader");
    fy_status_t status = fy_scope_memory(FY_CATEGORY_ACTIVATIONS);
    if (status == FY_STATUS_OK) status = make_normal(loader);
    if (status == FY_STATUS_OK)
        status = options->resident ? fyt_resident_create(loader, &loader->resident)
                                   : fyt_stream_create(loader, &loader->stream);
    fy_scope_end(scope, 0, NULL);
    if (status != FY_STATUS_OK) {
        fy_loader_destroy(loader);
        return status;
    }
    *out_loader = loader;
    return FY_STATUS_OK;
}

fy_status_t fy_loader_seek(fy_loader_t *loader, int64_t epoch, int64_t step)
{
    if (!loader) return FYT_FAIL(INVALID_ARGUMENT, "loader_seek: loader is NULL");
    if (epoch < 0 || epoch > INT64_MAX / loader->steps - 2 || step < 0 || step > loader->steps)
        return FYT_FAIL(
            INVALID_ARGUMENT,
            "loader_seek: batch %lld of epoch %lld; an epoch has %lld, and both count from 0",
            (long long)step, (long long)epoch, (long long)loader->steps);
    if (loader->stream) FY_TRY(fyt_stream_seek(loader->stream, epoch, step));
    loader->epoch = epoch;
    loader->step = step;
    return FY_STATUS_OK;
}

fy_status_t fy_loader_limit(fy_loader_t *loader, int64_t batches)
{
    if (!loader || batches < 0)
        return FYT_FAIL(INVALID_ARGUMENT, "loader_limit: %s",
                        loader ? "fewer than 0 batches; 0 is no limit" : "loader is NULL");
    if (loader->stream) fyt_stream_limit(loader->stream, batches);
    return FY_STATUS_OK;
}

/* A streamed batch of another process has one row here. */
static fy_status_t cut_rows(const fy_loader_t *loader, fy_tensor_t **tensors)
{
    if (!loader->stream || fyt_loader_span(loader, loader->step).count) return FY_STATUS_OK;
    for (int i = 0; i < 2; i++) FY_TRY(fy_slice(tensors[i], 0, 0, 0, &tensors[i]));
    return FY_STATUS_OK;
}

fy_status_t fy_loader_next(fy_loader_t *loader, fy_tensor_t **out_x, fy_tensor_t **out_y)
{
    if (out_x) *out_x = NULL;
    if (out_y) *out_y = NULL;
    if (!loader || !out_x || !out_y)
        return FYT_FAIL(INVALID_ARGUMENT, "loader_next: %s is NULL",
                        !loader ? "loader"
                        : out_x ? "out_y"
                                : "out_x");
    if (loader->step == loader->steps) {
        loader->epoch++;
        loader->step = 0;
        return FY_STATUS_OK;
    }
    fy_tensor_t *results[2] = { NULL, NULL };
    int is_taken = 0;
    fy_scope_t scope = fy_scope_begin("loader");
    fy_status_t status = fy_scope_memory(FY_CATEGORY_ACTIVATIONS);
    if (status == FY_STATUS_OK && loader->resident)
        status = fyt_resident_next(loader->resident, loader, &results[0], &results[1]);
    else if (status == FY_STATUS_OK)
        status = fyt_stream_next(loader->stream, loader, &results[0], &results[1], &is_taken);
    if (status == FY_STATUS_OK) status = cut_rows(loader, results);
    fy_scope_end(scope, status == FY_STATUS_OK ? 2 : 0, results);
    if (status == FY_STATUS_OK || is_taken) loader->step++;
    FY_TRY(status);
    *out_x = results[0];
    *out_y = results[1];
    return FY_STATUS_OK;
}

fy_status_t fy_loader_query(const fy_loader_t *loader, fy_loader_info_t *out_info)
{
    if (!loader || !out_info)
        return FYT_FAIL(INVALID_ARGUMENT, "loader_query: %s is NULL",
                        loader ? "out_info" : "loader");
    FY_TRY(FY__CHECK_OUT(loader_info, "loader_query", out_info));
    fy_loader_info_t info = { .struct_size = sizeof info,
                              .samples = loader->dataset->info.samples,
                              .batch = loader->options.batch,
                              .steps = loader->steps,
                              .epoch = loader->epoch,
                              .step = loader->step,
                              .is_resident = loader->resident != NULL,
                              .workers = loader->options.workers,
                              .seed = loader->options.seed,
                              .classes = loader->dataset->info.classes,
                              .targets = loader->dataset->info.targets,
                              .shard = loader->options.rank,
                              .shards = loader->options.ranks };
    fyt_loader_sample(loader, &info.rank, info.dims);
    FY__WRITE(out_info, &info);
    return FY_STATUS_OK;
}

void fy_loader_destroy(fy_loader_t *loader)
{
    if (!loader) return;
    fyt_stream_destroy(loader->stream);
    fyt_resident_destroy(loader->resident);
    fy_tensor_destroy(loader->normal.scales);
    fy_tensor_destroy(loader->normal.shifts);
    fy_dataset_destroy(loader->dataset);
    free(loader);
}
