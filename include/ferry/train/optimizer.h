/* Optimizers: one request updates all parameters, on the device. Learning rate and step number are
 * device tensors, so a recorded step can be replayed. Formulas: the ops sgd_step, adam_step,
 * adadelta_step, rmsprop_step, lars_step, lamb_step (ferry/ops.h). */
#ifndef FERRY_TRAIN_OPTIMIZER_H_
#define FERRY_TRAIN_OPTIMIZER_H_

#include <ferry/ops.h>
#include <ferry/train/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* owned by the caller, never by a scope; used by one thread at a time */
typedef struct fy_optimizer fy_optimizer_t;

/* clang-format off */
#define FY_OPTIMIZER_LIST(X)                                                                \
    X(SGD, "sgd") X(ADAM, "adam") X(ADAMW, "adamw") X(ADADELTA, "adadelta")                 \
    X(RMSPROP, "rmsprop") X(LARS, "lars") X(LAMB, "lamb")
/* clang-format on */
typedef enum fy_optimizer_kind {
#define X(name, text) FY_OPTIMIZER_##name,
    FY_OPTIMIZER_LIST(X)
#undef X
        FY_OPTIMIZER_COUNT
} fy_optimizer_kind_t;

/* The parameters whose name begins with `prefix`; the first group that fits counts. A group that
 * counts for no parameter is refused. */
typedef struct fy_optimizer_group {
    const char *prefix; /* "": every parameter */
    double lr_scale, weight_decay_scale;
} fy_optimizer_group_t;

/* Loss scaling, as torch.amp.GradScaler: gradients of a loss times the scale are divided by it in
 * the step. A step whose gradients have an infinite or NaN element changes only the scale. */
typedef struct fy_loss_scaling_options {
    size_t struct_size;
    double init_scale;                    /* powers of two: dividing by them is exact */
    double growth_factor, backoff_factor; /* after growth_interval good steps in a row; a bad one */
    int64_t growth_interval;
} fy_loss_scaling_options_t;
#define FY_LOSS_SCALING_OPTIONS_INIT                                            \
    FY_DEFAULTS_(loss_scaling_options, .init_scale = 65536, .growth_factor = 2, \
                 .backoff_factor = 0.5, .growth_interval = 2000)
FY_API void fy_loss_scaling_options_init(fy_loss_scaling_options_t *options, size_t nbytes);

/* Fields that a kind does not use are ignored. */
typedef struct fy_optimizer_options {
    size_t struct_size;
    fy_optimizer_kind_t kind;
    /* added to the gradient; AdamW: subtracted from the parameter, times lr (Loshchilov and Hutter
     * 2019) */
    double lr, weight_decay;
    /* SGD, and momentum: RMSprop, LARS. With momentum 0 only LARS has a tensor for it */
    double momentum, dampening;
    int nesterov;
    double beta1, beta2; /* Adam, AdamW (Kingma and Ba 2015), LAMB */
    double rho;          /* Adadelta (Zeiler 2012); RMSprop's alpha (Tieleman and Hinton 2012) */
    /* Adam: added after the bias-corrected square root; RMSprop: after it; Adadelta: inside; LARS,
     * LAMB: ferry/ops.h */
    double eps;
    double trust_coefficient; /* LARS; 0: 0.001 */
    /* Parameters with fewer axes have no weight decay, and in LARS and LAMB a trust ratio of 1. 2:
     * those are biases and weights of norms. 0: every parameter has both */
    int64_t decay_min_rank;
    /* Factors for parameters by name; the others have 1. Read by the call that gets the options */
    size_t ngroups;
    const fy_optimizer_group_t *groups;
    const fy_loss_scaling_options_t *loss_scaling; /* NULL: none; read as groups */
    int64_t centered; /* RMSprop, without momentum: 1: an estimate of the variance of gradients */
} fy_optimizer_options_t;
/* SGD's defaults; fy_optimizer_defaults has those of all kinds. */
#define FY_OPTIMIZER_OPTIONS_INIT                                                       \
    FY_DEFAULTS_(optimizer_options, .kind = FY_OPTIMIZER_SGD, .lr = 0.01, .beta1 = 0.9, \
                 .beta2 = 0.999, .rho = 0.9, .eps = 1e-8)
FY_API void fy_optimizer_options_init(fy_optimizer_options_t *options, size_t nbytes);

/* "adam"; "?" for an undefined kind. Static. */
FY_API const char *fy_optimizer_name(fy_optimizer_kind_t kind);
/* PyTorch's defaults: SGD lr 0.01; Adam and AdamW lr 0.001, 0.9, 0.999, 1e-8 (AdamW weight_decay
 * 0.01); Adadelta lr 1, rho 0.9, 1e-6; RMSprop lr 0.01, rho 0.99, 1e-8.
 * LARS lr 1, momentum 0.9, 1e-8; LAMB lr 0.001, 0.9, 0.999, 1e-6, weight_decay 0.01. `nbytes` is
 * sizeof *out_options. */
FY_API void fy_optimizer_defaults(fy_optimizer_kind_t kind, fy_optimizer_options_t *out_options,
                                  size_t nbytes);

