/* Shared by the parts of `ferry train`: the options, and the objects that exist while it trains.
 * cmd_train.c reads options, train_setup.c makes data, model and optimizer, train_progress.c shows
 * progress, train_report.c the results, train_find_lr.c tests learning rates, train_plan.c plans.
 */
#ifndef FERRY_TOOLS_TRAIN_H_
#define FERRY_TOOLS_TRAIN_H_

#include <ferry/dist_train.h>
#include <ferry/train/segments.h>

#include "tools/cli/tool.h"
#include "tools/train/train_recipes.h"

enum { TRAIN_GROUPS = 16, TRAIN_NAME_NBYTES = 64 };

typedef struct train_request {
    const train_recipe_t *recipe;
    const char *spec; /* the model with its options */
    const char *data, *save;
    int64_t limit_samples, keep;
    int64_t workers;                   /* -1: not given */
    double lr, momentum, weight_decay; /* NaN: not given */
    double loss_scale;                 /* 0: none */
    int optimizer, schedule;           /* of TRAIN_OPTIMIZERS, TRAIN_SCHEDULES */
    int precision;                     /* of TRAIN_PRECISIONS */
    fy_model_options_t model;
    fy_loader_options_t loader;
    bool stream, resume, graph, flip, find_lr, drop_bias;
    int dist;                 /* of TRAIN_DIST */
    int64_t deadline_s;       /* 0: not given */
    bool shard;               /* the optimizer's state, over the ranks */
    bool sync_norms;          /* statistics of batch norms */
    bool chooses;             /* --recompute auto */
    int64_t memory_limit;     /* that it plans for; 0: the device's */
    int64_t warmup, scale_lr; /* 0: not given */
    int64_t decay_min_rank;
    size_t ngroups; /* --lr-scale */
    fy_optimizer_group_t groups[TRAIN_GROUPS];
    char group_names[TRAIN_GROUPS][TRAIN_NAME_NBYTES]; /* their prefixes */
} train_request_t;

#define TRAIN_SCHEDULES "default|constant|step|cosine|cyclic|one-cycle|range"

#define TRAIN_DIST "off|auto"
#define TRAIN_DIST_HELP                                                                         \
    "auto: together with the processes that mpirun or srun started; each has a shard of each "  \
    "batch, so that --batch is of all, and one device: auto is cuda:N for the N-th process of " \
    "a host, else the host. Rank 0 prints and writes files; --record of rank N is FILE.N"

#define TRAIN_SHARD_HELP                                                                        \
    "with --dist auto each process has the optimizer's state of a part of the parameters "      \
    "(ZeRO-1); checkpoints have all of it, and any number of processes resumes them. Not with " \
    "lars, lamb, --precision f16"

#define TRAIN_SYNC_HELP                                                                        \
    "with --dist auto batch norms have the statistics of the whole batch, as in one process; " \
    "each batch has a sample for each process"

/* --dist auto: the other processes. */
typedef struct train_dist {
    fy_group_t *group;
    fy_group_info_t info;
    fy_ddp_t *ddp;
    fy_train_replicas_t replicas;
    char device[32], record[4096];
} train_dist_t;

typedef struct train_run {
    session_t session;
    train_dist_t *dist; /* NULL: one process */
    train_request_t request;
    fy_dataset_t *train_set, *test_set;
    fy_loader_t *train, *test;
    fy_model_t *model;
    fy_optimizer_t *optimizer;
    fy_model_info_t info;
    fy_segments_t segments; /* that --recompute auto chose */
    fy_loader_info_t loader;
    fy_train_options_t options;
    fy_schedule_t schedule; /* what options.schedule points to, if it is not NULL */
    fy_train_result_t result;
    char origin[4096]; /* where the data come from */
    /* downloaded losses, in order, and the number of updates before each */
    double *losses, *loss_steps;
    size_t nlosses;
    int64_t loss_step; /* of the last of them */
    double begin_ns, shown_ns;
    uint64_t checksum, weight_nbytes;
} train_run_t;

/* ---- train_setup.c: all but the session; what it has made is freed by train_teardown in any case
 * ---- */

fy_status_t train_setup(train_run_t *run);
/* Parts of it, for a run with data sets: loaders and model, then optimizer and schedule. */
fy_status_t train_make(train_run_t *run, const fy_model_options_t *options);
fy_status_t train_finish(train_run_t *run);
void train_teardown(train_run_t *run);
/* That of --schedule, or the recipe's. */
fy_schedule_kind_t train_schedule_kind(const train_request_t *request);

/* ---- train_dist.c ---- */

/* Finds the other processes; before the session, whose device and outputs it changes. Close it
 * also after a failure. */
fy_status_t train_dist_open(train_dist_t *dist, common_t *common, train_request_t *request);
/* Behind the model and the options: makes the replicas equal. */
fy_status_t train_dist_begin(train_run_t *run);
/* The optimizer of this rank. */
fy_status_t train_dist_optimizer(train_run_t *run, const fy_optimizer_options_t *options);
/* What a failed fy_train_run reports: that a rank is lost, if that is why the device is. */
fy_status_t train_dist_cause(const train_run_t *run, fy_status_t status);
void train_dist_print(const train_run_t *run);
/* Before the model is destroyed. */
void train_dist_end(train_run_t *run);
void train_dist_close(train_dist_t *dist);

/* ---- train_plan.c ---- */

/* Plans the training in every way of keeping fewer bytes, prints the table, and sets *options to
 * the fastest that fits. Fails: OUT_OF_MEMORY (none fits), INVALID_ARGUMENT (no limit). */
fy_status_t train_choose(train_run_t *run, fy_model_options_t *options);

/* ---- train_progress.c ---- */

/* For fy_train_options_t.on_event; user is the run. Collects losses; a bar on standard error, if
 * that is a terminal, and one line an epoch. */
fy_status_t train_on_event(void *user, const fy_train_event_t *event);
/* The first Ctrl-C sets what it returns to 1; a second one ends the process. */
const volatile int *train_catch_interrupt(void);
void train_release_interrupt(void);
/* Of a training that was stopped, as shells have it: 130 by Ctrl-C, 143 by SIGTERM, and if another
 * rank got the signal, which is said. */
int train_interrupt_status(void);

/* ---- train_report.c ---- */

void train_print_start(const train_run_t *run);
void train_print_summary(const train_run_t *run);
void train_json(train_run_t *run);
/* The losses, to --csv and --plot. */
fy_status_t train_write_losses(train_run_t *run);

/* ---- train_find_lr.c ---- */

/* The learning rate range test in place of a training, and its output. Blocks. */
fy_status_t train_find_lr(train_run_t *run);

#endif
