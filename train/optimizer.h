/* Inside of an optimizer, for the files of checkpoints and trainings. Not public. Next:
 * optimizer.c, optimizer_ranges.c. */
#ifndef FERRY_TRAIN_OPTIMIZER_INTERNAL_H_
#define FERRY_TRAIN_OPTIMIZER_INTERNAL_H_

#include <ferry/train/optimizer.h>

/* The elements that an optimizer of fy_optimizer_create_ranges updates: pair i has range i. */
typedef struct fyt_ranges {
    size_t count;          /* 0: all elements, or an optimizer without a model */
    uint64_t nelem, whole; /* of all ranges; of the model's block */
    fy_optimizer_range_t *list;
} fyt_ranges_t;

/* As fy_optimizer_create_model, for pairs of values and gradients. model NULL: each value is one
 * part. */
fy_status_t fyt_optimizer_create(const fy_optimizer_options_t *options, size_t count,
                                 fy_tensor_t *const *values, fy_tensor_t *const *grads,
                                 const fy_model_t *model, fy_optimizer_t **out_optimizer);
/* Dense tensors; values may be NULL. Fails: INVALID_ARGUMENT (names two that share bytes). */
fy_status_t fyt_optimizer_check_overlap(const char *what, size_t count, fy_tensor_t *const *values,
                                        fy_tensor_t *const *grads);
/* May an op change `tensor`, `list[index]`, in place? A call on several asks before its first
 * write. Fails: DTYPE_MISMATCH (no float), INVALID_ARGUMENT (read-only, broadcast). */
fy_status_t fyt_optimizer_check_in_place(const char *what, const char *list, size_t index,
                                         const fy_tensor_t *tensor);
fyt_ranges_t *fyt_optimizer_ranges(fy_optimizer_t *optimizer);
/* Of what fy_optimizer_get leaves out: names and factors of groups, options of loss scaling. */
uint64_t fyt_optimizer_checksum(const fy_optimizer_t *optimizer);
int fyt_optimizer_scales(const fy_optimizer_t *optimizer); /* the loss */
/* Has its step trust ratios? false for an undefined kind. */
int fyt_optimizer_has_trust(fy_optimizer_kind_t kind);
/* The field that fy_optimizer_set_momentum changes; NULL: the kind has none. */
double *fyt_optimizer_momentum(fy_optimizer_options_t *options);
/* Does it update bytes of this tensor's storage? */
int fyt_optimizer_updates(const fy_optimizer_t *optimizer, const fy_tensor_t *block);
/* Does the optimizer leave elements of its model out? Those are updated by other processes. */
static inline int fyt_optimizer_is_shard(fy_optimizer_t *optimizer)
{
    const fyt_ranges_t *ranges = optimizer ? fyt_optimizer_ranges(optimizer) : NULL;
    return ranges && ranges->count && ranges->nelem < ranges->whole;
}

#endif
