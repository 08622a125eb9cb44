/* Checkpoints: all state that a training needs to continue with the same bits: parameters, buffers,
 * optimizer state, the random state of dropout, the position in the data. Safetensors files
 * "step-00001234.safetensors" in one folder. */
#ifndef FERRY_TRAIN_CHECKPOINT_H_
#define FERRY_TRAIN_CHECKPOINT_H_

#include <ferry/train/model.h>
#include <ferry/train/optimizer.h>
#include <ferry/train/safetensors.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The position of a training: numbers that are not on the device. The schedule depends only on
 * `step`, the order of the data only on `seed`, `epoch` and `epoch_step`. */
typedef struct fy_progress {
    size_t struct_size;
    /* updates done; whole epochs done; batches done of the current epoch */
    int64_t step, epoch, epoch_step;
    int64_t seed; /* of the data's order */
    /* as last set (Adam: beta1). With an optimizer, save writes and load restores its values */
    double lr, momentum;
    /* your text, UTF-8, e.g. JSON; NULL: none. After a load: valid until the next load into that
     * model, or the model's destroy */
    const char *note;
    /* Losses of the current epoch (epoch_step 0: of the last one), each times its samples: their
     * sum, and the samples. Then the same of batches since the last downloaded loss, which are not
     * in the first pair. 0 samples: unknown, as in files without losses */
    double loss_sum, loss_samples, interval_loss_sum, interval_samples;
} fy_progress_t;
#define FY_PROGRESS_INIT FY_ZEROED_(progress)
FY_API void fy_progress_init(fy_progress_t *progress, size_t nbytes);

/* Blocks. Downloads parameters, buffers, state and random state (one fy_tensor_download_many) and
 * writes them with fy_safetensors_write: a complete file or none. optimizer may be NULL.
 * `directory` is made if its parent exists.
 * Then reads the new file's header back, and keeps the new checkpoint and the `keep` (at least 1)
 * with the highest steps. Deletes all others, and temporary files of killed processes: use one
 * folder for each training.
 * Fails: INVALID_ARGUMENT (also numbers that load refuses: negative, not finite; a loss may be
 * NaN), IO (names the file; older checkpoints stay), OUT_OF_MEMORY, as
 * downloads. */
FY_API_STATUS fy_checkpoint_save(const char *directory, fy_model_t *model,
                                 fy_optimizer_t *optimizer, const fy_progress_t *progress,
                                 int keep);
/* Loads a checkpoint into a model and an optimizer of the same form: the file `path`, or the
 * complete file of the highest step in the folder `path`. One fy_tensor_upload_many_into.
 * Incomplete files are skipped, with a line in the log. Everything is checked before the first byte
 * changes. optimizer NULL: optimizer state in the file is ignored. out_progress may be NULL.
 * Fails: UNAVAILABLE (no checkpoint), IO, CORRUPT_DATA, SHAPE_MISMATCH (names the parameter and
 * both shapes), DTYPE_MISMATCH, INVALID_ARGUMENT (another kind of optimizer, missing or additional
 * names), OUT_OF_MEMORY. */
FY_API_STATUS fy_checkpoint_load(const char *path, fy_model_t *model, fy_optimizer_t *optimizer,
                                 fy_progress_t *out_progress);

/* Parameters and buffers only, under their names, in the form of other programs ("conv1.weight":
 * weights O, H, W, I). One fy_tensor_download_many; one fy_tensor_upload_many_into.
 * Fail: as fy_safetensors_write, fy_safetensors_open and fy_checkpoint_load. */
FY_API_STATUS fy_model_save(fy_model_t *model, const char *path);
FY_API_STATUS fy_model_load(fy_model_t *model, const char *path);

#ifdef __cplusplus
}
#endif
#endif
