/* Internals of checkpoints: their folder, and the list of their tensors. Shared by the files
 * checkpoint*.c. Not public.
 * See checkpoint.c. */
#ifndef FERRY_TRAIN_CHECKPOINT_INTERNAL_H_
#define FERRY_TRAIN_CHECKPOINT_INTERNAL_H_

#include <ferry/train/checkpoint.h>

/* ---- the folder (checkpoint_folder.c) ---- */

/* "DIRECTORY/step-00001234.safetensors", malloc'ed. Fails: OUT_OF_MEMORY. */
fy_status_t fyt_folder_path(const char *directory, int64_t step, char **out_path);
/* Steps of the checkpoints in `directory`, latest first, malloc'ed. Fails: IO, OUT_OF_MEMORY. */
fy_status_t fyt_folder_list(const char *directory, int64_t **out_steps, size_t *out_count);
/* Makes `directory` if its parent exists. Fails: IO. */
fy_status_t fyt_folder_make(const char *directory);
/* Deletes all but the last `keep` checkpoints and the one of step `written`, and the left-over
 * files of killed processes. Fails: IO (after deleting the others), OUT_OF_MEMORY. */
fy_status_t fyt_folder_trim(const char *directory, int keep, int64_t written);

/* ---- the tensors of a checkpoint (checkpoint_pieces.c) ---- */

typedef struct fyt_piece {
    const char *name; /* the list's own */
    fy_tensor_t *tensor;
} fyt_piece_t;

/* Its handles belong to the scope in which it was made. */
typedef struct fyt_pieces {
    fy_model_t *model;
    fy_optimizer_t *optimizer; /* NULL: none */
    int with_all;              /* otherwise parameters and buffers only */
    size_t nblocks, count;
    size_t first_state; /* the optimizer's first block; before it the random state */
    /* [nblocks]: parameters, buffers if there are any, random state, the optimizer's state */
    fy_tensor_t **device, **host;
    fy_tensor_t *progress, *rates; /* on the host */
    fyt_piece_t *entries;          /* [count] */
} fyt_pieces_t;

/* The device tensors of the model and the optimizer. In order: make, one of download and make_host,
 * name, then the rest; free in any case. */
fy_status_t fyt_pieces_make(fy_model_t *model, fy_optimizer_t *optimizer, int with_all,
                            fyt_pieces_t *p);
fy_status_t fyt_pieces_download(fyt_pieces_t *p);  /* blocks */
fy_status_t fyt_pieces_make_host(fyt_pieces_t *p); /* zeros */
fy_status_t fyt_pieces_name(fyt_pieces_t *p);
fy_status_t fyt_pieces_check(const fyt_pieces_t *p, const char *path, const fy_safetensors_t *file);
fy_status_t fyt_pieces_read(fyt_pieces_t *p, const fy_safetensors_t *file);
fy_status_t fyt_pieces_write(const fyt_pieces_t *p, const char *path, size_t npairs,
                             const fy_safetensors_pair_t *pairs);
fy_status_t fyt_pieces_upload(fyt_pieces_t *p);
void fyt_pieces_free(fyt_pieces_t *p);

#endif
