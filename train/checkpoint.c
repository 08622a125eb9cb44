/* Checkpoints: saving and loading the whole state of a training, and parameters alone. Everything
 * is downloaded before a file is begun, and everything is read and checked before the first byte is
 * uploaded.
 * Not here: the list of tensors (checkpoint_pieces.c), the folder (checkpoint_folder.c), the file
 * (safetensors*.c). */
#include "train/checkpoint.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <ferry/scope.h>

#include "runtime/base/c_locale.h"
#include "train/abi.h"
#include "train/fail.h"
#include "train/model.h"

#define FORMAT_KEY  "ferry_checkpoint"
#define FORMAT_TEXT "1"

/* Of a call and of a file: nothing is saved that would not be loaded. A loss may be NaN. */
static fy_status_t check_progress(fy_status_t status, const char *where, const fy_progress_t *p)
{
    if (p->step >= 0 && p->epoch >= 0 && p->epoch_step >= 0 && p->lr >= 0 && p->momentum >= 0 &&
        p->loss_samples >= 0 && p->interval_samples >= 0 &&
        isfinite(p->lr + p->momentum + p->loss_samples + p->interval_samples))
        return FY_STATUS_OK;
    return fy_error_set(status, __FILE__, __LINE__,
                        "%s: step %lld, epoch %lld, step %lld of it, lr %g, momentum %g, losses of "
                        "%g and %g samples: all must be finite, 0 or more",
                        where, (long long)p->step, (long long)p->epoch, (long long)p->epoch_step,
                        p->lr, p->momentum, p->loss_samples, p->interval_samples);
}

/* ---- saving ---- */

static fy_status_t fill_progress(fyt_pieces_t *p, const fy_progress_t *progress)
{
    void *counts, *rates, *losses;
    fy_optimizer_options_t options = { .struct_size = sizeof options,
                                       .lr = progress->lr,
                                       .momentum = progress->momentum };
    FY_TRY(fy_tensor_map(p->progress, FY_ACCESS_WRITE, &counts));
    FY_TRY(fy_tensor_map(p->rates, FY_ACCESS_WRITE, &rates));
    FY_TRY(fy_tensor_map(p->losses, FY_ACCESS_WRITE, &losses));
    memcpy(counts,
           (int64_t[]){ progress->step, progress->epoch, progress->epoch_step, progress->seed },
           4 * sizeof(int64_t));
    if (p->optimizer) FY_TRY(fy_optimizer_get(p->optimizer, &options));
    const double *momentum = fyt_optimizer_momentum(&options);
    memcpy(rates, (double[]){ options.lr, momentum ? *momentum : options.momentum },
           2 * sizeof(double));
    memcpy(losses,
           (double[]){ progress->loss_sum, progress->loss_samples, progress->interval_loss_sum,
                       progress->interval_samples },
           4 * sizeof(double));
    return FY_STATUS_OK;
}

static fy_status_t write_checkpoint(fyt_pieces_t *p, const char *directory,
                                    const fy_progress_t *progress, const char *path,
                                    const fyt_collect_t *collect)
{
    fy_optimizer_options_t options = { .struct_size = sizeof options };
    if (p->optimizer) FY_TRY(fy_optimizer_get(p->optimizer, &options));
    const fy_safetensors_pair_t pairs[] = {
        { FORMAT_KEY, FORMAT_TEXT },
        { "model", p->model->name },
        { "optimizer", p->optimizer ? fy_optimizer_name(options.kind) : "none" },
        { "note", progress->note },
    };
    FY_TRY(fyt_pieces_download(p, 0));
    if (collect) FY_TRY(fyt_shards_collect(p, collect));
    FY_TRY(fyt_folder_make(directory)); /* may fail on this rank alone: the others have sent all */
    FY_TRY(fyt_pieces_name(p));
    FY_TRY(fill_progress(p, progress));
    return fyt_pieces_write(p, path, progress->note ? 4 : 3, pairs);
}

