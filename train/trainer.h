/* Inside of the training loop, shared by the files trainer*.c. Not public. Next: trainer.c. */
#ifndef FERRY_TRAIN_TRAINER_INTERNAL_H_
#define FERRY_TRAIN_TRAINER_INTERNAL_H_

#include <ferry/autocast.h>
#include <ferry/device.h>
#include <ferry/graph.h>
#include <ferry/ledger.h>
#include <ferry/scope.h>
#include <ferry/train/trainer.h>
#include <ferry/transfer.h>

#include "fail.h"

/* One training. Handles belong to the scope "train". */
typedef struct fyt_trainer {
    fy_model_t *model;
    fy_optimizer_t *optimizer;
    fy_loader_t *train, *test;
    const fy_train_options_t *options;
    fy_model_info_t info;
    fy_loader_info_t data;

    fy_tape_t *tape;
    /* f32, on the device: loss times samples, since it was last asked for */
    fy_tensor_t *loss_sum;
    double interval_samples; /* that are in it */
    double resumed_loss;     /* its first value, of a checkpoint */
    /* seeds of backward: the share of this rank's samples of a batch in those of the update;
     * [1]: in the last group of an epoch, [1][1]: for its last batch. [0][1] is not used */
    fy_tensor_t *share[2][2];

    fy_graph_t *graph; /* of one full batch; NULL until it is recorded */
    fy_tensor_t *graph_x, *graph_y;

    fy_download_t *reply; /* at most one loss is on its way */
    double reply_samples;
    int64_t reply_step;

    /* as in fy_progress_t: updates; epochs; batches of this epoch */
    int64_t step, epoch, epoch_step;
    double loss; /* the last downloaded loss; NaN before the first */
    int64_t loss_step;
    /* downloaded losses of this epoch: their sum, and the number of samples */
    double epoch_loss, epoch_samples;

    uint64_t samples; /* trained with, in this call */
    /* of the steps; begin_ns: since when they are running, 0: they are not */
    uint64_t wall_ns, begin_ns;
    uint64_t allocs_before,
        /* the ledger's device_allocs when the second step was done; in evaluations and checkpoints
         * since */
        allocs_apart;
    int64_t batches;    /* in this call */
    int64_t saved_step; /* of the last checkpoint; -1: none */
    int64_t skipped;    /* steps, by loss scaling; known at the end */
    double test_loss, test_accuracy;
    int is_done, is_stopped;
    fy_tensor_t *draws; /* with replicas: the counter of the random state, [1] */
    /* trainer_rescue.c: a copy of the buffers from before the group of batches that is running, and
     * its first batch; -1: none is running */
    fy_tensor_t *buffers_before;
    int64_t group_begin;
} fyt_trainer_t;

/* Room for what a step needs; watches the model. */
fy_status_t fyt_step_prepare(fyt_trainer_t *trainer);
/* One batch: forward, loss, backward, and an update if it is the last of its group. Light requests
 * only, if the loader's are. */
fy_status_t fyt_step_run(fyt_trainer_t *trainer);
/* The loss as `kind` has it, mean over the batch. */
fy_status_t fyt_loss(fy_loss_kind_t kind, fy_tensor_t *result, fy_tensor_t *target,
                     fy_tensor_t **out_loss);
/* Before anything is computed: the loader's device, samples and labels fit the model and the loss.
 * Fails: DEVICE_MISMATCH, SHAPE_MISMATCH, DTYPE_MISMATCH, BAD_VALUE (more classes than scores).
 * `what` is the call. */
fy_status_t fyt_loader_check(const char *what, const fy_model_t *model, const fy_loader_t *loader,
                             fy_loss_kind_t kind);
/* Before anything is computed: the optimizer is of this model; steps in f16 need loss scaling.
 * Fails: INVALID_ARGUMENT. */
fy_status_t fyt_optimizer_check(const char *what, const fyt_trainer_t *trainer);
/* Samples of batch `step` of an epoch: of all ranks, and of this one. */
typedef struct fyt_rows {
    int64_t all, own;
} fyt_rows_t;
fyt_rows_t fyt_rows_of(const fy_loader_info_t *data, int64_t step);
/* As fy_train_evaluate. replicas not NULL: the sums are those of all ranks. */
fy_status_t fyt_evaluate(fy_model_t *model, fy_loader_t *loader, fy_loss_kind_t loss,
                         const fy_train_replicas_t *replicas, double *out_loss,
                         double *out_accuracy);
/* trainer_replicas.c: nothing without replicas, but the first, which refuses loaders of shards. */
fy_status_t fyt_replicas_check(const char *call, const fyt_trainer_t *trainer);
fy_status_t fyt_replicas_begin(fyt_trainer_t *trainer);
/* trainer_text.c: lines that are equal on all ranks of one training. */
fy_status_t fyt_replicas_text(const fyt_trainer_t *trainer, char *text, size_t size);
/* *flag: is it set on any rank? */
fy_status_t fyt_replicas_agree(const fyt_trainer_t *trainer, int *flag);
/* Before each batch. The counter of the random state depends on the position only, so that a
 * resumed training draws as an undisturbed one: shards of ranks have different sizes. */
fy_status_t fyt_replicas_draw(fyt_trainer_t *trainer);
/* Buffers as those of rank 0. */
fy_status_t fyt_replicas_share(const fyt_trainer_t *trainer);
/* As fy_train_save. */
fy_status_t fyt_replicas_save(const char *directory, fy_model_t *model, fy_optimizer_t *optimizer,
                              const fy_train_replicas_t *replicas, const fy_progress_t *progress,
                              int keep);
/* trainer_rescue.c: for a training of several ranks with checkpoints; else nothing. */
fy_status_t fyt_rescue_prepare(fyt_trainer_t *trainer);
/* Before the first batch of a group: one light request, if the model has buffers. */
fy_status_t fyt_rescue_begin(fyt_trainer_t *trainer);
/* Behind the update of a group. */
void fyt_rescue_end(fyt_trainer_t *trainer);
/* The training has failed with `status`: rank 0 writes a checkpoint of the last update, the other
 * ranks wait for its file. Adds to the error's text what became of it. Returns `status`. */
fy_status_t fyt_rescue_save(fyt_trainer_t *trainer, fy_status_t status);
/* The losses of a checkpoint. Blocks. */
fy_status_t fyt_loss_save(fyt_trainer_t *trainer, fy_progress_t *progress);
void fyt_loss_resume(fyt_trainer_t *trainer, const fy_progress_t *progress);
/* The position of the training, for a checkpoint, without losses. */
fy_status_t fyt_progress(const fyt_trainer_t *trainer, fy_progress_t *out_progress);
/* Starts a download of loss_sum and resets it. Waits for the previous download if it is still
 * pending. */
fy_status_t fyt_loss_ask(fyt_trainer_t *trainer);
/* Takes the loss that was sent for, if it is there; `waits`: until it is. Blocks then. */
fy_status_t fyt_loss_take(fyt_trainer_t *trainer, int waits);

#endif
