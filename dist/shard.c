/* Optimizer state that is divided over the ranks (ZeRO stage 1: Rajbhandari et al. 2020). Each
 * bucket has a part for each rank: `share` elements, the last rank's has the remainder, too.
 * Gradients are reduce-scattered, the rank updates its parts, parameters are gathered: 2 (n - 1) /
 * n of their bytes, as one all-reduce; a remainder is all-reduced and broadcast.
 * Not here: buckets (ddp.c), checkpoints (train/checkpoint_shards.c). */
#include "dist/ddp.h"

#include <stdlib.h>
#include <string.h>

#include <ferry/device.h>
#include <ferry/ops.h>
#include <ferry/scope.h>

#include "runtime/base/abi.h"

FY__ABI_FOREIGN_ROW(optimizer_options, OPTIMIZER_OPTIONS, eps)

enum { SHARE_MULTIPLE = 64 }; /* elements: parts of f32 begin at multiples of 256 bytes */

/* Elements of a bucket: [begin, begin + ranks * share) in equal parts, [rest, end) remains. */
typedef struct parts {
    int64_t begin, share, rest, end;
} parts_t;

static parts_t parts_of(const fy_ddp_t *ddp, size_t bucket)
{
    const int64_t ranks = ddp->group->transport.size;
    parts_t parts = { .begin = ddp->starts[bucket + 1], .end = ddp->starts[bucket] };
    parts.share = (parts.end - parts.begin) / (ranks * SHARE_MULTIPLE) * SHARE_MULTIPLE;
    parts.rest = parts.begin + ranks * parts.share;
    return parts;
}

static fy_optimizer_range_t range_of(const fy_ddp_t *ddp, size_t bucket, int rank)
{
    const parts_t parts = parts_of(ddp, bucket);
    const int64_t begin = parts.begin + rank * parts.share;
    return (fy_optimizer_range_t){ begin, rank == ddp->group->transport.size - 1
                                              ? parts.end
                                              : begin + parts.share };
}

static int64_t count_of(const fy_ddp_t *ddp, int rank)
{
    int64_t count = 0;
    for (size_t b = 0; b < ddp->nbuckets; b++) {
        const fy_optimizer_range_t range = range_of(ddp, b, rank);
        count += range.end - range.begin;
    }
    return count;
}

/* ---- the optimizer ---- */

static fy_status_t create(fy_ddp_t *ddp, const fy_optimizer_options_t *options,
                          fy_optimizer_t **out_optimizer)
{
    const int ranks = ddp->group->transport.size;
    fy_optimizer_options_t own;
    FY_TRY(FY__READ_GIVEN(optimizer_options, "ddp_create_optimizer", options, &own));
    if (count_of(ddp, 0) == 0)
        return FYD_FAIL(INVALID_ARGUMENT,
                        "ddp_create_optimizer: %lld elements cannot be divided over %d ranks: "
                        "their parts are multiples of %d elements of a bucket; set "
                        "shard_optimizer to 0",
                        (long long)ddp->starts[0], ranks, SHARE_MULTIPLE);
    if (own.loss_scaling)
        return FYD_FAIL(INVALID_ARGUMENT,
                        "ddp_create_optimizer: loss scaling looks at all gradients, and each rank "
                        "has sums of a part: use bf16, or set shard_optimizer to 0");
    fy_optimizer_range_t *ranges = calloc(ddp->nbuckets, sizeof *ranges);
    if (!ranges)
        return FYD_FAIL(OUT_OF_MEMORY, "ddp_create_optimizer: no host memory for %zu ranges",
                        ddp->nbuckets);
    for (size_t b = 0; b < ddp->nbuckets; b++)
        ranges[b] = range_of(ddp, b, ddp->group->transport.rank);
    const fy_status_t status =
        fy_optimizer_create_ranges(options, ddp->model, ddp->nbuckets, ranges, out_optimizer);
    free(ranges);
    return status;
}

fy_status_t fy_ddp_create_optimizer(fy_ddp_t *ddp, const fy_optimizer_options_t *options,
                                    fy_optimizer_t **out_optimizer)
{
    if (out_optimizer) *out_optimizer = NULL;
    if (!ddp || !options || !out_optimizer)
        return FYD_FAIL(INVALID_ARGUMENT, "ddp_create_optimizer: %s is NULL",
                        !ddp       ? "ddp"
                        : !options ? "options"
                                   : "out_optimizer");
    return fyd_shards(ddp) ? create(ddp, options, out_optimizer)
                           : fy_optimizer_create_model(options, ddp->model, out_optimizer);
}

