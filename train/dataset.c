/* Data sets: making, querying, reference counts, and splitting one into two that share its memory.
 * Not here: file formats (dataset_idx.c, dataset_cifar10.c, dataset_write.c), synthetic sets
 * (dataset_synthetic.c), known names (dataset_open.c). include/ferry/train/dataset.h documents each
 * call. */
#include "dataset.h"

#include <ferry/device.h>
#include <ferry/ops.h>
#include <ferry/scope.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "train/abi.h"

/* Labels of a sample with classes. */
static size_t label_count(const fy_dataset_info_t *info)
{
    return info->labels ? (size_t)info->labels : 1;
}

fy_dtype_t fyt_dataset_labels(const fy_dataset_info_t *info, int64_t count, int *out_rank,
                              int64_t out_dims[2])
{
    *out_rank = info->classes && !info->labels ? 1 : 2;
    out_dims[0] = count;
    out_dims[1] = info->classes ? info->labels : info->targets;
    return info->classes ? FY_DTYPE_I32 : FY_DTYPE_F32;
}

fy_status_t fyt_dataset_sizes(const char *what, const fy_dataset_info_t *info,
                              size_t *out_sample_nbytes, size_t *out_label_nbytes)
{
    uint64_t nbytes = fy_dtype_size(info->dtype), all, labels;
    if (info->rank < 0 || info->rank >= FY_MAX_RANK)
        return FYT_FAIL(INVALID_ARGUMENT, "%s: rank is %d; of one sample it may be 0 to %d", what,
                        info->rank, FY_MAX_RANK - 1);
    if (info->dtype != FY_DTYPE_U8 && info->dtype != FY_DTYPE_F32 && info->dtype != FY_DTYPE_I32)
        return FYT_FAIL(INVALID_ARGUMENT, "%s: samples of %s; they may be u8, f32 or i32", what,
                        fy_dtype_name(info->dtype));
    if (info->classes < 0 || info->targets < 0 || !info->classes == !info->targets)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "%s: %d classes and %d targets; one of them is 0 and the other is not",
                        what, info->classes, info->targets);
    if (info->labels < 0 || (info->labels && !info->classes) || info->labels > INT32_MAX)
        return FYT_FAIL(
            INVALID_ARGUMENT,
            "%s: %lld labels a sample and %d classes; labels are 0 to %d, and 0 without "
            "classes",
            what, (long long)info->labels, info->classes, INT32_MAX);
    for (int i = 0; i < info->rank; i++)
        if (info->dims[i] < 1 || __builtin_mul_overflow(nbytes, (uint64_t)info->dims[i], &nbytes) ||
            nbytes > PTRDIFF_MAX)
            return FYT_FAIL(INVALID_ARGUMENT,
                            "%s: dims[%d] is %lld, which makes no sample that fits into memory",
                            what, i, (long long)info->dims[i]);
    *out_sample_nbytes = nbytes;
    *out_label_nbytes = info->classes ? label_count(info) * sizeof(int32_t)
                                      : (size_t)info->targets * sizeof(float);
    if (__builtin_mul_overflow(nbytes, info->samples, &all) ||
        __builtin_mul_overflow(*out_label_nbytes, info->samples, &labels) || all > PTRDIFF_MAX ||
        labels > PTRDIFF_MAX)
        return FYT_FAIL(INVALID_ARGUMENT, "%s: %llu samples of %llu bytes do not fit into memory",
                        what, (unsigned long long)info->samples, (unsigned long long)nbytes);
    return FY_STATUS_OK;
}

fy_status_t fyt_dataset_new(fy_status_t status, const fy_dataset_info_t *info, void *data,
                            void *labels, fy_dataset_t **out_dataset)
{
    size_t sample_nbytes = 0, label_nbytes = 0;
    fy_dataset_t *dataset = NULL;
    if (status == FY_STATUS_OK)
        status = fyt_dataset_sizes("dataset", info, &sample_nbytes, &label_nbytes);
    if (status == FY_STATUS_OK && !(dataset = calloc(1, sizeof *dataset)))
        status = FYT_FAIL(OUT_OF_MEMORY, "dataset: no host memory for %zu bytes", sizeof *dataset);
    if (status != FY_STATUS_OK) {
        free(data);
        free(labels);
        return status;
    }
    atomic_init(&dataset->holders, 1);
    dataset->data = data;
    dataset->labels = labels;
    dataset->sample_nbytes = sample_nbytes;
    dataset->label_nbytes = label_nbytes;
    dataset->info = *info;
    for (int i = info->rank; i < FY_MAX_RANK; i++) dataset->info.dims[i] = 0;
    *out_dataset = dataset;
    return FY_STATUS_OK;
}

