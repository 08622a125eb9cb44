/* Steps of a training, by an optimizer or by plain gradient descent, for tests of what a model
 * keeps for its backward, and of failures. Not a test. */
#ifndef FERRY_TESTS_UNIT_TRAIN_DESCENT_H_
#define FERRY_TESTS_UNIT_TRAIN_DESCENT_H_

#include "tests/unit/train/fixture.h"

typedef struct descent {
    fy_model_t *model;
    fy_tensor_t *x, *y; /* the batch of every step */
    fy_dtype_t precision;
    fy_optimizer_t *optimizer; /* or NULL */
    fy_model_info_t info;
    fy_tape_t *tape;
    uint64_t kept; /* bytes before the last backward */
} descent_t;

/* `d` has the model and the batch. */
static inline fy_status_t descent_begin(descent_t *d)
{
    d->info = (fy_model_info_t)FY_MODEL_INFO_INIT;
    FY_TRY(fy_model_query(d->model, &d->info));
    FY_TRY(fy_tape_create(&d->tape));
    return fy_model_watch(d->model, d->tape);
}

static inline fy_status_t descent_step(descent_t *d)
{
    fy_tensor_t *logits, *loss, *seed = NULL;
    fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
    const fy_scope_t scope = fy_scope_begin("step");
    FY_TRY(fy_autocast_set(d->precision));
    FY_TRY(fy_tape_begin(d->tape));
    FY_TRY(fy_model_forward(d->model, d->x, &logits));
    FY_TRY(fy_cross_entropy(logits, d->y, FY_REDUCTION_MEAN, &loss));
    d->kept = ts_live(d->info.device);
    if (d->optimizer) FY_TRY(fy_optimizer_seed(d->optimizer, FY_DTYPE_F32, &seed));
    options.seed = seed;
    FY_TRY(fy_model_backward(d->model, d->tape, loss, &options));
    FY_TRY(d->optimizer ? fy_optimizer_step(d->optimizer)
                        : fy_axpy(d->info.values, -0.05, d->info.grads));
    fy_scope_end(scope, 0, NULL);
    return FY_STATUS_OK;
}

/* What the steps have changed, the gradients, and the results in evaluation. */
static inline bits_t descent_bits(const descent_t *d)
{
    fy_tensor_t *logits;
    fy_model_set_training(d->model, 0);
    ts_ok(fy_model_forward(d->model, d->x, &logits));
    bits_t bits = bits_of(d->model, NULL);
    add_tensor(&bits, d->info.grads);
    add_tensor(&bits, logits);
    return bits;
}

#endif
