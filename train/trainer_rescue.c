/* A training of several ranks that fails, as one of them was lost: rank 0 writes a checkpoint of
 * the last update, from which a resumed training goes on with the same bits. The batches of an
 * update that did not happen have already changed running statistics, so a copy of these is kept
 * from the begin of each update. The random state depends on the position (fyt_replicas_draw).
 * Not here: what fails (fy_train_replicas_t), ordinary checkpoints (trainer.c). */
#include "trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/c_locale.h"
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

/* Is the file of the last update there? UNKNOWN: this rank could not look. */
typedef enum presence { IS_THERE, IS_MISSING, IS_UNKNOWN } presence_t;

static presence_t look_for_file(const char *path)
{
    if (access(path, F_OK) == 0) return IS_THERE;
    return errno == ENOENT ? IS_MISSING : IS_UNKNOWN;
}

static int is_rank_0_lost(const fyt_trainer_t *trainer)
{
    const fy_train_replicas_t *replicas = trainer->options->replicas;
    return replicas->is_lost && replicas->is_lost(replicas->user, 0);
}

/* mpirun ends all ranks when the first one leaves, so no rank leaves before the file is there. A
 * lost rank 0 writes none. *out_waited: the file was not there at first. *out_error: why this rank
 * could not look; 0: it had no memory. */
static presence_t wait_for_file(const fyt_trainer_t *trainer, int *out_waited, int *out_error)
{
    const struct timespec pause = { .tv_nsec = POLL_MS * 1000000 };
    char *path;
    *out_waited = *out_error = 0;
    if (fyt_folder_path(trainer->options->checkpoint, trainer->step, &path) != FY_STATUS_OK)
        return IS_UNKNOWN;
    presence_t presence = look_for_file(path);
    const int most_ms = is_rank_0_lost(trainer) ? 0 : WAIT_MS;
    for (int ms = 0; presence == IS_MISSING && ms < most_ms; ms += POLL_MS) {
        *out_waited = 1;
        nanosleep(&pause, NULL);
        presence = look_for_file(path);
    }
    if (presence == IS_UNKNOWN) *out_error = errno;
    free(path);
    return presence;
}

/* Rank 0 writes also the checkpoints without a failure, and may still do so when this rank fails.
 */
static fy_status_t report_file(const fyt_trainer_t *trainer, fy_status_t status,
                               const fy_error_t *first)
{
    const char *folder = trainer->options->checkpoint;
    const long long step = trainer->step;
    int waited, error;
    const presence_t presence = wait_for_file(trainer, &waited, &error);
    if (presence == IS_THERE && !waited && trainer->saved_step == trainer->step)
        return fy_error_set(status, first->file, first->line, "%s", first->text);
    if (presence == IS_THERE)
        return fy_error_set(status, first->file, first->line,
                            "%s\n  Rank 0 wrote a checkpoint of update %lld to %s", first->text,
                            step, folder);
    if (presence == IS_MISSING && is_rank_0_lost(trainer))
        return fy_error_set(status, first->file, first->line,
                            "%s\n  Rank 0 is lost, and wrote no checkpoint of update %lld to %s; "
                            "resume from the last one there",
                            first->text, step, folder);
    if (presence == IS_MISSING)
        return fy_error_set(status, first->file, first->line,
                            "%s\n  Rank 0 wrote no checkpoint of update %lld to %s within %d s; "
                            "resume from the last one there",
                            first->text, step, folder, WAIT_MS / 1000);
    return fy_error_set(status, first->file, first->line,
                        "%s\n  This rank could not look for a checkpoint of update %lld in %s: %s",
                        first->text, step, folder, error ? fy__strerror(error) : "no host memory");
}

fy_status_t fyt_rescue_save(fyt_trainer_t *trainer, fy_status_t status)
{
    const fy_error_t first = *fy_error_get();
    const char *folder = trainer->options->checkpoint;
    if (!can_rescue(trainer) || status == FY_STATUS_DEVICE_LOST || !trainer->tape ||
        trainer->step < 1)
        return status;
    if (trainer->options->replicas->rank > 0) return report_file(trainer, status, &first);
    if (trainer->step <= trainer->saved_step) return status; /* it has a checkpoint */
    const fy_scope_t scope = fy_scope_begin("rescue");
    const fy_status_t saved = write_file(trainer);
    fy_scope_end(scope, 0, NULL);
    if (saved == FY_STATUS_OK)
        return fy_error_set(status, first.file, first.line,
                            "%s\n  A checkpoint of update %lld was written to %s", first.text,
                            (long long)trainer->step, folder);
    const fy_error_t second = *fy_error_get();
    return fy_error_set(status, first.file, first.line,
                        "%s\n  The checkpoint of update %lld failed: %s", first.text,
                        (long long)trainer->step, second.text);
}
