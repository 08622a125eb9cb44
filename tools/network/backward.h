/* When a training step completes each gradient, on the model clock of its plan: read from the
 * events of the planned step. Not here: what ranks do with them (overlap.h). Next: backward.c. */
#ifndef FERRY_TOOLS_BACKWARD_H_
#define FERRY_TOOLS_BACKWARD_H_

#include "tools/cli/plan_models.h"

/* A gradient. nbytes: in the model's block, with the gap behind it. */
typedef struct arrival {
    uint64_t ns, nbytes; /* ns: from the begin of the step */
} arrival_t;

typedef struct backward {
    arrival_t *arrivals; /* in the order of the backward */
    size_t count;
    uint64_t backward_ns, step_ns;   /* from the begin of the step to the end of each */
    uint64_t nbytes, element_nbytes; /* of all gradients; of one element */
    /* Optimizer state that has an element for each element of the gradients: tensors, their bytes
     * as allocated, and the sum of their element sizes */
    size_t nstates;
    uint64_t state_nbytes, state_element_nbytes;
} backward_t;

/* Plans the training step of a model, as fy_plan_step does, and records it in a file in /tmp, which
 * it removes. `options` may be NULL. Free *out_backward, also after a failure.
 * Fails: as fy_plan_step, BUSY (a recording is running), IO. */
fy_status_t backward_plan(const char *device, plan_request_t *request, int64_t batch,
                          const fy_plan_options_t *options, fy_plan_t *out_plan,
                          backward_t *out_backward);
void backward_free(backward_t *backward);

#endif
