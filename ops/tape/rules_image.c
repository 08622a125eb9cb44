/* Gradient rules of ops on images: convolution, pooling, resizing. Each is one op, so that a
 * backend can have a fast kernel for it. */
#include <string.h>

#include "ops/tape/tape.h"

/* The attributes of a gradient begin with those of what it is of; conv2d's less the activation,
 * whose slope is applied before. */
enum { CONV2D_HEAD = offsetof(fy_conv2d_attrs_t, activation) };
_Static_assert(offsetof(fy_conv2d_backward_attrs_t, height) == CONV2D_HEAD,
               "conv2d's attributes are the head of its gradients'");
_Static_assert(offsetof(fy_pool2d_backward_attrs_t, height) == sizeof(fy_pool2d_attrs_t),
               "pooling's are the head of its gradient's");

/* Height and width of source i: axes 1 and 2, of images as of kernels. */
static void size_of(const fy__tape_step_t *s, uint32_t i, int32_t *out_height, int32_t *out_width)
{
    const int64_t *dims;
    int rank;
    fy__tape_shape(s, i, &rank, &dims);
    *out_height = (int32_t)dims[1];
    *out_width = (int32_t)dims[2];
}

bool fy__conv2d_keeps_result(const void *attrs)
{
    return ((const fy_conv2d_attrs_t *)attrs)->activation != FY_ACTIVATION_NONE;
}

/* x: g convolved with w reversed; w: x with g; bias: g summed over images and pixels; g is what
 * it is where relu was positive */
fy_status_t fy__back_conv2d(fy__tape_step_t *s)
{
    const fy_reduce_attrs_t all_but_channels = { 7, 0 };
    const bool wants_bias = s->call->nsrc == 3 && fy__tape_wants(s, 2);
    fy_tensor_t *g = s->g;
    fy_conv2d_backward_attrs_t attrs = { 0 };
    memcpy(&attrs, s->attrs, CONV2D_HEAD);
    if (fy__conv2d_keeps_result(s->attrs))
        FY_TRY(fy__tape_op(s, FY_OP_RELU_BACKWARD, 2,
                           (const fy_tensor_t *[]){ s->g, fy__tape_dst(s, 0) }, NULL, &g));
    if (fy__tape_wants(s, 0)) {
        size_of(s, 0, &attrs.height, &attrs.width);
        FY_TRY(fy__tape_give(s, 0, FY_OP_CONV2D_BACKWARD_INPUT, 2,
                             (const fy_tensor_t *[]){ g, fy__tape_src(s, 1) }, &attrs));
    }
    if (fy__tape_wants(s, 1)) {
        size_of(s, 1, &attrs.height, &attrs.width);
        const fy_tensor_t *src[2] = { g, fy__tape_src(s, 0) };
        if (wants_bias)
            return fy__tape_give2(s, 1, 2, FY_OP_CONV2D_BACKWARD_PARAMS, 2, src, &attrs);
        return fy__tape_give(s, 1, FY_OP_CONV2D_BACKWARD_WEIGHT, 2, src, &attrs);
    }
    return wants_bias
               ? fy__tape_give(s, 2, FY_OP_SUM, 1, (const fy_tensor_t *[]){ g }, &all_but_channels)
               : FY_STATUS_OK;
}

fy_status_t fy__back_max_pool2d(fy__tape_step_t *s)
{
    return fy__tape_give(s, 0, FY_OP_MAX_POOL2D_BACKWARD, 2,
                         (const fy_tensor_t *[]){ s->g, fy__tape_src(s, 0) }, s->attrs);
}

bool fy__avg_pool2d_keeps_source(const void *attrs)
{
    return ((const fy_pool2d_attrs_t *)attrs)->activation != FY_ACTIVATION_NONE;
}

fy_status_t fy__back_avg_pool2d(fy__tape_step_t *s)
{
    const fy_pool2d_attrs_t *pool = s->attrs;
    fy_pool2d_backward_attrs_t attrs = { 0 };
    memcpy(&attrs, pool, sizeof *pool);
    size_of(s, 0, &attrs.height, &attrs.width);
    const fy_tensor_t *src[2] = { s->g, fy__tape_src(s, 0) };
    return fy__tape_give(s, 0, FY_OP_AVG_POOL2D_BACKWARD, fy__avg_pool2d_keeps_source(pool) ? 2 : 1,
                         src, &attrs);
}

/* x's share of g: what the op read of x for each result */
static fy_status_t resample_back(fy__tape_step_t *s, fy_op_t op)
{
    fy_image_size_attrs_t attrs = { 0 };
    size_of(s, 0, &attrs.height, &attrs.width);
    return fy__tape_give(s, 0, op, 1, (const fy_tensor_t *[]){ s->g }, &attrs);
}

fy_status_t fy__back_resize2d(fy__tape_step_t *s)
{
    return resample_back(s, FY_OP_RESIZE2D_BACKWARD);
}

fy_status_t fy__back_adaptive_avg_pool2d(fy__tape_step_t *s)
{
    return resample_back(s, FY_OP_ADAPTIVE_AVG_POOL2D_BACKWARD);
}
