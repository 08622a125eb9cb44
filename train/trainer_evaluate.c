/* Mean loss and share of right answers over a data set, without gradients. */
#include "trainer.h"

#include <math.h>
#include <string.h>

#include "train/loader.h"
#include "train/model.h"

/* Both sums are f64, whatever the model is: they are exact counts, and sums of many terms. */
typedef struct sums {
    fy_tensor_t *both, *loss, *right; /* [2] and its two elements, rank 0 */
    double labels_each;               /* of one sample */
    int has_classes;
} sums_t;

/* The shape of one label must be that of the result, for classes without its last axis. */
static fy_status_t check_labels(const char *what, const fy_model_info_t *model,
                                const fy_dataset_info_t *data, fy_loss_kind_t kind)
{
    char got[FYT_SHAPE_TEXT], want[FYT_SHAPE_TEXT];
    const int takes_classes = kind != FY_LOSS_MSE;
    const int64_t scores = model->out_rank > 0 ? model->out_dims[model->out_rank - 1] : 1;
    const int rank = model->out_rank - takes_classes;
    int64_t labels[2], result[FY_MAX_RANK] = { 0 };
    int with_batch;
    if ((data->classes > 0) != takes_classes)
        return FYT_FAIL(DTYPE_MISMATCH, "%s: the data set has %s, and the loss takes %s", what,
                        data->classes ? "classes (i32)" : "target values (f32)",
                        takes_classes ? "classes: use FY_LOSS_MSE, or labels of i32"
                                      : "target values: use FY_LOSS_CROSS_ENTROPY or FY_LOSS_NLL");
    if (data->classes > scores)
        return FYT_FAIL(BAD_VALUE,
                        "%s: the labels of the data set reach %d (%d classes), but model '%s' "
                        "gives %lld scores a sample (labels 0 .. %lld)\n"
                        "  Check the label file, or use a model with %d outputs",
                        what, data->classes - 1, data->classes, model->name, (long long)scores,
                        (long long)scores - 1, data->classes);
    fyt_dataset_labels(data, 0, &with_batch, labels);
    if (with_batch == rank + 1 && (rank == 0 || labels[1] == model->out_dims[0]))
        return FY_STATUS_OK;
    memcpy(result + 1, model->out_dims, (size_t)model->out_rank * sizeof *result);
    return FYT_FAIL(SHAPE_MISMATCH, "%s: the labels of the data set are %s; model '%s' gives %s%s",
                    what, fyt_shape_text(got, with_batch, labels), model->name,
                    fyt_shape_text(want, model->out_rank + 1, result),
                    takes_classes ? ", whose last axis has the scores" : "");
}

fy_status_t fyt_loader_check(const char *what, const fy_model_t *model, const fy_loader_t *loader,
                             fy_loss_kind_t kind)
{
    char got[FYT_SHAPE_TEXT], want[FYT_SHAPE_TEXT];
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    int64_t x[FY_MAX_RANK] = { 0 }, takes[FY_MAX_RANK] = { 0 };
    int rank;
    FY_TRY(fy_model_query(model, &info));
    fyt_loader_sample(loader, &rank, x + 1);
    memcpy(takes + 1, model->dims, (size_t)model->rank * sizeof *takes);
    if (loader->device != model->device)
        return FYT_FAIL(DEVICE_MISMATCH, "%s: the loader is on %s, model '%s' on %s", what,
                        fy_device_name(loader->device), model->name, fy_device_name(model->device));
    if (rank != model->rank || memcmp(x, takes, sizeof x) != 0)
        return FYT_FAIL(SHAPE_MISMATCH, "%s: the loader gives x %s, model '%s' takes %s", what,
                        fyt_shape_text(got, rank + 1, x), model->name,
                        fyt_shape_text(want, model->rank + 1, takes));
    return check_labels(what, &info, &loader->dataset->info, kind);
}

static fy_status_t make_sums(fy_device_t *device, sums_t *sums)
{
    FY_TRY(fy_zeros(device, FY_DTYPE_F64, FY_DIMS(2), &sums->both));
    FY_TRY(fyt_select(sums->both, 0, 0, &sums->loss));
    return fyt_select(sums->both, 0, 1, &sums->right);
}

static fy_status_t add_right(sums_t *sums, fy_tensor_t *result, fy_tensor_t *target)
{
    fy_tensor_t *answer, *expected, *is_right, *count;
    FY_TRY(fy_argmax(result, -1, 0, &answer));
    FY_TRY(fy_cast(target, FY_DTYPE_I64, &expected));
    FY_TRY(fy_eq(answer, expected, &is_right));
    FY_TRY(fy_sum(is_right, FY_ALL_AXES, 0, &count));
    FY_TRY(fy_cast(count, FY_DTYPE_F64, &count));
    return fy_axpy(sums->right, 1, count);
}