/* ---- gradients ---- */

/* As long as `part`: source and destination of a call have different storages. */
static fy_status_t make_like(const fy_tensor_t *part, fy_tensor_t **out_tensor)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(part, &info));
    return fy_tensor_create(info.device, info.dtype, info.rank, info.dims, out_tensor);
}

static fy_status_t reduce_parts(fy_ddp_t *ddp, const parts_t *parts)
{
    const int64_t begin = parts->begin + ddp->group->transport.rank * parts->share;
    fy_tensor_t *all, *own, *sums;
    if (parts->share == 0) return FY_STATUS_OK;
    FY_TRY(fy_slice(ddp->info.grads, 0, parts->begin, parts->rest, &all));
    FY_TRY(fy_slice(ddp->info.grads, 0, begin, begin + parts->share, &own));
    FY_TRY(make_like(own, &sums));
    FY_TRY(fy_group_reduce_scatter(ddp->group, sums, all, FY_GROUP_SUM));
    return fy_copy(own, sums);
}

fy_status_t fyd_shard_reduce(fy_ddp_t *ddp, size_t bucket)
{
    const parts_t parts = parts_of(ddp, bucket);
    fy_tensor_t *rest;
    FY_TRY(reduce_parts(ddp, &parts));
    if (parts.rest == parts.end) return FY_STATUS_OK;
    FY_TRY(fy_slice(ddp->info.grads, 0, parts.rest, parts.end, &rest));
    return fy_group_all_reduce(ddp->group, rest, FY_GROUP_SUM);
}

/* ---- clipping ---- */

static fy_status_t slice_own(const fy_ddp_t *ddp, fy_tensor_t *block, size_t bucket,
                             fy_tensor_t **out_part)
{
    const fy_optimizer_range_t range = range_of(ddp, bucket, ddp->group->transport.rank);
    return fy_slice(block, 0, range.begin, range.end, out_part);
}

/* The norm of a rank's parts, in a tensor of one element. */
static fy_status_t norm_of_parts(const fy_ddp_t *ddp, fy_tensor_t **parts, fy_tensor_t **norms,
                                 fy_tensor_t **out_norm)
{
    fy_tensor_t *all, *norm;
    for (size_t b = 0; b < ddp->nbuckets; b++) {
        FY_TRY(slice_own(ddp, ddp->info.grads, b, &parts[b]));
        FY_TRY(fy_norm(parts[b], FY_ALL_AXES, 0, &norm));
        FY_TRY(fy_unsqueeze(norm, 0, &norms[b]));
    }
    FY_TRY(fy_concat(ddp->nbuckets, norms, 0, &all));
    FY_TRY(fy_norm(all, FY_ALL_AXES, 0, &norm));
    return fy_unsqueeze(norm, 0, out_norm);
}

static fy_status_t clip(const fy_ddp_t *ddp, double max_norm, fy_tensor_t **parts,
                        fy_tensor_t **norms)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    fy_tensor_t *own, *all, *norm;
    FY_TRY(norm_of_parts(ddp, parts, norms, &own));
    FY_TRY(fy_tensor_query(own, &info));
    FY_TRY(fy_tensor_create(info.device, info.dtype, FY_DIMS(ddp->group->transport.size), &all));
    FY_TRY(fy_group_all_gather(ddp->group, all, own));
    FY_TRY(fy_norm(all, FY_ALL_AXES, 0, &norm));
    for (size_t b = 0; b < ddp->nbuckets; b++) FY_TRY(fy_clip_by_norm(parts[b], norm, max_norm));
    return FY_STATUS_OK;
}

