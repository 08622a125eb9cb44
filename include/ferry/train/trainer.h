/* The training loop, ready to call; `ferry train` runs it. */
#ifndef FERRY_TRAIN_TRAINER_H_
#define FERRY_TRAIN_TRAINER_H_

#include <ferry/graph.h>
#include <ferry/train/checkpoint.h>
#include <ferry/train/loader.h>
#include <ferry/train/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fy_loss_kind {
    FY_LOSS_CROSS_ENTROPY, /* of logits */
    FY_LOSS_NLL,           /* of log-probabilities */
    FY_LOSS_MSE            /* mean((y - target)^2) */
} fy_loss_kind_t;

/* The report of a running training, sent on the thread that trains. */
typedef struct fy_train_event {
    size_t struct_size;
    int64_t epoch, epochs, epoch_step, epoch_steps, step;
    double loss; /* the last downloaded loss (mean of its interval); NaN before the first */
    /* updates done when that loss was requested: each downloaded loss has a different number; -1
     * before the first */
    int64_t loss_step;
    double lr;
    double samples_per_s;
    /* test_* are then those of the last evaluation on the test set (none follows a stop), if there
     * is one; else NaN */
    int is_epoch_end;
    double test_loss, test_accuracy;
} fy_train_event_t;

/* The other processes of a data-parallel training: fy_ddp_replicas (ferry/dist_train.h) fills it.
 * All ranks call each function at the same points. */
typedef struct fy_train_replicas {
    size_t struct_size;
    int rank, ranks; /* as those of the loaders */
    void *user;
    /* before the first step, behind `resume`. text: lines that are equal on all ranks */
    fy_status_t (*begin)(void *user, const char *text);
    fy_status_t (*sum_grads)(void *user); /* of the model */
    fy_status_t (*sum)(void *user, fy_tensor_t *tensor);
    fy_status_t (*share_buffers)(void *user); /* before an evaluation and a checkpoint */
    /* 1: each rank's optimizer updates a part of the elements (fy_optimizer_create_ranges). Then
     * sum_grads may leave the other elements' gradients undefined, and the next three are called;
     * else they may be NULL */
    int64_t shards_optimizer;
    fy_status_t (*clip_norm)(void *user, double max_norm); /* as fy_grads_clip_norm, of the sums */
    fy_status_t (*share_values)(void *user);               /* behind each step */
    /* For a checkpoint, once for each state. Host tensors: `part` has this rank's elements, range
     * after range; rank 0's `whole` gets those of all, the others' is NULL */
    fy_status_t (*collect)(void *user, fy_tensor_t *part, fy_tensor_t *whole);
    /* fy_model_backward for the last batch before sum_grads; NULL: fy_model_backward itself */
    fy_status_t (*backward)(void *user, fy_tape_t *tape, const fy_tensor_t *loss,
                            const fy_backward_options_t *options);
    /* 1: fy_model_sync_norms was called. Each batch must have a sample for each rank */
    int64_t syncs_norms;
    /* 1: the rank is known to be lost, so no rank waits for its checkpoint; NULL: never known */
    int (*is_lost)(void *user, int rank);
} fy_train_replicas_t;
#define FY_TRAIN_REPLICAS_INIT FY_ZEROED_(train_replicas)

