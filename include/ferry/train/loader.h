/* Loaders: the batches of a data set on a device, in an order that depends on nothing but the seed
 * and the epoch.
 * Two ways: the whole set goes up once and batches are gathered on the device (resident), or each
 * batch is filled on the host by worker threads, page-locked, and goes up while the device works on
 * the one before. Both give the same samples in the same order. */
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
    /* 1: another order each epoch: what the epoch-th fy_randperm of fy_rng_create(seed) gives; 0:
     * as they stand */
    int shuffle;
    int64_t seed;
    /* 1: the set goes up once, in its own dtype, as one upload of samples and one of labels, and
     * becomes F32 there;
     * 0: each batch goes up */
    int resident;
    /* threads that fill batches, 0 .. 16; 0: inside fy_loader_next. Not for resident sets */
    int workers;
    int depth;    /* batches ahead of the one in use, 1 .. 64 */
    double scale; /* x = (sample * scale - mean[c]) / std[c], c the last axis; 1/255 for pixels */
    int channels; /* of mean and std: 0 (none), 1 (for all), or as many as the last axis has */
    double mean[FY_LOADER_CHANNELS], std[FY_LOADER_CHANNELS];
} fy_loader_options_t;
#define FY_LOADER_OPTIONS_INIT                                                           \
    {                                                                                    \
        sizeof(fy_loader_options_t), 64, 0, 1, 1, 1, 0, 2, 1.0, 0, { 0 }, { 1, 1, 1, 1 } \
    }

/* Takes what it needs once: a steady loop makes no device allocation. The set may be destroyed
 * afterwards. options may be NULL.
 * Resident: as f32, so four bytes for each pixel and target stay on the device, four for each
 * label, eight a sample for the order; while it is made the uploaded bytes besides. Streamed: depth
 * + 1 batches, page-locked and on the device; a batch is two uploads, asked for in the scope open
 * here with its guards (workers 0: in that open in fy_loader_next), from the first fy_loader_next
 * on.
 * Fails: INVALID_ARGUMENT (batch < 1, more workers than that, std 0, 2^32 samples, ...),
 * OUT_OF_MEMORY, PINNED_LIMIT, REFUSED_BY_GUARD. */
FY_API_STATUS fy_loader_create(fy_device_t *device, const fy_dataset_t *dataset,
                               const fy_loader_options_t *options, fy_loader_t **out_loader);
/* Goes to batch `step` of `epoch`, both from 0: what follows is the same as if the epoch had been
 * gone through up to there.
 * A new loader stands at 0, 0; step may be the number of batches: the end of the epoch comes next.
 * What a streamed loader has filled by then is dropped. Light requests only. Fails:
 * INVALID_ARGUMENT (past that), UNAVAILABLE (streamed, in a forked child). */
FY_API_STATUS fy_loader_seek(fy_loader_t *loader, int64_t epoch, int64_t step);
/* No more than `batches` batches will be asked for from here on: none behind them is filled, and
 * those before are filled ahead over the ends of epochs. 0, as a new loader has it, and after a
 * seek: those of the epoch of the batch that was asked for are filled ahead. So what goes up is
 * what was asked for, to the byte. Asking for more is no failure: they are filled one at a time.
 * Streamed; nothing for a resident set.
 * Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_loader_limit(fy_loader_t *loader, int64_t batches);
/* The next batch of this epoch: x F32 [n, dims...] normalised, y I32 [n] or F32 [n, targets], on
 * the device; n = batch but for the last one.
 * Both are results like those of any op: your scope's, or yours. Streamed, their bytes are good
 * until the next call.
 * At the end of the epoch both are NULL, once, and the loader stands at the beginning of the next.
 * A failure that a worker had reaches whoever asks for that batch; the next call goes on behind it.
 * Resident: two light requests; the first batch of an epoch draws the order besides.
 * Fails: as requests do; UNSUPPORTED (while a graph is recorded: a replay would see the same batch
 * again and again); streamed also UNAVAILABLE (in a forked child). */
FY_API_STATUS fy_loader_next(fy_loader_t *loader, fy_tensor_t **out_x, fy_tensor_t **out_y);

typedef struct fy_loader_info {
    size_t struct_size;
    uint64_t samples;
    int64_t batch, steps; /* steps: batches an epoch */
    int64_t epoch, step;  /* of the batch that comes next */
    int is_resident, workers;
    int64_t seed; /* of the order */
    /* of the data set: labels are 0 .. classes - 1; classes 0: a sample has `targets` values
     * instead of a label */
    int classes, targets;
} fy_loader_info_t;
#define FY_LOADER_INFO_INIT      \
    {                            \
        sizeof(fy_loader_info_t) \
    }
FY_API_STATUS fy_loader_query(const fy_loader_t *loader, fy_loader_info_t *out_info);
/* Stops the workers, gives the memory back when its last use is done. NULL is ignored. */
FY_API void fy_loader_destroy(fy_loader_t *loader);

#ifdef __cplusplus
}
#endif
#endif
