/* Ways in which a model's training step keeps fewer bytes, planned side by side. */
#ifndef FERRY_TOOLS_PLAN_CHOICES_H_
#define FERRY_TOOLS_PLAN_CHOICES_H_

#include <ferry/train/segments.h>

#include "tools/cli/plan_models.h"
#include "tools/cli/tool.h"

/* Plans the step in every way, writes a table, or "choices" in JSON, and sets *options to the way
 * with the shortest step on the model clock that fits; if none fits, to the one that reserves the
 * least. *segments: those of the options; the caller's. Without may_offload, ways that offload are
 * left out. */
fy_status_t plan_choose(session_t *session, const plan_model_t *model, plan_request_t *user,
                        int64_t batch, bool may_offload, fy_segments_t *segments,
                        fy_model_options_t *options);
/* Writes the largest batch, at most `most`, of several ways, in f32 and in bf16. 0: not even 1
 * fits. */
fy_status_t plan_fit_all(session_t *session, const plan_model_t *model, plan_request_t *user,
                         int64_t most);

#endif
