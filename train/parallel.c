/* Data-parallel training by one thread: sums over devices, equal parameters, shards of a batch. All
 * of it goes by peer transfers (sums by the devices' own library where they have one) and light
 * requests: the host waits for nothing. Not here: several processes. Next:
 * include/ferry/train/parallel.h. */
#include <stdlib.h>
#include <string.h>

#include <ferry/device.h>
#include <ferry/ops.h>
#include <ferry/scope.h>
#include <ferry/train/parallel.h>
#include <ferry/transfer.h>

#include "train/fail.h"
#include "train/model.h"

/* ---- summing ---- */

/* elements: each piece begins on a separate cache line, in every float dtype */
enum { PIECE_ALIGN = 32 };

/* The pieces that `count` devices sum, one each; the last ones may be shorter, or empty. */
static void cut(int64_t nelem, size_t count, size_t piece, int64_t *out_begin, int64_t *out_end)
{
    int64_t length = (nelem + (int64_t)count - 1) / (int64_t)count;
    length = (length + PIECE_ALIGN - 1) / PIECE_ALIGN * PIECE_ALIGN;
    *out_begin = (int64_t)piece * length < nelem ? (int64_t)piece * length : nelem;
    *out_end = *out_begin + length < nelem ? *out_begin + length : nelem;
}

/* The handles of one sum. */
typedef struct views {
    fy_tensor_t **pieces;   /* [tensor][owner], views; NULL: the piece is empty */
    fy_tensor_t **received; /* [owner][from] */
} views_t;

/* All views are made before the first tensor changes. */
static fy_status_t make_views(size_t count, fy_tensor_t *const *tensors, int64_t nelem,
                              views_t *views)
{
    for (size_t i = 0; i < count; i++) {
        fy_tensor_t *flat;
        FY_TRY(fy_reshape(tensors[i], FY_DIMS(-1), &flat));
        for (size_t owner = 0; owner < count; owner++) {
            int64_t begin, end;
            cut(nelem, count, owner, &begin, &end);
            if (begin < end)
                FY_TRY(fy_slice(flat, 0, begin, end, &views->pieces[i * count + owner]));
        }
    }
    return FY_STATUS_OK;
}

/* Each device gets its piece from all others. If this fails, their tensors have not changed. */
static fy_status_t gather(size_t count, fy_device_t *const *devices, const views_t *views)
{
    for (size_t owner = 0; owner < count; owner++)
        for (size_t from = 0; from < count; from++) {
            fy_tensor_t *piece = views->pieces[from * count + owner];
            if (from != owner && piece)
                FY_TRY(fy_tensor_send(piece, devices[owner], NULL,
                                      &views->received[owner * count + from]));
        }
    return FY_STATUS_OK;
}

/* In the order of the devices, on every device: first those before the owner, then its own, then
 * those after it. */
static fy_status_t add_up(size_t count, size_t owner, fy_tensor_t *own,
                          fy_tensor_t *const *received)
{
    for (size_t from = 1; from < owner; from++) FY_TRY(fy_axpy(received[0], 1, received[from]));
    if (owner) FY_TRY(fy_axpy(own, 1, received[0]));
    for (size_t from = owner + 1; from < count; from++) FY_TRY(fy_axpy(own, 1, received[from]));
    return FY_STATUS_OK;
}

static fy_status_t allreduce(size_t count, fy_tensor_t *const *tensors, int64_t nelem,
                             fy_device_t *const *devices, views_t *views)
{
    FY_TRY(fy_scope_memory(FY_CATEGORY_WORKSPACE));
    FY_TRY(make_views(count, tensors, nelem, views));
    FY_TRY(gather(count, devices, views));
    for (size_t owner = 0; owner < count; owner++) {
        fy_tensor_t *own = views->pieces[owner * count + owner];
        if (!own) continue;
        FY_TRY(add_up(count, owner, own, views->received + owner * count));
        for (size_t to = 0; to < count; to++)
            if (to != owner)
                FY_TRY(fy_tensor_send_into(views->pieces[to * count + owner], own, NULL, NULL));
    }
    return FY_STATUS_OK;
}