static fy_status_t add_batch(fy_model_t *model, fy_loss_kind_t kind, fy_tensor_t *x, fy_tensor_t *y,
                             sums_t *sums)
{
    fy_tensor_t *result, *loss;
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT, target = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(x, &info));
    FY_TRY(fy_tensor_query(y, &target));
    sums->has_classes = target.dtype == FY_DTYPE_I32;
    sums->labels_each = 1;
    for (int i = 1; i < target.rank; i++) sums->labels_each *= (double)target.dims[i];
    if (info.dims[0] == 0) return FY_STATUS_OK; /* a shard of a short batch */
    FY_TRY(fy_model_forward(model, x, &result));
    FY_TRY(fyt_loss(kind, result, y, &loss));
    FY_TRY(fy_cast(loss, FY_DTYPE_F64, &loss));
    FY_TRY(fy_axpy(sums->loss, (double)info.dims[0], loss));
    return sums->has_classes ? add_right(sums, result, y) : FY_STATUS_OK;
}

/* *out_more is 0 at the end of the epoch. */
static fy_status_t next_batch(fy_model_t *model, fy_loader_t *loader, fy_loss_kind_t kind,
                              sums_t *sums, int *out_more)
{
    fy_tensor_t *x, *y;
    fy_scope_t scope = fy_scope_begin("batch");
    fy_status_t status = fy_loader_next(loader, &x, &y);
    *out_more = status == FY_STATUS_OK && x;
    if (*out_more) status = add_batch(model, kind, x, y, sums);
    fy_scope_end(scope, 0, NULL);
    return status;
}

/* Samples of an epoch: of all shards, or of the loader's. */
static double count_samples(const fy_loader_info_t *data, int is_all)
{
    const fyt_rows_t full = fyt_rows_of(data, 0), last = fyt_rows_of(data, data->steps - 1);
    return (double)(data->steps - 1) * (double)(is_all ? full.all : full.own) +
           (double)(is_all ? last.all : last.own);
}

static fy_status_t evaluate(fy_model_t *model, fy_loader_t *loader, fy_loss_kind_t kind,
                            const fy_train_replicas_t *replicas, double *out_loss,
                            double *out_accuracy)
{
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    fy_loader_info_t data = FY_LOADER_INFO_INIT;
    sums_t sums = { 0 };
    int more = 1;
    fy_download_t *reply;
    fy_tensor_t *host;
    void *values;
    FY_TRY(fy_model_query(model, &info));
    FY_TRY(fy_tape_begin(NULL)); /* nothing is kept for gradients */
    FY_TRY(make_sums(info.device, &sums));
    FY_TRY(fy_loader_seek(loader, 0, 0)); /* the same batches each time */
    while (more) FY_TRY(next_batch(model, loader, kind, &sums, &more));
    if (replicas) FY_TRY(replicas->sum(replicas->user, sums.both));
    FY_TRY(fy_loader_query(loader, &data));
    const double samples = count_samples(&data, replicas != NULL);
    FY_TRY(fy_tensor_download(sums.both, NULL, &reply));
    FY_TRY(fy_download_wait(reply, FY_FOREVER, &host));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_READ, &values));
    if (out_loss) *out_loss = ((const double *)values)[0] / samples;
    if (out_accuracy)
        *out_accuracy = sums.has_classes
                            ? ((const double *)values)[1] / (samples * sums.labels_each)
                            : (double)NAN;
    return FY_STATUS_OK;
}

fy_status_t fyt_evaluate(fy_model_t *model, fy_loader_t *loader, fy_loss_kind_t loss,
                         const fy_train_replicas_t *replicas, double *out_loss,
                         double *out_accuracy)
{
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    fy_loader_info_t place = FY_LOADER_INFO_INIT;
    if (!model || !loader)
        return FYT_FAIL(INVALID_ARGUMENT, "train_evaluate: model or loader is NULL");
    FY_TRY(fy_model_query(model, &info));
    FY_TRY(fy_loader_query(loader, &place));
    FY_TRY(fyt_loader_check("train_evaluate", model, loader, loss));
    fy_model_set_training(model, 0);
    fy_scope_t scope = fy_scope_begin("test");
    fy_status_t status = evaluate(model, loader, loss, replicas, out_loss, out_accuracy);
    fy_scope_end(scope, 0, NULL);
    fy_model_set_training(model, info.is_training);
    const fy_status_t restored = fy_loader_seek(loader, place.epoch, place.step);
    return status != FY_STATUS_OK ? status : restored;
}

fy_status_t fy_train_evaluate(fy_model_t *model, fy_loader_t *loader, fy_loss_kind_t loss,
                              double *out_loss, double *out_accuracy)
{
    return fyt_evaluate(model, loader, loss, NULL, out_loss, out_accuracy);
}
