/* The steps that `ferry plan` knows: small programs of the shape that fy_plan_step wants.
 * Next: plan_models.c; roundtrip, vectorize and minibatch are the experiments' own steps. */
#ifndef FERRY_TOOLS_PLAN_MODELS_H_
#define FERRY_TOOLS_PLAN_MODELS_H_

#include <ferry/train/segments.h>

#include "tools/cli/tool.h"
#include "tools/train/train_recipes.h"

/* What `user` of a step points to. */
typedef struct plan_request {
    const char *model; /* of model_plan_step: one that train_recipe_find knows; may have options */
    int optimizer;     /* index into TRAIN_OPTIMIZERS */
    int64_t params;    /* model_plan_step sets it to the number of parameters */
    int precision;     /* of model_plan_step: of TRAIN_PRECISIONS */
    bool inference;    /* of model_plan_step: the forward pass only, in evaluation */
    const fy_model_options_t *options; /* of model_plan_step; NULL: defaults */
    /* of model_plan_step: the step runs once more, recorded as a graph, which it explains; NULL: it
     * does not */
    fy_fact_fn say;
    void *say_user;
} plan_request_t;

typedef struct plan_model {
    const char *name, *batch_is;
    fy_step_fn step;
    int64_t params; /* -1: it has none, or the step sets those of the request */
} plan_model_t;

/* NULL past the last. */
const plan_model_t *plan_model_at(size_t index);

/* The two halves of model_plan_step, as fy_segments_fit wants them: `user` is a plan_request_t,
 * whose options are not read. */
fy_status_t model_plan_open(fy_device_t *device, const fy_model_options_t *options, void *user,
                            fy_model_t **out_model);
fy_status_t model_plan_run(fy_model_t *model, int64_t batch, void *user);

/* The steps themselves. */
fy_status_t model_plan_step(fy_device_t *device, int64_t batch, void *user);
fy_status_t roundtrip_plan_step(fy_device_t *device, int64_t batch, void *user);
fy_status_t vectorize_plan_step(fy_device_t *device, int64_t batch, void *user);
fy_status_t minibatch_plan_step(fy_device_t *device, int64_t batch, void *user);

/* ---- plan_choices.c: ways in which a step keeps fewer bytes, planned side by side ---- */

/* A training step to plan, as fy_segments_fit takes it. */
typedef struct plan_target {
    const char *device; /* spec, as fy_plan_step takes it */
    fy_model_open_fn open;
    fy_model_step_fn run;
    void *user; /* of both */
    int64_t batch;
    bool may_offload; /* false: ways that offload are left out */
} plan_target_t;

/* Plans the step in every way, writes a table, or "choices" in JSON, and sets *options to the way
 * with the shortest step on the model clock that fits; if none fits, to the one that reserves the
 * least. `given`: the other options of the model. *segments: those of the options; the caller's.
 * out_plan: that of the way taken; NULL: not wanted. */
fy_status_t plan_choose(session_t *session, const plan_target_t *target,
                        const fy_model_options_t *given, fy_segments_t *segments,
                        fy_model_options_t *options, fy_plan_t *out_plan);
/* Writes the largest batch, at most `most`, of several ways, in f32 and in bf16. 0: not even 1
 * fits. */
fy_status_t plan_fit_all(session_t *session, const plan_model_t *model, plan_request_t *user,
                         int64_t most);

#endif
