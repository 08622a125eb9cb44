/* Sums of gradients while the backward goes on. A bucket begins when the tape has reported all of
 * its gradients, and earlier buckets have begun. So all ranks begin them in one order. On the host
 * a bucket is summed in place, as a tensor with a separate storage: writes to other gradients of
 * the block do not wait. On a device it is copied there first, for the same reason, and copied
 * back by fy_ddp_reduce. Not here: sums after the backward (ddp.c). */
#include "dist/ddp.h"

#include <ferry/device.h>
#include <ferry/ops.h>
#include <ferry/scope.h>

#include "runtime/base/abi.h"

FY__ABI_FOREIGN_ROW(backward_options, BACKWARD_OPTIONS, accumulate)

static fy_status_t view_of(const fy_ddp_t *ddp, size_t b, fy_tensor_t **out_view)
{
    return fy_slice(ddp->info.grads, 0, ddp->starts[b + 1], ddp->starts[b], out_view);
}

/* A tensor with the bucket's elements in a separate storage. */
static fy_status_t make_part(const fy_ddp_t *ddp, size_t b)
{
    fyd_bucket_t *bucket = &ddp->buckets[b];
    const int64_t nelem = ddp->starts[b] - ddp->starts[b + 1];
    fy_tensor_info_t all = FY_TENSOR_INFO_INIT;
    fy_tensor_t *view;
    void *data;
    FY_TRY(fy_tensor_query(ddp->info.grads, &all));
    FY_TRY(view_of(ddp, b, &view));
    if (all.device == fy_device_host()) {
        FY_TRY(fy_tensor_map(ddp->info.grads, FY_ACCESS_READ_WRITE, &data));
        char *begin = (char *)data + (size_t)ddp->starts[b + 1] * fy_dtype_size(all.dtype);
        FY_TRY(fy_tensor_wrap(all.device, all.dtype, FY_DIMS(nelem), begin, NULL, NULL,
                              &bucket->part));
        fy_tensor_keep(view);
        bucket->held = view;
        return FY_STATUS_OK;
    }
    FY_TRY(fy_tensor_create(all.device, all.dtype, FY_DIMS(nelem), &bucket->part));
    return fy_copy(bucket->part, view);
}

static fy_status_t start(fy_ddp_t *ddp, size_t b)
{
    fyd_bucket_t *bucket = &ddp->buckets[b];
    fy_scope_t scope = fy_scope_begin("reduce");
    fy_status_t status = make_part(ddp, b);
    if (status == FY_STATUS_OK) {
        fy_tensor_keep(bucket->part);
        status = fy_group_all_reduce_async(ddp->group, bucket->part, FY_GROUP_SUM, &bucket->ticket);
        if (status != FY_STATUS_OK) { /* nothing was submitted */
            fy_tensor_destroy(bucket->part);
            fy_tensor_destroy(bucket->held);
        }
    }
    fy_scope_end(scope, 0, NULL);
    if (status == FY_STATUS_OK)
        ddp->nstarted++;
    else
        bucket->part = bucket->held = NULL;
    return status;
}

/* The bucket whose elements begin at or before `offset` bytes into the block. */
static size_t bucket_of(const fy_ddp_t *ddp, const fy_tensor_info_t *grad)
{
    fy_tensor_info_t all = FY_TENSOR_INFO_INIT;
    size_t b = 0;
    if (fy_tensor_query(ddp->info.grads, &all) != FY_STATUS_OK || grad->storage != all.storage)
        return ddp->nbuckets;
    const int64_t at =
        (int64_t)((grad->offset_nbytes - all.offset_nbytes) / fy_dtype_size(all.dtype));
    while (b < ddp->nbuckets && at < ddp->starts[b + 1]) b++;
    return b;
}

typedef struct pass {
    fy_ddp_t *ddp;
    fy_backward_options_t given; /* of the caller */
} pass_t;

static fy_status_t on_grad(void *user, const fy_tensor_t *tensor, fy_tensor_t *grad)
{
    const pass_t *pass = user;
    fy_ddp_t *ddp = pass->ddp;
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    if (pass->given.on_grad) FY_TRY(pass->given.on_grad(pass->given.user, tensor, grad));
    FY_TRY(fy_tensor_query(grad, &info));
    const size_t b = bucket_of(ddp, &info);
    if (b < ddp->nbuckets) ddp->buckets[b].missing--;
    while (ddp->nstarted < ddp->nbuckets && ddp->buckets[ddp->nstarted].missing == 0)
        FY_TRY(start(ddp, ddp->nstarted));
    return FY_STATUS_OK;
}

/* Waits for a bucket's sum; a failed one leaves its gradients undefined. */
static fy_status_t finish(fy_ddp_t *ddp, size_t b)
{
    fyd_bucket_t *bucket = &ddp->buckets[b];
    fy_tensor_info_t part = FY_TENSOR_INFO_INIT;
    fy_tensor_t *view;
    FY_TRY(fy_ticket_wait(bucket->ticket, FY_FOREVER));
    FY_TRY(fy_tensor_query(bucket->part, &part));
    if (part.device == fy_device_host()) return FY_STATUS_OK;
    FY_TRY(view_of(ddp, b, &view));
    const fy_status_t status = fy_copy(view, bucket->part);
    fy_tensor_destroy(view);
    return status;
}

fy_status_t fyd_overlap_finish(fy_ddp_t *ddp)
{
    fy_status_t status = FY_STATUS_OK;
    for (size_t b = 0; b < ddp->nstarted; b++) {
        const fy_error_t error = *fy_error_get(); /* the first one stays */
        const fy_status_t one = finish(ddp, b);
        if (status == FY_STATUS_OK)
            status = one;
        else
            fy_error_set(status, error.file, error.line, "%s", error.text);
        fy_tensor_destroy(ddp->buckets[b].part);
        if (one == FY_STATUS_OK) fy_tensor_destroy(ddp->buckets[b].held);
        ddp->buckets[b].part = ddp->buckets[b].held = NULL;
    }
    ddp->nstarted = 0;
    return status;
}

fy_status_t fy_ddp_backward(fy_ddp_t *ddp, fy_tape_t *tape, const fy_tensor_t *loss,
                            const fy_backward_options_t *options)
{
    fy_backward_options_t own;
    pass_t pass = { ddp, FY_BACKWARD_OPTIONS_INIT };
    if (!ddp) return FYD_FAIL(INVALID_ARGUMENT, "ddp_backward: ddp is NULL");
    FY_TRY(FY__READ(backward_options, "ddp_backward", options, &pass.given));
    if (ddp->nstarted)
        return FYD_FAIL(BUSY, "ddp_backward: the sums of the last backward run: fy_ddp_reduce");
    if (ddp->options.after_backward || fyd_shards(ddp) || ddp->group->transport.size == 1 ||
        !ddp->group->transport.has_threads)
        return fy_model_backward(ddp->model, tape, loss, options);
    own = pass.given;
    own.on_grad = on_grad;
    own.user = &pass;
    for (size_t b = 0; b < ddp->nbuckets; b++) ddp->buckets[b].missing = ddp->buckets[b].nparams;
    const fy_status_t status = fy_model_backward(ddp->model, tape, loss, &own);
    if (status == FY_STATUS_OK) return status;
    const fy_error_t error = *fy_error_get();
    (void)fyd_overlap_finish(ddp);
    return fy_error_set(status, error.file, error.line, "%s", error.text);
}
