/* Data sets: samples and their labels in host memory, read from standard file formats or generated
 * in the same formats. A data set never changes after it is made, so several loaders and threads
 * may read one. Nothing here uses a device; loader.h does. */
#ifndef FERRY_TRAIN_DATASET_H_
#define FERRY_TRAIN_DATASET_H_

#include <ferry/train/table.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fy_dataset fy_dataset_t; /* owned by the caller, never by a scope */

typedef struct fy_dataset_info {
    size_t struct_size;
    uint64_t samples;
    int rank;                  /* of one sample */
    int64_t dims[FY_MAX_RANK]; /* [28, 28, 1] (H, W, C), [5] */
    fy_dtype_t dtype;          /* U8 (pixels, 0 .. 255), F32, or I32 (tokens) */
    /* labels are I32, 0 .. classes - 1; 0: the labels are targets, F32 [targets] */
    int classes;
    int targets;    /* of a regression; 0 if there are classes */
    int64_t labels; /* of a sample with classes: I32 [labels]; 0: one, of rank 0 */
} fy_dataset_info_t;
#define FY_DATASET_INFO_INIT FY_ZEROED_(dataset_info)

typedef struct fy_dataset_options {
    size_t struct_size;
    /* of a file's inflated contents; more is refused, also when a small file inflates to it */
    uint64_t max_nbytes;
    uint64_t max_samples; /* keeps only the first samples, this many; 0: all. The whole files are
                           * checked */
} fy_dataset_options_t;
#define FY_DATASET_OPTIONS_INIT FY_DEFAULTS_(dataset_options, .max_nbytes = 4ull << 30)
FY_API void fy_dataset_options_init(fy_dataset_options_t *options, size_t nbytes);

/* Images and labels in IDX files (LeCun, "The MNIST database": two zero bytes, the type, the rank,
 * big-endian sizes, data), gzip or not, detected by content. Images: unsigned bytes, rank 3 [n, H,
 * W] or 4 [n, H, W, C]; labels: unsigned bytes, rank 1 [n]. classes is the largest label + 1. Sizes
 * are checked against the file's real length first. options may be NULL.
 * Fails: IO, CORRUPT_DATA (names the place and the expected content), OUT_OF_MEMORY,
 * INVALID_ARGUMENT. Nothing partial is returned. */
FY_API_STATUS fy_dataset_read_idx(const char *images_path, const char *labels_path,
                                  const fy_dataset_options_t *options, fy_dataset_t **out_dataset);
/* `count` files in CIFAR-10's binary format, in order, gzip or not: records of 3073 bytes, a label
 * 0 .. 9 and three planes of 32 x 32 pixels. In memory they are [32, 32, 3]. Fails as above. */
FY_API_STATUS fy_dataset_read_cifar10(size_t count, const char *const *paths,
                                      const fy_dataset_options_t *options,
                                      fy_dataset_t **out_dataset);
/* Text as bytes, gzip or not. Sample i is I32 [context], bytes i * context to (i + 1) * context - 1
 * of the file; its labels, I32 [context], are the byte after each. 256 classes. The last bytes, too
 * few for a sample and its labels, are left out.
 * Fails: INVALID_ARGUMENT (context outside 1 .. 2^24), IO, CORRUPT_DATA (fewer than context + 1
 * bytes), OUT_OF_MEMORY. */
FY_API_STATUS fy_dataset_read_text(const char *path, int64_t context,
                                   const fy_dataset_options_t *options, fy_dataset_t **out_dataset);
/* Makes a data set from a table. The last `targets` columns are the labels, the others the
 * features. Copied, rounded to F32.
 * Fails: INVALID_ARGUMENT (fewer than targets + 1 columns), OUT_OF_MEMORY. */
FY_API_STATUS fy_dataset_from_table(const fy_table_t *table, int targets,
                                    fy_dataset_t **out_dataset);
