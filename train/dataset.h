/* Inside of a data set, shared by the files dataset*.c and loader*.c. Not public. Next:
 * dataset.c. */
#ifndef FERRY_TRAIN_DATASET_INTERNAL_H_
#define FERRY_TRAIN_DATASET_INTERNAL_H_

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>
#include <ferry/train/dataset.h>

#include "runtime/base/input.h"
#include "table.h"

/* ---- inflate.c: the bytes of a file, or of memory that replaces one, in order; inflated if they
 * are gzip (the content decides). The readers use this, so that they can be tested without a file
 * system ---- */

typedef struct fyt_source {
    const char *name;  /* borrowed; the file in errors */
    fy__input_t input; /* of a file */
    /* of a file, a piece of it; NULL: all bytes are in memory, and the caller's */
    unsigned char *buffer;
    const unsigned char *bytes; /* stored, and not taken: `here` of them */
    size_t here;
    uint64_t nbytes;      /* stored bytes; FY__INPUT_UNKNOWN: a pipe */
    uint64_t taken;       /* stored bytes that were returned or inflated */
    uint64_t position;    /* bytes that were returned */
    uint64_t max_nbytes;  /* limit of the bytes that are returned, or read */
    struct z_stream_s *z; /* NULL: not compressed */
    int is_over;          /* the compressed stream has ended, with the right checksum */
} fyt_source_t;

/* Zeroed is closed; closing twice does nothing. `path` is borrowed until close. Takes memory for a
 * small piece of the file.
 * Fails: IO (neither a file nor a pipe, among others), CORRUPT_DATA (more than max_nbytes; a
 * regular file is refused by its size before it is read), OUT_OF_MEMORY. */
fy_status_t fyt_source_open_file(const char *path, uint64_t max_nbytes, fyt_source_t *out_source);
/* `bytes` and `name` are borrowed until close. */
fy_status_t fyt_source_open_bytes(const void *bytes, uint64_t nbytes, const char *name,
                                  uint64_t max_nbytes, fyt_source_t *out_source);
void fyt_source_close(fyt_source_t *source);

/* No more than so many bytes can still come: exact if they are not compressed, else by deflate's
 * best ratio; UINT64_MAX of a pipe. For asking before allocating. */
uint64_t fyt_source_at_most(const fyt_source_t *source);
/* So many will come. */
int fyt_source_is_exact(const fyt_source_t *source);
/* The next nbytes; *out_nread is less at the end only. Fails: IO, CORRUPT_DATA (no valid gzip, or
 * more than max_nbytes). */
fy_status_t fyt_source_read(fyt_source_t *source, void *dst, uint64_t nbytes, uint64_t *out_nread);

/* ---- data sets ---- */

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

/* Makes a root, if `status` is OK. `data` and `labels` (from malloc, or NULL) are transferred: a
 * failure, also that of `status`, frees them. */
fy_status_t fyt_dataset_new(fy_status_t status, const fy_dataset_info_t *info, void *data,
                            void *labels, fy_dataset_t **out_dataset);
/* Bytes of a sample and of its label; all sizes are checked. Fails: INVALID_ARGUMENT (`what` names
 * the caller in the text). */
fy_status_t fyt_dataset_sizes(const char *what, const fy_dataset_info_t *info,
                              size_t *out_sample_nbytes, size_t *out_label_nbytes);
/* The dtype and the shape of the labels of `count` samples. */
fy_dtype_t fyt_dataset_labels(const fy_dataset_info_t *info, int64_t count, int *out_rank,
                              int64_t out_dims[2]);

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

/* ---- the order of samples: drawn by fy_randperm from a seed and an epoch, the same bits on every
 * device ---- */

/* i64 [count] on `device`, in the current scope: the permutation of the epoch-th fy_randperm (from
 * 0) on fy_rng_create(device, seed), without drawing the earlier ones. Light requests only. Fails:
 * INVALID_ARGUMENT (2^32 samples or more), as requests do. */
fy_status_t fyt_order_make(fy_device_t *device, int64_t seed, int64_t epoch, uint64_t count,
                           fy_tensor_t **out_order);
/* The same numbers in memory of the caller. */
fy_status_t fyt_order_read(int64_t seed, int64_t epoch, uint64_t count, int64_t *out_order);

#endif
