/* The gradient rule of a registered op: gives fy_op_def_t.backward what the tape saved and the
 * gradients of the results, checks the gradients that it returns, and adds them to those of the
 * sources. Not here: what a call saves (record.c). */
#include <stdlib.h>

#include "ops/format.h"
#include "ops/optable.h"
#include "ops/tape/tape.h"
#include "runtime/thread/scope.h"

enum { NEAR = 8 }; /* sources that need no block from the heap */

/* Arrays for `nsrc` sources, in one block. */
typedef struct arrays {
    fy_tensor_t **src, **grad;
    const fy_desc_t **wanted;
    fy_desc_t *descs;
} arrays_t;
enum { EACH = 2 * sizeof(fy_tensor_t *) + sizeof(fy_desc_t *) + sizeof(fy_desc_t) };

static arrays_t arrays_in(void *block, size_t nsrc)
{
    arrays_t arrays = { .descs = block };
    arrays.wanted = (const fy_desc_t **)(arrays.descs + nsrc);
    arrays.src = (fy_tensor_t **)(arrays.wanted + nsrc);
    arrays.grad = arrays.src + nsrc;
    return arrays;
}

/* Whether a tensor of shape `dims` sums to the shape of `source`. */
static bool sums_to(const fy_desc_t *source, int rank, const int64_t *dims)
{
    const int extra = rank - source->rank;
    if (extra < 0) return false;
    for (int i = 0; i < source->rank; i++)
        if (source->dims[i] != dims[i + extra] && source->dims[i] != 1) return false;
    return true;
}

static fy_status_t check(const fy__tape_step_t *step, uint32_t i, const fy_desc_t *wanted,
                         const fy_tensor_t *grad)
{
    char is[112], must[112];
    const char *name = step->call->name;
    if (fy__tensor_is_gone(grad))
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: its gradient rule gave source %u a tensor that is destroyed", name,
                       (unsigned)i);
    fy__tensor_format(grad, is, sizeof is);
    fy__desc_format(wanted, must, sizeof must);
    const fy_device_t *device = fy__tape_slot(step->tape, step->src[i].value)->device;
    if (grad->storage->device != device)
        return FY_FAIL(DEVICE_MISMATCH,
                       "%s: its gradient rule gave source %u a gradient on %s; the source is on %s",
                       name, (unsigned)i, grad->storage->device->spec, device->spec);
    if (grad->dtype != wanted->dtype)
        return FY_FAIL(DTYPE_MISMATCH,
                       "%s: its gradient rule gave source %u %s a gradient %s of another dtype",
                       name, (unsigned)i, must, is);
    if (!sums_to(wanted, grad->rank, grad->dims))
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: its gradient rule gave source %u %s a gradient %s; give the source's "
                       "shape, or one that the source broadcasts to",
                       name, (unsigned)i, must, is);
    return FY_STATUS_OK;
}

/* Calls the rule in a scope, then adds what it returned. */
static fy_status_t call_rule(fy__tape_step_t *step, const fy__tape_user_rule_t *rule,
                             const fy_op_backward_t *call, const arrays_t *arrays)
{
    fy__thread_t *thread = step->thread;
    fy__frame_t *frame = thread->frame;
    const fy_scope_t scope = fy_scope_begin(rule->info->name);
    thread->error.status = FY_STATUS_OK;
    fy_status_t status = rule->backward(call, arrays->grad);
    if (status != FY_STATUS_OK && thread->error.status == FY_STATUS_OK)
        status = fy_error_set(status, __FILE__, __LINE__,
                              "%s: its gradient rule failed and gave no reason", step->call->name);
    fy__frame_t *inner = thread->frame;
    thread->frame = NULL; /* gradients are the tape's */
    for (uint32_t i = 0; i < call->nsrc && status == FY_STATUS_OK; i++) {
        if (!arrays->wanted[i] || !arrays->grad[i]) continue;
        status = check(step, i, arrays->wanted[i], arrays->grad[i]);
        if (status == FY_STATUS_OK) status = fy__tape_give_tensor(step, i, arrays->grad[i]);
    }
    thread->frame = inner;
    fy_scope_end(scope, 0, NULL);
    thread->frame = frame;
    return status;
}

fy_status_t fy__back_registered(fy__tape_step_t *step)
{
    const fy__tape_user_rule_t *rule = (const fy__tape_user_rule_t *)(const void *)step->call->rule;
    const size_t nsrc = step->call->nsrc, ndst = step->call->ndst;
    _Alignas(fy_desc_t) unsigned char near[NEAR * EACH];
    fy_tensor_t *dst[FY__OP_DSTS_MAX], *dst_grad[FY__OP_DSTS_MAX];
    void *block = nsrc <= NEAR ? near : malloc(nsrc * EACH);
    if (!block)
        return FY_FAIL(OUT_OF_MEMORY, "gradient of %s: no host memory for %zu sources",
                       step->call->name, nsrc);
    const arrays_t arrays = arrays_in(block, nsrc);
    for (uint32_t i = 0; i < nsrc; i++) {
        fy_desc_t *desc = &arrays.descs[i];
        arrays.src[i] = step->src[i].saved;
        arrays.grad[i] = NULL;
        arrays.wanted[i] = NULL;
        if (!fy__tape_wants(step, i)) continue;
        const fy__tape_slot_t *slot = fy__tape_slot(step->tape, step->src[i].value);
        *desc = (fy_desc_t){ .dtype = slot->dtype, .rank = slot->rank };
        for (int axis = 0; axis < slot->rank; axis++) desc->dims[axis] = slot->dims[axis];
        arrays.wanted[i] = desc;
    }
    for (uint32_t i = 0; i < ndst; i++) {
        dst[i] = step->dst[i].saved;
        dst_grad[i] = fy__tape_result_grad(step, i);
    }
    const fy_op_backward_t call = { .struct_size = sizeof call,
                                    .info = rule->info,
                                    .attrs = rule->info->attrs_nbytes ? step->attrs : NULL,
                                    .nsrc = nsrc,
                                    .ndst = ndst,
                                    .src = arrays.src,
                                    .dst = dst,
                                    .dst_grad = dst_grad,
                                    .wanted = arrays.wanted,
                                    .user = rule->user };
    const fy_status_t status = call_rule(step, rule, &call, &arrays);
    if (block != near) free(block);
    return status;
}