fy_status_t fy_ddp_clip_norm(fy_ddp_t *ddp, double max_norm)
{
    if (!ddp) return FYD_FAIL(INVALID_ARGUMENT, "ddp_clip_norm: ddp is NULL");
    if (!fyd_shards(ddp)) return fy_grads_clip_norm(1, &ddp->info.grads, max_norm, NULL);
    if (!(max_norm > 0))
        return FYD_FAIL(INVALID_ARGUMENT, "ddp_clip_norm: max_norm is %g; it must be above 0",
                        max_norm);
    fy_tensor_t **handles = calloc(2 * ddp->nbuckets, sizeof *handles);
    if (!handles)
        return FYD_FAIL(OUT_OF_MEMORY, "ddp_clip_norm: no host memory for %zu handles",
                        2 * ddp->nbuckets);
    const fy_scope_t scope = fy_scope_begin("clip");
    const fy_status_t status = clip(ddp, max_norm, handles, handles + ddp->nbuckets);
    fy_scope_end(scope, 0, NULL);
    free(handles);
    return status;
}

/* ---- parameters ---- */

static fy_status_t share_bucket(fy_ddp_t *ddp, size_t bucket)
{
    const parts_t parts = parts_of(ddp, bucket);
    const int64_t begin = parts.begin + ddp->group->transport.rank * parts.share;
    fy_tensor_t *all, *own, *copy, *rest;
    if (parts.share > 0) {
        FY_TRY(fy_slice(ddp->info.values, 0, parts.begin, parts.rest, &all));
        FY_TRY(fy_slice(ddp->info.values, 0, begin, begin + parts.share, &own));
        FY_TRY(make_like(own, &copy));
        FY_TRY(fy_copy(copy, own));
        FY_TRY(fy_group_all_gather(ddp->group, all, copy));
    }
    if (parts.rest == parts.end) return FY_STATUS_OK;
    FY_TRY(fy_slice(ddp->info.values, 0, parts.rest, parts.end, &rest));
    return fy_group_broadcast(ddp->group, rest, ddp->group->transport.size - 1);
}

fy_status_t fy_ddp_share_values(fy_ddp_t *ddp)
{
    fy_status_t status = FY_STATUS_OK;
    if (!ddp) return FYD_FAIL(INVALID_ARGUMENT, "ddp_share_values: ddp is NULL");
    if (!fyd_shards(ddp)) return FY_STATUS_OK;
    fy_scope_t scope = fy_scope_begin("share");
    for (size_t b = 0; status == FY_STATUS_OK && b < ddp->nbuckets; b++)
        status = share_bucket(ddp, b);
    fy_scope_end(scope, 0, NULL);
    return status;
}

/* ---- checkpoints ---- */

/* `part` has the elements of a rank's ranges, one behind the other. */
static fy_status_t place(const fy_ddp_t *ddp, int rank, fy_tensor_t *part, fy_tensor_t *whole)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    void *from, *to;
    FY_TRY(fy_tensor_query(part, &info));
    FY_TRY(fy_tensor_map(part, FY_ACCESS_READ, &from));
    FY_TRY(fy_tensor_map(whole, FY_ACCESS_READ_WRITE, &to));
    const size_t element = fy_dtype_size(info.dtype);
    const char *at = from;
    for (size_t b = 0; b < ddp->nbuckets; b++) {
        const fy_optimizer_range_t range = range_of(ddp, b, rank);
        const size_t nbytes = (size_t)(range.end - range.begin) * element;
        if (nbytes) memcpy((char *)to + (size_t)range.begin * element, at, nbytes);
        at += nbytes;
    }
    return FY_STATUS_OK;
}

static fy_status_t receive(fy_ddp_t *ddp, int rank, fy_dtype_t dtype, fy_tensor_t *whole)
{
    fy_tensor_t *part;
    FY_TRY(fy_tensor_create(fy_device_host(), dtype, FY_DIMS(count_of(ddp, rank)), &part));
    const fy_status_t status = fy_group_receive(ddp->group, part, rank);
    if (status == FY_STATUS_OK) FY_TRY(place(ddp, rank, part, whole));
    fy_tensor_destroy(part);
    return status;
}

fy_status_t fyd_shard_collect(fy_ddp_t *ddp, fy_tensor_t *part, fy_tensor_t *whole)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    if (ddp->group->transport.rank > 0) return fy_group_send(ddp->group, part, 0);
    FY_TRY(fy_tensor_query(part, &info));
    FY_TRY(place(ddp, 0, part, whole));
    for (int r = 1; r < ddp->group->transport.size; r++) FY_TRY(receive(ddp, r, info.dtype, whole));
    return FY_STATUS_OK;
}
