/* Internals of checkpoints: their folder, and the list of their tensors. Shared by the files
 * checkpoint*.c. Not public.
 * See checkpoint.c. */
#ifndef FERRY_TRAIN_CHECKPOINT_INTERNAL_H_
#define FERRY_TRAIN_CHECKPOINT_INTERNAL_H_

#include <ferry/train/checkpoint.h>

#include "train/optimizer.h"

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
    size_t first_state;         /* the optimizer's first block; before it the random state */
    const fyt_ranges_t *ranges; /* of an optimizer with a part of the state; NULL: it has all */
    size_t nstates;             /* of each range */
    fy_tensor_t **whole;        /* [nstates], on the host: the state of all elements */
    /* [nblocks]: parameters, buffers if there are any, random state, the optimizer's state */
    fy_tensor_t **device, **host;
    fy_tensor_t *progress, *rates, *losses; /* on the host */
    fyt_piece_t *entries;                   /* [count] */
} fyt_pieces_t;

/* The device tensors of the model and the optimizer. In order: make, one of download and make_host,
 * name, then the rest; free in any case. */
fy_status_t fyt_pieces_make(fy_model_t *model, fy_optimizer_t *optimizer, int with_all,
                            fyt_pieces_t *p);
/* Blocks. The blocks from `first` on. */
fy_status_t fyt_pieces_download(fyt_pieces_t *p, size_t first);
fy_status_t fyt_pieces_make_host(fyt_pieces_t *p); /* zeros */
fy_status_t fyt_pieces_name(fyt_pieces_t *p);
fy_status_t fyt_pieces_check(const fyt_pieces_t *p, const char *path, const fy_safetensors_t *file);
fy_status_t fyt_pieces_read(fyt_pieces_t *p, const fy_safetensors_t *file);
fy_status_t fyt_pieces_write(const fyt_pieces_t *p, const char *path, size_t npairs,
                             const fy_safetensors_pair_t *pairs);
fy_status_t fyt_pieces_upload(fyt_pieces_t *p);
void fyt_pieces_free(fyt_pieces_t *p);

/* ---- an optimizer with a part of the state (checkpoint_shards.c) ---- */

/* How processes bring their parts together: fy_train_replicas_t.collect, whose `user` this is. */
typedef struct fyt_collect {
    int is_writer; /* it gets the whole, and writes the file */
    void *user;
    fy_status_t (*collect)(void *user, fy_tensor_t *part, fy_tensor_t *whole);
} fyt_collect_t;

/* As fy_checkpoint_save; collect NULL: this process has all state. */
fy_status_t fyt_checkpoint_save(const char *directory, fy_model_t *model, fy_optimizer_t *optimizer,
                                const fy_progress_t *progress, int keep,
                                const fyt_collect_t *collect);

/* "momentum" of "momentum.3". */
void fyt_shards_name(const fyt_pieces_t *p, size_t state, char *name, size_t size);
/* Zeros for the whole state; nothing if the optimizer has all. */
fy_status_t fyt_shards_make(fyt_pieces_t *p);
/* Behind a download: the whole state, on the process that writes. */
fy_status_t fyt_shards_collect(fyt_pieces_t *p, const fyt_collect_t *collect);
/* Behind a read: the parts of this process, from the whole state to the host's blocks. */
fy_status_t fyt_shards_divide(fyt_pieces_t *p);

#endif