typedef struct fy_train_options {
    size_t struct_size;
    int64_t
        epochs; /* ends with the loader's epoch of this number, from 1; a new loader has had none */
    /* batches for each update, 1 or more: as one batch of all of their samples */
    int64_t accumulate;
    int keep; /* checkpoints in the folder */
    fy_loss_kind_t loss;
    int64_t max_steps;             /* 0: the number of steps of the epochs */
    const fy_schedule_t *schedule; /* NULL: the optimizer's lr stays */
    double clip_norm, clip_value;  /* 0: none */
    /* steps between downloaded losses (4 bytes each, summed on the device); 0: at the end of an
     * epoch */
    int64_t log_every;
    /* folder, made before the first step if its parent exists; NULL: none */
    const char *checkpoint;
    int64_t checkpoint_every; /* steps; 0: at the end of each epoch */
    int resume;               /* 1: continues from the newest checkpoint in `checkpoint`, if there
                               * is one */
    int graph;                /* 1: the step is recorded once and replayed; full batches only */
    fy_status_t (*on_event)(void *user,
                            /* called each step; NULL: none. If it fails, the training ends with its
                             * status */
                            const fy_train_event_t *event);
    void *user;
    /* set to 1 (a signal handler may) to end after this step, with a checkpoint; NULL: none */
    const volatile int *stop;
    /* FY_DTYPE_BF16, FY_DTYPE_F16: steps compute under fy_autocast_set, evaluations do not;
     * parameters, gradients and checkpoints are the same.
     * FY_DTYPE_F32: as the scope around the call has it. Steps in f16, also of a model with f16
     * parameters, need an optimizer with loss_scaling: INVALID_ARGUMENT without */
    fy_dtype_t precision;
    /* The result is that of one process with whole batches, but for the order of sums, dropout
     * masks and, without syncs_norms, statistics of batch norms. Losses are means over all ranks;
     * rank 0 writes checkpoints, and every rank reads them. If a rank fails, as when another one is
     * lost, rank 0 writes a checkpoint of the last update, except with shards_optimizer. The others
     * wait for it up to 10 s. `stop` on one rank stops all. Not with `graph`. NULL: one process */
    const fy_train_replicas_t *replicas;
} fy_train_options_t;
#define FY_TRAIN_OPTIONS_INIT FY_DEFAULTS_(train_options, .epochs = 1, .accumulate = 1, .keep = 3)
FY_API void fy_train_options_init(fy_train_options_t *options, size_t nbytes);

typedef struct fy_train_result {
    size_t struct_size;
    int64_t steps, epochs; /* done, those before a resume included */
    /* mean of the last epoch, or of its completed part, also after a resume; NaN: a checkpoint in
     * this epoch has no losses, or the training did no step */
    double train_loss;
    /* of the last evaluation on the test set; NaN without one, or without classes */
    double test_loss, test_accuracy;
    uint64_t wall_ns; /* of the training steps */
    double samples_per_s;
    uint64_t
        /* calls to the backend's allocator after the eighth batch, without those for downloaded
         * losses, evaluation and checkpoints; a pool may grow until then. 0: there were no more */
        device_allocs_steady;
    int is_stopped; /* by `stop` */
    /* With `graph`: op calls of the recorded step, the number of its replays, and the path of the
     * last replay (graph.h). Each replay also makes two copies of the batch. 0: none was
     * recorded. */
    uint64_t graph_requests, graph_replays;
    fy_graph_path_t graph_path;
    int reserved;
    int64_t skipped_steps; /* of `steps`, by loss scaling; the schedule moves on in them */
} fy_train_result_t;
#define FY_TRAIN_RESULT_INIT FY_ZEROED_(train_result)

/* Trains: for each batch forward, loss, backward, update; after each epoch an evaluation on `test`
 * (may be NULL). Ledger and figures have the scopes "train/epoch/step", "train/epoch/loss",
 * "train/test", "train/checkpoint". A steady step has light requests only. The model is left in
 * evaluation.
 * Fails before the first step, with nothing changed: DEVICE_MISMATCH, SHAPE_MISMATCH (samples or
 * labels of `train` or `test` do not fit the model), DTYPE_MISMATCH (labels, the loss), BAD_VALUE
 * (the data set has more classes than the model has scores), INVALID_ARGUMENT (also an optimizer of
 * another model; resume or checkpoint_every without `checkpoint`; the loader is within an update).
 * Fails later: DTYPE_MISMATCH (a layer takes no samples of that dtype), IO (checkpoints), as
 * requests; the model has the parameters of the last whole step.
 */
FY_API_STATUS fy_train_run(fy_model_t *model, fy_optimizer_t *optimizer, fy_loader_t *train,
                           fy_loader_t *test, const fy_train_options_t *options,
                           fy_train_result_t *out_result);
