/* Inside of a loader, shared by loader.c (calls), loader_resident.c, loader_stream.c and
 * loader_workers.c. Not public. Next: loader.c. */
#ifndef FERRY_TRAIN_LOADER_INTERNAL_H_
#define FERRY_TRAIN_LOADER_INTERNAL_H_

#include <ferry/train/loader.h>

#include "dataset.h"

/* ---- augment.c: images as a streamed loader changes them, resized, padded, cropped, mirrored: a
 * pure function of the options, the seed, the epoch and the sample ---- */

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

/* ---- loaders ---- */

#define FYT_LOADER_MAX_WORKERS 16
#define FYT_LOADER_MAX_DEPTH   64

/* x = sample * scale + shift: one pair for all, or (vectors not NULL) one for each of the last
 * axis, on the device. */
typedef struct fyt_normal {
    int is_identity;
    double scale, shift;
    fy_tensor_t *scales, *shifts; /* f32 [C], in no scope */
} fyt_normal_t;

typedef struct fyt_resident fyt_resident_t;
typedef struct fyt_stream fyt_stream_t;

struct fy_loader {
    fy_device_t *device;
    fy_dataset_t *dataset; /* held */
    fy_loader_options_t options;
    int64_t steps;
    int64_t epoch, step; /* of the next batch; step == steps: at the end of the epoch */
    fyt_normal_t normal;
    fyt_augment_t augment;
    fyt_resident_t *resident; /* one of these two */
    fyt_stream_t *stream;
};

/* Returns `src` (u8 or f32, any strides) as normalised f32. *dst given: writes into it; else makes
 * it, in the current scope. */
fy_status_t fyt_loader_normalise(const fyt_normal_t *normal, fy_tensor_t *src, fy_tensor_t **dst);

/* The shape of a sample in a batch, which the options may change; returns its bytes before
 * normalisation. */
size_t fyt_loader_sample(const fy_loader_t *loader, int *out_rank, int64_t *out_dims);

/* Samples begin .. begin + count - 1 of the epoch. */
typedef struct fyt_range {
    int64_t begin, count;
} fyt_range_t;
fyt_range_t fyt_loader_span(const fy_loader_t *loader, int64_t step);

/* Called inside a scope of the loader; after a failure no tensor is left. The scope owns the
 * results. */
fy_status_t fyt_resident_create(const fy_loader_t *loader, fyt_resident_t **out_resident);
fy_status_t fyt_resident_next(fyt_resident_t *resident, const fy_loader_t *loader,
                              fy_tensor_t **out_x, fy_tensor_t **out_y);
void fyt_resident_destroy(fyt_resident_t *resident);

fy_status_t fyt_stream_create(const fy_loader_t *loader, fyt_stream_t **out_stream);
/* Fails: UNAVAILABLE (in a forked child, which does not have the threads). */
fy_status_t fyt_stream_seek(fyt_stream_t *stream, int64_t epoch, int64_t step);
/* Like fy_loader_limit, from the loader's position. */
void fyt_stream_limit(fyt_stream_t *stream, int64_t batches);
/* *out_is_taken: the batch is consumed, also after a failure. */
fy_status_t fyt_stream_next(fyt_stream_t *stream, const fy_loader_t *loader, fy_tensor_t **out_x,
                            fy_tensor_t **out_y, int *out_is_taken);
void fyt_stream_destroy(fyt_stream_t *stream);

/* Threads that run one job together with the calling thread. They touch host memory only and call
 * no function of Ferry. */
typedef struct fyt_workers fyt_workers_t;
typedef void (*fyt_workers_fn)(void *user, int piece, int pieces);
/* `pieces` threads including the caller: starts pieces - 1. Fails: OUT_OF_MEMORY (no thread could
 * be started). */
fy_status_t fyt_workers_create(int pieces, fyt_workers_t **out_workers);
/* Calls fn for each piece, piece 0 here; returns when all have returned. One caller at a time. */
void fyt_workers_run(fyt_workers_t *workers, fyt_workers_fn fn, void *user);
/* has_threads 0: in a forked child, which does not have them. NULL is ignored. */
void fyt_workers_destroy(fyt_workers_t *workers, int has_threads);

#endif