fy_status_t fy_dataset_create(const fy_dataset_info_t *info, const void *data, const void *labels,
                              fy_dataset_t **out_dataset)
{
    FY_TRY(FYT_CLEAR_OUT("dataset_create", out_dataset));
    fy_dataset_info_t own;
    FY_TRY(FY__READ_GIVEN(dataset_info, "dataset_create", info, &own));
    info = &own;
    size_t sample_nbytes, label_nbytes;
    FY_TRY(fyt_dataset_sizes("dataset_create", info, &sample_nbytes, &label_nbytes));
    if (info->samples && (!data || !labels))
        return FYT_FAIL(INVALID_ARGUMENT, "dataset_create: %s is NULL, but there are %llu samples",
                        data ? "labels" : "data", (unsigned long long)info->samples);
    const size_t nlabels = label_count(info);
    for (uint64_t i = 0; info->classes && i < info->samples * nlabels; i++) {
        int32_t label = ((const int32_t *)labels)[i];
        if (label < 0 || label >= info->classes)
            return FYT_FAIL(
                BAD_VALUE,
                "dataset_create: label %d of sample %llu; with %d classes it may be 0 to %d", label,
                (unsigned long long)(i / nlabels), info->classes, info->classes - 1);
    }
    const uint64_t nbytes = info->samples * sample_nbytes,
                   labels_nbytes = info->samples * label_nbytes;
    void *own_data = malloc(nbytes ? nbytes : 1),
         *own_labels = malloc(labels_nbytes ? labels_nbytes : 1);
    fy_status_t status = FY_STATUS_OK;
    if (!own_data || !own_labels)
        status = FYT_FAIL(OUT_OF_MEMORY, "dataset_create: no host memory for %llu bytes",
                          (unsigned long long)(nbytes + labels_nbytes));
    if (status == FY_STATUS_OK && nbytes) {
        memcpy(own_data, data, nbytes);
        memcpy(own_labels, labels, labels_nbytes);
    }
    return fyt_dataset_new(status, info, own_data, own_labels, out_dataset);
}

fy_status_t fy_dataset_from_table(const fy_table_t *table, int targets, fy_dataset_t **out_dataset)
{
    FY_TRY(FYT_CLEAR_OUT("dataset_from_table", out_dataset));
    if (!table) return FYT_FAIL(INVALID_ARGUMENT, "dataset_from_table: table is NULL");
    if (targets < 1 || table->cols <= (uint64_t)targets || table->cols > INT_MAX)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "dataset_from_table: %d targets of %llu columns; there must be one target "
                        "and one column more",
                        targets, (unsigned long long)table->cols);
    const uint64_t inputs = table->cols - (uint64_t)targets;
    fy_dataset_info_t info = FY_DATASET_INFO_INIT;
    info.samples = table->rows;
    info.rank = 1;
    info.dims[0] = (int64_t)inputs;
    info.dtype = FY_DTYPE_F32;
    info.targets = targets;
    /* Half of the bytes of the table: they cannot overflow. */
    float *data = malloc((table->rows * inputs + 1) * sizeof(float)),
          *labels = malloc((table->rows * (uint64_t)targets + 1) * sizeof(float));
    fy_status_t status = FY_STATUS_OK;
    if (!data || !labels)
        status = FYT_FAIL(OUT_OF_MEMORY, "dataset_from_table: no host memory for %llu rows",
                          (unsigned long long)table->rows);
    for (uint64_t r = 0; status == FY_STATUS_OK && r < table->rows; r++) {
        const double *row = table->values + r * table->cols;
        for (uint64_t c = 0; c < inputs; c++) data[r * inputs + c] = (float)row[c];
        for (int c = 0; c < targets; c++)
            labels[r * (uint64_t)targets + (uint64_t)c] = (float)row[inputs + (uint64_t)c];
    }
    return fyt_dataset_new(status, &info, data, labels, out_dataset);
}

/* Samples begin .. begin + count - 1 of `order` (NULL: as they stand) of `dataset`. */
static fy_status_t make_part(const fy_dataset_t *dataset, const int64_t *order, uint64_t begin,
                             uint64_t count, fy_dataset_t **out_part)
{
    fy_dataset_t *part = calloc(1, sizeof *part);
    uint64_t *rows = order || dataset->rows ? malloc((count ? count : 1) * sizeof *rows) : NULL;
    if (!part || ((order || dataset->rows) && !rows)) {
        free(part);
        free(rows);
        return FYT_FAIL(OUT_OF_MEMORY,
                        "dataset_split: no host memory for the places of %llu samples",
                        (unsigned long long)count);
    }
    for (uint64_t i = 0; rows && i < count; i++)
        rows[i] = fyt_dataset_row(dataset, order ? (uint64_t)order[begin + i] : begin + i);
    atomic_init(&part->holders, 1);
    part->root = fyt_dataset_hold(dataset->root ? dataset->root : dataset);
    part->rows = rows;
    part->sample_nbytes = dataset->sample_nbytes;
    part->label_nbytes = dataset->label_nbytes;
    part->data = dataset->data + (rows ? 0 : begin * part->sample_nbytes);
    part->labels = dataset->labels + (rows ? 0 : begin * part->label_nbytes);
    part->info = dataset->info;
    part->info.samples = count;
    *out_part = part;
    return FY_STATUS_OK;
}

