/* Trainings by fy_train_run on each rank, shared by the programs that test_*.sh start by mpirun. */
#ifndef FERRY_TEST_RANKS_TRAINING_H_
#define FERRY_TEST_RANKS_TRAINING_H_

#include <ferry/dist_train.h>
#include <ferry/train/train.h>

#include "tests/unit/dist/ranks.h"

/* 3 batches an epoch, of 24, 24 and 2 samples: of 4 ranks some have none of the last. */
enum { SAMPLES = 50, BATCH = 24 };

typedef struct testing {
    const char *name, *model;
    int64_t steps, accumulate;
    double clip_norm;
    int is_streamed;
    double bound;
    fy_optimizer_kind_t optimizer; /* 0: SGD with momentum */
    fy_dtype_t precision;          /* 0: f32 */
    const char *checkpoint;
    int resume;
    int64_t batch; /* 0: BATCH */
} testing_t;

typedef struct run {
    fy_dataset_t *set;
    fy_loader_t *train, *test;
    fy_model_t *model;
    fy_optimizer_t *optimizer;
    fy_model_info_t info;
    fy_train_result_t result;
} run_t;

static inline fy_optimizer_options_t optimizer_of(const testing_t *c)
{
    fy_optimizer_options_t options = FY_OPTIMIZER_OPTIONS_INIT;
    options.lr = 0.05;
    options.momentum = 0.9;
    if (c->optimizer != FY_OPTIMIZER_SGD)
        fy_optimizer_defaults(c->optimizer, &options, sizeof options);
    return options;
}

static inline run_t make_run(const testing_t *c, int is_shard)
{
    run_t run = { .info = FY_MODEL_INFO_INIT, .result = FY_TRAIN_RESULT_INIT };
    fy_loader_options_t loader = FY_LOADER_OPTIONS_INIT;
    fy_optimizer_options_t optimizer = FY_OPTIMIZER_OPTIONS_INIT;
    fy_model_options_t model = FY_MODEL_OPTIONS_INIT;
    fy_dataset_t *all, *rest;
    OK(fy_dataset_open("mnist", NULL, 0, &all));
    OK(fy_dataset_split(all, SAMPLES, -1, &run.set, &rest));
    fy_dataset_destroy(rest);
    fy_dataset_destroy(all);
    loader.batch = c->batch ? c->batch : BATCH;
    loader.scale = 1.0 / 255;
    loader.resident = !c->is_streamed;
    if (is_shard) {
        loader.rank = group.rank;
        loader.ranks = group.size;
    }
    OK(fy_loader_create(device, run.set, &loader, &run.train));
    loader.shuffle = 0;
    OK(fy_loader_create(device, run.set, &loader, &run.test));
    if (c->precision) model.low = c->precision;
    model.seed = is_shard ? group.rank + 1 : 1; /* other values, until they are rank 0's */
    OK(fy_model_open(device, c->model, &model, &run.model));
    OK(fy_model_query(run.model, &run.info));
    optimizer = optimizer_of(c);
    OK(fy_optimizer_create_model(&optimizer, run.model, &run.optimizer));
    return run;
}

static inline void free_run(run_t *run)
{
    fy_optimizer_destroy(run->optimizer);
    fy_model_destroy(run->model);
    fy_loader_destroy(run->train);
    fy_loader_destroy(run->test);
    fy_dataset_destroy(run->set);
}

static inline void train(const testing_t *c, run_t *run, const fy_train_replicas_t *replicas)
{
    fy_train_options_t options = FY_TRAIN_OPTIONS_INIT;
    options.epochs = 1000;
    options.max_steps = c->steps;
    options.accumulate = c->accumulate;
    options.clip_norm = c->clip_norm;
    options.log_every = 5;
    if (c->precision) options.precision = c->precision;
    options.checkpoint = c->checkpoint;
    options.resume = c->resume;
    options.replicas = replicas;
    OK(fy_train_run(run->model, run->optimizer, run->train, run->test, &options, &run->result));
}

#endif