/* For `count` parameters and their gradients: pairs of one shape, dtype (f32, f64, f16, bf16; the
 * state of halves is f32) and device, dense; no two tensors share bytes. A step is one request for
 * each pair. A model's blocks (fy_model_info_t values, grads) are one pair, in which no parameter
 * is known: call fy_optimizer_create_model for a rank, groups, LARS and LAMB. The name of a pair is
 * that of its value's tensor. Allocates zeroed state on the device; keeps the bytes alive, not your
 * handles.
 * Fails: INVALID_ARGUMENT (names the field or the tensors), SHAPE_MISMATCH, DTYPE_MISMATCH,
 * DEVICE_MISMATCH, OUT_OF_MEMORY. */
FY_API_STATUS fy_optimizer_create(const fy_optimizer_options_t *options, size_t count,
                                  fy_tensor_t *const *values, fy_tensor_t *const *grads,
                                  fy_optimizer_t **out_optimizer);
/* For a model: each parameter has a name, a rank and a separate trust ratio. A step is one
 * request. With factors or ratios it uploads 24 bytes a parameter here, once; the ratios are
 * computed on the device. Fails: as above. */
FY_API_STATUS fy_optimizer_create_model(const fy_optimizer_options_t *options,
                                        const fy_model_t *model, fy_optimizer_t **out_optimizer);
/* Elements [begin, end) of a model's block of parameters. */
typedef struct fy_optimizer_range {
    int64_t begin, end;
} fy_optimizer_range_t;
/* As fy_optimizer_create_model, for some elements of the model only: a step changes these, and
 * there is state for these. Each range is a pair; one may be empty. For data-parallel training,
 * where each rank updates a part (ferry/dist_train.h).
 * Fails: as above, INVALID_ARGUMENT (a range outside of the block), UNSUPPORTED (LARS, LAMB: a
 * trust ratio needs all elements of a parameter). */
FY_API_STATUS fy_optimizer_create_ranges(const fy_optimizer_options_t *options,
                                         const fy_model_t *model, size_t count,
                                         const fy_optimizer_range_t *ranges,
                                         fy_optimizer_t **out_optimizer);
/* NULL is ignored. */
FY_API void fy_optimizer_destroy(fy_optimizer_t *optimizer);
/* Light requests only. With loss scaling one more for each pair looks for infinite and NaN
 * gradients, and one updates the scale. */
FY_API_STATUS fy_optimizer_step(fy_optimizer_t *optimizer);
/* *out_seed: the loss scale, a scalar for fy_backward_options_t seed; NULL without loss scaling.
 * `dtype` is the loss's; f16 holds no scale above 65504. A light request; in the current scope. */
FY_API_STATUS fy_optimizer_seed(fy_optimizer_t *optimizer, fy_dtype_t dtype,
                                fy_tensor_t **out_seed);
/* Divides the gradients by the loss scale now, and not in the next step: call it before gradients
 * are clipped or read. Four light requests for a pair; none without loss scaling. */
FY_API_STATUS fy_optimizer_unscale(fy_optimizer_t *optimizer);
/* Blocks. Downloads the loss scale, 8 bytes; 1 without loss scaling. */
FY_API_STATUS fy_optimizer_query_scale(const fy_optimizer_t *optimizer, double *out_scale);
/* Blocks. Downloads the number of steps that loss scaling skipped, those before a checkpoint
 * included, 8 bytes; 0 without loss scaling. */
FY_API_STATUS fy_optimizer_query_skipped(const fy_optimizer_t *optimizer, int64_t *out_skipped);
/* Applies from the next step on; one light request if the value differs. Do not call it inside a
 * recorded step. Fails: INVALID_ARGUMENT (not finite, negative). */
FY_API_STATUS fy_optimizer_set_lr(fy_optimizer_t *optimizer, double lr);
/* The momentum of SGD, RMSprop and LARS, or beta1, for schedules. A recorded step keeps the value
 * at the recording. */
FY_API_STATUS fy_optimizer_set_momentum(fy_optimizer_t *optimizer, double momentum);
/* The options with the values of later set_lr and set_momentum calls, without groups and
 * loss_scaling. Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_optimizer_get(const fy_optimizer_t *optimizer,
                               fy_optimizer_options_t *out_options);

/* The tensors of a checkpoint: "momentum", "exp_avg", "exp_avg_sq", "square_avg", "grad_avg",
 * "acc_delta", "step", with ".N" for pair N if there are several; "loss_scaling". The optimizer's
 * own handles. NULL and NULL past the last. */
FY_API void fy_optimizer_state(const fy_optimizer_t *optimizer, size_t index, const char **out_name,
                               fy_tensor_t **out_tensor);

/* Clips so that the 2-norm of all gradients together is at most max_norm: g *= min(1, max_norm /
 * (norm + 1e-6)), as PyTorch. Call it between backward and step. In place, on the device, without a
 * download. Computes in f32, or in f64 if a gradient is f64, on copies of gradients of other
 * dtypes.
 * *out_norm (may be NULL) is the norm before, in that dtype, rank 0, on the device. Fails:
 * INVALID_ARGUMENT (max_norm not above 0; two dense ones share bytes; one is read-only or a
 * broadcast), DTYPE_MISMATCH (no float); then none has changed. */
FY_API_STATUS fy_grads_clip_norm(size_t count, fy_tensor_t *const *grads, double max_norm,
                                 fy_tensor_t **out_norm);
/* Clamps each element to [-max, max]. Fails: as fy_grads_clip_norm. */
FY_API_STATUS fy_grads_clip_value(size_t count, fy_tensor_t *const *grads, double max);

#ifdef __cplusplus
}
#endif
#endif
