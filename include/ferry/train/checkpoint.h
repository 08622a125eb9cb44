/* Checkpoints: everything that a training needs to go on as if it had never stopped, bit for bit:
 * parameters, optimizer state, the random state of dropout, where the data stood. Safetensors files
 * "step-00001234.safetensors" in one folder. */
#ifndef FERRY_TRAIN_CHECKPOINT_H_
#define FERRY_TRAIN_CHECKPOINT_H_

#include <ferry/train/model.h>
#include <ferry/train/optimizer.h>
#include <ferry/train/safetensors.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where a training stands: numbers that are not on the device. The schedule is a function of
 * `step`, the order of the data one of `seed`, `epoch` and `epoch_step`. */
typedef struct fy_progress {
    size_t struct_size;
    /* updates done; whole epochs done; batches done of the one begun */
    int64_t step, epoch, epoch_step;
    int64_t seed; /* of the data's order */
    /* as last set (Adam: beta1). With an optimizer they are its own, taken on save, restored on
     * load */
    double lr, momentum;
    /* text of yours, UTF-8, e.g. JSON; NULL: none. On load: valid until the next load into
     * that model, or its end */
    const char *note;
} fy_progress_t;
#define FY_PROGRESS_INIT      \
    {                         \
        sizeof(fy_progress_t) \
    }

/* Brings parameters, state and random state down (one fy_tensor_download_many) and writes them as
 * fy_safetensors_write does: whole or not at all.
 * Then reads the new file's header back, and deletes all checkpoints of the folder but the `keep`
 * (at least 1) of the highest steps and the new one, and what killed processes have left half
 * written: one training a folder. `directory` is made if its parent exists. Blocks. optimizer may
 * be NULL.
 * Fails: INVALID_ARGUMENT, IO (says which file; older checkpoints stay), OUT_OF_MEMORY, as
 * downloads do. */
FY_API_STATUS fy_checkpoint_save(const char *directory, fy_model_t *model,
                                 fy_optimizer_t *optimizer, const fy_progress_t *progress,
                                 int keep);
/* Reads the checkpoint of the highest step that is whole (one that is not is passed over, with a
 * line in the log), or the file if `path` is one, into a model and an optimizer of the same form:
 * one fy_tensor_upload_many_into. All is checked before the first byte changes. optimizer NULL:
 * what the file has of one is left alone. out_progress may be NULL. Fails: UNAVAILABLE (there is
 * none), IO, CORRUPT_DATA, SHAPE_MISMATCH (names the parameter and both shapes), DTYPE_MISMATCH,
 * INVALID_ARGUMENT (another kind of optimizer, names that are missing or too many),
 * OUT_OF_MEMORY. */
FY_API_STATUS fy_checkpoint_load(const char *path, fy_model_t *model, fy_optimizer_t *optimizer,
                                 fy_progress_t *out_progress);

/* Parameters only, by their names, as other programs write and read them ("conv1.weight": weights
 * O, H, W, I). One download, one upload.
 * Fail: as fy_safetensors_write, fy_safetensors_open and fy_checkpoint_load. */
FY_API_STATUS fy_model_save(fy_model_t *model, const char *path);
FY_API_STATUS fy_model_load(fy_model_t *model, const char *path);

#ifdef __cplusplus
}
#endif
#endif
