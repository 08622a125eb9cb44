/* Parts of a step (ferry/ops.h): which parameter has which factors. Next: optimizer_parts.c. */
#ifndef FERRY_TRAIN_OPTIMIZER_PARTS_H_
#define FERRY_TRAIN_OPTIMIZER_PARTS_H_

#include <ferry/train/optimizer.h>

/* Refuses groups and ranks that are no such. */
fy_status_t fyt_parts_check(const fy_optimizer_options_t *options);
/* Refuses a group that counts for no parameter. */
fy_status_t fyt_parts_check_groups(const fy_optimizer_options_t *options, size_t count,
                                   fy_tensor_t *const *values, const fy_model_t *model);
/* Of the groups and of loss scaling, to compare two optimizers. */
uint64_t fyt_parts_checksum(const fy_optimizer_options_t *options,
                            const fy_loss_scaling_options_t *scaling);
/* The parts and the trust ratios for a step of `value`, NULL where it needs none; in no scope,
 * owned by the caller even after a failure. model NULL: `value` is one part. */
fy_status_t fyt_parts_make(const fy_optimizer_options_t *options, const fy_tensor_t *value,
                           const fy_model_t *model, fy_tensor_t **out_parts,
                           fy_tensor_t **out_trust);

#endif
