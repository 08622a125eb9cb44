/* What step.c and step_trust.c share: a step of an optimizer on the host.
 * Not here: formulas (opset/formulas/step.h). */
#ifndef FERRY_BACKENDS_KERNELS_STEP_H_
#define FERRY_BACKENDS_KERNELS_STEP_H_

#include "opset/formulas/index.h"
#include "backends/kernels/family.h"

enum { FY__STEP_CHUNK = 512 }; /* elements that are converted at once */

typedef struct fy__host_step {
    const fy__loops_t *loops;
    fy__step_fn run;
    fy__rates_t rates; /* of parts with factors of 1 */
    fy__parts_t parts;
    /* a state that does not exist is the parameter: no formula reads it there */
    const fy_desc_t *param, *grad, *state[2];
    const fy_desc_t *trust; /* LARS, LAMB; else NULL */
    const fy_desc_t *low;   /* a copy of the parameter in half precision; NULL: none */
    int64_t piece;          /* elements of a thread */
    int is_dense;
    int is_half; /* parameter and gradient, which are computed with in f32 */
} fy__host_step_t;

static inline char *fy__host_step_element(const fy__host_step_t *step, const fy_desc_t *desc,
                                          int64_t i)
{
    const int64_t at = step->is_dense ? i : fy__offset_of(i, desc->rank, desc->dims, desc->strides);
    return (char *)desc->data + at * ((int64_t)1 << fy__log2_size(desc->dtype));
}

static inline double *fy__host_step_trust_at(const fy__host_step_t *step, int64_t part,
                                             int64_t column)
{
    return (double *)step->trust->data + part * step->trust->strides[0] +
           column * step->trust->strides[1];
}

/* n dense elements of the parameter or the gradient to compute with: in place, or in `wide`. */
static inline void *fy__host_step_load(const fy__host_step_t *step, const fy_desc_t *desc,
                                       int64_t n, void *from, float *wide)
{
    if (!step->is_half) return from;
    step->loops->cast[desc->dtype][FY_DTYPE_F32](n, wide, from);
    return wide;
}

/* A part's rates, with its trust ratio. */
static inline fy__rates_t fy__host_step_rates(const fy__host_step_t *step, int64_t part)
{
    if (!step->parts.data && !step->trust) return step->rates;
    const double lr = fy__part_factor(&step->parts, part, 1),
                 trust = step->trust ? *fy__host_step_trust_at(step, part, 0) : 1;
    return fy__rates_of_part(&step->rates, lr * trust, fy__part_factor(&step->parts, part, 2));
}

/* Writes the trust ratios and their sums; LAMB: updates the states. */
void fy__host_step_trust(const fy__host_step_t *step, const fy_launch_t *launch, int threads);

#endif
