/* Checkpoints: everything that a training needs to go on as if it had never stopped, bit for bit: parameters, optimizer state, the
 * random state of dropout, where the data stood. Safetensors files "step-00001234.safetensors" in one folder. */
#ifndef FERRY_TRAIN_CHECKPOINT_H_
#define FERRY_TRAIN_CHECKPOINT_H_

#include <ferry/train/model.h>
#include <ferry/train/optimizer.h>
#include <ferry/train/safetensors.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where a training stands: numbers that are not on the device. The schedule is a function of `step`, the order of the data one of
 * `seed`, `epoch` and `epoch_step`. */
typedef struct fy_progress {
    size_t struct_size;
    int64_t step, epoch, epoch_step; /* updates done; whole epochs done; batches done of the one begun */
    int64_t seed;                    /* of the data's order */
    double lr, momentum;             /* as last set; restored into the optimizer */
    const char *note;                /* text of yours, UTF-8, e.g. JSON; NULL: none. On load: valid until the next call of this thread */
} fy_progress_t;
#define FY_PROGRESS_INIT      \
    {                         \
        sizeof(fy_progress_t) \
    }

/* Brings parameters, state and random state down (one download) and writes them as fy_safetensors_write does: whole or not at all. Then
 * reads the new file's header back, and deletes all but the last `keep` (at least 1) checkpoints of the folder. `directory` is made if its
 * parent exists. Blocks. optimizer may be NULL. Fails: IO (says which file; older checkpoints stay), OUT_OF_MEMORY, as downloads do. */
FY_API_STATUS fy_checkpoint_save(const char *directory, fy_model_t *model, fy_optimizer_t *optimizer, const fy_progress_t *progress,
                                 int keep);
/* Reads the newest checkpoint of the folder that is whole (one that is not is passed over, with a line in the log), or the file if `path`
 * is one, into a model and an optimizer of the same form: one upload. All is checked before the first byte changes. optimizer NULL: parameters only.
 * Fails: IO (there is none: UNAVAILABLE), CORRUPT_DATA, SHAPE_MISMATCH (names the parameter and both shapes), INVALID_ARGUMENT (another kind of
 * optimizer, names that are missing or too many), OUT_OF_MEMORY. */
FY_API_STATUS fy_checkpoint_load(const char *path, fy_model_t *model, fy_optimizer_t *optimizer, fy_progress_t *out_progress);

/* Parameters only, by their names, as other programs write and read them ("conv1.weight": weights O, H, W, I). One download, one upload. */
FY_API_STATUS fy_model_save(fy_model_t *model, const char *path);
FY_API_STATUS fy_model_load(fy_model_t *model, const char *path);

#ifdef __cplusplus
}
#endif
#endif
