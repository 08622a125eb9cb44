/* A training of several ranks that fails, as one of them was lost: rank 0 writes a checkpoint of
 * the last update, from which a resumed training goes on with the same bits. The batches of an
 * update that did not happen have already changed running statistics, so a copy of these is kept
 * from the begin of each update. The random state depends on the position (fyt_replicas_draw).
 * Not here: what fails (fy_train_replicas_t), ordinary checkpoints (trainer.c). */
#include "trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "train/checkpoint.h"

enum { WAIT_MS = 10000, POLL_MS = 50 };

static int can_rescue(const fyt_trainer_t *trainer)
{
    const fy_train_replicas_t *replicas = trainer->options->replicas;
    return replicas && replicas->ranks > 1 && trainer->options->checkpoint &&
           !replicas->shards_optimizer;
}

static fy_status_t make_copy(const fy_tensor_t *tensor, fy_tensor_t **out_copy)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(tensor, &info));
    return fy_tensor_create(info.device, info.dtype, info.rank, info.dims, out_copy);
}

fy_status_t fyt_rescue_prepare(fyt_trainer_t *trainer)
{
    const int writes = can_rescue(trainer) && trainer->options->replicas->rank == 0;
    trainer->group_begin = -1;
    return writes && trainer->info.buffers
               ? make_copy(trainer->info.buffers, &trainer->buffers_before)
               : FY_STATUS_OK;
}

fy_status_t fyt_rescue_begin(fyt_trainer_t *trainer)
{
    trainer->group_begin = trainer->epoch_step;
    return trainer->buffers_before ? fy_copy(trainer->buffers_before, trainer->info.buffers)
                                   : FY_STATUS_OK;
}

void fyt_rescue_end(fyt_trainer_t *trainer) { trainer->group_begin = -1; }

/* Back to the begin of an update that did not happen. */
static fy_status_t undo_group(fyt_trainer_t *trainer)
{
    if (trainer->group_begin < 0) return FY_STATUS_OK;
    trainer->epoch_step = trainer->group_begin;
    return trainer->buffers_before ? fy_copy(trainer->info.buffers, trainer->buffers_before)
                                   : FY_STATUS_OK;
}

static fy_status_t write_file(fyt_trainer_t *trainer)
{
    fy_progress_t progress;
    FY_TRY(fy_tape_begin(NULL));
    FY_TRY(undo_group(trainer));
    if (trainer->epoch_step == trainer->data.steps) {
        trainer->epoch++;
        trainer->epoch_step = 0;
    }
    FY_TRY(fyt_progress(trainer, &progress));
    return fyt_checkpoint_save(trainer->options->checkpoint, trainer->model, trainer->optimizer,
                               &progress, trainer->options->keep, NULL);
}

/* mpirun ends all ranks when the first one leaves, so no rank leaves before the file is there. */
static int wait_for_file(const fyt_trainer_t *trainer)
{
    const struct timespec pause = { .tv_nsec = POLL_MS * 1000000 };
    char *path;
    int is_there = 0;
    if (fyt_folder_path(trainer->options->checkpoint, trainer->step, &path) != FY_STATUS_OK)
        return 0;
    for (int ms = 0; !is_there && ms < WAIT_MS; ms += POLL_MS) {
        is_there = access(path, F_OK) == 0;
        if (!is_there) nanosleep(&pause, NULL);
    }
    free(path);
    return is_there;
}

fy_status_t fyt_rescue_save(fyt_trainer_t *trainer, fy_status_t status)
{
    const fy_error_t *error = fy_error_get();
    const fy_error_t first = *error;
    const char *folder = trainer->options->checkpoint;
    if (!can_rescue(trainer) || status == FY_STATUS_DEVICE_LOST || !trainer->tape ||
        trainer->step <= (trainer->saved_step < 0 ? 0 : trainer->saved_step))
        return status; /* no update was made since the last checkpoint */
    if (trainer->options->replicas->rank > 0) {
        const int is_there = wait_for_file(trainer);
        return fy_error_set(status, first.file, first.line,
                            is_there ? "%s\n  Rank 0 wrote a checkpoint of update %lld to %s"
                                     : "%s\n  Rank 0 wrote no checkpoint of update %lld to %s; "
                                       "resume from the last one there",
                            first.text, (long long)trainer->step, folder);
    }
    const fy_scope_t scope = fy_scope_begin("rescue");
    const fy_status_t saved = write_file(trainer);
    fy_scope_end(scope, 0, NULL);
    if (saved == FY_STATUS_OK)
        return fy_error_set(status, first.file, first.line,
                            "%s\n  A checkpoint of update %lld was written to %s", first.text,
                            (long long)trainer->step, folder);
    const fy_error_t second = *fy_error_get();
    return fy_error_set(status, first.file, first.line, "%s\n  No checkpoint was written: %s",
                        first.text, second.text);
}