/* The old ones are deleted only after the new one has been checked to be complete. */
static fy_status_t verify(const fyt_pieces_t *p, const char *path)
{
    fy_safetensors_t *file;
    FY_TRY(fy_safetensors_open(path, &file));
    const fy_status_t status = fyt_pieces_check(p, path, file);
    fy_safetensors_close(file);
    return status;
}

static fy_status_t check_save(const char *directory, const fy_model_t *model,
                              const fy_optimizer_t *optimizer, const fy_progress_t *progress,
                              int keep, fy_progress_t *out)
{
    if (!directory || !model || !progress)
        return FYT_FAIL(INVALID_ARGUMENT, "checkpoint_save: %s is NULL",
                        !directory ? "directory"
                        : !model   ? "model"
                                   : "progress");
    FY_TRY(FY__READ_GIVEN(progress, "checkpoint_save", progress, out));
    if (optimizer) out->lr = out->momentum = 0; /* the optimizer's are saved */
    if (keep < 1)
        return FYT_FAIL(INVALID_ARGUMENT, "checkpoint_save: keep is %d; keep at least 1", keep);
    return check_progress(FY_STATUS_INVALID_ARGUMENT, "checkpoint_save", out);
}

static fy_status_t save(fyt_pieces_t *p, const char *directory, const fy_progress_t *progress,
                        const char *path, const fyt_collect_t *collect)
{
    if (collect && !collect->is_writer) {
        FY_TRY(fyt_pieces_download(p, p->first_state));
        return fyt_shards_collect(p, collect);
    }
    FY_TRY(write_checkpoint(p, directory, progress, path, collect));
    return verify(p, path);
}

fy_status_t fyt_checkpoint_save(const char *directory, fy_model_t *model, fy_optimizer_t *optimizer,
                                const fy_progress_t *progress, int keep,
                                const fyt_collect_t *collect)
{
    char *path;
    fyt_pieces_t pieces;
    fy_progress_t own;
    FY_TRY(check_save(directory, model, optimizer, progress, keep, &own));
    progress = &own;
    if (!collect && fyt_optimizer_is_shard(optimizer))
        return FYT_FAIL(INVALID_ARGUMENT,
                        "checkpoint_save: this optimizer has the state of %llu of %llu elements; "
                        "fy_train_save collects those of all processes",
                        (unsigned long long)fyt_optimizer_ranges(optimizer)->nelem,
                        (unsigned long long)fyt_optimizer_ranges(optimizer)->whole);
    FY_TRY(fyt_folder_path(directory, progress->step, &path));
    fy_status_t status = fyt_pieces_make(model, optimizer, 1, &pieces);
    if (status == FY_STATUS_OK) {
        const fy_scope_t scope = fy_scope_begin("save");
        status = save(&pieces, directory, progress, path, collect);
        fy_scope_end(scope, 0, NULL);
        fyt_pieces_free(&pieces);
    }
    if (status == FY_STATUS_OK && (!collect || collect->is_writer))
        status = fyt_folder_trim(directory, keep, progress->step);
    free(path);
    return status;
}

fy_status_t fy_checkpoint_save(const char *directory, fy_model_t *model, fy_optimizer_t *optimizer,
                               const fy_progress_t *progress, int keep)
{
    return fyt_checkpoint_save(directory, model, optimizer, progress, keep, NULL);
}

/* ---- finding one ---- */

static fy_status_t open_checkpoint(const char *path, fy_safetensors_t **out_file)
{
    FY_TRY(fy_safetensors_open(path, out_file));
    const char *format = fy_safetensors_metadata(*out_file, FORMAT_KEY);
    if (format && strcmp(format, FORMAT_TEXT) == 0) return FY_STATUS_OK;
    const fy_status_t status = FYT_FAIL(CORRUPT_DATA,
                                        "%s is a safetensors file, but not a checkpoint of this "
                                        "version (%s '%.32s' in its metadata)",
                                        path, FORMAT_KEY, format ? format : "");
    fy_safetensors_close(*out_file);
    *out_file = NULL;
    return status;
}

