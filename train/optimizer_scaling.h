/* Loss scaling of an optimizer: its state on the device. Next: optimizer_scaling.c. */
#ifndef FERRY_TRAIN_OPTIMIZER_SCALING_H_
#define FERRY_TRAIN_OPTIMIZER_SCALING_H_

#include <ferry/train/optimizer.h>

typedef struct fyt_scaling {
    fy_update_scaling_attrs_t attrs;
    /* f64 [5] as ferry/ops.h has it, and scalar views of it; NULL: there is no loss scaling */
    fy_tensor_t *state, *scale, *divisor, *found, *skipped;
    int is_checked; /* gradients of this step, by fy_optimizer_unscale */
} fyt_scaling_t;

fy_status_t fyt_scaling_check(const char *kind, const fy_loss_scaling_options_t *options);
/* In no scope; `scaling` is destroyed by fyt_scaling_destroy even after a failure. */
fy_status_t fyt_scaling_make(const fy_loss_scaling_options_t *options, fy_device_t *device,
                             fyt_scaling_t *scaling);
void fyt_scaling_destroy(fyt_scaling_t *scaling);
/* Parts (ferry/ops.h) whose factors are 1: a step with scaling has some. In no scope. */
fy_status_t fyt_scaling_make_parts(fy_device_t *device, fy_tensor_t **out_parts);
/* Before a new backward: after an unscale that no step followed, the next step divides again, and
 * what the unscale found is forgotten. */
fy_status_t fyt_scaling_rearm(fyt_scaling_t *scaling);
/* Downloads one of the scalar views; without loss scaling *out_number is unchanged. Blocks. */
fy_status_t fyt_scaling_read(const fyt_scaling_t *scaling, const fy_tensor_t *scalar,
                             double *out_number);
/* Divides a gradient, in place. */
fy_status_t fyt_scaling_divide(const fyt_scaling_t *scaling, fy_tensor_t *grad);

#endif
