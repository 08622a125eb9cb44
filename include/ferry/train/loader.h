/* Loaders: the batches of a data set on a device, in an order that depends only on the seed and the
 * epoch. Resident: the whole set is uploaded once, and batches are gathered on the device.
 * Streamed: worker threads fill each batch on the host, page-locked; it is uploaded while the
 * device works on the batch before. Both give the same samples in the same order. */
#ifndef FERRY_TRAIN_LOADER_H_
#define FERRY_TRAIN_LOADER_H_

#include <ferry/train/dataset.h>

#ifdef __cplusplus
extern "C" {
#endif

/* owned by the caller, never by a scope; used by one thread at a time */
typedef struct fy_loader fy_loader_t;

#define FY_LOADER_CHANNELS 4

typedef struct fy_loader_options {
    size_t struct_size;
    int64_t batch; /* samples */
    int drop_last; /* 1: a last batch that is not full is left out */
    /* 1: a different order each epoch: the result of the epoch-th fy_randperm of
     * fy_rng_create(seed); 0: the order of the set */
    int shuffle;
    int64_t seed;
    /* 1: the set is uploaded once, in its own dtype, as one upload of samples and one of labels,
     * and converted to F32 there; 0: each batch is uploaded */
    int resident;
    /* threads that fill batches, 0 .. 16; 0: fy_loader_next fills them, or the set is
     * resident */
    int workers;
    int depth; /* batches ahead of the one in use, 1 .. 64 */
    /* x = (sample * scale - mean[c]) / std[c], c the last axis; 1/255 for pixels. Tokens (I32): 1,
     * and no channels */
    double scale;
    int channels; /* of mean and std: 0 (none), 1 (for all), or the length of the last axis */
    double mean[FY_LOADER_CHANNELS], std[FY_LOADER_CHANNELS];
    /* Images [H, W, C] of a set that is not resident, changed by the threads that fill batches,
     * before `scale`, in this order; in pixels, 0: off. U8 stays U8, rounded to nearest */
    int64_t resize; /* to resize x resize: bilinear, as fy_resize2d */
    int64_t pad;    /* zeros at each of the four sides */
    int64_t crop;   /* crop x crop */
    int flip;       /* 1: half of the images are mirrored left to right */
    /* 1: the place of the crop and the mirroring are drawn by Philox4x32-10 from `seed`, the epoch
     * and the sample's index: the same for any number of workers. 0, as for evaluation: the centre,
     * not mirrored */
    int augment;
    /* Several processes share each batch: `batch` counts the samples of all of them. Of a batch's n
     * samples this loader yields [n * rank / ranks, n * (rank + 1) / ranks), which may be none:
     * then x and y have 0 rows. ranks 0, 1: all */
    int rank, ranks;
} fy_loader_options_t;
#define FY_LOADER_OPTIONS_INIT                                                                    \
    FY_DEFAULTS_(loader_options, .batch = 64, .shuffle = 1, .seed = 1, .resident = 1, .depth = 2, \
                 .scale = 1.0, .std = { 1, 1, 1, 1 })
FY_API void fy_loader_options_init(fy_loader_options_t *options, size_t nbytes);

/* Allocates everything once: a steady loop makes no device allocation. The set may be destroyed
 * afterwards. options may be NULL.
 * Resident: 4 bytes for each pixel, target and label stay on the device, and 8 for each sample;
 * during the call the uploaded bytes as well. Streamed: depth + 1 batches, page-locked and on the
 * device. A batch is two uploads, in the scope open here with its guards (workers 0: in the scope
 * open in fy_loader_next), from the first fy_loader_next on.
 * Fails: INVALID_ARGUMENT (batch < 1, more than 16 workers, std 0, 2^32 samples, a crop
 * larger than the image, ...),
 * OUT_OF_MEMORY, PINNED_LIMIT, REFUSED_BY_GUARD. */
FY_API_STATUS fy_loader_create(fy_device_t *device, const fy_dataset_t *dataset,
                               const fy_loader_options_t *options, fy_loader_t **out_loader);
/* Moves to batch `step` of `epoch`, both from 0: the next batches are the same as after all earlier
 * batches of that epoch. A new loader is at 0, 0. If step is the number of batches, the end of the
 * epoch comes next. Batches that a streamed loader has filled are dropped. Light requests only.
 * Fails: INVALID_ARGUMENT (a larger step), UNAVAILABLE (streamed, in a forked child). */
FY_API_STATUS fy_loader_seek(fy_loader_t *loader, int64_t epoch, int64_t step);
/* Limits a streamed loader to `batches` further batches: batches before the limit are filled ahead,
 * across ends of epochs, later ones are not. So the uploads match the requested batches to the
 * byte. 0, the value of a new loader and after a seek: only batches of the current epoch are filled
 * ahead. Requests above the limit succeed: those batches are filled one at a time. No effect on a
 * resident set.
 * Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_loader_limit(fy_loader_t *loader, int64_t batches);
/* The next batch of this epoch on the device: x F32 [n, dims...] normalised, or I32 tokens; y I32
 * [n] or [n, labels], or F32 [n, targets]; n = batch except for the last one. Both belong to the
 * scope, or to you; streamed, their bytes are valid until the next call.
 * At the end of the epoch both are NULL, once, and the next epoch follows. A worker's failure is
 * returned for its batch; the next call continues after it. Resident: two light requests; the first
 * batch of an epoch also draws the order.
 * Fails: as requests; UNSUPPORTED (while a graph is recorded: a replay would repeat the same
 * batch); streamed also UNAVAILABLE (in a forked child). */
FY_API_STATUS fy_loader_next(fy_loader_t *loader, fy_tensor_t **out_x, fy_tensor_t **out_y);

typedef struct fy_loader_info {
    size_t struct_size;
    uint64_t samples;
    int64_t batch, steps; /* steps: batches an epoch */
    int64_t epoch, step;  /* of the next batch */
    int is_resident, workers;
    int64_t seed; /* of the order */
    /* of the data set: labels are 0 .. classes - 1; classes 0: a sample has `targets` values
     * instead of a label */
    int classes, targets;
    int rank; /* of one sample of x, as batches have it: after resize, pad and crop */
    int64_t dims[FY_MAX_RANK];
    int shard, shards; /* rank and ranks of the options; 0 of 1: all samples */
} fy_loader_info_t;
#define FY_LOADER_INFO_INIT FY_ZEROED_(loader_info)
FY_API_STATUS fy_loader_query(const fy_loader_t *loader, fy_loader_info_t *out_info);
/* Stops the workers. The memory is freed after its last use. NULL is ignored. */
FY_API void fy_loader_destroy(fy_loader_t *loader);

#ifdef __cplusplus
}
#endif
#endif