/* Writes a checkpoint as fy_train_run does, for your loop. All ranks call it, and rank 0 writes.
 * The file is that of one process, also if each rank has a part of the optimizer's state.
 * Call share_buffers before. replicas NULL: as fy_checkpoint_save, which has the failures. */
FY_API_STATUS fy_train_save(const char *directory, fy_model_t *model, fy_optimizer_t *optimizer,
                            const fy_train_replicas_t *replicas, const fy_progress_t *progress,
                            int keep);
/* Blocks. Mean loss and accuracy (largest element of the last axis; NaN without classes) over one
 * epoch of `loader`, without gradients, in evaluation. Downloads two scalars, in one download.
 * Either out may be NULL. The loader is then where it was, also after a failure; a streamed one
 * has no limit (fy_loader_limit). Fails: as fy_train_run, as requests. */
FY_API_STATUS fy_train_evaluate(fy_model_t *model, fy_loader_t *loader, fy_loss_kind_t loss,
                                double *out_loss, double *out_accuracy);

/* ---- the learning rate range test ---- */

typedef struct fy_find_lr_options {
    size_t struct_size;
    double min_lr, max_lr; /* lr grows from min_lr to max_lr by a constant factor */
    int64_t steps;         /* updates; 2 or more */
    int64_t accumulate;    /* batches for each update, 1 or more */
    fy_loss_kind_t loss;
    /* weight of the past in the smoothed loss, 0 .. 1: an exponential mean without bias, as the
     * first moment of Adam */
    double smoothing;
    /* the sweep ends when the smoothed loss is above `diverge` times its lowest, or a loss is not
     * finite; above 1 */
    double diverge;
    double clip_norm, clip_value; /* 0: none */
    /* set to 1 (a signal handler may) to end after this step; NULL: none */
    const volatile int *stop;
} fy_find_lr_options_t;
/* smoothing 0.9; diverge 4, as fastai (Howard and Gugger 2020) */
#define FY_FIND_LR_OPTIONS_INIT                                                                \
    FY_DEFAULTS_(find_lr_options, .min_lr = 1e-7, .max_lr = 10, .steps = 100, .accumulate = 1, \
                 .smoothing = 0.9, .diverge = 4)
FY_API void fy_find_lr_options_init(fy_find_lr_options_t *options, size_t nbytes);

/* One update: `loss` is that of its batches, before the update by `lr`. */
typedef struct fy_lr_point {
    double lr, loss, smoothed;
} fy_lr_point_t;

typedef struct fy_find_lr_result {
    size_t struct_size;
    int64_t steps; /* points written */
    /* suggested: where the smoothed loss falls fastest over log(lr), before its lowest. NaN: it
     * falls nowhere */
    double lr;
    double lowest_lr, lowest_loss; /* of the lowest smoothed loss; NaN: no loss was finite */
    int is_diverged, is_stopped;   /* why the sweep ended early */
} fy_find_lr_result_t;
#define FY_FIND_LR_RESULT_INIT FY_ZEROED_(find_lr_result)

/* Blocks. Trains with a growing lr (Smith 2017, section 3.3) from the begin of the loader's epoch,
 * in half precision under fy_autocast_set of the caller's scope.
 * Then restores parameters, gradients, buffers, random state, optimizer state, lr, training mode
 * and the loader's position, bit for bit, also after a failure. `points` has room for
 * options->steps. A step downloads its loss; copies of the restored tensors are on the device until
 * the end. The suggestion leaves out the first tenth of the steps, whose mean has few losses.
 * Fails: as fy_train_run before the first step, OUT_OF_MEMORY, as requests. If a request that
 * restores fails, its status is returned, and the model is not restored. */
FY_API_STATUS fy_train_find_lr(fy_model_t *model, fy_optimizer_t *optimizer, fy_loader_t *train,
                               const fy_find_lr_options_t *options, fy_lr_point_t *points,
                               fy_find_lr_result_t *out_result);

#ifdef __cplusplus
}
#endif
#endif
