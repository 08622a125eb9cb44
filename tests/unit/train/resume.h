/* A short training that can stop and resume at any step, for the tests of checkpoints. It has
 * dropout, a schedule and shuffled data, so that each missing part of the state shows. Not a
 * test. */
#ifndef FERRY_TESTS_UNIT_TRAIN_RESUME_H_
#define FERRY_TESTS_UNIT_TRAIN_RESUME_H_

#include <stdint.h>

#include <ferry/train/train.h>

enum { RESUME_BATCHES = 5, RESUME_BATCH = 8, RESUME_INPUTS = 12, RESUME_CLASSES = 4 };

typedef struct resume {
    fy_model_t *model;
    fy_optimizer_t *optimizer;
    fy_tape_t *tape;
    fy_progress_t progress;
} resume_t;

/* A new model on `device`, from `seed`, with this optimizer. */
static inline fy_status_t resume_begin_with(fy_device_t *device, int64_t seed,
                                            const fy_optimizer_options_t *optimizer, resume_t *r)
{
    fy_layer_t *first, *drop, *second, *all;
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    *r = (resume_t){ .progress = FY_PROGRESS_INIT };
    r->progress.seed = 5;
    options.seed = seed;
    FY_TRY(fy_layer_linear(RESUME_INPUTS, 16, NULL, &first));
    FY_TRY(fy_layer_dropout(0.5, &drop));
    FY_TRY(fy_layer_linear(16, RESUME_CLASSES, NULL, &second));
    const fy_layer_child_t children[] = { { "fc1", first }, { "drop", drop }, { "fc2", second } };
    FY_TRY(fy_layer_sequential(3, children, &all));
    FY_TRY(fy_model_create(device, all, 1, (int64_t[]){ RESUME_INPUTS }, &options, &r->model));
    FY_TRY(fy_model_query(r->model, &info));
    FY_TRY(fy_optimizer_create(optimizer, 1, &info.values, &info.grads, &r->optimizer));
    FY_TRY(fy_tape_create(&r->tape));
    fy_tape_keep(r->tape);
    return fy_model_watch(r->model, r->tape);
}

static inline fy_status_t resume_begin(fy_device_t *device, int64_t seed, resume_t *r)
{
    fy_optimizer_options_t adam;
    fy_optimizer_defaults(FY_OPTIMIZER_ADAM, &adam, sizeof adam);
    return resume_begin_with(device, seed, &adam, r);
}

static inline void resume_end(resume_t *r)
{
    fy_tape_destroy(r->tape);
    fy_optimizer_destroy(r->optimizer);
    fy_model_destroy(r->model);
}

/* The batch of (seed, epoch, epoch_step): drawn on the device, so the data set needs no storage. */
static inline fy_status_t resume_batch(fy_device_t *device, const fy_progress_t *p,
                                       fy_tensor_t **out_x, fy_tensor_t **out_y)
{
    fy_tensor_t *rng, *classes, *order;
    FY_TRY(fy_rng_create(device, p->seed * 1000 + p->epoch * RESUME_BATCHES + p->epoch_step, &rng));
    FY_TRY(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(RESUME_BATCH, RESUME_INPUTS), 0, 1, out_x));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(RESUME_BATCH), 0, RESUME_CLASSES, &classes));
    FY_TRY(fy_randperm(rng, RESUME_BATCH, &order));
    return fy_cast(classes, FY_DTYPE_I32, out_y);
}

/* One update. The learning rate is a function of the step. */
static inline fy_status_t resume_step(fy_device_t *device, resume_t *r)
{
    fy_tensor_t *x, *y, *logits, *loss, *seed;
    fy_progress_t *p = &r->progress;
    const fy_scope_t scope = fy_scope_begin("step");
    FY_TRY(fy_optimizer_set_lr(r->optimizer, 0.01 / (1 + (double)p->step)));
    FY_TRY(resume_batch(device, p, &x, &y));
    FY_TRY(fy_tape_begin(r->tape));
    FY_TRY(fy_model_forward(r->model, x, &logits));
    FY_TRY(fy_cross_entropy(logits, y, FY_REDUCTION_MEAN, &loss));
    FY_TRY(fy_optimizer_seed(r->optimizer, FY_DTYPE_F32, &seed));
    const fy_backward_options_t backward = { sizeof backward, seed, 0 };
    FY_TRY(fy_model_backward(r->model, r->tape, loss, &backward));
    FY_TRY(fy_optimizer_step(r->optimizer));
    fy_scope_end(scope, 0, NULL);
    p->step++;
    if (++p->epoch_step == RESUME_BATCHES) p->epoch++, p->epoch_step = 0;
    return FY_STATUS_OK;
}

#endif
