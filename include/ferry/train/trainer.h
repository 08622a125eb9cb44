/* The training loop, for programs that do not want to write it: what `ferry train` runs. */
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

/* What a training is asked to tell while it runs; from the thread that trains. */
typedef struct fy_train_event {
    size_t struct_size;
    int64_t epoch, epochs, epoch_step, epoch_steps, step;
    double loss; /* the last that came down (mean of its interval); NaN before the first */
    /* updates that were done when it was asked for: each loss that comes down has another; -1
     * before the first */
    int64_t loss_step;
    double lr;
    double samples_per_s;
    /* test_* are then those of the last look at the test set (none follows a stop), if there is
     * one; else NaN */
    int is_epoch_end;
    double test_loss, test_accuracy;
} fy_train_event_t;

typedef struct fy_train_options {
    size_t struct_size;
    int64_t epochs;     /* of the loader, which counts from where it stands: a new one from 0 */
    int64_t accumulate; /* batches an update, 1 or more */
    int keep;           /* checkpoints in the folder */
    fy_loss_kind_t loss;
    int64_t max_steps;            /* 0: as many as the epochs have */
    fy_schedule_t schedule;       /* struct_size 0: the optimizer's lr stays */
    double clip_norm, clip_value; /* 0: none */
    /* steps between the losses that come down (4 bytes each, added up on the device); 0: at the end
     * of an epoch */
    int64_t log_every;
    /* folder, made before the first step if its parent exists; NULL: none */
    const char *checkpoint;
    int64_t checkpoint_every; /* steps; 0: at the end of each epoch */
    int resume;               /* 1: from the newest in `checkpoint`, if there is one */
    int graph;                /* 1: the step is recorded once and replayed; full batches only */
    fy_status_t (*on_event)(void *user,
                            /* each step; NULL: none. Another status ends the training with it */
                            const fy_train_event_t *event);
    void *user;
    /* set to 1 (a signal handler may) to end after this step, checkpoint written; NULL: none */
    const volatile int *stop;
} fy_train_options_t;
#define FY_TRAIN_OPTIONS_INIT               \
    {                                       \
        sizeof(fy_train_options_t), 1, 1, 3 \
    }

typedef struct fy_train_result {
    size_t struct_size;
    int64_t steps, epochs; /* done, those before a resume included */
    double train_loss;     /* mean of the last epoch (or of what was done of it) */
    /* of the last look at the test set; NaN without one, or without classes */
    double test_loss, test_accuracy;
    uint64_t wall_ns; /* of the training steps */
    double samples_per_s;
    uint64_t
        /* calls to the backend's allocator after the first epoch's second step, losses that come
         * down, evaluation and checkpoints apart */
        device_allocs_steady;
    int is_stopped; /* by `stop` */
    /* With `graph`: op calls of the recorded step, how often it was replayed, and how a replay
     * reached the device in the end (graph.h).
     * Each replay comes with two copies of the batch. 0: none was recorded. */
    uint64_t graph_requests, graph_replays;
    fy_graph_path_t graph_path;
} fy_train_result_t;
#define FY_TRAIN_RESULT_INIT      \
    {                             \
        sizeof(fy_train_result_t) \
    }

/* Trains: for each batch forward, loss, backward, update; after each epoch a look at `test` (may be
 * NULL). Scopes "train/epoch/step", "train/epoch/loss", "train/test", "train/checkpoint" in ledger
 * and figures. A steady step is light requests only. The model is left in evaluation.
 * Fails: BAD_VALUE before the first step (the data set has more classes than the model has scores),
 * INVALID_ARGUMENT, IO (checkpoints), and as requests do; the model then has the parameters of the
 * last whole step. */
FY_API_STATUS fy_train_run(fy_model_t *model, fy_optimizer_t *optimizer, fy_loader_t *train,
                           fy_loader_t *test, const fy_train_options_t *options,
                           fy_train_result_t *out_result);
/* Mean loss and share of right answers (largest element of the last axis; NaN without classes) over
 * one epoch of `loader`, without gradients, in evaluation. Two scalars come down, in one download.
 * Either out may be NULL. Blocks. */
FY_API_STATUS fy_train_evaluate(fy_model_t *model, fy_loader_t *loader, fy_loss_kind_t loss,
                                double *out_loss, double *out_accuracy);

#ifdef __cplusplus
}
#endif
#endif