fy_status_t fy_dataset_split(const fy_dataset_t *dataset, uint64_t first, int64_t seed,
                             fy_dataset_t **out_first, fy_dataset_t **out_rest)
{
    if (out_first) *out_first = NULL;
    if (out_rest) *out_rest = NULL;
    if (!dataset || !out_first || !out_rest)
        return FYT_FAIL(INVALID_ARGUMENT, "dataset_split: %s is NULL",
                        !dataset    ? "dataset"
                        : out_first ? "out_rest"
                                    : "out_first");
    const uint64_t samples = dataset->info.samples;
    if (first > samples)
        return FYT_FAIL(INVALID_ARGUMENT, "dataset_split: the first %llu of %llu samples",
                        (unsigned long long)first, (unsigned long long)samples);
    int64_t *order = NULL;
    fy_dataset_t *parts[2] = { NULL, NULL };
    fy_status_t status = FY_STATUS_OK;
    if (seed >= 0 && samples) {
        order = malloc(samples * sizeof *order);
        status = order ? fyt_order_read(seed, 0, samples, order)
                       : FYT_FAIL(OUT_OF_MEMORY,
                                  "dataset_split: no host memory for the order of %llu samples",
                                  (unsigned long long)samples);
    }
    if (status == FY_STATUS_OK) status = make_part(dataset, order, 0, first, &parts[0]);
    if (status == FY_STATUS_OK)
        status = make_part(dataset, order, first, samples - first, &parts[1]);
    free(order);
    if (status != FY_STATUS_OK) {
        fy_dataset_destroy(parts[0]);
        return status;
    }
    *out_first = parts[0];
    *out_rest = parts[1];
    return FY_STATUS_OK;
}

fy_status_t fy_dataset_query(const fy_dataset_t *dataset, fy_dataset_info_t *out_info)
{
    if (!dataset || !out_info)
        return FYT_FAIL(INVALID_ARGUMENT, "dataset_query: %s is NULL",
                        dataset ? "out_info" : "dataset");
    FY_TRY(FY__CHECK_OUT(dataset_info, "dataset_query", out_info));
    FY__WRITE(out_info, &dataset->info);
    return FY_STATUS_OK;
}

fy_status_t fy_dataset_get(const fy_dataset_t *dataset, uint64_t index, void *out_sample,
                           void *out_label)
{
    if (!dataset) return FYT_FAIL(INVALID_ARGUMENT, "dataset_get: dataset is NULL");
    if (index >= dataset->info.samples)
        return FYT_FAIL(INVALID_ARGUMENT, "dataset_get: sample %llu of %llu",
                        (unsigned long long)index, (unsigned long long)dataset->info.samples);
    if (out_sample) memcpy(out_sample, fyt_dataset_sample(dataset, index), dataset->sample_nbytes);
    if (out_label) memcpy(out_label, fyt_dataset_label(dataset, index), dataset->label_nbytes);
    return FY_STATUS_OK;
}

void fy_dataset_destroy(fy_dataset_t *dataset)
{
    if (!dataset || atomic_fetch_sub_explicit(&dataset->holders, 1, memory_order_acq_rel) != 1)
        return;
    if (dataset->root) {
        fy_dataset_destroy(dataset->root);
    } else {
        free(dataset->data);
        free(dataset->labels);
    }
    free(dataset->rows);
    free(dataset);
}

/* ---- orders: one random permutation for each seed and epoch ----
 * A random state is {seed, counter}, and fy_randperm increments the counter by one. The order of an
 * epoch is drawn by setting the counter, so a resumed run does not repeat the epochs before. */

fy_status_t fyt_order_make(fy_device_t *device, int64_t seed, int64_t epoch, uint64_t count,
                           fy_tensor_t **out_order)
{
    fy_tensor_t *rng, *counter;
    *out_order = NULL;
    if (count > UINT32_MAX)
        return FYT_FAIL(INVALID_ARGUMENT, "an order of %llu samples; there may be 2^32 - 1",
                        (unsigned long long)count);
    fy_scope_t scope = fy_scope_begin("order");
    fy_status_t status = fy_rng_create(device, seed, &rng);
    if (status == FY_STATUS_OK && epoch) {
        status = fy_slice(rng, 0, 1, 2, &counter);
        if (status == FY_STATUS_OK) status = fy_fill(counter, (double)epoch);
    }
    if (status == FY_STATUS_OK) status = fy_randperm(rng, (int64_t)count, out_order);
    fy_scope_end(scope, 1, out_order);
    return status;
}

fy_status_t fyt_order_read(int64_t seed, int64_t epoch, uint64_t count, int64_t *out_order)
{
    fy_tensor_t *order;
    void *numbers;
    fy_scope_t scope = fy_scope_begin("order");
    fy_status_t status = fyt_order_make(fy_device_host(), seed, epoch, count, &order);
    if (status == FY_STATUS_OK) status = fy_tensor_map(order, FY_ACCESS_READ, &numbers);
    if (status == FY_STATUS_OK) memcpy(out_order, numbers, count * sizeof *out_order);
    fy_scope_end(scope, 0, NULL);
    return status;
}
