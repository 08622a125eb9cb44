/* Which layers of a model to compute again in the backward, chosen by plans: activation
 * checkpointing within a memory limit. Next: fy_model_options_t.segments, docs/memory.md. */
#ifndef FERRY_TRAIN_SEGMENTS_H_
#define FERRY_TRAIN_SEGMENTS_H_

#include <ferry/plan.h>
#include <ferry/train/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a model with `options` on `device`, always of the same layers. */
typedef fy_status_t (*fy_model_open_fn)(fy_device_t *device, const fy_model_options_t *options,
                                        void *user, fy_model_t **out_model);
/* Runs a training step or more with it, as fy_step_fn; calls fy_model_backward. */
typedef fy_status_t (*fy_model_step_fn)(fy_model_t *model, int64_t batch, void *user);

#define FY_SEGMENTS_CAPACITY 64
typedef struct fy_segments {
    size_t struct_size;
    size_t count;                                /* 0: the step fits without */
    fy_segment_t segments[FY_SEGMENTS_CAPACITY]; /* for fy_model_options_t.segments */
    uint64_t flops; /* floating-point operations of a step that they add */
    /* what the device's peak_live falls by; 0 if it does not */
    uint64_t saved_nbytes;
} fy_segments_t;
#define FY_SEGMENTS_INIT FY_ZEROED_(segments)

/* Finds segments, of any lengths, with which a step fits the limit of `spec` (as fy_plan_step),
 * with few recomputed operations: measures the bytes and operations of each place by plans,
 * searches, and plans what it finds. So the result fits, exactly; that no other costs less is not
 * proved. `options` (NULL: defaults) are of the model. out_plan (NULL: no) is the plan with the
 * segments. If none fit, it is OK with fits = 0 and those that reserve the least. Runs `step` some
 * hundred times, without arithmetic.
 * Fails: INVALID_ARGUMENT (also with recompute, offload or segments), as fy_plan_step. */
FY_API_STATUS fy_segments_fit(const char *spec, fy_model_open_fn open, fy_model_step_fn step,
                              void *user, int64_t batch, const fy_model_options_t *options,
                              fy_segments_t *out_segments, fy_plan_t *out_plan);

#ifdef __cplusplus
}
#endif
#endif
