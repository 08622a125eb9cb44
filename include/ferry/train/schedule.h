/* Schedules: the learning rate as a function of the step. A schedule is a plain value: nothing to
 * free, and only the step number to save. */
#ifndef FERRY_TRAIN_SCHEDULE_H_
#define FERRY_TRAIN_SCHEDULE_H_

#include <ferry/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FY_SCHEDULE_LIST(X) \
    X(CONSTANT, "constant") \
    X(STEP, "step")         \
    X(COSINE, "cosine") X(CYCLIC, "cyclic") X(ONE_CYCLE, "one-cycle") X(RANGE, "range")
typedef enum fy_schedule_kind {
#define X(name, text) FY_SCHEDULE_##name,
    FY_SCHEDULE_LIST(X)
#undef X
        FY_SCHEDULE_COUNT
} fy_schedule_kind_t;

/* Steps count from 0. Fields that a kind does not use are ignored. */
typedef struct fy_schedule {
    size_t struct_size;
    fy_schedule_kind_t kind;
    /* CONSTANT, STEP, COSINE: the first value; CYCLIC, ONE_CYCLE: the highest; RANGE: the last */
    double lr;
    /* CONSTANT, STEP, COSINE: steps of a linear warm-up from lr * warmup_factor. The schedule's
     * step 0 comes after them. */
    int64_t warmup_steps;
    double warmup_factor;
    /* STEP: lr * gamma ^ floor(step / step_size). CYCLIC: steps up, and as many down (Smith 2017,
     * "triangular") */
    int64_t step_size;
    double gamma; /* STEP; CYCLIC: factor of the amplitude for each step; 1: constant */
    /* COSINE: min_lr + (lr - min_lr) (1 + cos(pi step / total_steps)) / 2 (Loshchilov and Hutter
     * 2017); ONE_CYCLE, RANGE. Later steps keep the last value */
    int64_t total_steps;
    /* COSINE, CYCLIC: the lowest; RANGE: the first; lr then grows by a constant factor */
    double min_lr;
    /* ONE_CYCLE (Smith and Topin 2018, as in PyTorch): from lr / div_factor up to lr during
     * pct_start of the steps, then down to lr / (div_factor * final_div_factor). three_phase: first
     * symmetrically down to the start. linear: lines instead of half cosines. */
    double pct_start, div_factor, final_div_factor;
    int three_phase, linear;
    double base_momentum,
        /* CYCLIC, ONE_CYCLE: momentum moves against lr, max when lr is lowest; both 0: unchanged */
        max_momentum;
} fy_schedule_t;
/* CONSTANT, 0.01; fy_schedule_defaults has the values of all kinds. */
#define FY_SCHEDULE_INIT                                                                       \
    FY_DEFAULTS_(schedule, .kind = FY_SCHEDULE_CONSTANT, .lr = 0.01, .warmup_factor = 1.0 / 3, \
                 .step_size = 1, .gamma = 0.1, .pct_start = 0.3, .div_factor = 25.0,           \
                 .final_div_factor = 1e4, .base_momentum = 0.85, .max_momentum = 0.95)
FY_API void fy_schedule_init(fy_schedule_t *schedule, size_t nbytes);

/* PyTorch's defaults: gamma 0.1 (CYCLIC 1), pct_start 0.3, div_factor 25, final_div_factor 1e4,
 * base_momentum 0.85 and max_momentum 0.95 (CYCLIC 0.8 and 0.9), step_size 1 (CYCLIC 2000), no
 * warm-up (its factor is 1/3), min_lr 0 (CYCLIC lr / 10, RANGE lr / 1e6). `nbytes` is
 * sizeof *out_schedule. */
FY_API void fy_schedule_defaults(fy_schedule_kind_t kind, double lr, int64_t total_steps,
                                 fy_schedule_t *out_schedule, size_t nbytes);
/* "one-cycle"; "?" for an undefined kind. Static. */
FY_API const char *fy_schedule_name(fy_schedule_kind_t kind);
/* INVALID_ARGUMENT names the invalid field. The functions below return NaN for a schedule that
 * fails here. */
FY_API_STATUS fy_schedule_check(const fy_schedule_t *schedule);
FY_API double fy_schedule_lr(const fy_schedule_t *schedule, int64_t step);
/* NaN: this schedule does not change momentum. */
FY_API double fy_schedule_momentum(const fy_schedule_t *schedule, int64_t step);
/* The linear scaling rule with a gradual warm-up (Goyal et al. 2017, sections 2.1 and 2.2), for a
 * schedule that was chosen for batches of `base_batch`: multiplies lr and min_lr by
 * batch / base_batch. During `warmup_steps` the rate rises to lr from the unscaled one (from lr for
 * a smaller batch). CYCLIC, ONE_CYCLE and RANGE have no warm-up: 0.
 * Fails: INVALID_ARGUMENT (also a result that fy_schedule_check refuses); nothing has changed. */
FY_API_STATUS fy_schedule_scale(fy_schedule_t *schedule, int64_t batch, int64_t base_batch,
                                int64_t warmup_steps);

#ifdef __cplusplus
}
#endif
#endif
