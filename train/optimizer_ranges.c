/* Optimizers for some elements of a model: a rank of a data-parallel training has the state of its
 * part. Not here: the steps (optimizer.c), checkpoints of parts (checkpoint_shards.c). */
#include <stdlib.h>
#include <string.h>

#include <ferry/scope.h>
#include <ferry/tensor.h>

#include "train/fail.h"
#include "train/model.h"
#include "train/optimizer.h"

/* A view of elements of a model's block. */
static fy_status_t slice_block(fy_tensor_t *block, const fy_optimizer_range_t *range,
                               fy_tensor_t **out_slice)
{
    fy_tensor_info_t info = { .struct_size = sizeof info };
    FY_TRY(fy_tensor_query(block, &info));
    if (range->begin >= 0 && range->begin <= range->end && (uint64_t)range->end <= info.nelem)
        return fy_slice(block, 0, range->begin, range->end, out_slice);
    return FYT_FAIL(INVALID_ARGUMENT,
                    "optimizer_create_ranges: elements %lld to %lld of a model with %llu",
                    (long long)range->begin, (long long)range->end, (unsigned long long)info.nelem);
}

/* `slices` has space for two of each range. */
static fy_status_t create(const fy_optimizer_options_t *options, const fy_model_t *model,
                          size_t count, const fy_optimizer_range_t *ranges, fy_tensor_t **slices,
                          fy_optimizer_t **out_optimizer)
{
    for (size_t i = 0; i < count; i++) {
        FY_TRY(slice_block(model->values, &ranges[i], &slices[i]));
        FY_TRY(slice_block(model->grads, &ranges[i], &slices[count + i]));
    }
    return fyt_optimizer_create(options, count, slices, slices + count, model, out_optimizer);
}

/* Transfers `list` to the optimizer. */
static fy_status_t note(const fy_model_t *model, size_t count, fy_optimizer_range_t *list,
                        fy_optimizer_t *optimizer)
{
    fyt_ranges_t *own = fyt_optimizer_ranges(optimizer);
    fy_tensor_info_t info = { .struct_size = sizeof info };
    own->list = list;
    FY_TRY(fy_tensor_query(model->values, &info));
    own->count = count;
    own->whole = info.nelem;
    for (size_t i = 0; i < count; i++) own->nelem += (uint64_t)(list[i].end - list[i].begin);
    return FY_STATUS_OK;
}

fy_status_t fy_optimizer_create_ranges(const fy_optimizer_options_t *options,
                                       const fy_model_t *model, size_t count,
                                       const fy_optimizer_range_t *ranges,
                                       fy_optimizer_t **out_optimizer)
{
    if (out_optimizer) *out_optimizer = NULL;
    if (!model || !ranges || !options || !out_optimizer || count == 0 ||
        count > SIZE_MAX / 4 / sizeof *ranges)
        return FYT_FAIL(INVALID_ARGUMENT, "optimizer_create_ranges: %s",
                        !model           ? "model is NULL"
                        : !ranges        ? "ranges is NULL"
                        : !options       ? "options is NULL"
                        : !out_optimizer ? "out_optimizer is NULL"
                                         : "there is no range");
    if (fyt_optimizer_has_trust(options->kind))
        return FYT_FAIL(UNSUPPORTED,
                        "optimizer %s: the trust ratio of a parameter needs all its elements, and "
                        "a range may have some: use adamw, or fy_optimizer_create_model",
                        fy_optimizer_name(options->kind));
    fy_tensor_t **slices = calloc(2 * count, sizeof *slices);
    fy_optimizer_range_t *list = malloc(count * sizeof *list);
    fy_status_t status =
        slices && list ? FY_STATUS_OK
                       : FYT_FAIL(OUT_OF_MEMORY, "optimizer: no host memory for %zu ranges", count);
    const fy_scope_t scope = fy_scope_begin("ranges");
    if (status == FY_STATUS_OK)
        status = create(options, model, count, ranges, slices, out_optimizer);
    fy_scope_end(scope, 0, NULL);
    free(slices);
    if (status != FY_STATUS_OK) {
        free(list);
        return status;
    }
    memcpy(list, ranges, count * sizeof *list);
    status = note(model, count, list, *out_optimizer);
    if (status == FY_STATUS_OK) return status;
    fy_optimizer_destroy(*out_optimizer);
    *out_optimizer = NULL;
    return status;
}