static fy_status_t check_tensors(size_t count, fy_tensor_t *const *tensors, int64_t *out_nelem,
                                 fy_device_t **devices)
{
    fy_tensor_info_t first = FY_TENSOR_INFO_INIT;
    for (size_t i = 0; i < count; i++) {
        fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
        if (!tensors[i]) return FYT_FAIL(INVALID_ARGUMENT, "allreduce_sum: tensor %zu is NULL", i);
        FY_TRY(fy_tensor_query(tensors[i], &info));
        if (!i) first = info;
        int same = info.rank == first.rank;
        for (int d = 0; same && d < info.rank; d++) same = info.dims[d] == first.dims[d];
        if (!same)
            return FYT_FAIL(
                SHAPE_MISMATCH,
                "allreduce_sum: tensor %zu has %d axes and %llu elements, tensor 0 has %d and %llu",
                i, info.rank, (unsigned long long)info.nelem, first.rank,
                (unsigned long long)first.nelem);
        if (info.dtype != first.dtype ||
            !(info.dtype == FY_DTYPE_F32 || info.dtype == FY_DTYPE_F64 ||
              info.dtype == FY_DTYPE_F16 || info.dtype == FY_DTYPE_BF16))
            return FYT_FAIL(
                DTYPE_MISMATCH,
                "allreduce_sum: tensor %zu is %s, tensor 0 is %s: all are of one float dtype", i,
                fy_dtype_name(info.dtype), fy_dtype_name(first.dtype));
        if (!info.is_contiguous)
            return FYT_FAIL(INVALID_ARGUMENT, "allreduce_sum: tensor %zu is not dense", i);
        for (size_t k = 0; k < i; k++)
            if (devices[k] == info.device)
                return FYT_FAIL(DEVICE_MISMATCH,
                                "allreduce_sum: tensors %zu and %zu are both on %s: one a device",
                                k, i, fy_device_name(info.device));
        devices[i] = info.device;
    }
    *out_nelem = (int64_t)first.nelem;
    return FY_STATUS_OK;
}

fy_status_t fy_allreduce_sum(size_t count, fy_tensor_t *const *tensors)
{
    if (!count || !tensors) return FYT_FAIL(INVALID_ARGUMENT, "allreduce_sum: no tensors");
    if (count > 1024)
        return FYT_FAIL(INVALID_ARGUMENT, "allreduce_sum: %zu devices; 1024 is the most", count);
    int64_t nelem = 0;
    fy_device_t **devices = calloc(count, sizeof *devices);
    views_t views = { calloc(count * count, sizeof *views.pieces),
                      calloc(count * count, sizeof *views.received) };
    fy_status_t status =
        devices && views.pieces && views.received
            ? FY_STATUS_OK
            : FYT_FAIL(OUT_OF_MEMORY, "allreduce_sum: no host memory for %zu tensors", count);
    if (status == FY_STATUS_OK) status = check_tensors(count, tensors, &nelem, devices);
    if (status == FY_STATUS_OK && count > 1 && nelem) {
        int done = 0;
        const fy_scope_t scope = fy_scope_begin("allreduce");
        status = fy_tensor_all_reduce(count, tensors, NULL, &done);
        if (status == FY_STATUS_OK && !done)
            status = allreduce(count, tensors, nelem, devices, &views);
        fy_scope_end(scope, 0, NULL);
    }
    free(views.received);
    free(views.pieces);
    free(devices);
    return status;
}

/* ---- replicas and shards ---- */

/* Do the parameters or buffers have the same names and shapes? */
static fy_status_t check_list(size_t count, const fyt_model_param_t *first,
                              const fyt_model_param_t *second, const char *call, const char *kind,
                              size_t index)
{
    for (size_t i = 0; i < count; i++) {
        const fyt_model_param_t *a = &first[i], *b = &second[i];
        int same = strcmp(a->name, b->name) == 0 && a->def->rank == b->def->rank;
        for (int d = 0; same && d < a->def->rank; d++) same = a->def->dims[d] == b->def->dims[d];
        if (!same)
            return FYT_FAIL(SHAPE_MISMATCH,
                            "%s: %s %zu is '%s' in model 0 and '%s' in model %zu, or of another "
                            "shape there",
                            call, kind, i, a->name, b->name, index);
    }
    return FY_STATUS_OK;
}