/* The newest complete one in `directory`. */
static fy_status_t open_newest(const char *directory, char **out_path, fy_safetensors_t **out_file)
{
    int64_t *steps;
    size_t count;
    FY_TRY(fyt_folder_list(directory, &steps, &count));
    fy_status_t status = count ? FY_STATUS_OK
                               : FYT_FAIL(UNAVAILABLE, "there is no checkpoint in %s", directory);
    for (size_t i = 0; i < count; i++) {
        status = fyt_folder_path(directory, steps[i], out_path);
        if (status == FY_STATUS_OK) status = open_checkpoint(*out_path, out_file);
        if (status != FY_STATUS_CORRUPT_DATA) break;
        fy_log_write(FY_LOG_WARNING, "a checkpoint is passed over: %s", fy_error_get()->text);
        free(*out_path);
        *out_path = NULL;
    }
    free(steps);
    return status;
}

static fy_status_t open_any(const char *path, char **out_path, fy_safetensors_t **out_file)
{
    struct stat facts;
    if (stat(path, &facts))
        return errno == ENOENT
                   ? FYT_FAIL(UNAVAILABLE, "there is no checkpoint: %s is not there", path)
                   : FYT_FAIL(IO, "cannot look at %s: %s", path, fy__strerror(errno));
    if (S_ISDIR(facts.st_mode)) return open_newest(path, out_path, out_file);
    *out_path = strdup(path);
    return *out_path ? open_checkpoint(path, out_file)
                     : FYT_FAIL(OUT_OF_MEMORY, "no host memory for a path");
}

/* ---- loading ---- */

static fy_status_t check_kind(const char *path, const fy_safetensors_t *file,
                              fy_optimizer_t *optimizer)
{
    fy_optimizer_options_t options = { .struct_size = sizeof options };
    const char *kind = fy_safetensors_metadata(file, "optimizer");
    if (!optimizer) return FY_STATUS_OK;
    FY_TRY(fy_optimizer_get(optimizer, &options));
    if (kind && strcmp(kind, fy_optimizer_name(options.kind)) == 0) return FY_STATUS_OK;
    return FYT_FAIL(INVALID_ARGUMENT, "%s is of optimizer '%.32s', not '%s'", path,
                    kind ? kind : "?", fy_optimizer_name(options.kind));
}

static fy_status_t take_progress(const char *path, const fyt_pieces_t *p, fy_progress_t *out)
{
    void *counts, *rates, *losses;
    FY_TRY(fy_tensor_map(p->progress, FY_ACCESS_READ, &counts));
    FY_TRY(fy_tensor_map(p->rates, FY_ACCESS_READ, &rates));
    FY_TRY(fy_tensor_map(p->losses, FY_ACCESS_READ, &losses));
    const int64_t *n = counts;
    const double *r = rates, *l = losses;
    *out = (fy_progress_t){ sizeof *out, n[0], n[1], n[2], n[3], r[0],
                            r[1],        NULL, l[0], l[1], l[2], l[3] };
    return check_progress(FY_STATUS_CORRUPT_DATA, path, out);
}

/* The model keeps the note, so that it lives as long as a caller can read it. */
static fy_status_t take_note(const fy_safetensors_t *file, char **out_note)
{
    const char *note = fy_safetensors_metadata(file, "note");
    *out_note = note ? strdup(note) : NULL;
    return note && !*out_note
               ? FYT_FAIL(OUT_OF_MEMORY, "no host memory for a note of %zu bytes", strlen(note))
               : FY_STATUS_OK;
}

/* Momentum first, since its value may be refused while nothing has changed yet; restored if a later
 * step fails. */
static fy_status_t restore(fyt_pieces_t *p, const fy_progress_t *progress)
{
    fy_optimizer_options_t before = { .struct_size = sizeof before };
    if (!p->optimizer) return fyt_pieces_upload(p);
    FY_TRY(fy_optimizer_get(p->optimizer, &before));
    const double *momentum = fyt_optimizer_momentum(&before);
    if (momentum) FY_TRY(fy_optimizer_set_momentum(p->optimizer, progress->momentum));
    fy_status_t status = fyt_pieces_upload(p);
    if (status == FY_STATUS_OK) status = fy_optimizer_set_lr(p->optimizer, progress->lr);
    const fy_status_t undone = status != FY_STATUS_OK && momentum
                                   ? fy_optimizer_set_momentum(p->optimizer, *momentum)
                                   : status;
    (void)undone; /* it was accepted before: it cannot fail */
    return status;
}

