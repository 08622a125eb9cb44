/* Ways in which a model's training step keeps fewer bytes, planned side by side. */
#ifndef FERRY_TOOLS_PLAN_CHOICES_H_
#define FERRY_TOOLS_PLAN_CHOICES_H_

#include <stdio.h>

#include "tools/cli/plan_models.h"

/* Plans the step in every way, prints a table to `out` (NULL: not) and sets *options to the way
 * with the shortest step on the model clock that fits; if none fits, to the one of the smallest
 * peak. Without may_offload, ways that offload are left out; so is one whose page-locked bytes this
 * machine does not have. */
fy_status_t plan_choose(const char *device, const plan_model_t *model, plan_request_t *user,
                        int64_t batch, bool may_offload, FILE *out, fy_model_options_t *options);
/* Prints the largest batch of each way, at most `most`. 0: not even 1 fits. */
fy_status_t plan_fit_all(const char *device, const plan_model_t *model, plan_request_t *user,
                         int64_t most, FILE *out);

#endif
