/* Images as a streamed loader changes them: resized, padded, cropped, mirrored. A pure function of
 * the options, the seed, the epoch and the sample. Next: augment.c. */
#ifndef FERRY_TRAIN_AUGMENT_H_
#define FERRY_TRAIN_AUGMENT_H_

#include <ferry/train/loader.h>

typedef struct fyt_augment {
    int is_on; /* 0: samples are copied */
    int flips, is_random, is_u8;
    int64_t seed;
    int64_t channels;
    int64_t in[2], resized[2], pad, out[2]; /* height, width of a sample, ..., of the result */
} fyt_augment_t;

/* Checks the options against the samples. Fails: INVALID_ARGUMENT; *out is then unchanged. */
fy_status_t fyt_augment_make(const fy_loader_options_t *options, const fy_dataset_info_t *info,
                             fyt_augment_t *out);
/* `sample` becomes `dst`: [height, width, channels] both, u8 or f32. For any thread. */
void fyt_augment_run(const fyt_augment_t *augment, int64_t epoch, uint64_t index,
                     const void *sample, void *dst);

#endif