/* A copy of your samples and labels: info has their number and form; data is [samples, dims...] of
 * info->dtype, labels is int32_t [samples] or [samples, labels], or float [samples, targets].
 * Fails: INVALID_ARGUMENT, BAD_VALUE (a label outside 0 .. classes - 1), OUT_OF_MEMORY. */
FY_API_STATUS fy_dataset_create(const fy_dataset_info_t *info, const void *data, const void *labels,
                                fy_dataset_t **out_dataset);

/* Generated images that a network can learn, for use without data: digits [28, 28, 1] drawn as
 * strokes with random place, size, slant, thickness and noise, with labels 0 to 9 in sequence. The
 * same seed gives the same bytes on every machine.
 * Fails: INVALID_ARGUMENT (no samples), OUT_OF_MEMORY. */
FY_API_STATUS fy_dataset_synthetic_digits(uint64_t samples, uint64_t seed,
                                          fy_dataset_t **out_dataset);
/* The same as colour images [32, 32, 3]: the digit in one colour on a background of another. */
FY_API_STATUS fy_dataset_synthetic_images(uint64_t samples, uint64_t seed,
                                          fy_dataset_t **out_dataset);
/* `nbytes` of English sentences from a small grammar, as fy_dataset_read_text's samples.
 * Fails: INVALID_ARGUMENT (also nbytes < context + 1), OUT_OF_MEMORY. */
FY_API_STATUS fy_dataset_synthetic_text(uint64_t nbytes, int64_t context, uint64_t seed,
                                        fy_dataset_t **out_dataset);

/* The training or test part of a known set in `directory` or directory/NAME: name "mnist" (the four
 * IDX files under their usual names, with or without .gz), "cifar10" (data_batch_*.bin,
 * test_batch.bin, with or without .gz), "airfoil" (airfoil_self_noise.dat, standardised over all
 * rows; the first 1500 train, the last 3 test). directory NULL: generated, 10000 and 2000 samples
 * ("airfoil": fy_table_synthetic).
 * Fails: INVALID_ARGUMENT (unknown name: lists the known), UNAVAILABLE (the files are not there:
 * names those that it searched), IO (they, or some of them, are, but cannot be read), CORRUPT_DATA,
 * OUT_OF_MEMORY. */
FY_API_STATUS fy_dataset_open(const char *name, const char *directory, int is_test,
                              fy_dataset_t **out_dataset);

/* Writes U8 samples with classes in the format that read_idx reads, uncompressed. Complete files or
 * none (written to a temporary name, then renamed).
 * Fails: INVALID_ARGUMENT (a set of another form), IO. */
FY_API_STATUS fy_dataset_write_idx(const fy_dataset_t *dataset, const char *images_path,
                                   const char *labels_path);
/* The same for sets of [32, 32, 3] with at most 10 classes. */
FY_API_STATUS fy_dataset_write_cifar10(const fy_dataset_t *dataset, const char *path);

/* Two sets that share this one's memory, which is freed with the last of the three: `first` random
 * samples (the order depends on the seed; seed < 0: the first ones in order), and the others.
 * Fails: INVALID_ARGUMENT (more than the set has), OUT_OF_MEMORY. */
FY_API_STATUS fy_dataset_split(const fy_dataset_t *dataset, uint64_t first, int64_t seed,
                               fy_dataset_t **out_first, fy_dataset_t **out_rest);

FY_API_STATUS fy_dataset_query(const fy_dataset_t *dataset, fy_dataset_info_t *out_info);
/* Copies sample `index` (nbytes of one sample by info) and its label; either pointer may be NULL.
 * Fails: INVALID_ARGUMENT (out of range). */
FY_API_STATUS fy_dataset_get(const fy_dataset_t *dataset, uint64_t index, void *out_sample,
                             void *out_label);
/* NULL is ignored. Loaders keep the data that they use. */
FY_API void fy_dataset_destroy(fy_dataset_t *dataset);

#ifdef __cplusplus
}
#endif
#endif