static fy_status_t load_all(fyt_pieces_t *p, const char *path, const fy_safetensors_t *file,
                            fy_progress_t *out)
{
    char *note;
    fy_progress_t progress;
    FY_TRY(check_kind(path, file, p->optimizer));
    FY_TRY(fyt_pieces_make_host(p));
    FY_TRY(fyt_pieces_name(p));
    FY_TRY(fyt_pieces_check(p, path, file));
    FY_TRY(fyt_pieces_read(p, file));
    FY_TRY(take_progress(path, p, &progress));
    FY_TRY(take_note(file, &note));
    const fy_status_t status = restore(p, &progress);
    if (status != FY_STATUS_OK) {
        free(note);
        return status;
    }
    free(p->model->note);
    p->model->note = note;
    progress.note = note;
    if (out) FY__WRITE(out, &progress);
    return FY_STATUS_OK;
}

fy_status_t fy_checkpoint_load(const char *path, fy_model_t *model, fy_optimizer_t *optimizer,
                               fy_progress_t *out_progress)
{
    if (!path || !model)
        return FYT_FAIL(INVALID_ARGUMENT, "checkpoint_load: %s is NULL", path ? "model" : "path");
    if (out_progress) FY_TRY(FY__CHECK_OUT(progress, "checkpoint_load", out_progress));
    char *file_path = NULL;
    fy_safetensors_t *file = NULL;
    fyt_pieces_t pieces;
    fy_status_t status = open_any(path, &file_path, &file);
    if (status == FY_STATUS_OK) status = fyt_pieces_make(model, optimizer, 1, &pieces);
    if (status == FY_STATUS_OK) {
        const fy_scope_t scope = fy_scope_begin("load");
        status = load_all(&pieces, file_path, file, out_progress);
        fy_scope_end(scope, 0, NULL);
        fyt_pieces_free(&pieces);
    }
    fy_safetensors_close(file);
    free(file_path);
    return status;
}

/* ---- parameters only ---- */

static fy_status_t save_values(fyt_pieces_t *p, const char *path)
{
    const fy_safetensors_pair_t pair = { "model", p->model->name };
    FY_TRY(fyt_pieces_download(p, 0));
    FY_TRY(fyt_pieces_name(p));
    return fyt_pieces_write(p, path, 1, &pair);
}

static fy_status_t load_values(fyt_pieces_t *p, const char *path)
{
    fy_safetensors_t *file;
    FY_TRY(fy_safetensors_open(path, &file));
    fy_status_t status = fyt_pieces_make_host(p);
    if (status == FY_STATUS_OK) status = fyt_pieces_name(p);
    if (status == FY_STATUS_OK) status = fyt_pieces_check(p, path, file);
    if (status == FY_STATUS_OK) status = fyt_pieces_read(p, file);
    if (status == FY_STATUS_OK) status = fyt_pieces_upload(p);
    fy_safetensors_close(file);
    return status;
}

static fy_status_t with_values(const char *call, fy_model_t *model, const char *path,
                               fy_status_t (*run)(fyt_pieces_t *p, const char *path))
{
    fyt_pieces_t pieces;
    if (!model || !path)
        return FYT_FAIL(INVALID_ARGUMENT, "%s: %s is NULL", call, model ? "path" : "model");
    FY_TRY(fyt_pieces_make(model, NULL, 0, &pieces));
    const fy_scope_t scope = fy_scope_begin(call + strlen("model_"));
    const fy_status_t status = run(&pieces, path);
    fy_scope_end(scope, 0, NULL);
    fyt_pieces_free(&pieces);
    return status;
}

fy_status_t fy_model_save(fy_model_t *model, const char *path)
{
    return with_values("model_save", model, path, save_values);
}
fy_status_t fy_model_load(fy_model_t *model, const char *path)
{
    return with_values("model_load", model, path, load_values);
}
