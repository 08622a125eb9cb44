/* Ways in which a model's training step keeps fewer bytes, planned side by side. */
#ifndef FERRY_TOOLS_PLAN_CHOICES_H_
#define FERRY_TOOLS_PLAN_CHOICES_H_

#include <ferry/train/segments.h>

#include "tools/cli/plan_models.h"
#include "tools/cli/tool.h"

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