static fy_status_t check_form(const fy_model_t *first, const fy_model_t *model, const char *call,
                              size_t index)
{
    if (model->dtype != first->dtype || model->nparams != first->nparams ||
        model->nbuffers != first->nbuffers)
        return FYT_FAIL(SHAPE_MISMATCH,
                        "%s: model %zu, '%s', has %zu parameters and %zu buffers [%s], model 0, "
                        "'%s', has %zu and %zu [%s]",
                        call, index, model->name, model->nparams, model->nbuffers,
                        fy_dtype_name(model->dtype), first->name, first->nparams, first->nbuffers,
                        fy_dtype_name(first->dtype));
    FY_TRY(check_list(model->nparams, first->params, model->params, call, "parameter", index));
    FY_TRY(check_list(model->nbuffers, first->buffers, model->buffers, call, "buffer", index));
    if (model->device == first->device)
        return FYT_FAIL(DEVICE_MISMATCH,
                        "%s: model %zu is on %s as model 0 is: fy_copy is enough there", call,
                        index, fy_device_name(model->device));
    return FY_STATUS_OK;
}

static fy_status_t check_models(size_t count, fy_model_t *const *models, const char *call)
{
    if (!count || !models) return FYT_FAIL(INVALID_ARGUMENT, "%s: no models", call);
    for (size_t i = 0; i < count; i++) {
        if (!models[i]) return FYT_FAIL(INVALID_ARGUMENT, "%s: model %zu is NULL", call, i);
        if (i) FY_TRY(check_form(models[0], models[i], call, i));
    }
    return FY_STATUS_OK;
}

static fy_status_t send_buffers(size_t count, fy_model_t *const *models)
{
    for (size_t i = 1; i < count && models[0]->nbuffers; i++)
        FY_TRY(fy_tensor_send_into(models[i]->buffer_values, models[0]->buffer_values, NULL, NULL));
    return FY_STATUS_OK;
}

fy_status_t fy_models_replicate(size_t count, fy_model_t *const *models)
{
    FY_TRY(check_models(count, models, "models_replicate"));
    for (size_t i = 1; i < count; i++)
        FY_TRY(fy_tensor_send_into(models[i]->values, models[0]->values, NULL, NULL));
    return send_buffers(count, models);
}

fy_status_t fy_models_replicate_buffers(size_t count, fy_model_t *const *models)
{
    FY_TRY(check_models(count, models, "models_replicate_buffers"));
    return send_buffers(count, models);
}

static fy_status_t upload_shard(fy_tensor_t *x, int64_t begin, int64_t end, fy_device_t *device,
                                fy_tensor_t **out_shard)
{
    fy_tensor_t *rows;
    FY_TRY(fy_slice(x, 0, begin, end, &rows));
    const fy_status_t status = fy_tensor_upload(rows, device, NULL, out_shard);
    fy_tensor_destroy(rows);
    return status;
}

fy_status_t fy_batch_split(const fy_tensor_t *x, size_t count, fy_device_t *const *devices,
                           fy_tensor_t **out_shards)
{
    if (!out_shards || !x || !devices || !count)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "batch_split: x, devices or out_shards is NULL, or there are none");
    memset(out_shards, 0, count * sizeof *out_shards);
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(x, &info));
    if (!info.rank || info.dims[0] < (int64_t)count)
        return FYT_FAIL(SHAPE_MISMATCH,
                        "batch_split: %lld rows for %zu devices: each gets one at least",
                        info.rank ? (long long)info.dims[0] : 0LL, count);
    const int64_t share = info.dims[0] / (int64_t)count, larger = info.dims[0] % (int64_t)count;
    fy_status_t status = FY_STATUS_OK;
    int64_t begin = 0;
    for (size_t i = 0; i < count && status == FY_STATUS_OK; i++) {
        const int64_t end = begin + share + ((int64_t)i < larger);
        /* a view, for reading only */
        status = upload_shard((fy_tensor_t *)x, begin, end, devices[i], &out_shards[i]);
        begin = end;
    }
    for (size_t i = 0; i < count && status != FY_STATUS_OK; i++) {
        fy_tensor_destroy(out_shards[i]);
        out_shards[i] = NULL;
    }
    return status;
}
