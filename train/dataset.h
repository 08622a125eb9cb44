/* Inside of a data set, shared by the files dataset*.c and loader*.c. Not public. Next:
 * dataset.c. */
#ifndef FERRY_TRAIN_DATASET_INTERNAL_H_
#define FERRY_TRAIN_DATASET_INTERNAL_H_

#include <ferry/train/dataset.h>

#include <stdatomic.h>

#include "inflate.h"
#include "table.h"

/* Never changed once it is made but for the count, so threads read it without a lock. */
struct fy_dataset {
    atomic_uint holders;   /* references: the caller, loaders, parts; the last one frees it */
    fy_dataset_t *root;    /* the set whose memory this one shares; NULL: own memory */
    unsigned char *data;   /* of sample 0, or with `rows` of the root's */
    unsigned char *labels; /* the same; int32_t or float */
    uint64_t *rows;        /* where sample i is; NULL: at i */
    size_t sample_nbytes, label_nbytes;
    fy_dataset_info_t info;
};

/* Of the root when it is made. On OK the set owns `data` and `labels` (from malloc), on failure the
 * caller does. */
fy_status_t fyt_dataset_new(const fy_dataset_info_t *info, void *data, void *labels,
                            fy_dataset_t **out_dataset);
/* Bytes of a sample and of its label; all sizes are checked. Fails: INVALID_ARGUMENT (`what` names
 * the caller in the text). */
fy_status_t fyt_dataset_sizes(const char *what, const fy_dataset_info_t *info,
                              size_t *out_sample_nbytes, size_t *out_label_nbytes);
/* The dtype and the shape of the labels of `count` samples. */
fy_dtype_t fyt_dataset_labels(const fy_dataset_info_t *info, int64_t count, int *out_rank,
                              int64_t out_dims[2]);
/* NULL becomes the defaults. Fails: INVALID_ARGUMENT. */
fy_status_t fyt_dataset_options_check(const fy_dataset_options_t *options,
                                      fy_dataset_options_t *out_checked);

static inline fy_dataset_t *fyt_dataset_hold(const fy_dataset_t *dataset)
{
    fy_dataset_t *own = (fy_dataset_t *)dataset;
    atomic_fetch_add_explicit(&own->holders, 1, memory_order_relaxed);
    return own;
}
static inline uint64_t fyt_dataset_row(const fy_dataset_t *dataset, uint64_t index)
{
    return dataset->rows ? dataset->rows[index] : index;
}
static inline const unsigned char *fyt_dataset_sample(const fy_dataset_t *dataset, uint64_t index)
{
    return dataset->data + fyt_dataset_row(dataset, index) * dataset->sample_nbytes;
}
static inline const unsigned char *fyt_dataset_label(const fy_dataset_t *dataset, uint64_t index)
{
    return dataset->labels + fyt_dataset_row(dataset, index) * dataset->label_nbytes;
}

/* The readers of the public calls, on bytes that may be in memory: the entry points for fuzzing. */
fy_status_t fyt_dataset_parse_idx(fyt_source_t *images, fyt_source_t *labels,
                                  const fy_dataset_options_t *options, fy_dataset_t **out_dataset);
fy_status_t fyt_dataset_parse_text(fyt_source_t *source, int64_t context, uint64_t max_samples,
                                   fy_dataset_t **out_dataset);
typedef struct fyt_cifar10 {
    uint64_t samples, room; /* kept, and room for */
    uint64_t max_samples;
    unsigned char *data;
    int32_t *labels;
} fyt_cifar10_t;
/* Appends one file's records; all of them are checked. */
fy_status_t fyt_cifar10_parse(fyt_cifar10_t *set, fyt_source_t *source);
/* Transfers the collected data to a new set, or (out_dataset NULL) frees it. */
fy_status_t fyt_cifar10_finish(fyt_cifar10_t *set, fy_dataset_t **out_dataset);

/* How many bytes a record of CIFAR-10 has: a label, and a plane of 32 x 32 for each of three
 * channels. */
#define FYT_CIFAR10_SIDE   32
#define FYT_CIFAR10_PLANE  (FYT_CIFAR10_SIDE * FYT_CIFAR10_SIDE)
#define FYT_CIFAR10_RECORD (1 + 3 * FYT_CIFAR10_PLANE)

#endif
